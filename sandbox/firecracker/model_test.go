package firecracker

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/firecracker/fcmodel"
	"github.com/skete-dev/skete/sandbox/microvm/microvmtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/template"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests of this file run against a model of Firecracker, whose guest is the
// real skete-guest as a process of this host: no virtual machine, no memory
// that is saved. They show what we do, not that a machine boots; see
// live_test.go for that.

const modelProgram = "github.com/skete-dev/skete/sandbox/firecracker/fcmodel/program"

// modelBinary returns the model under the name of firecracker.
func modelBinary(t testing.TB, version string) string {
	t.Helper()
	data, err := os.ReadFile(sandboxtest.Build(t, modelProgram))
	must(t, err)
	dir := t.TempDir()
	for _, name := range []string{"firecracker", "jailer"} {
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o755))
	}
	if version != "" {
		must(t, os.WriteFile(filepath.Join(dir, fcmodel.VersionFile), []byte(version), 0o644))
	}
	return filepath.Join(dir, "firecracker")
}

func modelWorld(t *testing.T) *world {
	t.Helper()
	microvmtest.Kernel(t)
	dir, binary := t.TempDir(), modelBinary(t, "")
	w := &world{
		T: t, dir: dir, root: template.Rootfs{Name: "model", Hash: "model", Image: filepath.Join(dir, "root.img")},
		workdir: t.TempDir(), // the model's guest has no disk of its own: a directory of this host
	}
	must(t, os.WriteFile(w.root.Image, make([]byte, 4096), 0o444))
	w.open = func() *Provider {
		p, err := New(Config{Dir: filepath.Join(dir, "state"), Binary: binary, Bare: true, Cache: microvmtest.Dir(), Serve: sandboxtest.ServeGuest})
		must(t, err)
		t.Cleanup(func() { must(t, p.Close()) })
		return p
	}
	w.p = w.open()
	return w
}

func TestModelCreateRunDestroy(t *testing.T) {
	w := modelWorld(t)
	b := w.boot()
	m, g := w.create(b)
	if res := g.Run("/bin/sh", "-c", "echo $COLOUR"); res.Stdout != "green\n" {
		t.Errorf("shell: %+v", res)
	}
	if _, err := w.p.Create(t.Context(), b); !errs.Is(err, errs.Exists) {
		t.Errorf("the same again: %v", err)
	}
	if ids, err := w.p.List(t.Context()); err != nil || len(ids) != 1 || ids[0] != b.ID {
		t.Errorf("List = %v, %v", ids, err)
	}
	rec := mustRecord(t, w.p, b.ID)
	for range 2 {
		must(t, m.Destroy(t.Context()))
	}
	if e, err := m.Wait(t.Context()); err != nil || e.Reason != sandbox.ReasonDestroyed {
		t.Errorf("exit = %+v, %v", e, err)
	}
	if rec.Process.Alive() {
		t.Error("the process lives")
	}
	if left, _ := filepath.Glob(w.dir + "/state/machines/*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(b.Disk); err != nil {
		t.Errorf("the workspace is gone: %v", err)
	}
}

