package client

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/skete-dev/skete/api"
)

// This file carries what a reader gives to a command, over any number of
// connections and without losing or doubling a byte.
//
// A stdinSource is safe for concurrent use.

// window bounds the bytes that were sent but not acknowledged; they are
// kept so that they can be sent again over a new connection.
const window = 2 << 20

// stdinSource is the input of one command. One goroutine (Fill) reads, another one
// per connection (Drain) sends.
type stdinSource struct {
	src io.Reader

	mu     sync.Mutex
	wake   chan struct{} // closed and replaced at every change
	base   int64         // acknowledged so far = offset of buf[0]
	buf    []byte        // read, not acknowledged
	eof    bool          // src has ended
	closed bool          // the command takes no more
}

// newStdinSource returns the input that src gives.
func newStdinSource(src io.Reader) *stdinSource {
	return &stdinSource{src: src, wake: make(chan struct{})}
}

// changed wakes all waiters. Preconditions: mu is held.
func (s *stdinSource) changed() {
	close(s.wake)
	s.wake = make(chan struct{})
}

// Fill reads src until it ends or the command takes no more. It may stay in
// a read of src after the command ended: nothing can interrupt that.
func (s *stdinSource) Fill(ctx context.Context) {
	part := make([]byte, 64<<10)
	for s.room(ctx) {
		n, err := s.src.Read(part)
		s.mu.Lock()
		s.buf = append(s.buf, part[:n]...)
		if err != nil {
			s.eof = true // like os/exec, whose child sees the end of its input
		}
		s.changed()
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// room waits until there is space in the window; false: stop reading.
func (s *stdinSource) room(ctx context.Context) bool {
	for {
		s.mu.Lock()
		full, closed, wake := len(s.buf) >= window, s.closed, s.wake
		s.mu.Unlock()
		if closed || ctx.Err() != nil {
			return false
		}
		if !full {
			return true
		}
		select {
		case <-wake:
		case <-ctx.Done():
		}
	}
}

// Ack says how much the command has accepted in all. Before the first byte is
// read it places the beginning of the stream.
func (s *stdinSource) Ack(a api.StdinAck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := a.Acked - s.base; n > 0 {
		s.buf = s.buf[min(n, int64(len(s.buf))):]
		s.base = a.Acked
	}
	if len(s.buf) == 0 {
		s.buf = nil
	}
	if a.Closed {
		s.closed = true
	}
	s.changed()
}

// Stop ends Fill at its next step.
func (s *stdinSource) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed()
}

// Drain sends what Fill reads over one connection, from the acknowledged
// offset on. It ends with the connection, after the end of input, or when the
// command takes no more.
func (s *stdinSource) Drain(ctx context.Context, send func([]byte) error) error {
	s.mu.Lock()
	at := s.base
	s.mu.Unlock()
	var frame []byte
	for {
		kind, offset, data, err := s.next(ctx, at)
		if err != nil || kind == 0 {
			return err
		}
		frame = api.AppendOffsetFrame(frame[:0], kind, offset, data)
		if err := send(frame); err != nil {
			return err
		}
		if kind == api.FrameStdinEOF {
			return nil
		}
		at += int64(len(data))
	}
}

// next waits for bytes at the offset or the end of input. kind 0: no more is wanted.
func (s *stdinSource) next(ctx context.Context, at int64) (api.FrameKind, int64, []byte, error) {
	for {
		s.mu.Lock()
		from := max(at, s.base)
		rest := s.buf[min(from-s.base, int64(len(s.buf))):]
		if len(rest) > api.StdinBytesMax {
			rest = rest[:api.StdinBytesMax]
		}
		eof, closed, wake := s.eof, s.closed, s.wake
		s.mu.Unlock()
		switch {
		case closed:
			return 0, 0, nil, nil
		case len(rest) > 0 && from == at:
			return api.FrameStdin, at, rest, nil
		case len(rest) > 0:
			return 0, 0, nil, errors.New("stdin was acknowledged further than it was sent")
		case eof:
			return api.FrameStdinEOF, from, nil, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return 0, 0, nil, ctx.Err()
		}
	}
}
