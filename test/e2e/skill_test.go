package e2e

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
// the sandbox, where nothing can change it.
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
	if out := w.must("run", "-q", "How many words has a.txt?"); out != "There are three words." {
		t.Fatal(out)
	}
	id := strings.TrimSpace(w.must("runs", "-q"))
	got := w.outputs(id)
	if len(got) != 3 {
		t.Fatalf("%q", got)
	}
	for _, part := range []string{"Run scripts/count.py with the file.", "/skills/word-count", "- scripts/count.py", "- references/limits.md", "It needs: Requires Python 3"} {
		if !strings.Contains(got[0], part) {
			t.Errorf("what was taught lacks %q: %s", part, got[0])
		}
	}
	if !strings.Contains(got[1], "3 words") || !strings.Contains(got[1], "At most ten words.") {
		t.Errorf("the script: %s", got[1])
	}
	if !strings.Contains(got[2], "root 555\nroot 555") || strings.Count(got[2], "ermission denied")+strings.Count(got[2], "ead-only") < 3 {
		t.Errorf("it can be changed: %s", got[2])
	}
}
