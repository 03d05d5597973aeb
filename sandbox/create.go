package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/template"
)

var errGone = errs.New(errs.Conflict, "the sandbox is gone") // never leaves the package

// Create makes a sandbox and returns when its guest answers. If ctx ends
// before, nothing is left of it when Create returns.
//
// Invalid: the spec. Unsupported: no provider here can do it, and nothing less
// is given instead. Limit: the tenant's quota. Conflict: the key was used for
// another spec, or the sandbox was destroyed meanwhile.
func (m *Manager) Create(ctx context.Context, tenant string, r CreateRequest) (Info, error) {
	asked := time.Now()
	if err := checkTenant(tenant); err != nil {
		return Info{}, err
	}
	spec, err := Normalise(r.Spec, m.limits, m.defaults)
	if err != nil {
		return Info{}, err
	}
	id := NewID()
	if r.Key != "" {
		if len(r.Key) > keyBytesMax || !printable(r.Key) {
			return Info{}, errs.New(errs.Invalid, "the idempotency key is not 1 to %d bytes that print", keyBytesMax)
		}
		id = keyedID(m.secret, tenant, r.Key)
	}
	for {
		info, err := m.create(ctx, tenant, id, spec, asked)
		if err != errGone {
			return info, err
		}
	}
}

func (m *Manager) create(ctx context.Context, tenant string, id ID, spec Spec, asked time.Time) (Info, error) {
	m.mu.Lock()
	b := m.boxes[id]
	m.mu.Unlock()
	if b != nil {
		return m.createdBefore(ctx, b, spec)
	}
	root, err := m.rootfs(ctx, spec)
	if err != nil {
		return Info{}, err
	}
	p, err := m.ladder.choose(ctx, spec)
	if err != nil {
		return Info{}, err
	}
	b, isNew, err := m.reserve(newRecord(m, tenant, id, spec, p))
	if err != nil {
		return Info{}, err
	}
	if !isNew {
		return m.createdBefore(ctx, b, spec)
	}
	f := m.launch(b, job{
		kind: kindCreate,
		run:  func(ctx context.Context) error { return m.build(ctx, b, p, root, asked) },
		undo: func() error { return m.unbuild(b) },
	})
	b.mu.Unlock()
	if f == nil {
		m.forget(b)
		return Info{}, errClosing
	}
	if err := b.await(ctx, f); err != nil {
		return Info{}, err
	}
	return b.snapshot(), nil
}

func newRecord(m *Manager, tenant string, id ID, spec Spec, p *rung) record {
	return record{
		V: recordVersion, Node: m.c.Node, Plan: planCreate, Request: spec.fingerprint(),
		Info: Info{
			ID: id, Tenant: tenant, Spec: spec, State: Creating,
			Provider: p.Name(), Isolation: p.Capabilities().Isolation, CreatedAt: m.now(),
		},
	}
}

// rootfs finds the template and checks that the language's tools are there.
func (m *Manager) rootfs(ctx context.Context, spec Spec) (template.Rootfs, error) {
	root, err := m.c.Templates.Rootfs(ctx, spec.Template)
	if err == nil && spec.Language != "" {
		err = m.c.Templates.Language(ctx, spec.Template, spec.Language)
	}
	return root, err
}

// reserve puts a new box in its place and charges the tenant, or returns the
// box that is there. A new box comes with its mu held, so that nobody sees it
// before its flight has started.
func (m *Manager) reserve(rec record) (b *box, isNew bool, err error) {
	id, tenant := rec.Info.ID, rec.Info.Tenant
	cost := rec.Info.Spec.machineUsage().plus(usage{sandboxes: 1})
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.boxes[id]; old != nil {
		return old, false, nil
	}
	if m.fenced {
		return nil, false, errs.New(errs.Unavailable, "this server has lost its place in the cluster")
	}
	if err := m.charge(tenant, cost); err != nil {
		return nil, false, err
	}
	b = &box{id: id, tenant: tenant, rec: rec, charged: cost, used: time.Now()}
	b.mu.Lock()
	m.boxes[id] = b
	return b, true, nil
}

