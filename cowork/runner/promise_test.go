package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/cowork/runner"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// state is a run as its log has it now.
func (s server) state(t testing.TB, id runner.ID) *cowork.State {
	t.Helper()
	_, st, err := s.State(t.Context(), tenant, id)
	must(t, err)
	return st
}

// reaches waits until a run is as wanted.
func (s server) reaches(t testing.TB, id runner.ID, what string, want func(*cowork.State) bool) *cowork.State {
	t.Helper()
	var st *cowork.State
	patience.Try(t, time.Minute, what, func() error {
		if st = s.state(t, id); !want(st) {
			return fmt.Errorf("%q began, the end is %+v", labels(st), st.Ended)
		}
		return nil
	})
	return st
}

func labels(s *cowork.State) (list []string) {
	for _, a := range s.Attempts {
		list = append(list, cowork.Label(a.Attempt))
	}
	return list
}

// ended is an attempt that has ended, by its label.
func ended(t testing.TB, s *cowork.State, label string) *thread.NodeEnded {
	t.Helper()
	for _, a := range s.Attempts {
		if cowork.Label(a.Attempt) == label && a.Ended != nil {
			return a.Ended
		}
	}
	t.Fatalf("%s has not ended: %q", label, labels(s))
	return nil
}

// role is what an agent's instructions are.
func role(req *llm.Request) string { return (llm.Message{Blocks: req.System}).String() }

// all are the runs of agents that there are.
func (s server) all(t testing.TB) []runs.Run {
	t.Helper()
	page, err := s.k.List(t.Context(), tenant, runs.Filter{PageSize: 1000})
	must(t, err)
	return page.Runs
}

// A result and a file go from node to node as they are: bytes that are no text, and by hash.
func TestArtifacts_areBytesByReference(t *testing.T) {
	binary := []byte{0, 0xff, 0xfe, '\n', 0x80, 0}
	var told sync.Map
	h := newHouse(t, func(_ context.Context, task string, req *llm.Request) string {
		told.Store(strings.Fields(task)[0], task)
		return "done"
	})
	h.rooms = newRooms()
	h.rooms.seed["/workspace/out/image.bin"] = binary
	s := h.open()
	run := s.run(t, `
topology: sequential
nodes:
  - {name: draw, inline: {}, task: DRAW it, sandbox: own, artifacts: [out/image.bin]}
  - {name: look, inline: {}, task: LOOK at it, input: {image: {node: draw, artifact: out/image.bin}}}
`, nil)
	if got := s.await(t, run.ID); got.State != thread.RunSucceeded {
		t.Fatalf("%+v", got)
	}
	st := s.state(t, run.ID)
	if got := h.rooms.content(st.Machine, ".blackboard/draw/out/image.bin"); got != string(binary) {
		t.Errorf("what it is given: %q", got)
	}
	a := ended(t, st, "draw").Artifacts
	if len(a) != 1 || a[0].Bytes != len(binary) {
		t.Fatalf("%+v", a)
	}
	task, _ := told.Load("LOOK")
	if text := fmt.Sprint(task); !strings.Contains(text, `"sha256":"`+a[0].Blob+`"`) || !strings.Contains(text, `"file":".blackboard/draw/out/image.bin"`) || strings.ContainsRune(text, 0xfffd) {
		t.Errorf("it is told %s", text)
	}
	if got := h.rooms.there(); !slices.Equal(got, []string{st.Machine}) || !slices.Contains(h.rooms.stops, st.Machine) {
		t.Errorf("left are %q, stopped %q", got, h.rooms.stops)
	}
}

// A long text is handed on whole: what people see of it is a part.
func TestResult_isHandedOnWhole(t *testing.T) {
	long := strings.Repeat("a word ", 10_000) + "end"
	h := newHouse(t, func(_ context.Context, task string, _ *llm.Request) string {
		switch {
		case strings.HasPrefix(task, "WRITE"):
			return long
		case strings.Contains(task, long):
			return "whole"
		}
		return "a part"
	})
	s := h.open()
	run := s.run(t, "topology: sequential\nnodes:\n  - {name: a, inline: {}, task: WRITE}\n  - {name: b, inline: {}, task: READ, input: {text: {node: a}}}\n", nil)
	if got := s.await(t, run.ID); got.State != thread.RunSucceeded || s.result(t, run.ID) != `{"b":"whole"}` {
		t.Errorf("%+v came to %s", got, s.result(t, run.ID))
	}
}

