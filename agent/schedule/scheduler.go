package schedule

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/thread"
)

const (
	// lookEvery bounds how late a change of the host's clock is noticed: a timer does
	// not follow it.
	lookEvery   = 30 * time.Second
	firingMax   = 8 // runs that are started at once
	retryFirst  = time.Second
	retryMax    = time.Minute
	failuresMax = 5 // in a row; then the time is given up, and what keeps it is written down
)

// Config is what a Scheduler needs.
type Config struct {
	Records kv.Store
	Runs    Runs
	Node    string // the name of this server's data directory, whose schedules it fires
	Max     int    // schedules of a tenant; 0 = SchedulesMax
	Now     func() time.Time
	Log     *slog.Logger
}

// Scheduler keeps the schedules of a server, and fires those of its node.
type Scheduler struct {
	c      Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{} // something is to be looked at; holds one

	adding sync.Mutex // held over the making of a schedule: the limit counts

	mu      sync.Mutex
	tenants map[string]map[string]*entry // by name
	firing  int
}

// Open reads the records, and fires what is due from then on.
func Open(ctx context.Context, c Config) (*Scheduler, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Max = cmp.Or(c.Max, SchedulesMax)
	s := &Scheduler{c: c, wake: make(chan struct{}, 1), tenants: map[string]map[string]*entry{}}
	err := c.Records.List(ctx, recordPrefix, func(key string, value []byte, revision uint64) error {
		e, err := parseRecord(value, revision)
		if err != nil {
			c.Log.Error("a schedule cannot be read; it is not fired", "key", key, "error", err)
			return nil
		}
		s.keep(e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.loop)
	return s, nil
}

// Close stops firing. A start that is under way is repeated by the next Scheduler.
func (s *Scheduler) Close() error {
	s.cancel()
	s.wg.Wait()
	return nil
}

// now is the host's clock alone: that it was changed must show.
func (s *Scheduler) now() time.Time { return s.c.Now().Round(0) }

// keep takes an entry in. Preconditions: s.mu is held, or nothing else runs yet.
func (s *Scheduler) keep(e *entry) {
	of := s.tenants[e.s.Tenant]
	if of == nil {
		of = map[string]*entry{}
		s.tenants[e.s.Tenant] = of
	}
	of[e.s.Name] = e
}

func (s *Scheduler) look() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// find returns the entry of a name or an ID. NotFound.
func (s *Scheduler) find(tenant, name string) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.tenants[tenant]
	if e := of[name]; e != nil {
		return e, nil
	}
	if strings.HasPrefix(name, idPrefix) {
		for _, e := range of {
			if e.s.ID == ID(name) {
				return e, nil
			}
		}
	}
	return nil, notFound(name)
}

// ours is find for what is to be changed. Conflict: another node owns it.
func (s *Scheduler) ours(tenant, name string) (*entry, error) {
	e, err := s.find(tenant, name)
	if err != nil {
		return nil, err
	}
	if known, _ := s.snapshot(e); known.Node != s.c.Node {
		return nil, errs.OnNode("schedule "+known.Name, known.Node)
	}
	return e, nil
}

// Add makes a schedule. With a Key the same call again returns the same one.
// Exists: the name is taken. Limit: the tenant has as many as it may. Conflict: the
// key was used for another schedule. What keeps its runs from starting now is an
// error now.
func (s *Scheduler) Add(ctx context.Context, tenant string, n New) (Schedule, error) {
	e, value, err := s.newEntry(tenant, n)
	if err != nil {
		return Schedule{}, err
	}
	if known, again, err := s.made(e.s); again || err != nil {
		return known, err
	}
	if err := s.c.Runs.MayStart(ctx, tenant, e.s.startOf(e.s.Next, "")); err != nil {
		return Schedule{}, err
	}
	s.adding.Lock()
	defer s.adding.Unlock()
	// Once more: looking for the model takes its time.
	if known, again, err := s.made(e.s); again || err != nil {
		return known, err
	}
	e.revision, err = s.c.Records.Create(ctx, recordKey(tenant, n.Name), value)
	if errs.Is(err, errs.Exists) {
		return Schedule{}, taken(n.Name)
	}
	if err != nil {
		return Schedule{}, err
	}
	made := e.s
	s.mu.Lock()
	s.keep(e)
	s.mu.Unlock()
	s.look()
	return made, nil
}

// newEntry checks what is asked for, and makes an entry of it and its record.
func (s *Scheduler) newEntry(tenant string, n New) (*entry, []byte, error) {
	if err := n.check(); err != nil {
		return nil, nil, err
	}
	created := s.now().UTC().Truncate(time.Second)
	when, err := n.times(created)
	if err != nil {
		return nil, nil, err
	}
	record := Schedule{
		ID: newID(n.Key, "schedule", tenant), Tenant: tenant, Name: n.Name, Node: s.c.Node, When: n.When, Start: n.Start, By: n.Start.By,
		Created: created, Next: when.next(created),
	}
	if n.Key != "" {
		record.Asked = n.fingerprint()
	}
	value, err := json.Marshal(record)
	if err != nil {
		return nil, nil, err
	}
	if len(value) > recordBytesMax {
		return nil, nil, errs.New(errs.Limit, "the schedule has %d bytes, at most %d", len(value), recordBytesMax).
			WithHint("put what is long into a file of the sandbox, or into the agent's instructions")
	}
	return &entry{s: record, times: when}, value, nil
}

func taken(name string) error {
	return errs.New(errs.Exists, "there is a schedule %s already", name).WithHint("`skete schedule rm %s` removes it", name)
}

// made returns the schedule that the same call has made before. An error says why
// this one may not make any.
func (s *Scheduler) made(n Schedule) (known Schedule, again bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.tenants[n.Tenant]
	for _, e := range of {
		switch {
		case n.Asked == "" || e.s.ID != n.ID:
		case e.s.Asked == n.Asked:
			return e.s, true, nil
		default:
			return known, false, errs.New(errs.Conflict, "this key was used for another schedule")
		}
	}
	if of[n.Name] != nil {
		return known, false, taken(n.Name)
	}
	if len(of) >= s.c.Max {
		return known, false, errs.New(errs.Limit, "the tenant has %d schedules, at most %d", len(of), s.c.Max).WithHint("`skete schedule rm NAME` removes one")
	}
	return known, false, nil
}

// Get returns a schedule by its name or ID, with the state of its last run.
func (s *Scheduler) Get(ctx context.Context, tenant, name string) (Schedule, error) {
	e, err := s.find(tenant, name)
	if err != nil {
		return Schedule{}, err
	}
	known, _ := s.snapshot(e)
	return s.told(ctx, known)
}

// told adds the state that the last run is in.
func (s *Scheduler) told(ctx context.Context, known Schedule) (Schedule, error) {
	if known.Last == nil || known.Last.Run == "" {
		return known, nil
	}
	run, err := s.c.Runs.Get(ctx, known.Tenant, known.Last.Run)
	if err != nil && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Conflict) {
		return known, err
	}
	last := *known.Last
	last.State = run.State
	known.Last = &last
	return known, nil
}

