package file_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/skete-dev/skete/guest/wire"
)

// The threads that act as the user must stay out of the user's reach: a
// signal to one of them would end the whole supervisor.
func TestUsers_threadsCannotBeSignalledOrTraced(t *testing.T) {
	needRoot(t)
	g := newGuest(t)
	_, err := g.stat(&wire.StatRequest{Path: []byte(".")})
	must(t, err)
	tasks, err := os.ReadDir("/proc/self/task")
	must(t, err)
	switched := 0
	for _, task := range tasks {
		status, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if err == nil && strings.Contains(string(status), fmt.Sprintf("Uid:\t0\t%d\t0\t%d", uid, uid)) {
			switched++
		}
	}
	if switched < 4 {
		t.Fatalf("%d threads act as the user", switched)
	}
	var script strings.Builder
	for _, task := range tasks {
		fmt.Fprintf(&script, "kill -0 %s && echo reached %s\n", task.Name(), task.Name())
		fmt.Fprintf(&script, "cat /proc/%s/environ >/dev/null && echo read %s\n", task.Name(), task.Name())
	}
	cmd := exec.Command("/bin/sh", "-c", script.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	out, _ := cmd.Output()
	if len(out) > 0 {
		t.Fatalf("a program of the user's: %s", out)
	}
}
