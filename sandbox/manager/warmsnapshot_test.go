package manager_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/pool"
	"github.com/skete-dev/skete/sandbox/qemu"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// refill returns what the pool says of its one shape.
func refill(t testing.TB, m *manager.Manager) pool.Kind {
	t.Helper()
	kinds := m.Pool().Kinds
	if len(kinds) != 1 {
		t.Fatalf("%+v", kinds)
	}
	return kinds[0]
}

// unique is what no two machines may share, a line each, read as the first
// thing that a sandbox does. What a template does not have is left out.
const unique = `head -c 16 /dev/urandom | od -An -tx1
hostname
awk 'BEGIN { getline u < "/proc/sys/kernel/random/uuid"; print u }'
if command -v python3 >/dev/null; then python3 -c 'import random; print(random.random())'; fi
`

// uniqueToKernels is more of that, where a machine has its own.
const uniqueToKernels = `cat /proc/sys/kernel/random/boot_id /etc/machine-id
`

// Machines from one snapshot of the pool are claimed at once, and again by a
// server an hour later that has booted none: none has another's randomness,
// names, files or commands, and each has the right time.
func TestLiveWarm_fromOneSnapshotEachIsItsOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("boots real machines: not in a short run")
	}
	for name := range strings.SplitSeq(*providerNames, ",") {
		t.Run(name, func(t *testing.T) { testFromOneSnapshot(t, name) })
	}
}

func testFromOneSnapshot(t *testing.T, name string) {
	const n = 3
	p := newPlant(t, name)
	p.Refill = pool.RefillSnapshot
	defer p.sweep(t) // of a test that failed in the middle
	ids, seen := map[sandbox.ID]bool{}, map[string]sandbox.ID{}
	for _, p.Ahead = range []time.Duration{0, time.Hour} {
		m, shut, err := p.open(t.Context(), n)
		must(t, err)
		defer shut()
		s := &warmServer{Manager: m}
		must(t, s.full(t.Context(), n))
		p.named(ids)
		k := refill(t, m)
		t.Logf("booting took %.0f ms, from a snapshot of %d MB %.0f ms", k.BootMS, k.SnapshotBytes>>20, k.RestoreMS)
		if !k.Snapshot || k.RestoreMS == 0 || k.Replaced > 0 {
			t.Fatalf("the pool says %+v", k)
		}
		for _, i := range claimTogether(t, m, n) {
			p.isOwn(t, s, i, seen)
		}
		if claims, misses := s.claims(); claims != n || misses != 0 {
			t.Errorf("%d claims and %d misses", claims, misses)
		}
		if mine := m.ListSnapshots(t.Context(), "t"); len(mine) > 0 {
			t.Errorf("the tenant sees %v", mine)
		}
		must(t, s.full(t.Context(), n))
		p.named(ids)
		shut()
	}
	p.sweep(t)
	p.nothing(t, ids)
}

