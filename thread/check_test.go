package thread_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

const (
	run1 = thread.RunID("run_aaaaaaaaaaaaaaaaaaaa")
	run2 = thread.RunID("run_bbbbbbbbbbbbbbbbbbbb")
)

// body pairs a body with the run that its event is of.
type body struct {
	run  thread.RunID
	body thread.Body
}

func in(run thread.RunID, bodies ...thread.Body) (bs []body) {
	for _, b := range bodies {
		bs = append(bs, body{run, b})
	}
	return bs
}

func log(parts ...[]body) (events []thread.Event) {
	for _, b := range slices.Concat(parts...) {
		events = append(events, thread.Event{Seq: uint64(len(events)) + 1, Run: b.run, Body: b.body})
	}
	return events
}

func answer(through uint64, calls ...string) thread.ModelCompleted {
	m := llm.Assistant(llm.Text("so"))
	for _, id := range calls {
		m.Blocks = append(m.Blocks, llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: id, Name: "t", Args: json.RawMessage(`{}`)}})
	}
	return thread.ModelCompleted{Message: m, Through: through}
}

func started(call string) thread.ToolStarted { return thread.ToolStarted{Call: call, Key: "k." + call} }
func done(call string) thread.ToolCompleted  { return thread.ToolCompleted{Call: call} }
func asked(call string) thread.ApprovalAsked {
	return thread.ApprovalAsked{Call: call, Allowed: []thread.Decision{thread.Approve, thread.Reject, thread.Respond}}
}

func decided(call string, d thread.Decision) thread.ApprovalDecided {
	return thread.ApprovalDecided{Call: call, Decision: d, By: "me"}
}

func failed(call string) thread.ToolCompleted {
	return thread.ToolCompleted{Call: call, Failed: true, Code: "interrupted"}
}

var (
	opened = in("", thread.Opened{Agent: json.RawMessage(`{}`)})
	// head is five events: a run with an input, claimed, with its context.
	head  = slices.Concat(opened, in(run1, thread.RunStarted{}, thread.Input{From: "user"}, thread.Claimed{Node: "n", Term: 1}, thread.Context{}))
	ended = in(run1, thread.RunEnded{State: thread.RunSucceeded})
	fork  = in("", thread.Opened{Fork: &thread.Fork{Thread: thread.ID("thr_aaaaaaaaaaaaaaaaaaaa"), Seq: 7}})
)

