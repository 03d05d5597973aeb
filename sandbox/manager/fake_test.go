package manager_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event/eventtest"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/quota"
	"github.com/skete-dev/skete/template"
)

// world is the host of the tests: it outlives the managers that are opened on
// it, as a host outlives servers.
type world struct {
	dir      string
	registry *kvtest.Memory
	events   *eventtest.Memory

	mu       sync.Mutex
	machines map[sandbox.ID]*fakeMachine
	volumes  map[string]int64 // size
	attached map[string]bool
	usage    map[string]int64
	creates  int
	probes   int
	boot     func(ctx context.Context, id sandbox.ID) error // called by Create, may block or fail
	destroy  func(id sandbox.ID) error                      // called by Destroy
	probeErr map[string]error
	enforced bool
	inside   bool                  // the machines have their disks to themselves
	saves    func() error          // called by Snapshot, may fail
	slow     func(step, id string) // called by every step that takes time on a host, may block

	// Of disks, where they are watched: see watched.
	isWatched bool
	host      *quota.Host
	free      int64 // bytes
	growing   map[string]bool
	readOnly  map[string]bool
	mends     map[string]int
	mendErr   error
}

func newWorld(t *testing.T) *world {
	w := &world{
		dir: t.TempDir(), registry: kvtest.NewMemory(), events: eventtest.NewMemory(), enforced: true,
		machines: map[sandbox.ID]*fakeMachine{}, volumes: map[string]int64{}, attached: map[string]bool{},
		usage: map[string]int64{}, probeErr: map[string]error{},
	}
	t.Cleanup(w.end)
	return w
}

// end turns the host off.
func (w *world) end() {
	w.mu.Lock()
	machines := w.machines
	w.machines = map[sandbox.ID]*fakeMachine{}
	w.mu.Unlock()
	for _, m := range machines {
		m.end("off")
	}
}

// ids lists the machines there are.
func (w *world) ids() []sandbox.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := []sandbox.ID{}
	for id := range w.machines {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (w *world) setBoot(boot func(context.Context, sandbox.ID) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boot = boot
}

func (w *world) setDestroy(destroy func(sandbox.ID) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.destroy = destroy
}

func (w *world) setSlow(slow func(step, id string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slow = slow
}

// step is where work on one sandbox may take as long as it likes.
func (w *world) step(step, id string) {
	w.mu.Lock()
	slow := w.slow
	w.mu.Unlock()
	if slow != nil {
		slow(step, id)
	}
}

func (w *world) machine(id sandbox.ID) *fakeMachine {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machines[id]
}

// gate stands between one manager and the world. When its time comes the
// manager is dead: nothing that it does has an effect any more.
type gate struct {
	mu    sync.Mutex
	steps int
	dieAt int  // the step that is its last; 0 = never
	after bool // it dies behind that step, not before it
	dead  bool
}

var errDead = errors.New("this server has died")

// pass does one step, if the server still lives.
func (g *gate) pass(step func() error) error {
	if g == nil {
		return step()
	}
	g.mu.Lock()
	g.steps++
	last := g.steps == g.dieAt
	if g.dead || last && !g.after {
		g.dead = true
		g.mu.Unlock()
		return errDead
	}
	g.mu.Unlock()
	err := step()
	if last {
		g.mu.Lock()
		g.dead = true
		g.mu.Unlock()
		return errDead
	}
	return err
}

func (g *gate) died() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dead
}

// fakeProvider makes machines that are a goroutine with a guest's hello.
type fakeProvider struct {
	w         *world
	g         *gate
	name      string
	isolation sandbox.Isolation
}

func (p *fakeProvider) Name() string { return p.name }

func (p *fakeProvider) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{Isolation: p.isolation, Pause: true, Snapshot: p.isolation != sandbox.None, Fork: p.isolation != sandbox.None, HostWorkspace: !p.w.inside, Network: p.isolation != sandbox.None, LimitsMemory: true, LimitsCPU: true, LimitsPids: true, LimitsDisk: true}
}