// What is too large or is not there fails the node and says why; nothing of it is handed on.
func TestArtifacts_fail(t *testing.T) {
	h := newHouse(t, func(_ context.Context, task string, _ *llm.Request) string {
		if strings.HasPrefix(task, "LONG") {
			return strings.Repeat("a", 1<<20)
		}
		return "done"
	})
	h.rooms = newRooms()
	h.rooms.seed["/workspace/large"] = make([]byte, 32<<20+1)
	s := h.open()
	for keys, want := range map[string][2]string{
		"task: LEAVE, artifacts: [large]":                {cowork.ReasonArtifact, "too_large"},
		"task: LEAVE, artifacts: [large, none]":          {cowork.ReasonArtifact, "too_large"},
		"task: LEAVE, artifacts: [none]":                 {cowork.ReasonArtifact, "it was to leave none"},
		"task: LONG":                                     {cowork.ReasonResult, "at most 1048576"},
		"task: LONG, retries: {max: 1, wait: 1ms}":       {cowork.ReasonResult, "artifacts"}, // the hint
		"task: LEAVE, artifacts: [large], sandbox: fork": {cowork.ReasonArtifact, "too_large"},
	} {
		run := s.run(t, "topology: sequential\nnodes:\n  - {name: a, inline: {}, "+keys+"}\n", nil)
		got := s.await(t, run.ID)
		if got.State != thread.RunFailed || got.Reason != cowork.ReasonNode || !strings.Contains(got.Text, want[1]) {
			t.Errorf("%s: %+v", keys, got)
		}
		if e := ended(t, s.state(t, run.ID), "a"); e.Reason != want[0] || e.Artifacts != nil {
			t.Errorf("%s: %+v", keys, e)
		}
	}
}

// Two forks write one file: what the first one left stays, the second is told, and who comes
// next finds both.
func TestFork_overwritesNothing(t *testing.T) {
	both := make(chan struct{})
	var here atomic.Int64
	h := newHouse(t, func(ctx context.Context, task string, req *llm.Request) string {
		who := role(req)
		if !strings.Contains(who, "WORKER") {
			return "done"
		}
		if here.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both: // they work at once
		case <-ctx.Done():
		}
		return writes(req, "f.txt", "of "+who[strings.Index(who, "WORKER"):][:8], "done")
	})
	h.rooms = newRooms()
	s := h.open()
	run := s.run(t, `
topology: parallel
join: last
nodes:
  - {name: one, inline: {instructions: WORKER-1}, task: t, sandbox: fork, artifacts: [f.txt]}
  - {name: two, inline: {instructions: WORKER-2}, task: t, sandbox: fork, artifacts: [f.txt]}
  - {name: last, inline: {}, task: t, input: {one: {node: one, artifact: f.txt}, two: {node: two, artifact: f.txt}}}
`, nil)
	if got := s.await(t, run.ID); got.State != thread.RunSucceeded {
		t.Fatalf("%+v", got)
	}
	st := s.state(t, run.ID)
	one, two := ended(t, st, "one"), ended(t, st, "two")
	first, late := one, two
	if len(one.Conflicts) == 1 {
		first, late = two, one
	}
	if len(first.Conflicts) != 0 || len(late.Conflicts) != 1 || late.Conflicts[0].Path != "f.txt" || late.Conflicts[0].With != first.Attempt {
		t.Fatalf("%+v\n%+v", one, two)
	}
	text := map[string]string{"one": "of WORKER-1", "two": "of WORKER-2"}
	if got := h.rooms.content(st.Machine, "f.txt"); got != text[first.Node] {
		t.Errorf("it is %q; %s was first", got, first.Node)
	}
	for node, want := range text {
		if got := h.rooms.content(st.Machine, ".blackboard/"+node+"/f.txt"); got != want {
			t.Errorf("what %s wrote is handed on as %q", node, got)
		}
	}
}

