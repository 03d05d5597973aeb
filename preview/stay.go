package preview

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
)

// stay is one request under way, for as long as it lasts.
type stay struct {
	visitor Visitor
	target  Target
	cookie  string
	cancel  context.CancelFunc
}

// active holds all requests under way, bounded.
type active struct {
	max, tenantMax, boxMax int

	mu     sync.Mutex
	all    map[*stay]bool
	perBox map[string]int
	tenant map[string]int
	closed bool
}

func (a *active) add(s *stay) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return errs.New(errs.Unavailable, "the server stops")
	case len(a.all) >= a.max:
		return errs.New(errs.Limit, "there are %d requests to previews under way", len(a.all)).WithHint("try again later")
	case a.tenant[s.visitor.Tenant] >= a.tenantMax:
		return errs.New(errs.Limit, "there are %d requests to this tenant's previews under way", a.tenantMax).WithHint("close some of their pages")
	case a.perBox[s.target.Sandbox] >= a.boxMax:
		return errs.New(errs.Limit, "this preview has %d requests under way", a.boxMax).WithHint("close some of its pages")
	}
	a.all[s] = true
	a.perBox[s.target.Sandbox]++
	a.tenant[s.visitor.Tenant]++
	return nil
}

func (a *active) remove(s *stay) {
	s.cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, s)
	if a.perBox[s.target.Sandbox]--; a.perBox[s.target.Sandbox] <= 0 {
		delete(a.perBox, s.target.Sandbox)
	}
	if a.tenant[s.visitor.Tenant]--; a.tenant[s.visitor.Tenant] <= 0 {
		delete(a.tenant, s.visitor.Tenant)
	}
}

// end cancels all that fit.
func (a *active) end(fits func(*stay) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.all {
		if fits(s) {
			s.cancel()
		}
	}
}

func (a *active) endAll() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.end(func(*stay) bool { return true })
}

// ways lists the different ways in of what is under way.
func (a *active) ways() map[way]Visitor {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := map[way]Visitor{}
	for s := range a.all {
		m[way{s.target, s.cookie}] = s.visitor
	}
	return m
}

type way struct {
	target Target
	cookie string
}

// Streams says how many requests are under way.
func (p *Previews) Streams() int {
	p.active.mu.Lock()
	defer p.active.mu.Unlock()
	return len(p.active.all)
}

// recheck ends what is under way by a right that is gone: a link, a key or a
// login that another server has taken back, a visit that is too old, a port
// that may not be shown any more. A store that does not answer ends nothing.
func (p *Previews) recheck(ctx context.Context) {
	tick := time.NewTicker(p.c.Limits.RevocationWithin)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.loads.sweep(p.now())
		for w := range p.active.ways() {
			v, err := p.visitor(ctx, w.target, w.cookie)
			if err == nil {
				err = p.portOK(ctx, v, w.target)
			}
			if c := errs.Of(err); err != nil && (c == errs.Denied || c == errs.NotFound) {
				p.active.end(func(s *stay) bool { return s.target == w.target && s.cookie == w.cookie })
			}
		}
	}
}

// writeTimeout is how long a client may take nothing.
const writeTimeout = time.Minute

// patientConn ends a connection on which nothing moves. It has no half-close:
// when the app's side of a socket ends, the browser's ends too.
type patientConn struct {
	net.Conn
	idle time.Duration
}

func (c patientConn) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.idle))
	return c.Conn.Read(b)
}

func (c patientConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := c.Conn.Write(b)
	_ = c.SetReadDeadline(time.Now().Add(c.idle))
	return n, err
}

// patientWriter is the way to the browser: bounded in its silence, and without
// the 1xx answers before the answer, whose headers cleanAnswer has not seen.
type patientWriter struct {
	http.ResponseWriter
	idle time.Duration
}

func (w patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w patientWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.extend()
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w patientWriter) Write(b []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(b)
}

func (w patientWriter) extend() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTimeout))
}
