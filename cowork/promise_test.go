package cowork_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/thread"
)

// play is a run of a workflow whose attempts end as the test says, by a clock of its own.
type play struct {
	t   testing.TB
	s   *cowork.State
	now time.Time
}

// failure is what an attempt comes to that fails, by its reason.
type failure string

func began(t testing.TB, text string, input any) *play {
	t.Helper()
	w, err := cowork.Parse("w.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p := &play{t: t, s: cowork.NewState(w), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	raw, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	p.apply(thread.Opened{Name: w.Name})
	p.apply(thread.WorkflowStarted{Name: w.Name, Input: raw})
	return p
}

func (p *play) apply(body thread.Body) {
	p.t.Helper()
	if err := p.s.Apply(thread.Event{Seq: p.s.Seq + 1, At: p.now, Body: body}); err != nil {
		p.t.Fatal(err)
	}
}

// begin writes down what can begin now, and returns the labels of it.
func (p *play) begin() (labels []string) {
	p.t.Helper()
	for _, b := range p.s.Next(p.now).Begin {
		p.apply(b)
		labels = append(labels, cowork.Label(b.Attempt))
	}
	return labels
}

// attempt finds the one of a label.
func (p *play) attempt(label string) *cowork.Attempt {
	p.t.Helper()
	for _, a := range p.s.Attempts {
		if cowork.Label(a.Attempt) == label {
			return a
		}
	}
	p.t.Fatalf("%s did not begin", label)
	return nil
}

// end ends an attempt: with a failure, an event made by the test, or a result.
func (p *play) end(label string, came any) {
	p.t.Helper()
	e := thread.NodeEnded{State: thread.RunSucceeded, Thread: "thr_b"}
	switch c := came.(type) {
	case failure:
		e.State, e.Reason, e.Text = thread.RunFailed, string(c), "as the test says"
	case thread.NodeEnded:
		e = c
	default:
		e.Result, _ = json.Marshal(c)
	}
	a := p.attempt(label)
	e.Attempt = a.Attempt
	if e.Artifacts != nil {
		e.Conflicts = p.s.Conflicts(a, e.Artifacts)
	}
	p.apply(e)
}

// left are an event's files, by path and content.
func left(files map[string]string) thread.NodeEnded {
	e := thread.NodeEnded{State: thread.RunSucceeded, Thread: "thr_b", Result: json.RawMessage(`"done"`)}
	for path, content := range files {
		e.Artifacts = append(e.Artifacts, thread.Artifact{Path: path, Blob: "sha-" + content, Bytes: len(content)})
	}
	return e
}

// through brings the run to its end, each attempt to what came says of its label. Where
// nothing is to be done, the clock goes on to when there is.
func (p *play) through(came func(label string) any) *thread.WorkflowEnded {
	p.t.Helper()
	for range 20_000 {
		todo := p.s.Next(p.now)
		switch {
		case todo.End != nil:
			p.apply(*todo.End)
			return todo.End
		case len(todo.Begin) > 0:
			p.begin()
		case len(todo.Running) > 0:
			label := cowork.Label(todo.Running[0].Attempt)
			p.end(label, came(label))
		case todo.Wake.After(p.now):
			p.now = todo.Wake
		default:
			p.t.Fatalf("nothing is to be done, and it has not ended: %+v", todo)
		}
	}
	p.t.Fatal("it does not end")
	return nil
}

func (p *play) labels() (list []string) {
	for _, a := range p.s.Attempts {
		list = append(list, cowork.Label(a.Attempt))
	}
	return list
}

func (p *play) status(node string) string {
	for _, n := range p.s.View().Nodes {
		if n.Name == node {
			return n.Status
		}
	}
	return "there is none"
}

// yes answers each attempt.
func yes(string) any { return "yes" }

// A condition holds or does not, by what a node answered: each test, on what it asks for, on
// what is not there, and on a value of another type.
func TestCondition_asksOneThing(t *testing.T) {
	const result = `{"n": 3, "big": 9007199254740993, "half": 0.5, "text": "three", "yes": true, "nothing": null, "list": [1, "two", {"deep": 4}], "empty": ""}`
	for test, holds := range map[string]bool{
		"status: succeeded":                                true,
		"status: failed":                                   false,
		"status: skipped":                                  false,
		"path: n, exists: true":                            true,
		"path: n, exists: false":                           false,
		"path: nothing, exists: true":                      false,
		"path: nothing, exists: false":                     true,
		"path: none, exists: true":                         false,
		"path: none, exists: false":                        true,
		"path: empty, exists: true":                        true,
		"path: n.below, exists: true":                      false,
		"path: list.2.deep, equals: 4":                     true,
		"path: list.3, exists: true":                       false,
		"path: list.-1, exists: true":                      false,
		"path: list.first, exists: true":                   false,
		"path: list.1, equals: two":                        true,
		"path: n, equals: 3":                               true,
		"path: n, equals: 3.0":                             true,
		"path: n, equals: '3'":                             false,
		"path: n, equals: 4":                               false,
		"path: half, equals: 0.5":                          true,
		"path: text, equals: three":                        true,
		"path: text, equals: Three":                        false,
		"path: yes, equals: true":                          true,
		"path: yes, equals: false":                         false,
		"path: yes, equals: 'true'":                        false,
		"path: empty, equals: ''":                          true,
		"path: none, equals: ''":                           false,
		"path: none, equals: false":                        false,
		"path: none, equals: 0":                            false,
		"path: list, equals: 1":                            false,
		"path: text, in: [one, three]":                     true,
		"path: text, in: [one, two]":                       false,
		"path: n, in: ['3', 4]":                            false,
		"path: n, in: [1, 3]":                              true,
		"path: none, in: ['', 0, false]":                   false,
		"path: n, greater_than: 2":                         true,
		"path: n, greater_than: 3":                         false,
		"path: n, greater_than: -1.5":                      true,
		"path: text, greater_than: 0":                      false,
		"path: yes, greater_than: 0":                       false,
		"path: none, greater_than: -1":                     false,
		"path: big, greater_than: 9007199254740000":        true,
		"path: n, less_than: 4":                            true,
		"path: n, less_than: 3":                            false,
		"path: none, less_than: 4":                         false,
		"path: text, less_than: 4":                         false,
		"all: n equals 3, yes equals true":                 true,
		"all: n equals 3, yes equals false":                false,
		"any: n equals 4, yes equals true":                 true,
		"any: n equals 4, yes equals false, none equals 1": false,
	} {
		when := "{node: a, " + test + "}"
		if kind, list, several := strings.Cut(test, ": "); several && (kind == "all" || kind == "any") {
			var tests []string
			for one := range strings.SplitSeq(list, ", ") {
				path, want, _ := strings.Cut(one, " equals ")
				tests = append(tests, "{node: a, path: "+path+", equals: "+want+"}")
			}
			when = "{" + kind + ": [" + strings.Join(tests, ", ") + "]}"
		}
		p := began(t, "topology: graph\nstart: [a]\nnodes:\n  - {name: a, agent: x, task: t, on_failure: continue, result: {type: object}}\n  - {name: b, agent: x, task: t}\n  - {name: c, agent: x, task: t}\n"+
			"edges:\n  - {from: a, to: b, when: "+when+"}\n  - {from: a, to: c}\n", nil)
		p.through(func(string) any { return json.RawMessage(result) })
		want := cowork.Skipped
		if holds {
			want = cowork.Succeeded
		}
		if got := p.status("b"); got != want {
			t.Errorf("%s: what follows is %s", test, got)
		}
	}
}

// A condition can ask for a failure, and for what was skipped.
func TestCondition_asksHowANodeEnded(t *testing.T) {
	p := began(t, `topology: graph
start: [a]
nodes:
  - {name: a, agent: x, task: t, on_failure: continue, result: {type: object}}
  - {name: good, agent: x, task: t}
  - {name: bad, agent: x, task: t}
  - {name: last, agent: x, task: t}
  - {name: never, agent: x, task: t}
edges:
  - {from: a, to: good, when: {node: a, status: succeeded}}
  - {from: a, to: bad, when: {node: a, status: failed}}
  - {from: bad, to: last, when: {node: a, path: anything, exists: false}}
  - {from: good, to: never}
`, nil)
	end := p.through(func(label string) any {
		if label == "a" {
			return failure("model")
		}
		return "done"
	})
	if got := p.labels(); !slices.Equal(got, []string{"a", "bad", "last"}) || end.State != thread.RunSucceeded {
		t.Errorf("done was %q: %+v", got, end)
	}
	// What lies behind a node that was skipped is skipped too.
	if p.status("a") != cowork.Failed || p.status("good") != cowork.Skipped || p.status("never") != cowork.Skipped {
		t.Errorf("%+v", p.s.View())
	}
}

// Work goes from hand to hand: the one that has it says who goes on.
func TestGraph_handsOverByWhatANodeAnswers(t *testing.T) {
	const desk = `topology: graph
start: [front]
nodes:
  - {name: front, agent: x, task: t, input: {said: {node: back}}, result: {type: object, properties: {to: {type: string, enum: [billing, support, nowhere]}}}}
  - {name: billing, agent: x, task: t}
  - {name: support, agent: x, task: t}
  - {name: back, agent: x, task: t, result: {type: object, properties: {again: {type: boolean}}}}
edges:
  - {from: front, to: billing, when: {node: front, path: to, equals: billing}}
  - {from: front, to: support, when: {node: front, path: to, equals: support}}
  - {from: front, to: back, when: {node: front, path: to, equals: nowhere}}
  - {from: billing, to: back}
  - {from: support, to: back}
loops:
  - {from: back, to: front, max: 3, when: {node: back, path: again, equals: true}}
`
	p := began(t, desk, nil)
	p.through(func(label string) any {
		return map[string]any{
			"front": map[string]any{"to": "billing"}, "back": map[string]any{"again": true}, "front#2": map[string]any{"to": "support"},
			"billing": "paid", "support#2": "helped", "back#2": map[string]any{"again": false},
		}[label]
	})
	// support#1 was skipped, so it was begun for the first time in the second round.
	if got := p.labels(); !slices.Equal(got, []string{"front", "billing", "back", "front#2", "support#2", "back#2"}) {
		t.Errorf("it went %q", got)
	}
	if p.status("billing") != cowork.Skipped {
		t.Errorf("of the round before there is left: %+v", p.s.View())
	}
}

// A loop goes back as often as it may and no more; what comes then is decided by exhausted.
func TestLoop_endsAtItsBound(t *testing.T) {
	const loop = `topology: sequential
nodes:
  - {name: a, agent: x, task: t}
  - {name: b, agent: x, task: t, result: {type: object, properties: {ok: {type: boolean}}}}
  - {name: c, agent: x, task: t}
loops: [{from: b, to: a, max: 3, when: {node: b, path: ok, equals: false}%s}]
`
	for exhausted, want := range map[string]string{
		"":                      "failed exhausted",
		", exhausted: stop":     "failed exhausted",
		", exhausted: continue": "succeeded done",
	} {
		p := began(t, fmt.Sprintf(loop, exhausted), nil)
		end := p.through(func(string) any { return map[string]any{"ok": false} })
		times := 0
		for _, label := range p.labels() {
			if strings.HasPrefix(label, "b") {
				times++
			}
		}
		if got := string(end.State) + " " + end.Reason; got != want || times != 4 {
			t.Errorf("%q: %s after %d times: %s", exhausted, got, times, end.Text)
		}
		if end.Reason == "exhausted" && !strings.Contains(end.Text, "a was done 4 times") {
			t.Errorf("it says %q", end.Text)
		}
	}
}

// list is a run that works on a list.
const list = `topology: sequential
parallel_max: 64
input: {type: object, properties: {list: {}}}
nodes:
  - {name: a, agent: x, task: t, each: {input: list, max: 1000, parallel_max: 64}, input: {it: {item: ''}}%s}
  - {name: b, agent: x, task: t, input: {all: {node: a}}}
`

// A node works once for each element: of none, of one, of a thousand. The result is the list
// of the results, in the order of the elements.
func TestEach_worksOnAListOfAnyLength(t *testing.T) {
	for _, n := range []int{0, 1, 2, 1000} {
		var elements []int
		for i := range n {
			elements = append(elements, i)
		}
		p := began(t, fmt.Sprintf(list, ""), map[string]any{"list": append([]int{}, elements...)})
		most := 0
		end := p.through(func(label string) any {
			most = max(most, len(p.s.Next(p.now).Running))
			a := p.attempt(label)
			if a.Node == "b" {
				return "end"
			}
			var given struct{ It int }
			if err := json.Unmarshal(a.Input, &given); err != nil || given.It != a.Item {
				t.Fatalf("the element %d is given %s", a.Item, a.Input)
			}
			return 2 * given.It
		})
		last := p.attempt("b")
		var given struct{ All []int }
		if err := json.Unmarshal(last.Input, &given); err != nil || len(given.All) != n || given.All == nil {
			t.Errorf("of %d elements, what follows is given %s", n, last.Input)
		}
		for i, v := range given.All {
			if v != 2*i {
				t.Fatalf("the result of the element %d is %d", i, v)
			}
		}
		if end.State != thread.RunSucceeded || len(p.s.Attempts) != n+1 || most > 64 || n >= 64 && most < 64 {
			t.Errorf("%d elements: %+v, %d attempts, %d at once", n, end, len(p.s.Attempts), most)
		}
	}
}

// What is no list, and a list that is too long, fails before an element is begun.
func TestEach_refusesWhatIsNoList(t *testing.T) {
	for name, c := range map[string]struct {
		input any
		says  string
	}{
		"nothing":  {map[string]any{}, "no list"},
		"null":     {map[string]any{"list": nil}, "no list"},
		"a text":   {map[string]any{"list": "abc"}, "no list"},
		"a map":    {map[string]any{"list": map[string]any{"0": 1}}, "no list"},
		"too long": {map[string]any{"list": make([]int, 1001)}, "1001 elements, at most 1000"},
	} {
		p := began(t, fmt.Sprintf(list, ""), c.input)
		if end := p.through(yes); end.State != thread.RunFailed || end.Reason != cowork.ReasonInput || !strings.Contains(end.Text, c.says) || len(p.s.Attempts) != 0 {
			t.Errorf("%s: %+v, %q", name, end, p.labels())
		}
		p = began(t, fmt.Sprintf(list, ", on_failure: continue"), c.input)
		if end := p.through(yes); end.State != thread.RunSucceeded || p.status("a") != cowork.Failed || !slices.Equal(p.labels(), []string{"b"}) {
			t.Errorf("%s, and it goes on: %+v, %q", name, end, p.labels())
		}
	}
}

// An element that fails is null in the list, and the others are done all the same.
func TestEach_goesOnWithoutTheElementThatFailed(t *testing.T) {
	p := began(t, fmt.Sprintf(list, ", on_failure: continue"), map[string]any{"list": []int{1, 2, 3}})
	p.through(func(label string) any {
		if label == "a[1]" {
			return failure("model")
		}
		return label
	})
	if got := string(p.attempt("b").Input); got != `{"all":["a",null,"a[2]"]}` || p.status("a") != cowork.Failed {
		t.Errorf("what follows is given %s", got)
	}
	p = began(t, fmt.Sprintf(list, ""), map[string]any{"list": []int{1, 2, 3}})
	end := p.through(func(label string) any {
		if label == "a[1]" {
			return failure("model")
		}
		return label
	})
	if end.State != thread.RunFailed || end.Reason != cowork.ReasonNode || !strings.Contains(end.Text, "a[1] failed (model)") {
		t.Errorf("%+v", end)
	}
}

// A second time around a loop, a list that cannot be had leaves nothing of the first time.
func TestEach_forgetsTheFilesOfTheTimeBefore(t *testing.T) {
	p := began(t, `topology: sequential
nodes:
  - {name: a, agent: x, task: t, result: {type: object}}
  - {name: b, agent: x, task: t, each: {node: a, path: list}, artifacts: [f], on_failure: continue}
  - {name: c, agent: x, task: t, input: {f: {node: b, artifact: f}}, result: {type: object}}
loops: [{from: c, to: a, max: 1, when: {node: c, path: again, equals: true}}]
`, nil)
	p.through(func(label string) any {
		switch label {
		case "a":
			return map[string]any{"list": []int{1}}
		case "b":
			return left(map[string]string{"f": "one"})
		case "c":
			return map[string]any{"again": true}
		}
		return map[string]any{}
	})
	if got := p.attempt("c"); len(got.Files) != 1 || !strings.Contains(string(got.Input), ".blackboard/b/0/f") {
		t.Errorf("the first time it is given %s, %+v", got.Input, got.Files)
	}
	if got := p.attempt("c#2"); len(got.Files) != 0 || string(got.Input) != "{}" {
		t.Errorf("the second time it is given %s, %+v", got.Input, got.Files)
	}
}

// Waits before further attempts double, and are times in the log: a server that begins anew
// waits for the same moment.
func TestRetries_waitLongerEachTimeAndOverARestart(t *testing.T) {
	const text = "topology: sequential\nnodes: [{name: a, agent: x, task: t, retries: {max: 3, wait: 10s}}]\n"
	p := began(t, text, nil)
	for i, wait := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		p.begin()
		p.end(strings.TrimSuffix(fmt.Sprintf("a!%d", i+1), "!1"), failure("model"))
		failed := p.now
		for _, s := range []*cowork.State{p.s, p.replayed(text)} {
			for _, early := range []time.Duration{0, wait / 2, wait - 1} {
				if todo := s.Next(failed.Add(early)); len(todo.Begin) != 0 || !todo.Wake.Equal(failed.Add(wait)) || todo.End != nil {
					t.Errorf("%v after failure %d: %+v", early, i+1, todo)
				}
			}
			if todo := s.Next(failed.Add(wait)); len(todo.Begin) != 1 || todo.Begin[0].Number != i+2 {
				t.Errorf("after failure %d: %+v", i+1, todo)
			}
		}
		p.now = failed.Add(wait)
	}
	p.begin()
	p.end("a!4", failure("model"))
	if end := p.through(yes); end.State != thread.RunFailed || len(p.s.Attempts) != 4 {
		t.Errorf("%+v", end)
	}
}

