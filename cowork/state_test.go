package cowork_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// world is all that a crash leaves: the log, what was started, and the clock.
type world struct {
	t       testing.TB
	w       cowork.Workflow
	seed    int
	log     []thread.Event
	started map[string]int // by key, how often it was asked for
	now     time.Time
	most    int // that were under way at once
	appends int
	dieAt   int  // the append before which the server dies, 0 = never
	after   bool // it dies behind the append instead
}

// dead is what a dying server panics with.
type dead struct{}

const wfThread = thread.ID("thr_aaaaaaaaaaaaaaaaaaaa")

func (w *world) fold() *cowork.State {
	s := cowork.NewState(w.w)
	for _, e := range w.log {
		if err := s.Apply(e); err != nil {
			w.t.Fatalf("%v\n%s", err, w.story())
		}
	}
	return s
}

func (w *world) story() (out string) {
	for _, e := range w.log {
		line, _ := e.AppendJSON(nil)
		out += string(line) + "\n"
	}
	return out
}

func (w *world) append(s *cowork.State, body thread.Body) {
	w.appends++
	if w.appends == w.dieAt && !w.after {
		panic(dead{})
	}
	e := []thread.Event{{At: w.now, Body: body}}
	if _, err := thread.Encode(uint64(len(w.log)), e); err != nil {
		w.t.Fatal(err)
	}
	w.log = append(w.log, e[0])
	w.now = w.now.Add(time.Second)
	if w.appends == w.dieAt {
		panic(dead{})
	}
	if err := s.Apply(e[0]); err != nil {
		w.t.Fatalf("%v\n%s", err, w.story())
	}
}

// chance is a number that depends on the seed and on what it is asked about.
func (w *world) chance(n int, of ...any) int {
	h := fnv.New32a()
	fmt.Fprint(h, w.seed, of)
	return int(h.Sum32()>>3) % n
}

// live brings the workflow to its end, or dies.
func (w *world) live() (s *cowork.State, lived bool) {
	defer func() {
		if p := recover(); p != nil {
			if _, is := p.(dead); !is {
				panic(p)
			}
			s, lived = nil, false
		}
	}()
	s = w.fold()
	for range 20_000 {
		todo := s.Next(w.now)
		if todo.End != nil {
			w.append(s, *todo.End)
			return s, true
		}
		if s.Ended != nil {
			return s, true
		}
		w.step(s, todo)
		w.within(s)
	}
	w.t.Fatalf("it does not end\n%s", w.story())
	return nil, false
}

func (w *world) step(s *cowork.State, todo cowork.Todo) {
	for _, a := range todo.Running { // again, as after a crash: the same key is the same run
		w.started[cowork.Key(wfThread, a.Attempt)]++
	}
	w.most = max(w.most, len(todo.Running))
	if len(todo.Begin) > 0 && !todo.Stop {
		w.append(s, todo.Begin[0])
		return
	}
	var asked []*cowork.Attempt
	for _, a := range s.Attempts {
		if a.Ended == nil && s.Vertex(a.Attempt).Human != nil {
			asked = append(asked, a)
		}
	}
	open := slices.Concat(todo.Running, asked)
	if todo.Stop {
		open = todo.Running
	}
	if len(open) == 0 {
		if !todo.Wake.After(w.now) {
			w.t.Fatalf("nothing is to be done, and it has not ended: %+v\n%s", todo, w.story())
		}
		w.now = todo.Wake
		return
	}
	first := slices.MinFunc(open, func(a, b *cowork.Attempt) int {
		return w.chance(1<<20, "order", a.Attempt) - w.chance(1<<20, "order", b.Attempt)
	})
	w.append(s, w.end(s, first, todo.Stop))
}

// within holds what is spent and what is promised to those under way against the limits of the
// workflow. All that have ended used at most what they were promised.
func (w *world) within(s *cowork.State) {
	sum := s.Spent
	for _, a := range s.Attempts {
		if a.Ended != nil || s.Vertex(a.Attempt).Human != nil {
			continue
		}
		b := a.Budget
		sum = sum.Add(thread.Spent{Steps: b.Steps, Usage: llm.Usage{Input: b.Tokens}, CostUSD: b.CostUSD})
		l, n := s.Workflow.Limits, s.Vertex(a.Attempt).Limits
		if l.Steps > 0 && b.Steps < 1 || l.Tokens > 0 && b.Tokens < 1 || l.CostUSD > 0 && b.CostUSD <= 0 || n.Steps > 0 && b.Steps > n.Steps {
			w.t.Fatalf("%s may use %+v\n%s", cowork.Label(a.Attempt), b, w.story())
		}
	}
	const grain = 1e-8 // of sums of floats
	l := s.Workflow.Limits
	if l.Steps > 0 && sum.Steps > l.Steps || l.Tokens > 0 && sum.Usage.Total() > l.Tokens || l.CostUSD > 0 && sum.CostUSD > l.CostUSD+grain {
		w.t.Fatalf("%+v is spent and promised, of %+v\n%s", sum, l, w.story())
	}
}

