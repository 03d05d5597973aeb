package manager

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// Enter notes that a run of an agent works in a sandbox; own: it is of the thread that the
// sandbox was made for. Nothing is noted of a sandbox that is for no run.
func (m *Manager) Enter(_ context.Context, tenant string, id sandbox.ID, run, agent string, own bool) error {
	k, err := m.find(tenant, id)
	if err != nil {
		return err
	}
	return k.Enter(run, agent, own)
}

// Leave notes that a run is over, in each sandbox that it worked in, and what is
// to become of the one that is its own, after it was not used for wait. It may
// be repeated.
func (m *Manager) Leave(_ context.Context, tenant, run string, then sandbox.Then, wait time.Duration) error {
	var failed error
	for _, k := range m.everyone() {
		if k.Tenant() != tenant || !slices.Contains(k.Info().ForRun.Active, run) {
			continue
		}
		if err := k.Leave(run, then, wait); err != nil && !errs.Is(err, errs.NotFound) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// Keep changes after what time without use a sandbox that is for no run is removed.
func (m *Manager) Keep(_ context.Context, tenant string, id sandbox.ID, wait time.Duration) error {
	k, err := m.find(tenant, id)
	if err != nil {
		return err
	}
	return k.Keep(wait)
}

// RunIn is a run that is under way in a sandbox, as far as that knows.
type RunIn struct {
	Tenant, Run string
}

// Runs lists the runs that are under way in sandboxes that were made for runs.
func (m *Manager) Runs() []RunIn {
	var list []RunIn
	for _, k := range m.everyone() {
		for _, run := range k.Info().ForRun.Active {
			if r := (RunIn{k.Tenant(), run}); !slices.Contains(list, r) {
				list = append(list, r)
			}
		}
	}
	return list
}
