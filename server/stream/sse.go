package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/skete-dev/skete/server/problem"
)

// SSE writes server-sent events. Not safe for concurrent use.
type SSE struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf bytes.Buffer
}

// NewSSE begins an event stream: from now on errors are events.
func NewSSE(w http.ResponseWriter) (*SSE, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s := &SSE{w: w, rc: http.NewResponseController(w)}
	w.WriteHeader(http.StatusOK)
	return s, s.flush()
}

// Event sends v as JSON; an empty id leaves the client's place as it is.
func (s *SSE) Event(id, name string, v any) error {
	if id != "" {
		s.buf.WriteString("id: " + id + "\n")
	}
	s.buf.WriteString("event: " + name + "\ndata: ")
	if err := json.NewEncoder(&s.buf).Encode(v); err != nil { // ends in \n, holds none
		s.buf.Reset()
		return err
	}
	s.buf.WriteByte('\n')
	return s.flush()
}

// ID sets the client's place without an event.
func (s *SSE) ID(id string) error {
	s.buf.WriteString("id: " + id + "\n\n")
	return s.flush()
}

// Keepalive sends a comment.
func (s *SSE) Keepalive() error {
	s.buf.WriteString(": alive\n\n")
	return s.flush()
}

// Fail tells the client why the stream ends.
func (s *SSE) Fail(err error) { _ = s.Event("", "problem", problem.Of(err).Problem) }

func (s *SSE) flush() error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(WriteTimeout))
	defer s.buf.Reset()
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		return err
	}
	return s.rc.Flush()
}

// item is what a source returned.
type item[T any] struct {
	v   T
	err error
}

// ErrEnd is a source's way to say that there is no more; the stream ends well.
var ErrEnd = errors.New("end of stream")

// Pump sends what next returns until it returns an error, the client is gone
// or ctx ends; between events it keeps the stream alive. next runs in a
// goroutine of its own and must end when cancel, which is ctx's, is called.
func Pump[T any](ctx context.Context, cancel context.CancelFunc, s *SSE, next func(context.Context) (T, error), send func(T) error) error {
	return PumpBeating(ctx, cancel, s, KeepaliveEvery, s.Keepalive, next, send)
}

// PumpBeating is Pump with a sign of life of its own: beat is called every so often.
func PumpBeating[T any](ctx context.Context, cancel context.CancelFunc, s *SSE, every time.Duration, beat func() error, next func(context.Context) (T, error), send func(T) error) error {
	items, done := make(chan item[T]), make(chan struct{})
	go func() {
		defer close(done)
		for {
			v, err := next(ctx)
			select {
			case items <- item[T]{v, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { cancel(); <-done }()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case it := <-items:
			if it.err != nil {
				return s.end(ctx, it.err)
			}
			if err := send(it.v); err != nil {
				return s.end(ctx, err)
			}
		case <-tick.C:
			if beat() != nil {
				return nil
			}
		case <-ctx.Done():
			return s.end(ctx, ctx.Err())
		}
	}
}

// end closes a stream; the error is for the log.
func (s *SSE) end(ctx context.Context, err error) error {
	err = why(ctx, err)
	switch {
	case errors.Is(err, ErrEnd):
		return nil
	case errors.Is(err, context.Canceled):
		return nil // the client is gone
	}
	s.Fail(err)
	return err
}