// spends is what an attempt used of its budget: perhaps all of it.
func (w *world) spends(a *cowork.Attempt) (sum thread.Spent) {
	part := func(of int) int { return 1 + w.chance(of, "spends", a.Attempt) }
	sum.Steps = part(cmp.Or(a.Budget.Steps, 3))
	sum.Usage.Input = part(cmp.Or(a.Budget.Tokens, 3))
	sum.CostUSD = a.Budget.CostUSD * float64(w.chance(5, "pays", a.Attempt)) / 4
	return sum
}

// end is what comes of an attempt.
func (w *world) end(s *cowork.State, a *cowork.Attempt, stop bool) thread.Body {
	v := s.Vertex(a.Attempt)
	if v.Human != nil {
		said, err := s.Answer(a.Node, []string{"approve", "reject"}[w.chance(2, a.Attempt)], "", "anna")
		if err != nil {
			w.t.Fatal(err)
		}
		return said
	}
	b := thread.NodeEnded{Attempt: a.Attempt, State: thread.RunSucceeded, Thread: "thr_b", Spent: w.spends(a)}
	switch {
	case stop:
		b.State = thread.RunCancelled
	case w.chance(4, "fails", a.Attempt) == 0:
		b.State = thread.RunFailed
	default:
		b.Result = w.result(v, a)
	}
	return b
}

func (w *world) result(v *cowork.Vertex, a *cowork.Attempt) json.RawMessage {
	if len(v.Workers) > 0 {
		give := map[string]any{}
		for _, name := range v.Workers {
			if n := w.chance(3, "give", name, a.Attempt); n > 0 {
				give[name] = []string{"a", "b"}[:n]
			}
		}
		out, _ := json.Marshal(map[string]any{"done": w.chance(2, "done", a.Attempt) == 0, "answer": "yes", "delegate": give})
		return out
	}
	list := []string{"x", "y", "z"}[:w.chance(4, "list", a.Attempt)]
	out, _ := json.Marshal(map[string]any{"ok": w.chance(2, "ok", a.Attempt) == 0, "list": list})
	return out
}

const resultOfAll = `{"type":"object","properties":{"ok":{"type":"boolean"},"list":{"type":"array","items":{"type":"string"}}},"required":["ok","list"]}`