// replayed is the state of the same events, as another server folds it.
func (p *play) replayed(text string) *cowork.State {
	p.t.Helper()
	q := began(p.t, text, nil)
	for _, a := range p.s.Attempts {
		q.now = a.At
		q.apply(a.NodeStarted)
		if a.Ended != nil {
			q.now = a.EndedAt
			q.apply(*a.Ended)
		}
	}
	return q.s
}

// An attempt that takes too long is late at its deadline, which is a time in the log.
func TestTimeout_isATimeInTheLog(t *testing.T) {
	const text = "topology: sequential\nnodes: [{name: a, agent: x, task: t, timeout: 1m, retries: {max: 1}}]\n"
	p := began(t, text, nil)
	p.begin()
	at := p.now.Add(time.Minute)
	for _, s := range []*cowork.State{p.s, p.replayed(text)} {
		if todo := s.Next(at.Add(-1)); len(todo.Late) != 0 || !todo.Wake.Equal(at) {
			t.Errorf("before: %+v", todo)
		}
		if todo := s.Next(at); len(todo.Late) != 1 || todo.End != nil {
			t.Errorf("then: %+v", todo)
		}
	}
	p.now = at
	p.end("a", thread.NodeEnded{State: thread.RunTimedOut, Reason: cowork.ReasonTimeout})
	if end := p.through(yes); end.State != thread.RunSucceeded || !slices.Equal(p.labels(), []string{"a", "a!2"}) {
		t.Errorf("it is tried again: %+v %q", end, p.labels())
	}
}

