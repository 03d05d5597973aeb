package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Bounds of programs.
const (
	TimeoutDefault = time.Minute
	outputBytesMax = 64 << 10 // of stdout and of stderr
	inputTextMax   = 64 << 10 // of a result or a message
)

// exitDeny is the status with which a program refuses.
const exitDeny = 2

// Runner runs a program where an agent's file says: in "sandbox" or on "host".
// It keeps at most OutputBytesMax of each stream, ends the program after the
// timeout, and returns an error only if the program did not run to its end.
type Runner interface {
	Run(ctx context.Context, where string, argv []string, stdin []byte, timeout time.Duration) (stdout, stderr []byte, exit int, err error)
}

// Commands returns the hook that asks an agent's programs, in their order. cwd
// is the directory that they are told.
//
// A program reads one JSON object on stdin: hook_event_name, session_id (the
// thread), run_id, agent, cwd, and what belongs to the event. Exit status 0: it
// may have written JSON with its decision. 2: it refuses, and stderr says why.
// Everything else, and a timeout, is a warning and decides nothing.
//
// A hook that names a plug-in is asked in the same way: it is sent the object, and what it
// answers is the decision. One that cannot be asked does what its manifest says; before calls and
// for what the user sent it refuses by default. plugins may be nil: then there are none.
func Commands(hooks []definition.CommandHook, runner Runner, plugins Plugins, cwd string) Hook {
	return &commands{hooks: withPlugins(hooks, plugins), runner: runner, plugins: plugins, cwd: cwd}
}

type commands struct {
	Base
	hooks  []asked
	runner Runner
	cwd    string

	plugins Plugins
}

// input is what a program reads. Names are those of Claude Code's hooks.
type input struct {
	Event  string       `json:"hook_event_name"`
	Thread thread.ID    `json:"session_id"`
	Run    thread.RunID `json:"run_id,omitempty"`
	Agent  string       `json:"agent,omitempty"`
	Cwd    string       `json:"cwd,omitempty"`

	Tool     string          `json:"tool_name,omitempty"`
	Call     string          `json:"tool_use_id,omitempty"`
	Args     json.RawMessage `json:"tool_input,omitempty"`
	Response *response       `json:"tool_response,omitempty"`
	Error    string          `json:"error,omitempty"` // PostToolUseFailure

	Prompt  string `json:"prompt,omitempty"`  // UserPromptSubmit
	Source  string `json:"source,omitempty"`  // SessionStart
	Trigger string `json:"trigger,omitempty"` // PreCompact
	Last    string `json:"last_assistant_message,omitempty"`
	Active  *bool  `json:"stop_hook_active,omitempty"` // Stop, SubagentStop
	SubType string `json:"agent_type,omitempty"`       // SubagentStart, SubagentStop
}

type response struct {
	Text   string `json:"text"`
	Failed bool   `json:"failed"`
	Code   string `json:"code,omitempty"`
	Exit   *int   `json:"exit_code,omitempty"`
}

// output is what a program may write.
type output struct {
	Continue *bool  `json:"continue"`
	StopText string `json:"stopReason"`
	Decision string `json:"decision"` // the older form: approve, block
	Reason   string `json:"reason"`
	Specific *struct {
		Decision string          `json:"permissionDecision"`
		Reason   string          `json:"permissionDecisionReason"`
		Args     json.RawMessage `json:"updatedInput"`
		Context  string          `json:"additionalContext"`
	} `json:"hookSpecificOutput"`
}

func (c *commands) input(event string, m Moment) input {
	return input{Event: event, Thread: m.Thread, Run: m.Run, Agent: m.Agent, Cwd: c.cwd}
}

// BeforeTool implements Hook.
func (c *commands) BeforeTool(ctx context.Context, call ToolCall) (Verdict, error) {
	in := c.input(OnPreToolUse, call.Moment)
	in.Tool, in.Call, in.Args = call.Name, call.ID, call.Args
	return c.ask(ctx, in), nil
}

// AfterTool implements Hook.
func (c *commands) AfterTool(ctx context.Context, r ToolReply) (Verdict, error) {
	in := c.input(OnPostToolUse, r.Moment)
	in.Tool, in.Call, in.Args = r.Name, r.ID, r.Args
	text := clip.Text((llm.Message{Blocks: r.Result.Blocks}).String(), inputTextMax)
	in.Response = &response{Text: text, Failed: r.Result.Failed, Code: r.Result.Code, Exit: r.Result.Exit}
	if r.Result.Failed {
		in.Event, in.Error = OnPostToolUseFailure, text
	}
	v := c.ask(ctx, in)
	if v.Action == Deny || v.Action == Ask {
		// It is done already; what is left is to tell the model.
		v.Context = clip.Text(strings.TrimSpace(strings.TrimSpace(v.Reason+"\n\n"+v.Context)), contextBytesMax)
		v.Action, v.Reason = None, ""
	}
	v.Args = nil
	return v, nil
}

