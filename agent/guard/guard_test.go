package guard_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skete-dev/skete/agent/guard"
)

// steps reads "a=1 b=2! , c=1 | talk": steps are parted by " , "; a word is the
// call a with result 1, "!" means that it failed, "~" that it waits; "-" is a
// step without calls.
func steps(s string) []guard.Step {
	var list []guard.Step
	for step := range strings.SplitSeq(s, ",") {
		var st guard.Step
		for word := range strings.FieldsSeq(step) {
			if word == "-" {
				st.Text = "thinking"
				continue
			}
			name, result, _ := strings.Cut(word, "=")
			st.Calls = append(st.Calls, guard.Call{
				Name: name, Args: json.RawMessage(`{}`), Result: strings.Trim(result, "!~"),
				Failed: strings.HasSuffix(result, "!"), Waits: strings.HasSuffix(result, "~"),
			})
		}
		list = append(list, st)
	}
	return list
}

func row(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }

func TestLook(t *testing.T) {
	cases := []struct {
		name, steps string
		want        guard.Action
		text        string
	}{
		{"one call", "a=1", guard.Go, ""},
		{"twice the same", "a=1,a=1", guard.Go, ""},
		{"three times", row(3, "a=1"), guard.Nudge, "You called a 3 times with the same arguments"},
		{"four times", row(4, "a=1"), guard.Nudge, "4 times"},
		{"five times", row(5, "a=1"), guard.Stop, "You called a 5 times"},
		{"three times within ten", "a=1,b=1,c=1,a=1,d=1,e=1,f=1,g=1,h=1,a=1", guard.Nudge, "3 times"},
		{"three times within eleven", "a=1,b=1,c=1,a=1,d=1,e=1,f=1,g=1,h=1,i=1,a=1", guard.Go, ""},
		{"other results", "a=1,a=2,a=3,a=4,a=5,a=6", guard.Go, ""},
		{"a step later it is over", row(3, "a=1") + ",b=1", guard.Go, ""},
		{"in one step", "a=1 a=1 a=1", guard.Nudge, "3 times"},
		{"not the last call of the step", row(2, "a=1") + ",a=1 b=1", guard.Nudge, "3 times"},
		{"calls that wait", row(20, "a=1~"), guard.Go, ""},
		{"five turns, with something between", row(5, "a=1,b=1"), guard.Stop, "5 times"},
		{"five turns with ever new results", "a=1,b=1,a=2,b=2,a=3,b=3,a=4,b=4,a=5,b=5", guard.Go, ""},
		{"six turns with ever new results", "a=1,b=1,a=2,b=2,a=3,b=3,a=4,b=4,a=5,b=5,a=6,b=6", guard.Nudge, "You called a and b in turn for the last 12 calls"},
		{"half a turn more", "a=1,b=1,a=2,b=2,a=3,b=3,a=4,b=4,a=5,b=5,a=6,b=6,a=7", guard.Go, ""},
		{"nine turns", "a=1,b=1,a=2,b=2,a=3,b=3,a=4,b=4,a=5,b=5,a=6,b=6,a=7,b=7,a=8,b=8,a=9,b=9", guard.Nudge, "18 calls"},
		{"one call with ever new results is no turn", "a=1,a=2,a=3,a=4,a=5,a=6,a=7,a=8,a=9,a=10,a=11,a=12,a=13", guard.Go, ""},
		{"the same failure", "a=1!,a=2!,a=2!,a=2!", guard.Nudge, "times"},
		{"other failures", "a=1!,a=2!,a=3!", guard.Go, ""},
		{"talk twice", "-,-", guard.Go, ""},
		{"talk three times", "-,-,-", guard.Nudge, "Your last 3 replies called no tool."},
		{"talk five times", "-,-,-,-,-", guard.Stop, "Your last 5 replies called no tool."},
		{"talk, work, talk", "-,-,a=1,-", guard.Go, ""},
	}
	for _, c := range cases {
		v := guard.Look(steps(c.steps))
		if v.Action != c.want || !strings.Contains(v.Text, c.text) || (v.Action == guard.Go) != (v.Text == "") {
			t.Errorf("%s: %q %q, want %q", c.name, v.Action, v.Text, c.want)
		}
	}
	if v := guard.Look(nil); v.Action != guard.Go {
		t.Errorf("%v", v)
	}
}

// call makes one step with the arguments spelt in its own way.
func call(name, args, result string, failed bool) guard.Step {
	return guard.Step{Calls: []guard.Call{{Name: name, Args: json.RawMessage(args), Result: result, Failed: failed}}}
}

func TestLook_comparesArgumentsNotTheirSpelling(t *testing.T) {
	same := []guard.Step{
		call("a", `{"x":1,"y":[1,2]}`, "r", false), call("a", `{ "y": [1, 2], "x": 1 }`, "r", false), call("a", "{\"x\":1,\n\"y\":[1,2]}", "r", false),
	}
	if v := guard.Look(same); v.Action != guard.Nudge {
		t.Error("the same arguments in another order are not the same")
	}
	for _, args := range []string{`{"x":2,"y":[1,2]}`, `{"x":1,"y":[2,1]}`, `{"x":1.0000000000000001,"y":[1,2]}`, `{`, ``} {
		other := append(append([]guard.Step{}, same[:2]...), call("a", args, "r", false))
		if v := guard.Look(other); v.Action != guard.Go {
			t.Errorf("%s is the same", args)
		}
	}
}

// TestLook_seesOneErrorInManyDresses: the arguments differ, the failure does not.
func TestLook_seesOneErrorInManyDresses(t *testing.T) {
	var list []guard.Step
	want := map[int]guard.Action{2: guard.Go, 3: guard.Nudge, 5: guard.Nudge, 6: guard.Stop}
	for n := 1; n <= 6; n++ {
		list = append(list, call("edit_file", fmt.Sprintf(`{"try":%d}`, n), "not unique", true))
		if action, ok := want[n]; ok && guard.Look(list).Action != action {
			t.Errorf("%d failures: %v", n, guard.Look(list))
		}
	}
	if v := guard.Look(append(list[:5:5], call("edit_file", `{}`, "done", false))); v.Action != guard.Go {
		t.Errorf("after a success: %v", v)
	}
}

func TestLook_isMonotonousAndPure(t *testing.T) {
	word := rapid.SampledFrom([]string{"a=1", "a=2", "b=1", "b=1!", "c=1!", "-", "a=1 b=1", "a=1~"})
	rapid.Check(t, func(t *rapid.T) {
		list := steps(strings.Join(rapid.SliceOfN(word, 1, 30).Draw(t, "steps"), ","))
		v := guard.Look(list)
		if v != guard.Look(list) {
			t.Fatal("twice is not the same")
		}
		// What lies further back than any pattern reaches does not matter.
		far := append(steps("z=9,y=9,x=9"), list...)
		if len(list) > 20 && guard.Look(far) != v {
			t.Fatalf("%v, with an older beginning %v", v, guard.Look(far))
		}
		// A call that was never seen before has nothing to blame.
		fresh := append(append([]guard.Step{}, list...), call("new", fmt.Sprintf(`{"n":%d}`, len(list)), "never seen", false))
		if got := guard.Look(fresh); got.Action != guard.Go {
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
		if guard.Look(list).Action != guard.Stop {
			t.Fatalf("six more of the last step go on: %v", guard.Look(list))
		}
	})
}
