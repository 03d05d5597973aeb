package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/egress/registry"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
)

// codingAgents are the ones that are built in: which vendor's API they speak, how their own
// tools are called, and what of that is in the lines that they write.
var codingAgents = []struct {
	name    string
	vendor  string
	dialect llmtest.Dialect
	write   func(id, file, text string) llm.Block
	shell   func(id, line string) llm.Block
	lines   []string
}{
	{
		"codex", "openai",
		llmtest.OpenAI{},
		func(id, file, text string) llm.Block {
			patch := "*** Begin Patch\n*** Add File: " + file + "\n+" + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n+") + "\n*** End Patch\n"
			return callOf(id, "exec_command", map[string]any{"cmd": "apply_patch <<'EOF'\n" + patch + "EOF"})
		},
		func(id, line string) llm.Block {
			return callOf(id, "exec_command", map[string]any{"cmd": line, "yield_time_ms": 30_000})
		},
		[]string{`"type":"file_change"`, `"type":"command_execution"`, `"type":"agent_message"`, `"type":"turn.completed"`},
	},
	{
		"opencode", "compat",
		llmtest.Chat{},
		func(id, file, text string) llm.Block {
			return callOf(id, "write", map[string]any{"filePath": "/workspace/" + file, "content": text})
		},
		func(id, line string) llm.Block {
			return callOf(id, "bash", map[string]any{"command": line, "description": "Runs it"})
		},
		[]string{`"tool":"write"`, `"tool":"bash"`, `"type":"text"`, `"reason":"stop"`},
	},
	{
		"claude-code", "anthropic",
		llmtest.Anthropic{},
		func(id, file, text string) llm.Block {
			return callOf(id, "Write", map[string]any{"file_path": "/workspace/" + file, "content": text})
		},
		func(id, line string) llm.Block {
			return callOf(id, "Bash", map[string]any{"command": line, "description": "Runs it"})
		},
		[]string{`"name":"Write"`, `"name":"Bash"`, `"type":"tool_result"`, `"subtype":"success"`},
	},
	{
		"gemini", "google",
		llmtest.Google{},
		func(id, file, text string) llm.Block {
			return callOf(id, "write_file", map[string]any{"file_path": "/workspace/" + file, "content": text})
		},
		func(id, line string) llm.Block {
			return callOf(id, "run_shell_command", map[string]any{"command": line, "description": "Runs it"})
		},
		[]string{`"tool_name":"write_file"`, `"tool_name":"run_shell_command"`, `"type":"tool_result"`, `"type":"result"`},
	},
}

// major is the first number of a version as programs of Node print it.
func major(version string) (n int) {
	_, _ = fmt.Sscanf(version, "v%d", &n)
	return n
}

func callOf(id, name string, args map[string]any) llm.Block {
	text, _ := json.Marshal(args) // strings and numbers always can
	return llmtest.Call(id, name, string(text))
}

// tolerant is a vendor that looks at who asks for what, and at nothing else of what a
// program that others wrote says.
type tolerant struct{ llmtest.Dialect }

// Parse implements llmtest.Dialect.
func (v tolerant) Parse(r *http.Request, body []byte) (llmtest.Seen, error) {
	if google, ok := v.Dialect.(llmtest.Google); ok { // which has the model in the path
		return google.Parse(r, body)
	}
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	seen := llmtest.Seen{Key: bearer + r.Header.Get("X-Api-Key"), Body: body}
	var asked struct {
		Model  string
		Stream bool
		Tools  []struct {
			Name     string
			Function struct{ Name string }
		}
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return seen, err
	}
	seen.Model, seen.Stream = asked.Model, asked.Stream
	for _, t := range asked.Tools {
		seen.Request.Tools = append(seen.Request.Tools, llm.ToolSpec{Name: t.Name + t.Function.Name})
	}
	return seen, nil
}

// The test that an agent writes and runs, and its search for the host's key where its user
// may look. The word of the task, which is in the agent's own variables, shows that the
// search finds something. The patterns do not find themselves. Gemini CLI runs nothing that
// has a command in a command.
const (
	sumTest = "const test = require(\"node:test\"), assert = require(\"node:assert\");\ntest(\"sum\", () => assert.equal(1 + 2, 3));\n"
	runTest = "node --test sum.test.js"
	lookFor = `for word in 'the-key-of-the-hos[t]' 'canary-of-the-tas[k]'; do grep -rlsa --exclude-dir=node_modules "$word" "$HOME" /workspace /tmp /proc/[0-9]*/environ /proc/[0-9]*/cmdline | wc -l | sed 's/^/found in /'; done; env | grep -c 'the-key-of-the-hos[t]'`
)

