package apply

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// Action is what happens to one path.
type Action string

// Actions of a plan.
const (
	Remove Action = "remove"
	Write  Action = "write" // a file, link or fifo, new or in place of another
	Mkdir  Action = "mkdir"
	Attrs  Action = "attrs" // mode, owner, attributes
)

// Op is one operation. Before is what the plan found there; the zero Entry is
// nothing.
type Op struct {
	Action Action     `json:"action"`
	Path   []byte     `json:"path"` // names are any bytes
	Before tree.Entry `json:"before"`
	After  tree.Entry `json:"after"`
}

// Filter chooses a part of a tree.
type Filter struct {
	// Path and what is beneath it; "" = all.
	Path string
	// Spare are names of directories that the target may have lost, and that are
	// so not removed.
	Spare []string
}

func (f Filter) covers(path string) bool {
	return f.Path == "" || path == f.Path || strings.HasPrefix(path, f.Path+"/")
}

// leadsTo reports whether something covered may be beneath path.
func (f Filter) leadsTo(path string) bool {
	return f.covers(path) || path == "" || strings.HasPrefix(f.Path, path+"/")
}

// namesGit reports whether it is a .git, or something in one, that was chosen.
func (f Filter) namesGit() bool { return slices.Contains(strings.Split(f.Path, "/"), GitDir) }

// Plan lists what makes the tree now into target: removals first, the deepest
// first of all, then the rest from the root down; and what stays as it is
// though it differs, which is what is in a .git that the filter does not name.
// Only directories that differ are looked at.
func Plan(ctx context.Context, store *object.Store, now, target object.Hash, f Filter) (ops []Op, left []Left, err error) {
	p := planner{ctx: ctx, store: store, filter: f}
	if err := p.dir("", now, target); err != nil {
		return nil, nil, err
	}
	return append(p.removes, p.writes...), p.left, nil
}

// Moves reports whether a plan for two trees would have operations.
func Moves(ctx context.Context, store *object.Store, now, target object.Hash) (bool, error) {
	p := planner{ctx: ctx, store: store, first: true}
	err := p.dir("", now, target)
	if errors.Is(err, errMoves) {
		return true, nil
	}
	return len(p.removes)+len(p.writes) > 0, err
}

var errMoves = errors.New("there are operations")

type planner struct {
	ctx     context.Context
	store   *object.Store
	filter  Filter
	first   bool // the first operation is enough
	gone    int  // of the directories that we are in, how many the target never had
	removes []Op
	writes  []Op
	left    []Left
	leaves  int // what is left, beyond what is listed too
}

// Read returns the entries of a tree object; the zero hash is an empty one.
func Read(store *object.Store, h object.Hash) ([]tree.Entry, error) {
	if h.IsZero() {
		return nil, nil
	}
	data, err := store.Get(object.Tree, h)
	if err != nil {
		return nil, err
	}
	return tree.Decode(data)
}

func (p *planner) dir(path string, now, target object.Hash) error {
	if now == target {
		return nil
	}
	if err := p.ctx.Err(); err != nil {
		return err
	}
	before, err := Read(p.store, now)
	if err != nil {
		return err
	}
	after, err := Read(p.store, target)
	if err != nil {
		return err
	}
	return Merge(before, after, func(b, a tree.Entry) error {
		if p.first && len(p.removes)+len(p.writes) > 0 {
			return errMoves
		}
		return p.name(path, b, a)
	})
}

// Merge visits the names of two directories in order; a side that does not
// have a name is the zero Entry.
func Merge(before, after []tree.Entry, visit func(before, after tree.Entry) error) error {
	for len(before) > 0 || len(after) > 0 {
		var b, a tree.Entry
		switch {
		case len(after) == 0 || len(before) > 0 && before[0].Name < after[0].Name:
			b, before = before[0], before[1:]
		case len(before) == 0 || after[0].Name < before[0].Name:
			a, after = after[0], after[1:]
		default:
			b, a, before, after = before[0], after[0], before[1:], after[1:]
		}
		if err := visit(b, a); err != nil {
			return err
		}
	}
	return nil
}

// Join makes a path of a directory's and a name.
func Join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func (p *planner) name(dir string, b, a tree.Entry) error {
	name := cmp.Or(b.Name, a.Name)
	path := Join(dir, name)
	if !p.filter.leadsTo(path) || b.Same(a) && b.Type != 0 {
		return nil
	}
	if name == GitDir && !p.filter.namesGit() {
		return p.git(path, b, a)
	}
	if b.Type == tree.Dir && a.Type == 0 && p.gone == 0 && slices.Contains(p.filter.Spare, name) {
		p.leave(path, whySpared)
		return nil
	}
	covered := p.filter.covers(path)
	if a.Type != tree.Dir && b.Type == tree.Dir || a.Type == 0 {
		return p.remove(path, b, a, covered)
	}
	if a.Type != tree.Dir {
		return p.write(path, b, a, covered)
	}
	if b.Type != tree.Dir {
		if b.Type != 0 && covered {
			p.removes = append(p.removes, Op{Action: Remove, Path: []byte(path), Before: b})
		}
		if covered {
			p.writes = append(p.writes, Op{Action: Mkdir, Path: []byte(path), After: a})
		}
		return p.dir(path, object.Hash{}, a.Hash)
	}
	if err := p.dir(path, b.Hash, a.Hash); err != nil {
		return err
	}
	b.Hash, a.Hash = object.Hash{}, object.Hash{}
	if covered && !b.Same(a) {
		p.writes = append(p.writes, Op{Action: Attrs, Path: []byte(path), Before: b, After: a})
	}
	return nil
}

// remove takes away what stands before, and writes what comes in its place.
func (p *planner) remove(path string, b, a tree.Entry, covered bool) error {
	if b.Type == tree.Dir {
		leaves := p.leaves
		p.gone++
		err := p.dir(path, b.Hash, object.Hash{})
		p.gone--
		if err != nil {
			return err
		}
		if p.leaves > leaves {
			if a.Type != 0 {
				p.leave(path, whyHolds)
			}
			return nil
		}
	}
	if !covered {
		return nil
	}
	p.removes = append(p.removes, Op{Action: Remove, Path: []byte(path), Before: b})
	if a.Type != 0 {
		p.writes = append(p.writes, Op{Action: Write, Path: []byte(path), After: a})
	}
	return nil
}

func (p *planner) write(path string, b, a tree.Entry, covered bool) error {
	if !covered {
		return nil
	}
	action := Write
	if b.SameContent(a) {
		action = Attrs
	}
	p.writes = append(p.writes, Op{Action: action, Path: []byte(path), Before: b, After: a})
	return nil
}
