package ui

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
)

type told struct {
	Seqs    []uint64 `json:"seqs"`
	Sockets int      `json:"sockets"`
	State   string   `json:"state"`
}

type unknownSince struct {
	Text string `json:"text"`
	MS   int64  `json:"ms"`
}

var sinceText = regexp.MustCompile(`^unknown since \d\d:\d\d:\d\d`)

// Scenario 17: whatever becomes of the connection, the page says that it does not know, comes
// back by itself, and was told of each event once.
func TestReconnect_eachEventOnce(t *testing.T) {
	const cuts = 10
	w := newWorld(t, setup{wired: true, scripts: map[string]string{"busy": `
replies:
  - when: {result: STOP}
    text: finished
else:
  calls: [{name: execute, args: {command: 'echo {{step}}; sleep 0.1; if [ -e stop ]; then echo STOP; fi'}}]
`}})
	run := w.run("busy", api.StartRun{Budget: api.Budget{Steps: 4000}})
	do[any](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
	const draft = "what is written stays"
	do[string](w, "draft", map[string]any{"text": draft})
	last := told{}
	// more waits for a few events beyond those that were told, by a new socket if renewed.
	more := func(renewed bool) {
		t.Helper()
		args := map[string]any{"id": run.ID, "thread": run.Thread, "above": 3}
		if n := len(last.Seqs); n > 0 {
			args["above"] = last.Seqs[n-1] + 3
		}
		if renewed {
			args["sockets"] = last.Sockets
		}
		last = do[told](w, "events", args)
		if !strings.HasPrefix(last.State, "running: running") {
			t.Errorf("the state is %q", last.State)
		}
	}
	lost := func(how string) {
		t.Helper()
		got := do[unknownSince](w, "unknown", nil)
		t.Logf("%s: the page said %q after %d ms", how, got.Text, got.MS)
		if !sinceText.MatchString(got.Text) {
			t.Errorf("%s: the page says %q", how, got.Text)
		}
	}
	more(false)
	for range cuts {
		w.wire.cut()
		more(true)
	}
	w.wire.freeze()
	lost("silent")
	w.wire.thaw()
	more(true)
	w.end(syscall.SIGKILL)
	lost("killed")
	w.start()
	more(true)
	now, err := w.c.Run(run.ID).Get(w.ctx())
	w.ok(err)
	_, err = w.c.Sandbox(now.Sandbox).Files().Write(w.ctx(), "/workspace/stop", nil, client.WriteOptions{})
	w.ok(err)
	w.ended(run.ID)
	do[any](w, "settled", nil)
	got := do[told](w, "events", map[string]any{"id": run.ID, "thread": run.Thread, "above": 0}).Seqs
	for i, seq := range got {
		if i > 0 && seq != got[i-1]+1 {
			t.Errorf("after event %d came %d", got[i-1], seq)
		}
	}
	var newest uint64
	for e, err := range w.c.Run(run.ID).History(w.ctx(), 1) {
		w.ok(err)
		newest = e.Seq
	}
	if len(got) == 0 || got[len(got)-1] != newest {
		t.Errorf("the log has %d events, the page was told of %v", newest, got)
	}
	if kept := do[string](w, "draft", nil); kept != draft {
		t.Errorf("of what was written this is left: %q", kept)
	}
	w.clean()
}
