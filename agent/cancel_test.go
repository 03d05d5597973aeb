package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errAsked = errors.New("asked")

func TestCancelWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		var asked atomic.Bool
		l := newCancelWatcher(t.Context(), cancelWatchConfig{Cause: errAsked, Pause: time.Second, Asked: func(context.Context) bool {
			looks.Add(1)
			return asked.Load()
		}})
		synctest.Wait()
		if looks.Load() != 0 {
			t.Fatal("it looked without news")
		}
		for range 100 { // much news at once is two looks
			l.Look()
		}
		<-time.After(10 * time.Second)
		if n := looks.Load(); n != 2 {
			t.Fatalf("%d looks", n)
		}
		asked.Store(true)
		l.Look()
		<-l.Context().Done()
		if err := context.Cause(l.Context()); !errors.Is(err, errAsked) {
			t.Fatal(err)
		}
		l.End()
	})
}

// News while a look is under way is not lost.
func TestLook_duringALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, looks := make(chan struct{}), 0
		l := newCancelWatcher(t.Context(), cancelWatchConfig{Cause: errAsked, Pause: time.Second, Asked: func(context.Context) bool {
			if looks++; looks == 1 {
				<-first
				return false
			}
			return true
		}})
		defer l.End()
		l.Look()
		synctest.Wait()
		l.Look()
		close(first)
		<-l.Context().Done()
		if looks != 2 {
			t.Fatalf("%d looks", looks)
		}
	})
}

func TestEnd_waitsForTheLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := false
		l := newCancelWatcher(t.Context(), cancelWatchConfig{Pause: time.Hour, Asked: func(ctx context.Context) bool {
			<-ctx.Done()
			done = true
			return false
		}})
		l.Look()
		synctest.Wait()
		l.End()
		if !done {
			t.Fatal("the look goes on")
		}
		l.Look() // by a late caller, after End
		synctest.Wait()
	})
}
