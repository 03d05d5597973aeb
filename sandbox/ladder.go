package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
)

// ProviderAuto asks for the strongest provider that works here.
const ProviderAuto = "auto"

// How long a probe's result is believed. A failure is looked at again soon:
// the operator may be repairing it at this moment.
const (
	probeOKFor     = 10 * time.Minute
	probeFailedFor = 15 * time.Second
	probeTimeout   = 60 * time.Second
)

// ladder knows the providers, strongest isolation first, and what their last
// probes said.
type ladder struct {
	rungs []*rung
	log   *slog.Logger
	spawn func(func()) bool // starts a goroutine that somebody waits for; false: closing
}

// rung is one provider of the ladder.
type rung struct {
	Provider
	mu      sync.Mutex // guards the fields below; never held over a probe
	result  ProbeResult
	probing chan struct{} // closed when the probe under way ends; nil = none
}

func newLadder(ps []Provider, log *slog.Logger, spawn func(func()) bool) *ladder {
	l := &ladder{log: log, spawn: spawn}
	for _, p := range ps {
		l.rungs = append(l.rungs, &rung{Provider: p})
	}
	slices.SortStableFunc(l.rungs, func(a, b *rung) int {
		return cmp.Compare(a.Capabilities().Isolation.rank(), b.Capabilities().Isolation.rank())
	})
	return l
}

// get finds a provider by name.
func (l *ladder) get(name string) (*rung, bool) {
	i := slices.IndexFunc(l.rungs, func(r *rung) bool { return r.Name() == name })
	if i < 0 {
		return nil, false
	}
	return l.rungs[i], true
}

// probes returns what is believed of every provider, strongest first, and
// probes those of which nothing is.
func (l *ladder) probes(ctx context.Context) []ProbeResult {
	results := make([]ProbeResult, len(l.rungs))
	var wg sync.WaitGroup
	for i, r := range l.rungs {
		wg.Go(func() { results[i] = l.probe(ctx, r) })
	}
	wg.Wait()
	return results
}

// probe returns the believed result of one provider, or probes it; callers at
// the same time share one probe, which a caller that goes away does not end.
func (l *ladder) probe(ctx context.Context, r *rung) ProbeResult {
	for {
		r.mu.Lock()
		if r.result.fresh() {
			defer r.mu.Unlock()
			return r.result
		}
		wait := r.probing
		if wait == nil {
			wait = make(chan struct{})
			r.probing = wait
			if !l.spawn(func() { l.run(r, wait) }) {
				r.probing = nil
				r.mu.Unlock()
				return ProbeResult{Name: r.Name(), Capabilities: r.Capabilities(), Err: errClosing}
			}
		}
		r.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return ProbeResult{Name: r.Name(), Capabilities: r.Capabilities(), Err: ctx.Err()}
		}
	}
}

func (l *ladder) run(r *rung, done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	err := r.Probe(ctx)
	if err != nil {
		l.log.Info("provider does not work here", "provider", r.Name(), "error", err, "hint", errs.Hint(err))
	}
	r.mu.Lock()
	r.result = ProbeResult{Name: r.Name(), Capabilities: r.Capabilities(), Err: err, At: time.Now()}
	r.probing = nil
	r.mu.Unlock()
	close(done)
}

// doubt makes the next caller probe again, after something went wrong.
func (r *rung) doubt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result = ProbeResult{}
}

func (p ProbeResult) fresh() bool {
	switch {
	case p.At.IsZero():
		return false
	case p.Err != nil:
		return time.Since(p.At) < probeFailedFor
	}
	return time.Since(p.At) < probeOKFor
}

// choose returns the provider for a normalised spec. It never degrades: what
// cannot be had is an error that says what there is instead.
func (l *ladder) choose(ctx context.Context, s Spec) (*rung, error) {
	if s.Provider != ProviderAuto {
		return l.named(ctx, s)
	}
	var refusals []error
	for _, r := range l.rungs {
		if !l.eligible(r, s) {
			continue
		}
		result := l.probe(ctx, r)
		if result.Err == nil {
			return r, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		refusals = append(refusals, fmt.Errorf("%s: %w", r.Name(), result.Err))
	}
	return nil, l.unsupported(ctx, s, refusals)
}

// eligible says whether auto may choose r: it is as strong as required, and it
// isolates at all. No isolation is only ever a default where the operator
// gave the server nothing else.
func (l *ladder) eligible(r *rung, s Spec) bool {
	i := r.Capabilities().Isolation
	if s.Require != "" && !i.AtLeast(s.Require) {
		return false
	}
	return i != None || l.rungs[0].Capabilities().Isolation == None
}

func (l *ladder) named(ctx context.Context, s Spec) (*rung, error) {
	r, ok := l.get(s.Provider)
	if !ok {
		return nil, errs.New(errs.Invalid, "provider: %.40q is none of %s", s.Provider, strings.Join(append([]string{ProviderAuto}, l.names()...), ", "))
	}
	if i := r.Capabilities().Isolation; s.Require != "" && !i.AtLeast(s.Require) {
		return nil, l.unsupported(ctx, s, nil)
	}
	result := l.probe(ctx, r)
	if result.Err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if result.Err != nil {
		return nil, l.unsupported(ctx, s, []error{fmt.Errorf("%s: %w", r.Name(), result.Err)})
	}
	return r, nil
}

func (l *ladder) names() (names []string) {
	for _, r := range l.rungs {
		names = append(names, r.Name())
	}
	return names
}

// unsupported says what was asked for, why it cannot be had, and what can.
func (l *ladder) unsupported(ctx context.Context, s Spec, refusals []error) error {
	asked := "a sandbox"
	if s.Provider != ProviderAuto {
		asked = "provider " + s.Provider
	}
	if s.Require != "" {
		asked += " with isolation " + string(s.Require)
	}
	var reasons, hints []string
	for _, err := range refusals {
		name, _, _ := strings.Cut(err.Error(), ":")
		reasons = append(reasons, name+" does not work: "+errs.Public(err))
		if h := errs.Hint(err); h != "" {
			hints = append(hints, name+": "+h)
		}
	}
	if len(refusals) == 0 {
		reasons = append(reasons, "no provider of this server is that strong")
	}
	reasons = append(reasons, "working here: "+l.working(ctx))
	hints = append(hints, "`skete doctor` checks each provider")
	return errs.New(errs.Unsupported, "%s cannot be had on this host (%s)", asked, strings.Join(reasons, "; ")).
		WithHint("%s", strings.Join(hints, "; "))
}

// working lists the providers that work, with their isolation.
func (l *ladder) working(ctx context.Context) string {
	var names []string
	for _, p := range l.probes(ctx) {
		if p.Err == nil {
			names = append(names, fmt.Sprintf("%s (%s)", p.Name, p.Capabilities.Isolation))
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}
