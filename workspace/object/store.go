package object

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

const (
	segmentBytesDefault = 64 << 20
	bufferBytes         = 1 << 20 // that wait to be written
)

// Config of a Store.
type Config struct {
	SegmentBytes int64 // at which a new segment begins; 0 = 64 MiB
	// BytesMax bounds the store; 0 = none.
	BytesMax int64
}

// place is where an object stands.
type place struct {
	segment uint32
	at      uint32 // of the header
	stored  uint32
	kind    Kind
}

func (p place) length() int64 { return recordHeader + int64(p.stored) }

// segment is one file.
type segment struct {
	number uint32
	file   *os.File
	size   int64 // with what waits in the buffer
	live   int64 // bytes of records that the index points to
}

// ErrFull is the cause of a Limit that there is no room for an object.
var ErrFull = errors.New("the history is full")

// Store is a directory of segments.
type Store struct {
	dir string
	c   Config

	mu       sync.RWMutex // guards all below
	index    map[Hash]place
	segments map[uint32]*segment
	last     *segment
	buffer   []byte // of last, not yet written
	dirty    bool   // written, not yet synced
	bytes    int64
	failed   error // a write that failed: what is on disk is not known any more
	again    bool  // it is known: the disk was full, and Retry may go on
}

// Open opens the store in dir, making it if need be. Corrupt: a segment is
// damaged elsewhere than at the end of the last one.
func Open(dir string, c Config) (*Store, error) {
	if c.SegmentBytes <= 0 || c.SegmentBytes > 1<<31 {
		c.SegmentBytes = segmentBytesDefault
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, c: c, index: map[Hash]place{}, segments: map[uint32]*segment{}}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) path(number uint32) string { return filepath.Join(s.dir, segmentName(number)) }

func segmentName(number uint32) string { return fmt.Sprintf("%08d.seg", number) }

func segmentNumber(name string) (n uint32, ok bool) {
	_, err := fmt.Sscanf(name, "%08d.seg", &n)
	return n, err == nil && name == segmentName(n)
}

func (s *Store) load() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var numbers []uint32
	for _, e := range entries {
		if n, ok := segmentNumber(e.Name()); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		if err := s.loadSegment(n, i == len(numbers)-1); err != nil {
			return err
		}
	}
	if s.last == nil {
		return s.roll()
	}
	return nil
}

