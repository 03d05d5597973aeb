package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
)

// Bounds of a log where nothing else is said.
const (
	fileBytesMax = 32 << 20
	bytesMax     = 512 << 20

	laterMax  = 4096 // records that wait
	syncEvery = time.Second
	headWait  = 5 * time.Second
)

// What a log tells of itself.
const (
	self      = "skete"
	recovered = "audit.recovered" // the end of the last file was cut off
	restarted = "audit.restarted" // the last file cannot be read to its end
	removed   = "audit.removed"   // old files, up to the record that "through" says
	missed    = "audit.missed"    // so many records could not be written
	flooded   = "audit.flooded"   // so many records of a tenant, of more kinds than are told apart
)

// Config of a Log.
type Config struct {
	Dir  string
	Node string
	// KV keeps the newest hash, by node, apart from the files; nil = nothing does.
	KV kv.Store
	// FileBytesMax is about how large a file becomes, BytesMax all of them; 0 = 32 MB and
	// 512 MB.
	FileBytesMax, BytesMax int64
	Now                    func() time.Time
	Log                    *slog.Logger
}

// Log is the audit log of a server. It is the only writer of its directory. Safe for
// concurrent use.
type Log struct {
	c    Config
	stop chan struct{}
	done sync.WaitGroup

	later  chan Record
	missed atomic.Uint64 // records that were not written since the last one that was
	folds  folds

	mu              sync.Mutex
	f               *os.File // the newest file; nil: it could not be made
	size            int64
	n               uint64 // of the newest record
	last            sum
	closing, closed bool
	readers         int // under way

	syncing sync.Mutex // is held over the disk and the store, never with mu
	saved   uint64     // what KV has
	head    uint64     // its revision there
}

// Head is the newest record of a log, as KV keeps it.
type Head struct {
	N    uint64 `json:"n"`
	Hash string `json:"hash"`
}

// Open opens a log, and makes one if there is none.
func Open(ctx context.Context, c Config) (*Log, error) {
	c.FileBytesMax, c.BytesMax = cmp.Or(c.FileBytesMax, fileBytesMax), cmp.Or(c.BytesMax, bytesMax)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "the audit log's directory cannot be made")
	}
	l := &Log{c: c, stop: make(chan struct{}), later: make(chan Record, laterMax), folds: folds{of: map[string]*tenantFolds{}}}
	head, err := l.readHead(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.begin(head); err != nil {
		return nil, err
	}
	l.done.Go(l.sync)
	l.done.Go(l.drain)
	l.done.Go(l.unfold)
	return l, nil
}

// Close writes what is to be written to the disk.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil
	}
	l.closing = true
	l.mu.Unlock()
	close(l.stop)
	l.done.Wait()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	err := l.flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		err = errors.Join(err, l.f.Close())
	}
	return err
}

const (
	filePrefix = "audit-"
	fileSuffix = ".log"
)

func (l *Log) path(first uint64) string {
	return filepath.Join(l.c.Dir, fmt.Sprintf("%s%020d%s", filePrefix, first, fileSuffix))
}

// file is one of a log.
type file struct {
	path  string
	first uint64
	size  int64
}

// files lists those of a directory, the oldest first.
func files(dir string) ([]file, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "the audit log's directory cannot be read")
	}
	var list []file
	for _, e := range entries {
		number, isLog := strings.CutPrefix(strings.TrimSuffix(e.Name(), fileSuffix), filePrefix)
		first, err := strconv.ParseUint(number, 10, 64)
		info, ierr := e.Info()
		if !isLog || err != nil || ierr != nil || !info.Mode().IsRegular() {
			continue
		}
		list = append(list, file{filepath.Join(dir, e.Name()), first, info.Size()})
	}
	slices.SortFunc(list, func(a, b file) int { return cmp.Compare(a.first, b.first) })
	return list, nil
}

