package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// sample is a file of examples/workflows.
func sample(name string) string { return "../../examples/workflows/" + name + ".yaml" }

// Three levels, five agents: both workers of the builder and a tester, which works in a fork
// of the machine, is cancelled once and tried again.
const webAppModel = `
scenes:
  - {system: You lead the building, user: round 1 of, replies: [{text: '{"done": false, "delegate": {"builder": ["a page that says hello"]}}'}]}
  - {system: You lead the building, user: round 2 of, replies: [{text: '{"done": false, "delegate": {"tester": ["try it"]}}'}]}
  - {system: You lead the building, user: '"passed":true', replies: [{text: '{"done": true, "answer": {"summary": "It says hello.", "start": "python3 server.py"}}'}]}
  - {system: You decide how the two sides, user: round 1 of, replies: [{text: '{"done": false, "delegate": {"backend": ["server.py"], "frontend": ["index.html"]}}'}]}
  - {system: You decide how the two sides, user: served, replies: [{text: '{"done": true, "answer": "built"}'}]}
  - system: You write servers
    replies:
      - calls: [{name: execute, args: {command: "printf 'import http.server\nhttp.server.test(http.server.SimpleHTTPRequestHandler, port=8123, bind=\"127.0.0.1\")\n' > server.py"}}]
      - text: served
  - system: You write pages
    replies:
      - calls: [{name: execute, args: {command: "echo '<h1>hello</h1>' > index.html"}}]
      - text: drawn
  - system: You try applications
    replies:
      - calls: [{name: execute, args: {command: "test -f go-on || sleep 300; python3 server.py >/dev/null 2>&1 & for i in 1 2 3 4 5 6 7 8 9; do sleep 0.5; python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/').read().decode())\" > report.md 2>/dev/null && break; done; kill %1; echo x > left-behind; grep -c hello report.md"}}]
      - text: '{"passed": true, "failures": []}'
else: {text: lost}
`

func TestWorkflow_hierarchyBuildsAWebApp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	w.withModel(webAppModel, nil)
	w.start()
	flow := sample("web-app")
	if _, err := exec.LookPath("node"); err != nil { // which machines have of the host
		text, err := os.ReadFile(flow)
		w.ok(err)
		flow = w.flowFile(strings.Replace(string(text), "language: node, ", "", 1))
	}
	id := w.must("workflow", "run", flow, "--input", "wish=a page that says hello")
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
	audit := sample("security-audit")
	script := filepath.Join(t.TempDir(), "script.py")
	w.ok(os.WriteFile(script, []byte("import os, pickle\nos.system('ls ' + input())\npickle.loads(open('x', 'rb').read())\n"), 0o600))
	w.start()
	if _, code := w.cli("workflow", "run", audit, "--input", script); code != 2 {
		t.Errorf("without the tool: status %d", code)
	}
	w.ok(os.CopyFS(filepath.Join(w.home, "tools", "run_static_analysis"), os.DirFS("../../examples/tools/run_static_analysis")))
	id := w.must("workflow", "run", audit, "--input", script)
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

const samplesModel = `
scenes:
  - system: You find sources
    replies:
      - calls: [{name: execute, args: {command: "echo 'Snails are slow.' > notes.md"}}]
      - text: '{"facts": ["Snails are slow."]}'
  - system: You write plainly
    replies:
      - calls: [{name: execute, args: {command: "cat .blackboard/research/notes.md >> article.md"}}]
      - text: Written.
  - system: You review texts
    replies:
      - calls: [{name: grep, args: {pattern: slow, path: /workspace/.blackboard/write, output_mode: content}}]
      - when: {result: "2:"}
        text: '{"verdict": "accept", "remarks": []}'
      - text: '{"verdict": "revise", "remarks": ["Say it twice."]}'
  - user: '"good-one"'
    replies:
      - calls: [{name: execute, args: {command: "ls; echo fetched > feed.xml"}}]
      - text: '{"entries": ["one"]}'
  - {user: '"good-two"', replies: [{text: '{"entries": ["two"]}'}]}
  - user: Choose what matters
    replies:
      - when: {user: '[{"entries":["one"]},null,{"entries":["two"]}]'}
        text: '{"chosen": ["one", "two"], "urgent": true, "score": 0.9}'
      - text: '{"chosen": [], "urgent": false, "score": 0}'
  - {user: Write a short text, replies: [{text: It burns.}]}
  - user: Write the digest
    replies:
      - when: {user: It burns.}
        text: The digest.
      - text: nothing
  - user: Propose the simplest way
    replies:
      - calls: [{name: execute, args: {command: "ls opinion.txt || echo simple > opinion.txt"}}]
      - text: by foot
  - user: Propose the fastest way
    replies:
      - calls: [{name: execute, args: {command: "ls opinion.txt || echo fast > opinion.txt"}}]
      - text: by air
  - user: Weigh the opinions
    replies:
      - calls: [{name: execute, args: {command: "test -e opinion.txt || echo nothing came back"}}]
      - when: {result: nothing came back}
        text: by foot, then by air
      - text: their files came back
else: {text: lost}
`

// The samples that no other test runs, all at once on one server: a text that is reviewed
// twice and a person, a list of which one element fails, and opinions in forks of which
// nothing comes back.
func TestWorkflow_samples(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	w.withModel(samplesModel, nil)
	w.start()
	article := w.must("workflow", "run", sample("article"), "--input", "subject=snails", "--input", "words=100")
	news := w.must("workflow", "run", sample("news"), "--input", `{"feeds": ["good-one", "broken", "good-two"]}`)
	opinions := w.must("workflow", "run", sample("opinions"), "--input", "question=How do I get there?")

	w.reaches(article, "a person is asked", under("publish", "waiting"))
	w.must("workflow", "answer", article, "publish", "keep back")
	for _, c := range []struct{ id, nodes, result string }{
		{
			article, "research succeeded, write succeeded, review succeeded, write#2 succeeded, review#2 succeeded, publish succeeded",
			`"decision":"keep back"`,
		},
		{news, "fetch succeeded, fetch[1] failed, fetch[2] succeeded, choose succeeded, alarm succeeded, digest succeeded", `{"digest":"The digest."}`},
		{opinions, "simple succeeded, fast succeeded, careful succeeded, weigh succeeded", `{"weigh":"by foot, then by air"}`},
	} {
		run := w.reaches(c.id, "the end", isOver)
		var nodes []string
		for _, n := range run.Nodes {
			nodes = append(nodes, n.Label+" "+n.State)
		}
		if got := strings.Join(nodes, ", "); got != c.nodes || run.State != "succeeded" || !strings.Contains(compact(t, run.Result), c.result) {
			t.Errorf("%s: %s %s\n%s\nwant %s\n%s", run.Workflow, run.State, run.Text, got, c.nodes, run.Result)
		}
	}
	shared := map[string]bool{}
	for _, id := range []string{article, news, opinions} {
		shared[w.flow(id).Sandbox] = true
	}
	for _, sb := range w.live() {
		if !shared[sb.ID] || sb.State != "stopped" {
			t.Errorf("the machine %s is left, %s", sb.ID, sb.State)
		}
	}
}

func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return b.String()
}
