package thread

import (
	"encoding/json"
	"time"

	"github.com/skete-dev/skete/llm"
)

// Who does something is By, the id of a key or of what acts by itself. ByName is what people
// called the key at that time: keys end, and the log keeps what was. It is missing where an
// id has no name, and in older logs.

// Opened begins every thread.
type Opened struct {
	// Agent is the whole definition as it was resolved, so that a thread goes
	// on as it began whatever happens to the file. Its type is agent.Definition.
	Agent json.RawMessage `json:"agent"`
	Name  string          `json:"name"` // the agent's
	Title string          `json:"title,omitempty"`
	// Fork: the thread begins as a copy of another one's first events, which
	// follow this event's original Opened and stand here again. See Forked.
	Fork *Fork `json:"fork,omitempty"`
	// Labels are the caller's own.
	Labels map[string]string `json:"labels,omitempty"`
}

// Fork says where a thread came from.
type Fork struct {
	Thread ID     `json:"thread"`
	Seq    uint64 `json:"seq"` // the last event that was taken over
}

// RunStarted begins a run. Its first Input follows in the same append.
type RunStarted struct {
	By     string `json:"by,omitempty"` // who asked: a key's id, "local", the parent's thread
	ByName string `json:"by_name,omitempty"`
	Budget Budget `json:"budget,omitzero"`
	// Schema of the result that is wanted, nil = text.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Model overrides the agent's; the name of the catalogue.
	Model string `json:"model,omitempty"`
	// Wake counts the runs of the thread that sub-agents in the background started by
	// their ends since a person did; they share one budget.
	Wake int `json:"wake,omitempty"`
	// Planning: only tools that read may be used until a person has accepted a plan.
	Planning bool `json:"planning,omitempty"`
	// Check is what has to hold before the run succeeds, nil = nothing.
	Check *RunCheck `json:"check,omitempty"`
}

// RunCheck is what has to hold before a run succeeds. When it does not, the model is told
// what is wrong and goes on.
type RunCheck struct {
	Command string `json:"command,omitempty"` // has to exit with 0, in the thread's machine
	Rubric  string `json:"rubric,omitempty"`  // what a critic, which is the run's model, has to find true
}

// Budget bounds a run and everything that it starts. Zero = the default.
type Budget struct {
	Steps   int           `json:"steps,omitempty" yaml:"steps"`
	Tokens  int           `json:"tokens,omitempty" yaml:"tokens"`
	CostUSD float64       `json:"cost_usd,omitempty" yaml:"cost_usd"`
	Wall    time.Duration `json:"wall_ns,omitempty" yaml:"wall"` // from RunStarted, waiting for people not counted
}

// RunState is the state of a run.
type RunState string

// States. The last four are final.
const (
	RunPending     RunState = "pending"     // wants to go on; no server drives it right now
	RunRunning     RunState = "running"     // a server drives it
	RunInterrupted RunState = "interrupted" // waits for a person
	RunSucceeded   RunState = "succeeded"
	RunFailed      RunState = "failed"
	RunCancelled   RunState = "cancelled"
	RunTimedOut    RunState = "timed_out"
)

// Final reports whether a run in this state is over.
func (s RunState) Final() bool {
	return s == RunSucceeded || s == RunFailed || s == RunCancelled || s == RunTimedOut
}

// RunEnded ends a run.
type RunEnded struct {
	State  RunState        `json:"state"`
	Reason string          `json:"reason,omitempty"` // a code: done, steps, tokens, cost, wall, loop, model, cancelled, output
	Text   string          `json:"text,omitempty"`   // for people; of a success: the model's last words
	Result json.RawMessage `json:"result,omitempty"` // structured output
	// Blob holds the result when it is too large for an event.
	Blob string `json:"result_blob,omitempty"`
}

// Claimed says who drives the thread from here on: the previous driver
// finds the end moved and stops.
type Claimed struct {
	Node string `json:"node"`
	Term uint64 `json:"term"`
}

