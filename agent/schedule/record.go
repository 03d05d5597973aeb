package schedule

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skete-dev/skete/errs"
)

// This file keeps the records. What is in memory is what the store was last seen to
// have; a writer that was slower than another reads it again.

const (
	recordPrefix = "schedule/"
	changeTries  = 20
)

func recordKey(tenant, name string) string { return recordPrefix + tenant + "/" + name }

// entry is a schedule in memory.
type entry struct {
	times times // never changes

	// The rest is guarded by the Scheduler's lock.
	s        Schedule
	revision uint64
	// busy: a goroutine decides about a time, or starts a run.
	busy  bool
	tries int       // that have failed since the last one that did not
	after time.Time // when the next one is
	gone  bool      // it was removed
}

func parseRecord(value []byte, revision uint64) (*entry, error) {
	e := &entry{revision: revision}
	if err := json.Unmarshal(value, &e.s); err != nil {
		return nil, errs.Wrap(errs.Corrupt, err, "a schedule's record cannot be read")
	}
	var err error
	if e.times, err = e.s.times(e.s.Created); err != nil {
		return nil, errs.Wrap(errs.Corrupt, err, "when the schedule %.64q is due cannot be read", e.s.Name)
	}
	return e, nil
}

func (s *Scheduler) snapshot(e *entry) (Schedule, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.s, e.revision
}

// wrote notes what the store has now.
func (s *Scheduler) wrote(e *entry, record Schedule, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision > e.revision {
		e.s, e.revision = record, revision
	}
}

// dropped notes that the store has no such record any more.
func (s *Scheduler) dropped(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.gone = true
	if of := s.tenants[e.s.Tenant]; of[e.s.Name] == e {
		delete(of, e.s.Name)
		if len(of) == 0 {
			delete(s.tenants, e.s.Tenant)
		}
	}
}

// change changes a record; f may be called several times, each time with what the
// record is then. NotFound: the schedule was removed.
func (s *Scheduler) change(ctx context.Context, e *entry, f func(*Schedule)) (Schedule, error) {
	for range changeTries {
		old, revision := s.snapshot(e)
		record := old
		f(&record)
		value, err := json.Marshal(record)
		if err != nil {
			return old, err
		}
		if was, _ := json.Marshal(old); string(was) == string(value) {
			return old, nil
		}
		key := recordKey(record.Tenant, record.Name)
		revision, err = s.c.Records.Update(ctx, key, value, revision)
		if err == nil {
			s.wrote(e, record, revision)
			return record, nil
		}
		if !errs.Is(err, errs.Conflict) {
			return old, err
		}
		if err := s.reread(ctx, e, old); err != nil {
			return old, err
		}
	}
	return Schedule{}, errs.New(errs.Unavailable, "the record of the schedule keeps changing")
}

// reread takes from the store what another writer has written.
func (s *Scheduler) reread(ctx context.Context, e *entry, known Schedule) error {
	value, revision, err := s.c.Records.Get(ctx, recordKey(known.Tenant, known.Name))
	if errs.Is(err, errs.NotFound) {
		s.dropped(e)
		return notFound(known.Name)
	}
	if err != nil {
		return err
	}
	fresh, err := parseRecord(value, revision)
	if err != nil {
		return err
	}
	if fresh.s.ID != known.ID { // it was removed, and another made of its name
		s.dropped(e)
		return notFound(known.Name)
	}
	s.wrote(e, fresh.s, revision)
	return nil
}

func notFound(name string) error {
	return errs.New(errs.NotFound, "there is no schedule %.64q", name).WithHint("`skete schedule ls` shows them")
}
