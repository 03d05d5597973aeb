package gvisor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

func exe(t testing.TB) string {
	t.Helper()
	return sandboxtest.Build(t, "github.com/skete-dev/skete/sandbox/gvisor/internal/runsctest")
}

func open(t testing.TB, dir string) *Provider {
	t.Helper()
	p, err := New(Config{Dir: dir, Exe: exe(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// skipUnlessItBoots skips where this host cannot run gVisor at all; TestProbe
// fails there, unless SKETE_TEST_NO_GVISOR says that it is known.
func skipUnlessItBoots(t testing.TB) {
	t.Helper()
	if err := open(t, t.TempDir()).Probe(t.Context()); err != nil {
		t.Skipf("gVisor does not boot here: %v", err)
	}
}

func TestProbe(t *testing.T) {
	p := open(t, t.TempDir())
	if err := p.Probe(t.Context()); err != nil {
		if os.Getenv("SKETE_TEST_NO_GVISOR") != "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	ids, err := p.List(t.Context())
	if err != nil || len(ids) != 0 {
		t.Errorf("left by the probe: %v, %v", ids, err)
	}
}

func BenchmarkCreate(b *testing.B) {
	p := open(b, b.TempDir())
	rootfs := sandboxtest.Rootfs(b)
	odd := sandboxtest.Build(b, "github.com/skete-dev/skete/sandbox/sandboxtest/internal/oddguest")
	for b.Loop() {
		ws := filepath.Join(b.TempDir(), "ws")
		_ = os.Mkdir(ws, 0o755)
		m, err := p.Create(b.Context(), sandbox.Boot{
			ID: sandbox.NewID(), Rootfs: rootfs, Guest: odd, Workspace: ws,
			Spec: sandbox.Spec{MemoryMB: 512, DiskMB: 256, CPUs: 2, PidsMax: 256},
		})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := m.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
