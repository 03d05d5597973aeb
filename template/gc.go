package template

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
)

// sweepKey is locked by who publishes or deletes trees, between processes.
const sweepKey = "sweep"

// sweep deletes trees, lists and images that no name has and no machine uses.
// s.mu is held.
func (s *Store) sweep() error {
	if s.inUse == nil {
		return nil
	}
	unlock, err := s.Lock(context.Background(), sweepKey)
	if err != nil {
		return err
	}
	defer unlock()
	wanted, err := s.hashes()
	if err != nil {
		return err
	}
	needed := func(hash string) bool {
		return slices.Contains(wanted, hash) || hash == s.host.Hash || s.inUse(hash)
	}
	var all error
	for _, dir := range []string{treesDir, listsDir, imagesDir} {
		entries, err := os.ReadDir(s.Path(dir))
		if err != nil {
			return err
		}
		for _, e := range entries {
			hash, _, _ := strings.Cut(strings.TrimPrefix(e.Name(), hostPrefix), ".")
			if !needed(hash) {
				all = errors.Join(all, s.Discard(s.Path(dir, e.Name())))
			}
		}
	}
	return all
}
