package manager

import (
	"github.com/skete-dev/skete/sandbox/quota"
)

// What tests in manager_test look at.

// Waiters counts the callers that wait for work on a tenant's sandboxes.
func Waiters(m *Manager, tenant string) (n int) {
	for _, k := range m.everyone() {
		if k.Tenant() == tenant {
			n += k.Waiters()
		}
	}
	return n
}

// Used says what is charged to a tenant.
func Used(m *Manager, tenant string) quota.Usage { return m.deps.Quota.Used(tenant) }
