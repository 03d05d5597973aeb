package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/egress/proxy"
	"github.com/skete-dev/skete/secret"
)

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		os.Exit(runCaptured())
	}
	goleak.VerifyTestMain(m)
}

// world is the public network of a test: hosts by name, each at an address of its own,
// and a sandbox that reaches it through a proxy.
type world struct {
	t       testing.TB
	proxy   *proxy.Proxy
	ca      *proxy.Authority
	rules   atomic.Pointer[egress.Rules]
	secrets atomic.Pointer[secret.Store]
	tokens  atomic.Pointer[secret.SandboxTokens]
	roots   *x509.CertPool // of the sandbox
	key     *ecdsa.PrivateKey
	root    *x509.Certificate // of the network

	mu        sync.Mutex
	hosts     map[string][]netip.Addr
	listeners map[netip.AddrPort]string // address → where it really is
	local     map[string]http.Handler
	decisions []proxy.Decision
	dialled   []netip.AddrPort
	wrap      func(net.Conn) net.Conn // what connects to a host; nil = as it is
}

func newWorld(t testing.TB, p egress.Policy) *world {
	t.Helper()
	return newImpatientWorld(t, p, 0)
}

// newImpatientWorld is newWorld whose proxy asks hosts that are silent whether they are there.
func newImpatientWorld(t testing.TB, p egress.Policy, silence time.Duration) *world {
	t.Helper()
	w := &world{t: t, hosts: map[string][]netip.Addr{}, listeners: map[netip.AddrPort]string{}}
	w.policy(p)
	var err error
	w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "network"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	w.root = w.sign(template, template, w.key)
	w.ca, err = proxy.NewAuthority(bytes.Repeat([]byte{7}, 32), "web", time.Now)
	must(t, err)
	w.roots = x509.NewCertPool()
	w.roots.AppendCertsFromPEM(w.ca.PEM())
	trusted := x509.NewCertPool()
	trusted.AddCert(w.root)
	w.proxy = proxy.New(proxy.Config{
		Sandbox: "web", Rules: w.rules.Load, CA: w.ca, Roots: trusted, Tokens: w.tokens.Load, Silence: silence,
		Local: func(host string) http.Handler {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.local[host]
		},
		Secrets: func(q egress.Request) []secret.Held {
			if s := w.secrets.Load(); s != nil {
				return s.Held("default", secret.User{Sandboxes: []string{"web"}}, q)
			}
			return nil
		},
		Decided: func(d proxy.Decision) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.decisions = append(w.decisions, d)
		},
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if a, ok := w.hosts[name]; ok {
				return a, nil
			}
			return nil, errors.New("no such host")
		},
		Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			w.mu.Lock()
			w.dialled = append(w.dialled, to)
			at, ok := w.listeners[to]
			wrap := w.wrap
			w.mu.Unlock()
			if !ok {
				return nil, errors.New("connection refused")
			}
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", at)
			if err != nil || wrap == nil {
				return c, err
			}
			return wrap(c), nil
		},
	})
	t.Cleanup(w.proxy.Close)
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) policy(p egress.Policy) {
	w.t.Helper()
	r, err := egress.Compile(p)
	must(w.t, err)
	w.rules.Store(r)
}

func (w *world) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	w.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, w.key)
	must(w.t, err)
	c, err := x509.ParseCertificate(der)
	must(w.t, err)
	return c
}

// certificate is one of the network for names.
func (w *world) certificate(names ...string) tls.Certificate {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(w.t, err)
	c := w.sign(&x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: names}, w.root, key)
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key}
}

// at puts a listener at an address of the network.
func (w *world) at(port uint16, names ...string) net.Listener {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	a := netip.AddrFrom4([4]byte{203, 0, 113, byte(len(w.listeners) + 1)})
	w.listeners[netip.AddrPortFrom(a, port)] = ln.Addr().String()
	for _, n := range names {
		w.hosts[n] = []netip.Addr{a}
	}
	w.t.Cleanup(func() { ln.Close() })
	return ln
}

// serve puts an HTTP server at a port of names, with TLS unless the port is 80.
func (w *world) serve(port uint16, h http.HandlerFunc, names ...string) {
	w.t.Helper()
	ln := w.at(port, names...)
	s := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	if port == 80 {
		go s.Serve(ln)
	} else {
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{w.certificate(names...)}, NextProtos: []string{"h2", "http/1.1"}}
		go s.ServeTLS(ln, "", "")
	}
	w.t.Cleanup(func() { s.Close() })
}