// loadSegment reads the headers of a segment. In the last one the payloads are
// looked at too, since a power cut may have left holes.
func (s *Store) loadSegment(number uint32, last bool) error {
	f, err := os.OpenFile(s.path(number), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	seg := &segment{number: number, file: f}
	s.segments[number] = seg
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var head [segmentHeader]byte
	if _, err := f.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !validSegment(head[:], number) {
		begun, err := neverBegun(f, info.Size())
		if err != nil {
			return err
		}
		if !last || !begun {
			return errs.New(errs.Corrupt, "segment %d of the history is damaged at its head", number)
		}
		if err := f.Truncate(0); err != nil {
			return err
		}
		if _, err := f.WriteAt(segmentHead(number), 0); err != nil {
			return err
		}
		info, _ = f.Stat()
	}
	end, err := s.scan(seg, info.Size(), last)
	if err != nil {
		return err
	}
	if end < info.Size() {
		torn := false
		if last {
			if torn, err = tornAt(f, end, info.Size()); err != nil {
				return err
			}
		}
		if !torn {
			return errs.New(errs.Corrupt, "segment %d of the history is damaged at byte %d", number, end)
		}
		if err := f.Truncate(end); err != nil {
			return err
		}
	}
	seg.size = end
	s.bytes += end
	if last {
		s.last = seg
	}
	return nil
}

func segmentHead(number uint32) []byte {
	return binary.LittleEndian.AppendUint64([]byte(segmentMagic), uint64(number))
}

func validSegment(head []byte, number uint32) bool {
	return string(head) == string(segmentHead(number))
}

// scan adds the records of a segment to the index and returns where the last
// whole one ends.
func (s *Store) scan(seg *segment, size int64, payloads bool) (int64, error) {
	var head [recordHeader]byte
	at := int64(segmentHeader)
	for at+recordHeader <= size {
		if _, err := seg.file.ReadAt(head[:], at); err != nil {
			return 0, err
		}
		h, err := parseHeader(head[:])
		if err != nil || at+recordHeader+int64(h.stored) > size {
			return at, nil
		}
		if payloads {
			payload := make([]byte, h.stored)
			if _, err := seg.file.ReadAt(payload, at+recordHeader); err != nil {
				return 0, err
			}
			if _, err := h.open(payload); err != nil {
				return at, nil
			}
		}
		p := place{segment: seg.number, at: uint32(at), stored: h.stored, kind: h.kind}
		s.point(h.hash, p, seg)
		at += p.length()
	}
	return at, nil
}

// point makes the index point to p; an earlier place is dead from then on.
//
// Preconditions: s.mu is held, or the store is being opened.
func (s *Store) point(h Hash, p place, seg *segment) {
	if old, ok := s.index[h]; ok {
		s.segments[old.segment].live -= old.length()
	}
	s.index[h] = p
	seg.live += p.length()
}

// roll begins a new segment.
//
// Preconditions: s.mu is held, the buffer is empty.
func (s *Store) roll() error {
	number := uint32(1)
	if s.last != nil {
		number = s.last.number + 1
		if err := unix.Fdatasync(int(s.last.file.Fd())); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(s.path(number), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(segmentHead(number), 0); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err := syncDir(s.dir); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	s.last = &segment{number: number, file: f, size: segmentHeader}
	s.segments[number] = s.last
	s.bytes += segmentHeader
	s.dirty = true
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Has reports whether the store has an object.
func (s *Store) Has(h Hash) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.index[h]
	return ok
}

// Length is what an object takes in the store; 0: it is not there.
func (s *Store) Length(h Hash) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p, ok := s.index[h]; ok {
		return p.length()
	}
	return 0
}

// Limit sets Config.BytesMax anew.
func (s *Store) Limit(bytesMax int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c.BytesMax = bytesMax
}

// Bytes is what all segments take on disk.
func (s *Store) Bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.bytes
}

// Put adds an object that is not there yet; it is on disk after Sync. The
// content may be changed afterwards. Limit: the store, or the disk, is full.
func (s *Store) Put(kind Kind, content []byte) (Hash, error) {
	if len(content) > ContentBytesMax {
		return Hash{}, errs.New(errs.Invalid, "an object has at most %d bytes", ContentBytesMax)
	}
	h := HashOf(kind, content)
	if s.Has(h) {
		return h, nil
	}
	record := seal(kind, h, content)
	s.mu.Lock()
	defer s.mu.Unlock()
	return h, s.add(h, kind, record)
}

// add appends a record.
//
// Preconditions: s.mu is held.
func (s *Store) add(h Hash, kind Kind, record []byte) error {
	if _, ok := s.index[h]; ok {
		return nil
	}
	if s.failed != nil {
		return s.failed
	}
	if s.c.BytesMax > 0 && s.bytes+int64(len(record)) > s.c.BytesMax {
		return errs.Wrap(errs.Limit, ErrFull, "the history has no room for more (%d MiB)", s.c.BytesMax>>20)
	}
	if s.last.size+int64(len(record)) > s.c.SegmentBytes && s.last.size > segmentHeader {
		if err := s.flush(); err != nil {
			return err
		}
		if err := s.roll(); full(err) {
			return s.unbuffer(err)
		} else if err != nil {
			return s.fail(err)
		}
	}
	if len(s.buffer)+len(record) > bufferBytes {
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.buffer = append(s.buffer, record...)
	p := place{segment: s.last.number, at: uint32(s.last.size), stored: uint32(len(record) - recordHeader), kind: kind}
	s.last.size += int64(len(record))
	s.bytes += int64(len(record))
	s.point(h, p, s.last)
	return nil
}

// fail remembers that the disk refused a write. Objects that were only in the
// buffer would be believed to be there; so nothing is added any more.
//
// Preconditions: s.mu is held.
func (s *Store) fail(err error) error {
	class := errs.Internal
	if full(err) {
		class = errs.Limit
	}
	s.failed = errs.Wrap(class, err, "the history cannot be written")
	return s.failed
}

func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// unbuffer forgets what waits in the buffer, for which the disk has no room.
// Who has put it must not believe that it is there: the store is stopped until
// Retry.
//
// Preconditions: s.mu is held.
func (s *Store) unbuffer(cause error) error {
	written := s.last.size - int64(len(s.buffer))
	if err := s.last.file.Truncate(written); err != nil {
		return s.fail(errors.Join(cause, err))
	}
	for h, p := range s.index {
		if p.segment == s.last.number && int64(p.at) >= written {
			delete(s.index, h)
			s.last.live -= p.length()
		}
	}
	s.bytes -= int64(len(s.buffer))
	s.last.size, s.buffer = written, s.buffer[:0]
	s.failed, s.again = errs.Wrap(errs.Limit, errors.Join(ErrFull, cause), "the disk that keeps the history is full"), true
	return s.failed
}

// Retry lets a store go on that a full disk has stopped. What was put since
// the last Sync may be lost.
//
// Preconditions: no caller relies on what was put since.
func (s *Store) Retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.again {
		s.failed, s.again = nil, false
	}
}

// flush writes the buffer.
//
// Preconditions: s.mu is held.
func (s *Store) flush() error {
	if s.failed != nil {
		return s.failed
	}
	if len(s.buffer) == 0 {
		return nil
	}
	if _, err := s.last.file.WriteAt(s.buffer, s.last.size-int64(len(s.buffer))); err != nil {
		if full(err) {
			return s.unbuffer(err)
		}
		return s.fail(err)
	}
	s.buffer = s.buffer[:0]
	s.dirty = true
	return nil
}

// Sync brings all that was put to disk.
func (s *Store) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.flush(); err != nil {
		return err
	}
	if !s.dirty {
		return nil
	}
	if err := unix.Fdatasync(int(s.last.file.Fd())); err != nil {
		return s.fail(err)
	}
	s.dirty = false
	return nil
}

