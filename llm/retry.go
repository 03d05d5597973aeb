package llm

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
)

// This file asks a model again when that may help, and tells of every
// attempt that failed.
//
// Drivers never try again by themselves, so this is the one place where it is
// decided: by the trouble, within a number of attempts and a time. Waiting
// costs no goroutine. The functions are safe for concurrent use.

// RetryPolicy bounds the attempts. Zero values are the defaults named at each field.
type RetryPolicy struct {
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

// RetryFailure is one attempt that failed.
type RetryFailure struct {
	Attempt int // from 1
	Trouble Trouble
	Wait    time.Duration // before the next attempt; 0 with Last
	Last    bool          // there is no next attempt: the error follows
	Text    string        // for people; without details of the server
	Err     *Error        // for the log
}

func (p RetryPolicy) filled() RetryPolicy {
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

// Retry is model.Stream with attempts. notify is called for each one that
// failed, the last too, from the goroutine that ranges, before the wait; deltas
// of that attempt are void then. It may be nil. The error that is yielded at
// the end is that of the last attempt, or the context's, of which notify is
// not told.
func Retry(ctx context.Context, model Model, req *Request, p RetryPolicy, notify func(RetryFailure)) iter.Seq2[Delta, error] {
	p = p.filled()
	return func(yield func(Delta, error) bool) {
		began := time.Now()
		failed := map[Trouble]int{}
		for n := 1; ; n++ {
			err, left := tryOnce(ctx, model, req, yield)
			if err == nil || left {
				return
			}
			e, ok := errors.AsType[*Error](err)
			if !ok || ctx.Err() != nil {
				yield(Delta{}, err)
				return
			}
			failed[e.Trouble]++
			f := RetryFailure{Attempt: n, Trouble: e.Trouble, Text: errs.Public(e), Err: e}
			f.Wait = p.pause(n, e.RetryAfter)
			f.Last = !p.again(e, failed[e.Trouble]) || time.Since(began)+f.Wait > p.Total
			if f.Last {
				f.Wait = 0
			}
			if notify != nil {
				notify(f)
			}
			if f.Last {
				yield(Delta{}, err)
				return
			}
			if err := sleep.For(ctx, f.Wait); err != nil {
				yield(Delta{}, err)
				return
			}
		}
	}
}

// tryOnce is one attempt. It holds the error back: whether the caller sees it is
// not yet known.
func tryOnce(ctx context.Context, model Model, req *Request, yield func(Delta, error) bool) (failed error, left bool) {
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
		return &Error{Trouble: Malformed, Model: model.Info().Name, Cause: errors.New("the answer had no end")}, false
	}
	return nil, false
}

// again reports whether another attempt may follow the failed-th with the
// trouble of e.
func (p RetryPolicy) again(e *Error, failed int) bool {
	switch {
	case !e.Retryable():
		return false
	case e.Trouble == Malformed:
		return failed < p.Malformed
	}
	return failed < p.Attempts
}

// pause is how long to wait after the n-th attempt.
func (p RetryPolicy) pause(n int, asked time.Duration) time.Duration {
	wait := p.WaitMax
	if n < 30 && p.Wait<<(n-1) < p.WaitMax {
		wait = p.Wait << (n - 1)
	}
	wait = wait/2 + time.Duration(rand.Int64N(int64(wait/2)+1))
	return max(wait, min(asked, p.RetryAfterMax))
}
