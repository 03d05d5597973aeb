package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Resolver is the address at which queries of names are answered.
const Resolver = "127.0.0.53"

// Bounds.
const (
	connectionsMax = 256
	openWait       = 30 * time.Second
	acceptAgain    = 100 * time.Millisecond
	queryWait      = 10 * time.Second // for the host's answer
	queryBytesMax  = 4096
	queriesMax     = 64 // under way
)

// Config of a capture.
type Config struct {
	// Open opens a stream to what carries connections on the host.
	Open func(ctx context.Context) (net.Conn, error)
	Logf func(format string, args ...any)
}

// Capture is one that works. Safe for concurrent use.
type Capture struct {
	c      Config
	port   uint16 // that connections are redirected to
	ctx    context.Context
	stop   context.CancelFunc
	listen []io.Closer
	slots  chan struct{}
	asks   chan struct{}
	done   sync.WaitGroup
}

// Start begins to capture. The kernel goes on to redirect after Close, to a port at
// which nothing listens; the next Start changes that.
func Start(c Config) (*Capture, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("capture connections: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	x := &Capture{c: c, port: uint16(ln.Addr().(*net.TCPAddr).Port), ctx: ctx, stop: stop, listen: []io.Closer{ln}, slots: make(chan struct{}, connectionsMax), asks: make(chan struct{}, queriesMax)}
	if err := x.Renew(); err != nil {
		x.Close()
		return nil, err
	}
	if err := x.resolve(); err != nil {
		x.Close()
		return nil, fmt.Errorf("capture queries of names: %w", err)
	}
	x.accept(ln, func(conn net.Conn) {
		to, err := original(conn.(*net.TCPConn))
		if err != nil {
			x.c.Logf("capture: where a connection was to go: %v", err)
			return
		}
		x.carry(conn, "tcp "+to.String())
	})
	return x, nil
}

// Renew tells the kernel again what is to be captured: gVisor forgets that in a snapshot.
func (x *Capture) Renew() error {
	err := ownAll()
	if err == nil {
		err = redirect(x.port)
	}
	if err != nil {
		return fmt.Errorf("capture connections: %w", err)
	}
	return nil
}

// Listens reports whether it listens there, for itself: no program of the machine does then.
// A nil Capture does not.
func (x *Capture) Listens(at netip.AddrPort) bool {
	if x == nil {
		return false
	}
	return at == netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), x.port) || at == netip.MustParseAddrPort(net.JoinHostPort(Resolver, "53"))
}

// Close ends all that was captured.
func (x *Capture) Close() {
	x.stop()
	for _, l := range x.listen {
		l.Close()
	}
	x.done.Wait()
}

// resolve listens for queries of names.
func (x *Capture) resolve() error {
	udp, err := net.ListenPacket("udp4", net.JoinHostPort(Resolver, "53"))
	if err != nil {
		return err
	}
	x.listen = append(x.listen, udp)
	tcp, err := net.Listen("tcp4", net.JoinHostPort(Resolver, "53"))
	if err != nil {
		return err
	}
	x.listen = append(x.listen, tcp)
	x.accept(tcp, func(conn net.Conn) { x.carry(conn, "dns") })
	x.done.Go(func() { x.answer(udp) })
	return nil
}

// accept calls f in a goroutine of its own for each connection, and closes that then.
// Those beyond the bound are hung up.
func (x *Capture) accept(ln net.Listener, f func(net.Conn)) {
	x.done.Go(func() {
		for x.ctx.Err() == nil {
			conn, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // out of descriptors
				x.pause()
				continue
			}
			select {
			case x.slots <- struct{}{}:
				x.done.Go(func() {
					defer func() { <-x.slots }()
					defer conn.Close()
					f(conn)
				})
			default:
				conn.Close()
			}
		}
	})
}

func (x *Capture) pause() {
	select {
	case <-x.ctx.Done():
	case <-time.After(acceptAgain):
	}
}

// open opens a stream of a kind.
func (x *Capture) open(kind string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(x.ctx, openWait)
	defer cancel()
	stream, err := x.c.Open(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(stream, kind+"\n"); err != nil {
		stream.Close()
		return nil, err
	}
	return stream, nil
}

// carry connects a connection with a stream of its own.
func (x *Capture) carry(conn net.Conn, kind string) {
	stream, err := x.open(kind)
	if err != nil {
		x.c.Logf("capture: %s: a stream to the host: %v", kind, err)
		return
	}
	defer stream.Close()
	stop := context.AfterFunc(x.ctx, func() {
		conn.Close()
		stream.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { copyOneWay(stream, conn) })
	both.Go(func() { copyOneWay(conn, stream) })
	both.Wait()
}

// copyOneWay copies until the source ends, and passes the end on; where it cannot, or
// the copy breaks, the other way ends too.
func copyOneWay(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if w, ok := to.(interface{ CloseWrite() error }); err == nil && ok && w.CloseWrite() == nil {
		return
	}
	to.Close()
	from.Close()
}

// answer answers datagrams.
func (x *Capture) answer(udp net.PacketConn) {
	buf := make([]byte, queryBytesMax)
	for {
		n, from, err := udp.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < 12 {
			continue
		}
		query := append([]byte(nil), buf[:n]...)
		select {
		case x.asks <- struct{}{}:
			x.done.Go(func() {
				defer func() { <-x.asks }()
				if a, err := x.ask(query); err != nil {
					x.c.Logf("capture: a query of a name: %v", err)
				} else {
					_, _ = udp.WriteTo(a, from)
				}
			})
		default: // dropped: programs ask again
		}
	}
}

// ask has the host answer a query.
func (x *Capture) ask(query []byte) ([]byte, error) {
	stream, err := x.open("dns")
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	stop := context.AfterFunc(x.ctx, func() { stream.Close() })
	defer stop()
	_ = stream.SetDeadline(time.Now().Add(queryWait))
	if _, err := stream.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(stream, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err = io.ReadFull(stream, answer)
	return answer, err
}
