package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
)

// Three nodes in one machine, of which two are done again, then a person. Each notes in a file
// that it worked.
const articleFlow = `
name: article
version: "1"
topology: sequential
input: {type: object, properties: {subject: {type: string}}, required: [subject]}
limits: {tokens: 1000000, wall: 1h}
nodes:
  - name: research
    inline: {instructions: ROLE=research}
    task: Find out what is known.
    input: {subject: {input: subject}}
    artifacts: [notes.md]
    result: {type: object, properties: {facts: {type: array, items: {type: string}}}, required: [facts]}
  - name: write
    inline: {instructions: ROLE=write}
    task: Write it.
    input: {facts: {node: research, path: facts}, notes: {node: research, artifact: notes.md}, review: {node: review, path: remark}}
    artifacts: [article.md]
  - name: review
    inline: {instructions: ROLE=review}
    task: Review it.
    input: {article: {node: write, artifact: article.md}}
    result: {type: object, properties: {verdict: {type: string, enum: [accept, revise]}, remark: {type: string}}, required: [verdict, remark]}
  - name: publish
    human: {ask: Is it to be published?, choices: [publish, keep back]}
loops:
  - {from: review, to: write, when: {node: review, path: verdict, equals: revise}, max: 3}
output: {article: {node: write, artifact: article.md}, decision: {node: publish, path: choice}}
`

const articleModel = `
scenes:
  - system: ROLE=research
    replies:
      - calls: [{name: execute, args: {command: "echo research >> done.log; sleep 1; echo 'Snails are slow.' > notes.md"}}]
      - text: '{"facts": ["Snails are slow."]}'
  - system: ROLE=write
    replies:
      - calls: [{name: execute, args: {command: "echo write >> done.log; sleep 1; cat .blackboard/research/notes.md >> article.md"}}]
      - text: Written.
  - system: ROLE=review
    replies:
      - calls: [{name: execute, args: {command: "echo review >> done.log; sleep 1; grep -c slow .blackboard/write/article.md; true"}}]
      - when: {result: "2"}
        text: '{"verdict": "accept", "remark": "fine"}'
      - text: '{"verdict": "revise", "remark": "Say it twice."}'
else: {text: lost}
`

func (w *world) flowFile(text string) string {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "flow.yaml")
	w.ok(os.WriteFile(file, []byte(text), 0o600))
	return file
}

func (w *world) flow(id string) api.WorkflowRun {
	w.t.Helper()
	run, err := w.c.WorkflowRun(w.ctx(), id, 0, 0)
	w.ok(err)
	return run
}

// reaches waits until a run of a workflow is as wanted, and shows it.
func (w *world) reaches(id, what string, want func(api.WorkflowRun) bool) (run api.WorkflowRun) {
	w.t.Helper()
	w.until(what, func() error {
		var err error
		if run, err = w.c.WorkflowRun(w.ctx(), id, 0, 0); err != nil {
			return err
		}
		if !want(run) {
			return fmt.Errorf("it is %s %s %s, %d nodes began", run.State, run.Reason, run.Text, len(run.Nodes))
		}
		return nil
	})
	return run
}

func isOver(run api.WorkflowRun) bool { return run.EndedAt != nil }

// under reports whether a node of a label is in a state.
func under(label, state string) func(api.WorkflowRun) bool {
	return func(run api.WorkflowRun) bool {
		return slices.ContainsFunc(run.Nodes, func(n api.WorkflowNode) bool { return n.Label == label && n.State == state })
	}
}

// began reports whether a node of a label began.
func began(label string) func(api.WorkflowRun) bool {
	return func(run api.WorkflowRun) bool {
		return slices.ContainsFunc(run.Nodes, func(n api.WorkflowNode) bool { return n.Label == label })
	}
}

// file reads a file of the workspace of a sandbox, which is started if need be.
func (w *world) file(sandbox, name string) string {
	w.t.Helper()
	sb := w.c.Sandbox(sandbox)
	if info, err := sb.Get(w.ctx()); err == nil && info.State == "stopped" {
		_, err = sb.Start(w.ctx())
		w.ok(err)
	}
	out, code := w.cli("vm", "exec", sandbox, "--", "cat", "/workspace/"+name)
	if code != 0 {
		w.t.Fatalf("%s of %s: status %d", name, sandbox, code)
	}
	return out
}

