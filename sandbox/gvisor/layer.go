package gvisor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// LayerBytes says what the root's writable layer and the guest's own files hold on
// the host. gVisor keeps them in files that have no name any more.
func (m *machine) LayerBytes() (n int64) {
	rec, _, _ := m.now()
	dir := filepath.Join("/proc", strconv.Itoa(rec.Sentry.PID), "fd")
	entries, _ := os.ReadDir(dir) // none when it has just ended
	seen := map[uint64]bool{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		// The sentry has mounts of its own: the path may begin anywhere.
		if err != nil || !strings.Contains(target, "/"+string(m.id)+"/") {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && !seen[st.Ino] {
			seen[st.Ino] = true
			n += st.Blocks * 512
		}
	}
	return n
}

// Suspend stops the machine at once, without asking gVisor, which takes a while on a
// busy host: whatever it does goes through the sentry.
func (m *machine) Suspend() error { return m.suspend(unix.SIGSTOP, true) }

// Continue lets it go on after Suspend.
func (m *machine) Continue() error { return m.suspend(unix.SIGCONT, false) }

// suspend signals first and writes after: the disk may be slow now. A server that dies
// in between finds a machine that does not answer, or one that it need not wake.
func (m *machine) suspend(sig unix.Signal, suspended bool) error {
	m.pauseMu.Lock()
	defer m.pauseMu.Unlock()
	if m.lifetime.Ended() {
		return errs.New(errs.Unavailable, "sandbox %s does not run", m.id)
	}
	m.mu.Lock()
	rec := m.rec
	m.rec.Suspended = suspended
	m.mu.Unlock()
	if err := rec.Sentry.Signal(sig); err != nil || rec.Suspended == suspended {
		return err
	}
	rec.Suspended, rec.Paused = suspended, m.paused
	return writeRecord(m.p.dir(m.id), rec)
}
