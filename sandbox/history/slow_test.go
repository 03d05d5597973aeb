package history

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/replica"
)

// street is many sandboxes, each with a house.
type street map[sandbox.ID]*house

func (st street) Get(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error) {
	if st[id] == nil {
		return sandbox.Info{}, errs.New(errs.NotFound, "no such sandbox")
	}
	return st[id].Get(ctx, tenant, id)
}

func (st street) Files(ctx context.Context, tenant string, id sandbox.ID, f func(context.Context, sandbox.Files) error) error {
	return st[id].Files(ctx, tenant, id, f)
}

// newStreet returns sandboxes with a file each, and their service. Looks of
// those that slow names wait at the stage of that name until the test ends, or
// free is called.
func newStreet(t *testing.T, slow func(sandbox.ID) bool, ids ...sandbox.ID) (st street, s *Service, reached chan sandbox.ID, free func()) {
	t.Helper()
	st = street{}
	for _, id := range ids {
		h := &house{disk: t.TempDir(), tenant: tenant}
		must(t, os.Mkdir(filepath.Join(h.disk, "files"), 0o755))
		h.write(t, "a", "at first")
		st[id] = h
	}
	s = New(Config{Dir: filepath.Join(t.TempDir(), "history"), Sandboxes: st, Copy: replica.Copy})
	reached = make(chan sandbox.ID, 1000)
	gate := make(chan struct{})
	free = sync.OnceFunc(func() { close(gate) })
	s.stage = func(id sandbox.ID, name string) {
		if name == "scanned" && slow(id) {
			reached <- id
			<-gate
		}
	}
	t.Cleanup(func() {
		free()
		must(t, s.Close())
	})
	return st, s, reached, free
}

// within fails the test where f waits for what is stuck.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	patience.Within(t, 30*time.Second, what+", which waits for another sandbox", f)
}

// A sandbox that is slow, at whatever is done to its history, keeps no other
// waiting: neither one of its tenant nor of another.
func TestOneSlowSandbox_noOtherWaits(t *testing.T) {
	const slow, sister, stranger = "sbx_slow", "sbx_sister", "sbx_stranger"
	for _, step := range []string{"opened", "looked at", "looked at often", "stopped", "touched", "begun", "moved to"} {
		t.Run(step, func(t *testing.T) {
			var late bool
			var mu sync.Mutex
			isSlow := func(id sandbox.ID) bool {
				mu.Lock()
				defer mu.Unlock()
				return id == slow && late
			}
			st, s, reached, free := newStreet(t, isSlow, slow, sister, stranger)
			st[slow].from, st[stranger].tenant = "snap_a", "stranger"
			open := func(tenant string, id sandbox.ID) workspace.History {
				h, _, err := s.Open(t.Context(), tenant, id)
				must(t, err)
				return h
			}
			if step != "opened" && step != "begun" {
				_, _, err := open(tenant, slow).Snapshot(t.Context(), workspace.Label{})
				must(t, err)
				st[slow].write(t, "a", "changed")
			}
			mu.Lock()
			late = true
			mu.Unlock()
			var stuck sync.WaitGroup
			defer stuck.Wait()
			defer free()
			look := func() { _, _, _ = open(tenant, slow).Snapshot(context.WithoutCancel(t.Context()), workspace.Label{}) }
			switch step {
			case "opened", "looked at":
				stuck.Go(look)
			case "looked at often":
				for range 3 * looksMax {
					stuck.Go(look)
				}
			case "stopped":
				stuck.Go(func() { s.Detaching(st[slow].host()) })
			case "touched":
				s.Touched(tenant, slow)
			case "begun":
				stuck.Go(func() { s.Begin(context.WithoutCancel(t.Context()), tenant, slow) })
			case "moved to":
				stuck.Go(look)
				<-reached
				stuck.Go(func() { _ = s.copy(t.Context(), tenant, slow, "sbx_none") })
				stuck.Go(func() { s.Detaching(st[slow].host()) })
				reached <- slow
			}
			<-reached
			for _, other := range []struct {
				tenant string
				id     sandbox.ID
			}{{tenant, sister}, {"stranger", stranger}} {
				within(t, string(other.id), func() {
					s.Begin(t.Context(), other.tenant, other.id)
					h := open(other.tenant, other.id)
					first, _, err := h.Snapshot(t.Context(), workspace.Label{})
					must(t, err)
					st[other.id].write(t, "a", "changed")
					_, _, err = h.Snapshot(t.Context(), workspace.Label{})
					must(t, err)
					plan, err := h.PlanRestore(t.Context(), first.N, "")
					must(t, err)
					_, _, err = h.Apply(t.Context(), plan.ID, workspace.Label{})
					must(t, err)
					st[other.id].write(t, "a", "touched")
					s.Step(t.Context(), other.tenant, other.id, "a key", "nothing").End()
					must(t, st.Files(t.Context(), other.tenant, other.id, func(ctx context.Context, f sandbox.Files) error {
						s.Ending(ctx, other.tenant, other.id, f, true)
						return nil
					}))
					s.Detaching(st[other.id].host())
					s.Detaching("host_unknown")
				})
				revs, err := open(other.tenant, other.id).Revisions(t.Context())
				if err != nil || len(revs) != 4 {
					t.Errorf("%d revisions, %v", len(revs), err)
				}
			}
		})
	}
}

