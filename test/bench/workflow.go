package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/cowork/runner"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool/kit"
)

// This file measures what a workflow adds to the runs of its nodes, with models that answer
// from a script and nodes that have no machine.

// flows is a server's brain that runs workflows.
type flows struct {
	store *store.Store
	runs  *supervisor.Supervisor
	*runner.Runner
}

func openFlows(ctx context.Context, dir string, sync time.Duration, model llm.Model) (f *flows, err error) {
	f = &flows{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if f.store, err = store.Open(ctx, store.Config{Dir: dir, SyncInterval: sync}); err != nil {
		return f, err
	}
	records, err := f.store.KV(ctx, "runs")
	if err != nil {
		return f, err
	}
	kept, err := f.store.KV(ctx, "workflows")
	if err != nil {
		return f, err
	}
	var r atomic.Pointer[runner.Runner]
	f.runs, err = supervisor.Open(ctx, supervisor.Config{
		Threads: f.store.Threads(), Records: records, Models: only{model}, Definitions: single{}, Tools: kit.New(), Wire: f.store.Live(), Node: "bench",
		Ended: func(run runs.Run, end *thread.RunEnded) {
			if r := r.Load(); r != nil {
				r.RunEnded(run, end)
			}
		},
	})
	if err != nil {
		return f, err
	}
	if f.Runner, err = runner.Open(ctx, runner.Config{Threads: f.store.Threads(), Records: kept, Runs: f.runs, Node: "bench"}); err == nil {
		r.Store(f.Runner)
	}
	return f, err
}

func (f *flows) close() error {
	var failed []error
	if f.Runner != nil {
		failed = append(failed, f.Runner.Close())
	}
	if f.runs != nil {
		failed = append(failed, f.runs.Close())
	}
	if f.store != nil {
		failed = append(failed, f.store.Close())
	}
	return errors.Join(failed...)
}

// finish runs a definition to its end, and returns the events of its thread.
func (f *flows) finish(ctx context.Context, text string) (all []thread.Event, err error) {
	run, err := f.Start(ctx, tenant, runner.Start{File: "bench.yaml", Text: []byte(text)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	log, err := f.store.Threads().Log(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for e, err := range log.Watch(ctx, run.ID.Thread(), 1) { // that costs less than to fold it again and again
		if err != nil {
			return nil, err
		}
		all = append(all, e)
		if b, is := e.Body.(thread.WorkflowEnded); is && b.State == thread.RunSucceeded {
			return all, nil
		} else if is {
			return nil, fmt.Errorf("the workflow %s: %s", b.State, b.Text)
		}
	}
	return nil, ctx.Err()
}

func (f *flows) events(ctx context.Context, id thread.ID) (all []thread.Event, err error) {
	log, err := f.store.Threads().Log(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for e, err := range log.Load(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// hops measures the time from the end of a node's run to the beginning of the next one.
func (c Config) hops(ctx context.Context) error {
	for sync, target := range map[time.Duration]string{interval: "p50 <= 1 ms", always: ""} {
		ds, err := c.walkNodes(ctx, sync, c.count(100))
		if err != nil {
			return err
		}
		c.Report.Millis("workflow: hop, "+syncName(sync), ds, target, "from the end in one node's log to the first event in the next one's")
	}
	return nil
}

func (c Config) walkNodes(ctx context.Context, sync time.Duration, nodes int) (ds []time.Duration, err error) {
	dir, err := os.MkdirTemp("", "skete-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	f, err := openFlows(ctx, dir, sync, answer{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	all, err := f.finish(ctx, flowOf("sequential", nodes))
	if err != nil {
		return nil, err
	}
	var ended time.Time
	for _, e := range all {
		b, is := e.Body.(thread.NodeEnded)
		if !is {
			continue
		}
		node, err := f.events(ctx, b.Thread)
		if err != nil {
			return nil, err
		}
		if !ended.IsZero() {
			ds = append(ds, node[0].At.Sub(ended))
		}
		ended = node[len(node)-1].At
	}
	return ds, nil
}

// workers measures a hundred nodes at once.
func (c Config) workers(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "skete-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	const thinks = time.Second
	f, err := openFlows(ctx, dir, interval, answer{thinks})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	before, began := peakMiB(), time.Now()
	if _, err := f.finish(ctx, flowOf("parallel", 100)); err != nil {
		return err
	}
	c.Report.Value("workflow: 100 workers, 64 at once, whose models think a second", time.Since(began).Seconds(), "s", "all finish", "two seconds are the models'")
	c.Report.Value("workflow: 100 workers, peak memory of the process", peakMiB(), "MiB", "", fmt.Sprintf("%.0f before; no machines", before))
	return nil
}

// flowOf is a definition with so many nodes, without machines.
func flowOf(topology string, nodes int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: bench\ntopology: %s\nparallel_max: 64\nmachine: {none: true}\nnodes:\n", topology)
	for i := range nodes {
		fmt.Fprintf(&b, "  - {name: n%d, task: Do it., inline: {}}\n", i)
	}
	return b.String()
}

// peakMiB is the most memory that the process had resident.
func peakMiB() float64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kb, _ := strconv.ParseFloat(strings.Fields(rest + " 0")[0], 64)
	return kb / 1024
}

// only is a catalogue of one model.
type only struct{ m llm.Model }

// Open implements supervisor.Models.
func (o only) Open(context.Context, string) (llm.Model, error) { return o.m, nil }

// answer is a model that says that it is done, after a while.
type answer struct{ thinks time.Duration }

// Info implements llm.Model.
func (answer) Info() llm.Info { return llm.Info{Name: "answer", ID: "answer", WindowTokens: 1 << 20} }

// Stream implements llm.Model.
func (a answer) Stream(ctx context.Context, _ *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		select {
		case <-time.After(a.thinks):
		case <-ctx.Done():
			yield(llm.Delta{}, ctx.Err())
			return
		}
		r := &llm.Response{Message: llm.Assistant(llm.Text("Done.")), Stop: llm.StopEnd, Usage: llm.Usage{Input: 10, Output: 5}}
		yield(llm.Delta{Kind: llm.DeltaDone, Response: r}, nil)
	}
}
