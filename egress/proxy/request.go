package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skete-dev/skete/egress"
)

// overrides are headers by which some servers take a request for one of another method.
var overrides = []string{"X-Http-Method", "X-Http-Method-Override", "X-Method-Override"}

// handle decides about a request and forwards it.
func (p *Proxy) handle(w http.ResponseWriter, r *http.Request) {
	s, _ := r.Context().Value(sessionKey{}).(*session)
	if s == nil {
		panic(http.ErrAbortHandler) // a connection that hand did not give
	}
	defer takeRest(w, r)()
	host, why := s.hostOf(r)
	if why != "" {
		p.decided(host, s.port, r.Method, r.URL.EscapedPath(), egress.Verdict{Why: why})
		refuse(w, http.StatusMisdirectedRequest, "skete: "+why)
		return
	}
	if local := p.c.Local(host); local != nil && r.Method != http.MethodConnect {
		local.ServeHTTP(w, r)
		return
	}
	q := egress.Request{
		Host: host, Port: s.port, Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		Upgrade: r.Header.Get("Upgrade") != "" || r.Method == http.MethodConnect,
	}
	v := p.verdict(r.Context(), q)
	if what := hides(r, v.Limited); v.Allowed && what != "" {
		v = egress.Verdict{Rule: v.Rule, Why: what + " would hide what is sent"}
	}
	if !v.Allowed {
		p.decided(host, s.port, r.Method, q.Path, v)
		p.explain(w, host, s.port, v)
		return
	}
	var c carried
	if s.tls { // no secret is sent in the clear
		var err error
		if c, err = p.carry(r, p.c.Secrets(q)); err != nil {
			why := "of " + host + ": " + err.Error()
			p.decided(host, s.port, r.Method, q.Path, egress.Verdict{Rule: v.Rule, Why: why})
			refuse(w, http.StatusBadGateway, "skete: "+why)
			return
		}
	}
	p.decided(host, s.port, r.Method, q.Path, v, c.used()...)
	p.forward(w, r, s, host, v.Limited, c)
}

// So much of a request's body is still taken behind its answer, and so long.
const (
	restBytesMax = 256 << 10
	restWait     = time.Second
)

// takeRest returns what takes the rest of a short body before the answer to its request ends, as of
// one that is refused. Over HTTP/2 the end resets what the client still sends, and curl 7.88 for
// one then reports a fault of the stream, and not the answer. Over HTTP/1 the server does as much
// by itself.
func takeRest(w http.ResponseWriter, r *http.Request) func() {
	if r.ProtoMajor != 2 || r.ContentLength <= 0 || r.ContentLength > restBytesMax {
		return func() {}
	}
	body := &restBody{ReadCloser: r.Body}
	r.Body = body
	return func() {
		if body.ended.Load() {
			return
		}
		c := http.NewResponseController(w)
		if c.Flush() == nil && c.SetReadDeadline(time.Now().Add(restWait)) == nil {
			_, _ = io.Copy(io.Discard, body)
		}
	}
}

// restBody is a body that two may read: what sends it on can outlive the answer.
type restBody struct {
	io.ReadCloser
	mu    sync.Mutex // of those who read
	ended atomic.Bool
}

// Read implements io.Reader.
func (b *restBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended.Store(true)
	}
	return n, err
}

// hides says what of a request would let requests follow that are not decided about. A
// WebSocket carries none; what other protocols carry is not known here, so that those are
// for hosts that may be asked for everything.
func hides(r *http.Request, limited bool) string {
	if r.Method == http.MethodConnect {
		return "CONNECT"
	}
	for _, list := range r.Header["Upgrade"] {
		for protocol := range strings.SplitSeq(strings.ToLower(list), ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(protocol), "/")
			switch name {
			case "websocket", "":
			case "h2c", "h2", "http", "tls":
				return "an upgrade to " + name
			default:
				if limited {
					return "an upgrade to another protocol"
				}
			}
		}
	}
	return ""
}

// verdict decides about a request, when all is known that may speak of it. No rule that
// is yet to come names an address.
func (p *Proxy) verdict(ctx context.Context, q egress.Request) egress.Verdict {
	for {
		more := p.c.Awaits()
		v := p.c.Rules().Request(q)
		if more == nil || v.Allowed || v.Rule != "" || egress.Name(q.Host) == "" {
			return v
		}
		select {
		case <-more:
		case <-ctx.Done():
			return v
		case <-p.closed:
			return v
		}
	}
}

