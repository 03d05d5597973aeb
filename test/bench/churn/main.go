// Command churn changes files in the working directory until it is killed, and
// writes a dot for each thousand changes:
//
//	churn rename  renames a file to and fro
//	churn create  makes empty files, ten thousand to a directory
package main

import (
	"fmt"
	"os"
)

const (
	perDirectory = 10_000
	perDot       = 1000
)

func main() {
	what := ""
	if len(os.Args) == 2 {
		what = os.Args[1]
	}
	var err error
	switch what {
	case "rename":
		err = rename()
	case "create":
		err = create()
	default:
		err = fmt.Errorf("usage: churn rename|create")
	}
	fmt.Fprintln(os.Stderr, "churn:", err)
	os.Exit(1)
}

func rename() error {
	const a, b = "churn-a", "churn-b"
	if err := os.WriteFile(a, nil, 0o600); err != nil {
		return err
	}
	for n := 0; ; n++ {
		if err := os.Rename(a, b); err != nil {
			return err
		}
		if err := os.Rename(b, a); err != nil {
			return err
		}
		dot(2 * n)
	}
}

func create() error {
	for n := 0; ; n++ {
		dir := fmt.Sprintf("churn-%d", n/perDirectory)
		if n%perDirectory == 0 {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
		}
		f, err := os.Create(fmt.Sprintf("%s/%d", dir, n))
		if err != nil {
			return err
		}
		f.Close()
		dot(n)
	}
}

func dot(n int) {
	if n%perDot == 0 {
		os.Stdout.WriteString(".")
	}
}
