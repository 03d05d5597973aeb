package sandboxtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
)

// This file finds what is left of machines on a host.

// findLeftovers lists whatever has one of the ids in its name: processes, mounts,
// control groups, sockets, files below dir or in the usual places for sockets.
func findLeftovers(dir string, ids []sandbox.ID) []string {
	var left []string
	named := func(s string) bool {
		return slices.ContainsFunc(ids, func(id sandbox.ID) bool { return strings.Contains(s, string(id)) })
	}
	if ps, err := hostproc.List(); err == nil {
		for _, p := range ps {
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
			if p.PID != os.Getpid() && (named(strings.Join(p.Args, " ")) || named(string(environ))) {
				left = append(left, fmt.Sprintf("process %d: %.80q", p.PID, p.Args))
			}
		}
	}
	for _, table := range []string{"/proc/self/mountinfo", "/proc/net/unix"} {
		data, _ := os.ReadFile(table)
		for line := range strings.Lines(string(data)) {
			if named(line) {
				left = append(left, table+": "+strings.TrimSpace(line))
			}
		}
	}
	for _, place := range []string{"/run", "/var/run", "/tmp"} {
		entries, _ := os.ReadDir(place)
		for _, e := range entries {
			if named(e.Name()) {
				left = append(left, filepath.Join(place, e.Name()))
			}
		}
	}
	for _, tree := range []string{dir, "/sys/fs/cgroup"} {
		_ = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
			if err == nil && named(d.Name()) {
				left = append(left, path)
			}
			return nil
		})
	}
	return left
}
