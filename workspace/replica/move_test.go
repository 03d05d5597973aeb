package replica_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest/disk"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/replica"
)

// inGVisor is a workspace that the host sees, with a sandbox of gVisor on it.
type inGVisor struct {
	sandboxtest.Guest
	w *workspace.Workspace
}

func openGVisor(t testing.TB, store string) inGVisor {
	t.Helper()
	p, err := gvisor.New(gvisor.Config{
		Dir: t.TempDir(), Exe: sandboxtest.Build(t, "github.com/skete-dev/skete/sandbox/gvisor/internal/runsctest"),
		Runsc: sandboxtest.Build(t, "github.com/skete-dev/skete/cmd/skete-runsc"),
	})
	must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	if err := p.Probe(t.Context()); err != nil {
		t.Skipf("gVisor does not boot here: %v", err)
	}
	base := t.TempDir()
	files := filepath.Join(base, "files")
	must(t, os.Mkdir(files, 0o755))
	b := sandbox.Boot{
		ID: sandbox.NewID(), Rootfs: sandboxtest.Rootfs(t), Guest: guesttest.Binary(t), Workspace: files,
		Spec: sandbox.Spec{MemoryMB: 256, DiskMB: 128, CPUs: 1, PidsMax: 128, Workdir: sandbox.WorkspaceDir},
	}
	m, err := p.Create(t.Context(), b)
	must(t, err)
	t.Cleanup(func() {
		if err := p.Destroy(context.Background(), b.ID); err != nil {
			t.Error(err)
		}
	})
	w, err := workspace.Open(workspace.Config{Dir: files, Staging: filepath.Join(base, "staging"), Store: store})
	must(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return inGVisor{sandboxtest.NewGuest(t, m), w}
}

// Fault 14, acceptance 6: from gVisor to QEMU, which is killed with -9, to
// another QEMU, and back to gVisor; the tree is the same everywhere.
func TestAHistoryMovesBetweenRealMachines(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without root the host cannot give files to the sandbox's user")
	}
	e := openQEMU(t)
	first := filepath.Join(t.TempDir(), "first")
	g := openGVisor(t, first)
	if res := g.Shell(`mkdir -p src/deep && echo hello > src/deep/a && ln -s deep/a src/link && chmod 750 src && dd if=/dev/urandom of=large bs=1M count=9 2>/dev/null && : > empty`); res.Code != 0 {
		t.Fatalf("%+v", res)
	}
	one := snapshot(t, g.w, "in gVisor")
	must(t, g.w.Close())

	m := e.boot(disk.Work(t, 128<<20), nil)
	h := open(t, replica.Config{Dir: first, Guest: m.Client})
	began := time.Now()
	if rev := restore(t, h, one.N); rev.Root != one.Root {
		t.Fatal("another root in QEMU")
	}
	t.Logf("given to QEMU and restored, 9 MiB: %v", time.Since(began))
	if out := m.shell("cat src/link; stat -c '%u %a %F' src/deep/a src; wc -c < large"); out != "hello\n1000 644 regular file\n1000 750 directory\n9437184\n" {
		t.Errorf("%q", out)
	}
	m.shell("echo changed in QEMU > src/deep/a && rm empty && mkfifo pipe")
	two := snapshot(t, h, "in QEMU")
	m.kill() // and its disk goes with it
	must(t, h.Close())

	second := filepath.Join(t.TempDir(), "second")
	must(t, replica.Copy(first, second))
	next := e.boot(disk.Work(t, 128<<20), nil)
	h = open(t, replica.Config{Dir: second, Guest: next.Client})
	if rev := restore(t, h, two.N); rev.Root != two.Root {
		t.Fatal("another root in the second QEMU")
	}
	if out := next.shell("cat src/link"); out != "changed in QEMU\n" {
		t.Errorf("%q", out)
	}
	must(t, h.Close())

	back := openGVisor(t, second)
	if rev := restore(t, back.w, two.N); rev.Root != two.Root {
		t.Fatal("another root in gVisor")
	}
	if res := back.Shell("cat src/link"); res.Stdout != "changed in QEMU\n" {
		t.Errorf("%+v", res)
	}
}

// Supervise is killed while it makes a revision and while it undoes: what was
// durable stays, commands run on, and the next call finds all in order.
func TestMachine_superviseKilledInASnapshotAndAnUndo(t *testing.T) {
	e := openQEMU(t)
	m := e.boot(disk.Work(t, 128<<20), func(b *sandbox.Boot) { b.Spec.Root = true })
	h := open(t, replica.Config{Dir: t.TempDir(), Guest: m.Client})
	m.shell("for i in $(seq 300); do echo $i > $i; done")
	one := snapshot(t, h, "")
	m.shell("for i in $(seq 300); do echo more $i > $i; done")
	two := snapshot(t, h, "")
	beat := sandboxtest.Start("/bin/sh", "-c", "while :; do date +%s%N > /tmp/beat; sleep 0.05; done")
	beat.Key = "beat"
	_, err := m.Process.Start(t.Context(), connect.NewRequest(beat))
	must(t, err)
	for i, begin := range []func(context.Context) error{
		func(ctx context.Context) error {
			_, _, err := h.Snapshot(ctx, workspace.Label{})
			return err
		},
		func(ctx context.Context) error {
			p, err := h.PlanRestore(ctx, one.N, "")
			if err == nil {
				_, _, err = h.Apply(ctx, p.ID, workspace.Label{})
			}
			return err
		},
	} {
		m.shell("dd if=/dev/urandom of=big bs=1M count=6 2>/dev/null") // so that there is something to do
		done := make(chan error, 1)
		go func() { done <- begin(t.Context()) }()
		m.killSupervise()
		err := <-done
		t.Logf("call %d, with supervise killed: %v", i, err)
		if err != nil && !errs.Is(err, errs.Unavailable) && !errs.Is(err, errs.Conflict) {
			t.Errorf("call %d: %v", i, err)
		}
		if rev := snapshot(t, h, "afterwards"); h.Durable() != rev.N {
			t.Errorf("durable %d, last %d", h.Durable(), rev.N)
		}
		m.beats()
	}
	if rev := restore(t, h, two.N); rev.Root != two.Root {
		t.Error("another root")
	}
	m.beats()
}

// killSupervise has root in the machine end it with -9.
func (r real) killSupervise() {
	r.e.t.Helper()
	before, err := r.Hello(r.e.t.Context())
	must(r.e.t, err)
	req := sandboxtest.Start("/bin/sh", "-c", `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline | grep -q '^[^ ]*guest supervise ' && kill -9 ${p#/proc/}; done; true`)
	req.User = "root"
	_, _ = r.Exec(context.Background(), req) // it takes the answer with it
	for end := time.Now().Add(patience.Of(20 * time.Second)); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		if hello, err := r.Hello(r.e.t.Context()); err == nil && hello.SuperviseStarts > before.SuperviseStarts {
			return
		}
	}
	r.e.t.Fatal("supervise was not killed, or does not come back")
}

// beats makes sure that a command that ran all the time is not stopped.
func (r real) beats() {
	r.e.t.Helper()
	was := r.shell("cat /tmp/beat")
	for end := time.Now().Add(patience.Of(30 * time.Second)); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		if r.shell("cat /tmp/beat") != was {
			return
		}
	}
	r.e.t.Error("a command is still stopped")
}
