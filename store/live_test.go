package store_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/store/storetest"
	"github.com/skete-dev/skete/thread"
)

// ear collects what a visitor hears.
type ear struct {
	mu    sync.Mutex
	heard []string
	lost  int
}

func (e *ear) visit(data []byte, lost int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, string(data))
	e.lost += lost
}

func (e *ear) got() ([]string, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heard), e.lost
}

func listen(t *testing.T, s *store.Store, tenant string, root thread.ID) (*ear, func()) {
	t.Helper()
	e := &ear{}
	cancel, err := s.Live().Subscribe(tenant, root, e.visit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cancel)
	return e, cancel
}

func (e *ear) want(t *testing.T, what string, want ...string) {
	t.Helper()
	storetest.Eventually(t, what, func() error {
		if got, _ := e.got(); len(got) < len(want) {
			return fmt.Errorf("heard %q", got)
		}
		return nil
	})
	got, lost := e.got()
	if d := cmp.Diff(want, got); d != "" || lost != 0 {
		t.Errorf("%s (%d lost):\n%s", what, lost, d)
	}
}

func TestLive_reachesThoseAboveOfTheTenant(t *testing.T) {
	for name, servers := range fromTo(t) {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			from, to := servers[0], servers[1]
			root, other := thread.NewID(), thread.NewID()
			child := root.Sub("c")
			top, _ := listen(t, to, "a", root)
			below, _ := listen(t, to, "a", child)
			beside, _ := listen(t, to, "a", root.Sub("c-2"))
			foreign, _ := listen(t, to, "b", root)
			local, _ := listen(t, from, "a", root)
			buffer := []byte("one")
			from.Live().Publish("a", root, buffer)
			copy(buffer, "XXX") // it may be used again
			from.Live().Publish("a", child, []byte("two"))
			from.Live().Publish("a", child.Sub("d"), []byte("three"))
			from.Live().Publish("a", other, []byte("other"))
			from.Live().Publish("a", root, []byte("four"))
			top.want(t, "the root", "one", "two", "three", "four")
			local.want(t, "the root, beside who publishes", "one", "two", "three", "four")
			below.want(t, "the sub-agent", "two", "three")
			beside.want(t, "its sibling")
			foreign.want(t, "another tenant")
		})
	}
}

// Those who come in the middle first hear what is kept, and they alone.
func TestLive_recap(t *testing.T) {
	for name, servers := range fromTo(t) {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			from, to := servers[0], servers[1]
			root, calls := thread.NewID(), atomic.Int32{}
			keep := func(tenant string, id thread.ID, text string) func() {
				return from.Live().Keep(tenant, id, func(join func([][]byte)) { calls.Add(1); join([][]byte{[]byte(text), []byte("more")}) })
			}
			asked := make(chan struct{})
			empty := from.Live().Keep("a", root, func(join func([][]byte)) { join(nil); close(asked) })
			first, _ := listen(t, to, "a", root)
			<-asked
			empty()
			done := keep("a", root.Sub("c"), "kept")
			keep("a", root.Sub("c").Sub("d"), "deep")
			keep("a", thread.NewID(), "other")
			keep("b", root, "foreign")
			from.Live().Publish("a", root, []byte("one"))
			first.want(t, "who was there", "one")
			below, _ := listen(t, to, "a", root.Sub("c").Sub("d"))
			below.want(t, "who comes to the lowest", "deep", "more")
			beside, _ := listen(t, to, "a", root.Sub("c-2"))
			top, _ := listen(t, to, "a", root)
			storetest.Eventually(t, "both are heard", func() error {
				if got, _ := top.got(); len(got) < 4 {
					return fmt.Errorf("heard %q", got)
				}
				return nil
			})
			from.Live().Publish("a", root, []byte("two"))
			first.want(t, "who was there", "one", "two")
			got, _ := top.got()
			slices.Sort(got[:4])
			if d := cmp.Diff([]string{"deep", "kept", "more", "more"}, got[:4]); d != "" {
				t.Errorf("who comes to the top hears\n%s", d)
			}
			done()
			late, _ := listen(t, to, "a", root.Sub("c"))
			late.want(t, "who comes when one has ended", "deep", "more")
			beside.want(t, "its sibling")
			if n := calls.Load(); n != 4 {
				t.Errorf("it was told %d times, not 4", n)
			}
		})
	}
}

