// Package kvtest has what every kv.Store must do, as a suite, and one that lives in
// memory for tests.
//
//	kvtest.Suite(t, func(t *testing.T) kv.Store { return opened })
//	registry := kvtest.NewMemory()
package kvtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
)

// Suite runs the suite; open returns an empty registry.
func Suite(t *testing.T, open func(t *testing.T) kv.Store) {
	for name, test := range map[string]func(*testing.T, kv.Store){
		"create, read, update, delete": testLife,
		"old revisions are refused":    testRevisions,
		"keys of any bytes":            testKeys,
		"list by prefix":               testList,
		"watch by prefix":              testWatch,
		"no update is lost":            testCounter,
		"one of many creates wins":     testCreateRace,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func testLife(t *testing.T, r kv.Store) {
	ctx := t.Context()
	wantClass(t, "get of nothing", getErr(ctx, r, "a/b"), errs.NotFound)
	rev := must(r.Create(ctx, "a/b", []byte("1")))(t)
	_, err := r.Create(ctx, "a/b", []byte("x"))
	wantClass(t, "second create", err, errs.Exists)
	wantValue(t, r, "a/b", "1", rev)
	rev2 := must(r.Update(ctx, "a/b", []byte("2"), rev))(t)
	if rev2 <= rev {
		t.Errorf("revision went from %d to %d", rev, rev2)
	}
	wantValue(t, r, "a/b", "2", rev2)
	if err := r.Delete(ctx, "a/b", rev2); err != nil {
		t.Fatal(err)
	}
	wantClass(t, "get after delete", getErr(ctx, r, "a/b"), errs.NotFound)
	if err := r.Delete(ctx, "a/b", rev2); err != nil {
		t.Errorf("second delete: %v", err)
	}
	_, err = r.Update(ctx, "a/b", []byte("3"), rev2)
	wantClass(t, "update after delete", err, errs.Conflict)
	rev3 := must(r.Create(ctx, "a/b", []byte("4")))(t)
	if rev3 <= rev2 {
		t.Errorf("revision after a new create: %d, before it was %d", rev3, rev2)
	}
	wantValue(t, r, "a/b", "4", rev3)
}

func testRevisions(t *testing.T, r kv.Store) {
	ctx := t.Context()
	rev1 := must(r.Create(ctx, "k", []byte("1")))(t)
	rev2 := must(r.Update(ctx, "k", []byte("2"), rev1))(t)
	_, err := r.Update(ctx, "k", []byte("zombie"), rev1)
	wantClass(t, "update with an old revision", err, errs.Conflict)
	_, err = r.Update(ctx, "k", []byte("prophet"), rev2+1000)
	wantClass(t, "update with a future revision", err, errs.Conflict)
	wantClass(t, "delete with an old revision", r.Delete(ctx, "k", rev1), errs.Conflict)
	_, err = r.Update(ctx, "never", []byte("x"), rev2)
	wantClass(t, "update of nothing", err, errs.Conflict)
	wantValue(t, r, "k", "2", rev2)
}

func testKeys(t *testing.T, r kv.Store) {
	ctx := t.Context()
	good := []string{"a", "a.b", "a=b", "*", ">", "a b/c\nd/\x00\xff", "..", "ü/日本", "$KV/x", strings.Repeat("k", 200)}
	for i, key := range good {
		must(r.Create(ctx, key, []byte(fmt.Sprint(i))))(t)
	}
	got := map[string]string{}
	err := r.List(ctx, "", func(key string, value []byte, _ uint64) error { got[key] = string(value); return nil })
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for i, key := range good {
		want[key] = fmt.Sprint(i)
	}
	if !maps.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	for _, key := range []string{"", "/", "a/", "/a", "a//b", strings.Repeat("k", 5000)} {
		_, err := r.Create(ctx, key, nil)
		wantClass(t, fmt.Sprintf("create %.20q", key), err, errs.Invalid)
	}
}

func testList(t *testing.T, r kv.Store) {
	ctx := t.Context()
	for _, key := range []string{"a/1", "a/2", "a/b/3", "ab/4", "c"} {
		must(r.Create(ctx, key, []byte(key)))(t)
	}
	_, rev, _ := r.Get(ctx, "a/2")
	if err := r.Delete(ctx, "a/2", rev); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string][]string{"": {"a/1", "a/b/3", "ab/4", "c"}, "a/": {"a/1", "a/b/3"}, "none/": nil} {
		var got []string
		err := r.List(ctx, prefix, func(key string, value []byte, _ uint64) error {
			if string(value) != key {
				t.Errorf("value of %q is %q", key, value)
			}
			got = append(got, key)
			return nil
		})
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("list %q = %q, %v; want %q", prefix, got, err, want)
		}
	}
	stop := errors.New("stop")
	if err := r.List(ctx, "", func(string, []byte, uint64) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("list with a failing visit: %v", err)
	}
	wantClass(t, "list of a prefix without slash", r.List(ctx, "a", nil), errs.Invalid)
}

