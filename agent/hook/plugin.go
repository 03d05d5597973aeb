package hook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
)

// This file asks plug-ins about events.

// Plugins are the plug-ins of one tenant.
type Plugins interface {
	// Hooks returns what a plug-in wants to hear of. NotFound.
	Hooks(name string) ([]Declared, error)
	// Hook sends a plug-in an event and returns its decision, as a command would write it;
	// nil = nothing. An error: it did not answer.
	Hook(ctx context.Context, name string, event json.RawMessage, timeout time.Duration) (json.RawMessage, error)
}

// Declared is an event that a plug-in wants to hear of, as its manifest says.
type Declared struct {
	Event     string
	Tools     []string // names or globs; empty = all
	OnFailure Failure  // "" = as FailureOf says
}

// Failure is what happens when a plug-in cannot be asked.
type Failure string

// Failures.
const (
	FailDeny Failure = "deny" // what it is about does not happen
	FailAsk  Failure = "ask"  // a person decides
	FailSkip Failure = "skip" // it happens, and the run tells that the plug-in was not asked
)

// FailureOf is what happens without a word of the manifest: a plug-in that is to decide is not
// passed over because it broke.
func FailureOf(event string) Failure {
	if event == OnPreToolUse || event == OnUserPromptSubmit {
		return FailDeny
	}
	return FailSkip
}

// asked is a hook for one event.
type asked struct {
	definition.CommandHook
	declared  []string // the tools that the plug-in wants to hear of, beside those of the file
	onFailure Failure  // of a plug-in
}

// means reports whether the hook is about an event, and about the tool of that.
func (a asked) means(event, tool string) bool {
	return a.Event == event && (tool == "" || definition.Picks(a.Tools, tool) && definition.Picks(a.declared, tool))
}

// withPlugins puts the events of plug-ins in place of the hooks that name them. The events and
// tools of an agent's file bound those of the plug-in. One that is not there stays, for every
// event that is meant, so that each tells of it.
func withPlugins(hooks []definition.CommandHook, plugins Plugins) []asked {
	var out []asked
	for _, h := range hooks {
		if h.Plugin == "" {
			out = append(out, asked{CommandHook: h})
			continue
		}
		var declared []Declared
		if plugins != nil {
			declared, _ = plugins.Hooks(h.Plugin) // asking it says what is wrong
		}
		if len(declared) == 0 {
			for _, event := range definition.HookEvents {
				declared = append(declared, Declared{Event: event})
			}
		}
		for _, d := range declared {
			if h.Event == "" || h.Event == d.Event {
				one := asked{h, d.Tools, cmp.Or(d.OnFailure, FailureOf(d.Event))}
				one.Event = d.Event
				out = append(out, one)
			}
		}
	}
	return out
}

// consult asks a plug-in.
func (c *commands) consult(ctx context.Context, h asked, event json.RawMessage, timeout time.Duration) Verdict {
	if c.plugins == nil {
		return h.broken(warning(h, "there are no plug-ins here"), "there are no plug-ins here")
	}
	answer, err := c.plugins.Hook(ctx, h.Plugin, event, timeout)
	switch {
	case err != nil:
		return h.broken(warning(h, "%v", err), failureText(err))
	case len(answer) == 0:
		return Verdict{}
	case answer[0] != '{':
		return unclear(h, "its answer is no JSON object")
	}
	return read(h, answer)
}

// broken makes of a plug-in's failure what its manifest says.
func (a asked) broken(v Verdict, why string) Verdict {
	switch a.onFailure {
	case FailDeny, FailAsk:
		v.Action, v.Reason = Deny, "the plug-in "+a.Plugin+" decides about this and cannot be asked: "+why
		if a.onFailure == FailAsk {
			v.Action = Ask
		}
	default:
		v.Skipped = []string{"The plug-in " + a.Plugin + " was not asked about " + a.Event + ": " + why}
	}
	return v
}

// failureBytesMax bounds what a run tells of a plug-in's failure.
const failureBytesMax = 500

// failureText is a failure for the model and for people: no path of the host is in it.
func failureText(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "it did not answer in time"
	}
	return clip.Line(errs.Public(err), failureBytesMax)
}