// The workflow's own time is over though a node still works; waiting for a person is not
// counted.
func TestLimits_wallIsTimeThatAgentsTake(t *testing.T) {
	const text = `topology: sequential
limits: {wall: 10m}
nodes:
  - {name: a, agent: x, task: t}
  - {name: ask, human: {ask: q}}
  - {name: b, agent: x, task: t}
`
	p := began(t, text, nil)
	p.begin()
	p.now = p.now.Add(4 * time.Minute)
	p.end("a", "done")
	p.begin()
	p.now = p.now.Add(72 * time.Hour) // it waits for a person
	if todo := p.s.Next(p.now); todo.End != nil || len(todo.Begin) != 0 {
		t.Fatalf("while a person is asked: %+v", todo)
	}
	said, err := p.s.Answer("ask", "approve", "", "anna")
	if err != nil {
		t.Fatal(err)
	}
	p.apply(said)
	p.begin()
	if b := p.attempt("b").Budget; b.Wall != 6*time.Minute {
		t.Errorf("what is left of the time: %v", b.Wall)
	}
	if todo := p.s.Next(p.now); !todo.Wake.Equal(p.now.Add(6 * time.Minute)) {
		t.Errorf("it looks again at %v", todo.Wake)
	}
	p.now = p.now.Add(6 * time.Minute)
	if todo := p.s.Next(p.now); !todo.Stop || todo.End != nil {
		t.Fatalf("it is to stop what works: %+v", todo)
	}
	stopped := func(string) any {
		return thread.NodeEnded{State: thread.RunCancelled, Reason: cowork.ReasonCancelled}
	}
	if end := p.through(stopped); end.State != thread.RunTimedOut || end.Reason != cowork.ReasonWall {
		t.Errorf("%+v", end)
	}
}

