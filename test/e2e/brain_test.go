package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// brain is a world whose server has agents and models.
type brain struct {
	*world
	models map[string]string // scripts, by name
	extra  string            // further entries of models, as YAML
}

// newBrain starts a server with scripted models and agents, by name.
func newBrain(t *testing.T, scripts, agents map[string]string, extra string) *brain {
	t.Helper()
	return newBrainOn(newWorld(t), scripts, agents, extra)
}

func newBrainOn(w *world, scripts, agents map[string]string, extra string) *brain {
	w.t.Helper()
	b := &brain{world: w, models: maps.Clone(scripts), extra: extra}
	b.write("skete.yaml", b.config())
	for name, text := range scripts {
		b.write("scripts/"+name+".yaml", text)
	}
	for name, text := range agents {
		b.write("agents/"+name+".yaml", text)
	}
	b.start()
	return b
}

func (b *brain) config() string {
	text := "models:\n" + b.extra
	for name := range b.models {
		text += fmt.Sprintf("  - {name: %s, vendor: script, script: %s}\n", name, filepath.Join(b.home, "scripts", name+".yaml"))
	}
	return text
}

func (b *brain) write(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.home, name)
	b.ok(os.MkdirAll(filepath.Dir(path), 0o700))
	b.ok(os.WriteFile(path, []byte(text), 0o600))
}

// small is the sandbox of runs here.
var small = map[string]any{"memory_mb": 128, "disk_mb": 64}

// run starts a run with a model.
func (b *brain) run(model string, r api.StartRun) *client.Run {
	b.t.Helper()
	r.Model = model
	if r.Task == "" {
		r.Task = "Do it."
	}
	if r.Thread == "" && r.Sandbox == "" {
		r.Spec = small
	}
	run, err := b.c.StartRun(b.ctx(), r)
	b.ok(err)
	return b.c.Run(run.ID)
}

// wait returns a run that is over, as state says.
func (b *brain) wait(id, state string) api.Run {
	b.t.Helper()
	run, err := b.c.Run(id).Wait(b.ctx())
	b.ok(err)
	if run.State != state {
		b.t.Fatalf("the run is %s (%s): %s\nserver's log:\n%s", run.State, run.Reason, run.Text, b.log)
	}
	b.events(id) // the log is well-formed
	return run
}

// events reads and checks a thread from its beginning.
func (b *brain) events(id string) []thread.Event {
	b.t.Helper()
	var events []thread.Event
	for e, err := range b.c.Run(id).History(b.ctx(), 1) {
		b.ok(err)
		events = append(events, typed(b.t, e))
	}
	if len(events) > 0 && events[0].Seq == 1 {
		b.ok(thread.Check(events))
	}
	return events
}

// typed is an event with the body of its kind.
func typed(t testing.TB, e api.RunEvent) (typed thread.Event) {
	t.Helper()
	data, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(data, &typed)
	}
	if err != nil {
		t.Fatal(err)
	}
	return typed
}

// untilEvent waits for an event.
func (b *brain) untilEvent(id string, is func(thread.Event) bool) {
	b.t.Helper()
	for e, err := range b.c.Run(id).Events(b.ctx(), 1) {
		b.ok(err)
		if is(typed(b.t, e)) {
			return
		}
	}
	b.t.Fatalf("the run ended without it\nserver's log:\n%s", b.log)
}

func started(e thread.Event) bool { _, is := e.Body.(thread.ToolStarted); return is }

// results are the texts of a run's calls, whole, in the order of their ends.
func (b *brain) results(id string) (results []result) {
	b.t.Helper()
	for _, e := range b.events(id) {
		done, is := e.Body.(thread.ToolCompleted)
		if !is {
			continue
		}
		out, err := b.c.Run(id).Output(b.ctx(), done.Call, 0)
		b.ok(err)
		text, err := io.ReadAll(out)
		b.ok(err)
		_ = out.Close()
		results = append(results, result{done, string(text)})
	}
	return results
}

type result struct {
	thread.ToolCompleted
	text string
}

// shell runs a command in a run's sandbox.
func (b *brain) shell(run api.Run, line string) string {
	b.t.Helper()
	out, err := b.c.Sandbox(run.Sandbox).Shell(line).CombinedOutput(b.ctx())
	if err != nil {
		return strings.TrimSpace(string(out)) + " (" + err.Error() + ")"
	}
	return strings.TrimSpace(string(out))
}

