package ui

import (
	"slices"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
)

// clickTime is how long a click may take until it is seen, on a reference machine.
const clickTime = 200 * time.Millisecond

// termSize is the size of a terminal as its shell was told it, and as it is seen.
type termSize struct {
	Rows     int `json:"rows"`
	Cols     int `json:"cols"`
	SeenRows int `json:"seen_rows"`
	SeenCols int `json:"seen_cols"`
}

// Scenario 12: a shell in the browser is one of the machine. It knows its size, goes on after a
// reload with what was written, cannot touch the clipboard or the title, and does not make the
// page deaf.
func TestTerminal(t *testing.T) {
	w := newWorld(t, setup{})
	sb, err := w.c.CreateSandbox(w.ctx(), api.CreateSandbox{})
	w.ok(err)
	do[any](w, "open", map[string]any{"path": "/vms/" + sb.ID + "/terminal"})
	line := func(text, want string) []string {
		t.Helper()
		return act[[]string](w, "line", map[string]any{"line": text, "want": want})
	}
	line("echo $((6*7))", "42")

	wide := act[termSize](w, "sized", map[string]any{"width": 1300, "height": 900})
	small := act[termSize](w, "sized", map[string]any{"width": 900, "height": 600})
	t.Logf("the shell was told %+v, then %+v", wide, small)
	if small.Rows >= wide.Rows || small.Cols >= wide.Cols {
		t.Errorf("a smaller window makes %+v of %+v", small, wide)
	}

	line("clear; mark=kept; seq 1000 1200; echo far$((40+2))", "far42")
	if rows := act[[]string](w, "back", map[string]any{"want": "1003"}); slices.Contains(rows, "1200") {
		t.Errorf("the far line is where the last one is: %q", rows)
	}
	line("echo $mark$((6*7))", "kept42")

	type clip struct {
		Value string `json:"value"`
		Title string `json:"title"`
	}
	before := act[clip](w, "clipboard", map[string]any{"text": "a person's"})
	if before.Value != "a person's" {
		t.Fatalf("the test cannot read the clipboard: it has %q", before.Value)
	}
	line(`printf '\033]52;c;cHduZWQ=\007\033]0;pwned\007\033]2;pwned\007'; echo osc$((6*7))`, "osc42")
	if after := act[clip](w, "clipboard", nil); after != before {
		t.Errorf("a program made %+v of %+v", after, before)
	}

	clicks := act[[]int](w, "flood", map[string]any{"seconds": 5})
	slices.Sort(clicks)
	if len(clicks) < 3 {
		t.Fatalf("while the terminal was flooded %d clicks were answered", len(clicks))
	}
	worst := time.Duration(clicks[len(clicks)-1]) * time.Millisecond
	t.Logf("while yes ran for 5 s, %d clicks were seen after %d ms in the middle and %d ms at most (bound %s)", len(clicks), clicks[len(clicks)/2], clicks[len(clicks)-1], patience.Of(clickTime))
	if worst > patience.Of(clickTime) {
		t.Errorf("a click was seen after %s", worst)
	}
	w.clean()
}
