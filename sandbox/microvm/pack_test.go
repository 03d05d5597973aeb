package microvm_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox/microvm"
)

func packed(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(text)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A kernel that was packed on one machine is found on another, with modules.
func TestPack_goesToAnotherMachine(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	first, err := microvm.Install(t.Context(), here, "6.1.0-1", bytes.NewReader(packed(t, map[string]string{
		"vmlinux": "\x7fELF and so on", "modules/kernel/drivers/virtio.ko": "module",
	})))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := microvm.Pack(t.Context(), first, &b); err != nil {
		t.Fatal(err)
	}
	if _, err := microvm.Install(t.Context(), there, first.Release, &b); err != nil {
		t.Fatal(err)
	}
	k, err := microvm.FindKernel(t.Context(), microvm.KernelConfig{Dir: there})
	if err != nil || k.Release != "6.1.0-1" || k.Hash != first.Hash {
		t.Fatalf("%+v, %v", k, err)
	}
	if text, err := os.ReadFile(filepath.Join(k.Modules, "kernel/drivers/virtio.ko")); string(text) != "module" {
		t.Errorf("the module: %q, %v", text, err)
	}
}

func TestInstall_refuses(t *testing.T) {
	whole := packed(t, map[string]string{"vmlinux": "\x7fELF"})
	for name, c := range map[string]struct {
		release string
		data    []byte
	}{
		"a release that is a path": {"../../etc", whole},
		"no release":               {"", whole},
		"no tar":                   {"6.1", []byte("something else")},
		"half of it":               {"6.1", whole[:514]},
		"no kernel":                {"6.1", packed(t, map[string]string{"modules/a.ko": "m"})},
		"no ELF":                   {"6.1", packed(t, map[string]string{"vmlinux": "text"})},
		"a way out":                {"6.1", packed(t, map[string]string{"vmlinux": "\x7fELF", "modules/../../x": "m"})},
		"another file":             {"6.1", packed(t, map[string]string{"vmlinux": "\x7fELF", "kernel.json": "{}"})},
	} {
		dir := t.TempDir()
		if _, err := microvm.Install(t.Context(), dir, c.release, bytes.NewReader(c.data)); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
		if _, err := microvm.FindKernel(t.Context(), microvm.KernelConfig{Dir: dir}); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s: it left a kernel: %v", name, err)
		}
	}
}

func FuzzInstall(f *testing.F) {
	f.Add(packed(f, map[string]string{"vmlinux": "\x7fELF", "modules/a": "m"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		_, _ = microvm.Install(t.Context(), dir, "6.1", bytes.NewReader(data))
		entries, err := os.ReadDir(filepath.Dir(dir))
		if err != nil || len(entries) != 1 {
			t.Errorf("it wrote elsewhere: %v, %v", entries, err)
		}
	})
}