// What works while others use up all there is is stopped if more would have to begin, and the
// workflow says that it was its limits.
func TestLimits_sayWhyTheyEndTheWorkflow(t *testing.T) {
	const two = `topology: graph
limits: {steps: 10}
start: [a, b]
nodes:
  - {name: a, agent: x, task: t}
  - {name: b, agent: x, task: t}
`
	all := thread.NodeEnded{State: thread.RunSucceeded, Result: json.RawMessage(`1`), Spent: thread.Spent{Steps: 10}}
	p := began(t, two, nil) // nothing more has to begin
	p.begin()
	p.end("a", all)
	if todo := p.s.Next(p.now); todo.Stop {
		t.Errorf("what works is stopped: %+v", todo)
	}
	if end := p.through(yes); end.State != thread.RunSucceeded {
		t.Errorf("what worked already may go on: %+v", end)
	}
	p = began(t, two+"  - {name: c, agent: x, task: t}\nedges: [{from: a, to: c}]\n", nil)
	p.begin()
	p.end("a", all)
	if todo := p.s.Next(p.now); !todo.Stop || len(todo.Running) != 1 || todo.End != nil {
		t.Fatalf("%+v", todo)
	}
	p.end("b", thread.NodeEnded{State: thread.RunCancelled, Reason: cowork.ReasonCancelled})
	if end := p.through(yes); end.State != thread.RunFailed || end.Reason != cowork.ReasonSteps {
		t.Errorf("%+v", end)
	}
}

