package spool

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of a spool.
const (
	headDefault  = 1 << 20
	tailDefault  = 16 << 20
	segmentBytes = 1 << 20
	bytesMin     = 64 << 10
	BytesMost    = 1 << 30 // that a request may ask for
	readerWait   = 60 * time.Second
)

// Names lists the files of a directory of spools, in no order.
func Names(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// Bounds of one spool.
type Bounds struct{ head, tail, segment int64 }

// BoundsOf splits what a request allows for one stream; 0 = the default.
func BoundsOf(bytesMax int64) Bounds {
	if bytesMax == 0 {
		return Bounds{head: headDefault, tail: tailDefault, segment: segmentBytes}
	}
	bytesMax = min(max(bytesMax, bytesMin), BytesMost)
	b := Bounds{head: min(headDefault, bytesMax/4)}
	b.tail = bytesMax - b.head
	b.segment = min(segmentBytes, b.tail/8)
	return b
}

// Spool keeps one stream: a head file and tail segments, each named by the
// stream offset of its first byte. One goroutine fills it, any number read.
//
// All sizes can be found again from the files (Open), because they only
// grow at their end and segments are removed from the oldest on.
type Spool struct {
	dir, name string
	bounds    Bounds
	used      *atomic.Int64 // bytes of all spools of the core
	// Wait lets the filler wait for readers; set it before the first call.
	Wait bool

	w     *os.File // the file being filled, nil = none; only the filler uses it
	wLeft int64    // room in it

	mu       sync.Mutex
	head     int64   // size of the head file
	segments []int64 // offsets of the tail's files
	size     int64   // of the stream
	eof      bool
	dropped  bool // removed; nothing is kept any more
	furthest int64
	progress time.Time
	changed  chan struct{} // closed at the next change, nil = no goroutine waits
}

func New(dir, name string, b Bounds, used *atomic.Int64) *Spool {
	return &Spool{dir: dir, name: name, bounds: b, used: used, progress: time.Now()}
}

// Open finds a spool's state from its files: names is a listing of dir.
func Open(dir, name string, b Bounds, used *atomic.Int64, names []string) (*Spool, error) {
	s := New(dir, name, b, used)
	for _, n := range names {
		rest, ok := strings.CutPrefix(n, name)
		if !ok {
			continue
		}
		if rest == "" {
			info, err := os.Stat(s.path(-1))
			if err != nil {
				return nil, err
			}
			s.head = info.Size()
			continue
		}
		off, err := strconv.ParseInt(strings.TrimPrefix(rest, "."), 16, 64)
		if rest[0] == '.' && err == nil && off >= 0 {
			s.segments = append(s.segments, off)
		}
	}
	slices.Sort(s.segments)
	s.size = s.head
	if n := len(s.segments); n > 0 {
		info, err := os.Stat(s.path(s.segments[n-1]))
		if err != nil {
			return nil, err
		}
		s.size = s.segments[n-1] + info.Size()
	}
	s.used.Add(s.keptLocked())
	return s, nil
}

// Lost is a spool of which only the size is left.
func Lost(size int64) *Spool {
	return &Spool{size: size, segments: []int64{size}, eof: true, dropped: true}
}

// path of a segment, -1 = the head.
func (s *Spool) path(off int64) string {
	if off < 0 {
		return filepath.Join(s.dir, s.name)
	}
	return filepath.Join(s.dir, fmt.Sprintf("%s.%016x", s.name, off))
}

func (s *Spool) tailStartLocked() int64 {
	if len(s.segments) == 0 {
		return s.head
	}
	return s.segments[0]
}

func (s *Spool) keptLocked() int64 {
	if len(s.segments) == 0 {
		return s.head
	}
	return s.head + s.size - s.segments[0]
}

// Extent says what is kept: [0, head) and [tail, size).
func (s *Spool) Extent() (head, tail, size int64, eof bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	head, tail = s.head, max(s.tailStartLocked(), s.head)
	if len(s.segments) == 0 {
		tail = s.size
	}
	return head, tail, s.size, s.eof
}

// Fill lets move append up to max bytes to f and accounts for what it moved.
// It returns move's results. Only one goroutine may fill, and it must not
// move bytes in any other way.
func (s *Spool) Fill(move func(f *os.File, max int64) (int64, error)) (int64, error) {
	if s.wLeft <= 0 {
		if err := s.roll(); err != nil {
			return 0, err
		}
	}
	n, err := move(s.w, s.wLeft)
	if n > 0 {
		s.wLeft -= n
		s.used.Add(n)
		s.mu.Lock()
		s.size += n
		if len(s.segments) == 0 {
			s.head += n
		}
		s.wakeLocked()
		s.mu.Unlock()
	}
	return n, err
}

// NeedsFile reports whether the next fill opens a file. For the filler only.
func (s *Spool) NeedsFile() bool { return s.wLeft <= 0 }

// roll opens the file that takes the next bytes.
func (s *Spool) roll() error {
	s.closeWriter()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.segments) == 0 && s.head < s.bounds.head && s.size == s.head {
		return s.openWriterLocked(-1, s.bounds.head-s.head)
	}
	if n := len(s.segments); n > 0 { // found again after a restart, not full yet
		if left := s.segments[n-1] + s.bounds.segment - s.size; left > 0 {
			return s.openWriterLocked(s.segments[n-1], left)
		}
	}
	s.trimLocked(s.bounds.tail - s.bounds.segment)
	if err := s.openWriterLocked(s.size, s.bounds.segment); err != nil {
		return err
	}
	s.segments = append(s.segments, s.size)
	return nil
}

