package object

import (
	"cmp"
	"context"
	"os"
	"slices"

	"github.com/skete-dev/skete/errs"
)

// Shares of live bytes: below sparse a segment is rewritten, above dense it is
// not even if space is short. The last segment is closed for it from
// 1/closeShare of its size on.
const (
	sparse     = 0.5
	dense      = 0.95
	closeShare = 16
)

var errFull error = errs.Wrap(errs.Limit, ErrFull, "the disk that keeps the history is full")

// Compact drops the objects for which live is false and gives the space of
// segments that are less than half alive back. It works on one segment after
// the other, so it never takes more than one segment of further space; Put and
// Get go on meanwhile. Objects that are put while it works are kept: the caller
// makes sure that live knows every object that a revision will name, or that no
// revision is made from objects found by Has before.
//
// A crash leaves each object at least once.
func (s *Store) Compact(live func(Hash) bool) (freed int64, err error) {
	s.mu.RLock()
	last := s.last.number // what is in it may be younger than the caller's picture
	s.mu.RUnlock()
	s.forget(last, live)
	return s.Shrink(context.Background(), 0, nil)
}

// Drop takes the objects for which live is false out of the store; Shrink gives
// their space back. An object that was dropped is back after Open, until the
// space is: that it is there does not mean that what it names is.
//
// Preconditions: no goroutine calls Put meanwhile, or relies on what Has said
// before.
func (s *Store) Drop(live func(Hash) bool) { s.forget(0, live) }

// forget takes dead objects out of the index, but for one segment's.
func (s *Store) forget(but uint32, live func(Hash) bool) {
	s.mu.RLock()
	var dead []Hash
	for h, p := range s.index {
		if p.segment != but && !live(h) {
			dead = append(dead, h)
		}
	}
	s.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range dead {
		p, ok := s.index[h]
		if !ok || p.segment == but {
			continue
		}
		delete(s.index, h)
		s.segments[p.segment].live -= p.length()
	}
}

// Shrink rewrites segments that are less than half alive, and then, as long as
// the store takes more than bytesMax, those with the most to give; 0 = no
// matter. Put and Get go on meanwhile. stage is told where it is, for tests
// that die there; it may be nil.
func (s *Store) Shrink(ctx context.Context, bytesMax int64, stage func(string)) (freed int64, err error) {
	before := s.Bytes()
	if err := s.closeSparse(); err != nil {
		return 0, err
	}
	done := map[uint32]bool{}
	for err == nil {
		number, share := s.sparsest(done)
		if number == 0 || share >= sparse && (bytesMax <= 0 || s.Bytes() <= bytesMax || share > dense) {
			break
		}
		done[number] = true
		if err = ctx.Err(); err == nil {
			err = s.rewrite(number, stage)
		}
	}
	return before - s.Bytes(), err
}

// closeSparse begins a new segment if the last one has much to give.
func (s *Store) closeSparse() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	if s.last.size < s.c.SegmentBytes/closeShare || float64(s.last.live) >= sparse*float64(s.last.size) {
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.roll()
}

// sparsest is the closed segment with the smallest share of live bytes, among
// those that are not done; 0 = there is none.
func (s *Store) sparsest(done map[uint32]bool) (number uint32, share float64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for n, seg := range s.segments {
		x := float64(seg.live) / float64(max(seg.size, 1))
		if seg != s.last && !done[n] && (number == 0 || x < share || x == share && n < number) {
			number, share = n, x
		}
	}
	return number, share
}

// rewrite appends what lives in a segment to the last one and removes it.
func (s *Store) rewrite(number uint32, stage func(string)) error {
	places := map[Hash]place{} // where they were
	err := s.copyOut(number, places)
	if err == nil {
		if stage != nil {
			stage("moved")
		}
		err = s.Sync() // before the old place goes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seg := s.segments[number]
	for h, p := range places {
		if _, ok := s.index[h]; !ok { // a full disk: it is where it was
			s.point(h, p, seg)
			err = cmp.Or(err, errFull)
		}
	}
	if err != nil {
		return err
	}
	delete(s.segments, number)
	s.bytes -= seg.size
	_ = seg.file.Close()
	if err := os.Remove(s.path(number)); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// copyOut appends what lives in a segment to the last one.
func (s *Store) copyOut(number uint32, places map[Hash]place) error {
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
		places[h] = p
		if err := s.move(h, p, record); err != nil {
			return err
		}
	}
	return nil
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