// List returns at most so many of a tenant's schedules, by their names, from the one
// behind after on; more reports whether there are others behind them.
func (s *Scheduler) List(ctx context.Context, tenant, after string, most int) (list []Schedule, more bool, err error) {
	s.mu.Lock()
	for name, e := range s.tenants[tenant] {
		if name > after {
			list = append(list, e.s)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b Schedule) int { return cmp.Compare(a.Name, b.Name) })
	if more = len(list) > most; more {
		list = list[:most]
	}
	for i := range list {
		if list[i], err = s.told(ctx, list[i]); err != nil {
			return nil, false, err
		}
	}
	return list, more, nil
}

// Pause lets a schedule rest, or go on. What would have been due in between is not
// counted: it goes on with the next time from now.
func (s *Scheduler) Pause(ctx context.Context, tenant, name string, paused bool) (Schedule, error) {
	e, err := s.ours(tenant, name)
	if err != nil {
		return Schedule{}, err
	}
	record, err := s.change(ctx, e, func(r *Schedule) {
		if r.Paused == paused {
			return
		}
		r.Paused, r.Next = paused, time.Time{}
		if !paused {
			r.Next = e.times.next(r.since(s.now()))
		}
	})
	if err != nil {
		return Schedule{}, err
	}
	s.look()
	return s.told(ctx, record)
}

// since is the moment after which a schedule goes on: where the clock was put back,
// what is settled is not due again.
func (s Schedule) since(now time.Time) time.Time {
	return later(s.Settled, now)
}

// Remove forgets a schedule; its runs stay, also one that is under way.
func (s *Scheduler) Remove(ctx context.Context, tenant, name string) error {
	e, err := s.ours(tenant, name)
	if err != nil {
		return err
	}
	return s.remove(ctx, e)
}

