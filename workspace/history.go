package workspace

import (
	"context"
	"io"

	"github.com/skete-dev/skete/workspace/apply"
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
	// Entry says what is at a path in a revision. NotFound: nothing is.
	Entry(ctx context.Context, n uint64, path string) (tree.Entry, error)
	// Content writes a file of a revision. Invalid: it is no file.
	Content(ctx context.Context, n uint64, path string, w io.Writer) error
	// Close lets go of it.
	Close() error
}

// DiffOptions choose a part and how much of it.
type DiffOptions struct {
	Path  string // and what is beneath it; "" = all
	Hunks bool   // the changed lines of texts too
	// Lines of context around a change; 0 = 3.
	Context int
	// FilesMax bounds the files, BytesMax the text of all hunks; 0 = 1,000 and 1 MiB.
	FilesMax int
	BytesMax int
}

// Diff is what differs between two trees, by path.
type Diff struct {
	Files []FileDiff
	// Cut: there was more than was asked for.
	Cut bool
}

// FileDiff is one path that differs. The zero Entry is nothing: it was made, or removed.
type FileDiff struct {
	Path   string // any bytes
	Before tree.Entry
	After  tree.Entry
	// Hunks of a text, if they were asked for. Binary: they cannot be had;
	// Large: it would be too much.
	Hunks  []Hunk
	Binary bool
	Large  bool
}

// Hunk is a run of changed lines with lines of context around it. Line numbers
// count from 1, as in a unified diff.
type Hunk struct {
	Before, BeforeLines int
	After, AfterLines   int
	Lines               []Line
}

// Line of a Hunk. Kind is ' ', '-' or '+'; Text has no newline at its end.
type Line struct {
	Kind byte
	Text string
	// NoNewline: the file ends here without one.
	NoNewline bool
}
