// Package binary carries the skete-runsc program inside skete, compressed, and
// puts it on disk for the gVisor provider.
//
// `make build` places the program in dist/ and builds skete with the tag
// packed: that skete has it here and nowhere else, and does not build without.
// A plain `go build` works without it: gVisor is linked, and skete plays the
// part itself, only slower to start.
package binary

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/packed"
	"github.com/skete-dev/skete/sandbox/gvisor/runsc"
)

const (
	file       = "dist/skete-runsc.zst"
	prefix     = "skete-runsc-"
	tryTimeout = 10 * time.Second
)

// Install writes the embedded program beneath dir, named by the hash of its
// packed form, and returns its path. An equal file that is there already is
// kept. The program is started once, to see that this host lets it: a data
// directory may be mounted noexec. Safe to call from several processes at once.
//
// Unsupported: this skete was built without the program, or it cannot be
// started from dir.
func Install(ctx context.Context, dir string) (string, error) {
	f, err := dist.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errs.New(errs.Unsupported, "this skete was built without skete-runsc").WithHint("build with `make build`")
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	return install(ctx, dir, f.(io.ReadSeeker)) // embed says that it is one
}

func install(ctx context.Context, dir string, data io.ReadSeeker) (string, error) {
	path, err := packed.Program{Data: data}.Install(dir, prefix, 0o700)
	if err != nil {
		return "", fmt.Errorf("install skete-runsc: %w", err)
	}
	return path, try(ctx, path)
}

// try starts the program.
func try(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	out, err := version(ctx, path)
	for wait := time.Millisecond; errors.Is(err, syscall.ETXTBSY) && ctx.Err() == nil; wait *= 2 {
		// A process that was forked while we wrote the file has it open until it
		// starts its own program.
		<-time.After(wait)
		out, err = version(ctx, path)
	}
	if err != nil {
		return errs.Wrap(errs.Unsupported, fmt.Errorf("%w: %q", err, out[:min(len(out), 512)]), "skete-runsc does not start from the data directory").
			WithHint("is the file system of the data directory mounted noexec?")
	}
	return nil
}

func version(ctx context.Context, path string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, runsc.Verb, "--version")
	cmd.Env = []string{}
	return cmd.CombinedOutput()
}

// Prune removes the programs beneath dir that keep does not want, and what an
// interrupted Install left. A machine that runs is not hurt by the loss of its
// program's name; but what is done to it should be done by the same program.
func Prune(dir string, keep func(path string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var all error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		ours := strings.HasPrefix(e.Name(), prefix) || strings.HasPrefix(e.Name(), "."+prefix) || strings.HasPrefix(e.Name(), ".runsc-")
		if ours && e.Type().IsRegular() && !keep(path) {
			all = errors.Join(all, os.Remove(path))
		}
	}
	return all
}
