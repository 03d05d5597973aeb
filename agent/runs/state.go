package runs

import (
	"encoding/json"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// This file computes what a thread's events mean: State is their fold, and
// Next says what is to be done. Both are pure: no clock, no files, no network.
//
// Everything that drives or shows a run stands on this, so that a restart, a
// second server and a viewer cannot disagree about where a run is.
//
// A State belongs to one goroutine.

// State is what a thread's events add up to.
type State struct {
	Seq    uint64    // of the last event
	At     time.Time // of the last event
	Opened thread.Opened
	Agent  definition.Definition
	Claim  thread.Claimed
	// Machine is where tools act, "" = not decided yet.
	Machine string
	// OwnMachine: it was made for this thread.
	OwnMachine bool
	Context    *thread.Context
	// Run is the current one, or the last; nil = none yet.
	Run *CurrentRun
	// Items are the conversation as the model has seen it.
	Items []*Item
	// Queue are inputs that enter it with the next model call.
	Queue []*Item
	// Rules were added by people, the newest first.
	Rules []definition.Rule
	// Todos are the plan.
	Todos []thread.Todo
	// Learned are the skills that were taught, by name.
	Learned []string
	// Epoch grows whenever Items changed other than by growing at their end.
	Epoch int
	// EpochSeq is the event that did so last.
	EpochSeq uint64
	// Overflow is what prompts that were too long have shown of a model's window.
	Overflow Overflow
	// CompactAsked: the conversation is to be shortened before the next model call.
	CompactAsked    *thread.CompactAsked
	compactAskedSeq uint64
	// Skipped counts events of unknown kinds.
	Skipped int

	calls    map[string]*Call
	inputs   map[string]bool // ids of inputs that have one
	files    []fileChange
	plans    []plan
	archives []archive
	// learnedAt are the events of Learned.
	learnedAt []uint64
	undo      []before // what compactions replaced, for Rewound
}

// learnedMax bounds Learned: an agent in a sandbox writes the events itself.
const learnedMax = 200

// Bounds of what the log of a run tells of the network.
const (
	refusedMax     = 100
	refusedStepMax = 16 // between two answers of the model
)

// CurrentRun is one activation.
type CurrentRun struct {
	ID      thread.RunID
	Started thread.RunStarted
	At      time.Time
	First   uint64 // its RunStarted
	Budget  thread.Budget
	Steps   int
	Usage   llm.Usage // of sub-agents that are over too, as CostUSD
	CostUSD float64
	Below   int // steps of sub-agents that are over
	// Waited is how long the run could do nothing because of people.
	Waited time.Duration
	// Failures are attempts since the last answer.
	Failures []thread.ModelFailed
	Cancel   *thread.CancelAsked
	Ended    *thread.RunEnded
	EndedAt  time.Time
	// Model that answered last.
	Model string
	// Planning: only tools that read may be used, since no plan has been accepted yet.
	Planning bool
	Check    CheckState
	// Refused is what of the network the log tells of.
	Refused RefusedState
}

// RefusedState is how often the log of a run tells of what its machine could not send.
type RefusedState struct {
	Count int
	// Lately are the targets since the last answer of the model.
	Lately map[string]bool
}

// CheckState is how far the check of a run has come.
type CheckState struct {
	Count   int                  // that have ended
	Open    *thread.CheckStarted // one that has not ended
	OpenAt  time.Time
	Last    *thread.CheckEnded
	LastSeq uint64 // of the event
}

// Overflow is what is known of a model's window beyond its configuration.
type Overflow struct {
	Model        string
	WindowTokens int // 0 = nothing new
	// Scale is how many tokens of the server's one of ours is; 0 = not known.
	Scale float64
}

// scaleMax bounds Scale: of four bytes no tokenizer makes more than four tokens.
const scaleMax = 4

// shrink is what a window is taken for when a prompt did not fit and the server does
// not say how large it is: so many tenths of that prompt.
const shrink = 6

// add learns from a prompt that was too long. The window gets no larger by it.
func (o *Overflow) add(b thread.ModelFailed) {
	if b.Trouble != llm.Overflow || b.Estimated <= 0 {
		return
	}
	if o.Model != b.Model {
		*o = Overflow{Model: b.Model}
	}
	window, prompt := b.WindowTokens, b.PromptTokens
	if window == 0 {
		window = b.Estimated * shrink / 10
	} else if prompt = max(prompt, window); window <= scaleMax*b.Estimated { // else the prompt was not what was too long
		o.Scale = min(max(o.Scale, float64(prompt)/float64(b.Estimated)), scaleMax)
	}
	if o.WindowTokens == 0 || window < o.WindowTokens {
		o.WindowTokens = window
	}
}

// Item is an entry of the conversation: an input, a step or a summary.
type Item struct {
	Seq     uint64
	At      time.Time
	Input   *thread.Input
	Step    *thread.ModelCompleted
	Calls   []*Call // of Step, in its order
	Summary *thread.Compacted
	// Todos are the plan as it was when the last call of Step had ended.
	Todos []thread.Todo
}

// Call is a tool call and what became of it.
type Call struct {
	llm.Call
	Step      uint64 // the event that asked for it
	Started   *thread.ToolStarted
	StartedAt time.Time
	Completed *thread.ToolCompleted
	DoneSeq   uint64
	Asked     *thread.ApprovalAsked
	AskedSeq  uint64
	AskedAt   time.Time
	Decided   *thread.ApprovalDecided
	permit    *thread.ApprovalDecided // what was decided before the call asked by a form
	ClearedAt uint64                  // the event that took its result out of the prompt, 0 = none
}

// Args are those that count: what a person or a hook made of them, else the model's.
func (c *Call) EffectiveArgs() json.RawMessage {
	switch {
	case c.Started != nil && c.Started.Args != nil:
		return c.Started.Args
	case c.Permit() != nil && c.Permit().Decision == thread.Edit:
		return c.Permit().Args
	case c.Asked != nil && c.Asked.Args != nil:
		return c.Asked.Args
	}
	return c.Call.Args
}

// Permit is what was decided about the call before it began, nil = nothing.
func (c *Call) Permit() *thread.ApprovalDecided {
	if c.Asked != nil && c.Asked.Ask == thread.AskForm {
		return c.permit
	}
	return c.Decided
}

// Waits reports whether the call is held back until a person decided, or asks one while it
// runs.
func (c *Call) Waits() bool { return c.Completed == nil && c.Asked != nil && c.Decided == nil }

// AsksForm reports whether a call that runs asks a person.
func (s *State) AsksForm() bool {
	return slices.ContainsFunc(s.Open(), func(c *Call) bool { return c.Form() != nil })
}

// Form is the question of a call that runs which is not answered, nil = there is none.
func (c *Call) Form() *thread.Form {
	if !c.Waits() || c.Asked.Ask != thread.AskForm {
		return nil
	}
	return c.Asked.Form
}

type fileChange struct {
	seq uint64
	thread.FileChange
}

// plan is the todos as a call left them, by the step that asked for it.
type plan struct {
	step  uint64
	todos []thread.Todo
}

type archive struct {
	seq        uint64
	path, blob string
	bytes      int64
}

type before struct {
	seq   uint64
	items []*Item
}

// NewState returns the state of a thread without events.
func NewState() *State {
	return &State{calls: map[string]*Call{}, inputs: map[string]bool{}}
}

// FoldState applies events to a new state.
func FoldState(events []thread.Event) (*State, error) {
	s := NewState()
	for _, e := range events {
		if err := s.Apply(e); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Apply adds the next event. Corrupt: it is not the next one, or makes no sense
// after those before it; the state is then of no use any more.
func (s *State) Apply(e thread.Event) error {
	if e.Seq != s.Seq+1 {
		return errs.New(errs.Corrupt, "event %d follows event %d", e.Seq, s.Seq)
	}
	if (s.Seq == 0) != (e.Body != nil && e.Body.Kind() == thread.Opened{}.Kind()) {
		return errs.New(errs.Corrupt, "event %d: a thread begins with thread.opened, and only there", e.Seq)
	}
	waited := s.Run != nil && s.Run.Ended == nil && s.WaitsForPeople()
	if err := s.apply(e); err != nil {
		return err
	}
	if waited && e.At.After(s.At) {
		s.Run.Waited += e.At.Sub(s.At)
	}
	s.Seq, s.At = e.Seq, e.At
	return nil
}

func (s *State) apply(e thread.Event) error {
	switch b := e.Body.(type) {
	case thread.Opened:
		s.Opened = b
		if err := json.Unmarshal(b.Agent, &s.Agent); err != nil {
			return errs.Wrap(errs.Corrupt, err, "event %d: the agent's definition cannot be read", e.Seq)
		}
	case thread.Claimed:
		s.Claim = b
	case thread.Bound:
		s.Machine, s.OwnMachine = b.Machine, b.Own
	case thread.Context:
		s.Context = &b
		s.newEpoch(e.Seq)
	case thread.Input:
		s.input(e, b)
	case thread.PolicyChanged:
		return s.policy(e, b)
	case thread.Compacted:
		s.compact(e, b)
	case thread.CompactAsked:
		s.askCompact(e, &b)
	case thread.Cleared:
		s.clear(e, b)
	case thread.Rewound:
		s.rewind(e.Seq, b.To)
	case thread.RunStarted:
		return s.startRun(e, b)
	case thread.NetworkRefused:
		s.refuse(b)
	case thread.Unknown:
		s.Skipped++
	default:
		return s.applyRun(e)
	}
	return nil
}

// applyRun applies the events that only happen during a run.
func (s *State) applyRun(e thread.Event) error {
	if s.Run == nil {
		return errs.New(errs.Corrupt, "event %d: %s outside of a run", e.Seq, e.Body.Kind())
	}
	switch b := e.Body.(type) {
	case thread.RunEnded:
		s.Run.Ended, s.Run.EndedAt = &b, e.At
	case thread.CancelAsked:
		if s.Run.Ended == nil && s.Run.Cancel == nil {
			s.Run.Cancel = &b
		}
	case thread.BudgetChanged:
		s.Run.Budget = b.Budget
	case thread.CheckStarted:
		s.Run.Check.Open, s.Run.Check.OpenAt = &b, e.At
	case thread.CheckEnded:
		s.endCheck(e, b)
	case thread.ModelFailed:
		s.Run.Failures = append(s.Run.Failures, b)
		s.Overflow.add(b)
	case thread.ModelCompleted:
		return s.step(e, b)
	default:
		return s.applyCall(e)
	}
	return nil
}

func (s *State) applyCall(e thread.Event) error {
	find := func(id string) (*Call, error) {
		if c := s.calls[id]; c != nil {
			return c, nil
		}
		return nil, errs.New(errs.Corrupt, "event %d: %s names the unknown call %.64q", e.Seq, e.Body.Kind(), id)
	}
	switch b := e.Body.(type) {
	case thread.ToolStarted:
		c, err := find(b.Call)
		if err != nil {
			return err
		}
		c.Started, c.StartedAt = &b, e.At
	case thread.ToolCompleted:
		c, err := find(b.Call)
		if err != nil {
			return err
		}
		s.complete(e, c, b)
	case thread.ApprovalAsked:
		c, err := find(b.Call)
		if err != nil {
			return err
		}
		c.permit = c.Permit()
		c.Asked, c.AskedSeq, c.AskedAt, c.Decided = &b, e.Seq, e.At, nil
	case thread.ApprovalDecided:
		c, err := find(b.Call)
		if err != nil {
			return err
		}
		if c.Decided == nil { // the first one holds
			c.Decided = &b
		}
	default:
		return errs.New(errs.Internal, "event %d: no meaning for %s", e.Seq, e.Body.Kind())
	}
	return nil
}

func (s *State) refuse(b thread.NetworkRefused) {
	if s.Run == nil {
		return
	}
	r := &s.Run.Refused
	if r.Count++; r.Lately == nil {
		r.Lately = map[string]bool{}
	}
	r.Lately[target(b)] = true
}

func target(b thread.NetworkRefused) string { return net.JoinHostPort(b.Host, strconv.Itoa(b.Port)) }

// MayTell reports whether the log is to tell of a refusal, and as the last one of the run.
func (r RefusedState) MayTell(b thread.NetworkRefused) (tell, last bool) {
	return r.Count < refusedMax && len(r.Lately) < refusedStepMax && !r.Lately[target(b)], r.Count == refusedMax-1
}

func (s *State) startRun(e thread.Event, b thread.RunStarted) error {
	if s.Run != nil && s.Run.Ended == nil {
		return errs.New(errs.Corrupt, "event %d: a run began before the last one ended", e.Seq)
	}
	s.Run = &CurrentRun{ID: e.Run, Started: b, At: e.At, First: e.Seq, Budget: b.Budget, Planning: b.Planning}
	return nil
}

func (s *State) endCheck(e thread.Event, b thread.CheckEnded) {
	c := &s.Run.Check
	c.Count, c.Open, c.Last, c.LastSeq = c.Count+1, nil, &b, e.Seq
	s.Run.Usage = s.Run.Usage.Add(b.Usage)
	s.Run.CostUSD += b.CostUSD
}

func (s *State) input(e thread.Event, b thread.Input) {
	if b.ID != "" {
		if s.inputs[b.ID] {
			return // a repeated send
		}
		s.inputs[b.ID] = true
	}
	if s.Run != nil {
		s.Run.spend(b.Spent)
	}
	s.Queue = append(s.Queue, &Item{Seq: e.Seq, At: e.At, Input: &b})
}

// spend counts what sub-agents used.
func (r *CurrentRun) spend(by thread.Spent) {
	r.Below += by.Steps
	r.Usage = r.Usage.Add(by.Usage)
	r.CostUSD += by.CostUSD
}

// Spent is what the run used, with the sub-agents that are over.
func (r *CurrentRun) Spent() thread.Spent {
	return thread.Spent{Steps: r.Steps + r.Below, Usage: r.Usage, CostUSD: r.CostUSD}
}

// HasInput reports whether an input of this id is known.
func (s *State) HasInput(id string) bool { return s.inputs[id] }

func (s *State) step(e thread.Event, b thread.ModelCompleted) error {
	n := 0
	for n < len(s.Queue) && s.Queue[n].Seq <= b.Through {
		n++
	}
	s.Items = append(s.Items, s.Queue[:n]...)
	s.Queue = slices.Clone(s.Queue[n:])
	if s.compactAskedSeq <= b.Through {
		s.CompactAsked = nil // there was nothing to shorten
	}
	item := &Item{Seq: e.Seq, At: e.At, Step: &b}
	for _, call := range b.Message.Calls() {
		if s.calls[call.ID] != nil {
			return errs.New(errs.Corrupt, "event %d: the call %.64q is there twice", e.Seq, call.ID)
		}
		c := &Call{Call: *call, Step: e.Seq}
		s.calls[call.ID] = c
		item.Calls = append(item.Calls, c)
	}
	s.Items = append(s.Items, item)
	s.Run.Steps++
	s.Run.Usage = s.Run.Usage.Add(b.Usage)
	s.Run.CostUSD += b.CostUSD
	s.Run.Failures, s.Run.Refused.Lately = nil, nil
	s.Run.Model = b.Model
	return nil
}

func (s *State) complete(e thread.Event, c *Call, b thread.ToolCompleted) {
	c.Completed, c.DoneSeq = &b, e.Seq
	if b.PlanAccepted {
		s.Run.Planning = false
	}
	if b.Compact != nil {
		s.askCompact(e, b.Compact)
	}
	if b.Skill != "" && !slices.Contains(s.Learned, b.Skill) && len(s.Learned) < learnedMax {
		s.Learned, s.learnedAt = append(s.Learned, b.Skill), append(s.learnedAt, e.Seq)
	}
	s.Run.spend(thread.Spent{Steps: b.Steps, Usage: b.Usage, CostUSD: b.CostUSD})
	if b.Todos != nil && !b.Failed {
		s.Todos = b.Todos
		s.plans = append(s.plans, plan{c.Step, b.Todos})
	}
	if last := s.Last(); last != nil {
		last.Todos = s.Todos
	}
	for _, f := range b.Files {
		s.files = append(s.files, fileChange{e.Seq, f})
	}
	if b.File != "" && b.Blob != "" {
		s.archives = append(s.archives, archive{e.Seq, b.File, b.Blob, b.Bytes})
	}
}

func (s *State) policy(e thread.Event, b thread.PolicyChanged) error {
	var rules []definition.Rule
	if err := json.Unmarshal(b.Rules, &rules); err != nil {
		return errs.Wrap(errs.Corrupt, err, "event %d: the rules cannot be read", e.Seq)
	}
	s.Rules = append(rules, s.Rules...)
	return nil
}

func (s *State) clear(e thread.Event, b thread.Cleared) {
	for _, id := range b.Calls {
		if c := s.calls[id]; c != nil && c.ClearedAt == 0 {
			c.ClearedAt = e.Seq
		}
	}
	s.newEpoch(e.Seq)
}

func (s *State) askCompact(e thread.Event, b *thread.CompactAsked) {
	s.CompactAsked, s.compactAskedSeq = b, e.Seq
}

func (s *State) compact(e thread.Event, b thread.Compacted) {
	s.CompactAsked = nil
	s.undo = append(s.undo, before{e.Seq, s.Items})
	items := []*Item{{Seq: e.Seq, At: e.At, Summary: &b}}
	for _, item := range s.Items {
		if item.Summary != nil {
			continue // the new one covers it
		}
		if item.Seq > b.Through || slices.Contains(b.Keep, item.Seq) {
			items = append(items, item)
		}
	}
	s.Items = items
	s.newEpoch(e.Seq)
	if b.File != "" && b.Blob != "" {
		s.archives = append(s.archives, archive{e.Seq, b.File, b.Blob, b.Bytes})
	}
	if s.Run != nil {
		s.Run.Usage = s.Run.Usage.Add(b.Usage)
		s.Run.CostUSD += b.Cost
	}
}

// rewind forgets the conversation after an event. What was spent is spent, and
// ids of calls and inputs stay taken.
func (s *State) rewind(at, to uint64) {
	for n := len(s.undo) - 1; n >= 0 && s.undo[n].seq > to; n-- {
		s.Items, s.undo = s.undo[n].items, s.undo[:n]
	}
	s.Items = slices.DeleteFunc(slices.Clone(s.Items), func(i *Item) bool { return i.Seq > to })
	s.Queue = slices.DeleteFunc(slices.Clone(s.Queue), func(i *Item) bool { return i.Seq > to })
	s.files = slices.DeleteFunc(s.files, func(f fileChange) bool { return f.seq > to })
	s.archives = slices.DeleteFunc(s.archives, func(a archive) bool { return a.seq > to })
	s.plans = slices.DeleteFunc(s.plans, func(p plan) bool { return p.step > to })
	for n := len(s.learnedAt); n > 0 && s.learnedAt[n-1] > to; n-- { // what was not learned approves nothing
		s.Learned, s.learnedAt = s.Learned[:n-1], s.learnedAt[:n-1]
	}
	s.Todos = nil
	if n := len(s.plans); n > 0 { // its step may be in a summary by now
		s.Todos = s.plans[n-1].todos
	}
	for _, item := range s.Items {
		for _, c := range item.Calls {
			if c.ClearedAt > to {
				c.ClearedAt = 0
			}
		}
	}
	s.newEpoch(at)
}

func (s *State) newEpoch(at uint64) {
	s.Epoch++
	s.EpochSeq = at
}

// Call returns a call by its id, nil = unknown.
func (s *State) Call(id string) *Call { return s.calls[id] }

// Last returns the last step of the conversation, nil = none.
func (s *State) Last() *Item {
	for _, item := range slices.Backward(s.Items) {
		if item.Step != nil {
			return item
		}
	}
	return nil
}

// Open returns the calls of the last step that have no result yet, in order.
func (s *State) Open() []*Call {
	last := s.Last()
	if last == nil {
		return nil
	}
	var open []*Call
	for _, c := range last.Calls {
		if c.Completed == nil {
			open = append(open, c)
		}
	}
	return open
}

// Files are the thread's own files: path -> change that holds.
func (s *State) Files() map[string]thread.FileChange {
	files := map[string]thread.FileChange{}
	for _, f := range s.files {
		if f.Blob == "" {
			delete(files, f.Path)
		} else {
			files[f.Path] = f.FileChange
		}
	}
	return files
}

// Archived is a file that holds what left the prompt: a blob, or short text.
type Archived struct {
	Blob, Text string
	Bytes      int64
}

// ResultFile is the path under which the whole result of a call can be read.
func ResultFile(call string) string { return "/large_tool_results/" + call }

// Cleared returns the result of a call that left the prompt and is no file yet.
func (s *State) Cleared(call string) (Archived, bool) {
	c := s.calls[call]
	if c == nil || c.ClearedAt == 0 || c.Completed == nil || c.Completed.Blob != "" {
		return Archived{}, false
	}
	if c.Completed.Shown != "" {
		return Archived{Blob: c.Completed.Shown, Bytes: c.Completed.Bytes}, true
	}
	text := (llm.Message{Blocks: c.Completed.Blocks}).String()
	return Archived{Text: text, Bytes: int64(len(text))}, true
}

// Archive are the files that hold what left the prompt, by path.
func (s *State) Archive() map[string]Archived {
	files := map[string]Archived{}
	for id := range s.calls {
		if f, ok := s.Cleared(id); ok {
			files[ResultFile(id)] = f
		}
	}
	for _, a := range s.archives {
		files[a.path] = Archived{Blob: a.blob, Bytes: a.bytes}
	}
	return files
}
