package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/skete-dev/skete/errs"
)

// Ballast is space of the data directory's disk that the embedded store has taken
// and uses for nothing: when the disk is nearly full it is given up, so that what
// ends, removes and erases can still be written down, and taken again when there
// is room.
const (
	ballastName = "ballast"
	ballastMin  = 8 << 20
	ballastMax  = 64 << 20
	// lookEvery is how often the disk is looked at beside the writes.
	lookEvery = time.Second
)

type ballast struct {
	path string
	size int64
	mu   sync.Mutex // guards the file
	held bool       // the file has its size
}

// newBallast reads what an earlier server left.
func newBallast(dir string, total int64) *ballast {
	b := &ballast{path: filepath.Join(dir, ballastName), size: min(max(total/50, ballastMin), ballastMax)}
	var st unix.Stat_t
	b.held = unix.Lstat(b.path, &st) == nil && st.Blocks*512 >= b.size
	return b
}

// take allocates the ballast if that leaves the disk with room for all else.
func (b *ballast) take(free int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held || free < b.size+4*writeFreeMin {
		return nil
	}
	f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	// A file system that cannot allocate has no ballast: zeros would not do on
	// one that compresses.
	if err := unix.Fallocate(int(f.Fd()), 0, 0, b.size); err != nil {
		return errors.Join(err, os.Remove(b.path))
	}
	b.held = true
	return f.Sync()
}

// drop gives the ballast up; false = there was none.
func (b *ballast) drop() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := os.Remove(b.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	held := b.held
	b.held = false
	return held
}

// missing is how much space must be free for lack of the ballast.
func (b *ballast) missing() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held {
		return 0
	}
	return b.size
}

// purpose is what a write is for: the less room there is, the fewer are taken.
type purpose int

const (
	begin  purpose = iota // something new
	follow                // goes on with what there is
	settle                // changes or removes what there is
)

func errDiskFull(free int64) error {
	return errs.New(errs.Unavailable, "the server's disk is full: its data directory has %d MB left", free>>20).
		WithHint("free some space there; nothing that was acknowledged is lost")
}

// room refuses a write while the disk is about to be full.
func (s *Store) room(p purpose) error {
	if s.srv == nil || time.Now().Before(time.Unix(0, s.plentyUntil.Load())) {
		return nil
	}
	_, free, err := diskSpace(s.c.Dir)
	if err != nil {
		return errs.Wrap(errs.Internal, err, "cannot look at the store's disk")
	}
	if p == settle && free < writeFreeMin && s.ballast.drop() {
		s.c.Log.Error("the disk of the data directory is full: what was kept back for this is used now", "free_bytes", free)
		if _, free, err = diskSpace(s.c.Dir); err != nil {
			return errs.Wrap(errs.Internal, err, "cannot look at the store's disk")
		}
	}
	switch {
	case free > plenty:
		s.plentyUntil.Store(time.Now().Add(plentyFor).UnixNano())
	case p == settle && free >= settleFreeMin,
		p == follow && free >= writeFreeMin+s.ballast.missing(),
		p == begin && free >= 2*writeFreeMin+s.ballast.missing():
	default:
		return errDiskFull(free)
	}
	return nil
}

// keepRoom takes the ballast again when there is room, and wakes a JetStream that
// a full disk has switched off or made refuse.
func (s *Store) keepRoom() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	said := false
	for {
		if _, free, err := diskSpace(s.c.Dir); err == nil {
			if err := s.ballast.take(free); err != nil && !said {
				said = true
				s.c.Log.Warn("no space is kept back for when the disk is full", "error", err)
			}
			if free >= writeFreeMin && (s.sick.Load() || !s.srv.JetStreamEnabled()) {
				s.revive()
			}
		}
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
	}
}

// revive opens JetStream anew: what met a full disk refuses all writes until then.
func (s *Store) revive() {
	s.c.Log.Warn("the store could not write; it is opened again, since its disk has room")
	s.sick.Store(false)
	opts := options(s.c, s.bytesMax)
	err := errors.Join(s.srv.ShutdownJetStream(), s.srv.EnableJetStream(&server.JetStreamConfig{
		MaxMemory: opts.JetStreamMaxMemory, MaxStore: opts.JetStreamMaxStore, StoreDir: opts.StoreDir,
		SyncAlways: opts.SyncAlways, SyncInterval: opts.SyncInterval, Strict: true,
	}))
	if err != nil {
		s.sick.Store(true)
		s.c.Log.Error("the store cannot be opened again; will try on", "error", err)
	}
}

// wrote notes that a write failed for want of space in JetStream itself.
func (s *Store) wrote(err error) {
	if s.srv == nil || err == nil {
		return
	}
	if _, free, derr := diskSpace(s.c.Dir); derr == nil && free < writeFreeMin {
		s.sick.Store(true)
	}
}
