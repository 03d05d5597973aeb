package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

// Process is the server of a data directory: held by its process, not by its
// number, which another one may have got meanwhile.
type Process struct {
	PID int
	// Listening: it has made its socket. One that starts, or ends, has not.
	Listening bool

	fd int // of the process
}

// Holder finds the server that has the data directory, whether it answers or
// not. nil: none has. Close it.
func Holder(ctx context.Context, home string) (*Process, error) {
	pid, listening, err := holderOf(ctx, home)
	if pid == 0 || err != nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil // it has just ended
	}
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	p := &Process{PID: pid, Listening: listening, fd: fd}
	// The number may have changed hands before we held it.
	if again, _, err := holderOf(ctx, home); err != nil || again != pid {
		p.Close()
		return nil, err
	}
	return p, nil
}

func holderOf(ctx context.Context, home string) (pid int, listening bool, err error) {
	pid, err = listenerOf(ctx, client.SocketPath(home))
	if pid != 0 || err != nil {
		return pid, true, err
	}
	pid, err = locker(filepath.Join(home, "store", "lock"))
	return pid, false, err
}

// listenerOf asks the kernel who listens on a unix socket; 0 = none does.
func listenerOf(ctx context.Context, path string) (int, error) {
	conn, err := client.DialUnix(ctx, path)
	if errors.Is(err, fs.ErrPermission) {
		return 0, errs.Wrap(errs.Denied, err, "the data directory is another user's").
			WithHint("become that user, or root")
	}
	if err != nil {
		return 0, ctx.Err()
	}
	defer conn.Close()
	sc, ok := conn.(interface {
		File() (*os.File, error)
	})
	if !ok {
		return 0, nil
	}
	f, err := sc.File()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	peer, err := unix.GetsockoptUcred(int(f.Fd()), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

// locker says who holds the lock on a file; 0 = no process that we can see. It is
// looked up and not tried: a lock that is tried for a moment refuses another.
func locker(path string) (int, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		if errors.Is(err, unix.EACCES) {
			return 0, errs.Wrap(errs.Denied, err, "the data directory is another user's").WithHint("become that user, or root")
		}
		return 0, nil
	}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0, nil
	}
	defer f.Close()
	// 1: FLOCK  ADVISORY  WRITE 1234 08:01:12345 0 EOF
	for s := bufio.NewScanner(f); s.Scan(); {
		w := strings.Fields(s.Text())
		if len(w) < 6 || w[1] != "FLOCK" || !strings.HasSuffix(w[5], fmt.Sprintf(":%d", st.Ino)) {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(w[4], &pid); err != nil || pid <= 0 {
			continue
		}
		// File systems over others show a device here that stat does not know,
		// so what the holder has written into the file counts.
		if said, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(said)) == w[4] {
			return pid, nil
		}
	}
	return 0, nil
}

// Close lets go of it.
func (p *Process) Close() { _ = unix.Close(p.fd) }

// Signal sends a signal. NotFound: it has ended.
func (p *Process) Signal(s unix.Signal) error {
	err := unix.PidfdSendSignal(p.fd, s, nil, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return errs.New(errs.NotFound, "the server (pid %d) has ended", p.PID)
	case errors.Is(err, unix.EPERM):
		return errs.Wrap(errs.Denied, err, "the server (pid %d) is another user's", p.PID).WithHint("become that user, or root")
	}
	return err
}

// Wait returns nil when it has ended, or ctx's error.
func (p *Process) Wait(ctx context.Context) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int((100 * time.Millisecond).Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
