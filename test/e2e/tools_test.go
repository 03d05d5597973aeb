package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
