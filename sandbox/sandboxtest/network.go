package sandboxtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
)

// namesAt is what every name is the name of in the suite's machines.
var namesAt = [4]byte{198, 18, 0, 7}

// authority stands for a certificate: nothing reads it here.
const authority = "-----BEGIN CERTIFICATE-----\nc3VpdGU=\n-----END CERTIFICATE-----\n"

// serveNetwork carries a connection of a machine: it says whose it is and where it was
// to go, and sends back what comes. Names are answered.
func serveNetwork(id sandbox.ID, conn net.Conn) {
	r := bufio.NewReader(conn)
	kind, err := r.ReadString('\n')
	if err != nil {
		return
	}
	if kind == "dns\n" {
		answerNames(conn, r)
		return
	}
	_, _ = fmt.Fprintf(conn, "%s %s", id, kind)
	_, _ = io.Copy(conn, r)
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

func answerNames(w io.Writer, r io.Reader) {
	for {
		var size [2]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		var m dnsmessage.Message
		if _, err := io.ReadFull(r, query); err != nil || m.Unpack(query) != nil || len(m.Questions) != 1 {
			return
		}
		m.Response, m.Additionals = true, nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
			m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: namesAt}}}
		}
		answer, err := m.Pack()
		if err != nil {
			return
		}
		_, _ = w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	}
}

func networked(b *sandbox.Boot) {
	b.Spec.Network = egress.Open
	b.Network = &sandbox.Network{Authority: authority}
}

// testNetwork: connections of programs reach the host with where they were to go,
// whatever happened to the machine; nothing else leaves it, and commands cannot change that.
func testNetwork(s *suite) {
	if !s.p.Capabilities().Network {
		s.Skipf("%s has no network", s.p.Name())
	}
	b := s.boot(networked, func(b *sandbox.Boot) { b.Spec.Root = true })
	tool := s.tool(b)
	m, g := s.create(b)
	s.reaches(g, b, tool, "at first")
	if res := g.Shell("echo $SSL_CERT_FILE"); res.Stdout != wire.TrustFile+"\n" {
		s.Errorf("programs look for certificates at %+v", res)
	}
	s.isGuarded(g, tool)

	s.superviseKiller(b, g)()
	Eventually(s, "a new supervise", func() bool {
		h, err := g.Hello(s.Context())
		return err == nil && h.SuperviseStarts == 2
	})
	s.reaches(g, b, tool, "after the death of supervise")
	if s.p.Capabilities().Pause {
		must(s, m.Pause(s.Context()))
		must(s, m.Resume(s.Context()))
		s.reaches(g, b, tool, "after a pause")
	}
	if s.p.Capabilities().Snapshot {
		g.Write("count", 0o644, []byte("of the workspace that is copied"))
		dir, workspace := s.snapshot(m, g, b)
		s.reaches(g, b, tool, "after a snapshot")
		_, gc, bc, _ := s.clone(dir, workspace, networked, func(b *sandbox.Boot) { b.Spec.Root = true })
		s.reaches(gc, bc, tool, "in a clone")
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
	s.reaches(g, b, tool, "after a restart of the server")
}

// reaches looks where connections of a machine arrive.
func (s *suite) reaches(g Guest, b sandbox.Boot, tool, when string) {
	s.Helper()
	for to, at := range map[string]string{
		"203.0.113.9:80":           "203.0.113.9:80",
		"10.1.2.3:6000":            "10.1.2.3:6000",
		"some.name.example.com:90": net.IP(namesAt[:]).String() + ":90",
	} {
		res := g.Run(tool, "ask", to, "300000")
		if want := fmt.Sprintf("%s tcp %s\n300000 bytes came back\n", b.ID, at); res.Code != 0 || res.Stdout != want {
			s.Fatalf("%s: to %s: status %d, %q, %s; want %q", when, to, res.Code, res.Stdout, res.Stderr, want)
		}
	}
	if res := g.Shell("cat " + wire.TrustFile); !strings.Contains(res.Stdout, authority) {
		s.Errorf("%s: programs trust %+v", when, res)
	}
}

// isGuarded tries what is no TCP, and to change the network.
func (s *suite) isGuarded(g Guest, tool string) {
	s.Helper()
	if res := g.Run(tool, "dial", "tcp6", "[2001:db8::1]:80"); res.Code == 0 {
		s.Errorf("an address of IPv6 was reached: %+v", res)
	}
	if res := g.Shell("sort -u /proc/net/dev | grep -c :"); res.Stdout != "1\n" {
		s.Errorf("the machine has other interfaces than the loopback one: %+v", res)
	}
	if c := s.p.Capabilities().Isolation; c == sandbox.MicroVM || c == sandbox.MicroVMEmulated {
		return // root has its whole kernel, and the network ends at the host all the same
	}
	for _, verb := range []string{"packets", "loopback"} {
		r := Start(tool, verb)
		r.User = "root"
		if res, err := g.Exec(context.Background(), r); err != nil || res.Code == 0 {
			s.Errorf("%s: root may change the network: %+v, %v", verb, res, err)
		}
	}
}