// Research, a text, a review that sends it back once, and a person; the server is killed in
// three of them. A file that changes meanwhile changes the next run alone.
func TestWorkflow_killedInItsNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	w.withModel(articleModel, nil)
	folder := filepath.Join(w.home, "workflows")
	w.ok(errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "article.yaml"), []byte(articleFlow), 0o600)))
	w.start()
	if out := w.must("workflow", "run", "article", "--input", "subject=snails", "--dry-run"); !strings.Contains(out, "research") {
		t.Errorf("the plan: %s", out)
	}
	if _, code := w.cli("workflow", "run", "article", "--input", "subjet=snails"); code != 2 {
		t.Errorf("a wrong input: status %d", code)
	}
	id := w.must("workflow", "run", "article", "--input", "subject=snails")
	w.ok(os.WriteFile(filepath.Join(folder, "article.yaml"), []byte(strings.ReplaceAll(articleFlow, `version: "1"`, `version: "2"`)), 0o600))
	for _, label := range []string{"research", "review", "write#2"} {
		w.reaches(id, label+" began", began(label))
		w.kill()
		w.start()
	}
	run := w.reaches(id, "a person is asked", under("publish", "waiting"))
	w.kill()
	w.start()
	if _, code := w.cli("workflow", "answer", id, "publish", "burn"); code == 0 {
		t.Error("what cannot be chosen was taken")
	}
	w.must("workflow", "answer", id, "publish", "publish", "--text", "Good.")
	run = w.reaches(id, "the end", isOver)
	if run.State != "succeeded" || run.Version != "1" {
		t.Fatalf("%+v", run)
	}
	var labels []string
	for _, n := range run.Nodes {
		labels = append(labels, n.Label)
	}
	if want := []string{"research", "write", "review", "write#2", "review#2", "publish"}; !slices.Equal(labels, want) {
		t.Errorf("done was %q, not %q", labels, want)
	}
	if got := w.file(run.Sandbox, "done.log"); got != "research\nwrite\nreview\nwrite\nreview\n" {
		t.Errorf("what worked: %q", got)
	}
	var result struct {
		Article  struct{ File string }
		Decision string
	}
	w.ok(json.Unmarshal(run.Result, &result))
	if result.Decision != "publish" || result.Article.File != ".blackboard/write/article.md" {
		t.Errorf("the result is %s", run.Result)
	}
	if out := w.must("workflow", "show", id); !strings.Contains(out, "write#2") || !strings.Contains(out, run.Nodes[0].Run) || !strings.Contains(out, "publish by") {
		t.Errorf("the story: %s", out)
	}
	if out := w.must("show", run.Nodes[1].Run); !strings.Contains(out, "article") || !strings.Contains(out, "write") {
		t.Errorf("the run of a node does not say of which it is: %s", out)
	}
	next := w.must("workflow", "run", "article", "--input", "subject=slugs")
	if got := w.flow(next); got.Version != "2" || got.Hash == run.Hash {
		t.Errorf("a new run has the version %q", got.Version)
	}
	w.must("workflow", "cancel", next)
	if got := w.reaches(next, "the end of what was cancelled", isOver); got.State != "cancelled" {
		t.Errorf("%+v", got)
	}
}

// Three levels, five agents: both workers of the builder and a tester, which works in a fork
// of the machine, is cancelled once and tried again.
const webAppFlow = `
name: web-app
topology: hierarchical
input: {type: object, properties: {wish: {type: string}}, required: [wish]}
limits: {tokens: 5000000, wall: 1h}
nodes:
  - name: lead
    inline: {instructions: ROLE=lead}
    task: Have built what is wished for.
    input: {wish: {input: wish}}
    workers: [builder, tester]
    result: {type: object, properties: {start: {type: string}}, required: [start]}
  - {name: builder, description: Builds., inline: {instructions: ROLE=builder}, workers: [backend, frontend]}
  - {name: backend, description: Writes the server., inline: {instructions: ROLE=backend}}
  - {name: frontend, description: Writes the pages., inline: {instructions: ROLE=frontend}}
  - name: tester
    description: Tries the application.
    inline: {instructions: ROLE=tester}
    sandbox: fork
    artifacts: [report.md]
    retries: {max: 1, wait: 1s}
    result: {type: object, properties: {passed: {type: boolean}}, required: [passed]}
`

