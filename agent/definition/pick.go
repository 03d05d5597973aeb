package definition

import (
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Picks reports whether a list of patterns means a tool: names, globs
// ("mcp_*"), and exceptions ("!execute"). The last pattern that matches
// decides; a list that has only exceptions, or nothing, means all else.
func Picks(patterns []string, name string) bool {
	in := true
	for _, p := range patterns {
		if !strings.HasPrefix(p, "!") {
			in = false
			break
		}
	}
	for _, p := range patterns {
		if bare, not := strings.CutPrefix(p, "!"); pick(bare, name) {
			in = !not
		}
	}
	return in
}

func pick(pattern, name string) bool {
	ok, err := doublestar.Match(pattern, name)
	return ok && err == nil
}

// Uses reports whether the agent has the tool, if there is one of this name.
func (d Definition) Uses(name string) bool { return Picks(d.Tools, name) }

// NotInSandbox says why the agent cannot work in its sandbox itself; "" = it can.
func (d Definition) NotInSandbox() string {
	switch {
	case d.Program != nil:
		return "a program works in its sandbox in any case"
	case d.Sandbox["none"] == true:
		return "this agent has no sandbox"
	case d.HostHooks():
		return "its hooks on the host would be asked for by what is in a sandbox"
	case slices.ContainsFunc(d.Hooks, func(h CommandHook) bool { return h.Plugin != "" }):
		return "its hooks are plug-ins, which are in sandboxes of their own"
	}
	return ""
}

// HostHooks reports whether the agent, or one that it may start, wants to run
// hooks outside of the sandbox: only files of the server's own folder may.
func (d Definition) HostHooks() bool {
	for _, h := range d.Hooks {
		if h.Where == "host" {
			return true
		}
	}
	for _, sub := range d.Subagents {
		if sub.HostHooks() {
			return true
		}
	}
	return false
}
