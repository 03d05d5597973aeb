package gvisor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// original is a machine with a command that counts in memory and holds files
// open, one of them deleted, of which there is a snapshot.
type original struct {
	p    *Provider
	boot sandbox.Boot
	m    sandbox.Machine
	g    sandboxtest.Guest
	dir  string // of the snapshot
	work string // the workspace as it was then
}

const counter = `
import os, signal, sys, time
n = 0
kept = open("kept", "a+")
gone = open("gone", "w+"); gone.write("deleted"); gone.flush(); os.unlink("gone")
tmp = open("/tmp/layer", "w+")
def tell(*_):
    gone.seek(0)
    out = open("answer.tmp", "w")
    print(n, gone.read(), os.path.exists("/tmp/layer"), file=out); out.close()
    os.rename("answer.tmp", "answer")
signal.signal(signal.SIGUSR1, tell)
while True:
    n += 1
    kept.write("x"); kept.flush()
    time.sleep(0.01)
`

func save(t *testing.T) original {
	t.Helper()
	skipUnlessItBoots(t)
	if os.Geteuid() != 0 {
		t.Skip("gVisor saves no memory without root")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 on this host")
	}
	s := original{p: open(t, t.TempDir()), boot: bootOf(t, sandboxtest.Rootfs(t)), dir: t.TempDir(), work: filepath.Join(t.TempDir(), "copy")}
	s.boot.Guest = guesttest.Binary(t)
	s.m = create(t, s.p, s.boot)
	s.g = sandboxtest.NewGuest(t, s.m)
	s.g.Background("counter", "python3", "-c", counter)
	sandboxtest.Eventually(t, "the command counts", func() bool { return size(s.boot.Workspace, "kept") > 3 })
	s.quiesce(t)
	frozen := 0
	err := s.m.Snapshot(t.Context(), s.dir, func(context.Context) error {
		frozen++
		return exec.Command("cp", "-a", s.boot.Workspace, s.work).Run()
	})
	if err != nil || frozen != 1 {
		t.Fatalf("snapshot: %v; frozen was called %d times", err, frozen)
	}
	return s
}

func (s original) quiesce(t *testing.T) {
	t.Helper()
	if _, err := s.g.Control.Quiesce(t.Context(), connect.NewRequest(&wire.QuiesceRequest{ThawAfterMs: 60_000})); err != nil {
		t.Fatal(err)
	}
}

func thaw(t *testing.T, g sandboxtest.Guest) {
	t.Helper()
	if _, err := g.Control.Thaw(t.Context(), connect.NewRequest(&wire.ThawRequest{})); err != nil {
		t.Fatal(err)
	}
}

func size(dir, name string) int64 {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return -1
	}
	return info.Size()
}

// clone is a boot from the snapshot under another ID.
func (s original) clone(t *testing.T) sandbox.Boot {
	t.Helper()
	b := s.boot
	b.ID, b.From, b.Workspace = sandbox.NewID(), s.dir, filepath.Join(t.TempDir(), "workspace")
	if out, err := exec.Command("cp", "-a", s.work, b.Workspace).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return b
}

// goesOn thaws a machine and reads what its command has to tell.
func goesOn(t *testing.T, g sandboxtest.Guest, workspace string) {
	t.Helper()
	was := size(workspace, "kept")
	thaw(t, g)
	sandboxtest.Eventually(t, "the command goes on", func() bool { return size(workspace, "kept") > was })
	if _, err := g.Process.Signal(t.Context(), connect.NewRequest(&wire.SignalRequest{Key: "counter", Signal: 10, LeaderOnly: true})); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, "the command answers", func() bool { return size(workspace, "answer") > 0 })
	data, err := os.ReadFile(filepath.Join(workspace, "answer"))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(data))
	if len(f) != 3 || f[0] == "0" || f[1] != "deleted" || f[2] != "True" {
		t.Errorf("the command says %q", data)
	}
}

