package screen

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/server/transcript"
	"github.com/skete-dev/skete/thread"
)

// Bounds of what is kept to be shown.
const (
	liveBytesMax   = 64 << 10 // of an answer or an output on its way
	failedLinesMax = 5        // of the output of a failed call
)

// Ask is a call that waits for a person.
type Ask struct {
	Kind   string // api.AskQuestion, api.AskPlan; "" = whether the call may be done
	Thread string // "" = the run's own
	Agent  string
	Call   string
	Tool   string
	Args   json.RawMessage // nil = not known here
	Reason string
	// Allowed decisions.
	Allowed []string
	Expires time.Time
}

// Allows reports whether a decision may be made.
func (a Ask) Allows(d string) bool { return slices.Contains(a.Allowed, d) }

// Story is what is known of a run: the fold of its news.
type Story struct {
	branches map[string]*branch
	asks     []Ask
	todos    []thread.Todo
	began    time.Time
	last     time.Time // of the last event
	ended    *thread.RunEnded
	lost     int
	talked   bool // something stands on the screen already
	place    string
}

// branch is one thread of the run's tree.
type branch struct {
	agent    string
	steps    int
	usage    llm.Usage
	cost     float64
	calls    map[string]*call
	running  []*call
	answered uint64 // the last event that ended an answer
	since    time.Time
	text     string // of the answer that is streaming
	thinking string
	writing  []*call // calls that are being written, by index
	failure  string
	counted  bool // what it spent is in the result of the call that started it
	ended    bool
	window   thread.Ledger // of the last answer
}

// call is a tool call.
type call struct {
	id, tool string
	args     json.RawMessage
	started  time.Time
	output   string // its end
	written  string // arguments on their way
	done     bool
	answered bool // by a person, in place of the tool
}

// NewStory returns an empty one.
func NewStory() *Story { return &Story{branches: map[string]*branch{}} }

// Place says by what and where the run works; the foot of the screen shows it.
func (s *Story) Place(parts ...string) {
	var clean []string
	for _, p := range parts {
		clean = append(clean, Clean(p))
	}
	s.place = join(" · ", clean...)
}

// Asks are the calls that wait for a person, the oldest first.
func (s *Story) Asks() []Ask { return s.asks }

// Ended is the run's end, nil = it goes on.
func (s *Story) Ended() *thread.RunEnded { return s.ended }

// Busy reports whether something moves without news: a spinner.
func (s *Story) Busy() bool { return s.ended == nil && !s.began.IsZero() }

func (s *Story) branch(id string) *branch {
	b := s.branches[id]
	if b == nil {
		b = &branch{calls: map[string]*call{}}
		s.branches[id] = b
	}
	return b
}

// Apply takes news and returns what is to be shown for good.
func (s *Story) Apply(n client.News) []Block {
	var blocks []Block
	switch {
	case n.Event != nil:
		blocks = s.event(n.Thread, EventOf(*n.Event))
	case n.Live != nil:
		s.live(s.branch(n.Thread), *n.Live)
	case n.Lost > 0:
		s.lost += n.Lost
	}
	if len(blocks) > 0 {
		blocks[0].Gap = blocks[0].Gap && s.talked
		s.talked = true
	}
	return blocks
}

// EventOf takes an event apart. What a newer server wrote, and what cannot be
// read, is one of an unknown kind: looking at it does no harm.
func EventOf(e api.RunEvent) thread.Event {
	var known thread.Event
	data, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(data, &known)
	}
	if err != nil {
		return thread.Event{
			Seq: e.Seq, At: e.At, Run: thread.RunID(e.Run),
			Body: thread.Unknown{Name: thread.Kind(e.Kind), V: e.V, Data: e.Data},
		}
	}
	return known
}

func (s *Story) event(id string, e thread.Event) []Block {
	br := s.branch(id)
	if e.At.After(s.last) {
		s.last = e.At
	}
	switch b := e.Body.(type) {
	case thread.Opened:
		br.agent = Clean(b.Name)
	case thread.RunStarted:
		return s.started(id, br, e)
	case thread.RunEnded:
		return s.finished(id, br, b)
	case thread.Input:
		br.since = e.At
		return s.input(id, b)
	case thread.ModelCompleted:
		return s.answer(id, br, e, b)
	case thread.ModelFailed:
		return br.modelFailed(id, e, b)
	default:
		return s.toolEvent(id, br, e)
	}
	return nil
}

