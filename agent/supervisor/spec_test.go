package supervisor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// picky refuses specs: when a run is started, or when its machine is made.
type picky struct {
	disk
	check, create error
}

// Check implements supervisor.Machines.
func (p *picky) Check(map[string]any) error { return p.check }

// Create implements supervisor.Machines.
func (p *picky) Create(context.Context, string, string, thread.RunID, string, map[string]any) (string, error) {
	return "", p.create
}

// A run of which no machine can be made is refused, or ends and says why.
func TestStart_noSuchMachine(t *testing.T) {
	wrong := errs.New(errs.Invalid, "memory: 16 MB is not in 32 MB to 64 GB")
	h := newHouse(t)
	p := &picky{check: wrong, create: wrong}
	h.machines = p
	k := h.open(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("done")) })
	if _, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it")}); !errs.Is(err, errs.Invalid) || errs.Public(err) != errs.Public(wrong) {
		t.Errorf("%v", err)
	}
	p.check = nil // the limits were changed since
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it")})
	must(t, err)
	if got := await(t, k, run.ID, over); got.State != thread.RunFailed || got.Reason != "machine" || !strings.Contains(got.Text, "16 MB") {
		t.Errorf("%+v", got)
	}
	h.check(run.Thread)
}

// hung opens no machine before the caller gives up.
type hung struct {
	disk
	opens chan struct{}
}

// Open implements supervisor.Machines.
func (h *hung) Open(ctx context.Context, _, _ string) (agent.Machine, func(), error) {
	h.opens <- struct{}{}
	<-ctx.Done()
	return agent.Machine{}, nil, context.Cause(ctx)
}

// slow takes a moment to open a machine.
type slow struct{ disk }

// Open implements supervisor.Machines.
func (s *slow) Open(ctx context.Context, tenant, id string) (agent.Machine, func(), error) {
	select {
	case <-time.After(50 * time.Millisecond):
		return s.disk.Open(ctx, tenant, id)
	case <-ctx.Done():
		return agent.Machine{}, nil, context.Cause(ctx)
	}
}

// A cancel and a limit of time hold while the machine of a run is opened, too.
func TestRun_endsBeforeItsMachineIsThere(t *testing.T) {
	h := newHouse(t)
	opens := make(chan struct{}, 10)
	h.machines = &hung{opens: opens}
	k := h.open(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("done")) })
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it"), Budget: thread.Budget{Wall: 50 * time.Millisecond}})
	must(t, err)
	if got := await(t, k, run.ID, over); got.State != thread.RunTimedOut || got.Reason != runs.ReasonWall || !strings.Contains(got.Text, "machine") {
		t.Errorf("%+v", got)
	}
	h.check(run.Thread)
	<-opens
	run, err = k.Start(t.Context(), tenant, runs.Start{Input: text("do it"), Budget: thread.Budget{Wall: time.Hour}})
	must(t, err)
	<-opens
	_, err = k.Cancel(t.Context(), tenant, run.ID, "anna", "enough")
	must(t, err)
	if got := await(t, k, run.ID, over); got.State != thread.RunCancelled || got.Text != "enough" {
		t.Errorf("%+v", got)
	}
	h.check(run.Thread)
}

// endless are threads in whose logs no run ends.
type endless struct{ supervisor.Threads }

// Log implements supervisor.Threads.
func (e endless) Log(ctx context.Context, tenant string) (thread.Log, error) {
	l, err := e.Threads.Log(ctx, tenant)
	return endlessLog{l}, err
}

type endlessLog struct{ thread.Log }

func (l endlessLog) Append(ctx context.Context, id thread.ID, after uint64, events ...thread.Event) (uint64, error) {
	for _, e := range events {
		if _, is := e.Body.(thread.RunEnded); is {
			return 0, errs.New(errs.Unavailable, "no answer")
		}
	}
	return l.Log.Append(ctx, id, after, events...)
}

// A run that has its answer, and whose server died before it was ended, has it still
// when its time was up meanwhile.
func TestRun_answeredBeforeItsTimeWasUp(t *testing.T) {
	h := newHouse(t)
	h.machines = &slow{}
	threads := h.threads
	h.threads = endless{threads}
	replies := model(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("42")) })
	k := h.open(replies)
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("What is 6*7?"), Budget: thread.Budget{Wall: time.Hour}})
	must(t, err)
	log, err := threads.Log(t.Context(), tenant)
	must(t, err)
	patience.Try(t, 20*time.Second, "an answer", func() error {
		for e, err := range log.Load(t.Context(), run.Thread, 1) {
			must(t, err)
			if _, is := e.Body.(thread.ModelCompleted); is {
				return nil
			}
		}
		return errors.New("there is none")
	})
	must(t, k.Close())
	h.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	h.threads = threads
	k = h.open(replies)
	if got := await(t, k, run.ID, over); got.State != thread.RunSucceeded || got.Text != "42" {
		t.Errorf("%+v", got)
	}
	h.check(run.Thread)
}
