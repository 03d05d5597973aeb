package capture

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// stamp is what tells a file from what it was.
type stamp struct {
	ino, size    uint64
	mtime, ctime int64 // Unix ns
	mode         uint32
	uid, gid     uint32
	nlink        uint64
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{
		ino: st.Ino, size: uint64(st.Size), mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(),
		mode: st.Mode, uid: st.Uid, gid: st.Gid, nlink: uint64(st.Nlink),
	}
}

// known is what the last scan learned of a name that the tree holds.
type known struct {
	stamp stamp
	racy  bool // it may have changed since, and have the same stamp
	entry tree.Entry
	dir   *directory // of a directory
}

// note is something to be said about a name.
type note struct {
	name, why string
	class     Class // of what is left out by a rule
	linked    bool  // it is kept; but it has more names than this
}

// directory is what a scan learned of a directory. It never changes afterwards.
type directory struct {
	stamp stamp
	class Class
	// unquiet: what is in it may change without its own directory being named,
	// or has changed so lately that the stamps do not tell; list it every time.
	unquiet bool
	names   []known // by name
	subs    []int   // which of names are directories
	notes   []note  // by name; at most notesMax
	more    sums    // of notes beyond those
	hash    object.Hash
	sums    sums // with what is beneath
}

// sums of a tree.
type sums struct {
	files, skipped, linked int
	bytes                  int64
	derivedFiles           int
	derivedBytes           int64
}

func (a sums) plus(b sums) sums {
	return sums{
		files: a.files + b.files, skipped: a.skipped + b.skipped, linked: a.linked + b.linked, bytes: a.bytes + b.bytes,
		derivedFiles: a.derivedFiles + b.derivedFiles, derivedBytes: a.derivedBytes + b.derivedBytes,
	}
}

// total adds up what a directory holds.
func (d *directory) total() {
	d.sums = d.more
	for i := range d.names {
		switch k := &d.names[i]; {
		case k.dir != nil:
			d.sums = d.sums.plus(k.dir.sums)
		case k.entry.Type == tree.File && d.class == Derived:
			d.sums = d.sums.plus(sums{files: 1, bytes: k.entry.Size, derivedFiles: 1, derivedBytes: k.entry.Size})
		case k.entry.Type == tree.File:
			d.sums.files++
			d.sums.bytes += k.entry.Size
		}
	}
	for _, n := range d.notes {
		d.sums = d.sums.plus(n.sums())
	}
}

func (n note) sums() sums {
	if n.linked {
		return sums{linked: 1}
	}
	return sums{skipped: 1}
}

// each calls do with a directory and all beneath it.
func (d *directory) each(do func(*directory)) {
	do(d)
	for _, i := range d.subs {
		d.names[i].dir.each(do)
	}
}

// report writes down what is to be said, up to the bounds of a Result.
func (d *directory) report(path string, r *Result) {
	for _, n := range d.notes {
		switch {
		case n.linked && len(r.Linked) < linkedMax:
			r.Linked = append(r.Linked, join(path, n.name))
		case !n.linked && len(r.Skipped) < skippedMax:
			r.Skipped = append(r.Skipped, Skip{Path: join(path, n.name), Why: n.why, Class: n.class})
		}
	}
	for _, i := range d.subs {
		if sub := &d.names[i]; sub.dir.sums.skipped+sub.dir.sums.linked > 0 {
			sub.dir.report(join(path, sub.entry.Name), r)
		}
	}
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// vouch makes what the store does not hold unknown: files are read again,
// trees written again. It reports whether all is there.
//
// Preconditions: no other goroutine reads d.
func (c *Capture) vouch(d *directory) (all bool) {
	all = true
	d.each(func(d *directory) {
		if !c.store.Has(d.hash) {
			d.hash, all = object.Hash{}, false
		}
		for i := range d.names {
			if k := &d.names[i]; k.entry.Type == tree.File && !c.holds(k.entry) {
				k.stamp, k.racy, d.unquiet, all = stamp{}, true, true, false
			}
		}
	})
	return all
}

// holds reports whether the store has a file, with all its parts.
func (c *Capture) holds(e tree.Entry) bool {
	if !e.Listed {
		return c.store.Has(e.Hash)
	}
	data, err := c.store.Get(object.List, e.Hash)
	if err != nil {
		return false
	}
	chunks, err := tree.DecodeList(data)
	return err == nil && !slices.ContainsFunc(chunks, func(x tree.Chunk) bool { return !c.store.Has(x.Hash) })
}
