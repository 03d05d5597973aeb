package pool_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/admission"
	"github.com/skete-dev/skete/sandbox/pool"
	"github.com/skete-dev/skete/sandbox/snapshot"
	"github.com/skete-dev/skete/template"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDead = errors.New("this server has died")

// world is a host that outlives the servers on it.
type world struct {
	registry *kvtest.Memory

	mu        sync.Mutex
	machines  map[sandbox.ID]*machine
	volumes   map[string]bool
	dirs      map[sandbox.ID]bool
	rootfs    string
	boot      func(ctx context.Context) error
	memory    pool.Host
	boots     *admission.Gate
	use       template.Use // of the template
	startErr  error        // of what it starts
	creates   int
	isolation sandbox.Isolation

	// Of snapshots; a machine can be saved if canSave.
	snapshots string // directory
	canSave   bool
	saveErr   error
	saveEnds  bool // the machine, too
	bootTakes time.Duration
	loadTakes time.Duration
	restores  int // creates from a snapshot that loaded
	saved     int
	diskShort bool
}

// memoryFile is all that a snapshot of a machine holds.
const memoryFile = "memory"

func newWorld(t *testing.T) *world {
	w := &world{
		registry: kvtest.NewMemory(), machines: map[sandbox.ID]*machine{}, volumes: map[string]bool{},
		dirs: map[sandbox.ID]bool{}, rootfs: "hash-1", memory: pool.Host{Total: 16 << 30, Available: 12 << 30},
		snapshots: t.TempDir(), isolation: sandbox.UserKernel,
	}
	t.Cleanup(func() {
		for _, m := range w.all() {
			m.end("off")
		}
	})
	return w
}

