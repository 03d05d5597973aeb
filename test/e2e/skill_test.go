package e2e

import (
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/skill"
)

const learning = `
replies:
  - calls:
      - name: skill
        args: {name: word-count}
  - calls:
      - name: execute
        args: {command: "cd /workspace && printf 'one two three' > a.txt && python3 /skills/word-count/scripts/count.py a.txt && cat /skills/word-count/references/limits.md"}
  - calls:
      - name: execute
        args: {command: "echo x >> /skills/word-count/scripts/count.py; rm -rf /skills/word-count; mv /skills /s; touch /skills/x; stat -c '%U %a' /skills/word-count /skills/word-count/scripts/count.py"}
else: {text: There are three words.}
`

const wordCount = `---
name: word-count
description: Counts the words of text files. Use it when a number of words is asked for.
license: MIT
compatibility: Requires Python 3
metadata:
  author: tests
allowed-tools: Bash(python3:*)
---

Run scripts/count.py with the file. Limits are in references/limits.md.
`

// skillFolder makes a skill that follows the standard, with a script and a reference.
func skillFolder(t *testing.T, script string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "word-count")
	for name, text := range map[string]string{"SKILL.md": wordCount, "scripts/count.py": script, "references/limits.md": "At most ten words.\n"} {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// outputs are the whole outputs of a run's calls, in their order.
func (w *world) outputs(run string) (list []string) {
	w.t.Helper()
	r := w.c.Run(run)
	o, err := r.Transcript(w.ctx(), 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range o.Steps {
		for _, c := range s.Calls {
			out, err := r.Output(w.ctx(), c.ID, 0)
			if err != nil {
				w.t.Fatal(err)
			}
			data, err := io.ReadAll(out)
			if err = errors.Join(err, out.Close()); err != nil {
				w.t.Fatal(err)
			}
			list = append(list, string(data))
		}
	}
	return list
}

// A skill in the standard's format, with scripts and resources, is validated, installed after
// kill -9 of the server is still there, is taught by a model's call, and its script runs in
// the sandbox, where nothing can change it; also where the agent itself works in the sandbox.
func TestSkill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withModel(learning, nil)
	w.start()
	dir := skillFolder(t, "import sys\nprint(len(open(sys.argv[1]).read().split()), 'words')\n")
	if out := w.must("skill", "validate", dir); !strings.Contains(out, "word-count is a skill") {
		t.Error(out)
	}
	if _, code := w.cli("skill", "install", dir); code == 0 {
		t.Error("it was installed without being asked for")
	}
	w.must("skill", "install", dir, "--yes")
	w.kill()
	w.start()
	if out := w.must("skill", "list"); !strings.Contains(out, "word-count") {
		t.Fatalf("after kill -9: %s", out)
	}
	for _, where := range []string{"", "--in-sandbox"} {
		args := strings.Fields("run -q " + where)
		if out := w.must(append(args, "How many words has a.txt?")...); out != "There are three words." {
			t.Fatal(where, out)
		}
		ids := strings.Fields(w.must("runs", "-q"))
		checkCounted(t, where, w.outputs(ids[0]))
	}
}

// checkCounted checks what the calls of learning have returned.
func checkCounted(t *testing.T, where string, got []string) {
	t.Helper()
	if len(got) != 3 {
		t.Fatalf("%s: %q", where, got)
	}
	for _, part := range []string{"Run scripts/count.py with the file.", "/skills/word-count", "- scripts/count.py", "- references/limits.md", "It needs: Requires Python 3"} {
		if !strings.Contains(got[0], part) {
			t.Errorf("%s: what was taught lacks %q: %s", where, part, got[0])
		}
	}
	if !strings.Contains(got[1], "3 words") || !strings.Contains(got[1], "At most ten words.") {
		t.Errorf("%s: the script: %s", where, got[1])
	}
	if !strings.Contains(got[2], "root 555\nroot 555") || strings.Count(got[2], "ermission denied")+strings.Count(got[2], "ead-only") < 3 {
		t.Errorf("%s: it can be changed: %s", where, got[2])
	}
}

const provided = `
replies:
  - calls:
      - name: write_file
        args: {file_path: /workspace/app.py, content: "import os\nos.system('ls ' + input())\n"}
      - name: write_file
        args: {file_path: /workspace/d.csv, content: "city,t\nOslo,1.5\nRome,2.5\n"}
  - calls:
      - name: skill
        args: {name: python-security-audit}
      - name: skill
        args: {name: data-report}
      - name: skill
        args: {name: live-web-page}
  - calls:
      - name: execute
        args: {command: "python3 /skills/python-security-audit/scripts/audit.py app.py"}
      - name: execute
        args: {command: "python3 /skills/data-report/scripts/report.py d.csv --by city && head -c 15 report.html"}
      - name: execute
        args: {command: "mkdir site && cp /skills/live-web-page/assets/template.html site/index.html && python3 /skills/live-web-page/scripts/serve.py site --check"}
  - calls:
      - name: service
        args: {action: start, name: page, command: "python3 /skills/live-web-page/scripts/serve.py site --port 8000", ready_http: 8000}
else: {text: All is done.}
`

// The skills that come with skete work where they are meant to: an agent learns each, and
// their scripts run in its sandbox.
func TestSkill_provided(t *testing.T) {
	t.Parallel()
	address := listenAddress(t)
	w := newWorld(t, "--listen", address)
	w.withModel(provided, nil)
	w.start()
	for _, name := range skill.ProvidedNames() {
		w.must("skill", "install", "provided:"+name, "--yes")
	}
	if out := w.must("run", "-q", "Use what you know."); out != "All is done." {
		t.Fatal(out)
	}
	id := strings.TrimSpace(w.must("runs", "-q"))
	got := w.outputs(id)
	if len(got) != 9 {
		t.Fatalf("%d outputs: %q", len(got), got)
	}
	for i, want := range []string{"app.py:2:1: high: shell", "<!doctype html>", "nothing is wrong", "ready"} {
		if !strings.Contains(got[5+i], want) {
			t.Errorf("nothing says %q: %s", want, got[5+i])
		}
	}
	run, err := w.c.Run(id).Get(w.ctx())
	w.ok(err)
	sb := w.c.Sandbox(run.Sandbox)
	report, err := sb.Files().Read(w.ctx(), "/workspace/report.html", 1<<20)
	w.ok(err)
	if !strings.Contains(string(report), "<svg role") {
		t.Errorf("the report has no plot: %.500s", report)
	}
	link, err := sb.Previews().Open(w.ctx(), api.CreatePreview{Port: 8000, Public: true})
	w.ok(err)
	if page := newVisitor(w, address).follow(link.URL); !strings.Contains(page, "It is served live") {
		t.Errorf("the preview shows %q", page)
	}
}

// follow opens a page as a browser does, and returns it.
func (v *visitor) follow(address string) string {
	for range 5 {
		at, err := url.Parse(address)
		v.w.ok(err)
		_, body, h := v.do("GET", address, nil, nil)
		if h.Get("Location") == "" {
			return body
		}
		to, err := at.Parse(h.Get("Location"))
		v.w.ok(err)
		address = to.String()
	}
	return "it leads on and on"
}

const approving = `
replies:
  - calls:
      - name: skill
        args: {name: word-count}
  - calls:
      - name: execute
        args: {command: "python3 /skills/word-count/scripts/count.py"}
  - calls:
      - name: execute
        args: {command: "touch /tmp/not-for-the-skill"}
else: {text: 'It said: {{result "execute"}}'}
`

// A skill's allowed-tools approve nothing unless that version is trusted; then they answer in
// place of a person for what they name, and the log says so. An upgrade asks again.
func TestSkill_trusted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withModel(approving, map[string]string{"careful.yaml": careful})
	w.start()
	waits := func(what, command string) string {
		t.Helper()
		out, code := w.cli("run", "--agent", "careful", "Act.")
		if code != 3 || !strings.Contains(out, "│ command: "+command) {
			t.Fatalf("%s: status %d\n%s", what, code, out)
		}
		return w.must("runs", "-q", "--state", "interrupted")
	}
	w.must("skill", "install", skillFolder(t, "print('first')\n"), "--yes")
	w.must("cancel", waits("not trusted", "python3"))
	w.must("skill", "trust", "word-count", "--yes")
	w.kill()
	w.start()
	id := waits("what it does not name", "touch")
	if got := w.output(id, "execute"); !strings.HasPrefix(got, "first\n") {
		t.Errorf("%q", got)
	}
	was, err := w.c.Skill(w.ctx(), "word-count", "")
	w.ok(err)
	if log := w.must("show", id, "--events"); strings.Count(log, `"by":"skill word-count version `+was.Version+`"`) != 1 || !was.Trusted {
		t.Errorf("the log does not say which skill approved, %+v:\n%s", was, log)
	}
	w.must("cancel", id)
	w.must("skill", "upgrade", "word-count", skillFolder(t, "print('second')\n"), "--yes")
	if now, err := w.c.Skill(w.ctx(), "word-count", ""); err != nil || now.Trusted || now.Version == was.Version {
		t.Errorf("%+v, %v", now, err)
	}
}

