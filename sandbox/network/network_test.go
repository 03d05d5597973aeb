package network_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/egress/proxy"
	"github.com/skete-dev/skete/egress/registry"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/event/eventtest"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/network"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const host, box = sandbox.ID("sbx_host"), sandbox.ID("sbx_box")

// world is a service over one host of the public network, api.example.com, which says
// hello, and the sandboxes that its machines are of.
type world struct {
	*network.Service
	t      *testing.T
	ctx    context.Context
	cancel func()
	web    net.Addr
	events *eventtest.Memory
	now    time.Time // it stands still
	mu     sync.Mutex
	of     map[sandbox.ID]network.Owner
	found  func() // called once when a machine was looked up first; nil = nothing is
}

func newWorld(t *testing.T, p egress.Policy) *world {
	t.Helper()
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go web.Serve(ln)
	t.Cleanup(func() { web.Close() })
	w := newPrivateWorld(t, p)
	w.web = ln.Addr()
	return w
}

// newPrivateWorld is newWorld without its host.
func newPrivateWorld(t *testing.T, p egress.Policy) *world {
	t.Helper()
	w := &world{
		t: t, events: eventtest.NewMemory(), now: time.Now(),
		of: map[sandbox.ID]network.Owner{host: {Tenant: "default", ID: box, Name: "web", Policy: p}},
	}
	w.ctx, w.cancel = context.WithCancel(t.Context())
	w.serve()
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

// serve makes the service of a server.
func (w *world) serve() {
	w.t.Helper()
	var err error
	w.Service, err = network.New(w.t.Context(), network.Config{
		Seed: bytes.Repeat([]byte{7}, 32), Events: w.events, Await: true,
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.now
		},
		Find: func(h sandbox.ID) (network.Owner, bool) {
			w.mu.Lock()
			o, ok := w.of[h]
			f := w.found
			w.found = nil
			w.mu.Unlock()
			if f != nil {
				f()
			}
			return o, ok
		},
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			if name != "api.example.com" {
				return nil, errors.New("no such host")
			}
			return []netip.Addr{netip.MustParseAddr("203.0.113.1")}, nil
		},
		Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", w.web.String())
		},
	})
	must(w.t, err)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// own says which sandbox a machine is of.
func (w *world) own(h sandbox.ID, o network.Owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[h] = o
}

// open opens a stream from a machine to a port of its host.
func (w *world) open(h sandbox.ID, port uint32) (net.Conn, *bufio.Reader, string) {
	w.t.Helper()
	guest, server := net.Pipe()
	w.t.Cleanup(func() { guest.Close() })
	go w.Serve(h, server, port)
	must(w.t, guest.SetDeadline(time.Now().Add(time.Minute)))
	br := bufio.NewReader(guest)
	line, err := br.ReadString('\n')
	must(w.t, err)
	return guest, br, strings.TrimSpace(line)
}

// get asks the public host for a page.
func (w *world) get(h sandbox.ID) (status int, body string) {
	w.t.Helper()
	at := w.resolve(h)
	conn, br := w.granted(h)
	defer conn.Close()
	_, err := fmt.Fprintf(conn, "tcp %s:80\nGET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n", at)
	must(w.t, err)
	res, err := http.ReadResponse(br, nil)
	must(w.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	must(w.t, err)
	return res.StatusCode, string(b)
}

// resolve asks for the address of the public host.
func (w *world) resolve(h sandbox.ID) netip.Addr {
	w.t.Helper()
	conn, br := w.granted(h)
	defer conn.Close()
	q, err := (&dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("api.example.com."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}).Pack()
	must(w.t, err)
	_, err = conn.Write(append([]byte("dns\n"), append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)...))
	must(w.t, err)
	var size [2]byte
	_, err = io.ReadFull(br, size[:])
	must(w.t, err)
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err = io.ReadFull(br, answer)
	must(w.t, err)
	var m dnsmessage.Message
	must(w.t, m.Unpack(answer))
	if len(m.Answers) != 1 {
		w.t.Fatalf("the answer is %+v", m)
	}
	return netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A)
}

