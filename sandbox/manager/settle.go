package manager

import (
	"cmp"
	"context"

	"github.com/skete-dev/skete/sandbox"
)

// Check refuses a spec of which Create could make nothing, whatever there is room for.
func (m *Manager) Check(spec sandbox.Spec) error {
	_, err := sandbox.Normalise(spec, m.deps.Limits, m.deps.Defaults)
	return err
}

// normalise checks a spec and fills in what it leaves open: what its template is meant
// for, as far as the limits allow that, and then the server's defaults.
func (m *Manager) normalise(ctx context.Context, spec sandbox.Spec) (sandbox.Spec, error) {
	if name := cmp.Or(spec.Template, m.deps.Defaults.Template); name != "" && (spec.CPUs == 0 || spec.MemoryMB == 0) {
		needs := m.deps.Templates.Needs(ctx, name)
		spec.CPUs = cmp.Or(spec.CPUs, min(needs.CPUs, m.deps.Limits.CPUsMax))
		spec.MemoryMB = cmp.Or(spec.MemoryMB, min(needs.MemoryMB, m.deps.Limits.MemoryMBMax))
	}
	return sandbox.Normalise(spec, m.deps.Limits, m.deps.Defaults)
}

// Settle returns what Create would make of a spec: all defaults filled in, the
// template of the provider that would be chosen among them.
//
// Errors are Create's.
func (m *Manager) Settle(ctx context.Context, spec sandbox.Spec) (sandbox.Spec, error) {
	spec, err := m.normalise(ctx, spec)
	if err != nil {
		return sandbox.Spec{}, err
	}
	p, err := m.deps.Selector.Choose(ctx, spec)
	if err != nil {
		return sandbox.Spec{}, err
	}
	return spec.Settled(p.Capabilities(), m.deps.Defaults), nil
}
