package life

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

const (
	attachTries      = 3
	attachRetryAfter = 300 * time.Millisecond
	// attachAtOnce is how many sandboxes are attached at the same time, those
	// that a call waits for not counted.
	attachAtOnce = 16
	// attachSlow is after how long an attach is thought to wait and not to work:
	// the next one begins.
	attachSlow = 5 * time.Second
	// attachWait bounds how long a call waits for its sandbox to be attached.
	attachWait = 30 * time.Second
)

// AttachProgress counts the sandboxes that a server found at its start, and gives them
// their turns to be attached.
type AttachProgress struct {
	turns chan struct{} // holds a token for each turn taken

	mu    sync.Mutex // guards all below; a leaf
	total int
	done  int
	over  chan struct{} // closed when all that were added are done; nil = none was
}

// NewAttachProgress returns an empty one.
func NewAttachProgress() *AttachProgress {
	return &AttachProgress{turns: make(chan struct{}, attachAtOnce)}
}

// Progress says how many sandboxes were found, and how many of them are in order.
func (r *AttachProgress) Progress() (done, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done, r.total
}

// Wait returns when all sandboxes are in order, whatever came of them, or ctx's
// error.
func (r *AttachProgress) Wait(ctx context.Context) error {
	for {
		r.mu.Lock()
		over, left := r.over, r.total-r.done
		r.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *AttachProgress) add() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.total == r.done {
		r.over = make(chan struct{})
	}
	r.total++
}

func (r *AttachProgress) remove() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done++; r.done == r.total {
		close(r.over)
	}
}

// turn waits for a turn, or until called is closed: what a call waits for does
// not wait for others.
func (r *AttachProgress) turn(ctx context.Context, called <-chan struct{}) (end func(), err error) {
	select {
	case r.turns <- struct{}{}:
		next := sync.OnceFunc(func() { <-r.turns })
		t := time.AfterFunc(attachSlow, next)
		return func() { t.Stop(); next() }, nil
	case <-called:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Recover begins to bring a loaded sandbox to where its record leads, and
// returns at once: a plan under way is finished or undone, a machine that runs is
// attached. Calls that need the sandbox wait for that. What fails is tried again
// by itself.
func (k *Sandbox) Recover() {
	k.mu.Lock()
	work := k.rec.Plan != planNone || k.rec.Alive()
	buried := !work && k.rec.Info.State == sandbox.Destroyed
	if work {
		k.called, k.ordered = make(chan struct{}), make(chan struct{})
		k.d.Attaching.add()
		if k.work.Launch(job{Kind: kindAttach, Mortal: true, Bounded: true, Run: k.recover}) == nil {
			k.inOrder() // the server stops
		}
	}
	k.mu.Unlock()
	if buried {
		k.bury()
		k.d.Buried(k)
	}
	if !work { // else the flight arms when it ends
		k.mu.Lock()
		defer k.mu.Unlock()
		k.arm()
	}
}

// recover is the slow part of Recover. Its time counts from its turn.
func (k *Sandbox) recover(ctx context.Context) error {
	end, err := k.d.Attaching.turn(ctx, k.called)
	if err == nil {
		defer end()
		bounded, cancel := context.WithTimeout(ctx, jobTimeout)
		defer cancel()
		err = k.order(ctx, bounded)
	}
	if err != nil && ctx.Err() == nil {
		k.d.Log.Error("cannot bring a sandbox in order; will try again", "id", k.id, "error", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inOrder()
	return err
}

// attaching reports whether what the record says is still being brought about.
//
// Preconditions: k.mu is held.
func (k *Sandbox) attaching() bool { return k.ordered != nil }

// inOrder ends that. Preconditions: k.mu is held, k.attaching().
func (k *Sandbox) inOrder() {
	close(k.ordered)
	k.ordered = nil
	k.d.Attaching.remove()
}

// order does what the record asks for. bounded ends with ctx, or when an attach
// has taken too long.
func (k *Sandbox) order(ctx, bounded context.Context) error {
	switch rec := k.record(); {
	case rec.Plan == planSnapshot && rec.Alive():
		if err := k.reattach(ctx, bounded); err != nil {
			return err
		}
		return k.finish(bounded)
	case rec.Plan != planNone:
		return k.finish(bounded)
	case rec.Alive():
		return k.reattach(ctx, bounded)
	}
	return nil
}

// Attached returns when the sandbox's machine was attached after a start of the
// server, or is known to be lost; or ctx's error.
func (k *Sandbox) Attached(ctx context.Context) error {
	k.mu.Lock()
	ordered := k.ordered
	if ordered != nil {
		select {
		case <-k.called:
		default:
			close(k.called)
		}
	}
	k.mu.Unlock()
	if ordered == nil {
		return nil
	}
	select {
	case <-ordered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// attached is Attached for calls, which wait for some time only.
//
// Unavailable: the sandbox is still being attached.
func (k *Sandbox) attached(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, attachWait)
	defer cancel()
	err := k.Attached(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return k.errAttaching()
	}
	return err
}

func (k *Sandbox) errAttaching() error {
	return errs.New(errs.Unavailable, "sandbox %s is still being attached: the server has just started (%s)", k.id, k.d.Attaching).
		WithHint("try again in a moment; nothing of it is lost")
}

// String says how far it is: "12 of 30 sandboxes are attached".
func (r *AttachProgress) String() string {
	done, total := r.Progress()
	return fmt.Sprintf("%d of %d sandboxes are attached", done, total)
}

// reattach takes over a machine that should run, or notes its loss. It is not
// lost for ctx, which ends when the server stops or the sandbox is destroyed.
func (k *Sandbox) reattach(ctx, bounded context.Context) error {
	err := k.attach(bounded)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := k.d.Selector.Get(k.record().Info.Provider); !ok {
		return err // it may well run: a server that has the provider will know
	}
	if !errs.Is(err, errs.NotFound) {
		k.d.Log.Error("cannot attach to a machine", "id", k.id, "error", err)
	}
	k.mu.Lock()
	state := k.lostState()
	k.mu.Unlock()
	after, cancel := context.WithTimeout(ctx, jobTimeout) // bounded may have ended
	defer cancel()
	return k.halt(after, state, sandbox.ReasonLost)
}

func (k *Sandbox) attach(ctx context.Context) error {
	info := k.record().Info
	p, ok := k.d.Selector.Get(info.Provider)
	if !ok {
		return errs.New(errs.Unsupported, "provider %s is not part of this server", info.Provider)
	}
	if _, err := k.attachVolume(ctx); err != nil {
		return err
	}
	machine, err := p.Attach(ctx, k.Host())
	for try := 1; err != nil && !errs.Is(err, errs.NotFound) && try < attachTries; try++ {
		select {
		case <-time.After(attachRetryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
		machine, err = p.Attach(ctx, k.Host())
	}
	if err != nil {
		return err
	}
	k.adopt(machine)
	if !p.Capabilities().Pause {
		return nil
	}
	// The server before us may have died between an act and its record; the
	// record is the truth.
	switch {
	case info.State == sandbox.Paused && info.Reason == sandbox.ReasonHostFull:
		return suspend(machine, ctx)
	case info.State == sandbox.Paused:
		return machine.Pause(ctx)
	}
	if s, ok := machine.(suspender); ok {
		err = s.Continue()
	}
	return errors.Join(err, machine.Resume(ctx))
}