func (p *fakeProvider) Probe(context.Context) error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.probes++
	return p.w.probeErr[p.name]
}

func (p *fakeProvider) Create(ctx context.Context, b sandbox.Boot) (m sandbox.Machine, err error) {
	p.w.step("boot", string(b.ID))
	err = p.g.pass(func() error {
		p.w.mu.Lock()
		boot := p.w.boot
		p.w.creates++
		attached := p.w.attached[string(b.ID)]
		p.w.mu.Unlock()
		if _, err := os.Stat(b.Dir); err != nil {
			return err
		}
		if !attached {
			return errors.New("the workspace is not attached")
		}
		if boot != nil {
			if err := boot(ctx, b.ID); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := newFakeMachine(p.w, b, p.name)
		if err != nil {
			return err
		}
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		if p.w.machines[b.ID] != nil {
			f.end("double")
			return errs.New(errs.Exists, "machine %s exists", b.ID)
		}
		p.w.machines[b.ID] = f
		m = p.w.hold(f, p.g)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (p *fakeProvider) Attach(_ context.Context, id sandbox.ID) (m sandbox.Machine, err error) {
	p.w.step("attach", string(id))
	err = p.g.pass(func() error {
		f := p.w.machine(id)
		if f == nil || f.provider != p.name || f.dead() {
			return errs.New(errs.NotFound, "no machine %s", id)
		}
		m = p.w.hold(f, p.g)
		return nil
	})
	return m, err
}

func (p *fakeProvider) List(context.Context) (ids []sandbox.ID, err error) {
	err = p.g.pass(func() error {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		for id, m := range p.w.machines {
			if m.provider == p.name {
				ids = append(ids, id)
			}
		}
		return nil
	})
	return ids, err
}

func (p *fakeProvider) Destroy(_ context.Context, id sandbox.ID) error {
	p.w.step("end", string(id))
	return p.g.pass(func() error {
		p.w.mu.Lock()
		f, hook := p.w.machines[id], p.w.destroy
		p.w.mu.Unlock()
		if hook != nil {
			if err := hook(id); err != nil {
				return err
			}
		}
		if f == nil || f.provider != p.name {
			return nil
		}
		f.end(sandbox.ReasonDestroyed)
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		delete(p.w.machines, id)
		return nil
	})
}

func (p *fakeProvider) Close() error { return nil }

// fakeMachine is a machine of the world.
type fakeMachine struct {
	w        *world
	id       sandbox.ID
	provider string
	conns    chan net.Conn
	server   *http.Server

	mu     sync.Mutex
	paused bool
	exit   sandbox.Exit
	done   chan struct{}

	// What a snapshot keeps of it.
	memory string // what its commands remember
	called string // the sandbox that it takes itself for
	env    map[string]string
	bootID string
	still  bool      // quiesced
	clock  time.Time // as it was last set, at setAt
	setAt  time.Time
	steps  int // of the clock
}

// nobodys is what a copy takes itself for, until it is told.
const nobodys = "another"

// memoryFile is all that a fake machine's snapshot holds.
const memoryFile = "memory"

func newFakeMachine(w *world, b sandbox.Boot, provider string) (*fakeMachine, error) {
	f := &fakeMachine{
		w: w, id: b.ID, provider: provider, conns: make(chan net.Conn), done: make(chan struct{}),
		memory: "of " + string(b.ID), called: string(b.ID), env: b.Spec.Env, bootID: rand.Text(),
	}
	if b.From != "" {
		data, err := os.ReadFile(filepath.Join(b.From, memoryFile))
		if err != nil || len(data) == 0 {
			return nil, fmt.Errorf("%w: %w", sandbox.ErrSnapshot, errors.Join(err, errors.New("no memory")))
		}
		f.memory, f.called, f.bootID, f.env, f.still = string(data), nobodys, nobodys, nil, true
	}
	mux := http.NewServeMux()
	mux.Handle(wire.NewControlHandler(&fakeGuest{f: f}))
	f.server = &http.Server{Handler: mux}
	go func() { _ = f.server.Serve(f) }()
	return f, nil
}

// end ends the machine by itself; what it holds stays until Destroy.
func (f *fakeMachine) end(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.done:
		return
	default:
	}
	f.exit = sandbox.Exit{Reason: reason, Time: time.Now()}
	close(f.done)
	_ = f.server.Close()
}

func (f *fakeMachine) dead() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

func (f *fakeMachine) isPaused() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paused
}

func (f *fakeMachine) setPaused(p bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = p
	return nil
}

// Accept, Close and Addr make it a listener of its own guest.
func (f *fakeMachine) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}
func (f *fakeMachine) Close() error   { return nil }
func (f *fakeMachine) Addr() net.Addr { return &net.UnixAddr{Name: "fake"} }

// fakeHandle is one manager's hold of a machine.
type fakeHandle struct {
	f     *fakeMachine
	g     *gate
	guest *wire.Client
}

func (w *world) hold(f *fakeMachine, g *gate) *fakeHandle {
	h := &fakeHandle{f: f, g: g}
	h.guest = wire.NewClient(h.Dial)
	return h
}

func (h *fakeHandle) Guest() *wire.Client { return h.guest }

func (h *fakeHandle) ID() sandbox.ID { return h.f.id }

func (h *fakeHandle) Dial(ctx context.Context, port uint32) (net.Conn, error) {
	h.f.w.step("dial", string(h.f.id))
	if h.g != nil && h.g.died() {
		return nil, errDead
	}
	here, there := net.Pipe()
	if port != wire.ControlPort {
		go func() { _, _ = fmt.Fprintf(there, "port %d\n", port); _ = there.Close() }()
		return here, nil
	}
	select {
	case h.f.conns <- there:
		return here, nil
	case <-h.f.done:
		return nil, errs.New(errs.Unavailable, "the machine is dead")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *fakeHandle) Pause(context.Context) error {
	h.f.w.step("pause", string(h.f.id))
	if h.f.dead() {
		return errs.New(errs.Unavailable, "the machine is dead")
	}
	return h.g.pass(func() error { return h.f.setPaused(true) })
}

func (h *fakeHandle) Resume(context.Context) error {
	h.f.w.step("resume", string(h.f.id))
	return h.g.pass(func() error { return h.f.setPaused(false) })
}

func (h *fakeHandle) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-h.f.done:
		h.f.w.step("see the end", string(h.f.id))
		return h.f.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

func (h *fakeHandle) Snapshot(ctx context.Context, dir string, frozen func(context.Context) error) error {
	h.f.w.step("save", string(h.f.id))
	err := h.g.pass(func() error {
		h.f.mu.Lock()
		defer h.f.mu.Unlock()
		if !h.f.still || h.f.paused {
			return errors.New("a machine is saved whose commands run, or whose guest sleeps")
		}
		h.f.w.mu.Lock()
		saves := h.f.w.saves
		h.f.w.mu.Unlock()
		if saves != nil {
			if err := saves(); err != nil {
				return err
			}
		}
		return os.WriteFile(filepath.Join(dir, memoryFile), []byte(h.f.memory), 0o600)
	})
	return errors.Join(err, frozen(ctx))
}

func (h *fakeHandle) Destroy(context.Context) error { return errors.New("not used by the manager") }
func (h *fakeHandle) Close() error                  { h.guest.Close(); return nil }

// fakeGuest is the least that a guest does.
type fakeGuest struct {
	wire.UnimplementedControlHandler
	f *fakeMachine
}

func (g *fakeGuest) Hello(context.Context, *connect.Request[wire.HelloRequest]) (*connect.Response[wire.HelloResponse], error) {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	return connect.NewResponse(&wire.HelloResponse{Version: wire.Version, BootId: g.f.bootID}), nil
}

// Shutdown ends the machine, as that of a machine does which has a kernel of its own.
func (g *fakeGuest) Shutdown(ctx context.Context, r *connect.Request[wire.ShutdownRequest]) (*connect.Response[wire.ShutdownResponse], error) {
	if !g.f.w.inside {
		return g.UnimplementedControlHandler.Shutdown(ctx, r)
	}
	g.f.end(sandbox.ReasonExited)
	return connect.NewResponse(&wire.ShutdownResponse{}), nil
}

func (g *fakeGuest) Quiesce(context.Context, *connect.Request[wire.QuiesceRequest]) (*connect.Response[wire.QuiesceResponse], error) {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	g.f.still = true
	return connect.NewResponse(&wire.QuiesceResponse{Stopped: 1}), nil
}

func (g *fakeGuest) Thaw(context.Context, *connect.Request[wire.ThawRequest]) (*connect.Response[wire.ThawResponse], error) {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	if g.f.called == nobodys {
		return nil, errors.New("a machine goes on in another's name")
	}
	g.f.still = false
	return connect.NewResponse(&wire.ThawResponse{Resumed: 1}), nil
}

func (g *fakeGuest) Adopt(_ context.Context, r *connect.Request[wire.AdoptRequest]) (*connect.Response[wire.AdoptResponse], error) {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	if len(r.Msg.Entropy) < 32 || r.Msg.TimeUnixNs == 0 {
		return nil, errors.New("no entropy, or no time")
	}
	g.f.called, g.f.bootID, g.f.clock, g.f.env = r.Msg.Sandbox, rand.Text(), time.Unix(0, r.Msg.TimeUnixNs), map[string]string{}
	for name, value := range r.Msg.Env {
		g.f.env[name] = string(value)
	}
	return connect.NewResponse(&wire.AdoptResponse{BootId: g.f.bootID}), nil
}

func (g *fakeGuest) StepClock(_ context.Context, r *connect.Request[wire.StepClockRequest]) (*connect.Response[wire.StepClockResponse], error) {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	to := time.Unix(0, r.Msg.TimeUnixNs)
	step := to.Sub(g.f.time())
	g.f.clock, g.f.setAt = to, time.Now()
	g.f.steps++
	return connect.NewResponse(&wire.StepClockResponse{SteppedNs: int64(step)}), nil
}

func (g *fakeGuest) Metrics(context.Context, *connect.Request[wire.MetricsRequest]) (*connect.Response[wire.MetricsResponse], error) {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	return connect.NewResponse(&wire.MetricsResponse{TimeUnixNs: g.f.time().UnixNano()}), nil
}

// time is what the guest's clock shows. The lock is held.
func (f *fakeMachine) time() time.Time {
	if f.clock.IsZero() {
		return time.Now()
	}
	return f.clock.Add(time.Since(f.setAt))
}

// fakeVolumes are directories without a bound.
type fakeVolumes struct {
	w *world
	g *gate
}

func (v *fakeVolumes) path(id string) string { return filepath.Join(v.w.dir, "volumes", id) }

func (v *fakeVolumes) Create(_ context.Context, id string, bytes int64, _ sandbox.Form) (vol sandbox.Volume, err error) {
	v.w.step("make volume", id)
	err = v.g.pass(func() error {
		if err := os.MkdirAll(v.path(id), 0o700); err != nil {
			return err
		}
		v.w.mu.Lock()
		defer v.w.mu.Unlock()
		v.w.volumes[id], v.w.attached[id] = bytes, true
		vol = sandbox.Volume{Path: v.path(id), Enforced: v.w.enforced, Method: "fake"}
		return nil
	})
	return vol, err
}

func (v *fakeVolumes) Attach(_ context.Context, id string, _ sandbox.Form) (vol sandbox.Volume, err error) {
	v.w.step("attach volume", id)
	err = v.g.pass(func() error {
		v.w.mu.Lock()
		defer v.w.mu.Unlock()
		if _, ok := v.w.volumes[id]; !ok {
			return errs.New(errs.NotFound, "no volume %s", id)
		}
		v.w.attached[id] = true
		vol = sandbox.Volume{Path: v.path(id), Enforced: v.w.enforced, Method: "fake"}
		return nil
	})
	return vol, err
}

func (v *fakeVolumes) Copy(_ context.Context, from, to string) error {
	v.w.step("copy volume", from)
	return v.g.pass(func() error {
		v.w.mu.Lock()
		defer v.w.mu.Unlock()
		size, ok := v.w.volumes[from]
		if !ok {
			return errs.New(errs.NotFound, "no volume %s", from)
		}
		v.w.volumes[to] = size
		delete(v.w.attached, to)
		return errors.Join(os.RemoveAll(v.path(to)), os.CopyFS(v.path(to), os.DirFS(v.path(from))))
	})
}

func (v *fakeVolumes) Detach(_ context.Context, id string) error {
	v.w.step("detach volume", id)
	return v.g.pass(func() error {
		v.w.mu.Lock()
		defer v.w.mu.Unlock()
		delete(v.w.attached, id)
		return nil
	})
}

func (v *fakeVolumes) Remove(_ context.Context, id string) error {
	v.w.step("remove volume", id)
	return v.g.pass(func() error {
		v.w.mu.Lock()
		defer v.w.mu.Unlock()
		delete(v.w.volumes, id)
		delete(v.w.attached, id)
		return os.RemoveAll(v.path(id))
	})
}

func (v *fakeVolumes) List(context.Context) (ids []string, err error) {
	err = v.g.pass(func() error {
		v.w.mu.Lock()
		defer v.w.mu.Unlock()
		for id := range v.w.volumes {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

func (v *fakeVolumes) Usage(_ context.Context, id string) (int64, error) {
	v.w.step("usage", id)
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	return v.w.usage[id], nil
}

// gatedRegistry is the registry as one manager sees it.
type gatedRegistry struct {
	w *world
	r *kvtest.Memory
	g *gate
}

func (r gatedRegistry) Create(ctx context.Context, key string, value []byte) (rev uint64, err error) {
	r.w.step("record", strings.TrimPrefix(key, "sandbox/"))
	err = r.g.pass(func() (err error) { rev, err = r.r.Create(ctx, key, value); return err })
	return rev, err
}

func (r gatedRegistry) Get(ctx context.Context, key string) (value []byte, rev uint64, err error) {
	err = r.g.pass(func() (err error) { value, rev, err = r.r.Get(ctx, key); return err })
	return value, rev, err
}

func (r gatedRegistry) Update(ctx context.Context, key string, value []byte, old uint64) (rev uint64, err error) {
	r.w.step("record", strings.TrimPrefix(key, "sandbox/"))
	err = r.g.pass(func() (err error) { rev, err = r.r.Update(ctx, key, value, old); return err })
	return rev, err
}

func (r gatedRegistry) Delete(ctx context.Context, key string, rev uint64) error {
	r.w.step("record", strings.TrimPrefix(key, "sandbox/"))
	return r.g.pass(func() error { return r.r.Delete(ctx, key, rev) })
}

func (r gatedRegistry) List(ctx context.Context, prefix string, visit func(string, []byte, uint64) error) error {
	return r.g.pass(func() error { return r.r.List(ctx, prefix, visit) })
}

func (r gatedRegistry) Watch(ctx context.Context, prefix string, visit func(kv.Change) error) error {
	return r.g.pass(func() error { return r.r.Watch(ctx, prefix, visit) })
}

// fakeTemplates know one template, with python.
type fakeTemplates struct{}

func (fakeTemplates) Rootfs(_ context.Context, name string) (template.Rootfs, error) {
	if name != template.HostName {
		return template.Rootfs{}, errs.New(errs.NotFound, "no template %q", name).WithHint("known: host")
	}
	return template.Rootfs{Name: name, Hash: "hash-of-" + name, Dir: "/nowhere"}, nil
}

func (fakeTemplates) Needs(_ context.Context, name string) template.Needs {
	return map[string]template.Needs{"large": {CPUs: 1.5, MemoryMB: 1024}, "huge": {CPUs: 1000, MemoryMB: 16 << 20}}[name]
}

func (fakeTemplates) Image(context.Context, template.Rootfs) (string, error) {
	return "", errs.New(errs.Unsupported, "no image")
}

func (fakeTemplates) Language(_ context.Context, name, language string) error {
	if language != "python" {
		return errs.New(errs.Unsupported, "template %s has no %s", name, language).WithHint("install it")
	}
	return nil
}

// config is a manager on the world, with one provider of each kind asked for.
func (w *world) config(g *gate, isolations ...sandbox.Isolation) manager.Config {
	if isolations == nil {
		isolations = []sandbox.Isolation{sandbox.UserKernel}
	}
	c := manager.Config{
		Dir: filepath.Join(w.dir, "sandboxes"), Node: "one",
		Templates: fakeTemplates{}, Volumes: &fakeVolumes{w, g}, Registry: gatedRegistry{w, w.registry, g}, Events: w.events,
		Guest: "/nowhere/guest",
	}
	for _, i := range isolations {
		c.Providers = append(c.Providers, &fakeProvider{w: w, g: g, name: "fake-" + string(i), isolation: i})
	}
	return c
}

// subscribe reads the events of the tenant "t".
func subscribe(t *testing.T, m *manager.Manager, from uint64) *sandbox.Subscription {
	t.Helper()
	sub, err := m.Subscribe(t.Context(), "t", from)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

// openSettled opens a manager and waits until what was there is in order.
func openSettled(ctx context.Context, c manager.Config) (*manager.Manager, error) {
	m, err := manager.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := m.Settled(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (w *world) open(t *testing.T, c manager.Config) *manager.Manager {
	t.Helper()
	m, err := openSettled(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// check compares what the host holds with what the manager says: nothing may
// be left over and nothing may be missing.
func (w *world) check(t *testing.T, m *manager.Manager, tenants ...string) {
	t.Helper()
	alive, kept, forked := map[string]bool{}, map[string]bool{}, map[string]bool{}
	saved := map[string]bool{}
	for _, tenant := range tenants {
		page, err := m.List(t.Context(), tenant, sandbox.Filter{PageSize: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page.Items {
			kept[string(i.ID)] = true
			switch i.State {
			case sandbox.Running, sandbox.Paused:
				alive[string(i.ID)] = true
				forked[string(i.From)] = true
				w.machine(i.ID).checkIdentity(t)
				if f := w.machine(i.ID); f != nil && f.isPaused() != (i.State == sandbox.Paused) {
					t.Errorf("%s is %s, its machine is paused: %v", i.ID, i.State, f.isPaused())
				}
			case sandbox.Creating:
				t.Errorf("%s is still %s", i.ID, i.State)
			}
		}
	}
	for _, tenant := range tenants {
		for _, s := range m.ListSnapshots(t.Context(), tenant) {
			kept[string(s.ID)] = true
			if s.Memory {
				saved[string(s.ID)] = true
			}
		}
	}
	machines, volumes, attached, dirs := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	w.mu.Lock()
	for id := range w.machines {
		machines[string(id)] = true
	}
	for id := range w.volumes {
		// What was forked is needed as long as there is a machine of it.
		volumes[id] = !forked[id] || kept[id]
		if !volumes[id] {
			delete(volumes, id)
		}
	}
	for id := range w.attached {
		attached[id] = true
	}
	w.mu.Unlock()
	entries, err := os.ReadDir(filepath.Join(w.dir, "sandboxes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != "snapshots" {
			dirs[e.Name()] = true
		}
	}
	memories := map[string]bool{}
	if entries, err = os.ReadDir(filepath.Join(w.dir, "sandboxes", "snapshots")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !forked[e.Name()] || saved[e.Name()] {
			memories[e.Name()] = true
		}
	}
	same(t, "directories of snapshots", memories, saved)
	same(t, "machines", machines, alive)
	same(t, "directories", dirs, alive)
	same(t, "attached volumes", attached, alive)
	same(t, "volumes", volumes, kept)
}

// checkIdentity looks whether the machine goes on, in its own name.
func (f *fakeMachine) checkIdentity(t *testing.T) {
	t.Helper()
	if f == nil {
		return // missed elsewhere
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.called != string(f.id) || f.still {
		t.Errorf("the machine of %s takes itself for %s; it stands still: %t", f.id, f.called, f.still)
	}
}

func same(t *testing.T, what string, got, want map[string]bool) {
	t.Helper()
	for id := range got {
		if !want[id] {
			t.Errorf("%s: %s is left over", what, id)
		}
	}
	for id := range want {
		if !got[id] {
			t.Errorf("%s: %s is missing", what, id)
		}
	}
}

func wantClass(t *testing.T, what string, err error, want errs.Class) {
	t.Helper()
	if errs.Of(err) != want {
		t.Errorf("%s: %v (class %q), want class %q", what, err, errs.Of(err), want)
	}
}

// plenty is so much that nothing is asked of anybody, near so little that who
// grows most is held still.
const (
	plenty  = 1 << 39
	near    = 120 << 20
	reserve = 100 << 20
)

// watched adds disks to a manager, of which there is plenty.
func (w *world) watched(c manager.Config) manager.Config {
	w.isWatched, w.free, w.growing, w.readOnly, w.mends = true, plenty, map[string]bool{}, map[string]bool{}, map[string]int{}
	c.Disks = fakeDisks{w}
	c.Host = quota.NewHost(quota.Disk{Name: "data directory", Reserve: reserve, Space: func() (int64, int64, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return 1 << 40, w.free, nil
	}})
	w.host, c.Limits.TenantDiskMB = c.Host, 1<<20
	return c
}

func (w *world) setFree(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = bytes
}

func (w *world) use(id sandbox.ID, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.usage[string(id)] = bytes
	delete(w.growing, string(id))
}

func (w *world) setReadOnly(id sandbox.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readOnly[string(id)] = true
}

func (w *world) setMendErr(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mendErr = err
}

func (w *world) mended(id sandbox.ID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mends[string(id)]
}

// fill has a sandbox grow on a disk that is nearly full, until it is held still.
func (w *world) fill(t *testing.T, m *manager.Manager, tenant string, id sandbox.ID) {
	t.Helper()
	w.setFree(near)
	defer w.grow(id)()
	eventually(t, "who fills the disk is held still", func() bool {
		i, err := m.Get(t.Context(), tenant, id)
		return err == nil && i.State == sandbox.Paused && i.Reason == sandbox.ReasonHostFull
	})
}

// grow lets a sandbox have more at every look, until stop is called.
func (w *world) grow(id sandbox.ID) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.growing[string(id)] = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.growing, string(id))
	}
}

// exceed has a sandbox hold more than its tenant may, and grow on.
func (w *world) exceed(id sandbox.ID) {
	w.use(id, 1<<50)
	w.grow(id)
}

// fakeDisks knows what volumes cost.
type fakeDisks struct{ w *world }

func (d fakeDisks) Held(id string) (held, pending int64, err error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if d.w.growing[id] {
		d.w.usage[id] += 64 << 20
	}
	return d.w.usage[id], 0, nil
}

// ReadOnly names what was made so and is attached.
func (d fakeDisks) ReadOnly() (ids []string, err error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	for id := range d.w.readOnly {
		if d.w.attached[id] {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (d fakeDisks) Broken(string) error { return nil }

func (d fakeDisks) Mend(_ context.Context, id string) error {
	d.w.step("mend", id)
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if d.w.mendErr != nil {
		return d.w.mendErr
	}
	d.w.mends[id]++
	delete(d.w.readOnly, id)
	return nil
}
