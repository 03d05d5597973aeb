package store

import "time"

// FreeBytes is the free space of the disk that dir is on.
func FreeBytes(dir string) (int64, error) {
	_, free, err := diskSpace(dir)
	return free, err
}

// Unguarded lets writes meet a full disk, as one that fills between the look and
// the write.
func Unguarded(s *Store, on bool) {
	until := time.Now()
	if on {
		until = until.Add(time.Hour)
	}
	s.plentyUntil.Store(until.UnixNano())
}
