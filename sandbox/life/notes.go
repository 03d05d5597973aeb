package life

import (
	"slices"
	"strings"

	"github.com/skete-dev/skete/sandbox"
)

// notesOf says what is weaker than a user would think.
func notesOf(c sandbox.Capabilities, v sandbox.Volume) []string {
	out := slices.Clone(c.Notes)
	var weak []string
	for _, l := range []struct {
		name string
		ok   bool
	}{{"memory", c.LimitsMemory}, {"cpu", c.LimitsCPU}, {"processes", c.LimitsPids}, {"disk", c.LimitsDisk}} {
		if !l.ok {
			weak = append(weak, l.name)
		}
	}
	if weak != nil {
		out = append(out, "limits that this provider cannot enforce on this host: "+strings.Join(weak, ", "))
	}
	if !v.Enforced {
		out = append(out, "the size of the workspace is watched, not enforced: who exceeds it is stopped")
	}
	return out
}
