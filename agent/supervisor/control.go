package supervisor

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/policy"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Send adds a message to a run that is under way; the model reads it before
// its next step. The same id twice is one message. Conflict: the run is over.
func (k *Supervisor) Send(ctx context.Context, tenant string, id thread.RunID, in thread.Input) (uint64, error) {
	e, err := k.find(ctx, tenant, id)
	if err != nil {
		return 0, err
	}
	if len(in.Blocks) == 0 {
		return 0, errs.New(errs.Invalid, "the message is empty")
	}
	if _, in.Blocks, err = k.command(in.Blocks); err != nil {
		return 0, err
	}
	if err := runs.CheckInput(in.Blocks); err != nil {
		return 0, err
	}
	if err := k.sees(ctx, e.snapshot().Model, in.Blocks); err != nil {
		return 0, err
	}
	_, blobs, err := k.logOf(ctx, tenant)
	if err != nil {
		return 0, err
	}
	if in.From == "" {
		in.From = "user"
	}
	if in, err = runs.KeepInput(ctx, blobs, in); err != nil {
		return 0, err
	}
	return k.external(ctx, threadKey{tenant, e.thread}, func(s *runs.State) ([]thread.Body, error) {
		if s.Run == nil || s.Run.ID != id || s.Run.Ended != nil {
			return nil, errs.New(errs.Conflict, "the run %s is over", id).WithHint("`skete run --thread %s …` goes on with the conversation", e.thread)
		}
		if in.ID != "" && s.HasInput(in.ID) {
			return nil, nil
		}
		return []thread.Body{in}, nil
	})
}

