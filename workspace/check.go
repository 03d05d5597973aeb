package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/revlog"
	"github.com/skete-dev/skete/workspace/tree"
)

// This file reads a whole history that is not open and says what is
// damaged. It changes nothing.
//
// It reads every record of every segment and compares it with its checksums
// and its name, reads the list of revisions and the journal, and walks the tree
// of each revision: every directory can be read, every part of every file is
// there and as long as it says.

// problemsMax is how many problems a Report lists; the rest is counted.
const problemsMax = 1000

// CheckReport is what a Run found.
type CheckReport struct {
	Revisions int            `json:"revisions"`
	Objects   int            `json:"objects"`
	Bytes     int64          `json:"bytes"` // of the segments
	Problems  []CheckProblem `json:"problems,omitempty"`
	// More problems there are than those that are listed.
	More int `json:"more,omitempty"`
	// Torn is what a crash has left and the next opening cuts off. No revision
	// needs it, else there is a problem too.
	Torn []CheckProblem `json:"torn,omitempty"`
	// Unfinished: an undo was interrupted, and the next opening finishes it.
	Unfinished bool `json:"unfinished,omitempty"`
}

// Whole reports whether no revision has lost anything.
func (r CheckReport) Whole() bool { return len(r.Problems) == 0 }

// CheckProblem is one damage: a part of a file of the history, or something that a
// revision needs.
type CheckProblem struct {
	File     string `json:"file,omitempty"`   // of the history
	At       int64  `json:"at,omitempty"`     // in it
	End      int64  `json:"end,omitempty"`    // of the damaged part
	Object   string `json:"object,omitempty"` // that is needed
	Revision uint64 `json:"revision,omitempty"`
	Path     string `json:"path,omitempty"` // in it; any bytes
	Why      string `json:"why"`
}

// String is the problem in a line.
func (p CheckProblem) String() string {
	if p.File != "" {
		return fmt.Sprintf("%s, bytes %d to %d: %s", p.File, p.At, p.End, p.Why)
	}
	return fmt.Sprintf("revision %d, %q: object %s: %s", p.Revision, p.Path, p.Object, p.Why)
}

// kept is what a Run remembers of an object.
type kept struct {
	kind object.Kind
	size int64
	// entries of a Tree, chunks of a List
	entries []tree.Entry
	chunks  []tree.Chunk
	err     error
}

type run struct {
	ctx     context.Context
	report  CheckReport
	objects map[object.Hash]kept
	whole   map[object.Hash]bool // trees that were walked
}

// runCheck checks the history in a directory. An error says that it could not; what
// is damaged is in the Report.
func runCheck(ctx context.Context, dir string) (CheckReport, error) {
	r := &run{ctx: ctx, objects: map[object.Hash]kept{}, whole: map[object.Hash]bool{}}
	var err error
	r.report.Bytes, err = object.Inspect(filepath.Join(dir, "objects"), r.found, r.damage)
	if err != nil {
		return r.report, err
	}
	r.report.Objects = len(r.objects)
	_, r.report.Unfinished, err = apply.Pending(apply.Config{Journal: filepath.Join(dir, "journal")})
	if err != nil {
		r.problem(CheckProblem{File: "journal", Why: err.Error()})
	}
	revs, err := r.revisions(filepath.Join(dir, revlog.Name))
	if err != nil {
		return r.report, err
	}
	for _, rev := range revs {
		if err := ctx.Err(); err != nil {
			return r.report, err
		}
		r.tree(rev.N, "", rev.Root)
	}
	return r.report, nil
}

func (r *run) problem(p CheckProblem) {
	if len(r.report.Problems) < problemsMax {
		r.report.Problems = append(r.report.Problems, p)
	} else {
		r.report.More++
	}
}

func (r *run) damage(d object.Damage) {
	p := CheckProblem{File: "objects/" + d.File, At: d.At, End: d.End, Why: d.Why}
	if d.Torn {
		r.report.Torn = append(r.report.Torn, p)
		return
	}
	r.problem(p)
}

func (r *run) found(f object.Found) {
	k := kept{kind: f.Kind, size: int64(len(f.Content))}
	switch f.Kind {
	case object.Tree:
		k.entries, k.err = tree.Decode(f.Content)
	case object.List:
		k.chunks, k.err = tree.DecodeList(f.Content)
	}
	r.objects[f.Hash] = k
}

func (r *run) revisions(path string) ([]revlog.Revision, error) {
	revs, torn, err := revlog.Read(path)
	switch {
	case errs.Is(err, errs.Corrupt), errors.Is(err, fs.ErrNotExist):
		r.problem(CheckProblem{File: "revisions", Why: err.Error()})
	case err != nil:
		return nil, err
	case torn > 0:
		r.report.Torn = append(r.report.Torn, CheckProblem{File: "revisions", Why: fmt.Sprintf("%d bytes at the end are no revision", torn)})
	}
	r.report.Revisions = len(revs)
	return revs, nil
}

// need finds an object that a path of a revision needs.
func (r *run) need(n uint64, path string, kind object.Kind, h object.Hash) (kept, bool) {
	k, ok := r.objects[h]
	p := CheckProblem{Revision: n, Path: path, Object: h.String()}
	switch {
	case !ok:
		p.Why = "it is missing"
	case k.kind != kind:
		p.Why = "it is of another kind"
	case k.err != nil:
		p.Why = k.err.Error()
	default:
		return k, true
	}
	r.problem(p)
	return k, false
}

// tree walks a directory of a revision; one that was walked and found whole is
// not walked again, a damaged one is, for every revision that needs it.
func (r *run) tree(n uint64, path string, h object.Hash) bool {
	if r.whole[h] || r.ctx.Err() != nil {
		return true
	}
	k, ok := r.need(n, path, object.Tree, h)
	for _, e := range k.entries {
		at := apply.Join(path, e.Name)
		switch e.Type {
		case tree.Dir:
			ok = r.tree(n, at, e.Hash) && ok
		case tree.File:
			ok = r.file(n, at, e) && ok
		}
	}
	r.whole[h] = ok
	return ok
}

func (r *run) file(n uint64, path string, e tree.Entry) bool {
	if !e.Listed {
		k, ok := r.need(n, path, object.Blob, e.Hash)
		return ok && r.long(n, path, e.Hash, k.size, e.Size)
	}
	k, ok := r.need(n, path, object.List, e.Hash)
	for _, c := range k.chunks {
		part, there := r.need(n, path, object.Blob, c.Hash)
		ok = there && r.long(n, path, c.Hash, part.size, c.Length) && ok
		if c.Offset+c.Length > e.Size {
			ok = r.long(n, path, e.Hash, c.Offset+c.Length, e.Size) && ok
		}
	}
	return ok
}

// long compares a length with what it should be.
func (r *run) long(n uint64, path string, h object.Hash, is, should int64) bool {
	if is == should {
		return true
	}
	r.problem(CheckProblem{Revision: n, Path: path, Object: h.String(), Why: fmt.Sprintf("it holds %d bytes, and should hold %d", is, should)})
	return false
}

// Report is what Check found.
type Report = CheckReport

// Check reads the history in a directory (Config.Store), which no process has
// open, and says exactly what is damaged; it changes nothing. An error says
// that it could not look.
func Check(ctx context.Context, store string) (Report, error) { return runCheck(ctx, store) }

// CheckRunning is Check of a history that may be open and may change meanwhile.
// scratch is a path beside it, for this call alone.
func CheckRunning(ctx context.Context, store, scratch string) (Report, error) {
	return checkRunning(ctx, store, scratch)
}
