package supervisor

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

const (
	runPrefix = "run/"
	keyPrefix = "start/"
)

// entry is a run in memory.
type entry struct {
	// Who it is never changes and needs no lock; run is replaced as a whole.
	tenant string
	id     thread.RunID
	thread thread.ID

	mu       sync.Mutex
	run      runs.Run
	revision uint64
	left     thread.Budget // at leftAt, of a run that is driven
	paid     agent.Paid
	leftAt   time.Time

	// The rest is guarded by the Supervisor's lock.
	waits   bool // for people or sub-agents: nothing to do until the thread is woken
	retryAt time.Time
	retry   time.Duration
	// failures are drives in a row that could not go on.
	failures int
}

func (e *entry) snapshot() runs.Run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.run
}

// progress shows how far a run is. It is not stored: the log has it.
func (e *entry) progress(s *runs.State, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	state, ended := e.run.State, e.run.Ended
	runs.Project(&e.run, s, now)
	e.run.State, e.run.Ended = state, ended // these only change together with the record
	e.left, e.leftAt = runs.Left(s, now), now
}

// budgetLeft is what remains of the budget of a run that is driven. It may be called
// from any goroutine, where the run's state may not be read.
func (e *entry) budgetLeft(now time.Time) thread.Budget {
	e.mu.Lock()
	defer e.mu.Unlock()
	left := e.left
	if left.Wall > 0 {
		left.Wall = max(left.Wall-now.Sub(e.leftAt), time.Second)
	}
	return left
}

func recordKey(tenant string, id thread.RunID) string { return runPrefix + tenant + "/" + string(id) }

func parseRecord(value []byte, revision uint64) (*entry, error) {
	e := &entry{revision: revision}
	if err := json.Unmarshal(value, &e.run); err != nil {
		return nil, errs.Wrap(errs.Corrupt, err, "a run's record cannot be read")
	}
	e.tenant, e.id, e.thread = e.run.Tenant, e.run.ID, e.run.Thread
	return e, nil
}

// create stores the record of a new run. Exists: it is there.
func (k *Supervisor) create(ctx context.Context, run runs.Run) (*entry, error) {
	value, err := json.Marshal(run)
	if err != nil {
		return nil, err
	}
	revision, err := k.c.Records.Create(ctx, recordKey(run.Tenant, run.ID), value)
	if err != nil {
		return nil, err
	}
	k.index.wrote(revision)
	k.publish(run, revision)
	e := &entry{tenant: run.Tenant, id: run.ID, thread: run.Thread, run: run, revision: revision}
	k.remember(e)
	return e, nil
}

// save changes a record. A record that another server changed is read again.
func (k *Supervisor) save(ctx context.Context, e *entry, change func(*runs.Run)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for range externalTries {
		run := e.run
		change(&run)
		value, err := json.Marshal(run)
		if err != nil {
			return err
		}
		if old, _ := json.Marshal(e.run); string(old) == string(value) {
			return nil
		}
		revision, err := k.c.Records.Update(ctx, recordKey(run.Tenant, run.ID), value, e.revision)
		if err == nil {
			e.run, e.revision = run, revision
			k.index.wrote(revision)
			k.publish(run, revision)
			return nil
		}
		if !errs.Is(err, errs.Conflict) {
			return err
		}
		now, revision, err := k.c.Records.Get(ctx, recordKey(run.Tenant, run.ID))
		if err != nil {
			return err
		}
		fresh, err := parseRecord(now, revision)
		if err != nil {
			return err
		}
		e.run, e.revision = fresh.run, revision
	}
	return errs.New(errs.Unavailable, "the record of %s keeps changing", e.id)
}

// ours refuses a run that another node owns: the machine and the files that it
// works with are there. Conflict. A record of an earlier version names no node;
// it becomes that of the first one that claims the run.
func (k *Supervisor) ours(run runs.Run) error {
	if run.Node == "" || run.Node == k.c.Node {
		return nil
	}
	return errs.OnNode("run "+string(run.ID), run.Node)
}

// find returns a run of a tenant. NotFound: it has none of this id. Conflict:
// another node owns it.
func (k *Supervisor) find(ctx context.Context, tenant string, id thread.RunID) (*entry, error) {
	k.mu.Lock()
	e := k.runs[runKey{tenant, id}]
	k.mu.Unlock()
	if e != nil {
		return e, k.ours(e.snapshot())
	}
	if _, err := thread.ParseRunID(string(id)); err != nil {
		return nil, err
	}
	value, revision, err := k.c.Records.Get(ctx, recordKey(tenant, id))
	if errs.Is(err, errs.NotFound) {
		return nil, errs.New(errs.NotFound, "no run %.40s", id).WithHint("`skete runs` lists them")
	}
	if err != nil {
		return nil, err
	}
	if e, err = parseRecord(value, revision); err != nil {
		return nil, err
	}
	return e, k.ours(e.run)
}

// forget drops a run that is over from memory; its record stays.
func (k *Supervisor) forget(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetLocked(e)
}

func (k *Supervisor) forgetLocked(e *entry) {
	delete(k.runs, runKey{e.tenant, e.id})
	t := threadKey{e.tenant, e.thread}
	if k.byID[t] != e {
		return
	}
	delete(k.byID, t)
	for _, other := range k.runs { // that this one hid while it was being started
		if other.tenant == e.tenant && other.thread == e.thread {
			k.byID[t] = other
		}
	}
}

// Get returns a run as it is now.
func (k *Supervisor) Get(ctx context.Context, tenant string, id thread.RunID) (runs.Run, error) {
	e, err := k.find(ctx, tenant, id)
	if err != nil {
		return runs.Run{}, err
	}
	return k.view(e), nil
}

// view adds what is known of sub-agents: who waits beneath.
func (k *Supervisor) view(e *entry) runs.Run {
	if e == nil {
		return runs.Run{}
	}
	run := e.snapshot()
	beneath := string(run.Thread) + "/"
	k.mu.Lock()
	var below []*entry
	for t, other := range k.byID {
		if t.tenant == run.Tenant && strings.HasPrefix(string(t.id), beneath) {
			below = append(below, other)
		}
	}
	waits := e.waits
	k.mu.Unlock()
	run.Background = len(below)
	if run.State.Final() {
		return run
	}
	for _, other := range below {
		run.Waiting += other.snapshot().Waiting
	}
	if waits && run.Waiting > 0 {
		run.State = thread.RunInterrupted
	}
	return run
}
