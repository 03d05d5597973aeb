package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/client"
	apiserver "github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/thread"
)

// reload measures how long it takes to know where a run is.
func (c Config) reload(ctx context.Context) (err error) {
	h, err := open(ctx, interval)
	if err != nil {
		return err
	}
	defer h.close(&err)
	steps := c.count(1000)
	run, err := h.run(ctx, &script{steps: steps, calls: 1})
	if err != nil {
		return err
	}
	var cold, warm []time.Duration
	for range c.count(20) {
		if err := h.stop(); err != nil {
			return err
		}
		if err := h.start(ctx); err != nil {
			return err
		}
		for i := range 5 {
			began := time.Now()
			if err := h.fold(ctx, run); err != nil {
				return err
			}
			if i == 0 {
				cold = append(cold, time.Since(began))
			} else {
				warm = append(warm, time.Since(began))
			}
		}
	}
	name := fmt.Sprintf("brain: reload of %d steps", steps)
	c.Report.Millis(name, warm, "p50 <= 30 ms", "read from the store and folded")
	c.Report.Millis(name+", first after a restart", cold, "", "the store reads its files, the system has them in memory")
	return nil
}

func (h *house) fold(ctx context.Context, r runs.Run) error {
	log, err := h.store.Threads().Log(ctx, tenant)
	if err != nil {
		return err
	}
	s := runs.NewState()
	for e, err := range log.Load(ctx, r.Thread, 1) {
		if err != nil {
			return err
		}
		if err := s.Apply(e); err != nil {
			return err
		}
	}
	if s.Seq != r.Last {
		return fmt.Errorf("the log ends at %d, not at %d", s.Seq, r.Last)
	}
	return nil
}

// idle measures what a run weighs that waits for a person.
func (c Config) idle(ctx context.Context) (err error) {
	h, err := open(ctx, interval)
	if err != nil {
		return err
	}
	defer h.close(&err)
	h.agent.Rules = []definition.Rule{{Tools: []string{"look"}, Action: definition.Ask}}
	if err := h.supervisor.Close(); err != nil {
		return err
	}
	if err := h.startSupervisor(ctx); err != nil {
		return err
	}
	wait := func(n int) error {
		var ids []thread.RunID
		for range n {
			r, err := h.begin(ctx, &script{steps: 1, calls: 1})
			if err != nil {
				return err
			}
			ids = append(ids, r.ID)
		}
		for _, id := range ids {
			if _, err := h.until(ctx, id, func(r runs.Run) bool { return r.State == thread.RunInterrupted }); err != nil {
				return err
			}
		}
		return nil
	}
	if err := wait(3); err != nil { // so that what is there once is there
		return err
	}
	n := c.count(1000)
	before := weigh(ctx)
	if err := wait(n); err != nil {
		return err
	}
	after := weigh(ctx)
	c.Report.Value("brain: memory of a run that waits for approval", (after.heap-before.heap)/1024/float64(n), "KB", "<= 50 KB", fmt.Sprintf("%d runs, growth of the heap's size divided; the embedded store's part included", n))
	c.Report.Value("brain: goroutines of runs that wait for approval", float64(after.goroutines-before.goroutines), "goroutines", "0", fmt.Sprintf("of %d runs together", n))
	if err := h.supervisor.Close(); err != nil {
		return err
	}
	without := weigh(ctx)
	began := time.Now()
	if err := h.startSupervisor(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	again := weigh(ctx)
	c.Report.Value("brain: memory of such a run after a restart", (again.heap-without.heap)/1024/float64(n), "KB", "<= 50 KB", "without the store's part")
	c.Report.Value("brain: opening the supervisor", float64(took.Microseconds())/1000, "ms", "", fmt.Sprintf("%d runs wait", n))
	return nil
}

type weight struct {
	heap       float64
	goroutines int
}

// weigh waits until what is on its way has settled.
func weigh(ctx context.Context) weight {
	deadline := time.Now().Add(20 * time.Second)
	last := weight{}
	for same := 0; same < 4 && time.Now().Before(deadline) && ctx.Err() == nil; {
		<-time.After(500 * time.Millisecond)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now := weight{float64(m.HeapAlloc), runtime.NumGoroutine()}
		if same++; now.goroutines != last.goroutines || now.heap < last.heap*0.99 || now.heap > last.heap*1.01 {
			same = 0
		}
		last = now
	}
	return last
}

// stream measures an event's way from where it is made, over the disk, to a
// client of the real server.
func (c Config) stream(ctx context.Context) error {
	for _, followers := range []int{1, 20} {
		for _, mode := range []time.Duration{always, interval} {
			ds, err := c.follow(ctx, mode, followers)
			if err != nil {
				return err
			}
			target := ""
			if mode == always {
				target = "p99 <= 10 ms"
			}
			c.Report.Millis(fmt.Sprintf("brain: event made, stored and at its client, %d followers, %s", followers, syncName(mode)), ds, target,
				"server-sent events over TCP; server and clients in one process")
		}
	}
	return nil
}

func (c Config) follow(ctx context.Context, mode time.Duration, followers int) (ds []time.Duration, err error) {
	h, err := open(ctx, mode)
	if err != nil {
		return nil, err
	}
	defer h.close(&err)
	cl, stop, err := h.serve(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ready := make(chan struct{}, followers)
	s := &script{steps: c.count(300), calls: 1, each: func(step int) error {
		if step == 1 {
			for range followers { // all of them follow before it begins
				select {
				case <-ready:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
		<-time.After(5 * time.Millisecond) // a model that thinks: no event waits behind another
		return nil
	}}
	run, err := h.begin(ctx, s)
	if err != nil {
		return nil, err
	}
	all := make([][]time.Duration, followers)
	var wg sync.WaitGroup
	for i := range followers {
		wg.Go(func() {
			var err error
			if all[i], err = listen(ctx, cl, string(run.ID), ready); err != nil {
				cancel(err)
			}
		})
	}
	_, err = h.await(ctx, s, run)
	wg.Wait()
	return slices.Concat(all...), errors.Join(err, context.Cause(ctx))
}

// listen follows a run and returns how old its events were when they came.
func listen(ctx context.Context, c *client.Client, run string, ready chan<- struct{}) (ds []time.Duration, err error) {
	told := false
	for e, err := range c.Run(run).Events(ctx, 0) {
		now := time.Now()
		if err != nil {
			return ds, err
		}
		switch e.Kind {
		case "model.completed", "tool.started", "tool.completed":
			ds = append(ds, now.Sub(e.At))
		default:
			if !told {
				told = true
				ready <- struct{}{}
			}
		}
	}
	return ds, nil
}

// serve answers on a port of this machine.
func (h *house) serve(ctx context.Context) (*client.Client, func(), error) {
	keys, err := h.store.KV(ctx, "keys")
	if err != nil {
		return nil, nil, err
	}
	s, err := apiserver.New(apiserver.Config{Sandboxes: noSandboxes{}, Templates: noTemplates{}, Runs: h.supervisor, Keys: keys})
	if err != nil {
		return nil, nil, err
	}
	secret, _, err := s.EnsureAdminKey(ctx)
	if err != nil {
		return nil, nil, err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(client.Config{URL: "http://" + ln.Addr().String(), Key: secret.Reveal()})
	if err != nil {
		ln.Close()
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ctx, ln, nil)
	}()
	return c, func() { c.Close(); cancel(); <-done }, nil
}

// There are no sandboxes here, and the benchmark never asks for them.
type (
	noSandboxes struct{ apiserver.Sandboxes }
	noTemplates struct{ apiserver.Templates }
)
