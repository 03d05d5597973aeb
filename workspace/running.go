package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/revlog"
)

// heldTries is how often Running begins again because the history was pruned
// while it took hold of it; a pruning takes longer than that.
const heldTries = 10

// checkRunning checks a history that may be open, and go on, meanwhile: of what was
// there when it began, nothing is missed, and what is written since is no
// problem. It changes nothing in dir. scratch is a path on the same file
// system, for Running alone; it is gone when Running returns, and if Running
// dies, the next one removes it.
//
// It works on links to the segments, which are only ever appended to or
// removed, with the list as it was before. NotFound: there is no history.
// Conflict: it was pruned again and again. Unavailable: the disk is full.
func checkRunning(ctx context.Context, dir, scratch string) (r CheckReport, err error) {
	if _, err := os.Lstat(filepath.Join(dir, "objects")); err != nil {
		return r, errs.Wrap(errs.NotFound, err, "there is no history")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	for range heldTries {
		held, err := hold(dir, scratch)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return r, errs.Wrap(errs.Unavailable, err, "the server's disk is full: a history cannot be checked without a place beside it").
				WithHint("free some space there, then check again; nothing was changed")
		}
		if err != nil {
			return r, err
		}
		if held {
			return runCheck(ctx, scratch)
		}
	}
	return r, errs.New(errs.Conflict, "the history was pruned all the time").WithHint("check again in a moment")
}

// hold makes scratch name all that a revision in the list needs. It fails to if
// segments go, or the list loses revisions, meanwhile: what those needed may be
// gone.
func hold(dir, scratch string) (bool, error) {
	if err := os.RemoveAll(scratch); err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Join(scratch, "objects"), 0o700); err != nil {
		return false, err
	}
	before, any, err := list(dir)
	if err != nil {
		return false, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, "objects"))
	if err != nil {
		return false, err
	}
	names := []string{"journal", "journal.staged", "journal.applied"}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".seg") {
			names = append(names, filepath.Join("objects", e.Name()))
		}
	}
	for _, name := range names {
		err := os.Link(filepath.Join(dir, name), filepath.Join(scratch, name))
		gone := errors.Is(err, fs.ErrNotExist)
		switch {
		case gone && strings.HasPrefix(name, "objects"):
			return false, nil
		case err != nil && !gone:
			return false, fmt.Errorf("take hold of a history: %w", err)
		}
	}
	if after, _, err := list(dir); err != nil || !bytes.HasPrefix(after, before) {
		return false, err
	}
	if !any { // Run says that it is missing
		return true, nil
	}
	return true, os.WriteFile(filepath.Join(scratch, revlog.Name), before, 0o600)
}

// list is the file of the revisions.
func list(dir string) (data []byte, any bool, err error) {
	data, err = os.ReadFile(filepath.Join(dir, revlog.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return data, err == nil, err
}