// drawn is a workflow of any topology.
func drawn(t *rapid.T) cowork.Workflow {
	topology := rapid.SampledFrom(cowork.Topologies).Draw(t, "topology")
	n := rapid.IntRange(2, 7).Draw(t, "nodes")
	d := map[string]any{"name": "w", "topology": topology, "parallel_max": rapid.IntRange(1, 4).Draw(t, "parallel_max")}
	if rapid.Bool().Draw(t, "limited") {
		d["limits"] = limits(t, 40)
	}
	var schema any
	_ = json.Unmarshal([]byte(resultOfAll), &schema)
	name := func(i int) string { return fmt.Sprintf("n%d", i) }
	supervised := topology == cowork.Supervised || topology == cowork.Hierarchical
	var nodes []map[string]any
	for i := range n {
		node := map[string]any{"name": name(i), "inline": map[string]any{}, "task": "do", "result": schema}
		if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
			node["limits"] = limits(t, 9)
		}
		if rapid.Bool().Draw(t, "continues") {
			node["on_failure"] = "continue"
		}
		if rapid.Bool().Draw(t, "retries") {
			node["retries"] = map[string]any{"max": rapid.IntRange(1, 3).Draw(t, "max"), "wait": "2s"}
		}
		switch {
		case supervised:
		case rapid.IntRange(0, 5).Draw(t, "human") == 0:
			node = map[string]any{"name": name(i), "human": map[string]any{"ask": "good?"}}
		case i > 0 && topology == cowork.Sequential && nodes[i-1]["human"] == nil && nodes[i-1]["each"] == nil && rapid.Bool().Draw(t, "each"):
			node["each"] = map[string]any{"node": name(i - 1), "path": "list", "max": rapid.IntRange(1, 3).Draw(t, "each max")}
		}
		nodes = append(nodes, node)
	}
	test := func(i int) map[string]any {
		switch {
		case nodes[i]["human"] != nil:
			return map[string]any{"node": name(i), "path": "choice", "equals": "reject"}
		case nodes[i]["each"] != nil:
			return map[string]any{"node": name(i), "path": "0", "exists": true}
		}
		return map[string]any{"node": name(i), "path": "ok", "equals": false}
	}
	switch topology {
	case cowork.Supervised:
		delete(nodes[0], "result")
		nodes[0]["workers"], nodes[0]["rounds"] = names(name, 1, n), rapid.IntRange(2, 4).Draw(t, "rounds")
	case cowork.Hierarchical:
		delete(nodes[0], "result")
		nodes[0]["workers"], nodes[0]["rounds"] = names(name, 1, n), 3
		if n > 3 {
			delete(nodes[1], "result")
			nodes[0]["workers"], nodes[1]["workers"], nodes[1]["rounds"] = names(name, 1, n-2), names(name, n-2, n), 2
		}
	case cowork.Parallel:
		d["join"] = name(n - 1)
	case cowork.Directed:
		var edges []any
		for to := 1; to < n; to++ {
			for _, from := range rapid.SliceOfNDistinct(rapid.IntRange(0, to-1), 1, min(to, 3), rapid.ID[int]).Draw(t, "edges") {
				e := map[string]any{"from": name(from), "to": name(to)}
				if rapid.Bool().Draw(t, "when") {
					e["when"] = test(from)
				}
				edges = append(edges, e)
			}
		}
		d["start"], d["edges"] = []string{name(0)}, edges
	}
	d["nodes"] = nodes
	if topology == cowork.Sequential || topology == cowork.Directed {
		var loops []any
		for range rapid.IntRange(0, 2).Draw(t, "loops") {
			from := rapid.IntRange(0, n-1).Draw(t, "from")
			l := map[string]any{"from": name(from), "to": name(rapid.IntRange(0, from).Draw(t, "to")), "when": test(from), "max": rapid.IntRange(1, 3).Draw(t, "times")}
			if rapid.Bool().Draw(t, "goes on") {
				l["exhausted"] = "continue"
			}
			loops = append(loops, l)
		}
		d["loops"] = loops
		if w, ok := checked(d); ok {
			return w
		}
		delete(d, "loops") // they overlap, or are entered in the middle
	}
	w, ok := checked(d)
	if !ok {
		raw, _ := json.Marshal(d)
		_, problems := cowork.Check("w.json", raw)
		t.Fatalf("%s\n%+v", raw, problems)
	}
	return w
}

// limits are some of those that there are.
func limits(t *rapid.T, most int) map[string]any {
	l := map[string]any{}
	for _, key := range []string{"steps", "tokens", "cost_usd"} {
		if rapid.Bool().Draw(t, key) {
			l[key] = rapid.IntRange(1, most).Draw(t, key)
		}
	}
	return l
}

func names(of func(int) string, from, to int) (list []string) {
	for i := from; i < to; i++ {
		list = append(list, of(i))
	}
	return list
}

func checked(d map[string]any) (cowork.Workflow, bool) {
	raw, _ := json.Marshal(d)
	w, problems := cowork.Check("w.json", raw)
	return w, len(problems) == 0
}

func newWorld(t testing.TB, w cowork.Workflow, seed int) *world {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &world{t: t, w: w, seed: seed, started: map[string]int{}, now: at.Add(time.Second), log: []thread.Event{
		{Seq: 1, At: at, Body: thread.Opened{Name: "w"}}, {Seq: 2, At: at, Body: thread.WorkflowStarted{Name: "w"}},
	}}
}

