package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
)

// Bounds of calls.
const (
	startTimeout  = 2 * time.Minute // of a sandbox and the greeting
	hookBytesMax  = 256 << 10       // of an answer about an event
	replyBytesMax = 8 << 20         // of a model's answer, with its pieces
	silenceMax    = 3 * time.Minute // between two pieces of one
	retryFirst    = time.Second
	retryMax      = time.Minute
	sweepEvery    = 5 * time.Second
)

// Launcher starts processes of plug-ins, each in a sandbox that is the plug-in's and the
// tenant's: the same one as long as it is not dropped.
type Launcher interface {
	// Launch starts the process, in place of one that an earlier server left. ctx bounds the
	// start, and not the process.
	Launch(ctx context.Context, p *Plugin, tenant string) (Process, error)
	// Drop removes the sandbox, if there is one. It may be repeated.
	Drop(ctx context.Context, p *Plugin, tenant string) error
}

// Config of a Host.
type Config struct {
	Plugins  []*Plugin
	Launcher Launcher
	Version  string // of the host, for plug-ins
	Log      *slog.Logger
}

// Host keeps the plug-ins of a server.
type Host struct {
	c      Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	closed sync.Once

	mu    sync.Mutex
	lines map[lineKey]*runner
}

type lineKey struct{ plugin, tenant string }

// runner keeps one plug-in running for one tenant.
type runner struct {
	h      *Host
	p      *Plugin
	tenant string

	starting chan struct{} // a token: its holder may start and stop the process
	mu       sync.Mutex    // guards what follows
	conn     *conn
	launched bool      // there may be a sandbox
	uses     int       // calls under way
	used     time.Time // last
	failed   int       // starts and processes that broke, since a call was answered
	notUntil time.Time
	why      error // of the last failure
	starts   int
	started  time.Time // last
	begins   bool      // it is being started
}

// NewHost returns a host. It starts nothing but what ends idle processes.
func NewHost(c Config) *Host {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	h := &Host{c: c, lines: map[lineKey]*runner{}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.wg.Go(h.sweep)
	return h
}

// Close ends all processes. Calls under way fail. Their sandboxes are kept for the next server.
// It may be repeated.
func (h *Host) Close() error {
	h.closed.Do(func() {
		h.cancel()
		h.wg.Wait()
		var all sync.WaitGroup
		for _, r := range h.runners() {
			all.Go(r.close)
		}
		all.Wait()
	})
	return nil
}

func (h *Host) runners() []*runner {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*runner, 0, len(h.lines))
	for _, r := range h.lines {
		list = append(list, r)
	}
	return list
}

// sweep ends what is idle.
func (h *Host) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case now := <-tick.C:
			for _, r := range h.runners() {
				r.rest(now)
			}
		}
	}
}

// find returns a plug-in. NotFound.
func (h *Host) find(name string) (*Plugin, error) {
	i := slices.IndexFunc(h.c.Plugins, func(p *Plugin) bool { return p.Name == name })
	if i < 0 {
		return nil, errs.New(errs.NotFound, "there is no plug-in %.80q", name).
			WithHint("`skete plugin list` lists those of the server's folder; a new one is found when the server starts")
	}
	return h.c.Plugins[i], nil
}

// Hooks returns the events that a plug-in is asked about. NotFound.
func (h *Host) Hooks(name string) ([]Hook, error) {
	p, err := h.find(name)
	if err != nil {
		return nil, err
	}
	if len(p.Hooks) == 0 {
		return nil, errs.New(errs.NotFound, "the plug-in %s has no hooks", name)
	}
	return p.Hooks, nil
}

