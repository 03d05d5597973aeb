package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/admission"
	"github.com/skete-dev/skete/sandbox/snapshot"
	"github.com/skete-dev/skete/template"
)

const (
	tick          = 2 * time.Second
	quiet         = 300 * time.Millisecond // without a claim, before members are made
	quietMax      = 3 * time.Second        // claims do not hold it up for longer
	checkEvery    = 30 * time.Second       // of each member's health
	checkTimeout  = 5 * time.Second
	makeTimeout   = 3 * time.Minute
	attachTimeout = 30 * time.Second
	endTimeout    = time.Minute
	recoverAtOnce = 16
	holdOffMin    = time.Second
	holdOffMax    = 5 * time.Minute
	kindsMax      = 1000 // remembered for their demand
	demandedMax   = 8    // shapes that have members and are not configured
)

// Recover brings what Load has found in order. used tells whether a sandbox's
// record names the machine.
func (p *Pool) Recover(ctx context.Context, used func(machine sandbox.ID) bool) {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.members))
	p.mu.Unlock()
	atOnce(all, func(m *member) {
		id := m.rec.ID
		switch {
		case used(id):
			if err := p.erase(ctx, id); err != nil {
				p.d.Log.Warn("the record of a claimed machine stays until the next start", "id", id, "error", err)
				return
			}
			p.drop(m)
		case m.rec.State == warm && p.c.enabled():
			if err := p.attach(ctx, m); err != nil && ctx.Err() == nil {
				p.d.Log.Info("a warm machine of before is of no use any more", "id", id, "error", err)
				p.finish(ctx, m)
			}
		default:
			p.finish(ctx, m)
		}
	})
	p.clear(ctx)
}

func atOnce[T any](items []T, f func(T)) {
	tokens := make(chan struct{}, recoverAtOnce)
	var wg sync.WaitGroup
	for _, item := range items {
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			f(item)
		})
	}
	wg.Wait()
}

// attach takes over a member that an earlier server made.
func (p *Pool) attach(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	provider, found := p.d.Provider(m.rec.Shape.Provider)
	if !found {
		return errBroken
	}
	volume, err := p.d.Volumes.Attach(ctx, string(m.rec.ID), formOf(provider))
	if err != nil {
		return err
	}
	machine, err := provider.Attach(ctx, m.rec.ID)
	if err != nil {
		return err
	}
	m.machine, m.volume = machine, volume
	if err := hello(ctx, machine); err != nil {
		return err
	}
	p.mu.Lock()
	m.state = warm
	if m.rec.Begun != "" {
		p.kind(m.rec.Shape).begun = m.rec.Begun
	}
	p.mu.Unlock()
	p.watch(m)
	return nil
}

func hello(ctx context.Context, machine sandbox.Machine) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	_, err := machine.Guest().Hello(ctx)
	return err
}

func formOf(p sandbox.Provider) sandbox.Form {
	if p.Capabilities().HostWorkspace {
		return sandbox.Directory
	}
	return sandbox.Disk
}

// watch replaces a member that ends by itself.
func (p *Pool) watch(m *member) {
	ctx, cancel := context.WithCancel(p.d.Ctx)
	p.mu.Lock()
	there, machine := m.state == warm, m.machine
	if there { // else it was claimed at once
		m.unwatch = cancel
		m.checkedAt = time.Now()
	}
	p.mu.Unlock()
	if !there {
		cancel()
		return
	}
	p.d.Spawn(func() {
		defer cancel()
		exit, err := machine.Wait(ctx)
		if err == nil && p.retire(m) {
			p.d.Log.Info("a warm machine has ended", "id", m.rec.ID, "reason", exit.Reason, "detail", exit.Detail)
			p.end(m)
		}
	})
}

// retire takes a warm member out of the pool; false: another goroutine did.
func (p *Pool) retire(m *member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.state != warm {
		return false
	}
	m.state = ending
	m.unwatch()
	if k := p.kinds[m.rec.Shape]; k != nil {
		k.replaced++
	}
	return true
}

