package capture

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// visit is a directory that is being looked at.
type visit struct {
	fd    int
	path  string
	name  string // its last element
	stamp stamp
	depth int
	// force: it stood elsewhere before; what is beneath it has other paths now.
	force bool
	old   *directory
	found *directory // what is learned
	wg    sync.WaitGroup
}

// note says something about a name in the directory.
func (s *scan) note(v *visit, n note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(v.found.notes) < notesMax {
		v.found.notes = append(v.found.notes, n)
	} else {
		v.found.more = v.found.more.plus(n.sums())
	}
}

// lost says that a name cannot be kept, for a reason whose end the kernel does
// not report.
func (s *scan) lost(v *visit, name, why string) {
	s.note(v, note{name: name, why: why})
	s.mu.Lock()
	defer s.mu.Unlock()
	v.found.unquiet = true
}

// top scans the root.
func (s *scan) top(old *directory) (*directory, error) {
	fd, err := unix.Openat(int(s.root.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "the workspace cannot be read")
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	d, err := s.directory(&visit{fd: fd, stamp: stampOf(&st), old: old}, Source)
	if err == nil && d == nil {
		err = errs.New(errs.Limit, "the workspace's top directory has more names than the history can keep")
	}
	return d, err
}

// directory scans a directory; nil if it holds more than can be kept.
func (s *scan) directory(v *visit, class Class) (*directory, error) {
	if err := s.over(); err != nil {
		return nil, err
	}
	v.found = &directory{stamp: v.stamp, class: class, unquiet: s.lately(v.stamp)}
	var found []known
	ok := false
	if !s.all && !v.force && v.old != nil && !s.list[v.old] && v.old.stamp == v.stamp {
		found, ok = s.along(v)
	}
	if !ok {
		var err error
		if found, err = s.listed(v); err != nil || found == nil {
			return nil, err
		}
	}
	if err := s.over(); err != nil {
		return nil, err
	}
	return s.assemble(v, found)
}

// lately reports whether something may change and have the same stamp.
func (s *scan) lately(x stamp) bool {
	window := racyWindow
	if x.ctime%int64(time.Second) == 0 { // a file system that keeps whole seconds
		window += time.Second
	}
	return x.ctime >= s.began-window.Nanoseconds()
}

// along looks only at the directories beneath v in which something changed. It
// reports whether that is enough.
func (s *scan) along(v *visit) ([]known, bool) {
	v.found.notes, v.found.more = slices.Clone(v.old.notes), v.old.more
	found := slices.Clone(v.old.names)
	for _, i := range v.old.subs {
		before := v.old.names[i]
		if !s.touched[before.dir] {
			continue
		}
		found[i] = known{}
		s.name(v, before.entry.Name, before, &found[i])
	}
	v.wg.Wait()
	for _, i := range v.old.subs {
		if found[i].entry.Type == 0 {
			v.found = &directory{stamp: v.stamp, class: v.found.class, unquiet: s.lately(v.stamp)}
			return nil, false // gone meanwhile
		}
	}
	return found, true
}

// listed looks at all names of a directory; nil if there are too many.
func (s *scan) listed(v *visit) ([]known, error) {
	names, err := readNames(v.fd)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "a directory of the workspace cannot be read")
	}
	if len(names) > tree.EntriesMax {
		return nil, nil
	}
	slices.Sort(names)
	var before []known
	if v.old != nil {
		before = v.old.names
	}
	found := make([]known, len(names))
	for i, name := range names {
		var k known
		for len(before) > 0 && before[0].entry.Name < name {
			before = before[1:]
		}
		if len(before) > 0 && before[0].entry.Name == name {
			k = before[0]
		}
		s.name(v, name, k, &found[i])
	}
	v.wg.Wait()
	s.mu.Lock()
	s.result.Listed++
	s.mu.Unlock()
	return found, nil
}

// readNames reads a directory, of too many names one too many.
func readNames(fd int) (names []string, err error) {
	var buffer [16 << 10]byte
	for len(names) <= tree.EntriesMax {
		n, err := unix.ReadDirent(fd, buffer[:])
		if errors.Is(err, unix.ENOENT) { // it was removed meanwhile
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return names, nil
		}
		_, _, names = unix.ParseDirent(buffer[:n], -1, names)
	}
	return names, nil
}

