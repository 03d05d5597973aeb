package sandbox

import (
	"context"
	"time"
)

// Back-off of work that the Manager does by itself and that fails.
const (
	holdOffMin = time.Second
	holdOffMax = 5 * time.Minute
)

// holdOff notes how work on the box ended.
//
// Preconditions: b.mu is held.
func (b *box) holdOff(err error) {
	if err == nil {
		b.failures, b.notUntil = 0, time.Time{}
		return
	}
	d := min(holdOffMin<<min(b.failures, 10), holdOffMax)
	b.failures++
	b.notUntil = time.Now().Add(d)
}

// due returns when the Manager must act on the box by itself; zero = never.
//
// Preconditions: b.mu is held.
func (b *box) due() time.Time {
	var at time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	switch i := b.rec.Info; {
	case b.gone:
		return time.Time{}
	case b.rec.Plan != planNone:
		sooner(time.Now()) // finish it
	case i.State == Destroyed:
		sooner(b.deadline) // of the tombstone
	case i.State == Running || i.State == Paused:
		if b.machine == nil && b.flight == nil {
			sooner(time.Now()) // note its loss
		}
		sooner(b.deadline)
		if i.State == Running && b.uses == 0 {
			sooner(b.used.Add(i.Spec.IdleTimeout))
		}
	case !i.Spec.Persist:
		sooner(b.deadline)
	}
	if !at.IsZero() && at.Before(b.notUntil) {
		return b.notUntil
	}
	return at
}

// arm sets the box's timer.
//
// Preconditions: b.mu is held.
func (m *Manager) arm(b *box) {
	at := b.due()
	switch {
	case at.IsZero() || b.flight != nil || m.ctx.Err() != nil: // a flight arms when it ends
		if b.timer != nil {
			b.timer.Stop()
		}
	case b.timer == nil:
		b.timer = time.AfterFunc(time.Until(at), func() { m.spawn(func() { m.expire(b) }) })
	default:
		b.timer.Reset(time.Until(at))
	}
}

// expire does what is due on the box, if it still is.
func (m *Manager) expire(b *box) {
	b.mu.Lock()
	j, ok := m.dueJob(b)
	if !ok {
		m.arm(b)
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	if err := m.do(m.ctx, b, j); err != nil && m.ctx.Err() == nil {
		m.log.Error("cannot do what is due on a sandbox; will try again", "id", b.id, "work", j.kind, "error", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m.arm(b)
}

// dueJob says what is due now.
//
// Preconditions: b.mu is held.
func (m *Manager) dueJob(b *box) (job, bool) {
	at := b.due()
	if at.IsZero() || b.flight != nil || time.Now().Before(at) {
		return job{}, false
	}
	// Asked again, under the lock, when the job really starts.
	still := func() error {
		if at := b.due(); at.IsZero() || time.Now().Before(at) {
			return errDone
		}
		return nil
	}
	i := b.rec.Info
	over := !b.deadline.IsZero() && !time.Now().Before(b.deadline)
	switch {
	case b.rec.Plan != planNone:
		return job{kind: kindTidy, ready: still, run: func(ctx context.Context) error { return m.finish(ctx, b) }}, true
	case i.State == Destroyed:
		return job{kind: kindTidy, ready: still, run: func(ctx context.Context) error { return m.unbury(ctx, b) }}, true
	case b.rec.alive() && b.machine == nil:
		return m.halting(b, b.lostState(), ReasonLost, still), true
	case over && i.Spec.Persist:
		return m.halting(b, Stopped, ReasonExpired, still), true
	case over:
		return m.destroying(b, ReasonExpired, still), true
	}
	return m.halting(b, Stopped, ReasonIdle, still), true
}

// bury keeps a destroyed box as a tombstone for a while, so that a late reader
// learns of its end; the oldest of a tenant go when there are too many.
func (m *Manager) bury(b *box) {
	b.mu.Lock()
	left := tombstoneFor - m.now().Sub(b.rec.Info.EndedAt)
	b.deadline = time.Now().Add(min(max(left, 0), tombstoneFor))
	b.mu.Unlock()
	m.mu.Lock()
	ids := append(m.tombstones[b.tenant], b.id)
	var oldest *box
	if len(ids) > tombstonesMax {
		oldest = m.boxes[ids[0]]
		ids = ids[1:]
	}
	m.tombstones[b.tenant] = ids
	m.mu.Unlock()
	if oldest == nil {
		return
	}
	oldest.mu.Lock()
	defer oldest.mu.Unlock()
	oldest.deadline = time.Now()
	m.arm(oldest)
}

// unbury deletes a tombstone.
func (m *Manager) unbury(ctx context.Context, b *box) error {
	if err := m.deleteRecord(ctx, b); err != nil {
		return err
	}
	m.forget(b)
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := m.tombstones[b.tenant]
	for i, id := range ids {
		if id == b.id {
			m.tombstones[b.tenant] = append(ids[:i:i], ids[i+1:]...)
			break
		}
	}
	if len(m.tombstones[b.tenant]) == 0 {
		delete(m.tombstones, b.tenant)
	}
	return nil
}

// watchDisks stops sandboxes that hold more than they may where the host
// cannot refuse the bytes.
func (m *Manager) watchDisks() {
	for {
		m.sleep(diskWatchEvery)
		if m.ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		boxes := m.all()
		m.mu.Unlock()
		for _, b := range boxes {
			m.watchDisk(b)
		}
	}
}

func (m *Manager) watchDisk(b *box) {
	b.mu.Lock()
	watched := b.rec.alive() && b.machine != nil && !b.volume.Enforced
	limit := int64(b.rec.Info.Spec.DiskMB) << 20
	b.mu.Unlock()
	if !watched {
		return
	}
	n, err := m.c.Volumes.Usage(m.ctx, string(b.id))
	if err != nil || n <= limit {
		return
	}
	m.log.Info("a sandbox exceeds its disk", "id", b.id, "bytes", n)
	_ = m.do(m.ctx, b, m.halting(b, Stopped, ReasonDiskQuota, func() error { return nil }))
}
