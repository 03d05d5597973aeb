package manager

import (
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/life"
	"github.com/skete-dev/skete/sandbox/quota"
)

const (
	diskWatchEvery = 2 * time.Second
	// The nearer the host's disks are to their marks, the more often they are
	// looked at: a sandbox is thought to write so much in a second.
	writtenPerSecond = 4 << 30
	hostWatchMin     = 20 * time.Millisecond
	// A look takes at most this part of a processor's time. What it waits for, a
	// processor or a disk that others keep busy, does not count: just then the
	// next look must not be late.
	hostWatchShare = 20
	// growthHalf is after how long growth counts half.
	growthHalf = 3 * time.Second
	// growsMin is more than editing files writes, growsMuch fills a disk.
	growsMin  = 8 << 20
	growsMuch = 16 << 20
	// diskNear is how far from a mark the disks are when growth is watched, beside
	// what the host's memory may hold for them.
	diskNear = 8 << 30
)

// watchDisks looks at workspaces whose size the host does not enforce, at volumes
// that take no writes any more, and at what tenants hold altogether.
func (m *Manager) watchDisks() {
	from := levels{}
	for m.ctx.Err() == nil {
		_ = sleep.For(m.ctx, diskWatchEvery)
		for _, k := range m.everyone() {
			k.CheckDisk(m.ctx)
		}
		m.cutOff()
		m.mend()
		m.overQuota(from)
	}
}

// chore is a kind of work on one sandbox that the watch over the disks starts.
type chore struct {
	id   sandbox.ID
	what string
}

// apart does a piece of work on a sandbox beside the watch, which waits for none:
// a sandbox that hangs must not keep others from being looked at. Nothing happens
// while the same work on the same sandbox is under way; of different work, the
// sandbox does one piece at a time.
func (m *Manager) apart(k *life.Sandbox, what string, work func()) {
	c := chore{k.ID(), what}
	m.mu.Lock()
	under := m.chores[c]
	m.chores[c] = true
	m.mu.Unlock()
	if under {
		return
	}
	done := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.chores, c)
	}
	if !m.spawn(func() { defer done(); work() }) {
		done()
	}
}

// under reports whether work on a sandbox is under way.
func (m *Manager) under(k *life.Sandbox, what string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.chores[chore{k.ID(), what}]
}

// What the watch does apart.
const (
	choreHold  = "hold still"
	choreGoOn  = "go on"
	choreCut   = "cut off"
	choreMend  = "mend"
	choreQuota = "over quota"
)

// cutOff stops sandboxes whose volumes the kernel has made read-only.
func (m *Manager) cutOff() {
	if m.c.Disks == nil {
		return
	}
	ids, err := m.c.Disks.ReadOnly()
	if err != nil {
		m.c.Log.Error("cannot look for volumes that are read-only", "error", err)
	}
	if len(ids) == 0 {
		return
	}
	hosts := m.hosts()
	for _, id := range ids {
		k := hosts[sandbox.ID(id)]
		if k == nil || !k.Runs() {
			continue
		}
		m.apart(k, choreCut, func() {
			m.c.Log.Error("a workspace became read-only, since its disk was full; its sandbox is stopped", "id", k.ID())
			if err := k.CutOff(m.ctx); err != nil && m.ctx.Err() == nil {
				m.c.Log.Error("cannot stop a sandbox whose workspace became read-only; will try again", "id", k.ID(), "error", err)
			}
		})
	}
}

// mend has the volumes checked that the kernel made read-only, once there is room.
func (m *Manager) mend() {
	if m.c.Disks == nil || m.c.Host.GoOn() != nil {
		return
	}
	for _, k := range m.everyone() {
		if !k.Ailing() {
			continue
		}
		m.apart(k, choreMend, func() {
			if err := k.Mend(m.ctx); err != nil && m.ctx.Err() == nil {
				m.c.Log.Error("a workspace that became read-only cannot be checked now", "id", k.ID(), "error", err)
			}
		})
	}
}

// mayGrow refuses what the host's disks have no room for, or the tenant's quota.
func (m *Manager) mayGrow(tenant string, s sandbox.Spec) error {
	if err := m.c.Host.Fits(s.DiskMB); err != nil {
		return err
	}
	return m.mayKeep(tenant)
}

// mayKeep refuses to keep more for a tenant than its quota, or while a disk of the
// host has no room for anything new.
func (m *Manager) mayKeep(tenant string) error {
	if m.deps.Limits.TenantDiskMB > 0 {
		if err := m.within(m.holds(tenant)); err != nil {
			return err
		}
	}
	return m.c.Host.Begin()
}

