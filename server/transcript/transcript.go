// Package transcript tells the story of a run: one record a step, short enough to
// be read by people and small enough for a page.
//
//	f := transcript.New(runID)
//	for event := range events { f.Add(event) }
//	o := f.Transcript()
//
// It is a pure function of the events: no clock, no store. It never fails:
// what it does not know it leaves out, so that a viewer shows what there is
// also of a log that a newer program wrote. Texts are cut to their beginning;
// they come from models and guests and may hold anything.
//
// A Fold belongs to one goroutine; what Transcript returned is not changed later.
package transcript

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Bounds of what a record repeats.
const (
	textBytesMax  = 2000 // of an answer, an input
	headBytesMax  = 400  // of reasoning, an output, a reason
	argsBytesMax  = 200
	failuresMax   = 16 // of a step
	inputsMax     = 64 // of a step
	notesMax      = 16 // of a step
	approvalsMax  = 4  // decisions that may be made
	taskTool      = "task"
	fromSubagent  = "sub-agent"
	statusPending = "pending"
	statusWaiting = "waiting"
	statusRunning = "running"
)

// Fold builds a transcript event by event.
type Fold struct {
	run     thread.RunID // "" = of all runs
	thread  thread.ID
	steps   []api.TranscriptStep
	open    api.TranscriptStep // what happened since the last step: becomes part of the next
	calls   map[string]place
	details map[string]*api.CallDetail
	todos   []api.Todo
	usage   llm.Usage
	cost    float64
	ended   *thread.RunEnded
	endedAt time.Time
	first   uint64 // the run's first event
	seq     uint64
	started time.Time
	plans   []plan
	agents  []*agent // that calls have started
	agentOf map[string]*agent
	marks   []api.OutlineMark
	brief   bool // for Outline alone
}

// plan is the todos as a call left them, by the answer that asked for it.
type plan struct {
	step  uint64
	todos []api.Todo
}

// place is where a call stands.
type place struct{ step, call int }

// New returns an empty transcript of a run in a thread; "" = of every run in it.
func New(id thread.ID, run thread.RunID) *Fold {
	return &Fold{run: run, thread: id, calls: map[string]place{}, details: map[string]*api.CallDetail{}, agentOf: map[string]*agent{}}
}

// Of folds events.
func Of(id thread.ID, run thread.RunID, events []thread.Event) api.Transcript {
	f := New(id, run)
	for _, e := range events {
		f.Add(e)
	}
	return f.Transcript()
}

// Add takes the next event. Events of other runs are passed over, but for what they take
// back of this one.
func (f *Fold) Add(e thread.Event) {
	if b, is := e.Body.(thread.Rewound); is {
		f.takeBack(b.To)
	}
	if f.run != "" && e.Run != f.run && e.Run != "" {
		return
	}
	f.seq = e.Seq
	if f.first == 0 {
		f.first = e.Seq
	}
	f.mark(e)
	switch b := e.Body.(type) {
	case thread.RunStarted:
		f.ended, f.started = nil, e.At
	case thread.RunEnded:
		f.ended, f.endedAt = &b, e.At
	case thread.Input:
		f.input(e, b)
	case thread.ModelCompleted:
		f.step(e, b)
	case thread.ModelFailed:
		f.open.Failures = capped(f.open.Failures, failuresMax, api.TranscriptFailure{
			Seq: e.Seq, Attempt: b.Attempt, Trouble: string(b.Trouble), Text: clip.Text(b.Text, headBytesMax), WaitMS: b.Wait.Milliseconds(),
		})
	case thread.ToolStarted:
		f.toolStarted(e, b)
	case thread.ToolCompleted:
		f.toolCompleted(e, b)
	case thread.ApprovalAsked:
		f.asked(e, b)
	case thread.ApprovalDecided:
		f.decided(e, b)
	default:
		f.remark(e)
	}
}

