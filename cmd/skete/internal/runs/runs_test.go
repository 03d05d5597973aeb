package runs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/agent/definition"
	news "github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/server/runs/runstest"
	"github.com/skete-dev/skete/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server whose runs follow a script, and the program as its client.
type world struct {
	t    *testing.T
	s    *runstest.Server
	fake *runstest.Fake
	c    *client.Client
}

func newWorld(t *testing.T, script func(*runstest.Play)) *world {
	t.Helper()
	t.Setenv("NO_COLOR", "1")
	t.Setenv("TERM", "xterm")
	f := runstest.New(script)
	t.Cleanup(f.Close)
	s := runstest.Serve(t, f)
	c, err := client.New(client.Config{URL: s.URL, Key: s.Key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &world{t, s, f, c}
}

// program runs the commands as package main does.
func (w *world) program(ctx context.Context, in *os.File, out, errOut *os.File, args ...string) int {
	a := app.New(in, out, errOut)
	defer a.Close()
	root := &cobra.Command{Use: "skete", SilenceErrors: true, SilenceUsage: true, PersistentPreRunE: func(*cobra.Command, []string) error { return a.Setup() }}
	root.PersistentFlags().BoolVar(&a.JSON, "json", false, "")
	root.PersistentFlags().BoolVarP(&a.Quiet, "quiet", "q", false, "")
	a.URL, a.Key, a.LogLevel, a.Home = w.s.URL, w.s.Key, "error", w.t.TempDir()
	root.AddCommand(runs.Commands(a)...)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	return a.Finish(ctx, root.ExecuteContext(ctx))
}

type result struct {
	code        int
	out, errOut string
}

var ids = regexp.MustCompile(`(run|thr|key)_[a-z2-7]{20}|key_[0-9a-f]{20}`)

// cli runs a command without a terminal; ids are made the same in what it printed.
func (w *world) cli(stdin string, args ...string) result {
	w.t.Helper()
	ctx, cancel := patience.Context(w.t.Context(), 30*time.Second)
	defer cancel()
	in, out, errOut := w.file(stdin), w.file(""), w.file("")
	code := w.program(ctx, in, out, errOut, args...)
	read := func(f *os.File) string {
		data, err := os.ReadFile(f.Name())
		if err != nil {
			w.t.Fatal(err)
		}
		return string(data)
	}
	return result{code, read(out), read(errOut)}
}

func (w *world) file(text string) *os.File {
	f, err := os.CreateTemp(w.t.TempDir(), "")
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { f.Close() })
	return f
}

func hide(s string) string { return ids.ReplaceAllString(s, "${1}_ID") }

func (w *world) start(task string) string {
	w.t.Helper()
	run, err := w.c.StartRun(w.t.Context(), api.StartRun{Task: task, Title: task})
	if err != nil {
		w.t.Fatal(err)
	}
	return run.ID
}

// until waits for a state of a run.
func (w *world) until(id string, ok func(api.Run) bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience.Of(20 * time.Second)); ; {
		run, err := w.c.Run(id).Get(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if ok(run) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("it stays %+v", run)
		}
		<-time.After(2 * time.Millisecond)
	}
}

func working(p *runstest.Play) {
	p.Answer("I look around.", runstest.Call("c1", "execute", `{"command":"ls"}`))
	p.Run("c1", "execute", "a.txt\nb.txt\n")
	p.Answer("There are two files.")
	p.End(thread.RunSucceeded, "There are two files.")
}

func asking(p *runstest.Play) {
	p.Answer("", runstest.Call("c1", "execute", `{"command":"make"}`))
	p.Ask("c1", "execute", `{"command":"make"}`, "builds")
	d := p.Decision("c1")
	if d.Decision == thread.Approve || d.Decision == thread.Edit {
		p.Begin("c1", "execute")
	}
	p.Done("c1", fmt.Sprintf("%s%s%s", d.Decision, d.Args, d.Text))
	p.Answer("It was " + string(d.Decision))
	p.End(thread.RunSucceeded, "It was "+string(d.Decision))
}

