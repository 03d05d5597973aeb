// Package policy decides whether a tool call may run, must be approved by a
// person, or is refused, from rules that people write in agents' files.
//
//	v := policy.Decide(rules, policy.Call{Tool: "execute", Command: "git push && make", Touches: …})
//	switch v.Action { case definition.Ask: … }
//	rule, err := policy.RuleFor(call) // "always allow this", and nothing else
//
// A rule matches a call by its tool, the paths that the call touches and the
// shell commands that it would run (package shell takes the line apart); what a
// rule leaves out matches all. A call with several paths or commands is decided
// for each of them, the first rule that matches holding, and the strictest
// answer wins: deny, then ask, then allow. Nothing matches: allow, except for
// tools that take back other people's work (unasked), which ask.
//
// Allowing and refusing are not mirror images. A rule that allows matches only
// what can be nothing else. A rule that asks or denies matches what may be
// meant: a directory above a protected path that is deleted or searched, a
// program by any path, a word that only shows at run time, a line that could
// not be understood. Paths bind the tools that name their paths; what a shell
// command does with files is not seen here.
//
// Everything is pure: the same rules and call give the same verdict.
package policy

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/policy/shell"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Call is what is to be decided about.
type Call struct {
	Tool    string
	Args    json.RawMessage
	Touches []tool.Touch
	Command string // the shell line that it runs, "" = none
	Unasked string // why the call does not run unasked when no rule is about it; "" = it does
}

// Verdict is the answer.
type Verdict struct {
	Action    string // definition.Allow, Ask or Deny
	Reason    string // of the rule, "" = it gives none
	Decisions []thread.Decision
	Expires   time.Duration // after it was asked; 0 = never
	Rule      int           // which one decided; -1 = none did
	By        string        // of the grants that answered in place of a person, "" = none did
}

// decisions that a person has when a rule says nothing about it.
var decisions = []thread.Decision{thread.Approve, thread.Edit, thread.Reject, thread.Respond}

// Grant is what was approved beforehand.
type Grant struct {
	By    string            // what is written down as the one that approved
	Rules []definition.Rule // those that allow count
}

// Decide applies the rules. Where they ask, a grant that covers what is asked about answers
// in place of a person; what they deny stays denied.
func Decide(rules []definition.Rule, c Call, grants ...Grant) Verdict {
	verdict, decided := Verdict{Action: definition.Allow, Rule: -1}, false
	var by []string
	for _, u := range unitsOf(c) {
		v := first(rules, c, u)
		if v.Rule < 0 && u.command != nil && u.command.Passing {
			continue // decided with what it starts
		}
		if v.Action == definition.Ask {
			if g := granted(grants, c, u, v); g != "" {
				v.Action = definition.Allow
				if !slices.Contains(by, g) {
					by = append(by, g)
				}
			}
		}
		if !decided || rank(v.Action) > rank(verdict.Action) {
			verdict, decided = v, true
		}
	}
	if verdict.Action == definition.Allow {
		verdict.By = strings.Join(by, ", ")
	}
	return verdict
}

// granted returns whose grant covers a unit that is asked about, "" = none does. A rule that
// lets a person not simply approve is not answered by one.
func granted(grants []Grant, c Call, u unit, asked Verdict) string {
	if !slices.Contains(asked.Decisions, thread.Approve) {
		return ""
	}
	for _, g := range grants {
		for _, r := range g.Rules {
			if r.Action == definition.Allow && isFor(r, c) && u.matches(r, c.Tool) {
				return g.By
			}
		}
	}
	return ""
}

func rank(action string) int {
	return slices.Index([]string{definition.Allow, definition.Ask, definition.Deny}, action)
}

// unit is one thing that a call does: at most one path and one command.
type unit struct {
	touch   *tool.Touch
	command *shell.Command
	opaque  bool // a part of a line that was not understood
}

// unitsOf takes a call apart. There is at least one.
func unitsOf(c Call) []unit {
	commands := []unit{{}}
	if c.Command != "" {
		commands = commands[:0]
		script := shell.Parse(c.Command)
		for i := range script.Commands {
			commands = append(commands, unit{command: &script.Commands[i]})
		}
		if script.Opaque != "" {
			commands = append(commands, unit{opaque: true})
		}
		if len(commands) == 0 {
			commands = append(commands, unit{command: &shell.Command{}}) // a comment
		}
	}
	if len(c.Touches) == 0 {
		return commands
	}
	var units []unit
	for _, t := range c.Touches {
		t.Path = path.Clean("/" + t.Path)
		for _, u := range commands {
			u.touch = &t
			units = append(units, u)
		}
	}
	return units
}

