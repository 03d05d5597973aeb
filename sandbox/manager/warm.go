package manager

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/life"
	"github.com/skete-dev/skete/sandbox/pool"
	"github.com/skete-dev/skete/template"
)

// poolCloseTimeout is what destroying all warm machines may take at a stop.
const poolCloseTimeout = 30 * time.Second

// openPool makes the pool; reconcile fills in what an earlier server left.
func (m *Manager) openPool() {
	m.deps.GuestID = guestID(m.c.Guest)
	m.deps.Pool = pool.New(pool.Deps{
		Node: m.c.Node, Guest: m.c.Guest, Network: m.network, GuestID: m.deps.GuestID, Registry: m.c.Registry, Volumes: m.c.Volumes,
		Snapshots: m.deps.Snapshots,
		Provider:  func(name string) (sandbox.Provider, bool) { return m.deps.Selector.Get(name) },
		Resolve:   m.resolve, FreshDir: m.deps.FreshDir, RemoveDir: m.deps.RemoveDir,
		Boots: m.deps.Boots, Host: m.lookAtHost,
		Log: m.c.Log, Now: m.c.Now, Ctx: m.ctx, Spawn: m.spawn,
	}, m.c.Warm)
}

// lookAtHost is how the host is off for machines that no caller waits for.
func (m *Manager) lookAtHost() pool.Host {
	h := pool.LookAtHost()
	h.DiskFull = m.c.Host.Begin() != nil
	return h
}

// guestID names a guest program by its content.
func guestID(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return path // it will not boot, which says so better
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return path
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// resolve says what a create of a spec would use now.
func (m *Manager) resolve(ctx context.Context, s sandbox.Spec) (shape pool.Shape, root template.Rootfs, err error) {
	m.mu.Lock()
	fenced := m.fenced
	m.mu.Unlock()
	if fenced {
		return shape, root, errFenced
	}
	if s, err = m.normalise(ctx, s); err != nil {
		return shape, root, err
	}
	p, err := m.deps.Selector.Choose(ctx, s)
	if err != nil {
		return shape, root, err
	}
	c := p.Capabilities()
	if c.Isolation == sandbox.None {
		return shape, root, errs.New(errs.Unsupported, "what isolates nothing is not kept warm")
	}
	s = s.Settled(c, m.deps.Defaults)
	if root, err = life.RootfsFor(ctx, m.deps.Templates, s, c); err != nil {
		return shape, root, err
	}
	return pool.ShapeOf(s, p.Name(), root, m.deps.GuestID), root, nil
}

// closePool destroys what is warm, unless another server may have our node.
func (m *Manager) closePool() {
	m.mu.Lock()
	fenced := m.fenced
	m.mu.Unlock()
	if fenced {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), poolCloseTimeout)
	defer cancel()
	m.deps.Pool.Close(ctx)
}

// Pool says what is kept warm.
func (m *Manager) Pool() pool.Status { return m.deps.Pool.Status() }

// hosts lists the sandboxes by the name that the host knows them by.
func (m *Manager) hosts() map[sandbox.ID]*life.Sandbox {
	all := map[sandbox.ID]*life.Sandbox{}
	for _, k := range m.everyone() {
		all[k.Host()] = k
	}
	return all
}

// machineOf is the machine in a record that cannot be read otherwise, so that
// it is left alone too.
func machineOf(value []byte) sandbox.ID {
	var r struct {
		Machine sandbox.ID `json:"machine"`
	}
	_ = json.Unmarshal(value, &r)
	return r.Machine
}
