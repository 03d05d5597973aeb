package volume

import "github.com/skete-dev/skete/errs"

// WithoutImages makes a store as it is where nothing can be mounted.
func WithoutImages(s *Store) { s.reason = errs.New(errs.Unsupported, "a test") }

// HoldBlanks is a blank in the making, until the function that it returns is called.
func HoldBlanks(s *Store) (end func()) {
	s.making.Lock()
	return s.making.Unlock
}
