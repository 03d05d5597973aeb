package manager_test

import (
	"testing"

	"github.com/skete-dev/skete/sandbox"
)

// A template's machine takes the place of the server's defaults, never of what is asked
// for, and is bounded by the limits.
func TestSettle_whatATemplateNeeds(t *testing.T) {
	w := newWorld(t)
	c := w.config(nil)
	c.Limits = sandbox.Limits{CPUsMax: 2, MemoryMBMax: 2048}
	c.Defaults = sandbox.Defaults{CPUs: 1, MemoryMB: 256}
	m := w.open(t, c)
	for _, x := range []struct {
		asked    sandbox.Spec
		cpus     float64
		memoryMB int
	}{
		{sandbox.Spec{Template: "other"}, 1, 256},
		{sandbox.Spec{Template: "large"}, 1.5, 1024},
		{sandbox.Spec{Template: "large", CPUs: 0.5}, 0.5, 1024},
		{sandbox.Spec{Template: "large", MemoryMB: 64}, 1.5, 64},
		{sandbox.Spec{Template: "huge"}, 2, 2048},
	} {
		got, err := m.Settle(t.Context(), x.asked)
		if err != nil || got.CPUs != x.cpus || got.MemoryMB != x.memoryMB {
			t.Errorf("%+v became %g CPUs and %d MB, %v; want %g and %d", x.asked, got.CPUs, got.MemoryMB, err, x.cpus, x.memoryMB)
		}
	}
}