// No further machine may be made, or a disk is full: the node fails and says so, can be tried
// again, and what works beside it is not left behind.
func TestQuota_isReachedInTheMiddle(t *testing.T) {
	const text = `
topology: parallel
parallel_max: 1
nodes:
  - {name: one, inline: {}, task: t, sandbox: own}
  - {name: two, inline: {}, task: t, sandbox: fork%s}
`
	answers := func(context.Context, string, *llm.Request) string { return "done" }
	t.Run("fails", func(t *testing.T) {
		h := newHouse(t, answers)
		h.rooms = newRooms()
		h.rooms.most = 1
		h.rooms.late = make(chan struct{}) // that of the first node is still there when the second one begins
		s := h.open()
		run := s.run(t, fmt.Sprintf(text, ""), nil)
		got := s.await(t, run.ID)
		if got.State != thread.RunFailed || !strings.Contains(got.Text, "two failed (machine): ") || !strings.Contains(got.Text, "at most 1") {
			t.Errorf("%+v", got)
		}
		if there := h.rooms.there(); !slices.Equal(there, []string{s.state(t, run.ID).Machine}) {
			t.Errorf("left are %q", there)
		}
	})
	t.Run("is tried again", func(t *testing.T) {
		h := newHouse(t, answers)
		h.rooms = newRooms()
		h.rooms.most = 2
		_, err := h.rooms.Make(t.Context(), tenant, "another's", nil)
		must(t, err)
		s := h.open()
		run := s.run(t, fmt.Sprintf(text, ", retries: {max: 9, wait: 1ms}"), nil)
		s.reaches(t, run.ID, "a failure", func(st *cowork.State) bool { return slices.Contains(labels(st), "two!2") || st.Ended != nil })
		must(t, h.rooms.Destroy(t.Context(), tenant, "sbx_1"))
		if got := s.await(t, run.ID); got.State != thread.RunSucceeded {
			t.Errorf("%+v", got)
		}
	})
	t.Run("no space for what a fork left", func(t *testing.T) {
		h := newHouse(t, func(ctx context.Context, task string, req *llm.Request) string {
			if strings.HasPrefix(task, "WAIT") {
				<-ctx.Done()
			}
			return writes(req, "f.txt", "large", "done")
		})
		h.rooms = newRooms()
		s := h.open()
		run := s.run(t, `
topology: parallel
nodes:
  - {name: wait, inline: {}, task: WAIT, sandbox: own}
  - {name: two, inline: {}, task: t, sandbox: fork, artifacts: [f.txt]}
`, nil)
		h.rooms.mu.Lock()
		h.rooms.full = func(id, path string) bool { return id == h.rooms.byKey["workflow "+string(run.ID.Thread())+" shared"] }
		h.rooms.mu.Unlock()
		got := s.await(t, run.ID)
		if got.State != thread.RunFailed || !strings.Contains(got.Text, "two failed (artifact): ") || !strings.Contains(got.Text, "no space is left") {
			t.Errorf("%+v", got)
		}
		for _, r := range s.all(t) {
			if !r.State.Final() {
				t.Errorf("the run of %s goes on: %s", r.Labels[runner.LabelNode], r.State)
			}
		}
		if st := s.state(t, run.ID); st.Ended == nil || len(h.rooms.there()) != 1 {
			t.Errorf("the log has no end, or machines are left: %+v, %q", st.Ended, h.rooms.there())
		}
	})
}

