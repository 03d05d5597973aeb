package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/initd/pair"
)

// This file brings bytes into a process: accepted by offset, never twice.
//
// A byte is accepted when it is in the feed file; the file's size is the truth.
// sendfile(2) moves it on, and the file description's own offset, which init
// shares, says how far. So supervise may die at any moment: the next one goes
// on where the two files stand. The feed is replaced when it has grown and all
// of it was taken, so that gigabytes of stdin do not fill the disk.
//
// A stdin is safe for concurrent use.

const (
	pendingMax = 4 << 20 // accepted and not yet taken by the process
	moveBytes  = 1 << 20 // at once
	feedMax    = 8 << 20 // size at which the feed file is replaced
	endOfTyped = 4       // Ctrl-D, the end of input on a terminal
)

// stdinEnv is what a Stdin needs around it.
type stdinEnv struct {
	Init *pair.Client
	// Dir takes the feed files.
	Dir string
	// Go runs a function in a goroutine that its owner waits for.
	Go func(func())
}

// stdin accepts bytes by offset into the feed file and moves them on to the
// process. A byte is accepted when the file has it; retries never duplicate.
type stdin struct {
	env  stdinEnv
	id   uint64
	pty  bool
	pipe *os.File // write end, or the terminal

	mu      sync.Mutex
	feed    *os.File
	base    int64 // stream offset of feed's first byte
	size    int64 // of feed
	sent    int64 // of feed, taken by the process
	ended   bool
	closed  bool
	pumping bool
	moved   chan struct{} // closed when sent or closed changes, nil = no goroutine waits
	work    chan struct{} // a token for the pump
	done    chan struct{} // closed with closed
}

// newStdin takes over the stdin of a process, and its files.
func newStdin(env stdinEnv, e *pair.Entry) (*stdin, error) {
	s := &stdin{env: env, id: e.ID, pty: e.Pty, pipe: e.Stdin, work: make(chan struct{}, 1), done: make(chan struct{})}
	if e.Pty {
		s.pipe = e.Master
	}
	if s.pipe == nil {
		s.closed = true
		close(s.done)
	}
	s.base, s.ended = e.FeedBase, e.FeedEnded
	if e.Feed == nil {
		return s, nil
	}
	s.feed = e.Feed
	info, err := s.feed.Stat()
	if err != nil {
		return nil, err
	}
	s.size = info.Size()
	if s.sent, err = s.feed.Seek(0, 1); err != nil {
		return nil, err
	}
	s.startLocked()
	return s, nil
}

// closedStdin is the stdin of a process that is gone.
func closedStdin() *stdin { return &stdin{closed: true} }

// Acked is how many bytes were accepted in all.
func (s *stdin) Acked() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base + s.size
}

// Write accepts data at an offset; bytes that were accepted before are passed
// over. It waits while much is pending.
func (s *stdin) Write(ctx context.Context, off int64, data []byte, eof bool) (acked int64, closed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed {
		acked := s.base + s.size
		if off > acked {
			return acked, s.ended, errs.New(errs.Invalid, "stdin has %d bytes, offset %d would leave a hole", acked, off)
		}
		rest := data[min(int64(len(data)), acked-off):]
		if len(rest) == 0 {
			break
		}
		if s.ended {
			return acked, true, errs.New(errs.Conflict, "stdin was closed at %d", acked)
		}
		ready, err := s.roomLocked()
		if err == nil && !ready {
			err = s.waitLocked(ctx)
		} else if err == nil {
			err = s.appendLocked(rest)
		}
		if err != nil {
			return s.base + s.size, s.closed, err
		}
	}
	if eof && !s.ended && !s.closed {
		if err := s.env.Init.FeedEnd(s.id); err != nil {
			return s.base + s.size, s.closed, err
		}
		s.ended = true
		s.startLocked()
	}
	return s.base + s.size, s.closed || s.ended, nil
}

