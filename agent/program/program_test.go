package program_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/program"
	"github.com/skete-dev/skete/llm"
)

var tools = []llm.ToolSpec{{Name: "execute"}}

func ask(t *testing.T, p definition.Program, messages ...llm.Message) *llm.Response {
	t.Helper()
	for d, err := range program.New("a", p).Stream(t.Context(), &llm.Request{Messages: messages, Tools: tools, Step: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		return d.Response
	}
	t.Fatal("it says nothing")
	return nil
}

func user(text string) llm.Message {
	return llm.Message{Role: llm.RoleUser, Blocks: []llm.Block{llm.Text(text)}}
}

func called() llm.Message {
	return llm.Assistant(llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: "c", Name: "execute", Args: json.RawMessage("{}")}})
}

func came(text string, failed bool) llm.Message {
	return llm.Message{Role: llm.RoleUser, Blocks: []llm.Block{{Kind: llm.KindResult, Result: &llm.Result{CallID: "c", Failed: failed, Blocks: []llm.Block{llm.Text(text)}}}}}
}

// It is called once for each thing that is asked for, with that in a variable, whatever is
// in it.
func TestModel_calls(t *testing.T) {
	p := definition.Program{Command: "node agent.js {task} --fast", Timeout: 90 * time.Second}
	for name, x := range map[string]struct {
		messages []llm.Message
		task     string
	}{
		"first":          {[]llm.Message{user("Fix it.")}, "Fix it."},
		"quotes":         {[]llm.Message{user("It's `$HOME` \"a\"\n'; rm -rf / #")}, `It'\''s ` + "`$HOME` \"a\"\n" + `'\''; rm -rf / #`},
		"two messages":   {[]llm.Message{user("Fix it."), user("And test it.")}, "Fix it.\nAnd test it."},
		"the next run":   {[]llm.Message{user("Fix it."), called(), came("done", false), llm.Assistant(llm.Text("done")), user("Now the docs.")}, "Now the docs."},
		"after a notice": {[]llm.Message{user("Fix it."), called()}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(t, p, x.messages...)
			calls := r.Message.Calls()
			if len(calls) != 1 || calls[0].Name != "execute" || r.Stop != llm.StopTools {
				t.Fatalf("%+v", r)
			}
			var args struct {
				Command string
				Timeout int
			}
			if err := json.Unmarshal(calls[0].Args, &args); err != nil {
				t.Fatal(err)
			}
			if want := "export SKETE_TASK='" + x.task + "'\nnode agent.js \"$SKETE_TASK\" --fast"; args.Command != want || args.Timeout != 90 {
				t.Errorf("%q for %d s, not %q", args.Command, args.Timeout, want)
			}
		})
	}
}

