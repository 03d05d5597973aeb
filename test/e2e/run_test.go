package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/thread"
)

// withModel configures a scripted model, and agents by the names of their files.
func (w *world) withModel(script string, agents map[string]string) {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "script.yaml")
	files := map[string]string{
		path:                                script,
		filepath.Join(w.home, "skete.yaml"): "models:\n  - {name: play, vendor: script, script: " + strconv.Quote(path) + "}\nmodel: play\n",
	}
	for name, text := range agents {
		files[filepath.Join(w.home, "agents", name)] = text
	}
	for name, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// testTime bounds one command, and one reconnection, by the reference's time.
const testTime = time.Minute

// cli runs a command of the program; the server is there already.
func (w *world) cli(args ...string) (out string, code int) {
	w.t.Helper()
	p, err := programs()
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := patience.Context(context.Background(), testTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.skete, args...)
	cmd.Env = append(os.Environ(), "SKETE_HOME="+w.home)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("skete %q: %v", args, err)
	}
	if w.t.Failed() || cmd.ProcessState.ExitCode() > 5 {
		w.t.Logf("skete %q: status %d, %s", args, cmd.ProcessState.ExitCode(), stderr.String())
	}
	return string(data), cmd.ProcessState.ExitCode()
}

// must is cli that has to succeed; it returns the first word.
func (w *world) must(args ...string) string {
	w.t.Helper()
	out, code := w.cli(args...)
	if code != 0 {
		w.t.Fatalf("skete %q: status %d\n%s\nserver's log:\n%s", args, code, out, w.log)
	}
	return strings.TrimSpace(out)
}

// output is the whole output of a run's only call of a tool.
func (w *world) output(run, tool string) string {
	w.t.Helper()
	r := w.c.Run(run)
	o, err := r.Transcript(w.ctx(), 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range o.Steps {
		for _, c := range s.Calls {
			if c.Tool != tool || c.Status == "rejected" {
				continue
			}
			out, err := r.Output(w.ctx(), c.ID, 0)
			if err != nil {
				w.t.Fatal(err)
			}
			defer out.Close()
			data, err := io.ReadAll(out)
			if err != nil {
				w.t.Fatal(err)
			}
			return string(data)
		}
	}
	w.t.Fatalf("the run has no call of %s: %+v", tool, o)
	return ""
}

const working = `
replies:
  - text: I make a plan first.
    calls:
      - name: write_todos
        args: {todos: [{content: Write the file, status: in_progress}, {content: Look at it, status: pending}]}
      - name: write_file
        args: {file_path: /workspace/a.txt, content: "hello\n"}
  - calls:
      - name: execute
        args: {command: cat /workspace/a.txt}
  - calls:
      - name: write_todos
        args: {todos: [{content: Write the file, status: completed}, {content: Look at it, status: completed}]}
else: {text: It says hello.}
`

// TestRun: the command line's run works in a real sandbox, and is told afterwards.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withModel(working, nil)
	w.start()
	out, code := w.cli("run", "Write a greeting.")
	for _, part := range []string{"❯ Write a greeting.", "I make a plan first.", "◐ Write the file", "✓ write_file  /workspace/a.txt", "✓ execute  cat /workspace/a.txt", "☑ Look at it", "It says hello.", "✔ succeeded"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing", part)
		}
	}
	if code != 0 || t.Failed() {
		t.Fatalf("status %d\n%s", code, out)
	}
	id := strings.TrimSpace(w.must("runs", "-q"))
	if told := w.must("show", id); !strings.Contains(told, "step 4") || !strings.Contains(told, "☑ Write the file") || !strings.Contains(told, "✔ succeeded") {
		t.Errorf("%s", told)
	}
	if got := w.output(id, "execute"); !strings.HasPrefix(got, "hello\n") {
		t.Errorf("%q", got)
	}
	if text := w.must("run", "-q", "Again."); text != "It says hello." {
		t.Errorf("%q", text)
	}
}

// TestRun_survivesKill9: the server is killed in the middle of a command. The
// run goes on by itself, the command was started once, its true output is in
// the log, and who watches sees every event once.
func TestRun_survivesKill9(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withModel(`
replies:
  - calls:
      - name: execute
        args: {command: 'echo started >> /workspace/starts; for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.5; done; wc -l < /workspace/starts'}
else: {text: Done.}
`, nil)
	w.start()
	run, err := w.c.StartRun(w.ctx(), api.StartRun{Task: "Take your time."})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := client.New(client.Config{Socket: client.SocketPath(w.home), ReconnectTimeout: patience.Of(testTime)})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	var seqs []uint64
	killed := false
	for n, err := range watcher.Run(run.ID).Tree(w.ctx(), 0) {
		if err != nil {
			t.Fatalf("after %v: %v\nserver's log:\n%s", seqs, err, w.log)
		}
		if n.Live != nil && n.Live.Kind == "output" && !killed {
			killed = true
			w.kill()
			w.start()
		}
		if n.Event != nil {
			seqs = append(seqs, n.Event.Seq)
		}
	}
	if !killed {
		t.Error("no output was seen while the command ran")
	}
	for i := 1; i < len(seqs); i++ {
		if seqs[i] != seqs[i-1]+1 {
			t.Errorf("events %v", seqs)
			break
		}
	}
	done, err := w.c.Run(run.ID).Wait(w.ctx())
	if err != nil || done.State != "succeeded" {
		t.Fatalf("%+v, %v\nserver's log:\n%s", done, err, w.log)
	}
	want := "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8\n1\n"
	if got := w.output(run.ID, "execute"); !strings.HasPrefix(got, want) {
		t.Errorf("the output is %q: the last number says how often it was started", got)
	}
}

