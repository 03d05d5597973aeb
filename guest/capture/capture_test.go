package capture

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

const inside = "CAPTURE_TEST_INSIDE"

// TestMain runs the tests in a network namespace of their own.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		goleak.VerifyTestMain(m)
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Run(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			os.Exit(exit.ExitCode())
		}
		fmt.Println("no network namespace can be made here:", err)
		os.Exit(1)
	}
}

// host is what carries connections: it says where each was to go, then echoes.
type host struct {
	away    atomic.Bool
	streams sync.WaitGroup
}

func (h *host) open(context.Context) (net.Conn, error) {
	if h.away.Load() {
		return nil, errors.New("nothing is there")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	stream, err := ln.Accept()
	if err != nil {
		return nil, err
	}
	h.streams.Go(func() {
		defer stream.Close()
		r := bufio.NewReader(stream)
		kind, _ := r.ReadString('\n')
		if kind == "dns\n" {
			answerAll(stream, r)
			return
		}
		fmt.Fprint(stream, kind)
		_, _ = io.Copy(stream, r)
	})
	return conn, nil
}

// answerAll answers each query with 198.18.0.7.
func answerAll(w io.Writer, r io.Reader) {
	for {
		var size [2]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(r, b); err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(b) != nil {
			return
		}
		m.Response = true
		m.Additionals = nil
		if m.Questions[0].Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 1}, Body: &dnsmessage.AResource{A: [4]byte{198, 18, 0, 7}}}}
		}
		out, err := m.Pack()
		if err != nil {
			return
		}
		_, _ = w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
	}
}

func start(t *testing.T) (*Capture, *host) {
	t.Helper()
	h := &host{}
	x, err := Start(Config{Open: h.open, Logf: t.Logf})
	if errors.Is(err, unix.ENOPROTOOPT) {
		t.Skipf("this kernel has no ip_tables: %v", err)
	}
	must(t, err)
	t.Cleanup(func() {
		x.Close()
		h.streams.Wait()
	})
	return x, h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// says sends a text to an address and returns what comes back until the end.
func says(to, text string) (string, error) {
	conn, err := net.DialTimeout("tcp", to, 20*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(conn)
	return string(b), err
}

func TestCapture_listens(t *testing.T) {
	x, _ := start(t)
	own := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), x.port)
	for at, want := range map[netip.AddrPort]bool{
		own: true, netip.MustParseAddrPort("127.0.0.53:53"): true,
		netip.MustParseAddrPort("127.0.0.1:53"): false, netip.AddrPortFrom(netip.MustParseAddr("0.0.0.0"), x.port): false,
	} {
		if x.Listens(at) != want || (*Capture)(nil).Listens(at) {
			t.Errorf("%s: %v", at, x.Listens(at))
		}
	}
}

func TestCapture_connections(t *testing.T) {
	start(t)
	for _, to := range []string{"1.2.3.4:443", "198.18.0.5:80", "169.254.169.254:80", "10.0.0.1:22", "203.0.113.9:65535", "255.255.255.254:1", "128.0.0.1:5"} {
		if got, err := says(to, "hello"); got != "tcp "+to+"\nhello" || err != nil {
			t.Errorf("%s: %q, %v", to, got, err)
		}
	}
	data := strings.Repeat("0123456789abcdef", 1<<18)
	if got, err := says("1.2.3.4:443", data); got != "tcp 1.2.3.4:443\n"+data || err != nil {
		t.Errorf("4 MiB: %d bytes, %v", len(got), err)
	}
}

// The machine's own services have all ports, and are reached as before.
func TestCapture_leavesLoopbackAlone(t *testing.T) {
	start(t)
	for _, at := range []string{"0.0.0.0:443", "127.0.0.1:80", "127.1.2.3:22"} {
		ln, err := net.Listen("tcp4", at)
		must(t, err)
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(c, "own")
				c.Close()
			}
		}()
		conn, err := net.Dial("tcp", strings.Replace(at, "0.0.0.0", "127.0.0.1", 1))
		must(t, err)
		if b, err := io.ReadAll(conn); string(b) != "own" || err != nil {
			t.Errorf("%s: %q, %v", at, b, err)
		}
		conn.Close()
		ln.Close()
	}
	if got, err := says("127.0.0.1:444", ""); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%q, %v", got, err)
	}
}

// What is not captured fails at once, so that programs go on to what is.
func TestCapture_restIsRefused(t *testing.T) {
	start(t)
	quic, err := net.Dial("udp", "1.1.1.1:443")
	must(t, err)
	defer quic.Close()
	must(t, quic.SetDeadline(time.Now().Add(20*time.Second)))
	_, _ = quic.Write([]byte("x"))
	if _, err := quic.Read(make([]byte, 9)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a datagram: %v", err)
	}
	if _, err := net.DialTimeout("tcp", "[2606:4700::1]:443", 20*time.Second); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("IPv6: %v", err)
	}
}

func TestCapture_names(t *testing.T) {
	_, h := start(t)
	for _, network := range []string{"udp", "tcp"} {
		r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, Resolver+":53")
		}}
		addrs, err := r.LookupNetIP(t.Context(), "ip4", "a.example.")
		if err != nil || len(addrs) != 1 || addrs[0] != netip.MustParseAddr("198.18.0.7") {
			t.Errorf("%s: %v, %v", network, addrs, err)
		}
	}
	h.away.Store(true)
	if got, err := says("1.2.3.4:443", ""); got != "" {
		t.Errorf("without a host: %q, %v", got, err)
	}
}

// The next supervisor takes over from one that died.
func TestCapture_again(t *testing.T) {
	x, _ := start(t)
	x.Close()
	if got, err := says("1.2.3.4:443", "x"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("after Close: %q, %v", got, err)
	}
	start(t)
	if got, err := says("1.2.3.4:443", "x"); got != "tcp 1.2.3.4:443\nx" || err != nil {
		t.Errorf("the next one: %q, %v", got, err)
	}
}

// A kernel that has nothing but nftables captures by that, and a renewal takes the place
// of what was there.
func TestCapture_byNftables(t *testing.T) {
	x, _ := start(t)
	nothing := &table{}
	for _, hook := range []int{hookPre, hookIn, hookOut, hookPost} {
		nothing.policy(hook, ^uint32(0))
	}
	nothing.fault()
	must(t, nothing.install())
	if got, err := says("1.2.3.4:443", "x"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatalf("with no redirection: %q, %v", got, err)
	}
	t.Cleanup(func() {
		must(t, transaction([]message{{unix.NFT_MSG_DELTABLE, 0, text(unix.NFTA_TABLE_NAME, nftName)}}))
	})
	for _, port := range []uint16{1, x.port, x.port} {
		must(t, redirectByNftables(port))
	}
	if got, err := says("1.2.3.4:443", "x"); got != "tcp 1.2.3.4:443\nx" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	if conn, err := net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Errorf("the machine's own port: %v", err)
	} else {
		conn.Close()
	}
}

func TestCapture_boundsConnections(t *testing.T) {
	start(t)
	one := make([]byte, 1)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range connectionsMax {
		c, err := net.Dial("tcp", "1.2.3.4:443")
		must(t, err)
		open = append(open, c)
		if _, err := c.Read(one); err != nil { // it is carried
			t.Fatal(err)
		}
	}
	c, err := net.Dial("tcp", "1.2.3.4:443")
	must(t, err)
	defer c.Close()
	if n, err := c.Read(one); err == nil {
		t.Errorf("one more is carried: %q", one[:n])
	}
}
