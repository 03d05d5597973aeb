package workspace_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/workspace"
)

// noise is content that does not compress.
func noise(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// usage is what a directory's files take, however they change meanwhile.
func usage(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}

// verify restores revisions and compares them with what was there, and lets
// Check look at all of the history.
func (p *place) verify(pictures map[uint64]map[string]string, every int) {
	p.t.Helper()
	revs, err := p.w.Revisions(p.t.Context())
	must(p.t, err)
	for i, r := range revs {
		if want := pictures[r.N]; want != nil && i%every == 0 {
			p.restore(r.N, "")
			if d := cmp.Diff(want, look(p.t, p.dir)); d != "" {
				p.t.Fatalf("revision %d: %s", r.N, d)
			}
		}
	}
	must(p.t, p.w.Close())
	p.check()
	p.open()
}

// 500 revisions, with a history that prunes itself while they are made, never
// take more than the bound, and a segment while one is moved.
func TestPrune_500RevisionsStayUnderTheBound(t *testing.T) {
	const bound, segment = 8 << 20, 1 << 20
	p := newPlace(t)
	must(t, p.w.Close())
	var prunes atomic.Int64
	p.c.SegmentBytes, p.c.Policy = segment, &workspace.Policy{BytesMax: bound}
	p.c.Pruned = func(_ workspace.Pruned, err error) {
		prunes.Add(1)
		if err != nil && !errs.Is(err, errs.Unavailable) {
			t.Error(err)
		}
	}
	p.open()
	for n := range 20 {
		p.write(fmt.Sprintf("dir%d/still", n), noise(uint64(n), 40<<10))
	}
	revisions := 500
	if testing.Short() {
		revisions = 150
	}
	ctx, stop := context.WithCancel(t.Context())
	var most atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			most.Store(max(most.Load(), usage(p.c.Store)))
		}
	})
	pictures := map[uint64]map[string]string{}
	for n := range revisions {
		for i := range 3 {
			p.write(fmt.Sprintf("dir%d/f%d", (n+i)%20, i), noise(uint64(1000+n*3+i), 30<<10))
		}
		pictures[p.snapshot().N] = look(t, p.dir)
	}
	stop()
	wg.Wait()
	revs, err := p.w.Revisions(t.Context())
	must(t, err)
	t.Logf("%d of %d revisions kept, %d prunes, at most %.1f MiB on disk", len(revs), revisions, prunes.Load(), float64(most.Load())/(1<<20))
	if got := most.Load(); got > bound+segment {
		t.Errorf("it took %d bytes, %d are allowed", got, bound)
	}
	if len(revs) < 10 || len(revs) == revisions || prunes.Load() == 0 {
		t.Errorf("%d revisions kept, %d prunes", len(revs), prunes.Load())
	}
	// Each restore is a revision too, and one that is listed now could go for it.
	must(t, p.w.Close())
	p.c.Policy = nil
	p.open()
	p.verify(pictures, 7)
}

