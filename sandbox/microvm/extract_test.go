package microvm

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/skete-dev/skete/errs"
)

// fakeELF is a file whose header says that it is so long.
func fakeELF(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	copy(b, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint64(b[40:], uint64(size-2*64)) // the section table
	binary.LittleEndian.PutUint16(b[58:], 64)
	binary.LittleEndian.PutUint16(b[60:], 2)
	return b
}

func pack(t testing.TB, format string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch format {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "lz4":
		z := lz4.NewWriter(&b)
		if err := z.Apply(lz4.LegacyOption(true)); err != nil {
			t.Fatal(err)
		}
		w = z
	case "zstd":
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	case "xz":
		xz, err := exec.LookPath("xz")
		if err != nil {
			t.Skip("xz is not installed")
		}
		cmd := exec.Command(xz, "--stdout", "--check=crc32")
		cmd.Stdin, cmd.Stdout = bytes.NewReader(data), &b
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// As distributions ship it: code before, something after, and before the true
// payload places that only look like one.
func TestExtractKernel_findsThePayload(t *testing.T) {
	kernel := fakeELF(300_000)
	for _, format := range []string{"lz4", "gzip", "zstd", "xz"} {
		t.Run(format, func(t *testing.T) {
			var image bytes.Buffer
			image.WriteString("MZ boot code")
			image.Write([]byte{0x1f, 0x8b, 0x08, 0, 0, 'n', 'o'})
			image.Write(make([]byte, 5000))
			image.Write([]byte{0x02, 0x21, 0x4c, 0x18, 1, 0, 0, 0, 9})
			image.Write(pack(t, "gzip", []byte("something packed that is no kernel, although long enough to be looked at in full")))
			image.Write(pack(t, format, kernel))
			image.Write(bytes.Repeat([]byte{0xcc, 0x01, 0xff}, 900))
			var out bytes.Buffer
			if err := extractKernel(t.Context(), image.Bytes(), &out); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out.Bytes(), kernel) {
				t.Errorf("%d bytes, want the kernel's %d", out.Len(), len(kernel))
			}
		})
	}
}

func TestExtractKernel_refusesWhatIsNone(t *testing.T) {
	short := fakeELF(300_000)
	binary.LittleEndian.PutUint64(short[40:], 299_000_000) // says that it is longer
	huge := fakeELF(4096)
	binary.LittleEndian.PutUint64(huge[40:], 1<<60)
	small := fakeELF(4096)
	small[4] = 1 // 32 bits
	cut := pack(t, "gzip", fakeELF(300_000))
	for name, image := range map[string][]byte{
		"nothing":           nil,
		"text":              []byte("no kernel in here"),
		"magics only":       bytes.Repeat([]byte{0x1f, 0x8b, 0x08}, 10_000),
		"a bomb of zeros":   pack(t, "zstd", make([]byte, 8<<20)),
		"ends too early":    pack(t, "zstd", short),
		"a huge size":       pack(t, "lz4", huge),
		"a 32-bit program":  pack(t, "gzip", small),
		"cut in the middle": cut[:len(cut)/2],
	} {
		var out bytes.Buffer
		if err := extractKernel(t.Context(), image, &out); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

func FuzzExtractKernel(f *testing.F) {
	for _, format := range []string{"lz4", "gzip", "zstd"} {
		f.Add(pack(f, format, fakeELF(2000)))
	}
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, image []byte) {
		if bytes.Contains(image, formats[3].magic) {
			return // that starts a program
		}
		var out bytes.Buffer
		if err := extractKernel(t.Context(), image, &out); err == nil && !bytes.HasPrefix(out.Bytes(), elfMagic) {
			t.Errorf("%d bytes of something else", out.Len())
		}
	})
}

// A package takes nothing but its kernel and modules to the cache, wherever
// its names point.
func TestTakeKernel_takesNothingElse(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	entries := []struct{ name, text string }{
		{"./boot/vmlinuz-6.1.0-9-cloud-amd64", "kernel"},
		{"./boot/config-6.1.0-9-cloud-amd64", "config"},
		{"./lib/modules/6.1.0-9-cloud-amd64/kernel/drivers/virtio/virtio.ko", "a module"},
		{"./usr/lib/modules/6.1.0-9-cloud-amd64/kernel/fs/overlay.ko.xz", "packed"},
		{"./lib/modules/6.1.0-9-cloud-amd64/../../../../../../tmp/evil.ko", "out"},
		{"/lib/modules/6.1.0-9-cloud-amd64/modules.order", "order"},
		{"./usr/bin/evil", "program"},
	}
	writeTar(t, &b, entries)
	release, err := takeKernel(t.Context(), &b, dir)
	if err != nil || release != "6.1.0-9-cloud-amd64" {
		t.Fatalf("%q, %v", release, err)
	}
	var got []string
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			got = append(got, rel)
		}
		return err
	})
	want := []string{"modules/kernel/drivers/virtio/virtio.ko", "modules/kernel/fs/overlay.ko.xz", "vmlinuz"}
	if err != nil || !equal(got, want) {
		t.Errorf("took %q, want %q (%v)", got, want, err)
	}
}
