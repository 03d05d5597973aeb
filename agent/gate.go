package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/agent/policy"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// gate is the verdict about a call before it runs.
type gate struct {
	known bool
	args  json.RawMessage // rewritten by a hook, nil = the model's own
}

// judge looks at open calls: what must be written about them, and which of
// them may run. It asks hooks at most once a call.
func (b *batch) judge(ctx context.Context, open []*runs.Call) (bodies []thread.Body, ready []*runs.Call) {
	for _, c := range open {
		if _, runs := b.running[c.ID]; runs || b.r.parked[c.ID] {
			continue
		}
		about := b.r.verdict(ctx, b, c)
		if len(about) == 0 && b.mayRun(c) {
			ready = append(ready, c)
		}
		bodies = append(bodies, about...)
	}
	return bodies, ready
}

// mayRun reports whether a call that was judged may run.
func (b *batch) mayRun(c *runs.Call) bool {
	_, runs := b.running[c.ID]
	return !runs && !b.r.parked[c.ID] && c.Completed == nil && !c.Waits() && b.r.tools[c.Name] != nil &&
		(c.Started != nil || c.Decided != nil || b.gates[c.ID].known)
}

// verdict returns what must be written about a call before it can run, or
// instead of running it.
func (r *Runner) verdict(ctx context.Context, b *batch, c *runs.Call) []thread.Body {
	switch {
	case c.Started != nil:
		return r.resumable(c)
	case c.Decided != nil:
		return decided(c, c.Decided)
	case c.Asked != nil:
		if c.Asked.Expires.IsZero() || r.c.Now().Before(c.Asked.Expires) {
			return nil
		}
		expired := thread.ApprovalDecided{Call: c.ID, Decision: thread.Reject, By: "expiry", Text: "No decision came in time."}
		return append([]thread.Body{expired}, decided(c, &expired)...)
	case b.gates[c.ID].known:
		return nil
	}
	if done := r.wrong(c); done != nil {
		return []thread.Body{*done}
	}
	return r.ask(ctx, b, c)
}

// resumable handles a call that an earlier driver started: nil when it may be run again.
func (r *Runner) resumable(c *runs.Call) []thread.Body {
	t := r.tools[c.Name]
	if t == nil {
		return []thread.Body{failed(c, tool.CodeInterrupted, "The tool is no longer there; what the call did is not known.")}
	}
	if r.effect(c).Class == tool.Once {
		return []thread.Body{failed(c, tool.CodeInterrupted,
			"The server stopped while this ran. It may have happened or not; look before you do it again.")}
	}
	return nil
}

// decided turns a person's decision into a result, nil when the call is to run.
func decided(c *runs.Call, d *thread.ApprovalDecided) []thread.Body {
	switch d.Decision {
	case thread.Reject:
		text := "The call was rejected"
		if d.By == "expiry" {
			text += ": no decision came in time."
		} else if d.Text != "" {
			text += ": " + d.Text
		} else {
			text += "."
		}
		return []thread.Body{failed(c, tool.CodeRejected, text)}
	case thread.Respond:
		return []thread.Body{thread.ToolCompleted{Call: c.ID, Tool: c.Name, Blocks: []llm.Block{llm.Text(d.Text)}}}
	}
	return nil
}

// wrong answers calls that cannot be run at all.
func (r *Runner) wrong(c *runs.Call) *thread.ToolCompleted {
	t := r.tools[c.Name]
	if t == nil {
		names := make([]string, 0, len(r.specs))
		for _, s := range r.specs {
			names = append(names, s.Name)
		}
		done := failed(c, tool.CodeUnknownTool, fmt.Sprintf("There is no tool %.64q. There are: %s.", c.Name, strings.Join(names, ", ")))
		return &done
	}
	if r.s.Run.Planning && r.effect(c).Class != tool.Read && !slices.Contains(planningTools, c.Name) {
		done := failed(c, tool.CodeDenied, planningText)
		return &done
	}
	if c.Raw {
		done := failed(c, tool.CodeArgs, "The arguments are not a JSON object. Call the tool again with valid JSON.")
		return &done
	}
	if checked, ok := t.(*tool.Checked); ok {
		if _, bad := checked.Args(c.Args); bad != nil {
			done := failed(c, bad.Code, (llm.Message{Blocks: bad.Blocks}).String())
			return &done
		}
	}
	return nil
}

// planningTools may be called before a plan is accepted although they do something:
// what task starts is bound by the same rule. task_send is not among them: the
// sub-agent that hears it may be one of an earlier run, which is not.
var planningTools = []string{"task", "task_cancel"}

const planningText = "The plan has not been accepted yet: until then only tools that read can be used. Hand the plan in with submit_plan."

// plans reports whether a tool wants to note something before it acts.
func (r *Runner) plans(name string) bool {
	t := r.tools[name]
	if checked, ok := t.(*tool.Checked); ok {
		_, plans := checked.Tool.(tool.Planner)
		return plans
	}
	_, plans := t.(tool.Planner)
	return plans
}

