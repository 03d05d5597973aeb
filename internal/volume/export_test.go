package volume

import "github.com/skete-dev/skete/errs"

// WithoutImages makes a store as it is where nothing can be mounted.
func WithoutImages(s *Store) { s.reason = errs.New(errs.Unsupported, "a test") }
