package replica

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/revlog"
)

// Copy copies the history in a directory, an engine's or a replica's, into a
// new one: for a sandbox that goes on where another was. from must not be open.
// Segments that are full share their blocks, since they are never written to
// again. It may die and be called again. Exists: there is something at to.
func Copy(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return errs.New(errs.Exists, "there is a history already")
	}
	half := to + ".half"
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	if err := copyInto(from, half); err != nil {
		return errors.Join(err, os.RemoveAll(half))
	}
	if err := os.Rename(half, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

func copyInto(from, to string) error {
	objects := filepath.Join(to, "objects")
	if err := os.MkdirAll(objects, 0o700); err != nil {
		return err
	}
	// The list first: what it names is in the segments, whatever is appended.
	if err := copyFile(filepath.Join(from, revlog.Name), filepath.Join(to, revlog.Name)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return errs.Wrap(errs.NotFound, err, "there is no history to copy")
		}
		return err
	}
	entries, err := os.ReadDir(filepath.Join(from, "objects"))
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasSuffix(e.Name(), ".seg") })
	for i, e := range entries { // by name, which is by number
		old, fresh := filepath.Join(from, "objects", e.Name()), filepath.Join(objects, e.Name())
		if i < len(entries)-1 && os.Link(old, fresh) == nil {
			continue
		}
		if err := copyFile(old, fresh); err != nil {
			return err
		}
	}
	return errors.Join(syncDir(objects), syncDir(to))
}

// copyFile copies a file, durably.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
