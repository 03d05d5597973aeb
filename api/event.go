package api

import "time"

// Event tells how a sandbox or a run is since a moment, or what happened to one. The SSE id is Seq, the
// event name Type, or resync.
type Event struct {
	Seq       uint64           `json:"seq" doc:"grows, with gaps, over restarts too"`
	Time      time.Time        `json:"time"`
	Type      string           `json:"type,omitempty" doc:"what it is about and the state that this is in: sandbox.running, run.succeeded; of a workspace what happened to it: workspace.changed, or workspace.restored by an undo, a redo, a restore or a revert; of a network what was decided: network.allowed or network.refused; of a call to a model: models.used"`
	ID        string           `json:"id,omitempty" doc:"of the sandbox or the run; a workspace, a network and a call to a model have that of their sandbox"`
	Sandbox   *Sandbox         `json:"sandbox,omitempty"`
	Run       *Run             `json:"run,omitempty" doc:"without text, result and todos"`
	Workspace *Revision        `json:"workspace,omitempty" doc:"the revision that is new"`
	Network   *NetworkDecision `json:"network,omitempty" doc:"what was decided; alike in a row it is told once, and of many a second some"`
	Models    *ModelCall       `json:"models,omitempty" doc:"a call of a program in the sandbox that is over; of many a second some are told, each with what all have used"`
	Resync    bool             `json:"resync,omitempty" doc:"events before this one are gone: list again; the rest is empty"`
}