func (s *Scheduler) remove(ctx context.Context, e *entry) error {
	for range changeTries {
		known, revision := s.snapshot(e)
		err := s.c.Records.Delete(ctx, recordKey(known.Tenant, known.Name), revision)
		if err == nil {
			s.dropped(e)
			s.forgetKey(ctx, known, known.Settled)
			return nil
		}
		if !errs.Is(err, errs.Conflict) {
			return err
		}
		if err := s.reread(ctx, e, known); err != nil {
			return err
		}
	}
	return errs.New(errs.Unavailable, "the record of the schedule keeps changing")
}

// Erase removes all schedules of a tenant.
func (s *Scheduler) Erase(ctx context.Context, tenant string) error {
	s.mu.Lock()
	var all []*entry
	for _, e := range s.tenants[tenant] {
		all = append(all, e)
	}
	s.mu.Unlock()
	for _, e := range all {
		if err := s.remove(ctx, e); err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
	}
	return nil
}

// Run starts a run of a schedule now, also of one that is paused; the times at which
// it is due stay as they are. The same key, unless it is "", is the same run.
// Conflict: a run of it is under way.
func (s *Scheduler) Run(ctx context.Context, tenant, name, key, by string) (runs.Run, error) {
	e, err := s.ours(tenant, name)
	if err != nil {
		return runs.Run{}, err
	}
	if !s.claim(e) {
		return runs.Run{}, errs.New(errs.Unavailable, "a run of the schedule %s is being started", name)
	}
	defer s.release(e, nil)
	known, _ := s.snapshot(e)
	now := s.now().UTC().Truncate(time.Second)
	start := known.startOf(now, "")
	start.By = by
	if key != "" {
		start.Key = "schedule " + string(known.ID) + " now " + key
	}
	run, again, err := s.startNow(ctx, known, start)
	if err != nil {
		return runs.Run{}, err
	}
	if again {
		now = run.Created
	}
	_, err = s.change(ctx, e, func(r *Schedule) {
		if again && r.Last != nil && !r.Last.Due.Before(now) {
			return // it is not the last one any more, or is written down
		}
		r.Last = &Firing{Due: now, Run: run.ID, Thread: run.Thread}
	})
	return run, err
}

// startNow starts a run unless one is under way, or finds the one that the same key
// has started.
func (s *Scheduler) startNow(ctx context.Context, known Schedule, start runs.Start) (run runs.Run, again bool, err error) {
	if start.Key != "" {
		run, err = s.c.Runs.Keyed(ctx, known.Tenant, start.Key)
		if !errs.Is(err, errs.NotFound) {
			return run, true, err
		}
	}
	under, err := s.underWay(ctx, known)
	if err != nil {
		return runs.Run{}, false, err
	}
	if under != "" {
		return runs.Run{}, false, errs.New(errs.Conflict, "a run of the schedule %s is under way: %s", known.Name, under).WithHint("`skete attach %s` shows it", under)
	}
	run, err = s.c.Runs.Start(ctx, known.Tenant, start)
	return run, false, err
}

// claim makes an entry busy. It reports whether it was not.
func (s *Scheduler) claim(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.busy || e.gone {
		return false
	}
	e.busy = true
	return true
}

// release ends a claim. After a failure it is a while until the next try.
func (s *Scheduler) release(e *entry, failure error) {
	s.mu.Lock()
	e.busy = false
	if failure == nil {
		e.tries, e.after = 0, time.Time{}
	} else {
		e.after = s.now().Add(min(retryFirst<<min(e.tries, 10), retryMax))
		e.tries++
	}
	s.mu.Unlock()
	s.look()
}

// unfinished are the states of a run that is under way.
var unfinished = []thread.RunState{thread.RunPending, thread.RunRunning, thread.RunInterrupted}

// underWay returns the run that keeps a schedule from starting another one; "" = none:
// its last one, what goes on beneath that, or another one of its thread.
func (s *Scheduler) underWay(ctx context.Context, known Schedule) (thread.RunID, error) {
	id := known.Start.Thread
	if known.Last != nil && known.Last.Run != "" {
		run, err := s.c.Runs.Get(ctx, known.Tenant, known.Last.Run)
		switch {
		case errs.Is(err, errs.NotFound): // its thread was removed
		case err != nil:
			return "", err
		case !run.State.Final(), run.Background > 0:
			return run.ID, nil
		}
		id = cmp.Or(id, known.Last.Thread)
	}
	if id == "" {
		return "", nil
	}
	page, err := s.c.Runs.List(ctx, known.Tenant, runs.Filter{Thread: id, States: unfinished, PageSize: 1})
	if err != nil || len(page.Runs) == 0 {
		return "", err
	}
	return page.Runs[0].ID, nil
}
