package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// SweepGrace is how old a blob must be before a Sweep may take it: a blob is
// written before the event that names it.
const SweepGrace = 24 * time.Hour

// RetainLabel is the label of a thread that overrides how long it is kept after
// its last event: a Go duration ("720h"), or "forever".
const RetainLabel = "skete.retain"

// SweptBlobs says what a Sweep found.
type SweptBlobs struct {
	Threads, Blobs int   // that there are
	Removed        int   // blobs
	Bytes          int64 // of removed blobs
	Orphans        int   // threads whose root is gone, which were deleted
}

// Sweep removes the blobs of a tenant that nothing names and that are older
// than grace (0 = SweepGrace). A blob is kept if its hash stands anywhere in an
// event, in a record (as JSON or text), or in a blob of JSON that is kept.
// Corrupt: a log cannot be read; then nothing is removed.
//
// It also deletes sub-agents' threads that a crash left without their root.
func (t *Threads) Sweep(ctx context.Context, tenant string, grace time.Duration, records ...ThreadRecords) (SweptBlobs, error) {
	if grace <= 0 {
		grace = SweepGrace
	}
	l, b, err := t.both(ctx, tenant)
	if err != nil {
		return SweptBlobs{}, err
	}
	before := time.Now().Add(-grace)
	var done SweptBlobs
	sizes := map[string]int64{} // of candidates
	err = b.dir.Walk(func(hash string, size int64, changed time.Time) error {
		if done.Blobs++; changed.Before(before) {
			sizes[hash] = size
		}
		return ctx.Err()
	})
	if err != nil {
		return done, fmt.Errorf("look at the blobs of %q: %w", tenant, err)
	}
	if done.Threads, done.Orphans, err = orphans(ctx, l, before); err != nil {
		return done, err
	}
	if len(sizes) == 0 {
		return done, nil
	}
	// Marking takes a candidate out of the sizes.
	m := marker{b: b, sizes: sizes}
	if err := m.marks(ctx, l, records); err != nil {
		return done, err
	}
	for hash, size := range sizes {
		removed, err := b.dir.Remove(hash, before)
		if err != nil {
			return done, errs.Wrap(errs.Internal, err, "cannot remove a blob")
		}
		if removed {
			done.Removed++
			done.Bytes += size
		}
	}
	return done, nil
}

func (t *Threads) both(ctx context.Context, tenant string) (*ThreadLog, *blobs, error) {
	l, err := t.log(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	b, err := t.openBlobs(tenant)
	return l, b, err
}

// orphans counts the threads, and deletes those that crashed deletions and
// openings left behind.
func orphans(ctx context.Context, l *ThreadLog, before time.Time) (threads, deleted int, err error) {
	roots := map[thread.ID]bool{}
	for id, err := range l.List(ctx, "") {
		if err != nil {
			return threads, deleted, err
		}
		if threads++; id.Depth() == 0 {
			roots[id] = true // a root comes before what is beneath it
			continue
		}
		if roots[id.Root()] {
			continue
		}
		r, err := l.Newest(ctx, id)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return threads, deleted, err
		}
		if err == nil && r.Time.Before(before) {
			if err := l.Delete(ctx, id); err != nil {
				return threads, deleted, err
			}
			deleted++
		}
	}
	return threads, deleted, nil
}

// marker takes what is named out of the candidates. Anything that looks like a
// hash counts: keeping too much is cheap, and no kind of event can be forgotten.
type marker struct {
	b     *blobs
	sizes map[string]int64 // of candidates
	seen  map[string]bool  // blobs of JSON that were looked into
}

