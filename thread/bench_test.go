package thread_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// step returns the two appends of a usual step: an answer with one call, and
// its result.
func step(run thread.RunID, n int, through uint64) (first, second []thread.Event) {
	call := fmt.Sprintf("call_%d", n)
	args := json.RawMessage(`{"path": "/workspace/main.go", "limit": 200}`)
	first = []thread.Event{
		thread.New(run, thread.ModelCompleted{
			Message: llm.Assistant(llm.Text("I look at the file first."), llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: call, Name: "read_file", Args: args}}),
			Model:   "vendor/model", Stop: "tool_use", Attempt: 1, Through: through,
		}),
		thread.New(run, thread.ToolStarted{Call: call, Tool: "read_file", Key: "thr/" + call}),
	}
	second = []thread.Event{
		thread.New(run, thread.ToolCompleted{Call: call, Tool: "read_file", Blocks: []llm.Block{llm.Text(strings.Repeat("a line of a file < 80\n", 20))}}),
	}
	return first, second
}

func BenchmarkEncode(b *testing.B) {
	run := thread.NewRunID()
	first, _ := step(run, 1, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := thread.Encode(1, first); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	run := thread.NewRunID()
	first, _ := step(run, 1, 1)
	record, err := thread.Encode(1, first)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(record)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := thread.Decode(record, 2); err != nil {
			b.Fatal(err)
		}
	}
}
