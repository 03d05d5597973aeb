package policy

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/policy/shell"
	"github.com/skete-dev/skete/errs"
)

// ruleMax bounds the paths or commands of a rule that is made.
const ruleMax = 32

// RuleFor makes the rule for "always allow this": the tool with exactly these
// paths and exactly these commands. A tool that names neither is allowed as a
// whole. Invalid: the command cannot be allowed for ever, because it depends
// on run time, writes files by redirection, or was not understood.
func RuleFor(c Call) (definition.Rule, error) {
	r := definition.Rule{Action: definition.Allow, Tools: []string{literal(c.Tool)}}
	for _, t := range c.Touches {
		if p := literal(t.Path); !slices.Contains(r.Paths, p) {
			r.Paths = append(r.Paths, p)
		}
	}
	if c.Command != "" {
		script := shell.Parse(c.Command)
		if script.Opaque != "" {
			return definition.Rule{}, forever("skete does not understand all of it: %s", script.Opaque)
		}
		for _, command := range script.Commands {
			if command.Passing {
				continue
			}
			pattern, ok := shell.Exact(command)
			if !ok || !utf8.ValidString(pattern) {
				return definition.Rule{}, forever("what it does depends on variables or files, or it writes a file by redirection")
			}
			if !slices.Contains(r.Commands, pattern) {
				r.Commands = append(r.Commands, pattern)
			}
		}
		if len(r.Commands) == 0 {
			return definition.Rule{}, forever("there is no command in it")
		}
	}
	if len(r.Paths) > ruleMax || len(r.Commands) > ruleMax {
		return definition.Rule{}, forever("it is too long")
	}
	if v := Decide([]definition.Rule{r}, c); v.Rule != 0 {
		return definition.Rule{}, forever("no rule describes it")
	}
	return r, nil
}

func forever(format string, args ...any) error {
	e := errs.New(errs.Invalid, format, args...)
	e.Msg = "this call cannot be allowed for ever: " + e.Msg
	return e.WithHint("approve it once, or write a rule into the agent's file")
}

// literal takes the meaning from the special characters of globs.
func literal(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune(`*?[]{}\!`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
