package life

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/admission"
	"github.com/skete-dev/skete/sandbox/quota"
	"github.com/skete-dev/skete/sandbox/selector"
	"github.com/skete-dev/skete/sandbox/snapshot"
	"github.com/skete-dev/skete/template"
)

// ErrGone is returned where a Sandbox has come to its end and a new one may
// take its place.
var ErrGone = errs.New(errs.Conflict, "the sandbox is gone")

// Request is what a sandbox is made of.
type Request struct {
	Tenant string
	ID     sandbox.ID
	Spec   sandbox.Spec // normalised
	// From is the snapshot that it goes on from; nil: it begins empty.
	From  *sandbox.Snapshot
	Run   string        // that it is for; "" = none
	Agent string        // of Run
	Keep  time.Duration // as in sandbox.CreateRequest
	Asked time.Time
}

// fingerprint is equal for equal requests.
func (r Request) fingerprint() string {
	if r.From == nil {
		return requestFingerprint(r.Spec)
	}
	return requestFingerprint([]any{r.Spec, r.From.ID})
}

// New returns a Sandbox for a sandbox that is to be made. Begin makes it.
func New(d *Deps, r Request, p *selector.Provider) *Sandbox {
	info := sandbox.Info{
		ID: r.ID, Tenant: r.Tenant, Spec: r.Spec.Settled(p.Capabilities(), d.Defaults), State: sandbox.Creating,
		Provider: p.Name(), Isolation: p.Capabilities().Isolation, CreatedAt: d.now(),
	}
	if r.From != nil {
		info.From = r.From.ID
	}
	switch {
	case r.Run != "":
		info.ForRun = sandbox.ForRun{Run: r.Run, Agent: r.Agent, Active: []string{r.Run}}
	case r.Keep > 0:
		info.ForRun = sandbox.Kept(r.Keep)
	}
	k := keep(d, newRecord(d.Node, r.fingerprint(), info), newJournal(d.Registry, d.Node, r.ID))
	k.from, k.asked = r.From, r.Asked
	return k
}

// Begin starts to make the sandbox and returns at once; wait returns when its
// guest answers. If all who wait go away before, it is undone, and wait
// returns when nothing is left.
func (k *Sandbox) Begin(p *selector.Provider, root template.Rootfs) (wait func(context.Context) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rec.Info.RootfsHash = root.Hash
	k.rec.Info.Spec.Workdir = cmp.Or(k.rec.Info.Spec.Workdir, root.Use.Workdir, sandbox.WorkspaceDir)
	f := k.work.Launch(job{
		Kind: kindCreate, Mortal: true, Bounded: true,
		Run:  func(ctx context.Context) error { return k.build(ctx, p, root) },
		Undo: k.unbuild,
	})
	if f == nil {
		return func(context.Context) error {
			k.forget()
			return sandbox.ErrClosing
		}
	}
	return func(ctx context.Context) error { return k.work.Await(ctx, f) }
}

// Again answers a create that has the key of an earlier one: it waits for that
// one. Conflict: the specs differ. ErrGone: the earlier one has failed.
func (k *Sandbox) Again(ctx context.Context, r Request) (sandbox.Info, error) {
	if k.record().Request != r.fingerprint() {
		return sandbox.Info{}, errs.New(errs.Conflict, "this idempotency key was used for another spec").
			WithHint("use a new key for a new sandbox")
	}
	if err := k.attached(ctx); err != nil {
		return sandbox.Info{}, err
	}
	err := k.work.Do(ctx, job{Kind: kindCreate, Ready: func() error {
		switch {
		case k.gone:
			return ErrGone
		case k.rec.Info.State == sandbox.Creating:
			return errCleanup(k.id)
		}
		return errDone
	}})
	if err != nil {
		return sandbox.Info{}, err
	}
	return k.Info(), nil
}

// build is the slow part of Create. When it fails it leaves nothing.
func (k *Sandbox) build(ctx context.Context, p *selector.Provider, root template.Rootfs) error {
	if done, err := k.note(ctx, p, root); done {
		return err
	}
	info := k.record().Info
	k.tell(info)
	err := k.counted(ctx, quota.Machine(info.Spec).Plus(quota.Kept(info.Spec)))
	if err == nil {
		err = k.boot(ctx, p, root, k.asked, k.from, k.makeVolume)
	}
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil {
		return nil
	}
	if werr := k.wipe(); werr != nil {
		k.d.Log.Error("cannot remove a sandbox that did not come up; will try again", "id", k.id, "error", werr)
	}
	return k.interrupted(ctx, fmt.Errorf("create %s: %w", k.id, k.ofDisk(err)))
}

// note moves into a warm machine, and then all is done; or it tells the
// registry of the sandbox.
func (k *Sandbox) note(ctx context.Context, p *selector.Provider, root template.Rootfs) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	if done, err := k.moveIn(ctx, p, root); done {
		return true, err
	}
	if err := k.store(ctx, k.record()); err != nil {
		return true, k.notBuilt(ctx, err)
	}
	return false, nil
}

