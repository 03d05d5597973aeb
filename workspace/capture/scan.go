package capture

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
	"github.com/skete-dev/skete/workspace/tree"
)

// Bounds of a scan.
const (
	// racyWindow is how near to its reading a file's change time may be for a
	// later write to have the same; kernels before 6.13 count in ticks of 10 ms.
	racyWindow = 20 * time.Millisecond
	depthMax   = 512 // of directories
	readTries  = 3
	skippedMax = 1000 // that a report lists; the rest is counted
)

// Config of a Capture. The zero value has the default rules.
type Config struct {
	Rules *Rules
	// Full lets each scan read all files again.
	Full bool
}

// Skip is something that the tree does not hold.
type Skip struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Result is what a scan found.
type Result struct {
	Root    object.Hash
	Files   int   // in the tree
	Bytes   int64 // of them
	Read    int   // files that were read, because they are new or changed
	Skipped []Skip
	// SkippedMore is how many there are beyond those that are listed.
	SkippedMore int
	// Torn are files that changed while they were read, each of readTries times.
	Torn []string
}

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

// known is what the last scan learned of a name.
type known struct {
	stamp stamp
	racy  bool // read again
	entry tree.Entry
	dir   *directory // of a directory
}

// directory is what the last scan learned of a directory.
type directory struct {
	names map[string]known
	hash  object.Hash
	files int
	bytes int64
}

// Capture scans one directory.
type Capture struct {
	store *object.Store
	c     Config
	rules Rules
	root  *os.File
	dev   uint64
	last  *directory
}

// Open looks at a directory. It must be on a file system that keeps times
// after syncfs; tmpfs does not.
func Open(dir string, store *object.Store, c Config) (*Capture, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errs.Wrap(errs.NotFound, err, "the workspace cannot be opened")
	}
	x := &Capture{store: store, c: c, rules: DefaultRules(), root: os.NewFile(uintptr(fd), dir)}
	if c.Rules != nil {
		x.rules = *c.Rules
	}
	if x.rules.HugeBytes <= 0 {
		x.rules.HugeBytes = 1 << 30
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	x.dev = st.Dev
	return x, nil
}

// Close lets go of the directory.
func (c *Capture) Close() error { return c.root.Close() }

// Forget lets the next scan read everything again.
func (c *Capture) Forget() { c.last = nil }

// scan is one scan.
type scan struct {
	*Capture
	ctx     context.Context
	began   int64 // Unix ns, after syncfs
	readers chan struct{}

	mu     sync.Mutex // guards result and failed
	result Result
	failed error
}

// Scan brings the tree of the directory into the store; it is durable after
// the store's Sync. Limit: the store is full. After an error the store may hold
// objects that nothing names.
func (c *Capture) Scan(ctx context.Context) (Result, error) {
	if err := syncfs(int(c.root.Fd())); err != nil {
		return Result{}, err
	}
	s := &scan{Capture: c, ctx: ctx, began: time.Now().UnixNano(), readers: make(chan struct{}, 4)}
	old := c.last
	if c.c.Full {
		old = nil
	}
	fd, err := unix.Openat(int(c.root.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Result{}, err
	}
	d, err := s.directory(os.NewFile(uintptr(fd), "."), "", Source, old, 0)
	if err == nil {
		err = s.failed
	}
	if err != nil {
		return Result{}, err
	}
	c.last = d
	s.result.Root, s.result.Files, s.result.Bytes = d.hash, d.files, d.bytes
	return s.result, nil
}

func syncfs(fd int) error {
	if err := unix.Syncfs(fd); err != nil {
		return errs.Wrap(errs.Internal, err, "the workspace's disk cannot be written")
	}
	return nil
}

func (s *scan) skip(path, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.result.Skipped) < skippedMax {
		s.result.Skipped = append(s.result.Skipped, Skip{path, why})
	} else {
		s.result.SkippedMore++
	}
}

func (s *scan) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
}

