package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/egress/outbound"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/tool"
)

// Bounds of the way to a URL.
const (
	reconnects = 3
	streamType = "text/event-stream"
)

// way is how requests come to a server elsewhere: to its host alone, with what it is to be
// sent.
type way struct {
	*outbound.Way
	l      *live
	to     *url.URL
	ctx    context.Context // of streams that outlive the call that opened them
	cancel context.CancelFunc

	mu     sync.Mutex
	status int   // of the last refusal
	err    error // of the last request that did not come through, for people
}

func newWay(l *live, p tool.Place) *way {
	to, err := url.Parse(l.conf.URL)
	if err != nil {
		to = &url.URL{} // Check has refused it
	}
	c := outbound.Config{Held: l.c.Held, Lookup: l.c.Lookup, Dial: l.c.Dial, Roots: l.c.Roots}
	w := &way{l: l, to: to, Way: outbound.New(c, to, outbound.User{Tenant: p.Tenant, Agent: p.Agent, Machine: p.Machine, Secrets: l.conf.Secrets})}
	w.ctx, w.cancel = context.WithCancel(context.Background())
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
	w.Close()
}

// redirect follows none to another host.
func (w *way) redirect(r *http.Request, via []*http.Request) error {
	if err := w.Redirect(r, via); err != nil {
		return w.failed(err)
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for k, v := range w.l.conf.Headers {
		r.Header.Set(k, v)
	}
	res, err := w.Way.RoundTrip(r)
	if err != nil {
		return nil, w.failed(err)
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
		return errs.Wrap(errs.Unavailable, w.err, "%s", w.Mask(words(w.err)))
	}
	if w.status == 0 {
		return nil
	}
	hint := fmt.Sprintf("name a secret of the tenant that is granted for this host in mcp.servers.%s.secrets", w.l.name)
	if len(w.Sent()) > 0 {
		hint = "the secret that it was sent is not the right one"
	}
	return errs.New(errs.Denied, "it answers %d %s: %s", w.status, http.StatusText(w.status), hint)
}

// mask hides the secrets that a server was sent in what it answers.
func (s *session) mask() func(string) string {
	if s.way == nil {
		return func(t string) string { return t }
	}
	return s.way.Mask
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
