// Package replica keeps a copy of a workspace's history on the host, for
// machines that keep it themselves because only they see their disk.
//
//	h, err := replica.Open(replica.Config{Dir: dir, Guest: machine.Guest()})
//	rev, fresh, err := h.Snapshot(ctx, label)  // made in the machine, kept here
//	h.Durable()                                // revisions up to this one are here
//
// A History is a workspace.History: revisions are made, and plans are made and
// applied, in the machine; lists, differences and contents are answered from
// the copy, whether the machine runs or not. A revision is local until the copy
// has all that belongs to it on disk, and durable from then on.
//
// # What a machine cannot do
//
// A machine may be its agent's, with root in it. Each object that it sends must
// be named by one that was kept before, and match its name (package transfer).
// A revision that is here is never changed or removed on the machine's word; if
// the machine's history is not ours any more, ours is given to it. All is
// bounded by Config.BytesMax; what does not fit stays local.
//
// # Form
//
// The directory has the form of an engine's (package workspace), so that a
// history moves: Copy it, and open it with either.
package replica

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/retain"
	"github.com/skete-dev/skete/workspace/revlog"
	"github.com/skete-dev/skete/workspace/transfer"
)

// Limits of a replica.
const (
	bytesMaxDefault = 5 << 30
	listBytesMax    = 64 << 20 // of the list of revisions
)

// copied is the part of a history that is here.
type copied struct {
	objects  *object.Store
	listPath string
	bytesMax int64

	takeMu   sync.Mutex // one stream at a time; taken before mu
	receiver *transfer.Receiver

	mu   sync.Mutex // guards all below
	list *revlog.Log
	revs []workspace.Revision
	pins map[object.Hash]int // trees that are being read
	// pruned is when old revisions were dropped last.
	pruned time.Time
	// clock is ours. By a machine's, who has root in it could make old what is here.
	clock retain.Clock
}

func openCopied(dir string, bytesMax int64) (c *copied, err error) {
	if bytesMax <= 0 {
		bytesMax = bytesMaxDefault
	}
	c = &copied{listPath: filepath.Join(dir, revlog.Name), bytesMax: bytesMax, pins: map[object.Hash]int{}}
	if c.objects, err = object.Open(filepath.Join(dir, "objects"), object.Config{BytesMax: bytesMax, SegmentBytes: segmentBytes(bytesMax)}); err != nil {
		return nil, err
	}
	if c.list, c.revs, err = revlog.Open(c.listPath); err != nil {
		return nil, errors.Join(err, c.objects.Close())
	}
	c.clock = retain.NewClock(nil, newest(c.revs), time.Time{})
	c.receiver = transfer.NewReceiver(c.objects, transfer.Limits{AgainMax: bytesMax})
	return c, nil
}

// segmentBytes lets a small copy give room back in small parts.
func segmentBytes(bytesMax int64) int64 { return min(max(bytesMax/32, 64<<10), 64<<20) }

func (c *copied) close() error {
	c.takeMu.Lock()
	defer c.takeMu.Unlock()
	return errors.Join(c.list.Close(), c.objects.Close())
}

// last is the newest revision that is here; the zero one if none is.
func (c *copied) last() workspace.Revision {
	c.mu.Lock()
	defer c.mu.Unlock()
	return newest(c.revs)
}

func newest(revs []workspace.Revision) (last workspace.Revision) {
	if n := len(revs); n > 0 {
		last = revs[n-1]
	}
	return last
}

func (c *copied) revisions() []workspace.Revision {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.revs)
}

func (c *copied) revision(n uint64) (workspace.Revision, bool) {
	for _, r := range c.revisions() {
		if r.N == n {
			return r, true
		}
	}
	return workspace.Revision{}, false
}

// take keeps the revisions of a stream that begins behind last.
func (c *copied) take(ctx context.Context, in io.Reader) error {
	c.takeMu.Lock()
	defer c.takeMu.Unlock()
	return c.receiver.Receive(ctx, in, c.last().Root, c.begin, c.keep)
}

// begin refuses what would change what is here.
func (c *copied) begin(rev workspace.Revision) error {
	if last := c.last(); rev.N <= last.N {
		return errs.New(errs.Corrupt, "the machine sent revision %d, and %d is kept already", rev.N, last.N)
	}
	if info, err := os.Stat(c.listPath); err != nil || info.Size() > listBytesMax {
		return errors.Join(err, errs.New(errs.Limit, "the list of revisions is larger than %d MiB", listBytesMax>>20))
	}
	return nil
}

// keep makes a whole revision durable.
func (c *copied) keep(rev workspace.Revision) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	rev.Clock = c.clock.Stamp(newest(c.revs))
	if err := c.list.Append(rev); err != nil {
		return err
	}
	c.revs = append(c.revs, rev)
	return nil
}
