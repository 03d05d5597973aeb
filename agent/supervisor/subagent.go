package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/replay"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file starts the sub-agents of a thread, and looks after those that
// run in the background.
//
// A sub-agent's thread is named by its parent's and by the call that started it,
// so the same call is the same sub-agent for ever, also after a crash.
//
// A spawner is safe for concurrent use.

// How RunStarted.By marks sub-agents: ByBackground is one that
// its parent does not wait for.
const (
	subagentsMax = 64 // of a thread, over its life

	byTask       = "task"
	byBackground = "task in the background"
)

// spawner starts the sub-agents of one thread. It is a tool.Spawner and tool.Tasks.
type spawner struct {
	k      *Supervisor
	Tenant string
	Parent *runs.State // of the thread; only read
	// Budget is what is left of the parent's.
	Budget func() thread.Budget
	Model  string // of the parent's run, "" = its agent's
}

// Spawn starts a sub-agent once, or says how it is. The thread's id is the
// parent's and the call's, so the same call is the same thread for ever.
func (p *spawner) Spawn(ctx context.Context, req tool.SpawnRequest) (tool.SpawnResult, error) {
	id := req.Thread.Sub(req.Call)
	if id.Depth() > thread.DepthMax {
		return tool.SpawnResult{Done: true, Failed: true, Text: fmt.Sprintf("Sub-agents cannot be nested deeper than %d.", thread.DepthMax), Thread: id}, nil
	}
	log, _, err := p.k.logOf(ctx, p.Tenant)
	if err != nil {
		return tool.SpawnResult{}, err
	}
	s, err := foldLog(ctx, log, id)
	if errs.Is(err, errs.NotFound) {
		return p.open(ctx, log, id, req)
	}
	if err != nil {
		return tool.SpawnResult{}, err
	}
	return p.result(s, id), nil
}

// result says how a sub-agent is; one that can go on is woken.
func (p *spawner) result(s *runs.State, id thread.ID) tool.SpawnResult {
	if s.Run == nil || s.Run.Ended == nil {
		p.k.wake(threadKey{p.Tenant, id})
		return tool.SpawnResult{Thread: id}
	}
	r := tool.SpawnResult{Done: true, Thread: id, Text: s.Run.Ended.Text, Failed: s.Run.Ended.State != thread.RunSucceeded, Spent: s.Run.Spent()}
	if s.Run.Ended.Result != nil {
		r.Text = string(s.Run.Ended.Result)
	}
	if r.Failed {
		r.Text = fmt.Sprintf("The sub-agent ended as %s: %s", s.Run.Ended.State, r.Text)
	}
	return r
}

func (p *spawner) open(ctx context.Context, log thread.Log, id thread.ID, req tool.SpawnRequest) (tool.SpawnResult, error) {
	d, ok := p.definition(req.Agent)
	if !ok {
		return tool.SpawnResult{Done: true, Failed: true, Thread: id, Text: fmt.Sprintf("There is no sub-agent %.64q.", req.Agent)}, nil
	}
	if n, err := p.count(ctx, log, req.Thread); err != nil || n >= subagentsMax {
		return tool.SpawnResult{Done: true, Failed: true, Thread: id, Text: fmt.Sprintf("A thread can have at most %d sub-agents.", subagentsMax)}, err
	}
	content, err := json.Marshal(d)
	if err != nil {
		return tool.SpawnResult{}, err
	}
	by := byTask
	if req.Background {
		by = byBackground
	}
	model := d.Model
	if model == "" || replay.Is(p.Model) {
		model = replay.Sub(p.Model, req.Call)
	}
	run := runs.Run{
		ID: runs.DerivedID(string(id)), Thread: id, Tenant: p.Tenant, Agent: d.Name, Model: model, Title: clip.Text(req.Prompt, runs.TitleMax), By: by,
		State: thread.RunPending, Created: p.k.c.Now().UTC().Truncate(time.Microsecond), Sandbox: p.Parent.Machine, First: 3,
	}
	run.Budget = runs.Within(runs.BudgetOf(thread.Budget{}, d.Limits.Budget), p.Budget())
	parent, err := foldLog(ctx, log, req.Thread) // p.Parent is being changed by its driver
	if err != nil {
		return tool.SpawnResult{}, err
	}
	bodies := []thread.Body{
		thread.Opened{Agent: content, Name: d.Name, Title: run.Title},
		thread.Bound{Machine: p.Parent.Machine},
		thread.RunStarted{By: by, Budget: run.Budget, Model: model, Planning: parent.Run.Planning},
	}
	if parent.Run.Planning {
		bodies = append(bodies, planningNotice("Your part is to find out; the agent that asks you makes the plan."))
	}
	if req.Inherit {
		in, err := p.inherited(ctx, parent)
		if err != nil {
			return tool.SpawnResult{}, err
		}
		bodies = append(bodies, in)
	}
	bodies = append(bodies, thread.Input{From: "parent", Blocks: []llm.Block{llm.Text(clip.Text(req.Prompt, thread.InlineBytesMax))}})
	_, err = p.k.enter(ctx, log, run, 0, bodies)
	return tool.SpawnResult{Thread: id}, err
}