func TestCheck_wellFormed(t *testing.T) {
	exit := 0
	for name, events := range map[string][]thread.Event{
		"nothing":                             nil,
		"only opened":                         log(opened),
		"a whole run":                         log(head, in(run1, answer(5, "a", "b"), started("a"), started("b"), done("b"), done("a"), answer(10)), ended),
		"two runs":                            log(head, in(run1, answer(5)), ended, in(run2, thread.RunStarted{}, thread.Input{}, answer(9), thread.RunEnded{State: thread.RunFailed})),
		"events before a run are in its name": log(in(run1, thread.Opened{}, thread.Bound{Machine: "m"}, thread.RunStarted{})),
		"others write at any time": log(head, in("", thread.Input{}, thread.PolicyChanged{}), in(run1, answer(5, "a")), in("", thread.Input{}),
			in(run1, started("a")), in(run1, thread.CancelAsked{}, thread.BudgetChanged{}), in(run1, done("a")), in("", thread.Input{}), ended, in("", thread.Input{}, thread.CancelAsked{})),
		"unknown kinds anywhere":                     log(opened, in("", thread.Unknown{Name: "x", V: 9}), in(run1, thread.RunStarted{}, thread.Unknown{Name: "y", V: 1}, answer(3))),
		"started again after a claim":                log(head, in(run1, answer(5, "a"), started("a"), thread.Claimed{Node: "m", Term: 2}, started("a"), done("a"))),
		"refused, and planned away, without a start": log(head, in(run1, answer(5, "a", "b"), failed("a"), done("b"), answer(8))),
		"approved":                log(head, in(run1, answer(5, "a", "b"), asked("a"), started("b"), done("b"), decided("a", thread.Approve), started("a"), thread.ToolCompleted{Call: "a", Exit: &exit})),
		"answered":                log(head, in(run1, answer(5, "a"), asked("a"), decided("a", thread.Respond), done("a"))),
		"rejected":                log(head, in(run1, answer(5, "a"), asked("a"), decided("a", thread.Reject), failed("a"))),
		"expired":                 log(head, in(run1, answer(5, "a"), thread.ApprovalAsked{Call: "a", Allowed: []thread.Decision{thread.Approve}}, thread.ApprovalDecided{Call: "a", Decision: thread.Reject, By: "expiry"}, failed("a"))),
		"cancelled while waiting": log(head, in(run1, answer(5, "a"), asked("a"), failed("a"), thread.RunEnded{State: thread.RunCancelled})),
		"compacted and cleared":   log(head, in(run1, answer(5, "a"), started("a"), done("a"), answer(8, "b"), started("b"), done("b"), thread.Cleared{Calls: []string{"a"}}, thread.Compacted{Through: 9, Keep: []uint64{3}}, answer(13))),
		"rewound, and on": log(head, in(run1, answer(5, "a"), started("a"), done("a"), answer(8)), ended,
			in("", thread.Rewound{To: 5}), in(run2, thread.RunStarted{}, thread.Input{}, answer(13, "c"), started("c"), done("c"))),
		"rewound into a step": log(head, in(run1, answer(5, "a"), started("a"), done("a"), answer(8)), ended,
			in("", thread.Rewound{To: 6}), in(run2, thread.RunStarted{}, answer(12))),
		"rewound twice": log(head, in(run1, answer(5), answer(6), answer(7), answer(8)), ended, in("", thread.Rewound{To: 7}, thread.Rewound{To: 6}), in(run2, thread.RunStarted{}, answer(13))),
		"a fork in the middle of a run": log(fork, head[1:], in(run1, answer(5, "a"), started("a")),
			in(run2, failed("a"), thread.RunEnded{State: thread.RunCancelled}, thread.Bound{}, thread.RunStarted{}, answer(11))),
		"a fork half copied": log(fork, head[1:]),
		"checked": log(head, in(run1, answer(5), thread.CheckStarted{Key: "k"}), in("", thread.Input{}), in(run1, thread.Claimed{Node: "m", Term: 2}, thread.CheckEnded{},
			answer(10), thread.CheckStarted{Key: "l"}, thread.CheckEnded{Passed: true}), ended),
		"a check that is never over": log(head, in(run1, answer(5), thread.CheckStarted{Key: "k"}, thread.RunEnded{State: thread.RunCancelled})),
		"a summary is asked for":     log(head, in("", thread.CompactAsked{}), in(run1, answer(5)), ended, in("", thread.CompactAsked{Focus: "x"})),
	} {
		if err := thread.Check(events); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheck_saysWhichEventBreaksWhichRule(t *testing.T) {
	exit := 1
	step := in(run1, answer(5, "a"), started("a"), done("a")) // 6, 7, 8
	gap := log(head)
	gap[3].Seq = 5
	bare := log(head)
	bare[2].Body = nil
	for _, c := range []struct {
		events []thread.Event
		want   string
	}{
		{log(head)[1:], "event 2 follows event 0: numbers have no gaps"},
		{gap, "event 5 follows event 3: numbers have no gaps"},
		{bare, "event 3: it has no body"},
		{log(in("", thread.Input{})), "event 1 (input): a thread begins with thread.opened"},
		{log(head, opened), "event 6 (thread.opened): a thread is opened once"},
		{log(in("", thread.Opened{Fork: &thread.Fork{}})), "event 1 (thread.opened): a fork names the thread and the event that it came from"},
		{log(opened, in("", thread.RunStarted{})), "event 2 (run.started): a run has an id"},
		{log(head, in(run2, thread.RunStarted{})), "event 6 (run.started): run " + string(run1) + " is still open"},
		{log(head, ended, in(run1, thread.RunStarted{})), "event 7 (run.started): run " + string(run1) + " was there before"},
		{log(opened, ended), "event 2 (run.ended): no run is open"},
		{log(head, ended, ended), "event 7 (run.ended): no run is open"},
		{log(head, in(run2, thread.RunEnded{State: thread.RunFailed})), fmt.Sprintf("event 6 (run.ended): it is of run %q, open is %q", run2, run1)},
		{log(head, in(run1, thread.RunEnded{State: thread.RunRunning})), `event 6 (run.ended): "running" is not how a run ends`},
		{log(head, in("", thread.Claimed{Node: "m", Term: 1})), "event 6 (thread.claimed): term 1 does not follow term 1"},
		{log(head, in("", thread.Claimed{Term: 2})), "event 6 (thread.claimed): a claim says whose it is"},
		{log(opened, in("", thread.CancelAsked{})), "event 2 (cancel.asked): there was no run yet"},
		{log(opened, in(run1, answer(1))), "event 2 (model.completed): no run is open"},
		{log(head, in(run2, answer(5))), fmt.Sprintf("event 6 (model.completed): it is of run %q, open is %q", run2, run1)},
		{log(head, in(run1, answer(6))), "event 6 (model.completed): its prompt went through event 6, which is not in 5 … 5"},
		{log(head, in(run1, answer(4))), "event 6 (model.completed): its prompt went through event 4, which is not in 5 … 5"},
		{log(head, step, in(run1, answer(7))), "event 9 (model.completed): its prompt went through event 7, which is not in 8 … 8"},
		{log(head, in(run1, answer(5, "a"), answer(6))), `event 7 (model.completed): call "a" of the step before has no result`},
		{log(head, in(run1, answer(5, "a", "a"))), `event 6 (model.completed): call "a" was there before`},
		{log(head, step, in(run1, answer(8, "a"))), `event 9 (model.completed): call "a" was there before`},
		{log(head, in(run1, answer(5, "a b"))), `event 6 (model.completed): "a b" is not the id of a call`},
		{log(head, in(run1, started("x"))), `event 6 (tool.started): there is no call "x"`},
		{log(head, in(run1, answer(5, "a"), thread.ToolStarted{Call: "a"})), "event 7 (tool.started): an effect has a key"},
		{log(head, in(run1, answer(5, "a"), started("a"), started("a"))), `event 8 (tool.started): call "a" was started by event 7, and the thread was not claimed since`},
		{log(head, step, in(run1, started("a"))), `event 9 (tool.started): call "a" has a result, event 8`},
		{log(head, step, in(run1, done("a"))), `event 9 (tool.completed): call "a" has a result, event 8`},
		{log(head, in(run1, answer(5, "a"), thread.ToolCompleted{Call: "a", Exit: &exit})), `event 7 (tool.completed): call "a" had an effect and was never started`},
		{log(head, in(run1, answer(5, "a"), thread.ToolCompleted{Call: "a", Files: []thread.FileChange{{Path: "/x"}}})), `event 7 (tool.completed): call "a" had an effect and was never started`},
		{log(head, in(run1, answer(5, "a"), asked("a"), started("a"))), `event 8 (tool.started): call "a" waits for a person`},
		{log(head, in(run1, answer(5, "a"), asked("a"), done("a"))), `event 8 (tool.completed): call "a" succeeded while it waited for a person`},
		{log(head, in(run1, answer(5, "a"), asked("a"), decided("a", thread.Reject), started("a"))), `event 9 (tool.started): call "a" was not approved`},
		{log(head, in(run1, answer(5, "a"), asked("a"), decided("a", thread.Reject), done("a"))), `event 9 (tool.completed): call "a" succeeded although it was rejected`},
		{log(head, in(run1, answer(5, "a"), asked("a"), asked("a"))), `event 8 (approval.asked): call "a" was asked about by event 7`},
		{log(head, in(run1, answer(5, "a"), started("a"), asked("a"))), `event 8 (approval.asked): call "a" was started by event 7`},
		{log(head, in(run1, answer(5, "a"), thread.ApprovalAsked{Call: "a"})), "event 7 (approval.asked): nothing is allowed as an answer"},
		{log(head, in(run1, answer(5, "a"), decided("a", thread.Approve))), `event 7 (approval.decided): there was no question about call "a"`},
		{log(head, in(run1, answer(5, "a"), asked("a"), decided("a", thread.Approve), decided("a", thread.Approve))), `event 9 (approval.decided): call "a" was decided by event 8`},
		{log(head, in(run1, answer(5, "a"), asked("a"), decided("a", thread.Edit))), `event 8 (approval.decided): "edit" is not allowed as an answer`},
		{log(head, step, in(run1, thread.Cleared{Calls: []string{"a", "x"}})), `event 9 (context.cleared): there is no call "x"`},
		{log(head, in(run1, answer(5, "a"), thread.Cleared{Calls: []string{"a"}})), `event 7 (context.cleared): call "a" has no result to clear`},
		{log(head, step, in(run1, thread.Compacted{Through: 9})), "event 9 (context.compacted): there is no event 9 in the conversation"},
		{log(head, step, in(run1, thread.Compacted{})), "event 9 (context.compacted): there is no event 0 in the conversation"},
		{log(head, in(run1, answer(5, "a"), thread.Compacted{Through: 6})), `event 7 (context.compacted): call "a", which the summary covers, has no result`},
		{log(head, step, in(run1, thread.Compacted{Through: 6, Keep: []uint64{3, 4}})), "event 9 (context.compacted): event 4 is not an input that the summary covers"},
		{log(head, step, in(run1, thread.Input{}, thread.Compacted{Through: 6, Keep: []uint64{9}})), "event 10 (context.compacted): event 9 is not an input that the summary covers"},
		{log(head, in("", thread.Rewound{To: 6})), "event 6 (thread.rewound): there is no event 6 to go back to"},
		{log(head, in("", thread.Rewound{})), "event 6 (thread.rewound): there is no event 0 to go back to"},
		{log(head, step, in(run1, thread.Rewound{To: 5}, thread.Cleared{Calls: []string{"a"}})), `event 10 (context.cleared): call "a" was rewound`},
		{log(head, in(run1, thread.CheckStarted{Key: "k"})), "event 6 (check.started): there is no answer to check"},
		{log(head, in(run1, answer(5), thread.CheckStarted{})), "event 7 (check.started): an effect has a key"},
		{log(head, in(run1, answer(5, "a"), thread.CheckStarted{Key: "k"})), `event 7 (check.started): call "a" has no result yet`},
		{log(head, in(run1, answer(5), thread.CheckStarted{Key: "k"}, thread.CheckStarted{Key: "l"})), "event 8 (check.started): the check of event 7 has not ended"},
		{log(head, in(run1, answer(5), thread.CheckEnded{})), "event 7 (check.ended): no check is under way"},
		{log(head, in(run1, answer(5)), ended, in(run1, thread.CheckStarted{Key: "k"})), "event 8 (check.started): no run is open"},
		{log(head, in(run1, answer(5, "a"), thread.Rewound{To: 5}, done("a"))), `event 8 (tool.completed): call "a" was rewound`},
		{log(head, step, in(run1, thread.Rewound{To: 5}, thread.Compacted{Through: 8})), "event 10 (context.compacted): there is no event 8 in the conversation"},
		{log(head, in(run1, thread.Input{}, thread.Rewound{To: 5}, thread.Compacted{Through: 5, Keep: []uint64{6}})), "event 8 (context.compacted): event 6 is not an input that the summary covers"},
		{log(head, step, in(run1, thread.Rewound{To: 5}, answer(8))), "event 10 (model.completed): its prompt went through event 8, which is not in 9 … 9"},
		{log(head, step, in(run1, thread.Rewound{To: 5}, answer(9, "a"))), `event 10 (model.completed): call "a" was there before`},
		{log(head, step, in(run1, answer(8, "b"), done("a"))), `event 10 (tool.completed): call "a" has a result, event 8`},
	} {
		err := thread.Check(c.events)
		if err == nil || err.Error() != c.want || !errs.Is(err, errs.Corrupt) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// driver writes a log as a careful agent would, choosing at random.
type driver struct {
	t      *rapid.T
	events []thread.Event
	run    thread.RunID
	runs   int
	claims uint64
	names  int
	open   []string // calls of the last step without a result
	state  map[string]string
	done   []string // calls of the conversation with a result, with the step's event in steps
	steps  map[string]uint64
}

func (d *driver) add(b thread.Body) {
	d.events = append(d.events, thread.Event{Seq: uint64(len(d.events)) + 1, Run: d.run, Body: b})
}

func (d *driver) pick(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "pick") }

func (d *driver) finish(call string, b thread.ToolCompleted) {
	d.add(b)
	d.open = slices.DeleteFunc(d.open, func(s string) bool { return s == call })
	d.done = append(d.done, call)
}

func (d *driver) move() {
	switch d.pick(12) {
	case 0:
		d.add(thread.Input{From: "user"})
	case 1:
		d.add(thread.Unknown{Name: "x.y", V: 3})
	case 2:
		d.claims++
		d.add(thread.Claimed{Node: "n", Term: d.claims})
		for call, s := range d.state {
			if s == "started" {
				d.state[call] = "restartable"
			}
		}
	case 3:
		if d.run == "" {
			d.runs++
			d.run = thread.RunID(fmt.Sprint("run", d.runs))
			d.add(thread.RunStarted{})
		} else if d.pick(4) == 0 && len(d.open) == 0 {
			d.add(thread.RunEnded{State: thread.RunSucceeded})
			d.run = ""
		}
	case 4:
		if d.run == "" && d.pick(3) == 0 {
			d.rewind(uint64(1 + d.pick(len(d.events))))
		}
	case 5:
		if len(d.done) > 0 && len(d.open) == 0 {
			d.add(thread.Cleared{Calls: slices.Clone(d.done[:1+d.pick(len(d.done))])})
		}
	case 6:
		if len(d.done) > 0 && len(d.open) == 0 {
			d.add(thread.Compacted{Through: d.steps[d.done[d.pick(len(d.done))]]})
		}
	default:
		d.work()
	}
}

func (d *driver) rewind(to uint64) {
	d.add(thread.Rewound{To: to})
	d.done = slices.DeleteFunc(d.done, func(call string) bool { return d.steps[call] > to })
	d.open = nil
}

func (d *driver) work() {
	switch {
	case d.run == "":
	case len(d.open) == 0:
		var calls []string
		for range d.pick(4) {
			d.names++
			calls = append(calls, fmt.Sprint("c", d.names))
		}
		through := uint64(len(d.events))
		for range d.pick(2) {
			d.add(thread.ModelFailed{})
			d.add(thread.Input{})
		}
		d.add(answer(through, calls...))
		for _, call := range calls {
			d.steps[call] = uint64(len(d.events))
			d.state[call] = "startable"
		}
		d.open = calls
	default:
		call := d.open[d.pick(len(d.open))]
		switch d.state[call] {
		case "startable":
			switch d.pick(4) {
			case 0:
				d.add(asked(call))
				d.state[call] = "asked"
			case 1:
				d.finish(call, failed(call))
			default:
				d.add(started(call))
				d.state[call] = "started"
			}
		case "asked":
			verdict := []thread.Decision{thread.Approve, thread.Reject, thread.Respond}[d.pick(3)]
			d.add(decided(call, verdict))
			d.state[call] = map[thread.Decision]string{thread.Approve: "approved", thread.Reject: "rejected", thread.Respond: "answered"}[verdict]
		case "approved", "restartable":
			d.add(started(call))
			d.state[call] = "started"
		case "rejected":
			d.finish(call, failed(call))
		case "started", "answered":
			d.finish(call, done(call))
		}
	}
}

// once are the kinds of which an exact repetition can never be right.
var once = []thread.Kind{"thread.opened", "run.started", "thread.claimed", "tool.completed", "approval.asked", "approval.decided"}

func TestCheck_acceptsACarefulDriverAndNoRepetition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &driver{t: t, state: map[string]string{}, steps: map[string]uint64{}}
		d.add(thread.Opened{})
		for range rapid.IntRange(0, 80).Draw(t, "moves") {
			d.move()
		}
		if err := thread.Check(d.events); err != nil {
			t.Fatalf("%v\n%s", err, kinds(d.events))
		}
		at := rapid.IntRange(0, len(d.events)-1).Draw(t, "at")
		if len(d.events) > 1 && at < len(d.events)-1 {
			if thread.Check(slices.Delete(slices.Clone(d.events), at, at+1)) == nil {
				t.Fatalf("event %d may be missing\n%s", at+1, kinds(d.events))
			}
		}
		if e := d.events[at]; slices.Contains(once, e.Body.Kind()) {
			twice := slices.Insert(slices.Clone(d.events[:at+1]), at+1, e)
			twice[at+1].Seq++
			if thread.Check(twice) == nil {
				t.Fatalf("event %d may be there twice\n%s", at+1, kinds(d.events))
			}
		}
	})
}

func kinds(events []thread.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%d %s %s %+v\n", e.Seq, e.Run, e.Body.Kind(), e.Body)
	}
	return b.String()
}
