package stream

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/sleep"
)

const sourceRetry = 50 * time.Millisecond

// Source reads the events of a guest, and opens their stream again where it was
// when the connection breaks: its supervisor may be starting anew. A guest that
// says nothing for too long ends it with ErrSilent. Not safe for concurrent use.
type Source[T any] struct {
	// Open asks for the events behind those that Note has seen.
	Open func(context.Context) (*connect.ServerStreamForClient[T], error)
	// Note sees each event before it is returned; an error ends the source.
	// nil = there is no place to keep.
	Note func(*T) error
	// End is what it means that the guest ended the stream and said no error.
	End error
	// Still is as in Output.
	Still func(context.Context) bool

	stream  *connect.ServerStreamForClient[T]
	close   context.CancelFunc
	context context.Context // the stream's
	silence *silence        // of the stream
	broken  time.Time       // since when; zero = it is not
	begun   bool            // an event has come
}

// Next returns the next event, over a connection that breaks too.
func (s *Source[T]) Next(ctx context.Context) (*T, error) {
	for {
		ev, err := s.Once(ctx)
		if err == nil {
			s.broken, s.begun = time.Time{}, true
			return ev, nil
		}
		s.Close()
		now := time.Now()
		if s.broken.IsZero() {
			s.broken = now
		}
		if ctx.Err() != nil || !errs.Temporary(err) || now.Sub(s.broken) > bridgeFor || !s.begun && unreached(s.broken, err) || sleep.For(ctx, sourceRetry) != nil {
			return nil, err
		}
	}
}

// Once is Next without another try.
func (s *Source[T]) Once(ctx context.Context) (*T, error) {
	if s.context == nil {
		s.context, s.silence, s.close = listen(ctx, s.Still)
	}
	s.silence.begin()
	ev, err := s.receive()
	s.silence.end()
	switch {
	case err == nil && s.Note != nil:
		return ev, s.Note(ev)
	case err != nil && errors.Is(context.Cause(s.context), ErrSilent):
		return nil, errSilent()
	}
	return ev, err
}

func (s *Source[T]) receive() (*T, error) {
	if s.stream == nil {
		st, err := s.Open(s.context)
		if err != nil {
			return nil, wire.Err(err)
		}
		s.stream = st
	}
	if s.stream.Receive() {
		return s.stream.Msg(), nil
	}
	if err := s.stream.Err(); err != nil {
		return nil, wire.Err(err)
	}
	return nil, s.End
}

// Close ends the stream; Next opens it again.
func (s *Source[T]) Close() {
	if s.context == nil {
		return
	}
	s.close() // first: closing alone would read on
	if s.stream != nil {
		_ = s.stream.Close()
	}
	s.stream, s.context = nil, nil
}
