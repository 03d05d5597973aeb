package packed_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

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
			var b bytes.Buffer
			if err := packed.Pack(&b, bytes.NewReader(program)); err != nil {
				t.Fatal(err)
			}
			path, err := packed.Install(t.TempDir(), "p-", 0o755, bytes.NewReader(b.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, program) {
				t.Errorf("%v; %d bytes became %d", err, len(program), len(got))
			}
		})
	}
}

// A zstd that fails fails the build, with its words.
func TestPack_zstdFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/zstd", []byte("#!/bin/sh\necho sad words >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	err := packed.Pack(&bytes.Buffer{}, bytes.NewReader([]byte("x")))
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("sad words")) {
		t.Errorf("it says %v", err)
	}
}
