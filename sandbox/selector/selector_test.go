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

// labelled is a provider that works, with an isolation.
type labelled struct {
	sandbox.Provider
	isolation sandbox.Isolation
}

func (p labelled) Name() string { return string(p.isolation) }
func (p labelled) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{Isolation: p.isolation}
}
func (labelled) Probe(context.Context) error { return nil }

// A machine elsewhere is only taken where it is named, and meets no requirement.
func TestChoose_elsewhere(t *testing.T) {
	spawn := func(f func()) bool { go f(); return true }
	elsewhere, here := labelled{isolation: sandbox.Remote}, labelled{isolation: sandbox.Container}
	both := selector.New([]sandbox.Provider{elsewhere, here}, slog.New(slog.DiscardHandler), spawn)
	alone := selector.New([]sandbox.Provider{elsewhere}, slog.New(slog.DiscardHandler), spawn)
	unsafe := selector.New([]sandbox.Provider{elsewhere, labelled{isolation: sandbox.None}}, slog.New(slog.DiscardHandler), spawn)
	for _, tt := range []struct {
		name string
		l    *selector.Selector
		spec sandbox.Spec
		want string
	}{
		{"auto", both, sandbox.Spec{Provider: sandbox.ProviderAuto}, "container"},
		{"auto, nothing else", alone, sandbox.Spec{Provider: sandbox.ProviderAuto}, ""},
		{"auto, beside none", unsafe, sandbox.Spec{Provider: sandbox.ProviderAuto}, "none"},
		{"by name", both, sandbox.Spec{Provider: "remote"}, "remote"},
		{"with microvm", both, sandbox.Spec{Provider: "remote", Require: sandbox.MicroVM}, ""},
		{"with none", both, sandbox.Spec{Provider: "remote", Require: sandbox.None}, ""},
	} {
		got := ""
		p, err := tt.l.Choose(t.Context(), tt.spec)
		if err == nil {
			got = p.Name()
		}
		if got != tt.want || tt.want == "" && !errs.Is(err, errs.Unsupported) {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}
