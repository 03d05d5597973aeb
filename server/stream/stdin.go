package stream

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/sleep"
)

// Bounds of stdin. A client may send queueMax bytes ahead of the acks; then
// its frames are not read until the command has taken some.
const (
	queueMax      = 4 << 20
	inputBytesMax = 1 << 20 // of one call of the guest
	inputRetry    = 50 * time.Millisecond
)

// stdin queues bytes on their way to a command, so that a command that does
// not read holds up neither signals nor resizes.
type stdin struct {
	mu     sync.Mutex
	more   chan struct{} // one token: there is something to take
	space  chan struct{} // one token: something was taken
	buf    []byte
	at     int64 // offset of buf[0]
	begun  bool  // at is known
	eof    bool
	closed bool // the command takes no more: everything is thrown away
}

func newStdin() *stdin {
	return &stdin{more: make(chan struct{}, 1), space: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put queues bytes at an offset. It waits while the queue is full. Repeated
// bytes are skipped; a hole is Invalid.
func (s *stdin) put(ctx context.Context, offset int64, data []byte, eof bool) error {
	for {
		done, err := s.tryPut(offset, data, eof)
		if done || err != nil {
			return err
		}
		select {
		case <-s.space:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *stdin) tryPut(offset int64, data []byte, eof bool) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return true, nil
	}
	if !s.begun {
		s.at, s.begun = offset, true
	}
	end := s.at + int64(len(s.buf))
	switch {
	case offset > end:
		return false, errs.New(errs.Invalid, "stdin bytes %d to %d are missing", end, offset)
	case s.eof && offset+int64(len(data)) > end:
		return false, errs.New(errs.Invalid, "stdin goes on behind its end")
	case offset < end:
		data = data[min(end-offset, int64(len(data))):]
	}
	if len(s.buf) > 0 && len(s.buf)+len(data) > queueMax {
		return false, nil
	}
	s.buf = append(s.buf, data...)
	s.eof = s.eof || eof
	if len(data) > 0 || eof {
		signal(s.more)
	}
	return true, nil
}

// peek returns the bytes to send next; they stay queued until ack.
func (s *stdin) peek() (offset int64, data []byte, eof bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data = s.buf
	if len(data) > inputBytesMax {
		return s.at, data[:inputBytesMax], false
	}
	return s.at, data, s.eof && !s.closed
}

// ack drops what the command has taken.
func (s *stdin) ack(acked int64, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := min(acked-s.at, int64(len(s.buf))); n > 0 {
		s.buf = append(s.buf[:0:0], s.buf[n:]...) // peek's caller may still hold the old one
		s.at += n
	}
	if closed {
		s.buf, s.closed = nil, true
	}
	signal(s.space)
}

// pump sends what is queued to the command until ctx ends or the command
// takes no more, and reports each ack.
func (s *stdin) pump(ctx context.Context, guest *wire.Client, key string, report func(api.StdinAck) error) error {
	for {
		offset, data, eof := s.peek()
		if len(data) == 0 && !eof {
			select {
			case <-s.more:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		ack, err := Input(ctx, guest, key, offset, data, eof)
		switch {
		case ctx.Err() != nil:
			return nil
		case errs.Temporary(err): // the supervisor restarts; the offset makes a repetition safe
			if sleep.For(ctx, inputRetry) != nil {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		s.ack(ack.Acked, ack.Closed || eof && ack.Acked >= offset+int64(len(data)))
		if err := report(ack); err != nil || ack.Closed {
			return err
		}
		if ack.Acked <= offset && len(data) > 0 && sleep.For(ctx, inputRetry) != nil { // a guest that takes nothing
			return nil
		}
	}
}

// Feed writes all of a command's stdin, as the command takes it. The channel is
// closed when that is over, or ctx is.
func Feed(ctx context.Context, guest *wire.Client, key string, data []byte) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := newStdin()
		if s.put(ctx, 0, data, true) == nil {
			_ = s.pump(ctx, guest, key, func(api.StdinAck) error { return nil }) // a command that has ended takes nothing
		}
	}()
	return done
}

// Input writes stdin of a command. The end of the command is not an error: the
// answer is closed then, as it is behind the end of input.
func Input(ctx context.Context, guest *wire.Client, key string, offset int64, data []byte, eof bool) (api.StdinAck, error) {
	res, err := guest.Process.Input(ctx, connect.NewRequest(&wire.InputRequest{Key: key, Offset: offset, Data: data, Eof: eof}))
	if err != nil {
		return api.StdinAck{}, wire.Err(err)
	}
	return api.StdinAck{Acked: res.Msg.GetAcked(), Closed: res.Msg.GetClosed()}, nil
}