// roomLocked reports whether more may be accepted now, and sees to the feed file.
func (s *stdin) roomLocked() (bool, error) {
	pending := s.size - s.sent
	if s.feed == nil || (s.size >= feedMax && pending == 0) {
		return true, s.replaceLocked()
	}
	return s.size < feedMax && pending <= pendingMax, nil
}

// waitLocked lets go of mu until the process took something.
func (s *stdin) waitLocked(ctx context.Context) error {
	if s.moved == nil {
		s.moved = make(chan struct{})
	}
	moved := s.moved
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-moved:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// appendLocked adds data to the feed; a short write is kept as far as it went.
func (s *stdin) appendLocked(data []byte) error {
	n, err := s.feed.WriteAt(data, s.size)
	s.size += int64(n)
	s.startLocked()
	if err != nil {
		return errs.Wrap(errs.Limit, err, "stdin cannot be stored: no room")
	}
	return nil
}

// replaceLocked begins a new feed file. Init takes it in one step, so a death
// of ours leaves the old one (all of it taken) or the new one (empty).
// Preconditions: nothing is pending.
func (s *stdin) replaceLocked() error {
	path := filepath.Join(s.env.Dir, fmt.Sprintf("%d.in", s.id))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errs.Wrap(errs.Limit, err, "stdin cannot be stored")
	}
	_ = os.Remove(path) // it lives as long as init or we hold it
	base := s.base + s.size
	if err := s.env.Init.Feed(s.id, base, f); err != nil {
		f.Close()
		return err
	}
	if s.feed != nil {
		s.feed.Close()
	}
	s.feed, s.base, s.size, s.sent = f, base, 0, 0
	return nil
}

// startLocked makes the pump look at its work.
func (s *stdin) startLocked() {
	if s.closed {
		return
	}
	if !s.pumping {
		s.pumping = true
		s.env.Go(s.pump)
	}
	select {
	case s.work <- struct{}{}:
	default:
	}
}

func (s *stdin) movedLocked() {
	if s.moved != nil {
		close(s.moved)
		s.moved = nil
	}
}

// pump moves from the feed to the process until the end or close.
func (s *stdin) pump() {
	for {
		select {
		case <-s.work:
		case <-s.done:
			return
		}
		for {
			s.mu.Lock()
			left, feed, ended, closed := s.size-s.sent, s.feed, s.ended, s.closed
			s.mu.Unlock()
			if closed {
				return
			}
			if left <= 0 {
				if ended {
					s.end()
					return
				}
				break
			}
			n, err := s.move(feed, left)
			s.mu.Lock()
			s.sent += n
			s.movedLocked()
			s.mu.Unlock()
			if err != nil { // the process has closed its stdin, or we close
				s.Close()
				return
			}
		}
	}
}

// move sends up to n bytes; it waits until the process takes some.
func (s *stdin) move(feed *os.File, n int64) (moved int64, err error) {
	raw, err := s.pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	in, err := feed.SyscallConn()
	if err != nil {
		return 0, err
	}
	var serr error
	err = raw.Write(func(out uintptr) bool {
		cerr := in.Control(func(in uintptr) {
			var sent int
			sent, serr = unix.Sendfile(int(out), int(in), nil, int(min(n, moveBytes)))
			moved = int64(max(sent, 0))
		})
		serr = errors.Join(serr, cerr)
		return !errors.Is(serr, unix.EAGAIN)
	})
	if err != nil {
		return moved, err
	}
	if errors.Is(serr, unix.EINTR) {
		serr = nil
	}
	return moved, serr
}

// end closes stdin behind the last byte; on a terminal it types Ctrl-D.
func (s *stdin) end() {
	if s.pty {
		_, _ = s.pipe.Write([]byte{endOfTyped})
		return
	}
	_ = s.env.Init.CloseStdin(s.id)
	s.Close()
}

// Close lets go of stdin. Safe to repeat; the terminal is not closed here.
func (s *stdin) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	close(s.done)
	s.movedLocked()
	if !s.pty {
		s.pipe.Close()
	}
	if s.feed != nil {
		s.feed.Close()
		s.feed = nil
	}
}
