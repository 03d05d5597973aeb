// Package selector sorts providers by how well they isolate, remembers what
// their probes said, and chooses one for a spec.
//
//	l := selector.New(providers, log, spawn)
//	p, err := l.Choose(ctx, spec) // never less than the spec requires
//
// It fails closed: what cannot be had is an error that says what was asked
// for, why it cannot be had, and what there is. All machines are made and
// attached through it, so it also sums what they count.
//
// A Selector is safe for concurrent use.
package selector

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
	"github.com/skete-dev/skete/sandbox"
)

// How long a probe's result is believed. A failure is looked at again soon:
// the operator may be repairing it at this moment.
const (
	probeOKFor     = 10 * time.Minute
	probeFailedFor = 15 * time.Second
	probeTimeout   = 60 * time.Second
)

// Selector knows the providers, strongest isolation first, and what their last
// probes said.
type Selector struct {
	providers []*Provider
	log       *slog.Logger
	spawn     func(func()) bool // starts a goroutine that the server waits for; false: closing
}

// Provider is one of them, with its last probe and what its machines counted.
type Provider struct {
	sandbox.Provider
	counters counters

	mu      sync.Mutex // guards the fields below; never held over a probe
	result  sandbox.ProbeResult
	probing chan struct{} // closed when the probe under way ends; nil = none
}

// New sorts the providers. spawn starts a goroutine that the server waits
// for, or returns false when the server stops already.
func New(ps []sandbox.Provider, log *slog.Logger, spawn func(func()) bool) *Selector {
	l := &Selector{log: log, spawn: spawn}
	for _, p := range ps {
		l.providers = append(l.providers, &Provider{Provider: p})
	}
	slices.SortStableFunc(l.providers, func(a, b *Provider) int { return cmp.Compare(place(a), place(b)) })
	return l
}

// place orders providers: the strongest first, those elsewhere last.
func place(p *Provider) int {
	if n := p.Capabilities().Isolation.Rank(); n >= 0 {
		return n
	}
	return len(sandbox.Isolations)
}

// Create implements sandbox.Provider; the machine's counts are summed.
func (r *Provider) Create(ctx context.Context, b sandbox.Boot) (sandbox.Machine, error) {
	return r.noted(r.Provider.Create(ctx, b))
}

// Attach implements sandbox.Provider; the machine's counts are summed.
func (r *Provider) Attach(ctx context.Context, id sandbox.ID) (sandbox.Machine, error) {
	return r.noted(r.Provider.Attach(ctx, id))
}

func (r *Provider) noted(m sandbox.Machine, err error) (sandbox.Machine, error) {
	if err == nil {
		r.counters.Note(m)
	}
	return m, err
}

