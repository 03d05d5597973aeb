package supervisor_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/errs"
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
func (p *picky) Create(context.Context, string, string, thread.RunID, map[string]any) (string, error) {
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
type hung struct{ disk }

// Open implements supervisor.Machines.
func (h *hung) Open(ctx context.Context, _, _ string) (supervisor.Machine, func(), error) {
	<-ctx.Done()
	return supervisor.Machine{}, nil, context.Cause(ctx)
}

// A run's limit of time holds while its machine is opened, too.
func TestRun_timeIsUpBeforeItsMachineIsThere(t *testing.T) {
	h := newHouse(t)
	h.machines = &hung{}
	k := h.open(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("done")) })
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it"), Budget: thread.Budget{Wall: 50 * time.Millisecond}})
	must(t, err)
	if got := await(t, k, run.ID, over); got.State != thread.RunTimedOut || got.Reason != runs.ReasonWall || !strings.Contains(got.Text, "machine") {
		t.Errorf("%+v", got)
	}
	h.check(run.Thread)
}
