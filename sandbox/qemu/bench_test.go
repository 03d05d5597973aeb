package qemu

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest/disk"
)

// p50 reports the median of what was measured, in milliseconds.
func p50(b *testing.B, name string, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, name+"-p50-ms")
	b.ReportMetric(float64(took[0].Microseconds())/1000, name+"-min-ms")
}

// measured calls f and appends how long it took.
func measured(to *[]time.Duration, f func()) {
	began := time.Now()
	f()
	*to = append(*to, time.Since(began))
}

// BenchmarkMachine is a machine's whole life: a cold boot until the guest
// answers, a command, a snapshot, a clone of it until that answers.
func BenchmarkMachine(b *testing.B) {
	p := open(b, b.TempDir())
	var boots, execs, saves, restores, pss []time.Duration
	for b.Loop() {
		boot := benchBoot(b)
		var m sandbox.Machine
		measured(&boots, func() { m, _ = create(b, p, boot) })
		g := sandboxtest.NewGuest(b, m)
		for range 10 {
			measured(&execs, func() { g.Run("/bin/true") })
		}
		pss = append(pss, time.Duration(pssKB(b, p, boot.ID))*time.Microsecond)
		dir := b.TempDir()
		measured(&saves, func() {
			if err := m.Snapshot(b.Context(), dir, func(context.Context) error { return nil }); err != nil {
				b.Fatal(err)
			}
		})
		for range 3 {
			clone := benchBoot(b)
			clone.From = dir
			measured(&restores, func() { m, _ = create(b, p, clone) })
			_ = m.Destroy(b.Context())
		}
		_ = p.Destroy(b.Context(), boot.ID)
	}
	p50(b, "boot", boots)
	p50(b, "exec", execs)
	p50(b, "save", saves)
	p50(b, "restore", restores)
	b.ReportMetric(float64(pss[0].Microseconds())/1024, "idle-pss-MiB")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkTenClones restores ten machines at once, all alive.
func BenchmarkTenClones(b *testing.B) {
	p := open(b, b.TempDir())
	p.slots = make(chan struct{}, 10)
	source := benchBoot(b)
	m, _ := create(b, p, source)
	dir := b.TempDir()
	if err := m.Snapshot(b.Context(), dir, func(context.Context) error { return nil }); err != nil {
		b.Fatal(err)
	}
	if err := m.Destroy(b.Context()); err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	var each, all []time.Duration
	pss := 0
	for b.Loop() {
		boots := make([]sandbox.Boot, 10)
		for i := range boots {
			boots[i] = benchBoot(b)
			boots[i].From = dir
		}
		measured(&all, func() {
			var wg sync.WaitGroup
			for _, boot := range boots {
				wg.Go(func() {
					began := time.Now()
					if _, err := p.Create(context.Background(), boot); err != nil {
						b.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					each = append(each, time.Since(began))
				})
			}
			wg.Wait()
		})
		for _, boot := range boots {
			pss = max(pss, pssKB(b, p, boot.ID))
			if err := p.Destroy(b.Context(), boot.ID); err != nil {
				b.Error(err)
			}
		}
	}
	p50(b, "one", each)
	p50(b, "ten", all)
	b.ReportMetric(float64(pss)/1024, "most-pss-MiB")
	b.ReportMetric(0, "ns/op")
}

func benchBoot(b *testing.B) sandbox.Boot {
	b.Helper()
	return sandbox.Boot{
		ID: sandbox.NewID(), Rootfs: disk.Root(b), Guest: guesttest.Binary(b), Disk: disk.Work(b, 64<<20),
		Spec: sandbox.Spec{MemoryMB: 256, DiskMB: 512, CPUs: 1, PidsMax: 128, Workdir: sandbox.WorkspaceDir},
	}
}

// pssKB is the machine's share of the host's memory.
func pssKB(t testing.TB, p *Provider, id sandbox.ID) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(recordOf(t, p.c.Dir, id).QEMU.PID), "smaps_rollup"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}
