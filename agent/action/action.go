// Package action lets models without tool calls use tools: each reply of such
// a model is one JSON object, an action or the end.
//
//	{"action": "write_file", "args": {"file_path": "/workspace/a", "content": "x"}}
//	{"done": true, "result": "What was done."}
//
//	calling := action.New(specs)
//	system += calling.System(specs)                // explains tools and form
//	req.Messages = calling.Encode(messages)        // calls and results as text
//	a, problem := action.Parse(reply, specs)
//	if problem != "" { say(string(problem)) }      // three of them in a row end the run
//
// The parser forgives what is only clumsy: a code fence, thoughts and sentences
// around the object, line breaks in texts, arguments that are JSON in a text.
// It refuses whatever could be meant in two ways: several actions, one that is
// cut off, brackets behind it, a name or a key twice. Then nothing runs, and
// the problem tells the model exactly what was wrong.
//
// Everything is pure and deterministic: the same messages give the same bytes.
package action

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/llm"
)

// Bounds of a reply.
const (
	replyBytesMax = 1 << 20
	depthMax      = 48
	quoteMax      = 60 // bytes of a reply that a message repeats
)

// dialect marks what this package keeps in Block.Vendor: the model's own words.
const dialect = "action"

// Action is what a reply asks for.
type Action struct {
	Name string          // of the tool
	Args json.RawMessage // an object
	// Done: the task is over; Result is any JSON, nil if there is none.
	Done   bool
	Result json.RawMessage
	// Raw is the reply as the model wrote it.
	Raw string
}

// Problem tells the model what is wrong with its reply, "" = nothing.
type Problem string

// Text is the result for people: a JSON text without its quotes, else the JSON.
func (a Action) Text() string {
	var s string
	switch {
	case a.Result == nil || string(a.Result) == "null":
		return ""
	case json.Unmarshal(a.Result, &s) == nil:
		return s
	}
	return string(a.Result)
}

// Blocks are for the log: one call (its id is the caller's to set), or the
// final text. The reply as it was written travels with them, so that Encode
// can show the model its own words.
func (a Action) Blocks() []llm.Block {
	raw, err := json.Marshal(a.Raw)
	if err != nil {
		return nil // a string is always JSON
	}
	b := llm.Block{Kind: llm.KindCall, Call: &llm.Call{Name: a.Name, Args: a.Args}}
	if a.Done {
		b = llm.Text(a.Text())
	}
	b.Vendor = &llm.Vendor{Dialect: dialect, Data: raw}
	return []llm.Block{b}
}

// Calling renders tools and messages for such models. It has no state.
type Calling struct{}

// New returns the Calling of some tools.
func New([]llm.ToolSpec) *Calling { return &Calling{} }

const form = `# How you act

You act by writing. Each of your replies is exactly one JSON object and nothing else: no text around it, no code fence, one action at a time. To use a tool:

{"action": "NAME", "args": {…}}

Then wait: the next message is its <result> or <failure>. Never write a result yourself. When the task is finished, or cannot be:

{"done": true, "result": "what you found or did"}

Inside JSON texts write a line break as \n, a quote as \" and a backslash as \\.`

// System returns the section of the system prompt that explains the tools and
// the form of replies.
func (*Calling) System(tools []llm.ToolSpec) string {
	var b strings.Builder
	b.WriteString(form)
	b.WriteString("\n\n# Tools\n")
	for _, t := range tools {
		fmt.Fprintf(&b, "\n## %s\n%s\nargs: %s\n", t.Name, strings.TrimSpace(t.Description), compact(t.Schema))
	}
	if len(tools) == 0 {
		b.WriteString("\nThere are none.\n")
	}
	return b.String()
}

