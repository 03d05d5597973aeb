package manager_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
)

// scenario is one change of state during which the server dies.
type scenario struct {
	name string
	// prepare brings a sandbox to where the change begins; "" = there is none.
	prepare []string
	change  string
	before  sandbox.State // if the change was undone
	midway  sandbox.State // if it could be neither undone nor finished; may be ""
	after   sandbox.State // if it was finished; only this if it was acknowledged
}

const gone = sandbox.State("gone")

var scenarios = []scenario{
	{"create", nil, "create", gone, "", sandbox.Running},
	{"pause", []string{"create"}, "pause", sandbox.Running, "", sandbox.Paused},
	{"resume", []string{"create", "pause"}, "resume", sandbox.Paused, "", sandbox.Running},
	{"stop", []string{"create"}, "stop", sandbox.Running, "", sandbox.Stopped},
	{"stop of a paused one", []string{"create", "pause"}, "stop", sandbox.Paused, "", sandbox.Stopped},
	{"start", []string{"create", "stop"}, "start", sandbox.Stopped, sandbox.Failed, sandbox.Running},
	{"destroy of a running one", []string{"create"}, "destroy", sandbox.Running, "", gone},
	{"destroy of a stopped one", []string{"create", "stop"}, "destroy", sandbox.Stopped, "", gone},
}

func (s scenario) allows(got sandbox.State) bool {
	return got == s.before || got == s.after || got == s.midway && s.midway != ""
}

// act does one change with the key "k", so that a repetition finds the same sandbox.
func act(ctx context.Context, m *manager.Manager, change string, id sandbox.ID) (sandbox.ID, error) {
	var info sandbox.Info
	var err error
	switch change {
	case "create":
		info, err = m.Create(ctx, "t", sandbox.CreateRequest{Key: "k"})
		return info.ID, err
	case "pause":
		_, err = m.Pause(ctx, "t", id)
	case "resume":
		_, err = m.Resume(ctx, "t", id)
	case "stop":
		_, err = m.Stop(ctx, "t", id)
	case "start":
		_, err = m.Start(ctx, "t", id)
	case "destroy":
		err = m.Destroy(ctx, "t", id)
	}
	return id, err
}

// die runs the scenario with a server that dies at a step of the change. It
// returns whether the change was acknowledged, and whether there was a death.
func (s scenario) die(t *testing.T, w *world, step int, after bool) (id sandbox.ID, acked, died bool) {
	t.Helper()
	g := &gate{}
	m, err := openSettled(t.Context(), w.config(g))
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range s.prepare {
		if id, err = act(t.Context(), m, change, id); err != nil {
			t.Fatal(err)
		}
	}
	g.mu.Lock()
	g.dieAt, g.after = g.steps+step, after
	g.mu.Unlock()
	made, err := act(t.Context(), m, s.change, id)
	if id == "" {
		id = made
	}
	died = g.died()
	g.mu.Lock()
	g.dead = true // also what it does at its end has no effect
	g.mu.Unlock()
	_ = m.Close()
	return id, err == nil, died
}

// state returns what the manager says of the tenant's only sandbox.
func state(t *testing.T, m *manager.Manager) sandbox.State {
	t.Helper()
	page, err := m.List(t.Context(), "t", sandbox.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	switch len(page.Items) {
	case 0:
		return gone
	case 1:
		return page.Items[0].State
	}
	t.Fatalf("%d sandboxes", len(page.Items))
	return ""
}

func TestCrash_everyStepOfEveryChangeConverges(t *testing.T) {
	for _, s := range scenarios {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/after=%v", s.name, after), func(t *testing.T) {
				for step := 1; ; step++ {
					if step > 50 {
						t.Fatal("the change never ends")
					}
					w := newWorld(t)
					id, acked, died := s.die(t, w, step, after)
					m := w.open(t, w.config(nil))
					got := state(t, m)
					if acked && got != s.after || !s.allows(got) {
						t.Errorf("dead at step %d (acknowledged: %v): state %s, want %s or %s", step, acked, got, s.before, s.after)
					}
					w.check(t, m, "t")
					s.goesOn(t, w, m, id, got)
					_ = m.Close()
					if !died {
						t.Logf("%d steps", step-1)
						return
					}
				}
			})
		}
	}
}

// goesOn repeats the change with the server that came after: it must be
// possible from where the crash left it.
func (s scenario) goesOn(t *testing.T, w *world, m *manager.Manager, id sandbox.ID, at sandbox.State) {
	t.Helper()
	id2, err := act(t.Context(), m, s.change, id)
	if s.change == "destroy" && at == gone && errs.Is(err, errs.NotFound) {
		err = nil
	}
	if err != nil {
		t.Errorf("%s again: %v", s.change, err)
	}
	if id != "" && id2 != id {
		t.Errorf("the same key gave %s and %s", id, id2)
	}
	if got := state(t, m); got != s.after {
		t.Errorf("%s again: state %s, want %s", s.change, got, s.after)
	}
	w.check(t, m, "t")
}

