package pool

import "github.com/skete-dev/skete/sandbox"

// ParseHost is for the fuzz target.
var ParseHost = parseHost

// ClaimsAtOnce is how many claims are not waited for.
var ClaimsAtOnce = claimsAtOnce

// DecodeID reads a record and returns whose it is.
func DecodeID(key string, value []byte) (sandbox.ID, error) {
	r, err := decode(key, value)
	return r.ID, err
}

// ParseUse reads what a snapshot is for.
func ParseUse(text string) (s Shape, bootMS float64, err error) {
	u, err := parseUse(text)
	return u.Shape, u.BootMS, err
}
