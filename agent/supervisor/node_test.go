package supervisor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// A run belongs to the node where it was started, driven or not. Another one
// says so whatever is asked of it, leaves it alone, and never calls it unknown.
// A record of a time before there were nodes is of the one that goes on with it.
func TestRunsOfAnotherNode(t *testing.T) {
	h := newHouse(t)
	held := make(chan struct{})
	first := h.openNode("first", func(ctx context.Context, _ *llm.Request) (*llm.Response, error) {
		select {
		case <-held:
			return respond(llm.Text("done"))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	run, err := first.Start(t.Context(), tenant, runs.Start{Input: text("do it"), Key: "once"})
	must(t, err)
	if run.Node != "first" {
		t.Errorf("a new run is of the node %q", run.Node)
	}
	must(t, first.Close())
	second := h.openNode("second", func(context.Context, *llm.Request) (*llm.Response, error) {
		t.Error("it was driven")
		return nil, errors.New("driven")
	})
	_, got := second.Get(t.Context(), tenant, run.ID)
	_, send := second.Send(t.Context(), tenant, run.ID, thread.Input{Blocks: text("and that")})
	_, cancel := second.Cancel(t.Context(), tenant, run.ID, "anna", "")
	_, resume := second.Resume(t.Context(), tenant, run.ID, thread.Budget{}, "anna")
	_, rewind := second.Rewind(t.Context(), tenant, run.ID, 1, true, "anna")
	_, fork := second.Fork(t.Context(), tenant, run.ID, 1, runs.Start{Input: text("again")})
	_, replay := second.Replay(t.Context(), tenant, run.ID, false, "anna")
	_, again := second.Start(t.Context(), tenant, runs.Start{Input: text("do it"), Key: "once"})
	_, next := second.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("more")})
	for what, err := range map[string]error{
		"get": got, "send": send, "cancel": cancel, "resume": resume, "rewind": rewind, "fork": fork, "replay": replay,
		"the same start": again, "the thread's next run": next, "retire": second.Retire(t.Context(), tenant, run.Thread),
		"decide": second.Decide(t.Context(), tenant, run.ID, []runs.Decide{{Call: "c1"}}),
	} {
		if text := errs.Public(err); !errs.Is(err, errs.Conflict) || !strings.Contains(text, "on another node") || !strings.Contains(text, "first") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = second.Get(t.Context(), "stranger", run.ID)
	if !errs.Is(err, errs.NotFound) {
		t.Errorf("of another tenant: %v", err)
	}
	must(t, second.Close())

	key := "run/" + tenant + "/" + string(run.ID)
	value, revision, err := h.records.Get(t.Context(), key)
	must(t, err)
	old := bytes.Replace(value, []byte(`"node":"first",`), nil, 1)
	if bytes.Equal(old, value) {
		t.Fatalf("the record names no node: %s", value)
	}
	_, err = h.records.Update(t.Context(), key, old, revision)
	must(t, err)
	close(held)
	third := h.openNode("third", func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("done")) })
	await(t, third, run.ID, over)
	value, _, err = h.records.Get(t.Context(), key)
	must(t, err)
	var stored runs.Run
	must(t, json.Unmarshal(value, &stored))
	if stored.Node != "third" || stored.State != thread.RunSucceeded {
		t.Errorf("the record of an earlier version is now %s", value)
	}
	h.check(run.Thread)
}
