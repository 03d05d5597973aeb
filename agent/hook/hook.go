// Package hook lets others look at and decide about what an agent does: Go code
// by the Hook interface, programs by Commands.
//
//	type audit struct{ hook.Base }
//	func (audit) BeforeTool(ctx context.Context, c hook.ToolCall) (hook.Verdict, error) {
//		if c.Name == "delete" { return hook.Verdict{Action: hook.Ask, Reason: "a deletion"}, nil }
//		return hook.Verdict{}, nil
//	}
//	h := hook.Chain(audit{}, hook.Commands(agent.Hooks, runner, plugins, "/workspace"))
//
// A prompt is a function of the thread's log, so a hook never changes a request
// behind its back. It answers with a Verdict; what the model shall read (Context)
// and what runs (Args) is written to the log by the agent before it counts.
//
// A hook that breaks decides nothing: its failure is a warning. What must hold
// in any case belongs into the approvals of the agent. A plug-in that is to decide about a
// call and cannot be asked refuses it, unless its manifest says otherwise.
//
// Hooks are called from the goroutine that drives the thread, AroundTool's
// function from those of the calls; a Hook that serves several threads has to be
// safe for concurrent use. Chain and Commands are.
package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Events, by the names of Claude Code's hooks.
const (
	OnThreadStart        = "SessionStart"       // a thread begins or goes on; Text = "startup" or "resume"
	OnUserPromptSubmit   = "UserPromptSubmit"   // Text = what the user sent
	OnPreToolUse         = "PreToolUse"         // BeforeTool
	OnPostToolUse        = "PostToolUse"        // AfterTool of a call that worked
	OnPostToolUseFailure = "PostToolUseFailure" // AfterTool of a call that did not
	OnPreCompact         = "PreCompact"         // a summary will replace the beginning; Text = "auto" or "manual"
	OnStop               = "Stop"               // the run would end; Text = the last words
	OnSubagentStart      = "SubagentStart"      // Sub = its agent, Text = its task
	OnSubagentStop       = "SubagentStop"       // Sub = its agent, Text = its last words
)

// contextBytesMax bounds what hooks tell the model at once.
const contextBytesMax = 16 << 10

// Action is what a hook wants, mildest first.
type Action string

// Actions. Stop ends the run; the others are about the call, or for a Stop
// event about the end: Deny means to go on.
const (
	None  Action = ""
	Allow Action = "allow" // also if a rule would ask
	Ask   Action = "ask"   // a person decides
	Deny  Action = "deny"
	Stop  Action = "stop"
)

func (a Action) rank() int { return slices.Index([]Action{None, Allow, Ask, Deny, Stop}, a) }

// Verdict is a hook's answer. The zero value means nothing to say.
type Verdict struct {
	Action Action
	Reason string // for the model with Deny, for people with Ask and Stop
	// Args are other arguments for the call, nil = as they are.
	Args json.RawMessage
	// Context is for the model: the agent logs it as an input from "hook".
	Context string
	// Warnings are what went wrong with hooks; they are for the operator.
	Warnings []string
	// Skipped tells of plug-ins that were passed over, for the run.
	Skipped []string
}

// and adds a later hook's answer: the stricter action, its arguments, both texts.
func (v Verdict) and(w Verdict) Verdict {
	if w.Action.rank() > v.Action.rank() {
		v.Action, v.Reason = w.Action, w.Reason
	}
	if w.Args != nil {
		v.Args = w.Args
	}
	v.Context = clip.Text(strings.TrimSpace(strings.TrimPrefix(v.Context+"\n\n"+w.Context, "\n\n")), contextBytesMax)
	v.Warnings = append(slices.Clip(v.Warnings), w.Warnings...)
	v.Skipped = append(slices.Clip(v.Skipped), w.Skipped...)
	return v
}

// Moment says where something happens.
type Moment struct {
	Thread thread.ID
	Run    thread.RunID
	Agent  string // its name
	Step   int    // of the run, from 1; 0 = before the first
}

// At is the moment in another step.
func (m Moment) At(step int) Moment {
	m.Step = step
	return m
}

// ModelCall is about to be made.
type ModelCall struct {
	Moment
	Tokens int // of the prompt, estimated
}

// ModelReply came back and is in the log.
type ModelReply struct {
	Moment
	Message llm.Message
}

// ToolCall is about to be made.
type ToolCall struct {
	Moment
	ID   string
	Name string
	Args json.RawMessage
	// Again: an earlier driver has started it, as the log says, and may have done
	// any part of it.
	Again bool
	// Settle, with Again, is why nothing new may begin: the call ends with what
	// the earlier run did, as far as that is known. "" = it may.
	Settle string
}

