// Package cowork is about workflows: several agents that work together, each node in the
// machine that its policy gives it.
//
//	w, err := cowork.Parse("audit.yaml", content) // YAML or JSON
//	w.Graph.Vertices                              // what is to be done, in an order in which it can be
//	fmt.Print(w.Graph.Mermaid())                  // the same as a picture
//
// A Definition is what a person writes. It has one of five topologies, and each is
// compiled to one form, the Graph: vertices, edges with conditions, and loops with
// bounds. What follows from a definition is found out then and not in the middle of
// a run: that each node is reached, that nothing goes in circles without a bound, that
// what a node or a condition looks at has ended before, how often nodes can be started
// at most. Mistakes are reported together, with the line and the column of each.
//
// Everything is pure and safe for concurrent use.
package cowork

import "time"

// The topologies.
const (
	Sequential   = "sequential"        // one node after the other
	Parallel     = "parallel"          // all at once, and then Join
	Supervised   = "supervisor-worker" // one node gives work to all others, in rounds
	Hierarchical = "hierarchical"      // workers may have workers
	Directed     = "graph"             // as Edges say
)

// Topologies are all of them.
var Topologies = []string{Sequential, Parallel, Supervised, Hierarchical, Directed}

// Whose machine a node works in.
const (
	SandboxShared = "shared" // that of the workflow; the default
	SandboxOwn    = "own"    // a new one
	SandboxFork   = "fork"   // a fork of the workflow's, as it is then
)

// How a node ended; what a condition may ask for.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	Skipped   = "skipped" // no edge that leads to it was taken
)

// What comes of a failure, or of a loop that has gone back as often as it may.
const (
	Stop     = "stop"     // the workflow fails; the default
	Continue = "continue" // it goes on: edges may ask for the status
)

// Definition describes a workflow, as it is written. The keys of JSON are those of YAML; it
// is kept as the text that it came as, and never written anew.
type Definition struct {
	Name        string `yaml:"name" json:"name,omitempty" pattern:"^[a-z0-9]+(-[a-z0-9]+)*$" maxLength:"64" doc:"Name of the workflow; the file's unless stated."`
	Version     string `yaml:"version" json:"version,omitempty" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" maxLength:"64" doc:"What people call this version. A run keeps the content that it started with, whatever it is called."`
	Description string `yaml:"description" json:"description,omitempty" maxLength:"1024" doc:"What the workflow is for."`
	Topology    string `yaml:"topology" json:"topology" enum:"sequential,parallel,supervisor-worker,hierarchical,graph" doc:"How nodes follow each other."`
	// Input is the JSON Schema of what a run is started with; nil = nothing.
	Input       map[string]any `yaml:"input" json:"input,omitempty" doc:"JSON Schema of what a run is started with; it describes an object."`
	Limits      Budget         `yaml:"limits" json:"limits,omitzero" doc:"What all nodes together may use."`
	ParallelMax int            `yaml:"parallel_max" json:"parallel_max,omitempty" minimum:"1" maximum:"64" doc:"How many nodes work at once; 8 unless stated."`
	Machine     map[string]any `yaml:"machine" json:"machine,omitempty" doc:"The machine that nodes share, and what is forked: keys of a sandbox."`
	Nodes       []Node         `yaml:"nodes" json:"nodes" minItems:"1" maxItems:"1000" doc:"What is to be done."`
	Start       []string       `yaml:"start" json:"start,omitempty" doc:"Of a graph: the nodes that it begins with."`
	Edges       []Edge         `yaml:"edges" json:"edges,omitempty" maxItems:"5000" doc:"Of a graph: which node follows which."`
	Join        string         `yaml:"join" json:"join,omitempty" doc:"Of parallel: the node that works when all others have ended."`
	Loops       []Loop         `yaml:"loops" json:"loops,omitempty" maxItems:"100" doc:"Of sequential and graph: ways back, each with a bound."`
	// Output is the result of the workflow; nil = the results of the last nodes.
	Output map[string]Reference `yaml:"output" json:"output,omitempty" doc:"The result of the workflow by names; unless stated, the results of its last nodes."`
}

