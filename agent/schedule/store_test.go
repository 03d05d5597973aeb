package schedule_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/schedule"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// server is the real supervisor and a scheduler over a real store, whose writes stop
// being made at one of them.
type server struct {
	store    *store.Store
	put      atomic.Int64 // by which the clock was put forward
	writes   atomic.Int64
	deadFrom atomic.Int64 // 0 = it lives

	supervisor *supervisor.Supervisor
	scheduler  *schedule.Scheduler
}

func (s *server) now() time.Time { return time.Now().Add(time.Duration(s.put.Load())) }

func (s *server) write() error {
	if n, dead := s.writes.Add(1), s.deadFrom.Load(); dead > 0 && n >= dead {
		return errs.New(errs.Unavailable, "the server is dead")
	}
	return nil
}

func (s *server) dead() bool {
	from := s.deadFrom.Load()
	return from > 0 && s.writes.Load() >= from
}

// dying are records that are not written any more once the server is dead.
type dying struct {
	kv.Store
	of *server
}

func (d dying) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	if err := d.of.write(); err != nil {
		return 0, err
	}
	return d.Store.Create(ctx, key, value)
}

func (d dying) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := d.of.write(); err != nil {
		return 0, err
	}
	return d.Store.Update(ctx, key, value, revision)
}

func (d dying) Delete(ctx context.Context, key string, revision uint64) error {
	if err := d.of.write(); err != nil {
		return err
	}
	return d.Store.Delete(ctx, key, revision)
}

// dyingThreads are logs that nothing is appended to once the server is dead.
type dyingThreads struct {
	*store.Threads
	of *server
}

func (d dyingThreads) Log(ctx context.Context, tenant string) (thread.Log, error) {
	log, err := d.Threads.Log(ctx, tenant)
	return dyingLog{log, d.of}, err
}

type dyingLog struct {
	thread.Log
	of *server
}

func (d dyingLog) Append(ctx context.Context, id thread.ID, after uint64, events ...thread.Event) (uint64, error) {
	if err := d.of.write(); err != nil {
		return 0, err
	}
	return d.Log.Append(ctx, id, after, events...)
}

// model says one thing.
type model struct{}

func (model) Open(context.Context, string) (llm.Model, error) { return model{}, nil }
func (model) Info() llm.Info                                  { return llm.Info{Name: "test", WindowTokens: 100_000} }

func (model) Stream(context.Context, *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		yield(llm.Delta{Kind: llm.DeltaDone, Response: &llm.Response{Message: llm.Assistant(llm.Text("looked")), Stop: llm.StopEnd}}, nil)
	}
}

// agents know one agent.
type agents struct{}

func (agents) Resolve(string) (definition.Definition, error) {
	return definition.Definition{Name: "default"}, nil
}
func (agents) Complete(d definition.Definition) (definition.Definition, error) { return d, nil }
func (agents) List() []definition.Entry                                        { return nil }

// start opens what a server has; deadFrom is the write that is not made any more.
func (s *server) start(t *testing.T, deadFrom int64) {
	t.Helper()
	s.writes.Store(0)
	s.deadFrom.Store(0)
	records, err := s.store.KV(t.Context(), "runs")
	must(t, err)
	schedules, err := s.store.KV(t.Context(), "schedules")
	must(t, err)
	s.deadFrom.Store(deadFrom)
	s.supervisor, err = supervisor.Open(t.Context(), supervisor.Config{
		Threads: dyingThreads{s.store.Threads(), s}, Records: dying{records, s}, Models: model{}, Definitions: agents{}, Tools: &tool.Registry{}, Node: "n", Now: s.now,
		Patience: llm.RetryPolicy{Wait: time.Millisecond, Attempts: 2},
	})
	must(t, err)
	s.scheduler, err = schedule.Open(t.Context(), schedule.Config{Records: dying{schedules, s}, Runs: s.supervisor, Node: "n", Now: s.now})
	must(t, err)
}

func (s *server) stop(t *testing.T) {
	t.Helper()
	must(t, s.scheduler.Close())
	must(t, s.supervisor.Close())
}

// looked reports whether the schedule's first time was fired, and its run is over.
func (s *server) looked(t *testing.T, tenant string) bool {
	t.Helper()
	known, err := s.scheduler.Get(t.Context(), tenant, "look")
	must(t, err)
	return known.Last != nil && known.Last.State.Final()
}

// Whichever write of a real store is the last one before a server dies, the next one
// ends with one run of the time that was due.
func TestKill_atEveryWriteOfARealStore(t *testing.T) {
	if testing.Short() {
		t.Skip("opens a store and two servers for each write")
	}
	s := &server{}
	var err error
	s.store, err = store.Open(t.Context(), store.Config{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { must(t, s.store.Close()) })
	for n := int64(1); ; n++ {
		tenant := fmt.Sprintf("tenant-%d", n)
		s.put.Store(0)
		s.start(t, 0)
		made, err := s.scheduler.Add(t.Context(), tenant, schedule.New{Name: "look", When: schedule.When{Every: time.Hour}, Start: runs.Start{Input: text("look")}})
		must(t, err)
		s.stop(t)

		s.put.Store(int64(90 * time.Minute))
		s.start(t, n)
		patience.Until(t, 20*time.Second, "the server dies, or is done", func() bool { return s.dead() || s.looked(t, tenant) })
		died := s.dead()
		s.stop(t)

		s.start(t, 0)
		patience.Until(t, 20*time.Second, "the run is over", func() bool { return s.looked(t, tenant) })
		page, err := s.supervisor.List(t.Context(), tenant, runs.Filter{})
		must(t, err)
		known, err := s.scheduler.Get(t.Context(), tenant, "look")
		must(t, err)
		if len(page.Runs) != 1 || page.Runs[0].State != thread.RunSucceeded || known.Last.Run != page.Runs[0].ID || !known.Last.Due.Equal(made.Next) {
			t.Errorf("died at write %d: %+v, %+v", n, known.Last, page.Runs)
		}
		must(t, s.scheduler.Remove(t.Context(), tenant, "look"))
		s.stop(t)
		if !died {
			if n < 6 {
				t.Errorf("only %d writes", n)
			}
			break
		}
	}
}
