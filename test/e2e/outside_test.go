package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// This file has those outside of a sandbox who listen for what it may not send: at other
// ports, by other protocols, at addresses of the host and its networks.

// ears keep what was said, each connection by itself.
type ears struct {
	mu   sync.Mutex
	said []*utterance
}

// utterance is what was said at a place.
type utterance struct {
	at    string
	mu    sync.Mutex
	bytes []byte
}

const utteranceMax = 8 << 20 // the rest is not kept

func (e *ears) at(place string) *utterance {
	u := &utterance{at: place}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = append(e.said, u)
	return u
}

// Write implements io.Writer.
func (u *utterance) Write(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bytes = append(u.bytes, b[:min(len(b), max(0, utteranceMax-len(u.bytes)))]...)
	return len(b), nil
}

func (u *utterance) text() []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	return bytes.Clone(u.bytes)
}

// each calls f with what was said at each place.
func (e *ears) each(f func(place string, said []byte)) {
	e.mu.Lock()
	list := slices.Clone(e.said)
	e.mu.Unlock()
	for _, u := range list {
		f(u.at, u.text())
	}
}

// heard are the places at which a text was heard.
func (e *ears) heard(text string) (places []string) {
	e.each(func(place string, said []byte) {
		if bytes.Contains(bytes.ToLower(said), []byte(text)) {
			places = append(places, place)
		}
	})
	return places
}

// asked is a handler whose requests are heard as they were understood.
func (e *ears) asked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := e.at(fmt.Sprintf("request %s %s", r.Context().Value(http.LocalAddrContextKey), r.Host))
		head, _ := httputil.DumpRequest(r, false)
		_, _ = at.Write(append(head, strings.Join(r.Header["Host"], " ")...))
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(r.Body, at), r.Body}
		h.ServeHTTP(w, r)
	})
}

// overheard is a listener whose connections are heard.
type overheard struct {
	net.Listener
	ears *ears
}

// Accept implements net.Listener.
func (o overheard) Accept() (net.Conn, error) {
	conn, err := o.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &overheardConn{conn, o.ears.at("tcp " + conn.LocalAddr().String())}, nil
}

type overheardConn struct {
	net.Conn
	to *utterance
}

// Read implements net.Conn.
func (c *overheardConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	_, _ = c.to.Write(b[:n])
	return n, err
}

// Addresses of an internet of attacks, beside the public one.
const (
	publicIP6 = "2001:db8::7"
	ulaIP6    = "fd00:ec2::254" // where a cloud has its metadata
)

var inwardIPs = []string{"169.254.169.254", "10.0.0.1", "192.168.1.1", "168.63.129.16", "100.100.100.200"}

// outside is an internet in which a listener stands wherever an attack might get.
type outside struct {
	*internet
	socket, abstract string       // where those of unix are
	bound            atomic.Int32 // how often rebind.example.com was asked for
}

func newOutside(n *internet) *outside {
	n.t.Helper()
	dir := n.t.TempDir()
	o := &outside{internet: n, socket: filepath.Join(dir, "s"), abstract: "attack-" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	resolv := filepath.Join(dir, "resolv.conf")
	n.ok(os.WriteFile(resolv, []byte("nameserver "+publicIP+"\noptions timeout:1\n"), 0o644))
	n.enter(func() error {
		// Addresses of IPv6 are an interface's own only some time after they were given to it.
		errs := []error{os.WriteFile("/proc/sys/net/ipv6/ip_nonlocal_bind", []byte("1"), 0), unix.Mount(resolv, "/etc/resolv.conf", "", unix.MS_BIND, ""), up6(publicIP6), up6(ulaIP6)}
		for i, ip := range inwardIPs {
			errs = append(errs, up(fmt.Sprintf("lo:%d", i+1), ip))
		}
		return errors.Join(append(errs, o.listen()...)...)
	})
	return o
}

// up6 gives the loopback interface of this namespace an address of IPv6.
func up6(address string) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r := struct { // struct in6_ifreq
		addr   [16]byte
		prefix uint32
		index  int32
	}{[16]byte(net.ParseIP(address).To16()), 128, 1}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&r))); e != 0 {
		return fmt.Errorf("give %s to the loopback interface: %w", address, e)
	}
	return nil
}

// listen opens all that listens. It is called in the namespaces.
func (o *outside) listen() (errs []error) {
	add := func(err error) { errs = append(errs, err) }
	for _, ip := range append([]string{"127.0.0.1", "::1", publicIP6, ulaIP6}, inwardIPs...) {
		add(o.tcp(ip, "80", o.serveWeb))
		add(o.tcp(ip, "443", func(conn net.Conn) { o.serveWeb(tls.Server(conn, o.tls)) }))
	}
	add(o.tcp(publicIP, "8080", o.hear))
	add(o.tcp(publicIP, "9000", o.hear))
	add(o.tcp(publicIP, "53", o.answerTCP))
	for _, place := range []string{publicIP + ":443", publicIP + ":9000", publicIP + ":123", "[" + publicIP6 + "]:9000", "127.0.0.1:9000", "169.254.169.254:80"} {
		add(o.udp(place, func([]byte) []byte { return nil }))
	}
	add(o.udp(publicIP+":53", o.resolve))
	for _, name := range []string{o.socket, "@" + o.abstract} {
		ln, err := net.Listen("unix", name)
		if err == nil {
			o.accept(ln, o.hear)
		}
		add(err)
	}
	add(os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0)) // of this namespace
	for _, protocol := range []int{unix.IPPROTO_ICMP, 253} {
		add(o.raw(protocol))
	}
	return errs
}

