package manager

import (
	"context"

	"github.com/skete-dev/skete/sandbox"
)

// Check refuses a spec of which Create could make nothing, whatever there is room for.
func (m *Manager) Check(spec sandbox.Spec) error {
	_, err := sandbox.Normalise(spec, m.deps.Limits, m.deps.Defaults)
	return err
}

// Settle returns what Create would make of a spec: all defaults filled in, the
// template of the provider that would be chosen among them.
//
// Errors are Create's.
func (m *Manager) Settle(ctx context.Context, spec sandbox.Spec) (sandbox.Spec, error) {
	spec, err := sandbox.Normalise(spec, m.deps.Limits, m.deps.Defaults)
	if err != nil {
		return sandbox.Spec{}, err
	}
	p, err := m.deps.Selector.Choose(ctx, spec)
	if err != nil {
		return sandbox.Spec{}, err
	}
	return spec.Settled(p.Capabilities(), m.deps.Defaults), nil
}