// Schema is the form of replies as JSON Schema: a tool of these with any arguments,
// or the end with any result. What arguments a tool takes is not in it: a grammar of
// all tools is more than small servers bear, and calls are checked in any case.
func (*Calling) Schema(tools []llm.ToolSpec) *llm.Schema {
	type object = map[string]any
	end := object{
		"type": "object", "additionalProperties": false, "required": []string{"done", "result"},
		"properties": object{
			"done":   object{"type": "boolean", "enum": []bool{true}},
			"result": object{"type": []string{"string", "object", "array", "number", "boolean", "null"}},
		},
	}
	if len(tools) == 0 {
		schema, _ := json.Marshal(end) // plain data
		return &llm.Schema{Name: "reply", Schema: schema}
	}
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	schema, _ := json.Marshal(object{"anyOf": []object{
		{
			"type": "object", "additionalProperties": false, "required": []string{"action", "args"},
			"properties": object{"action": object{"type": "string", "enum": names}, "args": object{"type": "object"}},
		},
		end,
	}})
	return &llm.Schema{Name: "reply", Schema: schema}
}

// Wanted reports whether a request asks for actions as text: it carries what
// System returns.
func Wanted(req *llm.Request) bool {
	for _, b := range req.System {
		if strings.Contains(b.Text, form) {
			return true
		}
	}
	return false
}

// Written returns a message of calls and text as a model that acts by writing
// would have written it: the action, or the end.
func Written(m llm.Message) llm.Message {
	if len(m.Calls()) > 0 {
		return encode(m)
	}
	text := m.String()
	result := json.RawMessage(text)
	if trimmed := strings.TrimSpace(text); !strings.HasPrefix(trimmed, "{") || !json.Valid([]byte(trimmed)) {
		result, _ = json.Marshal(text) // a string is always JSON
	}
	return llm.Assistant(llm.Text(fmt.Sprintf(`{"done": true, "result": %s}`, compact(result))))
}

// Encode turns messages with calls and results into plain text, each message
// for itself.
func (*Calling) Encode(messages []llm.Message) []llm.Message {
	out := make([]llm.Message, len(messages))
	for i, m := range messages {
		out[i] = encode(m)
	}
	return out
}

// encode keeps what is not text where it is.
func encode(m llm.Message) llm.Message {
	e := llm.Message{Role: m.Role, Cache: m.Cache}
	var text []string
	flush := func() {
		if len(text) > 0 {
			e.Blocks = append(e.Blocks, llm.Text(strings.Join(text, "\n\n")))
			text = nil
		}
	}
	for _, b := range m.Blocks {
		switch {
		case b.Vendor != nil && b.Vendor.Dialect == dialect:
			text = append(text, own(b))
		case b.Kind == llm.KindText:
			text = append(text, b.Text)
		case b.Kind == llm.KindCall && b.Call != nil:
			text = append(text, actionText(*b.Call))
		case b.Kind == llm.KindResult && b.Result != nil:
			words, media := resultText(*b.Result)
			text = append(text, words)
			if len(media) > 0 {
				flush()
				e.Blocks = append(e.Blocks, media...)
			}
		default:
			flush()
			e.Blocks = append(e.Blocks, b)
		}
	}
	flush()
	return e
}

// own returns the model's own words.
func own(b llm.Block) string {
	var raw string
	switch {
	case json.Unmarshal(b.Vendor.Data, &raw) == nil && raw != "":
		return raw
	case b.Call != nil:
		return actionText(*b.Call)
	}
	return b.Text
}

// actionText writes a call as an action.
func actionText(c llm.Call) string {
	args := c.Args
	if !json.Valid(args) {
		args = json.RawMessage("{}")
	}
	name, _ := json.Marshal(c.Name) // a string is always JSON
	return fmt.Sprintf(`{"action": %s, "args": %s}`, name, compact(args))
}

func resultText(r llm.Result) (text string, media []llm.Block) {
	tag := "result"
	if r.Failed {
		tag = "failure"
	}
	var b strings.Builder
	empty := true
	for _, block := range r.Blocks {
		switch block.Kind {
		case llm.KindText:
			b.WriteString(block.Text)
			empty = empty && block.Text == ""
		default:
			media = append(media, block)
			empty = false
		}
	}
	if empty {
		b.WriteString("(nothing)")
	}
	return llm.MarkBegin(tag, "of", r.Name) + "\n" + llm.Unclosed(tag, b.String()) + "\n" + llm.MarkEnd(tag), media
}

// compact takes the spaces out of JSON; the order of keys stays.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 {
		return "{}"
	}
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}