// Counts asks all machines that count and sums what they say, by provider; a
// provider none of whose machines ever did is missing. See counters.
func (l *Selector) Counts(ctx context.Context) map[string]sandbox.Counts {
	var mu sync.Mutex
	var wg sync.WaitGroup
	sums := map[string]sandbox.Counts{}
	for _, r := range l.providers {
		wg.Go(func() {
			if sum, counted := r.counters.Counts(ctx); counted {
				mu.Lock()
				sums[r.Name()] = sum
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return sums
}

// Get finds a provider by name.
func (l *Selector) Get(name string) (*Provider, bool) {
	i := slices.IndexFunc(l.providers, func(r *Provider) bool { return r.Name() == name })
	if i < 0 {
		return nil, false
	}
	return l.providers[i], true
}

// Probes returns what is believed of every provider, strongest first, and
// probes those of which nothing is.
func (l *Selector) Probes(ctx context.Context) []sandbox.ProbeResult {
	results := make([]sandbox.ProbeResult, len(l.providers))
	var wg sync.WaitGroup
	for i, r := range l.providers {
		wg.Go(func() { results[i] = l.Probe(ctx, r) })
	}
	wg.Wait()
	return results
}

// Probe returns the believed result of one provider, or probes it; callers at
// the same time share one probe, which a caller that goes away does not end.
func (l *Selector) Probe(ctx context.Context, r *Provider) sandbox.ProbeResult {
	for {
		r.mu.Lock()
		if fresh(r.result) {
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
				return sandbox.ProbeResult{Name: r.Name(), Capabilities: r.Capabilities(), Err: sandbox.ErrClosing}
			}
		}
		r.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return sandbox.ProbeResult{Name: r.Name(), Capabilities: r.Capabilities(), Err: ctx.Err()}
		}
	}
}

func (l *Selector) run(r *Provider, done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	err := r.Probe(ctx)
	if err != nil {
		l.log.Info("provider does not work here", "provider", r.Name(), "error", err, "hint", errs.Hint(err))
	}
	r.mu.Lock()
	r.result = sandbox.ProbeResult{Name: r.Name(), Capabilities: r.Capabilities(), Err: err, At: time.Now()}
	r.probing = nil
	r.mu.Unlock()
	close(done)
}

// Doubt makes the next caller probe again, after something went wrong.
func (r *Provider) Doubt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result = sandbox.ProbeResult{}
}

func fresh(p sandbox.ProbeResult) bool {
	switch {
	case p.At.IsZero():
		return false
	case p.Err != nil:
		return time.Since(p.At) < probeFailedFor
	}
	return time.Since(p.At) < probeOKFor
}

// Choose returns the provider for a normalised spec. It never degrades: what
// cannot be had is an error that says what there is instead.
func (l *Selector) Choose(ctx context.Context, s sandbox.Spec) (*Provider, error) {
	if s.Provider != sandbox.ProviderAuto {
		return l.Named(ctx, s)
	}
	var refusals []error
	for _, r := range l.providers {
		if !l.eligible(r, s) {
			continue
		}
		result := l.Probe(ctx, r)
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

// Providers lists the providers, strongest first.
func (l *Selector) Providers() []*Provider { return l.providers }

// eligible says whether auto may choose r: it is as strong as required, and it
// isolates at all. An emulated CPU is ten to twenty times slower, so that it is
// taken only where the spec requires what nothing faster gives. No isolation is only ever a default where the operator
// gave the server nothing else. A machine elsewhere is only ever asked for by name.
func (l *Selector) eligible(r *Provider, s sandbox.Spec) bool {
	i := r.Capabilities().Isolation
	if i == sandbox.Remote {
		return false
	}
	if s.Require != "" && !i.AtLeast(s.Require) {
		return false
	}
	if i == sandbox.MicroVMEmulated && s.Require != sandbox.MicroVMEmulated {
		return false
	}
	return i != sandbox.None || l.providers[0].Capabilities().Isolation == sandbox.None
}

// Named returns the provider that the spec names.
func (l *Selector) Named(ctx context.Context, s sandbox.Spec) (*Provider, error) {
	r, ok := l.Get(s.Provider)
	if !ok {
		return nil, errs.New(errs.Invalid, "provider: %.40q is none of %s", s.Provider, strings.Join(append([]string{sandbox.ProviderAuto}, l.names()...), ", "))
	}
	if i := r.Capabilities().Isolation; s.Require != "" && !i.AtLeast(s.Require) {
		return nil, l.unsupported(ctx, s, nil)
	}
	result := l.Probe(ctx, r)
	if result.Err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if result.Err != nil {
		return nil, l.unsupported(ctx, s, []error{fmt.Errorf("%s: %w", r.Name(), result.Err)})
	}
	return r, nil
}

func (l *Selector) names() (names []string) {
	for _, r := range l.providers {
		names = append(names, r.Name())
	}
	return names
}

// unsupported says what was asked for, why it cannot be had, and what can.
func (l *Selector) unsupported(ctx context.Context, s sandbox.Spec, refusals []error) error {
	asked := "a sandbox"
	if s.Provider != sandbox.ProviderAuto {
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
func (l *Selector) working(ctx context.Context) string {
	var names []string
	for _, p := range l.Probes(ctx) {
		if p.Err == nil {
			names = append(names, fmt.Sprintf("%s (%s)", p.Name, p.Capabilities.Isolation))
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}
