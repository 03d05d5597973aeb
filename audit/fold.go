package audit

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/skete-dev/skete/event"
)

const (
	foldEvery    = time.Minute
	foldKindsMax = 32 // of a tenant, that are told apart in that time
	timesDetail  = "times"
	sinceDetail  = "since"
)

// Fold takes a record of what its tenant can make happen as often as it likes, such as a
// call that is refused, and reports whether the log has it: then it is written within a
// minute, one for all that are alike, with their number. Else the caller appends it: so it is
// with 30 of a tenant at once, and one a second in the long run. Records of a tenant are alike
// that have one kind and one What. It does not wait for the disk; kill -9 loses what waits.
func (l *Log) Fold(kind string, r Record) bool {
	now := l.c.Now()
	if r.Time.IsZero() {
		r.Time = now
	}
	return l.folds.add(now, kind, r)
}

// folds are the records of all tenants that wait to be written as one.
type folds struct {
	mu     sync.Mutex
	of     map[string]*tenantFolds
	closed bool
}

type tenantFolds struct {
	pace  event.Pace
	seen  time.Time
	kinds map[[2]string]*folded
}

// folded is the newest of several records.
type folded struct {
	Record
	times int
	since time.Time
}

func (f *folds) add(now time.Time, kind string, r Record) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.of[r.Tenant]
	if t == nil {
		t = &tenantFolds{kinds: map[[2]string]*folded{}}
		f.of[r.Tenant] = t
	}
	if t.seen = now; f.closed || t.pace.Allow(now) {
		return false
	}
	key := [2]string{r.What, kind}
	if t.kinds[key] == nil && len(t.kinds) >= foldKindsMax {
		key, r = [2]string{}, Record{Time: r.Time, Tenant: r.Tenant, Who: self, What: flooded}
	}
	one := t.kinds[key]
	if one == nil {
		one = &folded{since: r.Time}
		t.kinds[key] = one
	}
	one.Record = r.bounded()
	one.times++
	return true
}

// take returns what waits, the oldest first, and forgets it, and tenants that are quiet.
func (f *folds) take(now time.Time) (list []Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for tenant, t := range f.of {
		for _, one := range t.kinds {
			if one.times > 1 || one.What == flooded {
				one.Detail[timesDetail] = strconv.Itoa(one.times)
				one.Detail[sinceDetail] = one.since.UTC().Format(time.RFC3339)
			}
			list = append(list, one.Record)
		}
		clear(t.kinds)
		if now.Sub(t.seen) >= foldEvery { // its pace is as good as new
			delete(f.of, tenant)
		}
	}
	slices.SortFunc(list, func(a, b Record) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.What, b.What), cmp.Compare(a.On, b.On))
	})
	return list
}

// end returns what waits, and lets nothing wait from now on.
func (f *folds) end(now time.Time) []Record {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	return f.take(now)
}

// unfold writes what waits, now and then, and at the end.
func (l *Log) unfold() {
	write := func(list []Record) {
		for _, r := range list {
			_ = l.Append(r) // it tells of what it misses
		}
	}
	tick := time.NewTicker(foldEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			write(l.folds.take(l.c.Now()))
		case <-l.stop:
			write(l.folds.end(l.c.Now()))
			return
		}
	}
}
