package main

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
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/egress/proxy"
	"github.com/skete-dev/skete/gateway"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/catalog"
)

// This file measures what stands between a sandbox and the network: the proxy and the
// gateway, without a machine, each beside the same request without it and beside peers, in
// turns; and what a network adds to a machine.

const (
	hostName  = "example.com" // for which the upstream has a certificate
	bulkMB    = 256
	streamsOf = 200 // sandboxes at once
)

// route is a way to the upstream.
type route struct {
	name  string
	url   string
	tr    *http.Transport
	close func()
}

// upstream is a host of the public network. It answers /small, /bulk with so many MB, and
// /stream, which goes on.
func upstream() *httptest.Server {
	piece := make([]byte, 64<<10)
	mux := http.NewServeMux()
	mux.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(piece[:1000]) })
	mux.HandleFunc("/bulk", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(bulkMB<<20))
		for range bulkMB << 20 / len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			if _, err := io.WriteString(w, "data: x\n\n"); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(time.Second):
			}
		}
	})
	s := httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = false
	s.StartTLS()
	return s
}

// roots are those that trust a server, and more certificates.
func roots(of *httptest.Server, more ...[]byte) *x509.CertPool {
	pool := x509.NewCertPool()
	if of != nil {
		pool.AddCert(of.Certificate())
	}
	for _, pem := range more {
		pool.AppendCertsFromPEM(pem)
	}
	return pool
}

// carrier is a proxy as a sandbox has one, with one connection of the machine for each that
// is dialled.
type carrier struct {
	p  *proxy.Proxy
	ca *proxy.Authority
}

// newCarrier returns one that reaches one server, by whatever name. Handlers serve hosts in it.
func newCarrier(to string, trusted *x509.CertPool, local map[string]http.Handler) (carrier, error) {
	ca, err := proxy.NewAuthority(bytes.Repeat([]byte{7}, 32), "bench", time.Now)
	if err != nil {
		return carrier{}, err
	}
	rules, err := egress.Compile(egress.Policy{Profile: egress.Open})
	if err != nil {
		return carrier{}, err
	}
	return carrier{proxy.New(proxy.Config{
		Sandbox: "bench", CA: ca, Roots: trusted, Decided: func(proxy.Decision) {},
		Rules: func() *egress.Rules { return rules },
		Local: func(host string) http.Handler { return local[host] },
		Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("203.0.113.1")}, nil
		},
		Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", to)
		},
	}), ca}, nil
}

// address is what the sandbox is told of a name.
func (c carrier) address(name string) (netip.Addr, error) {
	n, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return netip.Addr{}, err
	}
	q, err := (&dnsmessage.Message{Questions: []dnsmessage.Question{{Name: n, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}).Pack()
	if err != nil {
		return netip.Addr{}, err
	}
	var m dnsmessage.Message
	if err := m.Unpack(c.p.Answer(q)); err != nil {
		return netip.Addr{}, err
	}
	if len(m.Answers) != 1 {
		return netip.Addr{}, fmt.Errorf("%s has %d addresses", name, len(m.Answers))
	}
	a, ok := m.Answers[0].Body.(*dnsmessage.AResource)
	if !ok {
		return netip.Addr{}, fmt.Errorf("%s has no address", name)
	}
	return netip.AddrFrom4(a.A), nil
}

// dial opens a connection in the sandbox.
func (c carrier) dial(ctx context.Context, name string, port uint16) (net.Conn, error) {
	address, err := c.address(name)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	inside, err := ln.Accept()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go c.p.Serve(context.Background(), inside, netip.AddrPortFrom(address, port))
	return conn, nil
}

func transport(pool *x509.CertPool, dial func(ctx context.Context) (net.Conn, error)) *http.Transport {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: hostName}, DisableCompression: true}
	if dial != nil {
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	}
	return tr
}

func to(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
}

// routes are all ways to a server, the first without anything between.
func (b *bench) routes(up *httptest.Server) (list []route, err error) {
	addr := up.Listener.Addr().String()
	c, err := newCarrier(addr, roots(up), nil)
	if err != nil {
		return nil, err
	}
	back := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Transport: transport(roots(up), to(addr)), FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: hostName}) },
	})
	back.StartTLS()
	list = []route{
		{"direct", "https://" + hostName, transport(roots(up), to(addr)), up.Close},
		{"skete's proxy", "https://" + hostName, transport(roots(nil, c.ca.PEM()), func(ctx context.Context) (net.Conn, error) { return c.dial(ctx, hostName, 443) }), c.p.Close},
		{"peer: reverse proxy of net/http", "https://" + hostName, transport(roots(back), to(back.Listener.Addr().String())), back.Close},
	}
	peer, err := b.goproxy(up.URL)
	if err != nil {
		b.Skipped("peer: goproxy", "ms", err.Error())
		return list, nil
	}
	return append(list, peer), nil
}

