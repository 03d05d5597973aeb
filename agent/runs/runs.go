package runs

import (
	"encoding/json"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Start asks for a run. A schedule keeps one as JSON: with an agent by its name,
// and without a Key, which is new each time.
type Start struct {
	// Thread to go on with; "" = a new one.
	Thread thread.ID `json:"thread,omitempty"`
	// Agent is the name of a definition ("" = "default"); Inline wins over it.
	// Both only for a new thread.
	Agent  string                 `json:"agent,omitempty"`
	Inline *definition.Definition `json:"-"`
	Input  []llm.Block            `json:"input"`
	Title  string                 `json:"title,omitempty"`
	Labels map[string]string      `json:"labels,omitempty"`
	Model  string                 `json:"model,omitempty"` // "" = the definition's, then the server's choice
	Budget thread.Budget          `json:"budget,omitzero"`
	Schema json.RawMessage        `json:"schema,omitempty"` // of the result
	// Planning: the agent only reads until a person has accepted its plan.
	Planning bool             `json:"planning,omitempty"`
	EndCheck *thread.RunCheck `json:"check,omitempty"` // what has to hold in the end, nil = nothing
	// Sandbox is an existing sandbox to work in; "" = the thread gets its own.
	Sandbox string `json:"sandbox,omitempty"`
	// Spec overrides what the definition says about the thread's own sandbox;
	// the keys are those of a sandbox spec.
	Spec map[string]any `json:"spec,omitempty"`
	// Keep leaves the thread's own sandbox as it is when the run is over, whatever
	// the definition says.
	Keep bool `json:"keep,omitempty"`
	// InSandbox: the agent itself works in its sandbox, whatever the definition says.
	// Only for a new thread.
	InSandbox bool `json:"in_sandbox,omitempty"`
	// Key makes the call repeatable: the same key is the same run.
	Key string `json:"-"`
	// Run is the id that the run gets, "" = a new one. Only a caller inside the server names
	// it, and only when Begun says that there is none; a new thread gets an id made of it.
	Run thread.RunID `json:"-"`
	By  string       `json:"by,omitempty"` // who asks
	// Operator: the caller may do what the server's own user may. Others cannot
	// name files of the host (models of scripts).
	Operator bool `json:"operator,omitempty"`

	Replay thread.RunID `json:"-"` // the run that is played again; only the supervisor sets it
}

// Run is what there is to know about a run without reading its log.
type Run struct {
	ID      thread.RunID      `json:"id"`
	Thread  thread.ID         `json:"thread"`
	Tenant  string            `json:"tenant"`
	Node    string            `json:"node,omitempty"` // whose the run is; "" = of an earlier version
	Agent   string            `json:"agent"`
	Model   string            `json:"model"`
	Title   string            `json:"title,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	By      string            `json:"by,omitempty"`
	State   thread.RunState   `json:"state"`
	Reason  string            `json:"reason,omitempty"`
	Text    string            `json:"text,omitempty"` // the last words, or what went wrong
	Result  json.RawMessage   `json:"result,omitempty"`
	Created time.Time         `json:"created"`
	Ended   time.Time         `json:"ended,omitzero"`
	Steps   int               `json:"steps"`
	Below   int               `json:"below,omitempty"` // steps of sub-agents that are over
	Usage   llm.Usage         `json:"usage"`
	CostUSD float64           `json:"cost_usd,omitempty"`
	Budget  thread.Budget     `json:"budget,omitzero"`
	Sandbox string            `json:"sandbox,omitempty"`
	// OwnSandbox: it was made for the thread, and ends with it.
	OwnSandbox bool `json:"own_sandbox,omitempty"`
	// Keep: nothing is done to its own sandbox when it is over.
	Keep  bool          `json:"keep,omitempty"`
	Todos []thread.Todo `json:"todos,omitempty"`
	// Planning: no plan has been accepted yet. Check is what has to hold in the end, and
	// Checks how often that was looked at.
	Planning bool             `json:"planning,omitempty"`
	Check    *thread.RunCheck `json:"check,omitempty"`
	Checks   int              `json:"checks,omitempty"`
	// Waiting counts approvals that are open in the run and beneath it.
	Waiting int `json:"waiting,omitempty"`
	// Background counts sub-agents that go on beneath it; only of a single run.
	Background int `json:"background,omitempty"`
	// First and Last are the run's events in its thread's log.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Fork and Replay say what the run came from.
	Fork   *thread.Fork `json:"fork,omitempty"`
	Replay thread.RunID `json:"replay,omitempty"`
}

// Filter chooses runs, the newest first. Zero values choose all.
type Filter struct {
	States    []thread.RunState
	Thread    thread.ID
	Agent     string
	Labels    map[string]string
	Subagents bool // those of sub-agents too
	PageSize  int  // 50
	PageToken string
}

// Page is a part of a list.
type Page struct {
	Runs []Run
	Next string // "" = the last page
}

// Approval is a call that waits for a person.
type Approval struct {
	Ask     thread.AskKind    `json:"ask,omitempty"`
	Run     thread.RunID      `json:"run"`
	Thread  thread.ID         `json:"thread"` // of the run itself, or of a sub-agent beneath it
	Agent   string            `json:"agent"`
	Call    string            `json:"call"`
	Tool    string            `json:"tool"`
	Args    json.RawMessage   `json:"args"`
	Reason  string            `json:"reason,omitempty"`
	Allowed []thread.Decision `json:"allowed"`
	Asked   time.Time         `json:"asked"`
	Expires time.Time         `json:"expires,omitzero"`
	Seq     uint64            `json:"seq"`
}

// Decide answers one approval.
type Decide struct {
	Thread   thread.ID // "" = the run's own
	Call     string
	Decision thread.Decision
	Args     json.RawMessage // with Edit
	Text     string          // with Reject and Respond
	By       string
	// Always adds a rule that allows the same from now on in this thread.
	Always bool
	// Shown is the thread.ArgsHash of what the person was shown, "" = not said:
	// only that is decided about.
	Shown string
}

// LiveKind says what a Live carries.
type LiveKind string

// Kinds of live news.
const (
	LiveText      LiveKind = "text"      // of the model
	LiveReasoning LiveKind = "reasoning" // of the model
	LiveCall      LiveKind = "tool_call" // Name: a call begins to be written; Index
	LiveArgs      LiveKind = "tool_args" // Index
	LiveOutput    LiveKind = "output"    // of a running tool; Call
	LiveReset     LiveKind = "reset"     // the answer that was streaming is void; another attempt comes
)

// Live is news that is not in the log: parts of what will be there soon. It may
// be lost; the event that ends it (model.completed, tool.completed) has it all.
type Live struct {
	Thread thread.ID    `json:"thread"`
	Run    thread.RunID `json:"run"`
	After  uint64       `json:"after"` // the last event of the log when it was sent
	Kind   LiveKind     `json:"kind"`
	Index  int          `json:"index,omitempty"`
	Name   string       `json:"name,omitempty"`
	Call   string       `json:"call,omitempty"`
	Text   string       `json:"text,omitempty"`
	// Again: Text begins with what was sent before, or with the end of that, and takes its place.
	// It is for a client that begins to follow in the middle.
	Again bool `json:"again,omitempty"`
}

// Change is a path of the workspace, any bytes, and what became of it: "add",
// "remove", "change" or "attributes".
type Change struct {
	Path   string
	Action string
}
