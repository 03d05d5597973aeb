package capture

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace/object"
)

// Bounds of a scan.
const (
	// racyWindow is how near to its reading a file's change time may be for a
	// later write to have the same; kernels before 6.13 count in ticks of 10 ms.
	racyWindow = 20 * time.Millisecond
	depthMax   = 512 // of directories
	readTries  = 3
	skippedMax = 1000 // that a report lists; the rest is counted
	linkedMax  = 100  // the same
	notesMax   = skippedMax
	readersMax = 4 // files that are read at the same time
	// wholeEveryDefault is how long a captured scan relies on what is reported.
	wholeEveryDefault = 5 * time.Minute
)

// Config of a Capture. The zero value has the default rules.
type Config struct {
	Rules *Rules
	// Full lets each scan read all files again.
	Full bool
	// Watch lets scans look only at the directories in which the kernel says
	// that something changed, where it says so; see Capture.Watching.
	Watch bool
	// WholeEvery is how long scans rely on that before one looks at everything;
	// 0 = 5 minutes.
	WholeEvery time.Duration
	// State is a file for what the scans learned, so that the next Capture need
	// not read all files; its directory must exist. "" = none.
	State string
}

// Skip is something that the tree does not hold.
type Skip struct {
	Path string `json:"path"`
	Why  string `json:"why"`
	// Class is Cache or Huge for what a rule leaves out; else it could not be kept.
	Class Class `json:"class,omitempty"`
}

// Result is what a scan found.
type Result struct {
	Root  object.Hash
	Files int   // in the tree
	Bytes int64 // of them
	// DerivedFiles and DerivedBytes are those of them that can be made again.
	DerivedFiles int
	DerivedBytes int64
	// Whole: all directories were looked at, not only those that changed.
	Whole bool
	// Listed directories were looked at, Read files read, new or changed.
	Listed, Read int
	Skipped      []Skip
	// SkippedMore is how many there are beyond those that are listed.
	SkippedMore int
	// Linked files, symbolic links and named pipes have more than one name; each
	// is kept as one of its own.
	Linked     []string
	LinkedMore int
	// Torn are files that changed while they were read, each of readTries times.
	Torn []string
}

// Capture scans one directory.
type Capture struct {
	store *object.Store
	c     Config
	rules *ruleset
	root  *os.File
	dev   uint64
	last  *directory

	watcher *watcher
	silent  error     // why there is no watcher
	whole   time.Time // of the last whole scan; zero: the next one is
	state   *state
}

// Open looks at a directory. On a file system that keeps no times after syncfs
// (tmpfs) every scan reads everything. The caller closes the Capture.
func Open(dir string, store *object.Store, c Config) (x *Capture, err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errs.Wrap(errs.NotFound, err, "the workspace cannot be opened")
	}
	x = &Capture{store: store, c: c, root: os.NewFile(uintptr(fd), dir)}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.root.Close())
		}
	}()
	rules := DefaultRules()
	if c.Rules != nil {
		rules = *c.Rules
	}
	x.rules = compile(rules)
	if c.WholeEvery <= 0 {
		x.c.WholeEvery = wholeEveryDefault
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &fs)); err != nil {
		return nil, err
	}
	x.dev = st.Dev
	x.c.Full = c.Full || fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
	if !x.c.Full && c.State != "" {
		x.state = newState(c.State, identify(&st, &fs, x.rules))
		if x.last = x.state.load(); x.last != nil {
			x.vouch(x.last)
		}
	}
	x.silent = errs.New(errs.Unsupported, "it was not asked for")
	if c.Watch && !x.c.Full {
		x.watcher, x.silent = openWatcher(dir)
	}
	return x, nil
}

// Watching is nil if scans look only at what the kernel says has changed, else
// the reason why they do not (Unsupported).
func (c *Capture) Watching() error { return c.silent }

// Heard is how many changes the kernel has reported since the last Scan; 0 =
// none. known is false where none are reported: then only a Scan says so.
func (c *Capture) Heard() (n uint64, known bool) {
	if c.watcher == nil {
		return 0, false
	}
	return c.watcher.Heard(), true
}

// Close lets go of the directory and saves what was learned. It may be called once.
func (c *Capture) Close() error {
	var err error
	if c.watcher != nil {
		err = c.watcher.Close()
	}
	if c.state != nil {
		c.state.close(c.last)
	}
	return errors.Join(err, c.root.Close())
}

// Forget lets the next scan read everything again.
func (c *Capture) Forget() { c.last = nil }