// Node is a part of the work. It has one of Agent, Inline and Human.
type Node struct {
	Name        string               `yaml:"name" json:"name" pattern:"^[a-z0-9]+(-[a-z0-9]+)*$" maxLength:"64" doc:"Name of the node, once in a workflow."`
	Description string               `yaml:"description" json:"description,omitempty" maxLength:"1024" doc:"What it is for; supervisors choose their workers by it."`
	Agent       string               `yaml:"agent" json:"agent,omitempty" pattern:"^[a-z0-9]+(-[a-z0-9]+)*$" maxLength:"64" doc:"Name of an agent of the server."`
	Inline      *Agent               `yaml:"inline" json:"inline,omitempty" doc:"An agent of this workflow alone."`
	Human       *Human               `yaml:"human" json:"human,omitempty" doc:"A person who is asked."`
	Task        string               `yaml:"task" json:"task,omitempty" doc:"What the agent is to do. What input names follows it as data; nothing is put into the text."`
	Input       map[string]Reference `yaml:"input" json:"input,omitempty" doc:"What the node is given, by names."`
	Each        *Each                `yaml:"each" json:"each,omitempty" doc:"The node works once for each element of a list; its result is the list of the results."`
	Workers     []string             `yaml:"workers" json:"workers,omitempty" doc:"The nodes that this one, as a supervisor, gives work to."`
	Rounds      int                  `yaml:"rounds" json:"rounds,omitempty" minimum:"2" maximum:"50" doc:"Of a supervisor: how often it gives out work at most; 5 unless stated."`
	Result      map[string]any       `yaml:"result" json:"result,omitempty" doc:"JSON Schema of the result; without one it is text."`
	Artifacts   []string             `yaml:"artifacts" json:"artifacts,omitempty" maxItems:"64" doc:"Files that it leaves for others; they are passed by reference."`
	Sandbox     string               `yaml:"sandbox" json:"sandbox,omitempty" enum:"shared,own,fork" doc:"Whose machine it works in: the workflow's (unless stated), one of its own, a fork of the workflow's."`
	Machine     map[string]any       `yaml:"machine" json:"machine,omitempty" doc:"Of sandbox own: keys of a sandbox."`
	Limits      Budget               `yaml:"limits" json:"limits,omitzero" doc:"What one attempt may use."`
	Retries     *Retries             `yaml:"retries" json:"retries,omitempty" doc:"Further attempts after a failure; none unless stated."`
	Timeout     time.Duration        `yaml:"timeout" json:"timeout,omitempty" doc:"How long an attempt, or a person, may take."`
	OnFailure   string               `yaml:"on_failure" json:"on_failure,omitempty" enum:"stop,continue" doc:"Whether the workflow fails with the node, or goes on."`
}

// Agent is an agent of a workflow alone.
type Agent struct {
	Model        string   `yaml:"model" json:"model,omitempty" doc:"A model of the catalogue; the server's choice unless stated."`
	Instructions string   `yaml:"instructions" json:"instructions,omitempty" doc:"What the agent is told before its task."`
	Tools        []string `yaml:"tools" json:"tools,omitempty" doc:"Names of tools, or patterns of names; all unless stated."`
	Skills       []string `yaml:"skills" json:"skills,omitempty" maxItems:"64" doc:"Names of skills."`
	Effort       string   `yaml:"effort" json:"effort,omitempty" enum:"low,medium,high" doc:"How hard the model thinks."`
}

// Human is a person who is asked. The result is an object: choice, and text.
type Human struct {
	Ask     string   `yaml:"ask" json:"ask" maxLength:"4096" doc:"The question."`
	Choices []string `yaml:"choices" json:"choices,omitempty" maxItems:"16" doc:"What can be chosen; approve and reject unless stated."`
}

// Budget bounds the use of models and time. 0 = unbounded.
type Budget struct {
	Steps   int           `yaml:"steps" json:"steps,omitempty" minimum:"0" doc:"Calls of models."`
	Tokens  int           `yaml:"tokens" json:"tokens,omitempty" minimum:"0" doc:"Tokens, both ways."`
	CostUSD float64       `yaml:"cost_usd" json:"cost_usd,omitempty" minimum:"0" doc:"Money."`
	Wall    time.Duration `yaml:"wall" json:"wall,omitempty" doc:"Time, waiting for people not counted."`
}

