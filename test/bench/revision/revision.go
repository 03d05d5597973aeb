// Package revision measures what the history of a workspace costs: revisions,
// undo, restore and growth, beside a shadow repository of git on the same tree
// in the same run.
//
//	for _, m := range revision.All(revision.Config{Report: r}) { err := m.Do(ctx) }
//
// There are three directories with the same files, each on an ext4 file system
// of its own: one whose changes the kernel reports, one that is scanned, and
// git's. The same edits are made in each, in turns. Histories are on the host's
// disk, as in gVisor. Git syncs what it commits (core.fsync=committed, its
// default is less), ignores nothing, and never packs.
package revision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/test/bench/report"
)

// Config of the measurements.
type Config struct {
	Report *report.Reporter
	Quick  bool // a tenth of the samples
}

// Measurement is one part that can be chosen by name.
type Measurement struct {
	Name string
	Do   func(context.Context) error
}

// All are the measurements in their order.
func All(c Config) []Measurement {
	return []Measurement{
		{"small", func(ctx context.Context) error { return c.measure(ctx, small) }},
		{"large", func(ctx context.Context) error { return c.measure(ctx, large) }},
		{"growth", c.growth},
	}
}

func (c Config) count(n int) int {
	if c.Quick {
		return max(n/10, 3)
	}
	return n
}

// wood is a tree to measure on, and what is promised of it.
type wood struct {
	files  int
	blob   int64 // bytes of one file more, of random bytes
	volume int64 // bytes of its disk
	step   map[string]string
	undo   string
}

var (
	small = wood{files: 12_000, volume: 1 << 30, step: both("p50 <= 15 ms", "p50 <= 50 ms"), undo: "p50 <= 200 ms"}
	large = wood{files: 66_000, blob: 500 << 20, volume: 4 << 30, step: both("p50 <= 20 ms", "p50 <= 200 ms"), undo: "p50 <= 400 ms"}
)

func (w wood) String() string {
	if w.blob == 0 {
		return fmt.Sprintf("%d files", w.files)
	}
	return fmt.Sprintf("%d files and one of %d MB", w.files, w.blob>>20)
}

// contender is a way to keep a history of a directory.
type contender interface {
	name() string
	dir() string
	// snapshot makes a revision; of nothing if nothing changed.
	snapshot(ctx context.Context) error
	// undo makes the directory what it was before the last revision.
	undo(ctx context.Context) error
	// restore brings all files of the first revision back.
	restore(ctx context.Context) error
	// bytes that the history takes on disk.
	bytes() (int64, error)
	close() error
}

// stage is three contenders of equal directories.
type stage struct {
	contenders []contender
	temp       string
	volumes    *volume.Store
	ids        []string
}

func (c Config) open(ctx context.Context, w wood) (s *stage, err error) {
	s = &stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.temp, err = os.MkdirTemp("", "skete-bench-history"); err != nil {
		return s, err
	}
	if s.volumes, err = volume.Open(filepath.Join(s.temp, "volumes")); err != nil {
		return s, err
	}
	if err := s.volumes.Weakness(); err != nil {
		return s, err
	}
	for _, make := range []func(volume.Volume, string) (contender, error){captured, scanned, newGit} {
		id := fmt.Sprintf("v%d", len(s.ids))
		v, err := s.volumes.Create(ctx, id, w.volume)
		if err != nil {
			return s, err
		}
		s.ids = append(s.ids, id)
		if err := w.plant(v.Path); err != nil {
			return s, err
		}
		history := filepath.Join(s.temp, "history-"+id)
		if err := os.Mkdir(history, 0o700); err != nil {
			return s, err
		}
		k, err := make(v, history)
		if err != nil {
			return s, err
		}
		s.contenders = append(s.contenders, k)
	}
	return s, nil
}

func (s *stage) close() (err error) {
	for _, k := range s.contenders {
		err = errors.Join(err, k.close())
	}
	for _, id := range s.ids {
		err = errors.Join(err, s.volumes.Remove(context.Background(), id))
	}
	if s.temp != "" {
		err = errors.Join(err, os.RemoveAll(s.temp))
	}
	return err
}

// turns measures one thing n times for each contender, in turns; before each it
// does what is not measured.
func (s *stage) turns(n int, before func(k contender, i int) error, do func(contender) error) (map[string][]time.Duration, error) {
	took := map[string][]time.Duration{}
	for i := range n {
		for _, k := range s.contenders {
			if before != nil {
				if err := before(k, i); err != nil {
					return nil, fmt.Errorf("%s: %w", k.name(), err)
				}
			}
			began := time.Now()
			if err := do(k); err != nil {
				return nil, fmt.Errorf("%s: %w", k.name(), err)
			}
			took[k.name()] = append(took[k.name()], time.Since(began))
		}
	}
	return took, nil
}

// tell writes a line for each contender, and how many times as long git takes.
func (c Config) tell(what string, took map[string][]time.Duration, targets map[string]string) {
	median := map[string]float64{}
	for _, name := range []string{nameCaptured, nameScanned, nameGit} {
		if ds := took[name]; len(ds) > 0 {
			line := "history: " + what + ", " + name
			if name == nameGit {
				line = "peer: " + what + ", " + name
			}
			median[name] = c.Report.Millis(line, ds, targets[name], "")
		}
	}
	for _, name := range []string{nameCaptured, nameScanned} {
		if median[name] > 0 {
			c.Report.Value("ratio: git / "+what+", "+name+" (p50)", median[nameGit]/median[name], "x", "", "larger is better for us")
		}
	}
}

