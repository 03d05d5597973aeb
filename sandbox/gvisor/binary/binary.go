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
	packed      = "dist/skete-runsc.zst"
	prefix      = "skete-runsc-"
	bytesMax    = 256 << 20 // of the program, unpacked
	windowBytes = 2 << 20   // of the compression: what unpacking needs of memory
	chunkBytes  = 256 << 10
	tryTimeout  = 10 * time.Second
)

// Install writes the embedded program beneath dir, named by the hash of its
// packed form, and returns its path. An equal file that is there already is
// kept. The program is started once, to see that this host lets it: a data
// directory may be mounted noexec. Safe to call from several processes at once.
//
// Unsupported: this skete was built without the program, or it cannot be
// started from dir.
func Install(ctx context.Context, dir string) (string, error) {
	f, err := dist.Open(packed)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errs.New(errs.Unsupported, "this skete was built without skete-runsc").WithHint("build with `make build`")
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	return install(ctx, dir, f.(io.ReadSeeker)) // embed says that it is one
}

// install streams: a server's memory is not for a program that it only passes on.
func install(ctx context.Context, dir string, data io.ReadSeeker) (string, error) {
	sum := sha256.New()
	if _, err := data.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	if _, err := io.Copy(sum, data); err != nil {
		return "", err
	}
	path := filepath.Join(dir, prefix+hex.EncodeToString(sum.Sum(nil)[:8]))
	whole, err := holds(path, data)
	if err == nil && !whole {
		err = place(dir, path, data)
	}
	if err != nil {
		return "", fmt.Errorf("install skete-runsc: %w", err)
	}
	return path, try(ctx, path)
}

// unpack reads a packed program from its beginning. Corrupt: see corrupt.
func unpack(data io.ReadSeeker) (*zstd.Decoder, error) {
	if _, err := data.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return zstd.NewReader(data, zstd.WithDecoderMaxWindow(windowBytes), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1))
}

func corrupt(err error) error {
	return errs.Wrap(errs.Corrupt, err, "the skete-runsc inside skete is damaged")
}

// Pack compresses a program, for the build.
func Pack(w io.Writer, program io.Reader) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(windowBytes), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	_, err = io.Copy(z, program)
	return errors.Join(err, z.Close())
}

// holds reports whether the file is the program, whole and startable.
// Corrupt: what is packed is damaged.
func holds(path string, data io.ReadSeeker) (bool, error) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o755 {
		return false, nil
	}
	return Equal(path, data)
}

// Equal reports whether the file holds the bytes that are packed in data.
// Corrupt: what is packed is damaged.
func Equal(path string, data io.ReadSeeker) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	z, err := unpack(data)
	if err != nil {
		return false, corrupt(err)
	}
	defer z.Close()
	want, got := make([]byte, chunkBytes), make([]byte, chunkBytes)
	for {
		n, err := io.ReadFull(z, want)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && n > 0
		if err != nil && !last {
			return false, corrupt(err)
		}
		m, err := io.ReadFull(f, got)
		if !bytes.Equal(want[:n], got[:m]) {
			return false, nil
		}
		if last {
			return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), nil
		}
	}
}

// place writes the file in one step: whoever finds it finds all of it.
func place(dir, path string, data io.ReadSeeker) error {
	z, err := unpack(data)
	if err != nil {
		return corrupt(err)
	}
	defer z.Close()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".runsc-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	n, err := io.Copy(tmp, io.LimitReader(source{z}, bytesMax+1))
	if err == nil && n > bytesMax {
		err = corrupt(errors.New("too big"))
	}
	err = errors.Join(err, tmp.Chmod(0o755), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// source tells errors of reading from those of writing.
type source struct{ r io.Reader }

func (s source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = corrupt(err)
	}
	return n, err
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
