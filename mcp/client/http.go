package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/tool"
)

// Bounds of the way to a URL.
const (
	dialWait     = 10 * time.Second
	headerWait   = time.Hour // a call may be answered late; its own time ends it before
	redirectsMax = 3
	addressesMax = 4
	reconnects   = 3
	streamType   = "text/event-stream"
)

// way is how requests come to a server elsewhere: to its host alone, with what it is to be
// sent.
type way struct {
	l      *live
	p      tool.Place
	to     *url.URL
	http   *http.Transport
	ctx    context.Context // of streams that outlive the call that opened them
	cancel context.CancelFunc

	mu     sync.Mutex
	status int      // of the last refusal
	err    error    // of the last request that did not come through, for people
	forms  []string // of the secrets that were sent
}

func newWay(l *live, p tool.Place) *way {
	to, err := url.Parse(l.conf.URL)
	if err != nil {
		to = &url.URL{} // Check has refused it
	}
	w := &way{l: l, p: p, to: to}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.http = &http.Transport{DialContext: w.dial, ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialWait, ResponseHeaderTimeout: headerWait, MaxIdleConnsPerHost: 4, MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: time.Minute}
	if l.c.Roots != nil {
		w.http.TLSClientConfig = &tls.Config{RootCAs: l.c.Roots, MinVersion: tls.VersionTLS12}
	}
	return w
}

// transport is the SDK's, by the protocol that the operator named.
func (w *way) transport() sdk.Transport {
	c := &http.Client{Transport: w, CheckRedirect: w.redirect}
	if w.l.conf.Transport == overSSE {
		return lasting{&sdk.SSEClientTransport{Endpoint: w.to.String(), HTTPClient: c, MaxEventSize: frameBytesMax}, w.ctx}
	}
	return &sdk.StreamableClientTransport{Endpoint: w.to.String(), HTTPClient: c, MaxEventSize: frameBytesMax, MaxRetries: reconnects}
}

// lasting lets a stream outlive the context in which it was opened.
type lasting struct {
	sdk.Transport
	ctx context.Context
}

// Connect implements the SDK's Transport.
func (l lasting) Connect(ctx context.Context) (sdk.Connection, error) {
	open, cancel := context.WithCancel(l.ctx)
	stop := context.AfterFunc(ctx, cancel)
	c, err := l.Transport.Connect(open) //nolint:contextcheck // it ends with the way
	if !stop() && err == nil {
		_ = c.Close()
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return ended{c, cancel}, nil
}

// ended is a connection whose stream ends with it.
type ended struct {
	sdk.Connection
	cancel context.CancelFunc
}

// Close implements the SDK's Connection.
func (e ended) Close() error {
	defer e.cancel()
	return e.Connection.Close()
}

func (w *way) close() {
	w.cancel()
	w.http.CloseIdleConnections()
}

func origin(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// redirect follows none to another host: what is sent is for this one.
func (w *way) redirect(r *http.Request, via []*http.Request) error {
	if origin(r.URL) != origin(w.to) {
		return w.failed(errs.New(errs.Denied, "it redirects to another host, %.100q, which is not followed", r.URL.Host))
	}
	if len(via) > redirectsMax {
		return w.failed(errs.New(errs.Unavailable, "it redirects too often"))
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	if origin(r.URL) != origin(w.to) { // an SSE server names the place of its messages
		return nil, w.failed(errs.New(errs.Denied, "it names another host, %.100q, which is not asked", r.URL.Host))
	}
	r = r.Clone(r.Context())
	for k, v := range w.l.conf.Headers {
		r.Header.Set(k, v)
	}
	if err := w.secrets(r); err != nil {
		return nil, err
	}
	res, err := w.http.RoundTrip(r)
	if err != nil {
		return nil, w.failed(hideURL(err))
	}
	w.note(res.StatusCode)
	kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	if res.StatusCode == http.StatusOK && r.Method == http.MethodPost && kind != "" && kind != streamType && kind != "application/json" {
		_ = w.failed(errs.New(errs.Unavailable, "it answers %.100q, which is no message of the protocol", kind))
	}
	if kind != streamType { // of a stream each event is bounded
		res.Body = &bounded{res.Body, frameBytesMax, w}
	}
	return res, nil
}

// failed notes why a request did not come through: the SDK keeps no errors of others.
func (w *way) failed(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	return err
}

// hideURL leaves out the URL of an error, which may hold a secret.
func hideURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// secrets puts into a request what the tenant has granted for it.
func (w *way) secrets(r *http.Request) error {
	if len(w.l.conf.Secrets) == 0 || w.l.c.Held == nil || r.URL.Scheme != "https" {
		return nil
	}
	port, err := strconv.Atoi(origin(r.URL)[strings.LastIndexByte(origin(r.URL), ':')+1:])
	if err != nil {
		return err
	}
	u := secret.User{Agent: w.p.Agent}
	if w.p.Machine != "" {
		u.Sandboxes = []string{w.p.Machine}
	}
	q := egress.Request{Host: egress.Name(r.URL.Hostname()), Port: port, Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery}
	for _, h := range w.l.c.Held(w.p.Tenant, u, q) {
		if !slices.Contains(w.l.conf.Secrets, h.Name) || h.OAuth() || h.Signs() {
			continue
		}
		h.Apply(r)
		w.remember(h.Forms())
	}
	return nil
}

func (w *way) remember(forms []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range forms {
		if f != "" && !slices.Contains(w.forms, f) {
			w.forms = append(w.forms, f)
		}
	}
}

// note keeps what a server says of our right to ask.
func (w *way) note(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		w.status = status
	case status < http.StatusBadRequest:
		w.status, w.err = 0, nil
	}
}

// fault says why the server has not let us in or could not be asked; nil = it has and could.
func (w *way) fault() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 && w.err != nil {
		return errs.Wrap(errs.Unavailable, w.err, "%s", words(w.err))
	}
	if w.status == 0 {
		return nil
	}
	hint := fmt.Sprintf("name a secret of the tenant that is granted for this host in mcp.servers.%s.secrets", w.l.name)
	if len(w.forms) > 0 {
		hint = "the secret that it was sent is not the right one"
	}
	return errs.New(errs.Denied, "it answers %d %s: %s", w.status, http.StatusText(w.status), hint)
}

// mask hides the secrets that a server was sent in what it answers.
func (s *session) mask() func(string) string {
	if s.way == nil {
		return func(t string) string { return t }
	}
	s.way.mu.Lock()
	defer s.way.mu.Unlock()
	var pairs []string
	for _, f := range s.way.forms {
		pairs = append(pairs, f, "***")
	}
	return strings.NewReplacer(pairs...).Replace
}

// dial connects to an address that it has checked. What the operator wrote as an address is
// what the operator meant; what a name resolves to may be anything.
func (w *way) dial(ctx context.Context, network, to string) (net.Conn, error) {
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

func (w *way) connect(ctx context.Context, network, to string) (net.Conn, error) {
	if w.l.c.Dial != nil {
		return w.l.c.Dial(ctx, network, to)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, to)
}

func (w *way) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if w.l.c.Lookup != nil {
		return w.l.c.Lookup(ctx, host)
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// bounded is a body that ends with an error where it is too long.
type bounded struct {
	io.ReadCloser
	left int
	w    *way
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.w.failed(errTooLong)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
