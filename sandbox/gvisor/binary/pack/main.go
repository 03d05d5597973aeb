// Command pack compresses a program for package binary, as a step of the build:
//
//	pack skete-runsc dist/skete-runsc.zst
//
// A file that holds the program already is left alone: compressing takes longer
// than linking.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/skete-dev/skete/sandbox/gvisor/binary"
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
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(target); err == nil {
		if plain, err := binary.Unpack(old); err == nil && bytes.Equal(plain, data) {
			return nil
		}
	}
	var out bytes.Buffer
	if err := binary.Pack(&out, data); err != nil {
		return err
	}
	tmp := target + ".new"
	if err := os.WriteFile(tmp, out.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, target)
}
