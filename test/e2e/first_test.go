package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// needEmulator skips a test where QEMU is not.
func needEmulator(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots machines in an emulator")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("no qemu-system-x86_64: `skete doctor --fix` installs it")
	}
}

// emulated is a world with gVisor and QEMU, and the small template in it.
func emulated(t *testing.T, args ...string) *machines {
	t.Helper()
	needEmulator(t)
	m := &machines{newWorld(t, append([]string{"--providers", "gvisor,qemu"}, args...)...)}
	m.kernel()
	m.start()
	m.pull()
	return m
}

// busy runs a line by the small template's shell.
func (m *machines) busy(id, line string) string {
	m.t.Helper()
	return strings.TrimSpace(m.cli("vm", "exec", id, "--", "/bin/busybox", "sh", "-c", line))
}

// The very first change of a sandbox can be undone, before anybody has looked
// at its files; in a fork too, of which the first change is to what it was
// forked with.
func TestUndo_theFirstChange(t *testing.T) {
	m := emulated(t)
	m.each(t, func(m *machines, provider string) {
		id := m.vm("--provider", provider, "--template", "small")
		m.busy(id, "busybox mkdir -p src && echo one > src/a && echo two > b")
		m.cli("undo", id, "-y")
		if got := m.busy(id, "busybox find /workspace -mindepth 1"); got != "" {
			m.t.Errorf("%s: after the undo of the first change: %q", provider, got)
		}
		m.cli("redo", id, "-y")
		if got := m.busy(id, "busybox cat src/a b"); got != "one\ntwo" {
			m.t.Errorf("%s: after the redo: %q", provider, got)
		}
		if info, err := m.c.Info(m.ctx()); err != nil || info.Used.LookMS == 0 {
			m.t.Errorf("%s: the looks at its files are not counted: %+v, %v", provider, info.Used, err)
		}
		m.busy(id, "echo 'no revision has it' > c")
		for _, first := range []string{"busybox rm -rf src b c", "echo changed > c; busybox rm b"} {
			fork := strings.TrimSpace(m.cli("vm", "fork", id, "-q"))
			m.ids[fork] = true
			m.t.Cleanup(func() { m.cli("vm", "clean", fork) })
			m.busy(fork, first)
			m.cli("undo", fork, "-y")
			if got := m.busy(fork, "busybox cat src/a b c"); got != "one\ntwo\nno revision has it" {
				m.t.Errorf("%s: a fork after %q and its undo: %q", provider, first, got)
			}
		}
		if got := m.busy(id, "busybox cat src/a b c"); got != "one\ntwo\nno revision has it" {
			m.t.Errorf("%s: the original: %q", provider, got)
		}
	})
}
