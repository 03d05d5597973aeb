package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/egress/proxy"
)

// raw sends bytes over a connection to a host, with TLS for its name, and returns the
// statuses of the answers until it is closed.
func (w *world) raw(host string, port uint16, text string) (statuses []int) {
	w.t.Helper()
	conn := w.dial(netip.AddrPortFrom(w.address(host), port))
	if port != 80 {
		conn = tls.Client(conn, &tls.Config{RootCAs: w.roots, ServerName: host})
	}
	must(w.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	go func() { _, _ = io.WriteString(conn, text) }()
	r := bufio.NewReader(conn)
	for {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		statuses = append(statuses, res.StatusCode)
	}
}

// A connection carries requests to the one host that it was opened to, and a request is
// seen by the host as it was decided about.
func TestAttack_requests(t *testing.T) {
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "ok.example"}, {Host: "also.example"}, {Host: "v1.example", Paths: []string{"/v1/**"}}}})
	var seen atomic.Int64
	count := func(rw http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		if r.Host != "ok.example" && r.Host != "ok.example:443" && r.Host != "v1.example" || r.Header.Get("X-Http-Method-Override") != "" && r.Host == "v1.example" {
			t.Errorf("%s %s reached the host: %v", r.Method, r.Host, r.Header)
		}
		echo(rw, r)
	}
	w.serve(443, count, "ok.example", "also.example", "v1.example", "evil.example")
	w.serve(80, count, "plain.example")
	w.hosts["plain.example"] = w.hosts["ok.example"]
	for name, c := range map[string]struct {
		host, text string
		want       int // the only status
		reaches    int64
	}{
		"as it should be":        {"ok.example", "GET / HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n", 200, 1},
		"with its port":          {"ok.example", "GET / HTTP/1.1\r\nHost: OK.example.:443\r\nConnection: close\r\n\r\n", 200, 1},
		"fronting":               {"ok.example", "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 421, 0},
		"fronting, allowed too":  {"ok.example", "GET / HTTP/1.1\r\nHost: also.example\r\nConnection: close\r\n\r\n", 421, 0},
		"another port":           {"ok.example", "GET / HTTP/1.1\r\nHost: ok.example:8443\r\nConnection: close\r\n\r\n", 421, 0},
		"absolute form":          {"ok.example", "GET http://evil.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n", 421, 0},
		"absolute, metadata":     {"ok.example", "GET http://169.254.169.254/latest HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n", 421, 0},
		"within another scheme":  {"ok.example", "GET x:http://evil.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n", 421, 0},
		"user in the host":       {"ok.example", "GET / HTTP/1.1\r\nHost: ok.example@evil.example\r\nConnection: close\r\n\r\n", 400, 0},
		"two ports":              {"ok.example", "GET / HTTP/1.1\r\nHost: ok.example:443:80\r\nConnection: close\r\n\r\n", 421, 0},
		"two hosts":              {"ok.example", "GET / HTTP/1.1\r\nHost: ok.example\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 400, 0},
		"no host":                {"ok.example", "GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400, 0},
		"CONNECT":                {"ok.example", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\nConnection: close\r\n\r\n", 421, 0},
		"CONNECT to itself":      {"ok.example", "CONNECT ok.example:443 HTTP/1.1\r\nHost: ok.example:443\r\nConnection: close\r\n\r\n", 403, 0},
		"two lengths":            {"ok.example", "POST / HTTP/1.1\r\nHost: ok.example\r\nContent-Length: 3\r\nContent-Length: 4\r\nConnection: close\r\n\r\nabcd", 400, 0},
		"an odd encoding":        {"ok.example", "POST / HTTP/1.1\r\nHost: ok.example\r\nTransfer-Encoding: xchunked\r\nConnection: close\r\n\r\n0\r\n\r\n", 501, 0},
		"a folded header":        {"ok.example", "GET / HTTP/1.1\r\nHost: ok.example\r\nX: a\r\n b\r\nConnection: close\r\n\r\n", 200, 1},
		"a space before a colon": {"ok.example", "GET / HTTP/1.1\r\nHost: ok.example\r\nTransfer-Encoding : chunked\r\nConnection: close\r\n\r\n", 400, 0},
		"large headers":          {"ok.example", "GET / HTTP/1.1\r\nHost: ok.example\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", 431, 0},
		"out of the path":        {"v1.example", "GET /v1/../admin HTTP/1.1\r\nHost: v1.example\r\nConnection: close\r\n\r\n", 403, 0},
		"escaped, out of it":     {"v1.example", "GET /v1/%2e%2e%2fadmin HTTP/1.1\r\nHost: v1.example\r\nConnection: close\r\n\r\n", 403, 0},
		"another method":         {"v1.example", "GET /v1/x HTTP/1.1\r\nHost: v1.example\r\nX-HTTP-Method-Override: DELETE\r\nConnection: close\r\n\r\n", 200, 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := seen.Load()
			got := w.raw(c.host, 443, c.text)
			if len(got) != 1 || got[0] != c.want || seen.Load()-before != c.reaches {
				t.Errorf("%v, %d requests at the host; want %d, %d", got, seen.Load()-before, c.want, c.reaches)
			}
		})
	}
	// A length and chunks: whichever counts, there is one request.
	before := seen.Load()
	got := w.raw("ok.example", 443, "POST / HTTP/1.1\r\nHost: ok.example\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: ok.example\r\n\r\n")
	if seen.Load()-before > 1 || len(got) > 1 {
		t.Errorf("a length and chunks: %v, %d requests", got, seen.Load()-before)
	}
	// Over one connection of HTTP/2, too.
	conn := w.dial(netip.AddrPortFrom(w.address("ok.example"), 443))
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: w.roots, ServerName: "ok.example"}, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	defer tr.CloseIdleConnections()
	for _, host := range []string{"ok.example", "evil.example", "also.example", "10.0.0.1"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://ok.example/", nil)
		must(t, err)
		req.Host = host
		res, err := tr.RoundTrip(req)
		must(t, err)
		res.Body.Close()
		if want := map[bool]int{true: 200, false: 421}[host == "ok.example"]; res.StatusCode != want || res.ProtoMajor != 2 {
			t.Errorf("%s over HTTP/2: %s %s", host, res.Proto, res.Status)
		}
	}
}

// A request for one protocol in place of another is passed on only where all that it could
// carry is allowed.
func TestAttack_upgrades(t *testing.T) {
	w := newWorld(t, egress.Policy{Allow: []egress.Rule{{Host: "all.example"}, {Host: "v1.example", Paths: []string{"/v1/**"}}, {Host: "read.example", Access: egress.Read}, {Host: "denied.example"}}, Deny: []egress.Rule{{Host: "denied.example", Paths: []string{"/no"}}}})
	w.serve(80, func(rw http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(rw).Hijack()
		must(t, err)
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		conn.Close()
	}, "all.example", "v1.example", "read.example", "denied.example")
	for protocol, passed := range map[string]map[string]bool{
		"websocket":       {"all.example": true, "v1.example": true, "denied.example": true},
		"tcp":             {"all.example": true},
		"SPDY/3.1":        {"all.example": true},
		"h2c":             {},
		"HTTP/2.0":        {},
		"TLS/1.2":         {},
		"websocket, h2c":  {},
		"websocket, tcp":  {"all.example": true},
		"websocket,, H2C": {},
	} {
		for _, host := range []string{"all.example", "v1.example", "read.example", "denied.example"} {
			got := w.raw(host, 80, "GET /v1/x HTTP/1.1\r\nHost: "+host+"\r\nConnection: Upgrade, close\r\nUpgrade: "+protocol+"\r\n\r\n")
			want := map[bool]int{true: http.StatusSwitchingProtocols, false: http.StatusForbidden}[passed[host]]
			if len(got) == 0 || got[0] != want {
				t.Errorf("%s at %s: %v, want %d", protocol, host, got, want)
			}
		}
	}
}

// Whatever a name resolves to, nothing is sent to the host's own networks.
func TestAttack_addresses(t *testing.T) {
	w := newWorld(t, egress.Policy{Profile: egress.Open})
	w.serve(443, echo, "good.example")
	good := w.hosts["good.example"][0]
	for name, addrs := range map[string][]string{
		"local.example": {"127.0.0.1"}, "meta.example": {"169.254.169.254"}, "mapped.example": {"::ffff:169.254.169.254"}, "six.example": {"::1", "fe80::1", "fd00::1"}, "private.example": {"10.0.0.1", "192.168.0.1"},
		"nat.example": {"64:ff9b::7f00:1"}, "stand.example": {"198.18.0.1"}, "none.example": {},
	} {
		for _, a := range addrs {
			w.hosts[name] = append(w.hosts[name], netip.MustParseAddr(a))
		}
		if len(addrs) == 0 {
			w.hosts[name] = []netip.Addr{}
		}
		status, body := w.get("https://" + name + "/")
		if status != 502 || !strings.Contains(body, "always refused") && !strings.Contains(body, "has no address") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	for _, url := range []string{"http://127.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://[::ffff:169.254.169.254]/", "http://[::1]/", "http://10.0.0.1/", "http://0.0.0.0/", "http://192.168.1.1:80/", "http://[fd00:ec2::254]/"} {
		if status, body := w.get(url); status != 403 || !strings.Contains(body, "always refused") || strings.Contains(body, "skete egress allow") {
			t.Errorf("%s: %d %s", url, status, body)
		}
	}
	w.mu.Lock()
	if len(w.dialled) > 0 {
		t.Errorf("dialled: %v", w.dialled)
	}
	w.mu.Unlock()
	// A name that has another address the second time is checked the second time, and
	// what is dialled is what was checked.
	w.hosts["both.example"] = []netip.Addr{netip.MustParseAddr("127.0.0.1"), good}
	w.get("https://both.example/")
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.dialled {
		if d.Addr() != good {
			t.Errorf("dialled %s", d)
		}
	}
	if len(w.dialled) == 0 {
		t.Error("the public address was not dialled")
	}
}

// Nothing that is neither HTTP nor TLS with a name leaves.
func TestAttack_otherProtocols(t *testing.T) {
	w := newWorld(t, egress.Policy{Profile: egress.Open})
	w.serve(443, echo, "ok.example")
	at := netip.AddrPortFrom(w.address("ok.example"), 443)
	conn := w.dial(at)
	fmt.Fprint(conn, "\x00\x01 raw")
	if b, err := io.ReadAll(conn); len(b) > 0 || !strings.Contains(w.last().Why, "neither HTTP nor TLS") {
		t.Errorf("%q, %v, %+v", b, err, w.last())
	}
	bare := tls.Client(w.dial(at), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // what a hostile client does
	if err := bare.Handshake(); err == nil || !strings.Contains(w.last().Why, "without the name") {
		t.Errorf("%v, %+v", err, w.last())
	}
	// What stood for a name that is forgotten stands for nothing.
	gone := netip.MustParseAddrPort("198.19.255.1:443")
	known := tls.Client(w.dial(gone), &tls.Config{RootCAs: w.roots, ServerName: "ok.example"})
	must(t, known.Handshake()) // the client says which host it means, and that one is reached
	known.Close()
	// The host's own certificate is checked.
	w.hosts["wrong.example"] = w.hosts["ok.example"]
	if status, body := w.get("https://wrong.example/"); status != 502 || !strings.Contains(body, "certificate of wrong.example is not valid") {
		t.Errorf("%d %s", status, body)
	}
}

func TestAttack_queries(t *testing.T) {
	w := newWorld(t, egress.Policy{})
	for name, want := range map[string]dnsmessage.RCode{
		"ok.example": dnsmessage.RCodeSuccess, "localhost": dnsmessage.RCodeNameError, "db": dnsmessage.RCodeNameError, "metadata.google.internal": dnsmessage.RCodeNameError, "printer.local": dnsmessage.RCodeNameError,
		"1.0.0.127.in-addr.arpa": dnsmessage.RCodeNameError, "127.0.0.1": dnsmessage.RCodeNameError, "a b.example": dnsmessage.RCodeNameError,
	} {
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeTXT, dnsmessage.TypePTR, dnsmessage.TypeHTTPS} {
			m, ok := w.ask(name, kind)
			if !ok || m.RCode != want || (len(m.Answers) == 1) != (want == dnsmessage.RCodeSuccess && kind == dnsmessage.TypeA) {
				t.Errorf("%s %s: %+v", name, kind, m)
			}
		}
	}
	if a, b := w.address("a.example"), w.address("b.example"); a == b || w.address("A.EXAMPLE") != a || egress.Refused(a) == "" {
		t.Errorf("%s, %s", a, b)
	}
	for name, q := range map[string][]byte{"nothing": nil, "short": {1, 2, 3}, "long": make([]byte, 600), "an answer": {0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0}} {
		if got := w.proxy.Answer(q); got != nil {
			t.Errorf("%s is answered: %x", name, got)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	ca, err := proxy.NewAuthority(bytes.Repeat([]byte{7}, 32), "web", time.Now)
	must(f, err)
	p := proxy.New(proxy.Config{Rules: func() *egress.Rules { return nil }, CA: ca})
	f.Cleanup(p.Close)
	f.Add([]byte("\x00\x09\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02ok\x07example\x00\x00\x01\x00\x01"))
	f.Add([]byte("\x00\x09\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, q []byte) {
		if a := p.Answer(q); len(a) > 600 || len(a) > 0 && (len(q) < 12 || !bytes.Equal(a[:2], q[:2])) {
			t.Errorf("%x: %x", q, a)
		}
	})
}

// The certificates of a sandbox are good for nothing else.
func TestAuthority(t *testing.T) {
	seed := bytes.Repeat([]byte{7}, 32)
	now := time.Now()
	open := func(sandbox string) (*proxy.Authority, *x509.CertPool) {
		a, err := proxy.NewAuthority(seed, sandbox, func() time.Time { return now })
		must(t, err)
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(a.PEM()) {
			t.Fatal("no PEM")
		}
		return a, pool
	}
	_, one := open("one")
	_, other := open("other")
	w := newWorld(t, egress.Policy{})
	chain := func(host string) []*x509.Certificate {
		conn := tls.Client(w.dial(netip.AddrPortFrom(w.address(host), 443)), &tls.Config{InsecureSkipVerify: true, ServerName: host}) //nolint:gosec // looked at below
		must(t, conn.Handshake())
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates
	}
	certs := chain("a.example")
	verify := func(roots *x509.CertPool, name string) error {
		between := x509.NewCertPool()
		between.AddCert(certs[1])
		_, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: name})
		return err
	}
	if err := verify(w.roots, "a.example"); err != nil {
		t.Error(err)
	}
	if verify(w.roots, "b.example") == nil || verify(one, "a.example") == nil || verify(other, "a.example") == nil {
		t.Error("a certificate is taken for another name or in another sandbox")
	}
	issuer := certs[1]
	if !issuer.PermittedDNSDomainsCritical || len(issuer.PermittedDNSDomains) != 1 || issuer.PermittedDNSDomains[0] != "a.example" || !issuer.MaxPathLenZero || issuer.NotAfter.Sub(now) > 49*time.Hour {
		t.Errorf("the issuer: %+v", issuer.PermittedDNSDomains)
	}
	// After a restart of the server what the sandbox trusts is still right.
	again, err := proxy.NewAuthority(seed, "web", time.Now)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(again.PEM())
	if err := verify(pool, "a.example"); err != nil {
		t.Error(err)
	}
	if _, err := proxy.NewAuthority(seed[:31], "web", time.Now); err == nil {
		t.Error("a short seed is taken")
	}
}

// A client that says nothing, or a little now and then, is hung up on.
func TestAttack_slowClients(t *testing.T) {
	for name, drip := range map[string]func(net.Conn){
		"silent":     func(net.Conn) {},
		"first byte": func(c net.Conn) { _, _ = c.Write([]byte("G")) },
		"drip": func(c net.Conn) {
			for _, b := range []byte("GET / HTTP/1.1\r\nHost: ok.example\r\nX: " + strings.Repeat("x", 1000)) {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second) //nolint:forbidigo // in a bubble
			}
		},
		"TLS": func(c net.Conn) { _, _ = c.Write([]byte{0x16, 3, 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca, err := proxy.NewAuthority(bytes.Repeat([]byte{7}, 32), "web", time.Now)
				must(t, err)
				p := proxy.New(proxy.Config{Rules: func() *egress.Rules { return nil }, CA: ca})
				client, server := net.Pipe()
				var programs sync.WaitGroup
				programs.Go(func() { _, _ = io.Copy(io.Discard, client) })
				programs.Go(func() { drip(client) })
				began := time.Now()
				p.Serve(t.Context(), server, netip.MustParseAddrPort("198.18.0.1:80"))
				if d := time.Since(began); d > time.Minute+time.Second {
					t.Errorf("it was served for %s", d)
				}
				client.Close()
				p.Close()
				programs.Wait()
			})
		})
	}
}

func TestServe_boundsConnections(t *testing.T) {
	w := newWorld(t, egress.Policy{Profile: egress.Open})
	w.serve(443, echo, "ok.example")
	at := netip.AddrPortFrom(w.address("ok.example"), 443)
	var open []net.Conn
	for range 256 {
		open = append(open, w.dial(at))
	}
	one := make([]byte, 1)
	for {
		more := w.dial(at) // once all of those are being served
		must(t, more.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		if _, err := more.Read(one); errors.Is(err, io.EOF) {
			break
		}
		more.Close()
	}
	if w.last().Why != "too many connections are open" {
		t.Errorf("%+v", w.last())
	}
	w.proxy.Close()
	for _, c := range open {
		if _, err := c.Read(one); err == nil {
			t.Error("it is open after Close")
		}
	}
}
