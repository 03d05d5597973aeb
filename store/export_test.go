package store

import "time"

// Unguarded lets writes meet a full disk, as one that fills between the look and
// the write.
func Unguarded(s *Store, on bool) {
	until := time.Now()
	if on {
		until = until.Add(time.Hour)
	}
	s.plentyUntil.Store(until.UnixNano())
}
