package recipe

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

// usage remembers which steps were used when, as the times of empty files.
type usage struct{ dir string }

func openUsage(dir string) (*usage, error) { return &usage{dir}, os.MkdirAll(dir, 0o700) }

// touch notes that a step is of use now. What cannot be noted is forgotten
// sooner, which does no harm.
func (u *usage) touch(name string) {
	at := filepath.Join(u.dir, name)
	now := time.Now()
	if os.Chtimes(at, now, now) == nil {
		return
	}
	_ = os.WriteFile(at, nil, 0o600)
}

func (u *usage) drop(name string) { _ = os.Remove(filepath.Join(u.dir, name)) }

// old names the steps beyond the newest.
func (u *usage) old(keep int) []string {
	entries, err := os.ReadDir(u.dir)
	if err != nil {
		return nil
	}
	type step struct {
		name string
		at   time.Time
	}
	var steps []step
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			steps = append(steps, step{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return b.at.Compare(a.at) })
	var names []string
	for _, s := range steps[min(keep, len(steps)):] {
		names = append(names, s.name)
	}
	return names
}