func (w *world) all() []*machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*machine
	for _, m := range w.machines {
		all = append(all, m)
	}
	return all
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// holds lists all IDs of which the host has anything, and the records.
func (w *world) holds(t *testing.T) []string {
	t.Helper()
	all := map[string]bool{}
	w.mu.Lock()
	for id := range w.machines {
		all[string(id)] = true
	}
	for id := range w.volumes {
		all[id] = true
	}
	for id := range w.dirs {
		all[string(id)] = true
	}
	w.mu.Unlock()
	entries, err := os.ReadDir(w.snapshots)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all[e.Name()] = true
	}
	err = w.registry.List(context.Background(), "", func(key string, _ []byte, _ uint64) error {
		all[key] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for n := range all {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// server is one life of a server on the world. When its time comes it is dead:
// nothing that it does has an effect any more.
type server struct {
	w      *world
	p      *pool.Pool
	snaps  *snapshot.Store
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	closing bool
	steps   int
	dieAt   int // the step that is its last; 0 = never
	after   bool
	dead    bool
}

func (s *server) step(f func() error) error {
	s.mu.Lock()
	s.steps++
	last := s.steps == s.dieAt
	if s.dead || last && !s.after {
		s.dead = true
		s.mu.Unlock()
		return errDead
	}
	s.mu.Unlock()
	err := f()
	if last {
		s.mu.Lock()
		s.dead = true
		s.mu.Unlock()
		return errDead
	}
	return err
}

func (s *server) died() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steps
}

func (s *server) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.wg.Go(f)
	return true
}

// start opens a pool on the world; dieAt 0 = it never dies.
func (w *world) start(t *testing.T, c pool.Config, dieAt int, after bool, used func(sandbox.ID) bool) *server {
	t.Helper()
	s := &server{w: w, dieAt: dieAt, after: after}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.snaps = snapshot.New(snapshot.Config{
		Dir: w.snapshots, Node: "one", Registry: registry{s}, Volumes: volumes{s}, Max: 1, Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	s.p = pool.New(pool.Deps{
		Snapshots: s.snaps, DiskShort: func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.diskShort },
		Node: "one", Guest: "/nowhere", GuestID: "g1", Registry: registry{s}, Volumes: volumes{s},
		Provider: func(name string) (sandbox.Provider, bool) { return provider{s}, name == "fake" },
		Resolve:  s.resolve,
		FreshDir: func(id sandbox.ID) (string, error) {
			return "/nowhere", s.step(func() error { w.set(func() { w.dirs[id] = true }); return nil })
		},
		RemoveDir: func(id sandbox.ID) error {
			return s.step(func() error { w.set(func() { delete(w.dirs, id) }); return nil })
		},
		Boots: w.boots,
		Host:  func() pool.Host { w.mu.Lock(); defer w.mu.Unlock(); return w.memory },
		Ctx:   ctx, Spawn: s.spawn,
	}, c)
	t.Cleanup(s.stop) // of a test that failed in the middle
	if used == nil {
		used = func(sandbox.ID) bool { return false }
	}
	if err := s.snaps.Load(ctx); err != nil && !errors.Is(err, errDead) {
		t.Fatal(err)
	}
	if err := s.p.Load(ctx); err != nil && !errors.Is(err, errDead) {
		t.Fatal(err)
	}
	s.p.Recover(ctx, used)
	s.snaps.Remove(ctx, s.snaps.Leftovers(ctx))
	s.p.Start()
	return s
}

// stop ends the server in order. It may be repeated.
func (s *server) stop() {
	s.mu.Lock()
	again := s.closing
	s.closing = true
	s.mu.Unlock()
	if again {
		return
	}
	s.cancel()
	s.wg.Wait()
	s.p.Close(context.Background())
}

// kill ends the server as a crash does: nothing is cleaned up.
func (s *server) kill() {
	s.mu.Lock()
	s.dead = true
	s.mu.Unlock()
	s.stop()
}

func (s *server) resolve(_ context.Context, spec sandbox.Spec) (pool.Shape, template.Rootfs, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	name := spec.Template
	if name == "" {
		name = "host"
	}
	root := template.Rootfs{Name: name, Hash: s.w.rootfs, Use: s.w.use}
	return pool.ShapeOf(spec, "fake", root, "g1"), root, nil
}

type registry struct{ s *server }

func (r registry) Create(ctx context.Context, key string, value []byte) (rev uint64, err error) {
	err = r.s.step(func() (err error) { rev, err = r.s.w.registry.Create(ctx, key, value); return err })
	return rev, err
}

func (r registry) Get(ctx context.Context, key string) (value []byte, rev uint64, err error) {
	err = r.s.step(func() (err error) { value, rev, err = r.s.w.registry.Get(ctx, key); return err })
	return value, rev, err
}

func (r registry) Update(ctx context.Context, key string, value []byte, old uint64) (rev uint64, err error) {
	err = r.s.step(func() (err error) { rev, err = r.s.w.registry.Update(ctx, key, value, old); return err })
	return rev, err
}

func (r registry) Delete(ctx context.Context, key string, rev uint64) error {
	return r.s.step(func() error { return r.s.w.registry.Delete(ctx, key, rev) })
}

func (r registry) List(ctx context.Context, prefix string, visit func(string, []byte, uint64) error) error {
	return r.s.w.registry.List(ctx, prefix, visit)
}

func (r registry) Watch(ctx context.Context, prefix string, visit func(kv.Change) error) error {
	return r.s.w.registry.Watch(ctx, prefix, visit)
}

type volumes struct{ s *server }

func (v volumes) Create(_ context.Context, id string, _ int64, _ sandbox.Form) (sandbox.Volume, error) {
	return sandbox.Volume{Path: "/nowhere", Enforced: true}, v.s.step(func() error {
		v.s.w.set(func() { v.s.w.volumes[id] = true })
		return nil
	})
}

func (v volumes) Attach(_ context.Context, id string, _ sandbox.Form) (vol sandbox.Volume, err error) {
	v.s.w.mu.Lock()
	defer v.s.w.mu.Unlock()
	if !v.s.w.volumes[id] {
		return vol, errs.New(errs.NotFound, "no volume")
	}
	return sandbox.Volume{Path: "/nowhere", Enforced: true}, nil
}

func (v volumes) Remove(_ context.Context, id string) error {
	return v.s.step(func() error { v.s.w.set(func() { delete(v.s.w.volumes, id) }); return nil })
}

func (v volumes) Copy(_ context.Context, from, to string) error {
	return v.s.step(func() error {
		v.s.w.mu.Lock()
		defer v.s.w.mu.Unlock()
		if !v.s.w.volumes[from] {
			return errs.New(errs.NotFound, "no volume")
		}
		v.s.w.volumes[to] = true
		return nil
	})
}

func (v volumes) List(context.Context) (names []string, err error) {
	v.s.w.mu.Lock()
	defer v.s.w.mu.Unlock()
	return slices.Collect(maps.Keys(v.s.w.volumes)), nil
}

func (volumes) Detach(context.Context, string) error         { return errors.New("not used") }
func (volumes) Usage(context.Context, string) (int64, error) { return 4096, nil }

type provider struct{ s *server }

func (provider) Name() string { return "fake" }
func (p provider) Capabilities() sandbox.Capabilities {
	p.s.w.mu.Lock()
	defer p.s.w.mu.Unlock()
	return sandbox.Capabilities{Isolation: p.s.w.isolation, HostWorkspace: true, Snapshot: p.s.w.canSave}
}
func (provider) Probe(context.Context) error { return nil }
func (provider) Close() error                { return nil }
func (p provider) List(context.Context) ([]sandbox.ID, error) {
	return nil, errors.New("not used")
}

func (p provider) Create(ctx context.Context, b sandbox.Boot) (m sandbox.Machine, err error) {
	w := p.s.w
	w.mu.Lock()
	boot, ready, takes := w.boot, w.volumes[string(b.ID)] && w.dirs[b.ID], w.bootTakes
	if b.From != "" {
		takes = w.loadTakes
	}
	w.creates++
	w.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if b.From != "" {
		if data, err := os.ReadFile(filepath.Join(b.From, memoryFile)); err != nil || string(data) != "whole" {
			return nil, fmt.Errorf("%w: %q, %w", sandbox.ErrSnapshot, data, err)
		}
		w.set(func() { w.restores++ })
	}
	if !ready {
		return nil, errors.New("no workspace, or no directory")
	}
	if boot != nil {
		if err := boot(ctx); err != nil {
			return nil, err
		}
	}
	err = p.s.step(func() error {
		f := newMachine(b.ID)
		f.startErr = w.startErr
		f.still.Store(b.From != "")
		f.from = b.From
		w.set(func() { w.machines[b.ID] = f })
		m = newHandle(f, p.s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (p provider) Attach(_ context.Context, id sandbox.ID) (sandbox.Machine, error) {
	p.s.w.mu.Lock()
	defer p.s.w.mu.Unlock()
	f := p.s.w.machines[id]
	if f == nil {
		return nil, errs.New(errs.NotFound, "no machine")
	}
	return newHandle(f, p.s), nil
}

func (p provider) Destroy(_ context.Context, id sandbox.ID) error {
	return p.s.step(func() error {
		p.s.w.mu.Lock()
		f := p.s.w.machines[id]
		delete(p.s.w.machines, id)
		p.s.w.mu.Unlock()
		if f != nil {
			f.end(sandbox.ReasonDestroyed)
		}
		return nil
	})
}

// machine answers Hello, and Adopt under its own name.
type machine struct {
	id     sandbox.ID
	conns  chan net.Conn
	done   chan struct{}
	once   sync.Once
	exit   sandbox.Exit
	server *http.Server
	wedged sync.Mutex // held: the guest does not answer
	from   string     // the snapshot's directory, which it needs
	still  atomic.Bool
	called atomic.Bool // by its own name, since it came up

	startErr error
	started  atomic.Bool // what the template is for
}

type fakeProcess struct {
	wire.UnimplementedProcessHandler
	m *machine
}

func (h fakeProcess) Start(_ context.Context, r *connect.Request[wire.StartRequest]) (*connect.Response[wire.StartResponse], error) {
	switch {
	case h.m.still.Load() || !h.m.called.Load():
		return nil, errors.New("a copy starts what is to have its own randomness")
	case h.m.startErr != nil:
		return nil, h.m.startErr
	}
	h.m.started.Store(true)
	return connect.NewResponse(&wire.StartResponse{Process: &wire.ProcessInfo{Key: r.Msg.Key}}), nil
}

type fakeControl struct {
	wire.UnimplementedControlHandler
	m *machine
}

func (h fakeControl) Hello(context.Context, *connect.Request[wire.HelloRequest]) (*connect.Response[wire.HelloResponse], error) {
	if !h.m.wedged.TryLock() {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("wedged"))
	}
	h.m.wedged.Unlock()
	return connect.NewResponse(&wire.HelloResponse{Version: wire.Version}), nil
}

func (h fakeControl) Adopt(_ context.Context, r *connect.Request[wire.AdoptRequest]) (*connect.Response[wire.AdoptResponse], error) {
	if r.Msg.Sandbox != string(h.m.id) {
		return nil, errors.New("a machine of nobody got a name")
	}
	h.m.called.Store(true)
	return connect.NewResponse(&wire.AdoptResponse{}), nil
}

func (h fakeControl) Quiesce(context.Context, *connect.Request[wire.QuiesceRequest]) (*connect.Response[wire.QuiesceResponse], error) {
	h.m.still.Store(true)
	return connect.NewResponse(&wire.QuiesceResponse{}), nil
}

func (h fakeControl) Thaw(context.Context, *connect.Request[wire.ThawRequest]) (*connect.Response[wire.ThawResponse], error) {
	if !h.m.called.Load() {
		return nil, errors.New("a copy goes on under another's name")
	}
	h.m.still.Store(false)
	return connect.NewResponse(&wire.ThawResponse{}), nil
}

func newMachine(id sandbox.ID) *machine {
	m := &machine{id: id, conns: make(chan net.Conn), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle(wire.NewControlHandler(fakeControl{m: m}))
	mux.Handle(wire.NewProcessHandler(fakeProcess{m: m}))
	m.server = &http.Server{Handler: mux}
	go func() { _ = m.server.Serve(m) }()
	return m
}

func (m *machine) end(reason string) {
	m.once.Do(func() {
		m.exit = sandbox.Exit{Reason: reason, Time: time.Now()}
		close(m.done)
		_ = m.server.Close()
	})
}

func (m *machine) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}
func (m *machine) Close() error   { return nil }
func (m *machine) Addr() net.Addr { return &net.UnixAddr{Name: "fake"} }

type handle struct {
	f     *machine
	s     *server
	guest *wire.Client
}

func newHandle(f *machine, s *server) *handle {
	h := &handle{f: f, s: s}
	h.guest = wire.NewClient(h.Dial)
	return h
}

func (h *handle) ID() sandbox.ID      { return h.f.id }
func (h *handle) Guest() *wire.Client { return h.guest }

func (h *handle) Dial(ctx context.Context, _ uint32) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case h.f.conns <- there:
		return here, nil
	case <-h.f.done:
		return nil, errs.New(errs.Unavailable, "the machine is dead")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *handle) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-h.f.done:
		return h.f.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

func (h *handle) Pause(context.Context) error { return fmt.Errorf("not used") }

func (h *handle) Resume(context.Context) error {
	return errs.New(errs.Unsupported, "it cannot be paused")
}

func (h *handle) Snapshot(ctx context.Context, dir string, frozen func(context.Context) error) error {
	w := h.s.w
	if !h.f.still.Load() || h.f.started.Load() {
		return errors.New("a machine is saved whose commands run")
	}
	err := h.s.step(func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.saveEnds {
			h.f.end(sandbox.ReasonExited)
		}
		if w.saveErr != nil {
			return w.saveErr
		}
		w.saved++
		return os.WriteFile(filepath.Join(dir, memoryFile), []byte("whole"), 0o600)
	})
	if err != nil {
		return err
	}
	return frozen(ctx)
}
func (h *handle) Destroy(context.Context) error { return errors.New("not used") }
func (h *handle) Close() error                  { h.guest.Close(); return nil }
