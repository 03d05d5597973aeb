package manager_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
)

// may lists the states that may follow each state, as spec.go documents.
var may = map[sandbox.State][]sandbox.State{
	sandbox.Creating: {sandbox.Running, sandbox.Failed, sandbox.Destroyed},
	sandbox.Running:  {sandbox.Paused, sandbox.Stopped, sandbox.Failed, sandbox.Destroyed},
	sandbox.Paused:   {sandbox.Running, sandbox.Stopped, sandbox.Failed, sandbox.Destroyed},
	sandbox.Stopped:  {sandbox.Creating, sandbox.Destroyed},
	sandbox.Failed:   {sandbox.Creating, sandbox.Destroyed},
}

// TestModel does random things to a manager, one after the other, and compares
// it with a model of what must be.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		h := &history{rt: rt, t: t, w: w, want: map[sandbox.ID]sandbox.State{}}
		h.open()
		defer func() { _ = h.m.Close() }()
		rt.Repeat(map[string]func(*rapid.T){
			"create":      func(*rapid.T) { h.create() },
			"create fail": func(*rapid.T) { h.createFails() },
			"start": func(*rapid.T) {
				h.change("start", h.m.Start, sandbox.Running, sandbox.Stopped, sandbox.Failed, sandbox.Running)
			},
			"stop": func(*rapid.T) {
				h.change("stop", h.m.Stop, sandbox.Stopped, sandbox.Running, sandbox.Paused, sandbox.Stopped)
			},
			"pause":   func(*rapid.T) { h.change("pause", h.m.Pause, sandbox.Paused, sandbox.Running, sandbox.Paused) },
			"resume":  func(*rapid.T) { h.change("resume", h.m.Resume, sandbox.Running, sandbox.Paused, sandbox.Running) },
			"destroy": func(*rapid.T) { h.destroy() },
			"die":     func(*rapid.T) { h.die() },
			"restart": func(*rapid.T) { _ = h.m.Close(); h.open() },
			"reboot":  func(*rapid.T) { h.reboot() },
			"":        func(*rapid.T) { h.check() },
		})
	})
}

type changeFunc func(context.Context, string, sandbox.ID) (sandbox.Info, error)

// history is one run of the model.
type history struct {
	rt   *rapid.T
	t    *testing.T
	w    *world
	m    *manager.Manager
	want map[sandbox.ID]sandbox.State // gone ones are Destroyed
	sub  *sandbox.Subscription
	seen map[sandbox.ID]sandbox.State // by events, since the last open
}

func (h *history) open() {
	m, err := openSettled(h.t.Context(), h.w.config(nil))
	if err != nil {
		h.rt.Fatal(err)
	}
	h.m, h.sub, h.seen = m, subscribe(h.t, m, 0), map[sandbox.ID]sandbox.State{}
}

// pick draws a sandbox; "" if there is none.
func (h *history) pick() sandbox.ID {
	ids := []sandbox.ID{}
	for id := range h.want {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		h.rt.Skip("no sandbox")
	}
	// By age, not by the random id, so that a failing run can be repeated.
	page, err := h.m.List(h.t.Context(), "t", sandbox.Filter{PageSize: 1000, States: []sandbox.State{
		sandbox.Running, sandbox.Paused, sandbox.Stopped, sandbox.Failed, sandbox.Destroyed,
	}})
	if err != nil || len(page.Items) != len(ids) {
		h.rt.Fatalf("%d listed, %d known, %v", len(page.Items), len(ids), err)
	}
	return page.Items[rapid.IntRange(0, len(ids)-1).Draw(h.rt, "sandbox")].ID
}

func (h *history) create() {
	i, err := h.m.Create(h.t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Persist: rapid.Bool().Draw(h.rt, "persist")}})
	if err != nil {
		h.rt.Fatal(err)
	}
	h.want[i.ID] = sandbox.Running
}

func (h *history) createFails() {
	h.w.setBoot(func(context.Context, sandbox.ID) error { return errs.New(errs.Unavailable, "no luck") })
	defer h.w.setBoot(nil)
	_, err := h.m.Create(h.t.Context(), "t", sandbox.CreateRequest{})
	if !errs.Is(err, errs.Unavailable) {
		h.rt.Fatal(err)
	}
}

