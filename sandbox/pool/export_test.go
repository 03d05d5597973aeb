package pool

import "github.com/skete-dev/skete/sandbox"

// ParseMemory is for the fuzz target.
var ParseMemory = parseMemory

// DecodeID reads a record and returns whose it is.
func DecodeID(key string, value []byte) (sandbox.ID, error) {
	r, err := decode(key, value)
	return r.ID, err
}