// Input is what enters the conversation other than by the model or a tool. It
// takes effect before the next model call.
type Input struct {
	ID     string      `json:"id,omitempty"` // the sender's, so that a repeated send is one input
	From   string      `json:"from"`         // "user", "parent", "sub-agent", "skete" (guards, notices)
	Name   string      `json:"name,omitempty"`
	By     string      `json:"by,omitempty"` // of a person: the id of whom Name names
	Blocks []llm.Block `json:"blocks"`
	// Shown is a blob of the blocks as JSON when they are too large for an
	// event; Blocks are then their beginning, for views.
	Shown       string `json:"shown_blob,omitempty"`
	ShownTokens int    `json:"shown_tokens,omitempty"`
	// Spent is what a sub-agent in the background used that this tells the end of.
	Spent Spent `json:"spent,omitzero"`
}

// Spent is what sub-agents used, with everything beneath them.
type Spent struct {
	Steps   int       `json:"steps,omitempty"`
	Usage   llm.Usage `json:"usage,omitzero"`
	CostUSD float64   `json:"cost_usd,omitempty"`
}

// Add returns the sum.
func (s Spent) Add(o Spent) Spent {
	return Spent{s.Steps + o.Steps, s.Usage.Add(o.Usage), s.CostUSD + o.CostUSD}
}

// Context is what the prompt is built from beside the conversation. The last
// one holds. Texts beyond InlineBytesMax are blobs.
type Context struct {
	Now    time.Time     `json:"now"`
	Memory []ContextFile `json:"memory,omitempty"`
	Skills []ContextFile `json:"skills,omitempty"`
	// Pinned lists the skills with the versions that the run keeps, as JSON.
	Pinned string `json:"pinned_blob,omitempty"`
	// Tools lists the tools that are not built in and that the run keeps, as JSON.
	Tools string `json:"tools_blob,omitempty"`
	// LeftOut says which tools the run has not, and why. The model is not told.
	LeftOut []string `json:"left_out,omitempty"`
	Note    string   `json:"note,omitempty"` // about the machine: isolation, tools, directory
}

// ContextFile is a file that the prompt shows.
type ContextFile struct {
	Path string `json:"path"`
	Text string `json:"text,omitempty"`
	Blob string `json:"blob,omitempty"`
}

// ModelCompleted is one whole answer of the model; it begins a step. Calls
// that a hook or a policy refused are answered in the same append.
type ModelCompleted struct {
	Message llm.Message `json:"message"`
	// Blob holds the message as JSON when it is too large for an event; then
	// Message has only the shapes: kinds, call ids and names.
	Blob    string    `json:"blob,omitempty"`
	Usage   llm.Usage `json:"usage"`
	CostUSD float64   `json:"cost_usd,omitempty"`
	Model   string    `json:"model"`
	Stop    llm.Stop  `json:"stop"`
	Attempt int       `json:"attempt,omitempty"` // 1 = the first succeeded
	// Prompt is the sha256 of what was sent, so that a test can prove that the
	// prompt is a function of the log.
	Prompt string `json:"prompt,omitempty"`
	// Through is the last event that the prompt knew. Inputs between it and
	// this event enter after this message.
	Through uint64 `json:"through"`
	// Ledger says what filled the window.
	Ledger Ledger `json:"ledger,omitzero"`
	// Took is how long the answer took.
	Took time.Duration `json:"took_ns,omitempty"`
}

// Ledger says what fills the window, in estimated tokens.
type Ledger struct {
	System    int `json:"system"`           // instructions
	Memory    int `json:"memory,omitempty"` // memory, skills, notes
	Tools     int `json:"tools"`
	Summary   int `json:"summary,omitempty"`
	Inputs    int `json:"inputs"`
	Assistant int `json:"assistant"`
	Results   int `json:"results"`
	// Total is the best guess for the whole: the vendor's own count of the last
	// prompt and an estimate of what came after, where there is one.
	Total  int `json:"total"`
	Window int `json:"window,omitempty"`
}

// Sum adds the estimates up.
func (l Ledger) Sum() int {
	return l.System + l.Memory + l.Tools + l.Summary + l.Inputs + l.Assistant + l.Results
}

