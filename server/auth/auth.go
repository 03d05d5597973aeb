// Package auth decides who may come in, as whom and with which rights.
//
//	g := gate.New(gate.Config{Keys: ring})
//	srv.ConnContext = g.ConnContext
//	err := g.Place(r)               // the request is meant for us
//	id, err := g.Admit(r, key.Read) // the caller may do this
//
// Through the unix socket the kernel vouches for the caller: root and the
// server's own user are admin of the default tenant, every other user is
// refused. Over TCP an API key says who it is, or the cookie of a browser that
// logged in with one; a cookie counts for requests of our own pages alone
// (browser.go). Browsers are kept out of what is not theirs: a request with a
// foreign Origin changes nothing, and on a loopback address the Host header must
// be a loopback name, so that a web page cannot reach the server through a DNS
// name of its own (rebinding).
//
// An Authenticator is safe for concurrent use.
package auth

import (
	"cmp"
	"context"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
)

// Identity is an admitted caller.
type Identity struct {
	Tenant string
	// Owner is whom streams and logs are counted for: the key's id, or "local".
	Owner  string
	Scopes key.Scopes
	// Local: came through the unix socket.
	Local bool
	// Login is the browser's login that stands behind the request; "" = none.
	Login string
	// User names the person or program to sandboxed apps, and says nothing else.
	User string
	// Name is that of the key; "" = it has none.
	Name string
}

// Who names the caller for people: the key by its name, a login by its person.
func (i Identity) Who() string { return cmp.Or(i.Name, i.Owner) }

// Config of an Authenticator.
type Config struct {
	Keys *key.Ring
	// Hosts are names, beside loopback ones, that the Host header may have.
	Hosts []string
	// Logins knows browsers that logged in; nil = none can.
	Logins Logins
	// Origins are scheme://host[:port] under which browsers know the server,
	// beside http://<what they ask for> on loopback.
	Origins []string
	// WrongKeysMax is how many wrong keys an address may send at once before it
	// is told to wait; 0 = 20.
	WrongKeysMax int
}

// Authenticator checks requests.
type Authenticator struct {
	keys     *key.Ring
	logins   Logins
	hosts    []string
	origins  []string
	failures *failures
}

// New returns an Authenticator.
func New(c Config) *Authenticator {
	hosts := make([]string, len(c.Hosts))
	for i, h := range c.Hosts {
		hosts[i] = strings.ToLower(h)
	}
	return &Authenticator{keys: c.Keys, logins: c.Logins, hosts: hosts, origins: c.Origins, failures: newFailures(c.WrongKeysMax)}
}

type peerKey struct{}

// peer is what is known of a connection.
type peer struct {
	local bool // a unix socket
	uid   int  // of a unix socket's peer; -1 = unknown
}

// ConnContext notes who is at the other end of a unix socket; it is for http.Server.
func (g *Authenticator) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peer{local: true, uid: peerUID(uc)})
}

func peerUID(conn *net.UnixConn) int {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1
	}
	uid := -1
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(cred.Uid)
		}
	})
	return uid
}

func peerOf(r *http.Request) peer {
	p, ok := r.Context().Value(peerKey{}).(peer)
	if !ok {
		return peer{uid: -1}
	}
	return p
}

// Local reports whether r came through the unix socket.
func Local(r *http.Request) bool { return peerOf(r).local }

// Place checks that the request is meant for this server and not smuggled
// through a user's browser. It needs no identity.
func (g *Authenticator) Place(r *http.Request) error {
	if !g.hostOK(r) {
		return problem.At(http.StatusMisdirectedRequest, errs.New(errs.Denied, "this server does not go by the name %.80q", r.Host).
			WithHint("call it localhost or 127.0.0.1, or add the name to `hosts` in its configuration"))
	}
	if !originOK(r) {
		return errs.New(errs.Denied, "a page of another origin may not do this")
	}
	return nil
}

