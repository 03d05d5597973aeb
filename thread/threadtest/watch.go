package threadtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// follow watches until want events came, or the error.
func follow(ctx context.Context, log thread.Log, id thread.ID, from uint64, want int, each func()) ([]thread.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var es []thread.Event
	for e, err := range log.Watch(ctx, id, from) {
		if err != nil {
			return es, err
		}
		es = append(es, e)
		if each != nil {
			each()
		}
		if len(es) == want {
			return es, nil
		}
	}
	return es, errors.New("the watch ended by itself")
}

func watch(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	type result struct {
		es  []thread.Event
		err error
	}
	done := map[uint64]chan result{}
	start := func(from uint64) {
		done[from] = make(chan result, 1)
		go func() {
			es, err := follow(t.Context(), log, id, from, int(61-max(from, 1)), nil)
			done[from] <- result{es, err}
		}()
	}
	start(0) // of a thread that is not there yet
	seq := opened(t, log, id, "a")
	start(1)
	for seq < 60 {
		var err error
		if seq, err = log.Append(t.Context(), id, seq, events(fmt.Sprint(seq))...); err != nil {
			t.Fatal(err)
		}
		if seq == 20 || seq == 40 {
			start(seq)     // of what is there
			start(seq + 5) // of what comes
		}
	}
	all := load(t, log, id, 1)
	for from, ch := range done {
		r := <-ch
		if r.err != nil {
			t.Errorf("watch from %d: %v after %d events", from, r.err, len(r.es))
			continue
		}
		if d := cmp.Diff(all[max(from, 1)-1:], r.es); d != "" {
			t.Errorf("watch from %d differs:\n%s", from, d)
		}
	}
}

func watchers(t *testing.T, s Store) {
	const n, last = 60, 200
	log, id := s.Log(t, tenant), thread.NewID()
	seq := opened(t, log, id)
	var wg sync.WaitGroup
	gate := make(chan struct{}) // the slow ones stand at it from their first event on
	for i := range n {
		wg.Go(func() {
			var each func()
			if i%10 == 0 {
				each = func() { <-gate }
			}
			es, err := follow(t.Context(), log, id, 1, last, each)
			if err != nil {
				t.Errorf("watcher %d: %v after %d events", i, err, len(es))
				return
			}
			for at, e := range es {
				if e.Seq != uint64(at)+1 {
					t.Errorf("watcher %d: event %d has number %d", i, at+1, e.Seq)
					return
				}
			}
		})
	}
	for seq < last {
		var err error
		if seq, err = log.Append(t.Context(), id, seq, events("x")...); err != nil {
			t.Error(err)
			break
		}
	}
	close(gate)
	wg.Wait()
}

func watchEnds(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	opened(t, log, id)
	for _, id := range []thread.ID{id, thread.NewID()} {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := follow(ctx, log, id, 2, 1, nil)
			got <- err
		}()
		cancel()
		select {
		case err := <-got:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the watch ended with %v", err)
			}
		case <-time.After(patience):
			t.Fatal("the watch does not end")
		}
	}
}

func watchDeleted(t *testing.T, s Store) {
	log, id := s.Log(t, tenant), thread.NewID()
	child := id.Sub("c")
	opened(t, log, id)
	opened(t, log, child)
	got := make(chan error, 2)
	var seen sync.WaitGroup
	seen.Add(2)
	for _, id := range []thread.ID{id, child} {
		go func() {
			_, err := follow(t.Context(), log, id, 1, 2, seen.Done)
			got <- err
		}()
	}
	seen.Wait()
	if err := log.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case err := <-got:
			wantClass(t, "the watch of a deleted thread", err, errs.NotFound)
		case <-time.After(patience):
			t.Fatal("the watch of a deleted thread does not end")
		}
	}
	_, err := follow(t.Context(), log, id, 1, 1, nil)
	wantClass(t, "a new watch of a deleted thread", err, errs.NotFound)
}
