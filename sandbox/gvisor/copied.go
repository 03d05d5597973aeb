package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skete-dev/skete/sandbox"
)

const (
	probePrefix = "probe-"
	// probeAge is how old a probe's directory is when its server is dead.
	probeAge = 10 * time.Minute
)

// original is the directory of gVisor's state that the machine of a record
// really belongs to, "" = to ours. A data directory that was copied while its
// machines ran has records of processes that live; they know another directory,
// which is still there, and nothing may be done to them from here. One that was
// moved is the only one there is.
func (p *Provider) original(id sandbox.ID, rec record) string {
	if !rec.Sentry.Alive() {
		return ""
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", rec.Sentry.PID))
	if err != nil {
		return ""
	}
	for arg := range strings.SplitSeq(string(cmdline), "\x00") {
		root, ok := strings.CutPrefix(arg, "--root=")
		if !ok || root == p.runscDir() {
			continue
		}
		there, err := os.Stat(root)
		if err != nil {
			return ""
		}
		if here, err := os.Stat(p.runscDir()); err == nil && os.SameFile(here, there) {
			return ""
		}
		if _, err := os.Lstat(filepath.Join(root, filepath.Base(p.stateFile(id)))); err == nil {
			return root
		}
	}
	return ""
}

// sweepProbes removes what probes of servers that were killed have left.
func (p *Provider) sweepProbes() {
	old, _ := filepath.Glob(filepath.Join(p.c.Dir, probePrefix+"*")) // a good pattern
	for _, dir := range old {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < probeAge {
			continue
		}
		if err = unmountBelow(dir); err == nil {
			err = os.RemoveAll(dir)
		}
		if err != nil {
			p.c.Log.Warn("gvisor: what a probe left cannot be removed", "error", err)
		}
	}
}