func (s *Story) toolEvent(id string, br *branch, e thread.Event) []Block {
	switch b := e.Body.(type) {
	case thread.ToolStarted:
		br.start(e, b)
	case thread.ToolCompleted:
		return s.completed(id, br, e, b)
	case thread.ApprovalAsked:
		return s.asked(id, br, b)
	case thread.ApprovalDecided:
		return s.decided(id, br, b)
	default:
		if id == "" {
			return remark(e)
		}
	}
	return nil
}

// remark tells what is neither said nor done.
func remark(e thread.Event) []Block {
	text := ""
	switch b := e.Body.(type) {
	case thread.Compacted:
		text = "the conversation so far was replaced by a summary"
	case thread.CompactAsked:
		text = "a summary of the conversation was asked for"
	case thread.CheckStarted:
		text = "the check runs"
	case thread.CheckEnded:
		return checkBlocks(b)
	case thread.Rewound:
		text = fmt.Sprintf("the conversation was taken back to event %d", b.To)
	case thread.CancelAsked:
		text = join(": ", "cancel was asked for", b.Reason)
	case thread.BudgetChanged:
		text = "the budget was changed"
	case thread.PolicyChanged:
		text = "a rule was added"
	case thread.NetworkRefused:
		return []Block{{Mark: "✗", Style: Red, Text: Clean("the network refused " + transcript.RefusedWords(b)), Tone: Dim, One: true, Indent: 2}}
	case thread.Bound:
		if b.Why == "" {
			return nil
		}
		text = fmt.Sprintf("it works in another machine now, %s: %s", b.Machine, b.Why)
	default:
		return nil
	}
	return []Block{{Mark: "·", Style: Dim, Text: Clean(text), Tone: Dim}}
}

func checkBlocks(b thread.CheckEnded) []Block {
	block := Block{Mark: "✓", Style: Green, Text: "the check " + transcript.CheckWords(b), Indent: 2}
	if !b.Passed {
		block.Mark, block.Style = "✗", Red
	}
	return []Block{block}
}

func (s *Story) started(id string, br *branch, e thread.Event) []Block {
	br.since, br.ended = e.At, false
	if id != "" {
		return nil
	}
	s.ended = nil
	if s.began.IsZero() {
		s.began = e.At
		return nil
	}
	return []Block{{Mark: "·", Style: Dim, Text: "the run goes on", Tone: Dim}}
}

func (s *Story) input(id string, b thread.Input) []Block {
	text := strings.TrimSpace(Clean(llm.Message{Blocks: b.Blocks}.String()))
	switch {
	case id != "" || text == "":
		return nil
	case b.From == "user":
		return []Block{{Mark: "❯", Style: Cyan, Text: text, Tone: Bold, Gap: true}}
	}
	return []Block{{Mark: "·", Style: Dim, Text: Clean(b.From) + ": " + text, Tone: Dim}}
}

func (s *Story) answer(id string, br *branch, e thread.Event, b thread.ModelCompleted) []Block {
	br.steps++
	br.usage = br.usage.Add(b.Usage)
	br.cost += b.CostUSD
	br.answered, br.since = e.Seq, e.At
	if b.Ledger.Total > 0 {
		br.window = b.Ledger
	}
	br.void()
	for _, c := range b.Message.Calls() {
		br.calls[c.ID] = &call{id: c.ID, tool: Clean(c.Name), args: c.Args}
	}
	text := strings.TrimSpace(Clean(b.Message.String()))
	if id != "" || text == "" {
		return nil
	}
	return []Block{{Text: text, Gap: true}}
}

// void forgets the answer on its way.
func (br *branch) void() {
	br.text, br.thinking, br.writing, br.failure = "", "", nil, ""
}

func (br *branch) modelFailed(id string, e thread.Event, b thread.ModelFailed) []Block {
	br.void()
	br.answered = e.Seq
	text := join(": ", fmt.Sprintf("attempt %d of the model call failed", b.Attempt), Clean(b.Text))
	if b.Wait > 0 {
		text += "; again in " + span(b.Wait)
	}
	if id != "" {
		br.failure = text
		return nil
	}
	return []Block{{Mark: "!", Style: Yellow, Text: text}}
}

func (br *branch) call(id, tool string) *call {
	c := br.calls[id]
	if c == nil {
		c = &call{id: id, tool: Clean(tool)}
		br.calls[id] = c
	}
	return c
}

