package agent

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"path"
	"slices"

	"github.com/skete-dev/skete/agent/action"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/policy/shell"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/llm"
)

// wanted compiles the schema of the run's result, nil = text.
func wanted(run, file json.RawMessage) (*definition.ResultSchema, error) {
	switch {
	case len(run) > 0:
		return definition.CompileResult(run)
	case len(file) > 0:
		return definition.CompileResult(file)
	}
	return nil, nil
}

// fromText reads a strict-JSON reply: an action becomes a call, done becomes
// the final text.
func (r *Runner) fromText(m llm.Message) (blocks []llm.Block, correction string) {
	for _, b := range m.Blocks {
		if b.Kind == llm.KindReasoning {
			blocks = append(blocks, b)
		}
	}
	text := m.String()
	a, problem := action.Parse(text, r.specs)
	if problem != "" {
		return append(blocks, llm.Text(text)), string(problem)
	}
	return append(blocks, a.Blocks()...), ""
}

// checkAnswer looks at a reply that would end the run.
func (r *Runner) checkAnswer(m llm.Message) (correction string) {
	if r.schema == nil {
		return ""
	}
	if _, wrong := r.schema.FromText(m.String()); wrong != nil {
		return definition.ResultCorrection(wrong)
	}
	return ""
}

// row is what the guard looks at: the last steps of the run, the oldest first.
type row struct {
	steps []loopStep
	calls int    // of all steps
	seen  uint64 // the last event that was looked at
}

// recent brings the row to the end of the conversation: at least the last calls, as
// many as most.
func (r *Runner) recent(most int) []loopStep {
	items, calls := r.s.Items, 0
	at := len(items)
	for at > 0 && items[at-1].Seq > max(r.row.seen, r.s.Run.First) && calls < most {
		at--
		calls += len(items[at].Calls)
	}
	for _, item := range items[at:] {
		if item.Step != nil {
			r.row.add(item, most)
		}
	}
	return r.row.steps
}

func (w *row) add(item *runs.Item, most int) {
	step := loopStep{Text: item.Step.Message.String(), Calls: make([]loopCall, len(item.Calls))}
	for i, c := range item.Calls {
		step.Calls[i] = loopCall{
			Name: c.Name, Args: c.Args, Result: hashOf(c.Completed.Blocks), Failed: c.Completed.Failed, Waits: waits(c),
		}.Seen()
	}
	w.steps, w.calls, w.seen = append(w.steps, step), w.calls+len(step.Calls), item.Seq
	for w.calls-len(w.steps[0].Calls) >= most {
		w.calls -= len(w.steps[0].Calls)
		w.steps = w.steps[1:]
	}
}

// waitTools are there to be called again and again, and so are waitPrograms.
var (
	waitTools    = []string{"process_output", "process_list", "task_output", "task_list"}
	waitPrograms = []string{"sleep", "usleep", "wait", "inotifywait"}
)

// waits reports whether repeating a call is what it is for.
func waits(c *runs.Call) bool {
	if slices.Contains(waitTools, c.Name) {
		return true
	}
	line := commandOf(c.EffectiveArgs())
	return line != "" && slices.ContainsFunc(shell.Parse(line).Commands, func(c shell.Command) bool {
		return len(c.Words) > 0 && slices.Contains(waitPrograms, path.Base(c.Words[0].Text))
	})
}

// hashOf tells results apart.
func hashOf(blocks []llm.Block) string {
	h := sha256.New()
	for _, b := range blocks {
		_, _ = io.WriteString(h, b.Text+"\x00") // a hash takes everything
		if b.Media != nil {
			_, _ = io.WriteString(h, b.Media.Hash+"\x00")
		}
	}
	return string(h.Sum(nil))
}
