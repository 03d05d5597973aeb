package capture

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// This file says which directories of a file system changed, so that a
// scan need not look at all of them.
//
// The kernel reports by fanotify, for the whole file system that dir is on, the
// writes of every process through every mount. Only directories are remembered,
// by their handles; a handle becomes an inode when Take asks for it, and what
// is gone by then is not named, since its parent is.
//
// # What it does not see
//
// Stores into mapped pages make no events until the mapping ends. mappedFiles names
// the files that are mapped now, so that the caller looks at them every time;
// call it before Take: a mapping that ends in between makes an event.
//
// What has two names (a file, a symbolic link, a named pipe) is reported under
// the one that it was changed by. The caller looks at every directory that has
// such names every time.
//
// What was linked, written under the second name and unlinked again between
// two looks, and what root writes beneath the file system's feet (a loop device
// on a file), is not reported. Look at everything now and then.
//
// # What it needs
//
// CAP_SYS_ADMIN, CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE, Linux 5.9, ext4 or XFS,
// and a file system that holds little else than dir: openWatcher refuses the host's
// own. The first Take says Whole, and so does the one after too many
// directories, an overflow of the kernel's queue, or any error: nothing is
// guessed.
//
// A watcher is safe for concurrent use. It drains the kernel's queue every
// tenth of a second, in batches: to wake for every event would cost writers
// more than the events do.

const (
	// watchDirsMax is how many directories are remembered; more are "anything".
	watchDirsMax = 8192
	// batchEvery is how long events may wait in the kernel.
	batchEvery = 100 * time.Millisecond
	readBytes  = 64 << 10
	// batchBytesMax bounds what one Take reads, against processes that write
	// faster than we read.
	batchBytesMax = 64 << 20
)

const (
	initFlags = unix.FAN_CLASS_NOTIF | unix.FAN_REPORT_DFID_NAME | unix.FAN_NONBLOCK | unix.FAN_CLOEXEC
	eventMask = unix.FAN_CREATE | unix.FAN_DELETE | unix.FAN_MOVED_FROM | unix.FAN_MOVED_TO |
		unix.FAN_MODIFY | unix.FAN_ATTRIB | unix.FAN_CLOSE_WRITE | unix.FAN_ONDIR
)

// watchChanges are the directories in which something changed: a name came or went,
// a file was written, or attributes of it or of the directory moved.
type watchChanges struct {
	// Whole: anything may have changed; Dirs says nothing.
	Whole bool
	Dirs  map[uint64]struct{} // by inode
}

// watcher collects what changes.
type watcher struct {
	dir    *os.File // on the file system
	events int
	cancel context.CancelFunc
	done   chan struct{}
	buffer []byte

	mu    sync.Mutex // guards all below, and reading of events
	dirs  map[fileHandle]struct{}
	whole bool
	max   int
	heard uint64 // events since the last Take; what was lost counts as one
}

// openWatcher begins to watch the file system that dir is on. Unsupported: it cannot
// be done here; the error says why. The caller closes the Watcher.
func openWatcher(dir string) (*watcher, error) {
	return openWatch(dir, unix.FAN_UNLIMITED_QUEUE, batchEvery, watchDirsMax)
}

func openWatch(dir string, flags uint, every time.Duration, most int) (w *watcher, err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errs.Wrap(errs.NotFound, err, "the directory to watch cannot be opened")
	}
	f := os.NewFile(uintptr(fd), dir)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := watchable(dir, fd); err != nil {
		return nil, err
	}
	if err := mayTrace(); err != nil {
		return nil, err
	}
	events, err := unix.FanotifyInit(initFlags|flags, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, errs.Wrap(errs.Unsupported, err, "the kernel reports no changes here")
	}
	if err := errors.Join(watchMark(events, fd), resolvable(fd)); err != nil {
		return nil, errors.Join(err, unix.Close(events))
	}
	ctx, cancel := context.WithCancel(context.Background())
	w = &watcher{dir: f, events: events, cancel: cancel, done: make(chan struct{}), buffer: make([]byte, readBytes), dirs: map[fileHandle]struct{}{}, whole: true, max: most, heard: 1}
	go w.drainEvery(ctx, every)
	return w, nil
}