func (m *marker) marks(ctx context.Context, l *ThreadLog, records []ThreadRecords) error {
	m.seen = map[string]bool{}
	for id, err := range l.List(ctx, "") {
		if err != nil {
			return err
		}
		err = l.Records(ctx, id, func(r threadRecord) error { return m.content(ctx, r.Data) })
		if err != nil && !errs.Is(err, errs.NotFound) {
			return fmt.Errorf("look for blobs of %s: %w", id, err)
		}
	}
	for _, r := range records {
		err := r.Keys.List(ctx, r.Prefix, func(_ string, value []byte, _ uint64) error { return m.content(ctx, value) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *marker) content(ctx context.Context, content []byte) error {
	for hash := range hashes(content) {
		delete(m.sizes, hash)
		if err := m.blob(ctx, hash); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// blob looks into a blob: a message that was too large for its event is one, of
// JSON, and may name others.
func (m *marker) blob(ctx context.Context, hash string) error {
	if m.seen[hash] {
		return nil
	}
	m.seen[hash] = true
	var first [1]byte
	n, _, _ := m.b.dir.ReadAt(hash, first[:], 0)
	if n == 0 || first[0] != '{' && first[0] != '[' {
		return nil // no JSON; or no blob: not everything that looks like a hash names one
	}
	content, err := m.b.dir.Get(hash)
	if errs.Is(err, errs.Corrupt) || errs.Is(err, errs.NotFound) {
		return nil // Fsck's business
	}
	if err != nil {
		return err
	}
	return m.content(ctx, content)
}

const hashLen = 64

// hashes yields everything in b that looks like a hash: 64 hexadecimal digits
// with none before or behind them.
func hashes(b []byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for start := 0; start < len(b); {
			n := 0
			for start+n < len(b) && isHex(b[start+n]) {
				n++
			}
			if n == hashLen && !yield(string(b[start:start+n])) {
				return
			}
			start += n + 1
		}
	}
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

// Retain deletes the threads of a tenant whose last event, and that of every
// thread beneath, is older than maxAge, and returns their ids. 0 = only those
// whose label RetainLabel says so.
func (t *Threads) Retain(ctx context.Context, tenant string, maxAge time.Duration) ([]thread.ID, error) {
	l, err := t.log(ctx, tenant)
	if err != nil {
		return nil, err
	}
	newest := map[thread.ID]time.Time{}
	for id, err := range l.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		r, err := l.Newest(ctx, id)
		if errs.Is(err, errs.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if root := id.Root(); newest[root].Before(r.Time) {
			newest[root] = r.Time
		}
	}
	var deleted []thread.ID
	for root, last := range newest {
		age, err := retention(ctx, l, root, maxAge)
		if err != nil {
			return deleted, err
		}
		if age == 0 || time.Since(last) < age {
			continue
		}
		if err := l.Delete(ctx, root); err != nil {
			return deleted, err
		}
		deleted = append(deleted, root)
	}
	return deleted, nil
}

// retention is how long a thread is kept; 0 = for ever.
func retention(ctx context.Context, l *ThreadLog, id thread.ID, maxAge time.Duration) (time.Duration, error) {
	r, err := l.Oldest(ctx, id)
	if errs.Is(err, errs.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	events, err := r.Events(id, 1)
	if err != nil {
		return 0, err
	}
	opened, _ := events[0].Body.(thread.Opened)
	label := opened.Labels[RetainLabel]
	if label == "forever" {
		return 0, nil
	}
	if age, err := time.ParseDuration(label); err == nil && age > 0 {
		return age, nil
	}
	return maxAge, nil // also for a label that says nothing sensible
}

// ThreadProblem is something that Fsck found.
type ThreadProblem struct {
	Thread thread.ID `json:"thread"`
	Event  uint64    `json:"event,omitempty"`    // the last that was well, or the one that names the blob
	Stream uint64    `json:"sequence,omitempty"` // of the record in the stream
	Blob   string    `json:"blob,omitempty"`
	Text   string    `json:"text"`
}

// String is a line for people.
func (p ThreadProblem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: after event %d (stream sequence %d): ", p.Thread, p.Event, p.Stream)
	if p.Blob != "" {
		fmt.Fprintf(&b, "blob %s: ", p.Blob)
	}
	return b.String() + p.Text
}

// CheckedThreads is what Fsck looked at and what it found.
type CheckedThreads struct {
	Threads, Events, Blobs int
	Problems               []ThreadProblem
}

// problemsMax bounds a report.
const problemsMax = 1000

// Fsck checks every log of a tenant (thread.Check) and every blob that an event
// names in a field of its own. It repairs nothing. The error is about looking,
// not about what was found.
func (t *Threads) Fsck(ctx context.Context, tenant string) (CheckedThreads, error) {
	l, b, err := t.both(ctx, tenant)
	if err != nil {
		return CheckedThreads{}, err
	}
	f := fsck{l: l, b: b, seen: map[string]error{}}
	for id, err := range l.List(ctx, "") {
		if err != nil {
			return f.c, err
		}
		f.c.Threads++
		if err := f.thread(ctx, id); err != nil {
			return f.c, err
		}
		if len(f.c.Problems) >= problemsMax {
			break
		}
	}
	return f.c, nil
}

type fsck struct {
	l    *ThreadLog
	b    *blobs
	c    CheckedThreads
	seen map[string]error // what is wrong with a blob
}

func (f *fsck) thread(ctx context.Context, id thread.ID) error {
	var check thread.Checker
	at := ThreadProblem{Thread: id}
	err := f.l.Records(ctx, id, func(r threadRecord) error {
		at.Stream = r.At
		events, err := r.Events(id, at.Event+1)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := check.Add(e); err != nil {
				return err
			}
			at.Event = e.Seq
			f.c.Events++
			if err := f.blobs(ctx, at, e); err != nil {
				return err
			}
		}
		return nil
	})
	if errs.Is(err, errs.NotFound) {
		return nil // deleted meanwhile
	}
	return f.problem(at, err)
}

// problem takes down what is wrong with a thread, and returns what keeps us
// from looking at all.
func (f *fsck) problem(at ThreadProblem, err error) error {
	switch errs.Of(err) {
	case "":
		return nil
	case errs.Corrupt, errs.Unsupported:
		at.Text = errs.Public(err)
		f.c.Problems = append(f.c.Problems, at)
		return nil
	}
	return err
}

// blobs checks those that an event names.
func (f *fsck) blobs(ctx context.Context, at ThreadProblem, e thread.Event) error {
	for _, hash := range e.Blobs() {
		err, seen := f.seen[hash]
		if !seen {
			_, err = f.b.Get(ctx, hash)
			f.seen[hash] = err
			f.c.Blobs++
		}
		switch errs.Of(err) {
		case "":
		case errs.NotFound, errs.Corrupt, errs.Invalid:
			at.Blob, at.Text = hash, errs.Public(err)
			f.c.Problems = append(f.c.Problems, at)
		default:
			return err
		}
	}
	return ctx.Err()
}
