package selector_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/selector"
)

// provider gives out one machine.
type provider struct {
	sandbox.Provider
	name    string
	machine sandbox.Machine
}

func (p *provider) Name() string                       { return p.name }
func (p *provider) Capabilities() sandbox.Capabilities { return sandbox.Capabilities{} }

func (p *provider) Create(context.Context, sandbox.Boot) (sandbox.Machine, error) {
	return p.give()
}

func (p *provider) Attach(context.Context, sandbox.ID) (sandbox.Machine, error) { return p.give() }

func (p *provider) give() (sandbox.Machine, error) {
	if p.machine == nil {
		return nil, errs.New(errs.Unavailable, "none")
	}
	return p.machine, nil
}

type counting struct {
	sandbox.Machine
	reads int64
}

func (c *counting) Counts(context.Context) (sandbox.Counts, error) {
	return sandbox.Counts{DiskReads: c.reads}, nil
}

func (c *counting) Wait(ctx context.Context) (sandbox.Exit, error) {
	<-ctx.Done()
	return sandbox.Exit{}, ctx.Err()
}

type silent struct{ sandbox.Machine }

func TestCounts_areOfAllThatWasMadeOrAttached(t *testing.T) {
	a, b := &provider{name: "a", machine: &counting{reads: 1}}, &provider{name: "b", machine: &counting{reads: 10}}
	mute, broken := &provider{name: "mute", machine: silent{}}, &provider{name: "broken"}
	l := selector.New([]sandbox.Provider{a, b, mute, broken}, slog.New(slog.DiscardHandler), func(func()) bool { return false })
	provided := func(name string) *selector.Provider {
		r, ok := l.Get(name)
		if !ok {
			t.Fatalf("no provider %s", name)
		}
		return r
	}
	want := func(want map[string]sandbox.Counts) {
		t.Helper()
		if diff := cmp.Diff(want, l.Counts(t.Context())); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	}
	want(map[string]sandbox.Counts{})
	for _, name := range []string{"a", "mute", "broken"} {
		m, err := provided(name).Create(t.Context(), sandbox.Boot{})
		if (err != nil) != (name == "broken") || err == nil && m != provided(name).Provider.(*provider).machine {
			t.Errorf("create on %s: %v, %v", name, m, err)
		}
	}
	want(map[string]sandbox.Counts{"a": {DiskReads: 1}})
	if _, err := provided("b").Attach(t.Context(), "sbx_x"); err != nil {
		t.Error(err)
	}
	a.machine = &counting{reads: 5}
	if _, err := provided("a").Attach(t.Context(), "sbx_y"); err != nil {
		t.Error(err)
	}
	want(map[string]sandbox.Counts{"a": {DiskReads: 6}, "b": {DiskReads: 10}})
}