// ToolReply came back; the hooks hear of it before the model does.
type ToolReply struct {
	ToolCall
	Result tool.Result
}

// Event is something else that happens: SessionStart, UserPromptSubmit,
// PreCompact, Stop, SubagentStart, SubagentStop.
type Event struct {
	Moment
	Name string
	Text string
	Sub  string
	// Again: a Stop that was denied before; a hook that denies for ever would
	// never let the run end.
	Again bool
}

// RunTool runs a call.
type RunTool func(ctx context.Context, c ToolCall) (tool.Result, error)

// Hook looks and decides. An error means that the hook broke: it is logged and
// decides nothing.
type Hook interface {
	// BeforeModel is asked before each model call. Deny and Stop end the run.
	BeforeModel(ctx context.Context, c ModelCall) (Verdict, error)
	// AfterModel hears each whole answer. Stop ends the run.
	AfterModel(ctx context.Context, r ModelReply) (Verdict, error)
	// BeforeTool is asked before each call is put before the rules, once a call.
	BeforeTool(ctx context.Context, c ToolCall) (Verdict, error)
	// AfterTool hears each result; a reason to deny is told to the model.
	AfterTool(ctx context.Context, r ToolReply) (Verdict, error)
	// AroundTool wraps the run of a tool; next, or a function that calls it.
	AroundTool(next RunTool) RunTool
	// Notice hears everything else.
	Notice(ctx context.Context, e Event) Verdict
}

// Base is a Hook that does nothing, to be embedded.
type Base struct{}

// BeforeModel implements Hook.
func (Base) BeforeModel(context.Context, ModelCall) (Verdict, error) { return Verdict{}, nil }

// AfterModel implements Hook.
func (Base) AfterModel(context.Context, ModelReply) (Verdict, error) { return Verdict{}, nil }

// BeforeTool implements Hook.
func (Base) BeforeTool(context.Context, ToolCall) (Verdict, error) { return Verdict{}, nil }

// AfterTool implements Hook.
func (Base) AfterTool(context.Context, ToolReply) (Verdict, error) { return Verdict{}, nil }

// AroundTool implements Hook.
func (Base) AroundTool(next RunTool) RunTool { return next }

// Notice implements Hook.
func (Base) Notice(context.Context, Event) Verdict { return Verdict{} }

// chain asks several hooks in turn.
type chain []Hook

// Chain asks hooks in their order, each seeing the arguments that the one
// before it wrote. The strictest action wins: stop, deny, ask, allow; after a
// deny or stop the rest is not asked. A hook that fails is skipped with a
// warning. The first is the outermost around tools. nil hooks are left out.
func Chain(hooks ...Hook) Hook {
	var c chain
	for _, h := range hooks {
		switch h := h.(type) {
		case nil:
		case chain:
			c = append(c, h...)
		default:
			c = append(c, h)
		}
	}
	return c
}

// each asks the hooks in turn until one refuses.
func (c chain) each(ask func(h Hook, soFar Verdict) (Verdict, error)) Verdict {
	var v Verdict
	for _, h := range c {
		w, err := ask(h, v)
		if err != nil {
			w = Verdict{Warnings: []string{fmt.Sprintf("a hook failed: %v", err)}}
		}
		if v = v.and(w); v.Action.rank() >= Deny.rank() {
			break
		}
	}
	return v
}

func (c chain) BeforeModel(ctx context.Context, call ModelCall) (Verdict, error) {
	return c.each(func(h Hook, _ Verdict) (Verdict, error) { return h.BeforeModel(ctx, call) }), nil
}

func (c chain) AfterModel(ctx context.Context, r ModelReply) (Verdict, error) {
	return c.each(func(h Hook, _ Verdict) (Verdict, error) { return h.AfterModel(ctx, r) }), nil
}

func (c chain) BeforeTool(ctx context.Context, call ToolCall) (Verdict, error) {
	return c.each(func(h Hook, soFar Verdict) (Verdict, error) {
		if soFar.Args != nil {
			call.Args = soFar.Args
		}
		return h.BeforeTool(ctx, call)
	}), nil
}

func (c chain) AfterTool(ctx context.Context, r ToolReply) (Verdict, error) {
	return c.each(func(h Hook, _ Verdict) (Verdict, error) { return h.AfterTool(ctx, r) }), nil
}

func (c chain) AroundTool(next RunTool) RunTool {
	for _, h := range slices.Backward(c) {
		next = h.AroundTool(next)
	}
	return next
}

func (c chain) Notice(ctx context.Context, e Event) Verdict {
	return c.each(func(h Hook, _ Verdict) (Verdict, error) { return h.Notice(ctx, e), nil })
}