// begin goes on with what is there.
func (l *Log) begin(head Head) error {
	list, err := files(l.c.Dir)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		l.n = head.N // what was there before is missed by Verify
		return l.create()
	}
	newest := list[len(list)-1]
	torn, wrong, err := l.resume(newest)
	switch {
	case err != nil:
		return err
	case wrong != "":
		l.n, l.last = max(head.N, newest.first), sum{}
		if err := l.create(); err != nil {
			return err
		}
		return l.Append(Record{Who: self, What: restarted, Detail: map[string]string{"file": filepath.Base(newest.path), "why": wrong}})
	}
	l.n = max(l.n, head.N) // numbers of records that are gone are not used again
	if torn > 0 {
		return l.Append(Record{Who: self, What: recovered, Detail: map[string]string{"bytes": strconv.FormatInt(torn, 10)}})
	}
	return nil
}

// resume opens the newest file, and cuts off what a crash left of a line. It says in words
// why the file cannot be gone on with.
func (l *Log) resume(of file) (torn int64, wrong string, err error) {
	f, err := os.OpenFile(of.path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return 0, "", errs.Wrap(errs.Unavailable, err, "the audit log cannot be opened")
	}
	defer func() {
		if l.f != f {
			_ = f.Close()
		}
	}()
	line, end, err := lastLine(f, of.size)
	if err != nil {
		return 0, "", errs.Wrap(errs.Unavailable, err, "the audit log cannot be read")
	}
	if h, prev, ok := parseHeader(line); ok {
		l.n, l.last = h.First-1, prev
	} else {
		said, text, _ := bytes.Cut(line, []byte(" "))
		s, ok := parseSum(said)
		r, isRecord := parseRecord(text)
		if !ok || !isRecord {
			return 0, "its last line cannot be read", nil
		}
		l.n, l.last = r.N, s
	}
	if err := f.Truncate(end); err != nil {
		return 0, "", errs.Wrap(errs.Unavailable, err, "the audit log cannot be written")
	}
	l.f, l.size = f, end
	return of.size - end, "", nil
}

// lastLine returns the last whole line of a file, without its end, and where that is.
func lastLine(f io.ReaderAt, size int64) (line []byte, end int64, err error) {
	from := max(size-2*lineBytesMax, 0)
	tail := make([]byte, size-from)
	if _, err := f.ReadAt(tail, from); err != nil && err != io.EOF {
		return nil, 0, err
	}
	stop := bytes.LastIndexByte(tail, '\n')
	if stop < 0 {
		return nil, 0, nil
	}
	return tail[bytes.LastIndexByte(tail[:stop], '\n')+1 : stop], from + int64(stop) + 1, nil
}

// create makes the next file. Precondition: l.mu is held, or nothing else has l.
func (l *Log) create() error {
	text, err := header{headerVersion, l.n + 1, l.last.String()}.encode()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(l.path(l.n+1), os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		if _, err = f.Write(text); err == nil {
			err = syncDir(l.c.Dir)
		}
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "the audit log cannot be written")
	}
	l.f, l.size = f, int64(len(text))
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Append writes a record. Unavailable: it could not be, which later records tell of; the
// caller goes on, and the operator's log says so.
func (l *Log) Append(r Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errs.New(errs.Unavailable, "the audit log is closed")
	}
	err := l.append(r)
	if err != nil {
		if l.missed.Add(1) == 1 {
			l.c.Log.Error("the audit log cannot be written", "error", err)
		}
	}
	return err
}

// Later writes a record soon, and does not wait for the disk: for callers that hold a lock.
// What has to wait behind too many others is missed, which a record tells; kill -9 loses what
// waits.
func (l *Log) Later(r Record) {
	if r.Time.IsZero() {
		r.Time = l.c.Now()
	}
	select {
	case l.later <- r:
	default:
		l.missed.Add(1)
	}
}

// drain writes what was left for later, and at the end all that is left.
func (l *Log) drain() {
	for {
		select {
		case r := <-l.later:
			_ = l.Append(r) // it tells of what it misses
		case <-l.stop:
			for {
				select {
				case r := <-l.later:
					_ = l.Append(r)
				default:
					l.mu.Lock()
					_ = l.tellMissed() // the next server tells nothing of it
					l.mu.Unlock()
					return
				}
			}
		}
	}
}

// append writes a record, after what is to be told before it. Precondition: l.mu is held.
func (l *Log) append(r Record) error {
	if err := l.tellMissed(); err != nil {
		return err
	}
	if err := l.write(r); err != nil {
		return err
	}
	if l.size < l.c.FileBytesMax {
		return nil
	}
	return l.rotate()
}

