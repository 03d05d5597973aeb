package tool

import (
	"context"
	"time"
)

// Past is what the files were, and the way back. Paths are relative to the
// machine's workspace. Implementations are safe for concurrent use.
type Past interface {
	// Revisions lists the newest ones, or those that changed a path, newest
	// first; more: there are others.
	Revisions(ctx context.Context, path string, last int) (list []PastRevision, more bool, err error)
	// Diff shows what differs as a unified diff of about bytesMax; to 0 = the
	// newest, from 0 = the one before to.
	Diff(ctx context.Context, from, to uint64, path string, bytesMax int) (string, error)
	// Content returns a file as it was. Limit: it is larger than bytesMax.
	Content(ctx context.Context, n uint64, path string, bytesMax int64) ([]byte, error)
	// PlanUndo says what an undo would touch; nothing is done.
	PlanUndo(ctx context.Context, u PastUndo) (PastPlan, error)
	// Undo does what was planned, once for a call, however often it is asked.
	// Conflict: the files changed since.
	Undo(ctx context.Context, plan string, by PastRevision) (n uint64, kept []string, err error)
}

// PastRevision is one state of the files and who made it so.
type PastRevision struct {
	N                               uint64
	Time                            time.Time
	Thread, Run, Call, Actor, Label string
	Step                            int
}

// PastUndo says what to undo: the last change that is not undone yet, or all
// since before a call, a step of a run or a run; or, with N, to make the files,
// or those at Path, what they were then.
type PastUndo struct {
	Run, Call string
	Step      int
	N         uint64
	Path      string
}

// PastPlan is what an undo would do.
type PastPlan struct {
	ID    string
	N     uint64   // the revision that it goes to
	Paths []string // with what happens to them, as "change a/b"
	Total int
	Left  []string // what stays though it differs, with the reason: ".git/x: why"
}
