package manager

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/life"
	"github.com/skete-dev/skete/sandbox/quota"
	"github.com/skete-dev/skete/sandbox/selector"
	"github.com/skete-dev/skete/template"
)

// Create makes a sandbox and returns when its guest answers. If ctx ends
// before, nothing is left of it when Create returns.
//
// Invalid: the spec. Unsupported: no provider here can do it, and nothing less
// is given instead. Limit: the tenant's quota. Conflict: the key was used for
// another spec, or the sandbox was destroyed meanwhile.
func (m *Manager) Create(ctx context.Context, tenant string, r sandbox.CreateRequest) (sandbox.Info, error) {
	c := life.Request{Asked: time.Now(), Tenant: tenant, ID: sandbox.NewID(), Run: r.Run, Agent: r.Agent, Keep: r.Keep}
	if err := sandbox.CheckTenant(tenant); err != nil {
		return sandbox.Info{}, err
	}
	var err error
	if r.From != "" {
		if r.Spec, c.From, err = m.fromSnapshot(tenant, r); err != nil {
			return sandbox.Info{}, err
		}
	}
	if c.Spec, err = m.normalise(ctx, r.Spec); err != nil {
		return sandbox.Info{}, err
	}
	c.Spec.Metadata = sandbox.WithOwn(c.Spec.Metadata, r.Own)
	if r.Key != "" {
		if err := sandbox.CheckKey(r.Key); err != nil {
			return sandbox.Info{}, err
		}
		c.ID = sandbox.KeyedID(m.secret, tenant, r.Key)
	}
	if c.Spec.Models != nil {
		c.Spec.GrantModels(*c.Spec.Models, c.ID)
	}
	for {
		info, err := m.create(ctx, c)
		if !errors.Is(err, life.ErrGone) {
			return info, err
		}
	}
}

// create makes what a checked request asks for.
func (m *Manager) create(ctx context.Context, c life.Request) (sandbox.Info, error) {
	m.mu.Lock()
	k := m.lives[c.ID]
	m.mu.Unlock()
	if k != nil {
		return k.Again(ctx, c)
	}
	if err := m.mayGrow(c.Tenant, c.Spec); err != nil {
		return sandbox.Info{}, err
	}
	p, err := m.deps.Selector.Choose(ctx, c.Spec)
	if err != nil {
		return sandbox.Info{}, err
	}
	root, err := life.RootfsFor(ctx, m.deps.Templates, c.Spec.Settled(p.Capabilities(), m.deps.Defaults), p.Capabilities())
	if err != nil {
		return sandbox.Info{}, err
	}
	named, err := m.claimName(ctx, c.Tenant, c.Spec.Name, c.ID)
	if err != nil {
		return sandbox.Info{}, err
	}
	k, wait, err := m.begin(c, p, root)
	named()
	switch {
	case err != nil:
		m.freeName(c.Tenant, c.Spec.Name, c.ID)
		return sandbox.Info{}, err
	case wait == nil:
		return k.Again(ctx, c)
	}
	if err := wait(ctx); err != nil {
		return sandbox.Info{}, err
	}
	return k.Info(), nil
}

// begin charges the tenant and starts to make a sandbox, or returns the one
// that is there, and no wait.
func (m *Manager) begin(c life.Request, p *selector.Provider, root template.Rootfs) (k *life.Sandbox, wait func(context.Context) error, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.lives[c.ID]; old != nil {
		return old, nil, nil
	}
	switch {
	case m.fenced:
		return nil, nil, errFenced
	case m.sweeping[c.ID]:
		return nil, nil, errs.New(errs.Unavailable, "what an earlier server left of sandbox %s is being removed", c.ID).WithHint("try again in a moment")
	}
	cost := quota.Machine(c.Spec).Plus(quota.Kept(c.Spec))
	if err := m.deps.Quota.Charge(c.Tenant, c.ID, cost); err != nil {
		return nil, nil, err
	}
	k = life.New(&m.deps, c, p)
	m.lives[c.ID] = k
	return k, k.Begin(p, root), nil
}