// ModelFailed is an attempt that failed.
type ModelFailed struct {
	Attempt int           `json:"attempt"`
	Trouble llm.Trouble   `json:"trouble"`
	Text    string        `json:"text,omitempty"` // for people
	Wait    time.Duration `json:"wait_ns,omitempty"`
	Model   string        `json:"model,omitempty"`
	// With an overflow: what the server counts (0 = it did not say), and what we took
	// the prompt for.
	WindowTokens int `json:"window_tokens,omitempty"`
	PromptTokens int `json:"prompt_tokens,omitempty"`
	Estimated    int `json:"estimated_tokens,omitempty"`
}

// ToolStarted allows the effects of a call: none happens before it is durable.
type ToolStarted struct {
	Call string `json:"call"`
	Tool string `json:"tool"`
	// Key is what the effect is keyed by: the same for ever, unique in the tenant.
	Key string `json:"key"`
	// Args are those that run, when a hook or a person changed them.
	Args json.RawMessage `json:"args,omitempty"`
	// Plan is what the tool needs to know should it be asked again after a
	// crash: for an edit the file's hashes before and after it.
	Plan json.RawMessage `json:"plan,omitempty"`
	// Machine is the sandbox in which it runs, "" = none.
	Machine string `json:"machine,omitempty"`
}

// ToolCompleted is the result of a call.
type ToolCompleted struct {
	Call string `json:"call"`
	Tool string `json:"tool,omitempty"`
	// Blocks are what the model sees: the whole result, or a preview.
	Blocks []llm.Block `json:"blocks"`
	Failed bool        `json:"failed,omitempty"`
	Code   string      `json:"code,omitempty"` // of a failure, from a small fixed set
	Exit   *int        `json:"exit,omitempty"`
	// Shown is a blob of the blocks that the model sees, as JSON, when they are
	// too large for an event; Blocks are then their beginning, for views.
	// ShownTokens estimates their size.
	Shown       string `json:"shown_blob,omitempty"`
	ShownTokens int    `json:"shown_tokens,omitempty"`
	// Blob holds the whole text when Blocks hold a preview, File is where the
	// model finds it.
	Blob  string        `json:"blob,omitempty"`
	Bytes int64         `json:"bytes,omitempty"` // of the whole text
	File  string        `json:"file,omitempty"`
	Took  time.Duration `json:"took_ns,omitempty"`
	// Revision of the workspace after the call, once there is a history.
	Revision string `json:"revision,omitempty"`
	// Files are changes of the thread's own files: its state is the log.
	Files []FileChange `json:"files,omitempty"`
	// Usage, CostUSD and Steps are what sub-agents spent for this call.
	Usage   llm.Usage `json:"usage,omitzero"`
	CostUSD float64   `json:"cost_usd,omitempty"`
	Steps   int       `json:"steps,omitempty"`
	// Todos are the plan after a successful write_todos; kept here so that a
	// view need not parse arguments.
	Todos []Todo `json:"todos,omitempty"`
	// PlanAccepted: a person has accepted the plan that the call handed in.
	PlanAccepted bool `json:"plan_accepted,omitempty"`
	// Compact: the call asks for a shorter conversation.
	Compact *CompactAsked `json:"compact,omitempty"`
	// Skill is the one that the call has taught.
	Skill string `json:"skill,omitempty"`
}

