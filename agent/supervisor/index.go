package supervisor

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/thread"
)

// indexWait bounds how long a list waits for the index to know what this server
// wrote itself.
const indexWait = 5 * time.Second

// index knows of every run that the store has a record of, of all nodes, what a
// list must know to choose and to order: so a list reads the records of its page
// and no other. It is fed by a watch of the records and by nothing else.
//
// Safe for concurrent use.
type index struct {
	mu      sync.Mutex
	now     listing       // what a list sees
	next    *listing      // under construction: the watch has begun and not told all yet
	written uint64        // revision of the newest record that this server wrote
	more    chan struct{} // closed with the next change
}

// listing is the state of an index.
type listing struct {
	tenants map[string][]*listed // oldest first
	keys    map[string]*listed
	read    uint64 // newest revision
}

// listed is a run as the index knows it. It never changes.
type listed struct {
	tenant  string
	id      thread.RunID
	thread  thread.ID
	node    string
	state   thread.RunState
	created time.Time
	ended   time.Time
	// revision is that of the record.
	revision uint64
}

func newListing() listing {
	return listing{tenants: map[string][]*listed{}, keys: map[string]*listed{}}
}

func newIndex() *index { return &index{now: newListing(), more: make(chan struct{})} }

// oldest orders runs by the time of their start, and those of one moment by ID.
func oldest(a, b *listed) int {
	if c := a.created.Compare(b.created); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

// begin starts anew with what a watch is about to tell. Lists see what was known
// until it has told all.
func (x *index) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	next := newListing()
	next.read = x.written // all that is written by now is there, or something newer
	x.next = &next
}

// apply takes what a watch tells. Corrupt: a record cannot be read; it is left out.
func (x *index) apply(c kv.Change) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.Synced {
		x.now, x.next = *x.next, nil
		x.tell()
		return nil
	}
	l := &x.now
	if x.next != nil {
		l = x.next
	}
	l.drop(c.Key)
	l.read = max(l.read, c.Revision)
	x.tell()
	if c.Deleted {
		return nil
	}
	var run struct { // the rest of a runs.Run is not needed, and may be long
		ID      thread.RunID    `json:"id"`
		Thread  thread.ID       `json:"thread"`
		Tenant  string          `json:"tenant"`
		Node    string          `json:"node"`
		State   thread.RunState `json:"state"`
		Created time.Time       `json:"created"`
		Ended   time.Time       `json:"ended"`
	}
	if err := json.Unmarshal(c.Value, &run); err != nil {
		return errs.Wrap(errs.Corrupt, err, "a run's record cannot be read")
	}
	l.add(c.Key, &listed{run.Tenant, run.ID, run.Thread, run.Node, run.State, run.Created, run.Ended, c.Revision})
	return nil
}

func (l *listing) add(key string, r *listed) {
	l.keys[key] = r
	list := l.tenants[r.tenant]
	at, _ := slices.BinarySearchFunc(list, r, oldest)
	l.tenants[r.tenant] = slices.Insert(list, at, r)
}

func (l *listing) drop(key string) {
	r := l.keys[key]
	if r == nil {
		return
	}
	delete(l.keys, key)
	list := l.tenants[r.tenant]
	if at, found := slices.BinarySearchFunc(list, r, oldest); found {
		list = slices.Delete(list, at, at+1)
	}
	if l.tenants[r.tenant] = list; len(list) == 0 {
		delete(l.tenants, r.tenant)
	}
}

// tell wakes who waits. Precondition: x.mu is held.
func (x *index) tell() {
	close(x.more)
	x.more = make(chan struct{})
}

// wrote says that this server wrote a record: lists from now on know of it.
func (x *index) wrote(revision uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.written = max(x.written, revision)
}

// settle waits until the index knows what was written. Unavailable: it does not
// hear of it.
func (x *index) settle(ctx context.Context) error {
	late := time.NewTimer(indexWait)
	defer late.Stop()
	x.mu.Lock()
	want := x.written
	for x.now.read < want {
		more := x.more
		x.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return errs.New(errs.Unavailable, "the list of runs is behind").WithHint("try again in a moment")
		}
		x.mu.Lock()
	}
	x.mu.Unlock()
	return nil
}

