package sandboxtest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
)

// Leaks fails the test if, some seconds from now, the host still has anything
// with one of the ids in its name: a process, a mount, a control group, a
// socket, a file below dir or in the usual places for sockets.
func Leaks(t testing.TB, dir string, ids ...sandbox.ID) {
	t.Helper()
	var left []string
	if !patience.Holds(10*time.Second, func() bool { left = findLeftovers(dir, ids); return len(left) == 0 }) {
		t.Errorf("left behind:\n\t%s", strings.Join(left, "\n\t"))
	}
}

// openFiles counts our own descriptors.
func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}
