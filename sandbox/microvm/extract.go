package microvm

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/confine"
)

// Bounds of a kernel's file.
const (
	imageBytesMax  = 256 << 20 // compressed
	kernelBytesMax = 1 << 30
	payloadsMax    = 64 // places that look like a compressed kernel
)

var elfMagic = []byte("\x7fELF")

// formats in which kernels are compressed, by what they begin with.
var formats = []struct {
	name  string
	magic []byte
	open  func(context.Context, io.Reader) (io.ReadCloser, error)
}{
	{"lz4", []byte{0x02, 0x21, 0x4c, 0x18}, func(_ context.Context, r io.Reader) (io.ReadCloser, error) {
		return io.NopCloser(lz4.NewReader(r)), nil
	}},
	{"gzip", []byte{0x1f, 0x8b, 0x08}, func(_ context.Context, r io.Reader) (io.ReadCloser, error) {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		z.Multistream(false) // what follows is not ours
		return z, nil
	}},
	{"zstd", []byte{0x28, 0xb5, 0x2f, 0xfd}, func(_ context.Context, r io.Reader) (io.ReadCloser, error) {
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}},
	{"xz", []byte{0xfd, '7', 'z', 'X', 'Z', 0x00}, openXZ},
}

// extractKernel writes the kernel in image, which is one as distributions ship
// it (vmlinuz) or an ELF file already, to w. Invalid: there is no kernel in it;
// Limit: it is larger than any.
func extractKernel(ctx context.Context, image []byte, w io.Writer) error {
	if len(image) > imageBytesMax {
		return errs.New(errs.Limit, "the kernel's file has more than %d bytes", imageBytesMax)
	}
	if bytes.HasPrefix(image, elfMagic) {
		_, err := w.Write(image)
		return err
	}
	var tried []error
	for range payloadsMax {
		at, format := nextPayload(image)
		if format < 0 {
			break
		}
		err := unpackKernel(ctx, format, image[at:], w)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errNotKernel) {
			return err
		}
		tried = append(tried, err)
		image = image[at+1:]
	}
	return errs.Wrap(errs.Invalid, errors.Join(tried...), "there is no Linux kernel in this file that we can unpack")
}

// nextPayload finds the first place where something compressed may begin.
func nextPayload(image []byte) (at, format int) {
	at, format = len(image), -1
	for i, f := range formats {
		if j := bytes.Index(image[:at], f.magic); j >= 0 {
			at, format = j, i
		}
	}
	return at, format
}

// errNotKernel: a place that looked like a compressed kernel is none. Nothing
// has been written.
var errNotKernel = errors.New("not a compressed kernel")

// unpackKernel writes the ELF file that is compressed at the beginning of data.
// Its length is known from its own headers: what follows it in the image makes
// most decompressors complain, and says nothing about the kernel.
func unpackKernel(ctx context.Context, format int, data []byte, w io.Writer) error {
	f := formats[format]
	r, err := f.open(ctx, bytes.NewReader(data))
	if err != nil {
		if errs.Is(err, errs.Unsupported) {
			return err
		}
		return fmt.Errorf("%s: %w: %w", f.name, errNotKernel, err)
	}
	defer r.Close()
	head := make([]byte, elfHeaderBytes)
	if _, err := io.ReadFull(r, head); err != nil || !bytes.HasPrefix(head, elfMagic) {
		return fmt.Errorf("%s: %w", f.name, errNotKernel)
	}
	size, err := elfBytes(head)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", f.name, errNotKernel, err)
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	n, err := io.CopyN(w, r, size-int64(len(head)))
	if err != nil {
		return errs.Wrap(errs.Invalid, err, "the compressed kernel ends after %d of %d bytes", n+int64(len(head)), size)
	}
	return nil
}

const elfHeaderBytes = 64

// elfBytes returns the size of a 64-bit little-endian ELF file whose section
// table stands at its end, as a kernel's does.
func elfBytes(head []byte) (int64, error) {
	const class64, little = 2, 1
	if head[4] != class64 || head[5] != little {
		return 0, errors.New("not a 64-bit little-endian program")
	}
	table := binary.LittleEndian.Uint64(head[40:])
	entry, count := binary.LittleEndian.Uint16(head[58:]), binary.LittleEndian.Uint16(head[60:])
	if table < elfHeaderBytes || table > kernelBytesMax || count == 0 {
		return 0, errs.New(errs.Limit, "a section table at %d", table)
	}
	return int64(table) + int64(entry)*int64(count), nil
}

// openXZ unpacks with the distribution's own program: dpkg needs it, so it is
// nearly always there.
func openXZ(ctx context.Context, r io.Reader) (io.ReadCloser, error) {
	program, err := exec.LookPath("xz")
	if err != nil {
		return nil, errs.New(errs.Unsupported, "the kernel is packed with xz, which is not installed here").WithHint("apt install xz-utils")
	}
	cmd := exec.CommandContext(ctx, program, "--decompress", "--stdout", "--single-stream", "--quiet", "--memlimit=256MiB")
	cmd.Env = []string{"LC_ALL=C"}
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := confine.Start(cmd, confine.Rights{}); err != nil {
		return nil, err
	}
	return &running{ReadCloser: out, cmd: cmd}, nil
}

// running is the output of a running program. Close ends it.
type running struct {
	io.ReadCloser
	cmd *exec.Cmd
}

func (p *running) Close() error {
	err := p.ReadCloser.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed, or complains of what follows its data
	return err
}

// extractFile is ExtractKernel between files.
func extractFile(ctx context.Context, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	image, err := io.ReadAll(io.LimitReader(in, imageBytesMax+1))
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	err = extractKernel(ctx, image, out)
	return errors.Join(err, out.Sync(), out.Close())
}
