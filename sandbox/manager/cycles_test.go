package manager_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/microvm/microvmtest"
	"github.com/skete-dev/skete/sandbox/pool"
	"github.com/skete-dev/skete/sandbox/qemu"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest/disk"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/template"
)

const (
	// cyclesEnv is how often a server is killed; SKETE_CYCLES=1000 is for a
	// night.
	cyclesEnv = "SKETE_CYCLES"
	// cyclingServerEnv holds a plant, as JSON, for this binary started again as
	// a server that is killed.
	cyclingServerEnv = "SKETE_MANAGER_TEST_CYCLING_SERVER"

	cyclesShort  = 6
	cyclesKept   = 4                       // sandboxes that a server has at most
	openedMost   = 3 * time.Minute         // by the reference's time
	killedWithin = 1500 * time.Millisecond // of its first word
	leftoverMost = 10 * time.Second
)

// plant is what servers share that are killed one after the other.
type plant struct {
	Dir, Provider, Guest, Exe, Runsc string
	Rootfs                           template.Rootfs
	Seed                             int
	Refill                           pool.Refill
	Ahead                            time.Duration // of the server's clock

	log *slog.Logger // of this process's own servers; nil = none
}

func newPlant(t testing.TB, name string) *plant {
	t.Helper()
	p := &plant{Dir: t.TempDir(), Provider: name, Guest: guesttest.Binary(t)}
	p.log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	switch name {
	case gvisor.Name:
		p.Rootfs = sandboxtest.Rootfs(t)
		p.Exe = sandboxtest.Build(t, "github.com/skete-dev/skete/sandbox/gvisor/internal/runsctest")
		p.Runsc = sandboxtest.Build(t, "github.com/skete-dev/skete/cmd/skete-runsc")
	case qemu.Name:
		microvmtest.Kernel(t)
		p.Rootfs = disk.Root(t)
	}
	v, err := volume.Open(filepath.Join(p.Dir, "volumes"))
	must(t, err)
	if err := v.Weakness(); err != nil {
		t.Skipf("no disks of volumes to leave behind: %v", err)
	}
	machines, err := p.machines()
	if err != nil {
		t.Skip(err)
	}
	defer closeIt(machines)
	if err := machines.Probe(t.Context()); err != nil || !machines.Capabilities().Snapshot {
		t.Skipf("%s does not do here: %v", name, err)
	}
	return p
}

func closeIt(p sandbox.Provider) {
	if c, ok := p.(io.Closer); ok {
		_ = c.Close()
	}
}

func (p *plant) machines() (sandbox.Provider, error) {
	if p.Provider == qemu.Name {
		return qemu.New(qemu.Config{Dir: filepath.Join(p.Dir, "qemu"), Cache: microvmtest.Dir(), Guest: p.Guest})
	}
	return gvisor.New(gvisor.Config{Dir: filepath.Join(p.Dir, "gvisor"), Exe: p.Exe, Runsc: p.Runsc})
}

// open opens a server that keeps n machines warm.
func (p *plant) open(ctx context.Context, n int) (m *manager.Manager, shut func(), err error) {
	s, err := store.Open(ctx, store.Config{Dir: filepath.Join(p.Dir, "store")})
	if err != nil {
		return nil, nil, err
	}
	registry, err1 := s.KV(ctx, "sandboxes")
	leases, err2 := s.Leases(ctx)
	v, err3 := volume.Open(filepath.Join(p.Dir, "volumes"))
	machines, err4 := p.machines()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	m, err = openSettled(ctx, manager.Config{
		Dir: filepath.Join(p.Dir, "sandboxes"), Node: "one", Providers: []sandbox.Provider{machines}, Registry: registry, Leases: leases,
		Templates: oneTemplate{rootfs: p.Rootfs}, Volumes: volumes{v}, Guest: p.Guest,
		Defaults: sandbox.Defaults{Provider: p.Provider, MemoryMB: 192, DiskMB: 64, CPUs: 1},
		Warm:     pool.Config{Sizes: []pool.Size{{Size: n}}, AtOnce: 2, Refill: p.Refill},
		Now:      func() time.Time { return time.Now().Add(p.Ahead) },
		Log:      p.log,
	})
	if err != nil {
		closeIt(machines)
		return nil, nil, errors.Join(err, s.Close())
	}
	return m, sync.OnceFunc(func() { _ = m.Close(); closeIt(machines); _ = s.Close() }), nil
}