func both(captured, scanned string) map[string]string {
	return map[string]string{nameCaptured: captured, nameScanned: scanned}
}

// measure measures everything but growth on a tree of some size.
func (c Config) measure(ctx context.Context, w wood) error {
	s, err := c.open(ctx, w)
	if err != nil {
		return c.cannot(err)
	}
	defer func() { _ = s.close() }()
	for _, part := range []func(context.Context, *stage, wood) error{c.first, c.nothing, c.ten, c.undo, c.full} {
		if err := part(ctx, s, w); err != nil {
			return err
		}
	}
	return s.size(c, fmt.Sprintf("size of the history of %s and the steps above", w))
}

func (s *stage) size(c Config, what string) error {
	for _, k := range s.contenders {
		n, err := k.bytes()
		if err != nil {
			return err
		}
		c.Report.Value("history: "+what+", "+k.name(), float64(n)/(1<<20), "MiB", "", "")
	}
	return nil
}

func (c Config) first(ctx context.Context, s *stage, w wood) error {
	took, err := s.turns(1, nil, func(k contender) error { return k.snapshot(ctx) })
	if err == nil {
		c.tell(fmt.Sprintf("first revision of %s", w), took, both("<= 10000 ms", "<= 10000 ms"))
	}
	return err
}

func (c Config) nothing(ctx context.Context, s *stage, w wood) error {
	took, err := s.turns(c.count(50), nil, func(k contender) error { return k.snapshot(ctx) })
	if err == nil {
		c.tell(fmt.Sprintf("a step that changed nothing of %s", w), took, nil)
	}
	return err
}

// touch changes n files.
func touch(k contender, files, i, n int) error {
	for j := range n {
		path := filepath.Join(k.dir(), nameOf((i*7919+j*997)%files))
		if err := os.WriteFile(path, contents(i*n+j+1, 4000), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) ten(ctx context.Context, s *stage, w wood) error {
	took, err := s.turns(c.count(50), func(k contender, i int) error { return touch(k, w.files, i, 10) }, func(k contender) error { return k.snapshot(ctx) })
	if err == nil {
		c.tell(fmt.Sprintf("a step of 10 files of %s", w), took, w.step)
	}
	return err
}

func (c Config) undo(ctx context.Context, s *stage, w wood) error {
	took, err := s.turns(c.count(30), func(k contender, i int) error {
		return errors.Join(touch(k, w.files, i+1000, 10), k.snapshot(ctx))
	}, func(k contender) error { return k.undo(ctx) })
	if err == nil {
		c.tell(fmt.Sprintf("undo of 10 files of %s", w), took, both(w.undo, w.undo))
	}
	return err
}

func (c Config) full(ctx context.Context, s *stage, w wood) error {
	took, err := s.turns(3, func(k contender, _ int) error { return clear(k.dir()) }, func(k contender) error { return k.restore(ctx) })
	if err == nil {
		c.tell(fmt.Sprintf("restore of all of %s into an empty directory", w), took, both("<= 15000 ms", "<= 15000 ms"))
		return s.equal(w.files)
	}
	return err
}

// equal fails if the directories do not hold what was planted.
func (s *stage) equal(files int) error {
	for _, k := range s.contenders {
		for _, n := range []int{0, files / 2, files - 1} {
			data, err := os.ReadFile(filepath.Join(k.dir(), nameOf(n)))
			if err != nil || !slices.Equal(data, contents(n, sizeOf(n))) {
				return fmt.Errorf("%s did not restore %s: %w", k.name(), nameOf(n), err)
			}
		}
	}
	return nil
}

func clear(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// growth makes 500 revisions of three files each.
func (c Config) growth(ctx context.Context) error {
	files := small.files
	s, err := c.open(ctx, small)
	if err != nil {
		return c.cannot(err)
	}
	defer func() { _ = s.close() }()
	before := map[string]int64{}
	for _, k := range s.contenders {
		if err := k.snapshot(ctx); err != nil {
			return err
		}
		if before[k.name()], err = k.bytes(); err != nil {
			return err
		}
	}
	n := c.count(500)
	took, err := s.turns(n, func(k contender, i int) error { return touch(k, files, i, 3) }, func(k contender) error { return k.snapshot(ctx) })
	if err != nil {
		return err
	}
	c.tell(fmt.Sprintf("a step of 3 files, %d steps", n), took, both("p50 <= 15 ms", "p50 <= 50 ms"))
	for _, k := range s.contenders {
		after, err := k.bytes()
		if err != nil {
			return err
		}
		c.Report.Value(fmt.Sprintf("history: growth by a step of 3 files, %d steps, %s", n, k.name()), float64(after-before[k.name()])/float64(n)/1024, "KiB", map[string]string{nameCaptured: "<= 50 KiB"}[k.name()], "files of 4 KB, of 12,000 in 1,200 directories")
		if ds := took[k.name()]; n >= 100 {
			tenth := len(ds) / 10
			c.Report.Value(fmt.Sprintf("history: the last tenth of %d steps / the first (p50), %s", n, k.name()), ratio(ds[len(ds)-tenth:], ds[:tenth]), "x", "", "1 = a step costs the same however long the history is")
		}
	}
	return nil
}

func ratio(a, b []time.Duration) float64 {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return float64(a[len(a)/2]) / float64(b[len(b)/2])
}

// cannot tells why nothing can be measured here.
func (c Config) cannot(err error) error {
	if !errs.Is(err, errs.Unsupported) {
		return err
	}
	c.Report.Skipped("history: revisions of a workspace", "ms", err.Error())
	return nil
}
