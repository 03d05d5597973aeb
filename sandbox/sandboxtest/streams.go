package sandboxtest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
)

// hostPort is the port that ServeGuest serves.
const hostPort = 70_000

// ServeGuest serves the streams of the suite's machines: it says whose the stream
// is, and sends back what comes. Providers of a Fixture are made with it.
func ServeGuest(id sandbox.ID, conn net.Conn, port uint32) {
	defer conn.Close()
	if port != hostPort && port != wire.NetworkPort {
		_ = wire.Refuse(conn, errs.New(errs.Denied, "port %d is not served", port))
		return
	}
	if wire.Grant(conn, port) != nil {
		return
	}
	if port == wire.NetworkPort {
		serveNetwork(id, conn)
		return
	}
	_, _ = fmt.Fprintf(conn, "%s\n", id)
	_, _ = io.Copy(conn, conn)
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// Programs open streams to a port of the host, which knows whose they are; a
// later server serves them too, and a later supervise of the guest.
func testStreamsOfTheGuest(s *suite) {
	if s.p.Capabilities().Isolation == sandbox.Remote {
		if _, err := s.p.Create(s.Context(), s.boot(func(b *sandbox.Boot) { b.Forwards = []wire.Forward{{Listen: "unix:@x", Port: hostPort}} })); !errs.Is(err, errs.Unsupported) {
			s.Errorf("a forward of a machine elsewhere: %v", err)
		}
		return
	}
	// A machine without an isolated network has its names with others.
	places := func(b *sandbox.Boot) (string, string) {
		return "@host-" + string(b.ID), "@other-" + string(b.ID)
	}
	forward := func(b *sandbox.Boot) {
		served, other := places(b)
		b.Forwards = []wire.Forward{{Listen: "unix:" + served, Port: hostPort}, {Listen: "unix:" + other, Port: 1}}
	}
	b := s.boot(forward)
	served, other := places(&b)
	tool := s.tool(b)
	m, g := s.create(b)
	ask := func(when string) {
		s.Helper()
		res := g.Run(tool, "ask", served, "1000000")
		if want := string(b.ID) + "\n1000000 bytes came back\n"; res.Code != 0 || res.Stdout != want {
			s.Fatalf("%s: status %d, %q, %s; want %q", when, res.Code, res.Stdout, res.Stderr, want)
		}
	}
	ask("at first")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if res := g.Run(tool, "ask", served, "300000"); res.Code != 0 || !strings.HasPrefix(res.Stdout, string(b.ID)+"\n") {
				s.Errorf("beside others: status %d, %q, %s", res.Code, res.Stdout, res.Stderr)
			}
		})
	}
	wg.Wait()
	if res := g.Run(tool, "ask", other, "10"); res.Code == 0 || strings.Contains(res.Stdout, "came back") {
		s.Errorf("a port that the host does not serve: status %d, %q", res.Code, res.Stdout)
	}
	g.Client.Close()
	must(s, m.Close())
	must(s, s.p.Close())
	s.p = s.New(s)
	next := s.p
	s.Cleanup(func() { _ = next.Close() })
	ctx, cancel := patience.Context(s.Context(), 30*time.Second)
	defer cancel()
	m, err := next.Attach(ctx, b.ID)
	must(s, err)
	g = NewGuest(s, m)
	_, err = g.Hello(ctx)
	must(s, err)
	ask("after a restart of the server")
}