// inheritedMax bounds the conversation that a sub-agent is shown.
const inheritedMax = 64 << 10

// inherited is the conversation of a sub-agent's parent, long parts of it cut: the end
// of it, where it does not fit.
func (p *spawner) inherited(ctx context.Context, parent *runs.State) (thread.Input, error) {
	_, blobs, err := p.k.logOf(ctx, p.Tenant)
	if err != nil {
		return thread.Input{}, err
	}
	text, err := prompt.Transcript(ctx, blobs, parent.Items, true)
	if err != nil {
		return thread.Input{}, err
	}
	if len(text) > inheritedMax {
		text = "[…]\n" + strings.ToValidUTF8(text[len(text)-inheritedMax:], "")
	}
	text = "The conversation of the agent that asks you, so that you know what it is about. Your task comes after it.\n\n" + text
	return runs.KeepInput(ctx, blobs, thread.Input{From: "skete", Name: "conversation", Blocks: []llm.Block{llm.Text(text)}})
}

// definition returns a sub-agent's, with the parent's rules in front: what a
// person wants to be asked about does not depend on who does it.
func (p *spawner) definition(name string) (definition.Definition, bool) {
	d, ok := p.Parent.Agent.Subagents[name]
	if !ok {
		return d, false
	}
	d.InSandbox = p.Parent.Agent.InSandbox
	d.Rules = slices.Concat(p.Parent.Rules, p.Parent.Agent.Rules, d.Rules)
	if len(d.Hooks) == 0 {
		d.Hooks = p.Parent.Agent.Hooks
	}
	return d, true
}

func (p *spawner) count(ctx context.Context, log thread.Log, parent thread.ID) (int, error) {
	n := 0
	for id, err := range log.List(ctx, parent) {
		if err != nil {
			return 0, err
		}
		if id.Depth() == parent.Depth()+1 {
			n++
		}
	}
	return n, nil
}

// Task returns a sub-agent of a thread.
func (p *spawner) Task(ctx context.Context, parent thread.ID, id string) (tool.Task, error) {
	if !thread.IsCallID(id) {
		return tool.Task{}, errs.New(errs.NotFound, "no task %.64q", id)
	}
	log, blobs, err := p.k.logOf(ctx, p.Tenant)
	if err != nil {
		return tool.Task{}, err
	}
	s, err := foldLog(ctx, log, parent.Sub(id))
	if errs.Is(err, errs.NotFound) {
		return tool.Task{}, errs.New(errs.NotFound, "no task %.64q", id)
	}
	if err != nil {
		return tool.Task{}, err
	}
	return p.task(ctx, blobs, s, id)
}

func (p *spawner) task(ctx context.Context, blobs thread.Blobs, s *runs.State, id string) (tool.Task, error) {
	t := tool.Task{ID: id, Agent: s.Opened.Name, Prompt: s.Opened.Title, State: s.RunState(p.k.c.Now()), Started: s.Run.At, Usage: s.Run.Usage, CostUSD: s.Run.CostUSD}
	if s.Run.Ended != nil {
		t.Text = s.Run.Ended.Text
		return t, nil
	}
	text, err := lastWords(ctx, blobs, s)
	t.Text = clip.Text(text, runs.TextMax)
	return t, err
}