// A cancel ends what works wherever it is in the tree: the runs, and their machines.
func TestCancel_endsTheRunsOfTheWholeTree(t *testing.T) {
	h := newHouse(t, func(ctx context.Context, task string, req *llm.Request) string {
		switch who := role(req); {
		case strings.Contains(who, "TOP"):
			return `{"done":false,"delegate":{"mid":["a"],"low":["b","c"]}}`
		case strings.Contains(who, "MID"):
			return `{"done":false,"delegate":{"hand":["d"]}}`
		}
		<-ctx.Done()
		return ""
	})
	h.rooms = newRooms()
	s := h.open()
	run := s.run(t, `
topology: hierarchical
nodes:
  - {name: top, inline: {instructions: TOP}, task: t, workers: [mid, low]}
  - {name: mid, inline: {instructions: MID}, workers: [hand], sandbox: own}
  - {name: low, inline: {}, retries: {max: 3}, sandbox: own}
  - {name: hand, inline: {}, sandbox: fork}
`, nil)
	s.reaches(t, run.ID, "all work", func(st *cowork.State) bool { return len(st.Attempts) == 5 && h.rooms.made() == 5 })
	patience.Until(t, time.Minute, "their runs", func() bool { return len(s.all(t)) == 5 })
	// Who is active: those whose end is not in the log, and each has a run.
	active := map[string]bool{}
	for _, a := range s.state(t, run.ID).Attempts {
		if now, is := s.NodeRun(t.Context(), tenant, run.ID, a.Attempt); is && a.Ended == nil && now.Run != "" && now.Sandbox != "" {
			active[cowork.Label(a.Attempt)] = true
		}
	}
	if len(active) != 3 || !active["low"] || !active["low[1]"] || !active["hand"] {
		t.Errorf("active are %v", active)
	}
	_, err := s.Cancel(t.Context(), tenant, run.ID, "anna", "enough")
	must(t, err)
	if got := s.await(t, run.ID); got.State != thread.RunCancelled || got.Text != "enough" {
		t.Errorf("%+v", got)
	}
	cancelled := 0
	for _, r := range s.all(t) {
		if !r.State.Final() {
			t.Errorf("%s is %s", r.Labels[runner.LabelNode], r.State)
		}
		if r.State == thread.RunCancelled {
			cancelled++
		}
	}
	st := s.state(t, run.ID)
	if cancelled != 3 || len(st.Attempts) != 5 {
		t.Errorf("%d runs were cancelled: %q", cancelled, labels(st))
	}
	if got := h.rooms.there(); !slices.Equal(got, []string{st.Machine}) {
		t.Errorf("left are %q, shared is %s", got, st.Machine)
	}
	again, err := s.Cancel(t.Context(), tenant, run.ID, "bert", "again")
	if err != nil || again.Text != "enough" || s.state(t, run.ID).Seq != st.Seq {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	if _, err := s.Answer(t.Context(), tenant, run.ID, "top", "approve", "", ""); !errs.Is(err, errs.NotFound) {
		t.Errorf("an answer after the end: %v", err)
	}
}

// A worker that does the same for ever is ended by its budget; the others, and the node's own
// further attempts, have theirs.
func TestBudget_endsAWorkerThatLoops(t *testing.T) {
	h := newHouse(t, func(_ context.Context, _ string, req *llm.Request) string {
		if strings.Contains(role(req), "LOOP") {
			return fmt.Sprintf(`CALL read_file {"file_path":"/workspace/%d"}`, len(req.Messages))
		}
		return "done"
	})
	h.rooms = newRooms()
	s := h.open()
	run := s.run(t, `
topology: sequential
nodes:
  - {name: loop, inline: {instructions: LOOP}, task: t, limits: {steps: 5}, retries: {max: 1, wait: 1ms}, on_failure: continue}
  - {name: other, inline: {}, task: t, limits: {steps: 5}}
`, nil)
	if got := s.await(t, run.ID); got.State != thread.RunSucceeded {
		t.Fatalf("%+v", got)
	}
	st := s.state(t, run.ID)
	for _, label := range []string{"loop", "loop!2"} {
		if e := ended(t, st, label); e.State == thread.RunSucceeded || e.Reason != "steps" || e.Spent.Steps != 5 {
			t.Errorf("%s: %+v", label, e)
		}
	}
	if st.Spent.Steps != 11 {
		t.Errorf("%d steps are counted", st.Spent.Steps)
	}
	run = s.run(t, "topology: sequential\nlimits: {steps: 7}\nnodes:\n  - {name: loop, inline: {instructions: LOOP}, task: t, limits: {steps: 5}, retries: {max: 9, wait: 1ms}}\n", nil)
	if got := s.await(t, run.ID); got.State != thread.RunFailed || got.Reason != cowork.ReasonSteps || s.state(t, run.ID).Spent.Steps != 7 {
		t.Errorf("%+v, %d steps", got, s.state(t, run.ID).Spent.Steps)
	}
}

// A worker that dies is tried again; when no attempt is left, the workflow says which node, and
// why.
func TestRetries_ofAWorkerThatDies(t *testing.T) {
	var tries atomic.Int64
	h := newHouse(t, func(_ context.Context, task string, _ *llm.Request) string {
		if n := tries.Add(1); n < 3 || strings.HasPrefix(task, "NEVER") {
			return "FAIL the model is gone"
		}
		return "done"
	})
	s := h.open()
	const text = "topology: sequential\nnodes:\n  - {name: a, inline: {}, task: %s, retries: {max: 2, wait: 1ms}}\n"
	run := s.run(t, fmt.Sprintf(text, "SOON"), nil)
	if got := s.await(t, run.ID); got.State != thread.RunSucceeded {
		t.Errorf("%+v", got)
	}
	if d := strings.Join(outline(t, s, run.ID), ", "); d != "a 1 0 1 failed, a 1 0 2 failed, a 1 0 3 succeeded" {
		t.Error(d)
	}
	run = s.run(t, fmt.Sprintf(text, "NEVER"), nil)
	if got := s.await(t, run.ID); got.State != thread.RunFailed || got.Reason != cowork.ReasonNode || !strings.Contains(got.Text, "a!3 failed") || !strings.Contains(got.Text, "the model is gone") {
		t.Errorf("%+v", got)
	}
}

// Hundreds of elements that each leave a file: what follows is given all of them, which is more
// than an event holds.
func TestEach_manyElementsLeaveFiles(t *testing.T) {
	h := newHouse(t, func(context.Context, string, *llm.Request) string { return "done" })
	h.rooms = newRooms()
	file := strings.Repeat("long/", 40) + "result.txt"
	h.rooms.seed["/workspace/"+file] = []byte("x")
	s := h.open()
	elements := make([]int, 200)
	run := s.run(t, `
topology: sequential
parallel_max: 64
input: {type: object, properties: {list: {type: array}}, required: [list]}
nodes:
  - {name: each, inline: {}, task: t, each: {input: list, max: 1000, parallel_max: 64}, artifacts: [`+file+`], sandbox: own}
  - {name: last, inline: {}, task: t, input: {files: {node: each, artifact: `+file+`}}}
`, map[string]any{"list": elements})
	if got := s.await(t, run.ID); got.State != thread.RunSucceeded {
		t.Fatalf("%+v", got)
	}
	st := s.state(t, run.ID)
	last := st.Attempts[len(st.Attempts)-1]
	if len(st.Attempts) != 201 || len(last.Files) != 200 || h.rooms.content(st.Machine, ".blackboard/each/199/"+file) != "x" {
		t.Errorf("%d attempts, %d files", len(st.Attempts), len(last.Files))
	}
}

// A node that hangs is ended at its time-out and tried again after the wait, at the moment that
// the log says, though the server is another by then.
func TestTimes_goOnOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Int64
		h := newHouse(t, func(ctx context.Context, _ string, _ *llm.Request) string {
			if hung.Add(1) == 1 {
				<-ctx.Done()
			}
			return "done"
		})
		s := h.open()
		began := time.Now()
		run := s.run(t, `
topology: sequential
nodes:
  - {name: a, inline: {}, task: t, timeout: 10m, retries: {max: 1, wait: 30m}}
  - {name: ask, human: {ask: Good?}, timeout: 48h, on_failure: continue}
  - {name: b, inline: {}, task: t, input: {said: {node: ask}}}
`, nil)
		at := func(of time.Duration, want string) *cowork.State {
			t.Helper()
			<-time.After(time.Until(began.Add(of)))
			synctest.Wait()
			st := s.state(t, run.ID)
			if got := strings.Join(labels(st), " "); got != want {
				t.Fatalf("after %v there are %q, want %q", of, got, want)
			}
			return st
		}
		restart := func() { s.close(); s = h.open() }
		restart()
		at(9*time.Minute+59*time.Second, "a")
		st := at(10*time.Minute+time.Second, "a")
		if e := ended(t, st, "a"); e.State != thread.RunTimedOut || e.Reason != cowork.ReasonTimeout {
			t.Errorf("%+v", e)
		}
		if all := s.all(t); len(all) != 1 || all[0].State != thread.RunCancelled {
			t.Errorf("its run: %+v", all)
		}
		restart()
		at(39*time.Minute+59*time.Second, "a")
		at(40*time.Minute+time.Second, "a a!2 ask")
		restart()
		at(48*time.Hour+39*time.Minute, "a a!2 ask")
		st = at(48*time.Hour+41*time.Minute, "a a!2 ask b")
		if e := ended(t, st, "ask"); e.State != thread.RunTimedOut || string(st.Attempts[3].Input) != "{}" {
			t.Errorf("%+v, then %s", e, st.Attempts[3].Input)
		}
		if got, err := s.Get(t.Context(), tenant, run.ID); err != nil || got.State != thread.RunSucceeded {
			t.Errorf("%+v, %v", got, err)
		}
		s.close()
	})
}

