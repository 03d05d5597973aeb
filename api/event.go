package api

import "time"

// Event tells how a sandbox or a run is since a moment. The SSE id is Seq, the
// event name Type, or resync.
type Event struct {
	Seq     uint64    `json:"seq" doc:"grows, with gaps, over restarts too"`
	Time    time.Time `json:"time"`
	Type    string    `json:"type,omitempty" doc:"what it is about and the state that this is in: sandbox.running, run.succeeded"`
	ID      string    `json:"id,omitempty" doc:"of the sandbox or the run"`
	Sandbox *Sandbox  `json:"sandbox,omitempty"`
	Run     *Run      `json:"run,omitempty" doc:"without text, result and todos"`
	Resync  bool      `json:"resync,omitempty" doc:"events before this one are gone: list again; the rest is empty"`
}