// The server that puts things in order may die too.
func TestCrash_whileReconcilingConverges(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			for step := 1; ; step++ {
				w := newWorld(t)
				s.die(t, w, 3, true)
				g := &gate{dieAt: step}
				m, err := openSettled(t.Context(), w.config(g))
				died := g.died()
				if err == nil {
					g.mu.Lock()
					g.dead = true
					g.mu.Unlock()
					_ = m.Close()
				}
				m = w.open(t, w.config(nil))
				if got := state(t, m); !s.allows(got) {
					t.Errorf("second server dead at step %d: state %s", step, got)
				}
				w.check(t, m, "t")
				_ = m.Close()
				if !died {
					return
				}
			}
		})
	}
}

func TestOpen_takesOverWhatRuns(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	var ids []sandbox.ID
	for range 40 { // more than are attached at the same time
		info, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID)
	}
	before, err := m.Get(t.Context(), "t", ids[0])
	if err != nil {
		t.Fatal(err)
	}
	_ = m.Close()
	m = w.open(t, w.config(nil))
	w.check(t, m, "t")
	after, err := m.Get(t.Context(), "t", ids[0])
	before.LastUsedAt, after.LastUsedAt = before.StartedAt, before.StartedAt
	if d := cmp.Diff(before, after); d != "" || err != nil {
		t.Errorf("after the restart (%v):\n%s", err, d)
	}
	c, release, err := m.Guest(t.Context(), "t", ids[39])
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := c.Hello(t.Context()); err != nil {
		t.Errorf("hello after the restart: %v", err)
	}
}

func TestOpen_notesWhatWasLost(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	plain, err1 := m.Create(t.Context(), "t", sandbox.CreateRequest{})
	persist, err2 := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Persist: true}})
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	_ = m.Close()
	w.end() // the host reboots
	m = w.open(t, w.config(nil))
	for id, want := range map[sandbox.ID]sandbox.State{plain.ID: sandbox.Failed, persist.ID: sandbox.Stopped} {
		if i, err := m.Get(t.Context(), "t", id); err != nil || i.State != want || i.Reason != sandbox.ReasonLost {
			t.Errorf("%s (%s), %v; want %s (%s)", i.State, i.Reason, err, want, sandbox.ReasonLost)
		}
		if i, err := m.Start(t.Context(), "t", id); err != nil || i.State != sandbox.Running {
			t.Errorf("start after the loss: %s, %v", i.State, err)
		}
	}
	w.check(t, m, "t")
}

func TestOpen_leavesAloneWhatItCannotRead(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	info, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_ = m.Close()
	key := "sandbox/" + string(info.ID)
	_, rev, err := w.registry.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.registry.Update(t.Context(), key, []byte(`{"v":99}`), rev); err != nil {
		t.Fatal(err)
	}
	m = w.open(t, w.config(nil))
	_, err = m.Get(t.Context(), "t", info.ID)
	wantClass(t, "get", err, errs.NotFound)
	if len(w.ids()) != 1 {
		t.Error("the machine of a record from the future was destroyed")
	}
}

func TestOpen_refusesASecondManager(t *testing.T) {
	w := newWorld(t)
	w.open(t, w.config(nil))
	_, err := openSettled(t.Context(), w.config(nil))
	wantClass(t, "second manager on one directory", err, errs.Exists)
}

// The registry may be older than the host, when a backup of it was restored.
func TestOpen_removesWhatNobodyOwns(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	mine := create(t, m, "t", sandbox.Spec{}).ID
	stray := create(t, m, "t", sandbox.Spec{}).ID
	_ = m.Close()
	key := "sandbox/" + string(stray)
	_, rev, err := w.registry.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.registry.Delete(t.Context(), key, rev); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(w.dir, "sandboxes", "lost+found")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	m = w.open(t, w.config(nil))
	if got := w.ids(); !slices.Equal(got, []sandbox.ID{mine}) {
		t.Errorf("machines %v, want %v", got, mine)
	}
	if err := os.Remove(foreign); err != nil {
		t.Errorf("a directory that is no sandbox's: %v", err)
	}
	w.check(t, m, "t")
}

func TestOpen_leavesAloneWhatItHasNoProviderFor(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	info, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_ = m.Close()
	c := w.config(nil)
	c.Providers = nil
	m = w.open(t, c)
	if _, _, err = m.Guest(t.Context(), "t", info.ID); err == nil {
		t.Error("a sandbox of a provider that is not there answers")
	}
	_ = m.Close()
	if len(w.ids()) != 1 {
		t.Fatal("the machine was destroyed by a server that knows nothing of its provider")
	}
	m = w.open(t, w.config(nil))
	_, release, err := m.Guest(t.Context(), "t", info.ID)
	if err != nil {
		t.Fatalf("a server that has the provider again: %v", err)
	}
	release()
}

func TestInUse_asLongAsThereIsAMachine(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	info, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if info.RootfsHash == "" || !m.InUse(info.RootfsHash) || m.InUse("another") {
		t.Errorf("running from %q: InUse = %v", info.RootfsHash, m.InUse(info.RootfsHash))
	}
	if _, err = m.Stop(t.Context(), "t", info.ID); err != nil {
		t.Fatal(err)
	}
	if m.InUse(info.RootfsHash) {
		t.Error("in use by a stopped sandbox, which starts from the template by name")
	}
}
