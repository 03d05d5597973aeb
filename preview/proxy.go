package preview

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Paths of a preview's host that are ours and never the app's.
const (
	ownPath   = "/.skete/"
	enterPath = ownPath + "enter"
	linkPath  = ownPath + "link/"
	upPath    = ownPath + "up"
	leavePath = ownPath + "leave"
)

const (
	dialTimeout = 10 * time.Second
	// keptFor is how long an unused connection into a sandbox is kept: it may
	// keep the sandbox from being idle.
	keptFor     = 5 * time.Second
	keptPerHost = 16
)

// ServeHTTP answers every request for a host that Match knows.
func (p *Previews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w = patientWriter{w, p.c.Limits.StreamIdle}
	t, err := p.parseHost(r.Host)
	if err != nil {
		p.refuse(w, r, Target{}, http.StatusNotFound, err)
		return
	}
	switch {
	case r.URL.Path == enterPath:
		p.enter(w, r, t)
		return
	case strings.HasPrefix(r.URL.Path, linkPath):
		p.follow(w, r, t)
		return
	}
	v, cookie, err := p.admit(r, t)
	if err != nil {
		p.refuse(w, r, t, statusOf(err), err)
		return
	}
	p.stay(w, r, t, v, cookie)
}

// stay serves a request of a visitor who was let in.
func (p *Previews) stay(w http.ResponseWriter, r *http.Request, t Target, v Visitor, cookie string) {
	ctx, cancel := context.WithCancel(r.Context())
	s := &stay{visitor: v, target: t, cookie: cookie, cancel: cancel}
	if err := p.active.add(s); err != nil {
		cancel()
		p.refuse(w, r, t, statusOf(err), err)
		return
	}
	defer p.active.remove(s)
	p.serve(w, r.WithContext(context.WithValue(ctx, stayKey{}, s)), s)
}

func (p *Previews) serve(w http.ResponseWriter, r *http.Request, s *stay) {
	switch {
	case r.URL.Path == upPath:
		p.up(w, r, s)
	case r.URL.Path == leavePath:
		p.goodbye(w, r, s)
	case strings.HasPrefix(r.URL.Path, ownPath):
		p.refuse(w, r, s.target, http.StatusNotFound, errs.New(errs.NotFound, "there is nothing here"))
	case s.target.Port == SupervisorPort:
		if r.Header.Get("Upgrade") == "" {
			r.Body = http.MaxBytesReader(w, r.Body, p.c.Limits.RequestBytesMax)
		}
		cleanRequest(r.Header, p.c.Secret)
		p.c.Supervisor.ServeHTTP(&ownAnswer{ResponseWriter: w, app: p.c.AppOrigin}, r)
	default:
		if r.Header.Get("Upgrade") == "" {
			r.Body = http.MaxBytesReader(w, r.Body, p.c.Limits.RequestBytesMax)
		}
		if navigates(r) {
			p.loads.begin(way{s.target, s.cookie}, p.now())
		}
		p.proxy.ServeHTTP(w, r)
	}
}

type stayKey struct{}

func stayOf(ctx context.Context) *stay { return ctx.Value(stayKey{}).(*stay) }

// VisitorOf tells a handler of Config.Supervisor who asks, and about which sandbox.
func VisitorOf(ctx context.Context) (Visitor, Target) {
	s := stayOf(ctx)
	return s.visitor, s.target
}

// admit lets a request in, or says why not.
func (p *Previews) admit(r *http.Request, t Target) (Visitor, string, error) {
	cookies := visitCookies(r.Header)
	if len(cookies) == 0 {
		return Visitor{}, "", errNobody
	}
	var v Visitor
	var cookie string
	var err error
	for _, cookie = range cookies {
		if v, err = p.visitor(r.Context(), t, cookie); err == nil {
			break
		}
	}
	if errs.Is(err, errs.Denied) {
		return Visitor{}, "", errNobody
	}
	if err != nil {
		return Visitor{}, "", err
	}
	if !ownOrigin(r, p.scheme+"://"+r.Host) {
		return Visitor{}, "", errs.New(errs.Denied, "a page of another origin may not do this")
	}
	return v, cookie, p.portOK(r.Context(), v, t)
}

var errNobody = errs.New(errs.Denied, "this preview is for people who were let in").WithHint("open it from the app, or by a public link")