func TestSnapshotAndClones(t *testing.T) {
	s := save(t)
	for _, f := range []string{savedState, PagesFile, savedGuest} {
		t.Logf("%s: %d bytes", f, size(s.dir, f))
	}
	var clones []sandbox.Boot
	for range 2 {
		b := s.clone(t)
		begun := time.Now()
		m := create(t, s.p, b)
		t.Logf("restored in %s", time.Since(begun))
		g := sandboxtest.NewGuest(t, m)
		if now, then := size(b.Workspace, "kept"), size(s.work, "kept"); now != then {
			t.Errorf("before the thaw the command went on: %d, was %d", now, then)
		}
		goesOn(t, g, b.Workspace)
		name := g.Shell("hostname").Stdout
		if want := strings.ReplaceAll(string(b.ID), "_", "-"); strings.TrimSpace(name) != want {
			t.Errorf("the clone's name is %q, not %q", name, want)
		}
		clones = append(clones, b)
	}
	goesOn(t, s.g, s.boot.Workspace)
	if err := s.p.Destroy(t.Context(), clones[0].ID); err != nil {
		t.Error(err)
	}
	if res := s.g.Run("/bin/true"); res.Code != 0 {
		t.Errorf("the original, after a clone's end: %+v", res)
	}
}

// A snapshot can be taken of a machine that came from one, and again of one
// that had its own taken, paused or not.
func TestSnapshotAgain(t *testing.T) {
	s := save(t)
	b := s.clone(t)
	m := create(t, s.p, b)
	g := sandboxtest.NewGuest(t, m)
	goesOn(t, g, b.Workspace)
	if err := m.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Snapshot(t.Context(), t.TempDir(), func(context.Context) error { return nil }); err == nil {
		t.Log("a paused machine can be saved")
	} else {
		t.Errorf("a paused machine: %v", err)
	}
	if err := m.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := g.Run("/bin/true"); res.Code != 0 {
		t.Errorf("%+v", res)
	}
	wrong := errors.New("the disk is full")
	if err := s.m.Snapshot(t.Context(), t.TempDir(), func(context.Context) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("what the caller's copy said is lost: %v", err)
	}
	goesOn(t, s.g, s.boot.Workspace)
}

// dying is a gVisor whose sandbox dies before it has begun, the first time that
// the verb is called; died tells whether that was.
func dying(t *testing.T, verb string) (program string, died func() bool) {
	t.Helper()
	dir := t.TempDir()
	program, once := filepath.Join(dir, "runsc"), filepath.Join(dir, "once")
	text := `#!/bin/sh
case " $* " in
*' ` + verb + ` '*)
	if mkdir ` + once + ` 2>/dev/null; then
		echo '{"msg":"` + notStarted + `: EOF"}' >&3
		exit 128
	fi ;;
esac
exec ` + slim(t) + ` "$@"
`
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return program, func() bool {
		_, err := os.Stat(once)
		return err == nil
	}
}

func TestCreate_theSandboxDiesAtItsStart(t *testing.T) {
	skipUnlessItBoots(t)
	p := open(t, t.TempDir())
	program, died := dying(t, "run")
	p.program = program
	b := bootOf(t, sandboxtest.Rootfs(t))
	b.Guest = guesttest.Binary(t)
	g := sandboxtest.NewGuest(t, create(t, p, b))
	if res := g.Run("/bin/true"); res.Code != 0 || !died() {
		t.Errorf("%+v, died %t", res, died())
	}
	if err := p.Destroy(t.Context(), b.ID); err != nil {
		t.Error(err)
	}
	sandboxtest.Leaks(t, p.c.Dir, b.ID)
}

