package supervisor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/thread"
)

// Fork begins a thread that is a copy of a run's thread up to an event, and goes
// on differently: with another input, another model, or just again. It gets a
// machine of its own, with the files as they were then where its history
// has them; else the new thread says which ones they are.
func (k *Supervisor) Fork(ctx context.Context, tenant string, id thread.RunID, at uint64, s runs.Start) (runs.Run, error) {
	e, err := k.find(ctx, tenant, id)
	if err != nil {
		return runs.Run{}, err
	}
	source := e.snapshot()
	log, _, err := k.logOf(ctx, tenant)
	if err != nil {
		return runs.Run{}, err
	}
	events, err := eventsUpTo(ctx, log, source.Thread, at)
	if err != nil {
		return runs.Run{}, err
	}
	if err := errors.Join(runs.CheckBudget(s.Budget), s.MayName(definition.Definition{})); err != nil {
		return runs.Run{}, err
	}
	made := ids{Run: thread.NewRunID(), Thread: thread.NewID()}
	made, again, err := k.keyed(ctx, tenant, s, made)
	if err != nil {
		return runs.Run{}, err
	}
	if again {
		if e, err := k.begun(ctx, tenant, made.Run); e != nil || err != nil {
			return k.view(e), err
		}
	}
	if _, s.Input, err = k.command(s.Input); err != nil {
		return runs.Run{}, err
	}
	opened := events[0].Body.(thread.Opened) // every log begins with it
	opened.Fork = &thread.Fork{Thread: source.Thread, Seq: uint64(len(events))}
	opened.Title = runs.Pick(s.Title, "fork of "+opened.Title)
	events[0].Body = opened
	if s.Model, err = k.modelOfFork(ctx, s.Model, events); err != nil {
		return runs.Run{}, err
	}
	st, err := copyThread(ctx, log, made.Thread, events)
	if err != nil {
		return runs.Run{}, err
	}
	return k.branch(ctx, log, tenant, made, source, st, s)
}

// modelOfFork is the model that a fork goes on with: the one that is asked for, or
// that of the run which the copied events end in.
func (k *Supervisor) modelOfFork(ctx context.Context, asked string, events []thread.Event) (string, error) {
	st, err := runs.FoldState(events)
	if err != nil {
		return "", err
	}
	return k.modelFor(ctx, st.Agent, asked, lastModel(st.Run), st.Agent.Model)
}

// branch ends what was under way in the copy and starts its own run.
func (k *Supervisor) branch(ctx context.Context, log thread.Log, tenant string, made ids, source runs.Run, st *runs.State, s runs.Start) (runs.Run, error) {
	if err := closeCopy(ctx, log, made.Thread, st); err != nil {
		return runs.Run{}, err
	}
	bound, err := forkMachine(ctx, k.c.Machines, tenant, log, made.Thread, made.Run, st, s.Sandbox)
	if err != nil {
		return runs.Run{}, err
	}
	budget := runs.BudgetOf(s.Budget, st.Agent.Limits.Budget)
	s.Planning = s.Planning || st.Run != nil && st.Run.Planning // a fork accepts no plan
	// What is said of the files belongs to the run, which begins behind the machine.
	bodies := slices.Insert(bound, 1, k.startedBy(ctx, s, budget, s.Model)...)
	run := runs.Run{
		ID: made.Run, Thread: made.Thread, Tenant: tenant, Agent: st.Agent.Name, Model: s.Model, Title: runs.Pick(s.Title, "fork of "+source.Title),
		Labels: s.Labels, By: s.By, State: thread.RunPending, Created: k.c.Now().UTC().Truncate(time.Microsecond), Budget: budget,
		Sandbox: bound[0].(thread.Bound).Machine, First: st.Seq + 2, Fork: st.Opened.Fork,
		Keep: s.Keep,
	}
	return k.open(ctx, run, st.Seq, bodies, s.Input)
}
