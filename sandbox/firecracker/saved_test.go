package firecracker

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

var shape = savedShape{
	Provider: "firecracker", Firecracker: "1.16.1", CPU: "x", HostKernel: "6.1.0", Root: "abc", VCPUs: 2, MemoryMiB: 512, LayerBytes: 64 << 20,
}

func savedSnapshot(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{savedState: "state", savedMemory: "memory", savedLayer: "layer"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeSaved(dir, shape); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestASnapshotFitsWhereNothingHasChanged(t *testing.T) {
	if err := checkSaved(savedSnapshot(t), shape); err != nil {
		t.Error(err)
	}
}

func TestEveryPartOfTheShapeIsCompared(t *testing.T) {
	dir := savedSnapshot(t)
	for what, change := range map[string]func(*savedShape){
		"provider":    func(s *savedShape) { s.Provider = "qemu" },
		"firecracker": func(s *savedShape) { s.Firecracker = "1.16.2" },
		"cpu":         func(s *savedShape) { s.CPU = "y" },
		"host kernel": func(s *savedShape) { s.HostKernel = "6.2.0" },
		"root":        func(s *savedShape) { s.Root = "abd" },
		"vcpus":       func(s *savedShape) { s.VCPUs = 1 },
		"memory":      func(s *savedShape) { s.MemoryMiB = 513 },
		"layer":       func(s *savedShape) { s.LayerBytes++ },
		"boot":        func(s *savedShape) { s.Boot = "x" },
	} {
		other := shape
		change(&other)
		if err := checkSaved(dir, other); !errs.Is(err, errs.Unsupported) {
			t.Errorf("another %s: %v", what, err)
		}
	}
}

func TestDamageIsSeen(t *testing.T) {
	for what, harm := range map[string]func(dir string) error{
		"no manifest":    func(d string) error { return os.Remove(filepath.Join(d, manifest)) },
		"no memory":      func(d string) error { return os.Remove(filepath.Join(d, savedMemory)) },
		"shorter memory": func(d string) error { return os.Truncate(filepath.Join(d, savedMemory), 3) },
		"half a manifest": func(d string) error {
			return os.Truncate(filepath.Join(d, manifest), 40)
		},
		"a link as state": func(d string) error {
			if err := os.Remove(filepath.Join(d, savedState)); err != nil {
				return err
			}
			return os.Symlink(savedLayer, filepath.Join(d, savedState)) // of five bytes too
		},
	} {
		dir := savedSnapshot(t)
		if err := harm(dir); err != nil {
			t.Fatal(err)
		}
		if err := checkSaved(dir, shape); err == nil {
			t.Errorf("%s: fits", what)
		}
	}
}

func TestManifestsThatAreNone(t *testing.T) {
	for _, text := range []string{
		"", "null", "{}", "[]", `{"format":2}`, `{"format":1,"shape":{},"bytes":{}}`,
		`{"format":1,"shape":{},"bytes":{"vm.state":1,"vm.mem":1,"layer.img":1,"../../etc/passwd":1}}`,
		`{"format":1,"extra":1}`, `{"format":1,"shape":{"vcpus":"two"}}`, strings.Repeat(" ", manifestBytesMax+1),
	} {
		if _, err := parseSaved([]byte(text)); err == nil {
			t.Errorf("%.60q is a manifest", text)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"shape":{"provider":"firecracker"},"bytes":{"vm.state":1,"vm.mem":2,"layer.img":3}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseSaved(data)
		if err == nil && (m.Format != format || len(m.Bytes) != 3) {
			t.Errorf("%q is taken", data)
		}
	})
}

func TestCPUNamesModelMicrocodeAndFeatures(t *testing.T) {
	const one = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nstepping\t: 1\nmicrocode\t: 0xa0011d1\nflags\t\t: fpu sse avx\ncpu MHz\t\t: 2596.124\n"
	a := savedCPU([]byte(one + "\nprocessor\t: 1\nmodel\t: 9\n"))
	if !strings.HasPrefix(a, "AuthenticAMD/25/1/1/0xa0011d1/") {
		t.Errorf("CPU = %q", a)
	}
	if b := savedCPU([]byte(strings.ReplaceAll(strings.ReplaceAll(one, "fpu sse avx", "avx fpu sse"), "2596", "3000"))); b != a {
		t.Errorf("order and clock matter: %q, %q", a, b)
	}
	if b := savedCPU([]byte(strings.Replace(one, "avx", "avx2", 1))); b == a {
		t.Error("features do not matter")
	}
	if b := savedCPU(nil); b == "" || b == a {
		t.Errorf("an empty file: %q", b)
	}
}

func TestCopyKeepsBytesAndHoles(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	f, err := os.Create(from)
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{0, 5<<20 + 123, size - 7} {
		if _, err := f.WriteAt([]byte("data..."), at); err != nil {
			t.Fatal(err)
		}
	}
	defer f.Close()
	if err := copySaved(f, to); err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(from)
	b, _ := os.ReadFile(to)
	if !bytes.Equal(a, b) {
		t.Error("the copy differs")
	}
	var st unix.Stat_t
	if err := unix.Stat(to, &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*512 > 4<<20 {
		t.Errorf("the copy takes %d bytes on disk", st.Blocks*512)
	}
	if err := copySaved(f, to); err == nil {
		t.Error("a file was overwritten")
	}
}
