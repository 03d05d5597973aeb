package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/skete-dev/skete/egress"
)

// unreachable says why a host cannot be reached, in words for the sandbox.
type unreachable struct{ why string }

func (u *unreachable) Error() string { return u.why }

// reachFault describes what went wrong on the way to a host.
func reachFault(host string, err error) string {
	if u, ok := errors.AsType[*unreachable](err); ok {
		return u.why
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Sprintf("the certificate of %s is not valid: %v", host, errors.Unwrap(err))
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Sprintf("the client left before %s answered", host)
	}
	return fmt.Sprintf("%s cannot be reached or does not answer as it should", host)
}

// dialHost is the transport's way to a host.
func (p *Proxy) dialHost(ctx context.Context, _, to string) (net.Conn, error) {
	host, service, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, err
	}
	return p.dial(ctx, host, uint16(port))
}

// dial resolves a host, checks each address, and connects to one that it checked.
func (p *Proxy) dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	addrs, err := p.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs[:min(len(addrs), addressesMax)] {
		var conn net.Conn
		if conn, err = p.dialOne(ctx, netip.AddrPortFrom(a, port), len(addrs)); err == nil {
			return conn, nil
		}
	}
	return nil, &unreachable{fmt.Sprintf("%s does not take connections at port %d", host, port)}
}

func (p *Proxy) dialOne(ctx context.Context, to netip.AddrPort, of int) (net.Conn, error) {
	if of > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, addressWait)
		defer cancel()
	}
	return p.c.Dial(ctx, to)
}

// resolve returns the addresses of a host that something may be sent to.
func (p *Proxy) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	all := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		all = append(all, a)
	} else if all, err = p.c.Lookup(ctx, host); err != nil {
		return nil, &unreachable{fmt.Sprintf("%s cannot be resolved", host)}
	}
	what := ""
	ok := slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool {
		w := egress.Refused(a)
		if w != "" {
			what = w
		}
		return w != ""
	})
	switch {
	case len(ok) > 0:
		return ok, nil
	case len(all) > 0:
		return nil, &unreachable{fmt.Sprintf("%s resolves to %s, which is always refused", host, what)}
	}
	return nil, &unreachable{fmt.Sprintf("%s has no address", host)}
}

// pass carries a pinned connection as it is. What a client says of TLS has to be about
// the same host: else any other one behind the same address could be reached.
func (p *Proxy) pass(ctx context.Context, conn net.Conn, host string, port int, v egress.Verdict) {
	up, err := p.dial(ctx, host, uint16(port))
	if err != nil {
		p.decided(host, port, "", "", egress.Verdict{Rule: v.Rule, Why: reachFault(host, err)})
		return
	}
	defer up.Close()
	p.decided(host, port, "", "", v)
	down := make(chan struct{})
	go func() {
		defer close(down)
		_, _ = io.Copy(conn, up)
		closeWrite(conn)
	}()
	client, why := p.clientSays(conn, host)
	if why != "" {
		p.decided(host, port, "", "", egress.Verdict{Rule: v.Rule, Why: why})
		up.Close()
		conn.Close()
		<-down
		return
	}
	if client != nil {
		_, _ = io.Copy(up, client)
	}
	closeWrite(up)
	<-down
}

// clientSays reads the beginning of what a client sends, and returns all of it. why: it
// is a handshake of TLS for another host, or for one that is hidden.
func (p *Proxy) clientSays(conn net.Conn, host string) (r io.Reader, why string) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return nil, ""
	}
	said := &replayed{Conn: conn, head: first}
	if first[0] != 0x16 {
		return said, ""
	}
	name, hidden, head, err := peekHello(said)
	switch _, isAddr := netip.ParseAddr(host); {
	case err != nil:
		return nil, "its handshake of TLS cannot be read"
	case hidden:
		return nil, "its handshake of TLS hides the host (ECH)"
	case name == "" && isAddr == nil:
	case egress.Name(name) != host:
		return nil, fmt.Sprintf("its handshake of TLS is for %.100q", name)
	}
	return &replayed{Conn: conn, head: head}, ""
}

// extensionECH is encrypted_client_hello (RFC 9849).
const extensionECH = 0xfe0d

var errPeeked = errors.New("peeked")

// peekHello reads a ClientHello by crypto/tls's own parser, and returns the name in it,
// whether there is a hidden one, and the bytes that were read.
func peekHello(conn net.Conn) (name string, hidden bool, head []byte, err error) {
	rec := &recorder{Conn: conn}
	seen := false
	_ = tls.Server(rec, &tls.Config{MinVersion: tls.VersionTLS10, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, hidden, seen = h.ServerName, slices.Contains(h.Extensions, extensionECH), true
		return nil, errPeeked
	}}).Handshake()
	if !seen {
		return "", false, nil, errors.New("no ClientHello")
	}
	return name, hidden, rec.read, nil
}

// recorder keeps what is read, and lets nothing be written.
type recorder struct {
	net.Conn
	read []byte
}

// Read implements net.Conn.
func (r *recorder) Read(b []byte) (int, error) {
	if len(r.read) >= helloBytesMax {
		return 0, errors.New("the ClientHello is too long")
	}
	n, err := r.Conn.Read(b)
	r.read = append(r.read, b[:n]...)
	return n, err
}

// Write implements net.Conn.
func (*recorder) Write(b []byte) (int, error) { return len(b), nil }

func closeWrite(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
		return
	}
	_ = c.Close()
}