// Each attempt is given what is left of the workflow's limits, or its node's if that is less;
// when all is used, nothing more is begun.
func TestLimits_areSharedByTheNodes(t *testing.T) {
	const text = `topology: sequential
limits: {steps: 10, tokens: 1000, cost_usd: 1}
nodes:
  - {name: a, agent: x, task: t, limits: {steps: 4}}
  - {name: b, agent: x, task: t, limits: {steps: 50, tokens: 2000}}
  - {name: c, agent: x, task: t}
`
	spent := func(steps, tokens int, cost float64) thread.NodeEnded {
		e := thread.NodeEnded{State: thread.RunSucceeded, Result: json.RawMessage(`1`), Spent: thread.Spent{Steps: steps, CostUSD: cost}}
		e.Spent.Usage.Input = tokens
		return e
	}
	p := began(t, text, nil)
	p.begin()
	if d := cmp.Diff(thread.Budget{Steps: 4, Tokens: 1000, CostUSD: 1}, p.attempt("a").Budget); d != "" {
		t.Error(d)
	}
	p.end("a", spent(4, 300, 0.25))
	p.begin()
	if d := cmp.Diff(thread.Budget{Steps: 6, Tokens: 700, CostUSD: 0.75}, p.attempt("b").Budget); d != "" {
		t.Error(d)
	}
	for reason, used := range map[string]thread.NodeEnded{
		cowork.ReasonSteps:  spent(6, 0, 0),
		cowork.ReasonTokens: spent(1, 700, 0),
		cowork.ReasonCost:   spent(1, 0, 0.75),
	} {
		q := began(t, text, nil)
		q.begin()
		q.end("a", spent(4, 300, 0.25))
		q.begin()
		q.end("b", used)
		if end := q.through(yes); end.State != thread.RunFailed || end.Reason != reason || !slices.Equal(q.labels(), []string{"a", "b"}) {
			t.Errorf("%s: %+v, %q", reason, end, q.labels())
		}
	}
	// A failed attempt's use counts too; and the last node may use up all there is.
	p.end("b", spent(5, 0, 0))
	p.begin()
	if b := p.attempt("c").Budget; b.Steps != 1 {
		t.Errorf("%+v", b)
	}
	p.end("c", spent(1, 0, 0))
	if end := p.through(yes); end.State != thread.RunSucceeded {
		t.Errorf("%+v", end)
	}
}