// Coding agents that people use work by `skete run --agent`, as they are in the package
// registry: they are installed in the sandbox, find the server's model in the API that they
// speak, write by their own tools and run commands. What they did is a run, whose undo takes it
// back, and the key with which the model is asked is nowhere in the sandbox.
func TestCodingAgents(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("skipped: -short; it installs a gigabyte")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("skipped: no node and npm, which the sandbox has of the host")
	}
	set, err := registry.Ask(t.Context(), "sh")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(set.Sources, func(s registry.Source) bool { return s.Tool == "npm" })
	if i < 0 || !reaches(set.Sources[i].URL) {
		t.Skip("skipped: the registry of npm packages is not reached from here")
	}
	for _, x := range codingAgents {
		t.Run(x.name, func(t *testing.T) {
			if out, err := exec.Command("node", "--version").Output(); x.name == "gemini" && (err != nil || major(string(out)) < 20) {
				t.Skipf("skipped: Gemini CLI needs Node 20, and the sandbox has this machine's %s", out)
			}
			up := llmtest.NewServer(tolerant{x.dialect}, func(_ int, seen llmtest.Seen) llmtest.Reply {
				did := func(id string) bool { return strings.Contains(string(seen.Body), `"`+id+`"`) }
				reply := llmtest.Reply{Usage: llm.Usage{Input: 50, Output: 7}, Piece: 20}
				switch {
				case len(seen.Request.Tools) == 0: // what the conversation is to be called
					reply.Blocks = []llm.Block{llm.Text("A test of a sum")}
				case !did("call_write"):
					reply.Blocks = []llm.Block{llm.Text("I write the test."), x.write("call_write", "sum.test.js", sumTest)}
				case !did("call_test"):
					reply.Blocks = []llm.Block{x.shell("call_test", runTest)}
				case !did("call_look"):
					reply.Blocks = []llm.Block{x.shell("call_look", lookFor)}
				default:
					reply.Blocks = []llm.Block{llm.Text("The test passes.")}
				}
				return reply
			})
			defer up.Close()
			w := newWorld(t, "--providers", "gvisor")
			w.withModelAt(x.vendor, up.URL)
			w.env = append(w.env, "SKETE_HOST_REGISTRIES=true")
			w.start()
			w.code(x.name, x.lines, up)
		})
	}
}

// code lets the agent do its task, and looks at all that came of it.
func (w *world) code(agent string, lines []string, up *llmtest.Server) {
	w.t.Helper()
	id := w.must("run", "-d", "--keep", "--agent", agent, "--", "- Write a test of a sum, and run it: canary-of-the-task.")
	patience.Try(w.t, 5*time.Minute, "the end of the run", func() error {
		run, err := w.c.Run(id).Get(w.ctx())
		w.ok(err)
		if run.Sandbox != "" {
			w.ids[run.Sandbox] = true
		}
		if run.State == "pending" || run.State == "running" {
			return fmt.Errorf("it is %s, and the model was asked %d times", run.State, len(up.Seen()))
		}
		return nil
	})
	run, err := w.c.Run(id).Get(w.ctx())
	w.ok(err)
	out := w.output(id, "execute")
	told, err := w.c.Run(id).Transcript(w.ctx(), 0, 0)
	w.ok(err)
	if run.State != "succeeded" || len(told.Steps) != 2 || told.Steps[1].Text != "The test passes." {
		w.t.Fatalf("%+v\n%s", run, out)
	}
	for _, line := range append(lines, "sum.test.js", "The test passes.") {
		if !strings.Contains(out, line) {
			w.t.Errorf("there is no %s in what it told:\n%s", line, out)
		}
	}
	seen := up.Seen()
	for _, s := range seen {
		if s.Key != vendorKey || s.Model != "fast-1" {
			w.t.Errorf("the model's server sees %q, %q", s.Key, s.Model)
		}
	}
	w.told(string(seen[len(seen)-1].Body))
	sb := w.c.Sandbox(run.Sandbox)
	if m, err := sb.Models(w.ctx()); err != nil || m.Used.Calls != int64(len(seen)) || m.Used.Tokens != int64(57*len(seen)) {
		w.t.Errorf("it has used %+v by %d calls, %v", m, len(seen), err)
	}
	if _, err := sb.Files().Stat(w.ctx(), "/workspace/sum.test.js", false); err != nil {
		w.t.Errorf("what it wrote is not there: %v", err)
	}
	w.must("undo", "--run", id, "--yes")
	if _, err := sb.Files().Stat(w.ctx(), "/workspace/sum.test.js", false); err == nil {
		w.t.Error("the file is there after an undo")
	}
}

// told looks at what the model was told of its commands.
func (w *world) told(body string) {
	w.t.Helper()
	for _, part := range []string{"pass 1", `found in 0\nfound in `, "canary-of-the-task"} {
		if !strings.Contains(body, part) {
			w.t.Errorf("the model was not told %q:\n%s", part, body)
		}
	}
	if strings.Contains(body, `found in 0\nfound in 0`) {
		w.t.Errorf("the search found nothing at all:\n%s", body)
	}
}
