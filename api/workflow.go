package api

import (
	"encoding/json"
	"time"
)

// PutWorkflow keeps the definition of a workflow under the name that it has.
type PutWorkflow struct {
	File string `json:"file,omitempty" maxLength:"255" doc:"what the text is called in messages, and the workflow unless it has a name"`
	Text string `json:"text" minLength:"1" maxLength:"1048576" doc:"YAML or JSON"`
}

// Workflow is a definition that can be run by its name.
type Workflow struct {
	Name     string            `json:"name"`
	Folder   bool              `json:"folder,omitempty" doc:"it is a file of the server's folder, as that is now"`
	Versions []WorkflowVersion `json:"versions" doc:"the newest last"`
	Text     string            `json:"text,omitempty" doc:"of one workflow alone, as all that follows"`

	Description string          `json:"description,omitempty"`
	Topology    string          `json:"topology,omitempty"`
	Input       json.RawMessage `json:"input,omitempty" doc:"JSON Schema of what a run is started with; none = it is started with nothing"`
	Graph       *WorkflowGraph  `json:"graph,omitempty"`
	Errors      []FieldError    `json:"errors,omitempty" doc:"what is wrong with a file of the server's folder, which cannot be run then"`
}

// WorkflowVersion is the content of a definition at a time.
type WorkflowVersion struct {
	Hash    string     `json:"hash,omitempty" doc:"of the text"`
	Version string     `json:"version,omitempty" doc:"what the definition calls itself"`
	File    string     `json:"file"`
	By      string     `json:"by,omitempty"`
	At      *time.Time `json:"at,omitempty"`
}

// WorkflowList has all workflows of a tenant.
type WorkflowList struct {
	Items []Workflow `json:"items"`
}

// StartWorkflow asks for a run of a workflow: of one that the server has, by its name, or of
// the text of one.
type StartWorkflow struct {
	Workflow string          `json:"workflow,omitempty" maxLength:"64" doc:"name of a workflow of the server"`
	Version  string          `json:"version,omitempty" maxLength:"64" doc:"hash of one of its versions, or the beginning of that; default the newest"`
	File     string          `json:"file,omitempty" maxLength:"255" doc:"what text is called in messages"`
	Text     string          `json:"text,omitempty" maxLength:"1048576" doc:"a definition, as YAML or JSON, in the place of workflow"`
	Input    json.RawMessage `json:"input,omitempty" doc:"an object, as the definition's input says"`
	Files    []InputFile     `json:"files,omitempty" maxItems:"100" doc:"that nodes find in their workspace; 8 MiB together"`
}

// InputFile is a file that a run is started with.
type InputFile struct {
	Path    string `json:"path" maxLength:"255" doc:"where it is, beneath the workspace"`
	Content []byte `json:"content" doc:"in base64"`
}

// WorkflowPlan is what a start would do.
type WorkflowPlan struct {
	Workflow string         `json:"workflow"`
	Version  string         `json:"version,omitempty"`
	Topology string         `json:"topology"`
	Starts   int            `json:"starts_max" doc:"how often nodes can be started at most, further attempts not counted"`
	OK       bool           `json:"ok" doc:"nothing keeps it from being started"`
	Nodes    []WorkflowPart `json:"nodes"`
	Graph    WorkflowGraph  `json:"graph"`
}

// WorkflowGraph is what a definition is compiled to, whichever topology it has.
type WorkflowGraph struct {
	Vertices []WorkflowVertex `json:"vertices" doc:"in an order in which they can be done"`
	Edges    []WorkflowEdge   `json:"edges"`
}

// WorkflowVertex is a node in its place.
type WorkflowVertex struct {
	Node        string `json:"node"`
	Description string `json:"description,omitempty"`
	Agent       string `json:"agent,omitempty" doc:"inline = one of the workflow alone"`
	Human       bool   `json:"human,omitempty" doc:"a person is asked"`
	Meeting     bool   `json:"meeting,omitempty" doc:"paths meet here, and nothing is done"`
	Each        bool   `json:"each,omitempty" doc:"it works once for each element of a list"`
	Sandbox     string `json:"sandbox,omitempty" doc:"shared, own, fork; none = it has no sandbox"`
}