// hostOf returns the host that a request is for, and why it may not be: a connection
// carries requests to the host that it was opened to, and to no other.
func (s *session) hostOf(r *http.Request) (host, why string) {
	host, port, err := splitHost(r.Host)
	switch {
	case r.Host == "" && s.host != "": // HTTP/1.0
		return s.host, ""
	case err != nil:
		return s.host, fmt.Sprintf("the request is for %.100q, which is no host", r.Host)
	case port != 0 && port != s.port:
		return host, fmt.Sprintf("the request is for port %d over a connection to port %d", port, s.port)
	case s.host != "" && host != s.host:
		return host, fmt.Sprintf("the request is for %s over a connection to %s", host, s.host)
	case r.URL.Opaque != "": // "x:http://other/", which would be sent on as "http://other/"
		return host, fmt.Sprintf("the request is for %.100q, which is no path", r.URL.Scheme+":"+r.URL.Opaque)
	}
	if r.URL.Host != "" { // HTTP/2 lets a path have another one than the authority
		if other, _, err := splitHost(r.URL.Host); err != nil || other != host {
			return host, fmt.Sprintf("the request is for %s, and for %.100q", host, r.URL.Host)
		}
	}
	return host, ""
}

// splitHost takes a host and a port, 0 = none, from what a client wrote.
func splitHost(s string) (host string, port int, err error) {
	host = s
	if h, p, err := net.SplitHostPort(s); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return "", 0, errors.New("no port")
		}
		host, port = h, int(n)
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().WithZone("").String(), port, nil
	}
	if host = egress.Name(host); host == "" {
		return "", 0, errors.New("no host")
	}
	return host, port, nil
}

// hostHeader writes the host that was decided about as the client did, with its port or
// without.
func hostHeader(said, host string, port int) string {
	if _, p, err := net.SplitHostPort(said); err == nil && p != "" {
		return net.JoinHostPort(host, strconv.Itoa(port))
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// explain tells a program, and a person who reads its output, what to do.
func (p *Proxy) explain(w http.ResponseWriter, host string, port int, v egress.Verdict) {
	to := host
	if port != 80 && port != 443 {
		to = net.JoinHostPort(host, strconv.Itoa(port))
	}
	text := fmt.Sprintf("skete: the network policy of this sandbox refuses it: %s.\n", v.Why)
	if a, err := netip.ParseAddr(host); err != nil || egress.Refused(a) == "" {
		text += fmt.Sprintf("A person can allow it with: skete egress allow %s %s\n", p.c.Sandbox, to)
	}
	refuse(w, http.StatusForbidden, text)
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Skete-Egress", "refused")
	http.Error(w, strings.TrimSuffix(text, "\n"), status)
}

// copies are the buffers of answers on their way, as large as a record of TLS: more would
// lie about while a stream says nothing.
type copies struct{}

const copyBytes = 16 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// Get implements httputil.BufferPool.
func (copies) Get() []byte { return copyBuffers.Get().(*[copyBytes]byte)[:] }

// Put implements httputil.BufferPool.
func (copies) Put(b []byte) { copyBuffers.Put((*[copyBytes]byte)(b)) }

// forward sends an allowed request to its host and copies the answer back. limited: the
// host shall not take it for another one.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, s *session, host string, limited bool, c carried) {
	scheme := "http"
	if s.tls {
		scheme = "https"
	}
	var transport http.RoundTripper = p.transport
	if len(c.signing) > 0 {
		transport = signer{p.transport, c.signing[0], host}
	}
	proxy := httputil.ReverseProxy{
		Transport: transport, ErrorLog: p.server.ErrorLog, BufferPool: copies{},
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = scheme, net.JoinHostPort(host, strconv.Itoa(s.port))
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery // as it was decided about
			pr.Out.Host = hostHeader(r.Host, host, s.port)
			if limited {
				for _, h := range overrides {
					pr.Out.Header.Del(h)
				}
			}
			for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := pr.In.Header[h]; ok { // taken out before, for proxies that add their own
					pr.Out.Header[h] = v
				}
			}
			if c.any() {
				inject(pr.Out, c)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			why := reachFault(host, err)
			p.decided(host, s.port, r.Method, r.URL.EscapedPath(), egress.Verdict{Why: why})
			refuse(w, http.StatusBadGateway, "skete: "+why)
		},
	}
	if c.any() {
		proxy.Transport = hinting{transport, c.needles()}
		proxy.ModifyResponse = func(res *http.Response) error {
			if err := c.hide(r.Context(), res); err != nil {
				return &unreachable{fmt.Sprintf("of %s: %v", host, err)}
			}
			return nil
		}
	}
	w.Header()["Content-Type"] = nil // no guess where the host says none
	// Else the server closes the request's body when the answer begins, and what still reads
	// it, if only to see its end, takes that for a fault and cuts the answer off.
	_ = http.NewResponseController(w).EnableFullDuplex()
	proxy.ServeHTTP(w, r)
}
