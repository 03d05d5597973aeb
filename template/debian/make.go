package debian

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/apt"
)

// Store is what a Maker needs of *template.Store.
type Store interface {
	Import(ctx context.Context, name string, tar io.Reader) (template.Info, error)
	Get(ctx context.Context, name string) (template.Info, error)
	Rootfs(ctx context.Context, name string) (template.Rootfs, error)
}

// Config of a Maker.
type Config struct {
	Store Store
	// Dir is the Maker's alone; templates are put together there.
	Dir string
	// Mirror is the archive to use ("http://mirror.example/debian"), Security
	// that of its security updates; "" = those that the host uses, else the
	// distribution's.
	Mirror, Security string
	// Suite is the release ("bookworm"); "" = the host's, else Debian 12.
	Suite string
	// Ready are the templates that can be made; nil = All.
	Ready []Ready
	Log   *slog.Logger // nil = none
}

// defaultSuite is made where neither the configuration nor the host names one.
const defaultSuite = "bookworm"

// makeTimeout ends a make that does not come to its end.
const makeTimeout = 30 * time.Minute

// linesMax is how many lines of a make under way a late listener is told.
const linesMax = 50

// Maker makes ready templates.
type Maker struct {
	c      Config
	ctx    context.Context // ends when the Maker closes
	cancel context.CancelFunc
	turn   chan struct{} // one is made at a time: each takes a core and a disk
	wg     sync.WaitGroup

	mu      sync.Mutex // guards flights and what is in them
	closing bool
	flights map[string]*flight
}

// flight is a make under way.
type flight struct {
	waiting   int
	cancel    context.CancelFunc
	lines     []string
	listeners map[int]func(string)
	next      int
	done      chan struct{} // closed when info and err are there
	info      template.Info
	err       error
}

