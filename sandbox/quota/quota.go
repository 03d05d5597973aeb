// Package quota counts what each tenant has against what it may have, and what
// the host's disks have left (Host).
//
//	q := quota.New(limits)
//	err := q.Charge(tenant, id, quota.Usage{Sandboxes: 1, CPUs: 2, MemoryMB: 512})
//	q.Set(tenant, id, quota.Usage{Sandboxes: 1}) // it was stopped
//
// Charge is where a quota is enforced: of two callers at the limit exactly one
// wins. A Quota is safe for concurrent use.
//
// Where several nodes keep their records in one store, each also counts what it
// has seen there of the others (Seen), and asks once more when its own record is
// stored (Confirm): the order of the store decides who was first.
package quota

import (
	"math"
	"sync"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// Usage is what counts: sandboxes and the disk that they were promised until they
// are destroyed, cpu and memory while there is a machine.
type Usage struct {
	Sandboxes int
	DiskMB    int
	CPUs      float64
	MemoryMB  int
}

// Kept is what a sandbox of the spec costs while it is not destroyed.
func Kept(s sandbox.Spec) Usage { return Usage{Sandboxes: 1, DiskMB: s.DiskMB} }

// Machine is what a machine of the spec adds.
func Machine(s sandbox.Spec) Usage { return Usage{CPUs: s.CPUs, MemoryMB: s.MemoryMB} }

// Of is what a sandbox costs as it is.
func Of(i sandbox.Info) Usage {
	switch i.State {
	case sandbox.Destroyed:
		return Usage{}
	case sandbox.Stopped, sandbox.Failed:
		return Kept(i.Spec)
	}
	return Machine(i.Spec).Plus(Kept(i.Spec))
}

// Plus adds two usages.
func (u Usage) Plus(v Usage) Usage {
	return Usage{u.Sandboxes + v.Sandboxes, u.DiskMB + v.DiskMB, u.CPUs + v.CPUs, u.MemoryMB + v.MemoryMB}
}

// Quota is the count of all tenants.
type Quota struct {
	limits sandbox.Limits

	mu      sync.Mutex // guards all below; a leaf
	charged map[string]map[sandbox.ID]Usage
	seen    map[sandbox.ID]growth // of those of other nodes
}

// growth is since when a sandbox of another node costs as much as it does.
type growth struct {
	revision uint64 // of its record
	before   Usage  // what it cost until then
}

// New returns an empty count.
func New(l sandbox.Limits) *Quota {
	return &Quota{limits: l, charged: map[string]map[sandbox.ID]Usage{}, seen: map[sandbox.ID]growth{}}
}

// Charge adds u to what the tenant's sandbox costs, or refuses: Limit.
func (q *Quota) Charge(tenant string, id sandbox.ID, u Usage) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.check(q.sum(tenant).Plus(u), u); err != nil {
		return err
	}
	q.set(tenant, id, q.charged[tenant][id].Plus(u))
	return nil
}

// sum adds up anew, so that no rounding of cpus ever accumulates.
func (q *Quota) sum(tenant string) (sum Usage) {
	for _, u := range q.charged[tenant] {
		sum = sum.Plus(u)
	}
	return sum
}

// check looks at the sum in the dimensions in which added adds.
func (q *Quota) check(sum, added Usage) error {
	const hint = "destroy or stop some (`skete vm list`), or ask the operator for more"
	l := q.limits
	switch {
	case added.Sandboxes > 0 && sum.Sandboxes > l.Sandboxes:
		return errs.New(errs.Limit, "quota of %d sandboxes is used up: there are %d, and %d more are asked for", l.Sandboxes, sum.Sandboxes-added.Sandboxes, added.Sandboxes).WithHint(hint)
	case l.TenantDiskMB > 0 && added.DiskMB > 0 && sum.DiskMB > l.TenantDiskMB:
		return errs.New(errs.Limit, "quota of %d MB of disk is used up: its sandboxes were promised %d, and %d more are asked for", l.TenantDiskMB, sum.DiskMB-added.DiskMB, added.DiskMB).
			WithHint("destroy some (`skete vm list`), ask for a smaller --disk, or ask the operator for more")
	case l.TenantCPUs > 0 && added.CPUs > 0 && sum.CPUs > l.TenantCPUs+1e-9:
		return errs.New(errs.Limit, "quota of %g cpus is used up: its machines have %g, and %g more are asked for", l.TenantCPUs, round(sum.CPUs-added.CPUs), added.CPUs).WithHint(hint)
	case l.TenantMemoryMB > 0 && added.MemoryMB > 0 && sum.MemoryMB > l.TenantMemoryMB:
		return errs.New(errs.Limit, "quota of %d MB of memory is used up: its machines have %d, and %d more are asked for", l.TenantMemoryMB, sum.MemoryMB-added.MemoryMB, added.MemoryMB).WithHint(hint)
	}
	return nil
}

// round takes off what a sum of fractions left.
func round(cpus float64) float64 { return math.Round(cpus*1000) / 1000 }

// Set makes what the sandbox costs equal to u. It never refuses: it is for
// changes that have happened.
func (q *Quota) Set(tenant string, id sandbox.ID, u Usage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.set(tenant, id, u)
}

func (q *Quota) set(tenant string, id sandbox.ID, u Usage) {
	of := q.charged[tenant]
	if of == nil {
		of = map[sandbox.ID]Usage{}
		q.charged[tenant] = of
	}
	of[id] = u
	if u == (Usage{}) {
		delete(of, id)
	}
	if len(of) == 0 {
		delete(q.charged, tenant)
	}
}

// Seen makes what a sandbox of another node costs equal to u, by a record of this
// revision.
func (q *Quota) Seen(tenant string, id sandbox.ID, u Usage, revision uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case u == (Usage{}):
		delete(q.seen, id)
	case u.above(q.charged[tenant][id]):
		q.seen[id] = growth{revision, q.charged[tenant][id]}
	}
	q.set(tenant, id, u)
}

func (u Usage) above(v Usage) bool {
	return u.Sandboxes > v.Sandboxes || u.DiskMB > v.DiskMB || u.CPUs > v.CPUs || u.MemoryMB > v.MemoryMB
}

// Confirm refuses what was charged, and stored by a record of this revision, if it
// is too much with what other nodes had stored before: Limit. All records up to
// the revision were Seen.
func (q *Quota) Confirm(tenant string, added Usage, revision uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var sum Usage
	for id, u := range q.charged[tenant] {
		if g := q.seen[id]; g.revision > revision {
			u = g.before
		}
		sum = sum.Plus(u)
	}
	return q.check(sum, added)
}

// Used returns what the tenant has.
func (q *Quota) Used(tenant string) Usage {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sum(tenant)
}
