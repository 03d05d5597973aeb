package apply

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// GitDir is where git keeps a repository, or, as a file, says where it is.
const GitDir = ".git"

// Left is something that differs from the target and that a plan leaves as it
// is.
type Left struct {
	Path string
	Why  string
}

// leftMax is how many a plan lists.
const leftMax = 1000

// Why a plan leaves something.
const (
	whyGit    = "what is in it is git's: commits and branches stay as they are; name the path to take it back too"
	whyHooks  = "what is in it is git's: commits and branches stay as they are, and so do its hooks or its configuration, which differ; name the path to take it back too"
	whyNew    = "the repository was made since; name the path to take it back too"
	whySpared = "it can be made again, and the revision's own was given up for room"
	whyHolds  = "it holds a repository that stays"
)

// leave notes what is not touched.
func (p *planner) leave(path, why string) {
	p.leaves++
	if len(p.left) < leftMax {
		p.left = append(p.left, Left{Path: path, Why: why})
	}
}

// git plans what becomes of a .git. The user's commits are in it, those made
// since too, and they must outlive going back: so only what is missing is put
// back, and nothing that is there is changed.
func (p *planner) git(path string, b, a tree.Entry) error {
	r := repository{planner: p, top: path, whole: true}
	switch {
	case b.Type == 0:
		return r.bring("", a)
	case a.Type == 0:
		p.leave(path, whyNew)
	case b.Type != tree.Dir || a.Type != tree.Dir:
		p.leave(path, whyGit)
	default:
		return r.mend(b.Hash, a.Hash)
	}
	return nil
}

// repository plans within one repository.
type repository struct {
	*planner
	top string // its path
	// whole: git does not work in it as it is, or it is not there; so all that is
	// missing comes back. Else only what cannot change the meaning of what is
	// there: a MERGE_HEAD that is missing belongs to a merge that is done.
	whole bool
	// packed are names of branches and tags that need no file of their own. One
	// would count instead: git gc made such files go.
	packed []string
	// unreadable: it is not known which those are.
	unreadable bool
	differs    bool // something stays that is not what the target has
	commands   bool // that is, a hook or the configuration
}

func (r *repository) mend(now, target object.Hash) error {
	entries, err := Read(r.store, now)
	if err != nil {
		return err
	}
	works := 0
	for _, e := range entries {
		switch {
		case e.Name == "HEAD", e.Type == tree.Dir && (e.Name == "objects" || e.Name == "refs"):
			works++
		case e.Name == "packed-refs":
			r.readPacked(e)
		}
	}
	r.whole = works < 3
	if err := r.dir("", now, target); err != nil {
		return err
	}
	switch {
	case r.commands:
		r.leave(r.top, whyHooks)
	case r.differs:
		r.leave(r.top, whyGit)
	}
	return nil
}

// packedBytesMax bounds a list of packed branches and tags that is read.
const packedBytesMax = 16 << 20

func (r *repository) readPacked(e tree.Entry) {
	if r.unreadable = e.Type != tree.File || e.Listed || e.Size > packedBytesMax; r.unreadable {
		return
	}
	data, err := part(r.store, e.Hash, e.Size)
	if err != nil {
		r.unreadable = true
		return
	}
	r.packed = packedRefs(data)
}

// packedRefs returns the names in git's packed-refs, sorted. What is no line of
// such a file is passed over.
func packedRefs(data []byte) (names []string) {
	for line := range bytes.Lines(data) {
		_, name, ok := strings.Cut(strings.TrimRight(string(line), "\r\n"), " ")
		if ok && line[0] != '#' && line[0] != '^' && strings.HasPrefix(name, "refs/") && name == path.Clean(name) && len(name) <= tree.TargetBytesMax {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// dir plans a directory that is there; rel is its path in the repository.
func (r *repository) dir(rel string, now, target object.Hash) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	before, err := Read(r.store, now)
	if err != nil {
		return err
	}
	after, err := Read(r.store, target)
	if err != nil {
		return err
	}
	return Merge(before, after, func(b, a tree.Entry) error {
		at := Join(rel, b.Name)
		switch {
		case b.Type == 0:
			return r.bring(Join(rel, a.Name), a)
		case b.Same(a):
			return nil
		case b.Type != tree.Dir || a.Type != tree.Dir:
			r.differs = true
			r.commands = r.commands || at == "config" || strings.HasPrefix(at, "hooks/")
			return nil
		case inModules(at) && r.isRepository(a.Hash):
			sub := repository{planner: r.planner, top: Join(r.top, at)}
			return sub.mend(b.Hash, a.Hash)
		}
		return r.dir(at, b.Hash, a.Hash)
	})
}

func inModules(rel string) bool { return strings.HasPrefix(rel, "modules/") }

// isRepository reports whether a directory has what git looks for.
func (r *repository) isRepository(h object.Hash) bool {
	entries, err := Read(r.store, h)
	found := 0
	for _, e := range entries {
		if e.Name == "HEAD" || e.Name == "objects" || e.Name == "refs" {
			found++
		}
	}
	return err == nil && found == 3
}

// bring puts back what is missing, if it may come back; a directory only with
// something in it, unless all of the repository comes back.
func (r *repository) bring(rel string, e tree.Entry) error {
	at := Join(r.top, rel)
	if rel == "" {
		at = r.top
	}
	if e.Type != tree.Dir {
		if r.returns(rel) {
			r.writes = append(r.writes, Op{Action: Write, Path: []byte(at), After: e})
		}
		return nil
	}
	sub := *r
	// A worktree or a submodule is missing as a whole.
	sub.whole = r.whole || path.Dir(rel) == "worktrees" || inModules(rel)
	entries, err := Read(r.store, e.Hash)
	if err != nil {
		return err
	}
	began := len(r.writes)
	r.writes = append(r.writes, Op{Action: Mkdir, Path: []byte(at), After: e})
	for i := 0; err == nil && i < len(entries); i++ {
		err = sub.bring(Join(rel, entries[i].Name), entries[i])
	}
	if !sub.whole && len(r.writes) == began+1 {
		r.writes = r.writes[:began]
	}
	return err
}

// returns reports whether a file may come back. Locks never do: the process that
// held one is gone, and git would wait for it.
func (r *repository) returns(rel string) bool {
	dir, name := path.Split(rel)
	switch {
	case strings.HasSuffix(rel, ".lock"):
		return false
	case strings.HasPrefix(rel, "refs/heads/"), strings.HasPrefix(rel, "refs/tags/"):
		return !r.named(rel)
	case strings.HasPrefix(rel, "refs/"):
		return r.whole && !r.named(rel)
	case r.whole:
		return true
	case rel == "index", strings.HasPrefix(rel, "sharedindex."), rel == "config", rel == "packed-refs":
		return true
	case dir == "objects/pack/":
		return strings.HasPrefix(name, "pack-")
	}
	// An object's name says what is in it: more of them change nothing.
	hash, ok := strings.CutPrefix(dir, "objects/")
	return ok && (rel == "objects/info/alternates" || len(hash) == len("ab/") && len(name) >= 38)
}

// named reports whether git finds a branch or tag, or something beneath it,
// without a file of this name, or may do so.
func (r *repository) named(rel string) bool {
	if r.unreadable {
		return true
	}
	if i, ok := slices.BinarySearch(r.packed, rel+"/"); ok || i < len(r.packed) && strings.HasPrefix(r.packed[i], rel+"/") {
		return true
	}
	for name := rel; name != "."; name = path.Dir(name) {
		if _, ok := slices.BinarySearch(r.packed, name); ok {
			return true
		}
	}
	return false
}
