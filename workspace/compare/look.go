package compare

import (
	"context"
	"io"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/apply"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// At says what is at a path in a tree; "" is the tree itself, a directory
// without a name. NotFound: nothing is. Invalid: it is no path.
func At(store *object.Store, root object.Hash, path string) (tree.Entry, error) {
	e := tree.Entry{Type: tree.Dir, Hash: root}
	if path == "" {
		return e, nil
	}
	for name := range strings.SplitSeq(path, "/") {
		if err := tree.CheckName(name); err != nil {
			return tree.Entry{}, errs.Wrap(errs.Invalid, err, "%.200q is no path in a workspace", path)
		}
		if e.Type != tree.Dir {
			return tree.Entry{}, nothing(path)
		}
		entries, err := apply.Read(store, e.Hash)
		if errs.Is(err, errs.NotFound) { // not the same as that nothing is there
			err = errs.Wrap(errs.Corrupt, err, "a directory on the way to %.200q is missing in the history", path)
		}
		if err != nil {
			return tree.Entry{}, err
		}
		e = tree.Entry{}
		for _, x := range entries {
			if x.Name == name {
				e = x
				break
			}
		}
		if e.Type == 0 {
			return tree.Entry{}, nothing(path)
		}
	}
	return e, nil
}

// List says what is in a directory of a tree, by name; "" = its root. NotFound:
// nothing is there. Invalid: it is no directory.
func List(store *object.Store, root object.Hash, path string) ([]tree.Entry, error) {
	e, err := At(store, root, path)
	if err != nil {
		return nil, err
	}
	if e.Type != tree.Dir {
		return nil, errs.New(errs.Invalid, "%.200q is no directory in this revision", path)
	}
	return apply.Read(store, e.Hash)
}

func nothing(path string) error {
	return errs.New(errs.NotFound, "nothing is at %.200q in this revision", path)
}

// at is At, but for the zero Entry where nothing is.
func at(store *object.Store, root object.Hash, path string) (tree.Entry, error) {
	e, err := At(store, root, path)
	if errs.Is(err, errs.NotFound) {
		return tree.Entry{}, nil
	}
	return e, err
}

// zeros are written for holes.
var zeros [64 << 10]byte

// Content writes a file, its holes as zeros. Invalid: the entry is no file.
func Content(ctx context.Context, store *object.Store, e tree.Entry, w io.Writer) error {
	if e.Type != tree.File {
		return errs.New(errs.Invalid, "%.200q is no file", e.Name)
	}
	at := int64(0)
	hole := func(end int64) error {
		for at < end {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := w.Write(zeros[:min(int64(len(zeros)), end-at)])
			if err != nil {
				return err
			}
			at += int64(n)
		}
		return nil
	}
	err := apply.Content(store, e, func(offset int64, data []byte) error {
		if err := hole(offset); err != nil {
			return err
		}
		if over := at + int64(len(data)) - e.Size; over > 0 {
			return errs.New(errs.Corrupt, "%.200q holds %d bytes more than it says", e.Name, over)
		}
		n, err := w.Write(data)
		at += int64(n)
		return err
	})
	if err != nil {
		return err
	}
	return hole(e.Size)
}
