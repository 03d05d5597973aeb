package firecracker

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/ext4"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/microvm"
	"github.com/skete-dev/skete/sandbox/microvm/microvmtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest/disk"
	"github.com/skete-dev/skete/sandbox/sandboxtest/escape"
	"github.com/skete-dev/skete/template"
)

// The live tests run a real Firecracker. They need SKETE_FIRECRACKER, root,
// control groups of version 2 and a KVM that works; test/nested/run makes a
// machine that has all of it, on one that has none.

// kernelEnv and modulesEnv name a kernel where packages cannot be fetched;
// with consoleEnv it says all that it does.
const (
	consoleEnv = "SKETE_TEST_CONSOLE"
	kernelEnv  = "SKETE_TEST_VMLINUX"
	modulesEnv = "SKETE_TEST_MODULES"
)

func skipUnlessLive(t testing.TB) {
	t.Helper()
	if os.Getenv(BinaryEnv) == "" {
		t.Skipf("NOT RUN: no real Firecracker here (%s is not set); see test/nested/run", BinaryEnv)
	}
	if err := microvm.ProbeKVM(t.Context()); err != nil {
		t.Skipf("NOT RUN: KVM does not work here: %v; see test/nested/run", err)
	}
}

func openLive(t testing.TB, dir string) *Provider {
	t.Helper()
	c := Config{Dir: dir, Serve: sandboxtest.ServeGuest, Cache: microvmtest.Dir(), Kernel: os.Getenv(kernelEnv), Modules: os.Getenv(modulesEnv), Console: os.Getenv(consoleEnv) != ""}
	if c.Kernel == "" {
		microvmtest.Kernel(t)
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// world is a provider and what its machines boot from.
type world struct {
	*testing.T
	dir  string
	open func() *Provider
	p    *Provider
	root template.Rootfs
	// workdir is where commands run: in a machine its workspace.
	workdir string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	skipUnlessLive(t)
	dir := t.TempDir()
	w := &world{T: t, dir: dir, root: disk.Root(t), workdir: sandbox.WorkspaceDir}
	w.open = func() *Provider { return openLive(t, filepath.Join(dir, "state")) }
	w.p = w.open()
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) boot() sandbox.Boot {
	w.Helper()
	dir := w.TempDir()
	b := sandbox.Boot{
		ID: sandbox.NewID(), Rootfs: w.root, Guest: guesttest.Binary(w), Dir: filepath.Join(dir, "machine"), Disk: filepath.Join(dir, "work.img"),
		Spec: sandbox.Spec{CPUs: 1, MemoryMB: 192, DiskMB: 64, PidsMax: 128, Network: "none", Workdir: w.workdir, Env: map[string]string{"COLOUR": "green"}},
	}
	must(w, os.Mkdir(b.Dir, 0o700))
	must(w, ext4.Blank(w.Context(), b.Disk, 64<<20))
	w.Cleanup(func() {
		if err := w.p.Destroy(context.Background(), b.ID); err != nil {
			w.Errorf("destroy: %v", err)
		}
	})
	return b
}

func (w *world) create(b sandbox.Boot) (sandbox.Machine, sandboxtest.Guest) {
	w.Helper()
	m, err := w.p.Create(w.Context(), b)
	must(w, err)
	return m, sandboxtest.NewGuest(w, m)
}

// adopt does what the owner of a restored machine does.
func adopt(t testing.TB, m sandbox.Machine, id sandbox.ID) {
	t.Helper()
	entropy := make([]byte, 64)
	_, _ = rand.Read(entropy)
	_, err := m.Guest().Control.Adopt(t.Context(), connect.NewRequest(&wire.AdoptRequest{
		Sandbox: string(id), Hostname: strings.ReplaceAll(string(id), "_", "-"), TimeUnixNs: time.Now().UnixNano(), Entropy: entropy,
	}))
	if err == nil {
		_, err = m.Guest().Control.Thaw(t.Context(), connect.NewRequest(&wire.ThawRequest{}))
	}
	must(t, wire.Err(err))
}

// report prints a measurement as a line of JSON, for test/nested and scripts.
func report(t testing.TB, name string, value any) {
	t.Helper()
	line, err := json.Marshal(map[string]any{"name": "firecracker/" + name, "value": value, "unit": "ms"})
	must(t, err)
	fmt.Printf("MEASURED %s\n", line)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// TestLiveSuite is what every provider passes.
func TestLiveSuite(t *testing.T) {
	skipUnlessLive(t)
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		dir := t.TempDir()
		return sandboxtest.Fixture{
			Dir: dir, Rootfs: disk.Root(t), Disk: disk.Work, Boot: time.Minute,
			New: func(t testing.TB) sandbox.Provider { return openLive(t, dir) },
			HostPID: func(t testing.TB, id sandbox.ID) int {
				return mustRecord(t, &Provider{c: Config{Dir: dir}}, id).Process.PID
			},
		}
	})
}

func TestLiveEscape(t *testing.T) {
	w := newWorld(t)
	escape.Run(t, escape.World{
		Capabilities: w.p.Capabilities(),
		Boot:         func(t *testing.T) sandbox.Boot { return w.in(t).boot() },
		Create: func(t *testing.T, b sandbox.Boot) sandbox.Machine {
			m, _ := w.in(t).create(b)
			return m
		},
	})
}

// in is w in a part of its test: what that makes goes with it.
func (w *world) in(t *testing.T) *world {
	part := *w
	part.T = t
	return &part
}

func TestLiveProbe(t *testing.T) {
	w := newWorld(t)
	begin := time.Now()
	must(t, w.p.Probe(t.Context()))
	report(t, "probe", ms(time.Since(begin)))
	if ids, err := w.p.List(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("the probe left %v, %v", ids, err)
	}
}

func TestLiveAMachineBootsInItsJail(t *testing.T) {
	w := newWorld(t)
	b := w.boot()
	begin := time.Now()
	m, g := w.create(b)
	report(t, "boot", ms(time.Since(begin)))
	if res := g.Shell("echo $COLOUR; id -u; uname -r"); !strings.HasPrefix(res.Stdout, "green\n1000\n") {
		t.Errorf("shell: %+v", res)
	}
	rec, err := readRecord(w.p.dir(b.ID))
	must(t, err)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", rec.Process.PID))
	must(t, err)
	for _, want := range []string{
		fmt.Sprintf("Uid:\t%d\t%d\t%d\t%d\n", rec.UID, rec.UID, rec.UID, rec.UID), "Seccomp:\t2\n", "NoNewPrivs:\t1\n", "CapEff:\t0000000000000000\n",
	} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the process's status has no %q:\n%s", want, status)
		}
	}
	for _, ns := range []string{"net", "mnt", "pid"} {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		must(t, err)
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", rec.Process.PID, ns))
		must(t, err)
		if own == its {
			t.Errorf("Firecracker shares our %s namespace", ns)
		}
	}
	if group := w.p.cgroups.Group(w.p.group(b.ID)).PIDs(); !slices.Contains(group, rec.Process.PID) { // and a thread of KVM's
		t.Errorf("in the control group: %v", group)
	}
	must(t, m.Destroy(t.Context()))
	if e, err := m.Wait(t.Context()); err != nil || e.Reason != sandbox.ReasonDestroyed {
		t.Errorf("exit = %+v, %v", e, err)
	}
	if left, _ := filepath.Glob(w.dir + "/state/*/*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if w.p.cgroups.Group(w.p.group(b.ID)).Exists() {
		t.Error("the control group is left")
	}
}

