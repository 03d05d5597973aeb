// Package attempt asks a model again when that may help, and tells of every
// attempt that failed.
//
//	for delta, err := range attempt.Stream(ctx, model, req, attempt.Policy{}, func(f attempt.Failure) {
//		… // forget the deltas so far; log f
//	}) {
//		… // as from model.Stream
//	}
//
// Drivers never try again by themselves, so this is the one place where it is
// decided: by the trouble, within a number of attempts and a time. Waiting
// costs no goroutine. The functions are safe for concurrent use.
package attempt

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
)

// Policy bounds the attempts. Zero values are the defaults named at each field.
type Policy struct {
	// Attempts is how many attempts may fail because of the same trouble of
	// RateLimited, Overloaded, Transport; 0 = 8.
	Attempts int
	// Malformed is how many answers may make no sense; 0 = 3. They were paid for.
	Malformed int
	// Total is how long after the first attempt another may begin; 0 = 10 minutes.
	Total time.Duration
	// Wait is the first pause, which doubles up to WaitMax; 0 = 1 s and 60 s.
	// What is waited is between half of it and all, at random.
	Wait, WaitMax time.Duration
	// RetryAfterMax cuts what a server asks for; 0 = 2 minutes. It is never
	// waited less than the server asked, but for this.
	RetryAfterMax time.Duration
}

// Failure is one attempt that failed.
type Failure struct {
	Attempt int // from 1
	Trouble llm.Trouble
	Wait    time.Duration // before the next attempt; 0 with Last
	Last    bool          // there is no next attempt: the error follows
	Text    string        // for people; without details of the server
	Err     *llm.Error    // for the log
}

func (p Policy) filled() Policy {
	orInt := func(n *int, d int) {
		if *n <= 0 {
			*n = d
		}
	}
	or := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	orInt(&p.Attempts, 8)
	orInt(&p.Malformed, 3)
	or(&p.Total, 10*time.Minute)
	or(&p.Wait, time.Second)
	or(&p.WaitMax, time.Minute)
	or(&p.RetryAfterMax, 2*time.Minute)
	return p
}

// Stream is model.Stream with attempts. notify is called for each one that
// failed, the last too, from the goroutine that ranges, before the wait; deltas
// of that attempt are void then. It may be nil. The error that is yielded at
// the end is that of the last attempt, or the context's, of which notify is
// not told.
func Stream(ctx context.Context, model llm.Model, req *llm.Request, p Policy, notify func(Failure)) iter.Seq2[llm.Delta, error] {
	p = p.filled()
	return func(yield func(llm.Delta, error) bool) {
		began := time.Now()
		failed := map[llm.Trouble]int{}
		for n := 1; ; n++ {
			err, left := once(ctx, model, req, yield)
			if err == nil || left {
				return
			}
			e, ok := errors.AsType[*llm.Error](err)
			if !ok || ctx.Err() != nil {
				yield(llm.Delta{}, err)
				return
			}
			failed[e.Trouble]++
			f := Failure{Attempt: n, Trouble: e.Trouble, Text: errs.Public(e), Err: e}
			f.Wait = p.pause(n, e.RetryAfter)
			f.Last = !p.again(e, failed[e.Trouble]) || time.Since(began)+f.Wait > p.Total
			if f.Last {
				f.Wait = 0
			}
			if notify != nil {
				notify(f)
			}
			if f.Last {
				yield(llm.Delta{}, err)
				return
			}
			if err := sleep(ctx, f.Wait); err != nil {
				yield(llm.Delta{}, err)
				return
			}
		}
	}
}

// once is one attempt. It holds the error back: whether the caller sees it is
// not yet known.
func once(ctx context.Context, model llm.Model, req *llm.Request, yield func(llm.Delta, error) bool) (failed error, left bool) {
	whole := false
	for delta, err := range model.Stream(ctx, req) {
		if err != nil {
			return err, false
		}
		whole = delta.Response != nil
		if !yield(delta, nil) {
			return nil, true
		}
	}
	if !whole { // a driver that broke its promise
		return &llm.Error{Trouble: llm.Malformed, Model: model.Info().Name, Cause: errors.New("the answer had no end")}, false
	}
	return nil, false
}

// again reports whether another attempt may follow the failed-th with the
// trouble of e.
func (p Policy) again(e *llm.Error, failed int) bool {
	switch {
	case !e.Retryable():
		return false
	case e.Trouble == llm.Malformed:
		return failed < p.Malformed
	}
	return failed < p.Attempts
}

// pause is how long to wait after the n-th attempt.
func (p Policy) pause(n int, asked time.Duration) time.Duration {
	wait := p.WaitMax
	if n < 30 && p.Wait<<(n-1) < p.WaitMax {
		wait = p.Wait << (n - 1)
	}
	wait = wait/2 + time.Duration(rand.Int64N(int64(wait/2)+1))
	return max(wait, min(asked, p.RetryAfterMax))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
