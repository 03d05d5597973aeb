package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/script"
)

// tasksPerKind is how many tasks there are of each kind.
const tasksPerKind = 8

// built is where the programs are, "" = no test needed them.
var built string

// programs are built once: static, with the guest beside.
var programs = sync.OnceValues(func() (p struct{ skete, guest string }, err error) {
	dir, err := scratch.Dir("eval")
	if err != nil {
		return p, err
	}
	built = dir
	p.skete, p.guest = filepath.Join(dir, "skete"), filepath.Join(dir, "skete-guest")
	for _, out := range []string{p.skete, p.guest} {
		cmd := exec.Command("go", "build", "-trimpath", "-o", out, "github.com/skete-dev/skete/cmd/"+filepath.Base(out))
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return p, fmt.Errorf("build %s: %w\n%s", out, err, text)
		}
	}
	return p, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// all returns the tasks of the folder.
func all(t *testing.T) []task {
	t.Helper()
	tasks, err := load("tasks", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

func TestTaskFiles(t *testing.T) {
	count, wrongs := map[string]int{}, 0
	for _, task := range all(t) {
		count[task.kind]++
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`).MatchString(task.name) {
			t.Errorf("%s: a name is a kind and words", task.name)
		}
		// The agent is told what a user would tell it: no place of ours, nothing of the checker.
		if n := len(task.text); n < 100 || n > 2000 || regexp.MustCompile(`(?i)check\.sh|the checker|/workspace|skete`).MatchString(task.text) {
			t.Errorf("%s: task.md has %d bytes, or says what an agent is not to know", task.name, n)
		}
		if files, _ := os.ReadDir(task.files()); len(files) == 0 && task.setup == "" {
			t.Errorf("%s: its workspace begins empty", task.name)
		}
		for name, text := range map[string]string{"check.sh": task.check, "setup.sh": task.setup} {
			if out, err := exec.Command("sh", "-n", "-c", text).CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v %s", task.name, name, err, out)
			}
		}
		scripts := []string{task.solution()}
		if _, err := os.Stat(task.wrong()); err == nil {
			wrongs++
			scripts = append(scripts, task.wrong())
		}
		for _, name := range scripts {
			if _, err := script.Load(name); err != nil {
				t.Errorf("%s: %v", task.name, err)
			}
		}
		entries, err := os.ReadDir(task.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !slices.Contains([]string{"task.md", "files", "setup.sh", "check.sh", "solution.yaml", "wrong.yaml"}, e.Name()) {
				t.Errorf("%s has %s, which is no part of a task", task.name, e.Name())
			}
		}
	}
	want := map[string]int{}
	for _, kind := range kinds {
		want[kind] = tasksPerKind
	}
	if d := gocmp.Diff(want, count); d != "" {
		t.Errorf("tasks of each kind:\n%s", d)
	}
	if wrongs < 10 {
		t.Errorf("%d tasks have a wrong solution, want 10", wrongs)
	}
}

func TestLoad_someOfEachKind(t *testing.T) {
	for only, want := range map[string]int{"": 10, "fix": 2, "fix-off-by-one": 1} {
		if tasks, err := load("tasks", only, 2); err != nil || len(tasks) != want {
			t.Errorf("two of each kind of %q are %d: %v", only, len(tasks), err)
		}
	}
}

// serve starts a server with this program's sandboxes for a test.
func serve(t *testing.T) *server {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: the sandboxes are those of the whole program")
	}
	for _, name := range []string{"git", "python3", "make"} {
		if _, err := os.Stat("/usr/bin/" + name); err != nil {
			t.Skip("sandboxes see the programs of /usr, and there is no " + name)
		}
	}
	p, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	s, err := start(t.Context(), p.skete, nil, "SKETE_GUEST="+p.guest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("server's log:\n%s", s.log.String())
		}
	})
	return s
}

// Each task can be done, by the tools that agents have; its checker refuses a
// sandbox in which nothing was done, and work that only looks right.
func TestTasks(t *testing.T) {
	s := serve(t)
	for i, task := range all(t) {
		if testing.Short() && i%tasksPerKind != 0 {
			continue
		}
		t.Run(task.name, func(t *testing.T) {
			t.Parallel()
			trial{t: t, server: s, task: task}.run()
		})
	}
}

// Whatever a run does, its task is judged and the line says how it ended.
func TestRunner_judgesRunsThatDoNotEndWell(t *testing.T) {
	s := serve(t)
	tasks, err := load("tasks", "fix-off-by-one", 0)
	if err != nil {
		t.Fatal(err)
	}
	// What makes the task's tests pass, as a line of a shell.
	const mend = `sed -i 's/total .. size + 1/-(-total \/\/ size)/; s/ - 1]/]/; s/last = number . size/last = min(number * size, total)/' pages.py`
	for name, c := range map[string]struct {
		script, calling string
		limit           time.Duration // 0 = it ends by itself
		want            line
	}{
		"it hangs":             {script: "replies:\n  - {text: Let me think about it., fail: {with: hang, always: true}}\n", limit: 2 * time.Second, want: line{State: "timed_out", Reason: "wall"}},
		"its model is gone":    {script: "replies:\n  - {text: Hello., fail: {with: auth, always: true}}\n", want: line{State: "failed", Reason: "model"}},
		"it asks a person":     {script: "replies:\n  - calls: [{name: undo_changes, args: {}}]\nelse: {text: 'I was told: {{result \"undo_changes\"}}'}\n", want: line{State: "succeeded", Reason: "done"}},
		"it writes its calls":  {script: fmt.Sprintf("replies:\n  - text: >-\n      {\"action\": \"execute\", \"args\": {\"command\": %q}}\nelse: {text: '{\"done\": true, \"result\": \"Mended.\"}'}\n", mend), calling: "json", want: line{State: "succeeded", Reason: "done", Success: true}},
		"it says it was done":  {script: "else: {text: All tests pass now.}\n", want: line{State: "succeeded", Reason: "done"}},
		"it ends the machine":  {script: "replies:\n  - calls: [{name: execute, args: {command: 'kill -9 -1'}}]\nelse: {text: Oh.}\n", want: line{State: "succeeded", Reason: "done"}},
		"it leaves a process":  {script: "replies:\n  - calls: [{name: execute, args: {command: 'sleep 1000', background: true}}]\nelse: {text: It goes on.}\n", want: line{State: "succeeded", Reason: "done"}},
		"it waits for nothing": {script: "replies:\n  - calls: [{name: execute, args: {command: 'sleep 1000'}}]\nelse: {text: Done.}\n", limit: 2 * time.Second, want: line{State: "timed_out", Reason: "wall"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "script.yaml")
			if err := os.WriteFile(file, []byte(c.script), 0o600); err != nil {
				t.Fatal(err)
			}
			r := runner{c: s.c, warn: func(text string) { t.Error(text) }, config: config{model: "script/" + file, calling: c.calling, limit: cmp.Or(c.limit, patience.Of(time.Minute))}}
			var got line
			r.try(context.WithoutCancel(t.Context()), tasks[0], &got)
			seen := line{State: got.State, Reason: got.Reason, Success: got.Success}
			if d := gocmp.Diff(c.want, seen); d != "" || got.Error != "" || got.Success != (got.Words == "") {
				t.Errorf("%+v\n%s", got, d)
			}
		})
	}
}

// trial shows that a task tells right from wrong.
type trial struct {
	t      *testing.T
	server *server
	task   task
}

func (tr trial) run() {
	refused := tr.play("solution", true)
	if refused.Success || refused.Words == "" {
		tr.t.Errorf("nothing was done, and the checker says %+v", refused)
	}
	if _, err := os.Stat(tr.task.wrong()); err != nil {
		return
	}
	tr.play("wrong", false)
}

// play lets a script do the task, and returns what the checker said before.
func (tr trial) play(name string, right bool) (before line) {
	tr.t.Helper()
	// A run that hangs is ended by the limit; a slow machine gets more of it.
	r := runner{c: tr.server.c, warn: func(text string) { tr.t.Error(text) }, config: config{
		model: "script/" + filepath.Join(tr.task.dir, name+".yaml"), limit: patience.Of(time.Minute),
	}}
	ctx := context.WithoutCancel(tr.t.Context()) // each step has its own bound
	sb, err := r.prepare(ctx, tr.task)
	if sb != nil {
		defer r.remove(ctx, sb)
	}
	if err != nil {
		tr.t.Fatal(err)
	}
	var after line
	if right {
		r.judge(ctx, sb, tr.task, &before)
	}
	r.work(ctx, sb, tr.task, &after)
	r.judge(ctx, sb, tr.task, &after)
	if before.Error != "" || after.Error != "" || after.State != "succeeded" || !after.InTime || len(after.Prompt) != 8 {
		tr.t.Errorf("%s: %+v %s", name, after, before.Error)
	}
	if after.Success != right || right != (after.Words == "") {
		tr.t.Errorf("%s: the checker says %t: %s", name, after.Success, after.Words)
	}
	return before
}

func TestFlags(t *testing.T) {
	for _, args := range []string{"", "-model m rest", "-model m -calling xml", "-model m -peer x", "-model m -peer deepagents", "-model m -url http://x -model-url http://y", "-model m -jobs 0", "-model m -limit 1ms", "-nonsense"} {
		var out bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &out); code != 2 || out.Len() == 0 {
			t.Errorf("%q: code %d, %s", args, code, out.String())
		}
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"-model", "m", "-tasks", "tasks", "-only", "nothing-like-it"}, &out, &out); code != 1 || !strings.Contains(out.String(), `begins with "nothing-like-it"`) {
		t.Errorf("code %d, %s", code, out.String())
	}
}

func TestEach_doesAllSoManyAtOnce(t *testing.T) {
	tasks := make([]task, 10)
	for i := range tasks {
		tasks[i].name = fmt.Sprint(i)
	}
	var mu sync.Mutex
	now, most := 0, 0
	var done []string
	full := make(chan struct{})
	each(tasks, 3, func(t task) {
		mu.Lock()
		now++
		if most = max(most, now); now == 3 && len(done) == 0 {
			close(full)
		}
		mu.Unlock()
		<-full // the first ones wait until three are there
		mu.Lock()
		now--
		done = append(done, t.name)
		mu.Unlock()
	})
	slices.Sort(done)
	if most != 3 || strings.Join(done, "") != "0123456789" {
		t.Errorf("%d at once, done: %q", most, done)
	}
}

func TestLine_inTime(t *testing.T) {
	for took, want := range map[time.Duration]bool{
		time.Second: true, time.Minute: true, time.Minute + lateMax: true, time.Minute + lateMax + time.Millisecond: false,
	} {
		var l line
		if l.took(took, time.Minute); l.InTime != want {
			t.Errorf("a run of %s with a limit of a minute: %t", took, l.InTime)
		}
	}
}

func TestLine_isOneLineOfJSON(t *testing.T) {
	l := line{Task: "fix-x", Words: words("one\n\ttwo\x1b[1m\n")}
	l.fail("a", nil)
	l.fail("b", errors.New("first\nreason"))
	l.fail("c", errors.New("second"))
	var out bytes.Buffer
	l.print(&out)
	var back line
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || strings.Count(out.String(), "\n") != 1 || back != l {
		t.Errorf("%s: %v", out.String(), err)
	}
	if back.Words != "one two\uFFFD[1m" || back.Error != "b: first reason" {
		t.Errorf("%+v", back)
	}
}

func TestWords_ofATracebackAreItsEnd(t *testing.T) {
	long := "Traceback (most recent call last):\n" + strings.Repeat("  File x\n", 60) + "ValueError: no\n"
	if got := words(long); got != "ValueError: no" {
		t.Errorf("%q", got)
	}
	if got := words(strings.Repeat("x", 2*wordsMax)); len(got) > wordsMax {
		t.Errorf("%d bytes", len(got))
	}
}

func TestTable(t *testing.T) {
	lines := []line{
		{Kind: "fix", Success: true, Steps: 2, InputTokens: 100, OutputTokens: 10, CostUSD: 0.25, Seconds: 3, InTime: true},
		{Kind: "fix", Steps: 9, InputTokens: 300, OutputTokens: 30, CostUSD: 0.5, Seconds: 70, InTime: false},
		{Kind: "fix", Success: true, Steps: 4, InputTokens: 200, OutputTokens: 20, Seconds: 5, InTime: true},
		{Kind: "data", Error: "prepare the sandbox: no room"},
	}
	var out bytes.Buffer
	table(&out, lines)
	want := `  kind  tasks  done  steps   in  out   USD  seconds  late  not judged
   fix      3     2      4  200   20  0.75      5.0     1           0
  data      1     0      0    0    0  0.00      0.0     0           1
   all      4     2      2  100   10  0.75      3.0     1           1
steps, in, out and seconds are medians; USD is the sum
`
	if d := gocmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}

// A change of what agents are told is a new version; a change of what they are
// not told is none.
func TestPromptVersion(t *testing.T) {
	d, err := definition.BuiltIn().Resolve("")
	if err != nil {
		t.Fatal(err)
	}
	version := func(d definition.Definition) string {
		t.Helper()
		data, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		v, err := promptVersion(data, "")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	seen := map[string]string{version(d): "the default"}
	for name, change := range map[string]func(*definition.Definition){
		"instructions": func(d *definition.Definition) { d.Instructions += "." },
		"tools":        func(d *definition.Definition) { d.Tools = []string{"!grep"} },
		"calling":      func(d *definition.Definition) { d.Calling = "json" },
	} {
		other := d
		change(&other)
		v := version(other)
		if seen[v] != "" {
			t.Errorf("%s: the version is that of %s", name, seen[v])
		}
		seen[v] = name
	}
	same := d
	same.Description = "another"
	if version(same) != version(d) {
		t.Error("the version changes although nothing that is told does")
	}
	specs, err := specsOf(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"execute", "edit_file", "service", "undo_changes", "task", "write_todos"} {
		if !slices.ContainsFunc(specs, func(s llm.ToolSpec) bool { return s.Name == want }) {
			t.Errorf("the tools lack %s", want)
		}
	}
}