// A machine whose new sandbox dies before it has begun is started once more: it
// is saved, and gone otherwise.
func TestSnapshot_theSandboxDiesAtItsStart(t *testing.T) {
	program, died := dying(t, "restore")
	s := save(t)
	s.quiesce(t)
	m := s.m.(*machine)
	if err := m.save(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	rec, err := readRecord(s.p.dir(m.id))
	if err != nil {
		t.Fatal(err)
	}
	own := rec.Program
	rec.Program = program
	next, err := s.p.revive(t.Context(), m.id, rec)
	if err != nil {
		t.Fatal(err)
	}
	if !died() {
		t.Error("nothing failed")
	}
	next.Program = own
	if err := errors.Join(writeRecord(s.p.dir(m.id), next), s.p.Close()); err != nil {
		t.Fatal(err)
	}
	p := open(t, s.p.c.Dir)
	again, err := p.Attach(t.Context(), s.boot.ID)
	if err != nil {
		t.Fatal(err)
	}
	goesOn(t, sandboxtest.NewGuest(t, again), s.boot.Workspace)
	if err := p.Destroy(t.Context(), s.boot.ID); err != nil {
		t.Error(err)
	}
	sandboxtest.Leaks(t, s.p.c.Dir, s.boot.ID)
}

// A server that dies when the sentry has written its memory and ended, or
// while it does, or before it was told: the next one goes on with the machine.
func TestServerKilledDuringSnapshot(t *testing.T) {
	for name, die := range map[string]func(*testing.T, original, *machine, string){
		"before": func(t *testing.T, s original, m *machine, dir string) {
			rec, _, _ := m.now()
			rec.Saving = dir
			if err := writeRecord(s.p.dir(m.id), rec); err != nil {
				t.Fatal(err)
			}
		},
		"when it is written": func(t *testing.T, _ original, m *machine, dir string) {
			if err := m.save(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
		},
		"half restored": func(t *testing.T, s original, m *machine, dir string) {
			if err := m.save(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
			rec, err := readRecord(s.p.dir(m.id))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.p.revive(t.Context(), m.id, rec); err != nil {
				t.Fatal(err)
			}
			if err := writeRecord(s.p.dir(m.id), rec); err != nil { // as it was before the end of revive
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := save(t)
			s.quiesce(t)
			die(t, s, s.m.(*machine), t.TempDir())
			if err := s.p.Close(); err != nil {
				t.Fatal(err)
			}
			p := open(t, s.p.c.Dir)
			m, err := p.Attach(t.Context(), s.boot.ID)
			if err != nil {
				t.Fatal(err)
			}
			goesOn(t, sandboxtest.NewGuest(t, m), s.boot.Workspace)
			if err := p.Destroy(t.Context(), s.boot.ID); err != nil {
				t.Error(err)
			}
			sandboxtest.Leaks(t, s.p.c.Dir, s.boot.ID)
		})
	}
	t.Run("and what was written is damaged", func(t *testing.T) {
		s := save(t)
		dir := t.TempDir()
		if err := s.m.(*machine).save(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, savedState), 100); err != nil {
			t.Fatal(err)
		}
		if err := s.p.Close(); err != nil {
			t.Fatal(err)
		}
		p := open(t, s.p.c.Dir)
		if _, err := p.Attach(t.Context(), s.boot.ID); !errs.Is(err, errs.NotFound) {
			t.Errorf("attach: %v", err)
		}
		if err := p.Destroy(t.Context(), s.boot.ID); err != nil {
			t.Error(err)
		}
		sandboxtest.Leaks(t, s.p.c.Dir, s.boot.ID)
	})
}

// A destroy does not wait for a snapshot to go on.
func TestDestroyDuringSnapshot(t *testing.T) {
	s := save(t)
	inside, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.m.Snapshot(t.Context(), t.TempDir(), func(ctx context.Context) error {
			close(inside)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	<-inside
	if err := s.p.Destroy(t.Context(), s.boot.ID); err != nil {
		t.Error(err)
	}
	if err := <-done; !errs.Is(err, errs.Conflict) {
		t.Errorf("the snapshot: %v", err)
	}
	if e, err := s.m.Wait(t.Context()); err != nil || e.Reason != sandbox.ReasonDestroyed {
		t.Errorf("%+v, %v", e, err)
	}
	sandboxtest.Leaks(t, s.p.c.Dir, s.boot.ID)
}

// What does not load is refused as such, by us or by gVisor, and leaves nothing.
func TestSnapshotThatDoesNotLoad(t *testing.T) {
	s := save(t)
	for name, edit := range map[string]func(*sandbox.Boot){
		"gone":          func(b *sandbox.Boot) { b.From = filepath.Join(s.dir, "nowhere") },
		"another shape": func(b *sandbox.Boot) { b.Spec.MemoryMB++ },
		"another root":  func(b *sandbox.Boot) { b.Rootfs.Hash = "another" },
		"a file that was open is gone": func(b *sandbox.Boot) {
			if err := os.Remove(filepath.Join(b.Workspace, "kept")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := s.clone(t)
			edit(&b)
			_, err := s.p.Create(t.Context(), b)
			if !errors.Is(err, sandbox.ErrSnapshot) {
				t.Errorf("create: %v", err)
			}
			sandboxtest.Leaks(t, s.p.c.Dir, b.ID)
		})
	}
}

// BenchmarkRestore is from a snapshot to a finished command; the machine's end
// is not counted.
func BenchmarkRestore(b *testing.B) {
	p := open(b, b.TempDir())
	boot := bootOf(b, sandboxtest.Rootfs(b))
	boot.Guest = guesttest.Binary(b)
	dir := b.TempDir()
	if err := create(b, p, boot).Snapshot(b.Context(), dir, func(context.Context) error { return nil }); err != nil {
		b.Skip(err)
	}
	for b.Loop() {
		boot.ID, boot.From = sandbox.NewID(), dir
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