// WorkflowEdge leads from a node to one that follows it.
type WorkflowEdge struct {
	From      string `json:"from"`
	To        string `json:"to"`
	When      string `json:"when,omitempty" doc:"the condition, in words; none = always"`
	Loop      bool   `json:"loop,omitempty" doc:"it leads back"`
	Max       int    `json:"max,omitempty" doc:"of a loop: how often at most"`
	Artifacts int    `json:"artifacts,omitempty" doc:"files of the one that the other is given"`
}

// WorkflowPart is a node of a plan.
type WorkflowPart struct {
	Node    string   `json:"node"`
	Agent   string   `json:"agent,omitempty" doc:"inline = one of the workflow alone"`
	Human   bool     `json:"human,omitempty"`
	Model   string   `json:"model,omitempty" doc:"that is named; without one, the server chooses"`
	Sandbox string   `json:"sandbox,omitempty"`
	Tools   []string `json:"tools,omitempty" doc:"without any, all"`
	Problem string   `json:"problem,omitempty" doc:"what keeps it from being started"`
}

// WorkflowRun is a run of a workflow.
type WorkflowRun struct {
	ID        string          `json:"id"`
	Workflow  string          `json:"workflow"`
	Version   string          `json:"version,omitempty"`
	Hash      string          `json:"hash" doc:"of the definition that it began with"`
	By        string          `json:"by,omitempty"`
	State     string          `json:"state" doc:"running, succeeded, failed, cancelled, timed_out"`
	Reason    string          `json:"reason,omitempty"`
	Text      string          `json:"text,omitempty" doc:"what went wrong"`
	CreatedAt time.Time       `json:"created_at"`
	EndedAt   *time.Time      `json:"ended_at,omitempty"`
	Seq       uint64          `json:"seq,omitempty" doc:"of the last event; this and what follows of one run alone"`
	Sandbox   string          `json:"sandbox,omitempty" doc:"that nodes share"`
	Steps     int             `json:"steps,omitempty" doc:"of the nodes that have ended"`
	Tokens    int             `json:"tokens,omitempty"`
	CostUSD   float64         `json:"cost_usd,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Nodes     []WorkflowNode  `json:"nodes,omitempty" doc:"what was done, in the order of its beginning"`
	Open      []string        `json:"open,omitempty" doc:"nodes that are not decided"`
	Skipped   []string        `json:"skipped,omitempty" doc:"nodes to which no edge was taken"`
	Graph     *WorkflowGraph  `json:"graph,omitempty" doc:"of the definition that it began with"`
}

// WorkflowNode is one attempt of a node.
type WorkflowNode struct {
	Node      string     `json:"node"`
	Label     string     `json:"label" doc:"write, write#2 the second time, fetch[3] of an element, write!2 the second attempt"`
	Iteration int        `json:"iteration"`
	Item      int        `json:"item,omitempty"`
	Attempt   int        `json:"attempt"`
	State     string     `json:"state" doc:"running, waiting (for a person), succeeded, failed, cancelled, timed_out"`
	Reason    string     `json:"reason,omitempty"`
	Text      string     `json:"text,omitempty"`
	Run       string     `json:"run,omitempty"`
	Thread    string     `json:"thread,omitempty"`
	Agent     string     `json:"agent,omitempty" doc:"who did it: an agent of the server, or inline"`
	Model     string     `json:"model,omitempty"`
	Sandbox   string     `json:"sandbox,omitempty" doc:"where it worked; one that was made for it is removed at its end"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Steps     int        `json:"steps,omitempty"`
	Tokens    int        `json:"tokens,omitempty"`
	CostUSD   float64    `json:"cost_usd,omitempty"`
	Ask       string     `json:"ask,omitempty" doc:"of a person"`
	Choices   []string   `json:"choices,omitempty"`
	Choice    string     `json:"choice,omitempty"`
	By        string     `json:"by,omitempty" doc:"who chose"`
	Artifacts []string   `json:"artifacts,omitempty"`
	Conflicts []string   `json:"conflicts,omitempty" doc:"files that another node wrote differently at the same time"`
}

// WorkflowRunPage is a page of runs, the newest first.
type WorkflowRunPage struct {
	Items         []WorkflowRun `json:"items"`
	NextPageToken string        `json:"next_page_token,omitempty"`
}

// AnswerWorkflow says what a person chose whom a node asks.
type AnswerWorkflow struct {
	Node   string `json:"node" minLength:"1" maxLength:"64"`
	Choice string `json:"choice" minLength:"1" maxLength:"64"`
	Text   string `json:"text,omitempty" maxLength:"16384"`
}