// drop forgets a member of which nothing is left, or which is a sandbox's.
func (p *Pool) drop(m *member) {
	p.mu.Lock()
	if p.members[m.rec.ID] == m {
		delete(p.members, m.rec.ID)
	}
	r := m.rec
	p.mu.Unlock()
	p.release(p.d.Ctx, r)
}

// end destroys a member in the background. No other goroutine uses it.
func (p *Pool) end(m *member) {
	p.mu.Lock()
	m.state = ending
	p.mu.Unlock()
	// If the server stops first, Close does it.
	p.d.Spawn(func() {
		p.finish(context.WithoutCancel(p.d.Ctx), m)
		p.nudge()
	})
}

// finish destroys all that the host has of a member, then its record. What
// fails is tried again by the loop, or at the next start.
func (p *Pool) finish(ctx context.Context, m *member) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	p.mu.Lock()
	if m.finishing {
		p.mu.Unlock()
		return
	}
	m.state, m.finishing = ending, true
	machine := m.machine
	m.machine = nil
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		m.finishing = false
	}()
	err := p.raze(ctx, m.rec)
	if machine != nil {
		_ = machine.Close()
	}
	if err == nil {
		err = p.erase(ctx, m.rec.ID)
	}
	if err != nil {
		p.d.Log.Error("cannot destroy a warm machine; will try again", "id", m.rec.ID, "error", err)
		return
	}
	p.drop(m)
}

func (p *Pool) raze(ctx context.Context, r record) error {
	provider, found := p.d.Provider(r.Shape.Provider)
	if !found {
		return errs.New(errs.Unsupported, "the provider %s is not part of this server", r.Shape.Provider)
	}
	if err := provider.Destroy(ctx, r.ID); err != nil {
		return err
	}
	if err := p.d.Volumes.Remove(ctx, string(r.ID)); err != nil {
		return err
	}
	return p.d.RemoveDir(r.ID)
}

// Start fills the pool and keeps it so until the server stops.
func (p *Pool) Start() {
	if !p.c.enabled() {
		return
	}
	p.d.Spawn(p.loop)
}

func (p *Pool) loop() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for p.d.Ctx.Err() == nil {
		p.pass(p.d.Ctx)
		select {
		case <-t.C:
		case <-p.wake:
		case <-p.d.Ctx.Done():
		}
	}
}

// pass looks once at everything and starts what is to be done.
func (p *Pool) pass(ctx context.Context) {
	p.retry()
	p.check(ctx)
	roots, unsure := p.resolve(ctx)
	host := p.d.Host()
	tight := host.Tight()
	excess := p.excess(tight)
	excess = append(excess, p.tidySources(roots, unsure)...)
	for _, m := range excess {
		p.end(m)
	}
	p.clear(ctx)
	if tight || len(p.lacking(roots, 1, host)) == 0 {
		return
	}
	limit := p.c.AtOnce
	if !p.calm(ctx) {
		limit = 1 // or a server that never rests would never have a pool
	}
	for _, s := range p.lacking(roots, limit, host) {
		p.begin(s, roots[s])
	}
}

// calm waits until there was no claim and no boot for a while. False: it gave up.
func (p *Pool) calm(ctx context.Context) bool {
	began := time.Now()
	for ctx.Err() == nil && time.Since(began) < quietMax {
		p.mu.Lock()
		since := time.Since(p.claimedAt)
		p.mu.Unlock()
		if since >= quiet && !p.d.Boots.Busy() {
			return true
		}
		t := time.NewTimer(max(quiet-since, quiet/4))
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
	return false
}

// retry destroys what an earlier attempt did not.
func (p *Pool) retry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if m.state == ending && !m.finishing && time.Since(m.checkedAt) > checkEvery {
			m.checkedAt = time.Now()
			p.d.Spawn(func() { p.finish(context.WithoutCancel(p.d.Ctx), m) })
		}
	}
}