// mayTrace reports whether Mapped sees all processes.
func mayTrace() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return errs.Wrap(errs.Unsupported, err, "what we may do cannot be found out")
	}
	if sets[0].Effective&(1<<unix.CAP_SYS_PTRACE) == 0 {
		return errs.New(errs.Unsupported, "without CAP_SYS_PTRACE the files that others have mapped are not known")
	}
	return nil
}

func watchMark(events, dir int) error {
	if err := unix.FanotifyMark(events, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, eventMask, dir, "."); err != nil {
		return errs.Wrap(errs.Unsupported, err, "the kernel does not report changes of this file system")
	}
	return nil
}

// resolvable tries what Take will do.
func resolvable(dir int) error {
	h, _, err := unix.NameToHandleAt(dir, ".", 0)
	if err == nil {
		_, err = inodeKey(dir, h)
	}
	if err != nil {
		return errs.Wrap(errs.Unsupported, err, "directories of this file system cannot be opened by their handles")
	}
	return nil
}

// Types of file systems whose events, inodes and mappings agree; see statfs(2).
const (
	ext4Magic = 0xef53
	xfsMagic  = 0x58465342
)

// watchable refuses file systems that would report too much or too little.
func watchable(dir string, fd int) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	if fs.Type != ext4Magic && fs.Type != xfsMagic {
		return errs.New(errs.Unsupported, "changes are watched on ext4 and XFS only, not on a file system of type %#x", fs.Type)
	}
	for _, up := range []string{"..", "../.."} {
		var here, above unix.Stat_t
		if err := errors.Join(unix.Stat(dir, &here), unix.Stat(filepath.Clean(dir)+"/"+up, &above)); err != nil {
			return err
		}
		if here.Dev != above.Dev {
			return nil
		}
	}
	return errs.New(errs.Unsupported, "the directory has no file system of its own; all the host's changes would be reported")
}

// drainEvery keeps the kernel's queue short.
func (w *watcher) drainEvery(ctx context.Context, every time.Duration) {
	defer close(w.done)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		w.mu.Lock()
		w.drain()
		w.mu.Unlock()
	}
}

// drain reads what the kernel has.
//
// Preconditions: w.mu is held.
func (w *watcher) drain() {
	for total := 0; total < batchBytesMax; {
		n, err := unix.Read(w.events, w.buffer)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		overflow := false
		if err == nil {
			overflow, err = parseEvents(w.buffer[:n], w.add)
		}
		if overflow || err != nil {
			w.lose()
		}
		if err != nil || n == 0 {
			return
		}
		total += n
	}
	w.lose()
}

// lose gives up on naming directories until the next Take.
func (w *watcher) lose() {
	w.heard++
	w.whole = true
	clear(w.dirs)
}

func (w *watcher) add(h fileHandle) {
	w.heard++
	if w.whole {
		return
	}
	if w.dirs[h] = struct{}{}; len(w.dirs) > w.max {
		w.lose()
	}
}

// Take returns what changed since the last Take, up to the moment of the call.
func (w *watcher) Take() watchChanges {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drain()
	c := watchChanges{Whole: w.whole, Dirs: map[uint64]struct{}{}}
	for h := range w.dirs {
		ino, err := inodeKey(int(w.dir.Fd()), h.fileHandle())
		switch {
		case errors.Is(err, unix.ESTALE): // it is gone; that changed its parent too
		case err != nil:
			c.Whole = true
		default:
			c.Dirs[ino] = struct{}{}
		}
	}
	w.whole, w.heard = false, 0
	clear(w.dirs)
	return c
}

// Heard is how many changes were reported since the last Take, up to the moment
// of the call; 0 = none. It costs one read of an empty queue, and does not know
// of stores into mapped files.
func (w *watcher) Heard() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drain()
	return w.heard
}

// inodeKey resolves a handle.
func inodeKey(mount int, h unix.FileHandle) (uint64, error) {
	fd, err := unix.OpenByHandleAt(mount, h, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return st.Ino, errors.Join(err, unix.Close(fd))
}

// Lose lets the next Take say Whole: what the last one said could not be used.
func (w *watcher) Lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose()
}

// Close ends the watch. It may be called once.
func (w *watcher) Close() error {
	w.cancel()
	<-w.done
	return errors.Join(unix.Close(w.events), w.dir.Close())
}
