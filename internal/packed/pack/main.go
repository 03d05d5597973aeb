// Command pack compresses a program that skete carries, as a step of the build:
//
//	pack skete-runsc dist/skete-runsc.zst
//
// A file that holds the program already is left alone: compressing takes longer
// than linking.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/skete-dev/skete/internal/packed"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: pack PROGRAM TARGET")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(program, target string) error {
	if old, err := os.Open(target); err == nil {
		same, err := packed.Equal(program, old)
		_ = old.Close()
		if err == nil && same {
			return nil
		}
	}
	in, err := os.Open(program)
	if err != nil {
		return err
	}
	defer in.Close()
	tmp := target + ".new"
	out, err := os.Create(tmp)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	if err := errors.Join(packed.Pack(out, in), out.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, target)
}
