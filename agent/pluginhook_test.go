package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// broken are plug-ins that want to hear of events, and do not answer.
type broken struct{ events []hook.Declared }

func (b broken) Hooks(string) ([]hook.Declared, error) { return b.events, nil }

func (broken) Hook(ctx context.Context, _ string, _ json.RawMessage, _ time.Duration) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, errors.New("it broke")
}

// runPlugged runs an agent whose model calls act twice, with plug-ins that break.
func runPlugged(t *testing.T, declared ...hook.Declared) (*world, *guest) {
	t.Helper()
	g := &guest{}
	m := &model{reply: steps(llm.Assistant(call("c1", "act", `{}`)), llm.Assistant(call("c2", "act", `{}`)), say("ok"))}
	w := newWorld(t, definition.Definition{Name: "a"}, m, toolsOf(g)...)
	h := hook.Commands([]definition.CommandHook{{Plugin: "p"}}, nil, broken{declared}, "")
	r, err := agent.New(agent.Config{Thread: w.id, State: w.state(), Log: w.log, Blobs: w.blobs, Model: w.model, Tools: w.tools, Hook: h})
	must(t, err)
	_, err = r.Run(t.Context())
	must(t, err)
	w.well()
	return w, g
}

// told counts what the run tells of plug-ins that were passed over.
func (w *world) told(want string) (n int) {
	for _, e := range w.events() {
		in, ok := e.Body.(thread.Input)
		if ok && in.From == "hook" && in.Name == "skipped" && strings.Contains(llm.Message{Blocks: in.Blocks}.String(), want) {
			n++
		}
	}
	return n
}

// A call that a plug-in decides about does not run when it breaks, and the model reads which one.
func TestRun_aPluginThatBreaksRefusesCalls(t *testing.T) {
	w, g := runPlugged(t, hook.Declared{Event: "PreToolUse"})
	if len(g.runs) != 0 {
		t.Errorf("calls had effects: %v", g.runs)
	}
	refused := 0
	for _, e := range w.events() {
		if c, ok := e.Body.(thread.ToolCompleted); ok && c.Failed && strings.Contains(llm.Message{Blocks: c.Blocks}.String(), "the plug-in p decides about this and cannot be asked") {
			refused++
		}
	}
	if refused != 2 || w.ended() != thread.RunSucceeded {
		t.Errorf("%d calls were refused, the run %s", refused, w.ended())
	}
}

// One that only hears of calls is passed over, and the run tells of it: once.
func TestRun_aPluginThatBreaksIsPassedOverWithANote(t *testing.T) {
	w, g := runPlugged(t, hook.Declared{Event: "PostToolUse"}, hook.Declared{Event: "Stop"}, hook.Declared{Event: "PreToolUse", OnFailure: hook.FailSkip})
	if len(g.runs) != 2 {
		t.Errorf("calls had effects: %v", g.runs)
	}
	if w.ended() != thread.RunSucceeded || w.told("about PostToolUse") != 1 || w.told("about PreToolUse") != 1 {
		t.Errorf("the run %s, and tells: %v", w.ended(), w.kinds())
	}
}

// What the user sent does not reach the model past a plug-in that was to decide about it.
func TestRun_aPluginThatBreaksRefusesPrompts(t *testing.T) {
	w, _ := runPlugged(t, hook.Declared{Event: "UserPromptSubmit"})
	if w.ended() != thread.RunFailed || slices.Contains(w.kinds(), "model.completed") {
		t.Errorf("the run %s: %v", w.ended(), w.kinds())
	}
}

// ended is how the run ended.
func (w *world) ended() thread.RunState {
	w.t.Helper()
	for _, e := range w.events() {
		if end, ok := e.Body.(thread.RunEnded); ok {
			return end.State
		}
	}
	return ""
}