// portOK holds a port against what may be shown.
func (p *Previews) portOK(ctx context.Context, v Visitor, t Target) error {
	switch {
	case slices.Contains(p.c.PlatformPorts, t.Port):
		return errs.New(errs.Denied, "port %d is the platform's and never shown", t.Port)
	case t.Port == SupervisorPort && p.c.Supervisor == nil:
		return errs.New(errs.NotFound, "nothing is served on port %d", t.Port)
	case t.Port == SupervisorPort && v.Link != "":
		return errs.New(errs.Denied, "port %d is never public", t.Port)
	case t.Port == SupervisorPort || p.c.Ports == nil:
		return nil
	}
	return p.c.Ports(ctx, v.Tenant, t.Sandbox, t.Port)
}

func statusOf(err error) int {
	if errors.Is(err, errNobody) {
		return http.StatusUnauthorized
	}
	return errs.Of(err).HTTPStatus()
}

// enter swaps a code for a visit.
func (p *Previews) enter(w http.ResponseWriter, r *http.Request, t Target) {
	q := r.URL.Query()
	to, err := localPath(q.Get("to"))
	if err == nil && r.Method != http.MethodGet {
		err = errs.New(errs.Invalid, "this is only read")
	}
	var secret string
	if err == nil {
		secret, err = p.redeem(r.Context(), t, q.Get("code"))
	}
	if err != nil {
		p.refuse(w, r, t, statusOf(err), err)
		return
	}
	p.welcome(w, r, secret, to, int(p.c.Limits.VisitFor/time.Second))
}

// follow lets in a visitor who has a public link.
func (p *Previews) follow(w http.ResponseWriter, r *http.Request, t Target) {
	to, err := localPath(r.URL.Query().Get("to"))
	token := strings.TrimPrefix(r.URL.Path, linkPath)
	var l Link
	if err == nil {
		l, err = p.checkLink(r.Context(), t, token)
	}
	if err == nil {
		err = p.portOK(r.Context(), Visitor{Tenant: l.Tenant, Link: l.ID}, t)
	}
	if err != nil {
		p.refuse(w, r, t, statusOf(err), err)
		return
	}
	seconds := int(l.ExpiresAt.Sub(p.now()) / time.Second)
	if p.scheme == "http" && !browser(r) && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		p.direct(w, r, t, l, token, to, seconds)
		return
	}
	p.welcome(w, r, token, to, seconds)
}

// browser: all current ones say from where a request comes, also over plain
// http to a name beneath localhost.
func browser(r *http.Request) bool { return r.Header.Get("Sec-Fetch-Mode") != "" }

// direct answers a program that followed a link with what the link leads to:
// over plain http it keeps no Secure cookie, and a redirect would lead it to a
// refusal. One that keeps cookies gets one that it does keep.
func (p *Previews) direct(w http.ResponseWriter, r *http.Request, t Target, l Link, token, to string, seconds int) {
	u, err := url.Parse(to)
	if err != nil {
		p.refuse(w, r, t, http.StatusBadRequest, errs.Wrap(errs.Invalid, err, "this is no path"))
		return
	}
	for _, name := range []string{cookieName, plainCookieName} { // the first for browsers that say nothing
		c := http.Cookie{Name: name, Value: token, Path: "/", Secure: name == cookieName, HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: max(seconds, 1)}
		w.Header().Add("Set-Cookie", c.String())
	}
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery = u.Path, u.RawPath, u.RawQuery
	r.RequestURI = u.RequestURI()
	p.stay(w, r, t, Visitor{Tenant: l.Tenant, Link: l.ID}, token)
}

func (p *Previews) welcome(w http.ResponseWriter, r *http.Request, value, to string, seconds int) {
	c := &http.Cookie{Name: cookieName, Value: value, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: max(seconds, 1)}
	if dest := r.Header.Get("Sec-Fetch-Dest"); dest == "iframe" || dest == "frame" {
		c.Name, c.SameSite, c.Partitioned = frameCookieName, http.SameSiteNoneMode, true
	}
	h := w.Header()
	h.Add("Set-Cookie", c.String())
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", framePolicy(p.c.AppOrigin))
	h.Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// goodbye ends the visit.
func (p *Previews) goodbye(w http.ResponseWriter, r *http.Request, s *stay) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		p.refuse(w, r, s.target, http.StatusMethodNotAllowed, errs.New(errs.Invalid, "leaving takes POST"))
		return
	}
	if err := p.leave(r.Context(), s.cookie); err != nil {
		p.refuse(w, r, s.target, statusOf(err), err)
		return
	}
	for _, name := range []string{cookieName, frameCookieName} {
		w.Header().Add("Set-Cookie", (&http.Cookie{Name: name, Path: "/", Secure: true, HttpOnly: true, MaxAge: -1}).String())
	}
	w.WriteHeader(http.StatusNoContent)
	p.active.end(func(other *stay) bool { return other != s && other.cookie == s.cookie })
}