func (s *scan) over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	return s.ctx.Err()
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// directory scans what f is open on, and closes it.
func (s *scan) directory(f *os.File, path string, class Class, old *directory, depth int) (*directory, error) {
	defer f.Close()
	if err := s.over(); err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	if err != nil && !errors.Is(err, unix.ENOENT) { // it may have been removed meanwhile
		return nil, errs.Wrap(errs.Internal, err, "a directory of the workspace cannot be read")
	}
	slices.Sort(names)
	found := make([]known, len(names))
	keep := make([]bool, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		var before known
		if old != nil {
			before = old.names[name]
		}
		keep[i] = s.name(&wg, f, path, name, class, before, &found[i], depth)
	}
	wg.Wait()
	if err := s.over(); err != nil {
		return nil, err
	}
	return s.assemble(names, found, keep, old)
}

// assemble makes the tree object of a directory.
func (s *scan) assemble(names []string, found []known, keep []bool, old *directory) (*directory, error) {
	d := &directory{names: make(map[string]known, len(names))}
	entries := make([]tree.Entry, 0, len(names))
	same := old != nil
	for i, name := range names {
		k := found[i]
		if !keep[i] || k.entry.Type == 0 {
			continue
		}
		if same {
			before, ok := old.names[name]
			same = ok && before.entry.Same(k.entry)
		}
		d.names[name] = k
		entries = append(entries, k.entry)
		switch {
		case k.dir != nil:
			d.files += k.dir.files
			d.bytes += k.dir.bytes
		case k.entry.Type == tree.File:
			d.files++
			d.bytes += k.entry.Size
		}
	}
	if same && len(entries) == len(old.names) {
		d.hash = old.hash
		return d, nil
	}
	data, err := tree.Encode(entries)
	if err != nil {
		return nil, err
	}
	d.hash, err = s.store.Put(object.Tree, data)
	return d, err
}

// name scans one name of a directory; it may go on in a goroutine of wg, which
// sets found. false: the name is not kept.
func (s *scan) name(wg *sync.WaitGroup, parent *os.File, dir, name string, class Class, before known, found *known, depth int) bool {
	path := join(dir, name)
	if class = s.rules.class(dir, name, class); class == Cache {
		s.skip(path, "cache")
		return false
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(parent.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false // gone meanwhile
	}
	if uint64(st.Dev) != s.dev {
		s.skip(path, "another file system")
		return false
	}
	entry := tree.Entry{Name: name, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return s.file(wg, parent, path, &st, entry, before, found)
	case unix.S_IFDIR:
		return s.subdirectory(parent, path, class, &st, entry, before, found, depth)
	case unix.S_IFLNK:
		buf := make([]byte, tree.TargetBytesMax+1)
		n, err := unix.Readlinkat(int(parent.Fd()), name, buf)
		if err != nil || n == 0 || n > tree.TargetBytesMax {
			return false
		}
		entry.Type, entry.Target = tree.Link, string(buf[:n])
	case unix.S_IFIFO:
		entry.Type = tree.Fifo
	case unix.S_IFSOCK:
		s.skip(path, "a socket")
		return false
	default:
		s.skip(path, "a device")
		return false
	}
	*found = known{entry: entry}
	return true
}

func (s *scan) subdirectory(parent *os.File, path string, class Class, st *unix.Stat_t, entry tree.Entry, before known, found *known, depth int) bool {
	if depth >= depthMax {
		s.skip(path, "deeper than can be kept")
		return false
	}
	fd, err := unix.Openat(int(parent.Fd()), entry.Name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		s.skip(path, "cannot be opened: "+err.Error())
		return false
	}
	f := os.NewFile(uintptr(fd), entry.Name)
	entry.Xattrs = s.xattrs(fd, path)
	old := before.dir
	if old != nil && before.stamp.ino != st.Ino {
		old = nil // another directory of the same name
	}
	d, err := s.directory(f, path, class, old, depth+1)
	if err != nil {
		s.fail(err)
		return false
	}
	entry.Type, entry.Hash = tree.Dir, d.hash
	*found = known{stamp: stamp{ino: st.Ino}, entry: entry, dir: d}
	return true
}