// sameAs are tools that are another one under a second name: what a rule says
// about one it says about both.
var sameAs = map[string]string{"run_command": "execute", "list_files": "ls"}

// unasked are tools that do not run unasked when no rule is about them, with why.
var unasked = map[string]string{
	"undo_changes": "It takes back all that changed in the files since, also what others changed.",
}

// runsToo are tools that run a command beside what else they do. For their
// commands a rule that asks about execute, or denies it, holds too, and one
// that allows leaves them out with execute unless it names them.
var runsToo = []string{"service"}

// isFor reports whether a rule is about a tool.
func isFor(r definition.Rule, c Call) bool {
	name := c.Tool
	if c.Command != "" && slices.Contains(runsToo, name) {
		commands, own := definition.Picks(r.Tools, "execute"), definition.Picks(r.Tools, name)
		if r.Action != definition.Allow {
			return commands || own
		}
		return own && (commands || slices.Contains(r.Tools, name))
	}
	if first, ok := sameAs[name]; ok {
		return definition.Picks(r.Tools, first) || slices.Contains(r.Tools, name)
	}
	return definition.Picks(r.Tools, name)
}

// first finds the rule that holds for a unit.
func first(rules []definition.Rule, c Call, u unit) Verdict {
	for i, r := range rules {
		if !isFor(r, c) || !u.matches(r, c.Tool) {
			continue
		}
		v := Verdict{Action: r.Action, Reason: r.Reason, Rule: i}
		switch r.Action {
		case definition.Allow, definition.Deny:
		default: // a rule that is not understood is one that a person should look at
			v.Action, v.Decisions, v.Expires = definition.Ask, r.Decisions, r.Expires
			if len(v.Decisions) == 0 {
				v.Decisions = slices.Clone(decisions)
			}
		}
		return v
	}
	if why := cmp.Or(unasked[c.Tool], c.Unasked); why != "" {
		return Verdict{Action: definition.Ask, Reason: why, Decisions: slices.Clone(decisions), Rule: -1}
	}
	return Verdict{Action: definition.Allow, Rule: -1}
}

func (u unit) matches(r definition.Rule, tool string) bool {
	strict := r.Action != definition.Allow // what may be meant is matched too
	if len(r.Paths) > 0 && (u.touch == nil || !anyPath(r.Paths, *u.touch, tool, strict)) {
		return false
	}
	if len(r.Commands) == 0 {
		return u.command == nil || !u.command.Passing
	}
	switch {
	case u.opaque:
		return strict
	case u.command == nil:
		return false
	}
	return slices.ContainsFunc(r.Commands, func(pattern string) bool {
		p, err := shell.ParsePattern(pattern)
		switch {
		case err != nil:
			return strict
		case strict:
			return p.Hits(*u.command)
		}
		return p.Covers(*u.command)
	})
}

func anyPath(globs []string, t tool.Touch, tool string, strict bool) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		glob = absolute(glob)
		ok, err := doublestar.Match(glob, t.Path)
		switch {
		case err != nil:
			return strict
		case ok:
			return true
		}
		// Deleting or moving a directory, and searching it, reaches what is beneath.
		return strict && (t.Write || tool == "grep") && reaches(glob, t.Path)
	})
}

// absolute completes a pattern: a bare name is meant anywhere, other relative
// ones are beneath the workspace.
func absolute(glob string) string {
	switch {
	case strings.HasPrefix(glob, "/"):
		return glob
	case strings.Contains(glob, "/"):
		return "/workspace/" + strings.TrimPrefix(glob, "./")
	}
	return "/**/" + glob
}

// reaches reports whether a glob may match something beneath a directory. It
// compares part by part and says yes when it cannot know.
func reaches(glob, dir string) bool {
	if strings.ContainsAny(glob, "{}") {
		return true // alternatives may hold slashes
	}
	parts := strings.Split(strings.TrimPrefix(glob, "/"), "/")
	if dir == "/" {
		return true
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(dir, "/"), "/") {
		if len(parts) == 0 {
			return false
		}
		if parts[0] == "**" {
			return true
		}
		if ok, err := doublestar.Match(parts[0], name); !ok && err == nil {
			return false
		}
		parts = parts[1:]
	}
	return len(parts) > 0
}
