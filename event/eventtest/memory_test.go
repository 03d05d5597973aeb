package eventtest_test

import (
	"testing"

	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/event/eventtest"
)

func TestMemory(t *testing.T) {
	eventtest.Suite(t, func(*testing.T) event.Log { return eventtest.NewMemory() })
}