const webAppModel = `
scenes:
  - {system: ROLE=lead, user: round 1 of, replies: [{text: '{"done": false, "delegate": {"builder": ["a page that says hello"]}}'}]}
  - {system: ROLE=lead, user: round 2 of, replies: [{text: '{"done": false, "delegate": {"tester": ["try it"]}}'}]}
  - {system: ROLE=lead, user: '"passed":true', replies: [{text: '{"done": true, "answer": {"start": "python3 server.py"}}'}]}
  - {system: ROLE=builder, user: round 1 of, replies: [{text: '{"done": false, "delegate": {"backend": ["server.py"], "frontend": ["index.html"]}}'}]}
  - {system: ROLE=builder, user: served, replies: [{text: '{"done": true, "answer": "built"}'}]}
  - system: ROLE=backend
    replies:
      - calls: [{name: execute, args: {command: "printf 'import http.server\nhttp.server.test(http.server.SimpleHTTPRequestHandler, port=8123, bind=\"127.0.0.1\")\n' > server.py"}}]
      - text: served
  - system: ROLE=frontend
    replies:
      - calls: [{name: execute, args: {command: "echo '<h1>hello</h1>' > index.html"}}]
      - text: drawn
  - system: ROLE=tester
    replies:
      - calls: [{name: execute, args: {command: "test -f go-on || sleep 300; python3 server.py >/dev/null 2>&1 & for i in 1 2 3 4 5 6 7 8 9; do sleep 0.5; python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/').read().decode())\" > report.md 2>/dev/null && break; done; kill %1; echo x > left-behind; grep -c hello report.md"}}]
      - text: '{"passed": true}'
else: {text: lost}
`

func TestWorkflow_hierarchyBuildsAWebApp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	w.withModel(webAppModel, nil)
	w.start()
	id := w.must("workflow", "run", w.flowFile(webAppFlow), "--input", "wish=a page that says hello")
	run := w.reaches(id, "the tester works", func(run api.WorkflowRun) bool {
		return slices.ContainsFunc(run.Nodes, func(n api.WorkflowNode) bool { return n.Label == "tester#2" && n.Run != "" })
	})
	if _, code := w.cli("vm", "exec", run.Sandbox, "--", "touch", "/workspace/go-on"); code != 0 {
		t.Fatal("the shared machine cannot be worked in")
	}
	w.must("cancel", run.Nodes[len(run.Nodes)-1].Run)
	w.reaches(id, "the tester is tried again", began("tester#2!2"))
	w.kill()
	w.start()
	run = w.reaches(id, "the end", isOver)
	if run.State != "succeeded" || !strings.Contains(string(run.Result), "python3 server.py") {
		t.Fatalf("%+v", run)
	}
	var labels []string
	for _, n := range run.Nodes {
		labels = append(labels, n.Label+" "+n.State)
	}
	want := []string{
		"lead succeeded", "builder succeeded", "backend succeeded", "frontend succeeded", "builder#2 succeeded", "lead#2 succeeded",
		"tester#2 cancelled", "tester#2!2 succeeded", "lead#3 succeeded",
	}
	if !slices.Equal(labels, want) {
		t.Errorf("done was %q", labels)
	}
	// The artefact of the fork was merged back, and nothing else of it.
	if got := w.file(run.Sandbox, "report.md"); !strings.Contains(got, "hello") {
		t.Errorf("the report: %q", got)
	}
	if _, code := w.cli("vm", "exec", run.Sandbox, "--", "ls", "/workspace/left-behind"); code == 0 {
		t.Error("what the fork did not name came back")
	}
	out, code := w.cli("vm", "exec", run.Sandbox, "--", "sh", "-c",
		`cd /workspace; python3 server.py >/dev/null 2>&1 & for i in 1 2 3 4 5 6 7 8 9; do sleep 0.5; python3 -c "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/').read().decode())" 2>/dev/null && break; done; kill $!`)
	if code != 0 || !strings.Contains(out, "<h1>hello</h1>") {
		t.Errorf("the application, started: status %d, %q", code, out)
	}
	for _, sb := range w.live() {
		if sb.ID != run.Sandbox {
			t.Errorf("the machine %s of a node is left", sb.ID)
		}
	}
}

