package initd

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/initd/pair"
)

// pipeBytes is the size asked for output pipes: fewer switches between a
// writing command and supervise.
const pipeBytes = 1 << 20

// record is an entry and what init holds for it.
type record struct {
	pair.Entry
	fds       [7]int // by bit number, -1 = none
	announced bool   // supervise has been told of it, so it may be told of its end
}

var noFDs = [7]int{-1, -1, -1, -1, -1, -1, -1}

func (r *record) mask() uint8 {
	var m uint8
	for i, fd := range r.fds {
		if fd >= 0 {
			m |= 1 << i
		}
	}
	return m
}

func (r *record) open() []int {
	var list []int
	for _, fd := range r.fds {
		if fd >= 0 {
			list = append(list, fd)
		}
	}
	return list
}

func (r *record) closeSlots(slots ...int) {
	for _, s := range slots {
		if r.fds[s] >= 0 {
			_ = unix.Close(r.fds[s])
			r.fds[s] = -1
		}
	}
}

func (r *record) closeAll() {
	r.closeSlots(pair.SlotStdin, pair.SlotFeed, pair.SlotStdout, pair.SlotStderr, pair.SlotMaster, pair.SlotRelayR, pair.SlotRelayW)
}

// insert puts a record into the table. Preconditions: mu is held, or no
// other goroutine uses d yet; the key is free.
func (d *daemon) insert(r *record) {
	d.lastID++
	r.ID = d.lastID
	d.byKey[r.Key] = r
	d.byID[r.ID] = r
}

// remember makes the keys of the list, each with its fingerprint behind it,
// Lost unless they are known. They are not journalled: who told us of them
// tells the next boot too.
func (d *daemon) remember(list []string) pair.Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := 0; i < len(list); i += 2 {
		if r := d.byKey[list[i]]; r != nil {
			if r.State == pair.Lost { // of our journal, which has no fingerprints
				r.Fingerprint = list[i+1]
			}
			continue
		}
		if len(d.byKey) >= pair.KeysMax {
			return pair.OutcomeKeysFull
		}
		d.insert(&record{Entry: pair.Entry{Key: list[i], Fingerprint: list[i+1], State: pair.Lost}, fds: noFDs})
	}
	return pair.OutcomeOK
}

// remove takes a record out of the table and closes what it holds.
func (d *daemon) remove(r *record) {
	delete(d.byKey, r.Key)
	delete(d.byID, r.ID)
	r.closeAll()
}

// spawn starts a command unless its key is known. It runs on the forking thread.
func (d *daemon) spawn(c *conn, request uint32, s *pair.Spawn) {
	r, out := d.reserve(s)
	if out != pair.OutcomeOK {
		c.replyEntry(request, out, r)
		return
	}
	if !s.Auto {
		if err := d.journal.add(s.Key); err != nil {
			d.log.printf("init: journal: %v", err)
			d.cancel(s, r)
			c.replyErrno(request, pair.OutcomeErrno, err)
			return
		}
	}
	err := d.fork(s, r)
	if err != nil {
		d.cancel(s, r)
		c.replyErrno(request, pair.OutcomeNoExec, err)
		return
	}
	c.replyEntry(request, pair.OutcomeOK, r)
}

// reserve takes the key. With OutcomeExisted it returns who has it.
func (d *daemon) reserve(s *pair.Spawn) (*record, pair.Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		return nil, pair.OutcomeStopping
	}
	if r := d.byKey[s.Key]; r != nil {
		return r, pair.OutcomeExisted
	}
	if len(d.byKey) >= pair.KeysMax {
		return nil, pair.OutcomeKeysFull
	}
	r := &record{fds: noFDs, Entry: pair.Entry{
		Key: s.Key, Auto: s.Auto, Argv: s.Argv, Dir: s.Dir, Info: s.Info, Fingerprint: s.Fingerprint, Pty: s.Pty, State: pair.Running,
	}}
	d.insert(r)
	return r, pair.OutcomeOK
}

