package firecracker

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// roundsEnv is how often each thing is measured; test/nested/bench sets it.
const roundsEnv = "SKETE_FIRECRACKER_ROUNDS"

const clonesAtOnce = 10

// TestLiveMeasure prints lines of JSON as `make bench` does. It is no test of
// speed: it fails only when something does not work.
func TestLiveMeasure(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv(roundsEnv))
	if rounds <= 0 {
		t.Skipf("a measurement: run test/nested/bench, or set %s", roundsEnv)
	}
	w := newWorld(t)
	var boots, snapshots, restores, first, destroys []time.Duration
	took := func(list *[]time.Duration, f func()) {
		begin := time.Now()
		f()
		*list = append(*list, time.Since(begin))
	}
	snap := ""
	for i := range rounds {
		b := w.boot()
		var m sandbox.Machine
		took(&boots, func() { m, _ = w.create(b) })
		snap = filepath.Join(w.dir, fmt.Sprint("snapshot", i))
		must(t, os.Mkdir(snap, 0o700))
		took(&snapshots, func() { must(t, m.Snapshot(t.Context(), snap, nil)) })
		took(&destroys, func() { must(t, m.Destroy(t.Context())) })
		if i < rounds-1 {
			must(t, os.RemoveAll(snap))
		}
	}
	for range rounds {
		b := w.boot()
		b.From = snap
		var m sandbox.Machine
		begin := time.Now()
		took(&restores, func() { m, _ = w.create(b) })
		adopt(t, m, b.ID)
		if res := sandboxtest.NewGuest(t, m).Run("/bin/true"); res.Code != 0 {
			t.Errorf("a command: %+v", res)
		}
		first = append(first, time.Since(begin))
		must(t, m.Destroy(t.Context()))
	}
	w.print("firecracker: boot to answering guest", boots)
	w.print("firecracker: snapshot", snapshots)
	w.print("firecracker: restore to answering guest", restores)
	w.print("firecracker: restore to first command done", first)
	w.print("firecracker: destroy", destroys)
	w.print(fmt.Sprintf("firecracker: restore, %d at once", clonesAtOnce), w.clones(snap))
	info, err := os.Stat(filepath.Join(snap, savedState))
	must(t, err)
	t.Logf("state file: %d bytes", info.Size())
}

// clones restores many at once and keeps all alive until the last answers.
func (w *world) clones(snap string) []time.Duration {
	boots := make([]sandbox.Boot, clonesAtOnce)
	for i := range boots {
		boots[i] = w.boot()
		boots[i].From = snap
	}
	times := make([]time.Duration, clonesAtOnce)
	var wg sync.WaitGroup
	for i, b := range boots {
		wg.Go(func() {
			begin := time.Now()
			if _, err := w.p.Create(w.Context(), b); err != nil {
				w.Errorf("clone %d: %v", i, err)
			}
			times[i] = time.Since(begin)
		})
	}
	wg.Wait()
	return times
}

func (w *world) print(name string, times []time.Duration) {
	w.Helper()
	slices.Sort(times)
	at := func(q float64) float64 { return ms(times[min(len(times)-1, int(q*float64(len(times))))]) }
	model, _, _ := strings.Cut(w.p.cpu, "/")
	line, err := json.Marshal(map[string]any{
		"time": time.Now().UTC().Format(time.RFC3339), "machine": fmt.Sprintf("%d x %s, linux %s, %s", runtime.NumCPU(), model, w.p.host, runtime.Version()),
		"name": name, "unit": "ms", "n": len(times), "p50": at(0.5), "p99": at(0.99), "max": at(1),
		"note": "firecracker " + w.p.Version() + ", 1 vcpu, 192 MiB" + os.Getenv("SKETE_BENCH_NOTE"),
	})
	must(w, err)
	fmt.Printf("MEASURED %s\n", line)
}