// cycleUntilKilled is the child: it does whatever can be done to sandboxes, in
// no order, until it is killed.
func cycleUntilKilled(text string) int {
	ctx := context.Background()
	var p plant
	err := json.Unmarshal([]byte(text), &p)
	var m *manager.Manager
	if err == nil {
		m, _, err = p.open(ctx, 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("open")
	r := rand.New(rand.NewPCG(uint64(p.Seed), 0))
	for {
		if err := anything(ctx, m, r); err != nil && !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.NotFound) {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
}

// anything does one thing.
func anything(ctx context.Context, m *manager.Manager, r *rand.Rand) error {
	page, err := m.List(ctx, "t", sandbox.Filter{})
	if err != nil {
		return err
	}
	if len(page.Items) == 0 || len(page.Items) < cyclesKept && r.IntN(3) == 0 {
		_, err := m.Create(ctx, "t", sandbox.CreateRequest{})
		return err
	}
	id := page.Items[r.IntN(len(page.Items))].ID
	switch n := r.IntN(9); {
	case n < 3 || len(page.Items) > cyclesKept:
		return m.Destroy(ctx, "t", id)
	case n == 3:
		_, err = m.Stop(ctx, "t", id)
	case n == 4:
		_, err = m.Start(ctx, "t", id)
	case n == 5:
		_, err = m.Pause(ctx, "t", id)
	case n == 6:
		_, err = m.Resume(ctx, "t", id)
	case n == 7:
		_, err = m.Fork(ctx, "t", id, sandbox.ForkRequest{Count: 2})
	case n == 8:
		var s sandbox.Snapshot
		if s, err = m.Snapshot(ctx, "t", id, sandbox.SnapshotRequest{}); err == nil {
			err = m.DeleteSnapshot(ctx, "t", s.ID)
		}
	}
	return err
}

// kill runs a server and kills it at a moment of chance: while it opens, or
// while it works.
func (p *plant) kill(t *testing.T, r *rand.Rand) {
	t.Helper()
	p.Seed = int(r.Int32())
	text, err := json.Marshal(p)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), cyclingServerEnv+"="+string(text))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	opened := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(out).ReadString('\n')
		opened <- err
	}()
	if r.IntN(4) == 0 {
		<-time.After(time.Duration(r.Int64N(int64(killedWithin / 3))))
	} else {
		ctx, cancel := patience.Context(t.Context(), openedMost)
		select {
		case err = <-opened:
		case <-ctx.Done():
			err = errors.New("it did not open")
		}
		cancel()
		if err == nil {
			<-time.After(time.Duration(r.Int64N(int64(killedWithin))))
		}
	}
	killed := cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil || killed != nil {
		t.Fatalf("the server ended by itself: %v, %v\n%s", err, killed, stderr.String())
	}
}

// named adds the ids of all that the plant's directories hold.
func (p *plant) named(ids map[sandbox.ID]bool) {
	for _, pattern := range []string{"*/sbx_*", "*/*/sbx_*"} {
		paths, _ := filepath.Glob(filepath.Join(p.Dir, pattern))
		for _, path := range paths {
			if id, err := sandbox.ParseID(filepath.Base(path)); err == nil {
				ids[id] = true
			}
		}
	}
}

// held lists what the host still has of the plant: mounts, loop devices,
// processes, and directories of machines, volumes and snapshots.
func (p *plant) held() []string {
	var left []string
	for _, list := range []string{"/proc/self/mountinfo", "/sys/block/loop*/loop/backing_file", "/proc/[0-9]*/cmdline"} {
		files, _ := filepath.Glob(list)
		for _, f := range files {
			if f == fmt.Sprintf("/proc/%d/cmdline", os.Getpid()) {
				continue
			}
			data, _ := os.ReadFile(f)
			for line := range strings.Lines(string(data)) {
				if strings.Contains(line, p.Dir) {
					left = append(left, f+": "+strings.ReplaceAll(strings.TrimSpace(line), "\x00", " "))
				}
			}
		}
	}
	for _, pattern := range []string{"*/sbx_*", "*/*/sbx_*", "*/snp_*", "*/*/snp_*"} {
		paths, _ := filepath.Glob(filepath.Join(p.Dir, pattern))
		left = append(left, paths...)
	}
	return left
}

// A server is killed again and again in the midst of creates, pauses, starts,
// stops, forks, snapshots, refills and its own start. When the last one has
// destroyed all sandboxes, the host has nothing of any of them.
func TestCycles_leaveNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("kills servers with real machines")
	}
	for name := range strings.SplitSeq(*providerNames, ",") {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t, name)
			p.Refill = pool.RefillSnapshot
			cycle(t, p)
		})
	}
}

func cycle(t *testing.T, p *plant) {
	cycles := cyclesShort
	if text := os.Getenv(cyclesEnv); text != "" {
		var err error
		cycles, err = strconv.Atoi(text)
		must(t, err)
	}
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	ids := map[sandbox.ID]bool{}
	defer p.sweep(t) // of a test that failed in the middle
	began := time.Now()
	for n := range cycles {
		p.kill(t, r)
		p.named(ids)
		if n%50 == 49 {
			t.Logf("%d cycles in %s, %d machines seen", n+1, time.Since(began).Round(time.Second), len(ids))
		}
	}
	p.sweep(t)
	p.nothing(t, ids)
	t.Logf("%d cycles, %d machines", cycles, len(ids))
}

// nothing fails the test if the host soon has still anything of the plant.
func (p *plant) nothing(t testing.TB, ids map[sandbox.ID]bool) {
	t.Helper()
	var left []string // the kernel frees loop devices and groups a moment later
	if !patience.Holds(leftoverMost, func() bool { left = p.held(); return len(left) == 0 }) {
		t.Errorf("left behind:\n\t%s", strings.Join(left, "\n\t"))
	}
	sandboxtest.Leaks(t, p.Dir, slices.Collect(maps.Keys(ids))...)
}

func parseSeconds(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, err)
	return n
}

// sweep is the last server: it destroys all that there is.
func (p *plant) sweep(t testing.TB) {
	t.Helper()
	ctx := context.Background()
	m, shut, err := p.open(ctx, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer shut()
	page, err := m.List(ctx, "t", sandbox.Filter{PageSize: 1000})
	if err != nil {
		t.Error(err)
	}
	for _, i := range page.Items {
		if err := m.Destroy(ctx, "t", i.ID); err != nil {
			t.Errorf("destroy %s: %v", i.ID, err)
		}
	}
	for _, s := range m.ListSnapshots(ctx, "t") {
		if err := m.DeleteSnapshot(ctx, "t", s.ID); err != nil {
			t.Errorf("delete %s: %v", s.ID, err)
		}
	}
	// The pool gives its own snapshot up by itself, if it gets to that before the end.
	patience.Holds(leftoverMost, func() bool {
		own, _ := filepath.Glob(filepath.Join(p.Dir, "volumes", "snp_*"))
		return len(own) == 0
	})
}
