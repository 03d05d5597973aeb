package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/secret"
)

// Bounds of a sandbox's connections.
const (
	connectionsMax = 256
	firstByteWait  = 30 * time.Second // for what a client says first
	headerWait     = 30 * time.Second
	idleWait       = 5 * time.Minute
	headerBytesMax = 64 << 10
	dialWait       = 30 * time.Second
	addressWait    = 5 * time.Second // of one of several addresses
	addressesMax   = 8
	helloBytesMax  = 64 << 10
)

// Config of a proxy. What is left out has a default.
type Config struct {
	Sandbox string               // its name, for messages
	Rules   func() *egress.Rules // those in force now; required
	// Awaits returns what is closed when there may be more rules than now; nil = there are
	// no more soon. A request that no rule speaks of waits for them.
	Awaits  func() <-chan struct{}
	CA      *Authority     // required
	Decided func(Decision) // is told of each decision; does not block
	// Secrets returns what is added to an allowed request; nil = nothing ever is.
	Secrets func(egress.Request) []secret.Held
	// Tokens returns those that the sandbox got by secrets of token endpoints; nil, or nil of
	// it = none are kept, and such secrets are not sent.
	Tokens func() *secret.SandboxTokens
	// Local serves requests to hosts that are in this server, whatever the rules say; nil,
	// or a nil handler = none is.
	Local func(host string) http.Handler
	// Lookup resolves a name and Dial connects to an address that was checked; nil =
	// those of this host.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	Roots  *x509.CertPool // that hosts are checked against; nil = the system's
	Now    func() time.Time
	// Silence is how long a connection of HTTP/2 to a host may be silent before the host is asked
	// whether it is there, and how long it has to answer; 0 = 15 seconds.
	Silence time.Duration
}

// silence of a Config. All requests to a host share one connection: one that leads nowhere any
// more, which no closing tells, would hold up each of them.
const silence = 15 * time.Second

// Decision is one, for the log.
type Decision struct {
	At           time.Time
	Host         string
	Port         int
	Method, Path string // "" = of a connection
	Allowed      bool
	Rule, Why    string // as egress.Verdict has them
	Secrets      string // the names of those that were sent with it, separated by commas
}

// Proxy carries what one sandbox sends. Safe for concurrent use.
type Proxy struct {
	c         Config
	names     *names
	server    *http.Server
	transport *http.Transport
	accepts   chan net.Conn
	slots     chan struct{}
	meta      sync.Map // net.Conn that the server has to *session
	closed    chan struct{}
	close     sync.Once
	joining   sync.Mutex // is held to add to done, and to close closed: nothing joins after that
	done      sync.WaitGroup
}

// session is a connection whose requests are looked at.
type session struct {
	host string // "" = each request says it
	port int
	tls  bool
}

// New returns a proxy. Close ends it.
func New(c Config) *Proxy {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Secrets == nil {
		c.Secrets = func(egress.Request) []secret.Held { return nil }
	}
	if c.Tokens == nil {
		c.Tokens = func() *secret.SandboxTokens { return nil }
	}
	if c.Local == nil {
		c.Local = func(string) http.Handler { return nil }
	}
	if c.Awaits == nil {
		c.Awaits = func() <-chan struct{} { return nil }
	}
	if c.Decided == nil {
		c.Decided = func(Decision) {}
	}
	c.Silence = cmp.Or(c.Silence, silence)
	if c.Lookup == nil {
		c.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", to.String())
		}
	}
	p := &Proxy{c: c, names: newNames(c.Now), accepts: make(chan net.Conn), slots: make(chan struct{}, connectionsMax), closed: make(chan struct{})}
	p.transport = &http.Transport{
		DialContext: p.dialHost, TLSClientConfig: &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConnsPerHost: 16, MaxIdleConns: 64, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: dialWait, MaxResponseHeaderBytes: 256 << 10, ExpectContinueTimeout: time.Second,
		HTTP2: &http.HTTP2Config{SendPingTimeout: c.Silence, PingTimeout: c.Silence},
	}
	p.server = &http.Server{
		Handler: http.HandlerFunc(p.handle), ReadHeaderTimeout: headerWait, IdleTimeout: idleWait, MaxHeaderBytes: headerBytesMax, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			s, _ := p.meta.Load(conn)
			return context.WithValue(ctx, sessionKey{}, s)
		},
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateHijacked || state == http.StateClosed {
				p.meta.Delete(conn)
			}
		},
	}
	p.done.Go(func() { _ = p.server.Serve(queue{p}) })
	return p
}