const careful = "description: Asks before it acts.\napprovals:\n  - {action: ask, tools: [execute], reason: acts}\n"

const acting = `
replies:
  - calls:
      - name: execute
        args: {command: echo original}
else: {text: 'It said: {{result "execute"}}'}
`

// TestApproval_survivesARestart, and what a person changed is what runs.
func TestApproval_survivesARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withModel(acting, map[string]string{"careful.yaml": careful})
	w.start()
	out, code := w.cli("run", "--agent", "careful", "Act.")
	if code != 3 || !strings.Contains(out, "│ command: echo original") {
		t.Fatalf("status %d\n%s", code, out)
	}
	id := w.must("runs", "-q", "--state", "interrupted")
	w.kill()
	w.start()
	if list := w.must("approve"); !strings.Contains(list, id) || !strings.Contains(list, "echo original") {
		t.Fatalf("%s", list)
	}
	w.must("approve", id, "--edit", `{"command":"echo changed"}`)
	if out, code = w.cli("attach", id); code != 0 {
		t.Fatalf("status %d\n%s\nserver's log:\n%s", code, out, w.log)
	}
	if got := w.output(id, "execute"); !strings.HasPrefix(got, "changed\n") {
		t.Errorf("%q", got)
	}
	if _, code := w.cli("approve", id); code != 125 {
		t.Errorf("a second decision: status %d", code)
	}
}

// Reject and respond reach the model, and nothing runs.
func TestApproval_reachesTheModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withModel(acting, map[string]string{"careful.yaml": careful})
	w.start()
	for flag, text := range map[string]string{"--reject": "not today", "--respond": "it printed 42"} {
		id := w.must("run", "-d", "--agent", "careful", "Act.")
		w.until("it waits", func() error {
			run, err := w.c.Run(id).Get(w.ctx())
			if err == nil && run.Waiting != 1 {
				err = errors.New(run.State)
			}
			return err
		})
		w.must("approve", id, flag, text)
		run, err := w.c.Run(id).Wait(w.ctx())
		if err != nil || run.State != "succeeded" || !strings.Contains(run.Text, text) {
			t.Errorf("%s: %+v, %v", flag, run, err)
		}
	}
}

// TestRun_cancelled ends the command in the guest too.
func TestRun_cancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withModel("replies:\n  - calls:\n      - name: execute\n        args: {command: 'echo here; exec sleep 1000'}\nelse: {text: Done.}\n", nil)
	w.start()
	id := w.must("run", "-d", "Sleep.")
	for n, err := range w.c.Run(id).Tree(w.ctx(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n.Live != nil && n.Live.Kind == "output" {
			break
		}
	}
	w.must("cancel", id, "--reason", "enough")
	if out, code := w.cli("attach", id); code != 4 {
		t.Errorf("status %d\n%s", code, out)
	}
	run, err := w.c.Run(id).Get(w.ctx())
	if err != nil || run.Sandbox == "" {
		t.Fatalf("%+v, %v", run, err)
	}
	w.until("the command has ended", func() error {
		ps, err := client.All(w.c.Sandbox(run.Sandbox).Processes(w.ctx()))
		for _, p := range ps {
			if p.State == "running" {
				err = errors.New("it runs")
			}
		}
		return err
	})
}

// TestForkAndReplay: a fork goes on differently, a replay does the same again.
func TestForkAndReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withModel(working, nil)
	w.start()
	w.must("run", "-q", "Write a greeting.")
	id := w.must("runs", "-q")
	var at uint64
	for e, err := range w.c.Run(id).History(w.ctx(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if b, ok := typed(t, e).Body.(thread.ToolCompleted); ok && b.Tool == "execute" {
			at = e.Seq
		}
	}
	data, _ := json.Marshal(at)
	fork := w.must("fork", id, "--at", string(data), "-d", "Now differently.")
	run, err := w.c.Run(fork).Wait(w.ctx())
	if err != nil || run.Fork == nil || run.Fork.Seq != at || run.State != "succeeded" {
		t.Errorf("%+v, %v", run, err)
	}
	again := w.must("replay", id, "-d")
	run, err = w.c.Run(again).Wait(w.ctx())
	if err != nil || run.State != "succeeded" || run.Replay != id {
		t.Fatalf("%+v, %v", run, err)
	}
	if got := w.output(again, "execute"); !strings.HasPrefix(got, "hello\n") {
		t.Errorf("%q", got)
	}
	first, err := w.c.Run(id).Get(w.ctx())
	if err != nil || first.Sandbox == run.Sandbox {
		t.Errorf("the replay worked in the same sandbox: %+v, %v", first, err)
	}
	if _, err := w.c.Run(id).Compare(w.ctx(), again); err != nil {
		t.Error(err)
	}
}
