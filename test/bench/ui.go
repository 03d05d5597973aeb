package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// ui measures pages in a browser: by the tests that know how, which say what they measured.
func (b *bench) ui() (err error) {
	for _, program := range []string{"node", "chromium"} {
		if _, err := exec.LookPath(program); err != nil {
			b.Skipped("ui", "", program+" is not there: make need-test installs it")
			return nil
		}
	}
	dir, err := os.MkdirTemp("", "skete-bench-ui-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	lines := filepath.Join(dir, "lines")
	only := "^TestScale"
	if b.quick {
		only = "^TestScale$"
	}
	cmd := exec.CommandContext(b.ctx, "go", "test", "-vet=off", "-count=1", "-timeout", "20m", "-run", only, "./test/ui")
	cmd.Env = append(os.Environ(), "SKETE_TEST_BENCH="+lines)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the tests that measure: %w", err)
	}
	f, err := os.Open(lines)
	if errors.Is(err, fs.ErrNotExist) {
		b.Skipped("ui", "", "the tests that measure were skipped: go test -v says why")
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(os.Stdout, f)
	return err
}
