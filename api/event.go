package api

import "time"

// Event tells how a sandbox or a run is since a moment. The SSE id is Seq, the
// event name Type, or resync.
type Event struct {
	Seq       uint64    `json:"seq" doc:"grows, with gaps, over restarts too"`
	Time      time.Time `json:"time"`
	Type      string    `json:"type,omitempty" doc:"what it is about and the state that this is in: sandbox.running, run.succeeded; of a workspace what happened to it: workspace.changed, or workspace.restored by an undo, a redo, a restore or a revert"`
	ID        string    `json:"id,omitempty" doc:"of the sandbox or the run; a workspace has that of its sandbox"`
	Sandbox   *Sandbox  `json:"sandbox,omitempty"`
	Run       *Run      `json:"run,omitempty" doc:"without text, result and todos"`
	Workspace *Revision `json:"workspace,omitempty" doc:"the revision that is new"`
	Resync    bool      `json:"resync,omitempty" doc:"events before this one are gone: list again; the rest is empty"`
}
