package replica_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/history"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/volume/layout"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// commands counts what is stopped.
type commands struct {
	mu     sync.Mutex
	frozen bool
	times  int
}

func (c *commands) Quiesce(time.Duration) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = true
	c.times++
	return 1
}

func (c *commands) Thaw() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = false
	return 1
}

func (c *commands) state() (frozen bool, times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frozen, c.times
}

// machine has a disk and the guest's history, without a kernel of its own.
type machine struct {
	t        testing.TB
	disk     string
	commands *commands
	now      func() time.Time // nil = the true one
	service  *history.Service
	server   *http.Server
	socket   string
	client   *wire.Client
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	m := &machine{t: t, disk: t.TempDir(), commands: &commands{}}
	must(t, os.Mkdir(m.files(), 0o755))
	m.client = wire.NewClient(func(ctx context.Context, _ uint32) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", m.socket)
	})
	m.start(nil)
	t.Cleanup(m.stop)
	return m
}

func (m *machine) files() string { return filepath.Join(m.disk, layout.Files) }

// start serves the machine's history, or what the handler makes of it.
func (m *machine) start(around func(wire.HistoryHandler) wire.HistoryHandler) {
	m.t.Helper()
	m.service = history.New(history.Config{Disk: m.disk, Commands: m.commands, Now: m.now})
	must(m.t, m.service.Recover())
	var h wire.HistoryHandler = m.service
	if around != nil {
		h = around(h)
	}
	m.socket = filepath.Join(m.t.TempDir(), "s")
	ln, err := net.Listen("unix", m.socket)
	must(m.t, err)
	mux := http.NewServeMux()
	mux.Handle(wire.NewHistoryHandler(h, connect.WithReadMaxBytes(wire.MessageBytesMax), connect.WithSendMaxBytes(wire.MessageBytesMax)))
	m.server = &http.Server{Handler: mux}
	server := m.server
	go func() { _ = server.Serve(ln) }()
}

func (m *machine) stop() {
	m.client.Close()
	_ = m.server.Close()
	must(m.t, m.service.Close())
}

func (m *machine) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.files(), name)
	must(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(m.t, os.WriteFile(path, []byte(text), 0o644))
}

func (m *machine) read(name string) string {
	m.t.Helper()
	data, err := os.ReadFile(filepath.Join(m.files(), name))
	must(m.t, err)
	return string(data)
}