// unbuild removes a sandbox whose callers are gone, or whose template did not get ready.
func (k *Sandbox) unbuild() error {
	if err := k.commit(func(r *registryRecord) { r.Plan, r.PlanReason = planDestroy, sandbox.ReasonDestroyed }); err != nil {
		k.d.Log.Warn("cannot note that a sandbox will be destroyed", "id", k.id, "error", err)
	}
	return k.wipe()
}

// store writes the first record of a sandbox.
func (k *Sandbox) store(ctx context.Context, rec registryRecord) error {
	k.write.Lock()
	defer k.write.Unlock()
	if err := k.journal.Create(ctx, rec); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rec = rec
	return nil
}

// notBuilt handles a record that was not, or perhaps not, stored.
func (k *Sandbox) notBuilt(ctx context.Context, err error) error {
	if errs.Is(err, errs.Exists) {
		k.forget()
		return errs.Wrap(errs.Conflict, err, "the idempotency key was used on another server")
	}
	// It may have been stored after all: look, and leave nothing.
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if derr := k.journal.Erase(wctx); derr != nil {
		k.d.Log.Warn("a record of no sandbox stays until the next start", "id", k.id, "error", derr)
	}
	k.forget()
	return k.interrupted(ctx, err)
}

// interrupted says who ended the work, if it did not end by itself.
func (k *Sandbox) interrupted(ctx context.Context, err error) error {
	switch {
	case k.d.Ctx.Err() != nil:
		return sandbox.ErrClosing
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errs.Wrap(errs.Conflict, err, "sandbox %s was destroyed while it was being made", k.id)
	}
	return k.late(ctx, err)
}

// late says that the time was too short, if it was.
func (k *Sandbox) late(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errs.Wrap(errs.Unavailable, err, "sandbox %s did not come up in %s", k.id, jobTimeout)
	}
	return err
}

func (k *Sandbox) makeVolume(ctx context.Context) error {
	form, err := k.form()
	if err != nil {
		return err
	}
	var v sandbox.Volume
	if k.from == nil {
		v, err = k.d.Volumes.Create(ctx, string(k.Host()), int64(k.record().Info.Spec.DiskMB)<<20, form)
	} else if err = k.d.Volumes.Copy(ctx, snapshot.VolumeOf(k.from.ID), string(k.Host())); err == nil {
		v, err = k.d.Volumes.Attach(ctx, string(k.Host()), form)
	}
	if err == nil && k.from != nil { // its files show what these commands did
		err = takeKeyJournal(k.d.Snapshots.KeysFile(k.from.ID), k.d.keysFile(k.id))
	}
	if err != nil {
		return fmt.Errorf("make the workspace: %w", err)
	}
	k.mu.Lock()
	k.volume = v
	k.mu.Unlock()
	return nil
}

// form is how the sandbox's provider wants its workspace.
func (k *Sandbox) form() (sandbox.Form, error) {
	name := k.record().Info.Provider
	p, ok := k.d.Selector.Get(name)
	switch {
	case !ok:
		return "", errs.New(errs.Unsupported, "provider %s is not part of this server", name)
	case p.Capabilities().HostWorkspace:
		return sandbox.Directory, nil
	}
	return sandbox.Disk, nil
}

// boot waits for the sandbox's turn, attaches its volume, boots a machine for it
// and commits Running. Its record says Creating. The deadline counts from its
// turn: waiting is not booting.
func (k *Sandbox) boot(ctx context.Context, p *selector.Provider, root template.Rootfs, asked time.Time, from *sandbox.Snapshot, volume func(context.Context) error) error {
	network := k.d.Network(ctx, k.record().Info) // before its turn: it may wait
	turn, err := k.turn(ctx, p, root, from)
	if err != nil {
		return err
	}
	defer turn.End(admission.Other)
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	if err := volume(ctx); err != nil {
		return k.late(ctx, err)
	}
	machine, held, note, err := k.power(ctx, p, root, from, network)
	switch {
	case err == nil:
		turn.End(admission.Up)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		turn.End(admission.Late)
	}
	if err == nil && held == "" { // what goes on from a snapshot was started before it
		err = k.begin(ctx, p, machine, root)
	}
	if err != nil {
		return k.late(ctx, fmt.Errorf("boot: %w", err))
	}
	return k.up(p, machine, asked, held, note)
}

// tellEvery is how often those who listen hear how many boots are before one.
const tellEvery = 2 * time.Second

// turn waits until the sandbox may boot, as long as that takes, and tells how
// many are before it.
func (k *Sandbox) turn(ctx context.Context, p *selector.Provider, root template.Rootfs, from *sandbox.Snapshot) (*admission.Turn, error) {
	place := k.d.Boots.Join(admission.Boot{Provider: p.Name(), Tenant: k.tenant, Like: alike(k.record().Info.Spec, root, from)})
	k.mu.Lock()
	k.place = place
	k.mu.Unlock()
	tellers, done := context.WithCancel(ctx)
	var told sync.WaitGroup
	told.Go(func() { k.tellWaits(tellers) })
	turn, err := place.Wait(ctx)
	done()
	told.Wait()
	k.mu.Lock()
	k.place = nil
	k.mu.Unlock()
	return turn, err
}

