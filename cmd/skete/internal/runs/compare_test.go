package runs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/skete-dev/skete/agent/replay"
	"github.com/skete-dev/skete/thread"
)

// A comparison is for people, and what runs printed cannot drive their terminal.
func TestWriteReport(t *testing.T) {
	ended := func(s thread.RunState, reason string) replay.Ending { return replay.Ending{State: s, Reason: reason} }
	done := ended(thread.RunSucceeded, "done")
	for name, c := range map[string]struct {
		r    replay.Report
		want string
	}{
		"the same": {
			replay.Report{Same: true, Steps: []replay.Step{{Step: 1, Same: true}, {Step: 2, Same: true}}, Old: done, New: done},
			"the runs agree in all of their 2 steps\n",
		},
		"a call": {replay.Report{Old: done, New: ended(thread.RunFailed, "steps"), Steps: []replay.Step{{Step: 1, Same: true}, {Step: 2, Calls: []replay.Call{
			{Tool: "ls", Same: true},
			{Tool: "execute", Args: json.RawMessage(`{"command":"date"}`), Why: []string{"output"}, Diff: []string{"-Mon", "+Tue\x1b[31m"}},
		}}}}, "step 2\n  execute {\"command\":\"date\"}\n    output\n    -Mon\n    +Tue"},
		"a step in one only": {replay.Report{Steps: []replay.Step{{Step: 1, Why: "only the old run has this step"}}, Old: done}, "step 1: only the old run has this step\nthe end: succeeded (done); now it goes on\n1 of 1 steps differ\n"},
	} {
		var b strings.Builder
		if err := writeReport(&b, c.r); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(b.String(), c.want) || strings.Contains(b.String(), "\x1b") {
			t.Errorf("%s:\n%s", name, b.String())
		}
	}
}
