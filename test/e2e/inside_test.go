package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

const insideScript = `
replies:
  - text: First a plan.
    calls: [{name: write_todos, args: {todos: [{content: look, status: in_progress}]}}]
  - calls:
      - {name: write_file, args: {file_path: /workspace/sum.py, content: "print(sum(range(10)))\n"}}
  - calls: [{name: execute, args: {command: 'python3 sum.py > out; cat out; id -u'}}]
  - calls: [{name: edit_file, args: {file_path: /workspace/sum.py, old_string: '10', new_string: '11'}}]
  - calls: [{name: write_file, args: {file_path: /memories/sums.md, content: "They are easy."}}]
  - calls: [{name: execute, args: {command: 'seq 1 20000'}}]
  - calls: [{name: read_file, args: {file_path: /memories/sums.md}}]
  - calls: [{name: delete, args: {file_path: /memories/sums.md}}]
  - calls: [{name: task, args: {description: 'Write b.', subagent_type: general-purpose}}]
else: {text: 'It is {{result "execute"}} and {{result "task"}}'}
scenes:
  - user: Write b.
    replies:
      - calls: [{name: execute, args: {command: 'echo b > b; cat b'}}]
    else: {text: 'b says {{result "execute"}}'}
`

// story is what a run did, without what differs between two runs of the same task.
func (b *brain) story(id string) (lines []string) {
	ids := regexp.MustCompile(`(thr|run|sbx)_[a-z0-9]+`)
	for _, e := range b.events(id) {
		text := ""
		switch x := e.Body.(type) {
		case thread.ModelCompleted:
			text = x.Message.String()
			for _, c := range x.Message.Calls() {
				text += " " + c.Name + string(c.Args)
			}
			text += fmt.Sprint(x.Stop, x.Model)
		case thread.ToolCompleted:
			text = fmt.Sprint(x.Tool, x.Failed, x.Code, x.File, x.Bytes, x.Steps)
			for _, b := range x.Blocks {
				text += b.Text
			}
		case thread.RunEnded:
			text = fmt.Sprint(x.State, x.Reason, x.Text)
		case thread.Claimed, thread.Bound, thread.Opened, thread.RunStarted:
			continue
		}
		lines = append(lines, ids.ReplaceAllString(fmt.Sprint(e.Body.Kind(), " ", text), "$1"))
	}
	return lines
}

// Acceptance 4: the same task, with the agent on the server and in its sandbox: the same
// story, the same files, and the same way back. No agent is left, and no sandbox.
func TestInside_likeOnTheServer(t *testing.T) {
	b := newBrain(t, map[string]string{"sums": insideScript}, nil, "")
	on := b.wait(b.run("sums", api.StartRun{}).ID, "succeeded")
	in := b.wait(b.run("sums", api.StartRun{InSandbox: true, Keep: true}).ID, "succeeded")
	if diff := cmp.Diff(b.story(on.ID), b.story(in.ID)); diff != "" {
		t.Errorf("in the sandbox it went another way:\n%s", diff)
	}
	if in.Budget.WallMS != 5*60*1000 || on.Budget.WallMS != 0 {
		t.Errorf("the times are %d ms and %d ms", in.Budget.WallMS, on.Budget.WallMS)
	}
	for _, run := range []api.Run{on, in} {
		if got := b.shell(run, "cat sum.py out b"); !strings.HasPrefix(got, "print(sum(range(11)))\n45\nb") {
			t.Errorf("the files say %q", got)
		}
		b.must("undo", run.Sandbox, "--run", run.ID, "--yes")
		if got := b.shell(run, "ls"); got != "" {
			t.Errorf("after the undo there is %q", got)
		}
	}
	gone := b.wait(b.run("sums", api.StartRun{InSandbox: true}).ID, "succeeded")
	b.until("its sandbox is removed", func() error {
		sb, err := b.c.Sandbox(gone.Sandbox).Get(b.ctx())
		if errs.Is(err, errs.NotFound) || err == nil && sb.State == "destroyed" {
			return nil
		}
		return fmt.Errorf("it is %v: %w", sb.State, err)
	})
}

// agentsOf are the processes of agents in sandboxes that this host can see. Those of gVisor
// are none of its own, so they are counted from inside.
func (b *brain) agentsIn(sandbox string) string {
	b.t.Helper()
	r, err := b.c.Sandbox(sandbox).RunCommand(b.ctx(), api.RunCommand{Command: `cat /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -c '^skete-agent$'`})
	b.ok(err)
	return strings.TrimSpace(string(r.Out))
}

