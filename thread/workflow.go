package thread

import (
	"encoding/json"
	"time"
)

// This file holds the events of a run of a workflow. Its thread has no run of an agent:
// each node works in a thread of its own, and is named here. Package cowork folds them.

// WorkflowStarted begins a run of a workflow; it follows Opened.
type WorkflowStarted struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// File is what the definition was called in messages. Definition is its text, which the
	// run keeps whatever becomes of the file.
	File       string `json:"file"`
	Definition string `json:"definition_blob"`
	// Input is what the run was started with, an object; a blob if it is too large for an event.
	Input     json.RawMessage `json:"input,omitempty"`
	InputBlob string          `json:"input_blob,omitempty"`
	// Files are in the machines that nodes share or have of their own before they work there.
	Files []Artifact `json:"files,omitempty"`
	By    string     `json:"by,omitempty"`
	// Operator: the caller could name what only the server's own user may.
	Operator bool `json:"operator,omitempty"`
}

// WorkflowCancelled asks a workflow to end.
type WorkflowCancelled struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// WorkflowEnded ends a workflow.
type WorkflowEnded struct {
	State      RunState        `json:"state"`
	Reason     string          `json:"reason,omitempty"` // a code
	Text       string          `json:"text,omitempty"`   // for people: what went wrong
	Result     json.RawMessage `json:"result,omitempty"`
	ResultBlob string          `json:"result_blob,omitempty"`
}

// Attempt names one attempt of a node. All of them count from 1, but Item: it is the place of
// the element from 0, of a node that works for each element of a list.
type Attempt struct {
	Node      string `json:"node"`
	Iteration int    `json:"iteration"`
	Item      int    `json:"item,omitempty"`
	Number    int    `json:"attempt"`
}

// NodeStarted says that a node begins, before it does.
type NodeStarted struct {
	Attempt
	// Thread is the conversation that it goes on with, "" = a new one.
	Thread ID `json:"thread,omitempty"`
	// Input are the values that it is given, by names.
	Input     json.RawMessage `json:"input,omitempty"`
	InputBlob string          `json:"input_blob,omitempty"`
	// Files are put where it works; a blob, as JSON, if they are too many for an event.
	Files     []Artifact `json:"files,omitempty"`
	FilesBlob string     `json:"files_blob,omitempty"`
	// Budget is what it may use. Deadline is when it is stopped, zero = never.
	Budget   Budget    `json:"budget,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`
}

// NodeEnded says what came of an attempt.
type NodeEnded struct {
	Attempt
	Run        RunID           `json:"run,omitempty"` // "" = it did not come to one
	Thread     ID              `json:"thread,omitempty"`
	State      RunState        `json:"state"`
	Reason     string          `json:"reason,omitempty"`
	Text       string          `json:"text,omitempty"` // for people: what went wrong
	Result     json.RawMessage `json:"result,omitempty"`
	ResultBlob string          `json:"result_blob,omitempty"`
	Model      string          `json:"model,omitempty"` // that answered last
	Spent      Spent           `json:"spent,omitzero"`
	Artifacts  []Artifact      `json:"artifacts,omitempty"`
	// Conflicts are files of the shared machine that another attempt wrote differently at the
	// same time; they are as that one wrote them.
	Conflicts []ArtifactConflict `json:"conflicts,omitempty"`
	// Machine was made for the attempt.
	Machine string `json:"machine,omitempty"`
}

// NodeAnswered is what a person said whom a node asked.
type NodeAnswered struct {
	Node      string `json:"node"`
	Iteration int    `json:"iteration"`
	Choice    string `json:"choice"`
	Text      string `json:"text,omitempty"`
	By        string `json:"by,omitempty"`
}

// Artifact is a file that a node leaves.
type Artifact struct {
	Path  string `json:"path"` // where it is, beneath the workspace
	Blob  string `json:"blob"`
	Bytes int    `json:"bytes"`
}

// ArtifactConflict is a file that two attempts wrote differently.
type ArtifactConflict struct {
	Path  string  `json:"path"`
	With  Attempt `json:"with"`  // whose file stayed
	Ours  string  `json:"blob"`  // what the attempt wrote
	Other string  `json:"other"` // hash of what stayed
}

// Kind implements Body.
func (WorkflowStarted) Kind() Kind { return "workflow.started" }

// Kind implements Body.
func (WorkflowCancelled) Kind() Kind { return "workflow.cancelled" }

// Kind implements Body.
func (WorkflowEnded) Kind() Kind { return "workflow.ended" }

// Kind implements Body.
func (NodeStarted) Kind() Kind { return "node.started" }

// Kind implements Body.
func (NodeEnded) Kind() Kind { return "node.ended" }

// Kind implements Body.
func (NodeAnswered) Kind() Kind { return "node.answered" }