// check replaces members that are old or do not answer.
func (p *Pool) check(ctx context.Context) {
	now := time.Now()
	type dueMember struct {
		*member
		machine sandbox.Machine // and madeAt: as they were while it was warm
		madeAt  time.Time
	}
	var due []dueMember
	p.mu.Lock()
	for _, m := range p.members {
		if m.state == warm && now.Sub(m.checkedAt) >= checkEvery {
			m.checkedAt = now
			due = append(due, dueMember{m, m.machine, m.rec.MadeAt})
		}
	}
	p.mu.Unlock()
	atOnce(due, func(d dueMember) {
		m, err := d.member, errBroken
		if age := p.d.Now().Sub(d.madeAt); age >= 0 && age < p.c.AgeMax {
			if hello(ctx, d.machine) == nil || ctx.Err() != nil {
				return
			}
		} else {
			err = errs.New(errs.Unavailable, "it is %s old", age.Round(time.Second))
		}
		if p.retire(m) {
			p.d.Log.Info("a warm machine is replaced", "id", m.rec.ID, "error", err)
			p.end(m)
		}
	})
}

// resolve finds the shapes that are wanted now, and what they boot from. A
// template or guest that changed gives another shape, so that the members of
// the old one are in excess. failed: of some it cannot be said now.
func (p *Pool) resolve(ctx context.Context) (roots map[Shape]template.Rootfs, failed bool) {
	type want struct{ size, max int }
	wants, roots := map[Shape]want{}, map[Shape]template.Rootfs{}
	for _, size := range p.c.Sizes {
		s, root, err := p.d.Resolve(ctx, size.Spec)
		if err != nil {
			failed = true
			p.d.Log.Debug("a pool cannot be filled now", "template", size.Spec.Template, "provider", size.Spec.Provider, "error", err)
			continue
		}
		w := wants[s]
		wants[s] = want{w.size + max(size.Size, 0), w.max + max(size.Size, size.Max, 0)}
		roots[s] = root
	}
	for _, s := range p.demanded() {
		if _, is := roots[s]; is {
			continue
		}
		now, root, err := p.d.Resolve(ctx, s.spec())
		if err == nil && now == s {
			roots[s] = root
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, k := range p.kinds {
		_, alive := roots[s]
		w, is := wants[s]
		if !is && k.configured && failed {
			continue // what it was stays until we know better
		}
		k.configured, k.size, k.max = is, w.size, w.max
		if !alive {
			k.demand = demand{}
		}
	}
	for s, w := range wants {
		k := p.kind(s)
		k.configured, k.size, k.max = true, w.size, w.max
	}
	p.forgetKinds()
	return roots, failed
}

// demanded lists the shapes that are not configured and are worth members: those
// of the latest creates, so that a client that tries every shape fills no host.
func (p *Pool) demanded() []Shape {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c.DemandMax == 0 {
		return nil
	}
	now := time.Now()
	var all []Shape
	for s, k := range p.kinds {
		if !k.configured && k.demand.members(now) > 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Shape) int { return p.kinds[b].demand.at.Compare(p.kinds[a].demand.at) })
	for _, s := range all[min(demandedMax, len(all)):] {
		p.kinds[s].demand = demand{}
	}
	return all[:min(demandedMax, len(all))]
}

// forgetKinds drops what is of no interest any more. Preconditions: p.mu is held.
func (p *Pool) forgetKinds() {
	if len(p.kinds) <= kindsMax {
		return
	}
	now := time.Now()
	for s, k := range p.kinds {
		if !k.configured && k.demand.members(now) == 0 {
			delete(p.kinds, s)
		}
	}
}

// excess takes members out of the pool of which there are too many: oldest first.
func (p *Pool) excess(tight bool) []*member {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tight != p.tight {
		p.tight = tight
		p.d.Log.Info("the warm pool looks at the host's memory", "short", tight)
	}
	now := time.Now()
	shrink := tight && now.Sub(p.shrunkAt) >= tick // then look what it gave
	if shrink {
		p.shrunkAt = now
	}
	var out []*member
	for s, ms := range p.warmByShape() {
		target := 0
		if k := p.kinds[s]; k != nil {
			target = k.target(now, p.c.DemandMax)
		}
		n := len(ms) - target
		if shrink {
			n = max(n, (len(ms)+3)/4)
		}
		for _, m := range ms[:max(n, 0)] {
			m.state = ending
			m.unwatch()
			out = append(out, m)
		}
	}
	return out
}

// warmByShape lists the warm members, oldest first. Preconditions: p.mu is held.
func (p *Pool) warmByShape() map[Shape][]*member {
	by := map[Shape][]*member{}
	for _, m := range p.members {
		if m.state == warm {
			by[m.rec.Shape] = append(by[m.rec.Shape], m)
		}
	}
	for _, ms := range by {
		slices.SortFunc(ms, func(a, b *member) int { return a.rec.MadeAt.Compare(b.rec.MadeAt) })
	}
	return by
}

// lacking lists the shapes of which members are to be made now, once for each,
// so that no more than limit are made at the same time.
func (p *Pool) lacking(roots map[Shape]template.Rootfs, limit int, host Host) []Shape {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	have, makes, busy, total := map[Shape]int{}, map[Shape]int{}, 0, 0
	for _, m := range p.members {
		if m.state == warm || m.state == making {
			have[m.rec.Shape]++
			total++
		}
		if m.state == making {
			makes[m.rec.Shape]++
			busy++
		}
	}
	var all []Shape
	for s := range roots {
		k := p.kinds[s]
		if k == nil || now.Before(k.notUntil) || !k.configured && !host.Spare(s.MemoryMB) {
			continue
		}
		n := k.target(now, p.c.DemandMax) - have[s]
		if p.mayHave(s, k) { // the others need not boot
			n = min(n, 1-makes[s])
		}
		for range n {
			all = append(all, s)
		}
	}
	// The emptiest first, one of each in turn.
	slices.SortStableFunc(all, func(a, b Shape) int { return have[a] - have[b] })
	room := max(min(limit-busy, p.c.MembersMax-total), 0)
	return all[:min(room, len(all))]
}

// begin starts to make a member.
func (p *Pool) begin(s Shape, root template.Rootfs) {
	m := &member{
		rec:   record{V: recordVersion, Node: p.d.Node, ID: sandbox.NewID(), Shape: s, State: making, MadeAt: p.d.Now().Round(0).UTC()},
		state: making, unwatch: func() {},
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.descend(m)
	p.members[m.rec.ID] = m
	p.mu.Unlock()
	started := p.d.Spawn(func() {
		took, err := p.inTurn(m, func(ctx context.Context) (time.Duration, error) { return p.make(ctx, m, root) })
		p.made(m, err, took)
	})
	if !started {
		p.drop(m)
	}
}

// inTurn makes a member when no sandbox waits for its boot. Its time counts
// from then.
func (p *Pool) inTurn(m *member, make func(context.Context) (time.Duration, error)) (took time.Duration, err error) {
	s, how := m.rec.Shape, "boot"
	if m.rec.From != "" {
		how = "restore"
	}
	turn, err := p.d.Boots.Join(admission.Boot{Provider: s.Provider, Spare: true, Like: fmt.Sprint("spare ", how, " ", s.Rootfs, " ", s.MemoryMB)}).Wait(p.d.Ctx)
	if err != nil {
		return 0, err
	}
	defer turn.End(admission.Other)
	ctx, cancel := context.WithTimeout(p.d.Ctx, makeTimeout)
	defer cancel()
	took, err = make(ctx)
	switch {
	case err == nil && !m.saves && m.rec.Begun == "": // else it did more than to boot
		turn.End(admission.Up)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		turn.End(admission.Late)
	}
	return took, err
}

// made notes how it went.
func (p *Pool) made(m *member, err error, took time.Duration) {
	fromSnapshot, powered := m.rec.From != "", err
	if notAhead(err) {
		powered = nil // it came up well
	}
	if fromSnapshot && (powered == nil || p.d.Ctx.Err() == nil) {
		p.restored(m, powered, took)
	}
	if m.compares {
		p.compared(m, powered, took)
	}
	p.mu.Lock()
	k := p.kind(m.rec.Shape)
	if m.saves {
		k.saving = false
	}
	if notAhead(err) {
		k.notAheadUntil = time.Now().Add(aheadAgain)
	}
	if powered == nil {
		k.failures, k.notUntil, k.makeMS = 0, time.Time{}, millis(took)
		if fromSnapshot {
			k.restoreMS = k.makeMS
		} else {
			k.bootMS = k.makeMS
		}
	} else if p.d.Ctx.Err() == nil && !fromSnapshot {
		k.notUntil = time.Now().Add(min(holdOffMin<<min(k.failures, 10), holdOffMax))
		k.failures++
	}
	p.mu.Unlock()
	switch {
	case err == nil:
		p.watch(m)
		p.nudge()
		return
	case notAhead(err):
		p.d.Log.Warn("what a template starts does not get ready in a warm machine; it is started when a sandbox has one", "template", m.rec.Shape.Template, "error", err)
	case p.d.Ctx.Err() == nil:
		p.d.Log.Error("cannot make a warm machine; will try again", "provider", m.rec.Shape.Provider, "template", m.rec.Shape.Template, "error", err)
	}
	p.finish(context.WithoutCancel(p.d.Ctx), m)
}

// make makes a member: the registry knows of it first. It returns how long that
// took, a snapshot of it and what its template starts left out.
func (p *Pool) make(ctx context.Context, m *member, root template.Rootfs) (took time.Duration, err error) {
	began := time.Now()
	provider, found := p.d.Provider(m.rec.Shape.Provider)
	if !found {
		return 0, errs.New(errs.Unsupported, "the provider %s is not part of this server", m.rec.Shape.Provider)
	}
	if err := p.write(ctx, m, m.rec); err != nil {
		return 0, err
	}
	if err := p.power(ctx, m, provider, root); err != nil {
		return 0, err
	}
	took = time.Since(began)
	if m.saves {
		if err := p.save(ctx, m, provider, took); err != nil {
			return 0, err
		}
	}
	r := m.rec
	if r.Begun, err = p.ahead(ctx, m, root); err != nil {
		return took, err
	}
	r.State = warm
	if err := p.write(ctx, m, r); err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.rec, m.state = r, warm
	if r.Begun != "" {
		p.kind(r.Shape).begun = r.Begun
	}
	return took, nil
}

// power brings a member's machine up, and has it practise.
func (p *Pool) power(ctx context.Context, m *member, provider sandbox.Provider, root template.Rootfs) error {
	s, id := m.rec.Shape, m.rec.ID
	volume, err := p.workspace(ctx, m.rec, formOf(provider))
	if err != nil {
		return fmt.Errorf("make the workspace: %w", err)
	}
	dir, err := p.d.FreshDir(id)
	if err != nil {
		return err
	}
	b := sandbox.Boot{ID: id, Spec: s.spec(), Rootfs: root, Guest: p.d.Guest, Dir: dir, Network: p.d.Network(ctx, sandbox.Info{Spec: s.spec()})}
	if m.rec.From != "" {
		b.From = p.d.Snapshots.Dir(m.rec.From)
	}
	if formOf(provider) == sandbox.Directory {
		b.Workspace = volume.Path
	} else {
		b.Disk = volume.Path
	}
	machine, err := provider.Create(ctx, b)
	if err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	boot := b.BootFile()
	m.machine, m.volume, m.setting = machine, volume, Setting(boot)
	return practise(ctx, machine.Guest(), boot, p.d.Now, b.From != "")
}

// workspace makes a member's: empty, or as it was when its snapshot was taken.
func (p *Pool) workspace(ctx context.Context, r record, form sandbox.Form) (sandbox.Volume, error) {
	if r.From == "" {
		return p.d.Volumes.Create(ctx, string(r.ID), int64(r.Shape.DiskMB)<<20, form)
	}
	if err := p.d.Volumes.Copy(ctx, snapshot.VolumeOf(r.From), string(r.ID)); err != nil {
		return sandbox.Volume{}, err
	}
	return p.d.Volumes.Attach(ctx, string(r.ID), form)
}

// Close destroys all members. The server's context has ended, and what it
// spawned too. What cannot be destroyed before ctx ends is at the next start.
func (p *Pool) Close(ctx context.Context) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.closed = true
	var all []*member
	for _, m := range p.members {
		// A claimed one is a sandbox's, or the next start sees to it.
		if m.state != claimed {
			m.unwatch()
			all = append(all, m)
		}
	}
	p.mu.Unlock()
	atOnce(all, func(m *member) {
		if ctx.Err() == nil {
			p.finish(ctx, m)
		}
	})
}
