package event_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/skete-dev/skete/event"
)

// The same is told of a thing once in a while, of each thing something else at its own pace,
// and many targets do not make it remember all of them.
func TestPaces(t *testing.T) {
	now := time.Unix(1000, 0)
	var p event.Paces
	if !p.Allow("a", "x", now) || p.Allow("a", "x", now.Add(time.Second)) || !p.Allow("b", "x", now) || !p.Allow("a", "y", now) || !p.Allow("a", "x", now.Add(5*time.Second)) {
		t.Error("the same is told again, or something else is not")
	}
	var flood event.Paces
	told := 0
	for i := range 500 {
		if flood.Allow("a", strconv.Itoa(i), now) {
			told++
		}
	}
	if told != 30 || !flood.Allow("b", "x", now) {
		t.Errorf("%d are told of a flood", told)
	}
	for i := range 10_000 {
		flood.Allow("a", strconv.Itoa(i), now)
	}
	if n := flood.Kept(); n > 1024 {
		t.Errorf("%d targets are kept", n)
	}
}
