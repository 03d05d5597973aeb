package manager_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
)

// ends notes the last looks at sandboxes.
type ends struct {
	w *world

	mu    sync.Mutex
	names map[sandbox.ID]string
	seen  []string
}

func (e *ends) call(t *testing.T, m *manager.Manager, name string, id sandbox.ID) {
	t.Helper()
	e.mu.Lock()
	e.names[id] = name
	e.mu.Unlock()
	_, release, err := m.Guest(t.Context(), "t", id)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// Ending is as life.Deps has it.
func (e *ends) Ending(ctx context.Context, _ string, id sandbox.ID, files sandbox.Files, written bool) {
	e.w.mu.Lock()
	way := e.w.attached[string(files.Host)] && files.Volume.Path != ""
	e.w.mu.Unlock()
	if files.Guest != nil {
		_, err := files.Guest.Hello(ctx)
		way = err == nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, fmt.Sprintf("%s: at hand %t, written %t", e.names[id], way, written))
}

func (e *ends) want(t *testing.T, want ...string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.Sort(e.seen)
	slices.Sort(want)
	if d := cmp.Diff(want, e.seen); d != "" {
		t.Error(d)
	}
	e.seen = nil
}

// Whatever ends a sandbox, its files are looked at while there is a way to them:
// on the host, or in its machine.
func TestEnding(t *testing.T) {
	for _, inside := range []bool{false, true} {
		t.Run(fmt.Sprintf("inside %t", inside), func(t *testing.T) {
			timeless(t, func(t *testing.T, w *world) { everyEnd(t, w, inside) })
		})
	}
}

func everyEnd(t *testing.T, w *world, inside bool) {
	w.inside = inside
	e := &ends{w: w, names: map[sandbox.ID]string{}}
	c := w.config(nil)
	c.Ending = e.Ending
	m := w.open(t, c)
	long := sandbox.Spec{IdleTimeout: 4 * time.Hour}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	one := func(name string, s sandbox.Spec) sandbox.ID {
		t.Helper()
		id := create(t, m, "t", s).ID
		e.call(t, m, name, id)
		return id
	}

	must(m.Destroy(t.Context(), "t", one("destroyed", long)))
	e.want(t, "destroyed: at hand true, written true")

	must(m.Discard(t.Context(), "t", one("discarded", long)))
	e.want(t)

	never := create(t, m, "t", long).ID
	e.names[never] = "never called"
	must(m.Destroy(t.Context(), "t", never))
	e.want(t, "never called: at hand true, written false")

	stopped := one("stopped", long)
	_, err := m.Stop(t.Context(), "t", stopped)
	must(err)
	e.want(t, "stopped: at hand true, written true")
	must(m.Destroy(t.Context(), "t", stopped))
	e.want(t) // it was looked at

	one("expired", sandbox.Spec{TTL: time.Minute})
	one("expired, and kept", sandbox.Spec{TTL: time.Minute, Persist: true})
	pass(2 * time.Minute)
	e.want(t, "expired: at hand true, written true", "expired, and kept: at hand true, written true")

	remove, stop := forRun(t, m, runA), forRun(t, m, runB)
	e.call(t, m, "removed after its run", remove)
	e.call(t, m, "stopped after its run", stop)
	leave(t, m, runA, sandbox.ThenRemove)
	leave(t, m, runB, sandbox.ThenStop)
	pass(11 * time.Minute)
	e.want(t, "removed after its run: at hand true, written true", "stopped after its run: at hand true, written true")

	dead := one("dead", long)
	w.machine(dead).end("killed")
	synctest.Wait()
	paused := one("paused", long)
	_, err = m.Pause(t.Context(), "t", paused)
	must(err)
	must(m.Destroy(t.Context(), "t", paused))
	if inside { // a machine that does not run cannot be asked
		e.want(t)
	} else {
		e.want(t, "dead: at hand true, written true", "paused: at hand true, written true")
	}

	again := one("asked again", long)
	failed := false
	w.setDestroy(func(sandbox.ID) error {
		if failed {
			return nil
		}
		failed = true
		return errs.New(errs.Unavailable, "not now")
	})
	if err := m.Destroy(t.Context(), "t", again); !errs.Is(err, errs.Unavailable) {
		t.Error(err)
	}
	pass(time.Hour)
	e.want(t, "asked again: at hand true, written true")
	w.check(t, m, "t")
}

// What a server before this one had let in is looked at too.
func TestEnding_ofASandboxThatWasFound(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	id := create(t, m, "t", sandbox.Spec{}).ID
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	e := &ends{w: w, names: map[sandbox.ID]string{id: "found"}}
	c := w.config(nil)
	c.Ending = e.Ending
	m = w.open(t, c)
	if err := m.Destroy(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	e.want(t, "found: at hand true, written true")
}