// tellMissed writes how many records were not written. Precondition: l.mu is held.
func (l *Log) tellMissed() error {
	n := l.missed.Load()
	if n == 0 {
		return nil
	}
	err := l.write(Record{Who: self, What: missed, Detail: map[string]string{"records": strconv.FormatUint(n, 10)}})
	if err == nil {
		l.missed.Add(-n)
	}
	return err
}

func (l *Log) write(r Record) error {
	if l.f == nil {
		if err := l.create(); err != nil {
			return err
		}
	}
	r = r.bounded()
	r.N, r.Node = l.n+1, l.c.Node
	if r.Time.IsZero() {
		r.Time = l.c.Now()
	}
	r.Time = r.Time.UTC()
	line, s, err := r.encode(l.last)
	if err != nil {
		return err
	}
	if _, err := l.f.Write(line); err != nil {
		if terr := l.f.Truncate(l.size); terr != nil { // half a line must not stay before another one
			_ = l.f.Close()
			l.f = nil
		}
		return errs.Wrap(errs.Unavailable, err, "the audit log cannot be written")
	}
	l.n, l.last, l.size = r.N, s, l.size+int64(len(line))
	return nil
}

// rotate begins the next file and removes the oldest ones beyond the bound.
func (l *Log) rotate() error {
	old := l.f
	if err := l.f.Sync(); err != nil {
		return errs.Wrap(errs.Unavailable, err, "the audit log cannot be written")
	}
	l.f = nil
	_ = old.Close()
	if err := l.create(); err != nil {
		return err
	}
	list, err := files(l.c.Dir)
	if err != nil {
		return err
	}
	total, drop := int64(0), 0
	for i, f := range slices.Backward(list) {
		if total += f.size; total > l.c.BytesMax && i < len(list)-1 {
			drop = i + 1
			break
		}
	}
	if drop == 0 || l.readers > 0 { // the next time
		return nil
	}
	err = l.write(Record{Who: self, What: removed, Detail: map[string]string{"through": strconv.FormatUint(list[drop].first-1, 10)}})
	for _, f := range list[:drop] {
		if err == nil {
			err = os.Remove(f.path)
		}
	}
	return err
}

// sync writes what is new to the disk, now and then.
func (l *Log) sync() {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		if err := l.flush(); err != nil {
			l.c.Log.Warn("the audit log is not on the disk yet", "error", err)
		}
	}
}

// flush writes to the disk what was appended, and then its hash to the store, which so never
// knows more than the files.
func (l *Log) flush() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	f, now := l.f, Head{l.n, l.last.String()}
	l.mu.Unlock()
	if f == nil || now.N == l.saved {
		return nil
	}
	if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // a file that is over was synced then
		return errs.Wrap(errs.Unavailable, err, "the audit log cannot be written")
	}
	if err := l.writeHead(now); err != nil {
		return err
	}
	l.saved = now.N
	return nil
}

// tail is the log as it is now, for a reader; until done no file is removed.
func (l *Log) tail() (list []file, head Head, done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if list, err = files(l.c.Dir); err != nil {
		return nil, head, nil, err
	}
	l.readers++
	return list, Head{l.n, l.last.String()}, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.readers--
	}, nil
}

// Export writes the log as it is to w, one file after the other. Verify reads it.
func (l *Log) Export(ctx context.Context, w io.Writer) error {
	list, _, done, err := l.tail()
	if err != nil {
		return err
	}
	defer done()
	for _, f := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f.read(func(r io.Reader) error {
			_, err := io.Copy(w, r)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// read gives visit the file as large as it was.
func (f file) read(visit func(io.Reader) error) error {
	in, err := os.Open(f.path)
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "the audit log cannot be read")
	}
	defer in.Close()
	return visit(io.LimitReader(in, f.size))
}

// lines visits those of r, without their ends; what is too long is cut, and whole says so, as
// of a last one without an end.
func lines(r io.Reader, visit func(line []byte, whole bool) error) error {
	in := bufio.NewReaderSize(r, lineBytesMax)
	for {
		line, err := in.ReadSlice('\n')
		whole := err == nil
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if len(line) > 0 {
			if verr := visit(bytes.TrimSuffix(line, []byte("\n")), whole); verr != nil {
				return verr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
