package hostproc

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Watch follows one process to its end. It blocks no thread.
type Watch struct {
	ref    Ref
	file   *os.File // the pidfd
	done   chan struct{}
	closed sync.WaitGroup

	mu     sync.Mutex
	status Status
}

// Status tells how a process ended, as far as the kernel tells a process
// that is not its parent (Linux 6.15 and later) or we were its parent.
type Status struct {
	Known  bool
	Code   int         // of exit, when Signal is 0
	Signal unix.Signal // that ended it
}

// Open begins to follow the process. ErrGone: it has ended already.
func Open(r Ref) (*Watch, error) {
	fd, err := r.open()
	if err != nil {
		return nil, err
	}
	w := &Watch{ref: r, file: os.NewFile(uintptr(fd), "pidfd"), done: make(chan struct{})}
	raw, err := w.file.SyscallConn()
	if err != nil {
		w.file.Close()
		return nil, fmt.Errorf("follow process %d: %w", r.PID, err)
	}
	w.closed.Go(func() {
		ended := false
		_ = raw.Read(func(fd uintptr) bool {
			if ended = hasEnded(int(fd)); ended {
				w.setStatus(endOf(int(fd), r.PID))
			}
			return ended
		})
		if ended {
			close(w.done)
		}
	})
	return w, nil
}

// Done is closed when the process has ended; never, if the watch was closed before.
func (w *Watch) Done() <-chan struct{} { return w.done }

// Status is valid after Done.
func (w *Watch) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

func (w *Watch) setStatus(s Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = s
}

// Ref returns the process that is followed.
func (w *Watch) Ref() Ref { return w.ref }

// Close stops following. Safe to repeat.
func (w *Watch) Close() error {
	err := w.file.Close()
	w.closed.Wait()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func hasEnded(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents != 0
}

// endOf collects the status. A child of ours is reaped here, so that it does
// not stay a zombie: machines are reparented to us when we are init or a
// subreaper. Another process's child is reaped by its parent in a moment, and
// only then does the kernel tell the rest of the world how it ended.
func endOf(fd, pid int) Status {
	var ws unix.WaitStatus
	if n, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil); err == nil && n == pid {
		return statusOf(ws)
	}
	for range 20 {
		if s, ok := pidfdExit(fd); ok {
			return s
		}
		<-time.After(time.Millisecond)
	}
	return Status{}
}

func statusOf(ws unix.WaitStatus) Status {
	if ws.Signaled() {
		return Status{Known: true, Signal: ws.Signal()}
	}
	return Status{Known: true, Code: ws.ExitStatus()}
}

// pidfdInfo is struct pidfd_info of Linux 6.15 (linux/pidfd.h), 64 bytes.
type pidfdInfo struct {
	mask     uint64
	cgroup   uint64
	pid      uint32
	tgid     uint32
	ppid     uint32
	ids      [8]uint32
	exitCode int32
}

const (
	pidfdInfoExit = 1 << 3
	pidfdGetInfo  = 3<<30 | unsafe.Sizeof(pidfdInfo{})<<16 | 0xFF<<8 | 11 // _IOWR(0xFF, 11, …)
)

func pidfdExit(fd int) (Status, bool) {
	info := pidfdInfo{mask: pidfdInfoExit}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), pidfdGetInfo, uintptr(unsafe.Pointer(&info)))
	if errno != 0 || info.mask&pidfdInfoExit == 0 {
		return Status{}, false
	}
	return statusOf(unix.WaitStatus(uint32(info.exitCode))), true
}
