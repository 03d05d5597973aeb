package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/llm"
)

// steps reads "a=1 b=2! , c=1 | talk": steps are parted by " , "; a word is the
// call a with result 1, "!" means that it failed, "~" that it waits; "-" is a
// step without calls.
func steps(s string) []loopStep {
	var list []loopStep
	for step := range strings.SplitSeq(s, ",") {
		var st loopStep
		for word := range strings.FieldsSeq(step) {
			if word == "-" {
				st.Text = "thinking"
				continue
			}
			name, result, _ := strings.Cut(word, "=")
			st.Calls = append(st.Calls, loopCall{
				Name: name, Args: json.RawMessage(`{}`), Result: strings.Trim(result, "!~"),
				Failed: strings.HasSuffix(result, "!"), Waits: strings.HasSuffix(result, "~"),
			})
		}
		list = append(list, st)
	}
	return list
}

func guardRow(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }

func TestLook(t *testing.T) {
	cases := []struct {
		name, steps string
		want        loopAction
		text        string
	}{
		{"one call", "a=1", loopGo, ""},
		{"twice the same", "a=1,a=1", loopGo, ""},
		{"three times", guardRow(3, "a=1"), loopNudge, "You called a 3 times with the same arguments"},
		{"four times", guardRow(4, "a=1"), loopNudge, "4 times"},
		{"five times", guardRow(5, "a=1"), loopStop, "The agent called a 5 times"},
		{"three times within ten", "a=1,b=1,c=1,a=1,d=1,e=1,f=1,g=1,h=1,a=1", loopNudge, "3 times"},
		{"three times within eleven", "a=1,b=1,c=1,a=1,d=1,e=1,f=1,g=1,h=1,i=1,a=1", loopGo, ""},
		{"other results", "a=1,a=2,a=3,a=4,a=5,a=6", loopGo, ""},
		{"a step later it is over", guardRow(3, "a=1") + ",b=1", loopGo, ""},
		{"in one step", "a=1 a=1 a=1", loopNudge, "3 times"},
		{"not the last call of the step", guardRow(2, "a=1") + ",a=1 b=1", loopNudge, "3 times"},
		{"calls that wait", guardRow(20, "a=1~"), loopGo, ""},
		{"five turns, with something between", guardRow(5, "a=1,b=1"), loopStop, "5 times"},
		{"five turns with ever new results", "a=1,b=1,a=2,b=2,a=3,b=3,a=4,b=4,a=5,b=5", loopGo, ""},
		{"six turns with ever new results", "a=1,b=1,a=2,b=2,a=3,b=3,a=4,b=4,a=5,b=5,a=6,b=6", loopNudge, "You called a and b in turn for the last 12 calls"},
		{"half a turn more", "a=1,b=1,a=2,b=2,a=3,b=3,a=4,b=4,a=5,b=5,a=6,b=6,a=7", loopGo, ""},
		{"nine turns", "a=1,b=1,a=2,b=2,a=3,b=3,a=4,b=4,a=5,b=5,a=6,b=6,a=7,b=7,a=8,b=8,a=9,b=9", loopNudge, "18 calls"},
		{"one call with ever new results is no turn", "a=1,a=2,a=3,a=4,a=5,a=6,a=7,a=8,a=9,a=10,a=11,a=12,a=13", loopGo, ""},
		{"the same failure", "a=1!,a=2!,a=2!,a=2!", loopNudge, "times"},
		{"other failures", "a=1!,a=2!,a=3!", loopGo, ""},
		{"talk twice", "-,-", loopGo, ""},
		{"talk three times", "-,-,-", loopNudge, "You called no tool in the last 3 replies."},
		{"talk five times", "-,-,-,-,-", loopStop, "The agent called no tool in the last 5 replies."},
		{"talk, work, talk", "-,-,a=1,-", loopGo, ""},
	}
	for _, c := range cases {
		v := detectLoop(steps(c.steps), limitsOf(0))
		if v.Action != c.want || !strings.Contains(v.Text, c.text) || (v.Action == loopGo) != (v.Text == "") {
			t.Errorf("%s: %q %q, want %q", c.name, v.Action, v.Text, c.want)
		}
	}
	if v := detectLoop(nil, limitsOf(0)); v.Action != loopGo {
		t.Errorf("%v", v)
	}
}

// The limit is a setting; what is said comes before it.
func TestLook_limits(t *testing.T) {
	for repeats, want := range map[int]struct{ nudge, stop int }{0: {3, 5}, 3: {2, 3}, 20: {12, 20}} {
		var list []loopStep
		for n := 1; n <= want.stop; n++ {
			list = append(list, callOf("a", `{}`, "r", false))
			action := loopGo
			switch {
			case n >= want.stop:
				action = loopStop
			case n >= want.nudge:
				action = loopNudge
			}
			if v := detectLoop(list, limitsOf(repeats)); v.Action != action {
				t.Errorf("%d of %d: %q, want %q", n, repeats, v.Action, action)
			}
		}
	}
}