// Whole lets the next scan look at every name, whatever the kernel reported.
func (c *Capture) Whole() { c.whole = time.Time{} }

// Recheck lets the next scan believe nothing of which the store has not all
// objects. Call it after objects were dropped.
func (c *Capture) Recheck() {
	if c.state != nil {
		c.state.wait() // it reads what vouch changes
	}
	c.Whole()
	if c.last != nil {
		c.vouch(c.last)
	}
}

// scan is one scan.
type scan struct {
	*Capture
	ctx     context.Context
	began   int64 // Unix ns, before syncfs
	readers chan struct{}
	walkers chan struct{}
	changes

	moved func() map[uint64]*directory // the directories that are known, by inode

	mu     sync.Mutex // guards result, failed, linked, and the notes of directories
	result Result
	failed error
	linked bool // something with more than one name was found that was not known to be such
}

// Scan brings the tree of the directory into the store; it is durable after
// the store's Sync. Limit: the store is full. After an error the store may hold
// objects that nothing names.
func (c *Capture) Scan(ctx context.Context) (Result, error) {
	r, again, err := c.scan(ctx)
	if again && err == nil {
		// Something has a second name: the directory of the first one is not told
		// of what is changed through the second.
		c.Whole()
		read := r.Read
		r, _, err = c.scan(ctx)
		r.Read += read
	}
	if err != nil {
		c.Whole()
		return Result{}, err
	}
	return r, nil
}

func (c *Capture) scan(ctx context.Context) (r Result, again bool, err error) {
	s := &scan{
		Capture: c, ctx: ctx, began: time.Now().UnixNano(),
		readers: make(chan struct{}, readersMax), walkers: make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1)),
	}
	// A second store into a mapped page that waits to be written changes no time.
	// After syncfs none waits; what changed since it began may again.
	if err := unix.Syncfs(int(c.root.Fd())); err != nil {
		return r, false, errs.Wrap(errs.Internal, err, "the workspace's disk cannot be written")
	}
	old := c.last
	if c.c.Full {
		old = nil
	}
	s.changes = c.take(old)
	s.moved = sync.OnceValue(func() map[uint64]*directory {
		all := map[uint64]*directory{}
		if old != nil {
			old.each(func(d *directory) { all[d.stamp.ino] = d })
		}
		return all
	})
	d, err := s.top(old)
	if err != nil {
		return r, false, err
	}
	c.last = d
	if s.all {
		c.whole = time.Now()
	}
	if c.state != nil {
		c.state.offer(d)
	}
	return s.report(d), s.linked && !s.all, nil
}

func (s *scan) report(d *directory) Result {
	r := s.result
	r.Root, r.Whole = d.hash, s.all
	r.Files, r.Bytes, r.DerivedFiles, r.DerivedBytes = d.sums.files, d.sums.bytes, d.sums.derivedFiles, d.sums.derivedBytes
	d.report("", &r)
	r.SkippedMore, r.LinkedMore = d.sums.skipped-len(r.Skipped), d.sums.linked-len(r.Linked)
	return r
}

// changes are the directories that a scan looks at.
type changes struct {
	all bool // of them
	// list are those to be listed; touched are those and what is above them.
	list, touched map[*directory]bool
}

// take asks what changed since the last scan.
func (c *Capture) take(old *directory) changes {
	all := changes{all: true}
	if c.watcher == nil {
		return all
	}
	mapped := map[uint64]struct{}{}
	known := mappedFiles(c.dev, mapped) // before Take, see there
	w := c.watcher.Take()
	if !known || w.Whole || old == nil || time.Since(c.whole) > c.c.WholeEvery {
		return all
	}
	x := changes{list: map[*directory]bool{}, touched: map[*directory]bool{}}
	x.mark(old, w.Dirs, mapped)
	return x
}

// mark finds the directories to be looked at.
func (x *changes) mark(d *directory, dirs, mapped map[uint64]struct{}) (touched bool) {
	_, list := dirs[d.stamp.ino]
	if list = list || d.unquiet; !list && len(mapped) > 0 {
		for i := range d.names {
			if _, list = mapped[d.names[i].stamp.ino]; list {
				break
			}
		}
	}
	if touched = list; list {
		x.list[d] = true
	}
	for _, i := range d.subs {
		touched = x.mark(d.names[i].dir, dirs, mapped) || touched
	}
	if touched {
		x.touched[d] = true
	}
	return touched
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
