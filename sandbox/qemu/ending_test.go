package qemu

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/qemu/qmp"
)

func TestExplain(t *testing.T) {
	const mark = "[   12.3] Kernel panic - not syncing: "
	for _, c := range []struct{ how, console, reason, detail string }{
		{"guest-shutdown", "", sandbox.ReasonExited, `the guest ended by itself: "guest-shutdown"`},
		{"guest-reset", "boring\n", sandbox.ReasonExited, `the guest ended by itself: "guest-reset"`},
		{"guest-reset", mark + "sysrq triggered crash\r\nmore", sandbox.ReasonExited, `the machine's kernel panicked: "sysrq triggered crash"`},
		{"guest-reset", mark + "System is deadlocked on memory\n", sandbox.ReasonOutOfMemory, `the machine's kernel gave up: "System is deadlocked on memory"`},
		{"guest-reset", mark + "Out of memory: compulsory panic_on_oom is enabled\n", sandbox.ReasonOutOfMemory, `the machine's kernel gave up: "Out of memory: compulsory panic_on_oom is enabled"`},
		{"internal-error", "", sandbox.ReasonExited, `the machine broke down: "internal-error"`},
		{"guest-reset", mark + "\x1b[31mred", sandbox.ReasonExited, `the machine's kernel panicked: "\x1b[31mred"`},
	} {
		if got := explainExit(c.how, c.console); got.Reason != c.reason || got.Detail != c.detail {
			t.Errorf("%s, %q: %+v", c.how, c.console, got)
		}
	}
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		name, data, how string
		yes             bool
	}{
		{"SHUTDOWN", `{"guest": true, "reason": "guest-reset"}`, "guest-reset", true},
		{"SHUTDOWN", `[]`, "", true},
		{"SHUTDOWN", ``, "", true},
		{"GUEST_PANICKED", `{}`, "guest-panicked", true},
		{"STOP", `{}`, "", false},
	} {
		how, yes := exitOf(qmp.Event{Name: c.name, Data: json.RawMessage(c.data)})
		if how != c.how || yes != c.yes {
			t.Errorf("%s %s: %q, %v", c.name, c.data, how, yes)
		}
	}
	for status, want := range map[string]bool{"running": false, "paused": false, "postmigrate": false, "shutdown": true, "internal-error": true} {
		if exitOver(status) != want {
			t.Errorf("Over(%s) = %v", status, !want)
		}
	}
}

func FuzzExplain(f *testing.F) {
	f.Add("guest-reset", panicMark+"x")
	f.Fuzz(func(t *testing.T, how, console string) {
		e := explainExit(how, console)
		if e.Reason == "" || len(e.Detail) > 2000 || strings.ContainsAny(e.Detail, "\n\x1b") {
			t.Errorf("%q", e.Detail)
		}
	})
}
