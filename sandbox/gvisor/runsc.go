package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// logBytesMax is how much of runsc's own complaint goes into an error.
const logBytesMax = 4 << 10

// runsc runs one command of gVisor on a machine, flags before verb.
func (p *Provider) runsc(ctx context.Context, id sandbox.ID, flags []string, args ...string) error {
	log := filepath.Join(p.dir(id), "runsc.log")
	all := []string{runscVerb, "--root=" + p.runscDir(), "--log=" + log, "--platform=systrap", "--network=none", "--host-uds=open"}
	if p.cgroups == nil {
		all = append(all, "--ignore-cgroups")
	}
	cmd := exec.CommandContext(ctx, p.c.Exe, append(append(all, flags...), args...)...)
	// Nothing of our environment reaches a process that serves the guest. Our
	// output is not given away either: the sandbox would hold it open, and
	// what it wrote there nobody would bound.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errs.Wrap(errs.Unavailable, fmt.Errorf("runsc %s: %w: %s", args[0], err, tail(log)), "gVisor refused")
}

// tail returns the end of runsc's log, quoted for a line of ours.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "no log"
	}
	data = bytes.TrimSpace(data[max(0, len(data)-logBytesMax):])
	return strings.TrimSpace(fmt.Sprintf("%q", data))
}
