package manager_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
)

// slowHost boots one machine in work, and n side by side in n times that.
func slowHost(work time.Duration) func(context.Context, sandbox.ID) error {
	var mu sync.Mutex
	booting := 0
	count := func(by int) int {
		mu.Lock()
		defer mu.Unlock()
		booting += by
		return booting
	}
	return func(ctx context.Context, _ sandbox.ID) error {
		count(1)
		defer count(-1)
		for left := work; left > 0; {
			select {
			case <-time.After(time.Second):
				left -= time.Second / time.Duration(count(0))
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
}

// Many sandboxes at once all come up on a host on which all of them together
// take far longer than one may: waiting for a turn is not booting. All take
// no longer than they have to, and what each waits for is shown.
func TestTurn_manyAtOnceOnASlowHost(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		const n, work = 20, 40 * time.Second
		w.setBoot(slowHost(work))
		m := w.open(t, w.config(nil))
		news := subscribe(t, m, 0)
		began := time.Now()
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				if _, err := m.Create(t.Context(), "t", sandbox.CreateRequest{}); err != nil {
					t.Error(err)
				}
			})
		}
		pass(5 * time.Second)
		for told := false; !told; { // an event tells of it
			e, err := news.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			told = strings.Contains(e.Info.Waiting, "its turn to boot")
		}
		if got := waiting(t, m); len(got) < n-4 || !contains(got, "its turn to boot, which is next") || !contains(got, "its turn to boot, 17 before it") {
			t.Errorf("waiting: %q", got)
		}
		all.Wait()
		if took := time.Since(began); took > n*work*12/10 {
			t.Errorf("all took %s; the host could in %s", took, n*work)
		}
		if got := waiting(t, m); len(got) > 0 {
			t.Errorf("waiting in the end: %q", got)
		}
		w.check(t, m, "t")
	})
}

func waiting(t *testing.T, m *manager.Manager) (all []string) {
	t.Helper()
	page, err := m.List(t.Context(), "t", sandbox.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range page.Items {
		if i.Waiting != "" {
			all = append(all, i.Waiting)
		}
	}
	return all
}

func contains(all []string, want string) bool {
	for _, s := range all {
		if strings.Contains(s, want) {
			return true
		}
	}
	return false
}

// A create that is given up, or whose sandbox is destroyed, while it waits for
// its turn never boots and leaves nothing; a start that is given up goes on,
// as a start does.
func TestTurn_givenUp(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		m := w.open(t, w.config(nil))
		old := create(t, m, "t", sandbox.Spec{Persist: true})
		if _, err := m.Stop(t.Context(), "t", old.ID); err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		w.setBoot(func(ctx context.Context, _ sandbox.ID) error {
			select {
			case <-hold:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		results := map[string]chan error{"first": make(chan error, 2), "given up": make(chan error, 1), "destroyed": make(chan error, 1), "start": make(chan error, 1)}
		begin := func(name string, ctx context.Context, tenant string) {
			go func() {
				_, err := m.Create(ctx, tenant, sandbox.CreateRequest{})
				results[name] <- err
			}()
			synctest.Wait()
		}
		begin("first", t.Context(), "t")
		begin("first", t.Context(), "t") // one came up before: two may boot
		begin("given up", ctx, "t")
		begin("destroyed", t.Context(), "other")
		go func() {
			_, err := m.Start(ctx, "t", old.ID)
			results["start"] <- err
		}()
		synctest.Wait()
		if got := waiting(t, m); len(got) != 2 {
			t.Fatalf("waiting: %q", got)
		}
		cancel()
		if err := <-results["given up"]; !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
		if err := <-results["start"]; !errors.Is(err, context.Canceled) {
			t.Errorf("start: %v", err)
		}
		page, err := m.List(t.Context(), "other", sandbox.Filter{})
		if err != nil || len(page.Items) != 1 {
			t.Fatalf("%v, %+v", err, page)
		}
		if err := m.Destroy(t.Context(), "other", page.Items[0].ID); err != nil {
			t.Error(err)
		}
		if err := <-results["destroyed"]; !errs.Is(err, errs.Conflict) {
			t.Errorf("destroyed: %v", err)
		}
		w.mu.Lock()
		creates := w.creates
		w.mu.Unlock()
		if creates != 3 { // the old one's, and the first two's
			t.Errorf("%d machines were booted", creates)
		}
		close(hold)
		for range 2 {
			if err := <-results["first"]; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		wantState(t, m, old.ID, sandbox.Running, "")
		w.check(t, m, "t", "other")
	})
}
