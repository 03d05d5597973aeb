package service

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/process"
	"github.com/skete-dev/skete/guest/wire"
)

// servicesMax bounds the services of a machine.
const servicesMax = 64

// Config of a Manager.
type Config struct {
	Core *process.Core
	Boot wire.Boot
	// InitBoot is init's own id of the present boot, whatever an Adopt made of it.
	InitBoot string
	// Log takes one line an event.
	Log io.Writer
}

// Manager has the services of a machine.
type Manager struct {
	core     *process.Core
	dir      string
	initBoot string
	log      io.Writer
	bounds   cgroups
	cancel   context.CancelFunc
	ctx      context.Context //nolint:containedctx // of the loops; Close ends it
	wg       sync.WaitGroup

	mu     sync.Mutex
	boot   wire.Boot
	units  map[string]*unit
	closed bool

	watchMu sync.Mutex // leaf
	changed chan struct{}
}

// New reads what is declared, takes over what runs and starts what shall run.
func New(cfg Config) (*Manager, error) {
	state := cfg.Boot.StateDir
	if state == "" {
		state = pair.DefaultStateDir
	}
	m := &Manager{
		core: cfg.Core, dir: filepath.Join(state, "services"), initBoot: cfg.InitBoot, log: cfg.Log, boot: cfg.Boot,
		units: map[string]*unit{}, changed: make(chan struct{}), bounds: findGroups(),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(m.dir, "*"+recordEnding))
	if err != nil {
		return nil, err
	}
	for _, f := range files[:min(len(files), servicesMax)] {
		m.load(f)
	}
	for _, u := range m.units {
		m.wg.Go(func() { u.loop(m.ctx) })
	}
	return m, nil
}

// load takes up one record. A broken one is said and left out: it must not
// keep the others from running.
func (m *Manager) load(file string) {
	r, d, err := readRecord(file)
	if err != nil {
		m.logf("%s", errs.Public(err))
		return
	}
	if r.InitBoot != m.initBoot {
		r.reboot(m.initBoot)
		if err := r.save(m.dir, d.Name); err != nil {
			m.logf("keep service %s: %v", d.Name, err)
		}
	}
	m.units[d.Name] = newUnit(m, d, r)
}

// Become changes the environment and the working directory of what is started
// from now on.
func (m *Manager) Become(boot wire.Boot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boot = boot
}

func (m *Manager) bootNow() wire.Boot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot
}

// Close lets go of the services; they run on, with init.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()
	return nil
}

func (m *Manager) logf(format string, args ...any) {
	if m.log != nil {
		_, _ = fmt.Fprintf(m.log, "supervise: "+format+"\n", args...)
	}
}

func (m *Manager) find(name string) (*unit, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u := m.units[name]; u != nil {
		return u, nil
	}
	return nil, errs.New(errs.NotFound, "no service %.50q", name)
}

// all lists the services by name.
func (m *Manager) all() []*unit {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*unit
	for _, u := range m.units {
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b *unit) int { return strings.Compare(a.name, b.name) })
	return list
}

// declare makes a service known, or changes one. keep: what does not run is
// not started.
func (m *Manager) declare(d *wire.ServiceDeclaration, keep bool) (u *unit, created, changed bool, err error) {
	d, err = complete(d)
	if err != nil {
		return nil, false, false, err
	}
	m.mu.Lock()
	u = m.units[d.Name]
	if u == nil {
		defer m.mu.Unlock()
		u, err = m.addLocked(d, keep)
		return u, err == nil, false, err
	}
	m.mu.Unlock()
	changed, err = u.redeclare(d, keep)
	return u, false, changed, err
}

func (m *Manager) addLocked(d *wire.ServiceDeclaration, keep bool) (*unit, error) {
	if m.closed {
		return nil, errs.New(errs.Unavailable, "the supervisor is going down")
	}
	if len(m.units) >= servicesMax {
		return nil, errs.New(errs.Limit, "there are %d services, no more are possible", servicesMax)
	}
	r, err := newRecord(d, m.initBoot)
	if err != nil {
		return nil, err
	}
	r.Wanted = !keep
	if err := r.save(m.dir, d.Name); err != nil {
		return nil, errs.Wrap(errs.Internal, err, "service %s cannot be kept", d.Name)
	}
	u := newUnit(m, d, r)
	m.units[d.Name] = u
	m.wg.Go(func() { u.loop(m.ctx) })
	m.tellWatchers()
	return u, nil
}

// redeclare takes a new declaration unless the old one's source has more say.
func (u *unit) redeclare(d *wire.ServiceDeclaration, keep bool) (changed bool, err error) {
	u.mu.Lock()
	if u.removed {
		u.mu.Unlock()
		return false, errs.New(errs.Conflict, "service %s is just being removed", u.name)
	}
	same := proto.Equal(u.decl, d)
	weaker := d.Source > u.decl.Source
	running, stopped := u.rec.Wanted && !u.rec.Over, !u.rec.Wanted
	if !same && !weaker {
		u.decl = d
		if err = u.rec.declare(d); err == nil {
			u.saveLocked()
		}
	}
	u.mu.Unlock()
	changed = !same && !weaker
	switch {
	case err != nil:
		return false, err
	case changed && (running || !keep), stopped && !keep: // one that has ended, as its policy lets it, has done its work
		u.want(again)
	}
	return changed, nil
}

// remove stops a service and forgets it.
func (m *Manager) remove(u *unit) {
	u.mu.Lock()
	if !u.removed {
		u.removed = true
		u.round++
		_ = os.Remove(recordFile(m.dir, u.name))
		close(u.wake)
		u.wake = make(chan struct{})
	}
	u.mu.Unlock()
}

// gone takes a service off the list when nothing of it is left.
func (m *Manager) gone(u *unit) {
	m.mu.Lock()
	if m.units[u.name] == u {
		delete(m.units, u.name)
	}
	m.mu.Unlock()
	m.tellWatchers()
}

// start asks for a service to run: at once, if it waits for another try.
func (u *unit) start() (round uint64) {
	u.mu.Lock()
	runs := u.rec.Wanted && !u.rec.Over && u.rec.Retry.IsZero()
	round = u.round
	u.mu.Unlock()
	if runs {
		return round
	}
	return u.want(again)
}

// await waits until a wish came true, or ctx is over.
func (m *Manager) await(ctx context.Context, u *unit, round uint64, ok func(wire.ServiceState) bool) {
	for {
		u.mu.Lock()
		done := u.done >= round && ok(u.state)
		news := u.news
		u.mu.Unlock()
		if done || !m.has(u) {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		case <-m.ctx.Done():
			return
		}
	}
}

func (m *Manager) has(u *unit) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.units[u.name] == u
}

// tellWatchers wakes who watches all services.
func (m *Manager) tellWatchers() {
	m.watchMu.Lock()
	defer m.watchMu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Manager) change() <-chan struct{} {
	m.watchMu.Lock()
	defer m.watchMu.Unlock()
	return m.changed
}
