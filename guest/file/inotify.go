package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
)

// This file reports changes of a file tree by inotify, numbered, kept for
// readers that come back, and honest about what it lost.
//
// A directory that appears is watched first and read then: what was put into
// it in between is reported as created, so no window is lost. What the kernel
// or the ring lost is one Overflow: look at the tree again.
//
// A watch that no reader holds ends after a minute. All methods are safe for
// concurrent use. Close waits for all goroutines.

const (
	dirsMax   = 16_384 // directories of one watch
	knownMax  = 16_384 // names remembered against double reports
	readBytes = 64 << 10
	watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
)

// watch is one running watch. The fields below ring belong to its goroutine.
type watch struct {
	opts    watchOptions
	in      *os.File // inotify
	ring    *eventRing
	hub     *watchHub
	readers int         // under the hub's lock
	expiry  *time.Timer // under the hub's lock

	only  string           // set: report this name of the root only (a watch on a file)
	dirs  map[int32]string // watch descriptor -> directory
	wds   map[string]int32
	known map[string]int // names reported by a scan -> generation of the scan
	gen   int
	full  bool // dirsMax was reported
}

// newWatch watches what is there; events count from now.
func newWatch(o watchOptions) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		if errors.Is(err, unix.EMFILE) {
			return nil, errs.Wrap(errs.Limit, err, "the guest's kernel has no watch left")
		}
		return nil, err
	}
	w := &watch{
		opts: o, in: os.NewFile(uintptr(fd), "inotify"), ring: newEventRing(),
		dirs: map[int32]string{}, wds: map[string]int32{}, known: map[string]int{},
	}
	if err := o.As(w.begin); err != nil {
		_ = w.in.Close()
		return nil, err
	}
	return w, nil
}