// Get returns an object's content. NotFound: it is not there, or of another
// kind. Corrupt: it is damaged.
func (s *Store) Get(kind Kind, h Hash) ([]byte, error) {
	for {
		record, p, err := s.read(h)
		if err != nil {
			return nil, err
		}
		if p.kind != kind {
			return nil, errs.New(errs.NotFound, "object %s is of another kind", h)
		}
		head, err := parseHeader(record)
		if err != nil || head.hash != h {
			if s.moved(h, p) {
				continue
			}
			return nil, errs.New(errs.Corrupt, "object %s is damaged", h)
		}
		return head.open(record[recordHeader:])
	}
}

// moved reports whether a compaction has moved the object since p was read.
func (s *Store) moved(h Hash, p place) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now, ok := s.index[h]
	return ok && now != p
}

// read returns a record as it is stored.
func (s *Store) read(h Hash) ([]byte, place, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, ok := s.index[h]
	if !ok {
		return nil, p, errs.New(errs.NotFound, "the history has no object %s", h)
	}
	record := make([]byte, p.length())
	seg := s.segments[p.segment]
	if written := s.last.size - int64(len(s.buffer)); seg == s.last && int64(p.at) >= written {
		copy(record, s.buffer[int64(p.at)-written:])
		return record, p, nil
	}
	if _, err := seg.file.ReadAt(record, int64(p.at)); err != nil {
		return nil, p, errs.Wrap(errs.Corrupt, err, "object %s cannot be read", h)
	}
	return record, p, nil
}

// Close closes the files. What was not synced may be lost.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.last != nil && s.failed == nil {
		err = s.flush()
	}
	for _, seg := range s.segments {
		err = errors.Join(err, ignoreClosed(seg.file.Close()))
	}
	s.failed = errs.New(errs.Unavailable, "the history is closed")
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}