// Tasks lists the sub-agents of a thread, the oldest first.
func (p *spawner) Tasks(ctx context.Context, parent thread.ID) ([]tool.Task, error) {
	log, blobs, err := p.k.logOf(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	var list []tool.Task
	for id, err := range log.List(ctx, parent) {
		if err != nil {
			return nil, err
		}
		of, call := id.Parent()
		if of != parent {
			continue
		}
		s, err := foldLog(ctx, log, id)
		if err != nil {
			return nil, err
		}
		t, err := p.task(ctx, blobs, s, call)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b tool.Task) int { return a.Started.Compare(b.Started) })
	return list, nil
}

// Send adds a message to a sub-agent's conversation.
func (p *spawner) Send(ctx context.Context, parent thread.ID, id, key, text string) error {
	in := thread.Input{ID: key, From: "parent", Blocks: []llm.Block{llm.Text(clip.Text(text, thread.InlineBytesMax))}}
	child := parent.Sub(id)
	_, err := p.k.external(ctx, threadKey{p.Tenant, child}, func(s *runs.State) ([]thread.Body, error) {
		switch {
		case s.HasInput(key):
			return nil, nil
		case s.Run != nil && s.Run.Ended == nil:
			return []thread.Body{in}, nil
		}
		return nil, errs.New(errs.Conflict, "the task is over")
	})
	if !errs.Is(err, errs.Conflict) {
		return err
	}
	return p.Revive(ctx, child, in)
}

// Revive starts another run of a sub-agent that is over.
func (p *spawner) Revive(ctx context.Context, child thread.ID, in thread.Input) error {
	log, _, err := p.k.logOf(ctx, p.Tenant)
	if err != nil {
		return err
	}
	s, err := foldLog(ctx, log, child)
	if err != nil {
		return err
	}
	if s.HasInput(in.ID) || s.Run.Ended == nil {
		return nil
	}
	of, _ := child.Parent()
	parent, err := foldLog(ctx, log, of) // p.Parent is being changed by its driver
	if err != nil {
		return err
	}
	run := runs.Run{
		ID: runs.DerivedID(string(child), in.ID), Thread: child, Tenant: p.Tenant, Agent: s.Opened.Name, Model: s.Run.Started.Model, Title: s.Opened.Title,
		By: byBackground, State: thread.RunPending, Created: p.k.c.Now().UTC().Truncate(time.Microsecond), Sandbox: s.Machine, First: s.Seq + 1,
		Budget: runs.Within(runs.BudgetOf(thread.Budget{}, s.Agent.Limits.Budget), p.Budget()),
	}
	_, err = p.k.enter(ctx, log, run, s.Seq, []thread.Body{thread.RunStarted{By: byBackground, Budget: run.Budget, Model: run.Model, Planning: parent.Run.Planning}, in})
	return err
}

// Cancel asks a sub-agent to end.
func (p *spawner) Cancel(ctx context.Context, parent thread.ID, id, _ string) error {
	child := parent.Sub(id)
	for _, t := range append([]threadKey{{p.Tenant, child}}, p.k.beneath(threadKey{p.Tenant, child})...) {
		_, err := p.k.external(ctx, t, func(s *runs.State) ([]thread.Body, error) {
			if s.Run == nil || s.Run.Ended != nil || s.Run.Cancel != nil {
				return nil, nil
			}
			return []thread.Body{thread.CancelAsked{By: "parent"}}, nil
		})
		if err != nil && (t.id != child || !errs.Is(err, errs.NotFound)) {
			return err
		}
	}
	return nil
}

// reportPrefix begins the ids of inputs that tell of a sub-agent's run.
const reportPrefix = "report-"

