package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/test/browser"
)

// acpDir has a script that uses the client library of the Agent Client Protocol, and its version.
const acpDir = "testdata/acp"

const editing = `
model: {window_tokens: 100000, media: true}
scenes:
  - user: make it
    replies:
      - reasoning: I think first.
        text: I make a plan.
        calls:
          - name: write_todos
            args: {todos: [{content: Make it, status: in_progress}]}
          - name: read_file
            args: {file_path: /workspace/readme.md}
          - name: edit_file
            args: {file_path: /workspace/readme.md, old_string: hello, new_string: hello there}
          - name: write_file
            args: {file_path: /workspace/made.txt, content: "made 12 now\n"}
      - calls:
          - name: execute
            args: {command: 'printf "\000\377" > bin.dat; ln -s /etc/passwd link; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo x > new.log; rm -r sub; cat made.txt'}
      - calls:
          - name: write_todos
            args: {todos: [{content: Make it, status: completed}]}
    else: {text: It has 12 bytes.}
  - user: look
    replies:
      - calls:
          - name: execute
            args: {command: 'cat readme.md; ls passwd secret.log .git/config 2>/dev/null || echo passwd: none'}
    else: {text: 'It reads: {{result "execute"}}'}
  - user: change it
    replies:
      - calls:
          - name: execute
            args: {command: 'date +%N >> made.txt; echo changed'}
    else: {text: Changed.}
  - user: add one
    replies:
      - calls:
          - name: execute
            args: {command: 'echo theirs > asked.txt'}
    else: {text: Added.}
  - user: wait
    replies:
      - calls:
          - name: execute
            args: {command: sleep 1000}
    else: {text: It is over.}
  - user: ask me
    replies:
      - calls:
          - name: ask_user
            args: {question: Which colour?, options: [red, blue]}
    else: {text: 'You said: {{result "ask_user"}}'}
  - user: plan it
    replies:
      - calls:
          - name: submit_plan
            args: {plan: I look and then write., steps: [Look, Write]}
    else: {text: I go to work.}
  - user: refuse
    replies:
      - {text: "", stop: refusal}
  - user: slowly
    replies:
      - calls:
          - name: execute
            args: {command: 'echo begun >> runs.txt; while ! [ -e /tmp/go ]; do sleep 0.1; done; cat runs.txt'}
    else: {text: 'Once: {{result "execute"}}'}
  - user: again
    replies:
      - calls:
          - name: execute
            args: {command: 'echo begun >> runs.txt; while ! [ -e /tmp/go2 ]; do sleep 0.1; done; cat runs.txt'}
    else: {text: 'Twice: {{result "execute"}}'}
else: {text: You are welcome.}
`

// newEdited is a server for editors.
func newEdited(t *testing.T) *bridged {
	b := &bridged{address: listenAddress(t)}
	b.world = newWorld(t, "--providers", "gvisor", "--listen", b.address)
	b.withModel(editing, map[string]string{"careful.yaml": careful})
	b.start()
	made, err := b.c.CreateKey(b.ctx(), api.CreateKey{Name: "their-app"})
	b.ok(err)
	b.key = made.Secret
	return b
}

// editor is the script, for a directory of its own.
func (b *bridged) editor(args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	modules := browser.Install(b.t, acpDir)
	p, err := programs()
	b.ok(err)
	dir, err := filepath.EvalSymlinks(b.t.TempDir())
	b.ok(err)
	cmd = exec.Command(browser.Node(b.t), append([]string{filepath.Join(acpDir, "everything.mjs"), modules, dir}, args...)...)
	cmd.Env = append(os.Environ(), "SKETE="+p.skete, "SKETE_URL=http://"+b.address, "SKETE_KEY="+b.key, "XDG_CACHE_HOME="+b.t.TempDir())
	stderr = &bytes.Buffer{}
	cmd.Stderr = stderr
	return cmd, stderr
}

// The protocol's own client library, as an editor: the table of docs/bridges.md is made of
// what this test sees.
func TestACP_everyMethod(t *testing.T) {
	t.Parallel()
	b := newEdited(t)
	cmd, stderr := b.editor()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s\n%s", err, out, stderr, b.log)
	}
	const client = "TypeScript 2.4.0"
	results, methods := map[string]map[string]string{client: {}}, []string(nil)
	for line := range bytes.Lines(out) {
		var c called
		b.ok(json.Unmarshal(line, &c))
		if c.Result != "works" {
			t.Errorf("%s %s: %s", c.Method, c.Result, c.Note)
		}
		results[client][c.Method] = c.Result
		if !slices.Contains(methods, c.Method) {
			methods = append(methods, c.Method)
		}
	}
	if t.Failed() {
		t.Fatalf("%s\n%s", stderr, b.log)
	}
	checkTable(t, "methods and updates: made by TestACP_everyMethod", []string{client}, methods, results)
}

// The server is killed in the middle of a prompt and started again: the prompt goes on to
// its end, and nothing is done twice. Then the editor's agent is killed: the session can be
// loaded again, while its run goes on.
func TestACP_killed(t *testing.T) {
	t.Parallel()
	b := newEdited(t)
	cmd, stderr := b.editor("killed")
	in, err := cmd.StdinPipe()
	b.ok(err)
	out, err := cmd.StdoutPipe()
	b.ok(err)
	b.ok(cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	next := func() (got struct{ Session, Stop, Text, Loaded string }) {
		t.Helper()
		patience.Within(t, time.Minute, "the editor goes on", func() {
			if !lines.Scan() {
				t.Errorf("it did not go on: %s\n%s", stderr, b.log)
			}
		})
		b.ok(json.Unmarshal(lines.Bytes(), &got))
		return got
	}
	say := func() { _, err := io.WriteString(in, "go\n"); b.ok(err) }
	session := next().Session
	b.until("the command has begun", func() error {
		if text, _ := b.cli("vm", "exec", session, "--", "cat", "/workspace/runs.txt"); !strings.Contains(text, "begun") {
			return errors.New("not yet")
		}
		return nil
	})
	b.kill()
	b.start()
	say()
	b.must("vm", "exec", session, "--", "touch", "/tmp/go")
	if got := next(); got.Stop != "end_turn" || strings.Count(got.Text, "Once: ") != 1 || strings.Count(got.Text, "begun") != 1 {
		t.Errorf("after the kill of the server: %+v", got)
	}
	if got := next(); got.Loaded != "slowlyagain" {
		t.Errorf("loaded: %+v", got)
	}
	b.must("vm", "exec", session, "--", "touch", "/tmp/go2")
	say()
	if got := next(); got.Stop != "end_turn" || !strings.Contains(got.Text, "welcome") {
		t.Errorf("after the kill of the agent: %+v", got)
	}
}