const asTool = `
replies:
  - calls:
      - name: count_words
        args: {text: "one two three"}
else: {text: 'It said: {{result "count_words"}}'}
`

const countTool = `
name: count_words
description: Counts the words of a text.
input: {type: object, required: [text], properties: {text: {type: string}}}
output: {type: object, required: [words, started], properties: {words: {type: integer}, started: {type: integer}}}
command: python3 "$SKETE_TOOL_DIR/scripts/count.py"
`

// countScript says that it was started, waits, and counts.
const countScript = `import json, os, subprocess, sys
with open('/workspace/started', 'a') as f: f.write('x')
subprocess.run(['sleep', '3.0719'])
here = os.path.dirname(__file__)
try: open(here + '/new', 'w'); sys.exit('it can be changed')
except OSError: pass
print(json.dumps({'words': len(json.load(sys.stdin)['text'].split()), 'started': os.path.getsize('/workspace/started')}))
`

// A skill with a tool.yaml is a tool with a schema: its script runs in the run's sandbox, where
// the skill is read-only, once over kill -9 of the server; a run keeps the version that it began
// with, and of a version that is not trusted a person allows each call.
func TestSkill_tool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withModel(asTool, nil)
	w.start()
	dir := skillFolder(t, countScript)
	w.ok(os.WriteFile(filepath.Join(dir, "tool.yaml"), []byte(countTool), 0o644))
	w.must("skill", "install", dir, "--yes", "--trust")
	if out := w.must("skill", "show", "word-count"); !strings.Contains(out, "tool     count_words: Counts the words of a text.") || !strings.Contains(out, ", trusted by ") {
		t.Error(out)
	}
	id := strings.TrimSpace(w.must("run", "-q", "--detach", "Count."))
	w.until("the tool runs", func() error {
		live := w.live()
		if len(live) == 0 {
			return errors.New("there is no sandbox")
		}
		_, err := w.c.Sandbox(live[0].ID).Files().Stat(w.ctx(), "/workspace/started", true)
		return err
	})
	w.kill()
	w.start()
	w.ok(os.WriteFile(filepath.Join(dir, "scripts", "count.py"), []byte("print('another')\n"), 0o755))
	w.must("skill", "upgrade", "word-count", dir, "--yes")
	if r, err := w.c.Run(id).Wait(w.ctx()); err != nil || r.State != "succeeded" {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := w.output(id, "count_words"); !strings.Contains(got, `{"words": 3, "started": 1}`) {
		t.Errorf("%q", got)
	}
	if out, code := w.cli("run", "Count."); code != 3 || !strings.Contains(out, "count_words") {
		t.Errorf("what is not trusted runs unasked: status %d\n%s", code, out)
	}
}