func (w *watch) begin() error {
	var st unix.Stat_t
	if err := unix.Stat(w.opts.Path, &st); err != nil {
		return err
	}
	root := w.opts.Path
	if !tree.IsDir(&st) {
		root, w.only = path.Split(w.opts.Path)
		root = path.Clean(root)
	}
	fd, err := tree.Open(root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := w.add(fd, root); err != nil {
		return err
	}
	w.scan(fd, root, false)
	return nil
}

// add watches a directory that is open for reading: the kernel checked that
// we may read it (gVisor's inotify alone would not), and no link can come
// between the look and the watch.
func (w *watch) add(dirFD int, dir string) error {
	if len(w.dirs) >= dirsMax {
		return errs.New(errs.Limit, "more than %d directories to watch", dirsMax)
	}
	wd := int32(-1)
	err := w.control(func(fd int) error {
		n, err := unix.InotifyAddWatch(fd, "/proc/self/fd/"+strconv.Itoa(dirFD), watchMask)
		wd = int32(n)
		return err
	})
	if errors.Is(err, unix.ENOSPC) {
		return errs.Wrap(errs.Limit, err, "the guest's kernel has no watch left")
	}
	if err != nil {
		return err
	}
	if old, ok := w.dirs[wd]; ok {
		delete(w.wds, old) // the directory was renamed; it has its new name now
	}
	w.dirs[wd], w.wds[dir] = dir, wd
	return nil
}

func (w *watch) control(use func(fd int) error) error {
	conn, err := w.in.SyscallConn()
	if err != nil {
		return err
	}
	if ctlErr := conn.Control(func(fd uintptr) { err = use(int(fd)) }); ctlErr != nil {
		return ctlErr
	}
	return err
}

// scan watches all directories beneath one that is watched already. With
// report, whatever it finds is news: it came before the watch did.
func (w *watch) scan(fd int, dir string, report bool) {
	if !w.opts.Recursive || w.only != "" {
		return
	}
	names, err := tree.Names(fd)
	if err != nil {
		return
	}
	for _, name := range names {
		st, err := tree.Lstat(fd, name)
		if err != nil {
			continue
		}
		full := childOf(dir, name)
		if report && !tree.IsTemp(name) {
			w.remember(full)
			w.ring.add(watchEvent{Kind: watchCreate, Path: full, Dir: tree.IsDir(&st)})
		}
		if tree.IsDir(&st) {
			w.enter(fd, name, full, report)
		}
	}
}

// enter watches a directory in an open one, and all beneath it. What is gone,
// or not for us to read, is left out.
func (w *watch) enter(parent int, name, dir string, report bool) {
	if strings.Count(dir, "/")-strings.Count(w.opts.Path, "/") > tree.DepthMax {
		return
	}
	fd, err := tree.OpenAt(parent, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	err = w.add(fd, dir)
	switch {
	case err == nil:
		w.scan(fd, dir, report)
	case errs.Is(err, errs.Limit) && !w.full:
		w.full = true
		w.lost()
	}
}

// found enters a directory that an event named.
func (w *watch) found(dir string) error {
	up, name := tree.Split(dir)
	parent, err := tree.Open(up, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	w.enter(parent, name, dir, true)
	return nil
}

func (w *watch) remember(name string) {
	if len(w.known) < knownMax {
		w.known[name] = w.gen
	}
}

// lost reports that an unknown number of events is missing.
func (w *watch) lost() {
	seq := w.ring.nextSeq()
	w.ring.add(watchEvent{Kind: watchOverflow, LostFrom: seq, LostTo: seq})
}

// run reads until the descriptor is closed.
func (w *watch) run() {
	defer w.ring.close()
	buf := make([]byte, readBytes)
	for {
		n, err := w.in.Read(buf)
		if err != nil {
			return
		}
		w.batch(buf[:n])
		// A short read emptied the kernel's queue. Names that an earlier scan
		// reported cannot be announced again by what comes from now on.
		if n < len(buf)-unix.SizeofInotifyEvent-unix.NAME_MAX-1 {
			for name, gen := range w.known {
				if gen < w.gen {
					delete(w.known, name)
				}
			}
			w.gen++
		}
	}
}

func (w *watch) batch(b []byte) {
	for len(b) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(b))
		flags := binary.NativeEndian.Uint32(b[4:])
		size := int(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if size > len(b) {
			return // the kernel does not cut events; do not trust it blindly
		}
		name, _, _ := bytes.Cut(b[:size], []byte{0})
		b = b[size:]
		w.handle(wd, flags, string(name))
	}
}

func (w *watch) handle(wd int32, flags uint32, name string) {
	if flags&unix.IN_Q_OVERFLOW != 0 {
		w.lost()
		w.rescan()
		return
	}
	dir, ok := w.dirs[wd]
	if !ok {
		return
	}
	if flags&unix.IN_IGNORED != 0 {
		w.drop(wd)
		return
	}
	if name == "" {
		w.self(dir, flags)
		return
	}
	if tree.IsTemp(name) || (w.only != "" && name != w.only) {
		return
	}
	w.entry(childOf(dir, name), flags)
}

// self is about a watched directory itself. Beneath the root, its parent says
// the same by name.
func (w *watch) self(dir string, flags uint32) {
	if dir != w.opts.Path {
		return
	}
	switch {
	case flags&(unix.IN_DELETE_SELF|unix.IN_UNMOUNT) != 0:
		w.ring.add(watchEvent{Kind: watchRemove, Path: dir, Dir: true})
	case flags&unix.IN_MOVE_SELF != 0:
		w.ring.add(watchEvent{Kind: watchRename, Path: dir, Dir: true})
	case flags&unix.IN_ATTRIB != 0:
		w.ring.add(watchEvent{Kind: watchChmod, Path: dir, Dir: true})
	}
}

func (w *watch) entry(full string, flags uint32) {
	isDir := flags&unix.IN_ISDIR != 0
	e := watchEvent{Path: full, Dir: isDir}
	_, told := w.known[full]
	switch {
	case flags&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		delete(w.known, full)
		if told && flags&unix.IN_CREATE != 0 {
			return // the scan reported it, and watches it if it is a directory
		}
		e.Kind = watchCreate
		w.ring.add(e)
		if isDir && w.opts.Recursive {
			_ = w.opts.As(func() error { return w.found(full) })
		}
		return
	case flags&unix.IN_DELETE != 0:
		e.Kind = watchRemove
	case flags&unix.IN_MOVED_FROM != 0:
		e.Kind = watchRename
		if isDir {
			w.leave(full)
		}
	case flags&unix.IN_MODIFY != 0:
		e.Kind = watchWrite
	case flags&unix.IN_ATTRIB != 0:
		e.Kind = watchChmod
	default:
		return
	}
	if e.Kind != watchWrite && e.Kind != watchChmod {
		delete(w.known, full)
	}
	w.ring.add(e)
}

// leave stops watching a directory that moved away, and all in it: where it
// went, it is found as new.
func (w *watch) leave(dir string) {
	for name, wd := range w.wds {
		if name != dir && !strings.HasPrefix(name, dir+"/") {
			continue
		}
		_ = w.control(func(fd int) error {
			_, err := unix.InotifyRmWatch(fd, uint32(wd))
			return err
		})
		w.drop(wd)
	}
}

func (w *watch) drop(wd int32) {
	if dir, ok := w.dirs[wd]; ok {
		delete(w.dirs, wd)
		if w.wds[dir] == wd {
			delete(w.wds, dir)
		}
	}
}

// rescan finds directories that were made while the kernel's queue was full.
func (w *watch) rescan() {
	_ = w.opts.As(func() error {
		fd, err := tree.Open(w.opts.Path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		w.scan(fd, w.opts.Path, false)
		return nil
	})
}

func childOf(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}
