package packed_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/packed"
)

// A program is the same after it was packed, whichever way the build packs it.
func TestPack_bothWays(t *testing.T) {
	program := bytes.Repeat([]byte("\xe8\x10\x20\x30\x00 a call"), 200_000)
	noise := rand.NewChaCha8([32]byte{1})
	_, _ = noise.Read(program[:1<<20])
	for _, way := range []string{"zstd", "alone"} {
		t.Run(way, func(t *testing.T) {
			if way == "alone" {
				t.Setenv("PATH", t.TempDir())
			} else if _, err := exec.LookPath("zstd"); err != nil {
				t.Skip("skipped: no zstd on this machine: `make need` installs it")
			}
			alone := pack(t, program, nil)
			unpack(t, alone, program)
			other := bytes.Clone(program)
			copy(other[2<<20:], "another program, which shares all but this")
			against := pack(t, other, &alone)
			unpack(t, against, other)
			if n := bytesOf(t, against); n > bytesOf(t, alone)/100 {
				t.Errorf("%d bytes against its like, which has %d", n, bytesOf(t, alone))
			}
			against.Base = nil
			if _, err := against.Install(t.TempDir(), "p-", 0o755); !errs.Is(err, errs.Corrupt) {
				t.Errorf("without its base: %v", err)
			}
		})
	}
}

func pack(t *testing.T, program []byte, base *packed.Program) packed.Program {
	t.Helper()
	var b bytes.Buffer
	if err := packed.Pack(&b, bytes.NewReader(program), base); err != nil {
		t.Fatal(err)
	}
	return packed.Program{Data: bytes.NewReader(b.Bytes()), Base: base}
}

func unpack(t *testing.T, p packed.Program, want []byte) {
	t.Helper()
	path, err := p.Install(t.TempDir(), "p-", 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v; %d bytes became %d", err, len(want), len(got))
	}
}

func bytesOf(t *testing.T, p packed.Program) int64 {
	t.Helper()
	n, err := p.Data.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A zstd that fails fails the build, with its words.
func TestPack_zstdFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/zstd", []byte("#!/bin/sh\necho sad words >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	err := packed.Pack(&bytes.Buffer{}, bytes.NewReader([]byte("x")), nil)
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("sad words")) {
		t.Errorf("it says %v", err)
	}
}
