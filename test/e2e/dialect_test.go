package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
)

// task is what the models of these tests do, one call a step.
var task = []struct{ tool, args string }{
	{"write_file", `{"file_path":"/workspace/sum.sh","content":"echo $((2 - 3))\n"}`},
	{"edit_file", `{"file_path":"/workspace/sum.sh","old_string":"2 - 3","new_string":"2 + 3"}`},
	{"execute", `{"command":"sh sum.sh"}`},
}

// play answers as the script of the task does, in whatever dialect it is asked.
func play(_ int, seen llmtest.Seen) llmtest.Reply {
	n, last := 0, ""
	for _, m := range seen.Request.Messages {
		for _, block := range m.Blocks {
			if block.Result != nil {
				n++
				last = llm.Message{Blocks: block.Result.Blocks}.String()
			}
		}
	}
	if n < len(task) {
		return llmtest.Reply{Blocks: []llm.Block{llmtest.Call(fmt.Sprintf("call_%d", n+1), task[n].tool, task[n].args)}}
	}
	return llmtest.Reply{Blocks: []llm.Block{llm.Text("It says " + last)}}
}

// Acceptance 7: one agent file runs against a script, and against servers of
// Chat Completions, of Anthropic's Messages and of OpenAI's Responses over real
// HTTP: the same calls, the same results.
func TestBrain_oneAgentManyDialects(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sk-test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var models strings.Builder
	var servers []*llmtest.Server
	for _, d := range []struct {
		name, vendor, id, path string
		dialect                llmtest.Dialect
	}{
		{"served", "compat", "some-model", "/v1", llmtest.Chat{}},
		{"claude", "anthropic", "claude-opus-5-5", "", llmtest.Anthropic{}},
		{"gpt", "openai", "gpt-5", "", llmtest.OpenAI{}},
	} {
		s := llmtest.NewServer(d.dialect, play)
		defer s.Close()
		servers = append(servers, s)
		fmt.Fprintf(&models, "  - {name: %s, vendor: %s, id: %s, url: '%s%s', key_file: '%s'}\n", d.name, d.vendor, d.id, s.URL, d.path, key)
	}
	var script strings.Builder
	script.WriteString("replies:\n")
	for i, c := range task {
		fmt.Fprintf(&script, "  - calls: [{name: %s, id: call_%d, args: %s}]\n", c.tool, i+1, c.args)
	}
	script.WriteString("else: {text: 'It says {{result \"execute\"}}'}\n")
	b := newBrain(t, map[string]string{"played": script.String()}, map[string]string{"fixer": "instructions: You fix things.\ntools: [write_file, edit_file, read_file, execute]\n"}, models.String())
	var first, said string
	for _, model := range []string{"played", "served", "claude", "gpt"} {
		run := b.run(model, api.StartRun{Agent: "fixer"})
		ended := b.wait(run.ID, "succeeded")
		calls := callsOf(b.events(run.ID))
		if model == "played" {
			first, said = calls, ended.Text
		}
		if calls != first || ended.Text != said || !strings.Contains(said, "5\n") {
			t.Errorf("%s called\n%s and said %q, the script called\n%s and said %q", model, calls, ended.Text, first, said)
		}
	}
	for _, s := range servers {
		for _, wrong := range s.Wrong() {
			t.Errorf("a server was asked wrongly: %v", wrong)
		}
	}
}

// Acceptance 7: a model without tool calls completes a task by strict JSON,
// one action a reply; a reply that is none is answered, and mended.
func TestBrain_strictJSON(t *testing.T) {
	t.Parallel()
	b := newBrain(t, map[string]string{"plain": `
model: {calling: json}
replies:
  - text: '{"action":"write_file","args":{"file_path":"/workspace/sum.sh","content":"echo $((2 + 3))\n"}}'
  - text: 'Now I list the files.'
  - text: '{"action":"list_files","args":{"path":"/workspace"}}'
  - text: '{"action":"read_file","args":{"file_path":"/workspace/sum.sh"}}'
  - text: '{"action":"run_command","args":{"command":"sh sum.sh"}}'
else: {text: '{"done":true,"result":"The sum is 5."}'}
`}, map[string]string{"strict": "tools: [write_file, read_file, list_files, run_command]\nlimits: {steps: 20}\n"}, "")
	run := b.run("plain", api.StartRun{Agent: "strict"})
	ended := b.wait(run.ID, "succeeded")
	got := b.results(run.ID)
	var tools []string
	for _, r := range got {
		tools = append(tools, r.Tool)
		if r.Failed {
			t.Errorf("%s: %q", r.Tool, r.text)
		}
	}
	if strings.Join(tools, " ") != "write_file list_files read_file run_command" || ended.Text != "The sum is 5." {
		t.Fatalf("it used %v and said %q", tools, ended.Text)
	}
	if !strings.HasPrefix(got[3].text, "5\n") || !strings.Contains(got[1].text, "sum.sh") {
		t.Errorf("%q %q", got[1].text, got[3].text)
	}
}