func TestWaits(t *testing.T) {
	for args, want := range map[string]bool{
		`{"command":"sleep 1; curl -fs localhost:8080"}`: true, `{"command":"until curl -fs x; do sleep 1; done"}`: true, `{"command":"/bin/sleep 5"}`: true,
		`{"command":"timeout 60 inotifywait f"}`: true, `{"command":"go test ./..."}`: false, `{"command":"echo sleep"}`: false, `{"path":"/sleep"}`: false, `{`: false,
	} {
		if got := waits(&runs.Call{Call: llm.Call{Name: "execute", Args: json.RawMessage(args)}}); got != want {
			t.Errorf("%s: %v", args, got)
		}
	}
	if !waits(&runs.Call{Call: llm.Call{Name: "task_output", Args: json.RawMessage(`{}`)}}) {
		t.Error("looking after a task is no waiting")
	}
}

// callOf makes one step with the arguments spelt in its own way.
func callOf(name, args, result string, failed bool) loopStep {
	return loopStep{Calls: []loopCall{{Name: name, Args: json.RawMessage(args), Result: result, Failed: failed}}}
}

func TestLook_comparesArgumentsNotTheirSpelling(t *testing.T) {
	same := []loopStep{
		callOf("a", `{"x":1,"y":[1,2]}`, "r", false), callOf("a", `{ "y": [1, 2], "x": 1 }`, "r", false), callOf("a", "{\"x\":1,\n\"y\":[1,2]}", "r", false),
	}
	if v := detectLoop(same, limitsOf(0)); v.Action != loopNudge {
		t.Error("the same arguments in another order are not the same")
	}
	for _, args := range []string{`{"x":2,"y":[1,2]}`, `{"x":1,"y":[2,1]}`, `{"x":1.0000000000000001,"y":[1,2]}`, `{`, ``} {
		other := append(append([]loopStep{}, same[:2]...), callOf("a", args, "r", false))
		if v := detectLoop(other, limitsOf(0)); v.Action != loopGo {
			t.Errorf("%s is the same", args)
		}
	}
}

// TestLook_seesOneErrorInManyDresses: the arguments differ, the failure does not.
func TestLook_seesOneErrorInManyDresses(t *testing.T) {
	var list []loopStep
	want := map[int]loopAction{2: loopGo, 3: loopNudge, 5: loopNudge, 6: loopStop}
	for n := 1; n <= 6; n++ {
		list = append(list, callOf("edit_file", fmt.Sprintf(`{"try":%d}`, n), "not unique", true))
		if action, ok := want[n]; ok && detectLoop(list, limitsOf(0)).Action != action {
			t.Errorf("%d failures: %v", n, detectLoop(list, limitsOf(0)))
		}
	}
	if v := detectLoop(append(list[:5:5], callOf("edit_file", `{}`, "done", false)), limitsOf(0)); v.Action != loopGo {
		t.Errorf("after a success: %v", v)
	}
}

func TestLook_isMonotonousAndPure(t *testing.T) {
	word := rapid.SampledFrom([]string{"a=1", "a=2", "b=1", "b=1!", "c=1!", "-", "a=1 b=1", "a=1~"})
	rapid.Check(t, func(t *rapid.T) {
		list := steps(strings.Join(rapid.SliceOfN(word, 1, 30).Draw(t, "steps"), ","))
		v := detectLoop(list, limitsOf(0))
		if v != detectLoop(list, limitsOf(0)) {
			t.Fatal("twice is not the same")
		}
		// What lies further back than any pattern reaches does not matter.
		far := append(steps("z=9,y=9,x=9"), list...)
		if len(list) > 20 && detectLoop(far, limitsOf(0)) != v {
			t.Fatalf("%v, with an older beginning %v", v, detectLoop(far, limitsOf(0)))
		}
		// A call that was never seen before has nothing to blame.
		fresh := append(append([]loopStep{}, list...), callOf("new", fmt.Sprintf(`{"n":%d}`, len(list)), "never seen", false))
		if got := detectLoop(fresh, limitsOf(0)); got.Action != loopGo {
			t.Fatalf("something new is blamed: %v", got)
		}
		// Repeating what was said ends in a stop.
		last := list[len(list)-1]
		if len(last.Calls) > 0 && last.Calls[0].Waits {
			return
		}
		for range 6 {
			list = append(list, last)
		}
		if detectLoop(list, limitsOf(0)).Action != loopStop {
			t.Fatalf("six more of the last step go on: %v", detectLoop(list, limitsOf(0)))
		}
	})
}
