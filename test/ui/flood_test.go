package ui

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/test/browser"
)

const (
	floodHeapMaxMB = 150
	floodBytesMax  = 4 << 20 // of one request, and of all that came by the socket
)

var leftOut = regexp.MustCompile(`\[\d+ bytes were left out above`)

// flood runs a function of flood.mjs, as do runs one of page.mjs.
func flood[T any](w *world, name string, args map[string]any) T {
	w.t.Helper()
	return browser.Run[T](w.t, w.page, "flood.mjs", w.args(name, args))
}

// Scenario 18: of a command that wrote 100 MB the page has the beginning and the end, says what
// was left out, and what is kept is paged and searched without being held.
func TestScale_output(t *testing.T) {
	const first, lines, lineBytes = 10_000_000, 11_500_000, 9
	const last = first + lines - 1
	w := newWorld(t, setup{scripts: map[string]string{"flood": executes(fmt.Sprintf("seq %d %d", first, last))}})
	run := w.ended(w.run("flood", api.StartRun{}).ID)
	got := flood[struct {
		Shown    string   `json:"shown"`
		Says     []string `json:"says"`
		Found    string   `json:"found"`
		Opens    string   `json:"opens"`
		Marked   []string `json:"marked"`
		Absent   string   `json:"absent"`
		Nodes    int      `json:"nodes"`
		Heap     int      `json:"heap_mb"`
		Requests int      `json:"requests"`
		Most     int      `json:"most_bytes"`
		MostURL  string   `json:"most_url"`
		Socket   int      `json:"socket_bytes"`
	}](w, "flooded", map[string]any{
		"path": "/runs/" + run.ID, "first": fmt.Sprint(first), "last": fmt.Sprint(last),
		"search": fmt.Sprint(last - 1000), "absent": fmt.Sprint(first + lines/2),
	})
	written, kept := 0, 0
	for e, err := range w.c.Run(run.ID).History(w.ctx(), 1) {
		w.ok(err)
		if e.Kind != "tool.completed" {
			continue
		}
		var done struct{ Bytes int }
		w.ok(json.Unmarshal(e.Data, &done))
		written = done.Bytes
	}
	if written != lines*lineBytes {
		t.Fatalf("the command wrote %d bytes, not %d", written, lines*lineBytes)
	}
	if n, err := fmt.Sscanf(leftOut.FindString(got.Shown), "[%d bytes", &kept); n != 1 {
		t.Errorf("the row does not say how much was left out (%v): %s", err, got.Shown)
	}
	t.Logf("%d bytes of %d were left out; %v; found %s; %d elements, a heap of %d MB, %d requests, of which the greatest brought %d bytes (%s), the socket %d",
		kept, written, got.Says, got.Found, got.Nodes, got.Heap, got.Requests, got.Most, got.MostURL, got.Socket)
	if kept = written - kept; kept < 256<<10 || kept > 1<<20 {
		t.Errorf("%d bytes of %d are said to be kept", kept, written)
	}
	for _, line := range []int{first, last} {
		if !slices.Contains(strings.Fields(got.Shown), fmt.Sprint(line)) {
			t.Errorf("the row lacks the line %d: %s", line, got.Shown)
		}
	}
	if want := "Open what is kept of 104 MB"; got.Opens != want {
		t.Errorf("the row offers to %q, not to %q", got.Opens, want)
	}
	if want := []string{fmt.Sprint(last - 1000)}; !slices.Equal(got.Marked, want) {
		t.Errorf("a search marks %q, not %q", got.Marked, want)
	}
	if want := []string{"524 KB of 104 MB were kept, the beginning and the end; what was between them is left out."}; !slices.Equal(got.Says, want) {
		t.Errorf("the page says %q of what is kept, not %q", got.Says, want)
	}
	if !strings.HasPrefix(got.Found, "at 5") || got.Absent != "not found" {
		t.Errorf("a search found a line near the end %s, and one that was left out %s", got.Found, got.Absent)
	}
	if got.Nodes == 0 || got.Nodes > nodesMax {
		t.Errorf("the page has %d nodes, at most %d", got.Nodes, nodesMax)
	}
	if got.Heap == 0 || got.Heap > floodHeapMaxMB {
		t.Errorf("the page's heap has %d MB, at most %d", got.Heap, floodHeapMaxMB)
	}
	if got.Requests == 0 || max(got.Most, got.Socket) > floodBytesMax {
		t.Errorf("of %d requests %s brought %d bytes, the socket %d, at most %d", got.Requests, got.MostURL, got.Most, got.Socket, floodBytesMax)
	}
	w.clean()
}
