package agent

import (
	"cmp"
	"context"
	"slices"

	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// TaskTool is the tool that starts sub-agents; hooks hear of those by events of their own.
const TaskTool = "task"

// asked takes a hook's answer; one that broke is told to the operator and
// decides nothing.
func (r *Runner) asked(v hook.Verdict, err error) hook.Verdict {
	if err != nil {
		r.c.Logger.Warn("a hook failed", "thread", r.c.Thread, "err", err)
		return hook.Verdict{}
	}
	for _, w := range v.Warnings {
		r.c.Logger.Warn("a hook went wrong", "thread", r.c.Thread, "what", w)
	}
	for _, s := range v.Skipped {
		r.skip(s)
	}
	return v
}

// skippedMax bounds what a run tells of plug-ins that were passed over.
const skippedMax = 8

// skip notes that a plug-in was passed over. A run tells the same thing once.
func (r *Runner) skip(what string) {
	if len(r.skipped) < skippedMax && !slices.Contains(r.skipped, what) {
		r.skipped = append(r.skipped, what)
	}
}

func (r *Runner) moment() hook.Moment {
	return hook.Moment{Thread: r.c.Thread, Run: r.s.Run.ID, Agent: r.s.Agent.Name, Step: r.s.Run.Steps}
}

// contexts logs what a hook wants the model to know, and which plug-ins were passed over.
func (r *Runner) contexts(v hook.Verdict) (bodies []thread.Body) {
	for ; r.skippedTold < len(r.skipped); r.skippedTold++ {
		bodies = append(bodies, thread.Input{From: "hook", Name: "skipped", Blocks: []llm.Block{llm.Text(r.skipped[r.skippedTold])}})
	}
	if v.Context != "" {
		bodies = append(bodies, thread.Input{From: "hook", Blocks: []llm.Block{llm.Text(clip.Text(v.Context, textMax))}})
	}
	return bodies
}

// announce tells the hooks of an event about which they cannot say anything.
func (r *Runner) announce(ctx context.Context, e hook.Event) hook.Verdict {
	if r.c.Hook == nil {
		return hook.Verdict{}
	}
	e.Moment = r.moment()
	return r.asked(r.c.Hook.Notice(ctx, e), nil)
}

// notice tells the hooks of an event and logs what they want the model to know.
func (r *Runner) notify(ctx context.Context, e hook.Event) (hook.Verdict, []thread.Body) {
	v := r.announce(ctx, e)
	return v, r.contexts(v)
}

// greet tells the hooks that the run begins or goes on, and what people sent.
func (r *Runner) greet(ctx context.Context) (stopped bool, err error) {
	if r.c.Hook == nil {
		return false, nil
	}
	var bodies []thread.Body
	if !r.greeted {
		r.greeted = true
		how := "startup"
		if r.s.Run.Steps > 0 {
			how = "resume"
		}
		_, bodies = r.notify(ctx, hook.Event{Name: hook.OnThreadStart, Text: how})
	}
	for _, item := range r.s.Queue {
		if item.Seq <= r.heardTo || item.Input.From != "user" {
			continue
		}
		r.heardTo = item.Seq
		v, more := r.notify(ctx, hook.Event{Name: hook.OnUserPromptSubmit, Text: llm.Message{Blocks: item.Input.Blocks}.String()})
		if v.Action == hook.Deny || v.Action == hook.Stop {
			return true, r.stop(ctx, thread.RunFailed, runs.ReasonHook, reason(sentences[runs.ReasonHook], v.Reason))
		}
		bodies = append(bodies, more...)
	}
	return false, r.append(ctx, bodies...)
}

// mayEnd asks the hooks whether the run may end; one that says no tells the
// model why, and it goes on.
func (r *Runner) mayEnd(ctx context.Context, text string) (bool, error) {
	if r.c.Hook == nil {
		return true, nil
	}
	v := r.announce(ctx, hook.Event{Name: hook.OnStop, Text: text, Again: r.held})
	if v.Action != hook.Deny || r.held {
		return true, nil
	}
	r.held = true
	return false, r.append(ctx, thread.Input{From: "hook", Name: "stop", Blocks: []llm.Block{llm.Text(clip.Text(cmp.Or(v.Reason, "Go on: a hook does not let the run end yet."), textMax))}})
}

// around wraps the run of a call in the hooks.
func (r *Runner) around(c *runs.Call, req tool.Request) func(context.Context) (tool.Result, error) {
	t := r.tools[c.Name]
	if r.c.Hook == nil {
		return func(ctx context.Context) (tool.Result, error) { return t.Run(ctx, req) }
	}
	if c.Name == TaskTool && !req.Again {
		_ = r.announce(r.hookCtx, hook.Event{Name: hook.OnSubagentStart, Text: string(req.Args)})
	}
	run := r.c.Hook.AroundTool(func(ctx context.Context, h hook.ToolCall) (tool.Result, error) {
		wrapped := req
		wrapped.Args = h.Args
		if h.Settle != "" {
			return settle(ctx, t, wrapped, h.Settle)
		}
		return t.Run(ctx, wrapped)
	})
	about := hook.ToolCall{Moment: r.moment(), ID: c.ID, Name: c.Name, Args: req.Args, Again: req.Again}
	return func(ctx context.Context) (tool.Result, error) { return run(ctx, about) }
}

// settle ends a call that was started before and may not go on.
func settle(ctx context.Context, t tool.Tool, req tool.Request, why string) (tool.Result, error) {
	if s, ok := t.(tool.Settler); ok {
		r, err := s.Settle(ctx, req)
		if err != nil {
			return tool.Result{}, err
		}
		if r != nil {
			return *r, nil
		}
	}
	return tool.Fail(tool.CodeInterrupted, "Interrupted: this call was started before, and what it did, if anything, is not known. It was not started again: "+why), nil
}

// heard tells the hooks of a result, and logs what they have to say about it.
func (r *Runner) heard(ctx context.Context, l landing) []thread.Body {
	if r.c.Hook == nil || l.result == nil {
		return nil
	}
	about := hook.ToolCall{Moment: r.moment(), ID: l.call.ID, Name: l.call.Name, Args: l.call.EffectiveArgs()}
	v := r.asked(r.c.Hook.AfterTool(ctx, hook.ToolReply{ToolCall: about, Result: *l.result}))
	bodies := r.contexts(v)
	if v.Action == hook.Deny && v.Reason != "" {
		bodies = append(bodies, thread.Input{From: "hook", Name: l.call.Name, Blocks: []llm.Block{llm.Text(clip.Text(v.Reason, textMax))}})
	}
	if l.call.Name == TaskTool {
		_, more := r.notify(ctx, hook.Event{Name: hook.OnSubagentStop, Text: llm.Message{Blocks: l.result.Blocks}.String()})
		bodies = append(bodies, more...)
	}
	return bodies
}