// A person answers, refuses, or does not answer in time.
func TestHuman_answersRefusesOrIsTooLate(t *testing.T) {
	const text = `topology: graph
start: [ask]
nodes:
  - {name: ask, human: {ask: Good?}, timeout: 1h%s}
  - {name: on, agent: x, task: t, input: {said: {node: ask}}}
  - {name: off, agent: x, task: t}
  - {name: late, agent: x, task: t}
edges:
  - {from: ask, to: on, when: {node: ask, path: choice, equals: approve}}
  - {from: ask, to: off, when: {node: ask, path: choice, equals: reject}}
  - {from: ask, to: late, when: {node: ask, path: choice, exists: false}}
`
	for choice, want := range map[string]string{"approve": "on", "reject": "off"} {
		p := began(t, fmt.Sprintf(text, ""), nil)
		p.begin()
		if _, err := p.s.Answer("ask", "Approve", "", ""); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), "approve, reject") {
			t.Errorf("another choice: %v", err)
		}
		if _, err := p.s.Answer("on", "approve", "", ""); !errs.Is(err, errs.NotFound) {
			t.Errorf("a node that asks nothing: %v", err)
		}
		if _, err := p.s.Answer("nobody", "approve", "", ""); !errs.Is(err, errs.NotFound) {
			t.Errorf("no node: %v", err)
		}
		if _, err := p.s.Answer("ask", "approve", strings.Repeat("x", thread.InlineBytesMax+1), ""); !errs.Is(err, errs.Limit) {
			t.Errorf("a long text: %v", err)
		}
		said, err := p.s.Answer("ask", choice, "Because.", "anna")
		if err != nil {
			t.Fatal(err)
		}
		p.apply(said)
		if _, err := p.s.Answer("ask", choice, "", "bert"); !errs.Is(err, errs.NotFound) {
			t.Errorf("a second answer: %v", err)
		}
		p.through(yes)
		if got := p.labels(); !slices.Equal(got, []string{"ask", want}) {
			t.Errorf("%s: %q", choice, got)
		}
		if choice == "approve" && string(p.attempt("on").Input) != `{"said":{"choice":"approve","text":"Because."}}` {
			t.Errorf("what follows is given %s", p.attempt("on").Input)
		}
	}
	for keys, want := range map[string]string{"": "failed node", ", on_failure: continue": "succeeded done"} {
		p := began(t, fmt.Sprintf(text, keys), nil)
		p.begin()
		p.now = p.now.Add(time.Hour)
		if late := p.s.Next(p.now).Late; len(late) != 1 || late[0].Node != "ask" {
			t.Fatalf("%+v", late)
		}
		p.end("ask", thread.NodeEnded{State: thread.RunTimedOut, Reason: cowork.ReasonTimeout})
		end := p.through(yes)
		if got := string(end.State) + " " + end.Reason; got != want || keys != "" && !slices.Equal(p.labels(), []string{"ask", "late"}) {
			t.Errorf("%q: %s, %q", keys, got, p.labels())
		}
	}
}