// New returns a Maker and removes what a killed one left in its directory.
func New(c Config) (*Maker, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Ready == nil {
		c.Ready = all()
	}
	m := &Maker{c: c, flights: map[string]*flight{}, turn: make(chan struct{}, 1)}
	for _, s := range m.Sources(m.Suite()) {
		if !s.OK() {
			return nil, errs.New(errs.Invalid, "templates: %q %q is no mirror and suite of packages", s.URI, s.Suite).
				WithHint("a mirror is http://HOST/PATH or https://HOST/PATH")
		}
	}
	if err := os.MkdirAll(c.Dir, 0o711); err != nil {
		return nil, errs.Wrap(errs.Internal, err, "cannot make the directory of templates to be made")
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "cannot look into the directory of templates to be made")
	}
	for _, e := range entries {
		// Mounts below it ended with the mount namespace of who made them.
		if err := os.RemoveAll(filepath.Join(c.Dir, e.Name())); err != nil {
			c.Log.Warn("cannot remove what an interrupted make left", "error", err)
		}
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// Close ends what is being made.
func (m *Maker) Close() error {
	m.mu.Lock()
	m.closing = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()
	return nil
}

// Sources are the archives that ready templates of a suite are made from: the
// configured mirror, else those of this host; nil = none is known.
func (m *Maker) Sources(suite string) apt.Sources {
	if m.c.Mirror != "" {
		list := apt.Sources{
			{URI: m.c.Mirror, Suite: suite, Components: []string{"main"}},
			{URI: m.c.Mirror, Suite: suite + "-updates", Components: []string{"main"}},
		}
		if m.c.Security != "" {
			list = append(list, apt.Source{URI: m.c.Security, Suite: suite + "-security", Components: []string{"main"}})
		}
		return list
	}
	return apt.HostSources("/").For(suite)
}

// Own are the archives of a tree's distribution, in place of those that the
// tree names; nil = the tree must know: it is of another one than this host.
func (m *Maker) Own(id, suite string) apt.Sources {
	host, _ := apt.Release("/")
	if id == host || id == "debian" && host != "ubuntu" {
		return m.Sources(suite)
	}
	return nil
}

// Suite is the release that ready templates are made of.
func (m *Maker) Suite() string {
	if m.c.Suite != "" {
		return m.c.Suite
	}
	if id, suite := apt.Release("/"); suite != "" && (id == "debian" || id == "ubuntu") {
		return suite
	}
	return defaultSuite
}

// Prepare makes a ready template unless it is there, and tells say what
// happens, line by line; say may be nil. Calls of say end before Prepare returns.
//
// NotFound: there is no ready template of this name. Unsupported, Unavailable,
// Limit: mmdebstrap is missing, the mirror does not answer, the disk is full;
// the hint says what to do.
func (m *Maker) Prepare(ctx context.Context, name string, say func(line string)) (template.Info, error) {
	r, ok := m.find(name)
	if !ok {
		return template.Info{}, errs.New(errs.NotFound, "there is no ready template %.40q", name).
			WithHint("ready templates are %s", strings.Join(m.names(), ", "))
	}
	info, err := m.c.Store.Get(ctx, name)
	if !errs.Is(err, errs.NotFound) {
		return info, err
	}
	f, leave, err := m.join(r, say)
	if err != nil {
		return template.Info{}, err
	}
	defer leave()
	select {
	case <-f.done:
		return f.info, f.err
	case <-ctx.Done():
		return template.Info{}, ctx.Err()
	}
}

// join takes part in the make under way, or starts one. The last to leave ends it.
func (m *Maker) join(r Ready, say func(string)) (*flight, func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.flights[r.Name]
	if f == nil {
		if m.closing {
			return nil, nil, errs.New(errs.Unavailable, "the server stops")
		}
		f = m.start(r)
	}
	id := f.next
	f.next++
	f.waiting++
	if say != nil {
		for _, line := range f.lines {
			say(line)
		}
		f.listeners[id] = say
	}
	return f, func() { m.leave(r.Name, f, id) }, nil
}

func (m *Maker) leave(name string, f *flight, id int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(f.listeners, id)
	if f.waiting--; f.waiting > 0 {
		return
	}
	f.cancel()
	if m.flights[name] == f { // who comes now starts anew
		delete(m.flights, name)
	}
}

// start begins a make. Preconditions: m.mu is held.
func (m *Maker) start(r Ready) *flight {
	ctx, cancel := context.WithTimeout(m.ctx, makeTimeout)
	f := &flight{cancel: cancel, listeners: map[int]func(string){}, done: make(chan struct{})}
	m.flights[r.Name] = f
	m.wg.Go(func() {
		defer cancel()
		f.info, f.err = m.inTurn(ctx, r, func(line string) { m.tell(f, line) })
		m.mu.Lock()
		if m.flights[r.Name] == f {
			delete(m.flights, r.Name)
		}
		m.mu.Unlock()
		close(f.done)
	})
	return f
}

// tell passes a line on. The lock is held over the listeners, which only put
// it somewhere, so that none is called after it has left.
func (m *Maker) tell(f *flight, line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(f.lines) < linesMax {
		f.lines = append(f.lines, line)
	}
	for _, say := range f.listeners {
		say(line)
	}
}

func (m *Maker) inTurn(ctx context.Context, r Ready, say func(string)) (template.Info, error) {
	select {
	case m.turn <- struct{}{}:
	default:
		say("waiting for another template that is being made")
		select {
		case m.turn <- struct{}{}:
		case <-ctx.Done():
			return template.Info{}, m.why(ctx, ctx.Err())
		}
	}
	defer func() { <-m.turn }()
	if info, err := m.c.Store.Get(ctx, r.Name); err == nil {
		return info, nil // a make that all callers had left came to its end
	}
	start := time.Now()
	info, err := m.build(ctx, r, say)
	if err != nil {
		m.c.Log.Warn("a ready template could not be made", "template", r.Name, "error", err)
		return template.Info{}, m.why(ctx, err)
	}
	m.c.Log.Info("a ready template was made", "template", r.Name, "bytes", info.Bytes, "took", time.Since(start))
	return info, nil
}

func (m *Maker) why(ctx context.Context, err error) error {
	switch {
	case m.ctx.Err() != nil:
		return errs.Wrap(errs.Unavailable, err, "the server stops")
	case context.Cause(ctx) == context.DeadlineExceeded: //nolint:errorlint // a cause of our own
		return errs.Wrap(errs.Unavailable, err, "the template was not made in %s", makeTimeout)
	}
	return err
}

// Rootfs is the store's, for a ready template that is not there yet after
// Prepare.
func (m *Maker) Rootfs(ctx context.Context, name string) (template.Rootfs, error) {
	root, err := m.c.Store.Rootfs(ctx, name)
	if !errs.Is(err, errs.NotFound) {
		return root, err
	}
	if _, ok := m.find(name); !ok {
		return root, err
	}
	if _, err := m.Prepare(ctx, name, nil); err != nil {
		return template.Rootfs{}, err
	}
	return m.c.Store.Rootfs(ctx, name)
}

// Ready lists the templates that can be made, whether they are there or not.
func (m *Maker) Ready() []Ready { return slices.Clone(m.c.Ready) }

func (m *Maker) find(name string) (Ready, bool) {
	for _, r := range m.c.Ready {
		if r.Name == name {
			return r, true
		}
	}
	return Ready{}, false
}

func (m *Maker) names() (names []string) {
	for _, r := range m.c.Ready {
		names = append(names, r.Name)
	}
	return names
}
