// Package binary carries the skete-runsc program inside skete, compressed, and
// puts it on disk for the gVisor provider.
//
// `make build` places the program in dist/ before it builds skete. A plain
// `go build` works without it: skete then plays the part itself, which is the
// same gVisor, only slower to start.
package binary

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
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

	"github.com/klauspost/compress/zstd"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox/gvisor/runsc"
)

//go:embed dist
var dist embed.FS

const (
	packed     = "dist/skete-runsc.zst"
	prefix     = "skete-runsc-"
	bytesMax   = 256 << 20 // of the program, unpacked
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
	data, err := fs.ReadFile(dist, packed)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errs.New(errs.Unsupported, "this skete was built without skete-runsc").WithHint("build with `make build`")
	}
	if err != nil {
		return "", err
	}
	return install(ctx, dir, data)
}

func install(ctx context.Context, dir string, data []byte) (string, error) {
	sum := sha256.Sum256(data)
	path := filepath.Join(dir, prefix+hex.EncodeToString(sum[:8]))
	plain, err := Unpack(data)
	if err != nil {
		return "", errs.Wrap(errs.Corrupt, err, "the skete-runsc inside skete is damaged")
	}
	if !same(path, plain) {
		if err := place(dir, path, plain); err != nil {
			return "", fmt.Errorf("install skete-runsc: %w", err)
		}
	}
	return path, try(ctx, path)
}

// Unpack gives the program back. An error: it is damaged, or too big.
func Unpack(data []byte) ([]byte, error) {
	r, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(bytesMax), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.DecodeAll(data, nil)
}

// Pack compresses a program, for the build.
func Pack(w io.Writer, program []byte) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	_, err = z.Write(program)
	return errors.Join(err, z.Close())
}

// same reports whether the file is the program, whole and startable.
func same(path string, plain []byte) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o755 || info.Size() != int64(len(plain)) {
		return false
	}
	old, err := os.ReadFile(path)
	return err == nil && bytes.Equal(old, plain)
}

// place writes the file in one step: whoever finds it finds all of it.
func place(dir, path string, data []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".runsc-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o755), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
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
		ours := strings.HasPrefix(e.Name(), prefix) || strings.HasPrefix(e.Name(), ".runsc-")
		if ours && e.Type().IsRegular() && !keep(path) {
			all = errors.Join(all, os.Remove(path))
		}
	}
	return all
}