// goproxy starts the peer. It runs in a process of its own, and is not transparent: the
// client knows of it.
func (b *bench) goproxy(url string) (route, error) {
	path := filepath.Join(b.peers, "goproxy")
	if _, err := os.Stat(path); err != nil {
		return route{}, errors.New("scripts/peers did not build it")
	}
	cmd := exec.CommandContext(b.ctx, path)
	in, err := cmd.StdinPipe()
	if err != nil {
		return route{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return route{}, err
	}
	if err := cmd.Start(); err != nil {
		return route{}, err
	}
	var said []byte
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "" {
		said = append(append(said, lines.Bytes()...), '\n')
	}
	addr, pem, _ := bytes.Cut(said, []byte("\n"))
	tr := transport(roots(nil, pem), nil)
	tr.TLSClientConfig.ServerName = ""
	tr.Proxy = http.ProxyURL(mustURL("http://" + string(addr)))
	return route{"peer: goproxy", url, tr, func() {
		_ = in.Close()
		_ = cmd.Wait()
	}}, nil
}

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err) // a broken program
	}
	return u
}

// get reads an answer to its end.
func (r route) get(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return err
	}
	res, err := r.tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", res.Status)
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// network measures what the proxy adds to a request.
func (b *bench) network() error {
	list, err := b.routes(upstream())
	if err != nil {
		return err
	}
	defer func() {
		for _, r := range slices.Backward(list) {
			r.tr.CloseIdleConnections()
			r.close()
		}
	}()
	for _, m := range []struct {
		what, target string
		n            int
		fresh        bool
		path         string
	}{
		{"request on a kept connection", "p50 <= 1 ms", b.count(2000), false, "/small"},
		{"request on a new connection", "p50 <= 3 ms", b.count(300), true, "/small"},
		{fmt.Sprintf("%d MB on a kept connection", bulkMB), "", max(b.count(10), 3), false, "/bulk"},
	} {
		took := make([][]time.Duration, len(list))
		for i := range m.n + 1 {
			for j, r := range list {
				if m.fresh {
					r.tr.CloseIdleConnections()
				}
				d, err := timed(func() error { return r.get(b.ctx, m.path) })
				if err != nil {
					return fmt.Errorf("%s: %w", r.name, err)
				}
				if i > 0 { // the first finds nothing kept
					took[j] = append(took[j], d)
				}
			}
		}
		p50 := make([]float64, len(list))
		for j, r := range list {
			p50[j] = b.Millis("network: "+m.what+", "+r.name, took[j], "", "TLS on both sides, HTTP/1.1, loopback, in turns")
		}
		for j, r := range list[1:] {
			name, target := "network: "+m.what+", added by "+r.name+" (p50)", m.target
			if j > 0 {
				target = ""
			}
			if m.path == "/bulk" {
				b.Value("network: "+m.what+", "+r.name, bulkMB/p50[j+1]*1000, "MB/s", []string{">= 200 MB/s", "", ""}[j], "")
				continue
			}
			b.Value(name, p50[j+1]-p50[0], "ms", target, "")
		}
	}
	return b.streams()
}

