package main

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func termios(t *testing.T, tty *os.File) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}
