// Package packed is for programs that skete carries inside, compressed, and puts
// on disk when it needs them: the guest, and gVisor's.
//
//	path, err := packed.Program{Data: data}.Install(dir, "skete-guest-", 0o755) // data: what Pack wrote
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
	baseMax     = 32 << 20  // of a base, and the window above it
	chunkBytes  = 256 << 10
)

// Program is a packed program.
type Program struct {
	// Data is what Pack wrote.
	Data io.ReadSeeker
	// Base is another program that it was packed against, nil = none. Two programs
	// with the same packages inside share much; but unpacking holds the base, and as
	// much again, in memory.
	Base *Program
}

// Install writes the program beneath dir, which gets the mode if it is made,
// and returns its path. An equal file that is there already is kept.
func (p Program) Install(dir, prefix string, mode fs.FileMode) (string, error) {
	sum := sha256.New() // streams: a server's memory is not for a program that it only passes on
	if _, err := p.Data.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	if _, err := io.Copy(sum, p.Data); err != nil {
		return "", err
	}
	path := filepath.Join(dir, prefix+hex.EncodeToString(sum.Sum(nil)[:8]))
	whole, err := p.holds(path)
	if err == nil && !whole {
		err = p.place(dir, path, mode)
	}
	return path, err
}

// unpack reads the program from its beginning, as calls wrote it. Corrupt: see
// corrupt.
func (p Program) unpack() (*zstd.Decoder, error) {
	if _, err := p.Data.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	window, options := uint64(windowBytes), []zstd.DOption{zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1)}
	if p.Base != nil {
		base, err := p.Base.whole()
		if err != nil {
			return nil, err
		}
		window, options = baseMax, append(options, zstd.WithDecoderDictRaw(0, base))
	}
	return zstd.NewReader(p.Data, append(options, zstd.WithDecoderMaxWindow(window))...)
}

// whole is all that unpack reads.
func (p Program) whole() ([]byte, error) {
	z, err := p.unpack()
	if err != nil {
		return nil, err
	}
	defer z.Close()
	all, err := io.ReadAll(io.LimitReader(z, baseMax+1))
	if err == nil && len(all) > baseMax {
		err = errors.New("too big for a base")
	}
	return all, err
}

func corrupt(err error) error {
	return errs.Wrap(errs.Corrupt, err, "a program inside skete is damaged")
}

// Pack compresses a program, against base if that is not nil, for the build: with
// the command zstd if it is there, which makes it a tenth smaller.
func Pack(w io.Writer, program io.Reader, base *Program) error {
	window, against := windowBytes, []byte(nil)
	if base != nil {
		var err error
		if against, err = base.whole(); err != nil {
			return corrupt(err)
		}
		window = baseMax
	}
	if path, err := exec.LookPath("zstd"); err == nil {
		return packBy(path, w, program, window, against)
	}
	options := []zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1)}
	if base != nil {
		options = append(options, zstd.WithEncoderDictRaw(0, against))
	}
	z, err := zstd.NewWriter(w, options...)
	if err != nil {
		return err
	}
	_, err = io.Copy(z, newCalls(program, false))
	return errors.Join(err, z.Close())
}

// packBy compresses with the command at path, as hard as it can.
func packBy(path string, w io.Writer, program io.Reader, window int, against []byte) error {
	all, err := io.ReadAll(newCalls(program, false)) // against a base, the command wants to know its size
	if err != nil {
		return err
	}
	args := []string{"-q", "--ultra", "-22", "-c"}
	if against != nil {
		base, err := os.CreateTemp("", "base-*")
		if err != nil {
			return err
		}
		defer os.Remove(base.Name())
		_, err = base.Write(against)
		if err := errors.Join(err, base.Close()); err != nil {
			return err
		}
		args = append(args, "--patch-from="+base.Name(), "--stream-size="+strconv.Itoa(len(all)))
	}
	var said bytes.Buffer
	z := exec.Command(path, append(args, "--zstd=wlog="+strconv.Itoa(bits.Len(uint(window))-1))...)
	z.Stdin, z.Stdout, z.Stderr = bytes.NewReader(all), w, &said
	if err := z.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", path, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// holds reports whether the file is the program, whole and startable.
// Corrupt: what is packed is damaged.
func (p Program) holds(path string) (bool, error) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o755 {
		return false, nil
	}
	return p.Equal(path)
}

// Equal reports whether the file holds the bytes of the program. Corrupt: what is
// packed is damaged.
func (p Program) Equal(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	z, err := p.unpack()
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
func (p Program) place(dir, path string, mode fs.FileMode) error {
	z, err := p.unpack()
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
