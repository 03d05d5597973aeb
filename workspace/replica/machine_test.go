package replica_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/microvm/microvmtest"
	"github.com/skete-dev/skete/sandbox/qemu"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest/disk"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/replica"
)

// emulated are real machines of QEMU.
type emulated struct {
	t   testing.TB
	dir string
	p   *qemu.Provider
}

func openQEMU(t testing.TB) emulated {
	t.Helper()
	if testing.Short() {
		t.Skip("boots virtual machines: not in a short run")
	}
	microvmtest.Kernel(t)
	e := emulated{t: t, dir: t.TempDir()}
	var err error
	e.p, err = qemu.New(qemu.Config{Dir: e.dir, Cache: microvmtest.Dir(), Guest: guesttest.Binary(t)})
	if errs.Is(err, errs.Unsupported) {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() { _ = e.p.Close() })
	return e
}

// real is one of them.
type real struct {
	sandboxtest.Guest
	e       emulated
	id      sandbox.ID
	machine sandbox.Machine
}

func (e emulated) boot(image string, change func(*sandbox.Boot)) real {
	e.t.Helper()
	b := sandbox.Boot{
		ID: sandbox.NewID(), Rootfs: disk.Root(e.t), Guest: guesttest.Binary(e.t), Disk: image,
		Spec: sandbox.Spec{MemoryMB: 192, DiskMB: 128, CPUs: 1, PidsMax: 128, Workdir: sandbox.WorkspaceDir},
	}
	if change != nil {
		change(&b)
	}
	m, err := e.p.Create(e.t.Context(), b)
	must(e.t, err)
	r := real{Guest: sandboxtest.NewGuest(e.t, m), e: e, id: b.ID, machine: m}
	e.t.Cleanup(r.destroy)
	return r
}

func (r real) destroy() {
	if err := r.e.p.Destroy(context.Background(), r.id); err != nil {
		r.e.t.Error(err)
	}
}

// kill ends QEMU as a power cut would, and waits.
func (r real) kill() {
	r.e.t.Helper()
	var data []byte
	must(r.e.t, filepath.WalkDir(r.e.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "machine.json" && strings.Contains(path, string(r.id)) {
			data, err = os.ReadFile(path)
		}
		return err
	}))
	var rec struct {
		QEMU struct {
			PID int `json:"pid"`
		} `json:"qemu"`
	}
	must(r.e.t, json.Unmarshal(data, &rec))
	if rec.QEMU.PID <= 1 {
		r.e.t.Fatalf("no process in %s", data)
	}
	must(r.e.t, syscall.Kill(rec.QEMU.PID, syscall.SIGKILL))
	_, err := r.machine.Wait(r.e.t.Context())
	must(r.e.t, err)
	r.destroy()
}

// shell runs a line that must succeed.
func (r real) shell(line string) string {
	r.e.t.Helper()
	res := r.Shell(line)
	if res.Code != 0 {
		r.e.t.Fatalf("%s: %+v", line, res)
	}
	return res.Stdout
}

// TestMachine_killedInAnApply kills QEMU with -9 before the journal of an undo
// counts, when it is staged, when it is half done, and before and after its
// revision is in the list; the next boot of the disk finishes or drops it, both
// sides name the same tree, and one revision says that it was done, to who asks
// for the same plan again too.
func TestMachine_killedInAnApply(t *testing.T) {
	for _, c := range []struct {
		stage string
		done  bool // what was begun is finished
	}{
		{"contents", false}, {"staged", true}, {"applied 3", true}, {"marked", true}, {"listed", true},
	} {
		t.Run(c.stage, func(t *testing.T) { killedInAnApply(t, c.stage, c.done) })
	}
}

func killedInAnApply(t *testing.T, stage string, done bool) {
	e, image, dir := openQEMU(t), disk.Work(t, 128<<20), t.TempDir()
	m := e.boot(image, func(b *sandbox.Boot) {
		b.Guest = sandboxtest.Build(t, "github.com/skete-dev/skete/workspace/replica/internal/stagedguest")
	})
	h := open(t, replica.Config{Dir: dir, Guest: m.Client})
	var revs []workspace.Revision
	began := time.Now()
	for i := range 20 {
		m.shell(fmt.Sprintf("mkdir -p src/%d && echo text %d > src/%d/file && echo %d > same && rm -f src/%d/file", i%7, i, i%7, i, (i+3)%7))
		revs = append(revs, snapshot(t, h, fmt.Sprint("step ", i)))
	}
	t.Logf("20 commands and revisions took %v", time.Since(began))
	if h.Durable() != revs[19].N {
		t.Fatalf("durable %d of %d", h.Durable(), revs[19].N)
	}
	p, err := h.PlanRestore(t.Context(), revs[4].N, "")
	must(t, err)
	m.shell("printf %s '" + stage + "' > /tmp/stage")
	applied := make(chan error, 1)
	go func() {
		_, _, err := h.Apply(t.Context(), p.ID, workspace.Label{Actor: "user"})
		applied <- err
	}()
	m.waitFor("/tmp/stage-reached", applied)
	m.kill()
	if err := <-applied; err == nil {
		t.Fatal("applied in a machine that is dead")
	}
	must(t, h.Close())

	next := e.boot(image, nil)
	h = open(t, replica.Config{Dir: dir, Guest: next.Client})
	again, _, err := h.Apply(t.Context(), p.ID, workspace.Label{Actor: "user"})
	rev := snapshot(t, h, "after")
	if done && (err != nil || again.N != rev.N || rev.N != revs[19].N+1 || rev.Undoes != revs[4].N || rev.Actor != "user") {
		t.Errorf("killed at %q: the newest revision is %+v; the plan again: %+v, %v", stage, rev, again, err)
	}
	if !done && !errs.Is(err, errs.Conflict) {
		t.Errorf("killed at %q: the plan again: %+v, %v", stage, again, err)
	}
	want := revs[19].Root
	if done {
		want = revs[4].Root
	}
	if rev.Root != want {
		t.Errorf("killed at %q: the tree is neither finished nor as it was", stage)
	}
	if h.Durable() != rev.N {
		t.Errorf("durable %d, last %d", h.Durable(), rev.N)
	}
	if text := next.shell("cat same"); done != (text == "4\n") {
		t.Errorf("killed at %q: %q", stage, text)
	}
	all, err := h.Revisions(t.Context())
	must(t, err)
	if len(all) < 20 || all[7].Root != revs[7].Root {
		t.Errorf("%d revisions after the kill", len(all))
	}
	if rev := restore(t, h, revs[9].N); rev.Root != revs[9].Root || next.shell("cat same") != "9\n" {
		t.Error("an undo after the boot")
	}
}

// waitFor waits for a file in the machine.
func (r real) waitFor(path string, ended <-chan error) {
	r.e.t.Helper()
	for end := time.Now().Add(patience.Of(time.Minute)); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		_, err := r.File.Stat(r.e.t.Context(), connect.NewRequest(&wire.StatRequest{Path: []byte(path)}))
		if err == nil {
			return
		}
		select {
		case err := <-ended:
			r.e.t.Fatalf("it ended before %s was there: %v", path, err)
		default:
		}
	}
	r.e.t.Fatalf("%s does not come", path)
}
