package fault

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// This file holds what clients of model vendors share below their
// dialects: a Guard that bounds how long a reply may be silent and how large it
// may grow, when a used-up rate limit is reset, and JSON strings appended to a
// request.
//
// A Guard belongs to one request and one goroutine; its timer is the only
// other party. The functions are pure.

// What a Guard ends a request for.
var (
	ErrSilent  = errors.New("the server was silent for too long")
	ErrTooLong = errors.New("the reply is longer than allowed")
)

// Guard ends a request whose server is silent for too long or says too much.
type Guard struct {
	cancel  context.CancelCauseFunc
	ctx     context.Context
	timer   *time.Timer
	silence time.Duration
	max     int64
	bytes   int64
	tooLong bool
}

// NewGuard returns a guard and the context that its request must use. It is
// not armed: the time that our own side takes is not the server's silence.
func NewGuard(ctx context.Context, silence time.Duration, bytesMax int64) (*Guard, context.Context) {
	g := &Guard{silence: silence, max: bytesMax}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	g.timer = time.AfterFunc(silence, func() { g.cancel(ErrSilent) })
	g.timer.Stop()
	return g, g.ctx
}

// Arm starts the time in which the server must say something that counts.
func (g *Guard) Arm() { g.timer.Reset(g.silence) }

// Disarm stops it.
func (g *Guard) Disarm() { g.timer.Stop() }

// Cause returns why the guard ended the request, nil if it did not.
func (g *Guard) Cause() error {
	if g.tooLong {
		return ErrTooLong
	}
	if errors.Is(context.Cause(g.ctx), ErrSilent) {
		return ErrSilent
	}
	return nil
}

// Close ends the request, if it still runs, and the timer.
func (g *Guard) Close() {
	g.timer.Stop()
	g.cancel(nil)
}

// Bytes returns how many bytes the server sent.
func (g *Guard) Bytes() int64 { return g.bytes }

// Body returns a body that ends with ErrTooLong after the bytes that the guard
// allows. All bodies of a guard share them.
func (g *Guard) Body(rc io.ReadCloser) io.ReadCloser { return &guardedBody{ReadCloser: rc, g: g} }

type guardedBody struct {
	io.ReadCloser
	g *Guard
}

func (b *guardedBody) Read(p []byte) (int, error) {
	if b.g.tooLong {
		return 0, ErrTooLong
	}
	n, err := b.ReadCloser.Read(p)
	if b.g.bytes += int64(n); b.g.bytes > b.g.max {
		b.g.tooLong = true
		return 0, ErrTooLong
	}
	return n, err
}

// drainBytesMax bounds what Drain reads behind the end of an answer.
const drainBytesMax = 4 << 10

// Drain reads what follows the end of an answer, which should be nothing, so
// that the connection can be used again. It takes no longer than wait.
func (g *Guard) Drain(rc io.Reader, wait time.Duration) {
	g.timer.Reset(wait)
	defer g.timer.Stop()
	_, _ = io.CopyN(io.Discard, rc, drainBytesMax) // what it holds does not matter
}

// HTTPClient returns an HTTP client that does not follow redirects: a key goes
// only to the host that the operator named.
func HTTPClient() *http.Client {
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