// remark notes what is no step and still part of the story.
func (f *Fold) remark(e thread.Event) {
	switch b := e.Body.(type) {
	case thread.Compacted:
		f.usage = f.usage.Add(b.Usage)
		f.cost += b.Cost
		f.note(e, "the conversation up to event %d was replaced by a summary", b.Through)
	case thread.Cleared:
		f.note(e, "outputs of %d calls were dropped from the prompt", len(b.Calls))
	case thread.Rewound:
		f.note(e, "the conversation was taken back to event %d%s", b.To, by(b.By, b.ByName))
	case thread.CompactAsked:
		f.note(e, "a summary of the conversation was asked for%s", by(b.By, b.ByName))
	case thread.CheckStarted:
		f.note(e, "the check began")
	case thread.CheckEnded:
		f.usage = f.usage.Add(b.Usage)
		f.cost += b.CostUSD
		f.note(e, "the check %s", CheckWords(b))
	case thread.CancelAsked:
		f.note(e, "cancel asked%s%s", by(b.By, b.ByName), because(b.Reason))
	case thread.BudgetChanged:
		f.note(e, "the budget was changed%s", by(b.By, b.ByName))
	case thread.PolicyChanged:
		f.note(e, "a rule was added%s", by(b.By, b.ByName))
	case thread.Context:
		for _, why := range b.LeftOut {
			f.note(e, "a tool is left out: %s", clip.Line(why, argsBytesMax))
		}
	case thread.NetworkRefused:
		f.note(e, "refused: %s", RefusedWords(b))
	case thread.Bound:
		if b.Why != "" {
			f.note(e, "another machine: %s (%s)", clip.Line(b.Machine, argsBytesMax), clip.Line(b.Why, argsBytesMax))
		}
	}
}

// RefusedWords say what the machine could not send, and why.
func RefusedWords(b thread.NetworkRefused) string {
	words := fmt.Sprintf("%s %s: %s", cmp.Or(b.Method, "connection to"), net.JoinHostPort(b.Host, strconv.Itoa(b.Port))+b.Path, b.Why)
	if b.Last {
		words += "; the log tells of no more"
	}
	return clip.Line(words, headBytesMax)
}

// CheckWords say how a check ended, as the end of a sentence about it.
func CheckWords(b thread.CheckEnded) string {
	switch {
	case b.Passed:
		return "passed"
	case b.Code == "interrupted":
		return "was interrupted, and is made again"
	case b.Exit != nil:
		return fmt.Sprintf("did not pass: exit %d", *b.Exit)
	case b.Code != "":
		return "did not pass: " + clip.Line(b.Code, 80)
	}
	return "did not pass"
}

func by(id, name string) string {
	who := cmp.Or(name, id)
	if who == "" {
		return ""
	}
	return " by " + clip.Line(who, 80)
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + clip.Line(why, argsBytesMax)
}

func (f *Fold) note(e thread.Event, format string, args ...any) {
	f.open.Notes = capped(f.open.Notes, notesMax, fmt.Sprintf(format, args...)+fmt.Sprintf(" (event %d)", e.Seq))
}

// capped appends as long as there is room.
func capped[T any](list []T, most int, v T) []T {
	if len(list) >= most {
		return list
	}
	return append(list, v)
}

func (f *Fold) input(e thread.Event, b thread.Input) {
	f.usage = f.usage.Add(b.Spent.Usage)
	f.cost += b.Spent.CostUSD
	if b.From == fromSubagent {
		f.agentReported(e, b)
	}
	f.open.Inputs = capped(f.open.Inputs, inputsMax, api.TranscriptInput{
		Seq: e.Seq, From: b.From, Name: b.Name, Text: head(llm.Message{Blocks: b.Blocks}.String(), textBytesMax),
	})
}

func (f *Fold) step(e thread.Event, b thread.ModelCompleted) {
	s := f.open
	f.open = api.TranscriptStep{}
	// What entered after the prompt was made belongs to the next step.
	late := slices.IndexFunc(s.Inputs, func(in api.TranscriptInput) bool { return in.Seq > b.Through })
	if late >= 0 {
		f.open.Inputs = slices.Clone(s.Inputs[late:])
		s.Inputs = s.Inputs[:late:late]
	}
	text := b.Message.String()
	at := e.At
	s.Step, s.Seq, s.Through, s.At, s.TookMS = len(f.steps)+1, e.Seq, b.Through, &at, b.Took.Milliseconds()
	s.Model, s.Stop, s.Usage, s.CostUSD = b.Model, string(b.Stop), Usage(b.Usage), b.CostUSD
	s.Window = Window(b.Ledger)
	if s.Text = head(text, textBytesMax); len(s.Text) < len(text) {
		s.TextBytes = len(text)
	}
	s.Reasoning = head(reasoning(b.Message), headBytesMax)
	for _, c := range b.Message.Calls() {
		call := api.TranscriptCall{ID: c.ID, Tool: c.Name, Args: Summary(c.Name, c.Args), Status: statusPending}
		f.calls[c.ID] = place{len(f.steps), len(s.Calls)}
		f.details[c.ID] = &api.CallDetail{Step: s.Step}
		if !f.brief || c.Name == taskTool {
			f.details[c.ID].Arguments = c.Args
		}
		s.Calls = append(s.Calls, call)
	}
	f.steps = append(f.steps, s)
	f.usage = f.usage.Add(b.Usage)
	f.cost += b.CostUSD
}

