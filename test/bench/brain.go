package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skete-dev/skete/test/bench/report"
)

// This file measures what a run of an agent costs beside the model and the
// tools: a step, an idle run, a reload, an event on its way to a viewer; and
// the same script with other frameworks in the same run.
//
// Everything is the real thing (supervisor, store, server, client, all tools'
// schemas in the prompt) but for the model, which answers from a script, and
// the tool that it calls, which does nothing.

// Config of the measurements.
type Config struct {
	Report *report.Reporter
	Quick  bool   // a tenth of the samples
	Peers  string // where scripts/peers put them
}

// Measurement is one part that can be chosen by name.
type Measurement struct {
	Name string
	Do   func(context.Context) error
}

// All are the measurements in their order.
func All(c Config) []Measurement {
	return []Measurement{
		{"steps", c.steps},
		{"reload", c.reload},
		{"idle", c.idle},
		{"stream", c.stream},
		{"peers", c.peers},
	}
}

// Workflows are the measurements of package cowork.
func Workflows(c Config) []Measurement {
	return []Measurement{{"hop", c.hops}, {"workers", c.workers}}
}

// count is the size of a sample.
func (c Config) count(n int) int {
	if c.Quick {
		return max(n/10, 3)
	}
	return n
}

// Intervals of syncing.
const (
	always   = time.Duration(0)
	interval = time.Minute
)

func syncName(d time.Duration) string {
	if d == always {
		return "sync always"
	}
	return "sync by interval"
}

// steps measures the time between a model call and the next one.
func (c Config) steps(ctx context.Context) error {
	for _, x := range []struct {
		sync         time.Duration
		steps, calls int
		target       string
	}{
		{always, 1000, 1, "p50 <= 1000 µs"},
		{always, 1000, 8, ""},
		{interval, 100, 1, ""},
		{interval, 1000, 1, "p50 <= 100 µs"},
		{interval, 10_000, 1, "as at 100 steps"},
		{interval, 1000, 8, ""},
	} {
		steps := c.count(x.steps)
		w, err := walk(ctx, x.sync, steps, x.calls)
		if err != nil {
			return fmt.Errorf("%d steps, %s: %w", steps, syncName(x.sync), err)
		}
		name := fmt.Sprintf("brain: step, %s, %d steps of %d calls", syncName(x.sync), steps, x.calls)
		p50 := c.Report.Micros(name, w.steps, x.target, "supervisor and store, from one model call to the next")
		c.Report.Value(name+", processor time", float64(w.cpu.Microseconds())/float64(steps), "µs", "", "of the whole process, a step")
		if len(w.syncs) > 0 {
			disk := c.Report.Micros("peer: two appends of 1 KB to a file beside it, each with fsync", w.syncs, "", "in turns with the steps")
			c.Report.Value("ratio: step / the disk's own two fsyncs (p50), "+fmt.Sprintf("%d calls", x.calls), p50/disk, "x", "", "")
		}
		if steps >= 5000 {
			tenth := len(w.steps) / 10
			first, last := medianTime(w.steps[:tenth]), medianTime(w.steps[len(w.steps)-tenth:])
			c.Report.Value("brain: the last tenth of 10,000 steps / the first (p50)", float64(last)/float64(first), "x", "<= 1.5", "1 = a step costs the same however long the history is")
		}
	}
	return nil
}

// walked is how a run went.
type walked struct {
	steps []time.Duration
	syncs []time.Duration // of the disk alone
	cpu   time.Duration
}

// walk drives one run in a store of its own.
func walk(ctx context.Context, sync time.Duration, steps, calls int) (w walked, err error) {
	h, err := open(ctx, sync)
	if err != nil {
		return w, err
	}
	defer h.close(&err)
	disk, err := newDisk(h.dir)
	if err != nil {
		return w, err
	}
	defer disk.f.Close()
	var began time.Time
	script := &script{steps: steps, calls: calls, each: func(step int) error {
		if step > 1 {
			w.steps = append(w.steps, time.Since(began))
		}
		if sync == always && step%4 == 0 {
			used := processor()
			d, err := disk.twice()
			if err != nil {
				return err
			}
			w.syncs = append(w.syncs, d)
			w.cpu -= processor() - used
		}
		began = time.Now()
		return nil
	}}
	used := processor()
	if _, err = h.run(ctx, script); err != nil {
		return w, err
	}
	w.cpu += processor() - used
	return w, nil
}

// disk is what a disk does with the least that a step needs of it.
type disk struct {
	f    *os.File
	data []byte
}

func newDisk(dir string) (*disk, error) {
	f, err := os.Create(filepath.Join(dir, "probe"))
	return &disk{f, make([]byte, 1<<10)}, err
}

func (d *disk) twice() (time.Duration, error) {
	began := time.Now()
	for range 2 {
		if _, err := d.f.Write(d.data); err != nil {
			return 0, err
		}
		if err := d.f.Sync(); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}
