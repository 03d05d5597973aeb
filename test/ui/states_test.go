package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/test/browser"
)

// at runs a function of states.mjs, as do runs one of page.mjs.
func at[T any](w *world, name string, args map[string]any) T {
	w.t.Helper()
	if args == nil {
		args = map[string]any{}
	}
	args["do"], args["origin"], args["within"] = name, w.origin(), patience.Of(20*time.Second).Milliseconds()
	return browser.Run[T](w.t, w.page, "states.mjs", args)
}

// seen waits for words in a part of the page.
func (w *world) seen(part string, words ...string) string {
	w.t.Helper()
	return at[string](w, "seen", map[string]any{"part": part, "words": words})
}

// upgraded builds the server as another version, without a part of the page that this one has.
func (w *world) upgraded(part string) string {
	w.t.Helper()
	gone, err := filepath.Glob("../../web/dist/assets/" + part)
	if err != nil || len(gone) != 1 {
		w.t.Fatalf("%s is %v, %v", part, gone, err)
	}
	path, err := filepath.Abs(gone[0])
	w.ok(err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: ""}})
	w.ok(err)
	dir := w.t.TempDir()
	w.ok(os.WriteFile(dir+"/overlay.json", overlay, 0o600))
	cmd := exec.Command("go", "build", "-trimpath", "-overlay", dir+"/overlay.json", "-ldflags", "-s -w -X main.version=99.0.0", "-o", dir+"/skete", "github.com/skete-dev/skete/cmd/skete")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("build the upgraded server: %v\n%s", err, text)
	}
	return dir + "/skete"
}

// A tab goes on over an upgrade of the server, says so, and loads nothing anew by itself; where a
// part of the old version is gone it says what to do.
func TestUpgrade_ofTheServerUnderATab(t *testing.T) {
	w := newWorld(t, setup{scripts: map[string]string{"two": executes("echo one > a")}})
	next := w.upgraded("usage-*.js.gz")
	do[any](w, "open", map[string]any{"path": "/"})
	at[bool](w, "marked", map[string]any{"mark": true})
	w.end(syscall.SIGTERM)
	w.program = next
	w.start()
	w.seen("header button", "upgraded: reload when ready")
	run := w.run("two", api.StartRun{Title: "begun after the upgrade"})
	w.seen("main", "begun after the upgrade")
	w.ended(run.ID)
	at[string](w, "press", map[string]any{"role": "link", "name": "Usage"})
	w.seen("main [role=alert]", "could not be loaded", "Reload the page when you are ready")
	at[string](w, "press", map[string]any{"role": "link", "name": "Runs"})
	w.seen("main table", "begun after the upgrade")
	if !at[bool](w, "marked", nil) {
		t.Error("the page was loaded anew by itself")
	}
	at[string](w, "press", map[string]any{"name": "The server was upgraded: reload when ready"})
	if n := at[int](w, "reloaded", nil); n != 0 {
		t.Errorf("after the reload it still offers one")
	}
}

// Without a login a page leads to it and back; what may not be seen and what is not there say so.
func TestRefusals_sayWhoMustAct(t *testing.T) {
	w := newWorld(t, setup{scripts: map[string]string{"two": executes("echo one > a")}})
	run := w.worked("two", api.StartRun{})
	key := func(scope string) string {
		k, err := w.c.CreateKey(w.ctx(), api.CreateKey{Name: scope, Scopes: []string{scope}})
		w.ok(err)
		return k.Secret
	}
	type way struct {
		At   string `json:"at"`
		Back string `json:"back"`
	}
	path := "/runs/" + run.ID + "?pane=files"
	if got := at[way](w, "without", map[string]any{"path": path, "key": key("admin")}); got.At != "/login" || got.Back != path {
		t.Errorf("the way led over %+v", got)
	}
	other := func(id string) string { // of the same form, and not there
		return id[:len(id)-4] + map[bool]string{true: "bbbb", false: "aaaa"}[strings.HasSuffix(id, "aaaa")]
	}
	for _, gone := range []string{"/runs/" + other(run.ID), "/vms/" + other(run.Sandbox)} {
		do[any](w, "open", map[string]any{"path": gone})
		w.seen("main", "There is no such", "It was deleted, or it is not yours", "request ")
	}
	at[way](w, "without", map[string]any{"path": "/", "key": key("runs:read")})
	do[any](w, "open", map[string]any{"path": "/vms/" + run.Sandbox})
	w.seen("main", "You may not see this machine", "the scope read", "request ")
	w.clean()
}

