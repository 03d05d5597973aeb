package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/snapshot"
	"github.com/skete-dev/skete/template"
)

// Refill says how members are made.
type Refill string

// A shape's members boot, or go on from a snapshot that the pool has taken of
// one that has booted.
const (
	RefillAuto     Refill = ""         // from a snapshot where that has been measured to be faster
	RefillSnapshot Refill = "snapshot" // from a snapshot wherever the provider can
	RefillBoot     Refill = "boot"     // never from a snapshot
)

const (
	// bootWorth is what booting must take before a snapshot is tried: below it
	// there is little to gain, and a disk to fill.
	bootWorth = 250 * time.Millisecond
	// Once judgeAfter members took more than worthShare of what booting took, one
	// is booted to compare with: the host may only be busier than it was.
	judgeAfter = 3
	worthShare = 0.75
	sourcesMax = 16 // snapshots of all shapes together
	// A snapshot that cannot be taken or does not load is tried again by then;
	// one that does not pay, after the longest time.
	saveAgainMin = time.Minute
	saveAgainMax = time.Hour
)

// source is a snapshot of the pool's own that members of one shape are made
// from. The snapshot's record is its truth.
type source struct {
	id        sandbox.SnapshotID
	bytes     int64
	bootMS    float64   // to boot the member that it was taken of
	restoreMS []float64 // of the latest members from it
	since     time.Time // that we have had it
	doubted   bool      // the next member is booted, to compare with
	comparing bool      // one is being booted for that
}

// use is what the snapshot's record says it is for.
type use struct {
	V      int     `json:"v"`
	Shape  Shape   `json:"shape"`
	BootMS float64 `json:"boot_ms"`
}

const useVersion = 1

func parseUse(text string) (use, error) {
	var u use
	if len(text) > recordBytesMax {
		return u, errs.New(errs.Corrupt, "what a snapshot is for is too long")
	}
	if err := json.Unmarshal([]byte(text), &u); err != nil {
		return u, errs.Wrap(errs.Corrupt, err, "what a snapshot is for cannot be read")
	}
	if u.V != useVersion || u.Shape == (Shape{}) || !(u.BootMS >= 0) {
		return u, errs.New(errs.Corrupt, "what a snapshot is for cannot be read: version %d", u.V)
	}
	return u, nil
}

// loadSources finds the snapshots that an earlier server has taken.
func (p *Pool) loadSources() {
	if p.d.Snapshots == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, kept := range p.d.Snapshots.Kept() { // the newest first
		u, err := parseUse(kept.Use)
		if err != nil || p.sources[u.Shape] != nil || !p.c.enabled() || p.c.Refill == RefillBoot {
			p.over = append(p.over, kept.ID)
			continue
		}
		p.sources[u.Shape] = &source{id: kept.ID, bytes: kept.Bytes, bootMS: u.BootMS, since: time.Now()}
	}
}

// mayHave reports whether the shape could have a source and has none: then one
// member at a time is made, which it is taken of. Preconditions: p.mu is held.
func (p *Pool) mayHave(s Shape, k *kind) bool {
	if p.d.Snapshots == nil || p.c.Refill == RefillBoot || p.sources[s] != nil ||
		len(p.sources) >= sourcesMax || time.Now().Before(k.notSaveUntil) {
		return false
	}
	provider, found := p.d.Provider(s.Provider)
	return found && provider.Capabilities().Snapshot
}

// descend decides what a new member is made from. Preconditions: p.mu is held.
func (p *Pool) descend(m *member) {
	s := m.rec.Shape
	k := p.kind(s)
	src := p.sources[s]
	if src != nil && src.doubted {
		m.compares, src.comparing, src.doubted = true, true, false
		return
	}
	if src != nil && p.d.Snapshots.Hold(src.id, m.rec.ID) == nil {
		m.rec.From = src.id
	} else if !k.saving && p.mayHave(s, k) {
		m.saves, k.saving = true, true
	}
}

