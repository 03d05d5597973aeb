package transcript

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/thread"
)

// Bounds of an outline.
const (
	// OutlineStepsMax is how many steps one outline has at most.
	OutlineStepsMax = 20_000
	outlineRunesMax = 80 // of a text or a title
	outlineCalls    = 32 // of a step
	outlineInputs   = 8  // of a step
	outlineAgents   = 256
	outlineMarks    = 1000
)

// NewBrief returns an empty Fold that is good for Outline alone: it keeps no arguments
// of calls, so that it takes little memory for a long run.
func NewBrief(id thread.ID, run thread.RunID) *Fold {
	f := New(id, run)
	f.brief = true
	return f
}

// agent is a sub-agent as the thread above it sees it.
type agent struct {
	api.OutlineAgent
	background bool
}

// taskArgs are the arguments of a task that count here.
type taskArgs struct {
	Agent      string `json:"subagent_type"`
	Background bool   `json:"background"`
}

// agentStarted notes a sub-agent. args are those that run.
func (f *Fold) agentStarted(e thread.Event, c *api.TranscriptCall, args json.RawMessage) {
	if f.agentOf[c.ID] != nil { // begun again after a crash
		return
	}
	a := &agent{OutlineAgent: api.OutlineAgent{Thread: c.Thread, Call: c.ID, State: string(thread.RunRunning), StartedSeq: e.Seq}}
	var t taskArgs
	if len(args) <= argsParseMax && json.Unmarshal(args, &t) == nil {
		a.Agent, a.background = strings.Clone(firstRunes(t.Agent)), t.Background
	}
	f.agents, f.agentOf[c.ID] = append(f.agents, a), a
}

// agentCalled notes that the call of a sub-agent has its result. In the background that
// is no end of the sub-agent, unless it could not be started.
func (f *Fold) agentCalled(e thread.Event, b thread.ToolCompleted) {
	a := f.agentOf[b.Call]
	if a == nil || a.background && !b.Failed {
		return
	}
	a.State, a.EndedSeq, a.Steps, a.CostUSD = string(thread.RunSucceeded), e.Seq, b.Steps, b.CostUSD
	if b.Failed {
		a.State = string(thread.RunFailed)
	}
}

// agentReported notes the end of a sub-agent in the background. Its input's name ends in
// the id of the call.
func (f *Fold) agentReported(e thread.Event, b thread.Input) {
	a := f.agentOf[b.Name[strings.LastIndexByte(b.Name, ' ')+1:]]
	if a == nil || !a.background {
		return
	}
	a.State, a.EndedSeq = api.OutlineEnded, e.Seq
	a.Steps, a.CostUSD = a.Steps+b.Spent.Steps, a.CostUSD+b.Spent.CostUSD
}

// mark notes an event that a view over the whole run shows the place of.
func (f *Fold) mark(e thread.Event) {
	switch b := e.Body.(type) {
	case thread.Compacted, thread.Rewound, thread.CancelAsked, thread.BudgetChanged, thread.CheckEnded:
	case thread.Bound:
		if b.Why == "" {
			return
		}
	default:
		return
	}
	if len(f.marks) >= 2*outlineMarks {
		f.marks = append(f.marks[:0], f.marks[len(f.marks)-outlineMarks+1:]...)
	}
	f.marks = append(f.marks, api.OutlineMark{Seq: e.Seq, Kind: string(e.Body.Kind()), At: e.At})
}

// Outline returns what is known so far, of the last n steps that stand before a step;
// before 0 = all, n 0 = as many as there may be. Its rules are written at api.RunOutline.
func (f *Fold) Outline(n, before int) api.RunOutline {
	if n <= 0 || n > OutlineStepsMax {
		n = OutlineStepsMax
	}
	end := len(f.steps)
	if before > 0 {
		end = min(end, before-1)
	}
	begin := max(0, end-n)
	o := api.RunOutline{
		Run: string(f.run), Thread: string(f.thread), State: f.state(), FirstSeq: f.first, LastSeq: f.seq, Steps: make([]api.OutlineStep, 0, end-begin), Total: len(f.steps),
		Todos: f.todos, Usage: Usage(f.usage), CostUSD: f.cost, Waiting: f.waiting(),
	}
	if begin > 0 {
		o.Before = begin + 1
	}
	for _, s := range f.steps[begin:end] {
		o.Steps = append(o.Steps, outlineStep(s))
	}
	o.Inputs = outlineInputsOf(f.open.Inputs)
	for _, a := range f.agents[max(0, len(f.agents)-outlineAgents):] {
		o.Agents = append(o.Agents, a.OutlineAgent)
	}
	o.Marks = append(o.Marks, f.marks[max(0, len(f.marks)-outlineMarks):]...)
	if !f.started.IsZero() {
		o.StartedAt = timeOf(f.started)
	}
	if f.ended != nil {
		o.Reason, o.EndedAt = f.ended.Reason, timeOf(f.endedAt)
	}
	return o
}