// up tells a page that waits whether the app listens.
func (p *Previews) up(w http.ResponseWriter, r *http.Request, s *stay) {
	w.Header().Set("Cache-Control", "no-store")
	if s.target.Port != SupervisorPort && !p.listens(r.Context(), s) {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (p *Previews) listens(ctx context.Context, s *stay) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := p.c.Dial(ctx, s.visitor.Tenant, s.target.Sandbox, s.target.Port)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// newTransport speaks with apps. Its "host names" are label.tenant, so that a
// kept connection can never serve another preview or another tenant.
func (p *Previews) newTransport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			label, tenant, _ := strings.Cut(host, ".")
			t, err := ParseLabel(label)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			conn, err := p.c.Dial(ctx, tenant, t.Sandbox, t.Port)
			if err != nil {
				return nil, err
			}
			return patientConn{conn, p.c.Limits.StreamIdle}, nil
		},
		Proxy:                  nil,
		DisableCompression:     true, // what the app sends is what the browser gets
		MaxIdleConnsPerHost:    keptPerHost,
		IdleConnTimeout:        keptFor,
		ResponseHeaderTimeout:  p.c.Limits.HeaderTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: p.c.Limits.HeaderBytesMax,
	}
}

func (p *Previews) newProxy() http.Handler {
	return &httputil.ReverseProxy{
		Transport: p.transport,
		Rewrite: func(pr *httputil.ProxyRequest) {
			s := stayOf(pr.In.Context())
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", s.target.Label()+"."+s.visitor.Tenant
			pr.Out.Host = pr.In.Host // dev servers tell pages their address by it
			cleanRequest(pr.Out.Header, p.c.Secret)
			p.sign(pr.Out.Header, s.visitor, s.target)
		},
		ModifyResponse: func(res *http.Response) error {
			cleanAnswer(res.Header, p.c.AppOrigin)
			if !p.apart { // it would log the browser out of the app: cookies are cleared for all of a registrable domain
				res.Header.Del("Clear-Site-Data")
			}
			inner, ok := res.Body.(io.ReadWriteCloser)
			if res.StatusCode == http.StatusSwitchingProtocols && ok {
				s := stayOf(res.Request.Context())
				start := func() {}
				if p.late(s, res.Request.URL.Path) {
					start = s.cancel
				}
				res.Body = newSocket(inner, p.c.Limits.ReloadWithin, func(ctx context.Context) bool { return p.listens(ctx, s) }, start)
			}
			return nil
		},
		ErrorHandler: p.down,
		ErrorLog:     slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
}

// down answers for an app that did not.
func (p *Previews) down(w http.ResponseWriter, r *http.Request, err error) {
	s := stayOf(r.Context())
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		p.refuse(w, r, s.target, http.StatusRequestEntityTooLarge, errs.New(errs.Invalid, "the body is larger than %d bytes", large.Limit))
		return
	}
	if r.Context().Err() != nil {
		return // the visitor left, or was shown out
	}
	p.log.Debug("a preview's app does not answer", "sandbox", s.target.Sandbox, "port", s.target.Port, "error", err)
	p.wait(w, r, s, err)
}

// ownAnswer puts the policy about frames on what Config.Supervisor answers.
type ownAnswer struct {
	http.ResponseWriter
	app  string
	done bool
}

func (w *ownAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *ownAnswer) WriteHeader(status int) {
	if !w.done {
		w.done = true
		cleanAnswer(w.Header(), w.app)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *ownAnswer) Write(b []byte) (int, error) {
	if !w.done {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// SignInURL is where the app lets a visitor into a target.
func (p *Previews) SignInURL(t Target, path string) string {
	return p.c.AppOrigin + "/preview/" + t.Label() + "?" + url.Values{"to": {path}}.Encode()
}