// reportSubagent tells a parent that a sub-agent in the background has ended, once. A
// parent that is idle starts to work again.
func (k *Supervisor) reportSubagent(ctx context.Context, t threadKey, s *runs.State) error {
	parent, call := t.id.Parent()
	if parent == "" || s.Run == nil || s.Run.Ended == nil || s.Run.Started.By != byBackground {
		return nil
	}
	text := fmt.Sprintf("The task %s in the background ended as %s:\n%s", call, s.Run.Ended.State, s.Run.Ended.Text)
	in := thread.Input{
		ID: reportPrefix + string(s.Run.ID), From: "sub-agent", Name: s.Opened.Name + " " + call, Blocks: []llm.Block{llm.Text(clip.Text(text, thread.InlineBytesMax/2))},
		Spent: s.Run.Spent(),
	}
	_, err := k.external(ctx, threadKey{t.tenant, parent}, func(s *runs.State) ([]thread.Body, error) {
		switch {
		case s.HasInput(in.ID):
			return nil, nil
		case s.Run != nil && s.Run.Ended == nil:
			return []thread.Body{in}, nil
		}
		return nil, errs.New(errs.Conflict, "the parent is idle")
	})
	if !errs.Is(err, errs.Conflict) {
		return err
	}
	return k.wakeParent(ctx, threadKey{t.tenant, parent}, in, s.Run.Ended.State)
}

// wakesMax bounds how often sub-agents in the background start their parent again.
const wakesMax = 16

// wakeParent starts another run of a thread that is idle, to hear of a sub-agent in the
// background: with what is left of the last run's budget, and not after one that did
// not succeed, too often, or to hear of a cancel. Then the news waits for a person's
// next message.
func (k *Supervisor) wakeParent(ctx context.Context, t threadKey, in thread.Input, how thread.RunState) error {
	log, _, err := k.logOf(ctx, t.tenant)
	if err != nil {
		return err
	}
	s, err := foldLog(ctx, log, t.id)
	switch {
	case err != nil:
		return err
	case s.HasInput(in.ID):
		return nil
	case s.Run == nil || s.Run.Ended == nil:
		return errs.New(errs.Unavailable, "a run of %s began meanwhile", t.id)
	}
	last := s.Run
	over := runs.Exceeds(last.Spent().Add(in.Spent), last.Budget) != ""
	if left, bounded := s.TimeLeft(last.EndedAt); over || bounded && left <= 0 || how == thread.RunCancelled || last.Ended.State != thread.RunSucceeded || last.Started.Wake >= wakesMax {
		_, err := k.external(ctx, t, func(s *runs.State) ([]thread.Body, error) {
			if s.HasInput(in.ID) {
				return nil, nil
			}
			return []thread.Body{in}, nil
		})
		return err
	}
	budget := runs.Left(s, last.EndedAt) // in.Spent counts to the run that it begins
	run := runs.Run{
		ID: runs.DerivedID(string(t.id), in.ID), Thread: t.id, Tenant: t.tenant, Agent: s.Opened.Name, Model: last.Started.Model, Title: s.Opened.Title,
		By: byBackground, State: thread.RunPending, Created: k.c.Now().UTC().Truncate(time.Microsecond), Sandbox: s.Machine, First: s.Seq + 1, Budget: budget,
	}
	started := thread.RunStarted{By: byBackground, Budget: budget, Model: run.Model, Schema: last.Started.Schema, Wake: last.Started.Wake + 1, Planning: last.Planning, Check: last.Started.Check}
	_, err = k.enter(ctx, log, run, s.Seq, []thread.Body{started, in})
	return err
}

// dismissSubagents asks the sub-agents beneath a run that has ended to end, too: those
// it waited for, and those in the background unless the run succeeded.
func (k *Supervisor) dismissSubagents(ctx context.Context, t threadKey, how thread.RunState) error {
	for _, below := range k.beneath(t) {
		_, err := k.external(ctx, below, func(s *runs.State) ([]thread.Body, error) {
			if s.Run == nil || s.Run.Ended != nil || s.Run.Cancel != nil || s.Run.Started.By != byTask && how == thread.RunSucceeded {
				return nil, nil
			}
			return []thread.Body{thread.CancelAsked{By: "parent"}}, nil
		})
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
	}
	return nil
}