func (s *Spool) openWriterLocked(off, left int64) error {
	f, err := os.OpenFile(s.path(off), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, 2); err != nil {
		f.Close()
		return err
	}
	s.w, s.wLeft = f, left
	return nil
}

func (s *Spool) closeWriter() {
	if s.w != nil {
		s.w.Close()
		s.w = nil
	}
	s.wLeft = 0
}

// trimLocked removes the oldest segments until the tail has at most keep bytes.
func (s *Spool) trimLocked(keep int64) {
	for len(s.segments) > 0 && s.size-s.segments[0] > keep {
		end := s.size
		if len(s.segments) > 1 {
			end = s.segments[1]
		}
		_ = os.Remove(s.path(s.segments[0]))
		s.used.Add(s.segments[0] - end)
		s.segments = s.segments[1:]
	}
}

// Shrink gives tail space back. The filler alone may call it.
func (s *Spool) Shrink(keep int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.segments) < 2 {
		return
	}
	last := s.segments[len(s.segments)-1] // being filled: stays
	s.trimLocked(max(keep, s.size-last))
}

// Skip accounts for bytes that the filler threw away because there is no room
// for them: the tail before them goes too, so that the cut stays one.
func (s *Spool) Skip(n int64) {
	s.closeWriter()
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.keptLocked()
	for _, off := range s.segments {
		_ = os.Remove(s.path(off))
	}
	s.segments = nil
	s.used.Add(s.keptLocked() - before)
	s.size += n
	if s.openWriterLocked(s.size, s.bounds.segment) == nil {
		s.segments = append(s.segments, s.size) // an empty file that remembers the size
	}
	s.wakeLocked()
}

// Finish marks the end of the stream.
func (s *Spool) Finish() {
	s.closeWriter()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eof = true
	s.wakeLocked()
}