// untilWaiting waits until so many calls wait for people.
func (b *brain) untilWaiting(id string, n int) (run api.Run, open []api.Approval) {
	b.t.Helper()
	b.until(fmt.Sprintf("%d calls wait", n), func() (err error) {
		if open, err = b.c.Run(id).Approvals(b.ctx()); err != nil {
			return err
		}
		if run, err = b.c.Run(id).Get(b.ctx()); err != nil {
			return err
		}
		if len(open) != n || run.State != "interrupted" {
			return fmt.Errorf("%d wait, it is %s %s", len(open), run.State, run.Text)
		}
		return nil
	})
	return run, open
}

// Acceptance 2: the server dies during a long command, twice. The run goes on
// by itself, the command was started once, and its true output is in the log.
func TestBrain_serverKilledDuringALongCommand(t *testing.T) {
	t.Parallel()
	b := newBrain(t, map[string]string{"long": `
replies:
  - calls: [{name: execute, args: {command: 'echo started >> starts; for i in $(seq 1 60); do echo line $i; sleep 0.05; done; exit 3'}}]
else: {text: 'It said: {{result "execute"}}'}
`}, nil, "")
	run := b.run("long", api.StartRun{})
	b.untilEvent(run.ID, started)
	for range 2 {
		<-time.After(300 * time.Millisecond)
		b.kill()
		b.start()
	}
	ended := b.wait(run.ID, "succeeded")
	got := b.results(run.ID)
	if len(got) != 1 || got[0].Exit == nil || *got[0].Exit != 3 {
		t.Fatalf("%+v", got)
	}
	var want strings.Builder
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if !strings.HasPrefix(got[0].text, want.String()) || !strings.Contains(ended.Text, "line 60") {
		t.Errorf("its output is %q, and the model saw %q", got[0].text, ended.Text)
	}
	if starts := b.shell(ended, "cat starts"); starts != "started" {
		t.Errorf("it was started as often as this says: %q", starts)
	}
}

// Acceptance 3: calls that wait for a person survive the death of the server
// and a stop of the machine. What the person edits is what runs; the model
// learns what was rejected and what was answered in its place.
func TestBrain_approvalsSurviveServerAndMachine(t *testing.T) {
	t.Parallel()
	b := newBrain(t, map[string]string{"careful": `
replies:
  - calls: [{name: write_file, args: {file_path: /workspace/kept, content: kept}}]
  - calls:
      - {name: execute, id: a, args: {command: 'echo first > a'}}
      - {name: execute, id: b, args: {command: 'echo second > b'}}
      - {name: execute, id: c, args: {command: 'echo third > c'}}
else: {text: '1 {{result "1"}} 2 {{result "2"}} 3 {{result "3"}}'}
`}, map[string]string{"careful": `
approvals:
  - {action: ask, tools: [execute]}
`}, "")
	id := b.run("careful", api.StartRun{Agent: "careful"}).ID
	run, _ := b.untilWaiting(id, 3)
	b.kill()
	b.start()
	b.untilWaiting(id, 3)
	_, err := b.c.Sandbox(run.Sandbox).Stop(b.ctx())
	b.ok(err)
	b.kill()
	b.start()
	_, open := b.untilWaiting(id, 3)
	if open[0].Tool != "execute" || len(open[0].Allowed) != 4 {
		t.Errorf("%+v", open[0])
	}
	decided, err := b.c.Run(id).Decide(b.ctx(),
		api.Decide{Call: "a", Decision: api.DecisionEdit, Args: []byte(`{"command":"echo edited > a; cat kept"}`)},
		api.Decide{Call: "b", Decision: api.DecisionReject, Text: "not on a Sunday"},
		api.Decide{Call: "c", Decision: api.DecisionRespond, Text: "I have done it by hand"})
	b.ok(err)
	for i, d := range decided {
		if !d.OK {
			t.Errorf("decision %d: %+v", i, d)
		}
	}
	if _, err := b.c.Run(id).Decide(b.ctx(), api.Decide{Call: "a", Decision: api.DecisionApprove}); !errs.Is(err, errs.Conflict) {
		t.Errorf("deciding twice: %v", err)
	}
	ended := b.wait(id, "succeeded")
	if got := b.shell(ended, "cat a; ls"); got != "edited\na\nkept" {
		t.Errorf("the workspace says %q", got)
	}
	for _, want := range []string{"1 [A person changed this call before it ran. What ran: ", "\n\nkept\n", "not on a Sunday", "3 I have done it by hand"} {
		if !strings.Contains(ended.Text, want) {
			t.Errorf("the model did not read %q: %q", want, ended.Text)
		}
	}
}