// hostOK: on a loopback address only loopback and configured names are ours.
// On another address the key is what protects: a page that rebinds a name to
// it has none.
func (g *Authenticator) hostOK(r *http.Request) bool {
	if peerOf(r).local {
		return true
	}
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if ok && !addr.IP.IsLoopback() {
		return true
	}
	host := hostname(r.Host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(g.hosts, host) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// hostname returns the lower-case name of a Host header, without port and brackets.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

// originOK: a browser that acts for another origin says so. Reading is left to
// the browser's own rules; WebSockets are not under them and count as writing.
func originOK(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	reading := (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == ""
	if origin == "" || reading {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// Admit says who the caller is if they have the scope. Errors: 401 without a
// valid key, 403 without the right, 429 after too many wrong keys.
func (g *Authenticator) Admit(r *http.Request, want key.Scope) (Identity, error) {
	id, err := g.identify(r)
	if err != nil {
		return Identity{}, err
	}
	if !id.Scopes.Allow(want) {
		return id, errs.New(errs.Denied, "this key may not do that").WithHint("it needs the scope %s", string(want))
	}
	return id, nil
}

func (g *Authenticator) identify(r *http.Request) (Identity, error) {
	p := peerOf(r)
	if p.local && p.uid != 0 && p.uid != os.Geteuid() {
		return Identity{}, errs.New(errs.Denied, "this socket is for the server's own user").
			WithHint("call the server over HTTP with an API key")
	}
	secret, err := secretOf(r)
	if err != nil {
		return Identity{}, unauthorised(err)
	}
	if secret == "" {
		if p.local {
			return Identity{Tenant: key.DefaultTenant, Owner: "local", Scopes: key.Scopes{key.Admin}, Local: true, User: UserOf(key.DefaultTenant, "local")}, nil
		}
		if id, ok, err := g.browser(r); ok || err != nil {
			return id, err
		}
		return Identity{}, unauthorised(errs.New(errs.Denied, "an API key is needed").
			WithHint("give one in SKETE_KEY; `skete key create` on the server's machine makes one"))
	}
	return g.Present(r, secret)
}

// Present says who shows a key. Errors: 401 for a wrong one, 429 after too many.
func (g *Authenticator) Present(r *http.Request, secret key.Secret) (Identity, error) {
	rec, err := g.keys.Check(r.Context(), secret)
	if err == nil {
		return Identity{Tenant: rec.Tenant, Owner: rec.ID, Scopes: rec.Scopes, Local: Local(r), User: UserOf(rec.Tenant, rec.ID), Name: rec.Name}, nil
	}
	if !errs.Is(err, errs.Denied) {
		return Identity{}, err
	}
	if wait := g.failures.note(remote(r)); wait > 0 {
		p := *problem.Of(errs.New(errs.Limit, "too many wrong keys from your address"))
		p.RetryAfter = wait
		return Identity{}, &p
	}
	return Identity{}, unauthorised(err)
}

func unauthorised(err error) error { return problem.At(http.StatusUnauthorized, err) }

// secretOf finds the key of a request. Two that differ are refused: which one
// would count is nothing to guess about.
func secretOf(r *http.Request) (key.Secret, error) {
	x := r.Header.Get("X-Api-Key")
	auth := r.Header.Get("Authorization")
	if auth == "" {
		return key.Secret(x), nil
	}
	scheme, bearer, _ := strings.Cut(auth, " ")
	bearer = strings.TrimSpace(bearer)
	if !strings.EqualFold(scheme, "Bearer") || bearer == "" || x != "" && x != bearer {
		return "", errs.New(errs.Denied, "the Authorization header is not `Bearer <key>`")
	}
	return key.Secret(bearer), nil
}

func remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "unix"
	}
	return host
}

// Bounds of wrong keys: an address may have a burst at once and then
// failuresPerSecond. Right keys always pass: a neighbour on the same address
// must not be able to lock anybody out.
const (
	failuresBurst     = 20 // unless configured
	failuresPerSecond = 1
	addressesMax      = 4096
)

// failures counts wrong keys by address, as leaking buckets.
type failures struct {
	now   func() time.Time
	burst float64

	mu      sync.Mutex
	buckets map[string]bucket
}

type bucket struct {
	level float64
	at    time.Time
}

func newFailures(burst int) *failures {
	if burst == 0 {
		burst = failuresBurst
	}
	return &failures{now: time.Now, burst: float64(burst), buckets: map[string]bucket{}}
}

// note counts a failure; the answer is how long to wait, 0 = not yet too many.
func (f *failures) note(addr string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if len(f.buckets) >= addressesMax {
		f.forget(now)
	}
	b, ok := f.buckets[addr]
	if ok {
		b.level = math.Max(0, b.level-now.Sub(b.at).Seconds()*failuresPerSecond)
	}
	b.level, b.at = math.Min(b.level+1, f.burst+1), now
	f.buckets[addr] = b
	if b.level <= f.burst {
		return 0
	}
	return time.Second / failuresPerSecond
}

// forget drops buckets that have run dry, or all if that is not enough.
// Preconditions: mu is held.
func (f *failures) forget(now time.Time) {
	for addr, b := range f.buckets {
		if b.level <= now.Sub(b.at).Seconds()*failuresPerSecond {
			delete(f.buckets, addr)
		}
	}
	if len(f.buckets) >= addressesMax {
		clear(f.buckets)
	}
}

type identityKey struct{}

// With returns a context that carries the identity.
func With(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// From returns the identity of an admitted request. Without one it panics: a
// route that forgot its gate must not run.
func From(ctx context.Context) Identity { return ctx.Value(identityKey{}).(Identity) }