// granted opens a stream to the network.
func (w *world) granted(h sandbox.ID) (net.Conn, *bufio.Reader) {
	w.t.Helper()
	conn, br, line := w.open(h, wire.NetworkPort)
	if want := fmt.Sprintf("OK %d", wire.NetworkPort); line != want {
		w.t.Fatalf("the host says %q", line)
	}
	return conn, br
}

func allow(host string) egress.Policy { return egress.Policy{Allow: []egress.Rule{{Host: host}}} }

// A policy counts from the next request on, and the machine is not asked.
func TestChanged(t *testing.T) {
	w := newWorld(t, egress.Policy{})
	if status, body := w.get(host); status != http.StatusForbidden || !strings.Contains(body, "skete egress allow web ") {
		t.Errorf("%d %q", status, body)
	}
	w.own(host, network.Owner{ID: box, Name: "web", Policy: allow("api.example.com")})
	must(t, w.Changed(host))
	if status, body := w.get(host); status != http.StatusOK || body != "hello" {
		t.Errorf("%d %q", status, body)
	}
	w.own(host, network.Owner{ID: box, Name: "web", Policy: egress.Policy{Profile: "wrong"}})
	if err := w.Changed(host); err == nil {
		t.Error("a policy that is wrong is taken")
	}
	if status, _ := w.get(host); status != http.StatusOK {
		t.Errorf("and what was in force is not: %d", status)
	}
	must(t, w.Changed("sbx_other")) // which has not connected yet
}

// A policy that changes while a machine's first connection comes is not lost.
func TestChanged_meanwhile(t *testing.T) {
	w := newWorld(t, allow("api.example.com"))
	w.found = func() {
		w.own(host, network.Owner{ID: box, Name: "web"})
		must(t, w.Changed(host)) // it is not there yet
	}
	if status, _ := w.get(host); status != http.StatusForbidden {
		t.Errorf("%d", status)
	}
}

// What the profile default allows is known soon after a server starts, in two stages: what
// it would refuse waits for them, and it may change later.
func TestSetRegistries(t *testing.T) {
	w := newWorld(t, egress.Policy{Profile: egress.Default})
	done := make(chan int)
	get := func(h sandbox.ID) {
		status, _ := w.get(h)
		done <- status
	}
	waits := func(when string) {
		t.Helper()
		select {
		case status := <-done:
			t.Fatalf("%s it does not wait, and says %d", when, status)
		case <-time.After(50 * time.Millisecond):
		}
	}
	go get(host)
	waits("when nothing is known")
	w.own("sbx_allowed", network.Owner{ID: "sbx_allowed", Name: "allowed", Policy: egress.Policy{Profile: egress.Default, Allow: allow("api.example.com").Allow}})
	w.own("sbx_none", network.Owner{ID: "sbx_none", Name: "none", Policy: egress.Policy{Profile: egress.None}})
	for h, want := range map[sandbox.ID]int{"sbx_allowed": http.StatusOK, "sbx_none": http.StatusForbidden} {
		if status, _ := w.get(h); status != want {
			t.Errorf("%s, meanwhile: %d", h, status)
		}
	}
	w.SetRegistries(registry.Set{Sources: []registry.Source{{Tool: "npm", URL: "http://other.example.com/"}}}, network.Asked)
	waits("when hosts of files are not known")
	set := registry.Set{Sources: []registry.Source{{Tool: "npm", URL: "http://other.example.com/", Hosts: []string{"api.example.com"}}}}
	w.SetRegistries(set, network.Followed)
	if status := <-done; status != http.StatusOK {
		t.Errorf("%d", status)
	}
	if d := w.Decisions(box, 0); len(d) != 1 || d[0].Rule != "default: api.example.com read" {
		t.Errorf("%+v", d)
	}
	w.SetRegistries(registry.Set{}, network.Asked)
	if status, _ := w.get(host); status != http.StatusForbidden {
		t.Errorf("of a registry that is not configured any more: %d", status)
	}
}