func TestRun_piped(t *testing.T) {
	w := newWorld(t, working)
	got := w.cli("", "run", "What", "is", "there?")
	want := `run_ID  agent default · model script
❯ What is there?

I look around.
  ✓ execute  ls  0.3s · 12 B

There are two files.

✔ succeeded
`
	out := hide(got.out)
	out, numbers, _ := strings.Cut(out, "✔ succeeded\n")
	if diff := cmp.Diff(want, out+"✔ succeeded\n"); diff != "" || got.code != 0 || got.errOut != "" || !strings.Contains(numbers, "2 steps · 2.9k tokens · $0.0250") {
		t.Errorf("status %d, %q, %q\n%s", got.code, numbers, got.errOut, diff)
	}
}

func TestRun_quiet(t *testing.T) {
	w := newWorld(t, working)
	if got := w.cli("What is there?", "run", "-q", "-"); got != (result{0, "There are two files.\n", ""}) {
		t.Errorf("%+v", got)
	}
	w = newWorld(t, func(p *runstest.Play) {
		p.Answer("ok")
		p.Result("ok", `{"primes":[2,3]}`)
	})
	if got := w.cli("", "run", "-q", "x"); got != (result{0, "{\"primes\":[2,3]}\n", ""}) {
		t.Errorf("%+v", got)
	}
}

