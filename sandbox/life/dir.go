package life

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// keysDir holds a file for each sandbox whose commands had keys, by its ID. It
// is beside what a machine's end takes with it.
const keysDir = "keys"

func (d *Deps) keysFile(id sandbox.ID) string { return filepath.Join(d.Dir, keysDir, string(id)) }

// SweepKeys removes the keys of sandboxes that there are not.
func (d *Deps) SweepKeys(stray func(names []string, remove func(sandbox.ID))) error {
	entries, err := os.ReadDir(filepath.Join(d.Dir, keysDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	stray(names, func(id sandbox.ID) { err = errors.Join(err, removeKeyJournal(d.keysFile(id))) })
	return err
}

// FreshDir makes an empty directory for a machine.
func (d *Deps) FreshDir(id sandbox.ID) (string, error) {
	dir := filepath.Join(d.Dir, string(id))
	if err := freshDir(dir); err != nil {
		return "", errs.Wrap(errs.Internal, err, "cannot make a machine's directory")
	}
	return dir, nil
}

// RemoveDir removes the directory of a sandbox that there is not.
func (d *Deps) RemoveDir(id sandbox.ID) error {
	return removeDir(filepath.Join(d.Dir, string(id)))
}
