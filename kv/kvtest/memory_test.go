package kvtest

import (
	"testing"

	"github.com/skete-dev/skete/kv"
)

func TestMemory(t *testing.T) {
	Suite(t, func(*testing.T) kv.Store { return NewMemory() })
}
