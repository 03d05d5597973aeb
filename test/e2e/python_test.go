package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
)

// Our own package, and the script and the exact versions of what its tests use.
const (
	pythonSDK = "../../sdk/python"
	pythonDir = "testdata/python"
)

// python runs Python with our package as it is in the source, a server and a key.
func (b *bridged) python(args ...string) *exec.Cmd {
	b.t.Helper()
	packages := pythonPackages(b.t, filepath.Join(pythonDir, "requirements.txt"))
	own, err := filepath.Abs(filepath.Join(pythonSDK, "src"))
	b.ok(err)
	cmd := exec.Command("python3", args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+own+":"+packages, "PYTHONDONTWRITEBYTECODE=1",
		"SKETE_URL=http://"+b.address, "SKETE_KEY="+b.key)
	return cmd
}

// destroyAll destroys what the key's tenant has.
func (b *bridged) destroyAll() {
	c, err := client.New(client.Config{URL: "http://" + b.address, Key: b.key})
	b.ok(err)
	for sb, err := range c.Sandboxes(b.ctx(), client.SandboxFilter{}) {
		b.ok(err)
		b.ids[sb.ID] = true
		if sb.State != "destroyed" {
			b.ok(c.Sandbox(sb.ID).Destroy(b.ctx()))
		}
	}
}

// The package for Python does what it says, on a real machine: the client, runs of
// agents, who may do what, and the sandbox for LangChain's Deep Agents, which passes
// LangChain's own tests of sandboxes.
func TestPython(t *testing.T) { pythonTests(t, false) }

// The same in machines with a kernel of their own.
func TestPython_qemu(t *testing.T) {
	byHand(t)
	pythonTests(t, true)
}

func pythonTests(t *testing.T, qemu bool) {
	b := &bridged{address: listenAddress(t)}
	b.world = newWorldOf(t, qemu, "--listen", b.address)
	b.withModel(acting, map[string]string{"careful.yaml": careful})
	b.start()
	made, err := b.c.CreateKey(b.ctx(), api.CreateKey{Name: "py-tests", Tenant: "py"})
	b.ok(err)
	b.key = made.Secret
	t.Cleanup(b.destroyAll) // runs leave theirs, and the world sees one tenant alone
	foreign, err := b.c.CreateSandbox(b.ctx(), api.CreateSandbox{})
	b.ok(err)
	b.ids[foreign.ID] = true
	cmd := b.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--durations=5")
	cmd.Dir = pythonSDK
	cmd.Env = append(cmd.Env, "SKETE_FOREIGN="+foreign.ID, "SKETE_SCRIPTED=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\nserver's log:\n%s", err, out, b.log)
	}
	t.Logf("%s", out)
	passed := regexp.MustCompile(`(?m)^[0-9]+ passed, 7 xfailed in `) // none skipped: each does something
	if !passed.Match(out) {
		t.Errorf("not all tests were run:\n%s", out)
	}
}

// What a command writes arrives whole though the server is killed meanwhile, and
// commands that are waited for run once and are answered.
func TestPython_killed(t *testing.T) {
	t.Parallel()
	b := newBridged(t, foreign{})
	cmd := b.python(filepath.Join(pythonDir, "killed.py"))
	in, err := cmd.StdinPipe()
	b.ok(err)
	out, err := cmd.StdoutPipe()
	b.ok(err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	b.ok(cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	next := func() string {
		patience.Within(t, time.Minute, "the client's next line", func() {
			if !lines.Scan() {
				t.Errorf("the client has ended: %s\nserver's log:\n%s", stderr.String(), b.log)
			}
		})
		return lines.Text()
	}
	if next() != "begun" {
		t.Fatalf("it said %q", lines.Text())
	}
	b.kill()
	_, err = io.WriteString(in, "on\n")
	b.ok(err)
	b.start()
	var got struct {
		Whole   bool
		Code    int
		Results []string
		Runs    string
	}
	b.ok(json.Unmarshal([]byte(next()), &got))
	if !got.Whole || got.Code != 7 || !slices.Equal(got.Results, []string{"after\n", "after\n"}) || got.Runs != "begun\nbegun\n" {
		t.Errorf("%+v", got)
	}
}

// The example of a Deep Agent plans, edits, runs and is undone; the history says who did what.
func TestPython_deepAgent(t *testing.T) {
	t.Parallel()
	b := newBridged(t, foreign{})
	steps := []llm.Block{
		callOf("call_0", "write_todos", map[string]any{"todos": []map[string]string{{"content": "write it", "status": "in_progress"}}}),
		callOf("call_1", "write_file", map[string]any{"file_path": "/workspace/buzz.py", "content": "print('fiz')\n"}),
		callOf("call_2", "edit_file", map[string]any{"file_path": "/workspace/buzz.py", "old_string": "fiz", "new_string": "fizz"}),
		callOf("call_3", "execute", map[string]any{"command": "python3 buzz.py | tee out.txt"}),
		callOf("call_4", "write_todos", map[string]any{"todos": []map[string]string{{"content": "write it", "status": "completed"}}}),
	}
	up := llmtest.NewServer(tolerant{llmtest.Chat{}}, func(_ int, seen llmtest.Seen) llmtest.Reply {
		done := 0
		for done < len(steps) && strings.Contains(string(seen.Body), `"call_`+string(rune('0'+done))+`"`) {
			done++
		}
		if done < len(steps) {
			return llmtest.Reply{Blocks: []llm.Block{steps[done]}}
		}
		if !strings.Contains(string(seen.Body), `fizz\n`) {
			return llmtest.Reply{Blocks: []llm.Block{llm.Text("It printed something else.")}}
		}
		return llmtest.Reply{Blocks: []llm.Block{llm.Text("It prints fizz.")}}
	})
	defer up.Close()
	cmd := b.python(filepath.Join(pythonSDK, "examples", "deep_agent.py"), "Print fizz.")
	cmd.Env = append(cmd.Env, "OPENAI_BASE_URL="+up.URL, "OPENAI_API_KEY=any", "MODEL=scripted", "LANGSMITH_TRACING=false")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\nserver's log:\n%s", err, out, b.log)
	}
	head, rest, _ := strings.Cut(string(out), "sandbox: ")
	id, rest, _ := strings.Cut(rest, "\n")
	if want := "[completed] write it\nIt prints fizz.\n"; head != want {
		t.Errorf("it said %q, not %q", head, want)
	}
	want := `API (their-app): exec python3 buzz.py | tee out.txt
API (their-app): write "/workspace/buzz.py"
API (their-app): write "/workspace/buzz.py"
add buzz.py
add out.txt
undone: 0 files differ
`
	if rest != want {
		t.Errorf("it said %q, not %q", rest, want)
	}
	b.ids[id] = true
	if list := b.must("history", id); !strings.Contains(list, "their-app") || !strings.Contains(list, "exec python3 buzz.py") {
		t.Errorf("the history of the sandbox, which is gone, says:\n%s", list)
	}
}