// Acceptance 4: three sub-agents edit one file of one workspace at the same
// time, in different places; no edit is lost. A fourth one fails, and the
// others do not care.
func TestBrain_subagentsShareAWorkspace(t *testing.T) {
	t.Parallel()
	const edits = 8
	var scenes, calls, content strings.Builder
	for _, name := range []string{"alpha", "beta", "gamma"} {
		fmt.Fprintf(&calls, "      - {name: task, id: %s, args: {description: 'Edit %[1]s.', subagent_type: general-purpose}}\n", name)
		fmt.Fprintf(&scenes, "  - user: 'Edit %s.'\n    replies:\n", name)
		fmt.Fprintf(&content, "%s=0;\\n", name)
		for i := range edits {
			fmt.Fprintf(&scenes, "      - calls: [{name: edit_file, args: {file_path: /workspace/shared, old_string: '%s=%d;', new_string: '%[1]s=%[3]d;'}}]\n", name, i, i+1)
		}
		fmt.Fprintf(&scenes, "    else: {text: '%s is done'}\n", name)
	}
	b := newBrain(t, map[string]string{"team": `
replies:
  - calls: [{name: write_file, args: {file_path: /workspace/shared, content: "` + content.String() + `"}}]
  - calls:
` + calls.String() + `      - {name: task, id: broken, args: {description: 'Break.', subagent_type: general-purpose}}
else: {text: '{{result "1"}}, {{result "2"}}, {{result "3"}}, {{result "4"}}'}
scenes:
` + scenes.String() + `  - user: Break.
    else: {fail: {with: bad_request, always: true}}
`}, nil, "")
	id := b.run("team", api.StartRun{}).ID
	ended := b.wait(id, "succeeded")
	for _, name := range []string{"alpha", "beta", "gamma"} {
		if !strings.Contains(ended.Text, name+" is done") {
			t.Errorf("%s did not come to its end: %q", name, ended.Text)
		}
	}
	if !strings.Contains(ended.Text, "ended as failed") {
		t.Errorf("nobody said that one failed: %q", ended.Text)
	}
	if got, want := b.shell(ended, "cat shared"), "alpha=8;\nbeta=8;\ngamma=8;"; got != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
	var threads int
	for r, err := range b.c.Runs(b.ctx(), client.RunFilter{Subagents: true}) {
		b.ok(err)
		if threads++; r.Sandbox != ended.Sandbox {
			t.Errorf("%s worked in %s", r.Thread, r.Sandbox)
		}
	}
	if threads != 5 {
		t.Errorf("%d runs", threads)
	}
	o := b.outline(ended)
	below := 0
	for _, a := range o.Agents {
		below += a.Steps
	}
	if len(o.Agents) != 4 || below != ended.Below || o.Agents[3].State != "failed" || o.Agents[0].State != "succeeded" || o.Agents[0].Agent != "general-purpose" || o.Steps[1].Kind != "agent" {
		t.Errorf("%d steps of sub-agents, of %d: %+v", below, ended.Below, o.Agents)
	}
}

// outline returns that of a run which is over, and sees that it says the same as the
// run's record.
func (b *brain) outline(run api.Run) api.RunOutline {
	b.t.Helper()
	o, err := b.c.Run(run.ID).Outline(b.ctx(), 0, 0)
	b.ok(err)
	if o.State != run.State || o.Reason != run.Reason || o.Total != run.Steps || o.Usage != run.Usage || o.CostUSD != run.CostUSD || o.FirstSeq != run.FirstSeq || o.LastSeq != run.LastSeq || o.EndedAt == nil || len(o.Waiting) > 0 {
		b.t.Errorf("the outline %+v\nis of the run %+v", o, run)
	}
	return o
}

