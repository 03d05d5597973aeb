// Package definition is what an agent is before it runs: model, instructions,
// tools, sub-agents, limits and approvals, read from files.
//
//	d, err := definition.Parse("agents/reviewer.md", content, nil) // YAML, or Markdown with front matter
//	set, err := definition.Load(os.DirFS("agents"), nil)            // all of a folder, with what is built in
//	d, err := set.Resolve("reviewer")                           // with its sub-agents, whole
//	problems := definition.Validate(d, registry.Names())        // what a file alone cannot show
//
// Unknown keys are refused with their position. A Definition is plain data: a
// thread keeps the resolved one in its first event, so a reader of a
// log needs no file. Everything is pure but Load, which reads a folder; a Set does
// not change and is safe for concurrent use.
package definition

import (
	"cmp"
	"time"

	"github.com/skete-dev/skete/thread"
)

// Definition describes an agent. The zero value of a field means the default.
type Definition struct {
	Name         string `json:"name" yaml:"name"` // 1..64 of a-z 0-9 and single hyphens
	Description  string `json:"description,omitempty" yaml:"description"`
	Model        string `json:"model,omitempty" yaml:"model"` // a name of the catalogue; "" = the server's choice
	Instructions string `json:"instructions,omitempty" yaml:"instructions"`
	// Bare leaves out what Ground says in front of the instructions.
	Bare bool `json:"bare,omitempty" yaml:"bare"`
	// Tools are names or globs, see Picks; empty = all built-in ones.
	Tools []string `json:"tools,omitempty" yaml:"tools"`
	// Skills are names or globs of those that it may learn, see Picks; empty = all.
	Skills []string `json:"skills,omitempty" yaml:"skills"`
	// Agents are those that `task` may start; the resolved ones stand in
	// Subagents. "general-purpose" is always there unless Tools leave task out.
	Agents    []string              `json:"-" yaml:"agents"`
	Subagents map[string]Definition `json:"subagents,omitempty" yaml:"-"`
	// Calling is "native" or "json" (strict-JSON actions); "" = as the model can.
	Calling string        `json:"calling,omitempty" yaml:"calling"`
	Effort  string        `json:"effort,omitempty" yaml:"effort"` // low, medium, high
	Limits  Limits        `json:"limits,omitzero" yaml:"limits"`
	Rules   []Rule        `json:"approvals,omitempty" yaml:"approvals"` // first match wins; none = see package policy
	Hooks   []CommandHook `json:"hooks,omitempty" yaml:"hooks"`
	// Memory are files loaded into the prompt: AGENTS.md of the workspace and
	// /memories/AGENTS.md unless stated.
	Memory []string `json:"memory,omitzero" yaml:"memory"`
	// Plan is the plan template that the agent begins with, "" = none.
	Plan string `json:"plan,omitempty" yaml:"plan"`
	// Result is a JSON Schema (inline) of the final answer.
	Result map[string]any `json:"result,omitempty" yaml:"result"`
	// Program is what works in the place of a model, in the agent's sandbox; nil = none.
	Program *Program `json:"program,omitempty" yaml:"program"`
	// InSandbox: the agent itself works in its sandbox too, not on the server.
	InSandbox bool `json:"in_sandbox,omitempty" yaml:"in_sandbox"`
	// Sandbox says what machine it wants; the keys are those of a sandbox spec.
	Sandbox map[string]any `json:"sandbox,omitempty" yaml:"sandbox"`
	// AfterRun says what becomes of that machine when a run is over.
	AfterRun AfterRun `json:"after_run,omitzero" yaml:"after_run"`
}

// Program is an agent that others wrote. It gets the task, and finds its own model.
type Program struct {
	// Command is a line of the shell, in which {task} stands for what was asked for.
	Command string        `json:"command" yaml:"command"`
	Timeout time.Duration `json:"timeout_ns,omitempty" yaml:"timeout"` // 0 = ProgramTimeout
	// Events says what its output is: "" = text, EventsJSONL.
	Events string `json:"events,omitempty" yaml:"events"`
}