func (br *branch) start(e thread.Event, b thread.ToolStarted) {
	c := br.call(b.Call, b.Tool)
	c.started = e.At
	if b.Args != nil {
		c.args = b.Args
	}
	if !slices.Contains(br.running, c) {
		br.running = append(br.running, c)
	}
}

func (s *Story) completed(id string, br *branch, e thread.Event, b thread.ToolCompleted) []Block {
	c := br.call(b.Call, b.Tool)
	c.done = true
	br.running = slices.DeleteFunc(br.running, func(r *call) bool { return r == c })
	s.answerAsk(id, b.Call)
	br.since = e.At
	if id == "" {
		br.usage = br.usage.Add(b.Usage)
		br.cost += b.CostUSD
		// One in the background goes on, and its call has spent nothing.
		for sub, child := range s.branches {
			if b.Usage.Total() > 0 && strings.Contains(sub+"/", "/"+b.Call+"/") {
				child.counted = true
			}
		}
	}
	if id != "" {
		return nil
	}
	if b.Todos != nil && !b.Failed {
		s.todos = b.Todos
		return todoBlocks(b.Todos, 0)
	}
	return callBlocks(c, b)
}

func callBlocks(c *call, b thread.ToolCompleted) []Block {
	head := Block{Mark: "✓", Style: Green, Text: c.title(), One: true, Indent: 2}
	exit := ""
	if b.Exit != nil && *b.Exit != 0 {
		exit = fmt.Sprintf("exit %d", *b.Exit)
	}
	code := ""
	if b.Failed && exit == "" {
		code = Clean(b.Code)
	}
	took := ""
	if b.Took >= 100*time.Millisecond {
		took = span(b.Took)
	}
	size := ""
	if n := transcript.OutputBytes(b); n > 0 {
		size = Bytes(n)
	}
	head.Note = join(" · ", exit, code, took, size)
	if c.answered {
		head.Mark, head.Style, head.Note = "→", Yellow, "answered"
		return []Block{head}
	}
	if !b.Failed {
		return []Block{head}
	}
	head.Mark, head.Style = "✗", Red
	blocks := []Block{head}
	for _, line := range lastLines(Clean(llm.Message{Blocks: b.Blocks}.String()), failedLinesMax) {
		blocks = append(blocks, Block{Mark: "│", Style: Dim, Text: line, Tone: Dim, One: true, Indent: 4})
	}
	return blocks
}

// title is "tool  summary of its arguments".
func (c *call) title() string {
	return join("  ", c.tool, transcript.Summary(c.tool, c.args))
}

func lastLines(text string, n int) []string {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(0, len(lines)-n):]
}

func todoBlocks(todos []thread.Todo, indent int) []Block {
	var blocks []Block
	for _, t := range todos {
		b := Block{Mark: "☐", Text: Clean(t.Content), One: true, Indent: indent + 2}
		switch t.Status {
		case "completed":
			b.Mark, b.Style, b.Tone = "☑", Green, Dim
		case "in_progress":
			b.Mark, b.Style, b.Tone = "◐", Yellow, Bold
		}
		blocks = append(blocks, b)
	}
	return blocks
}

func (s *Story) asked(id string, br *branch, b thread.ApprovalAsked) []Block {
	c := br.call(b.Call, b.Tool)
	ask := Ask{
		Kind: string(b.Ask), Thread: id, Agent: br.agent, Call: b.Call, Tool: Clean(b.Tool), Args: askedArgs(c.args, b), Reason: Clean(b.Reason), Allowed: transcript.Decisions(b.Allowed), Expires: b.Expires,
	}
	s.asks = append(s.asks, ask)
	who := ""
	if id != "" {
		who = br.agent + " asks: "
	}
	waits := map[string]string{api.AskQuestion: "waits for an answer", api.AskForm: "waits for an answer"}[ask.Kind]
	if waits == "" {
		waits = "waits for approval"
	}
	return append([]Block{{Mark: "?", Style: Yellow, Text: who + ask.Tool, Note: join(": ", waits, ask.Reason), One: true, Indent: 2}}, askedLines(ask)...)
}

// askedArgs is what a person is asked: about the arguments of a call, or a form.
func askedArgs(args json.RawMessage, b thread.ApprovalAsked) json.RawMessage {
	if b.Form == nil {
		return args
	}
	form, err := json.Marshal(b.Form)
	if err != nil {
		return nil
	}
	return form
}