func TestLiveSnapshotAndClones(t *testing.T) {
	const clones = 3
	w := newWorld(t)
	b := w.boot()
	m, g := w.create(b)
	g.Background("count", "/bin/sh", "-c", "while :; do date +%s > /tmp/alive; sleep 0.1; done")
	if res := g.Shell("echo kept > /tmp/kept; echo kept > /workspace/kept; sync"); res.Code != 0 {
		t.Fatalf("shell: %+v", res)
	}
	_, err := g.Control.Quiesce(t.Context(), connect.NewRequest(&wire.QuiesceRequest{}))
	must(t, wire.Err(err))
	snap := filepath.Join(w.dir, "snapshot")
	must(t, os.Mkdir(snap, 0o700))
	frozen := filepath.Join(w.dir, "frozen.img")
	begin := time.Now()
	must(t, m.Snapshot(t.Context(), snap, func(context.Context) error { return copyFile(b.Disk, frozen) }))
	report(t, "snapshot", ms(time.Since(begin)))
	_, err = g.Control.Thaw(t.Context(), connect.NewRequest(&wire.ThawRequest{}))
	must(t, wire.Err(err))
	if res := g.Shell("cat /tmp/kept /workspace/kept"); res.Stdout != "kept\nkept\n" {
		t.Errorf("the source after its snapshot: %+v", res)
	}

	type clone struct {
		b      sandbox.Boot
		random string
		took   time.Duration
	}
	all := make([]clone, clones)
	var wg sync.WaitGroup
	for i := range all {
		all[i].b = w.boot()
		all[i].b.From = snap
		must(t, os.Remove(all[i].b.Disk))
		must(t, copyFile(frozen, all[i].b.Disk))
	}
	for i := range all {
		wg.Go(func() {
			c := &all[i]
			begin := time.Now()
			m, err := w.p.Create(t.Context(), c.b)
			c.took = time.Since(begin)
			if err != nil {
				t.Errorf("clone %d: %v", i, err)
				return
			}
			adopt(t, m, c.b.ID)
			g := sandboxtest.NewGuest(t, m)
			c.random = g.Shell("head -c 16 /dev/urandom | od -An -tx1").Stdout
			if res := g.Shell("cat /tmp/kept /workspace/kept; hostname"); res.Stdout != "kept\nkept\n"+strings.ReplaceAll(string(c.b.ID), "_", "-")+"\n" {
				t.Errorf("clone %d: %+v", i, res)
			}
			var now int64
			res := g.Shell("date +%s")
			_, _ = fmt.Sscan(res.Stdout, &now)
			if d := time.Since(time.Unix(now, 0)); d < -2*time.Second || d > 5*time.Second {
				t.Errorf("clone %d is %v behind", i, d)
			}
			// Each writes to its own disks.
			if res := g.Shell(fmt.Sprintf("echo %d > /workspace/mine; echo %d > /tmp/mine; sync; cat /workspace/mine /tmp/mine", i, i)); res.Stdout != fmt.Sprintf("%d\n%d\n", i, i) {
				t.Errorf("clone %d: %+v", i, res)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	seen := map[string]bool{}
	for i, c := range all {
		report(t, fmt.Sprintf("clone of %d at once", clones), ms(c.took))
		if seen[c.random] || c.random == "" {
			t.Errorf("clone %d has another's randomness: %q", i, c.random)
		}
		seen[c.random] = true
	}
	one := w.boot()
	one.From = snap
	must(t, os.Remove(one.Disk))
	must(t, copyFile(frozen, one.Disk))
	begin = time.Now()
	last, _ := w.create(one)
	report(t, "restore", ms(time.Since(begin)))
	// A clone can be saved and restored again, under the names it came from.
	adopt(t, last, one.ID)
	again := filepath.Join(w.dir, "again")
	must(t, os.Mkdir(again, 0o700))
	must(t, last.Snapshot(t.Context(), again, nil))
	if res := sandboxtest.NewGuest(t, last).Run("/bin/cat", "/tmp/kept"); res.Stdout != "kept\n" {
		t.Errorf("a clone after its own snapshot: %+v", res)
	}
	must(t, checkSaved(snap, mustRecord(t, w.p, one.ID).Shape))
}

func mustRecord(t testing.TB, p *Provider, id sandbox.ID) record {
	t.Helper()
	rec, err := readRecord(p.dir(id))
	must(t, err)
	return rec
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return copySaved(in, to)
}

func TestLiveSnapshotsThatDoNotLoadAreRefusedAndLeaveNothing(t *testing.T) {
	w := newWorld(t)
	b := w.boot()
	m, _ := w.create(b)
	snap := filepath.Join(w.dir, "snapshot")
	must(t, os.Mkdir(snap, 0o700))
	must(t, m.Snapshot(t.Context(), snap, nil))
	must(t, m.Destroy(t.Context()))
	for what, harm := range map[string]func(*sandbox.Boot){
		"another size":  func(b *sandbox.Boot) { b.Spec.MemoryMB += 64 },
		"another root":  func(b *sandbox.Boot) { b.Rootfs.Hash = "other" },
		"no directory":  func(b *sandbox.Boot) { b.From = filepath.Join(w.dir, "none") },
		"damaged state": func(b *sandbox.Boot) { must(t, scribble(filepath.Join(snap, savedState))) }, // last: maps have no order, so each is put right again
	} {
		good, err := os.ReadFile(filepath.Join(snap, savedState))
		must(t, err)
		b := w.boot()
		b.From = snap
		harm(&b)
		if m, err := w.p.Create(t.Context(), b); !errors.Is(err, sandbox.ErrSnapshot) {
			t.Errorf("%s: %v, %v", what, m, err)
		}
		if ids, err := w.p.List(t.Context()); err != nil || len(ids) > 0 {
			t.Errorf("%s left %v, %v", what, ids, err)
		}
		must(t, os.Chmod(filepath.Join(snap, savedState), 0o600))
		must(t, os.WriteFile(filepath.Join(snap, savedState), good, 0o600))
	}
}

func scribble(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	copy(data[len(data)/2:], bytes.Repeat([]byte{0xa5}, 64))
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// Firecracker 1.16 can hang when a machine is paused with packets under way.
func TestLivePauseAndResumeUnderTraffic(t *testing.T) {
	w := newWorld(t)
	m, g := w.create(w.boot())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = g.Exec(ctx, sandboxtest.Start("/bin/sh", "-c", "head -c 300000 /dev/zero"))
			}
		})
	}
	for i := range 10 {
		must(t, m.Pause(t.Context()))
		must(t, m.Resume(t.Context()))
		try, stop := patience.Context(t.Context(), 20*time.Second)
		_, err := m.Guest().Hello(try)
		stop()
		if err != nil {
			t.Fatalf("after resume %d: %v", i, err)
		}
	}
	cancel()
	wg.Wait()
}

func TestLiveANewServerFindsAMachineThatTheLastOneLeftFrozen(t *testing.T) {
	w := newWorld(t)
	b := w.boot()
	m, g := w.create(b)
	g.Background("idle", "/bin/sleep", "1000")
	// As a server does that dies between freezing a machine and letting it go on.
	fc := m.(*machine)
	must(t, fc.halt(t.Context()))
	must(t, w.p.Close())
	w.p = w.open()
	again, err := w.p.Attach(t.Context(), b.ID)
	must(t, err)
	if res := sandboxtest.NewGuest(t, again).Run("/bin/echo", "back"); res.Stdout != "back\n" {
		t.Errorf("after the attach: %+v", res)
	}
}

func TestLiveEndings(t *testing.T) {
	w := newWorld(t)
	b := w.boot()
	m, _ := w.create(b)
	must(t, mustRecord(t, w.p, b.ID).Process.Signal(9))
	if e, err := m.Wait(t.Context()); err != nil || e.Reason != sandbox.ReasonKilled {
		t.Errorf("killed: %+v, %v", e, err)
	}
	if _, err := m.Dial(t.Context(), wire.ControlPort); !errs.Is(err, errs.Unavailable) {
		t.Errorf("dial a dead machine: %v", err)
	}
	m, g := w.create(w.boot())
	_, _ = g.Control.Shutdown(t.Context(), connect.NewRequest(&wire.ShutdownRequest{GraceMs: 10}))
	if e, err := m.Wait(t.Context()); err != nil || e.Reason != sandbox.ReasonExited {
		t.Errorf("shut down: %+v, %v", e, err)
	}
}