// streams measures what proxies of many sandboxes take, in a process of their own, with a
// stream open in each.
func (b *bench) streams() error {
	up := upstream()
	defer up.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(b.ctx, self, "-child", "proxies,"+up.Listener.Addr().String())
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	idle, err := rss(cmd.Process.Pid)
	if err != nil {
		return err
	}
	for range streamsOf {
		tr := transport(nil, to(strings.TrimSpace(addr)))
		tr.TLSClientConfig.InsecureSkipVerify = true // the authority is the child's
		defer tr.CloseIdleConnections()
		req, err := http.NewRequestWithContext(b.ctx, http.MethodGet, "https://"+hostName+"/stream", nil)
		if err != nil {
			return err
		}
		res, err := tr.RoundTrip(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if _, err := res.Body.Read(make([]byte, 16)); err != nil {
			return err
		}
	}
	select {
	case <-time.After(5 * time.Second): // some events of each
	case <-b.ctx.Done():
	}
	busy, err := rss(cmd.Process.Pid)
	if err != nil {
		return err
	}
	b.Value(fmt.Sprintf("network: proxies of %d sandboxes, a live stream in each, above idle", streamsOf), busy-idle, "MB", "<= 30 MB", fmt.Sprintf("of a process of their own, %.1f MB idle", idle))
	return nil
}

// proxies is a child: it has the proxies of many sandboxes, and gives each connection to
// another one.
func proxies(up string) error {
	pool := x509.NewCertPool()
	if s := httptest.NewUnstartedServer(nil); s != nil { // all of them have the same certificate
		s.StartTLS()
		pool = roots(s)
		s.Close()
	}
	var all []carrier
	for range streamsOf {
		c, err := newCarrier(up, pool, nil)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = ln.Close()
	}()
	fmt.Println(ln.Addr())
	for i := 0; ; i++ {
		conn, err := ln.Accept()
		if err != nil {
			return nil
		}
		go all[i%len(all)].p.Serve(context.Background(), conn, netip.MustParseAddrPort("203.0.113.1:443"))
	}
}

// rss is the memory of a process, in MB.
func rss(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(v)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, errors.New("the kernel does not say how much memory a process has")
}

// oneModel is a catalogue of one model.
type oneModel struct{ of catalog.Endpoint }

// Endpoint implements gateway.Models.
func (m oneModel) Endpoint(context.Context, string) (catalog.Endpoint, error) { return m.of, nil }

// firstToken measures what the gateway adds to the first piece of a model's answer: as
// programs in a sandbox have it, behind its proxy, and beside a plain reverse proxy.
func (b *bench) firstToken() error {
	const answer = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, answer)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
	}))
	defer up.Close()
	g, err := gateway.New(b.ctx, gateway.Config{
		Models: oneModel{catalog.Endpoint{Info: llm.Info{Name: "fast", Vendor: catalog.Compat, ID: "fast-1", OutputTokensMax: 100}, URL: up.URL}},
		Seed:   bytes.Repeat([]byte{7}, 32), Store: kvtest.NewMemory(),
	})
	if err != nil {
		return err
	}
	door := g.Door(gateway.Client{Tenant: "t", Sandbox: "sbx_a", Grant: gateway.Grant{Models: []string{"fast"}, Budget: gateway.Budget{Tokens: 1 << 40}}})
	c, err := newCarrier(up.Listener.Addr().String(), nil, map[string]http.Handler{gateway.Host: door})
	if err != nil {
		return err
	}
	defer c.p.Close()
	peer := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(mustURL(up.URL)) }}
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // else it cuts an answer off now and then, on a busy host
		peer.ServeHTTP(w, r)
	}))
	defer back.Close()
	list := []route{
		{name: "direct", url: up.URL + "/v1", tr: &http.Transport{}},
		{name: "skete's gateway", url: "http://" + gateway.Host + "/openai/v1", tr: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx, gateway.Host, 80) }}},
		{name: "peer: reverse proxy of net/http", url: back.URL + "/v1", tr: &http.Transport{}},
	}
	for _, kb := range []int{2, 200} {
		body := `{"model":"fast","stream":true,"messages":[` + strings.Repeat(`{"role":"user","content":"`+strings.Repeat("a word ", 140)+`"},`, kb) + `{"role":"user","content":"Go on."}]}`
		took := make([][]time.Duration, len(list))
		for i := range b.count(1000) + 1 {
			for j, r := range list {
				d, err := r.first(b.ctx, g.Token("t", "sbx_a"), body)
				if err != nil {
					return fmt.Errorf("%s: %w", r.name, err)
				}
				if i > 0 {
					took[j] = append(took[j], d)
				}
			}
		}
		what := fmt.Sprintf("network: first token of a model, request of %d KB, ", kb)
		p50 := make([]float64, len(list))
		for j, r := range list {
			p50[j] = b.Millis(what+r.name, took[j], "", "of a server that answers at once, loopback, in turns")
		}
		b.Value(what+"added by skete's gateway (p50)", p50[1]-p50[0], "ms", "<= 1 ms", "a sandbox's proxy included")
		b.Value(what+"added by "+list[2].name+" (p50)", p50[2]-p50[0], "ms", "", "")
	}
	for _, r := range list {
		r.tr.CloseIdleConnections()
	}
	return g.Close(b.ctx)
}

// first asks a model, and returns how long its answer's first bytes took.
func (r route) first(ctx context.Context, key, body string) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	res, err := r.tr.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = res.Body.Read(make([]byte, 5))
	took := time.Since(began)
	text, rest := io.ReadAll(res.Body)
	if err := errors.Join(err, rest); err != nil || res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the answer is %s %.200q, %w", res.Status, text, err)
	}
	return took, nil
}

// networks measures what a network adds to a machine: to a cold create, and to one that
// finds a warm machine.
func (b *bench) networks(s *server) error {
	profiles := []string{egress.None, egress.Default}
	took := make([][]time.Duration, len(profiles))
	made := func(profile string) (time.Duration, error) {
		var sb *client.Sandbox
		d, err := timed(func() error {
			info, err := s.c.CreateSandbox(b.ctx, api.CreateSandbox{Require: "user-kernel", MemoryMB: 512, Network: profile})
			if err != nil {
				return err
			}
			sb = s.c.Sandbox(info.ID)
			return sb.Command("/bin/true").Run(b.ctx)
		})
		if err != nil {
			return 0, err
		}
		return d, sb.Destroy(b.ctx)
	}
	for i := range b.count(60) + 1 {
		for j, profile := range profiles {
			d, err := made(profile)
			if err != nil {
				return err
			}
			if i > 0 {
				took[j] = append(took[j], d)
			}
		}
	}
	none := b.Millis("network: create to first command done, none, gVisor", took[0], "", "in turns")
	usual := b.Millis("network: create to first command done, default, gVisor", took[1], "", "in turns")
	b.Value("network: added to a create by the profile default, gVisor (p50)", usual-none, "ms", "<= 15 ms", "")
	return nil
}