// Drop removes all that is kept. With mark the size can still be found again
// by Open. Preconditions: the filler does not run.
func (s *Spool) Drop(mark bool) {
	s.closeWriter()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return
	}
	kept := s.keptLocked()
	if mark && s.size > 0 { // first, so that a crash in between only leaves too much
		if f, err := os.OpenFile(s.path(s.size), os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
			f.Close()
		}
	}
	for _, off := range s.segments {
		if off < s.size {
			_ = os.Remove(s.path(off))
		}
	}
	if s.head > 0 {
		_ = os.Remove(s.path(-1))
	}
	s.used.Add(-kept)
	s.head, s.segments, s.dropped = 0, nil, true
	if s.size > 0 {
		s.segments = []int64{s.size}
	}
	s.wakeLocked()
}

// Forget removes every file.
func (s *Spool) Forget() {
	if s.dir == "" {
		return
	}
	s.Drop(false)
	_ = os.Remove(s.path(s.size)) // a mark
}

func (s *Spool) wakeLocked() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Change returns a channel that is closed at the next change.
func (s *Spool) Change() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// MayFill reports whether the next bytes would drop some that no reader has
// had. It is true at once unless the process is to wait for its readers; the
// channel is closed at the next change. Half a tail behind the furthest reader
// is kept, because what was sent may still be lost on its way.
func (s *Spool) MayFill(now time.Time) (bool, <-chan struct{}) {
	if !s.Wait || s.wLeft > 0 {
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ahead := s.size + s.bounds.segment - s.bounds.tail/2
	if len(s.segments) == 0 || s.size+s.bounds.segment-s.segments[0] <= s.bounds.tail || ahead <= s.furthest || now.Sub(s.progress) > readerWait {
		return true, nil
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return false, s.changed
}

// Reader reads a spool from an offset on.
type Reader struct {
	s    *Spool
	Off  int64 // the next byte
	f    *os.File
	base int64 // stream offset of f's first byte
}

// NewReader starts at off; -1 = the present end. Who starts there has what is
// before it, which a restarted supervise has no other way to know.
func (s *Spool) NewReader(off int64) *Reader {
	if off < 0 {
		_, _, off, _ = s.Extent()
	}
	s.noteProgress(off)
	return &Reader{s: s, Off: off}
}

// Next reads what is there into buf. n == 0 and gap == 0: nothing more now.
// gap > 0: the bytes from off to gap were dropped, and off is gap now.
func (r *Reader) Next(buf []byte) (n int, gap int64, err error) {
	want, gap, err := r.seek(int64(len(buf)))
	if want == 0 || gap > 0 || err != nil {
		return 0, gap, err
	}
	n, err = r.f.ReadAt(buf[:want], r.Off-r.base)
	if n > 0 {
		err = nil
		r.Off += int64(n)
		r.s.noteProgress(r.Off)
	}
	return n, 0, err
}

// Change returns a channel that is closed at the next change of the spool.
func (r *Reader) Change() <-chan struct{} { return r.s.Change() }

// seek makes f the file that holds off and says how much of it may be read.
func (r *Reader) seek(most int64) (want, gap int64, err error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Off >= s.size {
		return 0, 0, nil
	}
	file, base, end := int64(-1), int64(0), s.head
	if r.Off >= s.head {
		i := sort.Search(len(s.segments), func(i int) bool { return s.segments[i] > r.Off }) - 1
		if i < 0 {
			r.Off = s.size
			if len(s.segments) > 0 {
				r.Off = s.segments[0]
			}
			return 0, r.Off, nil
		}
		file, base, end = s.segments[i], s.segments[i], s.size
		if i+1 < len(s.segments) {
			end = s.segments[i+1]
		}
	}
	if r.f == nil || r.base != base {
		r.Close()
		if r.f, err = os.Open(s.path(file)); err != nil {
			return 0, 0, err
		}
		r.base = base
	}
	return min(most, end-r.Off), 0, nil
}

func (r *Reader) Close() {
	if r.f != nil {
		r.f.Close()
		r.f = nil
	}
}

// noteProgress wakes a writer that waits for readers.
func (s *Spool) noteProgress(off int64) {
	if !s.Wait {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if off > s.furthest {
		s.furthest, s.progress = off, time.Now()
		s.wakeLocked()
	}
}
