package guest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

func TestParse_listenersOnly(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 0100007F:0050 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   2: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   3: xyz:0016 00000000:0000 0A 0:0 00:0 0 0
   4: 0100007F:0000 00000000:0000 0A 0:0 00:0 0 0
   5: 0100007F 00000000:0000 0A 0:0 00:0 0 0
   6: 0100007F:1F90 00000000:0000 0A 0:0 00:0 0 -1
`
	got, err := parsePorts(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	want := []*wire.OpenPort{{Port: 8080, Address: "127.0.0.1", Uid: 1000}, {Port: 22, Address: "::1"}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if _, err := parsePorts(strings.NewReader(strings.Repeat("x", 2*portLineBytesMax))); err == nil {
		t.Error("a line without end passes")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1")
	f.Fuzz(func(t *testing.T, s string) {
		ports, _ := parsePorts(strings.NewReader(s))
		for _, p := range ports {
			if p.Port == 0 || p.Port > wire.TCPPortMax || p.Address == "" {
				t.Fatalf("%v", p)
			}
		}
	})
}

func listen(t *testing.T, address string) (net.Listener, uint32) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("cannot listen on %s here: %v", address, err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln, uint32(ln.Addr().(*net.TCPAddr).Port)
}

func TestWatch_tellsOfOpenAndClose(t *testing.T) {
	ln, port := listen(t, "127.0.0.1:0")
	ctx, cancel := patience.Context(context.Background(), 30*time.Second)
	defer cancel()
	stop := errors.New("seen")
	opened := false
	err := portWatch(ctx, listPorts, func(e *wire.WatchPortsResponse) error {
		if e.GetOpened().GetPort() == port {
			opened = true
			ln.Close()
		}
		if e.GetClosed().GetPort() == port && opened {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		t.Fatalf("opened: %v, then %v", opened, err)
	}
}

func TestList_leavesTheSupervisorsOwn(t *testing.T) {
	_, own := listen(t, "127.0.0.1:0")
	_, other := listen(t, "127.0.0.1:0")
	s := newPortService(func(at netip.AddrPort) bool {
		return at == netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(own))
	})
	list, err := s.list()
	if err != nil {
		t.Fatal(err)
	}
	has := func(port uint32) bool {
		return slices.ContainsFunc(list, func(p *wire.OpenPort) bool { return p.Port == port && p.Address == "127.0.0.1" })
	}
	if has(own) || !has(other) {
		t.Errorf("the list has the supervisor's own port: %v, and a program's: %v", has(own), has(other))
	}
}

func TestForward_carriesBothWaysAndHalfCloses(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, port := listen(t, address)
		go func() { // an echo that answers only when it has all
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			data, _ := io.ReadAll(conn)
			_, _ = conn.Write(data)
		}()
		host, guest := unixPair(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if p, err := wire.Accept(guest); err == nil {
				forwardPort(context.Background(), guest, p)
			}
		}()
		if err := wire.Connect(host, port, time.Time{}); err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 3<<20)
		_, _ = rand.Read(data)
		go func() {
			_, _ = host.Write(data)
			_ = host.CloseWrite()
		}()
		if got, err := io.ReadAll(host); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes of %d, %v", address, len(got), len(data), err)
		}
		host.Close()
		<-done
	}
}

func TestForward_refusesWhereNobodyListens(t *testing.T) {
	ln, port := listen(t, "127.0.0.1:0")
	ln.Close()
	host, guest := unixPair(t)
	go func() {
		if p, err := wire.Accept(guest); err == nil {
			forwardPort(context.Background(), guest, p)
		}
	}()
	if err := wire.Connect(host, port, time.Time{}); !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "nothing listens") {
		t.Errorf("%v", err)
	}
}

func TestForward_endsWithItsContext(t *testing.T) {
	ln, port := listen(t, "127.0.0.1:0")
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := ln.Accept(); err == nil {
			accepted <- conn
		}
	}()
	host, guest := unixPair(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		forwardPort(ctx, guest, port)
	}()
	if err := wire.Connect(host, port, time.Time{}); err != nil {
		// Connect wrote its preamble into the stream: only the answer counts here.
		t.Fatal(err)
	}
	cancel()
	<-done
	(<-accepted).Close()
	host.Close()
}

func unixPair(t *testing.T) (*net.UnixConn, *net.UnixConn) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.DialUnix("unix", nil, ln.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	b, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}
