package ui

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
)

const (
	longRun   = 10_000
	nodesMax  = 1500
	heapMaxMB = 60
	tabs      = 20
)

type moved struct {
	FPS   float64 `json:"fps"`
	P95   int     `json:"p95_ms"`
	Nodes int     `json:"nodes"`
}

// Scenario 18: a run of 10,000 items is as light as a short one, and many tabs may follow it.
func TestScale(t *testing.T) {
	const callsOfReply = 24 // more are not run
	var script strings.Builder
	script.WriteString("replies:\n  - repeat: 420\n    calls:\n")
	for i := range callsOfReply {
		fmt.Fprintf(&script, "      - {name: write_todos, args: {todos: [{content: '{{n}} of %d', status: pending}]}}\n", i)
	}
	script.WriteString("else: {text: done}\n")
	w := newWorld(t, setup{scripts: map[string]string{"long": script.String()}})
	run := w.ended(w.run("long", api.StartRun{Budget: api.Budget{Steps: 1000}}).ID)
	kinds := map[string]int{}
	for e, err := range w.c.Run(run.ID).History(w.ctx(), 1) {
		w.ok(err)
		kinds[e.Kind]++
	}
	t.Logf("the log has %v", kinds)
	opened := do[struct {
		Row int `json:"row_ms"`
	}](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
	got := do[struct {
		Total int              `json:"total"`
		First int              `json:"first_nodes"`
		All   int              `json:"all_nodes"`
		Heap  int              `json:"heap_mb"`
		Moved map[string]moved `json:"moved"`
	}](w, "rows", nil)
	t.Logf("the first row was there after %d ms; %+v", opened.Row, got)
	if got.Total < longRun {
		t.Errorf("the page has %d rows, at least %d", got.Total, longRun)
	}
	for _, n := range []int{got.First, got.All, got.Moved["60"].Nodes, got.Moved["400"].Nodes} {
		if n == 0 || n > nodesMax {
			t.Errorf("the page has %d nodes, at most %d", n, nodesMax)
		}
	}
	if got.Heap == 0 || got.Heap > heapMaxMB {
		t.Errorf("the page's heap has %d MB, at most %d", got.Heap, heapMaxMB)
	}
	if live := do[int](w, "many", map[string]any{"path": "/approvals", "tabs": tabs}); live != tabs {
		t.Errorf("%d of %d tabs are live", live, tabs)
	}
	w.clean()
}
