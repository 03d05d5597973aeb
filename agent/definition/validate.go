package definition

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/skete-dev/skete/agent/policy/shell"
	"github.com/skete-dev/skete/internal/yamlfile"
	"github.com/skete-dev/skete/thread"
)

// Bounds of a definition.
const (
	nameMax        = 64
	descriptionMax = 1024
	rulesMax       = 256
	hooksMax       = 32
	memoryMax      = 16
	parallelMax    = 64
	repeatsMin     = 3
	repeatsMax     = 500
	hookTimeoutMax = 10 * time.Minute
	afterWaitMax   = 7 * 24 * time.Hour

	programBytesMax = 16 << 10
)

// HookEvents are the events that command hooks can be told of.
var HookEvents = []string{
	"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure",
	"PreCompact", "Stop", "SubagentStart", "SubagentStop",
}

// Problem is something that is wrong with a definition, or (Warning) that is
// probably not what was meant. Path says where: "approvals[0].action".
type Problem struct {
	Path    string `json:"path"`
	Text    string `json:"text"`
	Warning bool   `json:"warning,omitempty"`
}

// String returns "path: text".
func (p Problem) String() string {
	if p.Path == "" {
		return p.Text
	}
	return p.Path + ": " + p.Text
}

// Validate looks for problems. knownTools are the names of the tools that
// there are; nil leaves that check out.
func Validate(d Definition, knownTools []string) []Problem {
	return Checker{Tools: knownTools}.Validate(d)
}

// Validate is the function Validate with these tools.
func (c Checker) Validate(d Definition) []Problem {
	v := &validator{Checker: c}
	v.identity(d)
	v.choices(d)
	v.limits(d.Limits)
	v.tools("tools", d.Tools)
	v.patterns("skills", d.Skills)
	v.agents(d)
	v.rules(d)
	v.hooks(d.Hooks)
	v.files(d)
	v.program(d)
	v.inSandbox(d)
	v.subagents(d)
	return v.found
}

type validator struct {
	Checker
	found []Problem
}

func (v *validator) fail(path, format string, args ...any) {
	v.found = append(v.found, Problem{Path: path, Text: fmt.Sprintf(format, args...)})
}

func (v *validator) warn(path, format string, args ...any) {
	v.found = append(v.found, Problem{Path: path, Text: fmt.Sprintf(format, args...), Warning: true})
}