func testWatch(t *testing.T, r kv.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rev := must(r.Create(ctx, "a/1", []byte("1")))(t)
	gone := must(r.Create(ctx, "a/2", []byte("2")))(t)
	must(r.Create(ctx, "ab/3", []byte("3")))(t)
	if err := r.Delete(ctx, "a/2", gone); err != nil {
		t.Fatal(err)
	}
	told := make(chan kv.Change)
	ended := make(chan error, 1)
	go func() {
		ended <- r.Watch(ctx, "a/", func(c kv.Change) error {
			select {
			case told <- c:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	next := func() kv.Change {
		t.Helper()
		select {
		case c := <-told:
			return c
		case err := <-ended:
			t.Fatal("the watch ended:", err)
		case <-time.After(time.Minute):
			t.Fatal("the watch says nothing")
		}
		return kv.Change{}
	}
	for { // what is deleted may be told as such
		c := next()
		if c.Synced {
			break
		}
		if c.Key == "a/2" && c.Deleted {
			continue
		}
		if c.Key != "a/1" || string(c.Value) != "1" || c.Revision != rev || c.Deleted {
			t.Errorf("at the start: %+v", c)
		}
	}
	must(r.Create(ctx, "b/1", nil))(t)
	rev = must(r.Update(ctx, "a/1", []byte("one"), rev))(t)
	if c := next(); c.Key != "a/1" || string(c.Value) != "one" || c.Revision != rev || c.Deleted || c.Synced {
		t.Errorf("after an update: %+v", c)
	}
	if err := r.Delete(ctx, "a/1", rev); err != nil {
		t.Fatal(err)
	}
	if c := next(); c.Key != "a/1" || !c.Deleted || c.Revision <= rev {
		t.Errorf("after a delete: %+v", c)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("with its context the watch ends with %v", err)
	}
	for range 20 { // what ends it must not be a matter of luck
		ctx, cancel := context.WithCancel(t.Context())
		err := r.Watch(ctx, "b/", func(c kv.Change) error {
			if c.Synced {
				cancel()
				time.Sleep(5 * time.Millisecond) //nolint:forbidigo // all that ends with it has ended then: nothing tells when
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("with its context the watch ends with %v", err)
		}
	}
	stop := errors.New("stop")
	if err := r.Watch(t.Context(), "ab/", func(kv.Change) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("watch with a failing visit: %v", err)
	}
	wantClass(t, "watch of a prefix without slash", r.Watch(t.Context(), "a", nil), errs.Invalid)
}

// testCounter has many writers add to one number with compare-and-set. If it
// ends at the sum of all that were acknowledged, and revisions rise with the
// number, then every write saw the one before it.
func testCounter(t *testing.T, r kv.Store) {
	ctx := t.Context()
	const writers, each = 8, 25
	must(r.Create(ctx, "n", []byte("0")))(t)
	var mu sync.Mutex
	revisions := map[int]uint64{}
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				value, rev, err := r.Get(ctx, "n")
				if err != nil {
					t.Error(err)
					return
				}
				var n int
				_, _ = fmt.Sscan(string(value), &n)
				next, err := r.Update(ctx, "n", []byte(fmt.Sprint(n+1)), rev)
				if errs.Is(err, errs.Conflict) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if old, twice := revisions[n+1]; twice {
					t.Errorf("the number %d was written twice, at %d and %d", n+1, old, next)
				}
				revisions[n+1] = next
				mu.Unlock()
				done++
			}
		})
	}
	wg.Wait()
	wantValue(t, r, "n", fmt.Sprint(writers*each), revisions[writers*each])
	for n := 2; n <= writers*each; n++ {
		if revisions[n] <= revisions[n-1] {
			t.Errorf("number %d has revision %d, number %d has %d", n-1, revisions[n-1], n, revisions[n])
		}
	}
}

func testCreateRace(t *testing.T, r kv.Store) {
	ctx := t.Context()
	for round := range 10 {
		key := fmt.Sprintf("race/%d", round)
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for range 8 {
			wg.Go(func() {
				_, err := r.Create(ctx, key, nil)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if !errs.Is(err, errs.Exists) {
					t.Error(err)
				}
			})
		}
		if wg.Wait(); won != 1 {
			t.Errorf("%d creates of one key won", won)
		}
	}
}

func getErr(ctx context.Context, r kv.Store, key string) error {
	_, _, err := r.Get(ctx, key)
	return err
}

func must(rev uint64, err error) func(t *testing.T) uint64 {
	return func(t *testing.T) uint64 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
}

func wantClass(t *testing.T, what string, err error, want errs.Class) {
	t.Helper()
	if errs.Of(err) != want {
		t.Errorf("%s: %v (class %q), want class %q", what, err, errs.Of(err), want)
	}
}

func wantValue(t *testing.T, r kv.Store, key, value string, rev uint64) {
	t.Helper()
	got, at, err := r.Get(t.Context(), key)
	if err != nil || string(got) != value || at != rev {
		t.Errorf("%q = %q at %d, %v; want %q at %d", key, got, at, err, value, rev)
	}
}