// createdBefore answers a create whose key is known.
func (m *Manager) createdBefore(ctx context.Context, b *box, spec Spec) (Info, error) {
	if b.record().Request != spec.fingerprint() {
		return Info{}, errs.New(errs.Conflict, "this idempotency key was used for another spec").
			WithHint("use a new key for a new sandbox")
	}
	err := m.do(ctx, b, job{kind: kindCreate, ready: func() error {
		switch {
		case b.gone:
			return errGone
		case b.rec.Info.State == Creating:
			return errCleanup(b.id)
		}
		return errDone
	}})
	if err != nil {
		return Info{}, err
	}
	return b.snapshot(), nil
}

// build is the slow part of Create. When it fails it leaves nothing.
func (m *Manager) build(ctx context.Context, b *box, p *rung, root template.Rootfs, asked time.Time) error {
	if err := m.store(ctx, b); err != nil {
		return m.notBuilt(ctx, b, err)
	}
	m.events.publish(m.now(), b.record().Info)
	err := m.makeVolume(ctx, b)
	if err == nil {
		err = m.boot(ctx, b, p, root, asked)
	}
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil {
		return nil
	}
	if werr := m.wipe(b); werr != nil {
		m.log.Error("cannot remove a sandbox that did not come up; will try again", "id", b.id, "error", werr)
	}
	return m.interrupted(ctx, b, fmt.Errorf("create %s: %w", b.id, err))
}

// unbuild removes a sandbox that came up for nobody.
func (m *Manager) unbuild(b *box) error {
	if err := m.commit(b, func(r *record) { r.Plan, r.PlanReason = planDestroy, ReasonDestroyed }); err != nil {
		m.log.Warn("cannot note that a sandbox will be destroyed", "id", b.id, "error", err)
	}
	return m.wipe(b)
}

// store writes the first record of a box.
func (m *Manager) store(ctx context.Context, b *box) error {
	b.write.Lock()
	defer b.write.Unlock()
	value, err := b.record().encode()
	if err == nil {
		b.revision, err = m.c.Registry.Create(ctx, recordKey(b.id), value)
	}
	return err
}

// notBuilt handles a record that was not, or perhaps not, stored.
func (m *Manager) notBuilt(ctx context.Context, b *box, err error) error {
	if errs.Is(err, errs.Exists) {
		m.forget(b)
		return errs.Wrap(errs.Conflict, err, "the idempotency key was used on another server")
	}
	// It may have been stored after all: look, and leave nothing.
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if _, rev, gerr := m.c.Registry.Get(wctx, recordKey(b.id)); gerr == nil {
		if derr := m.c.Registry.Delete(wctx, recordKey(b.id), rev); derr != nil {
			m.log.Warn("a record of no sandbox stays until the next start", "id", b.id, "error", derr)
		}
	}
	m.forget(b)
	return m.interrupted(ctx, b, err)
}

// interrupted says who ended the work, if it did not end by itself.
func (m *Manager) interrupted(ctx context.Context, b *box, err error) error {
	switch {
	case m.ctx.Err() != nil:
		return errClosing
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errs.Wrap(errs.Unavailable, err, "sandbox %s did not come up in %s", b.id, flightTimeout)
	case ctx.Err() != nil:
		return errs.Wrap(errs.Conflict, err, "sandbox %s was destroyed while it was being made", b.id)
	}
	return err
}

func (m *Manager) makeVolume(ctx context.Context, b *box) error {
	v, err := m.c.Volumes.Create(ctx, string(b.id), int64(b.record().Info.Spec.DiskMB)<<20)
	if err != nil {
		return fmt.Errorf("make the workspace: %w", err)
	}
	b.mu.Lock()
	b.volume = v
	b.mu.Unlock()
	return nil
}