// dial opens a connection in the sandbox to an address.
func (w *world) dial(to netip.AddrPort) net.Conn {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	must(w.t, err)
	server, err := ln.Accept()
	must(w.t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.proxy.Serve(context.Background(), server, to)
	}()
	w.t.Cleanup(func() {
		client.Close()
		<-done
	})
	return client
}

// ask sends a query of the domain name system.
func (w *world) ask(name string, kind dnsmessage.Type) (dnsmessage.Message, bool) {
	w.t.Helper()
	n, err := dnsmessage.NewName(name + ".")
	must(w.t, err)
	q, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: 9, RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}}}).Pack()
	must(w.t, err)
	var m dnsmessage.Message
	answer := w.proxy.Answer(q)
	if answer == nil {
		return m, false
	}
	must(w.t, m.Unpack(answer))
	return m, true
}

// address is what the sandbox is told of a name.
func (w *world) address(name string) netip.Addr {
	w.t.Helper()
	if a, err := netip.ParseAddr(name); err == nil {
		return a
	}
	m, ok := w.ask(name, dnsmessage.TypeA)
	if !ok || len(m.Answers) != 1 {
		w.t.Fatalf("%s: %+v", name, m)
	}
	return netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A)
}

// client is a program in the sandbox.
func (w *world) client() *http.Client {
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: w.roots}, ForceAttemptHTTP2: true,
		DialContext: func(_ context.Context, _, to string) (net.Conn, error) {
			host, service, err := net.SplitHostPort(to)
			if err != nil {
				return nil, err
			}
			var port uint16
			if _, err := fmt.Sscan(service, &port); err != nil {
				return nil, err
			}
			return w.dial(netip.AddrPortFrom(w.address(host), port)), nil
		},
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (w *world) do(req *http.Request) (status int, body string) {
	w.t.Helper()
	res, err := w.client().Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return res.StatusCode, err.Error()
	}
	return res.StatusCode, string(b)
}

func (w *world) get(url string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	must(w.t, err)
	return w.do(req)
}

func (w *world) last() proxy.Decision {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.decisions) == 0 {
		return proxy.Decision{}
	}
	return w.decisions[len(w.decisions)-1]
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %s %s", r.Proto, r.Method, r.Host, r.RequestURI, body)
}

func TestServe_allowedAndRefused(t *testing.T) {
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "ok.example"}, {Host: "read.example", Access: egress.Read}, {Host: "odd.example", Ports: []int{8443}}}})
	w.serve(443, echo, "ok.example", "read.example", "other.example")
	w.serve(8443, echo, "odd.example")
	for url, want := range map[string]string{
		"https://ok.example/a%20b/?x=%zz;1&y": "200 HTTP/2.0 GET ok.example /a%20b/?x=%zz;1&y ",
		"https://read.example/":               "200 HTTP/2.0 GET read.example / ",
		"https://odd.example:8443/":           "200 HTTP/2.0 GET odd.example:8443 / ",
		"https://other.example/":              "403 skete: the network policy of this sandbox refuses it: no rule allows other.example, port 443.\nA person can allow it with: skete egress allow web other.example\n",
		"https://odd.example/":                "403 skete: the network policy of this sandbox refuses it: no rule allows odd.example, port 443.\nA person can allow it with: skete egress allow web odd.example\n",
		"https://ok.example:8443/":            "403 skete: the network policy of this sandbox refuses it: no rule allows ok.example, port 8443.\nA person can allow it with: skete egress allow web ok.example:8443\n",
	} {
		status, body := w.get(url)
		if got := fmt.Sprint(status, " ", body); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://read.example/x", strings.NewReader("secret"))
	must(t, err)
	if status, body := w.do(req); status != 403 || !strings.Contains(body, "of read.example only this is allowed: read.example read") {
		t.Errorf("a POST to a host that may be read: %d %s", status, body)
	}
	if d := w.last(); d.Allowed || d.Method != "POST" || d.Path != "/x" || d.Host != "read.example" || d.Port != 443 {
		t.Errorf("%+v", d)
	}
	// A live edit counts for the next request.
	w.policy(egress.Policy{Profile: egress.Open})
	if status, body := w.get("https://other.example/"); status != 200 {
		t.Errorf("after the edit: %d %s", status, body)
	}
}