// What came of it is its last words, or what its events say; one that failed, or did not say
// that it is done, has failed.
func TestModel_outcome(t *testing.T) {
	long := strings.Repeat("a line of it\n", 2000)
	for name, x := range map[string]struct {
		events, output string
		failed         bool
		says           string
		stop           llm.Stop
	}{
		"text":                 {"", "working\ndone\n[Command succeeded with exit code 0]", false, "working\ndone\n[Command succeeded with exit code 0]", llm.StopEnd},
		"failed":               {"", "no key\n[Command failed with exit code 3]", true, "exit code 3", llm.StopFailed},
		"long":                 {"", long + "the end", false, "the end", llm.StopEnd},
		"events":               {"jsonl", "noise\n{\"tool\":\"write_file\"}\n{\"text\":\"I wrote it.\"}\n{\"done\":true}\n[Command succeeded with exit code 0]", false, "I wrote it.", llm.StopEnd},
		"a result":             {"jsonl", `{"done":true,"result":"42"}`, false, "42", llm.StopEnd},
		"only done":            {"jsonl", `{"done":true}`, false, "It is done.", llm.StopEnd},
		"not done":             {"jsonl", `{"text":"I began."}`, false, "did not say that it is done", llm.StopFailed},
		"done, then on":        {"jsonl", "{\"done\":true}\n{\"text\":\"no\"}", false, "did not say that it is done", llm.StopFailed},
		"an error":             {"jsonl", `{"error":"no model"}`, false, "no model", llm.StopFailed},
		"an error that passed": {"jsonl", "{\"error\":\"busy\"}\n{\"done\":true,\"result\":\"42\"}", false, "42", llm.StopEnd},
		"Codex": {
			"jsonl", `{"type":"thread.started","thread_id":"x"}
{"type":"item.completed","item":{"id":"item_0","type":"error","message":"Model metadata not found."}}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_1","type":"command_execution","aggregated_output":"x"}}
{"type":"item.completed","item":{"id":"item_2","type":"agent_message","text":"All done."}}
{"type":"turn.completed","usage":{"input_tokens":10}}`, false, "All done.", llm.StopEnd,
		},
		"Codex failed": {"jsonl", `{"type":"turn.failed","error":{"message":"stream error: 403"}}`, false, "stream error: 403", llm.StopFailed},
		"opencode": {
			"jsonl", `{"type":"step_start","part":{"type":"step-start"}}
{"type":"tool_use","part":{"tool":"bash","state":{"status":"completed"}}}
{"type":"step_finish","part":{"reason":"tool-calls","type":"step-finish"}}
{"type":"text","part":{"type":"text","text":"All done."}}
{"type":"step_finish","part":{"reason":"stop","type":"step-finish","cost":0}}`, false, "All done.", llm.StopEnd,
		},
		"opencode failed": {"jsonl", `{"type":"error","error":{"name":"APIError","data":{"message":"Forbidden: skete: no"}}}`, false, "Forbidden: skete: no", llm.StopFailed},
		"Claude Code": {
			"jsonl", `{"type":"system","subtype":"init","tools":["Bash","Write"],"model":"default"}
[claude-code:unrecognized_model] {"model":"default","query_source":"sdk"}
{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}}],"usage":{"input_tokens":5}}}
{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"a.txt","is_error":false}]},"tool_use_result":{"stdout":"a.txt"}}
{"type":"system","subtype":"api_retry","attempt":1,"error":"rate_limit"}
{"type":"assistant","message":{"content":[{"type":"text","text":"All done."}]}}
{"type":"result","subtype":"success","is_error":false,"num_turns":2,"result":"All done.","usage":{"input_tokens":10},"permission_denials":[]}
{"type":"system","subtype":"session_state_changed","state":"idle"}
[Command succeeded with exit code 0]`, false, "All done.", llm.StopEnd,
		},
		"Claude Code says nothing at its end": {
			"jsonl", `{"type":"assistant","message":{"content":[{"type":"text","text":"First."},{"type":"text","text":"All done."}]}}
{"type":"result","subtype":"success","is_error":false,"result":""}`, false, "First.\nAll done.", llm.StopEnd,
		},
		"Claude Code recovers": {
			"jsonl", `{"type":"assistant","message":{"content":[]},"error":"rate_limit"}
{"type":"result","subtype":"success","is_error":false,"result":"All done."}`, false, "All done.", llm.StopEnd,
		},
		"Claude Code failed": {
			"jsonl", `{"type":"assistant","message":{"content":[{"type":"text","text":"API Error: Connection refused"}]},"error":"unknown"}
{"type":"result","subtype":"success","is_error":true,"result":"API Error: Connection refused","terminal_reason":"api_error"}`, false, "API Error: Connection refused", llm.StopFailed,
		},
		"Claude Code had too many turns": {"jsonl", `{"type":"result","subtype":"error_max_turns","is_error":true,"errors":["Reached maximum number of turns (3)"]}`, false, "maximum number of turns", llm.StopFailed},
		"Claude Code ended early":        {"jsonl", `{"type":"result","subtype":"error_during_execution","is_error":false}`, false, "error_during_execution", llm.StopFailed},
		"Gemini CLI": {
			"jsonl", `YOLO mode is enabled. All tool calls will be automatically approved.
{"type":"init","timestamp":"2026-11-27T03:07:53.514Z","session_id":"dd8bfbb9","model":"default"}
{"type":"message","role":"user","content":"Fix it."}
{"type":"message","role":"assistant","content":"I lo","delta":true}
{"type":"message","role":"assistant","content":"ok.","delta":true}
{"type":"tool_use","tool_name":"read_file","tool_id":"read_file__1","parameters":{"file_path":"a.txt"}}
{"type":"tool_result","tool_id":"read_file__1","status":"error","output":"File not found.","error":{"type":"file_not_found","message":"File not found."}}
{"type":"error","severity":"warning","message":"Loop detected"}
{"type":"message","role":"assistant","content":"All ","delta":true}
noise
{"type":"message","role":"assistant","content":"done.","delta":true}
{"type":"result","status":"success","stats":{"total_tokens":171,"duration_ms":398,"models":{"m":{"total_tokens":171}}}}
[Command succeeded with exit code 0]`, false, "=All done.", llm.StopEnd,
		},
		"Gemini CLI says nothing":              {"jsonl", `{"type":"message","role":"user","content":"Fix it."}` + "\n" + `{"type":"result","status":"success"}`, false, "=It is done.", llm.StopEnd},
		"Gemini CLI failed":                    {"jsonl", `{"type":"result","status":"error","error":{"type":"Error","message":"[API Error: skete: no]"},"stats":{}}`, false, "=[API Error: skete: no]", llm.StopFailed},
		"Gemini CLI failed, and said why":      {"jsonl", `{"type":"error","severity":"error","message":"an empty response"}` + "\n" + `{"type":"result","status":"error","stats":{}}`, false, "=an empty response", llm.StopFailed},
		"Gemini CLI failed, and not why":       {"jsonl", `{"type":"result","status":"error"}`, false, "not why", llm.StopFailed},
		"Gemini CLI had too many turns":        {"jsonl", `{"type":"error","severity":"error","message":"Maximum session turns exceeded"}` + "\n" + `{"type":"result","status":"success"}`, false, "=Maximum session turns exceeded", llm.StopFailed},
		"Gemini CLI is not done":               {"jsonl", `{"type":"message","role":"assistant","content":"I begin.","delta":true}` + "\n" + `{"type":"tool_result","status":"error","error":{"message":"no"}}`, false, "did not say that it is done", llm.StopFailed},
		"Gemini CLI, in forms that it has not": {"jsonl", `{"type":"message","role":"assistant","content":["x"],"delta":"yes"}` + "\n" + `{"type":"message","role":"system","content":"x"}` + "\n" + `{"type":"result","status":["success"]}`, false, "did not say that it is done", llm.StopFailed},
		"a type of its own":                    {"jsonl", `{"type":"result","done":true,"result":"42"}`, false, "42", llm.StopEnd},
		"Claude Code is not done":              {"jsonl", `{"type":"assistant","message":{"content":[{"type":"text","text":"I begin."}]}}`, false, "did not say that it is done", llm.StopFailed},
		"keys of its own":                      {"jsonl", `{"done":true,"result":"42","item":"a pear","part":2,"errors":0,"is_error":"no","type":7,"subtype":[]}`, false, "42", llm.StopEnd},
		"lines that are no objects":            {"jsonl", "{\"done\":true,\"result\":\"42\"}\n7\n[\"x\"]\n\"done\"\nnull\n{\"done\":", false, "42", llm.StopEnd},
		"no events":                            {"jsonl", "hello", false, "hello", llm.StopFailed},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(t, definition.Program{Command: "x", Events: x.events}, user("Fix it."), called(), came(x.output, x.failed))
			whole, exact := strings.CutPrefix(x.says, "=")
			if text := r.Message.String(); !strings.Contains(text, whole) || exact && text != whole || r.Stop != x.stop || len(text) > 10<<10 {
				t.Errorf("%s: %.300q", r.Stop, text)
			}
		})
	}
}

