// Package program lets a program of the sandbox work in the place of a model: an agent that
// others wrote, which finds its own model. It is a llm.Model that asks for one command,
// the program, and answers with what came of it; so a run of it is a run like any other,
// with its log, its budget, its history, and a restart in the middle.
//
//	m := program.New("codex", definition.Program{Command: "codex exec {task}", Timeout: 30 * time.Minute})
//
// It is a function of the request, and safe for concurrent use.
package program

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
)

const (
	// Tool runs the program.
	Tool = "execute"
	// TaskEnv is the variable in which the program finds what was asked for.
	TaskEnv = "SKETE_TASK"

	textMax = 8 << 10 // of an answer
	// windowTokens is more than any conversation of one has: nothing is to be left out.
	windowTokens = 1 << 24
)

// Model is a program.
type Model struct {
	name string
	p    definition.Program
}

var _ llm.Model = Model{}

// New returns the model that a program of an agent is.
func New(agent string, p definition.Program) Model { return Model{agent, p} }

// Info implements llm.Model.
func (m Model) Info() llm.Info {
	return llm.Info{Name: "program", Vendor: "program", ID: m.name, WindowTokens: windowTokens}
}

// Stream implements llm.Model.
func (m Model) Stream(_ context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		response, err := m.answer(req)
		if err != nil {
			yield(llm.Delta{}, &llm.Error{Trouble: llm.BadRequest, Model: "program", Cause: err})
			return
		}
		response.Model = m.name
		yield(llm.Delta{Kind: llm.DeltaDone, Response: &response}, nil)
	}
}

// answer is the call of the program, or once that has ended what came of it.
func (m Model) answer(req *llm.Request) (llm.Response, error) {
	if !slices.ContainsFunc(req.Tools, func(t llm.ToolSpec) bool { return t.Name == Tool }) {
		return llm.Response{}, errs.New(errs.Unsupported, "a program needs a sandbox, and the tool %s in it", Tool)
	}
	task, result := look(req.Messages)
	if result == nil {
		args, err := json.Marshal(map[string]any{"command": m.command(task), "timeout": int(m.p.Time().Seconds())})
		if err != nil {
			return llm.Response{}, err
		}
		call := llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: fmt.Sprintf("program_%d", req.Step), Name: Tool, Args: args}}
		return llm.Response{Message: llm.Assistant(call), Stop: llm.StopTools}, nil
	}
	text, ok := m.outcome(textOf(result.Blocks))
	if result.Failed || !ok {
		return llm.Response{Message: llm.Assistant(llm.Text(text)), Stop: llm.StopFailed}, nil
	}
	return llm.Response{Message: llm.Assistant(llm.Text(text)), Stop: llm.StopEnd}, nil
}

// look returns the last thing that was asked for, and the result of the program that was
// called for it; nil: it was not called yet.
func look(messages []llm.Message) (task string, result *llm.Result) {
	for i, msg := range slices.Backward(messages) {
		if msg.Role == llm.RoleAssistant {
			if len(msg.Calls()) == 0 {
				return task, nil
			}
			for _, after := range messages[i+1:] {
				for _, b := range after.Blocks {
					if b.Kind == llm.KindResult && b.Result != nil {
						return task, b.Result
					}
				}
			}
			return task, nil
		}
		if text := textOf(msg.Blocks); text != "" {
			task = strings.TrimSpace(text + "\n" + task)
		}
	}
	return task, nil
}