// name scans one name of a directory. It may go on in a goroutine of v.wg,
// which sets found; a name that is not kept leaves it as it is.
func (s *scan) name(v *visit, name string, before known, found *known) {
	if s.rules.cached(v.name, name) {
		s.note(v, note{name: name, why: "cache", class: Cache})
		return
	}
	var st unix.Stat_t
	if err := unix.Fstatat(v.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return // gone meanwhile
	}
	if st.Dev != s.dev {
		s.lost(v, name, "another file system")
		return
	}
	now := stampOf(&st)
	unchanged := before.stamp == now && !before.racy && before.entry.Type != 0
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.file(v, name, &st, before, unchanged, found)
	case unix.S_IFDIR:
		s.subdirectory(v, name, &st, before, found)
	case unix.S_IFLNK, unix.S_IFIFO:
		s.named(v, name, &st, before)
		if unchanged {
			*found = before
			return
		}
		s.special(v, name, &st, found)
	case unix.S_IFSOCK:
		s.note(v, note{name: name, why: "a socket"})
	default:
		s.note(v, note{name: name, why: "a device"})
	}
}

func entryOf(name string, st *unix.Stat_t) tree.Entry {
	return tree.Entry{Name: name, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid}
}

// special scans a symbolic link or a fifo.
func (s *scan) special(v *visit, name string, st *unix.Stat_t, found *known) {
	k := known{stamp: stampOf(st), entry: entryOf(name, st)}
	k.racy = s.lately(k.stamp)
	if st.Mode&unix.S_IFMT == unix.S_IFIFO {
		k.entry.Type = tree.Fifo
		*found = k
		return
	}
	buf := make([]byte, tree.TargetBytesMax+1)
	n, err := unix.Readlinkat(v.fd, name, buf)
	if err != nil || n == 0 || n > tree.TargetBytesMax {
		s.lost(v, name, "a link that cannot be read")
		return
	}
	k.entry.Type, k.entry.Target = tree.Link, string(buf[:n])
	*found = k
}

func (s *scan) subdirectory(v *visit, name string, st *unix.Stat_t, before known, found *known) {
	if before.dir != nil && !s.all && !v.force && before.stamp == stampOf(st) && !s.touched[before.dir] {
		*found = before
		return
	}
	if v.depth >= depthMax {
		s.note(v, note{name: name, why: "deeper than can be kept"})
		return
	}
	fd, err := unix.Openat(v.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		if !errors.Is(err, unix.ENOENT) {
			s.lost(v, name, "cannot be opened: "+err.Error())
		}
		return
	}
	if err := unix.Fstat(fd, st); err != nil || st.Dev != s.dev { // another one may stand there by now
		_ = unix.Close(fd)
		s.lost(v, name, "replaced while it was looked at")
		return
	}
	sub := &visit{fd: fd, path: join(v.path, name), name: name, stamp: stampOf(st), depth: v.depth + 1, force: v.force}
	if before.dir != nil && before.stamp.ino == st.Ino {
		sub.old = before.dir
	} else if sub.old = s.moved()[st.Ino]; sub.old != nil {
		sub.force = true
	}
	do := func() { s.enter(v, sub, st, before, found) }
	select {
	case s.walkers <- struct{}{}:
		v.wg.Go(func() {
			defer func() { <-s.walkers }()
			do()
		})
	default:
		do()
	}
}

// enter scans what sub is open on, and closes it.
func (s *scan) enter(v, sub *visit, st *unix.Stat_t, before known, found *known) {
	defer unix.Close(sub.fd)
	entry := entryOf(sub.name, st)
	if before.dir != nil && before.stamp == sub.stamp {
		entry.Xattrs = before.entry.Xattrs
	} else {
		entry.Xattrs = s.xattrs(v, sub.name, sub.fd)
	}
	d, err := s.directory(sub, s.rules.class(sub.name, v.found.class))
	if err != nil {
		s.fail(err)
		return
	}
	if d == nil {
		s.lost(v, sub.name, "more names than can be kept")
		return
	}
	entry.Type, entry.Hash = tree.Dir, d.hash
	*found = known{stamp: sub.stamp, entry: entry, dir: d}
}

// assemble makes the tree object of a directory; nil if it is too large.
func (s *scan) assemble(v *visit, found []known) (*directory, error) {
	d, old := v.found, v.old
	found = slices.DeleteFunc(found, func(k known) bool { return k.entry.Type == 0 })
	d.names = found
	same := old != nil && len(old.names) == len(found) && !old.hash.IsZero()
	for i := range found {
		k := &found[i]
		if k.dir != nil {
			d.subs = append(d.subs, i)
		}
		d.unquiet = d.unquiet || k.racy || k.dir == nil && k.stamp.nlink > 1
		same = same && old.names[i].entry.Name == k.entry.Name && old.names[i].entry.Same(k.entry)
	}
	slices.SortFunc(d.notes, func(a, b note) int { return strings.Compare(a.name, b.name) })
	d.total()
	if same {
		d.hash = old.hash
		return d, nil
	}
	entries := make([]tree.Entry, len(found))
	for i := range found {
		entries[i] = found[i].entry
	}
	data, err := tree.Encode(entries)
	if err != nil {
		return nil, err
	}
	if len(data) > object.ContentBytesMax {
		return nil, nil
	}
	d.hash, err = s.store.Put(object.Tree, data)
	return d, err
}
