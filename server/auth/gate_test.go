package auth

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
)

func request(peer peer, addr net.Addr) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	ctx := context.WithValue(r.Context(), http.LocalAddrContextKey, addr)
	if peer.local {
		ctx = context.WithValue(ctx, peerKey{}, peer)
	}
	return r.WithContext(ctx)
}

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7733}

// Another user of the machine may open the socket if its mode lets them; the
// kernel says who they are.
func TestSocketPeers(t *testing.T) {
	g := New(Config{Keys: key.NewRing(kvtest.NewMemory())})
	for _, tt := range []struct {
		uid int
		ok  bool
	}{{0, true}, {12345, false}, {-1, false}} {
		id, err := g.Admit(request(peer{local: true, uid: tt.uid}, &net.UnixAddr{}), key.Admin)
		if (err == nil) != tt.ok || tt.ok && (id.Tenant != "default" || !id.Local) {
			t.Errorf("uid %d: %+v, %v", tt.uid, id, err)
		}
		if err != nil && problem.Of(err).Status != http.StatusForbidden {
			t.Errorf("uid %d: status %d", tt.uid, problem.Of(err).Status)
		}
	}
}

// A key does not help who may not use the socket.
func TestForeignPeerWithKey(t *testing.T) {
	ring := key.NewRing(kvtest.NewMemory())
	secret, _, err := ring.Create(t.Context(), key.Request{Name: "x", Tenant: "default", Scopes: key.Scopes{key.Admin}})
	if err != nil {
		t.Fatal(err)
	}
	r := request(peer{local: true, uid: 12345}, &net.UnixAddr{})
	r.Header.Set("X-Api-Key", secret.Reveal())
	if _, err := New(Config{Keys: ring}).Admit(r, key.Read); !errs.Is(err, errs.Denied) {
		t.Errorf("err %v", err)
	}
}

func TestPlace(t *testing.T) {
	g := New(Config{Hosts: []string{"Box.Example"}})
	public := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 7733}
	for _, tt := range []struct {
		host string
		addr net.Addr
		ok   bool
	}{
		{"127.0.0.1:7733", loopback, true},
		{"127.8.9.1", loopback, true},
		{"[::1]:7733", loopback, true},
		{"localhost", loopback, true},
		{"box.example", loopback, true},
		{"box.example:7733", loopback, true},
		{"BOX.EXAMPLE", loopback, true},
		{"", loopback, false},
		{"evil.example", loopback, false},
		{"127.0.0.1.evil.example", loopback, false},
		{"0.0.0.0", loopback, false},
		{"[::1", loopback, true},
		{"localhost.", loopback, false},
		{"notlocalhost", loopback, false},
		{"evil.example", public, true},
	} {
		r := request(peer{}, tt.addr)
		r.Host = tt.host
		if err := g.Place(r); (err == nil) != tt.ok {
			t.Errorf("host %q at %s: %v", tt.host, tt.addr, err)
		}
	}
}

func TestFailuresLeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailures(3)
		for i := range 3 {
			if wait := f.note("a"); wait != 0 {
				t.Errorf("failure %d has to wait %s", i, wait)
			}
		}
		if f.note("a") == 0 {
			t.Error("the fourth needs not wait")
		}
		if f.note("b") != 0 {
			t.Error("another address has to wait")
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // synctest: the bubble's clock
		if f.note("a") != 0 {
			t.Error("it has to wait for ever")
		}
	})
}

func TestFailuresAreBounded(t *testing.T) {
	f := newFailures(3)
	for i := range addressesMax * 2 {
		f.note(fmt.Sprint(i))
	}
	if n := len(f.buckets); n > addressesMax {
		t.Errorf("%d addresses are kept", n)
	}
}
