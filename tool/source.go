package tool

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Source has tools that are not built in: those that the operator declared, those of MCP
// servers. A run keeps the tools that it began with. Safe for concurrent use.
type Source interface {
	// Name tells sources apart: "declared", "mcp".
	Name() string
	// Covers reports whether a name, or a glob, can stand for a tool of this source. It
	// asks no server of others.
	Covers(tenant, name string) bool
	// Find lists the tools that a thread may have now. What cannot be reached is left
	// out, and why is among the notes, which people are told and the model is not.
	Find(ctx context.Context, p Place) (found []External, notes []string, err error)
	// Call runs one of them, as it was found: also when it has another form by now, or is
	// gone, which is a Failed result. req.Plan is a Started, also after a crash.
	Call(ctx context.Context, p Place, e External, req Request) (Result, error)
}

// External is a tool of a Source as a run found it.
type External struct {
	Source string       `json:"source"`
	Spec   llm.ToolSpec `json:"spec"` // its name is 1..64 of A-Z a-z 0-9 _ -
	// Class is what running a call again would mean, as far as the source vouches for it.
	Class Class `json:"class"`
	// Asks: a person is asked before each call unless a rule allows it.
	Asks bool `json:"asks,omitempty"`
	// Inquires: a call may put forms before a person, with Request.Ask.
	Inquires bool `json:"inquires,omitempty"`
	// Data is what the source needs to call it.
	Data json.RawMessage `json:"data,omitempty"`
}

// Place is where a thread works when it calls an External.
type Place struct {
	Tenant string
	Agent  string
	// Tools are the patterns by which the agent picks its tools, of a definition: what none
	// of them means need not be found.
	Tools []string
	// Skill reports whether the agent may have a skill; nil = it may have all.
	Skill  func(name string) bool
	Thread thread.ID
	Run    thread.RunID
	// Top is the run that the caller started: Run, or the one in which a sub-agent works. "" =
	// there is no run, nor a thread: a person calls the tool.
	Top thread.RunID
	// By is who started Top, or calls.
	By string
	// Machine is the thread's sandbox, "" = none: then Files, Commands are nil.
	Machine  string
	Boot     string // as in Env
	Dir      string
	Files    Files
	Commands Commands
	// Mount makes an absolute directory of the machine hold what a tar does, so that no
	// program of its user can change it; nil = that cannot be: the machine isolates nothing,
	// or there is none.
	Mount func(ctx context.Context, dir string, tar []byte) error
}

// Finisher is a Source that keeps something for a call until its result is in the log.
type Finisher interface {
	Source
	// Finish lets go of it. It may be repeated, and is not called when the server dies.
	Finish(ctx context.Context, p Place, e External, key string)
}

// Releaser is a Source that keeps something for a thread while a run of it is under way.
type Releaser interface {
	Source
	// Release lets go of it: no run of the thread is under way. It may be repeated, and is not
	// called when the server dies.
	Release(tenant string, id thread.ID)
}

// Started is what tool.started keeps of the call of an External.
type Started struct {
	Boot string `json:"boot,omitempty"` // Place.Boot, for which it was planned
}

// Cautious is a Tool whose calls are put before a person when no rule says otherwise.
type Cautious interface {
	Tool
	// Why is what the person is told; "" = they are not.
	Why() string
}

// Sourced is the tool that a source has, in a place. It is a Tool.
type Sourced struct {
	External External
	From     Source // nil = it is not configured any more
	Place    Place
}

// Spec implements Tool.
func (t Sourced) Spec() llm.ToolSpec { return t.External.Spec }

// Effect implements Tool. A class that is not known is the worst.
func (t Sourced) Effect(json.RawMessage) Effect {
	if t.External.Class == Read || t.External.Class == Keyed {
		return Effect{Class: t.External.Class}
	}
	return Effect{Class: Once}
}

// Why implements Cautious.
func (t Sourced) Why() string {
	if t.External.Asks {
		return "This tool is not built in, and a person allows each of its calls."
	}
	return ""
}

// Inquires implements Inquirer.
func (t Sourced) Inquires() bool { return t.External.Inquires }

// Plan implements Planner.
func (t Sourced) Plan(context.Context, Request) (json.RawMessage, *Result, error) {
	plan, err := json.Marshal(Started{Boot: t.Place.Boot})
	return plan, nil, err
}

// Run implements Tool.
func (t Sourced) Run(ctx context.Context, req Request) (Result, error) {
	if t.From == nil {
		return Fail(CodeUnknownTool, fmt.Sprintf("Error: this server has no %s any more, of which this tool was.", t.External.Source)), nil
	}
	return t.From.Call(ctx, t.Place, t.External, req)
}

var (
	_ Planner  = Sourced{}
	_ Cautious = Sourced{}
	_ Inquirer = Sourced{}
)
