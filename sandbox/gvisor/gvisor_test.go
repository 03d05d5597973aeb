package gvisor

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/template"
)

func exe(t testing.TB) string {
	t.Helper()
	return sandboxtest.Build(t, "github.com/skete-dev/skete/sandbox/gvisor/internal/runsctest")
}

func open(t testing.TB, dir string) *Provider {
	t.Helper()
	return openWith(t, Config{Dir: dir, Runsc: slim(t), Serve: sandboxtest.ServeGuest})
}

// slim is the program that is gVisor alone, as `make build` puts it into skete.
func slim(t testing.TB) string {
	t.Helper()
	return sandboxtest.Build(t, "github.com/skete-dev/skete/cmd/skete-runsc")
}

func openWith(t testing.TB, c Config) *Provider {
	t.Helper()
	c.Exe = exe(t)
	p, err := New(c)
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

// bootOf describes a new machine without a guest.
func bootOf(t testing.TB, rootfs template.Rootfs) sandbox.Boot {
	t.Helper()
	ws := filepath.Join(t.TempDir(), "workspace")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	return sandbox.Boot{
		ID: sandbox.NewID(), Rootfs: rootfs, Workspace: ws,
		Spec: sandbox.Spec{MemoryMB: 512, DiskMB: 256, CPUs: 2, PidsMax: 256, Workdir: sandbox.WorkspaceDir},
	}
}

func create(t testing.TB, p *Provider, b sandbox.Boot) sandbox.Machine {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), 90*time.Second)
	defer cancel()
	m, err := p.Create(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Destroy(context.Background(), b.ID); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestProgramsSeeTheMachineThatTheyHave(t *testing.T) {
	skipUnlessItBoots(t)
	p := open(t, t.TempDir())
	if p.cgroups == nil {
		t.Skip(p.noGroups)
	}
	rootfs, guest := sandboxtest.Rootfs(t), guesttest.Binary(t)
	b := bootOf(t, rootfs)
	b.Guest = guest
	g := sandboxtest.NewGuest(t, create(t, p, b))
	res := g.Run("sh", "-c", "grep -o 'MemTotal:.*' /proc/meminfo; cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_period_us")
	got := strings.Fields(res.Stdout)
	want := []string{"MemTotal:", strconv.Itoa((512<<20 + overheadBytes) >> 10), "kB", "200000", "100000"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%+v:\n%s", res, diff)
	}
}

// BenchmarkCreate is from nothing to a finished command; the machine's end is
// not counted.
func BenchmarkCreate(b *testing.B) {
	p := open(b, b.TempDir())
	rootfs, guest := sandboxtest.Rootfs(b), guesttest.Binary(b)
	for b.Loop() {
		boot := bootOf(b, rootfs)
		boot.Guest = guest
		m, err := p.Create(b.Context(), boot)
		if err != nil {
			b.Fatal(err)
		}
		if res := sandboxtest.NewGuest(b, m).Run("/bin/true"); res.Code != 0 {
			b.Fatalf("%+v", res)
		}
		b.StopTimer()
		if err := m.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