type sessionKey struct{}

// Close ends all connections and waits for them.
func (p *Proxy) Close() {
	p.close.Do(func() {
		p.joining.Lock()
		close(p.closed)
		p.joining.Unlock()
		p.server.Close()
		p.transport.CloseIdleConnections()
	})
	p.done.Wait()
}

// queue is the listener of the server.
type queue struct{ p *Proxy }

// Accept implements net.Listener.
func (q queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.p.accepts:
		return c, nil
	case <-q.p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (queue) Close() error { return nil }

// Addr implements net.Listener.
func (queue) Addr() net.Addr { return &net.TCPAddr{} }

// Serve carries a connection that a program in the sandbox opened to an address, until
// it is over, ctx ends or the proxy is closed. It closes the connection.
func (p *Proxy) Serve(ctx context.Context, conn net.Conn, to netip.AddrPort) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		p.decided(p.names.of(to.Addr()), int(to.Port()), "", "", egress.Verdict{Why: "too many connections are open"})
		conn.Close()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer p.watch(ctx, conn)()
	p.serve(ctx, conn, p.names.of(to.Addr()), int(to.Port()))
}

func (p *Proxy) serve(ctx context.Context, conn net.Conn, host string, port int) {
	defer conn.Close()
	if host != "" {
		if v := p.c.Rules().Connection(host, port); v.Pinned {
			p.pass(ctx, conn, host, port, v)
			return
		}
	}
	first := make([]byte, 1)
	_ = conn.SetReadDeadline(time.Now().Add(firstByteWait))
	if _, err := io.ReadFull(conn, first); err != nil {
		if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			p.unknown(host, port)
		}
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	over := make(chan struct{})
	said := &replayed{Conn: conn, head: first, over: over}
	switch {
	case first[0] == 0x16: // a handshake of TLS
		p.serveTLS(said, host, port)
	case first[0] >= 'A' && first[0] <= 'Z':
		p.hand(said, &session{host: host, port: port})
	default:
		p.unknown(host, port)
		return
	}
	<-over
}

// unknown notes a connection that carries neither HTTP nor TLS.
func (p *Proxy) unknown(host string, port int) {
	v := p.c.Rules().Connection(host, port)
	if v.Allowed {
		v = egress.Verdict{Rule: v.Rule, Why: "it carries neither HTTP nor TLS; a rule with `pinned` passes it on as it is"}
	}
	p.decided(host, port, "", "", v)
}

// serveTLS answers for the host that the client names.
func (p *Proxy) serveTLS(conn net.Conn, host string, port int) {
	s := &session{port: port, tls: true}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		s.host = egress.Name(hello.ServerName)
		if _, err := netip.ParseAddr(host); hello.ServerName == "" && err == nil {
			s.host = host // an address has no name to send
		}
		if s.host == "" {
			p.decided(host, port, "", "", egress.Verdict{Why: "it is TLS without the name of a host"})
			return nil, errors.New("no server name")
		}
		return p.c.CA.certificate(s.host)
	}
	p.hand(tls.Server(conn, config), s)
}

// hand gives a connection to the HTTP server, which closes it.
func (p *Proxy) hand(conn net.Conn, s *session) {
	p.meta.Store(conn, s)
	select {
	case p.accepts <- conn:
	case <-p.closed:
		p.meta.Delete(conn)
		conn.Close()
	}
}

func (p *Proxy) decided(host string, port int, method, path string, v egress.Verdict, held ...secret.Held) {
	var names []string
	for _, h := range held {
		names = append(names, h.Name)
	}
	p.c.Decided(Decision{
		At: p.c.Now(), Host: host, Port: port, Method: method, Path: path, Allowed: v.Allowed, Rule: v.Rule, Why: v.Why,
		Secrets: strings.Join(slices.Compact(names), ","),
	})
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// replayed is a connection of which something was read already.
type replayed struct {
	net.Conn
	head []byte
	over chan struct{} // nil, or is closed when it is
	once sync.Once
}

// Read implements net.Conn.
func (r *replayed) Read(b []byte) (int, error) {
	if len(r.head) > 0 {
		n := copy(b, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

// Close implements net.Conn.
func (r *replayed) Close() error {
	r.once.Do(func() {
		if r.over != nil {
			close(r.over)
		}
	})
	return r.Conn.Close()
}
