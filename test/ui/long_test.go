package ui

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/test/browser"
	"github.com/skete-dev/skete/thread"
)

// scale runs a function of scale.mjs, as do runs one of page.mjs.
func scale[T any](w *world, name string, args map[string]any) T {
	w.t.Helper()
	return browser.Run[T](w.t, w.page, "scale.mjs", w.args(name, args))
}

// lengthen adds steps of many calls to a run, and its end, while no server runs: what a server
// would find that was killed when it had written the end into the log. Nothing but the log's
// own writer makes so many events in seconds.
func (w *world) lengthen(run api.Run, calls int) {
	w.t.Helper()
	const callsOfStep = 24
	s, err := store.Open(w.ctx(), store.Config{Dir: filepath.Join(w.home, "store")})
	w.ok(err)
	defer func() { w.ok(s.Close()) }()
	log, err := s.Threads().Log(w.ctx(), key.DefaultTenant)
	w.ok(err)
	id, of := thread.ID(run.Thread), thread.RunID(run.ID)
	seq, err := log.Head(w.ctx(), id)
	w.ok(err)
	var check thread.Checker
	for e, err := range log.Load(w.ctx(), id, 1) {
		w.ok(err)
		w.ok(check.Add(e))
	}
	ctx := w.ctx()
	add := func(bodies ...thread.Body) {
		events := make([]thread.Event, len(bodies))
		for i, b := range bodies {
			events[i] = thread.New(of, b)
		}
		seq, err = log.Append(ctx, id, seq, events...)
		w.ok(err)
		for _, e := range events {
			w.ok(check.Add(e))
		}
	}
	for made := 0; made < calls; {
		n := min(callsOfStep, calls-made)
		blocks, results := []llm.Block{}, []thread.Body{}
		for range n {
			made++
			call, todo := fmt.Sprintf("long_%d", made), thread.Todo{Content: fmt.Sprintf("part %d", made), Status: "in_progress"}
			args, err := json.Marshal(map[string]any{"todos": []thread.Todo{todo}})
			w.ok(err)
			blocks = append(blocks, llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: call, Name: "write_todos", Args: args}})
			results = append(results, thread.ToolCompleted{Call: call, Tool: "write_todos", Blocks: []llm.Block{llm.Text("noted")}, Todos: []thread.Todo{todo}})
		}
		add(append([]thread.Body{thread.ModelCompleted{Message: llm.Assistant(blocks...), Model: "held", Stop: llm.StopTools, Attempt: 1, Through: seq}}, results...)...)
	}
	add(thread.ModelCompleted{Message: llm.Assistant(llm.Text("done")), Model: "held", Stop: llm.StopEnd, Attempt: 1, Through: seq},
		thread.RunEnded{State: thread.RunSucceeded, Reason: "done", Text: "done"})
}

// Scenario 18: a run of 100,000 items opens as a short one does, by its newest, and is paged.
func TestScale_longLog(t *testing.T) {
	const calls, pagesUp = 100_000, 5
	w := newWorld(t, setup{scripts: map[string]string{
		"held":  "replies:\n  - {delay: 10m, text: never}\n",
		"short": "else: {text: done}\n",
	}})
	short := w.ended(w.run("short", api.StartRun{}).ID)
	run := w.run("held", api.StartRun{Budget: api.Budget{Steps: 10_000}})
	w.until("the run waits for its model", func() (err error) {
		if run, err = w.c.Run(run.ID).Get(w.ctx()); err == nil && (run.State != "running" || run.LastSeq < 4) {
			err = fmt.Errorf("it is %s, at event %d", run.State, run.LastSeq)
		}
		return err
	})
	w.end(syscall.SIGKILL)
	w.lengthen(run, calls)
	w.start()
	run = w.ended(run.ID)
	t.Logf("the run has %d steps, the last event is %d", run.Steps, run.LastSeq)
	if run.LastSeq < calls {
		t.Fatalf("the log has %d events", run.LastSeq)
	}
	opened := scale[struct {
		Short float64 `json:"short_ms"`
		Long  float64 `json:"long_ms"`
	}](w, "opened", map[string]any{"short": "/runs/" + short.ID, "long": "/runs/" + run.ID, "times": 3})
	number(t, "first row of 100,000 items", opened.Long, "ms", "<= 1500", fmt.Sprintf("a short run: %g ms", opened.Short))
	if opened.Long > 3*opened.Short {
		t.Errorf("the first row of a run of %d items took %v ms, of a short one %v", calls, opened.Long, opened.Short)
	}
	got := scale[struct {
		Nodes int    `json:"nodes"`
		Heap  int    `json:"heap_mb"`
		Plan  string `json:"plan"`
		Up    []struct {
			Added int     `json:"added"`
			Shift float64 `json:"shift_px"`
			MS    int     `json:"ms"`
		} `json:"up"`
		AfterNodes int `json:"after_nodes"`
		AfterHeap  int `json:"after_heap_mb"`
	}](w, "paged", map[string]any{"path": "/runs/" + run.ID, "times": pagesUp})
	t.Logf("%+v", got)
	if got.Nodes == 0 || max(got.Nodes, got.AfterNodes) > nodesMax {
		t.Errorf("the page has %d nodes, then %d, at most %d", got.Nodes, got.AfterNodes, nodesMax)
	}
	if got.Heap == 0 || max(got.Heap, got.AfterHeap) > heapMaxMB {
		t.Errorf("the page's heap has %d MB, then %d, at most %d", got.Heap, got.AfterHeap, heapMaxMB)
	}
	if want := fmt.Sprintf("part %d", calls); !strings.Contains(got.Plan, want) {
		t.Errorf("the plan is %q, it lacks %q", got.Plan, want)
	}
	for n, up := range got.Up {
		if up.Added < 900 || up.Shift != 0 {
			t.Errorf("page %d of what was before: %d rows, and what was read moved by %v px", n+1, up.Added, up.Shift)
		}
	}
	w.clean()
}
