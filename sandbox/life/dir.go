package life

import (
	"path/filepath"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/life/hostdir"
)

// FreshDir makes an empty directory for a machine.
func (d *Deps) FreshDir(id sandbox.ID) (string, error) {
	dir := filepath.Join(d.Dir, string(id))
	if err := hostdir.Fresh(dir); err != nil {
		return "", errs.Wrap(errs.Internal, err, "cannot make a machine's directory")
	}
	return dir, nil
}

// RemoveDir removes the directory of a sandbox that there is not.
func (d *Deps) RemoveDir(id sandbox.ID) error {
	return hostdir.Remove(filepath.Join(d.Dir, string(id)))
}