// The record of a run, and what was tied to it, is behind the log: the command
// after this one must find the run over.
func TestRun_returnsWhenTheRecordSaysSo(t *testing.T) {
	w := newWorld(t, working)
	w.fake.Behind = 2
	if got := w.cli("", "run", "-q", "x"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	list, err := client.All(w.c.Runs(t.Context(), client.RunFilter{}))
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if run, err := w.c.Run(list[0].ID).Get(t.Context()); err != nil || !run.Final() {
		t.Errorf("after the command the run is %q, %v", run.State, err)
	}
}

func TestRun_json(t *testing.T) {
	w := newWorld(t, working)
	got := w.cli("", "run", "--json", "x")
	var kinds []string
	var last struct{ Run api.Run }
	for line := range strings.Lines(got.out) {
		var l struct {
			Event *thread.Event
			Run   api.Run
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if l.Event != nil {
			kinds = append(kinds, string(l.Event.Body.Kind()))
		}
		last.Run = l.Run
	}
	want := []string{"run.started", "input", "model.completed", "tool.started", "tool.completed", "model.completed", "run.ended"}
	if diff := cmp.Diff(want, kinds); diff != "" || last.Run.State != "succeeded" || got.errOut != "" || got.code != 0 {
		t.Errorf("%+v\n%s", last, diff)
	}
}

func TestRun_exitStatus(t *testing.T) {
	for state, want := range map[thread.RunState]int{thread.RunSucceeded: 0, thread.RunFailed: 1, thread.RunCancelled: 4, thread.RunTimedOut: 5} {
		w := newWorld(t, func(p *runstest.Play) { p.End(state, "because") })
		for _, how := range [][]string{nil, {"--json"}, {"-q"}} {
			if got := w.cli("", append([]string{"run", "x"}, how...)...); got.code != want {
				t.Errorf("%s %v: status %d, want %d (%s)", state, how, got.code, want, got.errOut)
			}
		}
	}
}

// Without a terminal to ask at, it ends with 3, and the run waits on.
func TestRun_waits(t *testing.T) {
	w := newWorld(t, asking)
	got := w.cli("", "run", "x")
	if got.code != 3 || !strings.Contains(got.out, "? execute  waits for approval: builds\n  │ command: make") || !strings.Contains(hide(got.errOut), "skete approve run_ID") {
		t.Errorf("%+v", got)
	}
	for policy, want := range map[string]string{"all": "It was approve", "none": "It was reject"} {
		if got := w.cli("", "run", "-q", "--approve", policy, "x"); got.code != 0 || got.out != want+"\n" {
			t.Errorf("%s: %+v", policy, got)
		}
	}
}

func TestRun_wrongUsage(t *testing.T) {
	w := newWorld(t, nil)
	for _, args := range [][]string{
		{"run"},
		{"run", " "},
		{"run", "x", "--file", "also"},
		{"run", "--file", "/no/such/file"},
		{"run", "x", "--approve", "maybe"},
		{"run", "x", "--no-such-flag"},
		{"run", "x", "--budget-steps", "many"},
		{"run", "x", "--budget-steps", "-1"},
		{"run", "x", "--timeout", "soon"},
		{"run", "x", "--label", "novalue"},
		{"run", "x", "--mem", "much"},
		{"run", "x", "--schema", os.DevNull},
		{"run", "x", "--sandbox", "sbx_aaaaaaaaaaaaaaaaaaaa", "--cpus", "2"},
		{"show"},
		{"show", "nonsense"},
		{"show", "run_"},
		{"fork", "last"},
		{"rewind", "last"},
		{"approve", "last", "c1", "--edit", "[1]"},
		{"approve", "last", "c1", "--reject", "x", "--respond", "y"},
		{"approve", "a", "b", "c"},
		{"agent", "show"},
		{"cancel"},
	} {
		if got := w.cli("", args...); got.code != 2 || got.errOut == "" {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if got := w.cli("", "run", "x", "--agent", "nobody"); got.code != 125 {
		t.Errorf("an agent that is not there: %+v", got)
	}
	if got := w.cli("", "show", "run_aaaaaaaaaaaaaaaaaaaa"); got.code != 125 || !strings.Contains(got.errOut, "no run") {
		t.Errorf("%+v", got)
	}
}

func TestRun_sendsWhatWasSaid(t *testing.T) {
	w := newWorld(t, nil)
	schema := filepath.Join(t.TempDir(), "s.json")
	if err := os.WriteFile(schema, []byte(`{"type":"object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got := w.cli("", "run", "-d", "--json", "x", "--agent", "reviewer", "--model", "m", "--title", "t", "--label", "k=v", "--budget-steps", "5", "--budget-cost", "0.5",
		"--timeout", "2m", "--schema", schema, "--lang", "py", "--mem", "1g", "--cpus", "2")
	var run api.Run
	if err := json.Unmarshal([]byte(got.out), &run); err != nil || got.code != 0 {
		t.Fatalf("%+v %v", got, err)
	}
	want := api.Budget{Steps: 5, CostUSD: 0.5, WallMS: 120_000}
	if run.Agent != "reviewer" || run.Model != "m" || run.Title != "t" || run.Labels["k"] != "v" || run.Budget != want {
		t.Errorf("%+v", run)
	}
	if got := w.cli("", "run", "-d", "x"); !strings.HasPrefix(got.out, "run_") || strings.Count(got.out, "\n") != 1 {
		t.Errorf("-d prints the id alone: %+v", got)
	}
}

func TestRun_namesScriptsByTheirWholePath(t *testing.T) {
	w := newWorld(t, nil)
	dir := t.TempDir()
	t.Chdir(dir)
	started := w.cli("", "run", "-d", "-q", "x", "--model", "script/a/fix.yaml")
	id := strings.TrimSpace(started.out)
	log, err := w.fake.Log(t.Context(), "default")
	if err != nil || started.code != 0 {
		t.Fatalf("%+v %v", started, err)
	}
	run, err := w.c.Run(id).Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sent := ""
	for e, err := range log.Load(t.Context(), thread.ID(run.Thread), 1) {
		if err != nil {
			t.Fatal(err)
		}
		if b, is := e.Body.(thread.RunStarted); is {
			sent = b.Model
		}
	}
	if sent != "script/"+filepath.Join(dir, "a", "fix.yaml") {
		t.Errorf("the server was asked for %q", sent)
	}
	for _, args := range [][]string{{"show", id}, {"show", id, "--events"}, {"show", id, "--json"}, {"show", id, "--full"}, {"runs", "--json"}} {
		if got := w.cli("", args...); got.code != 0 || strings.Contains(got.out, dir) {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

func TestRun_definitionInAFile(t *testing.T) {
	w := newWorld(t, nil)
	t.Chdir(t.TempDir())
	files := map[string]string{
		"plain.yaml":  "description: Reads.\nlimits: {steps: 3, tool_timeout: 90s}\ninstructions: Be terse.\n",
		"marked.md":   "---\ndescription: Reads.\nlimits: {steps: 3, tool_timeout: 90s}\n---\nBe terse.\n",
		"sent.json":   `{"name":"sent","limits":{"steps":3,"tool_timeout":"90s"},"instructions":"Be terse."}`,
		"wrong.yaml":  "description: x\nlimits:\n  stpes: 3\n",
		"front.md":    "Be terse.\n",
		"host.yaml":   "hooks:\n  - {event: Stop, command: [id], where: host}\n",
		"nothing.bin": "\x00",
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := w.fake.Log(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plain.yaml", "marked.md", "sent.json"} {
		got := w.cli("", "run", "-d", "--json", "x", "--definition", name)
		var run api.Run
		if err := json.Unmarshal([]byte(got.out), &run); err != nil || got.code != 0 {
			t.Fatalf("%s: %+v %v", name, got, err)
		}
		agent, _, _ := strings.Cut(name, ".")
		if run.Agent != agent {
			t.Errorf("%s: the agent is called %q", name, run.Agent)
		}
		for e, err := range log.Load(t.Context(), thread.ID(run.Thread), 1) {
			if err != nil {
				t.Fatal(err)
			}
			if b, is := e.Body.(thread.Opened); is && (!strings.Contains(string(b.Agent), `"instructions":"Be terse."`) || !strings.Contains(string(b.Agent), `"tool_timeout_ns":90000000000`) || !strings.Contains(string(b.Agent), `"steps":3`)) {
				t.Errorf("%s arrived as %s", name, b.Agent)
			}
		}
	}
	for name, want := range map[string]string{
		"wrong.yaml": `wrong.yaml:3:3: "stpes" is not a key here; did you mean "steps"?`, "front.md": "front.md:1:1: ", "nothing.bin": "nothing.bin:1:", "none.yaml": "cannot read",
	} {
		if got := w.cli("", "run", "x", "--definition", name); got.code != 2 || !strings.Contains(got.errOut, want) {
			t.Errorf("%s: %+v, want %q", name, got, want)
		}
	}
	if got := w.cli("", "run", "x", "--definition", "host.yaml"); got.code == 0 || !strings.Contains(got.errOut, "in the sandbox, not on the host") {
		t.Errorf("a hook on the host: %+v", got)
	}
	if got := w.cli(files["plain.yaml"], "run", "-d", "x", "--definition", "-"); got.code != 0 {
		t.Errorf("from stdin: %+v", got)
	}
}

func TestAttach(t *testing.T) {
	gate := make(chan struct{})
	w := newWorld(t, func(p *runstest.Play) {
		for i := range 50 {
			p.Answer(fmt.Sprintf("step %d", i))
		}
		p.Until(gate)
		p.End(thread.RunSucceeded, "ok")
	})
	id := w.start("x")
	w.until(id, func(r api.Run) bool { return r.Steps == 50 })
	close(gate)
	got := w.cli("", "attach", id[:12])
	if got.code != 0 || !strings.Contains(got.out, "lines before these") || strings.Contains(got.out, "step 3\n") || !strings.Contains(got.out, "step 49\n") {
		t.Errorf("%+v", got)
	}
	if all := w.cli("", "attach", "last", "--all"); !strings.Contains(all.out, "step 3\n") {
		t.Errorf("%+v", all)
	}
}

func TestRunsAndShow(t *testing.T) {
	w := newWorld(t, working)
	id := w.start("What is there?")
	w.until(id, api.Run.Final)
	if got := w.cli("", "runs"); got.code != 0 || !strings.Contains(got.out, id+"  succeeded  default  2      $0.0250") || !strings.Contains(got.out, "What is there?") {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "runs", "-q", "--state", "failed"); got.out != "" {
		t.Errorf("%+v", got)
	}
	got := w.cli("", "show", "last")
	want := `run_ID  What is there? · agent default · model script

❯ What is there?
  event 3

step 1  event 4 · 1.4k tokens · $0.0125 · 1.2s
I look around.
  ✓ execute  ls  events 5, 6 · 0.3s · 12 B · c1

step 2  event 7 · 1.4k tokens · $0.0125 · 1.2s
There are two files.

✔ succeeded
`
	out, rest, _ := strings.Cut(hide(got.out), "  2 steps")
	_, rest, _ = strings.Cut(rest, "\n")
	rest = strings.ReplaceAll(rest, "\n  ", " ") // it is longer than a line of 80
	wantWindow := "  window: 12.4k of 200k tokens: instructions 0.6k, tools 2.1k, memory 0.2k, inputs 60, replies 1.2k, results 8.2k\n"
	if diff := cmp.Diff(wantWindow, rest); diff != "" {
		t.Errorf("the last line: %s", diff)
	}
	if full := w.cli("", "show", id, "--full"); strings.Count(full.out, "window: 12.4k of 200k") != 2 {
		t.Errorf("--full does not say it for each step: %+v", full)
	}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("%+v\n%s", got, diff)
	}
	if got := w.cli("", "show", id, "--output", "c1"); got.out != "a.txt\nb.txt\n" {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "show", id, "--step", "1"); !strings.Contains(got.out, "│ command: ls") || !strings.Contains(got.out, "→ a.txt\n") || strings.Contains(got.out, "two files") {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "show", id, "--step", "9"); got.code != 125 {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "show", id, "--full"); !strings.Contains(got.out, "✓ execute  ls") || !strings.Contains(got.out, "✔ succeeded") {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "show", id, "--events"); strings.Count(got.out, "\n") != 7 {
		t.Errorf("%+v", got)
	}
	var all struct {
		Run        api.Run
		Transcript api.Transcript
	}
	if got := w.cli("", "show", id, "--json"); json.Unmarshal([]byte(got.out), &all) != nil || all.Run.ID != id || len(all.Transcript.Steps) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestApprove(t *testing.T) {
	for name, tt := range map[string]struct {
		flags []string
		want  string
	}{
		"approve":     {nil, "approve"},
		"by its name": {[]string{"c1"}, "approve"},
		"edit":        {[]string{"c1", "--edit", `{"command":"ls"}`}, `edit{"command":"ls"}`},
		"reject":      {[]string{"--reject", "no"}, "rejectno"},
		"respond":     {[]string{"--respond", "42"}, "respond42"},
		"all":         {[]string{"--all"}, "approve"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, asking)
			id := w.start("x")
			w.until(id, func(r api.Run) bool { return r.Waiting == 1 })
			if got := w.cli("", "approve"); !strings.Contains(got.out, id) || !strings.Contains(got.out, `{"command":"make"}`) {
				t.Errorf("%+v", got)
			}
			if got := w.cli("", append([]string{"approve", id}, tt.flags...)...); got.code != 0 {
				t.Fatalf("%+v", got)
			}
			w.until(id, api.Run.Final)
			if got := w.cli("", "show", id, "--output", "c1"); got.out != tt.want {
				t.Errorf("%+v", got)
			}
			if got := w.cli("", "approve", id); got.code != 125 {
				t.Errorf("nothing waits any more: %+v", got)
			}
		})
	}
}

func TestApprove_which(t *testing.T) {
	w := newWorld(t, func(p *runstest.Play) {
		p.Answer("", runstest.Call("c1", "ls", `{}`), runstest.Call("c2", "ls", `{}`))
		p.Ask("c1", "ls", `{}`, "")
		p.Ask("c2", "ls", `{}`, "")
		p.Decision("c2")
		p.Decision("c1")
		p.End(thread.RunSucceeded, "ok")
	})
	id := w.start("x")
	w.until(id, func(r api.Run) bool { return r.Waiting == 2 })
	if got := w.cli("", "approve", id); got.code != 2 || !strings.Contains(got.errOut, "c1 c2") {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "approve", id, "c3"); got.code != 125 {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "approve", id, "--all"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	w.until(id, api.Run.Final)
}

func TestSteer(t *testing.T) {
	w := newWorld(t, func(p *runstest.Play) {
		p.Answer("you said: " + p.Input(0))
		p.End(thread.RunFailed, "no luck")
	})
	w.fake.Report = map[string]int{"differs": 0}
	id := w.start("x")
	if got := w.cli("", "send", id, "hello", "there"); got.out != id+"\n" {
		t.Errorf("%+v", got)
	}
	w.until(id, api.Run.Final)
	if got := w.cli("", "resume", id, "--add-steps", "5", "-d"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	w.until(id, api.Run.Final) // its input is there already
	got := w.cli("more", "send", id, "-")
	if got.code != 0 || got.out == id+"\n" || !strings.Contains(got.errOut, "over") {
		t.Errorf("%+v", got)
	}
	next := strings.TrimSpace(got.out)
	if got := w.cli("", "cancel", next, "--reason", "enough"); got.code != 0 || got.out != next+"\n" {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "attach", next); got.code != 4 || !strings.Contains(got.out, "cancelled: enough") {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "fork", id, "--at", "3", "-d", "otherwise"); got.code != 0 || got.out == id+"\n" {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "rewind", id, "--to", "2", "--files"); got.out != id+"\n  change     src/f\uFFFD\n" {
		t.Errorf("rewind --files: %+v", got)
	}
	if got := w.cli("", "rewind", id, "--to", "3"); got.out != id+"\n" {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "replay", id, "-d"); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

func TestAgents(t *testing.T) {
	w := newWorld(t, nil)
	if got := w.cli("", "agent", "list"); !strings.Contains(got.out, "reviewer") {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "agent", "show", "reviewer"); !strings.Contains(got.out, `"read_file"`) {
		t.Errorf("%+v", got)
	}
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for name, text := range map[string]string{good: "description: Good.\ninstructions: Be good.\n", bad: "nonsense: 1\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.cli("", "agent", "validate", good); got.code != 0 || !strings.Contains(got.out, "ok") {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "agent", "validate", good, bad); got.code != 1 || !strings.Contains(got.out, "error: ") || !strings.Contains(got.out, "bad.yaml:1") {
		t.Errorf("%+v", got)
	}
}

// Without a file those of the server's folder are looked at; a file to begin with is one
// that the server takes.
func TestAgentFolder(t *testing.T) {
	w := newWorld(t, nil)
	if got := w.cli("", "agent", "validate"); got.code != 0 || !strings.Contains(got.out, "default: ok") {
		t.Errorf("%+v", got)
	}
	w.fake.Broken = []definition.Entry{{Name: "typo", Err: errs.New(errs.Invalid, "typo.yaml:1:1: \"modell\" is not a key here\ntypo.yaml:2:1: and more")}}
	if got := w.cli("", "agent", "validate"); got.code != 1 || !strings.Contains(got.out, "error: typo.yaml:1:1: ") || !strings.Contains(got.out, "error: typo.yaml:2:1: ") {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "agent", "list"); got.code != 0 || !strings.Contains(got.out, "cannot be used: typo.yaml:1:1: ") {
		t.Errorf("%+v", got)
	}
	dir := filepath.Join(t.TempDir(), "agents")
	got := w.cli("", "agent", "init", "reviewer", "--dir", dir)
	file := filepath.Join(dir, "reviewer.yaml")
	if got.code != 0 || strings.TrimSpace(got.out) != file {
		t.Fatalf("%+v", got)
	}
	if got := w.cli("", "agent", "validate", file); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "agent", "init", "reviewer", "--dir", dir); got.code == 0 || !strings.Contains(got.errOut, "exists") {
		t.Errorf("over a file that is there: %+v", got)
	}
	for _, name := range []string{"../x", "A b", "", "-x"} {
		if got := w.cli("", "agent", "init", "--dir", dir, "--", name); got.code == 0 {
			t.Errorf("%q: %+v", name, got)
		}
	}
}

// onTerminal is the program on a real terminal.
type onTerminal struct {
	t    *testing.T
	ptmx *os.File
	done chan int

	mu   sync.Mutex
	seen bytes.Buffer
}

func (w *world) terminal(args ...string) *onTerminal {
	w.t.Helper()
	ptmx, tty, err := pty.Open()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := pty.Setsize(ptmx, &pty.Winsize{Rows: 30, Cols: 100}); err != nil {
		w.t.Fatal(err)
	}
	s := &onTerminal{t: w.t, ptmx: ptmx, done: make(chan int, 1)}
	ctx, cancel := patience.Context(w.t.Context(), 30*time.Second)
	var wg sync.WaitGroup
	wg.Go(func() { s.done <- w.program(ctx, tty, tty, tty, args...); tty.Close() })
	wg.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := ptmx.Read(buf)
			s.mu.Lock()
			s.seen.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	w.t.Cleanup(func() { cancel(); wg.Wait(); ptmx.Close() })
	return s
}

func (s *onTerminal) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// see waits until a text is on the screen.
func (s *onTerminal) see(text string) {
	s.t.Helper()
	for deadline := time.Now().Add(patience.Of(15 * time.Second)); !strings.Contains(s.text(), text); {
		if time.Now().After(deadline) {
			s.t.Fatalf("%q is not to be seen in\n%q", text, s.text())
		}
		<-time.After(2 * time.Millisecond)
	}
}

func (s *onTerminal) press(keys string) {
	s.t.Helper()
	if _, err := s.ptmx.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *onTerminal) code(want int) {
	s.t.Helper()
	select {
	case code := <-s.done:
		if code != want {
			s.t.Errorf("status %d, want %d\n%q", code, want, s.text())
		}
	case <-time.After(patience.Of(20 * time.Second)):
		s.t.Fatalf("it does not end\n%q", s.text())
	}
	s.see("\x1b[?25h") // the cursor is there again
}

func TestTerminal_approvesInline(t *testing.T) {
	for name, tt := range map[string]struct{ keys, want string }{
		"approve": {"a", "It was approve"}, "reject": {"rnot now\r", "rejected by"}, "respond": {"t42\r", "answered by"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, asking)
			s := w.terminal("run", "x")
			s.see("execute waits for you: builds")
			s.see("command: make")
			s.press(tt.keys)
			s.see(tt.want)
			s.code(0)
		})
	}
}

func TestTerminal_editsInEditor(t *testing.T) {
	t.Setenv("VISUAL", `printf '{"command":"ls"}' >`)
	w := newWorld(t, asking)
	s := w.terminal("run", "x")
	s.see("e edit")
	s.press("e")
	s.see("It was edit")
	s.code(0)
	if got := w.cli("", "show", "last", "--output", "c1"); got.out != `edit{"command":"ls"}` {
		t.Errorf("%+v", got)
	}
}

func TestTerminal_streams(t *testing.T) {
	gate := make(chan struct{})
	w := newWorld(t, func(p *runstest.Play) {
		p.Live(news.Live{Kind: news.LiveText, Text: "On its w"})
		p.Until(gate)
		p.Live(news.Live{Kind: news.LiveText, Text: "ay\x1b]0;owned\x07."})
		p.Answer("On its way.", runstest.Call("c1", "execute", `{"command":"make"}`))
		p.Begin("c1", "execute")
		p.Live(news.Live{Kind: news.LiveOutput, Call: "c1", Text: "compiling…\n"})
		p.Input(0)
		p.Done("c1", "ok")
		p.End(thread.RunSucceeded, "ok")
	})
	s := w.terminal("run", "x")
	s.see("❯ x")
	close(gate)
	s.see("On its way.")
	s.see("execute  make")
	s.press("mfaster\r")
	s.see("❯ faster")
	s.see("✓ execute  make")
	s.code(0)
	if strings.Contains(s.text(), "owned") {
		t.Error("the model set the title")
	}
}

func TestTerminal_leaveAndCancel(t *testing.T) {
	w := newWorld(t, func(p *runstest.Play) { p.Input(0) })
	s := w.terminal("run", "x")
	s.see("waiting for the model")
	s.press("\x03")
	s.see("Leave?")
	s.press("d")
	s.code(0)
	s.see("the run goes on")
	list, err := client.All(w.c.Runs(t.Context(), client.RunFilter{}))
	if err != nil || len(list) != 1 || list[0].State != "running" {
		t.Fatalf("%+v, %v", list, err)
	}
	s = w.terminal("attach", list[0].ID)
	s.see("waiting for the model")
	s.press("\x03\x03")
	s.see("cancelled")
	s.code(4)
}

// A signal ends us, not the run.
func TestRun_signalled(t *testing.T) {
	w := newWorld(t, func(p *runstest.Play) { p.Input(0) })
	ctx, cancel := context.WithCancel(t.Context())
	out, errOut := w.file(""), w.file("")
	done := make(chan int)
	go func() { done <- w.program(ctx, w.file(""), out, errOut, "run", "x") }()
	for deadline := time.Now().Add(patience.Of(10 * time.Second)); ; {
		if data, _ := os.ReadFile(out.Name()); strings.Contains(string(data), "❯ x") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is shown")
		}
		<-time.After(2 * time.Millisecond)
	}
	cancel()
	if code := <-done; code == 0 {
		t.Errorf("status %d", code)
	}
	data, _ := os.ReadFile(errOut.Name())
	if !strings.Contains(string(data), "the run goes on") {
		t.Errorf("%q", data)
	}
	list, err := client.All(w.c.Runs(t.Context(), client.RunFilter{}))
	if err != nil || len(list) != 1 || list[0].State != "running" {
		t.Errorf("%+v, %v", list, err)
	}
}
