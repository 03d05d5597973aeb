package tool_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/tool"
)

var errLate = errors.New("late")

// A pause stops all limits of a context, the inner one and the outer one, and no other's.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer, cancel := tool.WithTimeLimit(t.Context(), 10*time.Second, errLate)
		defer cancel()
		inner, cancel := tool.WithTimeLimit(outer, 5*time.Second, errLate)
		defer cancel()
		other, cancel := tool.WithTimeLimit(outer, 5*time.Second, errLate)
		defer cancel()
		<-time.After(3 * time.Second)
		first, second := tool.Pause(inner), tool.Pause(inner)
		<-time.After(time.Hour)
		first()
		first() // it may be repeated
		<-time.After(time.Hour)
		if inner.Err() != nil || outer.Err() != nil || !errors.Is(context.Cause(other), errLate) {
			t.Fatalf("%v, %v, %v", inner.Err(), outer.Err(), context.Cause(other))
		}
		second()
		<-time.After(1900 * time.Millisecond)
		synctest.Wait()
		if inner.Err() != nil {
			t.Error("what was left is not given")
		}
		<-time.After(200 * time.Millisecond)
		synctest.Wait()
		if !errors.Is(context.Cause(inner), errLate) || outer.Err() != nil {
			t.Errorf("%v, %v", context.Cause(inner), outer.Err())
		}
		<-time.After(5 * time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(outer), errLate) {
			t.Error("the outer limit does not hold")
		}
	})
}