// growth is how much a sandbox has grown of late: its volume, and beside it.
type growth struct{ volume, beside part }

// part of what a sandbox holds, on one disk.
type part struct {
	held int64
	by   float64 // bytes, the older the less
}

// grown is the part at the next look.
func (p part) grown(held int64, keep float64) part {
	return part{held, p.by*keep + float64(max(held-p.held, 0))}
}

// by is how much a sandbox has grown on those disks that must be spared.
func (g growth) by(marks quota.Marks) (sum float64) {
	if marks.Workspaces != quota.Plenty {
		sum += g.volume.by
	}
	if marks.Rest != quota.Plenty {
		sum += g.beside.by
	}
	return sum
}

// watchHost holds still who fills the host's disks, before the disks are full: then
// every tenant's file system would fail. They go on when there is room.
func (m *Manager) watchHost() {
	near := int64(diskNear)
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		near += int64(uint64(si.Totalram) * uint64(si.Unit) / 5)
	}
	runtime.LockOSThread() // whose processor time is measured
	defer runtime.UnlockOSThread()
	grew, last := map[sandbox.ID]growth{}, time.Now()
	for wait := time.Duration(0); m.ctx.Err() == nil; _ = sleep.For(m.ctx, wait) {
		began, busy := time.Now(), threadTime()
		marks, left := m.c.Host.Look()
		mark := marks.Worst()
		if left < near {
			m.measure(grew, began.Sub(last))
			m.hold(grew, marks)
		} else {
			clear(grew)
		}
		last = began
		if mark == quota.Plenty && m.c.Host.Begin() == nil {
			m.goOn()
		}
		wait = time.Duration(float64(max(left, 0)) / writtenPerSecond * float64(time.Second))
		wait = min(max(wait, hostWatchMin, hostWatchShare*(threadTime()-busy)), diskWatchEvery)
		if mark != quota.Plenty && len(grew) == 0 {
			wait = diskWatchEvery / 4 // it is not us who fill it
		}
	}
}

// threadTime is the processor time that this thread has taken.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// measure brings grew up to date.
func (m *Manager) measure(grew map[sandbox.ID]growth, since time.Duration) {
	keep := math.Exp2(-since.Seconds() / growthHalf.Seconds())
	all := map[sandbox.ID]bool{}
	for _, k := range m.everyone() {
		if !k.Runs() {
			continue
		}
		all[k.ID()] = true
		volume, beside := k.Held()
		g, known := grew[k.ID()]
		if !known {
			g = growth{part{held: volume}, part{held: beside}}
		}
		grew[k.ID()] = growth{g.volume.grown(volume, keep), g.beside.grown(beside, keep)}
	}
	for id := range grew {
		if !all[id] {
			delete(grew, id)
		}
	}
}

// hold holds still who must be at the mark: Near, those who grow most; Touched, all
// who grow. Who grows on another disk is not asked to spare this one.
func (m *Manager) hold(grew map[sandbox.ID]growth, marks quota.Marks) {
	mark := marks.Worst()
	if mark == quota.Plenty {
		return
	}
	var most float64
	for _, g := range grew {
		most = max(most, g.by(marks))
	}
	for id, g := range grew {
		by := g.by(marks)
		if mark == quota.Touched && by < growsMin || mark == quota.Near && (by < growsMuch || by < most/4) {
			continue
		}
		k := m.lifeOf(id)
		if k == nil {
			continue
		}
		delete(grew, id)
		// Not here: the record may take long to be written now, and others grow meanwhile.
		m.apart(k, choreHold, func() { m.holdStill(k, int64(by)) })
	}
}

func (m *Manager) holdStill(k *life.Sandbox, grew int64) {
	err := k.HoldStill(m.ctx)
	m.c.Log.Error("the server's disk is nearly full: the sandbox that fills it is held still", "id", k.ID(), "tenant", k.Tenant(), "grew_bytes", grew)
	if err != nil && m.ctx.Err() == nil {
		m.c.Log.Error("cannot hold a sandbox still that fills the server's disk", "id", k.ID(), "error", err)
	}
}

// goOn wakes those that were held still.
func (m *Manager) goOn() {
	for _, k := range m.everyone() {
		if !k.HeldStill() {
			continue
		}
		m.apart(k, choreGoOn, func() {
			if err := k.GoOn(m.ctx); err != nil && m.ctx.Err() == nil {
				m.c.Log.Warn("a sandbox that was held still cannot go on yet", "id", k.ID(), "error", err)
			}
		})
	}
}
