// Command forkexec measures what fork + exec + wait of a program costs in the
// kernel it runs on, so that a benchmark can tell its own share from the
// kernel's. It prints one duration in nanoseconds per line.
//
//	forkexec 200 /bin/true
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: forkexec COUNT PROGRAM [ARG …]")
		os.Exit(2)
	}
	count, err := strconv.Atoi(os.Args[1])
	if err != nil || count < 1 {
		fmt.Fprintln(os.Stderr, "forkexec: COUNT is a positive number")
		os.Exit(2)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for range count {
		began := time.Now()
		if err := once(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "forkexec:", err)
			os.Exit(1)
		}
		fmt.Fprintln(out, time.Since(began).Nanoseconds())
	}
}

// once is the least that any parent must do: fork, exec, wait.
func once(argv []string) error {
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return err
	}
	if status.ExitStatus() != 0 {
		return fmt.Errorf("%s: status %d", argv[0], status.ExitStatus())
	}
	return nil
}
