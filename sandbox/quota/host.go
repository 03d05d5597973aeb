package quota

import (
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Bounds of what a disk keeps back where it is not configured how much.
const (
	reserveMin = 128 << 20
	reserveMax = 4 << 30
)

// Disk is a file system of the host that sandboxes fill.
type Disk struct {
	// Name is what messages call it; it tells no path.
	Name string
	// Space is how large it is, and how much of it is free.
	Space func() (total, free int64, err error)
	// Reserve is how many bytes of it are kept back; 0 = a twentieth.
	Reserve int64
	// Pending is what the host's memory still holds for it; nil = nothing.
	Pending func() int64
}

// reserve is what is kept back of a disk of a size.
func (d Disk) reserve(total int64) int64 {
	if d.Reserve > 0 {
		return d.Reserve
	}
	return min(max(total/20, min(reserveMin, total/8)), reserveMax)
}

// Host keeps a reserve of the host's disks, so that the server can always write
// what ends and removes things, and no tenant's file system meets a full disk.
//
// There are three marks. Below twice the reserve nothing new begins. Below one and
// a half, the sandbox that grows most is held still; below the reserve, all who grow.
//
// A Host is safe for concurrent use; nil has no disks.
type Host struct {
	disks []Disk

	mu   sync.Mutex // guards seen; held over the look, so that many creates cost one
	seen []room
	at   time.Time
}

// room is what there is of one disk.
type room struct {
	name                 string
	total, free, reserve int64
	workspaces           bool // are there
}

// lookFor is how long a look at the disks holds for those who want to begin.
const lookFor = 50 * time.Millisecond

// NewHost watches disks. The last one is where workspaces are.
func NewHost(disks ...Disk) *Host { return &Host{disks: disks} }

// look reads the disks; one that cannot be read is left out.
func (h *Host) look(oldest time.Duration) []room {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) < oldest {
		return h.seen
	}
	seen := make([]room, 0, len(h.disks))
	for i, d := range h.disks {
		total, free, err := d.Space()
		if err != nil {
			continue
		}
		if d.Pending != nil {
			free -= d.Pending()
		}
		seen = append(seen, room{d.Name, total, free, d.reserve(total), i == len(h.disks)-1})
	}
	h.seen, h.at = seen, time.Now()
	return seen
}

// Begin refuses something new while a disk is nearly full: Unavailable.
func (h *Host) Begin() error {
	for _, r := range h.look(lookFor) {
		if r.free < 2*r.reserve {
			return errFull(r, 2*r.reserve)
		}
	}
	return nil
}

// GoOn refuses what makes a sandbox grow again while a disk's reserve is touched:
// Unavailable.
func (h *Host) GoOn() error {
	for _, r := range h.look(lookFor) {
		if r.free < r.reserve {
			return errFull(r, r.reserve)
		}
	}
	return nil
}

func errFull(r room, need int64) error {
	return errs.New(errs.Unavailable, "the server's disk is full: its %s has %d MB left, and %d are kept back", r.name, max(r.free, 0)>>20, need>>20).
		WithHint("destroy what is no longer needed, or ask the operator for more room")
}

// MostMB is the largest workspace that the host could ever hold; 0 = not known.
func (h *Host) MostMB() int {
	for _, r := range h.look(time.Minute) {
		if r.workspaces {
			return int(max(r.total-2*r.reserve, 1<<20) >> 20)
		}
	}
	return 0
}

// Fits refuses a workspace that is larger than the host could ever hold: Limit.
func (h *Host) Fits(diskMB int) error {
	if most := h.MostMB(); most > 0 && diskMB > most {
		return errs.New(errs.Limit, "a disk of %d MB is larger than the server's own, which could hold %d", diskMB, most).
			WithHint("ask for a smaller disk")
	}
	return nil
}

// Mark says how near the reserve a disk is.
type Mark int

// The marks that ask for something to be done.
const (
	Plenty  Mark = iota
	Near         // the sandbox that grows most must be held still
	Touched      // all who grow must be
)

// Marks are the marks of the disk of workspaces, and of that where machines keep the
// rest; they are the same where that is one disk.
type Marks struct{ Workspaces, Rest Mark }

// Worst is the worse one.
func (m Marks) Worst() Mark { return max(m.Workspaces, m.Rest) }

// Look returns the marks of the disks, and how many bytes are left above Near,
// negative below it.
func (h *Host) Look() (Marks, int64) {
	marks, left := Marks{}, int64(1)<<62
	for _, r := range h.look(0) {
		left = min(left, r.free-r.reserve*3/2)
		if r.workspaces {
			marks.Workspaces = r.mark()
		}
		if !r.workspaces || len(h.disks) == 1 {
			marks.Rest = max(marks.Rest, r.mark())
		}
	}
	return marks, left
}

func (r room) mark() Mark {
	switch {
	case r.free < r.reserve:
		return Touched
	case r.free < r.reserve*3/2:
		return Near
	}
	return Plenty
}