// What cannot be started just now is tried again less and less often; a cancel and a time-out
// do not wait for that.
func TestTimes_endWhatCannotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, writers)
		h.rooms = newRooms()
		h.rooms.away = true
		s := h.open()
		late := s.run(t, "topology: sequential\nnodes:\n  - {name: a, inline: {}, task: t, timeout: 40s}\n", nil)
		run := s.run(t, "topology: sequential\nnodes:\n  - {name: a, inline: {}, task: t}\n", nil)
		<-time.After(41 * time.Second)
		synctest.Wait()
		if got, err := s.Get(t.Context(), tenant, late.ID); err != nil || got.State != thread.RunFailed || !strings.Contains(got.Text, "a failed (timeout)") {
			t.Errorf("%+v, %v", got, err)
		}
		_, err := s.Cancel(t.Context(), tenant, run.ID, "anna", "enough")
		must(t, err)
		<-time.After(time.Second)
		synctest.Wait()
		if got, err := s.Get(t.Context(), tenant, run.ID); err != nil || got.State != thread.RunCancelled {
			t.Errorf("%+v, %v", got, err)
		}
		if all := s.all(t); len(all) != 0 {
			t.Errorf("begun were %+v", all)
		}
		s.close()
	})
}

// Several people answer at once: one of them has chosen, and the others are told.
func TestHuman_oneAnswerCounts(t *testing.T) {
	h := newHouse(t, writers)
	s := h.open()
	run := s.run(t, "topology: sequential\nnodes:\n  - {name: ask, human: {ask: q, choices: [a, b]}}\n", nil)
	s.reaches(t, run.ID, "a person is asked", func(st *cowork.State) bool { return len(st.Attempts) == 1 })
	if _, err := s.Answer(t.Context(), tenant, run.ID, "ask", "c", "", ""); !errs.Is(err, errs.Invalid) {
		t.Errorf("what cannot be chosen: %v", err)
	}
	var took atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := s.Answer(t.Context(), tenant, run.ID, "ask", []string{"a", "b"}[i%2], "", fmt.Sprint(i))
			if err == nil {
				took.Add(1)
			} else if !errs.Is(err, errs.NotFound) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s.await(t, run.ID)
	if took.Load() != 1 {
		t.Errorf("%d answers were taken", took.Load())
	}
	if a := s.state(t, run.ID).Attempts[0].Answered; a == nil || !strings.Contains(s.result(t, run.ID), `"choice":"`+a.Choice+`"`) {
		t.Errorf("%+v, %s", a, s.result(t, run.ID))
	}
}

