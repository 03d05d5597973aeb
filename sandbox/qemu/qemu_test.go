package qemu

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/microvm/microvmtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest/disk"
	"github.com/skete-dev/skete/sandbox/sandboxtest/escape"
)

// open opens a provider on dir, or skips the test where there is no QEMU or no
// kernel to be had.
func open(t testing.TB, dir string) *Provider {
	t.Helper()
	if testing.Short() {
		t.Skip("boots virtual machines: not in a short run")
	}
	microvmtest.Kernel(t)
	p, err := New(Config{Dir: dir, Cache: microvmtest.Dir(), Guest: guesttest.Binary(t), Log: warnings(t), Serve: sandboxtest.ServeGuest})
	if errs.Is(err, errs.Unsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// warnings go to t's log: what the console of a guest said that does not answer.
func warnings(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func TestProvider(t *testing.T) {
	open(t, t.TempDir())
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		dir := t.TempDir()
		return sandboxtest.Fixture{
			Dir:     dir,
			New:     func(t testing.TB) sandbox.Provider { return open(t, dir) },
			Rootfs:  disk.Root(t),
			Disk:    disk.Work,
			HostPID: func(t testing.TB, id sandbox.ID) int { return recordOf(t, dir, id).QEMU.PID },
			Boot:    8 * time.Second,
		}
	})
}

func TestEscape(t *testing.T) {
	p := open(t, t.TempDir())
	escape.Run(t, escape.World{
		Capabilities: p.Capabilities(),
		Boot:         func(t *testing.T) sandbox.Boot { return bootOf(t) },
		Create: func(t *testing.T, b sandbox.Boot) sandbox.Machine {
			m, _ := create(t, p, b)
			return m
		},
	})
}

func recordOf(t testing.TB, dir string, id sandbox.ID) record {
	t.Helper()
	rec, err := readRecord((&Provider{c: Config{Dir: dir}}).dir(id))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestProbe(t *testing.T) {
	p := open(t, t.TempDir())
	if err := p.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ids, err := p.List(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("left by the probe: %v, %v", ids, err)
	}
	entries, err := os.ReadDir(p.c.Dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left by the probe: %v, %v", entries, err)
	}
}

// bootOf describes a new machine.
func bootOf(t testing.TB) sandbox.Boot {
	t.Helper()
	return sandbox.Boot{
		ID: sandbox.NewID(), Rootfs: disk.Root(t), Guest: guesttest.Binary(t), Disk: disk.Work(t, 64<<20),
		Spec: sandbox.Spec{MemoryMB: 192, DiskMB: 64, CPUs: 1, PidsMax: 128, Workdir: sandbox.WorkspaceDir},
	}
}

func create(t testing.TB, p *Provider, b sandbox.Boot) (sandbox.Machine, sandboxtest.Guest) {
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
	return m, sandboxtest.NewGuest(t, m)
}
