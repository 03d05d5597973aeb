package supervisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

func idle(context.Context, *llm.Request) (*llm.Response, error) {
	return nil, errors.New("nothing is to be driven")
}

// elsewhere is the n-th run of a tenant on another node, which this one lists
// and never drives.
func elsewhere(tenant string, n int, state thread.RunState) runs.Run {
	id := thread.RunID(fmt.Sprintf("run_%020d", n))
	return runs.Run{
		ID: id, Thread: thread.ID(fmt.Sprintf("thr_%020d", n/2)), Tenant: tenant, Node: "elsewhere", Agent: "default", State: state,
		Created: time.Unix(int64(n/3), 0).UTC(), // some at the same time
	}
}

// write stores a record as the server of another node would.
func write(t testing.TB, m *kvtest.Memory, run runs.Run) {
	t.Helper()
	key := "run/" + run.Tenant + "/" + string(run.ID)
	value, err := json.Marshal(run)
	must(t, err)
	_, revision, err := m.Get(t.Context(), key)
	if errs.Is(err, errs.NotFound) {
		_, err = m.Create(t.Context(), key, value)
	} else if err == nil {
		_, err = m.Update(t.Context(), key, value, revision)
	}
	must(t, err)
}

func remove(t testing.TB, m *kvtest.Memory, run runs.Run) {
	t.Helper()
	key := "run/" + run.Tenant + "/" + string(run.ID)
	_, revision, err := m.Get(t.Context(), key)
	must(t, err)
	must(t, m.Delete(t.Context(), key, revision))
}

// walk lists all pages.
func walk(ctx context.Context, k *supervisor.Supervisor, tenant string, f runs.Filter) ([]thread.RunID, error) {
	ids := []thread.RunID{}
	for {
		page, err := k.List(ctx, tenant, f)
		if err != nil {
			return nil, err
		}
		if len(page.Runs) > f.Size() {
			return nil, fmt.Errorf("a page has %d runs of %d", len(page.Runs), f.Size())
		}
		for _, r := range page.Runs {
			ids = append(ids, r.ID)
		}
		if f.PageToken = page.Next; f.PageToken == "" {
			return ids, nil
		}
	}
}

// A list reads the records that it shows, however many there are.
func TestList_readsTheRecordsOfItsPage(t *testing.T) {
	h := newHouse(t)
	var gets, others atomic.Int64
	m := kvtest.NewMemory()
	m.Fail = func(op, _ string) error {
		switch op {
		case "get":
			gets.Add(1)
		case "list", "watch":
			others.Add(1)
		}
		return nil
	}
	h.records = m
	const total = 500
	for n := range total {
		write(t, m, elsewhere(tenant, n, thread.RunSucceeded))
		if n%100 == 0 {
			write(t, m, elsewhere("stranger", n, thread.RunSucceeded))
		}
	}
	k := h.open(idle)
	for name, tt := range map[string]struct {
		f     runs.Filter
		found int
		reads int64
	}{
		"a page":                  {runs.Filter{PageSize: 10}, total, total + total/10},
		"a thread's":              {runs.Filter{Thread: elsewhere(tenant, 9, "").Thread}, 2, 2},
		"a state that none is in": {runs.Filter{States: []thread.RunState{thread.RunFailed}}, 0, 0},
	} {
		gets.Store(0)
		others.Store(0)
		ids, err := walk(t.Context(), k, tenant, tt.f)
		must(t, err)
		if len(ids) != tt.found || gets.Load() > tt.reads || others.Load() != 0 {
			t.Errorf("%s: %d runs of %d with %d reads of at most %d, %d lists", name, len(ids), tt.found, gets.Load(), tt.reads, others.Load())
		}
	}
	gets.Store(0)
	page, err := k.List(t.Context(), tenant, runs.Filter{PageSize: 10})
	must(t, err)
	if len(page.Runs) != 10 || gets.Load() > 11 {
		t.Errorf("the first page has %d runs, by %d reads", len(page.Runs), gets.Load())
	}
	_, err = k.List(t.Context(), tenant, runs.Filter{PageToken: "none of ours"})
	if !errs.Is(err, errs.Invalid) {
		t.Errorf("with a token that is none: %v", err)
	}
}

// What other nodes write, change and remove is listed, in order and once,
// whatever the size of the pages; also after the watch of the records has failed.
func TestList_followsTheRecords(t *testing.T) {
	states := []thread.RunState{thread.RunRunning, thread.RunSucceeded, thread.RunFailed}
	rapid.Check(t, func(r *rapid.T) {
		h := newHouse(t)
		var fail atomic.Bool
		m := kvtest.NewMemory()
		m.Fail = func(op, _ string) error {
			if op == "tell" && fail.CompareAndSwap(true, false) {
				return errs.New(errs.Unavailable, "the store is away")
			}
			return nil
		}
		h.records = m
		known := map[int]runs.Run{}
		change := func() {
			n := rapid.IntRange(0, 40).Draw(r, "run")
			run, there := known[n]
			if there && rapid.IntRange(0, 2).Draw(r, "remove") == 0 {
				delete(known, n)
				remove(t, m, run)
				return
			}
			known[n] = elsewhere(tenant, n, rapid.SampledFrom(states).Draw(r, "state"))
			write(t, m, known[n])
		}
		for range rapid.IntRange(0, 30).Draw(r, "before") {
			change()
		}
		k := h.open(idle)
		for range rapid.IntRange(1, 4).Draw(r, "rounds") {
			for range rapid.IntRange(0, 10).Draw(r, "changes") {
				change()
			}
			f := runs.Filter{PageSize: rapid.IntRange(1, 50).Draw(r, "page")}
			if rapid.Bool().Draw(r, "filtered") {
				f.States = []thread.RunState{rapid.SampledFrom(states).Draw(r, "wanted")}
			}
			want := expected(known, f)
			patience.Try(t, 20*time.Second, "the list", func() error {
				got, err := walk(t.Context(), k, tenant, f)
				if diff := cmp.Diff(want, got); err == nil && diff != "" {
					err = errors.New("-want +got\n" + diff)
				}
				return err
			})
			if rapid.IntRange(0, 39).Draw(r, "outage") == 0 {
				fail.Store(true)
			}
		}
		must(t, k.Close())
	})
}

func expected(known map[int]runs.Run, f runs.Filter) []thread.RunID {
	var list []runs.Run
	for _, run := range known {
		if f.Wants(run) {
			list = append(list, run)
		}
	}
	slices.SortFunc(list, func(a, b runs.Run) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(string(b.ID), string(a.ID))
	})
	ids := []thread.RunID{}
	for _, run := range list {
		ids = append(ids, run.ID)
	}
	return ids
}

// A server that cannot read its records says so at once.
func TestOpen_withoutRecords(t *testing.T) {
	h := newHouse(t)
	m := kvtest.NewMemory()
	m.Fail = func(op, _ string) error {
		if op == "watch" {
			return errs.New(errs.Unavailable, "the store is away")
		}
		return nil
	}
	h.records = m
	if _, err := h.try("n", idle); !errs.Is(err, errs.Unavailable) {
		t.Errorf("Open = %v", err)
	}
}