// release says that a member needs no snapshot's files any more.
func (p *Pool) release(ctx context.Context, r record) {
	if r.From != "" && p.d.Snapshots != nil {
		p.d.Snapshots.Release(context.WithoutCancel(ctx), r.From, r.ID)
	}
}

// save takes the snapshot that the shape's further members are made from. The
// member goes on. An error is about the member: it is of no use any more.
func (p *Pool) save(ctx context.Context, m *member, provider sandbox.Provider, took time.Duration) error {
	s := m.rec.Shape
	if p.c.Refill == RefillAuto && took < bootWorth {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.fruitless(s, fmt.Sprintf("booting takes %d ms, too little to gain", took.Milliseconds()))
		return nil
	}
	src := &source{id: sandbox.NewSnapshotID(), bootMS: millis(took)}
	p.saved(s, src, p.take(ctx, m, provider, src))
	if err := m.machine.Resume(ctx); err != nil && !errs.Is(err, errs.Unsupported) { // then it was never paused
		return fmt.Errorf("go on after the snapshot: %w", err)
	}
	return snapshot.Thaw(ctx, m.machine.Guest())
}

// saved notes what became of a snapshot.
func (p *Pool) saved(s Shape, src *source, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.putOff(s, "no snapshot could be taken: "+errs.Public(err))
		p.d.Log.Warn("the warm pool cannot take a snapshot; it boots its machines", "provider", s.Provider, "template", s.Template, "error", err)
		return
	}
	src.since = time.Now()
	p.sources[s] = src
	p.kind(s).note = ""
	p.d.Log.Info("the warm pool makes machines from a snapshot from now on",
		"provider", s.Provider, "template", s.Template, "snapshot", src.id, "bytes", src.bytes, "boot_ms", src.bootMS)
}

// take makes the snapshot; on error nothing is left of it.
func (p *Pool) take(ctx context.Context, m *member, provider sandbox.Provider, src *source) error {
	s, id := m.rec.Shape, m.rec.ID
	used, err := p.d.Volumes.Usage(ctx, string(id))
	if err != nil {
		return err
	}
	text, err := json.Marshal(use{V: useVersion, Shape: s, BootMS: src.bootMS})
	if err != nil {
		return err
	}
	dir, err := p.d.Snapshots.Keep(ctx, sandbox.Snapshot{
		ID: src.id, Sandbox: id, Spec: s.spec(), Provider: s.Provider, Isolation: provider.Capabilities().Isolation,
		RootfsHash: s.Rootfs, Memory: true,
	}, string(text), used+int64(s.MemoryMB)<<20)
	if err != nil {
		return err
	}
	if err = snapshot.Quiesce(ctx, m.machine.Guest()); err == nil {
		err = m.machine.Snapshot(ctx, dir, func(ctx context.Context) error {
			return p.d.Volumes.Copy(ctx, string(id), snapshot.VolumeOf(src.id))
		})
	}
	if err != nil {
		return discarded(ctx, p.d.Snapshots, src.id, err)
	}
	made, err := p.d.Snapshots.Finish(ctx, src.id)
	src.bytes = made.Bytes
	return err
}

func discarded(ctx context.Context, s *snapshot.Store, id sandbox.SnapshotID, err error) error {
	if derr := s.Discard(ctx, id); derr != nil {
		return fmt.Errorf("%w; and %w", err, derr)
	}
	return err
}

// fruitless notes that a shape needs no snapshot for now. Preconditions: p.mu is held.
func (p *Pool) fruitless(s Shape, note string) {
	k := p.kind(s)
	k.notSaveUntil, k.note = time.Now().Add(saveAgainMax), note
}

// putOff notes that the next snapshot of a shape is to wait, longer each time.
// Preconditions: p.mu is held.
func (p *Pool) putOff(s Shape, note string) {
	k := p.kind(s)
	k.notSaveUntil = time.Now().Add(min(saveAgainMin<<min(k.saveFailures, 10), saveAgainMax))
	k.saveFailures++
	k.note = note
}