// Acceptance 5: 300 results of 50 KB go through a window of 32k tokens, which
// the script enforces; what left the prompt can be read back later.
func TestBrain_smallWindow(t *testing.T) {
	t.Parallel()
	const n = 300
	b := newBrain(t, map[string]string{"big": `
model: {window_tokens: 32000}
replies:
  - repeat: 300
    calls: [{name: execute, args: {command: 'seq -f "result {{n}} line %g abcdef" 2500'}}]
  - calls: [{name: read_file, args: {file_path: '{{match "execute" "(/large_tool_results/[A-Za-z0-9_-]+)"}}', offset: 1000, limit: 3}}]
else: {text: 'I read {{result "read_file"}}'}
`, "later": ""}, nil, "")
	run := b.run("big", api.StartRun{Budget: api.Budget{Steps: n + 10}})
	ended := b.wait(run.ID, "succeeded")
	if !strings.Contains(ended.Text, "result 300 line 1001") {
		t.Errorf("the newest result could not be read back: %q", ended.Text)
	}
	var first string
	commands, compactions := 0, 0
	for _, e := range b.events(run.ID) {
		switch body := e.Body.(type) {
		case thread.ToolCompleted:
			if body.Tool != "execute" {
				continue
			}
			if commands++; body.Failed || body.Bytes < 50_000 || body.File == "" {
				t.Fatalf("%+v", body)
			}
			if first == "" {
				first = body.File
			}
		case thread.Compacted, thread.Cleared:
			compactions++
		case thread.ModelFailed:
			t.Errorf("event %d: %+v", e.Seq, body)
		}
	}
	if commands != n || compactions == 0 {
		t.Errorf("%d commands, %d compactions", commands, compactions)
	}
	b.write("scripts/later.yaml", "replies:\n  - calls: [{name: read_file, args: {file_path: '"+first+"', offset: 2000, limit: 2}}]\nelse: {text: 'I read {{result \"read_file\"}}'}\n")
	next := b.run("later", api.StartRun{Thread: ended.Thread, Task: "What was the first?"})
	if got := b.wait(next.ID, "succeeded"); !strings.Contains(got.Text, "result 1 line 2001") {
		t.Errorf("the first result could not be read back: %q", got.Text)
	}
}

// Acceptance 6: a replay makes the same calls in a fresh sandbox, and says
// that nothing differs; a fork goes on differently from where it was taken.
func TestBrain_replayAndFork(t *testing.T) {
	t.Parallel()
	b := newBrain(t, map[string]string{"one": `
replies:
  - calls: [{name: write_file, args: {file_path: /workspace/n, content: "1\n"}}]
  - calls: [{name: execute, args: {command: 'echo 2 >> n; cat n'}}, {name: read_file, args: {file_path: /workspace/absent}}]
else: {text: 'n is {{result "1"}}'}
`, "other": `
replies:
  - calls: [{name: execute, args: {command: 'echo 3 >> n; cat n'}}]
else: {text: 'now {{result "1"}}'}
`}, nil, "")
	run := b.run("one", api.StartRun{})
	ended := b.wait(run.ID, "succeeded")
	again, err := run.Replay(b.ctx(), api.ReplayRun{})
	b.ok(err)
	replayed := b.wait(again.ID, "succeeded")
	if replayed.Sandbox == ended.Sandbox || replayed.Replay != run.ID || replayed.Text != ended.Text {
		t.Errorf("%+v", replayed)
	}
	if a, b := callsOf(b.events(run.ID)), callsOf(b.events(again.ID)); a != b || a == "" {
		t.Errorf("it called\n%s, and then\n%s", a, b)
	}
	report, err := run.Compare(b.ctx(), again.ID)
	b.ok(err)
	if !bytes.Contains(report.Report, []byte(`"same":true,"steps":[{`)) {
		t.Errorf("the report says %s", report.Report)
	}
	var at uint64 // the end of the first step
	for _, e := range b.events(run.ID) {
		if done, is := e.Body.(thread.ToolCompleted); is && done.Tool == "write_file" {
			at = e.Seq
		}
	}
	forked, err := run.Fork(b.ctx(), api.ForkRun{At: at, Task: "Go another way.", Model: "other"})
	b.ok(err)
	fork := b.wait(forked.ID, "succeeded")
	if fork.Sandbox == ended.Sandbox || fork.Thread == ended.Thread || fork.Fork == nil || fork.Fork.Seq != at {
		t.Errorf("%+v", fork)
	}
	if fork.Text != "now 1\n3\n[Command succeeded with exit code 0]" { // on the files as they were at that event
		t.Errorf("the fork says %q", fork.Text)
	}
	if got := b.shell(ended, "cat n"); got != "1\n2" {
		t.Errorf("the fork changed what it came from: %q", got)
	}
}

func callsOf(events []thread.Event) string {
	var all strings.Builder
	for _, e := range events {
		if done, is := e.Body.(thread.ModelCompleted); is {
			for _, c := range done.Message.Calls() {
				var args any
				_ = json.Unmarshal(c.Args, &args)
				canonical, _ := json.Marshal(args)
				fmt.Fprintf(&all, "%s %s %s\n", c.ID, c.Name, canonical)
			}
		}
	}
	return all.String()
}