func TestModelPausedMachinesKeepNobodyWaitingAndResume(t *testing.T) {
	w := modelWorld(t)
	b := w.boot()
	m, _ := w.create(b)
	for range 2 {
		must(t, m.Pause(t.Context()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Dial(ctx, 65536); !errs.Is(err, errs.Unavailable) {
		t.Errorf("dial a paused machine: %v", err)
	}
	must(t, w.p.Close())
	w.p = w.open()
	m, err := w.p.Attach(t.Context(), b.ID)
	must(t, err)
	for range 2 {
		must(t, m.Resume(t.Context()))
	}
	g := sandboxtest.NewGuest(t, m)
	if res := g.Run("/bin/echo", "back"); res.Stdout != "back\n" {
		t.Errorf("after the resume: %+v", res)
	}
}

func TestModelAFrozenMachineOfADeadServerGoesOn(t *testing.T) {
	w := modelWorld(t)
	b := w.boot()
	m, _ := w.create(b)
	must(t, m.(*machine).halt(t.Context()))
	must(t, w.p.Close())
	w.p = w.open()
	again, err := w.p.Attach(t.Context(), b.ID)
	must(t, err)
	if _, err := again.Guest().Hello(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestModelSnapshotsLoadWhereTheyFitAndNowhereElse(t *testing.T) {
	w := modelWorld(t)
	b := w.boot()
	m, g := w.create(b)
	snap := filepath.Join(w.dir, "snapshot")
	must(t, os.Mkdir(snap, 0o700))
	mine := errors.New("no")
	if err := m.Snapshot(t.Context(), t.TempDir(), func(context.Context) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("a snapshot whose workspace cannot be copied: %v", err)
	}
	must(t, m.Snapshot(t.Context(), snap, nil))
	if res := g.Run("/bin/echo", "on"); res.Stdout != "on\n" {
		t.Errorf("after the snapshot: %+v", res)
	}
	if left, _ := filepath.Glob(w.p.jail(b.ID).Root() + "/vm.*"); len(left) > 0 {
		t.Errorf("left in the jail: %v", left)
	}
	for range 2 {
		c := w.boot()
		c.From = snap
		clone, gc := w.create(c)
		if res := gc.Run("/bin/echo", "clone"); res.Stdout != "clone\n" {
			t.Errorf("a clone: %+v", res)
		}
		again := filepath.Join(t.TempDir(), "again") // it holds its files under the names that it writes
		must(t, os.Mkdir(again, 0o700))
		must(t, clone.Snapshot(t.Context(), again, nil))
	}
	must(t, checkSaved(snap, mustRecord(t, w.p, b.ID).Shape))
	for what, harm := range map[string]func(*sandbox.Boot){
		"another size": func(b *sandbox.Boot) { b.Spec.MemoryMB++ },
		"root inside":  func(b *sandbox.Boot) { b.Spec.Root = true },
		"no snapshot":  func(b *sandbox.Boot) { b.From = t.TempDir() },
		"a state that Firecracker refuses": func(b *sandbox.Boot) {
			must(t, os.Chmod(filepath.Join(snap, savedState), 0o600))
			info, err := os.Stat(filepath.Join(snap, savedState))
			must(t, err)
			must(t, os.WriteFile(filepath.Join(snap, savedState), []byte(strings.Repeat("x", int(info.Size()))), 0o600))
		},
	} {
		c := w.boot()
		c.From = snap
		harm(&c)
		if _, err := w.p.Create(t.Context(), c); !errors.Is(err, sandbox.ErrSnapshot) {
			t.Errorf("%s: %v", what, err)
		}
		if ids, err := w.p.List(t.Context()); err != nil || len(ids) != 3 {
			t.Errorf("%s: left %v, %v", what, ids, err)
		}
	}
}

func TestModelDestroyFinishesWhatADeadServerBegan(t *testing.T) {
	w := modelWorld(t)
	for what, begin := range map[string]func(id sandbox.ID){
		"a directory": func(id sandbox.ID) { must(t, os.Mkdir(w.p.dir(id), 0o700)) },
		"a user":      func(id sandbox.ID) { must(t, os.Symlink(string(id), filepath.Join(w.p.uidsDir(), "2000000007"))) },
		"a torn record": func(id sandbox.ID) {
			must(t, os.Mkdir(w.p.dir(id), 0o700))
			must(t, os.WriteFile(filepath.Join(w.p.dir(id), recordName), []byte(`{"pro`), 0o600))
		},
		"a jail": func(id sandbox.ID) { must(t, w.p.jail(id).Make()) },
		"a process": func(id sandbox.ID) {
			must(t, w.p.jail(id).Make())
			_, err := w.p.jail(id).Start(t.Context()) // and no record of it
			must(t, err)
		},
	} {
		id := sandbox.NewID()
		begin(id)
		if ids, err := w.p.List(t.Context()); err != nil || len(ids) != 1 || ids[0] != id {
			t.Errorf("%s: List = %v, %v", what, ids, err)
		}
		if _, err := w.p.Attach(t.Context(), id); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s: attach: %v", what, err)
		}
		must(t, w.p.Destroy(t.Context(), id))
		if ids, err := w.p.List(t.Context()); err != nil || len(ids) > 0 {
			t.Errorf("%s: left %v, %v", what, ids, err)
		}
		if refs, err := w.p.jail(id).Processes(); err != nil || len(refs) > 0 {
			t.Errorf("%s: processes left: %v, %v", what, refs, err)
		}
	}
}

func TestModelEndings(t *testing.T) {
	w := modelWorld(t)
	b := w.boot()
	m, _ := w.create(b)
	must(t, mustRecord(t, w.p, b.ID).Process.Signal(9))
	if e, err := m.Wait(t.Context()); err != nil || e.Reason != sandbox.ReasonKilled {
		t.Errorf("killed: %+v, %v", e, err)
	}
	if _, err := m.Dial(t.Context(), 65536); !errs.Is(err, errs.Unavailable) {
		t.Errorf("dial a dead machine: %v", err)
	}
	if err := m.Pause(t.Context()); !errs.Is(err, errs.Unavailable) {
		t.Errorf("pause a dead machine: %v", err)
	}
}

func TestVersionsThatLoseTheirVsockAreRefused(t *testing.T) {
	for version, ok := range map[string]bool{"1.15.1": false, "1.16.0": false, "1.16.1": true, "1.17.0": true} {
		_, err := New(Config{Dir: t.TempDir(), Binary: modelBinary(t, version), Bare: true})
		if ok != (err == nil) || !ok && (!errs.Is(err, errs.Unsupported) || !strings.Contains(errs.Hint(err), "1.16.1")) {
			t.Errorf("%s: %v (%s)", version, err, errs.Hint(err))
		}
	}
	for what, binary := range map[string]string{"none": filepath.Join(t.TempDir(), "firecracker"), "another program": "/bin/true"} {
		if _, err := New(Config{Dir: t.TempDir(), Binary: binary, Bare: true}); !errs.Is(err, errs.Unsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestVCPUsAreOneOrEven(t *testing.T) {
	for cpus, want := range map[float64]int{0: 1, 0.5: 1, 1: 1, 1.5: 2, 2: 2, 3: 4, 31: 32, 100: 32} {
		if got := vcpus(cpus); got != want {
			t.Errorf("%v cpus are %d, want %d", cpus, got, want)
		}
	}
}

func TestEachMachineHasAUserOfItsOwn(t *testing.T) {
	p := &Provider{c: Config{Dir: t.TempDir(), FirstUID: 500, UIDs: 2}}
	must(t, os.MkdirAll(p.uidsDir(), 0o700))
	a, b, c := sandbox.NewID(), sandbox.NewID(), sandbox.NewID()
	ua, err := p.takeUID(a)
	must(t, err)
	ub, err := p.takeUID(b)
	must(t, err)
	if ua == ub || ua < 500 || ub > 501 {
		t.Errorf("users %d and %d", ua, ub)
	}
	if _, err := p.takeUID(c); !errs.Is(err, errs.Limit) {
		t.Errorf("a third: %v", err)
	}
	must(t, p.releaseUID(a))
	if uc, err := p.takeUID(c); err != nil || uc != ua {
		t.Errorf("after a release: %d, %v", uc, err)
	}
}

// Streams that the guest opens arrive at the socket that Firecracker looks for;
// they end when the machine stands still, and go on behind that, and with a later
// server.
func TestModelStreamsOfTheGuest(t *testing.T) {
	w := modelWorld(t)
	b := w.boot()
	place := "@" + string(b.ID) // the model's guest is a process of this host
	b.Forwards = []wire.Forward{{Listen: "unix:" + place, Port: 70_000}}
	m, _ := w.create(b)
	open := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("unix", place)
		must(t, err)
		_ = conn.SetDeadline(time.Now().Add(patience.Of(20 * time.Second)))
		return conn
	}
	ask := func(when string) {
		t.Helper()
		conn := open()
		defer conn.Close()
		_, err := io.WriteString(conn, "hello")
		must(t, err)
		must(t, conn.(*net.UnixConn).CloseWrite())
		if got, err := io.ReadAll(conn); err != nil || string(got) != string(b.ID)+"\nhello" {
			t.Errorf("%s: %q, %v", when, got, err)
		}
	}
	ask("at first")
	held := open()
	defer held.Close()
	if line, err := bufio.NewReader(held).ReadString('\n'); err != nil || line != string(b.ID)+"\n" {
		t.Fatalf("%q, %v", line, err)
	}
	must(t, m.Pause(t.Context()))
	must(t, m.Resume(t.Context()))
	if rest, err := io.ReadAll(held); err != nil || len(rest) > 0 {
		t.Errorf("a stream from before the pause: %q, %v", rest, err)
	}
	ask("after a pause")
	must(t, w.p.Close())
	w.p = w.open()
	if _, err := w.p.Attach(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	ask("with a later server")
}
