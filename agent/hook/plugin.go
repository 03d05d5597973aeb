package hook

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skete-dev/skete/agent/definition"
)

// This file asks plug-ins about events.

// Plugins are the plug-ins of one tenant.
type Plugins interface {
	// Hooks returns what a plug-in wants to hear of: events and tools. NotFound.
	Hooks(name string) ([]definition.CommandHook, error)
	// Hook sends a plug-in an event and returns its decision, as a command would write it;
	// nil = nothing. An error: it did not answer.
	Hook(ctx context.Context, name string, event json.RawMessage, timeout time.Duration) (json.RawMessage, error)
}

// asked is a hook for one event.
type asked struct {
	definition.CommandHook
	declared []string // the tools that the plug-in wants to hear of, beside those of the file
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
		var declared []definition.CommandHook
		if plugins != nil {
			declared, _ = plugins.Hooks(h.Plugin) // asking it says what is wrong
		}
		if len(declared) == 0 {
			for _, event := range definition.HookEvents {
				declared = append(declared, definition.CommandHook{Event: event})
			}
		}
		for _, d := range declared {
			if h.Event == "" || h.Event == d.Event {
				one := asked{h, d.Tools}
				one.Event = d.Event
				out = append(out, one)
			}
		}
	}
	return out
}

// consult asks a plug-in.
func (c *commands) consult(ctx context.Context, h definition.CommandHook, event json.RawMessage, timeout time.Duration) Verdict {
	if c.plugins == nil {
		return warning(h, "there are no plug-ins here")
	}
	answer, err := c.plugins.Hook(ctx, h.Plugin, event, timeout)
	switch {
	case err != nil:
		return warning(h, "%v", err)
	case len(answer) == 0:
		return Verdict{}
	case answer[0] != '{':
		return unclear(h, "its answer is no JSON object")
	}
	return read(h, answer)
}