func TestServe_plainHTTP(t *testing.T) {
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "ok.example"}}})
	w.serve(80, echo, "ok.example", "other.example")
	if status, body := w.get("http://ok.example/x"); status != 200 || body != "HTTP/1.1 GET ok.example /x " {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := w.get("http://other.example/"); status != 403 {
		t.Errorf("%d", status)
	}
}

// What comes back is as the host sent it: as it comes, with its headers and trailers.
// A connection that leads nowhere any more, which no closing tells, is given up, and the next
// request goes by another one.
func TestServe_silence(t *testing.T) {
	w := newImpatientWorld(t, egress.Policy{Profile: egress.Open}, 100*time.Millisecond)
	w.serve(443, echo, "web.example")
	var lost atomic.Bool
	w.wrap = func(c net.Conn) net.Conn { return &losable{Conn: c, lost: &lost, closed: make(chan struct{})} }
	if code, body := w.get("https://web.example/a"); code != http.StatusOK || !strings.HasPrefix(body, "HTTP/2.0 GET") {
		t.Fatalf("%d %s", code, body)
	}
	lost.Store(true)
	if code, body := w.get("https://web.example/b"); code != http.StatusBadGateway {
		t.Errorf("by a connection that leads nowhere: %d %s", code, body)
	}
	lost.Store(false)
	if code, body := w.get("https://web.example/c"); code != http.StatusOK {
		t.Errorf("after that: %d %s", code, body)
	}
}

// losable is a connection that can lose all that is sent from then on.
type losable struct {
	net.Conn
	lost   *atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (c *losable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lost.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *losable) Write(b []byte) (int, error) {
	if c.lost.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *losable) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func TestServe_streams(t *testing.T) {
	w := newWorld(t, egress.Policy{Profile: egress.Open})
	next := make(chan struct{})
	w.serve(443, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header()["Content-Type"] = nil
		rw.Header().Set("Trailer", "Grpc-Status")
		for i := range 3 {
			fmt.Fprintf(rw, "data: %d\n\n", i)
			rw.(http.Flusher).Flush()
			<-next
		}
		rw.Header().Set("Grpc-Status", "0")
	}, "sse.example")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://sse.example/", nil)
	must(t, err)
	res, err := w.client().Do(req)
	must(t, err)
	defer res.Body.Close()
	if _, ok := res.Header["Content-Type"]; ok {
		t.Errorf("%v", res.Header)
	}
	r := bufio.NewReader(res.Body)
	for i := range 3 {
		line, err := r.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		_, _ = r.ReadString('\n')
		next <- struct{}{}
	}
	if _, err := io.Copy(io.Discard, r); err != nil || res.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%v, %v", res.Trailer, err)
	}
}

func TestServe_webSocket(t *testing.T) {
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "ws.example"}, {Host: "read.example", Access: egress.Read}}})
	w.serve(443, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			http.Error(rw, "no upgrade", 400)
			return
		}
		conn, buf, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := buf.ReadString('\n')
		fmt.Fprint(conn, "you said "+line)
	}, "ws.example", "read.example")
	for host, want := range map[string]string{"ws.example": "you said hello\n", "read.example": ""} {
		conn := tls.Client(w.dial(netip.AddrPortFrom(w.address(host), 443)), &tls.Config{RootCAs: w.roots, ServerName: host})
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n", host)
		r := bufio.NewReader(conn)
		res, err := http.ReadResponse(r, nil)
		must(t, err)
		if want == "" {
			if res.StatusCode != 403 {
				t.Errorf("%s: %s", host, res.Status)
			}
			continue
		}
		fmt.Fprint(conn, "hello\n")
		if line, err := r.ReadString('\n'); line != want || res.StatusCode != 101 {
			t.Errorf("%s: %s, %q, %v", host, res.Status, line, err)
		}
	}
}

