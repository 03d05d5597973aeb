package sandbox

import (
	"github.com/skete-dev/skete/errs"
)

// usage is what counts against a tenant's quota: sandboxes until they are
// destroyed, cpu and memory while there is a machine.
type usage struct {
	sandboxes int
	cpus      float64
	memoryMB  int
}

func (u usage) plus(v usage) usage {
	return usage{u.sandboxes + v.sandboxes, u.cpus + v.cpus, u.memoryMB + v.memoryMB}
}

func (u usage) minus(v usage) usage {
	return usage{u.sandboxes - v.sandboxes, u.cpus - v.cpus, u.memoryMB - v.memoryMB}
}

// machineUsage is what a machine of the spec costs.
func (s Spec) machineUsage() usage { return usage{cpus: s.CPUs, memoryMB: s.MemoryMB} }

// charge counts u against the tenant's quota, or refuses.
//
// Preconditions: m.mu is held.
func (m *Manager) charge(tenant string, u usage) error {
	sum := m.used[tenant].plus(u)
	l := m.limits
	const hint = "destroy or stop some (`skete vm list`), or ask the operator for more"
	switch {
	case u.sandboxes > 0 && sum.sandboxes > l.Sandboxes:
		return errs.New(errs.Limit, "quota of %d sandboxes is used up", l.Sandboxes).WithHint(hint)
	case l.TenantCPUs > 0 && u.cpus > 0 && sum.cpus > l.TenantCPUs:
		return errs.New(errs.Limit, "quota of %g cpus is used up", l.TenantCPUs).WithHint(hint)
	case l.TenantMemoryMB > 0 && u.memoryMB > 0 && sum.memoryMB > l.TenantMemoryMB:
		return errs.New(errs.Limit, "quota of %d MB of memory is used up", l.TenantMemoryMB).WithHint(hint)
	}
	m.used[tenant] = sum
	return nil
}

// settle makes what b is charged equal to what it should be now. It never
// refuses: it is for changes that have happened.
func (m *Manager) settle(b *box, want usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[b.tenant] = m.used[b.tenant].minus(b.charged).plus(want)
	if m.used[b.tenant] == (usage{}) {
		delete(m.used, b.tenant)
	}
	b.charged = want
}

// chargeMachine charges a machine for a sandbox that has none, or refuses.
func (m *Manager) chargeMachine(b *box, s Spec) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.charge(b.tenant, s.machineUsage()); err != nil {
		return err
	}
	b.charged = b.charged.plus(s.machineUsage())
	return nil
}