// ask puts a new call before the hooks and the rules.
func (r *Runner) ask(ctx context.Context, b *batch, c *runs.Call) []thread.Body {
	args := c.Args
	var v hook.Verdict
	if r.c.Hook != nil {
		v = r.asked(r.c.Hook.BeforeTool(ctx, hook.ToolCall{Moment: r.moment(), ID: c.ID, Name: c.Name, Args: args}))
		if v.Args != nil {
			args = v.Args
		}
	}
	touches := r.tools[c.Name].Effect(args).Touches
	kind := asks(r.tools[c.Name])
	rule := r.decide(ctx, policy.Call{Tool: c.Name, Args: args, Touches: touches, Command: commandOf(args), Unasked: caution(r.tools[c.Name])})
	bodies := r.contexts(v)
	switch {
	case v.Action == hook.Deny || v.Action == hook.Stop:
		return append(bodies, failed(c, tool.CodeRejected, reason("A hook refused the call", v.Reason)))
	case rule.Action == definition.Deny:
		return append(bodies, failed(c, tool.CodeRejected, reason("A rule refuses this call", rule.Reason)))
	case kind != thread.AskApproval, v.Action == hook.Ask, rule.Action == definition.Ask && v.Action != hook.Allow:
		asked := thread.ApprovalAsked{Ask: kind, Call: c.ID, Tool: c.Name, Args: v.Args, Reason: clip.Text(cmp.Or(v.Reason, rule.Reason), textMax), Allowed: rule.Decisions}
		if len(asked.Allowed) == 0 || kind != thread.AskApproval {
			asked.Allowed = kind.Decisions()
		}
		asked.Writes, asked.Reads = pathsOf(touches)
		if rule.Expires > 0 {
			asked.Expires = r.c.Now().Add(rule.Expires).UTC().Truncate(time.Microsecond)
		}
		return append(append(bodies, asked), r.recorded(c, asked)...)
	case rule.By != "":
		return append(bodies, r.preapproved(c, v.Args, touches, rule.By)...)
	}
	b.gates[c.ID] = gate{known: true, args: v.Args}
	return bodies
}

// decide applies the rules, and what people approved beforehand. Where that cannot be had, a
// person is asked.
func (r *Runner) decide(ctx context.Context, call policy.Call) policy.Verdict {
	v := policy.Decide(r.rules(), call)
	if v.Action != definition.Ask || r.c.Grants == nil {
		return v
	}
	grants, err := r.c.Grants(ctx)
	if err != nil {
		r.c.Logger.Warn("what was approved beforehand cannot be read", "thread", r.c.Thread, "err", err)
		return v
	}
	return policy.Decide(r.rules(), call, grants...)
}

// preapproved writes down that a call which a person would be asked about was approved
// beforehand, and by what.
func (r *Runner) preapproved(c *runs.Call, args json.RawMessage, touches []tool.Touch, by string) []thread.Body {
	asked := thread.ApprovalAsked{Ask: thread.AskApproval, Call: c.ID, Tool: c.Name, Args: args, Allowed: []thread.Decision{thread.Approve}}
	asked.Writes, asked.Reads = pathsOf(touches)
	return []thread.Body{asked, thread.ApprovalDecided{Call: c.ID, Decision: thread.Approve, By: by}}
}

func pathsOf(touches []tool.Touch) (writes, reads []string) {
	for _, t := range touches {
		if t.Write {
			writes = append(writes, t.Path)
		} else {
			reads = append(reads, t.Path)
		}
	}
	return writes, reads
}

// recorded answers a question as it was answered in the run that is played again:
// there is no person to ask.
func (r *Runner) recorded(c *runs.Call, asked thread.ApprovalAsked) []thread.Body {
	played, ok := r.c.Model.(interface {
		Decided(call string) (thread.ApprovalDecided, bool)
	})
	if !ok {
		return nil
	}
	d, ok := played.Decided(c.ID)
	if !ok || !slices.Contains(asked.Allowed, d.Decision) {
		d = thread.ApprovalDecided{Call: c.ID, Decision: thread.Reject, Text: "The recorded run has no answer to it."}
	}
	d.By = "replay"
	return append([]thread.Body{d}, decided(c, &d)...)
}

// asks says whether a tool's calls are put before a person, and as what.
func asks(t tool.Tool) thread.AskKind {
	if checked, ok := t.(*tool.Checked); ok {
		t = checked.Tool
	}
	if a, ok := t.(tool.Asker); ok {
		return a.Asks()
	}
	return thread.AskApproval
}

// caution says why the calls of a tool do not run unasked, "" = they do.
func caution(t tool.Tool) string {
	if checked, ok := t.(*tool.Checked); ok {
		t = checked.Tool
	}
	if c, ok := t.(tool.Cautious); ok {
		return c.Why()
	}
	return ""
}

func (r *Runner) rules() []definition.Rule { return slices.Concat(r.s.Rules, r.s.Agent.Rules) }

// commandOf returns the shell command of a call, "" = it has none.
func commandOf(args json.RawMessage) string {
	var a struct {
		Command string `json:"command"`
	}
	_ = json.Unmarshal(args, &a)
	return a.Command
}

func reason(what, why string) string {
	what = strings.TrimSuffix(what, ".")
	if why == "" {
		return what + "."
	}
	return what + ": " + clip.Text(why, textMax)
}
