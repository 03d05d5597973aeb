package manager_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
)

func findName(t *testing.T, m *manager.Manager, tenant, name string, want sandbox.ID) {
	t.Helper()
	if id, err := m.Find(t.Context(), tenant, name); id != want || err != nil {
		t.Errorf("%s of %s: %s, %v; want %s", name, tenant, id, err, want)
	}
}

// A name is of one sandbox of a tenant: also when many ask for it at once, and
// until that one is destroyed.
func TestNames_areUnique(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	var made atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			switch _, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Name: "web"}}); {
			case err == nil:
				made.Add(1)
			case !errs.Is(err, errs.Exists):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 1 {
		t.Fatalf("%d have the name", made.Load())
	}
	page, err := m.List(t.Context(), "t", sandbox.Filter{})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	first := page.Items[0].ID
	findName(t, m, "t", "web", first)
	findName(t, m, "t", string(first), first)
	other := create(t, m, "other", sandbox.Spec{Name: "web"}) // another tenant's
	findName(t, m, "other", "web", other.ID)
	_, err = m.Find(t.Context(), "third", "web")
	wantClass(t, "a name that another tenant has", err, errs.NotFound)

	if _, err := m.Stop(t.Context(), "t", first); err != nil { // it still has it
		t.Fatal(err)
	}
	_, err = m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Name: "web"}})
	wantClass(t, "the name of a stopped one", err, errs.Exists)
	if err := m.Destroy(t.Context(), "t", first); err != nil {
		t.Fatal(err)
	}
	_, err = m.Find(t.Context(), "t", "web")
	wantClass(t, "the name of a destroyed one", err, errs.NotFound)
	second := create(t, m, "t", sandbox.Spec{Name: "web"})
	findName(t, m, "t", "web", second.ID)
	for _, bad := range []string{"sbx_abc", "events", " a", "a/b"} {
		_, err = m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Name: bad}})
		wantClass(t, "the name "+bad, err, errs.Invalid)
	}
}

// A create that fails keeps no name, nor does a server that dies keep one from
// the sandbox that a next one makes.
func TestNames_afterFailures(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	w.setBoot(func(context.Context, sandbox.ID) error { return errs.New(errs.Internal, "no luck") })
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Name: "web"}})
	wantClass(t, "a boot that fails", err, errs.Internal)
	w.setBoot(nil)
	kept := create(t, m, "t", sandbox.Spec{Name: "web"})
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for die := 1; ; die++ { // at every step of a create with a name
		g := &gate{}
		m, err := openSettled(t.Context(), w.config(g))
		if err != nil {
			t.Fatal(err)
		}
		g.mu.Lock()
		g.dieAt = g.steps + die
		g.mu.Unlock()
		_, err = m.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Name: "job"}})
		_ = m.Close()
		next := w.open(t, w.config(nil))
		findName(t, next, "t", "web", kept.ID)
		id, ferr := next.Find(t.Context(), "t", "job")
		if ferr != nil { // nothing is left of it: the name can be had
			id = create(t, next, "t", sandbox.Spec{Name: "job"}).ID
		}
		findName(t, next, "t", "job", id)
		if derr := next.Destroy(t.Context(), "t", id); derr != nil {
			t.Fatal(derr)
		}
		if cerr := next.Close(); cerr != nil {
			t.Fatal(cerr)
		}
		if err == nil && !g.died() {
			break
		}
		if die > 100 {
			t.Fatal("it never comes to its end")
		}
	}
	left := 0
	must := w.registry.List(t.Context(), "name/", func(string, []byte, uint64) error { left++; return nil })
	if must != nil || left != 1 {
		t.Errorf("%d claims are left, %v", left, must)
	}
}