func timeOf(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}

// state is the run's, by its events alone.
func (f *Fold) state() string {
	switch {
	case f.ended != nil:
		return string(f.ended.State)
	case f.started.IsZero():
		return string(thread.RunPending)
	case f.waitsForPeople():
		return string(thread.RunInterrupted)
	}
	return string(thread.RunRunning)
}

// waitsForPeople: of the last step some calls have no result, and each of them waits for
// a person.
func (f *Fold) waitsForPeople() bool {
	if len(f.steps) == 0 {
		return false
	}
	waits := false
	for _, c := range f.steps[len(f.steps)-1].Calls {
		switch {
		case c.Status == statusWaiting:
			waits = true
		case c.EndedSeq == 0:
			return false
		}
	}
	return waits
}

func (f *Fold) waiting() (calls []string) {
	for _, s := range f.steps {
		for _, c := range s.Calls {
			if c.Status == statusWaiting {
				calls = append(calls, c.ID)
			}
		}
	}
	return calls
}

func outlineStep(s api.TranscriptStep) api.OutlineStep {
	o := api.OutlineStep{
		Step: s.Step, Seq: s.Seq, At: *s.At, TookMS: s.TookMS, Kind: KindOf(s.Calls), Text: firstRunes(s.Text), Inputs: outlineInputsOf(s.Inputs),
		Failures: len(s.Failures), Tokens: s.Usage.Total(), CostUSD: s.CostUSD, Rewound: s.Rewound,
	}
	calls := s.Calls
	if len(calls) > outlineCalls {
		o.CallsTotal, calls = len(calls), calls[:outlineCalls]
	}
	for _, c := range calls {
		call := api.OutlineCall{
			Call: c.ID, Tool: c.Tool, State: c.Status, Title: firstRunes(c.Args), TookMS: c.TookMS, Exit: c.Exit, StartedSeq: c.StartedSeq, EndedSeq: c.EndedSeq,
		}
		if a := c.Approval; a != nil {
			call.Ask, call.AskedSeq, call.Decision = a.Ask, a.AskedSeq, a.Decision
			if call.Ask == "" {
				call.Ask = "approval"
			}
		}
		o.Calls = append(o.Calls, call)
	}
	return o
}

func outlineInputsOf(list []api.TranscriptInput) (o []api.OutlineInput) {
	for _, in := range list[:min(len(list), outlineInputs)] {
		o = append(o, api.OutlineInput{Seq: in.Seq, From: in.From, Name: firstRunes(in.Name), Text: firstRunes(in.Text)})
	}
	return o
}

// firstRunes is the beginning of a text, as it is.
func firstRunes(s string) string {
	n := 0
	for i := range s {
		if n == outlineRunesMax {
			return s[:i]
		}
		n++
	}
	return s
}

// Kinds of work, the one that matters most first.
const (
	kindAgent = "agent"
	kindEdit  = "edit"
	kindRun   = "command"
	kindAsk   = "ask"
	kindTool  = "tool"
	kindPlan  = "plan"
	kindRead  = "read"
	kindText  = "text"
)

var kindOrder = [...]string{kindAgent, kindEdit, kindRun, kindAsk, kindTool, kindPlan, kindRead}

// kindOfTool is what a tool does; one that is not here is of somewhere else.
func kindOfTool(name string) string {
	switch name {
	case taskTool, "task_output", "task_send", "task_cancel", "task_list":
		return kindAgent
	case "write_file", "edit_file", "apply_patch", "delete", "undo_changes":
		return kindEdit
	case "execute", "run_command", "process_output", "process_kill", "process_list", "service":
		return kindRun
	case "ask_user":
		return kindAsk
	case "write_todos", "submit_plan", "adopt_plan":
		return kindPlan
	case "ls", "read_file", "glob", "grep", "list_files", "list_revisions", "diff_revisions", "read_revision", "skill":
		return kindRead
	}
	return kindTool
}

// KindOf says what the main work of a step's calls was.
func KindOf(calls []api.TranscriptCall) string {
	best := len(kindOrder)
	for _, c := range calls {
		kind := kindOfTool(c.Tool)
		for i, k := range kindOrder[:best] {
			if k == kind {
				best = i
			}
		}
	}
	if best == len(kindOrder) {
		return kindText
	}
	return kindOrder[best]
}