// One who waits for a slow history goes when its context ends.
func TestSlowSandbox_whoWaitsCanGo(t *testing.T) {
	const slow = "sbx_slow"
	st, s, reached, free := newStreet(t, func(sandbox.ID) bool { return true }, slow)
	h, _, err := s.Open(t.Context(), tenant, slow)
	must(t, err)
	var stuck sync.WaitGroup
	defer stuck.Wait()
	defer free()
	stuck.Go(func() { _, _, _ = h.Snapshot(context.WithoutCancel(t.Context()), workspace.Label{}) })
	<-reached // it opens
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	within(t, "a call that was given up", func() {
		if _, err := h.Revisions(ctx); err == nil {
			t.Error("it was answered")
		}
		s.Begin(ctx, tenant, slow)
	})
	_ = st
}

// A tenant has a few looks at a time, however many of its sandboxes change;
// another tenant's begin at once.
func TestLooks_areATenantsOwn(t *testing.T) {
	var ids []sandbox.ID
	for i := range 3 * looksMax {
		ids = append(ids, sandbox.ID(fmt.Sprintf("sbx_%02d", i)))
	}
	st, s, reached, free := newStreet(t, func(id sandbox.ID) bool { return id != "sbx_other" }, append(ids, "sbx_other")...)
	st["sbx_other"].tenant = "other"
	var all sync.WaitGroup
	defer all.Wait()
	defer free()
	for _, id := range ids {
		all.Go(func() {
			h, _, err := s.Open(t.Context(), tenant, id)
			if err == nil {
				_, _, err = h.Snapshot(context.WithoutCancel(t.Context()), workspace.Label{})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range looksMax {
		<-reached
	}
	h, _, err := s.Open(t.Context(), "other", "sbx_other")
	must(t, err)
	within(t, "another tenant", func() {
		_, _, err := h.Snapshot(t.Context(), workspace.Label{})
		must(t, err)
	})
	if n := len(reached); n != 0 {
		t.Errorf("%d looks more than %d at the same time", n, looksMax)
	}
	free()
	all.Wait()
	for range ids[looksMax:] {
		<-reached // none was forgotten
	}
	mine, others := s.Took(tenant), s.Took("other")
	if mine <= others || others <= 0 || s.Took("none") != 0 {
		t.Errorf("looked for %v at the files of a tenant that looked long, for %v at the other's", mine, others)
	}
}

// What is known of a sandbox's history costs nothing once it is not used,
// whether the sandbox is gone or not.
func TestDesks_areRemoved(t *testing.T) {
	ids := []sandbox.ID{"sbx_used", "sbx_begun", "sbx_stopped", "sbx_copied", "sbx_gone"}
	st, s, _, _ := newStreet(t, func(sandbox.ID) bool { return false }, ids...)
	s.openFor = time.Millisecond
	for _, id := range ids {
		s.Begin(t.Context(), tenant, id)
		if id == "sbx_begun" {
			continue
		}
		h, release, err := s.Open(t.Context(), tenant, id)
		must(t, err)
		_, _, err = h.Snapshot(t.Context(), workspace.Label{})
		must(t, err)
		release()
	}
	s.Detaching(st["sbx_stopped"].host())
	_ = s.copy(t.Context(), tenant, "sbx_copied", "sbx_none")
	s.Detaching(st["sbx_gone"].host())
	delete(st, "sbx_gone")
	if n, err := s.Erase(tenant); n != 5 || err != nil {
		t.Errorf("erased %d, %v", n, err)
	}
	for end := time.Now().Add(patience.Of(20 * time.Second)); ; <-time.After(5 * time.Millisecond) {
		s.mu.Lock()
		left, hosts := len(s.handles), len(s.hosts)
		s.mu.Unlock()
		s.looks.mu.Lock()
		left += len(s.looks.all)
		s.looks.mu.Unlock()
		if left+hosts == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d are left, %d of them open", left, hosts)
		}
	}
}
