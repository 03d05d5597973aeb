package ui

import (
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/test/browser"
)

// The first start, as README has it: what works on this host is said, and the example needs
// neither model nor network to be started, approved, seen in a preview, undone and redone.
func TestFirst_theExampleExplainsItself(t *testing.T) {
	w := newWorld(t, setup{})
	got := browser.Run[struct {
		First string `json:"first"`
		URL   string `json:"url"`
		Log   string `json:"log"`
	}](w.t, w.page, "first.mjs", map[string]any{
		"within": patience.Of(30 * time.Second).Milliseconds(), "shot": filepath.Join(pictures(t), "NAME.png"),
	})
	for _, said := range []string{"Machines work.", "gvisor", "There is no model to ask yet."} {
		if !strings.Contains(got.First, said) {
			t.Errorf("the first page does not say %q:\n%s", said, got.First)
		}
	}
	for _, said := range []string{"I am a script, not a model", "All four tests pass", "start service shop"} {
		if !strings.Contains(got.Log, said) {
			t.Errorf("the timeline does not say %q:\n%s", said, got.Log)
		}
	}
	url, _, _ := strings.Cut(got.URL, "?")
	run := w.ended(path.Base(url))
	if r, err := w.c.Sandbox(run.Sandbox).RunCommand(w.ctx(), api.RunCommand{Command: "cd /workspace && python3 -m unittest 2>&1"}); err != nil || r.ExitCode != 0 {
		t.Errorf("after redo the tests say %+v, %v", r, err)
	}
}
