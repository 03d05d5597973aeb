package supervisor_test

import (
	"context"
	"errors"
	"testing"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

func TestKeyed(t *testing.T) {
	k := newHouse(t).open(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("done")) })
	start := runs.Start{Input: text("go"), Key: "once"}
	if _, err := k.Keyed(t.Context(), tenant, "once"); !errs.Is(err, errs.NotFound) {
		t.Errorf("before the start: %v", err)
	}
	run, err := k.Start(t.Context(), tenant, start)
	must(t, err)
	got, err := k.Keyed(t.Context(), tenant, "once")
	must(t, err)
	if got.ID != run.ID {
		t.Errorf("%s, want %s", got.ID, run.ID)
	}
	if _, err := k.Keyed(t.Context(), "other", "once"); !errs.Is(err, errs.NotFound) {
		t.Errorf("of another tenant: %v", err)
	}
	for range 2 {
		must(t, k.ForgetKey(t.Context(), tenant, "once"))
	}
	if _, err := k.Keyed(t.Context(), tenant, "once"); !errs.Is(err, errs.NotFound) {
		t.Errorf("forgotten: %v", err)
	}
	again, err := k.Start(t.Context(), tenant, start)
	must(t, err)
	if again.ID == run.ID {
		t.Error("a key that was forgotten is the same run")
	}
	await(t, k, run.ID, over)
	await(t, k, again.ID, over)
}

// A start that names its run is made whole by the same start if it was cut
// short behind its record; and one more is the same run.
func TestStart_namedRun(t *testing.T) {
	h := newHouse(t)
	replies := model(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("done")) })
	start := runs.Start{Input: text("go"), Run: runs.DerivedID("a", "node")}
	threads := h.threads
	h.threads = &deaf{Threads: threads}
	k := h.open(replies)
	if _, err := k.Start(t.Context(), tenant, start); err == nil {
		t.Fatal("a start without a log succeeded")
	}
	must(t, k.Close())
	h.threads = threads
	k = h.open(replies)
	if _, err := k.Begun(t.Context(), tenant, start.Run); !errs.Is(err, errs.NotFound) {
		t.Errorf("before the start: %v", err)
	}
	run, err := k.Start(t.Context(), tenant, start)
	must(t, err)
	again, err := k.Start(t.Context(), tenant, start)
	must(t, err)
	begun, err := k.Begun(t.Context(), tenant, start.Run)
	must(t, err)
	for _, x := range []runs.Run{run, again, begun} {
		if x.ID != start.Run || x.Thread != run.Thread {
			t.Errorf("it is %s on %s", x.ID, x.Thread)
		}
	}
	await(t, k, run.ID, over)
}

func TestMayStart(t *testing.T) {
	h := newHouse(t)
	h.agents["rehearsed"] = definition.Definition{Name: "rehearsed", Model: "script//srv/x.yaml"}
	k := h.open(func(context.Context, *llm.Request) (*llm.Response, error) { return nil, errors.New("it was started") })
	for name, c := range map[string]struct {
		start runs.Start
		class errs.Class
	}{
		"what may be":       {runs.Start{Input: text("x")}, ""},
		"the server's file": {runs.Start{Input: text("x"), Agent: "rehearsed"}, ""},
		"no task":           {runs.Start{}, errs.Invalid},
		"no such agent":     {runs.Start{Input: text("x"), Agent: "nobody"}, errs.NotFound},
		"no such thread":    {runs.Start{Input: text("x"), Thread: thread.NewID()}, errs.NotFound},
		"a file":            {runs.Start{Input: text("x"), Model: "script//etc/passwd"}, errs.Denied},
	} {
		if err := k.MayStart(t.Context(), tenant, c.start); errs.Of(err) != c.class {
			t.Errorf("%s: %v", name, err)
		}
	}
	page, err := k.List(t.Context(), tenant, runs.Filter{})
	must(t, err)
	if len(page.Runs) > 0 {
		t.Errorf("%+v", page.Runs)
	}
}
