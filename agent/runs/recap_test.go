package runs

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/thread"
)

// told is what a client that comes now hears, a line for each text.
func (r *Recap) told(t *testing.T) (lines []string) {
	t.Helper()
	r.Tell(func(pieces [][]byte) {
		for _, data := range pieces {
			var l Live
			if err := json.Unmarshal(data, &l); err != nil {
				t.Fatal(err)
			}
			if len(l.Text) > recapPieceMax || !utf8.ValidString(l.Text) {
				t.Errorf("a piece has %d bytes, valid: %v", len(l.Text), utf8.ValidString(l.Text))
			}
			if l.Again {
				lines = append(lines, fmt.Sprintf("%s %d%s after %d: ", l.Kind, l.Index, l.Call+l.Name, l.After))
			}
			lines[len(lines)-1] += l.Text
		}
	})
	return lines
}

func TestRecap(t *testing.T) {
	sent := 0
	r := &Recap{Send: func([]byte) { sent++ }}
	want := func(what string, lines ...string) {
		t.Helper()
		if d := cmp.Diff(lines, r.told(t)); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	want("at first")
	for _, l := range []Live{
		{Kind: LiveReasoning, Text: "hm", After: 3},
		{Kind: LiveText, Text: "Hel", After: 3},
		{Kind: LiveText, Text: "lo", After: 4},
		{Kind: LiveCall, Name: "edit", After: 4},
		{Kind: LiveArgs, Text: "{", After: 4},
		{Kind: LiveCall, Index: 1, Name: "grep", After: 4},
		{Kind: LiveOutput, Call: "a", Text: "one\n", After: 4},
		{Kind: LiveOutput, Call: "b", Text: "x", After: 4},
		{Kind: LiveOutput, Call: "a", Text: "two\xff", After: 5},
	} {
		r.Add(l)
	}
	outputs := []string{"output 0a after 5: one\ntwo\uFFFD", "output 0b after 4: x"}
	want("meanwhile", append([]string{"reasoning 0 after 3: hm", "text 0 after 4: Hello", "tool_call 0edit after 4: ", "tool_args 0 after 4: {", "tool_call 1grep after 4: "}, outputs...)...)
	r.Add(Live{Kind: LiveReset})
	want("the answer is void", outputs...)
	r.Add(Live{Kind: LiveText, Text: "again", After: 6})
	r.Applied(thread.Event{Body: thread.ModelCompleted{}})
	want("the answer is in the log", outputs...)
	r.Applied(thread.Event{Body: thread.ToolCompleted{Call: "a"}})
	want("a call is in the log", outputs[1])
	r.Applied(thread.Event{Body: thread.RunEnded{}})
	want("the run is over")
	if sent != 11 {
		t.Errorf("%d pieces were sent on, not 11", sent)
	}
}

// What is kept is bounded, and no rune of it is cut.
func TestRecap_keepsTheEnd(t *testing.T) {
	for kind, most := range map[LiveKind]int{LiveText: recapAnswerMax, LiveOutput: recapOutputMax} {
		r := &Recap{Send: func([]byte) {}}
		var whole strings.Builder
		for i := range 20_000 {
			text := fmt.Sprintf("%d€ ", i)
			whole.WriteString(text)
			r.Add(Live{Kind: kind, Text: text})
		}
		got := r.told(t)
		if len(got) != 1 {
			t.Fatalf("%s: %d texts", kind, len(got))
		}
		_, text, _ := strings.Cut(got[0], ": ")
		if !strings.HasSuffix(whole.String(), text) || len(text) > most || len(text) < most-3 {
			t.Errorf("%s: %d bytes are told, of at most %d: %.20q…", kind, len(text), most, text)
		}
		if n := cap(r.streams[0].text); n > 4*most {
			t.Errorf("%s: %d bytes are kept", kind, n)
		}
	}
}
