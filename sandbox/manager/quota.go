package manager

import (
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/life"
	"github.com/skete-dev/skete/sandbox/snapshot"
)

// withinFor is how long a look at what a tenant holds is good enough for Within.
const withinFor = time.Second

// holdings is what a tenant really holds of the host's disks, in bytes.
type holdings struct{ sandboxes, snapshots, histories int64 }

func (h holdings) mb() int { return int((h.sandboxes + h.snapshots + h.histories) >> 20) }

// looked is what a tenant held, and when that was.
type looked struct {
	holdings
	at time.Time
}

// holds adds up what a tenant holds now.
func (m *Manager) holds(tenant string) holdings {
	h := m.keptBeside(tenant)
	for _, k := range m.everyone() {
		if k.Tenant() == tenant {
			volume, beside := k.Held()
			h.sandboxes += volume + beside
		}
	}
	return h
}

// keptBeside is what a tenant holds beside its sandboxes; those that are destroyed
// may have left histories.
func (m *Manager) keptBeside(tenant string) (h holdings) {
	for _, s := range m.deps.Snapshots.List(tenant) {
		h.snapshots += s.Bytes
		if m.c.Disks != nil {
			files, _, _ := m.c.Disks.Held(snapshot.VolumeOf(s.ID))
			h.snapshots += files
		}
	}
	if m.c.Histories != nil {
		h.histories = m.c.Histories(tenant)
	}
	return h
}

// Within refuses to keep more for a tenant that holds as much disk as it may: Limit.
// It may answer with what was so a moment ago, for revisions ask it, and they are many.
func (m *Manager) Within(tenant string) error {
	if m.deps.Limits.TenantDiskMB <= 0 {
		return nil
	}
	m.mu.Lock()
	last := m.looked[tenant]
	m.mu.Unlock()
	if time.Since(last.at) >= withinFor {
		last = looked{m.holds(tenant), time.Now()}
		m.mu.Lock()
		m.looked[tenant] = last
		m.mu.Unlock()
	}
	return m.within(last.holdings)
}

// within refuses to keep more for a tenant that holds so much. Preconditions: there
// is a quota.
func (m *Manager) within(h holdings) error {
	most := m.deps.Limits.TenantDiskMB
	if h.mb() < most {
		return nil
	}
	hint := "destroy sandboxes (`skete vm list`), delete snapshots (`skete vm snapshots`), or ask the operator for more"
	if h.histories > 0 {
		hint += "; histories of destroyed sandboxes (`skete history kept`) can be deleted, and go by themselves a week later"
	}
	return errs.New(errs.Limit, "quota of %d MB of disk is used up: sandboxes hold %d MB, snapshots %d, histories %d",
		most, h.sandboxes>>20, h.snapshots>>20, h.histories>>20).WithHint("%s", hint)
}

// levels is from what sandboxes' growth counts: what they held at the last look at
// which their tenant was within its quota, or when they were stopped for it.
type levels map[sandbox.ID]int64

// overQuota stops those sandboxes of tenants over their quota that still grow. To
// stop another one would give nothing back.
func (m *Manager) overQuota(from levels) {
	if m.deps.Limits.TenantDiskMB <= 0 {
		return
	}
	tenants := map[string][]*life.Sandbox{}
	all := map[sandbox.ID]bool{}
	for _, k := range m.everyone() {
		all[k.ID()] = true
		tenants[k.Tenant()] = append(tenants[k.Tenant()], k)
	}
	for tenant, ks := range tenants {
		m.tenantOverQuota(tenant, ks, from)
	}
	for id := range from {
		if !all[id] {
			delete(from, id)
		}
	}
}

func (m *Manager) tenantOverQuota(tenant string, ks []*life.Sandbox, from levels) {
	now, h := levels{}, m.keptBeside(tenant)
	for _, k := range ks {
		volume, beside := k.Held()
		now[k.ID()] = volume + beside
		h.sandboxes += volume + beside
	}
	over := h.mb() > m.deps.Limits.TenantDiskMB
	for _, k := range ks {
		grew := from.grew(k.ID(), now[k.ID()], over && k.Runs())
		if grew < growsMin || m.under(k, choreQuota) {
			continue
		}
		from[k.ID()] = now[k.ID()]
		m.apart(k, choreQuota, func() {
			m.c.Log.Info("a tenant exceeds its disk; a sandbox of it that grows is stopped", "tenant", tenant, "id", k.ID(), "grew_bytes", grew)
			if err := k.OverQuota(m.ctx); err != nil && m.ctx.Err() == nil {
				m.c.Log.Error("cannot stop what exceeds a tenant's disk", "id", k.ID(), "error", err)
			}
		})
	}
}

// grew is how much a sandbox that holds now has grown. What is seen first has not,
// and what does not count becomes where it grows from.
func (l levels) grew(id sandbox.ID, now int64, counts bool) int64 {
	was, known := l[id]
	if !known || !counts {
		l[id] = now
		return 0
	}
	return now - was
}
