// Package packed is for programs that skete carries inside, compressed, and puts
// on disk when it needs them: the guest, and gVisor's.
//
//	path, err := packed.Install(dir, "skete-guest-", 0o755, data) // data: what Pack wrote
//
// A program is named by the hash of its packed form, and placed in one step;
// one that was damaged is made anew. All functions may be called from several
// processes at once. Corrupt: what is packed is damaged.
package packed

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"github.com/skete-dev/skete/errs"
)

const (
	bytesMax    = 256 << 20 // of a program, unpacked
	windowBytes = 2 << 20   // of the compression: what unpacking needs of memory
	chunkBytes  = 256 << 10
)

// Install writes the program beneath dir, which gets the mode if it is made,
// and returns its path. An equal file that is there already is kept.
func Install(dir, prefix string, mode fs.FileMode, data io.ReadSeeker) (string, error) {
	sum := sha256.New() // streams: a server's memory is not for a program that it only passes on
	if _, err := data.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	if _, err := io.Copy(sum, data); err != nil {
		return "", err
	}
	path := filepath.Join(dir, prefix+hex.EncodeToString(sum.Sum(nil)[:8]))
	whole, err := holds(path, data)
	if err == nil && !whole {
		err = place(dir, path, mode, data)
	}
	return path, err
}

// unpack reads a packed program from its beginning. Corrupt: see corrupt.
func unpack(data io.ReadSeeker) (*zstd.Decoder, error) {
	if _, err := data.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return zstd.NewReader(data, zstd.WithDecoderMaxWindow(windowBytes), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1))
}

func corrupt(err error) error {
	return errs.Wrap(errs.Corrupt, err, "a program inside skete is damaged")
}

// Pack compresses a program, for the build: with the command zstd if it is there,
// which makes it a tenth smaller.
func Pack(w io.Writer, program io.Reader) error {
	if path, err := exec.LookPath("zstd"); err == nil {
		return packBy(path, w, program)
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(windowBytes), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	_, err = io.Copy(z, newCalls(program, false))
	return errors.Join(err, z.Close())
}

// packBy compresses with the command at path, as hard as it can.
func packBy(path string, w io.Writer, program io.Reader) error {
	var said bytes.Buffer
	z := exec.Command(path, "-q", "--ultra", "-22", "--zstd=wlog="+strconv.Itoa(bits.Len(windowBytes)-1), "-c")
	z.Stdin, z.Stdout, z.Stderr = newCalls(program, false), w, &said
	if err := z.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", path, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
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
	program := newCalls(z, true)
	want, got := make([]byte, chunkBytes), make([]byte, chunkBytes)
	for {
		n, err := io.ReadFull(program, want)
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

// place writes the file in one step: a reader finds all of it or nothing.
func place(dir, path string, mode fs.FileMode, data io.ReadSeeker) error {
	z, err := unpack(data)
	if err != nil {
		return corrupt(err)
	}
	defer z.Close()
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	n, err := io.Copy(tmp, io.LimitReader(source{newCalls(z, true)}, bytesMax+1))
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