// askedLines are what a call would do, or as much of it as fits a transcript.
func askedLines(a Ask) []Block {
	lines, left := firstLines(a.lines(a.Args))
	blocks := argBlocks(lines)
	if left > 0 || a.Args == nil {
		blocks = append(blocks, Block{Mark: "│", Style: Dim, Text: join(" ", "…", "`skete approve` shows all of it"), Indent: 2})
	}
	return blocks
}

func (s *Story) answerAsk(id, call string) {
	s.asks = slices.DeleteFunc(s.asks, func(a Ask) bool { return a.Thread == id && a.Call == call })
}

func (s *Story) decided(id string, br *branch, b thread.ApprovalDecided) []Block {
	form := slices.ContainsFunc(s.asks, func(a Ask) bool { return a.Thread == id && a.Call == b.Call && a.Kind == api.AskForm })
	s.answerAsk(id, b.Call)
	c := br.call(b.Call, "")
	words := map[thread.Decision]string{
		thread.Approve: "approved", thread.Edit: "approved with other arguments", thread.Reject: "rejected", thread.Respond: "answered", thread.Dismiss: "dismissed",
	}
	if b.Decision == thread.Edit {
		c.args = b.Args
	}
	c.answered = b.Decision == thread.Respond && !form // else the call goes on
	text := join(": ", join(" ", words[b.Decision], "by", Clean(cmp.Or(b.ByName, b.By))), Clean(b.Text))
	return []Block{{Mark: "→", Style: Dim, Text: text, Note: c.title(), One: true, Indent: 2}}
}

func (s *Story) finished(id string, br *branch, b thread.RunEnded) []Block {
	br.void()
	br.running, br.ended = nil, true
	if id != "" {
		return nil
	}
	s.ended, s.asks = &b, nil
	mark, style := "✔", Green
	switch b.State {
	case thread.RunCancelled, thread.RunTimedOut:
		mark, style = "■", Yellow
	case thread.RunFailed:
		mark, style = "✘", Red
	}
	words := strings.ReplaceAll(Clean(string(b.State)), "_", " ")
	if b.State != thread.RunSucceeded && b.Reason != "" && b.Reason != string(b.State) {
		words += " (" + Clean(b.Reason) + ")"
	}
	var blocks []Block
	if len(b.Result) > 0 {
		var out bytes.Buffer
		if json.Indent(&out, b.Result, "", "  ") == nil {
			blocks = append(blocks, Block{Text: Clean(out.String()), Gap: true})
		}
	}
	if b.State != thread.RunSucceeded && b.Text != "" {
		words += ": " + Clean(b.Text)
	}
	blocks = append(blocks, Block{Mark: mark, Style: style, Text: words, Tone: Bold, Gap: true})
	return append(blocks, Block{Text: s.numbers(s.last), Tone: Dim, One: true, Indent: 2})
}

// numbers is the run so far: steps, tokens, cost, time.
func (s *Story) numbers(now time.Time) string {
	own := s.branch("")
	usage, cost := own.usage, own.cost
	for id, br := range s.branches {
		if id != "" && !br.counted {
			usage, cost = usage.Add(br.usage), cost+br.cost
		}
	}
	took := ""
	if !s.began.IsZero() {
		took = span(now.Sub(s.began))
	}
	return join(" · ", count(own.steps, "step"), tokens(usage.Total()), Cost(cost), took)
}

// live takes news that are not in the log yet. Those that an event has
// overtaken are dropped.
func (s *Story) live(br *branch, l api.Live) {
	if l.Kind == "output" {
		c := br.calls[l.Call]
		if c != nil && !c.done {
			c.output = joined(c.output, l)
		}
		return
	}
	if l.After < br.answered {
		return
	}
	switch l.Kind {
	case "text":
		br.text = joined(br.text, l)
	case "reasoning":
		br.thinking = joined(br.thinking, l)
	case "tool_call":
		if !l.Again || l.Index >= len(br.writing) {
			br.writing = append(br.writing, &call{tool: Clean(l.Name)})
		}
	case "tool_args":
		if n := len(br.writing); n > 0 {
			c := br.writing[min(l.Index, n-1)]
			c.written = joined(c.written, l)
		}
	case "reset":
		br.void()
	}
}

// joined is the end of a text with a piece more of it, or anew.
func joined(had string, l api.Live) string {
	if l.Again {
		had = ""
	}
	return tail(had+l.Text, liveBytesMax)
}

// tail keeps the end of a text.
func tail(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-most/2:], "")
}