// head is the beginning of a text. It is a copy, so that the whole text is not kept.
func head(s string, n int) string { return strings.Clone(clip.Text(s, n)) }

func reasoning(m llm.Message) string {
	var s strings.Builder
	for _, b := range m.Blocks {
		if b.Kind == llm.KindReasoning {
			s.WriteString(b.Text)
		}
	}
	return s.String()
}

// call finds the record of a call; nil = no step asked for it.
func (f *Fold) call(id string) *api.TranscriptCall {
	p, ok := f.calls[id]
	if !ok {
		return nil
	}
	return &f.steps[p.step].Calls[p.call]
}

func (f *Fold) toolStarted(e thread.Event, b thread.ToolStarted) {
	c := f.call(b.Call)
	if c == nil {
		return
	}
	c.Status = statusRunning
	at := e.At
	d := f.details[b.Call]
	d.Machine, d.StartedAt, c.StartedSeq = b.Machine, &at, e.Seq
	if !f.brief {
		d.Ran = b.Args
	}
	if b.Args != nil {
		c.Args = Summary(c.Tool, b.Args)
	}
	if b.Tool == taskTool && f.thread != "" {
		c.Thread = string(f.thread.Sub(b.Call))
		args := d.Arguments
		if b.Args != nil {
			args = b.Args
		}
		f.agentStarted(e, c, args)
	}
}

func (f *Fold) toolCompleted(e thread.Event, b thread.ToolCompleted) {
	f.usage = f.usage.Add(b.Usage)
	f.cost += b.CostUSD
	c := f.call(b.Call)
	if b.Todos != nil && !b.Failed {
		f.todos = Todos(b.Todos)
		if c != nil {
			f.plans = append(f.plans, plan{f.steps[f.calls[b.Call].step].Seq, f.todos})
		}
	}
	if c == nil {
		return
	}
	f.agentCalled(e, b)
	text := llm.Message{Blocks: b.Blocks}.String()
	c.Status, c.Code, c.Exit, c.TookMS = "done", b.Code, b.Exit, b.Took.Milliseconds()
	c.Bytes, c.Head = OutputBytes(b), head(text, headBytesMax)
	switch {
	case c.Approval != nil && c.Approval.Ask != api.AskForm && c.Approval.Decision == string(thread.Reject):
		c.Status = "rejected" // it did not run
	case c.Approval != nil && c.Approval.Ask != api.AskForm && c.Approval.Decision == string(thread.Respond):
		c.Status = "answered" // nor did this
	case b.Failed:
		c.Status = "failed"
	}
	at := e.At
	d := f.details[b.Call]
	d.EndedAt, d.File, c.EndedSeq = &at, b.File, e.Seq
	for _, block := range b.Blocks {
		d.OutputTypes = append(d.OutputTypes, string(block.Kind))
	}
}

// OutputBytes is the size of the whole output of a call.
func OutputBytes(b thread.ToolCompleted) int64 {
	if b.Bytes > 0 {
		return b.Bytes
	}
	return int64(len(llm.Message{Blocks: b.Blocks}.String()))
}

func (f *Fold) asked(e thread.Event, b thread.ApprovalAsked) {
	c := f.call(b.Call)
	if c == nil {
		return
	}
	c.Status = statusWaiting
	a := &api.TranscriptApproval{Ask: string(b.Ask), Reason: clip.Text(b.Reason, headBytesMax), AskedAt: e.At, AskedSeq: e.Seq, Allowed: Decisions(b.Allowed)}
	if !b.Expires.IsZero() {
		at := b.Expires.UTC()
		a.ExpiresAt = &at
	}
	c.Approval = a
}