// A run that is cancelled ends its command in the machine, too.
func TestBrain_cancelEndsTheCommand(t *testing.T) {
	t.Parallel()
	b := newBrain(t, map[string]string{"slow": `
replies:
  - calls: [{name: execute, args: {command: 'sleep 1000'}}]
else: {text: never}
`}, nil, "")
	run := b.run("slow", api.StartRun{})
	b.untilEvent(run.ID, started)
	now, err := run.Get(b.ctx())
	b.ok(err)
	alive := func() int {
		n := 0
		for p, err := range b.c.Sandbox(now.Sandbox).Processes(b.ctx()) {
			b.ok(err)
			if p.State == "running" {
				n++
			}
		}
		return n
	}
	b.until("it runs", func() error {
		if alive() != 1 {
			return fmt.Errorf("%d processes", alive())
		}
		return nil
	})
	_, err = run.Cancel(b.ctx(), "enough")
	b.ok(err)
	ended := b.wait(run.ID, "cancelled")
	if got := b.results(run.ID); len(got) != 1 || got[0].Code != "cancelled" || ended.Text != "enough" {
		t.Errorf("%+v %+v", got, ended)
	}
	if n := alive(); n != 0 {
		t.Errorf("%d commands still run", n)
	}
	if o := b.outline(ended); len(o.Steps) != 1 || len(o.Steps[0].Calls) != 1 || o.Steps[0].Calls[0].State != "failed" || len(o.Marks) != 1 || o.Marks[0].Kind != "cancel.asked" {
		t.Errorf("%+v", o)
	}
}

// Commands that delete the workspace, print without end, or hang, are results
// like others.
func TestBrain_badCommands(t *testing.T) {
	t.Parallel()
	b := newBrain(t, map[string]string{"bad": `
replies:
  - calls: [{name: execute, args: {command: 'cd /; rm -rf /workspace/* /workspace; ls /workspace | wc -l'}}]
  - calls:
      - {name: execute, id: loud, args: {command: 'yes | head -c 200000000'}}
      - {name: execute, id: hangs, args: {command: 'sleep 1000', timeout: 1}}
      - {name: execute, id: deaf, args: {command: 'trap "" TERM INT HUP; while :; do sleep 0.1; done', timeout: 1}}
  - calls: [{name: write_file, args: {file_path: /workspace/after, content: alive}}]
  - calls: [{name: execute, args: {command: 'cat /workspace/after'}}]
else: {text: 'It says {{result "execute"}}'}
`}, map[string]string{"hasty": "limits: {tool_timeout: 20s}\n"}, "")
	run := b.run("bad", api.StartRun{Agent: "hasty"})
	ended := b.wait(run.ID, "succeeded")
	if !strings.Contains(ended.Text, "alive") {
		t.Errorf("it says %q", ended.Text)
	}
	for _, r := range b.results(run.ID) {
		switch r.Call {
		case "loud":
			if r.Failed || r.Bytes != 200_000_000 || r.File == "" {
				t.Errorf("loud: %+v", r.ToolCompleted)
			}
		case "hangs", "deaf":
			if r.Code != "timeout" {
				t.Errorf("%s: %+v", r.Call, r.ToolCompleted)
			}
		}
	}
}

// A machine that is stopped under a run is started again, and the model learns
// that it is not known what the command did that ran in it.
func TestBrain_machineStoppedUnderACommand(t *testing.T) {
	t.Parallel()
	b := newBrain(t, map[string]string{"slow": `
replies:
  - calls: [{name: write_file, args: {file_path: /workspace/kept, content: kept}}]
  - calls: [{name: execute, args: {command: 'sleep 600'}}]
  - calls: [{name: execute, args: {command: 'cat kept'}}]
else: {text: 'It says {{result "execute"}}'}
`}, nil, "")
	run := b.run("slow", api.StartRun{})
	b.untilEvent(run.ID, func(e thread.Event) bool {
		s, is := e.Body.(thread.ToolStarted)
		return is && s.Tool == "execute"
	})
	now, err := run.Get(b.ctx())
	b.ok(err)
	_, err = b.c.Sandbox(now.Sandbox).Stop(b.ctx())
	b.ok(err)
	ended := b.wait(run.ID, "succeeded")
	got := b.results(run.ID)
	if len(got) != 3 || got[1].Code != "interrupted" || !strings.HasPrefix(got[2].text, "kept") {
		t.Errorf("%q\n%+v", ended.Text, got)
	}
}