// cancel gives the key back: nothing ran.
func (d *daemon) cancel(s *pair.Spawn, r *record) {
	if !s.Auto {
		d.journal.drop(s.Key)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(r)
}

// fork makes the descriptors and the process.
func (d *daemon) fork(s *pair.Spawn, r *record) error {
	child, err := d.plumb(s, r)
	defer func() {
		for _, fd := range child {
			if fd != d.devNull {
				_ = unix.Close(fd)
			}
		}
	}()
	if err != nil {
		return err
	}
	attr := &syscall.ProcAttr{Dir: s.Dir, Env: s.Env, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: s.Pty, Ptrace: len(s.Rlimits) > 0}}
	for _, fd := range child {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if s.Pty {
		attr.Files = []uintptr{attr.Files[0], attr.Files[0], attr.Files[0]}
	}
	if s.Switch {
		attr.Sys.Credential = &syscall.Credential{Uid: s.UID, Gid: s.GID, Groups: []uint32{s.GID}}
	}
	d.forkMu.Lock()
	defer d.forkMu.Unlock()
	d.mu.Lock()
	r.StartedUnixNs, r.StartedMonoNs = time.Now().UnixNano(), monoNow()
	d.mu.Unlock()
	pid, err := syscall.ForkExec(s.Path, s.Argv, attr)
	if err != nil {
		return err
	}
	d.mu.Lock()
	r.PID = pid
	d.byPID[pid] = r
	d.mu.Unlock()
	d.childMade()
	if len(s.Rlimits) > 0 {
		return d.limitStopped(pid, s)
	}
	return nil
}

// limitStopped sets the limits of a child that waits at its exec, then lets it
// go. Between exec and here it has run no instruction of the command.
// Preconditions: forkMu is held, so the reaper does not see the stop; the
// calling thread forked the child.
func (d *daemon) limitStopped(pid int, s *pair.Spawn) error {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if !status.Stopped() { // it was killed before its first instruction
		d.mu.Lock()
		d.ended(pid, uint32(status))
		d.mu.Unlock()
		return nil
	}
	if err := setLimits(pid, s); err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_ = unix.PtraceDetach(pid)
		d.mu.Lock()
		delete(d.byPID, pid) // an orphan to the reaper: the key goes back
		d.mu.Unlock()
		return err
	}
	return unix.PtraceDetach(pid)
}

// setLimits needs no privilege to lower the limits of a process with the same
// real ids, so this thread (alone) takes them on meanwhile. Its effective ids,
// and with them its rights, stay.
func setLimits(pid int, s *pair.Spawn) error {
	const keep = ^uintptr(0)
	if s.Switch {
		_, _, _ = unix.RawSyscall(unix.SYS_SETRESGID, uintptr(s.GID), keep, keep)
		_, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, uintptr(s.UID), keep, keep)
		defer func() {
			_, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, 0, keep, keep)
			_, _, _ = unix.RawSyscall(unix.SYS_SETRESGID, 0, keep, keep)
		}()
	}
	for _, l := range s.Rlimits {
		if err := unix.Prlimit(pid, int(l.Resource), &unix.Rlimit{Cur: l.Soft, Max: l.Hard}, nil); err != nil {
			return err
		}
	}
	return nil
}

// plumb fills r.fds and returns the child's 0, 1, 2 (one for a terminal).
// What it returns must be closed, also on error.
func (d *daemon) plumb(s *pair.Spawn, r *record) (child []int, err error) {
	if s.Pty {
		return d.plumbPty(s, r)
	}
	child = append(child, d.devNull)
	if s.Stdin {
		read, write, err := pipe()
		if err != nil {
			return nil, err
		}
		child[0], r.fds[pair.SlotStdin] = read, write
		_ = unix.SetNonblock(write, true)
		giveTo(s, read)
	}
	for _, slot := range []int{pair.SlotStdout, pair.SlotStderr} {
		read, write, err := pipe()
		if err != nil {
			return child, err
		}
		child, r.fds[slot] = append(child, write), read
		_ = unix.SetNonblock(read, true)
		giveTo(s, write)
	}
	return child, nil
}

func (d *daemon) plumbPty(s *pair.Spawn, r *record) ([]int, error) {
	master, slave, err := openPty(s)
	if err != nil {
		return nil, err
	}
	r.fds[pair.SlotMaster] = master
	child := []int{slave}
	read, write, err := pipe()
	if err != nil {
		return child, err
	}
	r.fds[pair.SlotRelayR], r.fds[pair.SlotRelayW] = read, write
	_ = unix.SetNonblock(read, true)
	_ = unix.SetNonblock(write, true)
	return child, nil
}

func pipe() (read, write int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, err
	}
	_, _ = unix.FcntlInt(uintptr(p[0]), unix.F_SETPIPE_SZ, pipeBytes) // a wish
	return p[0], p[1], nil
}

func openPty(s *pair.Spawn) (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, -1, err
	}
	slave, err = openSlave(master, s)
	if err != nil {
		_ = unix.Close(master)
		return -1, -1, err
	}
	return master, slave, nil
}

func openSlave(master int, s *pair.Spawn) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, err
	}
	n, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Col: s.Cols, Row: s.Rows}); err != nil {
		return -1, err
	}
	slave, err := unix.Open("/dev/pts/"+itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	giveTo(s, slave)
	_ = unix.Fchmod(slave, 0o620)
	return slave, nil
}

// giveTo lets the command open what it has as /dev/stdout or /dev/tty by name.
func giveTo(s *pair.Spawn, fd int) {
	if s.Switch {
		_ = unix.Fchown(fd, int(s.UID), int(s.GID))
	}
}

func itoa(n uint32) string {
	var b [10]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return string(b[i:])
		}
	}
}

// monoNow is a clock that no clock step moves, the same for supervise.
func monoNow() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
