// Command pack compresses a program that skete carries, as a step of the build:
//
//	pack skete-runsc dist/skete-runsc.zst
//	pack skete-agent dist/skete-agent.zst dist/skete-guest.zst # against another that is packed
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
	if len(os.Args) != 3 && len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: pack PROGRAM TARGET [BASE]")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(program, target string, bases []string) error {
	var base *packed.Program
	if len(bases) > 0 {
		f, err := os.Open(bases[0])
		if err != nil {
			return err
		}
		defer f.Close()
		base = &packed.Program{Data: f}
	}
	if old, err := os.Open(target); err == nil {
		same, err := packed.Program{Data: old, Base: base}.Equal(program)
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
	if err := errors.Join(packed.Pack(out, in, base), out.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, target)
}
