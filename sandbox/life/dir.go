package life

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// freshDir makes an empty directory. What is there is of an earlier machine of
// the same sandbox.
func freshDir(dir string) error {
	if err := removeDir(dir); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o700)
}

// mountEscapes writes a path as the kernel does in its list of mounts.
var mountEscapes = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)

// removeDir removes a directory beneath which nothing is mounted: a mount may
// show things that are not ours to delete.
func removeDir(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	escaped := mountEscapes.Replace(dir)
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && (fields[4] == escaped || strings.HasPrefix(fields[4], escaped+"/")) {
			return errs.New(errs.Internal, "something is still mounted in the sandbox's directory")
		}
	}
	return os.RemoveAll(dir)
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
func (d *Deps) RemoveDir(id sandbox.ID) error { return removeDir(filepath.Join(d.Dir, string(id))) }
