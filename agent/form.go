package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/skete-dev/skete/agent/action"
	"github.com/skete-dev/skete/agent/answer"
	"github.com/skete-dev/skete/agent/guard"
	"github.com/skete-dev/skete/agent/state"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// wanted compiles the schema of the run's result, nil = text.
func wanted(run, file json.RawMessage) (*answer.Schema, error) {
	switch {
	case len(run) > 0:
		return answer.Compile(run)
	case len(file) > 0:
		return answer.Compile(file)
	}
	return nil, nil
}

// finalTool is final_answer: it only checks; a call of it that succeeded ends
// the run.
type finalTool struct{ schema *answer.Schema }

func (f finalTool) Spec() llm.ToolSpec { return f.schema.Spec() }

func (f finalTool) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

func (f finalTool) Run(_ context.Context, req tool.Request) (tool.Result, error) {
	if _, wrong := f.schema.FromCall(req.Args); wrong != nil {
		return tool.Fail(tool.CodeArgs, answer.Correction(wrong)), nil
	}
	return tool.Text("The result was accepted."), nil
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
		return answer.Correction(wrong)
	}
	return ""
}

// recentMax is how many calls the guard looks at.
const recentMax = 14

// recent lists the last calls of the run with what came of them, the oldest
// first.
func (r *Runner) recent() []guard.Step {
	var steps []guard.Step
	n := 0
	for at := len(r.s.Items) - 1; at >= 0 && n < recentMax; at-- {
		item := r.s.Items[at]
		if item.Seq < r.s.Run.First {
			break
		}
		if item.Step == nil {
			continue
		}
		step := guard.Step{Text: item.Step.Message.String(), Calls: make([]guard.Call, len(item.Calls))}
		for i, c := range item.Calls {
			step.Calls[i] = r.seen(c)
		}
		n += len(item.Calls)
		steps = append(steps, step)
	}
	slices.Reverse(steps)
	return steps
}

// waits are tools that are there to be called again and again.
var waits = map[string]bool{"process_output": true, "process_list": true, "task_output": true, "task_list": true}

// seenMax bounds the calls that are kept as the guard sees them.
const seenMax = 4 * recentMax

// seen is a call as the guard sees it. It is made once, not with every step.
func (r *Runner) seen(c *state.Call) guard.Call {
	if g, ok := r.calls[c.ID]; ok {
		return g
	}
	if len(r.calls) >= seenMax {
		clear(r.calls)
	}
	h := sha256.New()
	_ = json.NewEncoder(h).Encode(c.Completed.Blocks) // a hash takes everything
	g := guard.Call{
		Name: c.Name, Args: c.Args, Result: hex.EncodeToString(h.Sum(nil)), Failed: c.Completed.Failed, Waits: waits[c.Name],
	}.Seen()
	r.calls[c.ID] = g
	return g
}
