// Package outbound is how the host itself asks servers elsewhere for a tenant: those that the
// operator named, with secrets of the tenant that are granted for them.
//
//	w := outbound.New(outbound.Config{Held: secrets.Held}, to, outbound.User{Tenant: "acme", Secrets: []string{"tracker"}})
//	defer w.Close()
//	c := http.Client{Transport: w, CheckRedirect: w.Redirect}
//	text := w.Mask(answer)
//
// A Way leads to one origin and to no other, whatever redirects and answers say. A name that
// resolves to an address of the host or of its networks is refused; the address that was
// checked is the one that is dialled. What the operator wrote as an address is dialled as it
// is. Secrets are sent over https alone.
//
// Everything is safe for concurrent use.
package outbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/secret"
)

// Bounds of a Way.
const (
	dialWait       = 10 * time.Second
	headerWait     = time.Hour // a request may be answered late; its own time ends it before
	headerBytesMax = 64 << 10
	redirectsMax   = 3
	addressesMax   = 4
)

// Config of the ways of a server.
type Config struct {
	// Held returns the secrets of a tenant for a request; nil = there are none.
	Held func(tenant string, u secret.User, q egress.Request) []secret.Held
	// Lookup finds the addresses of a host; nil = the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Dial connects to an address; nil = the system does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Roots are the authorities of certificates; nil = the system's.
	Roots *x509.CertPool
}

// User is for whom a Way is.
type User struct {
	Tenant  string
	Agent   string   // "" = none
	Machine string   // "" = none
	Secrets []string // the names of those that may be sent
}

// Way is an http.RoundTripper to one origin.
type Way struct {
	c    Config
	to   *url.URL
	user User
	http *http.Transport

	mu    sync.Mutex
	forms []string // of the secrets that were sent
	names []string // of them
}

// New returns a way to the origin of a URL that CheckURL takes.
func New(c Config, to *url.URL, u User) *Way {
	w := &Way{c: c, to: to, user: u}
	w.http = &http.Transport{
		DialContext: w.dial, ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialWait, ResponseHeaderTimeout: headerWait,
		MaxIdleConnsPerHost: 4, MaxResponseHeaderBytes: headerBytesMax, IdleConnTimeout: time.Minute,
	}
	if c.Roots != nil {
		w.http.TLSClientConfig = &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12}
	}
	return w
}

// Close lets go of connections that are not in use.
func (w *Way) Close() { w.http.CloseIdleConnections() }

// Leads reports whether a URL is of the origin.
func (w *Way) Leads(u *url.URL) bool { return origin(u) == origin(w.to) }

func origin(u *url.URL) string {
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + portOf(u)
}

func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

// Redirect is an http.Client's CheckRedirect. It follows none to another origin: what is sent
// is for this one.
func (w *Way) Redirect(r *http.Request, via []*http.Request) error {
	if !w.Leads(r.URL) {
		return errs.New(errs.Denied, "it redirects to another host, %.100q, which is not followed", r.URL.Host)
	}
	if len(via) > redirectsMax {
		return errs.New(errs.Unavailable, "it redirects too often")
	}
	return nil
}

// RoundTrip implements http.RoundTripper. Its errors hold no secret.
func (w *Way) RoundTrip(r *http.Request) (*http.Response, error) {
	if !w.Leads(r.URL) { // an answer may name the place of the next request
		return nil, errs.New(errs.Denied, "it names another host, %.100q, which is not asked", r.URL.Host)
	}
	r = r.Clone(r.Context())
	if err := w.apply(r); err != nil {
		return nil, err
	}
	res, err := w.http.RoundTrip(r)
	if err != nil {
		return nil, hideURL(err)
	}
	return res, nil
}

// hideURL leaves out the URL of an error, which may hold a secret.
func hideURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// apply puts into a request what the tenant has granted for it.
func (w *Way) apply(r *http.Request) error {
	if len(w.user.Secrets) == 0 || w.c.Held == nil || r.URL.Scheme != "https" {
		return nil
	}
	port, err := strconv.Atoi(portOf(r.URL))
	if err != nil {
		return err
	}
	u := secret.User{Agent: w.user.Agent}
	if w.user.Machine != "" {
		u.Sandboxes = []string{w.user.Machine}
	}
	q := egress.Request{Host: egress.Name(r.URL.Hostname()), Port: port, Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery}
	for _, h := range w.c.Held(w.user.Tenant, u, q) {
		if !slices.Contains(w.user.Secrets, h.Name) || h.OAuth() || h.Signs() {
			continue
		}
		h.Apply(r)
		w.remember(h)
	}
	return nil
}

func (w *Way) remember(h secret.Held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.names, h.Name) {
		w.names = append(w.names, h.Name)
	}
	for _, f := range h.Forms() {
		if f != "" && !slices.Contains(w.forms, f) {
			w.forms = append(w.forms, f)
		}
	}
}

// Sent are the names of the secrets that were sent.
func (w *Way) Sent() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.names)
}

// Mask hides the secrets that were sent in what the server answers.
func (w *Way) Mask(text string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var pairs []string
	for _, f := range w.forms {
		pairs = append(pairs, f, "***")
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// dial connects to an address that it has checked. What the operator wrote as an address is
// what the operator meant; what a name resolves to may be anything.
func (w *Way) dial(ctx context.Context, network, to string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	if isNear(host) {
		return w.connect(ctx, network, to)
	}
	addrs, err := w.lookup(ctx, host)
	if err != nil || len(addrs) == 0 {
		return nil, errs.New(errs.Unavailable, "%.100s cannot be resolved", host)
	}
	for _, a := range addrs[:min(len(addrs), addressesMax)] {
		if what := egress.Refused(a); what != "" {
			err = errs.New(errs.Denied, "%.100s resolves to %s, which is refused", host, what)
			continue
		}
		var c net.Conn
		if c, err = w.connect(ctx, network, net.JoinHostPort(a.String(), port)); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func (w *Way) connect(ctx context.Context, network, to string) (net.Conn, error) {
	if w.c.Dial != nil {
		return w.c.Dial(ctx, network, to)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, to)
}

func (w *Way) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if w.c.Lookup != nil {
		return w.c.Lookup(ctx, host)
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// CheckURL refuses what is no URL of a server that the host may ask.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return errs.New(errs.Invalid, "it is not http://… or https://…")
	case u.User != nil:
		return errs.New(errs.Invalid, "it holds a user; name a secret")
	case u.Fragment != "":
		return errs.New(errs.Invalid, "it has a fragment")
	case u.Scheme == "http" && !isNear(u.Hostname()):
		return errs.New(errs.Invalid, "http is for an address or localhost; elsewhere it has to be https")
	}
	return nil
}

// isNear reports whether a host is written as an address, or is this one.
func isNear(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost"
}
