package supervisor

import (
	"context"
	"maps"
	"strings"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/replay"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Replay plays the model's part of a run again, in a new thread with a machine
// of its own: Compare tells where the results differ. That machine goes when
// the replay is over, unless keep says that it stays.
func (k *Supervisor) Replay(ctx context.Context, tenant string, id thread.RunID, keep bool, by string) (runs.Run, error) {
	e, err := k.find(ctx, tenant, id)
	if err != nil {
		return runs.Run{}, err
	}
	source := e.snapshot()
	log, blobs, err := k.logOf(ctx, tenant)
	if err != nil {
		return runs.Run{}, err
	}
	events, err := eventsUpTo(ctx, log, source.Thread, max(source.Last, source.First))
	if err != nil {
		return runs.Run{}, err
	}
	st, err := runs.FoldState(events)
	if err != nil {
		return runs.Run{}, err
	}
	d := st.Agent
	d.Rules, d.Hooks, d.Model = []definition.Rule{{Action: definition.Allow}}, nil, "" // what was approved then is done again
	d.Sandbox = maps.Clone(d.Sandbox)
	delete(d.Sandbox, "name") // the first one has it
	input, err := firstInput(ctx, blobs, events, id)
	if err != nil {
		return runs.Run{}, err
	}
	start := runs.Start{
		Inline: &d, Input: input, Title: "replay of " + source.Title, Labels: source.Labels, By: by, Budget: source.Budget,
		Model: replay.Prefix + string(source.Thread) + "#" + string(id), Replay: id, Keep: keep, Planning: st.Run.Started.Planning,
	}
	if c := st.Run.Started.Check; c != nil && c.Command != "" { // what the critic said is not in the record of answers
		start.EndCheck = &thread.RunCheck{Command: c.Command}
	}
	return k.Start(ctx, tenant, start)
}

// Compare tells where two runs differ: the tool calls, and what came of them.
func (k *Supervisor) Compare(ctx context.Context, tenant string, a, b thread.RunID) (any, error) {
	log, _, err := k.logOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var parts [2][]thread.Event
	for i, id := range []thread.RunID{a, b} {
		e, err := k.find(ctx, tenant, id)
		if err != nil {
			return nil, err
		}
		if parts[i], err = eventsOfRun(ctx, log, e.thread, id); err != nil {
			return nil, err
		}
	}
	return replay.Compare(parts[0], parts[1]), nil
}

// replayed opens a model that plays a recorded run.
func (k *Supervisor) replayed(ctx context.Context, tenant, name string) (llm.Model, error) {
	id, run, _ := strings.Cut(strings.TrimPrefix(name, replay.Prefix), "#")
	if _, err := thread.ParseID(id); err != nil {
		return nil, err
	}
	log, blobs, err := k.logOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	events, err := eventsOfRun(ctx, log, thread.ID(id), thread.RunID(run))
	if err != nil {
		return nil, err
	}
	return replay.New(ctx, events, blobs)
}