// What is published while one begins to listen is heard once: in what is kept, or behind it.
func TestLive_recapIsExact(t *testing.T) {
	s := storetest.Open(t, store.Config{})
	id := thread.NewID()
	var mu sync.Mutex
	var all []string
	defer s.Live().Keep("a", id, func(join func([][]byte)) {
		mu.Lock()
		defer mu.Unlock()
		join([][]byte{[]byte(strings.Join(all, " "))})
	})()
	const n, visitors = 300, 20
	ears := make([]*ear, visitors)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			mu.Lock()
			all = append(all, fmt.Sprint(i))
			s.Live().Publish("a", id, fmt.Append(nil, i))
			mu.Unlock()
		}
	})
	for i := range ears {
		ears[i], _ = listen(t, s, "a", id)
	}
	wg.Wait()
	want := strings.Join(all, " ")
	for i, e := range ears {
		storetest.Eventually(t, "all of it", func() error {
			got, lost := e.got()
			if text := strings.TrimSpace(strings.Join(got, " ")); text != want || lost > 0 {
				return fmt.Errorf("visitor %d heard %q, %d lost", i, text, lost)
			}
			return nil
		})
	}
}

// fromTo are those who publish and those who listen.
func fromTo(t *testing.T) map[string][2]*store.Store {
	t.Helper()
	url, _ := storetest.External(t)
	one := storetest.Open(t, store.Config{})
	return map[string][2]*store.Store{
		"in one process":   {one, one},
		"over two servers": {storetest.Open(t, store.Config{URL: url}), storetest.Open(t, store.Config{URL: url})},
	}
}

func TestLive_aSlowVisitorLosesTheOldestAndHoldsNobodyUp(t *testing.T) {
	s := storetest.Open(t, store.Config{})
	id := thread.NewID()
	gate, entered := make(chan struct{}), make(chan struct{}, 1)
	slow := &ear{}
	cancel, err := s.Live().Subscribe("a", id, func(data []byte, lost int) {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-gate
		slow.visit(data, lost)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	s.Live().Publish("a", id, []byte("0"))
	<-entered
	const n = 2000
	patience.Within(t, 10*time.Second, "publishes past a visitor that does not move", func() {
		for i := 1; i <= n; i++ {
			s.Live().Publish("a", id, fmt.Append(nil, i))
		}
	})
	close(gate)
	storetest.Eventually(t, "the newest comes", func() error {
		if got, _ := slow.got(); len(got) == 0 || got[len(got)-1] != fmt.Sprint(n) {
			return fmt.Errorf("heard %d", len(got))
		}
		return nil
	})
	got, lost := slow.got()
	if len(got)+lost != n+1 || lost == 0 || len(got) > 600 {
		t.Errorf("heard %d, lost %d of %d", len(got), lost, n+1)
	}
	for i, text := range got[1:] {
		if want := fmt.Sprint(lost + 1 + i); text != want {
			t.Fatalf("after the loss of %d came %s, want %s", lost, text, want)
		}
	}
	// Large news is bounded by bytes, too large news is dropped.
	s.Live().Publish("a", id, make([]byte, 300<<10))
}

func TestLive_cancelEndsVisits(t *testing.T) {
	s := storetest.Open(t, store.Config{})
	id := thread.NewID()
	first, cancel := listen(t, s, "a", id)
	second, _ := listen(t, s, "a", id)
	s.Live().Publish("a", id, []byte("one"))
	first.want(t, "before", "one")
	cancel()
	cancel()
	s.Live().Publish("a", id, []byte("two"))
	second.want(t, "the other", "one", "two")
	first.want(t, "after", "one")
	var in func()
	done := make(chan struct{})
	in, err := s.Live().Subscribe("a", id, func([]byte, int) { in(); close(done) }) // from within a visit
	if err != nil {
		t.Fatal(err)
	}
	s.Live().Publish("a", id, []byte("three"))
	<-done
	_, err = s.Live().Subscribe("a", "nonsense", func([]byte, int) {})
	storetest.WantClass(t, "a bad id", err, errs.Invalid)
	_, err = s.Live().Subscribe("", id, func([]byte, int) {})
	storetest.WantClass(t, "no tenant", err, errs.Invalid)
	_ = s.Close()
	_, err = s.Live().Subscribe("a", id, func([]byte, int) {})
	storetest.WantClass(t, "a closed store", err, errs.Unavailable)
	s.Live().Publish("a", id, []byte("four"))
}

func BenchmarkLive(b *testing.B) {
	s, err := store.Open(b.Context(), store.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	id := thread.NewID()
	cancel, err := s.Live().Subscribe("a", id, func([]byte, int) {})
	if err != nil {
		b.Fatal(err)
	}
	defer cancel()
	data := make([]byte, 200)
	for b.Loop() {
		s.Live().Publish("a", id, data)
	}
}