// tellWaits publishes what a sandbox waits for, as it changes.
func (k *Sandbox) tellWaits(ctx context.Context) {
	t := time.NewTicker(tellEvery)
	defer t.Stop()
	for said := ""; ; {
		if i := k.Info(); i.Waiting != "" && i.Waiting != said {
			said = i.Waiting
			k.d.Events.Waits(k.d.now(), i)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// alike is equal for boots that take equally long on an idle host.
func alike(s sandbox.Spec, root template.Rootfs, from *sandbox.Snapshot) string {
	how := "boot"
	if from != nil && from.Memory {
		how = "restore"
	}
	return fmt.Sprint(how, " ", root.Hash, " ", s.MemoryMB)
}

// waiting says what a sandbox that is to boot waits for.
func waiting(ahead int) string {
	if ahead == 0 {
		return "its turn to boot, which is next"
	}
	return fmt.Sprintf("its turn to boot, %d before it", ahead)
}

// power brings a machine up in the sandbox's directory.
func (k *Sandbox) power(ctx context.Context, p *selector.Provider, root template.Rootfs, from *sandbox.Snapshot, network *sandbox.Network) (sandbox.Machine, sandbox.SnapshotID, []string, error) {
	dir := k.dir()
	if err := freshDir(dir); err != nil {
		return nil, "", nil, errs.Wrap(errs.Internal, err, "cannot make the sandbox's directory")
	}
	k.mu.Lock()
	spec, volume := k.rec.Info.Spec, k.volume
	k.mu.Unlock()
	b := sandbox.Boot{ID: k.Host(), Name: k.id, Spec: spec, Rootfs: root, Guest: k.d.Guest, Dir: dir, Network: network}
	if p.Capabilities().HostWorkspace {
		b.Workspace = volume.Path
	} else {
		b.Disk = volume.Path
	}
	machine, held, note, err := k.bring(ctx, p, b, from)
	if err != nil && ctx.Err() == nil {
		p.Doubt()
	}
	return machine, held, note, err
}

// begin tells a machine that has just booted which keys were used before, and
// starts what the template is for. One in which that does not get ready is
// ended, and it is not the provider's fault.
func (k *Sandbox) begin(ctx context.Context, p *selector.Provider, m sandbox.Machine, root template.Rootfs) error {
	err := k.keys.Tell(ctx, m.Guest())
	if err == nil {
		err = startServices(ctx, m.Guest(), root, k.record().Info.Spec, false)
	}
	if err == nil {
		return nil
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return errors.Join(err, p.Destroy(cleanup, k.Host()), m.Close())
}

// up notes that a machine runs for the sandbox.
func (k *Sandbox) up(p *selector.Provider, machine sandbox.Machine, asked time.Time, held sandbox.SnapshotID, note []string) error {
	k.adopt(machine)
	err := k.commit(k.running(p, asked, held, note))
	k.settle()
	return err
}

// running is the change of the record of a sandbox whose machine has come up.
func (k *Sandbox) running(p *selector.Provider, asked time.Time, held sandbox.SnapshotID, note []string) func(*registryRecord) {
	k.mu.Lock()
	spec, volume := k.rec.Info.Spec, k.volume
	k.mu.Unlock()
	bootMS := float64(time.Since(asked).Microseconds()) / 1000
	return func(r *registryRecord) {
		now := k.d.now()
		r.Plan = planNone
		r.Info.State, r.Info.Reason = sandbox.Running, ""
		r.Info.StartedAt, r.Info.EndedAt = now, time.Time{}
		r.Info.ExpiresAt = time.Time{}
		if spec.TTL > 0 {
			r.Info.ExpiresAt = now.Add(spec.TTL)
		}
		r.Info.BootMS = bootMS
		r.Info.Notes = append(notesOf(p.Capabilities(), volume), note...)
		r.Held = held
	}
}

// settle begins to count the time that a machine may live, and be idle.
func (k *Sandbox) settle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deadline, k.used = deadlineOf(k.rec.Info.Spec.TTL), time.Now()
}

// deadlineOf counts a time to live from now; 0 = no deadline.
func deadlineOf(ttl time.Duration) time.Time {
	if ttl <= 0 {
		return time.Time{}
	}
	return time.Now().Add(ttl)
}

// adopt puts a machine in its place and watches over it.
func (k *Sandbox) adopt(machine sandbox.Machine) {
	ctx, cancel := context.WithCancel(k.d.Ctx)
	k.mu.Lock()
	k.machine, k.dying = machine, ""
	k.client = k.keys.Client(machine.Guest())
	k.unwatch = cancel
	k.mu.Unlock()
	k.d.Spawn(func() {
		defer cancel()
		if exit, err := machine.Wait(ctx); err == nil {
			k.died(machine, exit)
		}
	})
}