// claimTogether makes n sandboxes at once.
func claimTogether(t *testing.T, m *manager.Manager, n int) []sandbox.Info {
	t.Helper()
	infos := make([]sandbox.Info, n)
	var all sync.WaitGroup
	for i := range infos {
		all.Go(func() {
			var err error
			if infos[i], err = m.Create(t.Context(), "t", sandbox.CreateRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return infos
}

// isOwn checks that a sandbox shares nothing with those that were seen, and
// leaves traces for the next.
func (p *plant) isOwn(t *testing.T, s *warmServer, i sandbox.Info, seen map[string]sandbox.ID) {
	t.Helper()
	script := unique
	if p.Provider == qemu.Name {
		script += uniqueToKernels
	}
	lines := append(strings.Fields(strings.ReplaceAll(s.shell(t, i.ID, script), " ", "")), bootID(t, s.Manager, i.ID))
	for _, line := range lines {
		if other, is := seen[line]; is {
			t.Errorf("%s and %s share %q", i.ID, other, line)
		}
		seen[line] = i.ID
	}
	if len(lines) < 4 {
		t.Errorf("it says only %q", lines)
	}
	var ahead time.Duration // the others have their host's clock
	if p.Provider == qemu.Name {
		ahead = p.Ahead
	}
	before := time.Now().Add(ahead - 2*time.Second)
	at := time.Unix(parseSeconds(t, s.shell(t, i.ID, "date +%s")), 0)
	if after := time.Now().Add(ahead + 2*time.Second); at.Before(before) || at.After(after) {
		t.Errorf("the clock of %s says %s, not between %s and %s", i.ID, at, before, after)
	}
	if left := s.shell(t, i.ID, "ls -A /workspace /tmp /home/user | grep -v -e : -e .X11-unix | grep . || true"); left != "" {
		t.Errorf("%s finds %q", i.ID, left)
	}
	g := s.guest(t, i.ID)
	ps, err := g.Process.List(t.Context(), connect.NewRequest(&wire.ListProcessesRequest{}))
	must(t, err)
	if len(ps.Msg.Processes) > 4 { // those of this function
		t.Errorf("commands of before: %v", ps.Msg.Processes)
	}
	start := sandboxtest.Start("sh", "-c", "echo secret > /workspace/a; echo secret > /tmp/b; echo secret > ~/c; sleep 1000")
	start.Key = "trace"
	_, err = g.Process.Start(t.Context(), connect.NewRequest(start))
	must(t, err)
}

// A snapshot that another version has made is of no use: the pool boots, says
// so, and takes another one only when some time has passed.
func TestLiveWarm_aSnapshotThatDoesNotLoadIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines: not in a short run")
	}
	p := newPlant(t, qemu.Name)
	defer p.sweep(t)
	ids := map[sandbox.ID]bool{}
	m, shut, err := p.open(t.Context(), 1)
	must(t, err)
	defer shut()
	s := &warmServer{Manager: m}
	must(t, s.full(t.Context(), 1))
	p.named(ids)
	shut()
	manifests, err := filepath.Glob(filepath.Join(p.Dir, "sandboxes", "snapshots", "snp_*", "snapshot.json"))
	if err != nil || len(manifests) != 1 {
		t.Fatalf("manifests: %q, %v", manifests, err)
	}
	text, err := os.ReadFile(manifests[0])
	must(t, err)
	must(t, os.WriteFile(manifests[0], []byte(strings.Replace(string(text), `"qemu":`, `"qemu":"another","was":`, 1)), 0o600))
	if now, err := os.ReadFile(manifests[0]); err != nil || string(now) == string(text) {
		t.Fatalf("nothing to change in %s", text)
	}

	m, shut, err = p.open(t.Context(), 1)
	must(t, err)
	defer shut()
	s = &warmServer{Manager: m}
	must(t, s.full(t.Context(), 1))
	p.named(ids)
	if k := refill(t, m); k.Snapshot || k.BootMS == 0 || !strings.Contains(k.Note, "did not load") {
		t.Errorf("the pool says %+v", k)
	}
	info, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
	must(t, err)
	if got := s.shell(t, info.ID, "echo works"); got != "works" {
		t.Errorf("it says %q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(p.Dir, "*", "*", "snp_*")); len(left) > 0 {
		t.Errorf("left of the snapshot: %q", left)
	}
	shut()
	p.sweep(t)
	p.nothing(t, ids)
}

// BenchmarkRefill is how long the pool takes for a virtual machine, booted and
// from its snapshot, and the memory of one that waits, a fourth of what four
// take.
func BenchmarkRefill(b *testing.B) {
	for name, how := range map[string]pool.Refill{"boot": pool.RefillBoot, "snapshot": pool.RefillSnapshot} {
		b.Run(name, func(b *testing.B) { benchRefill(b, how) })
	}
}

func benchRefill(b *testing.B, how pool.Refill) {
	const n = 4
	p := newPlant(b, qemu.Name)
	p.Refill = how
	m, shut, err := p.open(b.Context(), n)
	must(b, err)
	defer shut()
	s := &warmServer{Manager: m}
	must(b, s.full(b.Context(), n))
	var took []float64
	for b.Loop() {
		info, err := m.Create(b.Context(), "t", sandbox.CreateRequest{})
		must(b, err)
		must(b, m.Destroy(context.Background(), "t", info.ID))
		must(b, s.full(b.Context(), n))
		took = append(took, refill(b, m).MakeMS)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "refill-p50-ms")
	b.ReportMetric(took[0], "refill-min-ms")
	b.ReportMetric(took[len(took)-1], "refill-max-ms")
	var pss float64
	for _, kb := range p.shares(b) {
		pss += kb / n / 1024
	}
	b.ReportMetric(pss, "idle-pss-MiB")
	b.ReportMetric(float64(refill(b, m).SnapshotBytes)/(1<<20), "snapshot-MiB")
	shut()
	p.sweep(b)
}

// shares lists the proportional shares of memory, in KB, of the plant's QEMUs.
func (p *plant) shares(b *testing.B) (all []float64) {
	b.Helper()
	ids := map[sandbox.ID]bool{}
	p.named(ids)
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(b, err)
	for _, path := range paths {
		line, _ := os.ReadFile(path)
		if !strings.Contains(string(line), "qemu-system") || !slices.ContainsFunc(slices.Collect(maps.Keys(ids)), func(id sandbox.ID) bool {
			return strings.Contains(string(line), string(id))
		}) {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "smaps_rollup"))
		for row := range strings.Lines(string(text)) {
			if f := strings.Fields(row); len(f) == 3 && f[0] == "Pss:" {
				kb, err := strconv.ParseFloat(f[1], 64)
				must(b, err)
				all = append(all, kb)
			}
		}
	}
	return all
}
