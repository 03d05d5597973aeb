package life

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// This file runs the slow work on one thing, a piece at a time.
//
// Each piece runs in a goroutine of its own, so that it does not end with the
// caller. The same kind of work asked for twice is done once; another kind
// waits for its turn, unless it takes precedence.
//
// All methods are safe for concurrent use.

// jobKind names slow work, as it is told: "starting".
type jobKind string

// jobTimeout bounds all slow work but waiting for a turn; what hangs costs its own
// sandbox only.
const jobTimeout = 3 * time.Minute

// errDone is what Ready returns when there is nothing to do. It never leaves
// the package.
var errDone = errs.New(errs.Internal, "nothing is to be done")

// job is a piece of work. Ready is asked under the queue's mutex before it
// starts: an error ends the call, and errDone ends it well.
type job struct {
	Kind  jobKind
	Ready func() error
	Run   func(context.Context) error
	Undo  func() error // of a Run that went well, if no caller is left; may be nil
	// Mortal work ends when the server does, and may be cut short by work that
	// Wins; all other is finished.
	Mortal bool
	Wins   bool
	// Bounded work sees to its deadlines itself, since it may wait for a turn,
	// which takes as long as it takes. All other has Timeout.
	Bounded bool
}

// runningJob is work under way.
type runningJob struct {
	kind    jobKind
	mortal  bool
	undo    bool // it has an Undo
	cancel  context.CancelFunc
	waiters int  // guarded by the queue's mutex
	undone  bool // guarded by it: no caller was left; joining is too late
	done    chan struct{}
	err     error // set before done is closed
}

// jobQueue is where one piece of work is under way at a time.
type jobQueue struct {
	Mu *sync.Mutex // of whom it belongs to
	// Ctx ends when the server stops. Spawn runs a goroutine that the server
	// waits for, or returns false when it stops already.
	Ctx   context.Context
	Spawn func(func()) bool
	// Ended is called under Mu when work has ended.
	Ended func(error)

	now *runningJob // guarded by Mu
}

// Kind is of the work under way, "" = none.
//
// Preconditions: Mu is held.
func (s *jobQueue) Kind() jobKind {
	if s.now == nil {
		return ""
	}
	return s.now.kind
}

// Do runs j, or joins the same kind of work under way, or waits for another
// kind to end first. A caller that goes away does not end the work, except
// that work with an Undo and no caller left is undone.
func (s *jobQueue) Do(ctx context.Context, j job) error {
	for {
		s.Mu.Lock()
		f := s.now
		switch {
		case f == nil:
			if err := j.Ready(); err != nil {
				s.Mu.Unlock()
				if errors.Is(err, errDone) {
					return nil
				}
				return err
			}
			if f = s.Launch(j); f == nil {
				s.Mu.Unlock()
				return sandbox.ErrClosing
			}
		case f.kind == j.Kind && !f.undone:
			f.waiters++
		default:
			if j.Wins && f.mortal {
				f.cancel()
			}
			s.Mu.Unlock()
			select {
			case <-f.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		s.Mu.Unlock()
		return s.Await(ctx, f)
	}
}

// Launch starts work with one waiter; nil = the server stops.
//
// Preconditions: Mu is held and no work is under way.
func (s *jobQueue) Launch(j job) *runningJob {
	base := context.Background()
	if j.Mortal {
		base = s.Ctx
	}
	var ctx context.Context
	var cancel context.CancelFunc
	if j.Bounded {
		ctx, cancel = context.WithCancel(base)
	} else {
		ctx, cancel = context.WithTimeout(base, jobTimeout)
	}
	f := &runningJob{kind: j.Kind, mortal: j.Mortal, undo: j.Undo != nil, cancel: cancel, waiters: 1, done: make(chan struct{})}
	s.now = f
	started := s.Spawn(func() {
		defer cancel()
		s.run(ctx, f, j)
	})
	if !started {
		cancel()
		s.now = nil
		return nil
	}
	return f
}

func (s *jobQueue) run(ctx context.Context, f *runningJob, j job) {
	err := j.Run(ctx)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if f.undone = f.undone || f.waiters == 0 && j.Undo != nil; f.undone && err == nil {
		s.Mu.Unlock()
		err = errors.Join(context.Canceled, j.Undo())
		s.Mu.Lock()
	}
	f.err = err
	s.now = nil
	s.Ended(err)
	close(f.done)
}

// Await waits for work that counts the caller as a waiter.
func (s *jobQueue) Await(ctx context.Context, f *runningJob) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
	}
	s.Mu.Lock()
	f.waiters--
	over := s.now != f
	alone := !over && f.waiters == 0 && f.undo
	if alone {
		f.undone = true
		f.cancel()
	}
	s.Mu.Unlock()
	switch {
	case over: // at the same moment: then what was done is the truth
		<-f.done
		return f.err
	case alone:
		<-f.done // the caller may rely on nothing being left
	}
	return ctx.Err()
}

// Waiters counts the callers that wait for work under way.
func (s *jobQueue) Waiters() int {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.now == nil {
		return 0
	}
	return s.now.waiters
}