// Two at once that leave one file with other content: the one that ends later is told, and so
// is their supervisor, who gets both. The same content is no conflict, and no machine of its
// own has one.
func TestConflicts_areToldToTheSupervisor(t *testing.T) {
	const text = `topology: supervisor-worker
nodes:
  - {name: lead, agent: x, task: t, workers: [one, two]}
  - {name: one, agent: x, artifacts: [f, g], sandbox: %[1]s}
  - {name: two, agent: x, artifacts: [f, g], sandbox: %[1]s}
`
	delegate := map[string]any{"done": false, "delegate": map[string]any{"one": []string{"a"}, "two": []string{"b"}}}
	for sandbox, want := range map[string]int{"fork": 1, "shared": 1, "own": 0} {
		p := began(t, fmt.Sprintf(text, sandbox), nil)
		p.begin()
		p.end("lead", delegate)
		if got := p.begin(); !slices.Equal(got, []string{"one", "two"}) {
			t.Fatalf("they work at once: %q", got)
		}
		p.end("one", left(map[string]string{"f": "mine", "g": "same"}))
		p.end("two", left(map[string]string{"f": "theirs", "g": "same"}))
		if got := p.attempt("two").Ended.Conflicts; len(got) != want || want == 1 && (got[0].Path != "f" || got[0].With.Node != "one" || got[0].Ours != "sha-theirs" || got[0].Other != "sha-mine") {
			t.Errorf("%s: %+v", sandbox, got)
		}
		p.begin()
		lead := p.attempt("lead#2")
		var given struct {
			Conflicts []struct {
				File    string
				Written string `json:"written_by"`
				And     string `json:"and_by"`
			}
		}
		if err := json.Unmarshal(lead.Input, &given); err != nil || len(given.Conflicts) != want {
			t.Errorf("%s: the supervisor is given %s", sandbox, lead.Input)
			continue
		}
		if want == 0 {
			continue
		}
		if c := given.Conflicts[0]; c.File != "f" || c.Written != "two" || c.And != "one" {
			t.Errorf("%s: %+v", sandbox, c)
		}
		var paths []string
		for _, f := range lead.Files {
			paths = append(paths, f.Path+" "+f.Blob)
		}
		slices.Sort(paths)
		if want := []string{".blackboard/one/0/f sha-mine", ".blackboard/two/0/f sha-theirs"}; !slices.Equal(paths, want) {
			t.Errorf("%s: it finds %q", sandbox, paths)
		}
		// In the next round nothing was written twice, so nothing is told.
		p.end("lead#2", map[string]any{"done": false, "delegate": map[string]any{"one": []string{"c"}}})
		p.begin()
		p.end("one#2", left(map[string]string{"f": "mended", "g": "same"}))
		p.begin()
		if got := p.attempt("lead#3"); strings.Contains(string(got.Input), "conflicts") {
			t.Errorf("%s: later it is given %s", sandbox, got.Input)
		}
	}
}