// Definitions have versions by their content; a run keeps the one that it began with, whatever
// becomes of it.
func TestDefinition_versions(t *testing.T) {
	hold := make(chan struct{})
	h := newHouse(t, func(ctx context.Context, task string, _ *llm.Request) string {
		if strings.HasPrefix(task, "FIRST") {
			select {
			case <-hold:
			case <-ctx.Done():
			}
		}
		return strings.Fields(task)[0]
	})
	s := h.open()
	text := func(task string) []byte {
		return []byte("name: flow\nversion: " + strings.ToLower(task) + "\ntopology: sequential\nnodes:\n  - {name: a, inline: {}, task: FIRST}\n  - {name: b, inline: {}, task: " + task + "}\n")
	}
	put := func(task string) runner.Definition {
		t.Helper()
		d, err := s.Put(t.Context(), tenant, "dir/flow.yaml", text(task), "anna")
		must(t, err)
		return d
	}
	one := put("ONE")
	again, err := s.Put(t.Context(), tenant, "other.yaml", text("ONE"), "bert")
	must(t, err)
	if len(again.Versions) != 1 || again.Versions[0] != one.Versions[0] || one.Versions[0].File != "flow.yaml" || one.Versions[0].By != "anna" {
		t.Errorf("the same text: %+v", again)
	}
	run, err := s.Start(t.Context(), tenant, runner.Start{Name: "flow"})
	must(t, err)
	two := put("TWO")
	if len(two.Versions) != 2 || two.Versions[0].Hash != one.Versions[0].Hash || two.Versions[1].Hash == one.Versions[0].Hash {
		t.Errorf("%+v", two)
	}
	// The first one again is the newest then, and there once.
	if back := put("ONE"); len(back.Versions) != 2 || back.Versions[1].Hash != one.Versions[0].Hash {
		t.Errorf("%+v", back)
	}
	put("TWO")
	old, err := s.Start(t.Context(), tenant, runner.Start{Name: "flow", Version: one.Versions[0].Hash[:10]})
	must(t, err)
	newest, err := s.Start(t.Context(), tenant, runner.Start{Name: "flow"})
	must(t, err)
	if _, err := s.Start(t.Context(), tenant, runner.Start{Name: "flow", Version: "feed"}); !errs.Is(err, errs.NotFound) {
		t.Errorf("no version: %v", err)
	}
	must(t, s.Remove(t.Context(), tenant, "flow"))
	if _, err := s.Start(t.Context(), tenant, runner.Start{Name: "flow"}); !errs.Is(err, errs.NotFound) || errs.Hint(err) == "" {
		t.Errorf("after it was removed: %v", err)
	}
	if err := s.Remove(t.Context(), tenant, "flow"); !errs.Is(err, errs.NotFound) {
		t.Errorf("removed twice: %v", err)
	}
	s.close()
	s = h.open()
	close(hold)
	for id, want := range map[runner.ID][2]string{run.ID: {`{"b":"ONE"}`, "one"}, old.ID: {`{"b":"ONE"}`, "one"}, newest.ID: {`{"b":"TWO"}`, "two"}} {
		if got := s.await(t, id); got.State != thread.RunSucceeded || got.Version != want[1] || s.result(t, id) != want[0] {
			t.Errorf("%+v came to %s", got, s.result(t, id))
		}
	}
	if _, err := s.Put(t.Context(), tenant, "w.yaml", []byte("nodes: ["), ""); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), "w.yaml:1") {
		t.Errorf("what is no workflow: %v", err)
	}
}