// restored notes how a member from a snapshot came to be. One that did not
// come takes its snapshot with it: booting is next, without delay.
func (p *Pool) restored(m *member, err error, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := m.rec.Shape
	src, k := p.sources[s], p.kind(s)
	if src == nil || src.id != m.rec.From {
		return // of an earlier one, which is gone already
	}
	if err != nil {
		p.abandon(s)
		p.putOff(s, "its snapshot did not load: "+errs.Public(err))
		p.d.Log.Warn("a snapshot of the warm pool does not load; booting again", "provider", s.Provider, "template", s.Template, "snapshot", src.id, "error", err)
		return
	}
	if time.Since(src.since) > saveAgainMax { // one that goes bad soon is no better than one that never loads
		k.saveFailures = 0
	}
	src.restoreMS = append(src.restoreMS, millis(took))
	if n := len(src.restoreMS); n > judgeAfter {
		src.restoreMS = src.restoreMS[n-judgeAfter:]
	}
	src.doubted = p.c.Refill == RefillAuto && !src.comparing && src.slow()
}

// slow: members from the snapshot take about as long as the one that was booted.
func (src *source) slow() bool {
	return len(src.restoreMS) == judgeAfter && median(src.restoreMS) > worthShare*src.bootMS
}

// compared judges a snapshot that was slow, now that one was booted beside it.
func (p *Pool) compared(m *member, err error, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := m.rec.Shape
	src := p.sources[s]
	if src == nil {
		return
	}
	src.comparing = false
	if err != nil {
		return
	}
	src.bootMS = millis(took)
	if !src.slow() {
		src.restoreMS = nil
		return
	}
	p.abandon(s)
	p.fruitless(s, fmt.Sprintf("from a snapshot it took %.0f ms, booting %.0f ms", median(src.restoreMS), src.bootMS))
	p.d.Log.Info("the warm pool gives up a snapshot that does not pay", "provider", s.Provider, "template", s.Template,
		"snapshot", src.id, "restore_ms", median(src.restoreMS), "boot_ms", src.bootMS)
}

// abandon gives a shape's snapshot up. Preconditions: p.mu is held.
func (p *Pool) abandon(s Shape) {
	p.over = append(p.over, p.sources[s].id)
	delete(p.sources, s)
}

// tidySources gives up the snapshots of shapes that are not wanted any more; all,
// when the disk is short: then the machines that keep their files go too, and
// are returned. unsure: what is wanted is not known of all.
func (p *Pool) tidySources(roots map[Shape]template.Rootfs, unsure bool) (out []*member) {
	if p.d.Snapshots == nil {
		return nil
	}
	short := p.d.DiskShort()
	p.mu.Lock()
	defer p.mu.Unlock()
	if short {
		for s := range p.sources {
			p.abandon(s)
			p.putOff(s, "the disk is short")
		}
		for _, m := range p.members {
			if m.state == warm && m.rec.From != "" {
				m.state = ending
				m.unwatch()
				out = append(out, m)
			}
		}
		return out
	}
	for s, src := range p.sources {
		_, wanted := roots[s]
		if k := p.kinds[s]; k != nil && k.configured && max(k.size, k.max) == 0 {
			wanted = false
		}
		if !wanted && !(unsure && len(p.sources) < sourcesMax) {
			p.abandon(s)
			p.d.Log.Info("a snapshot of the warm pool is not wanted any more", "provider", s.Provider, "template", s.Template, "snapshot", src.id)
		}
	}
	return nil
}

// clear removes the snapshots that are given up; their files go with the last
// machine that needs them. What fails is tried again.
func (p *Pool) clear(ctx context.Context) {
	p.mu.Lock()
	over := p.over
	p.over = nil
	p.mu.Unlock()
	for _, id := range over {
		if err := p.d.Snapshots.Drop(ctx, id); err != nil {
			p.d.Log.Error("cannot remove a snapshot of the warm pool; will try again", "snapshot", id, "error", err)
			p.mu.Lock()
			p.over = append(p.over, id)
			p.mu.Unlock()
		}
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// median is 0 of none.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