// Wherever the server is killed, the workflow comes to the same end by the same events, starts
// nothing under two keys, and keeps its bounds.
func TestState_sameEndWhereverTheServerIsKilled(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawn(rt)
		seed := rapid.IntRange(0, 1<<30).Draw(rt, "seed")
		whole := newWorld(t, w, seed)
		s, _ := whole.live()
		bounds(t, whole, s)
		for die := 1; die <= whole.appends; die++ {
			for _, after := range []bool{false, true} {
				cut := newWorld(t, w, seed)
				cut.dieAt, cut.after = die, after
				if _, lived := cut.live(); lived {
					t.Fatalf("it did not die at append %d", die)
				}
				cut.dieAt = 0
				cut.live()
				if d := gocmp.Diff(whole.log, cut.log); d != "" {
					t.Fatalf("killed at append %d (%v), it goes another way:\n%s", die, after, d)
				}
				if len(cut.started) != len(whole.started) {
					t.Fatalf("killed at append %d, it starts %d runs, not %d", die, len(cut.started), len(whole.started))
				}
			}
		}
	})
}

// bounds looks at how a run went.
func bounds(t *testing.T, w *world, s *cowork.State) {
	t.Helper()
	if w.most > w.w.ParallelMax {
		t.Fatalf("%d worked at once, at most %d may", w.most, w.w.ParallelMax)
	}
	first, seen := 0, map[thread.Attempt]bool{}
	for _, a := range s.Attempts {
		if seen[a.Attempt] {
			t.Fatalf("%+v began twice\n%s", a.Attempt, w.story())
		}
		seen[a.Attempt] = true
		if a.Number == 1 {
			first++
		}
		retries := 0
		if r := s.Vertex(a.Attempt).Retries; r != nil {
			retries = r.Max
		}
		if a.Number > retries+1 {
			t.Fatalf("attempt %d of %s\n%s", a.Number, a.Node, w.story())
		}
		again := 1
		for _, l := range w.w.Graph.Loops {
			if slices.Contains(l.Body, a.Node) {
				again *= l.Max + 1
			}
		}
		if a.Iteration > again {
			t.Fatalf("%s was done %d times, at most %d\n%s", a.Node, a.Iteration, again, w.story())
		}
	}
	if first > w.w.Graph.Starts {
		t.Fatalf("%d nodes were started, at most %d\n%s", first, w.w.Graph.Starts, w.story())
	}
	if s.Ended.State == thread.RunSucceeded {
		for _, v := range s.View().Nodes {
			if v.Status == "" {
				t.Fatalf("%s is not decided\n%s", v.Name, w.story())
			}
		}
	}
}

// What limits leave is given in equal parts to those that begin at once, and what is too little
// for one more makes it wait. A node that may use less leaves more to the others.
func TestState_givesOutWhatLimitsLeave(t *testing.T) {
	w, ok := checked(map[string]any{
		"name": "w", "topology": "parallel", "limits": map[string]any{"steps": 3, "tokens": 100, "cost_usd": 1},
		"nodes": []any{
			map[string]any{"name": "a", "inline": map[string]any{}, "task": "do"},
			map[string]any{"name": "b", "inline": map[string]any{}, "task": "do", "limits": map[string]any{"tokens": 10}},
			map[string]any{"name": "c", "inline": map[string]any{}, "task": "do"},
			map[string]any{"name": "d", "inline": map[string]any{}, "task": "do"},
		},
	})
	if !ok {
		t.Fatal("the workflow is not good")
	}
	x := newWorld(t, w, 0)
	s := x.fold()
	type promise struct {
		Node          string
		Steps, Tokens int
		CostUSD       float64
	}
	begin := func() (list []promise) {
		for _, b := range s.Next(x.now).Begin {
			list = append(list, promise{b.Node, b.Budget.Steps, b.Budget.Tokens, b.Budget.CostUSD})
			x.append(s, b)
		}
		return list
	}
	if d := gocmp.Diff([]promise{{"a", 1, 45, 0.333333334}, {"b", 1, 10, 0.333333333}, {"c", 1, 45, 0.333333333}}, begin()); d != "" {
		t.Errorf("at first:\n%s", d)
	}
	if list := begin(); list != nil {
		t.Errorf("when all is promised: %+v", list)
	}
	spent := thread.Spent{Steps: 0, Usage: llm.Usage{Input: 5}, CostUSD: 0.033333333}
	x.append(s, thread.NodeEnded{Attempt: s.Attempts[0].Attempt, State: thread.RunSucceeded, Result: json.RawMessage(`"x"`), Spent: spent})
	if d := gocmp.Diff([]promise{{"d", 1, 40, 0.300000001}}, begin()); d != "" {
		t.Errorf("when one has left some:\n%s", d)
	}
}
