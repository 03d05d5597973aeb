// Package replay runs a recorded run again: a model that says what the model
// said then, for tools that act for real in a fresh sandbox, and a comparison
// of what came of it.
//
//	m, err := replay.New(ctx, events, blobs) // of the recorded run
//	…                                        // the agent runs with m
//	report := replay.Compare(events, newEvents)
//	fmt.Print(report)                        // or as JSON
//
// The model goes by llm.Request.Step and keeps nothing, so a replay survives a
// crash like any other run. It reaches no network and costs nothing.
package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/skete-dev/skete/agent/action"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Vendor is that of the models that play a recorded run.
const Vendor = "replay"

// windowTokens is so large that nothing is summarised in a replay because of
// its own size: what the model saw does not change what it says here.
const windowTokens = 10_000_000

// Model plays recorded answers. Safe for concurrent use.
type Model struct {
	runs      []run
	summaries []string
	decided   map[string]thread.ApprovalDecided // by call
}

// run is what the model said in one run.
type run struct {
	id      thread.RunID
	answers []llm.Response
	// malformed answers were no proper action; they are played as they were.
	malformed map[int]bool
	ended     string // how the run ended, "" = it did not
}

// New reads the model's part out of the events of a run (or of all runs of a
// sub-agent's thread), with the messages that are blobs. NotFound: the model
// said nothing in them. Errors of the blobs are returned as they are.
func New(ctx context.Context, events []thread.Event, blobs thread.Blobs) (*Model, error) {
	m := &Model{decided: map[string]thread.ApprovalDecided{}}
	for _, e := range events {
		if err := m.take(ctx, e, blobs); err != nil {
			return nil, fmt.Errorf("read event %d: %w", e.Seq, err)
		}
	}
	for _, r := range m.runs {
		if len(r.answers) > 0 {
			return m, nil
		}
	}
	return nil, errs.New(errs.NotFound, "the model said nothing in this run; there is nothing to replay")
}

// of returns the part of a run, a new one if need be.
func (m *Model) of(id thread.RunID) *run {
	if n := len(m.runs); n == 0 || m.runs[n-1].id != id {
		m.runs = append(m.runs, run{id: id, malformed: map[int]bool{}})
	}
	return &m.runs[len(m.runs)-1]
}

func (m *Model) take(ctx context.Context, e thread.Event, blobs thread.Blobs) error {
	switch b := e.Body.(type) {
	case thread.ModelCompleted:
		message, err := messageOf(ctx, b, blobs)
		if err != nil {
			return err
		}
		r := m.of(e.Run)
		r.answers = append(r.answers, llm.Response{Message: message, Usage: b.Usage, Stop: b.Stop, Model: b.Model})
	case thread.Input:
		if b.From == "skete" && b.Name == "format" {
			r := m.of(e.Run)
			r.malformed[len(r.answers)] = true
		}
	case thread.Compacted:
		m.summaries = append(m.summaries, b.Summary)
	case thread.ApprovalDecided:
		m.decided[b.Call] = b
	case thread.RunEnded:
		m.of(e.Run).ended = string(b.State)
	}
	return nil
}

func messageOf(ctx context.Context, c thread.ModelCompleted, blobs thread.Blobs) (llm.Message, error) {
	if c.Blob == "" {
		return c.Message, nil
	}
	content, err := blobs.Get(ctx, c.Blob)
	if err != nil {
		return llm.Message{}, err
	}
	var m llm.Message
	if err := json.Unmarshal(content, &m); err != nil {
		return llm.Message{}, errs.Wrap(errs.Corrupt, err, "the blob %s is no message", c.Blob)
	}
	return m, nil
}

// Decided returns what a person decided about a call in the record.
func (m *Model) Decided(call string) (thread.ApprovalDecided, bool) {
	d, ok := m.decided[call]
	return d, ok
}

// Info implements llm.Model.
func (m *Model) Info() llm.Info {
	return llm.Info{Name: "replay", Vendor: Vendor, ID: m.id(), WindowTokens: windowTokens, Media: true, Documents: true}
}

func (m *Model) id() string {
	for _, r := range m.runs {
		for _, a := range r.answers {
			return a.Model
		}
	}
	return ""
}

// Stream implements llm.Model. Behind the last recorded answer it says that the
// record ends, and how.
func (m *Model) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		answer := m.answer(req)
		for _, d := range deltas(answer.Message) {
			if ctx.Err() != nil {
				yield(llm.Delta{}, context.Cause(ctx))
				return
			}
			if !yield(d, nil) {
				return
			}
		}
		yield(llm.Delta{Kind: llm.DeltaDone, Response: &answer}, nil)
	}
}

// answer chooses what to say.
func (m *Model) answer(req *llm.Request) llm.Response {
	if req.Step <= 0 { // a summary: what is kept between steps
		return said(m.summary())
	}
	r := m.run(req)
	if req.Step > len(r.answers) {
		how := r.ended
		if how == "" {
			how = "not finished"
		}
		return m.written(req, said(fmt.Sprintf("[The recorded run ends here after %d answers: %s.]", len(r.answers), how)), false)
	}
	return m.written(req, r.answers[req.Step-1], r.malformed[req.Step])
}

// run finds which run is played: with several in the record, the one in which
// as many answers were given before as the conversation has.
func (m *Model) run(req *llm.Request) *run {
	before, given := 0, 0
	for _, message := range req.Messages {
		if message.Role == llm.RoleAssistant {
			given++
		}
	}
	best := &m.runs[0]
	for i := range m.runs {
		if before <= given-(req.Step-1) {
			best = &m.runs[i]
		}
		before += len(m.runs[i].answers)
	}
	return best
}

// written puts an answer into the form that the request asks for: it was
// logged as calls, whatever the model wrote.
func (m *Model) written(req *llm.Request, r llm.Response, malformed bool) llm.Response {
	if action.Wanted(req) && !malformed {
		r.Message, r.Stop = action.Written(r.Message), llm.StopEnd
	}
	return r
}

func (m *Model) summary() string {
	if n := len(m.summaries); n > 0 && m.summaries[n-1] != "" {
		return m.summaries[n-1]
	}
	return "(The record has no summary.)"
}

func said(text string) llm.Response {
	return llm.Response{Message: llm.Assistant(llm.Text(text)), Stop: llm.StopEnd, Model: "replay"}
}

// deltas are what a live model would have sent for a message.
func deltas(m llm.Message) []llm.Delta {
	var list []llm.Delta
	calls := 0
	for _, b := range m.Blocks {
		switch {
		case b.Kind == llm.KindText && b.Text != "":
			list = append(list, llm.Delta{Kind: llm.DeltaText, Text: b.Text})
		case b.Kind == llm.KindReasoning && b.Text != "":
			list = append(list, llm.Delta{Kind: llm.DeltaReasoning, Text: b.Text})
		case b.Kind == llm.KindCall && b.Call != nil:
			list = append(list, llm.Delta{Kind: llm.DeltaCall, Index: calls, Name: b.Call.Name},
				llm.Delta{Kind: llm.DeltaArgs, Index: calls, Text: argsText(b.Call)})
			calls++
		}
	}
	return list
}

func argsText(c *llm.Call) string {
	var raw string
	if c.Raw && json.Unmarshal(c.Args, &raw) == nil {
		return raw
	}
	return strings.TrimSpace(string(c.Args))
}