// Acceptance 4: the server dies in the middle of a command, and so does the machine. The
// run goes on; the command of the dead server ran once, and what of the dead machine was
// under way is told.
func TestInside_killed(t *testing.T) {
	b := newBrain(t, map[string]string{"long": `
replies:
  - calls: [{name: execute, args: {command: 'echo one >> starts; for i in $(seq 1 40); do echo line $i; sleep 0.05; done; exit 3'}}]
  - calls: [{name: execute, args: {command: 'echo two >> starts; sync; while [ ! -e go ]; do sleep 0.1; done; echo gone on'}}]
  - calls: [{name: execute, args: {command: 'echo three >> starts; cat starts'}}]
else: {text: 'In the end: {{result "execute"}}'}
`}, nil, "")
	run := b.run("long", api.StartRun{InSandbox: true, Keep: true, Budget: api.Budget{WallMS: 600_000}})
	b.untilEvent(run.ID, started)
	for range 2 {
		b.kill()
		b.start()
	}
	starts := 0
	b.untilEvent(run.ID, func(e thread.Event) bool {
		if started(e) {
			starts++
		}
		return starts == 2
	})
	now, err := run.Get(b.ctx())
	b.ok(err)
	b.until("the second command has begun", func() error {
		if got := b.shell(now, "cat starts"); got != "one\ntwo" {
			return errors.New(got)
		}
		return nil
	})
	if got := b.agentsIn(now.Sandbox); got != "1" {
		t.Errorf("%s agents are in the sandbox", got)
	}
	b.killMachine(now.Sandbox)
	ended := b.wait(run.ID, "succeeded")
	if !strings.Contains(ended.Text, "three") {
		t.Errorf("in the end it said %q", ended.Text)
	}
	got := b.results(run.ID)
	if len(got) != 3 || got[0].Exit == nil || *got[0].Exit != 3 || !strings.Contains(got[0].text, "line 40\n") {
		t.Fatalf("%+v", got)
	}
	if got := b.shell(ended, "grep -c one starts; grep -c three starts"); got != "1\n1" && got != "0\n1" { // a machine that lost its last writes
		t.Errorf("the commands were started as often as this says: %q", got)
	}
}

// killMachine kills the processes of a sandbox of gVisor.
func (b *brain) killMachine(id string) {
	b.t.Helper()
	killed := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, _ := os.ReadFile(f)
		if program, args, _ := strings.Cut(string(line), "\x00"); !strings.HasPrefix(filepath.Base(program), "runsc-sandbox") || !strings.Contains(args, id) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		b.t.Fatal("no process of the sandbox")
	}
}

// People decide, speak and cancel as ever.
func TestInside_people(t *testing.T) {
	b := newBrain(t, map[string]string{"careful": `
replies:
  - calls:
      - {name: execute, id: a, args: {command: 'echo first > a'}}
      - {name: execute, id: b, args: {command: 'echo second > b'}}
  - calls: [{name: execute, id: c, args: {command: 'echo third > c; sleep 600'}}]
else: {text: done}
`}, map[string]string{"careful": `
in_sandbox: true
after_run: {sandbox: keep}
approvals:
  - {action: ask, tools: [execute], commands: ['echo first *', 'echo second *']}
`, "hooked": `
in_sandbox: true
hooks: [{event: Stop, command: [/bin/true], where: host}]
`}, "")
	id := b.run("careful", api.StartRun{Agent: "careful"}).ID
	run, _ := b.untilWaiting(id, 2)
	if got := b.agentsIn(run.Sandbox); got != "0" {
		t.Errorf("while people think, %s agents are there", got)
	}
	decided, err := b.c.Run(id).Decide(b.ctx(),
		api.Decide{Call: "a", Decision: api.DecisionEdit, Args: []byte(`{"command":"echo edited > a"}`)},
		api.Decide{Call: "b", Decision: api.DecisionReject, Text: "not on a Sunday"})
	b.ok(err)
	for i, d := range decided {
		if !d.OK {
			t.Errorf("decision %d: %+v", i, d)
		}
	}
	b.until("the third command has begun", func() error {
		if got := b.shell(run, "cat c"); got != "third" {
			return errors.New(got)
		}
		return nil
	})
	_, err = b.c.Run(id).Cancel(b.ctx(), "enough")
	b.ok(err)
	ended := b.wait(id, "cancelled")
	if got := b.shell(ended, "cat a; ls; ps ax | grep -c '[s]leep 600' || true"); got != "edited\na\nc\n0" {
		t.Errorf("the workspace says %q", got)
	}
	if _, err := b.c.StartRun(b.ctx(), api.StartRun{Agent: "hooked", Task: "x", Model: "careful"}); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "hooks on the host") {
		t.Errorf("an agent with hooks on the host: %v", err)
	}
}