// What a tenant keeps and runs is not there for another one.
func TestTenants_seeNothingOfEachOther(t *testing.T) {
	h := newHouse(t, writers)
	s := h.open()
	d, err := s.Put(t.Context(), tenant, "ask.yaml", []byte("topology: sequential\nnodes:\n  - {name: ask, human: {ask: q}}\n"), "anna")
	must(t, err)
	run, err := s.Start(t.Context(), tenant, runner.Start{Name: "ask", Key: "k"})
	must(t, err)
	s.reaches(t, run.ID, "a person is asked", func(st *cowork.State) bool { return len(st.Attempts) == 1 })
	ctx := t.Context()
	for what, f := range map[string]func(tenant string) error{
		"get":     func(o string) error { _, err := s.Get(ctx, o, run.ID); return err },
		"state":   func(o string) error { _, _, err := s.State(ctx, o, run.ID); return err },
		"wait":    func(o string) error { return s.Wait(ctx, o, run.ID, 0) },
		"text":    func(o string) error { _, _, err := s.Text(ctx, o, "ask", d.Versions[0].Hash); return err },
		"run":     func(o string) error { _, err := s.Start(ctx, o, runner.Start{Name: "ask"}); return err },
		"plan":    func(o string) error { _, _, err := s.Plan(ctx, o, runner.Start{Name: "ask"}); return err },
		"remove":  func(o string) error { return s.Remove(ctx, o, "ask") },
		"answer":  func(o string) error { _, err := s.Answer(ctx, o, run.ID, "ask", "approve", "", ""); return err },
		"cancel":  func(o string) error { _, err := s.Cancel(ctx, o, run.ID, "", ""); return err },
		"another": func(o string) error { _, err := s.Start(ctx, o, runner.Start{Name: "ask", Key: "k"}); return err },
	} {
		if err := f("other"); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	list, _, err := s.List(ctx, "other", "", 10)
	kept, err2 := s.Definitions(ctx, "other")
	if err != nil || err2 != nil || len(list) != 0 || len(kept) != 0 {
		t.Errorf("another's lists: %v %v %v %v", list, kept, err, err2)
	}
	if _, is := s.NodeRun(ctx, "other", run.ID, thread.Attempt{Node: "ask", Iteration: 1, Number: 1}); is {
		t.Error("another finds runs of nodes")
	}
	_, err = s.Answer(ctx, tenant, run.ID, "ask", "approve", "", "anna")
	must(t, err)
	if got := s.await(t, run.ID); got.State != thread.RunSucceeded {
		t.Errorf("%+v", got)
	}
}

// A plan says what a start would do, and what keeps it from that; nothing is begun by it.
func TestPlan_startsNothing(t *testing.T) {
	h := newHouse(t, writers)
	h.rooms = newRooms()
	h.dir = t.TempDir()
	const text = `
name: plan
topology: sequential
machine: {template: %s}
input: {type: object, properties: {n: {type: number}}, required: [n]}
nodes:
  - {name: good, inline: {tools: [read_file], model: fast}, task: t}
  - {name: own, inline: {}, task: t, sandbox: own, machine: {template: none}}
  - {name: agent, agent: nobody, task: t}
  - {name: ask, human: {ask: q}}
  - {name: bare, inline: {tools: [no_such_tool]}, task: t}
`
	must(t, os.WriteFile(filepath.Join(h.dir, "plan.yaml"), fmt.Appendf(nil, text, "small"), 0o600))
	s := h.open()
	before := len(s.all(t))
	w, list, err := s.Plan(t.Context(), tenant, runner.Start{Name: "plan", Input: json.RawMessage(`{"n":1}`)})
	must(t, err)
	problems := map[string]string{}
	for _, p := range list {
		problems[p.Node] = p.Problem
	}
	if w.Name != "plan" || len(list) != 5 || problems["good"] != "" || !strings.Contains(problems["own"], "no template none") || !strings.Contains(problems["agent"], "nobody") || problems["ask"] != "" || !strings.Contains(problems["bare"], "no_such_tool") {
		t.Errorf("%+v", list)
	}
	if p := list[0]; p.Model != "fast" || p.Sandbox != cowork.SandboxShared || !slices.Equal(p.Tools, []string{"read_file"}) || !list[3].Human {
		t.Errorf("%+v", list)
	}
	if _, _, err := s.Plan(t.Context(), tenant, runner.Start{Name: "plan", Input: json.RawMessage(`{"n":"one"}`)}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a wrong input: %v", err)
	}
	// What cannot be done is refused whole, at the start.
	if _, err := s.Start(t.Context(), tenant, runner.Start{Name: "plan", Input: json.RawMessage(`{"n":1}`)}); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), "own cannot be started: no template none") {
		t.Errorf("the start: %v", err)
	}
	runsThere, _, err := s.List(t.Context(), tenant, "", 10)
	must(t, err)
	if len(runsThere) != 0 || len(s.all(t)) != before || h.rooms.made() != 0 || h.writes.Load() != 0 {
		t.Errorf("begun were %v, %d runs, %d machines, %d writes", runsThere, len(s.all(t)), h.rooms.made(), h.writes.Load())
	}
}