// What is known when the package managers were asked is allowed then.
func TestSetRegistries_asked(t *testing.T) {
	w := newWorld(t, egress.Policy{Profile: egress.Default})
	done := make(chan int)
	go func() {
		status, _ := w.get(host)
		done <- status
	}()
	time.AfterFunc(50*time.Millisecond, func() {
		w.SetRegistries(registry.Set{Sources: []registry.Source{{Tool: "npm", URL: "http://api.example.com/"}}}, network.Asked)
	})
	if status := <-done; status != http.StatusOK {
		t.Errorf("%d", status)
	}
}

// A request that waits ends with its machine, with the service, and when it is over.
func TestSetRegistries_never(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(*world)
		after  time.Duration
		status int // 0 = the connection ends
	}{
		"nothing is said": {func(*world) {}, 30 * time.Second, http.StatusForbidden},
		"nothing is found": {func(w *world) {
			<-time.After(time.Second)
			w.SetRegistries(registry.Set{}, network.Asked)
			w.SetRegistries(registry.Set{}, network.Followed)
		}, time.Second, http.StatusForbidden},
		"another policy": {func(w *world) {
			w.own(host, network.Owner{ID: box, Policy: egress.Policy{Profile: egress.None}})
			w.SetRegistries(registry.Set{}, network.Asked)
		}, 0, http.StatusForbidden},
		"detached": {func(w *world) { w.Detach(host) }, 0, 0},
		"closed":   {func(w *world) { must(t, w.Close()) }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, w := time.Now(), newPrivateWorld(t, egress.Policy{Profile: egress.Default})
				at := w.resolve(host)
				conn, br := w.granted(host)
				_, err := fmt.Fprintf(conn, "tcp %s:80\nGET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", at)
				must(t, err)
				synctest.Wait()
				c.end(w)
				status := 0
				if res, err := http.ReadResponse(br, nil); err == nil {
					status = res.StatusCode
					res.Body.Close()
				}
				if took := time.Since(began); status != c.status || took != c.after {
					t.Errorf("%d after %s", status, took)
				}
			})
		})
	}
}

// A machine is given the mirrors of the host's package managers, for which the first ones
// of a server wait; not for long, and not those that may reach none.
func TestMachine(t *testing.T) {
	set := registry.Set{Env: map[string]string{"GOPROXY": "off"}, Files: map[string]string{"/f": "x"}}
	asked := func(stage network.Stage) func(*world) {
		return func(w *world) {
			<-time.After(time.Second)
			w.SetRegistries(set, stage)
		}
	}
	for name, c := range map[string]struct {
		profile string
		end     func(*world)
		after   time.Duration
		given   bool
	}{
		"default":      {egress.Default, asked(network.Asked), time.Second, true},
		"all at once":  {egress.Default, asked(network.Followed), time.Second, true},
		"open":         {egress.Open, asked(network.Asked), time.Second, true},
		"none":         {egress.None, asked(network.Asked), 0, false},
		"no profile":   {"", asked(network.Asked), 0, false},
		"never":        {egress.Default, func(*world) {}, 20 * time.Second, false},
		"context ends": {egress.Default, func(w *world) { <-time.After(time.Second); w.cancel() }, time.Second, false},
		"server stops": {egress.Default, func(w *world) { <-time.After(time.Second); must(t, w.Close()) }, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, w := time.Now(), newPrivateWorld(t, egress.Policy{})
				var end sync.WaitGroup
				end.Go(func() { c.end(w) })
				m := w.Machine(w.ctx, sandbox.Info{Spec: sandbox.Spec{Network: c.profile}})
				if took := time.Since(began); took != c.after || c.given != (m.Env["GOPROXY"] == "off" && m.Files["/f"] == "x") || m.Authority == "" {
					t.Errorf("after %s it is given %+v", took, m)
				}
				end.Wait()
				if c.given {
					w.Machine(w.ctx, sandbox.Info{Spec: sandbox.Spec{Network: c.profile}})
					if took := time.Since(began); took != c.after {
						t.Errorf("the next one waits until %s", took)
					}
				}
			})
		})
	}
}