// change does f, which leads to a state from some states and is refused in all others.
func (h *history) change(what string, f changeFunc, to sandbox.State, from ...sandbox.State) {
	id := h.pick()
	i, err := f(h.t.Context(), "t", id)
	was := h.want[id]
	switch {
	case slices.Contains(from, was):
		if err != nil || i.State != to {
			h.rt.Fatalf("%s of a %s one: %s, %v", what, was, i.State, err)
		}
		h.want[id] = to
	case was == sandbox.Destroyed:
		if !errs.Is(err, errs.NotFound) {
			h.rt.Fatalf("%s of a %s one: %v", what, was, err)
		}
	case what == "stop" && was == sandbox.Failed: // it has no machine: nothing to do
		if err != nil || i.State != sandbox.Failed {
			h.rt.Fatalf("%s of a %s one: %s, %v", what, was, i.State, err)
		}
	default:
		if !errs.Is(err, errs.Conflict) || errs.Hint(err) == "" {
			h.rt.Fatalf("%s of a %s one: %v, hint %q", what, was, err, errs.Hint(err))
		}
	}
}

func (h *history) destroy() {
	id := h.pick()
	if err := h.m.Destroy(h.t.Context(), "t", id); err != nil {
		h.rt.Fatal(err)
	}
	h.want[id] = sandbox.Destroyed
}

// die ends a machine behind the manager's back.
func (h *history) die() {
	id := h.pick()
	f := h.w.machine(id)
	if f == nil {
		return
	}
	i, err := h.m.Get(h.t.Context(), "t", id)
	if err != nil {
		h.rt.Fatal(err)
	}
	f.end(sandbox.ReasonKilled)
	h.want[id] = sandbox.Failed
	if i.Spec.Persist {
		h.want[id] = sandbox.Stopped
	}
	eventually(h.t, "the death is noted", func() bool {
		i, _ := h.m.Get(h.t.Context(), "t", id)
		return i.State == h.want[id] && i.Reason == sandbox.ReasonKilled
	})
}

// reboot ends all machines while the server is down.
func (h *history) reboot() {
	lost := map[sandbox.ID]sandbox.State{}
	for id, state := range h.want {
		if state != sandbox.Running && state != sandbox.Paused {
			continue
		}
		i, err := h.m.Get(h.t.Context(), "t", id)
		if err != nil {
			h.rt.Fatal(err)
		}
		lost[id] = sandbox.Failed
		if i.Spec.Persist {
			lost[id] = sandbox.Stopped
		}
	}
	_ = h.m.Close()
	h.w.end()
	maps.Copy(h.want, lost)
	h.open()
}

// check compares everything with everything.
func (h *history) check() {
	alive, kept := map[string]bool{}, map[string]bool{}
	for id, want := range h.want {
		i, err := h.m.Get(h.t.Context(), "t", id)
		if err != nil || i.State != want {
			h.rt.Fatalf("%s is %s, %v; want %s", id, i.State, err, want)
		}
		if want == sandbox.Running || want == sandbox.Paused {
			alive[string(id)] = true
		}
		if want != sandbox.Destroyed {
			kept[string(id)] = true
		}
	}
	h.w.mu.Lock()
	machines, volumes := map[string]bool{}, map[string]bool{}
	for id := range h.w.machines {
		machines[string(id)] = true
	}
	for id := range h.w.volumes {
		volumes[id] = true
	}
	h.w.mu.Unlock()
	dirs, err := filepath.Glob(filepath.Join(h.w.dir, "sandboxes", "sbx_*"))
	if fmt.Sprint(machines) != fmt.Sprint(alive) || fmt.Sprint(volumes) != fmt.Sprint(kept) || len(dirs) != len(alive) || err != nil {
		h.rt.Fatalf("machines %v, volumes %v, %d directories, %v; want %v and %v", machines, volumes, len(dirs), err, alive, kept)
	}
	h.checkEvents()
}

// checkEvents reads what has happened, refuses transitions that may not be,
// and wants to end where the model is.
func (h *history) checkEvents() {
	eventually(h.t, "the events lead to the states", func() bool {
		h.readEvents()
		for id, state := range h.seen {
			if want, known := h.want[id]; known && want != state || !known && state != sandbox.Destroyed {
				return false // not known: a create that failed
			}
		}
		return true
	})
}

func (h *history) readEvents() {
	now, cancel := context.WithCancel(h.t.Context())
	cancel() // what is there is read, what is not is not waited for
	for {
		ev, err := h.sub.Next(now)
		if err != nil {
			return
		}
		was, known := h.seen[ev.Info.ID]
		if known && !slices.Contains(may[was], ev.Info.State) {
			h.rt.Fatalf("%s went from %s to %s", ev.Info.ID, was, ev.Info.State)
		}
		h.seen[ev.Info.ID] = ev.Info.State
	}
}
