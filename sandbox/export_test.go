package sandbox

// What tests in sandbox_test look at.

// Waiters counts the callers that wait for work on a tenant's sandboxes.
func Waiters(m *Manager, tenant string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.boxes {
		b.mu.Lock()
		if b.tenant == tenant && b.flight != nil {
			n += b.flight.waiters
		}
		b.mu.Unlock()
	}
	return n
}

// Used says what is charged to tenants.
func Used(m *Manager) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := map[string]string{}
	for tenant, u := range m.used {
		if u.sandboxes != 0 || u.memoryMB != 0 || u.cpus > 1e-6 {
			used[tenant] = "something"
		}
	}
	return used
}