// Decisions names what a person may decide.
func Decisions(allowed []thread.Decision) []string {
	names := []string{}
	for _, d := range allowed[:min(len(allowed), approvalsMax)] {
		names = append(names, string(d))
	}
	return names
}

func (f *Fold) decided(e thread.Event, b thread.ApprovalDecided) {
	c := f.call(b.Call)
	if c == nil || c.Approval == nil || c.Approval.Decision != "" { // the first one holds
		return
	}
	a := *c.Approval
	a.Decision, a.By, a.ByName, a.Text, a.DecidedSeq = string(b.Decision), b.By, b.ByName, clip.Text(b.Text, headBytesMax), e.Seq
	c.Approval, c.Status = &a, statusPending
	if a.Ask == api.AskForm { // of a call that runs
		c.Status = statusRunning
	}
	if b.Decision == thread.Edit {
		c.Args = Summary(c.Tool, b.Args)
	}
}

// takeBack marks the steps that are no longer part of the conversation.
func (f *Fold) takeBack(to uint64) {
	for i := range f.steps {
		if f.steps[i].Seq > to {
			f.steps[i].Rewound = true
		}
	}
	f.plans = slices.DeleteFunc(f.plans, func(p plan) bool { return p.step > to })
	f.todos = nil
	if n := len(f.plans); n > 0 {
		f.todos = f.plans[n-1].todos
	}
}

// Transcript returns what is known so far.
func (f *Fold) Transcript() api.Transcript {
	o := api.Transcript{
		Run: string(f.run), Steps: make([]api.TranscriptStep, 0, len(f.steps)+1), Total: len(f.steps),
		Todos: f.todos, Usage: Usage(f.usage), CostUSD: f.cost, Seq: f.seq,
	}
	for _, s := range f.steps {
		s.Calls = slices.Clone(s.Calls)
		o.Steps = append(o.Steps, s)
		for _, c := range s.Calls {
			if c.Status == statusWaiting {
				o.Waiting = append(o.Waiting, c.ID)
			}
		}
	}
	if f.ended != nil {
		o.State, o.Reason, o.Text = string(f.ended.State), f.ended.Reason, f.ended.Text
	}
	if len(f.open.Inputs)+len(f.open.Failures)+len(f.open.Notes) > 0 {
		last := f.open
		last.Step = len(f.steps) + 1
		o.Steps = append(o.Steps, last)
		o.Total++
	}
	return o
}

// Page keeps the last n steps that stand before a step; before 0 = all, n 0 = all.
func Page(o api.Transcript, n, before int) api.Transcript {
	end := len(o.Steps)
	if before > 0 {
		end = min(end, before-1)
	}
	begin := 0
	if n > 0 {
		begin = max(0, end-n)
	}
	o.Steps, o.Before = o.Steps[begin:end], 0
	if begin > 0 {
		o.Before = begin + 1
	}
	return o
}

// Call returns the detail of a call.
func (f *Fold) Call(id string) (api.CallDetail, bool) {
	c := f.call(id)
	if c == nil {
		return api.CallDetail{}, false
	}
	d := *f.details[id]
	d.TranscriptCall = *c
	if !json.Valid(d.Arguments) {
		d.Arguments = nil
	}
	return d, true
}

// Todos translates a plan; never nil.
func Todos(list []thread.Todo) []api.Todo {
	todos := make([]api.Todo, len(list))
	for i, t := range list {
		todos[i] = api.Todo{Content: t.Content, Status: t.Status}
	}
	return todos
}

// Window translates a ledger; nil for one that says nothing, of older logs.
func Window(l thread.Ledger) *api.Window {
	if l == (thread.Ledger{}) {
		return nil
	}
	return &api.Window{
		Instructions: l.System, Tools: l.Tools, Memory: l.Memory, Summary: l.Summary, Inputs: l.Inputs,
		Replies: l.Assistant, Results: l.Results, Total: l.Total, Size: l.Window,
	}
}

// Usage translates a count of tokens.
func Usage(u llm.Usage) api.Usage {
	return api.Usage{
		Input: u.Input, Output: u.Output, Reasoning: u.Reasoning, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Estimated: u.Estimated,
	}
}
