package manager_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// fakeNetworks notes what it is told.
type fakeNetworks struct {
	mu                 sync.Mutex
	changed, forgotten []sandbox.ID
	err                error // of Changed
}

func (n *fakeNetworks) Machine(context.Context, sandbox.Info) *sandbox.Network {
	return &sandbox.Network{Authority: "CERT"}
}

func (n *fakeNetworks) Changed(host sandbox.ID) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed = append(n.changed, host)
	return n.err
}

func (n *fakeNetworks) Forget(id sandbox.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forgotten = append(n.forgotten, id)
}

// A policy that changes is in the record before the network is told, whose machine is
// found by its host name; what was decided goes with the sandbox.
func TestNetworks(t *testing.T) {
	w := newWorld(t)
	c, n := w.config(nil), &fakeNetworks{}
	c.Networks = n
	m := w.open(t, c)
	first := create(t, m, "t", sandbox.Spec{Egress: &egress.Policy{}})
	forks, err := m.Fork(t.Context(), "t", first.ID, sandbox.ForkRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	policy := egress.Policy{Profile: egress.Open, Deny: []egress.Rule{{Host: "a.example.com"}}}
	if _, err := m.Update(t.Context(), "t", first.ID, sandbox.UpdateRequest{Network: &policy}); err != nil {
		t.Fatal(err)
	}
	if len(n.changed) != 1 {
		t.Fatalf("it is told %d times", len(n.changed))
	}
	tenant, info, ok := m.OfHost(n.changed[0])
	if !ok || tenant != "t" || info.ID != first.ID || info.Spec.Policy().Profile != egress.Open || len(info.Spec.Policy().Deny) != 1 {
		t.Errorf("the machine is of %s %+v", tenant, info.Spec)
	}
	if fork, err := m.Get(t.Context(), "t", forks[0].ID); err != nil || fork.Spec.Network != egress.None {
		t.Errorf("its fork has the network %q, %v", fork.Spec.Network, err)
	}
	if _, _, ok := m.OfHost("sbx_nothing"); ok {
		t.Error("a machine of no sandbox is one of some")
	}
	for _, id := range []sandbox.ID{first.ID, forks[0].ID} {
		if err := m.Destroy(t.Context(), "t", id); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both are forgotten", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return slices.Contains(n.forgotten, first.ID) && slices.Contains(n.forgotten, forks[0].ID)
	})
}

// A sandbox without a network is given none, a policy that is wrong is not taken, and a
// machine that cannot be told makes the change fail.
func TestNetworks_refused(t *testing.T) {
	w := newWorld(t)
	c, n := w.config(nil), &fakeNetworks{err: errs.New(errs.Unavailable, "the server stops")}
	c.Networks = n
	m := w.open(t, c)
	alone, with := create(t, m, "t", sandbox.Spec{}), create(t, m, "t", sandbox.Spec{Network: egress.Open})
	for want, u := range map[errs.Class]struct {
		id sandbox.ID
		p  egress.Policy
	}{
		errs.Unsupported: {alone.ID, egress.Policy{Profile: egress.Open}},
		errs.Invalid:     {with.ID, egress.Policy{Allow: []egress.Rule{{Host: "10.0.0.1"}}}},
		errs.Unavailable: {with.ID, egress.Policy{}},
	} {
		if _, err := m.Update(t.Context(), "t", u.id, sandbox.UpdateRequest{Network: &u.p}); !errs.Is(err, want) {
			t.Errorf("%+v: %v, not %s", u.p, err, want)
		}
	}
}
