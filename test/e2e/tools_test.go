package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
)

const auditing = `
replies:
  - calls:
      - name: write_file
        args: {file_path: /workspace/app/main.py, content: "import os\nimport pickle\n\npassword = 'hunter22'\nos.system('ls ' + input())\npickle.loads(open('x').read())\n"}
  - calls:
      - name: run_static_analysis
        args: {path: app}
  - calls:
      - name: counted
        args: {}
else: {text: Audited.}
`

// counted says how often it was started in its sandbox, while a host can see a process that
// it starts there.
const counted = `
description: Counts how often it was started.
command: echo x >> /workspace/count; sleep 4.0417; wc -l < /workspace/count; cp /workspace/count report.txt; ls /workspace/app 2>&1
sandbox: {scope: "counter-{run}", memory_mb: 128}
artifacts: ["*.txt"]
`

// withTool writes a manifest into the data directory, or copies a folder of files there.
func (w *world) withTool(name, manifest string) {
	w.t.Helper()
	dir := filepath.Join(w.home, "tools")
	w.ok(os.MkdirAll(dir, 0o755))
	w.ok(os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(manifest), 0o644))
}

// A declared tool that requires a sandbox runs in one of its own, and finds the flaws in the
// files that it was given; kill -9 of the server while another one runs starts nothing twice;
// no process of either is one of the host; what was made for the run is removed with it.
func TestDeclaredTools(t *testing.T) {
	w := newWorld(t)
	w.withModel(auditing, map[string]string{"auditor.yaml": "description: audits\ntools: [write_file, run_static_analysis, counted]\n"})
	w.ok(os.CopyFS(filepath.Join(w.home, "tools", "run_static_analysis"), os.DirFS("../../examples/tools/run_static_analysis")))
	w.withTool("counted", counted)
	w.withTool("broken", "name: broken\ncommand: 1\nrequires_sandbox: false\n")
	w.start()
	id := strings.TrimSpace(w.must("run", "-q", "--detach", "--agent", "auditor", "Audit app."))
	var counter api.Sandbox
	w.until("the second tool runs", func() error {
		for _, sb := range w.live() {
			if _, ok := sb.Metadata["skete.tool.run"]; !ok || sb.MemoryMB != 128 {
				continue
			}
			counter = sb
			_, err := w.c.Sandbox(sb.ID).Files().Stat(w.ctx(), "/workspace/count", true)
			return err
		}
		return errors.New("its sandbox is not there")
	})
	if counter.Network != "none" {
		t.Errorf("its network is %q", counter.Network)
	}
	if found := onHost("sleep\x004.0417"); found != "" {
		t.Errorf("it runs on the host: %q", found)
	}
	if log := w.log.String(); strings.Contains(log, "a tool broke") {
		t.Errorf("%s", log)
	}
	w.kill()
	w.start()
	w.until("the run is over", func() error {
		r, err := w.c.Run(id).Get(w.ctx())
		if err == nil && r.State != "succeeded" {
			return fmt.Errorf("it is %s: %s", r.State, r.Text)
		}
		return err
	})
	got := w.outputs(id)
	if len(got) != 3 {
		t.Fatalf("%q", got)
	}
	var report struct {
		Files    int
		Findings []struct {
			File, Rule string
			Line       int
		}
	}
	if err := json.Unmarshal([]byte(got[1]), &report); err != nil || report.Files != 1 || len(report.Findings) != 3 {
		t.Fatalf("%v: %s", err, got[1])
	}
	for i, line := range []int{4, 5, 6} {
		if f := report.Findings[i]; f.File != "/workspace/app/main.py" || f.Line != line {
			t.Errorf("%+v", f)
		}
	}
	if !strings.HasPrefix(got[2], "1\n") || !strings.Contains(got[2], "/workspace/tool-results/counted-") {
		t.Errorf("it was started more than once, or saw another's files, or handed nothing back: %s", got[2])
	}
	if !strings.Contains(got[2], "No such file") {
		t.Errorf("it sees the run's files: %s", got[2])
	}
	w.until("the tools' sandboxes are removed", func() error {
		for _, sb := range w.live() {
			if _, ok := sb.Metadata["skete.tool"]; ok {
				return fmt.Errorf("%s is %s", sb.ID, sb.State)
			}
		}
		return nil
	})
	if out := w.must("show", id); !strings.Contains(out, "broken.yaml") {
		t.Errorf("nothing is said of the broken one: %s", out)
	}
}

