package supervisor

import (
	"cmp"
	"context"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/program"
	"github.com/skete-dev/skete/agent/replay"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// run drives a thread that has something to do.
func (d *driver) run(ctx context.Context, log thread.Log, blobs thread.Blobs, s *runs.State, e *entry) (agent.Outcome, error) {
	k := d.k
	if err := d.claim(ctx, log, s); err != nil {
		return agent.Outcome{}, err
	}
	claimed := func(r *runs.Run) {
		runs.Project(r, s, k.c.Now())
		r.Node = k.c.Node
	}
	if err := k.save(ctx, e, claimed); err != nil {
		return agent.Outcome{}, err
	}
	e.progress(s, k.c.Now())
	k.counted(d.key, s) // what came in while nothing drove the thread
	p := &spawner{
		k: k, Tenant: d.key.tenant, Parent: s, Model: s.Run.Started.Model,
		Budget: func() thread.Budget { return e.budgetLeft(k.c.Now()) },
	}
	w := newSession(sessionConfig{
		Tenant: d.key.tenant, Thread: d.key.id, State: s, Log: log, Blobs: blobs, Machines: k.c.Machines, Memories: k.c.Memories, Skills: k.c.Skills,
		Tools: k.c.Tools, Sources: k.c.Sources, Top: func() (thread.RunID, string) { return k.top(d.key, s) }, Later: func(f func()) { k.spawn(f) },
		Spawner: p, Tasks: p, Wire: k.c.Wire, Applied: func(ev thread.Event) {
			e.progress(s, k.c.Now())
			switch ev.Body.(type) {
			case thread.ToolCompleted, thread.Input:
				k.counted(d.key, s)
			case thread.ApprovalAsked, thread.ApprovalDecided:
				k.interrupts(ctx, e, s, ev)
			}
		},
		Plugins: k.c.Plugins,
		Tree:    func() (thread.Budget, thread.Spent) { return k.tree(d.key) },
		Patient: k.patient(e), Patience: k.c.Patience, Now: k.c.Now, Logger: k.c.Log,
	})
	o := d.opening(ctx, log, s)
	defer o.cancel(nil)
	release, err := w.Open(o.ctx)
	if o.done() {
		if err == nil {
			release()
		}
		return agent.Outcome{}, d.cutShort(ctx, log, s)
	}
	if errs.Is(err, errs.Invalid) { // a spec of which no machine can be made, by limits that were changed since
		return agent.Outcome{}, d.stuck(ctx, log, s, runs.ReasonMachine, err)
	}
	if err != nil {
		return agent.Outcome{}, err
	}
	defer release()
	parts, err := w.Parts(ctx)
	if err != nil {
		return agent.Outcome{}, err
	}
	model, err := k.modelOf(ctx, d.key.tenant, s)
	var r agent.Driver
	if err == nil {
		r, err = k.place(e, parts, model)
	}
	if err != nil {
		return agent.Outcome{}, d.stuck(ctx, log, s, runs.ReasonModel, err)
	}
	defer w.Recap()()
	d.runner.Store(&r)
	r.Notify() // what came in since the log was read
	return r.Run(ctx)
}

// interrupts writes down that a run waits while a call asks a person, or does not any more.
// What else it waits for ends its drive, which writes it down.
func (k *Supervisor) interrupts(ctx context.Context, e *entry, s *runs.State, ev thread.Event) {
	call := ""
	switch b := ev.Body.(type) {
	case thread.ApprovalAsked:
		call = b.Call
	case thread.ApprovalDecided:
		call = b.Call
	}
	if c := s.Call(call); c == nil || c.Asked == nil || c.Asked.Ask != thread.AskForm {
		return
	}
	if err := k.save(ctx, e, func(r *runs.Run) { runs.Project(r, s, k.c.Now()) }); err != nil {
		k.c.Log.Warn("that a run waits could not be written down", "run", e.id, "err", err)
	}
}

// stuck ends a run for which there is no model, tool or machine: trying again would
// go on for ever and report nothing.
func (d *driver) stuck(ctx context.Context, log thread.Log, s *runs.State, reason string, cause error) error {
	if errs.Temporary(cause) || ctx.Err() != nil {
		return cause
	}
	return cmp.Or(d.end(ctx, log, s, thread.RunEnded{State: thread.RunFailed, Reason: reason, Text: runs.Explain(cause)}), cause)
}

// end ends a run that has no runner, with a result for every call that has none.
func (d *driver) end(ctx context.Context, log thread.Log, s *runs.State, ended thread.RunEnded) error {
	bodies := agent.Unanswered(s, tool.CodeCancelled, "The run was ended before this call had a result.")
	if err := appendTo(ctx, log, d.key.id, s, append(bodies, ended)...); err != nil {
		return err
	}
	d.dirty.Store(true) // look again, and settle
	return nil
}

// claim makes the previous driver of the thread stop at its next append.
func (d *driver) claim(ctx context.Context, log thread.Log, s *runs.State) error {
	if s.Claim.Node == d.k.node {
		return nil
	}
	return appendTo(ctx, log, d.key.id, s, thread.Claimed{Node: d.k.node, Term: s.Claim.Term + 1})
}

// modelOf opens the run's model, then the agent's, then the server's choice; of a program,
// that.
func (k *Supervisor) modelOf(ctx context.Context, tenant string, s *runs.State) (llm.Model, error) {
	if p := s.Agent.Program; p != nil {
		return program.New(s.Agent.Name, *p), nil
	}
	name := cmp.Or(s.Run.Started.Model, s.Agent.Model)
	if replay.Is(name) {
		return k.replayed(ctx, tenant, name)
	}
	return k.c.Models.Open(llm.ForTenant(ctx, tenant), name)
}