// FileChange is a file of the thread that was written, or deleted (Blob "").
type FileChange struct {
	Path  string `json:"path"`
	Blob  string `json:"blob,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
}

// Todo is an entry of a plan.
type Todo struct {
	Content string `json:"content"`
	Status  string `json:"status"` // pending, in_progress, completed
}

// Decision is a person's answer to an approval.
type Decision string

// Decisions.
const (
	Approve Decision = "approve"
	Edit    Decision = "edit"    // run with other arguments
	Reject  Decision = "reject"  // do not run; the model learns why
	Respond Decision = "respond" // do not run; the text is the result
	Dismiss Decision = "dismiss" // of a form: neither answered nor refused
)

// AskKind is what a person is asked.
type AskKind string

// Kinds of questions.
const (
	AskApproval AskKind = ""         // whether the call may be done
	AskQuestion AskKind = "question" // something the agent wants to know: Respond is the answer
	AskPlan     AskKind = "plan"     // whether it may go to work by this plan
	// AskForm is a question that comes up while a call runs, of the program that it calls:
	// Respond is what was filled in, as JSON, Reject refuses.
	AskForm AskKind = "form"
)

// Decisions are the answers that fit.
func (k AskKind) Decisions() []Decision {
	switch k {
	case AskQuestion:
		return []Decision{Respond, Reject}
	case AskPlan:
		return []Decision{Approve, Edit, Reject}
	case AskForm:
		return []Decision{Respond, Reject, Dismiss}
	}
	return []Decision{Approve, Edit, Reject, Respond}
}

// ApprovalAsked holds a call back until a person decided. One with AskForm is asked by a
// call that runs, perhaps several times.
type ApprovalAsked struct {
	Ask     AskKind    `json:"ask,omitempty"`
	Call    string     `json:"call"`
	Tool    string     `json:"tool"`
	Reason  string     `json:"reason,omitempty"`
	Allowed []Decision `json:"allowed"`
	Expires time.Time  `json:"expires,omitzero"`
	// Args are those that would run, when a hook changed the model's.
	Args json.RawMessage `json:"args,omitempty"`
	// Writes and Reads are the paths that it touches.
	Writes []string `json:"writes,omitempty"`
	Reads  []string `json:"reads,omitempty"`
	// Form is what a program wants to know, with AskForm.
	Form *Form `json:"form,omitempty"`
}

// Form is what a program that a call runs wants a person to fill in. All of it but Warning
// is the program's: data, and nothing that we say.
type Form struct {
	From    string          `json:"from"` // the program, as the operator calls it
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"schema,omitempty"` // of the answer, a flat object; missing = an empty one
	Warning string          `json:"warning,omitempty"`
}

// ApprovalDecided answers. The first one holds; Check refuses a second.
type ApprovalDecided struct {
	Call     string          `json:"call"`
	Decision Decision        `json:"decision"`
	Args     json.RawMessage `json:"args,omitempty"` // with Edit
	Text     string          `json:"text,omitempty"` // with Reject and Respond
	By       string          `json:"by"`             // "expiry" when it expired undecided
	ByName   string          `json:"by_name,omitempty"`
}

// Cleared drops the outputs of calls from the prompt; the log keeps them.
type Cleared struct {
	Calls []string `json:"calls"`
}

// Compacted replaces the conversation up to an event by a summary.
type Compacted struct {
	Through uint64 `json:"through"` // the last event that the summary covers
	Summary string `json:"summary,omitempty"`
	Blob    string `json:"blob,omitempty"` // the whole history
	File    string `json:"file,omitempty"` // where the model finds the whole history, which is Blob
	Bytes   int64  `json:"bytes,omitempty"`
	// Keep are inputs before Through that stay verbatim.
	Keep  []uint64  `json:"keep,omitempty"`
	Usage llm.Usage `json:"usage,omitzero"`
	Cost  float64   `json:"cost_usd,omitempty"`
}

// CompactAsked asks for a Compacted before the next model call, however much room
// there is.
type CompactAsked struct {
	By     string `json:"by,omitempty"`
	ByName string `json:"by_name,omitempty"`
	Focus  string `json:"focus,omitempty"` // what the summary must keep above all
}

// CheckStarted allows the effects of the run's check: the command does not run before
// it is durable.
type CheckStarted struct {
	// Key, Plan and Machine are as in ToolStarted.
	Key     string          `json:"key"`
	Plan    json.RawMessage `json:"plan,omitempty"`
	Machine string          `json:"machine,omitempty"`
}

// CheckEnded is what came of it. The run succeeds when it passed.
type CheckEnded struct {
	Passed bool   `json:"passed,omitempty"`
	Text   string `json:"text,omitempty"` // what the model is told: the output's end, the critic's words
	Exit   *int   `json:"exit,omitempty"`
	Code   string `json:"code,omitempty"` // of a command that failed other than by its exit
	// Usage and CostUSD are the critic's.
	Usage   llm.Usage     `json:"usage,omitzero"`
	CostUSD float64       `json:"cost_usd,omitempty"`
	Took    time.Duration `json:"took_ns,omitempty"`
}

