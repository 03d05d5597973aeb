package hook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/tool"
)

// process runs programs for real, here.
type process struct{ ran []string }

func (p *process) Run(ctx context.Context, where string, argv []string, stdin []byte, timeout time.Duration) ([]byte, []byte, int, error) {
	p.ran = append(p.ran, where)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errOut
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		return out.Bytes(), errOut.Bytes(), exit.ExitCode(), nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.Bytes(), errOut.Bytes(), 0, err
}

func sh(event, script string) definition.CommandHook {
	return definition.CommandHook{Event: event, Command: []string{"/bin/sh", "-c", script}, Timeout: 20 * time.Second}
}

var (
	moment = hook.Moment{Thread: "thr_aaaaaaaaaaaaaaaaaaaa", Run: "run_aaaaaaaaaaaaaaaaaaaa", Agent: "default"}
	call   = hook.ToolCall{Moment: moment, ID: "call_1", Name: "execute", Args: json.RawMessage(`{"command":"ls"}`)}
)

func before(t *testing.T, hooks ...definition.CommandHook) hook.Verdict {
	t.Helper()
	v, err := hook.Commands(hooks, &process{}, nil, "/workspace").BeforeTool(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCommands_decideByWhatTheyWrite(t *testing.T) {
	say := func(s string) string { return "cat >/dev/null; printf '%s' '" + s + "'" }
	cases := []struct {
		name, script string
		want         hook.Verdict
	}{
		{"nothing", "true", hook.Verdict{}},
		{"text that is no JSON", "echo all is well", hook.Verdict{}},
		{"an empty object", say(`{}`), hook.Verdict{}},
		{"allow", say(`{"hookSpecificOutput":{"permissionDecision":"allow","permissionDecisionReason":"fine"}}`), hook.Verdict{Action: hook.Allow, Reason: "fine"}},
		{"ask", say(`{"hookSpecificOutput":{"permissionDecision":"ask","permissionDecisionReason":"look"}}`), hook.Verdict{Action: hook.Ask, Reason: "look"}},
		{"deny", say(`{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"no"}}`), hook.Verdict{Action: hook.Deny, Reason: "no"}},
		{"the older form", say(`{"decision":"block","reason":"no"}`), hook.Verdict{Action: hook.Deny, Reason: "no"}},
		{"status 2", "cat >/dev/null; echo not today >&2; exit 2", hook.Verdict{Action: hook.Deny, Reason: "not today"}},
		{"status 2 without a reason", "exit 2", hook.Verdict{Action: hook.Deny, Reason: `the hook "/bin/sh -c exit 2" refused it`}},
		{"stop", say(`{"continue":false,"stopReason":"enough"}`), hook.Verdict{Action: hook.Stop, Reason: "enough"}},
		{"other arguments", say(`{"hookSpecificOutput":{"updatedInput":{"command":"ls -la"}}}`), hook.Verdict{Args: json.RawMessage(`{"command":"ls -la"}`)}},
		{"a word for the model", say(`{"hookSpecificOutput":{"additionalContext":"mind the gap"}}`), hook.Verdict{Context: "mind the gap"}},
		{"a reason without a decision", say(`{"reason":"x"}`), hook.Verdict{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, before(t, sh("PreToolUse", c.script))); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestCommands_thatBreakDecideNothing(t *testing.T) {
	slow := sh("PreToolUse", "exec sleep 30")
	slow.Timeout = 50 * time.Millisecond
	cases := []struct {
		name string
		hook definition.CommandHook
		want string
	}{
		{"another status", sh("PreToolUse", "echo broken >&2; exit 1"), "it ended with status 1: broken"},
		{"a timeout", slow, "deadline exceeded"},
		{"no program", definition.CommandHook{Event: "PreToolUse", Command: []string{"/no/such/program"}}, "no such file"},
		{"no command", definition.CommandHook{Event: "PreToolUse"}, "it has no command"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := before(t, c.hook)
			if v.Action != hook.None || len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0], c.want) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestCommands_thatAreNotUnderstoodAsk: a program that wanted something and said
// it wrongly must not become an allow.
func TestCommands_thatAreNotUnderstoodAsk(t *testing.T) {
	for _, out := range []string{
		`{"hookSpecificOutput":{"permissionDecision":"dney"}}`, `{"hookSpecificOutput":`, `{"hookSpecificOutput":{"updatedInput":[1]}}`,
		`{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":"x"}}`, `{"decision":7}`,
	} {
		v := before(t, sh("PreToolUse", "printf '%s' '"+out+"'"))
		if v.Action != hook.Ask || v.Args != nil || len(v.Warnings) != 1 {
			t.Errorf("%s: %+v", out, v)
		}
	}
}

func TestCommands_readWhatHappened(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in.json")
	tee := func(event string) []definition.CommandHook {
		return []definition.CommandHook{{Event: event, Command: []string{"/bin/sh", "-c", `cat > "$0"`, file}}}
	}
	one := 1
	failed := tool.Fail(tool.CodeExit, "no such file")
	failed.Exit = &one
	head := `"session_id":"thr_aaaaaaaaaaaaaaaaaaaa","run_id":"run_aaaaaaaaaaaaaaaaaaaa","agent":"default","cwd":"/workspace"`
	cases := []struct {
		event string
		do    func(h hook.Hook)
		want  string
	}{
		{"PreToolUse", func(h hook.Hook) { _, _ = h.BeforeTool(t.Context(), call) }, `"tool_name":"execute","tool_use_id":"call_1","tool_input":{"command":"ls"}`},
		{"PostToolUse", func(h hook.Hook) {
			_, _ = h.AfterTool(t.Context(), hook.ToolReply{ToolCall: call, Result: tool.Text("ok")})
		}, `"tool_name":"execute","tool_use_id":"call_1","tool_input":{"command":"ls"},"tool_response":{"text":"ok","failed":false}`},
		{"PostToolUseFailure", func(h hook.Hook) { _, _ = h.AfterTool(t.Context(), hook.ToolReply{ToolCall: call, Result: failed}) }, `"tool_name":"execute","tool_use_id":"call_1","tool_input":{"command":"ls"},"tool_response":{"text":"no such file","failed":true,"code":"exit","exit_code":1},"error":"no such file"`},
		{"UserPromptSubmit", func(h hook.Hook) {
			h.Notice(t.Context(), hook.Event{Moment: moment, Name: "UserPromptSubmit", Text: "do it"})
		}, `"prompt":"do it"`},
		{"SessionStart", func(h hook.Hook) {
			h.Notice(t.Context(), hook.Event{Moment: moment, Name: "SessionStart", Text: "startup"})
		}, `"source":"startup"`},
		{"PreCompact", func(h hook.Hook) { h.Notice(t.Context(), hook.Event{Moment: moment, Name: "PreCompact", Text: "auto"}) }, `"trigger":"auto"`},
		{"Stop", func(h hook.Hook) { h.Notice(t.Context(), hook.Event{Moment: moment, Name: "Stop", Text: "bye"}) }, `"last_assistant_message":"bye","stop_hook_active":false`},
		{"SubagentStart", func(h hook.Hook) {
			h.Notice(t.Context(), hook.Event{Moment: moment, Name: "SubagentStart", Sub: "coder", Text: "x"})
		}, `"prompt":"x","agent_type":"coder"`},
		{"SubagentStop", func(h hook.Hook) {
			h.Notice(t.Context(), hook.Event{Moment: moment, Name: "SubagentStop", Sub: "coder", Text: "y", Again: true})
		}, `"last_assistant_message":"y","stop_hook_active":true,"agent_type":"coder"`},
	}
	var events []string
	for _, c := range cases {
		events = append(events, c.event)
		_ = os.Remove(file)
		c.do(hook.Commands(tee(c.event), &process{}, nil, "/workspace"))
		got, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%s: %v", c.event, err)
			continue
		}
		if want := fmt.Sprintf("{%q:%q,%s,%s}\n", "hook_event_name", c.event, head, c.want); string(got) != want {
			t.Errorf("%s\n got %s\nwant %s", c.event, got, want)
		}
	}
	slices.Sort(events)
	known := slices.Sorted(slices.Values(definition.HookEvents))
	if !slices.Equal(events, known) {
		t.Errorf("tested are %v, a file may name %v", events, known)
	}
}

func TestCommands_afterACallTheReasonIsForTheModel(t *testing.T) {
	h := hook.Commands([]definition.CommandHook{sh("PostToolUse", "echo run the linter >&2; exit 2")}, &process{}, nil, "")
	v, err := h.AfterTool(t.Context(), hook.ToolReply{ToolCall: call, Result: tool.Text("ok")})
	if err != nil || v.Action != hook.None || v.Context != "run the linter" {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestCommands_plainTextIsContextWhereItIsExpected(t *testing.T) {
	for event, want := range map[string]string{"UserPromptSubmit": "today is sunny", "SessionStart": "today is sunny", "Stop": ""} {
		h := hook.Commands([]definition.CommandHook{sh(event, "echo today is sunny")}, &process{}, nil, "")
		if v := h.Notice(t.Context(), hook.Event{Name: event}); v.Context != want {
			t.Errorf("%s: %+v", event, v)
		}
	}
}

func TestCommands_composeInOrder(t *testing.T) {
	p := &process{}
	rewrite := sh("PreToolUse", `sed 's/.*"tool_input":{"command":"\([^"]*\)".*/{"hookSpecificOutput":{"updatedInput":{"command":"\1 -a"}}}/'`)
	other := sh("PreToolUse", "exit 2")
	other.Tools = []string{"write_*"}
	host := sh("PreToolUse", "true")
	host.Where = "host"
	ask := sh("PreToolUse", `printf '{"hookSpecificOutput":{"permissionDecision":"ask"}}'`)
	allow := sh("PreToolUse", `printf '{"hookSpecificOutput":{"permissionDecision":"allow"}}'`)
	h := hook.Commands([]definition.CommandHook{rewrite, other, host, ask, sh("PostToolUse", "exit 2"), rewrite, allow}, p, nil, "")
	v, _ := h.BeforeTool(t.Context(), call)
	if v.Action != hook.Ask || string(v.Args) != `{"command":"ls -a -a"}` {
		t.Errorf("%+v", v)
	}
	if d := cmp.Diff([]string{"sandbox", "host", "sandbox", "sandbox", "sandbox"}, p.ran); d != "" {
		t.Error(d)
	}
	// After a refusal no other hook is asked.
	p.ran = nil
	h = hook.Commands([]definition.CommandHook{sh("PreToolUse", "exit 2"), allow}, p, nil, "")
	if v, _ := h.BeforeTool(t.Context(), call); v.Action != hook.Deny || len(p.ran) != 1 {
		t.Errorf("%+v, %v", v, p.ran)
	}
}

func TestCommands_boundWhatTheyRead(t *testing.T) {
	v := before(t, sh("PreToolUse", "cat >/dev/null; head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 2"))
	if v.Action != hook.Deny || len(v.Reason) > 17<<10 {
		t.Errorf("a reason of %d bytes", len(v.Reason))
	}
	file := filepath.Join(t.TempDir(), "in.json")
	h := hook.Commands([]definition.CommandHook{{Event: "PostToolUse", Command: []string{"/bin/sh", "-c", `cat > "$0"`, file}}}, &process{}, nil, "")
	_, _ = h.AfterTool(t.Context(), hook.ToolReply{ToolCall: call, Result: tool.Text(strings.Repeat("x", 10<<20))})
	if info, err := os.Stat(file); err != nil || info.Size() > 100<<10 {
		t.Errorf("%v, %v", info, err)
	}
}

// fake answers as it was told.
type fake struct {
	hook.Base
	v    hook.Verdict
	err  error
	name string
	log  *[]string
	seen *[]string
}

func (f fake) BeforeTool(_ context.Context, c hook.ToolCall) (hook.Verdict, error) {
	*f.seen = append(*f.seen, string(c.Args))
	return f.v, f.err
}

func (f fake) AroundTool(next hook.RunTool) hook.RunTool {
	return func(ctx context.Context, c hook.ToolCall) (tool.Result, error) {
		*f.log = append(*f.log, f.name+" in")
		r, err := next(ctx, c)
		*f.log = append(*f.log, f.name+" out")
		return r, err
	}
}

func TestChain_takesTheStrictest(t *testing.T) {
	args := func(s string) json.RawMessage { return json.RawMessage(s) }
	cases := []struct {
		name  string
		hooks []fake
		want  hook.Verdict
		seen  []string
	}{
		{"nobody", nil, hook.Verdict{}, nil},
		{"allow and ask", []fake{{v: hook.Verdict{Action: hook.Allow, Reason: "a"}}, {v: hook.Verdict{Action: hook.Ask, Reason: "b"}}}, hook.Verdict{Action: hook.Ask, Reason: "b"}, []string{"0", "0"}},
		{"ask and allow", []fake{{v: hook.Verdict{Action: hook.Ask, Reason: "a"}}, {v: hook.Verdict{Action: hook.Allow, Reason: "b"}}}, hook.Verdict{Action: hook.Ask, Reason: "a"}, []string{"0", "0"}},
		{"deny ends it", []fake{{v: hook.Verdict{Action: hook.Deny, Reason: "a"}}, {v: hook.Verdict{Action: hook.Allow}}}, hook.Verdict{Action: hook.Deny, Reason: "a"}, []string{"0"}},
		{"stop ends it", []fake{{v: hook.Verdict{Action: hook.Stop, Reason: "a"}}, {v: hook.Verdict{Action: hook.Deny}}}, hook.Verdict{Action: hook.Stop, Reason: "a"}, []string{"0"}},
		{"arguments pass through", []fake{{v: hook.Verdict{Args: args("1")}}, {}, {v: hook.Verdict{Args: args("2")}}}, hook.Verdict{Args: args("2")}, []string{"0", "1", "1"}},
		{"texts add up", []fake{{v: hook.Verdict{Context: "a"}}, {v: hook.Verdict{Context: "b"}}}, hook.Verdict{Context: "a\n\nb"}, []string{"0", "0"}},
		{"one that breaks", []fake{{err: errors.New("x")}, {v: hook.Verdict{Action: hook.Deny}}}, hook.Verdict{Action: hook.Deny, Warnings: []string{"a hook failed: x"}}, []string{"0", "0"}},
	}
	for _, c := range cases {
		var seen []string
		hooks := []hook.Hook{nil}
		for _, f := range c.hooks {
			f.seen = &seen
			hooks = append(hooks, f)
		}
		v, err := hook.Chain(hooks...).BeforeTool(t.Context(), hook.ToolCall{Args: args("0")})
		if d := cmp.Diff(c.want, v); d != "" || err != nil {
			t.Errorf("%s: %v %s", c.name, err, d)
		}
		if d := cmp.Diff(c.seen, seen); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestChain_wrapsTools(t *testing.T) {
	var log []string
	h := hook.Chain(fake{name: "a", log: &log}, hook.Chain(hook.Base{}, fake{name: "b", log: &log}))
	r, err := h.AroundTool(func(context.Context, hook.ToolCall) (tool.Result, error) {
		log = append(log, "run")
		return tool.Text("x"), nil
	})(t.Context(), call)
	if err != nil || r.Blocks[0].Text != "x" || strings.Join(log, ",") != "a in,b in,run,b out,a out" {
		t.Errorf("%v %v", log, err)
	}
}

func FuzzCommands(f *testing.F) {
	for _, s := range []string{`{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":{}}}`, `{"continue":false}`, "{", "x", "\xff{"} {
		f.Add([]byte(s), 0)
	}
	f.Fuzz(func(t *testing.T, out []byte, exit int) {
		h := hook.Commands([]definition.CommandHook{{Event: "PreToolUse", Command: []string{"x"}}}, said{out, exit}, nil, "")
		v, err := h.BeforeTool(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		var args map[string]any
		if v.Args != nil && json.Unmarshal(v.Args, &args) != nil {
			t.Fatalf("arguments %s", v.Args)
		}
		if exit == 2 && v.Action != hook.Deny {
			t.Fatal("status 2 is no refusal")
		}
	})
}

type said struct {
	out  []byte
	exit int
}

func (s said) Run(context.Context, string, []string, []byte, time.Duration) ([]byte, []byte, int, error) {
	return s.out, s.out, s.exit, nil
}

// asPlugin runs a program as a plug-in is asked: it gets the event, and answers with a decision.
type asPlugin struct {
	script   string
	declared []hook.Declared
}

func (p asPlugin) Hooks(string) ([]hook.Declared, error) { return p.declared, nil }

func (p asPlugin) Hook(ctx context.Context, _ string, event json.RawMessage, timeout time.Duration) (json.RawMessage, error) {
	out, _, exit, err := (&process{}).Run(ctx, "", []string{"/bin/sh", "-c", p.script}, event, timeout)
	if err == nil && exit != 0 {
		err = fmt.Errorf("it broke with status %d", exit)
	}
	return out, err
}

// A plug-in decides as a command does: the same answers mean the same.
func TestPlugins_decideAsCommandsDo(t *testing.T) {
	for _, out := range []string{
		``, `{}`, `{"decision":"block","reason":"no"}`, `{"decision":"approve"}`, `{"continue":false,"stopReason":"enough"}`, `{"reason":"x"}`, `{"decision":7}`,
		`{"hookSpecificOutput":{"permissionDecision":"allow","permissionDecisionReason":"fine"}}`,
		`{"hookSpecificOutput":{"permissionDecision":"ask","permissionDecisionReason":"look"}}`,
		`{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"no"}}`,
		`{"hookSpecificOutput":{"permissionDecision":"dney"}}`, `{"hookSpecificOutput":{"updatedInput":{"command":"ls -la"}}}`,
		`{"hookSpecificOutput":{"updatedInput":[1]}}`, `{"hookSpecificOutput":{"additionalContext":"mind the gap"}}`,
	} {
		say := "cat >/dev/null; printf '%s' '" + out + "'"
		command := before(t, sh("PreToolUse", say))
		p := asPlugin{say, []hook.Declared{{Event: "PreToolUse", OnFailure: hook.FailAsk}}}
		v, err := hook.Commands([]definition.CommandHook{{Plugin: "p", Timeout: 20 * time.Second}}, &process{}, p, "/workspace").BeforeTool(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		if len(command.Warnings) != len(v.Warnings) {
			t.Errorf("%s: warnings %q and %q", out, command.Warnings, v.Warnings)
		}
		command.Warnings, v.Warnings = nil, nil
		v.Reason = strings.ReplaceAll(v.Reason, "the plug-in p decides about this and cannot be asked: its answer makes no sense", "the answer of the hook of the plug-in p was not understood")
		command.Reason = strings.ReplaceAll(command.Reason, fmt.Sprintf("%.80q", "/bin/sh -c "+say), "of the plug-in p")
		if d := cmp.Diff(command, v); d != "" {
			t.Errorf("%s (-command +plug-in):\n%s", out, d)
		}
	}
}

// missing are plug-ins of which there are none.
type missing struct{}

func (missing) Hooks(name string) ([]hook.Declared, error) {
	return nil, errs.New(errs.NotFound, "there is no plug-in %q", name)
}

func (m missing) Hook(_ context.Context, name string, _ json.RawMessage, _ time.Duration) (json.RawMessage, error) {
	_, err := m.Hooks(name)
	return nil, err
}

// A plug-in that breaks, or is not there, does not let pass what it was to decide about, unless its
// manifest says so; what it only hears of goes on, and the run is told.
func TestPlugins_thatBreakFailClosed(t *testing.T) {
	one := func(script, event string, f hook.Failure) hook.Plugins {
		return asPlugin{script, []hook.Declared{{Event: event, OnFailure: f}}}
	}
	const cannot = "the plug-in p decides about this and cannot be asked: "
	nonsense := cannot + "its answer makes no sense"
	cases := []struct {
		name, event string
		plugins     hook.Plugins
		action      hook.Action
		reason      string
		skipped     int
	}{
		{"one that breaks", "PreToolUse", one("exit 3", "PreToolUse", ""), hook.Deny, cannot, 0},
		{"one that breaks, ask", "PreToolUse", one("exit 3", "PreToolUse", hook.FailAsk), hook.Ask, cannot, 0},
		{"one that breaks, skip", "PreToolUse", one("exit 3", "PreToolUse", hook.FailSkip), hook.None, "", 1},
		{"one that hangs", "PreToolUse", one("exec sleep 30", "PreToolUse", ""), hook.Deny, cannot + "it did not answer in time", 0},
		{"no object", "PreToolUse", one("echo '[1]'", "PreToolUse", ""), hook.Deny, nonsense, 0},
		{"no object, ask", "PreToolUse", one("echo '[1]'", "PreToolUse", hook.FailAsk), hook.Ask, "", 0},
		{"no object, skip", "PreToolUse", one("echo '[1]'", "PreToolUse", hook.FailSkip), hook.Ask, "", 1},
		{"no decision that is one", "PreToolUse", one(`echo '{"decision":7}'`, "PreToolUse", ""), hook.Deny, nonsense, 0},
		{"arguments that are none", "PreToolUse", one(`echo '{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":[1]}}'`, "PreToolUse", ""), hook.Deny, nonsense, 0},
		{"none of this name", "PreToolUse", missing{}, hook.Deny, cannot + `there is no plug-in "p"`, 0},
		{"none at all", "PreToolUse", nil, hook.Deny, cannot + "there are no plug-ins here", 0},
		{"a prompt", "UserPromptSubmit", one("exit 3", "UserPromptSubmit", ""), hook.Deny, cannot, 0},
		{"a prompt, skip", "UserPromptSubmit", one("exit 3", "UserPromptSubmit", hook.FailSkip), hook.None, "", 1},
		{"a prompt, no plug-in", "UserPromptSubmit", missing{}, hook.Deny, cannot, 0},
		{"a result", "PostToolUse", one("exit 3", "PostToolUse", ""), hook.None, "", 1},
		{"the end", "Stop", one("exit 3", "Stop", ""), hook.None, "", 1},
		{"the end, no plug-in", "Stop", missing{}, hook.None, "", 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			timeout := 20 * time.Second
			if c.name == "one that hangs" {
				timeout = 50 * time.Millisecond
			}
			h := hook.Commands([]definition.CommandHook{{Plugin: "p", Timeout: timeout}}, &process{}, c.plugins, "")
			var v hook.Verdict
			switch c.event {
			case "PreToolUse":
				v, _ = h.BeforeTool(t.Context(), call)
			case "PostToolUse":
				v, _ = h.AfterTool(t.Context(), hook.ToolReply{ToolCall: call, Result: tool.Text("ok")})
			default:
				v = h.Notice(t.Context(), hook.Event{Name: c.event})
			}
			if v.Action != c.action || !strings.HasPrefix(v.Reason, c.reason) || len(v.Skipped) != c.skipped || len(v.Warnings) == 0 || v.Args != nil {
				t.Errorf("%+v", v)
			}
			if c.skipped > 0 && !strings.HasPrefix(v.Skipped[0], "The plug-in p was not asked about "+c.event) {
				t.Errorf("%q", v.Skipped)
			}
		})
	}
}

// A plug-in hears of what both its manifest and the agent's file name.
func TestPlugins_hearWhatBothName(t *testing.T) {
	deny := `echo '{"decision":"block"}'`
	cases := []struct {
		name     string
		hook     definition.CommandHook
		declared hook.Declared
		want     hook.Action
	}{
		{"all", definition.CommandHook{}, hook.Declared{Event: "PreToolUse"}, hook.Deny},
		{"the event", definition.CommandHook{Event: "PreToolUse"}, hook.Declared{Event: "PreToolUse"}, hook.Deny},
		{"another event", definition.CommandHook{Event: "Stop"}, hook.Declared{Event: "PreToolUse"}, hook.None},
		{"an event that is not declared", definition.CommandHook{Event: "PreToolUse"}, hook.Declared{Event: "Stop"}, hook.None},
		{"the tool", definition.CommandHook{Tools: []string{"exec*"}}, hook.Declared{Event: "PreToolUse", Tools: []string{"execute"}}, hook.Deny},
		{"another tool", definition.CommandHook{Tools: []string{"ls"}}, hook.Declared{Event: "PreToolUse"}, hook.None},
		{"a tool that is not declared", definition.CommandHook{Tools: []string{"execute"}}, hook.Declared{Event: "PreToolUse", Tools: []string{"ls"}}, hook.None},
	}
	for _, c := range cases {
		c.hook.Plugin = "p"
		v, err := hook.Commands([]definition.CommandHook{c.hook}, &process{}, asPlugin{deny, []hook.Declared{c.declared}}, "").BeforeTool(t.Context(), call)
		if err != nil || v.Action != c.want {
			t.Errorf("%s: %+v %v", c.name, v, err)
		}
	}
}
