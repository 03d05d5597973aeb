package sandbox

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A sandbox is its thread's, whose last run says of which agent; runs of others come and
// go, and a sandbox that is for no run is for no agent.
func TestForRun(t *testing.T) {
	var of ForRun
	if of = of.Entered("run_a", "coder", true); !of.IsZero() || of.Agent != "" {
		t.Errorf("made by a person: %+v", of)
	}
	of = ForRun{Run: "run_a", Agent: "coder", Active: []string{"run_a"}}
	guest := of.Entered("run_b", "reviewer", false)
	if d := cmp.Diff(ForRun{Run: "run_a", Agent: "coder", Active: []string{"run_a", "run_b"}}, guest); d != "" {
		t.Error(d)
	}
	next := guest.Left("run_a", ThenStop, 5).Left("run_b", ThenRemove, 7)
	if d := cmp.Diff(ForRun{Run: "run_a", Agent: "coder", Then: ThenStop, Wait: 5}, next); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(ForRun{Run: "run_c", Agent: "planner", Active: []string{"run_c"}}, next.Entered("run_c", "planner", true)); d != "" {
		t.Error(d)
	}
}