// Rewound takes the conversation back: what is after To is no longer part of it.
type Rewound struct {
	To     uint64 `json:"to"`
	By     string `json:"by,omitempty"`
	ByName string `json:"by_name,omitempty"`
}

// CancelAsked asks the run to end.
type CancelAsked struct {
	By     string `json:"by,omitempty"`
	ByName string `json:"by_name,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// BudgetChanged replaces the run's budget.
type BudgetChanged struct {
	Budget Budget `json:"budget"`
	By     string `json:"by,omitempty"`
	ByName string `json:"by_name,omitempty"`
}

// PolicyChanged adds rules in front of the agent's own ("always allow this").
// Rules are of type agent/policy.Rule.
type PolicyChanged struct {
	Rules  json.RawMessage `json:"rules"`
	By     string          `json:"by,omitempty"`
	ByName string          `json:"by_name,omitempty"`
}

// Bound names the machine in which the thread's tools act from here on.
type Bound struct {
	Machine string `json:"machine"`
	Why     string `json:"why,omitempty"` // "lost": the one before is gone, with all that ran in it
	// Own: it was made for this thread, and ends with it.
	Own bool `json:"own,omitempty"`
}

// NetworkRefused is something that the machine wanted to send and that its policy did not let
// out. The log has the first of each target between two answers of the model, and at most as
// many as the driver's server allows, so that a guest cannot fill it; the machine's own log of
// decisions has all of the last ones. The model is not told.
type NetworkRefused struct {
	Machine string `json:"machine"`
	Host    string `json:"host"`
	Port    int    `json:"port"`
	Method  string `json:"method,omitempty"` // "" = a connection
	Path    string `json:"path,omitempty"`
	Why     string `json:"why"`
	Last    bool   `json:"last,omitempty"` // no more are told of this run
}

// Kind implements Body.
func (Opened) Kind() Kind          { return "thread.opened" }
func (RunStarted) Kind() Kind      { return "run.started" }       // Kind implements Body.
func (RunEnded) Kind() Kind        { return "run.ended" }         // Kind implements Body.
func (Claimed) Kind() Kind         { return "thread.claimed" }    // Kind implements Body.
func (Input) Kind() Kind           { return "input" }             // Kind implements Body.
func (Context) Kind() Kind         { return "context" }           // Kind implements Body.
func (ModelCompleted) Kind() Kind  { return "model.completed" }   // Kind implements Body.
func (ModelFailed) Kind() Kind     { return "model.failed" }      // Kind implements Body.
func (ToolStarted) Kind() Kind     { return "tool.started" }      // Kind implements Body.
func (ToolCompleted) Kind() Kind   { return "tool.completed" }    // Kind implements Body.
func (ApprovalAsked) Kind() Kind   { return "approval.asked" }    // Kind implements Body.
func (ApprovalDecided) Kind() Kind { return "approval.decided" }  // Kind implements Body.
func (Cleared) Kind() Kind         { return "context.cleared" }   // Kind implements Body.
func (Compacted) Kind() Kind       { return "context.compacted" } // Kind implements Body.
func (CompactAsked) Kind() Kind    { return "compact.asked" }     // Kind implements Body.
func (CheckStarted) Kind() Kind    { return "check.started" }     // Kind implements Body.
func (CheckEnded) Kind() Kind      { return "check.ended" }       // Kind implements Body.
func (Rewound) Kind() Kind         { return "thread.rewound" }    // Kind implements Body.
func (CancelAsked) Kind() Kind     { return "cancel.asked" }      // Kind implements Body.
func (BudgetChanged) Kind() Kind   { return "budget.changed" }    // Kind implements Body.
func (PolicyChanged) Kind() Kind   { return "policy.changed" }    // Kind implements Body.
func (Bound) Kind() Kind           { return "machine.bound" }     // Kind implements Body.
func (NetworkRefused) Kind() Kind  { return "network.refused" }   // Kind implements Body.