// What is refused whatever is known is refused at once.
func TestSetRegistries_addresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, w := time.Now(), newPrivateWorld(t, egress.Policy{Profile: egress.Default})
		conn, br := w.granted(host)
		_, err := io.WriteString(conn, "tcp 169.254.169.254:80\nGET / HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
		must(t, err)
		res, err := http.ReadResponse(br, nil)
		must(t, err)
		res.Body.Close()
		if took := time.Since(began); res.StatusCode != http.StatusForbidden || took != 0 {
			t.Errorf("%d after %s", res.StatusCode, took)
		}
	})
}

// Where nothing says what registries there are, nothing waits.
func TestMachine_withoutAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s, err := network.New(t.Context(), network.Config{Seed: bytes.Repeat([]byte{7}, 32)})
		must(t, err)
		s.Machine(t.Context(), sandbox.Info{Spec: sandbox.Spec{Network: egress.Default}})
		if took := time.Since(began); took != 0 {
			t.Errorf("it waits for %s", took)
		}
		must(t, s.Close())
	})
}

// Each machine is held to the policy of its own sandbox.
func TestServe_machinesAreApart(t *testing.T) {
	w := newWorld(t, allow("api.example.com"))
	w.own("sbx_other", network.Owner{ID: "sbx_other", Name: "other"})
	if status, _ := w.get(host); status != http.StatusOK {
		t.Errorf("%d", status)
	}
	if status, _ := w.get("sbx_other"); status != http.StatusForbidden {
		t.Errorf("%d", status)
	}
	if n := len(w.Decisions("sbx_other", 0)); n != 1 {
		t.Errorf("%d decisions are told of it", n)
	}
}

func TestServe_refuses(t *testing.T) {
	w := newWorld(t, egress.Policy{})
	w.own("sbx_bad", network.Owner{ID: "sbx_bad", Policy: egress.Policy{Profile: "wrong"}})
	for name, tt := range map[string]struct {
		host sandbox.ID
		port uint32
		want string
	}{
		"another port":    {host, 22, "NO unavailable the host serves nothing at port 22"},
		"of no sandbox":   {"sbx_unknown", wire.NetworkPort, "NO unavailable the machine is of no sandbox"},
		"a policy's flaw": {"sbx_bad", wire.NetworkPort, "NO invalid the network policy: profile: "},
	} {
		conn, br, line := w.open(tt.host, tt.port)
		if !strings.HasPrefix(line, tt.want) {
			t.Errorf("%s: %q", name, line)
		}
		if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the stream stays open: %v", name, err)
		}
		conn.Close()
	}
}

// What is open ends with the machine, and with the service.
func TestDetach(t *testing.T) {
	w := newWorld(t, allow("api.example.com"))
	waits(t, w, "detach", func() { w.Detach(host) })
	if status, _ := w.get(host); status != http.StatusOK {
		t.Errorf("the next machine by that name has no network: %d", status)
	}
	waits(t, w, "close", func() { must(t, w.Close()) })
	if _, _, line := w.open(host, wire.NetworkPort); line != "NO unavailable the server stops" {
		t.Errorf("%q", line)
	}
}

// waits opens a stream and looks that it ends.
func waits(t *testing.T, w *world, name string, end func()) {
	t.Helper()
	conn, br := w.granted(host)
	_, err := io.WriteString(conn, "dns\n")
	must(t, err)
	end()
	if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%s: the stream goes on: %v", name, err)
	}
}

// Decisions alike in a row are one; what is kept is bounded, and gone with the sandbox.
func TestDecisions(t *testing.T) {
	w := newWorld(t, egress.Policy{})
	for range 3 {
		w.get(host)
	}
	list := w.Decisions(box, 0)
	if len(list) != 1 || list[0].Times != 3 || list[0].N != 1 || list[0].Allowed || list[0].Host != "api.example.com" {
		t.Fatalf("%+v", list)
	}
	w.own(host, network.Owner{ID: box, Name: "web", Policy: allow("api.example.com")})
	must(t, w.Changed(host))
	w.get(host)
	if list = w.Decisions(box, 2); len(list) != 1 || !list[0].Allowed || list[0].N != 2 || list[0].Rule == "" {
		t.Errorf("%+v", list)
	}
	if list = w.Decisions("sbx_other", 0); list != nil {
		t.Errorf("of another: %+v", list)
	}
	w.Forget(box)
	if list = w.Decisions(box, 0); list != nil {
		t.Errorf("after it is gone: %+v", list)
	}
}

