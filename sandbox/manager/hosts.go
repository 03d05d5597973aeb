package manager

import (
	"github.com/skete-dev/skete/sandbox"
)

// OfHost returns the sandbox whose machine has a host name; false: none has.
func (m *Manager) OfHost(host sandbox.ID) (tenant string, info sandbox.Info, ok bool) {
	m.mu.Lock()
	k := m.lives[host] // most are named alike
	if k == nil || k.Host() != host {
		k = nil
		for _, other := range m.lives {
			if other.Host() == host {
				k = other
				break
			}
		}
	}
	m.mu.Unlock()
	if k == nil {
		return "", sandbox.Info{}, false
	}
	return k.Tenant(), k.Info(), true
}