// Without a sandbox there is no program.
func TestModel_noTool(t *testing.T) {
	for _, err := range program.New("a", definition.Program{Command: "x"}).Stream(t.Context(), &llm.Request{Messages: []llm.Message{user("x")}}) {
		if err == nil || !strings.Contains(err.Error(), "needs a sandbox") {
			t.Errorf("%v", err)
		}
	}
}

func FuzzModel(f *testing.F) {
	f.Add("Fix it.", "{\"done\":true}\n", "jsonl")
	f.Add("Fix it.", `{"type":"item.completed","item":{"type":"agent_message","text":"All done."}}`+"\n"+`{"type":"turn.completed"}`, "jsonl")
	f.Add("Fix it.", `{"type":"text","part":{"text":"All done."}}`+"\n"+`{"type":"step_finish","part":{"reason":"stop"}}`, "jsonl")
	f.Add("Fix it.", `{"type":"assistant","message":{"content":[{"type":"text","text":"All done."},{"type":"tool_use","name":"Bash"}]}}`+"\n"+`{"type":"result","subtype":"success","is_error":false,"result":"All done."}`, "jsonl")
	f.Add("Fix it.", `{"type":"result","subtype":"error_max_turns","is_error":true,"errors":["too many"]}`, "jsonl")
	f.Add("Fix it.", `{"type":"message","role":"assistant","content":"All ","delta":true}`+"\n"+`{"type":"message","role":"assistant","content":"done.","delta":true}`+"\n"+`{"type":"result","status":"success"}`, "jsonl")
	f.Add("Fix it.", `{"type":"error","severity":"error","message":{"content":[]},"delta":1}`+"\n"+`{"type":"result","status":"error","role":[]}`, "jsonl")
	f.Add("Fix it.", `{"type":"system","subtype":"init","message":[[]],"content":{},"done":"yes"}`, "jsonl")
	f.Fuzz(func(t *testing.T, task, output, events string) {
		p := definition.Program{Command: "x {task}", Events: events}
		if r := ask(t, p, user(task)); len(r.Message.Calls()) != 1 {
			t.Fatal("it is not called")
		}
		if r := ask(t, p, user(task), called(), came(output, false)); len(r.Message.Calls()) > 0 || len(r.Message.String()) > 10<<10 {
			t.Fatalf("%.300q", r.Message.String())
		}
		if r := ask(t, p, user(task), called(), came(output, true)); r.Stop != llm.StopFailed {
			t.Fatal("it failed, and did not fail its run")
		}
	})
}
