package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/thread"
)

// prepared is a sandbox as a user left it: sources, a repository, and files
// that no step of any run here touches.
func (m *machines) prepared() string {
	m.t.Helper()
	sb := m.create(api.CreateSandbox{MemoryMB: 256, DiskMB: 128})
	m.in(sb.ID, `mkdir -p src/deep .git/refs/heads keep && for i in 1 2 3; do echo "line $i" > src/f$i; done && ln -s f1 src/link && `+
		`chmod 600 src/f2 && echo 'theme: light' > theme.css && echo deep > src/deep/f && echo mine > keep/file && chmod 640 keep/file && `+
		`echo 'ref: refs/heads/main' > .git/HEAD && echo 1234567890123456789012345678901234567890 > .git/refs/heads/main`)
	m.root(sb.ID) // what is there is a revision, and no run's
	return sb.ID
}

// untouched is what says whether files were written to, even with the same content.
func (m *machines) untouched(id string) string {
	m.t.Helper()
	return m.in(id, `cd /workspace && stat -c '%n %Y %y' keep keep/file .git .git/HEAD .git/refs/heads/main`)
}

// Acceptance 3 of the workspace: what an agent's shell destroyed, a later step
// of the agent undoes once a person agreed; then the whole run is undone.
func TestBrain_agentUndoesItsShell(t *testing.T) {
	t.Parallel()
	b := newBrain(t, map[string]string{"clumsy": `
replies:
  - calls: [{name: write_file, id: first, args: {file_path: /workspace/note, content: "kept by the undo of a step\n"}}]
  - calls: [{name: execute, id: wreck, args: {command: 'rm -rf src && sed -i s/light/dark/ theme.css && mkdir made && echo new > made/f'}}]
  - calls: [{name: list_revisions, args: {}}]
  - calls: [{name: undo_changes, id: back, args: {call: wreck}}]
  - calls: [{name: write_file, id: last, args: {file_path: /workspace/after, content: "a later step\n"}}]
else: {text: 'It said: {{result "list_revisions"}} and {{result "undo_changes"}}'}
`}, nil, "")
	m := &machines{b.world}
	id := m.prepared()
	before, still := m.tree(id), m.untouched(id)
	run := b.run("clumsy", api.StartRun{Sandbox: id})
	_, open := b.untilWaiting(run.ID, 1)
	if open[0].Tool != "undo_changes" || open[0].Reason == "" {
		t.Errorf("%+v", open[0])
	}
	if got := m.in(id, "ls /workspace; cat /workspace/theme.css"); got != "keep\nmade\nnote\ntheme.css\ntheme: dark" {
		t.Errorf("before a person agreed: %q", got)
	}
	decided, err := b.c.Run(run.ID).Decide(b.ctx(), api.Decide{Call: "back", Decision: api.DecisionApprove})
	b.ok(err)
	if len(decided) != 1 || !decided[0].OK {
		t.Errorf("%+v", decided)
	}
	ended := b.wait(run.ID, "succeeded")
	for _, want := range []string{"call wreck", "call first", "Undone: the files are as in revision", "remove made/f", "change theme.css", "add src/deep/f"} {
		if !strings.Contains(ended.Text, want) {
			t.Errorf("no %q in what the model read:\n%s", want, ended.Text)
		}
	}
	if d := cmp.Diff(before, m.treeWithout(id, "note", "after")); d != "" {
		t.Errorf("after the undo of a step:\n%s", d)
	}
	if got := m.in(id, "cat /workspace/note /workspace/after"); got != "kept by the undo of a step\na later step" {
		t.Errorf("what other steps wrote: %q", got)
	}
	m.create(api.CreateSandbox{MemoryMB: 128, DiskMB: 64}) // which sandbox is meant the run says
	m.cli("undo", "--run", run.ID, "-y")
	if d := cmp.Diff(before, m.tree(id)); d != "" {
		t.Errorf("after the undo of the run:\n%s", d)
	}
	if d := cmp.Diff(still, m.untouched(id)); d != "" {
		t.Errorf("what nobody touched was written:\n%s", d)
	}
}

// treeWithout is tree, without some files of one line that lie at its top.
func (m *machines) treeWithout(id string, names ...string) string {
	m.t.Helper()
	var kept []string
	skip := false
	for l := range strings.Lines(m.tree(id)) {
		name := l[strings.LastIndexByte(l, ' ')+1:]
		switch name = strings.TrimSpace(name); {
		case skip: // what it holds
			skip = false
		case strings.HasPrefix(name, "./") && slices.Contains(names, name[2:]):
			skip = true
		default:
			kept = append(kept, l)
		}
	}
	return strings.TrimSpace(strings.Join(kept, ""))
}

// A rewind takes conversation and files back together, whatever changed them.
func TestBrain_rewindTakesTheFilesBack(t *testing.T) {
	t.Parallel()
	b := newBrain(t, map[string]string{"two": `
replies:
  - calls: [{name: execute, id: good, args: {command: 'sed -i s/light/blue/ theme.css'}}]
  - calls: [{name: execute, id: bad, args: {command: 'rm -rf src keep && echo x > made'}}]
else: {text: done}
`}, nil, "")
	m := &machines{b.world}
	id := m.prepared()
	before := m.tree(id)
	run := b.run("two", api.StartRun{Sandbox: id})
	b.wait(run.ID, "succeeded")
	var to uint64
	for _, e := range b.events(run.ID) {
		if done, is := e.Body.(thread.ToolCompleted); is && done.Call == "good" {
			to = e.Seq
		}
	}
	wrecked := m.tree(id)
	m.cli("rewind", run.ID, "--to", fmt.Sprint(to), "--files")
	want := strings.Replace(before, "theme: light", "theme: blue", 1)
	if d := cmp.Diff(want, m.tree(id)); d != "" {
		t.Errorf("after the rewind:\n%s", d)
	}
	last := b.events(run.ID)
	if r, is := last[len(last)-1].Body.(thread.Rewound); !is || r.To != to {
		t.Errorf("the conversation: %+v", last[len(last)-1].Body)
	}
	m.cli("undo", id, "-y") // it can be taken back itself
	if d := cmp.Diff(wrecked, m.tree(id)); d != "" {
		t.Errorf("after the undo of the rewind:\n%s", d)
	}
}
