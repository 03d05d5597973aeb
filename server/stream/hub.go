// Package stream carries bytes and events between callers and guests: output
// of commands as WebSocket frames or server-sent events, stdin with acks,
// tunnels to ports.
//
//	ctx, release, err := hub.Open(r.Context(), keyID)
//	defer release()
//	out := stream.Start(guest, req, fallbacks...)
//	stream.Frames(ctx, ws, guest, out)
//
// Promises. A stream never blocks another one: each has its own connection to
// the guest and its own writer, and a client that takes nothing for
// WriteTimeout is dropped. A dropped client loses nothing: commands go on, and
// offsets resume their output. A supervisor that restarts inside the guest is
// bridged without the client noticing. What a guest sends is checked for
// order; a guest that breaks the protocol ends its own stream only.
package stream

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/problem"
)

// Times of all streams.
const (
	// WriteTimeout is how long a client may take nothing.
	WriteTimeout = 60 * time.Second
	// KeepaliveEvery is how often a silent event stream shows that it lives.
	KeepaliveEvery = 10 * time.Second
	pingEvery      = 20 * time.Second
)

// Hub counts the open streams of a server, bounds them per owner and ends
// them: all of one owner when its key is revoked, all when the server stops.
//
// Safe for concurrent use.
type Hub struct {
	maxPerOwner int

	mu     sync.Mutex
	owners map[string]map[int]context.CancelCauseFunc
	next   int
	open   int
	closed bool
	wg     sync.WaitGroup
}

// NewHub returns a hub that allows each owner so many streams at once.
func NewHub(maxPerOwner int) *Hub {
	return &Hub{maxPerOwner: maxPerOwner, owners: map[string]map[int]context.CancelCauseFunc{}}
}

func errStopping() error {
	return errs.New(errs.Unavailable, "the server stops; the command goes on, attach again")
}

func errRevoked() error { return errs.New(errs.Denied, "the API key was revoked") }

// Open admits a stream. Its context ends with ctx, with the owner (Cut) or
// with the server (Close); context.Cause says which. release must be called.
func (h *Hub) Open(ctx context.Context, owner string) (context.Context, func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, errStopping()
	}
	mine := h.owners[owner]
	if len(mine) >= h.maxPerOwner {
		return nil, nil, errs.New(errs.Limit, "this key has %d streams open, the most that it may", h.maxPerOwner).
			WithHint("close some, or use another key")
	}
	if mine == nil {
		mine = map[int]context.CancelCauseFunc{}
		h.owners[owner] = mine
	}
	ctx, cancel := context.WithCancelCause(ctx)
	id := h.next
	h.next++
	h.open++
	mine[id] = cancel
	h.wg.Add(1)
	return ctx, sync.OnceFunc(func() { h.release(owner, id, cancel) }), nil
}

// Admit is Open for a request whose answer is long. HEAD has no long answer.
func (h *Hub) Admit(w http.ResponseWriter, r *http.Request, owner string) (context.Context, func(), error) {
	if r.Method == http.MethodHead {
		w.Header().Set("Allow", http.MethodGet)
		return nil, nil, problem.At(http.StatusMethodNotAllowed, errs.New(errs.Invalid, "a stream has no HEAD"))
	}
	return h.Open(r.Context(), owner)
}

func (h *Hub) release(owner string, id int, cancel context.CancelCauseFunc) {
	cancel(nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owners[owner], id)
	if len(h.owners[owner]) == 0 {
		delete(h.owners, owner)
	}
	h.open--
	h.wg.Done()
}

// Count says how many streams are open.
func (h *Hub) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// Cut ends all streams of an owner.
func (h *Hub) Cut(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cancel := range h.owners[owner] {
		cancel(errRevoked())
	}
}

// Close refuses new streams, ends the open ones and waits for them until ctx ends.
func (h *Hub) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	for _, mine := range h.owners {
		for _, cancel := range mine {
			cancel(errStopping())
		}
	}
	h.mu.Unlock()
	done := make(chan struct{})
	go func() { h.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// why returns the reason that a stream's context ended, else err.
func why(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return ctx.Err()
}