// A pinned host sees the client's own bytes, whatever they are.
func TestServe_pinned(t *testing.T) {
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "pin.example", Pinned: true}, {Host: "ssh.example", Ports: []int{22}, Pinned: true}}})
	w.serve(443, echo, "pin.example", "other.example")
	network := x509.NewCertPool()
	network.AddCert(w.root)
	conn := tls.Client(w.dial(netip.AddrPortFrom(w.address("pin.example"), 443)), &tls.Config{RootCAs: network, ServerName: "pin.example"})
	must(t, conn.Handshake()) // with the host's own certificate
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: pin.example\r\nConnection: close\r\n\r\n")
	if b, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(b), "HTTP/1.1 GET pin.example / ") {
		t.Errorf("%s, %v", b, err)
	}
	// The server speaks first.
	ln := w.at(22, "ssh.example")
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, "SSH-2.0-test\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		fmt.Fprint(c, line)
	}()
	ssh := w.dial(netip.AddrPortFrom(w.address("ssh.example"), 22))
	r := bufio.NewReader(ssh)
	if line, err := r.ReadString('\n'); line != "SSH-2.0-test\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	fmt.Fprint(ssh, "hello\n")
	must(t, ssh.(*net.TCPConn).CloseWrite())
	if b, err := io.ReadAll(r); string(b) != "hello\n" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	// Another host behind the same address is not reached.
	fronted := tls.Client(w.dial(netip.AddrPortFrom(w.address("pin.example"), 443)), &tls.Config{RootCAs: network, ServerName: "other.example"})
	if err := fronted.Handshake(); err == nil || !strings.Contains(w.last().Why, `for "other.example"`) {
		t.Errorf("%v, %+v", err, w.last())
	}
	bare := tls.Client(w.dial(netip.AddrPortFrom(w.address("pin.example"), 443)), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // what a hostile client does
	if err := bare.Handshake(); err == nil {
		t.Error("a handshake without a name came through")
	}
}

// A host that is in the server is served there, with TLS and without, whatever the rules
// say and whatever it is called; it is not dialled, and no other local name is known.
func TestLocal(t *testing.T) {
	w := newWorld(t, egress.Policy{Deny: []egress.Rule{{Host: "api.vendor.example"}}})
	here := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, "here: ", r.Host, r.URL.Path) })
	w.mu.Lock()
	w.local = map[string]http.Handler{"models.skete.internal": here, "api.vendor.example": here}
	w.mu.Unlock()
	for url, want := range map[string]string{
		"http://models.skete.internal/a":  "here: models.skete.internal/a",
		"https://models.skete.internal/b": "here: models.skete.internal/b",
		"https://api.vendor.example/v1":   "here: api.vendor.example/v1",
	} {
		if status, body := w.get(url); status != http.StatusOK || body != want {
			t.Errorf("%s: %d %q", url, status, body)
		}
	}
	if m, ok := w.ask("other.skete.internal", dnsmessage.TypeA); !ok || m.RCode != dnsmessage.RCodeNameError {
		t.Errorf("another local name: %+v", m)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.dialled) > 0 || len(w.decisions) > 0 {
		t.Errorf("dialled %v, decided %+v", w.dialled, w.decisions)
	}
}

// busy is a connection on which the end of a request is sent, but not yet known to be, as
// on a busy host.
type busy struct {
	net.Conn
	until <-chan struct{}
}

// Write implements net.Conn.
func (b busy) Write(data []byte) (int, error) {
	n, err := b.Conn.Write(data)
	if bytes.HasSuffix(data, []byte("END")) {
		<-b.until
	}
	return n, err
}

// An answer that begins before the proxy knows that all of the request is sent comes whole.
func TestForward_answersAtOnce(t *testing.T) {
	w := newWorld(t, egress.Policy{Profile: egress.Open})
	answer := bytes.Repeat([]byte("answer"), 1<<20)
	w.serve(80, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = rw.Write(answer)
	}, "a.example")
	for range 5 {
		begun := make(chan struct{})
		w.mu.Lock()
		w.wrap = func(c net.Conn) net.Conn { return busy{c, begun} }
		w.mu.Unlock()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.example/", strings.NewReader(strings.Repeat("x", 1<<20)+"END"))
		must(t, err)
		res, err := w.client().Do(req)
		close(begun)
		must(t, err)
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !bytes.Equal(got, answer) {
			t.Fatalf("%d bytes of %d, %v", len(got), len(answer), err)
		}
	}
}