func open(t testing.TB, c replica.Config) *replica.History {
	t.Helper()
	h, err := replica.Open(c)
	must(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func snapshot(t testing.TB, h workspace.History, text string) workspace.Revision {
	t.Helper()
	rev, _, err := h.Snapshot(t.Context(), workspace.Label{Actor: "agent", Text: text})
	must(t, err)
	return rev
}

// restore goes back to a revision and returns the one made of it.
func restore(t testing.TB, h workspace.History, n uint64) workspace.Revision {
	t.Helper()
	p, err := h.PlanRestore(t.Context(), n, "")
	must(t, err)
	rev, result, err := h.Apply(t.Context(), p.ID, workspace.Label{Actor: "user"})
	must(t, err)
	if len(result.Kept) > 0 {
		t.Errorf("kept: %q", result.Kept)
	}
	return rev
}

func content(t testing.TB, h workspace.History, n uint64, path string) string {
	t.Helper()
	var b bytes.Buffer
	must(t, h.Content(t.Context(), n, path, &b))
	return b.String()
}

func TestRevisionsAreDurableOnTheHost(t *testing.T) {
	m, dir := newMachine(t), t.TempDir()
	h := open(t, replica.Config{Dir: dir, Guest: m.client})
	var want []workspace.Revision
	for i := range 5 {
		m.write("a", fmt.Sprint("text ", i))
		m.write(fmt.Sprintf("dir/%d", i), "more")
		rev := snapshot(t, h, fmt.Sprint(i))
		if h.Durable() != rev.N {
			t.Fatalf("revision %d, durable %d", rev.N, h.Durable())
		}
		want = append(want, rev)
	}
	if rev, fresh, err := h.Snapshot(t.Context(), workspace.Label{}); err != nil || fresh || rev.N != 5 {
		t.Errorf("without a change: %v, %v, %v", rev, fresh, err)
	}
	must(t, h.Close())

	m.stop()                              // the machine is gone,
	must(t, os.RemoveAll(m.disk))         // with its disk
	h = open(t, replica.Config{Dir: dir}) // and does not answer
	got, err := h.Revisions(t.Context())
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for i := range 5 {
		if text := content(t, h, uint64(i+1), "a"); text != fmt.Sprint("text ", i) {
			t.Errorf("revision %d: %q", i+1, text)
		}
	}
	d, err := h.Diff(t.Context(), 1, 3, workspace.DiffOptions{})
	must(t, err)
	var paths []string
	for _, f := range d.Files {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{"a", "dir/1", "dir/2"}, paths); diff != "" {
		t.Error(diff)
	}
	if list, err := h.List(t.Context(), 3, "dir"); err != nil || len(list) != 3 || list[2].Name != "2" {
		t.Errorf("the directory of revision 3: %+v, %v", list, err)
	}
}

func TestRestoreAndRevert_areAppliedInTheMachine(t *testing.T) {
	m := newMachine(t)
	h := open(t, replica.Config{Dir: t.TempDir(), Guest: m.client})
	m.write("a", "one\n")
	one := snapshot(t, h, "one")
	m.write("a", "two\n")
	m.write("b", "new\n")
	two := snapshot(t, h, "two")
	m.write("c", "later\n")
	back := restore(t, h, one.N)
	if back.Root != one.Root || m.read("a") != "one\n" || h.Durable() != back.N {
		t.Errorf("%+v, durable %d", back, h.Durable())
	}
	if frozen, times := m.commands.state(); frozen || times == 0 {
		t.Errorf("commands: stopped %d times, stopped now: %v", times, frozen)
	}
	if text := content(t, h, back.N-1, "c"); text != "later\n" { // which no revision had held yet
		t.Errorf("%q", text)
	}
	again := restore(t, h, two.N)
	if again.Root != two.Root {
		t.Error("another root")
	}
	p, err := h.PlanRevert(t.Context(), two.N, nil)
	must(t, err)
	if len(p.Ops) != 2 || len(p.Conflicts) != 0 || p.Target != two.N {
		t.Errorf("%+v", p)
	}
	rev, _, err := h.Apply(t.Context(), p.ID, workspace.Label{})
	must(t, err)
	if rev.Root != one.Root {
		t.Error("another root")
	}
}

// What git keeps in the machine stays, the plan says so, and the machine's own
// word for where its history is comes over.
func TestWhatGitKeeps_staysInTheMachine(t *testing.T) {
	m := newMachine(t)
	h := open(t, replica.Config{Dir: t.TempDir(), Guest: m.client})
	m.write("a", "1")
	m.write("lib/.git/HEAD", "old")
	first := snapshot(t, h, "first")
	m.write("a", "2")
	second := snapshot(t, h, "second")
	m.write("lib/.git/HEAD", "new")
	commit := snapshot(t, h, "a commit")
	plan, err := h.PlanRestore(t.Context(), first.N, "")
	must(t, err)
	if len(plan.Left) != 1 || plan.Left[0].Path != "lib/.git" || !strings.Contains(plan.Left[0].Why, "git") {
		t.Errorf("left: %+v", plan.Left)
	}
	made := restore(t, h, first.N)
	if m.read("a") != "1" || m.read("lib/.git/HEAD") != "new" || !made.Whole || !commit.Aside {
		t.Errorf("%+v, %+v", made, commit)
	}
	revs, err := h.Revisions(t.Context())
	must(t, err)
	if current, undo, redo := workspace.Position(revs); current != first.N || undo != 0 || redo != second.N {
		t.Errorf("at %d, undo to %d, redo to %d", current, undo, redo)
	}
}

// Fault 14: a sandbox is gone, and its history goes on in a new one.
func TestAHistoryGoesOnInANewMachine(t *testing.T) {
	m, dir := newMachine(t), t.TempDir()
	h := open(t, replica.Config{Dir: dir, Guest: m.client})
	for i := range 3 {
		m.write("a", fmt.Sprint(i))
		m.write("dir/deep/b", fmt.Sprint("b", i))
		snapshot(t, h, "")
	}
	revs, err := h.Revisions(t.Context())
	must(t, err)
	must(t, h.Close())
	next, copied := newMachine(t), filepath.Join(t.TempDir(), "copy")
	next.write("other", "what a template has")
	must(t, replica.Copy(dir, copied))
	h = open(t, replica.Config{Dir: copied, Guest: next.client})
	back := restore(t, h, 3)
	if back.Root != revs[2].Root || back.N != 5 || next.read("a") != "2" {
		t.Errorf("%+v", back)
	}
	older := restore(t, h, 1) // which the machine never had
	if older.Root != revs[0].Root || next.read("dir/deep/b") != "b0" {
		t.Errorf("%+v", older)
	}
	next.write("a", "goes on")
	if rev := snapshot(t, h, ""); rev.N != older.N+1 || h.Durable() != rev.N {
		t.Errorf("%+v, durable %d", rev, h.Durable())
	}
}

// And the same directory is an engine's on the host, and back.
func TestAHistoryMovesToTheHostAndBack(t *testing.T) {
	m, dir := newMachine(t), t.TempDir()
	h := open(t, replica.Config{Dir: dir, Guest: m.client})
	m.write("a", "in the machine")
	one := snapshot(t, h, "")
	must(t, h.Close())

	base := t.TempDir()
	files := filepath.Join(base, "files")
	must(t, os.Mkdir(files, 0o755))
	w, err := workspace.Open(workspace.Config{Dir: files, Staging: filepath.Join(base, "staging"), Store: dir})
	must(t, err)
	defer w.Close()
	if rev := restore(t, w, one.N); rev.Root != one.Root {
		t.Error("another root on the host")
	}
	must(t, os.WriteFile(filepath.Join(files, "a"), []byte("on the host"), 0o644))
	two := snapshot(t, w, "")
	must(t, w.Close())

	next := newMachine(t)
	h = open(t, replica.Config{Dir: dir, Guest: next.client})
	if rev := restore(t, h, two.N); rev.Root != two.Root || next.read("a") != "on the host" {
		t.Error("another root in the next machine")
	}
}

func TestAMachineThatLostItsHistoryIsGivenOurs(t *testing.T) {
	m := newMachine(t)
	h := open(t, replica.Config{Dir: t.TempDir(), Guest: m.client})
	for i := range 3 {
		m.write("a", fmt.Sprint(i))
		snapshot(t, h, "")
	}
	before, err := h.Revisions(t.Context())
	must(t, err)
	m.stop()
	must(t, os.RemoveAll(filepath.Join(m.disk, layout.History))) // root in the machine can
	m.start(nil)
	m.write("a", "after the loss")
	if rev := snapshot(t, h, ""); rev.N != 4 || h.Durable() != 4 {
		t.Fatalf("%+v, durable %d", rev, h.Durable())
	}
	after, err := h.Revisions(t.Context())
	must(t, err)
	if diff := cmp.Diff(before, after[:3]); diff != "" {
		t.Error(diff)
	}
	if rev := restore(t, h, 1); rev.Root != before[0].Root || m.read("a") != "0" {
		t.Errorf("%+v", rev)
	}
}

// The first change of a workspace that was made empty can be undone, though it
// was not looked at before; the machine has that revision too.
func TestAnEmptyWorkspaceBeginsWithARevision(t *testing.T) {
	m, dir := newMachine(t), t.TempDir()
	at := replica.Config{Dir: dir, Guest: m.client, Empty: &workspace.Label{Actor: workspace.Outside, Text: "at first"}}
	h := open(t, at)
	m.write("a", "first")
	m.write("dir/b", "first")
	rev := snapshot(t, h, "")
	revs, err := h.Revisions(t.Context())
	must(t, err)
	if len(revs) != 2 || revs[0].Files != 0 || revs[0].Label != "at first" || revs[1].Root != rev.Root || h.Durable() != 2 {
		t.Fatalf("%+v, durable %d", revs, h.Durable())
	}
	if _, undo, _ := workspace.Position(revs); undo != 1 {
		t.Errorf("undo goes to %d", undo)
	}
	if rev := restore(t, h, 1); rev.Root != revs[0].Root {
		t.Error("another root")
	}
	if left, err := os.ReadDir(m.files()); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	before, err := h.Revisions(t.Context())
	must(t, err)
	must(t, h.Close())
	at.Dir = t.TempDir() // a copy that was lost: what the machine has counts
	h = open(t, at)
	m.write("c", "later")
	snapshot(t, h, "")
	after, err := h.Revisions(t.Context())
	must(t, err)
	if diff := cmp.Diff(before, after[:len(before)], cmpopts.IgnoreFields(workspace.Revision{}, "Clock")); diff != "" { // which is the copy's own
		t.Error(diff)
	}
}

// With Hold the commands stay stopped after an Apply that did something, and go
// on after one that did nothing.
func TestHold_leavesTheCommandsStopped(t *testing.T) {
	m := newMachine(t)
	h := open(t, replica.Config{Dir: t.TempDir(), Guest: m.client, Hold: true})
	m.write("a", "one")
	one := snapshot(t, h, "")
	m.write("a", "two")
	p, err := h.PlanRestore(t.Context(), one.N, "")
	must(t, err)
	m.write("a", "three")
	if _, _, err := h.Apply(t.Context(), p.ID, workspace.Label{}); !errs.Is(err, errs.Conflict) {
		t.Errorf("%v", err)
	}
	if frozen, _ := m.commands.state(); frozen {
		t.Error("the commands are stopped for an undo that did nothing")
	}
	restore(t, h, one.N)
	if frozen, _ := m.commands.state(); !frozen {
		t.Error("the commands go on")
	}
}

// What was done in the machine is not reported as if it were not, when the host
// cannot keep it.
func TestApply_thatTheHostCannotKeep(t *testing.T) {
	m := newMachine(t)
	m.stop()
	l := &liar{}
	m.start(func(h wire.HistoryHandler) wire.HistoryHandler { l.HistoryHandler = h; return l })
	h := open(t, replica.Config{Dir: t.TempDir(), Guest: m.client})
	m.write("a", "one")
	one := snapshot(t, h, "")
	m.write("a", "two")
	p, err := h.PlanRestore(t.Context(), one.N, "")
	must(t, err)
	l.pull = func(*wire.PullRequest, *connect.ServerStream[wire.PullResponse]) error {
		return wire.ToConnect(errs.New(errs.Unavailable, "cut"))
	}
	_, _, err = h.Apply(t.Context(), p.ID, workspace.Label{})
	if !errors.Is(err, workspace.ErrUnlisted) || !errs.Is(err, errs.Unavailable) || m.read("a") != "one" {
		t.Errorf("%v; the file says %q", err, m.read("a"))
	}
	l.pull = nil
	if rev := snapshot(t, h, ""); rev.Root != one.Root || h.Durable() != rev.N {
		t.Errorf("%+v, durable %d", rev, h.Durable())
	}
}

// A machine that begins anew, and a host that does, answer the same plan as
// before, and do nothing.
func TestApply_theSameAgainAfterBothBeganAnew(t *testing.T) {
	m, dir := newMachine(t), t.TempDir()
	h := open(t, replica.Config{Dir: dir, Guest: m.client})
	for _, text := range []string{"one", "two"} {
		m.write("a", text)
		snapshot(t, h, text)
	}
	p, err := h.PlanRestore(t.Context(), 1, "")
	must(t, err)
	first, _, err := h.Apply(t.Context(), p.ID, workspace.Label{Actor: "user"})
	must(t, err)
	must(t, h.Close())
	m.stop()
	m.write("a", "three") // which was not asked to be taken back
	m.start(nil)
	h = open(t, replica.Config{Dir: dir, Guest: m.client})
	again, _, err := h.Apply(t.Context(), p.ID, workspace.Label{Actor: "user"})
	if err != nil || again.N != first.N || again.Root != first.Root || m.read("a") != "three" {
		t.Errorf("the same again: %+v, %v; the file is %q", again, err, m.read("a"))
	}
}