// boot boots a machine for a box whose record says Creating and whose volume
// is attached, and commits Running.
func (m *Manager) boot(ctx context.Context, b *box, p *rung, root template.Rootfs, asked time.Time) error {
	select {
	case m.boots <- struct{}{}:
		defer func() { <-m.boots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	dir := m.dir(b.id)
	if err := freshDir(dir); err != nil {
		return errs.Wrap(errs.Internal, err, "cannot make the sandbox's directory")
	}
	b.mu.Lock()
	spec, volume := b.rec.Info.Spec, b.volume
	b.mu.Unlock()
	machine, err := p.Create(ctx, Boot{ID: b.id, Spec: spec, Rootfs: root, Guest: m.c.Guest, Dir: dir, Workspace: volume.Path})
	if err != nil {
		if ctx.Err() == nil {
			p.doubt()
		}
		return fmt.Errorf("boot: %w", err)
	}
	m.adopt(b, machine)
	if _, err := b.greet(ctx); err != nil {
		return fmt.Errorf("greet the guest: %w", err)
	}
	bootMS := float64(time.Since(asked).Microseconds()) / 1000
	deadline := deadlineOf(spec.TTL)
	err = m.commit(b, func(r *record) {
		now := m.now()
		r.Plan = planNone
		r.Info.State, r.Info.Reason = Running, ""
		r.Info.StartedAt, r.Info.EndedAt = now, time.Time{}
		r.Info.ExpiresAt = time.Time{}
		if spec.TTL > 0 {
			r.Info.ExpiresAt = now.Add(spec.TTL)
		}
		r.Info.BootMS = bootMS
		r.Info.Notes = notes(p.Capabilities(), volume)
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadline, b.used = deadline, time.Now()
	return err
}

// deadlineOf counts a time to live from now; 0 = no deadline.
func deadlineOf(ttl time.Duration) time.Time {
	if ttl <= 0 {
		return time.Time{}
	}
	return time.Now().Add(ttl)
}

// adopt puts a machine into its box and watches over it.
func (m *Manager) adopt(b *box, machine Machine) {
	ctx, cancel := context.WithCancel(m.ctx)
	b.mu.Lock()
	b.machine = machine
	b.client = wire.NewClient(machine.Dial)
	b.unwatch = cancel
	b.mu.Unlock()
	m.spawn(func() {
		defer cancel()
		if exit, err := machine.Wait(ctx); err == nil {
			m.died(b, machine, exit)
		}
	})
}

const greetTimeout = 10 * time.Second

// greet asks the guest for its version: a machine without an answer is none.
func (b *box) greet(ctx context.Context) (*wire.HelloResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	b.mu.Lock()
	client := b.client
	b.mu.Unlock()
	if client == nil {
		return nil, errs.New(errs.Unavailable, "the machine ended at once")
	}
	return client.Hello(ctx)
}

// notes says what is weaker than a user would think.
func notes(c Capabilities, v Volume) []string {
	out := slices.Clone(c.Notes)
	var weak []string
	for _, l := range []struct {
		name string
		ok   bool
	}{{"memory", c.LimitsMemory}, {"cpu", c.LimitsCPU}, {"processes", c.LimitsPids}, {"disk", c.LimitsDisk}} {
		if !l.ok {
			weak = append(weak, l.name)
		}
	}
	if weak != nil {
		out = append(out, "limits that this provider cannot enforce on this host: "+strings.Join(weak, ", "))
	}
	if !v.Enforced {
		out = append(out, "the size of the workspace is watched, not enforced: who exceeds it is stopped")
	}
	return out
}

// freshDir makes an empty directory. What is there is of an earlier machine of
// the same sandbox.
func freshDir(dir string) error {
	if err := removeDir(dir); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o700)
}

// mountEscapes writes a path as the kernel does in its list of mounts.
var mountEscapes = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)

// removeDir removes a directory beneath which nothing is mounted: a mount may
// show things that are not ours to delete.
func removeDir(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	escaped := mountEscapes.Replace(dir)
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && (fields[4] == escaped || strings.HasPrefix(fields[4], escaped+"/")) {
			return errs.New(errs.Internal, "something is still mounted in the sandbox's directory")
		}
	}
	return os.RemoveAll(dir)
}