// Snapshots, undos, diffs and reads go on while a policy that keeps next to
// nothing is at work; every revision that is still listed is whole.
func TestPrune_concurrentWithEverything(t *testing.T) {
	p := newPlace(t)
	must(t, p.w.Close())
	p.c.SegmentBytes = 256 << 10
	p.open()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var prunes, reads int
	wg.Go(func() {
		for ; ctx.Err() == nil; prunes++ {
			policy := workspace.Policy{All: time.Nanosecond, BytesMax: 2 << 20, Keep: func(r workspace.Revision) bool { return r.N%5 == 0 }}
			if _, err := p.w.Prune(t.Context(), policy); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Go(func() {
		for ; ctx.Err() == nil; reads++ {
			revs, err := p.w.Revisions(t.Context())
			if err != nil || len(revs) == 0 {
				continue
			}
			from, to := revs[0], revs[len(revs)-1]
			if _, err := p.w.Diff(t.Context(), from.N, to.N, workspace.DiffOptions{Hunks: true}); err != nil && !errs.Is(err, errs.NotFound) {
				t.Error(err)
			}
			if err := p.w.Content(t.Context(), from.N, "dir0/f0", io.Discard); err != nil && !errs.Is(err, errs.NotFound) {
				t.Error(err)
			}
		}
	})
	pictures := map[uint64]map[string]string{}
	r := rand.New(rand.NewPCG(1, 1))
	for n := range 80 {
		p.write(fmt.Sprintf("dir%d/f%d", n%4, n%2), noise(uint64(n), 20<<10))
		rev := p.snapshot()
		pictures[rev.N] = look(t, p.dir)
		if n%3 != 2 {
			continue
		}
		revs, err := p.w.Revisions(t.Context())
		must(t, err)
		target := revs[r.IntN(len(revs))]
		plan, err := p.w.PlanRestore(t.Context(), target.N, "")
		if errs.Is(err, errs.NotFound) {
			continue // it was dropped just now
		}
		must(t, err)
		made, _, err := p.w.Apply(t.Context(), plan.ID, workspace.Label{Actor: "user"})
		must(t, err)
		if !maps.Equal(pictures[target.N], look(t, p.dir)) {
			t.Fatalf("restored to %d: %s", target.N, cmp.Diff(pictures[target.N], look(t, p.dir)))
		}
		pictures[made.N] = pictures[target.N]
	}
	stop()
	wg.Wait()
	t.Logf("%d prunes, %d reads", prunes, reads)
	if prunes < 3 || reads < 3 {
		t.Errorf("too few: %d prunes, %d reads", prunes, reads)
	}
	p.verify(pictures, 1)
}

// A revision that was dropped is gone, and so is its space; what the policy
// names stays.
func TestPrune_givesSpaceBack(t *testing.T) {
	p := newPlace(t)
	must(t, p.w.Close())
	open := time.Duration(0)
	p.c.Elapsed = func() time.Duration { return open }
	p.open()
	p.write("still", noise(1, 100<<10))
	for n := range 10 {
		p.write("f", noise(uint64(n), 500<<10))
		p.snapshot()
		open += time.Hour
	}
	before := usage(p.c.Store)
	open += 100 * 24 * time.Hour
	out, err := p.w.Prune(t.Context(), workspace.Policy{Keep: func(r workspace.Revision) bool { return r.N == 4 }})
	must(t, err)
	if out.Dropped != 7 || out.Kept != 3 { // the newest, where undo goes, and 4
		t.Errorf("%+v", out)
	}
	after := usage(p.c.Store)
	if after > 2<<20 || out.Freed < before-after-64<<10 || out.Bytes > after {
		t.Errorf("%d bytes, before %d; %+v", after, before, out)
	}
	if _, err := p.w.PlanRestore(t.Context(), 5, ""); !errs.Is(err, errs.NotFound) {
		t.Errorf("a dropped revision: %v", err)
	}
	if _, err := p.w.PlanRevert(t.Context(), 4, nil); !errs.Is(err, errs.NotFound) {
		t.Errorf("a step whose before was dropped: %v", err)
	}
	must(t, p.w.Close())
	p.open()
	p.restore(4, "")
	if data, err := os.ReadFile(filepath.Join(p.dir, "f")); err != nil || string(data) != noise(3, 500<<10) {
		t.Errorf("revision 4: %d bytes, %v", len(data), err)
	}
	if r := p.snapshot(); r.N != 11 {
		t.Errorf("numbers are used again: %d", r.N)
	}
}

// Fault 11: a clock that is moved by a year, ahead and back, in a process or
// between two, makes nothing old and changes no order. What is really old goes.
func TestPrune_movedClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	p := newPlace(t)
	must(t, p.w.Close())
	wall := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var open atomic.Int64 // in ns; what prunes beside us asks for it
	p.c.Now = func() time.Time { return wall }
	p.c.Elapsed = func() time.Duration { return time.Duration(open.Load()) }
	p.c.Policy = &workspace.Policy{} // prunes by itself too
	p.c.Pruned = func(out workspace.Pruned, err error) {
		if out.Dropped != 0 || err != nil && !errs.Is(err, errs.Unavailable) {
			t.Errorf("%+v, %v", out, err)
		}
	}
	p.open()
	pictures := map[uint64]map[string]string{}
	make10 := func() {
		t.Helper()
		for range 10 {
			n := uint64(len(pictures) + 1)
			p.write("f", fmt.Sprint(n))
			rev := p.snapshot()
			if rev.N != n || !rev.Time.Equal(wall) {
				t.Fatalf("revision %d is %+v", n, rev)
			}
			pictures[n] = look(t, p.dir)
			wall = wall.Add(time.Minute)
			open.Add(int64(time.Minute))
		}
		out, err := p.w.Prune(t.Context(), workspace.Policy{})
		if err != nil || out.Dropped > 0 {
			t.Errorf("%+v, %v", out, err)
		}
		if !p.undo(false) || !maps.Equal(pictures[uint64(len(pictures)-1)], look(t, p.dir)) {
			t.Error("undo went elsewhere than to the one before")
		}
		pictures[uint64(len(pictures)+1)] = look(t, p.dir)
	}
	for _, jump := range []time.Duration{0, year, -year, -40 * year, 40 * year} {
		wall = wall.Add(jump)
		make10()
		must(t, p.w.Close())
		wall = wall.Add(-jump / 2)
		open.Store(0) // another process
		p.open()
		make10()
	}
	revs, err := p.w.Revisions(t.Context())
	must(t, err)
	for i, r := range revs[1:] {
		if r.Clock < revs[i].Clock {
			t.Errorf("the history's clock goes back from %d to %d", revs[i].Clock, r.Clock)
		}
	}
	p.verify(pictures, 9)
	p.c.Pruned = nil
	must(t, p.w.Close())
	p.open()
	open.Add(int64(25 * time.Hour))
	out, err := p.w.Prune(t.Context(), workspace.Policy{})
	must(t, err)
	if out.Kept > len(pictures)/2 {
		t.Errorf("after a day: %+v of %d", out, len(pictures))
	}
}

// What can be made again goes before a revision does, while revisions are made
// that prune by themselves: of a hundred every one still has its source, and
// going back leaves the directory that was given up as it is.
func TestPrune_derivedGoesFirst(t *testing.T) {
	const bound, segment = 4 << 20, 256 << 10
	p := newPlace(t)
	must(t, p.w.Close())
	p.c.SegmentBytes, p.c.Policy = segment, &workspace.Policy{BytesMax: bound}
	p.c.Pruned = func(_ workspace.Pruned, err error) {
		if err != nil && !errs.Is(err, errs.Unavailable) {
			t.Error(err)
		}
	}
	p.open()
	sources := map[uint64]string{}
	var most int64
	for n := range uint64(100) {
		p.write("src/main", noise(n, 4<<10))
		p.write("web/node_modules/lib/index", noise(1000+n, 200<<10)) // 20 MB in all
		p.write("node_modules/lib", noise(2000+n, 10<<10))
		rev := p.snapshot()
		sources[rev.N] = noise(n, 4<<10)
		most = max(most, usage(p.c.Store))
	}
	_, err := p.w.Prune(t.Context(), *p.c.Policy)
	must(t, err)
	if most > bound+2*segment {
		t.Errorf("it took %d bytes, %d are allowed", most, bound)
	}
	revs, err := p.w.Revisions(t.Context())
	must(t, err)
	thin := 0
	for i, r := range revs {
		if r.Thin {
			thin++
		}
		if i > 0 && r.Thin && !revs[i-1].Thin {
			t.Errorf("revision %d was thinned before %d", r.N, revs[i-1].N)
		}
	}
	if len(revs) != 100 || thin < 50 || thin > 97 {
		t.Errorf("%d revisions, %d without what can be made again", len(revs), thin)
	}
	last := revs[len(revs)-1]
	d, err := p.w.Diff(t.Context(), revs[0].N, last.N, workspace.DiffOptions{})
	must(t, err)
	if len(d.Files) != 1 || d.Files[0].Path != "src/main" {
		t.Errorf("the first and the last differ in %+v", d.Files)
	}
	for _, r := range []workspace.Revision{revs[0], revs[40]} {
		plan, err := p.w.PlanRestore(t.Context(), r.N, "")
		if want := []string{"node_modules", "web/node_modules"}; !slices.Equal(lefts(plan), want) {
			t.Errorf("left: %+v", plan.Left)
		}
		p.apply(plan, err)
		got := look(t, p.dir)
		must(t, os.RemoveAll(filepath.Join(p.dir, "src")))
		p.apply(p.w.PlanRestore(t.Context(), r.N, "src"))
		if data, err := os.ReadFile(filepath.Join(p.dir, "src/main")); err != nil || string(data) != sources[r.N] {
			t.Errorf("revision %d: %v", r.N, err)
		}
		if data, err := os.ReadFile(filepath.Join(p.dir, "web/node_modules/lib/index")); err != nil || string(data) != noise(1099, 200<<10) {
			t.Errorf("revision %d touched what it does not have: %v", r.N, err)
		}
		if !maps.Equal(got, look(t, p.dir)) {
			t.Error("a part of it is something else than the whole")
		}
	}
	p.write("later", "a file")
	p.snapshot()
	p.apply(p.w.PlanRevert(t.Context(), revs[39].N, map[string]workspace.Choice{"src/main": workspace.TakeBefore}))
	if data, err := os.ReadFile(filepath.Join(p.dir, "web/node_modules/lib/index")); err != nil || string(data) != noise(1099, 200<<10) {
		t.Errorf("a revert touched what it does not have: %v", err)
	}
	must(t, p.w.Close())
	p.check()
	p.open()
}
