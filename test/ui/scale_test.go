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

// moved is how a list was scrolled.
type moved struct {
	FPS   float64 `json:"fps"`
	P95   float64 `json:"p95_ms"` // between frames
	Nodes int     `json:"nodes"`
	Moved int     `json:"moved_px"`
}

// A timeline is scrolled with at least so much of the frames of a plain list, and at most so
// many times the time between two of them. The machine that tests has other work too.
const (
	framesLeast = 0.6
	gapMost     = 3
)

// Scenario 18: a run of 10,000 items is as light as a short one, and many tabs may follow it.
func TestScale(t *testing.T) {
	const callsOfReply = 24 // more are not run
	var script strings.Builder
	script.WriteString("replies:\n  - repeat: 420\n    calls:\n")
	for i := range callsOfReply {
		fmt.Fprintf(&script, "      - {name: write_todos, args: {todos: [{content: '{{n}} of %d', status: pending}]}}\n", i)
	}
	script.WriteString("else: {text: done}\n")
	w := newWorld(t, setup{scripts: map[string]string{"long": script.String(), "short": "else: {text: done}\n"}})
	short := w.ended(w.run("short", api.StartRun{}).ID)
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
		Total int `json:"total"`
		First int `json:"first_nodes"`
		All   int `json:"all_nodes"`
	}](w, "rows", nil)
	number(t, "first row of 10,000 items", float64(opened.Row), "ms", "<= 1000", "")
	t.Logf("%+v", got)
	if got.Total < longRun {
		t.Errorf("the page has %d rows, at least %d", got.Total, longRun)
	}
	const frames = 120
	scrolled := scale[struct {
		UI, Plain map[int]moved
		Heap      int `json:"heap_mb"`
		Rounds    int `json:"rounds"`
	}](w, "scrolled", map[string]any{
		"rows": got.Total, "steps": []int{60, 400}, "frames": frames, "fps_ratio": framesLeast, "p95_ratio": gapMost, "frame_ms": frameMS,
	})
	for _, step := range []int{60, 400} {
		ui, plain := scrolled.UI[step], scrolled.Plain[step]
		t.Logf("%d pixels a frame: %+v, a plain list %+v", step, ui, plain)
		beside := fmt.Sprintf("a list of plain rows: %g a second, 95 of 100 within %g ms; best of %d rounds", plain.FPS, plain.P95, scrolled.Rounds)
		number(t, fmt.Sprintf("scroll by %d pixels a frame", step), ui.FPS, "frames/s", ">= 58", beside)
		number(t, fmt.Sprintf("scroll by %d pixels a frame, 95 of 100 frames", step), ui.P95, "ms", map[int]string{60: "<= 20", 400: "<= 25"}[step], beside)
		if min(ui.Moved, plain.Moved) < step*frames*9/10 {
			t.Errorf("%d frames of %d pixels moved the timeline by %d, a plain list by %d", frames, step, ui.Moved, plain.Moved)
		}
		if ui.FPS < framesLeast*plain.FPS {
			t.Errorf("%d pixels a frame: %.1f frames a second, a plain list has %.1f", step, ui.FPS, plain.FPS)
		}
		if ui.P95 > gapMost*max(plain.P95, frameMS) {
			t.Errorf("%d pixels a frame: 95 of 100 frames came within %.1f ms, of a plain list within %.1f", step, ui.P95, plain.P95)
		}
	}
	for _, n := range []int{got.First, got.All, scrolled.UI[60].Nodes, scrolled.UI[400].Nodes} {
		if n == 0 || n > nodesMax {
			t.Errorf("the page has %d nodes, at most %d", n, nodesMax)
		}
	}
	number(t, "elements while 10,000 items are scrolled", float64(max(scrolled.UI[60].Nodes, scrolled.UI[400].Nodes)), "", "<= 1500", "")
	number(t, "heap with 10,000 items", float64(scrolled.Heap), "MB", "<= 60", "after a collection")
	if scrolled.Heap == 0 || scrolled.Heap > heapMaxMB {
		t.Errorf("the page's heap has %d MB, at most %d", scrolled.Heap, heapMaxMB)
	}
	slow := scale[struct {
		Short float64 `json:"short_ms"`
		Long  float64 `json:"long_ms"`
	}](w, "opened", map[string]any{"short": "/runs/" + short.ID, "long": "/runs/" + run.ID, "times": 2, "cpu": 4, "mbit": 10})
	number(t, "first row of 10,000 items, processor 4 times slower, 10 Mbit/s", slow.Long, "ms", "<= 3000", fmt.Sprintf("a short run: %g ms", slow.Short))
	if slow.Short == 0 || slow.Long > 3*slow.Short {
		t.Errorf("on a slow machine the first row of a run of %d items took %v ms, of a short one %v", got.Total, slow.Long, slow.Short)
	}
	if live := do[int](w, "many", map[string]any{"path": "/approvals", "tabs": tabs}); live != tabs {
		t.Errorf("%d of %d tabs are live", live, tabs)
	}
	w.clean()
}