// Approvals lists the calls of a run, and of its sub-agents, that wait for a
// person; id "" lists those of all runs.
func (k *Supervisor) Approvals(ctx context.Context, tenant string, id thread.RunID) ([]runs.Approval, error) {
	var root thread.ID
	if id != "" {
		e, err := k.find(ctx, tenant, id)
		if err != nil {
			return nil, err
		}
		root = e.thread
	}
	k.mu.Lock()
	var entries []*entry
	for t, e := range k.byID {
		if t.tenant == tenant && (root == "" || t.id == root || strings.HasPrefix(string(t.id), string(root)+"/")) {
			entries = append(entries, e)
		}
	}
	k.mu.Unlock()
	log, blobs, err := k.logOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var list []runs.Approval
	for _, e := range entries {
		s, err := foldLog(ctx, log, e.thread)
		if errs.Is(err, errs.NotFound) {
			continue // it has only a record yet
		}
		if err != nil {
			return nil, err
		}
		found, err := openApprovals(ctx, blobs, e.thread, s)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	slices.SortFunc(list, func(a, b runs.Approval) int { return a.Asked.Compare(b.Asked) })
	return list, nil
}

// Decide answers approvals. Each is looked at for itself; the error is the first
// one, and the others are decided all the same. Conflict: decided, expired, or
// no longer wanted.
func (k *Supervisor) Decide(ctx context.Context, tenant string, id thread.RunID, decisions []runs.Decide) error {
	e, err := k.find(ctx, tenant, id)
	if err != nil {
		return err
	}
	var first error
	for _, d := range decisions {
		if d.Thread == "" {
			d.Thread = e.thread
		}
		if d.Thread != e.thread && !strings.HasPrefix(string(d.Thread), string(e.thread)+"/") {
			err = errs.New(errs.NotFound, "%.80s is no thread of this run", d.Thread)
		} else {
			err = k.decide(ctx, threadKey{tenant, d.Thread}, d)
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (k *Supervisor) decide(ctx context.Context, t threadKey, d runs.Decide) error {
	_, blobs, err := k.logOf(ctx, t.tenant)
	if err != nil {
		return err
	}
	name := k.c.NameOf(ctx, d.By)
	_, err = k.external(ctx, t, func(s *runs.State) ([]thread.Body, error) {
		c := s.Call(d.Call)
		switch {
		case c == nil || c.Asked == nil:
			return nil, errs.New(errs.NotFound, "no call %.64q waits for approval", d.Call)
		case c.Decided != nil:
			return nil, errs.New(errs.Conflict, "the call %s was decided already: %s by %.64s", d.Call, c.Decided.Decision, cmp.Or(c.Decided.ByName, c.Decided.By))
		case c.Completed != nil || s.Run == nil || s.Run.Ended != nil:
			return nil, errs.New(errs.Conflict, "the call %s is over", d.Call)
		case !c.Asked.Expires.IsZero() && !k.c.Now().Before(c.Asked.Expires):
			return nil, errs.New(errs.Conflict, "the time to decide about %s is over", d.Call)
		}
		args, err := askedOf(ctx, blobs, s, c) // those of the state may be in a blob
		if err != nil {
			return nil, err
		}
		if d.Shown != "" && d.Shown != thread.ArgsHash(args) {
			return nil, errs.New(errs.Conflict, "the call %s is not the one that was shown", d.Call).WithHint("look at it again")
		}
		decided, err := d.Check(c)
		if err != nil {
			return nil, err
		}
		decided.ByName = name
		bodies := []thread.Body{decided}
		if d.Always {
			rule, err := policy.RuleFor(callOf(c, args))
			if err != nil {
				return nil, err
			}
			rules, err := json.Marshal([]definition.Rule{rule})
			if err != nil {
				return nil, err
			}
			bodies = append(bodies, thread.PolicyChanged{Rules: rules, By: d.By, ByName: name})
		}
		return bodies, nil
	})
	return err
}

// Cancel asks a run, and all beneath it, to end. A run that is over stays as it is.
func (k *Supervisor) Cancel(ctx context.Context, tenant string, id thread.RunID, by, reason string) (runs.Run, error) {
	e, err := k.find(ctx, tenant, id)
	if err != nil {
		return runs.Run{}, err
	}
	name := k.c.NameOf(ctx, by)
	asked := func(s *runs.State) ([]thread.Body, error) {
		if s.Run == nil || s.Run.Ended != nil || s.Run.Cancel != nil {
			return nil, nil
		}
		return []thread.Body{thread.CancelAsked{By: by, ByName: name, Reason: clip.Text(reason, runs.TextMax)}}, nil
	}
	t := threadKey{tenant, e.thread}
	if _, err := k.external(ctx, t, asked); err != nil {
		return runs.Run{}, err
	}
	for _, below := range k.beneath(t) {
		if _, err := k.external(ctx, below, asked); err != nil {
			return runs.Run{}, err
		}
	}
	return k.view(e), nil
}

// Compact asks for a shorter conversation before the next model call: of the run, or of
// the next one of its thread when it is over. focus is what the summary must keep above
// all.
func (k *Supervisor) Compact(ctx context.Context, tenant string, id thread.RunID, focus, by string) (runs.Run, error) {
	e, err := k.find(ctx, tenant, id)
	if err != nil {
		return runs.Run{}, err
	}
	if len(focus) > runs.TextMax {
		return runs.Run{}, errs.New(errs.Limit, "the focus of a summary has at most %d bytes", runs.TextMax)
	}
	_, err = k.external(ctx, threadKey{tenant, e.thread}, func(s *runs.State) ([]thread.Body, error) {
		if s.CompactAsked != nil && s.CompactAsked.Focus == focus {
			return nil, nil
		}
		return []thread.Body{thread.CompactAsked{By: by, ByName: k.c.NameOf(ctx, by), Focus: focus}}, nil
	})
	return k.view(e), err
}

// beneath lists the threads of sub-agents that are not over.
func (k *Supervisor) beneath(t threadKey) []threadKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []threadKey
	for other := range k.byID {
		if other.tenant == t.tenant && strings.HasPrefix(string(other.id), string(t.id)+"/") {
			list = append(list, other)
		}
	}
	return list
}

// Resume goes on after a budget was used up or something failed: with a new
// run of the same thread. A run that is not over gets the new budget.
func (k *Supervisor) Resume(ctx context.Context, tenant string, id thread.RunID, b thread.Budget, by string) (runs.Run, error) {
	if err := runs.CheckBudget(b); err != nil {
		return runs.Run{}, err
	}
	e, err := k.find(ctx, tenant, id)
	if err != nil {
		return runs.Run{}, err
	}
	run := e.snapshot()
	if run.State.Final() {
		if run.State == thread.RunSucceeded {
			return runs.Run{}, errs.New(errs.Conflict, "the run %s succeeded", id).WithHint("`skete run --thread %s …` goes on with the conversation", run.Thread)
		}
		return k.again(ctx, tenant, run, b, by)
	}
	if b != (thread.Budget{}) {
		_, err = k.external(ctx, threadKey{tenant, run.Thread}, func(s *runs.State) ([]thread.Body, error) {
			if s.Run == nil || s.Run.Ended != nil {
				return nil, nil
			}
			return []thread.Body{thread.BudgetChanged{Budget: runs.BudgetOf(b, s.Run.Budget), By: by, ByName: k.c.NameOf(ctx, by)}}, nil
		})
	}
	k.wake(threadKey{tenant, run.Thread})
	return k.view(e), err
}

// Rewind takes the conversation of a run's thread back to an event; the next
// run goes on from there. With files, the sandbox's files become again what
// they were then, first: who repeats a rewind that failed loses nothing.
// Conflict: the run is under way.
func (k *Supervisor) Rewind(ctx context.Context, tenant string, id thread.RunID, to uint64, files bool, by string) (changed []runs.Change, err error) {
	e, err := k.find(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	if files {
		log, s, err := k.fold(ctx, tenant, e.thread)
		if err == nil {
			changed, err = rewindFiles(ctx, k.c.Machines, tenant, log, e.thread, s, to, by)
		}
		if err != nil {
			return nil, err
		}
	}
	_, err = k.external(ctx, threadKey{tenant, e.thread}, func(s *runs.State) ([]thread.Body, error) {
		return []thread.Body{thread.Rewound{To: to, By: by, ByName: k.c.NameOf(ctx, by)}}, runs.MayRewind(s, to)
	})
	return changed, err
}

// Delete removes a thread with its sub-agents' threads, its runs, and the
// sandbox that was made for it. Conflict: a run is under way.
func (k *Supervisor) Delete(ctx context.Context, tenant string, id thread.ID) error {
	log, s, err := k.fold(ctx, tenant, id)
	if err != nil {
		return err
	}
	if s.Run != nil && s.Run.Ended == nil {
		return errs.New(errs.Conflict, "a run of it is under way: %s", s.Run.ID).WithHint("`skete cancel %s` first", s.Run.ID)
	}
	if err := k.Retire(ctx, tenant, id); err != nil {
		return err
	}
	return log.Delete(ctx, id)
}

// Retire removes what a thread has beside its log: the records of its runs and
// of those beneath it, and the sandbox that was made for it. It may be repeated.
func (k *Supervisor) Retire(ctx context.Context, tenant string, id thread.ID) error {
	if err := k.index.settle(ctx); err != nil {
		return err
	}
	var entries []*entry
	for _, r := range k.index.beneath(tenant, id) {
		value, revision, err := k.c.Records.Get(ctx, recordKey(tenant, r.id))
		if errs.Is(err, errs.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if e, err := parseRecord(value, revision); err == nil {
			entries = append(entries, e)
		}
	}
	for _, e := range entries {
		if err := k.ours(e.run); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if e.run.OwnSandbox && k.c.Machines != nil {
			if err := k.c.Machines.Destroy(ctx, tenant, e.run.Sandbox); err != nil && !errs.Is(err, errs.NotFound) {
				return err
			}
		}
		if err := k.c.Events.Forget(ctx, tenant, event.Run, string(e.id)); err != nil {
			return err
		}
		if err := k.c.Records.Delete(ctx, recordKey(tenant, e.id), e.revision); err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		k.forget(e)
	}
	return nil
}

// Agents lists the definitions that can be used.
func (k *Supervisor) Agents(context.Context) ([]definition.Entry, error) {
	return k.c.Definitions.List(), nil
}

// Commands lists the tasks that have names.
func (k *Supervisor) Commands(context.Context) ([]definition.CommandEntry, error) {
	if k.c.Commands == nil {
		return nil, nil
	}
	return k.c.Commands(), nil
}

// Agent returns a definition as a run would get it. NotFound.
func (k *Supervisor) Agent(_ context.Context, name string) (definition.Definition, error) {
	return k.c.Definitions.Resolve(name)
}

// callOf is a call that waits, as the rules see it.
func callOf(c *runs.Call, args json.RawMessage) policy.Call {
	p := policy.Call{Tool: c.Name, Args: args, Command: commandOf(args)}
	for _, path := range c.Asked.Writes {
		p.Touches = append(p.Touches, tool.Touch{Path: path, Write: true})
	}
	for _, path := range c.Asked.Reads {
		p.Touches = append(p.Touches, tool.Touch{Path: path})
	}
	return p
}

func commandOf(args json.RawMessage) string {
	var a struct {
		Command string `json:"command"`
	}
	_ = json.Unmarshal(args, &a)
	return a.Command
}
