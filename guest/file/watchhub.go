package file

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
)

// keptAlone is how long a watch lives without a reader.
const keptAlone = 60 * time.Second

// watchKind of an event.
type watchKind int

// Rename is the old name's event; the new name's is Create.
const (
	watchCreate watchKind = iota + 1
	watchWrite
	watchRemove
	watchRename
	watchChmod
	watchOverflow // LostFrom and LostTo say which numbers
)

// watchEvent is one change.
type watchEvent struct {
	Seq              uint64
	Kind             watchKind
	Path             string // absolute
	Dir              bool
	LostFrom, LostTo uint64
}

// watchOptions of a watch.
type watchOptions struct {
	ID        string // empty: one is made
	Path      string // absolute and clean; a link in the last place is followed
	Recursive bool
	// Owner tells watches of different users apart: an id is never shared.
	Owner string
	// As runs a function with the rights that the watch is to have.
	As func(func() error) error
}

// watchHub keeps the watches.
type watchHub struct {
	max int
	ttl time.Duration

	mu      sync.Mutex
	watches map[string]*watch
	closed  bool
	wg      sync.WaitGroup
}

// newWatchHub returns a hub for at most max watches.
func newWatchHub(max int) *watchHub {
	return &watchHub{max: max, ttl: keptAlone, watches: map[string]*watch{}}
}

// Find returns a running watch. NotFound: it ended, or never was.
func (h *watchHub) Find(o watchOptions) (*watch, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.watches[o.ID]
	if w == nil {
		return nil, errs.New(errs.NotFound, "no watch %s: it ended a minute after its last reader, or with the guest", o.ID).
			WithHint("start a new one and look at the tree again")
	}
	if w.opts.Path != o.Path || w.opts.Owner != o.Owner || w.opts.Recursive != o.Recursive {
		return nil, errs.New(errs.Conflict, "the watch %s looks at something else", o.ID)
	}
	w.hold()
	return w, nil
}

// Start begins a watch and holds it for the caller. A running one with the
// same id and path is joined.
func (h *watchHub) Start(o watchOptions) (*watch, error) {
	if o.ID == "" {
		o.ID = "watch-" + rand.Text()
	} else if w, err := h.Find(o); err == nil || !errs.Is(err, errs.NotFound) {
		return w, err
	}
	w, err := newWatch(o)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		err = errs.New(errs.Unavailable, "the file service is closing")
	case len(h.watches) >= h.max:
		err = errs.New(errs.Limit, "there are %d watches already", h.max)
	case h.watches[o.ID] != nil:
		err = errs.New(errs.Conflict, "the watch %s was started twice at once", o.ID)
	}
	if err != nil {
		_ = w.in.Close()
		return nil, err
	}
	w.hub = h
	h.watches[o.ID] = w
	w.hold()
	h.wg.Go(func() {
		w.run()
		h.forget(w)
	})
	return w, nil
}

func (h *watchHub) forget(w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watches[w.opts.ID] == w {
		delete(h.watches, w.opts.ID)
	}
}

// Close ends all watches and waits for them.
func (h *watchHub) Close() {
	h.mu.Lock()
	h.closed = true
	for _, w := range h.watches {
		w.end()
	}
	h.mu.Unlock()
	h.wg.Wait()
}

// ID names the watch for a reader that comes back.
func (w *watch) ID() string { return w.opts.ID }

// Next is the number that the next event will have.
func (w *watch) Next() uint64 { return w.ring.nextSeq() }

// From returns events numbered seq or higher, a channel that closes when more
// come, and whether the watch goes on.
func (w *watch) From(seq uint64) (events []watchEvent, more <-chan struct{}, alive bool) {
	return w.ring.from(seq)
}

// hold counts a reader in; the hub's lock is held.
func (w *watch) hold() {
	w.readers++
	if w.expiry != nil {
		w.expiry.Stop()
		w.expiry = nil
	}
}

// Release counts a reader out; the last one starts the watch's last minute.
func (w *watch) Release() {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.readers--; w.readers > 0 || h.closed {
		return
	}
	w.expiry = time.AfterFunc(h.ttl, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if w.readers == 0 {
			w.end()
		}
	})
}

// end stops the watch; its goroutine cleans up. The hub's lock is held.
func (w *watch) end() {
	if w.expiry != nil {
		w.expiry.Stop()
	}
	_ = w.in.Close()
	w.ring.close()
}