// A cancel ends what works, and begins nothing more, wherever in a tree it is.
func TestCancel_stopsTheWholeTree(t *testing.T) {
	p := began(t, `topology: hierarchical
nodes:
  - {name: top, agent: x, task: t, workers: [mid, low]}
  - {name: mid, agent: x, workers: [hand]}
  - {name: low, agent: x, retries: {max: 3}}
  - {name: hand, agent: x}
`, nil)
	p.begin()
	p.end("top", map[string]any{"done": false, "delegate": map[string]any{"mid": []string{"a"}, "low": []string{"b", "c"}}})
	p.begin()
	p.end("mid", map[string]any{"done": false, "delegate": map[string]any{"hand": []string{"d"}}})
	p.begin()
	p.apply(thread.WorkflowCancelled{By: "anna", Reason: "enough"})
	todo := p.s.Next(p.now)
	if !todo.Stop || len(todo.Running) != 3 || len(todo.Begin) != 0 || todo.End != nil {
		t.Fatalf("%+v", todo)
	}
	end := p.through(func(string) any { return thread.NodeEnded{State: thread.RunCancelled} })
	if end.State != thread.RunCancelled || end.Text != "enough" || len(p.s.Attempts) != 5 {
		t.Errorf("%+v, %q", end, p.labels())
	}
}

// A thousand nodes with two thousand conditions and loops run to their end.
func TestState_takesAThousandNodes(t *testing.T) {
	w, err := cowork.Parse("w.yaml", many(1000))
	if err != nil {
		t.Fatal(err)
	}
	p := &play{t: t, s: cowork.NewState(w), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	p.apply(thread.Opened{Name: w.Name})
	p.apply(thread.WorkflowStarted{Name: w.Name})
	patience.Within(t, 5*time.Second, "a thousand nodes", func() {
		end := p.through(func(string) any { return map[string]any{"ok": true} })
		if end.State != thread.RunSucceeded || len(p.s.Attempts) != 1000 {
			t.Errorf("%+v after %d attempts", end, len(p.s.Attempts))
		}
	})
}