// Notice implements Hook.
func (c *commands) Notice(ctx context.Context, e Event) Verdict {
	in := c.input(e.Name, e.Moment)
	text := clip.Text(e.Text, inputTextMax)
	switch e.Name {
	case OnUserPromptSubmit:
		in.Prompt = text
	case OnThreadStart:
		in.Source = text
	case OnPreCompact:
		in.Trigger = text
	case OnStop:
		in.Last, in.Active = text, &e.Again
	case OnSubagentStart:
		in.SubType, in.Prompt = e.Sub, text
	case OnSubagentStop:
		in.SubType, in.Last, in.Active = e.Sub, text, &e.Again
	}
	v := c.ask(ctx, in)
	v.Args = nil
	return v
}

// ask runs the programs of an event.
func (c *commands) ask(ctx context.Context, in input) Verdict {
	var v Verdict
	for _, h := range c.hooks {
		if !h.means(in.Event, in.Tool) {
			continue
		}
		v = v.and(c.run(ctx, h, in))
		if v.Action.rank() >= Deny.rank() {
			break
		}
		if v.Args != nil {
			in.Args = v.Args
		}
	}
	return v
}

// run asks one program.
func (c *commands) run(ctx context.Context, h asked, in input) Verdict {
	stdin, err := json.Marshal(in)
	if err != nil {
		return warning(h, "its input: %v", err)
	}
	where, timeout := h.Where, h.Timeout
	if where == "" {
		where = "sandbox"
	}
	if timeout <= 0 {
		timeout = TimeoutDefault
	}
	if h.Plugin != "" {
		return c.consult(ctx, h, stdin, timeout)
	}
	if len(h.Command) == 0 {
		return warning(h, "it has no command")
	}
	stdout, stderr, exit, err := c.runner.Run(ctx, where, h.Command, append(stdin, '\n'), timeout)
	stdout, stderr = stdout[:min(len(stdout), outputBytesMax)], stderr[:min(len(stderr), outputBytesMax)]
	switch {
	case err != nil:
		return warning(h, "%v", err)
	case exit == exitDeny:
		return Verdict{Action: Deny, Reason: firstOf(clip.Text(strings.TrimSpace(string(stderr)), contextBytesMax), "the hook "+name(h)+" refused it")}
	case exit != 0:
		return warning(h, "it ended with status %d: %.200s", exit, clip.Text(strings.TrimSpace(string(stderr)), contextBytesMax))
	}
	return read(h, stdout)
}

// read makes a verdict of what a program wrote.
func read(h asked, stdout []byte) Verdict {
	stdout = bytes.TrimSpace(stdout)
	if len(stdout) == 0 || stdout[0] != '{' {
		if h.Event == OnUserPromptSubmit || h.Event == OnThreadStart {
			return Verdict{Context: clip.Text(strings.TrimSpace(string(stdout)), contextBytesMax)} // plain text is for the model
		}
		return Verdict{}
	}
	var out output
	if err := json.Unmarshal(stdout, &out); err != nil {
		return unclear(h, "its output is no JSON that skete knows: %v", err)
	}
	if out.Continue != nil && !*out.Continue {
		return Verdict{Action: Stop, Reason: firstOf(clip.Text(strings.TrimSpace(out.StopText), contextBytesMax), "the hook "+name(h)+" stopped it")}
	}
	v := Verdict{Reason: clip.Text(strings.TrimSpace(out.Reason), contextBytesMax)}
	decision := out.Decision
	if s := out.Specific; s != nil {
		decision, v.Reason = firstOf(s.Decision, decision), firstOf(clip.Text(strings.TrimSpace(s.Reason), contextBytesMax), v.Reason)
		v.Context = clip.Text(strings.TrimSpace(s.Context), contextBytesMax)
		v.Args = s.Args
	}
	switch decision {
	case "":
		v.Reason = ""
	case "allow", "approve":
		v.Action = Allow
	case "ask":
		v.Action = Ask
	case "deny", "block":
		v.Action = Deny
		v.Reason = firstOf(v.Reason, "the hook "+name(h)+" refused it")
	default:
		return unclear(h, "it decided %.40q", decision)
	}
	return rewritten(h, v)
}

// rewritten checks arguments that a program wrote.
func rewritten(h asked, v Verdict) Verdict {
	if v.Args == nil || string(v.Args) == "null" {
		v.Args = nil
		return v
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(v.Args, &object) != nil {
		return unclear(h, "its updatedInput is no JSON object")
	}
	return v
}

// unclear: a program's answer about a call was not understood, so a person looks
// at the call. About anything else it is a warning. A plug-in's is a failure, and refuses
// where those do.
func unclear(h asked, format string, args ...any) Verdict {
	v := warning(h, format, args...)
	if h.Plugin != "" {
		v = h.broken(v, "its answer makes no sense")
	}
	if h.Event == OnPreToolUse && v.Action != Deny {
		v.Action, v.Reason = Ask, "the answer of the hook "+name(h)+" was not understood"
	}
	return v
}

func warning(h asked, format string, args ...any) Verdict {
	return Verdict{Warnings: []string{fmt.Sprintf("hook %s for %s: ", name(h), h.Event) + fmt.Sprintf(format, args...)}}
}

// name is how messages call a program.
func name(h asked) string {
	if h.Plugin != "" {
		return "of the plug-in " + h.Plugin
	}
	if len(h.Command) == 0 {
		return "(none)"
	}
	return fmt.Sprintf("%.80q", strings.Join(h.Command, " "))
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
