package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/cgroup"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor/runsc"
)

// logBytesMax is how much of runsc's own complaint goes into an error.
const logBytesMax = 4 << 10

// runsc runs one command of gVisor on a machine that runs, by the program that
// the machine runs if that is still there: a sentry speaks the language of its
// own version.
func (p *Provider) runsc(ctx context.Context, id sandbox.ID, rec record, args ...string) error {
	program := rec.Program
	if _, err := os.Stat(program); err != nil {
		program, _ = p.Program()
	}
	return p.runscIn(ctx, program, id, nil, nil, args...)
}

// runscIn runs one command of gVisor, flags before verb, in a control group,
// unless group is nil.
func (p *Provider) runscIn(ctx context.Context, program string, id sandbox.ID, group *cgroup.Group, flags []string, args ...string) error {
	log, err := os.OpenFile(filepath.Join(p.dir(id), "runsc.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// The log is given as a descriptor: by name, a runsc that comes too late
	// would make the machine's directory again.
	all := []string{runsc.Verb, "--root=" + p.runscDir(), "--log-fd=3", "--platform=systrap", "--network=none", "--host-uds=open"}
	if p.cgroups == nil || p.ownGroups() {
		all = append(all, "--ignore-cgroups")
	}
	cmd := exec.CommandContext(ctx, program, append(append(all, flags...), args...)...)
	// Nothing of our environment reaches a process that serves the guest. Our
	// output is not given away either: the sandbox would hold it open, and
	// could write there without a bound.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.ExtraFiles = []*os.File{log}
	cmd.WaitDelay = time.Second
	if err := runMortal(cmd, group); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return errs.Wrap(errs.Unavailable, fmt.Errorf("runsc %s: %w: %s", args[0], err, tail(log)), "gVisor refused")
	}
	return nil
}

// runMortal runs a command that dies with us, from its very first moment. A
// runsc that outlived its server could make a machine behind the back of the
// next one, which has looked already. The kernel ties the child's death to the
// thread that made it, so the thread is ours until the end.
func runMortal(cmd *exec.Cmd, group *cgroup.Group) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if group != nil {
		return group.Run(cmd.Run)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.Run()
}

// tail returns the end of runsc's log, quoted for a line of ours.
func tail(log *os.File) string {
	end, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return "no log"
	}
	data := make([]byte, logBytesMax)
	n, _ := log.ReadAt(data, max(0, end-logBytesMax))
	return fmt.Sprintf("%q", bytes.TrimSpace(data[:n]))
}