// A run whose budget is used up asks a person, and goes on with more; one whose machine is lost
// goes on in a new one, with its files.
func TestHalted_goesOn(t *testing.T) {
	w := newWorld(t, setup{cold: true, scripts: map[string]string{
		"four": executes("echo 1 > a", "echo 2 > a", "echo 3 > a"),
	}})
	t.Run("Budget", func(t *testing.T) {
		w := w.with(t)
		run := w.run("four", api.StartRun{Budget: api.Budget{Steps: 2}, Keep: true})
		if now, err := w.c.Run(run.ID).Wait(w.ctx()); err != nil || now.Reason != "steps" {
			t.Fatalf("the run is %s (%s), %v", now.State, now.Reason, err)
		}
		do[any](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
		w.seen("[aria-label='The budget is used up']", "Needs you", "budget of steps is used up", "2 steps")
		at[string](w, "press", map[string]any{"name": "Raise by 50 steps and go on"})
		next := at[string](w, "left", map[string]any{"id": run.ID})
		if now := w.ended(next); now.Budget.Steps < 52 || w.cat(now.Sandbox, "a") != "3" {
			t.Errorf("the run went on with %+v", now.Budget)
		}
	})
	t.Run("Machine", func(t *testing.T) {
		w := w.with(t)
		run := w.worked("four", api.StartRun{})
		w.killMachine(run.Sandbox)
		w.until("the machine is known to be dead", func() error {
			sb, err := w.c.Sandbox(run.Sandbox).Get(w.ctx())
			if err == nil && sb.State != "failed" && sb.State != "stopped" {
				err = errors.New(sb.State)
			}
			return err
		})
		w.seen("[aria-label='The machine is lost']", "Its files are kept up to revision #")
		at[string](w, "press", map[string]any{"name": "Restore into a new machine"})
		at[string](w, "press", map[string]any{"part": "[role=dialog]", "name": "Fork"})
		fork := w.ended(at[string](w, "left", map[string]any{"id": run.ID}))
		if fork.Sandbox == run.Sandbox || w.cat(fork.Sandbox, "a") != "3" {
			t.Errorf("the fork is in %s, and its file %q", fork.Sandbox, w.cat(fork.Sandbox, "a"))
		}
	})
	w.clean()
}

// Two revisions, and a run and its fork, are shown side by side: paths, lines, steps.
func TestCompare(t *testing.T) {
	w := newWorld(t, setup{scripts: map[string]string{
		"three": executes("echo one > a", "echo two > a; echo made > b", "echo late > c"),
	}})
	run := w.worked("three", api.StartRun{})
	first, second := w.changing(run.Sandbox, "a", 0), w.changing(run.Sandbox, "a", 1)
	do[any](w, "open", map[string]any{"path": fmt.Sprintf("/runs/%s/compare?a=%d&b=%d", run.ID, first, second)})
	w.seen("main", "Steps until then", "Between them: 1 step", fmt.Sprintf("What changed from #%d to #%d", first, second))
	w.seen("[data-diff]", "one", "two", "made")
	if got := w.seen("[data-diff]", "a"); strings.Contains(got, "late") {
		t.Errorf("what came later is among it: %s", got)
	}
	fork, err := w.c.Run(run.ID).Fork(w.ctx(), api.ForkRun{At: run.LastSeq, Keep: true, Task: "Do more."})
	w.ok(err)
	fork = w.ended(fork.ID)
	do[any](w, "open", map[string]any{"path": "/runs/" + fork.ID, "row": true})
	at[string](w, "press", map[string]any{"role": "link", "name": "Compare with what it was forked from"})
	w.seen("main", "Steps", "Last revision", "Their files are the same.") // the fork's run changed nothing
	w.clean()
}