func TestRename(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	a, b := create(t, m, "t", sandbox.Spec{Name: "a"}), create(t, m, "t", sandbox.Spec{})
	rename := func(id sandbox.ID, name string) error {
		_, err := m.Update(t.Context(), "t", id, sandbox.UpdateRequest{Name: &name})
		return err
	}
	wantClass(t, "a name that is taken", rename(b.ID, "a"), errs.Exists)
	wantClass(t, "no name", rename(b.ID, "x/y"), errs.Invalid)
	for _, step := range []error{rename(a.ID, "a"), rename(a.ID, "c"), rename(b.ID, "a"), rename(a.ID, "")} {
		if step != nil {
			t.Error(step)
		}
	}
	findName(t, m, "t", "a", b.ID)
	_, err := m.Find(t.Context(), "t", "c")
	wantClass(t, "a name that was given up", err, errs.NotFound)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	next := w.open(t, w.config(nil))
	findName(t, next, "t", "a", b.ID)
	if i, err := next.Get(t.Context(), "t", a.ID); err != nil || i.Spec.Name != "" {
		t.Errorf("%q, %v", i.Spec.Name, err)
	}
}

// The sandboxes of a fork have the name that was given, with a number.
func TestFork_namesAreNumbered(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	of := create(t, m, "t", sandbox.Spec{Name: "of"})
	fork := func(count int, name string) ([]string, error) {
		made, err := m.Fork(t.Context(), "t", of.ID, sandbox.ForkRequest{Count: count, Changes: sandbox.Changes{Name: name}})
		var names []string
		for _, i := range made {
			names = append(names, i.Spec.Name)
		}
		return names, err
	}
	for _, c := range []struct {
		count int
		name  string
		want  string
	}{{3, "f", "f-1 f-2 f-3"}, {1, "f", "f"}, {0, "g", "g"}, {2, "", " "}} {
		if names, err := fork(c.count, c.name); err != nil || strings.Join(names, " ") != c.want {
			t.Errorf("%d of %q: %q, %v", c.count, c.name, names, err)
		}
	}
	_, err := fork(2, "f")
	wantClass(t, "a fork with names that are taken", err, errs.Exists)
	w.check(t, m, "t")
}

// Sandboxes of a time when names were not unique work by their IDs, and the
// name says so.
func TestNames_ofOldData(t *testing.T) {
	w := newWorld(t)
	m := w.open(t, w.config(nil))
	a, b := create(t, m, "t", sandbox.Spec{Name: "a"}), create(t, m, "t", sandbox.Spec{Name: "b"})
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for _, claim := range []string{"name/t/a", "name/t/b"} {
		_, rev, err := w.registry.Get(t.Context(), claim)
		if err == nil {
			err = w.registry.Delete(t.Context(), claim, rev)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	key := "sandbox/" + string(b.ID)
	value, rev, err := w.registry.Get(t.Context(), key)
	if err == nil {
		_, err = w.registry.Update(t.Context(), key, []byte(strings.Replace(string(value), `"name":"b"`, `"name":"a"`, 1)), rev)
	}
	if err != nil {
		t.Fatal(err)
	}
	next := w.open(t, w.config(nil))
	_, err = next.Find(t.Context(), "t", "a")
	wantClass(t, "a name of two", err, errs.Conflict)
	if text := errs.Public(err); !strings.Contains(text, string(a.ID)) || !strings.Contains(text, string(b.ID)) {
		t.Errorf("it does not say which: %s", text)
	}
	for _, id := range []sandbox.ID{a.ID, b.ID} {
		if _, err := next.Stop(t.Context(), "t", id); err != nil {
			t.Error(err)
		}
	}
	name := "b"
	if _, err := next.Update(t.Context(), "t", b.ID, sandbox.UpdateRequest{Name: &name}); err != nil {
		t.Error(err)
	}
	findName(t, next, "t", "a", a.ID)
	findName(t, next, "t", "b", b.ID)
	_, err = next.Create(t.Context(), "t", sandbox.CreateRequest{Spec: sandbox.Spec{Name: "a"}})
	wantClass(t, "a name of old data", err, errs.Exists)
}