// Elements of a list are worked on at once, in machines of their own; two forks that write one
// file differently are told of.
func TestWorkflow_fanOutAndConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	w.withModel(`
scenes:
  - system: ROLE=worker
    replies:
      - calls: [{name: execute, args: {command: "sleep 3; cat /proc/sys/kernel/random/uuid > result.txt"}}]
      - text: done
else: {text: lost}
`, nil)
	w.start()
	id := w.must("workflow", "run", w.flowFile(`
name: fan
topology: sequential
nodes:
  - name: work
    inline: {instructions: ROLE=worker}
    task: Work.
    each: {value: [a, b]}
    input: {part: {item: ""}}
    sandbox: fork
    artifacts: [result.txt]
output: {done: {node: work}, files: {node: work, artifact: result.txt}}
`))
	run := w.reaches(id, "the end", isOver)
	if run.State != "succeeded" || len(run.Nodes) != 2 {
		t.Fatalf("%+v", run)
	}
	first, second := run.Nodes[0], run.Nodes[1]
	if first.EndedAt.Before(second.StartedAt) || len(first.Conflicts)+len(second.Conflicts) != 1 {
		t.Errorf("they did not work at once, or nothing is told of what they wrote: %+v", run.Nodes)
	}
	var result struct {
		Files []struct{ File, SHA256 string }
	}
	w.ok(json.Unmarshal(run.Result, &result))
	if len(result.Files) != 2 || result.Files[0].SHA256 == result.Files[1].SHA256 {
		t.Errorf("the result is %s", run.Result)
	}
}

// A lead that sees no code and an auditor whose tool reads it in a sandbox of its own.
const auditModel = `
scenes:
  - {system: You lead a security audit, user: round 1 of, replies: [{text: '{"done": false, "delegate": {"auditor": ["script.py"]}}'}]}
  - system: You lead a security audit
    user: '"line":3,"what":"pickle-load"'
    replies: [{text: '{"done": true, "answer": {"summary": "Two flaws.", "findings": [{"file": "script.py", "line": 2, "weight": "high", "what": "a shell"}, {"file": "script.py", "line": 3, "weight": "critical", "what": "pickle"}]}}'}]
  - system: You audit code
    replies:
      - calls: [{name: run_static_analysis, args: {path: script.py}}]
      - when: {result: "unpickling runs code"}
        text: '[{"file": "script.py", "line": 2, "what": "shell"}, {"file": "script.py", "line": 3, "what": "pickle-load"}]'
      - text: '[]'
else: {text: lost}
`

// The sample of a security audit: the tool finds what was planted in a file that the run is
// started with, in a sandbox that is removed; kill -9 of the server changes nothing of it.
func TestWorkflow_securityAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	w.withModel(auditModel, nil)
	const sample = "../../examples/workflows/security-audit.yaml"
	script := filepath.Join(t.TempDir(), "script.py")
	w.ok(os.WriteFile(script, []byte("import os, pickle\nos.system('ls ' + input())\npickle.loads(open('x', 'rb').read())\n"), 0o600))
	w.start()
	if _, code := w.cli("workflow", "run", sample, "--input", script); code != 2 {
		t.Errorf("without the tool: status %d", code)
	}
	w.ok(os.CopyFS(filepath.Join(w.home, "tools", "run_static_analysis"), os.DirFS("../../examples/tools/run_static_analysis")))
	id := w.must("workflow", "run", sample, "--input", script)
	for _, label := range []string{"auditor", "lead#2"} {
		w.reaches(id, label+" began", began(label))
		w.kill()
		w.start()
	}
	run := w.reaches(id, "the end", isOver)
	var report struct {
		Result struct {
			Findings []struct{ Line int }
		}
	}
	if err := json.Unmarshal(run.Result, &report); run.State != "succeeded" || err != nil || len(report.Result.Findings) != 2 || report.Result.Findings[1].Line != 3 {
		t.Fatalf("%+v %s %v", run, run.Result, err)
	}
	if len(run.Nodes) != 3 {
		t.Errorf("done was %+v", run.Nodes)
	}
	if out := w.must("workflow", "show", id); !strings.Contains(out, "auditor") || !strings.Contains(out, run.Nodes[1].Run) {
		t.Errorf("the story: %s", out)
	}
	if out := w.must("show", run.Nodes[1].Run); strings.Count(out, "run_static_analysis") == 0 {
		t.Errorf("the auditor's run: %s", out)
	}
	w.until("the tool's sandbox is removed", func() error {
		for _, sb := range w.live() {
			if sb.ID != run.Sandbox {
				return fmt.Errorf("%s is %s", sb.ID, sb.State)
			}
		}
		return nil
	})
}