// Get returns one sandbox; for a day also a destroyed one. NotFound also for
// one of another tenant.
func (m *Manager) Get(_ context.Context, tenant string, id sandbox.ID) (sandbox.Info, error) {
	k, err := m.find(tenant, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	return k.Info(), nil
}

// Known reports whether there is such a sandbox, of any tenant and on any node.
func (m *Manager) Known(id sandbox.ID) bool {
	m.mu.Lock()
	here := m.lives[id] != nil
	m.mu.Unlock()
	return here || m.elsewhere.has(id)
}

// InUse tells whether a machine of any tenant runs from the root file system
// with this hash, or is about to, or could from a snapshot.
func (m *Manager) InUse(hash string) bool {
	return m.deps.Snapshots.Uses(hash) || m.deps.Pool.Uses(hash) || slices.ContainsFunc(m.everyone(), func(k *life.Sandbox) bool {
		info := k.Info()
		return info.RootfsHash == hash && (info.State == sandbox.Creating || info.State == sandbox.Running || info.State == sandbox.Paused)
	})
}

// List returns a page of sandboxes, newest first.
func (m *Manager) List(_ context.Context, tenant string, f sandbox.Filter) (sandbox.Page, error) {
	var all []sandbox.Info
	for _, k := range m.everyone() {
		if k.Tenant() == tenant {
			all = append(all, k.Info())
		}
	}
	return f.Select(all)
}

// Update changes settings of a sandbox that is not destroyed.
func (m *Manager) Update(ctx context.Context, tenant string, id sandbox.ID, u sandbox.UpdateRequest) (sandbox.Info, error) {
	k, err := m.find(tenant, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if err := u.Check(m.deps.Limits); err != nil {
		return sandbox.Info{}, err
	}
	var info sandbox.Info
	if u.Name != nil {
		info, err = m.rename(ctx, k, u)
	} else {
		info, err = k.Update(u)
	}
	if err == nil && u.Network != nil && m.c.Networks != nil {
		err = m.c.Networks.Changed(k.Host())
	}
	return info, err
}

// Start boots a machine for a stopped or failed sandbox; its workspace is as
// it was. Nothing happens to a running one.
func (m *Manager) Start(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error) {
	return m.with(tenant, id, func(k *life.Sandbox) (sandbox.Info, error) { return k.Start(ctx) })
}

// Stop ends the machine and keeps the workspace. Nothing happens to a sandbox
// that has none.
func (m *Manager) Stop(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error) {
	return m.with(tenant, id, func(k *life.Sandbox) (sandbox.Info, error) { return k.Stop(ctx) })
}

// Pause freezes the machine. Nothing happens to a paused one.
func (m *Manager) Pause(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error) {
	return m.with(tenant, id, func(k *life.Sandbox) (sandbox.Info, error) { return k.Pause(ctx) })
}

// Resume goes on after Pause. Nothing happens to a running one.
func (m *Manager) Resume(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error) {
	return m.with(tenant, id, func(k *life.Sandbox) (sandbox.Info, error) { return k.Resume(ctx) })
}

func (m *Manager) with(tenant string, id sandbox.ID, do func(*life.Sandbox) (sandbox.Info, error)) (sandbox.Info, error) {
	k, err := m.find(tenant, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	return do(k)
}

// Destroy ends a sandbox for good, from every state; it wins over whatever is
// under way. It may be repeated.
func (m *Manager) Destroy(ctx context.Context, tenant string, id sandbox.ID) error {
	k, err := m.find(tenant, id)
	if err != nil {
		return err
	}
	return k.Destroy(ctx)
}

// Discard is Destroy of a sandbox whose last changes need not be kept: it waits
// for no look at its files.
func (m *Manager) Discard(ctx context.Context, tenant string, id sandbox.ID) error {
	k, err := m.find(tenant, id)
	if err != nil {
		return err
	}
	return k.Discard(ctx)
}

// Guest returns the client of a running sandbox; a paused one is woken first,
// unless its spec or ctx (sandbox.LetSleep) forbids that. Until release is called (it
// may be repeated) the sandbox counts as used. The client is shared: do not
// close it.
//
// Conflict: the sandbox does not run; the hint says how to get there.
func (m *Manager) Guest(ctx context.Context, tenant string, id sandbox.ID) (c *wire.Client, release func(), err error) {
	k, err := m.find(tenant, id)
	if err != nil {
		return nil, nil, err
	}
	return k.Guest(ctx)
}

// Files calls f with a sandbox's workspace as the host can reach it; see
// life.Sandbox.Files.
func (m *Manager) Files(ctx context.Context, tenant string, id sandbox.ID, f func(context.Context, sandbox.Files) error) error {
	k, err := m.find(tenant, id)
	if err != nil {
		return err
	}
	return k.Files(ctx, f)
}

// Dial opens a TCP port (1..65535) inside a sandbox, loopback included; a
// paused one is woken first. Until the connection is closed the sandbox counts as used. The
// guest's own ports cannot be reached this way.
func (m *Manager) Dial(ctx context.Context, tenant string, id sandbox.ID, port uint32) (net.Conn, error) {
	k, err := m.find(tenant, id)
	if err != nil {
		return nil, err
	}
	return k.Dial(ctx, port)
}

// forget drops a life whose record is deleted.
func (m *Manager) forget(k *life.Sandbox) {
	m.freeName(k.Tenant(), k.LastName(), k.ID())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lives[k.ID()] == k {
		delete(m.lives, k.ID())
	}
	of := m.tombstones[k.Tenant()]
	if i := slices.Index(of, k); i >= 0 {
		of = slices.Delete(of, i, i+1)
		m.tombstones[k.Tenant()] = of
	}
	if len(of) == 0 {
		delete(m.tombstones, k.Tenant())
	}
}

// buried counts tombstones; the oldest of a tenant goes when there are too many.
func (m *Manager) buried(k *life.Sandbox) {
	if m.c.Networks != nil {
		m.c.Networks.Forget(k.ID())
	}
	m.freeName(k.Tenant(), k.LastName(), k.ID())
	m.mu.Lock()
	of := append(m.tombstones[k.Tenant()], k)
	var oldest *life.Sandbox
	if len(of) > tombstonesMax {
		oldest = of[0]
		of = slices.Delete(of, 0, 1)
	}
	m.tombstones[k.Tenant()] = of
	m.mu.Unlock()
	if oldest != nil {
		oldest.Unbury()
	}
}
