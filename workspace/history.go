package workspace

import (
	"context"
	"io"

	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/compare"
	"github.com/skete-dev/skete/workspace/tree"
)

// History is what others do with the history of a workspace, wherever its
// engine runs: a Workspace beside the files, or in a machine of its own, or
// both. Numbers of revisions count from 1 and are never used again.
//
// Implementations are safe for concurrent use.
type History interface {
	// Snapshot looks at the files and makes a revision of them, durable when
	// it returns. If nothing changed it returns the last one; fresh is false.
	Snapshot(ctx context.Context, l Label) (rev Revision, fresh bool, err error)
	// Revisions lists all that are kept, the oldest first.
	Revisions(ctx context.Context) ([]Revision, error)
	// PlanRestore plans to make all files, or those at path and beneath it,
	// what they were at revision n. NotFound: there is no such revision (any more).
	PlanRestore(ctx context.Context, n uint64, path string) (Plan, error)
	// PlanRevert plans to take back what one revision changed and to keep what
	// later ones did; see Workspace.PlanRevert.
	PlanRevert(ctx context.Context, n uint64, choices map[string]Choice) (Plan, error)
	// Apply does what was planned and makes a revision of it. Conflict: the
	// files moved since; plan again.
	Apply(ctx context.Context, plan string, l Label) (Revision, apply.Result, error)
	// Diff compares two revisions, or a path in them; from 0 is the empty tree.
	Diff(ctx context.Context, from, to uint64, o DiffOptions) (Diff, error)
	// Unsaved looks at the files and says how they differ from the newest
	// revision; it makes none. Unavailable, Conflict: they cannot be looked at now.
	Unsaved(ctx context.Context) (Unsaved, error)
	// DiffNow is Diff with the files as they are now. to is the newest revision
	// if they are what it is, and 0 if they are what no revision is.
	DiffNow(ctx context.Context, from uint64, o DiffOptions) (d Diff, to uint64, err error)
	// Entry says what is at a path in a revision. NotFound: nothing is.
	Entry(ctx context.Context, n uint64, path string) (tree.Entry, error)
	// List says what is in a directory of a revision, "" = the workspace, by name.
	// NotFound: nothing is there. Invalid: it is no directory.
	List(ctx context.Context, n uint64, path string) ([]tree.Entry, error)
	// Content writes a file of a revision. Invalid: it is no file.
	Content(ctx context.Context, n uint64, path string, w io.Writer) error
	// Close lets go of it.
	Close() error
}

// What Diff takes and returns; see package compare.
type (
	DiffOptions = compare.Options
	Diff        = compare.Diff
	FileDiff    = compare.File
	Hunk        = compare.Hunk
)

var _ History = (*Workspace)(nil)