func isName(s string) bool {
	if s == "" || len(s) > nameMax || s[0] == '-' || s[len(s)-1] == '-' || strings.Contains(s, "--") {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func (v *validator) name(path, s string) {
	if !isName(s) {
		v.fail(path, "%.80q is no name; use 1 to %d of a-z, 0-9 and single hyphens", s, nameMax)
	}
}

func (v *validator) identity(d Definition) {
	v.name("name", d.Name)
	if n := len(d.Description); n > descriptionMax {
		v.fail("description", "longer than %d characters", descriptionMax)
	}
	if d.Plan != "" {
		v.name("plan", d.Plan)
	}
}

func (v *validator) choices(d Definition) {
	v.oneOf("calling", d.Calling, "native", "json")
	v.oneOf("effort", d.Effort, "low", "medium", "high")
	v.oneOf("after_run.sandbox", d.AfterRun.Sandbox, AfterStop, AfterRemove, AfterKeep)
	if w := d.AfterRun.Wait; w < 0 || w > afterWaitMax {
		v.fail("after_run.wait", "a time from 0 to %.0fh", afterWaitMax.Hours())
	}
	if d.AfterRun.Wait != 0 && d.AfterRun.Sandbox == AfterKeep {
		v.warn("after_run.wait", "it means nothing with `sandbox: keep`")
	}
	if d.Result != nil {
		if _, err := compileResultMap(d.Result); err != nil {
			v.fail("result", "%v", err)
		}
	}
}

func (v *validator) oneOf(path, s string, allowed ...string) {
	if s != "" && !slices.Contains(allowed, s) {
		v.fail(path, "%.60q is not one of %s%s", s, strings.Join(allowed, ", "), yamlfile.Suggest(s, allowed))
	}
}

func (v *validator) limits(l Limits) {
	for _, limit := range []struct {
		path string
		n    float64
	}{
		{"steps", float64(l.Steps)},
		{"tokens", float64(l.Tokens)},
		{"cost_usd", l.CostUSD},
		{"wall", float64(l.Wall)},
		{"parallel_max", float64(l.ParallelMax)},
		{"window_tokens", float64(l.WindowTokens)},
		{"result_tokens_max", float64(l.ResultTokensMax)},
		{"tool_timeout", float64(l.ToolTimeout)},
		{"repeats_max", float64(l.RepeatsMax)},
	} {
		if !(limit.n >= 0) { // not a number is none either
			v.fail("limits."+limit.path, "a limit is not below 0; leave the key out for the default")
		}
	}
	if l.ParallelMax > parallelMax {
		v.fail("limits.parallel_max", "at most %d", parallelMax)
	}
	if n := l.RepeatsMax; n > 0 && n < repeatsMin || n > repeatsMax {
		v.fail("limits.repeats_max", "%d to %d", repeatsMin, repeatsMax)
	}
	if l.WindowTokens > 0 && l.WindowTokens < 4096 {
		v.warn("limits.window_tokens", "a window of %d tokens hardly holds the instructions and the tools", l.WindowTokens)
	}
}

// tools checks patterns against what there is.
func (v *validator) tools(path string, patterns []string) {
	for i, p := range patterns {
		at := fmt.Sprintf("%s[%d]", path, i)
		bare := strings.TrimPrefix(p, "!")
		switch {
		case bare == "" || len(bare) > nameMax || !doublestar.ValidatePattern(bare):
			v.fail(at, "%.80q is no name of a tool, nor a pattern of names", p)
		case v.Tools == nil || v.Covers != nil && v.Covers(bare):
		case strings.ContainsAny(bare, "*?[{"):
			if !slices.ContainsFunc(v.Tools, func(name string) bool { return pick(bare, name) }) {
				v.warn(at, "no tool matches %q", p)
			}
		case !slices.Contains(v.Tools, bare):
			v.fail(at, "there is no tool %q%s", bare, yamlfile.Suggest(bare, v.Tools))
		}
	}
}

func (v *validator) agents(d Definition) {
	for i, name := range d.Agents {
		at := fmt.Sprintf("agents[%d]", i)
		v.name(at, name)
		if slices.Index(d.Agents, name) < i {
			v.fail(at, "%q is there twice", name)
		}
	}
	if len(d.Agents) > 0 && !d.Uses("task") {
		v.warn("agents", "the agent has no tool `task`, so it can start none of them")
	}
}

func (v *validator) rules(d Definition) {
	if len(d.Rules) > rulesMax {
		v.fail("approvals", "more than %d rules", rulesMax)
		return
	}
	for i, r := range d.Rules {
		at := fmt.Sprintf("approvals[%d]", i)
		v.rule(at, r)
		if j := slices.IndexFunc(d.Rules[:i], func(r Rule) bool { return len(r.Tools)+len(r.Paths)+len(r.Commands) == 0 }); j >= 0 {
			v.warn(at, "never reached: approvals[%d] is for every call", j)
		}
		if r.Action == Deny && len(r.Paths) > 0 && len(r.Commands) == 0 && d.Uses("execute") && Picks(r.Tools, "execute") {
			v.warn(at+".paths", "paths bind the file tools; what a command of `execute` does with them is not seen")
		}
	}
}

func (v *validator) rule(at string, r Rule) {
	if r.Action == "" {
		v.fail(at+".action", "a rule needs an action: allow, deny or ask")
	}
	v.oneOf(at+".action", r.Action, Allow, Deny, Ask)
	v.tools(at+".tools", r.Tools)
	for i, p := range r.Paths {
		if p == "" || !doublestar.ValidatePattern(p) {
			v.fail(fmt.Sprintf("%s.paths[%d]", at, i), "%.80q is no pattern of paths", p)
		}
	}
	for i, c := range r.Commands {
		if _, err := shell.ParsePattern(c); err != nil {
			v.fail(fmt.Sprintf("%s.commands[%d]", at, i), "%.80q is no pattern of commands: %v", c, err)
		}
	}
	for i, c := range r.Decisions {
		v.oneOf(fmt.Sprintf("%s.decisions[%d]", at, i), string(c),
			string(thread.Approve), string(thread.Edit), string(thread.Reject), string(thread.Respond))
		if c == "" {
			v.fail(fmt.Sprintf("%s.decisions[%d]", at, i), "a decision is approve, edit, reject or respond")
		}
	}
	if r.Expires < 0 {
		v.fail(at+".expires", "a time is not below 0")
	}
	if r.Action != Ask && (len(r.Decisions) > 0 || r.Expires > 0) {
		v.warn(at, "decisions and expires mean something only with `action: ask`")
	}
}

func (v *validator) hooks(hooks []CommandHook) {
	if len(hooks) > hooksMax {
		v.fail("hooks", "more than %d hooks", hooksMax)
	}
	for i, h := range hooks {
		at := fmt.Sprintf("hooks[%d]", i)
		v.pluginHook(at, h)
		if h.Event == "" && h.Plugin == "" {
			v.fail(at+".event", "a hook needs an event: %s", strings.Join(HookEvents, ", "))
		}
		v.oneOf(at+".event", h.Event, HookEvents...)
		if h.Plugin == "" && (len(h.Command) == 0 || h.Command[0] == "") {
			v.fail(at+".command", "a hook needs a command: a list of the program and its arguments")
		}
		v.oneOf(at+".where", h.Where, "sandbox", "host")
		if h.Timeout < 0 || h.Timeout > hookTimeoutMax {
			v.fail(at+".timeout", "at most %v", hookTimeoutMax)
		}
		v.tools(at+".tools", h.Tools)
		if len(h.Tools) > 0 && h.Event != "" && !strings.Contains(h.Event, "ToolUse") {
			v.warn(at+".tools", "%s is not about a tool", h.Event)
		}
	}
}

// pluginHook looks at a hook that is a plug-in's. Which there are, and what they want to hear
// of, the server knows.
func (v *validator) pluginHook(at string, h CommandHook) {
	if h.Plugin == "" {
		return
	}
	v.name(at+".plugin", h.Plugin)
	if len(h.Command) > 0 {
		v.fail(at+".command", "a hook is a command or a plug-in, not both")
	}
	if h.Where != "" {
		v.fail(at+".where", "a plug-in runs in a sandbox of its own")
	}
}

// inSandbox looks for what an agent cannot have that works in its sandbox itself.
func (v *validator) inSandbox(d Definition) {
	if why := d.NotInSandbox(); d.InSandbox && why != "" {
		v.fail("in_sandbox", "%s", why)
	}
}

// program looks at what works in the place of a model, and for what means nothing then.
func (v *validator) program(d Definition) {
	p := d.Program
	if p == nil {
		return
	}
	if strings.TrimSpace(p.Command) == "" {
		v.fail("program.command", "a program needs a command: a line of the shell")
	}
	if len(p.Command) > programBytesMax || strings.ContainsRune(p.Command, 0) {
		v.fail("program.command", "at most %d bytes, none of them NUL", programBytesMax)
	}
	if p.Timeout < 0 || p.Timeout > ProgramTimeoutMax {
		v.fail("program.timeout", "a time up to %v", ProgramTimeoutMax)
	}
	v.oneOf("program.events", p.Events, EventsJSONL)
	if d.Sandbox["none"] == true {
		v.fail("program", "a program works in a sandbox, and this agent has none")
	}
	if !d.Uses("execute") {
		v.fail("tools", "a program is run by the tool execute")
	}
	for _, means := range []struct {
		path string
		is   bool
	}{{"model", d.Model != ""}, {"instructions", d.Instructions != ""}, {"agents", len(d.Agents) > 0}, {"result", d.Result != nil}, {"calling", d.Calling != ""}, {"effort", d.Effort != ""}} {
		if means.is {
			v.fail(means.path, "it means nothing to a program, which finds its own model: see `sandbox: models`")
		}
	}
}

func (v *validator) files(d Definition) {
	if len(d.Memory) > memoryMax {
		v.fail("memory", "more than %d files", memoryMax)
	}
	for i, p := range d.Memory {
		if !path.IsAbs(p) || path.Clean(p) != p {
			v.fail(fmt.Sprintf("memory[%d]", i), "%.80q is no absolute path without . and ..", p)
		}
	}
}

// patterns checks names and globs of what only a run knows.
func (v *validator) patterns(path string, patterns []string) {
	if len(patterns) > rulesMax {
		v.fail(path, "more than %d entries", rulesMax)
	}
	for i, p := range patterns {
		bare := strings.TrimPrefix(p, "!")
		if bare == "" || len(bare) > nameMax || !doublestar.ValidatePattern(bare) {
			v.fail(fmt.Sprintf("%s[%d]", path, i), "%.80q is no name and no glob", p)
		}
	}
}

func (v *validator) subagents(d Definition) {
	names := make([]string, 0, len(d.Subagents))
	for name := range d.Subagents {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		sub := d.Subagents[name]
		if sub.Description == "" {
			v.warn("agents", "%q has no description, by which the model would choose it", name)
		}
		for _, p := range v.Validate(sub) {
			p.Path = strings.TrimSuffix("agents."+name+"."+p.Path, ".")
			v.found = append(v.found, p)
		}
	}
}