// before visits a tenant's runs, the newest first, from the one before last on;
// nil = from the newest. The visitor must not call the index.
func (x *index) before(tenant string, last *listed, visit func(*listed) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := x.now.tenants[tenant]
	at := len(list)
	if last != nil {
		at, _ = slices.BinarySearchFunc(list, last, oldest)
	}
	for at--; at >= 0 && visit(list[at]); at-- {
	}
}

// beneath returns the runs of a thread and of those beneath it.
func (x *index) beneath(tenant string, id thread.ID) []*listed {
	var out []*listed
	x.before(tenant, nil, func(r *listed) bool {
		if r.thread == id || strings.HasPrefix(string(r.thread), string(id)+"/") {
			out = append(out, r)
		}
		return true
	})
	return out
}

// of returns the runs of a node, or of none, that are wanted.
func (x *index) of(node string, want func(*listed) bool) []*listed {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []*listed
	for _, r := range x.now.keys {
		if (r.node == "" || r.node == node) && want(r) {
			out = append(out, r)
		}
	}
	return out
}

// follow feeds the index until the Supervisor is closed. What comes first, all
// that there is or an error, is sent to first; with that error it ends.
func (k *Supervisor) follow(first chan<- error) {
	for {
		k.index.begin()
		err := k.c.Records.Watch(k.ctx, runPrefix, func(c kv.Change) error {
			if err := k.index.apply(c); err != nil {
				k.c.Log.Error("a run's record cannot be read", "key", c.Key, "err", err)
			}
			if c.Synced && first != nil {
				first <- nil
				first = nil
			}
			return nil
		})
		if k.ctx.Err() != nil {
			return
		}
		if first != nil {
			first <- err
			return
		}
		k.c.Log.Warn("the records of runs are watched anew", "err", err)
		if sleep.For(k.ctx, retryFirst) != nil {
			return
		}
	}
}

// adopt takes in the runs of this node that are not over and not known, and
// wakes their threads.
func (k *Supervisor) adopt(ctx context.Context) error {
	for _, r := range k.index.of(k.c.Node, func(r *listed) bool { return !r.state.Final() }) {
		if k.knows(r.tenant, r.id) {
			continue
		}
		value, revision, err := k.c.Records.Get(ctx, recordKey(r.tenant, r.id))
		if errs.Is(err, errs.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		e, err := parseRecord(value, revision)
		if err != nil || e.run.State.Final() || k.knows(e.tenant, e.id) {
			continue
		}
		k.remember(e)
		k.wake(threadKey{e.tenant, e.thread})
	}
	return nil
}

// List returns runs, the newest first.
func (k *Supervisor) List(ctx context.Context, tenant string, f runs.Filter) (runs.Page, error) {
	last, err := f.Last()
	if err != nil {
		return runs.Page{}, err
	}
	if err := k.index.settle(ctx); err != nil {
		return runs.Page{}, err
	}
	var cursor *listed
	if last != nil {
		cursor = &listed{id: last.ID, created: last.Created}
	}
	var page []runs.Run
	want := f.Size() + 1 // one more says that there is a next page
	for {
		var some []*listed
		k.index.before(tenant, cursor, func(r *listed) bool {
			cursor = r
			if f.MayWant(r.thread, r.state) {
				some = append(some, r)
			}
			return len(some) < want-len(page)
		})
		if len(some) == 0 {
			return f.Page(page), nil
		}
		for _, r := range some {
			run, err := k.listed(ctx, r)
			if err != nil {
				return runs.Page{}, err
			}
			if run != nil && f.Wants(*run) {
				page = append(page, *run)
			}
		}
		if len(page) >= want {
			return f.Page(page), nil
		}
	}
}

// listed returns a run of the index as it is now, nil when it is gone or cannot
// be read, which was said when the index met it.
func (k *Supervisor) listed(ctx context.Context, r *listed) (*runs.Run, error) {
	k.mu.Lock()
	e := k.runs[runKey{r.tenant, r.id}]
	k.mu.Unlock()
	if e == nil {
		value, revision, err := k.c.Records.Get(ctx, recordKey(r.tenant, r.id))
		if errs.Is(err, errs.NotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if e, err = parseRecord(value, revision); err != nil {
			return nil, nil
		}
	}
	run := k.view(e)
	return &run, nil
}