func textOf(blocks []llm.Block) string {
	var parts []string
	for _, b := range blocks {
		if b.Kind == llm.KindText {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// command is a line for the shell: the program's, with the task in a variable.
func (m Model) command(task string) string {
	return "export " + TaskEnv + "=" + quote(task) + "\n" + strings.ReplaceAll(m.p.Command, "{task}", `"$`+TaskEnv+`"`)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// outcome is what the program says at its end, and whether it says that it is done: its last
// words, or of one that writes events what they say.
func (m Model) outcome(output string) (text string, ok bool) {
	if m.p.Events != definition.EventsJSONL {
		return clip.Text(lastOf(output), textMax), true
	}
	var a account
	for line := range strings.Lines(output) {
		if e, ok := eventOf(line); ok {
			a.hear(e)
		}
	}
	switch {
	case a.wrong != "":
		return clip.Text(a.wrong, textMax), false
	case !a.done:
		return clip.Text("The program ended and did not say that it is done. Its last words:\n"+lastOf(output), textMax), false
	case len(a.said) == 0:
		return "It is done.", true
	}
	return clip.Text(string(a.said), textMax), true
}

const noReason = "the program says that it failed, and not why"

// account is what the events so far say of the task.
type account struct {
	said  []byte
	wrong string // "" = nothing
	lasts bool   // what is wrong stays so, whatever is said after it
	done  bool
	more  bool // the next words may go on with these
}

func (a *account) hear(e event) {
	if words := e.words(); words != "" {
		if !a.more || !e.Delta {
			a.said = a.said[:0]
		}
		a.said = append(a.said, words...)
	}
	a.more, a.done = e.Delta, e.done()
	switch fault := e.fault(); {
	case fault != "":
		a.wrong, a.lasts = fault, e.Severity == "error"
	case e.failed():
		a.wrong = cmp.Or(a.wrong, noReason)
	case a.done && !a.lasts:
		a.wrong = ""
	}
}

// event is a line of a program that writes events: an object of JSON. Keys that are not
// here are for those who watch. It is our own form, or that of programs which have others:
// item and turn are Codex's, part is opencode's, the three below it Claude Code's, the last
// ones Gemini CLI's.
type event struct {
	Done    bool   `json:"done"`
	Error   any    `json:"error"`
	Text    any    `json:"text"`
	Message any    `json:"message"`
	Result  any    `json:"result"`
	Type    string `json:"type"`
	Item    struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"item"`
	Part struct {
		Text   string `json:"text"`
		Reason string `json:"reason"`
	} `json:"part"`
	Subtype string   `json:"subtype"`
	IsError bool     `json:"is_error"`
	Errors  []string `json:"errors"`

	Role     string `json:"role"`
	Content  any    `json:"content"`
	Delta    bool   `json:"delta"`    // goes on with the words before
	Status   string `json:"status"`   // of a result
	Severity string `json:"severity"` // of an error; what is a warning passes
}

// eventOf reads a line; false: it tells nothing of the task. A key whose value has another
// form than here is one of the program's own.
func eventOf(line string) (e event, ok bool) {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "{") {
		return event{}, false
	}
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
			return event{}, false
		}
	}
	// Claude Code tells of itself so, at any time: that it tries again, for one.
	return e, e.Type != "system" || e.Subtype == ""
}

// words are what the event says of the task.
func (e event) words() string {
	switch {
	case e.Type == "item.completed":
		if e.Item.Type == "agent_message" {
			return e.Item.Text
		}
		return ""
	case e.Type == "message" && e.Content != nil:
		if text, ok := e.Content.(string); ok && e.Role == "assistant" {
			return text
		}
		return ""
	case e.Type == "assistant":
		if words := said(e.Message); words != "" {
			return words
		}
	case e.Part.Text != "":
		return e.Part.Text
	}
	for _, v := range []any{e.Result, e.Text, e.Message} {
		if s, ok := v.(string); ok && s != "" {
			return s
		}
	}
	return ""
}

// said is the text of a message that is made of blocks.
func said(message any) string {
	m, _ := message.(map[string]any)
	blocks, _ := m["content"].([]any)
	var parts []string
	for _, v := range blocks {
		b, _ := v.(map[string]any)
		if text, ok := b["text"].(string); ok {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n")
}

// ended reports whether the event is Claude Code's last one, which says how it went.
func (e event) ended() bool { return e.Type == "result" && e.Subtype != "" }

// done reports whether the event says that the task is done.
func (e event) done() bool {
	if e.ended() {
		return e.Subtype == "success" && !e.IsError
	}
	return e.Done || e.Type == "turn.completed" || e.Type == "step_finish" && e.Part.Reason == "stop" || e.Type == "result" && e.Status == "success"
}

// failed reports whether the event is Gemini CLI's last one and says that it failed; why may
// stand in an event before.
func (e event) failed() bool { return e.Type == "result" && e.Status == "error" }

// fault is what went wrong, "" = nothing.
func (e event) fault() string {
	if e.ended() {
		if e.done() {
			return ""
		}
		text, _ := e.Result.(string)
		return cmp.Or(strings.Join(e.Errors, "\n"), text, e.Subtype)
	}
	var of func(v any) string
	of = func(v any) string {
		switch v := v.(type) {
		case string:
			return v
		case map[string]any:
			for _, key := range []string{"message", "data", "name"} {
				if s := of(v[key]); s != "" {
					return s
				}
			}
		}
		return ""
	}
	if text := of(e.Error); text != "" && e.Type != "tool_result" { // of which the agent makes what it can
		return text
	}
	if e.Type == "error" || e.Type == "turn.failed" {
		return cmp.Or(of(e.Message), noReason)
	}
	return ""
}

// lastOf is the end of a long text, from the beginning of a line.
func lastOf(output string) string {
	output = strings.TrimSpace(output)
	if len(output) <= textMax/2 {
		return output
	}
	output = output[len(output)-textMax/2:]
	if _, after, ok := strings.Cut(output, "\n"); ok {
		output = after
	}
	return "[…]\n" + strings.ToValidUTF8(output, "")
}
