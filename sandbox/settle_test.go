package sandbox_test

import (
	"slices"
	"testing"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/template"
)

func TestSettled_templateByProvider(t *testing.T) {
	shared, image := sandbox.Capabilities{}, sandbox.Capabilities{RootImage: true}
	for _, c := range []struct {
		caps               sandbox.Capabilities
		template, language string
		want               string
	}{
		{shared, "", "", "host"},
		{shared, "", "python", "host"},
		{shared, "mine", "python", "mine"},
		{image, "", "", "debian"},
		{image, "", "ruby", "ruby"},
		{image, "mine", "ruby", "mine"},
		{image, "host", "", "host"}, // asked for: the provider's refusal says why not
	} {
		got := sandbox.Spec{Template: c.template, Language: c.language}.Settled(c.caps, sandbox.Defaults{}).Template
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c, got, c.want)
		}
	}
}

// Each language must have a ready template, or Settled names one that cannot be made.
func TestSettled_everyLanguageHasAReadyTemplate(t *testing.T) {
	for _, lang := range sandbox.Languages {
		if name := (sandbox.Spec{Language: lang}).Settled(sandbox.Capabilities{RootImage: true}, sandbox.Defaults{}).Template; !slices.Contains(template.ReadyNames(), name) {
			t.Errorf("%s: %q is no ready template", lang, name)
		}
	}
}

// A network that was not asked for is the server's, and is none where there can be none.
func TestSettled_network(t *testing.T) {
	with := sandbox.Capabilities{Network: true}
	for _, c := range []struct {
		caps               sandbox.Capabilities
		asked, usual, want string
	}{
		{with, "", "", egress.None},
		{with, "", egress.Default, egress.Default},
		{with, egress.None, egress.Default, egress.None},
		{with, egress.Open, egress.Default, egress.Open},
		{sandbox.Capabilities{}, "", egress.Default, egress.None},
	} {
		s, err := sandbox.Normalise(sandbox.Spec{Network: c.asked}, sandbox.Limits{}, sandbox.Defaults{Network: c.usual})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Fits(c.caps); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if got := s.Settled(c.caps, sandbox.Defaults{Network: c.usual}); got.Network != c.want || got.HasNetwork() != (c.want != egress.None) {
			t.Errorf("%+v: %q", c, got.Network)
		}
	}
	rules, err := sandbox.Normalise(sandbox.Spec{Egress: &egress.Policy{}}, sandbox.Limits{}, sandbox.Defaults{Network: egress.Default})
	if err != nil || rules.Network != egress.None {
		t.Errorf("rules alone: %q, %v", rules.Network, err)
	}
}

func TestFits_bounds(t *testing.T) {
	can, cannot := sandbox.Capabilities{LimitsDiskRate: true}, sandbox.Capabilities{}
	for _, s := range []sandbox.Spec{{DiskMBps: 1}, {DiskIOPS: 1}} {
		if err := s.Fits(can); err != nil {
			t.Error(err)
		}
		if err := s.Fits(cannot); !errs.Is(err, errs.Unsupported) {
			t.Errorf("a bound that would not hold: %v", err)
		}
	}
	if err := (sandbox.Spec{}).Fits(cannot); err != nil {
		t.Error(err)
	}
}