// Retries are further attempts of a node that failed.
type Retries struct {
	Max  int           `yaml:"max" json:"max" minimum:"1" maximum:"10" doc:"How many."`
	Wait time.Duration `yaml:"wait" json:"wait,omitempty" doc:"Before the first; doubled for each further one; 1s unless stated."`
}

// Reference names a value. It has one of Input, Node, Item and Value.
type Reference struct {
	Input    *string `yaml:"input" json:"input,omitempty" doc:"A path in what the run was started with; empty = all of it."`
	Node     string  `yaml:"node" json:"node,omitempty" doc:"The result of this node."`
	Path     string  `yaml:"path" json:"path,omitempty" doc:"A path in the node's result, such as findings.0.file."`
	Artifact string  `yaml:"artifact" json:"artifact,omitempty" doc:"A file that the node leaves."`
	Item     *string `yaml:"item" json:"item,omitempty" doc:"A path in the element, of a node with each."`
	Value    *any    `yaml:"value" json:"value,omitempty" doc:"The value itself."`
}

// Each makes a node work once for each element of a list.
type Each struct {
	Reference   `yaml:",inline"`
	Max         int `yaml:"max" json:"max,omitempty" minimum:"1" maximum:"1000" doc:"A longer list is a failure; 20 unless stated."`
	ParallelMax int `yaml:"parallel_max" json:"parallel_max,omitempty" minimum:"1" maximum:"64" doc:"How many elements are worked on at once; 4 unless stated."`
}

// Test asks something about a node that has ended. Of Status, Exists, Equals, In,
// GreaterThan and LessThan it has one. What is not there equals nothing.
type Test struct {
	Node        string   `yaml:"node" json:"node,omitempty" doc:"The node whose end is looked at."`
	Path        string   `yaml:"path" json:"path,omitempty" doc:"A path in its result; empty = all of it."`
	Status      string   `yaml:"status" json:"status,omitempty" enum:"succeeded,failed,skipped" doc:"It ended so."`
	Exists      *bool    `yaml:"exists" json:"exists,omitempty" doc:"Whether there is a value that is not null."`
	Equals      *any     `yaml:"equals" json:"equals,omitempty" doc:"The value is this text, number, true or false."`
	In          []any    `yaml:"in" json:"in,omitempty" maxItems:"100" doc:"The value is one of these."`
	GreaterThan *float64 `yaml:"greater_than" json:"greater_than,omitempty" doc:"The value is a number above this."`
	LessThan    *float64 `yaml:"less_than" json:"less_than,omitempty" doc:"The value is a number below this."`
}

// Condition is one test, or several of which all or any have to hold.
type Condition struct {
	Test `yaml:",inline"`
	All  []Test `yaml:"all" json:"all,omitempty" maxItems:"16" doc:"Each of these holds."`
	Any  []Test `yaml:"any" json:"any,omitempty" maxItems:"16" doc:"One of these holds."`
}

// Edge leads from a node to one that follows it. A node works when all edges that lead to
// it are decided and one of them is taken; if none is, it is skipped.
type Edge struct {
	From string     `yaml:"from" json:"from" doc:"The node that it leads from."`
	To   string     `yaml:"to" json:"to" doc:"The node that it leads to."`
	When *Condition `yaml:"when" json:"when,omitempty" doc:"It is taken when this holds; always unless stated."`
}

// Loop leads back. What lies between To and From is done again while When holds, and can be
// entered at To and left at From alone.
type Loop struct {
	From      string     `yaml:"from" json:"from" doc:"The node after which is decided whether to go back."`
	To        string     `yaml:"to" json:"to" doc:"The node that it goes back to."`
	When      *Condition `yaml:"when" json:"when" doc:"It goes back while this holds."`
	Max       int        `yaml:"max" json:"max" minimum:"1" maximum:"100" doc:"How often it goes back at most."`
	Exhausted string     `yaml:"exhausted" json:"exhausted,omitempty" enum:"stop,continue" doc:"What comes of a condition that still holds then: the workflow fails, or goes on."`
	// Body are the nodes that it repeats; found out when the definition is compiled.
	Body []string `yaml:"-" json:"-"`
}
