package process

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/process/spool"
)

const (
	spliceBytes   = 1 << 20
	fullWait      = 100 * time.Millisecond // between attempts when a file cannot be written at all
	tailWhenShort = 2 << 20                // of a running process when all spools together are too large

	// A command that writes much in small pieces would wake us (and every
	// reader) for each of them; at such a rate we let the pipe fill a little.
	paceWindow = 10 * time.Millisecond
	paceBytes  = 256 << 10 // in a window, from which on we pace
	paceEnough = 128 << 10 // in one move: no need to wait for more
	paceWait   = time.Millisecond
)

// pump moves one stream of a process from its pipe (or terminal) to its spool
// until the end. It runs in one goroutine.
type pump struct {
	core   *Core
	spool  *spool.Spool
	in     *os.File // read end of the pipe, or the terminal
	relayR *os.File // terminal only: the pipe in between
	relayW *os.File
	stop   chan struct{}
	logged bool

	moving sync.Mutex // held while bytes are on their way

	window time.Time // start of the present one
	moved  int64     // in it
}

func (p *pump) run() {
	defer p.spool.Finish()
	if p.relayR != nil {
		p.runTerminal()
		return
	}
	_ = p.readable(p.in, func(fd int) (bool, error) { return p.drain(fd) })
}

// readable calls f with the descriptor each time that it may be readable,
// until f says that it is done or fails.
func (p *pump) readable(file *os.File, f func(fd int) (done bool, err error)) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	err = raw.Read(func(fd uintptr) bool {
		var done bool
		done, ferr = f(int(fd))
		return done || ferr != nil
	})
	return errors.Join(err, ferr)
}

// drain moves all that the pipe holds; done at its end.
func (p *pump) drain(fd int) (done bool, err error) {
	for {
		if p.spool.NeedsFile() { // most streams end without a byte: no file for those
			if data, end := pipeHolds(fd); !data {
				return end, nil
			}
		}
		if err := p.room(); err != nil {
			return true, err
		}
		n, err := p.fill(fd)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false, nil
		case errors.Is(err, unix.EINTR):
		case err == nil && n == 0:
			return true, nil
		case err == nil:
			p.pace(n)
		case err != nil:
			if done, err := p.discard(fd, err); done || err != nil {
				return done, err
			}
		}
	}
}

func (p *pump) fill(fd int) (int64, error) {
	p.moving.Lock()
	defer p.moving.Unlock()
	return p.spool.Fill(func(f *os.File, most int64) (int64, error) {
		return splicePipe(fd, f, min(most, spliceBytes))
	})
}

// extent is the length of the stream: what was moved, and with what waits to be. It is
// safe for concurrent use with run.
func (p *pump) extent() (moved, written int64) {
	p.moving.Lock()
	defer p.moving.Unlock()
	_, _, moved, _ = p.spool.Extent()
	return moved, moved + pipeBytes(p.in) + pipeBytes(p.relayR)
}

// pace waits a moment when much comes in small pieces. Not for terminals:
// those have small buffers, and a person may be watching.
func (p *pump) pace(n int64) {
	if p.relayR != nil {
		return
	}
	if now := time.Now(); now.Sub(p.window) > paceWindow {
		p.window, p.moved = now, 0
	}
	p.moved += n
	if n < paceEnough && p.moved > paceBytes {
		select {
		case <-p.stop:
		case <-time.After(paceWait):
		}
	}
}

// room waits until the spool may take more: for readers when the process asked
// for that, and keeps all spools together within their bound.
func (p *pump) room() error {
	if p.core.spoolsOver() {
		p.core.dropOldOutput()
		if p.core.spoolsOver() {
			p.spool.Shrink(tailWhenShort)
		}
	}
	for {
		ok, changed := p.spool.MayFill(time.Now())
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-p.stop:
			return os.ErrClosed
		case <-time.After(time.Second): // the reader's time may be over
		}
	}
}

// discard throws away what the pipe holds, because the spool cannot take it
// (cause). The process must not hang on a full disk; the cut is stated.
func (p *pump) discard(fd int, cause error) (done bool, err error) {
	if !p.logged {
		p.logged = true
		p.core.logf("output of a process is dropped: %v", cause)
	}
	p.moving.Lock()
	defer p.moving.Unlock()
	buf := make([]byte, 64<<10)
	n, err := unix.Read(fd, buf)
	switch {
	case err == unix.EAGAIN:
		return false, nil
	case err == unix.EINTR:
		return false, nil
	case err != nil:
		return true, err
	case n == 0:
		return true, nil
	}
	p.spool.Skip(int64(n))
	return false, nil
}

// runTerminal moves from the terminal to the relay pipe and from there to the
// spool, so that a byte is never in our memory alone.
func (p *pump) runTerminal() {
	_ = p.readable(p.in, func(fd int) (bool, error) {
		for {
			if err := p.drainRelay(); err != nil {
				return true, err
			}
			n, err := p.relay(fd)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false, nil
			case errors.Is(err, unix.EINTR):
			case err != nil || n == 0: // EIO: every end of the terminal is closed
				return true, nil
			}
		}
	})
	_ = p.drainRelay()
}

func (p *pump) drainRelay() error {
	raw, err := p.relayR.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) { _, err = p.drain(int(fd)) })
	return errors.Join(cerr, err)
}

func (p *pump) relay(fd int) (n int64, err error) {
	p.moving.Lock()
	defer p.moving.Unlock()
	n, err = splicePipe(fd, p.relayW, 64<<10)
	if errors.Is(err, syscall.EIO) {
		return 0, nil
	}
	return n, err
}
