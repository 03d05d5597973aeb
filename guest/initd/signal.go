package initd

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/initd/pair"
)

// signal sends a signal to a command of ours. A running leader cannot be
// reaped meanwhile (that needs mu), so its pid is its own.
func (c *conn) signal(request uint32, dec *pair.Decoder) error {
	id, sig, scope, cause := dec.U64(), unix.Signal(dec.U8()), pair.Scope(dec.U8()), pair.Cause(dec.U8())
	if err := dec.Done(); err != nil {
		return err
	}
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.byID[id]
	if r == nil || r.PID == 0 {
		c.replyCode(request, pair.OutcomeUnknown)
		return nil
	}
	if err := d.kill(r, sig, scope); err != nil {
		c.replyErrno(request, pair.OutcomeErrno, err)
		return nil
	}
	if r.State == pair.Running && (r.Cause <= pair.CauseKilled) && cause != pair.CauseNone {
		r.Cause, r.CauseSignal = cause, uint8(sig)
	}
	c.replyOK(request)
	return nil
}

// kill signals r's leader or group. After the leader's end only the rest of
// its group can be meant, and only while no younger command has its pid.
// Preconditions: mu is held.
func (d *daemon) kill(r *record, sig unix.Signal, scope pair.Scope) error {
	if r.State != pair.Running && (scope == pair.ScopeLeader || d.byPID[r.PID] != nil) {
		return unix.ESRCH
	}
	if scope == pair.ScopeLeader {
		return unix.Kill(r.PID, sig)
	}
	return unix.Kill(-r.PID, sig)
}

// shutdown ends all commands (TERM, KILL after grace), then supervise, and
// lets Run return. The second call returns at once.
func (d *daemon) shutdown(grace time.Duration) {
	defer d.recovered("shutdown")
	d.mu.Lock()
	if d.stopping {
		d.mu.Unlock()
		return
	}
	d.stopping = true
	d.signalAll(unix.SIGTERM)
	d.mu.Unlock()
	for end := time.Now().Add(min(max(grace, 0), time.Minute)); time.Now().Before(end) && d.runs(); {
		<-time.After(5 * time.Millisecond)
	}
	d.killAll()
	d.killSupervise()
}

func (d *daemon) runs() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.byPID) > 0
}

// signalAll signals every command's group and notes the cause. Preconditions: mu is held.
func (d *daemon) signalAll(sig unix.Signal) {
	for _, r := range d.byPID {
		if r.Cause <= pair.CauseKilled {
			r.Cause, r.CauseSignal = pair.CauseKilled, uint8(sig)
		}
		_ = unix.Kill(-r.PID, sig)
	}
}

// killAll ends every command, fork bombs included: forks are stopped first
// where processes are counted, then it kills until none is left.
func (d *daemon) killAll() {
	d.mu.Lock()
	limit := d.limit
	d.mu.Unlock()
	if limit != nil {
		limit.stopForks()
	}
	for range 400 {
		d.mu.Lock()
		d.signalAll(unix.SIGKILL)
		d.mu.Unlock()
		left := limit != nil && limit.killMembers()
		if os.Getpid() == 1 {
			_ = unix.Kill(-1, unix.SIGKILL)
		} else if killChildren(d.superviseAlive()) {
			left = true
		}
		if !left && !d.runs() {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (d *daemon) superviseAlive() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.supervise
}

// killChildren ends what was reparented to us, but spare, and reports whether
// there was anybody. The kernel alone writes what it reads.
func killChildren(spare int) bool {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	found := false
	for _, list := range lists {
		data, _ := os.ReadFile(list)
		for f := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 && pid != spare {
				found = true
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	return found
}

func errnoOf(err error) syscall.Errno {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	return unix.EIO
}

// defaultSignals gives back their defaults to signals that the process that
// started us had ignored, because commands would inherit that. The runtime does
// so for the signals that it handles; the C library's own (32, 33) are not among
// them.
func defaultSignals() {
	const last = 64
	for sig := uintptr(1); sig <= last; sig++ {
		var old, none sigaction
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&old)), sigsetBytes, 0, 0)
		if errno == 0 && old.handler == sigIgnore {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&none)), 0, sigsetBytes, 0, 0)
		}
	}
}

// sigaction is the kernel's struct, the same size or larger on every
// architecture that we build for.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

const (
	sigIgnore   = 1
	sigsetBytes = 8
)
