package object

import (
	"os"
	"slices"

	"github.com/skete-dev/skete/errs"
)

// sparse is the share of live bytes below which a segment is rewritten.
const sparse = 0.5

// Compact drops the objects for which live is false and gives the space of
// segments that are less than half alive back. It works on one segment after
// the other, so it never takes more than one segment of further space; Put and
// Get go on meanwhile. Objects that are put while it works are kept: the caller
// makes sure that live knows every object that a revision will name, or that no
// revision is made from objects found by Has before.
//
// A crash leaves each object at least once.
func (s *Store) Compact(live func(Hash) bool) (freed int64, err error) {
	before := s.Bytes()
	s.forget(live)
	for _, number := range s.sparseSegments() {
		if err := s.rewrite(number); err != nil {
			return before - s.Bytes(), err
		}
	}
	return before - s.Bytes(), nil
}

// forget takes dead objects of closed segments out of the index. Those of the
// last segment may be younger than the caller's picture of what lives.
func (s *Store) forget(live func(Hash) bool) {
	s.mu.RLock()
	var dead []Hash
	for h, p := range s.index {
		if p.segment != s.last.number && !live(h) {
			dead = append(dead, h)
		}
	}
	s.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range dead {
		p, ok := s.index[h]
		if !ok || p.segment == s.last.number {
			continue
		}
		delete(s.index, h)
		s.segments[p.segment].live -= p.length()
	}
}

func (s *Store) sparseSegments() (numbers []uint32) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for n, seg := range s.segments {
		if seg != s.last && float64(seg.live) < sparse*float64(seg.size) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// rewrite appends what lives in a segment to the last one and removes it.
func (s *Store) rewrite(number uint32) error {
	for _, h := range s.in(number) {
		record, p, err := s.read(h)
		if errs.Is(err, errs.NotFound) || err == nil && p.segment != number {
			continue
		}
		if err != nil {
			return err
		}
		head, err := parseHeader(record)
		if err == nil {
			_, err = head.open(record[recordHeader:])
		}
		if err != nil {
			return errs.Wrap(errs.Corrupt, err, "object %s is damaged", h)
		}
		if err := s.move(h, p, record); err != nil {
			return err
		}
	}
	if err := s.Sync(); err != nil { // before the old place goes
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seg := s.segments[number]
	delete(s.segments, number)
	s.bytes -= seg.size
	_ = seg.file.Close()
	if err := os.Remove(s.path(number)); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// in lists the objects of a segment, in the order of their places.
func (s *Store) in(number uint32) []Hash {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var hashes []Hash
	for h, p := range s.index {
		if p.segment == number {
			hashes = append(hashes, h)
		}
	}
	slices.SortFunc(hashes, func(a, b Hash) int { return int(int64(s.index[a].at) - int64(s.index[b].at)) })
	return hashes
}

func (s *Store) move(h Hash, p place, record []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.index[h]; !ok || now != p {
		return nil
	}
	delete(s.index, h)
	s.segments[p.segment].live -= p.length()
	limit := s.c.BytesMax
	s.c.BytesMax = 0 // it moves, it does not grow
	err := s.add(h, p.kind, record)
	s.c.BytesMax = limit
	if err != nil && s.segments[p.segment] != nil {
		s.point(h, p, s.segments[p.segment])
	}
	return err
}

// Problem is a damage that Check found.
type Problem struct {
	Hash Hash
	Err  error
}

// Check reads every object and returns those that are damaged.
func (s *Store) Check() (problems []Problem, objects int) {
	s.mu.RLock()
	hashes := make(map[Hash]Kind, len(s.index))
	for h, p := range s.index {
		hashes[h] = p.kind
	}
	s.mu.RUnlock()
	for h, kind := range hashes {
		if _, err := s.Get(kind, h); err != nil {
			problems = append(problems, Problem{h, err})
		}
	}
	return problems, len(hashes)
}
