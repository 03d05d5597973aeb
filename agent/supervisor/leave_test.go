package supervisor_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// A run that is over says so to its sandbox, and what its agent wants done with
// it then.
func TestRunOver_theSandboxIsLeft(t *testing.T) {
	answer := model(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("done")) })
	after := func(sandbox string, wait time.Duration) definition.AfterRun {
		return definition.AfterRun{Sandbox: sandbox, Wait: wait}
	}
	for _, tt := range []struct {
		name string
		said definition.AfterRun
		keep bool
		want definition.AfterRun
	}{
		{"unless it is said", definition.AfterRun{}, false, after("stop", 10*time.Minute)},
		{"as is said", after("remove", time.Minute), false, after("remove", time.Minute)},
		{"kept", after("remove", time.Minute), true, after("keep", time.Minute)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, d := newHouse(t), &disk{}
			a := h.agents["default"]
			a.AfterRun = tt.said
			h.agents["default"], h.machines = a, d
			k := h.open(answer)
			run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it"), Keep: tt.keep})
			must(t, err)
			await(t, k, run.ID, over)
			wantLeft(t, d, left{run.ID, tt.want})
			again, err := k.Replay(t.Context(), tenant, run.ID, tt.keep, "")
			must(t, err)
			await(t, k, again.ID, over)
			want := after("remove", tt.want.Wait)
			if tt.keep {
				want.Sandbox = "keep"
			}
			wantLeft(t, d, left{run.ID, tt.want}, left{again.ID, want})
		})
	}
}

func wantLeft(t *testing.T, d *disk, want ...left) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if diff := cmp.Diff(want, d.left, cmp.AllowUnexported(left{})); diff != "" {
		t.Error(diff)
	}
	if len(d.entered) > 0 {
		t.Errorf("under way in it: %v", d.entered)
	}
}

// A server that dies between the run's end and the sandbox's learning of it
// leaves that to the next one; and so does one that dies before there was a run.
func TestRunOver_theServerDies(t *testing.T) {
	h, d := newHouse(t), &disk{}
	h.machines = d
	d.refuses = errs.New(errs.Unavailable, "the registry does not answer")
	k := h.open(func(context.Context, *llm.Request) (*llm.Response, error) { return respond(llm.Text("done")) })
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it")})
	must(t, err)
	log, err := h.threads.Log(t.Context(), tenant)
	must(t, err)
	for ended := false; !ended; {
		for e, err := range log.Load(t.Context(), run.Thread, 1) {
			must(t, err)
			_, is := e.Body.(thread.RunEnded)
			ended = ended || is
		}
		must(t, t.Context().Err())
	}
	if got, err := k.Get(t.Context(), tenant, run.ID); err != nil || over(got) {
		t.Errorf("its record says that all is done: %+v, %v", got, err)
	}
	must(t, k.Close())
	d.mu.Lock()
	d.refuses = nil
	ghost := thread.NewRunID()
	d.entered = append(d.entered, ghost)
	d.mu.Unlock()
	k = h.open(nil)
	await(t, k, run.ID, over)
	patience.Try(t, 20*time.Second, "the sandbox of a run that never was", func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.entered) > 0 {
			return fmt.Errorf("under way in it: %v", d.entered)
		}
		return nil
	})
	must(t, k.Close()) // waits for what it does by itself
	if len(d.entered) > 0 || !slices.ContainsFunc(d.left, func(l left) bool { return l.run == ghost }) {
		t.Errorf("under way in it: %v; left %v", d.entered, d.left)
	}
	h.check(run.Thread)
}