func (o *outside) tcp(ip, port string, serve func(net.Conn)) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, port))
	if err != nil {
		return err
	}
	o.accept(overheard{ln, &o.ears}, serve)
	return nil
}

// accept serves each connection until the end of the test.
func (o *outside) accept(ln net.Listener, serve func(net.Conn)) {
	o.t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				serve(conn)
			}()
		}
	}()
}

// hear answers as a web server does, once, and hears all there is.
func (o *outside) hear(conn net.Conn) {
	if _, is := conn.(*overheardConn); !is {
		conn = &overheardConn{conn, o.ears.at("unix " + conn.LocalAddr().String())}
	}
	answered := false
	buf := make([]byte, 32<<10)
	for {
		if _, err := conn.Read(buf); err != nil {
			return
		}
		if !answered {
			answered = true
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nheard")
		}
	}
}

// serveWeb is a web server for a connection.
func (o *outside) serveWeb(conn net.Conn) {
	one := make(chan net.Conn, 1)
	one <- conn
	over := make(chan struct{})
	s := &http.Server{Handler: o.web, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed || s == http.StateHijacked {
			close(over)
		}
	}}
	defer s.Close()
	go s.Serve(handed{one, conn.LocalAddr()})
	<-over
}

// handed is a listener of connections that are there.
type handed struct {
	conns chan net.Conn
	at    net.Addr
}

// Accept implements net.Listener.
func (h handed) Accept() (net.Conn, error) {
	c, ok := <-h.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close implements net.Listener.
func (h handed) Close() error { close(h.conns); return nil }

// Addr implements net.Listener.
func (h handed) Addr() net.Addr { return h.at }

func (o *outside) udp(place string, answer func([]byte) []byte) error {
	conn, err := net.ListenPacket("udp", place)
	if err != nil {
		return err
	}
	o.t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = o.ears.at("udp " + place).Write(buf[:n])
			if a := answer(buf[:n]); a != nil {
				_, _ = conn.WriteTo(a, from)
			}
		}
	}()
	return nil
}

// raw hears the packets of a protocol of IP.
func (o *outside) raw(protocol int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "raw")
	o.t.Cleanup(func() { f.Close() })
	at := o.ears.at(fmt.Sprintf("protocol %d", protocol))
	go func() { _, _ = io.Copy(at, f) }()
	return nil
}

// answerTCP answers queries of names with their lengths in front.
func (o *outside) answerTCP(conn net.Conn) {
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, q); err != nil {
			return
		}
		a := o.resolve(q)
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
			return
		}
	}
}

// Names of this internet that are not in the file of hosts.
var inwardNames = map[string]string{
	"meta.example.com": "169.254.169.254", "metadata.google.internal": "169.254.169.254", "inward.example.com": "127.0.0.1", "six.example.com": "::1",
}

// resolve answers a query: what is in inwardNames, and rebind.example.com, which is
// public at first and then not.
func (o *outside) resolve(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true}
	m.Additionals = nil
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	at, ok := inwardNames[name]
	if name == "rebind.example.com" {
		ok, at = true, "127.0.0.1"
		if q.Type == dnsmessage.TypeA && o.bound.Add(1) == 1 {
			at = publicIP
		}
	}
	for _, n := range publicNames { // for those who do not read the file of hosts
		if strings.HasSuffix(name, "."+n) {
			ok, at = true, publicIP
		}
	}
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}
	switch ip := net.ParseIP(at); {
	case !ok:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA && ip.To4() != nil:
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: [4]byte(ip.To4())}}}
	case q.Type == dnsmessage.TypeAAAA && ip.To4() == nil:
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AAAAResource{AAAA: [16]byte(ip)}}}
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

// requests takes what was said to a server apart as lenient ones do: lines end with a line
// feed alone too, and where a request has both a length and chunks, one of them counts.
func requests(said []byte, chunksFirst bool) (lines []string) {
	line := func() (s string, ok bool) {
		before, after, found := bytes.Cut(said, []byte("\n"))
		said = after
		return strings.TrimSuffix(string(before), "\r"), found
	}
	for len(said) > 0 {
		first, ok := line()
		if !ok {
			return lines
		}
		if first == "" {
			continue
		}
		lines = append(lines, first)
		if !strings.Contains(first, "HTTP/") { // of HTTP/0.9, which has no headers
			continue
		}
		length, chunks, has := 0, false, false
		for {
			l, ok := line()
			if !ok || l == "" {
				break
			}
			name, value, _ := strings.Cut(l, ":")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "content-length":
				length, _ = strconv.Atoi(strings.TrimSpace(value))
				has = true
			case "transfer-encoding":
				chunks = chunks || strings.Contains(strings.ToLower(value), "chunked")
			case "chunked": // of a folded line
				chunks = true
			}
		}
		if !chunks || has && !chunksFirst {
			said = said[min(max(length, 0), len(said)):]
			continue
		}
		for {
			l, ok := line()
			n, err := strconv.ParseUint(strings.TrimSpace(strings.Split(l, ";")[0]), 16, 31)
			if !ok || err != nil {
				break
			}
			if n == 0 { // and what follows the chunks
				for l != "" {
					l, _ = line()
				}
				break
			}
			said = said[min(int(n), len(said)):]
			line()
		}
	}
	return lines
}

// smuggled are requests of which servers could have seen one more than was decided about.
func (o *outside) smuggled(text string) (found []string) {
	o.ears.each(func(place string, said []byte) {
		if place != "tcp "+publicIP+":8080" {
			return
		}
		for _, chunksFirst := range []bool{false, true} {
			for _, l := range requests(said, chunksFirst) {
				if strings.Contains(l, text) {
					found = append(found, l)
				}
			}
		}
	})
	return found
}
