package tree

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrSkip, returned by a visit, leaves a directory's inside out. ErrStop ends
// the walk without an error.
var (
	ErrSkip = errors.New("skip this directory")
	ErrStop = errors.New("stop the walk")
)

// Item is one entry that Walk met.
type Item struct {
	Dir   int    // descriptor of the directory that holds it
	Name  string // in Dir
	Rel   string // path beneath the root of the walk
	Depth int    // 1 = directly in the root
	Stat  unix.Stat_t
}

// Options of a Walk; the zero value goes through everything readable.
type Options struct {
	Depth int // levels to descend; 0 = DepthMax, beyond which ErrTooDeep ends the walk
	// After goes on after this entry of an earlier walk, whether or not it
	// still exists.
	After string
	// Leave is called after a directory's inside was visited. May be nil.
	Leave func(Item) error
	// Unreadable decides about a directory that cannot be opened or read; nil
	// passes it over.
	Unreadable func(rel string, err error) error
}

// Walk visits what is beneath root (not root itself): a directory before its
// inside, names of one directory sorted by bytes. It never follows links.
func Walk(ctx context.Context, root int, opts Options, visit func(Item) error) error {
	w := &walker{ctx: ctx, opts: opts, visit: visit, depth: opts.Depth}
	if w.depth <= 0 || w.depth > DepthMax {
		w.depth = DepthMax
	}
	var after []string
	if opts.After != "" {
		after = strings.Split(opts.After, "/")
	}
	err := w.dir(root, "", 1, after)
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

type walker struct {
	ctx   context.Context
	opts  Options
	visit func(Item) error
	depth int
}

func (w *walker) dir(fd int, rel string, depth int, after []string) error {
	names, err := Names(fd)
	if err != nil {
		return w.unreadable(rel, err)
	}
	for _, name := range names {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		var inside []string // the cursor beneath this entry
		met := false        // by the earlier walk
		if len(after) > 0 {
			switch c := strings.Compare(name, after[0]); {
			case c < 0:
				continue
			case c == 0:
				met, inside = true, after[1:]
			}
		}
		if err := w.entry(fd, name, join(rel, name), depth, met, inside); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(dir int, name, rel string, depth int, met bool, after []string) error {
	st, err := Lstat(dir, name)
	if err != nil {
		if vanished(err) {
			return nil
		}
		return w.unreadable(rel, err)
	}
	it := Item{Dir: dir, Name: name, Rel: rel, Depth: depth, Stat: st}
	if !met {
		if err := w.visit(it); errors.Is(err, ErrSkip) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if !IsDir(&st) {
		return nil
	}
	if err := w.descend(it, after); err != nil {
		return err
	}
	if w.opts.Leave != nil {
		return w.opts.Leave(it)
	}
	return nil
}

func (w *walker) descend(it Item, after []string) error {
	if it.Depth >= w.depth {
		if it.Depth >= DepthMax {
			return pathError("open", it.Rel, ErrTooDeep)
		}
		return nil
	}
	fd, err := OpenAt(it.Dir, it.Name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		if vanished(err) {
			return nil
		}
		return w.unreadable(it.Rel, err)
	}
	defer unix.Close(fd)
	return w.dir(fd, it.Rel, it.Depth+1, after)
}

func (w *walker) unreadable(rel string, err error) error {
	if w.opts.Unreadable == nil || errors.Is(err, ErrTooMany) {
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			return nil
		}
		return pathError("read", rel, err)
	}
	return w.opts.Unreadable(rel, err)
}
