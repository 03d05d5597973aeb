package volume

// WithoutImages makes a store as it is where nothing can be mounted.
func WithoutImages(s *Store) { s.mkfs = "" }
