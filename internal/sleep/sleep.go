// Package sleep waits for a time that a context can end.
package sleep

import (
	"context"
	"time"
)

// For waits for d, or until ctx is done: then it returns ctx.Err(). With d <= 0
// it does not wait, and still returns the error of a context that is done.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