// Of programs.
const (
	ProgramTimeout    = 5 * time.Minute
	ProgramTimeoutMax = time.Hour
	// EventsJSONL: a line that is an object tells of something, and one with "done": true
	// says that the task is.
	EventsJSONL = "jsonl"
)

// Time is how long the program may take.
func (p Program) Time() time.Duration { return cmp.Or(p.Timeout, ProgramTimeout) }

// What may become of a run's own sandbox; AfterRun.Sandbox.
const (
	AfterStop   = "stop"   // its files and their history stay
	AfterRemove = "remove" // it is destroyed; its history is kept for a while
	AfterKeep   = "keep"   // it lives as any other does
)

// AfterWait is how long a run's own sandbox is left alone unless AfterRun says so.
const AfterWait = 10 * time.Minute

// AfterRun says what becomes of a run's own sandbox when the run is over.
type AfterRun struct {
	Sandbox string `json:"sandbox,omitempty" yaml:"sandbox"` // "" = AfterStop; of a replay, AfterRemove
	// Wait counts from the run's end, and anew from each use; 0 = AfterWait.
	Wait time.Duration `json:"wait_ns,omitempty" yaml:"wait"`
}

// Limits bound a run of this agent.
type Limits struct {
	thread.Budget `yaml:",inline"`
	// ParallelMax is how many calls of a step run at once; 8.
	ParallelMax int `json:"parallel_max,omitempty" yaml:"parallel_max"`
	// WindowTokens overrides the model's.
	WindowTokens int `json:"window_tokens,omitempty" yaml:"window_tokens"`
	// ResultTokensMax is how much of one tool result the model sees; 20,000,
	// and never more than a sixth of the window.
	ResultTokensMax int `json:"result_tokens_max,omitempty" yaml:"result_tokens_max"`
	// RepeatsMax is how often the same call may bring the same result before the
	// run is taken to go in circles; 5.
	RepeatsMax int `json:"repeats_max,omitempty" yaml:"repeats_max"`
	// ToolTimeout bounds one call; 10 min.
	ToolTimeout time.Duration `json:"tool_timeout_ns,omitempty" yaml:"tool_timeout"`
}

// Action of a rule.
const (
	Allow = "allow"
	Deny  = "deny"
	Ask   = "ask"
)

// Rule decides about calls before they run.
type Rule struct {
	Action    string            `json:"action" yaml:"action"`
	Tools     []string          `json:"tools,omitempty" yaml:"tools"`       // names or globs; empty = all
	Paths     []string          `json:"paths,omitempty" yaml:"paths"`       // globs over what the call touches
	Commands  []string          `json:"commands,omitempty" yaml:"commands"` // patterns over parsed shell commands ("git push *")
	Reason    string            `json:"reason,omitempty" yaml:"reason"`
	Decisions []thread.Decision `json:"decisions,omitempty" yaml:"decisions"` // empty = all four
	Expires   time.Duration     `json:"expires_ns,omitempty" yaml:"expires"`  // 0 = never; then it is a reject
}

// CommandHook is a program that is asked about events, with JSON on stdin, or a plug-in.
type CommandHook struct {
	Event   string        `json:"event,omitempty" yaml:"event"`        // PreToolUse, PostToolUse, …; of a plug-in, "" = all that it names
	Tools   []string      `json:"tools,omitempty" yaml:"tools"`        // names or globs; empty = all
	Command []string      `json:"command,omitempty" yaml:"command"`    // argv
	Plugin  string        `json:"plugin,omitempty" yaml:"plugin"`      // the name of one of the server's, in place of a command
	Timeout time.Duration `json:"timeout_ns,omitempty" yaml:"timeout"` // 60 s
	// Where it runs: "sandbox" (the default) or "host". The host only for
	// definitions of the server's own folder, never for inline ones.
	Where string `json:"where,omitempty" yaml:"where"`
}
