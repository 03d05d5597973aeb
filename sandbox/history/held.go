package history

import (
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
)

// size is what one history takes of the host's disk, and whose it is.
type size struct {
	tenant string
	bytes  int64
}

// Held is how many bytes of the host's disk the histories of a tenant take, those
// of sandboxes that are gone included. The first call measures them all; later ones
// only add up, since each history is measured again when it has been written to.
func (s *Service) Held(tenant string) int64 {
	s.counted.Do(func() {
		entries, _ := s.entries() // what cannot be listed is counted when it is used
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), goneSuffix) {
				s.measure(sandbox.ID(e.Name()))
			}
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[tenant]
}

// wrote is called by what may have made a revision.
func (s *Service) wrote(tenant string, id sandbox.ID, e workspace.History) {
	s.tell(tenant, id, e)
	s.measure(id)
}

// measure finds out what a history takes now. One that is gone takes nothing.
func (s *Service) measure(id sandbox.ID) {
	defer s.measuring.Lock(id)() // the look that began last is the one that counts
	now := size{tenant: s.owner(id)}
	if now.tenant != "" {
		now.bytes = bytesBelow(s.store(id))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.sizes[id]
	s.held[was.tenant] -= was.bytes
	s.held[now.tenant] += now.bytes
	s.sizes[id] = now
	if now.tenant == "" {
		delete(s.sizes, id)
	}
	for _, tenant := range []string{was.tenant, now.tenant} {
		if s.held[tenant] == 0 {
			delete(s.held, tenant)
		}
	}
}

// bytesBelow adds up what the files of a directory take on disk.
func bytesBelow(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && d.Type().IsRegular() && unix.Lstat(name, &st) == nil {
			n += st.Blocks * 512
		}
		return nil // what cannot be looked at is just being replaced
	})
	return n
}
