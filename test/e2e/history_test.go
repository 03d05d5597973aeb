package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
)

// tree is what a user sees of the workspace, the contents included.
func (m *machines) tree(id string) string {
	m.t.Helper()
	return m.in(id, `cd /workspace && find . -mindepth 1 | LC_ALL=C sort | while read -r f; do stat -c '%A %U %n' "$f"; [ -f "$f" ] && cat "$f"; done; true`)
}

// root is the hash of the files as they are now.
func (m *machines) root(id string) string {
	m.t.Helper()
	r, err := m.c.Sandbox(id).History().Snapshot(m.ctx(), "")
	if err != nil {
		m.t.Fatal(err)
	}
	return r.Root
}

// What a shell did is undone completely, and redone; files that it did not touch
// and the user's own repository are as they were.
func historyOfTheShell(m *machines, provider string) {
	id := m.vm("--provider", provider, "--template", "python")
	m.in(id, `mkdir -p src .git/refs && echo 'ref: refs/heads/main' > .git/HEAD && for i in 1 2 3; do echo "line $i" > src/f$i; done && ln -s f1 src/link && chmod 600 src/f2 && echo keep > keep`)
	m.root(id)
	before := m.tree(id)
	m.in(id, `rm -rf src && echo new > note`)
	after := m.tree(id)
	if before == after {
		m.t.Fatal("nothing changed")
	}
	m.cli("undo", id, "-y")
	if d := cmp.Diff(before, m.tree(id)); d != "" {
		m.t.Errorf("after the undo:\n%s", d)
	}
	m.cli("redo", id, "-y")
	if d := cmp.Diff(after, m.tree(id)); d != "" {
		m.t.Errorf("after the redo:\n%s", d)
	}
	m.cli("undo", id, "-y")
	if out := m.cli("history", id); !strings.Contains(out, "undo") {
		m.t.Errorf("the history does not say that something was undone:\n%s", out)
	}
	m.in(id, "echo more >> keep") // what is not a revision yet is lost neither
	m.cli("restore", id, "1", "-y")
	m.cli("undo", id, "-y")
	if got := m.in(id, "cat keep"); got != "keep\nmore" {
		m.t.Errorf("what nobody had made a revision of: %q", got)
	}
	m.unsaved(id)
}

// unsaved: while something writes and is never quiet, the history says what no
// revision has yet, and the diff shows it.
func (m *machines) unsaved(id string) {
	m.t.Helper()
	m.cli("vm", "exec", id, "-d", "--key", "writer", "--no-revision", "--cmd", "mkdir -p d; while :; do echo x >> d/late; sleep 0.2; done")
	m.until("the history says that something is unsaved", func() error {
		if out := m.cli("history", id); !strings.Contains(out, "unsaved changes: 1 file") {
			return fmt.Errorf("it says:\n%s", out)
		}
		return nil
	})
	if out := m.cli("diff", id, "--stat"); !strings.Contains(out, "d/late") {
		m.t.Errorf("the diff of what is unsaved:\n%s", out)
	}
	m.cli("vm", "kill", id, "writer")
	m.until("it is saved when it is quiet", func() error {
		if out := m.cli("history", id); strings.Contains(out, "unsaved") || !strings.Contains(out, "changed outside") {
			return fmt.Errorf("the history says:\n%s", out)
		}
		return nil
	})
}

// lastWrites: what a command without a revision wrote right before the end of its
// sandbox is in the history, also where no other has begun one.
func lastWrites(m *machines, provider string) {
	now := int64(1000)
	for how, end := range map[string]func(id string) error{
		"cleaned": func(id string) error { _, err := m.try("vm", "clean", id); return err },
		"expired": func(id string) error {
			_, err := m.c.Sandbox(id).Update(m.ctx(), api.UpdateSandbox{TTLMS: &now})
			return err
		},
		"stopped": func(id string) error { _, err := m.try("vm", "stop", id); return err },
	} {
		m.t.Run(how, func(t *testing.T) {
			m := m.with(t)
			id := m.vm("--provider", provider)
			m.cli("vm", "exec", id, "--no-revision", "--cmd", "echo last > last")
			if err := end(id); err != nil {
				t.Fatal(err)
			}
			m.until("it has ended", func() error {
				if s, err := m.c.Sandbox(id).Get(m.ctx()); err != nil || s.State != "destroyed" && s.State != "stopped" {
					return fmt.Errorf("it is %s, %w", s.State, err)
				}
				return nil
			})
			page, err := m.c.Sandbox(id).History().Page(m.ctx(), 0, "")
			if err != nil || len(page.Items) != 2 || page.Items[0].Files != 1 || page.Items[1].Files != 0 {
				t.Errorf("its history: %+v, %v", page, err)
			}
		})
	}
}

// A sandbox whose machine was killed goes on in one of another provider, with
// the same files.
func movedByHistory(t *testing.T, m *machines, from, to string) {
	t.Run(from+" to "+to, func(t *testing.T) {
		m := m.with(t)
		old := m.vm("--provider", from, "--template", "python")
		m.in(old, `mkdir -p a/b && echo one > a/b/f && printf 'n\000ul' > bin && ln -s a/b/f link && chmod 640 bin`)
		root, want := m.root(old), m.tree(old)
		m.cli("vm", "clean", old)
		fresh := m.vm("--provider", to, "--template", "python")
		out := m.cli("history", "move", old, fresh, "--json")
		if !strings.Contains(out, root) {
			t.Errorf("another root than %s:\n%s", root, out)
		}
		if d := cmp.Diff(want, m.tree(fresh)); d != "" {
			t.Errorf("after the move:\n%s", d)
		}
		page, err := m.c.Sandbox(old).History().Page(m.ctx(), 0, "")
		if err != nil || len(page.Items) == 0 || page.Items[0].Root != root {
			t.Errorf("the history of what is gone: %+v, %v", page, err)
		}
		if _, err := m.c.Sandbox(old).History().Plan(m.ctx(), api.PlanChange{Do: api.PlanRestore, N: 1}); err == nil {
			t.Error("a plan for a sandbox that is gone")
		}
	})
}
