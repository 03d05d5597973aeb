package life

import (
	"os"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// This file makes and removes the directories that machines have on the
// host.

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
