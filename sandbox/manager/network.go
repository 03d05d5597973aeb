package manager

import (
	"context"

	"github.com/skete-dev/skete/sandbox"
)

// Networks is what a Manager needs of *network.Service. It returns at once, unless it
// says otherwise.
type Networks interface {
	// Machine is what a sandbox's machine is given if it has a network; of one that is
	// kept warm only the spec is known. It may wait for that, but
	// not for long, and ends with ctx.
	Machine(ctx context.Context, i sandbox.Info) *sandbox.Network
	// Changed is told when the policy of a machine's sandbox has changed.
	Changed(host sandbox.ID) error
	// Forget is told when a sandbox is destroyed.
	Forget(id sandbox.ID)
}

func (m *Manager) network(ctx context.Context, i sandbox.Info) *sandbox.Network {
	if m.c.Networks == nil {
		return nil
	}
	return m.c.Networks.Machine(ctx, i)
}

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