// However much is refused at once, it does not hide that a secret was sent.
func TestEvents_secrets(t *testing.T) {
	w := newPrivateWorld(t, egress.Policy{})
	of := network.Owner{Tenant: "default", ID: box, Name: "web"}
	for i := range 1000 {
		w.Decide(of, proxy.Decision{Host: fmt.Sprintf("h%d.example.com", i), Why: "no rule allows it"})
	}
	w.Decide(of, proxy.Decision{Host: "api.example.com", Allowed: true, Secrets: "forge"})
	var last network.Decision
	must(t, w.events.Newest(t.Context(), event.Network, func(e event.Event) error { return json.Unmarshal(e.Data, &last) }))
	if last.Secrets != "forge" || last.N != 1001 {
		t.Errorf("the newest that was told is %+v", last)
	}
}

// What was decided is told, alike in a row once, of many a second some, and goes on in
// the next server.
func TestEvents(t *testing.T) {
	w := newWorld(t, egress.Policy{})
	for range 3 {
		w.get(host)
	}
	r := eventtest.Read(t, w.events, "default", event.Query{From: 1, Kind: event.Network})
	e := r.Next()
	var d network.Decision
	must(t, json.Unmarshal(e.Data, &d))
	if e.Type() != "network.refused" || e.ID != string(box) || e.Revision != 1 || d.Host != "api.example.com" || d.Why == "" || !e.Time.Equal(d.At) {
		t.Errorf("%+v of %+v", e, d)
	}
	decide := func(n int) {
		policies := []egress.Policy{allow("api.example.com"), {}}
		for i := range n {
			w.own(host, network.Owner{Tenant: "default", ID: box, Name: "web", Policy: policies[i%2]})
			must(t, w.Changed(host))
			w.get(host)
		}
	}
	told := func(want uint64, when string) {
		t.Helper()
		if next, err := w.events.Next(t.Context()); err != nil || next-1 != want {
			t.Errorf("%s: %d decisions were told, not %d; %v", when, next-1, want, err)
		}
	}
	decide(80)
	if list := w.Decisions(box, 0); len(list) != 81 {
		t.Errorf("%d decisions are kept", len(list))
	}
	told(30, "at once")
	w.mu.Lock()
	w.now = w.now.Add(3 * time.Second)
	w.mu.Unlock()
	decide(10)
	told(33, "three seconds later")
	must(t, w.Close())
	w.serve()
	decide(1)
	if list := w.Decisions(box, 0); len(list) != 1 || list[0].N != 85 {
		t.Errorf("in the next server: %+v", list)
	}
}

func TestNew_bad(t *testing.T) {
	if _, err := network.New(t.Context(), network.Config{Seed: make([]byte, 8)}); err == nil {
		t.Error("a seed of eight bytes is taken")
	}
}

// A machine has the variables of its sandbox beside those of mirrors, which win.
func TestMachine_variables(t *testing.T) {
	s, err := network.New(t.Context(), network.Config{Seed: bytes.Repeat([]byte{7}, 32), Env: func(i sandbox.Info) map[string]string {
		return map[string]string{"TOKEN": "for-" + i.Tenant, "GOPROXY": "off"}
	}})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	s.SetRegistries(registry.Set{Env: map[string]string{"GOPROXY": "https://mirror.example"}}, network.Followed)
	for _, tenant := range []string{"a", "b"} {
		want := map[string]string{"TOKEN": "for-" + tenant, "GOPROXY": "https://mirror.example"}
		if d := cmp.Diff(want, s.Machine(t.Context(), sandbox.Info{Tenant: tenant}).Env); d != "" {
			t.Error(d)
		}
	}
	if d := cmp.Diff(map[string]string{"GOPROXY": "https://mirror.example"}, s.Registries().Env); d != "" {
		t.Error(d)
	}
}
