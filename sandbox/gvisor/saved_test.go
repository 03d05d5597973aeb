package gvisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skete-dev/skete/sandbox"
)

func sealed(t *testing.T) (savedManifest, string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat(name, 100)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := savedManifest{Form: manifestForm, GVisor: "v1", Arch: "a", CPU: "c", Spec: "s", Rootfs: "r", DiskMB: 5}
	if err := m.Seal(dir); err != nil {
		t.Fatal(err)
	}
	return m, dir
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	for what, edit := range map[string]func(*savedManifest){
		"form": func(m *savedManifest) { m.Form++ }, "gVisor": func(m *savedManifest) { m.GVisor = "v2" },
		"arch": func(m *savedManifest) { m.Arch = "b" }, "cpu": func(m *savedManifest) { m.CPU = "d" },
		"spec": func(m *savedManifest) { m.Spec = "t" }, "rootfs": func(m *savedManifest) { m.Rootfs = "q" },
		"disk": func(m *savedManifest) { m.DiskMB = 6 },
	} {
		m, dir := sealed(t)
		if err := m.Check(dir); err != nil {
			t.Fatal(err)
		}
		edit(&m)
		if err := m.Check(dir); !errors.Is(err, sandbox.ErrSnapshot) {
			t.Errorf("another %s: %v", what, err)
		}
	}
}

func TestWhatIsDamagedIsRefused(t *testing.T) {
	for _, name := range append([]string{manifestName}, files...) {
		for what, damage := range map[string]func(string) error{
			"gone":      os.Remove,
			"truncated": func(p string) error { return os.Truncate(p, 3) },
			"empty":     func(p string) error { return os.Truncate(p, 0) },
			"a directory": func(p string) error {
				return errors.Join(os.Remove(p), os.Mkdir(p, 0o700))
			},
		} {
			m, dir := sealed(t)
			if err := damage(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			if err := m.Check(dir); !errors.Is(err, sandbox.ErrSnapshot) {
				t.Errorf("%s %s: %v", name, what, err)
			}
		}
	}
	m, dir := sealed(t)
	f := filepath.Join(dir, savedState)
	data, _ := os.ReadFile(f)
	data[10] ^= 1
	if err := os.WriteFile(f, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(dir); !errors.Is(err, sandbox.ErrSnapshot) {
		t.Errorf("a bit of the kernel's objects: %v", err)
	}
}

// A machine of the same shape has the same hash, whatever it is called and
// wherever it is kept.
func TestShape(t *testing.T) {
	spec := func(host string, caps ...string) *specs.Spec {
		return &specs.Spec{
			Hostname: host, Root: &specs.Root{Path: "/" + host}, Linux: &specs.Linux{CgroupsPath: "/" + host},
			Mounts:      []specs.Mount{{Source: "/src/" + host, Destination: "/workspace"}},
			Annotations: map[string]string{"dev.gvisor.spec.mount.spool.source": host, "dev.gvisor.spec.mount.spool.type": "tmpfs"},
			Process:     &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: caps}},
		}
	}
	if savedShape(spec("a", "CAP_X")) != savedShape(spec("b", "CAP_X")) {
		t.Error("names and paths are part of the shape")
	}
	if savedShape(spec("a", "CAP_X")) == savedShape(spec("a", "CAP_Y")) {
		t.Error("capabilities are no part of the shape")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"form":1,"files":{"guest":{"bytes":1,"crc":2}}}`))
	f.Add([]byte(`{"form":1}{}`))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = parseSaved(data) })
}