// Hook asks a plug-in about an event and returns its answer: a JSON object, or nil for
// nothing. Unavailable: it broke, was silent for too long, or is not tried again yet.
func (h *Host) Hook(ctx context.Context, tenant, name string, event json.RawMessage, timeout time.Duration) (json.RawMessage, error) {
	p, err := h.find(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := h.runner(p, tenant)
	c, done, err := r.use(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := c.ask(ctx, methodHook, event, hookBytesMax, timeout)
	done(err == nil)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errSilent
	}
	if err != nil || string(answer) == "null" {
		return nil, err
	}
	return answer, nil
}

// Models lists the models of all plug-ins.
func (h *Host) Models() []llm.Info {
	var list []llm.Info
	for _, p := range h.c.Plugins {
		for _, m := range p.Models {
			list = append(list, p.info(m))
		}
	}
	return list
}

// Model returns a model of a plug-in for a tenant, by PLUGIN/MODEL. Nothing is started.
// NotFound. The model of no tenant ("") can be looked at and not be asked.
func (h *Host) Model(tenant, name string) (llm.Model, error) {
	for _, p := range h.c.Plugins {
		for _, m := range p.Models {
			if info := p.info(m); info.Name == name {
				return &model{h: h, p: p, tenant: tenant, info: info, silence: silenceMax, bytesMax: replyBytesMax}, nil
			}
		}
	}
	return nil, errs.New(errs.NotFound, "no plug-in has a model %.80q", name)
}

func (h *Host) runner(p *Plugin, tenant string) *runner {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := lineKey{p.Name, tenant}
	r := h.lines[k]
	if r == nil {
		r = &runner{h: h, p: p, tenant: tenant, starting: make(chan struct{}, 1)}
		h.lines[k] = r
	}
	return r
}

// use returns the connection to the process, which is started if there is none. done says
// that the call is over, and whether it was answered.
func (r *runner) use(ctx context.Context) (c *conn, done func(answered bool), err error) {
	select {
	case r.starting <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-r.h.ctx.Done():
		return nil, nil, errStopped
	}
	defer func() { <-r.starting }()
	if c, err = r.ready(ctx); err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	r.uses++
	r.mu.Unlock()
	return c, func(answered bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.uses--
		r.used = time.Now()
		if answered {
			r.failed, r.why = 0, nil
		}
	}, nil
}

// ready returns a connection that works.
//
// Preconditions: the caller has the token.
func (r *runner) ready(ctx context.Context) (*conn, error) {
	if r.h.ctx.Err() != nil {
		return nil, errStopped
	}
	if r.conn != nil {
		why := r.conn.over()
		if why == nil {
			return r.conn, nil
		}
		r.drop(why)
	}
	r.mu.Lock()
	wait, last := time.Until(r.notUntil), r.why
	r.mu.Unlock()
	if wait > 0 {
		return nil, &notYet{wait, errs.Wrap(errs.Unavailable, last, "the plug-in %s broke and is started again in %s", r.p.Name, wait.Round(time.Second))}
	}
	c, err := r.start(ctx)
	r.mu.Lock()
	r.begins = false
	if err == nil {
		r.conn, r.used, r.started = c, time.Now(), time.Now()
	}
	r.mu.Unlock()
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // the caller has left
	}
	r.h.c.Log.Warn("a plug-in cannot be started", "plugin", r.p.Name, "tenant", r.tenant, "error", err)
	r.broke(err)
	return nil, errs.Wrap(errs.Unavailable, err, "the plug-in %s cannot be started: %s", r.p.Name, errs.Public(err))
}

// notYet is why a plug-in that broke is not started.
type notYet struct {
	wait time.Duration
	error
}

// Unwrap gives the error its class.
func (e *notYet) Unwrap() error { return e.error }

func (r *runner) start(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	defer context.AfterFunc(r.h.ctx, cancel)()
	r.mu.Lock()
	r.launched, r.used, r.begins = true, time.Now(), true
	r.starts++
	r.mu.Unlock()
	proc, err := r.h.c.Launcher.Launch(ctx, r.p, r.tenant)
	if err != nil {
		return nil, err
	}
	c := dial(proc, r.h.c.Log.With("plugin", r.p.Name, "tenant", r.tenant))
	if err := c.greet(ctx, r.p, r.h.c.Version, startTimeout); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// drop lets go of a connection that ended.
func (r *runner) drop(why error) {
	r.conn.close()
	r.mu.Lock()
	r.conn = nil
	r.mu.Unlock()
	r.h.c.Log.Warn("a plug-in broke", "plugin", r.p.Name, "tenant", r.tenant, "error", why)
	r.broke(why)
}

// broke notes a failure: the first is tried again at once, the next ones ever later.
func (r *runner) broke(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
	r.why = why
	if r.failed > 1 {
		r.notUntil = time.Now().Add(min(retryFirst<<min(r.failed-2, 10), retryMax))
	}
}

// rest ends a process that was idle, and removes its sandbox.
func (r *runner) rest(now time.Time) {
	select {
	case r.starting <- struct{}{}:
	default:
		return // it is in use
	}
	defer func() { <-r.starting }()
	r.mu.Lock()
	idle := r.launched && r.uses == 0 && now.Sub(r.used) >= cmp.Or(r.p.Idle, IdleDefault)
	r.mu.Unlock()
	if !idle {
		return
	}
	if r.conn != nil {
		r.conn.close()
		r.mu.Lock()
		r.conn = nil
		r.mu.Unlock()
	}
	if err := r.h.c.Launcher.Drop(r.h.ctx, r.p, r.tenant); err != nil {
		r.h.c.Log.Warn("the sandbox of an idle plug-in cannot be removed", "plugin", r.p.Name, "error", err)
		return
	}
	r.mu.Lock()
	r.launched = false
	r.mu.Unlock()
	r.h.c.Log.Info("a plug-in was idle and was ended", "plugin", r.p.Name, "tenant", r.tenant)
}

func (r *runner) close() {
	r.starting <- struct{}{} // kept: nothing is started any more
	if r.conn != nil {
		r.conn.close()
	}
}
