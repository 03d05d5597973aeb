package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// This file keeps tools out of the prompt when there are too many: the model finds them with
// find_tools and calls them with use_tool. Such a call becomes one of the tool that it names
// before it is logged, so that rules, hooks, effects and limits are about that tool.

// Bounds of the tools that are not built in, for the prompt to show them all.
const (
	shownToolsMax      = 60
	shownToolBytesMax  = 64 << 10 // of their specs: about 16,000 tokens
	foundToolsMax      = 8
	foundSpecBytesMax  = 8 << 10
	listedToolsMax     = 200
	findName, callName = "find_tools", "use_tool"
)

// Reserved are the names of the tools that stand for those which are not shown.
var Reserved = []string{findName, callName}

// tooMany reports whether the tools are too many for a prompt.
func tooMany(tools []tool.Tool) bool {
	bytes := 0
	for _, t := range tools {
		s := t.Spec()
		bytes += len(s.Name) + len(s.Description) + len(s.Schema)
	}
	return len(tools) > shownToolsMax || bytes > shownToolBytesMax
}

// hide adds tools that can be called, and that the prompt does not show.
func (r *Runner) hide(hidden []tool.Tool) error {
	if len(hidden) == 0 {
		return nil
	}
	for _, t := range hidden {
		r.tools[t.Spec().Name] = t
	}
	for _, t := range []tool.Tool{finder(hidden), caller{}} {
		checked, err := tool.Check(t)
		if err != nil {
			return err
		}
		r.c.Tools = append(slices.Clone(r.c.Tools), checked)
	}
	return nil
}

// unwrap puts the tool that is meant in the place of use_tool.
func (r *Runner) unwrap(m llm.Message) llm.Message {
	if len(r.c.Hidden) == 0 {
		return m
	}
	m.Blocks = slices.Clone(m.Blocks)
	for i, b := range m.Blocks {
		if b.Call == nil || b.Call.Name != callName {
			continue
		}
		var a callerArgs
		meant := func(t tool.Tool) bool { return t.Spec().Name == a.Name }
		if json.Unmarshal(b.Call.Args, &a) != nil || !slices.ContainsFunc(r.c.Hidden, meant) {
			continue // the tool itself says what is wrong
		}
		call := *b.Call
		call.Name, call.Args = a.Name, a.Arguments
		if len(call.Args) == 0 {
			call.Args = json.RawMessage("{}")
		}
		m.Blocks[i].Call = &call
	}
	return m
}

// caller is use_tool. Only a call that names no tool gets to it.
type caller struct{}

type callerArgs struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Spec implements tool.Tool.
func (caller) Spec() llm.ToolSpec {
	return llm.ToolSpec{
		Name: callName, Description: "Calls a tool that find_tools has found, by its name and with arguments that fit its schema.",
		Schema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["name"],"properties":{"name":{"type":"string"},"arguments":{"type":"object"}}}`),
	}
}

// Effect implements tool.Tool.
func (caller) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

// Run implements tool.Tool.
func (caller) Run(_ context.Context, req tool.Request) (tool.Result, error) {
	var a callerArgs
	_ = json.Unmarshal(req.Args, &a) // it fits the schema
	return tool.Fail(tool.CodeUnknownTool, fmt.Sprintf("There is no tool %.64q to be used so. find_tools says which there are.", a.Name)), nil
}

// finder is find_tools.
type finder []tool.Tool

// Spec implements tool.Tool.
func (f finder) Spec() llm.ToolSpec {
	return llm.ToolSpec{
		Name: findName, Description: fmt.Sprintf("Finds tools among %d more, by words of their names and descriptions, with the schemas of their arguments. "+
			"use_tool calls them. Without a query it lists names.", len(f)),
		Schema: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"query":{"type":"string","description":"What the tool should do, in a few words"}}}`),
	}
}

// Effect implements tool.Tool.
func (finder) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

// Run implements tool.Tool.
func (f finder) Run(_ context.Context, req tool.Request) (tool.Result, error) {
	var a struct {
		Query string `json:"query"`
	}
	_ = json.Unmarshal(req.Args, &a) // it fits the schema
	words := strings.FieldsFunc(strings.ToLower(a.Query), func(c rune) bool { return !isWord(c) })
	if len(words) == 0 {
		return tool.Text(f.names()), nil
	}
	type hit struct {
		spec  llm.ToolSpec
		score int
	}
	var hits []hit
	for _, t := range f {
		if s := t.Spec(); score(s, words) > 0 {
			hits = append(hits, hit{s, score(s, words)})
		}
	}
	if len(hits) == 0 {
		return tool.Text("No tool has one of these words. " + f.names()), nil
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	var b strings.Builder
	for _, h := range hits[:min(len(hits), foundToolsMax)] {
		fmt.Fprintf(&b, "%s: %s\narguments: %s\n\n", h.spec.Name, clip.Text(h.spec.Description, foundSpecBytesMax), clip.Text(string(h.spec.Schema), foundSpecBytesMax))
	}
	if more := len(hits) - foundToolsMax; more > 0 {
		fmt.Fprintf(&b, "[%d more; use other words to see them]", more)
	}
	return tool.Text(strings.TrimSpace(b.String())), nil
}

func (f finder) names() string {
	var names []string
	for _, t := range f[:min(len(f), listedToolsMax)] {
		names = append(names, t.Spec().Name)
	}
	text := "The tools are: " + strings.Join(names, ", ")
	if more := len(f) - len(names); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

func isWord(c rune) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c > 127 }

// score says how well a tool fits: a word of its name counts more than one of its description.
func score(s llm.ToolSpec, words []string) (n int) {
	name, about := strings.ToLower(s.Name), strings.ToLower(s.Description)
	for _, w := range words {
		if strings.Contains(name, w) {
			n += 3
		}
		if strings.Contains(about, w) {
			n++
		}
	}
	return n
}

// callable are tools for a Config: shown, or hidden.
func callable(builtIn, external []tool.Tool) (shown, hidden []tool.Tool) {
	if tooMany(external) {
		return builtIn, external
	}
	return append(builtIn, external...), nil
}