// onHost is the command line of a process of the host that has a text in it; "" = none has.
func onHost(text string) string {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		if line, err := os.ReadFile(name); err == nil && strings.Contains(string(line), text) {
			return string(line)
		}
	}
	return ""
}

const clerking = `
replies:
  - calls:
      - name: note_issue
        args: {id: 7, text: "it's late"}
  - calls:
      - name: whole
        args: {}
  - calls:
      - name: whole
        args: {}
else: {text: Noted.}
`

// A tool that is a request is made by the host, and is a record of the audit log; a rate holds
// over kill -9 of the server; a tool whose sandbox the quota has no room for says so, and the
// run goes on; a person calls the same tools, with the same limits.
func TestToolsOfRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var got []string
	issues := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		fmt.Fprintf(rw, `{"notes": %d}`, len(got))
	}))
	t.Cleanup(issues.Close)
	w.withModel(clerking, map[string]string{"clerk.yaml": "description: notes\ntools: [note_issue, whole]\n"})
	w.withTool("note_issue", fmt.Sprintf(`
description: Adds a note to an issue.
input: {type: object, additionalProperties: false, required: [id, text], properties: {id: {type: integer}, text: {type: string}}}
output: {type: object, required: [notes]}
http: {method: POST, url: "%s/issues/{id}/notes", query: {by: agent}, body: {text: "{text}"}}
rate: {calls: 2, per: 1h}
`, issues.URL))
	w.withTool("whole", "description: Fills what there is.\ncommand: echo done\nsandbox: {scope: '{call}', memory_mb: 128}\n")
	w.withTool("count", "description: Counts.\ncommand: echo x >> n; wc -l < n; exit 3\nsandbox: {scope: '{user}', memory_mb: 128, keep: 1h}\n")
	w.env = append(w.env, "SKETE_LIMITS_SANDBOXES=1")
	w.start()
	filler := w.create(api.CreateSandbox{MemoryMB: 128})
	id := strings.TrimSpace(w.must("run", "-q", "--detach", "--agent", "clerk", "--sandbox", filler.ID, "Note it."))
	w.until("the run is over", func() error {
		r, err := w.c.Run(id).Get(w.ctx())
		if err == nil && r.State != "succeeded" {
			return fmt.Errorf("it is %s: %s", r.State, r.Text)
		}
		return err
	})
	outputs := w.outputs(id)
	if len(outputs) != 3 || outputs[0] != `{"notes": 1}` || !strings.Contains(outputs[1], "no sandbox can be made for this tool") || !strings.Contains(outputs[1], "quota of 1 sandboxes is used up") {
		t.Errorf("%q", outputs)
	}
	if r, err := w.c.RunTool(w.ctx(), "note_issue", api.RunTool{Args: json.RawMessage(`{"id": 8, "text": "b"}`)}); err != nil || r.Failed || r.Text != `{"notes": 2}` {
		t.Errorf("%+v, %v", r, err)
	}
	w.kill()
	w.start()
	if out, code := w.cli("tool", "run", "note_issue", "--args", `{"id": 9, "text": "c"}`); code != 1 || !strings.Contains(out, "may be called 2 times in 1h") {
		t.Errorf("a third call, after a restart: %d %s", code, out)
	}
	if out, code := w.cli("tool", "run", "note_issue", "--args", `{"id": "x"}`); code != 1 || !strings.Contains(out, "invalid arguments for note_issue") {
		t.Errorf("%d %s", code, out)
	}
	w.ok(filler.Destroy(w.ctx()))
	for _, want := range []string{"1", "2"} {
		if out, code := w.cli("tool", "run", "count", "--json"); code != 3 || !strings.Contains(out, `"text": "`+want+`\n`) {
			t.Errorf("%d %s", code, out)
		}
	}
	if out := w.must("vm", "list", "--json"); !strings.Contains(out, `"after_run": "remove"`) || !strings.Contains(out, `"skete.tool.name": "count"`) {
		t.Errorf("%s", out)
	}
	mu.Lock()
	defer mu.Unlock()
	if d := cmp.Diff([]string{`POST /issues/7/notes?by=agent {"text":"it's late"}`, `POST /issues/8/notes?by=agent {"text":"b"}`}, got); d != "" {
		t.Error(d)
	}
	if log := w.must("audit", "list", "--json"); strings.Count(log, `"tool.request"`) != 2 || !strings.Contains(log, "/issues/7/notes\"") || strings.Contains(log, "by=agent") {
		t.Errorf("%s", log)
	}
}
