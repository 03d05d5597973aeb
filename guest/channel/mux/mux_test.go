package mux

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wireLine is a serial line with a monitor: two byte queues that know nothing
// of who is at their ends. A host that hangs up and comes back is not seen by
// the guest (coalesced), and what was written stays in the line.
type wireLine struct {
	mu         sync.Mutex
	changed    *sync.Cond
	toGuest    []byte
	toHost     []byte
	guestOpen  bool
	host       *end // the one connection
	dropClosed bool // what the host writes while no guest has the port open is lost
	throttled  int  // of the host's next connections, those that hear nothing of the guest
	silent     bool // the present one is such
}

// queueMax is what the line holds of one direction, as a socket does.
const queueMax = 128 << 10

func newWireLine() *wireLine {
	l := &wireLine{}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// end is one opening of one end of the line.
type end struct {
	l             *wireLine
	guest         bool
	closed        bool
	readBy, write time.Time
}

func (l *wireLine) dial(context.Context) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.host != nil {
		l.host.closed = true
	}
	l.host = &end{l: l}
	l.silent = l.throttled > 0
	l.throttled = max(0, l.throttled-1)
	l.toHost = nil // a socket begins empty; the other direction stays with the monitor
	l.changed.Broadcast()
	return l.host, nil
}

func (l *wireLine) open(context.Context) (Port, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guestOpen = true
	return &end{l: l, guest: true}, nil
}

// cutHost ends the host's connection as the death of its process would.
func (l *wireLine) cutHost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.host != nil {
		l.host.closed = true
	}
	l.changed.Broadcast()
}

func (e *end) queues() (in, out *[]byte) {
	if e.guest {
		return &e.l.toGuest, &e.l.toHost
	}
	return &e.l.toHost, &e.l.toGuest
}

// wait waits for a change, until the deadline. Preconditions: mu is held.
func (e *end) wait(deadline time.Time) error {
	if deadline.IsZero() {
		e.l.changed.Wait()
		return nil
	}
	left := time.Until(deadline)
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	t := time.AfterFunc(left, e.l.changed.Broadcast)
	e.l.changed.Wait()
	t.Stop()
	return nil
}

func (e *end) Read(p []byte) (int, error) {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	in, _ := e.queues()
	for {
		if e.closed {
			return 0, net.ErrClosed
		}
		if len(*in) > 0 {
			n := copy(p, *in)
			*in = (*in)[n:]
			e.l.changed.Broadcast()
			return n, nil
		}
		if err := e.wait(e.readBy); err != nil {
			return 0, err
		}
	}
}

func (e *end) Write(p []byte) (int, error) {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	_, out := e.queues()
	written := 0
	for {
		if e.closed {
			return written, net.ErrClosed
		}
		if !e.guest && e.l.dropClosed && !e.l.guestOpen {
			return len(p), nil
		}
		if e.guest && e.l.silent {
			return len(p), nil
		}
		n := min(len(p), queueMax-len(*out))
		*out = append(*out, p[:n]...)
		written, p = written+n, p[n:]
		e.l.changed.Broadcast()
		if len(p) == 0 {
			return written, nil
		}
		if err := e.wait(e.write); err != nil {
			return written, err
		}
	}
}

func (e *end) Close() error {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.closed = true
	if e.guest {
		e.l.guestOpen = false
	}
	e.l.changed.Broadcast()
	return nil
}

func (e *end) SetDeadline(t time.Time) error {
	return errors.Join(e.SetReadDeadline(t), e.SetWriteDeadline(t))
}

func (e *end) SetReadDeadline(t time.Time) error {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.readBy = t
	e.l.changed.Broadcast()
	return nil
}

func (e *end) SetWriteDeadline(t time.Time) error {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.write = t
	e.l.changed.Broadcast()
	return nil
}

func (e *end) LocalAddr() net.Addr  { return &net.UnixAddr{} }
func (e *end) RemoteAddr() net.Addr { return &net.UnixAddr{} }

// Ports of the test's guest.
const (
	echoPort   = 1 // sends back what comes, ends when that ends
	sourcePort = 2 // sends a megabyte at once and ends
	deafPort   = 3 // never reads
	refused    = 4
)

func serveTest(conn net.Conn, port uint32) {
	defer conn.Close()
	if port == refused {
		_ = wire.Refuse(conn, errs.New(errs.Denied, "not this one"))
		return
	}
	if wire.Grant(conn, port) != nil {
		return
	}
	switch port {
	case echoPort:
		_, _ = io.Copy(conn, conn)
	case sourcePort:
		_, _ = conn.Write(make([]byte, 1<<20))
	case deafPort:
		<-time.After(100 * time.Millisecond)
	}
}

// guest serves the line until the returned function is called.
func guest(l *wireLine) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		NewGuest(l.open, serveTest).Serve(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := patience.Context(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// echo sends data through a new stream and wants it back, whole.
func echo(ctx context.Context, l *Line, data []byte) error {
	conn, err := l.Dial(ctx, echoPort)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		if err == nil {
			err = conn.(interface{ CloseWrite() error }).CloseWrite()
		}
		sent <- err
	}()
	got, err := io.ReadAll(conn)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if sha256.Sum256(got) != sha256.Sum256(data) {
		return fmt.Errorf("%d bytes came back wrong as %d", len(data), len(got))
	}
	return nil
}

func TestLine_carriesManyStreamsAtOnce(t *testing.T) {
	l := newWireLine()
	defer guest(l)()
	line := Open(l.dial, nil)
	defer line.Close()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			data := bytes.Repeat([]byte{byte(i)}, i*i*211)
			if err := echo(within(t, 30*time.Second), line, data); err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// The end of one direction is told at once and leaves the other open: echo
// above needs that. Here the guest ends first.
func TestLine_anEndIsCleanAndABreakIsNot(t *testing.T) {
	l := newWireLine()
	defer guest(l)()
	line := Open(l.dial, nil)
	defer line.Close()
	conn, err := line.Dial(within(t, 10*time.Second), sourcePort)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if data, err := io.ReadAll(conn); len(data) != 1<<20 || err != nil {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	broken, err := line.Dial(within(t, 10*time.Second), echoPort)
	if err != nil {
		t.Fatal(err)
	}
	defer broken.Close()
	line.Hangup()
	if _, err := io.ReadAll(broken); err == nil {
		t.Error("a stream whose session died ended as if all had come")
	}
}

func TestLine_refusalsKeepTheirClass(t *testing.T) {
	l := newWireLine()
	defer guest(l)()
	line := Open(l.dial, nil)
	defer line.Close()
	if _, err := line.Dial(within(t, 10*time.Second), refused); !errs.Is(err, errs.Denied) {
		t.Errorf("got %v", err)
	}
}

// The host, the guest or the line dies, many times and at any moment: the next
// Dial works, and no byte of one session gets into another.
func TestLine_survivesEveryDeath(t *testing.T) {
	deaths := 60
	if testing.Short() {
		deaths = 20
	}
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprintf("drop=%v", drop), func(t *testing.T) {
			l := newWireLine()
			l.dropClosed = drop
			stop := guest(l)
			line := Open(l.dial, nil)
			defer func() {
				line.Close()
				stop()
			}()
			r := rand.New(rand.NewPCG(1, uint64(len(t.Name()))))
			for i := range deaths {
				busy := make(chan error, 1)
				go func(line *Line) { busy <- echo(within(t, 20*time.Second), line, bytes.Repeat([]byte("x"), 3<<20)) }(line)
				<-time.After(time.Duration(r.IntN(30)) * time.Millisecond)
				switch i % 4 {
				case 0:
					l.cutHost()
				case 1:
					stop()
					stop = guest(l)
				case 2:
					line.Hangup()
				case 3: // the host's process dies and another one comes
					l.cutHost()
					line.Close()
					line = Open(l.dial, nil)
				}
				<-busy // broken or through: that is its own affair, but it ends
				if err := echo(within(t, 20*time.Second), line, []byte("hello")); err != nil {
					t.Fatalf("death %d: %v", i, err)
				}
			}
		})
	}
}

// A monitor that lets nothing through until it is hung up on costs time only.
func TestLine_comesBackToASilentMonitor(t *testing.T) {
	l := newWireLine()
	l.throttled = 2
	defer guest(l)()
	line := Open(l.dial, nil)
	defer line.Close()
	if err := echo(within(t, 20*time.Second), line, []byte("hello")); err != nil {
		t.Fatal(err)
	}
}

func TestLine_dialEndsWithItsContext(t *testing.T) {
	l := newWireLine() // no guest is at the other end
	line := Open(l.dial, nil)
	defer line.Close()
	patience.Within(t, 10*time.Second, "dials to end with their contexts", func() {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		if _, err := line.Dial(ctx, echoPort); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		ctx, cancel = context.WithCancel(context.Background())
		time.AfterFunc(50*time.Millisecond, cancel)
		if _, err := line.Dial(ctx, echoPort); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestLine_aGoneMachineIsUnavailable(t *testing.T) {
	line := Open(func(context.Context) (net.Conn, error) { return nil, errors.New("connection refused") }, nil)
	if _, err := line.Dial(within(t, 10*time.Second), echoPort); !errs.Is(err, errs.Unavailable) {
		t.Errorf("got %v", err)
	}
	line.Close()
	line.Close()
	if _, err := line.Dial(within(t, 10*time.Second), echoPort); !errs.Is(err, errs.Unavailable) {
		t.Errorf("after Close: %v", err)
	}
}

// A peer that is written to and does not read must not hold a Close up.
func TestStream_closeDoesNotWaitForADeafPeer(t *testing.T) {
	l := newWireLine()
	defer guest(l)()
	line := Open(l.dial, nil)
	defer line.Close()
	conn, err := line.Dial(within(t, 10*time.Second), deafPort)
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, 8<<20))
		wrote <- err
	}()
	<-time.After(20 * time.Millisecond)
	patience.Within(t, 5*time.Second, "a Close", func() { conn.Close() })
	if err := <-wrote; err == nil {
		t.Error("8 MB went to a peer that reads nothing")
	}
}

// A guest that goes on writing to a stream that the host has closed is told.
func TestStream_aWriterLearnsThatNobodyReads(t *testing.T) {
	l := newWireLine()
	told := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		NewGuest(l.open, func(conn net.Conn, port uint32) {
			defer conn.Close()
			_ = wire.Grant(conn, port)
			var err error
			for err == nil {
				_, err = conn.Write(make([]byte, 64<<10))
			}
			told <- err
		}).Serve(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	line := Open(l.dial, nil)
	defer line.Close()
	conn, err := line.Dial(within(t, 10*time.Second), 9)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	select {
	case <-told:
	case <-time.After(20 * time.Second):
		t.Fatal("the writer hangs")
	}
}

// Programs rely on it: a read that was given up by its deadline can go on.
func TestStream_readsGoOnAfterADeadline(t *testing.T) {
	l := newWireLine()
	defer guest(l)()
	line := Open(l.dial, nil)
	defer line.Close()
	conn, err := line.Dial(within(t, 10*time.Second), echoPort)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	buf := make([]byte, 8)
	_, err = conn.Read(buf)
	if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
		t.Fatalf("got %v, want a timeout", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	if _, err := conn.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "late" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

// The guest answers a new host through the rests of others, and starts for
// none that it did not answer. A word that was cut off hides none that follows.
func TestAnswer_findsTheHostInWhatOthersLeft(t *testing.T) {
	old, mine := newNonce(), newNonce()
	var in bytes.Buffer
	in.WriteString("rest of a frame SKHELL SKHELLO:short")
	for range 3 {
		in.Write(word(tagHello, old))
	}
	in.Write(filler)
	in.Write(word(tagStart, nonce{1})) // of a host that we never answered
	in.Write(word(tagHello, mine)[:10])
	in.Write(word(tagHello, mine))
	in.Write(word(tagHello, mine)[:10])
	in.Write(word(tagStart, mine))
	in.WriteString("session")
	p := &script{in: &in}
	r := bufio.NewReader(p)
	if err := answer(p, r); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "session" {
		t.Errorf("the session begins with %q", rest)
	}
	for _, n := range []nonce{old, mine} {
		if bytes.Count(p.out.Bytes(), word(tagOK, n)) != 1 {
			t.Errorf("answered %q, want %q once", &p.out, word(tagOK, n))
		}
	}
}

type script struct {
	in  io.Reader
	out bytes.Buffer
}

func (s *script) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *script) Close() error                     { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

func FuzzAnswer(f *testing.F) {
	n := newNonce()
	f.Add([]byte("noise"), []byte("x"))
	f.Add(word(tagHello, n), word(tagStart, n))
	f.Add(bytes.Repeat([]byte("SK"), 40), filler[:50])
	f.Fuzz(func(t *testing.T, before, between []byte) {
		var in bytes.Buffer
		in.Write(before)
		in.Write(word(tagHello, n))
		in.Write(between)
		in.Write(word(tagStart, n))
		p := &script{in: &in}
		if err := answer(p, bufio.NewReader(p)); err != nil {
			t.Fatalf("%q, %q: %v", before, between, err)
		}
		if !bytes.Contains(p.out.Bytes(), word(tagOK, n)) {
			t.Fatalf("answered %q", &p.out)
		}
	})
}

// FuzzGuard: what gets through to yamux is whole frames of bounded size, and
// not a byte is lost or made up.
func FuzzGuard(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 'h', 'i'}, 3)
	f.Add([]byte{0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1}, 100)
	f.Add(filler[:64], 7)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		g := &guard{Port: &script{in: bytes.NewReader(data)}}
		g.r = bufio.NewReader(g.Port)
		buf := make([]byte, 1+min(max(size, 0), 4096))
		var got []byte
		for {
			n, err := g.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				break
			}
		}
		if !bytes.HasPrefix(data, got) {
			t.Fatalf("%d bytes in, %d others out", len(data), len(got))
		}
		if g.body > frameBytesMax {
			t.Fatalf("a frame of %d bytes", g.body)
		}
	})
}

// A guest that speaks yamux but means no good: floods of keep-alives, streams
// towards the host, frames of any size. It loses its session and no more.
func TestLine_aHostileGuestLosesItsSession(t *testing.T) {
	for name, attack := range map[string][]byte{
		"pings":          bytes.Repeat([]byte{0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1}, 10_000),
		"a stream":       {0, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0},
		"a huge frame":   {0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff},
		"another tongue": []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			defer there.Close()
			go func() {
				r := bufio.NewReader(there)
				if answer(there, r) != nil {
					return
				}
				_, _ = there.Write(attack)
				_, _ = io.Copy(io.Discard, r)
			}()
			s, err := connect(within(t, 10*time.Second), here, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			line := Open(nil, nil)
			if _, err := line.keep(s); err != nil {
				t.Fatal(err)
			}
			select {
			case <-s.CloseChan():
			case <-time.After(10 * time.Second):
				t.Error("the session lives on")
			}
			line.Close()
		})
	}
}

// A caller's deadline is the one that counts: a guest may take minutes to boot
// on a slow host. Without one, Dial gives up by itself.
func TestDial_waitsAsLongAsItsCaller(t *testing.T) {
	for name, wait := range map[string]time.Duration{"deadline": 5 * time.Minute, "none": dialMax} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if name == "deadline" {
					ctx, cancel = context.WithTimeout(t.Context(), wait)
				}
				defer cancel()
				line := Open(newWireLine().dial, nil)
				defer line.Close()
				began := time.Now()
				_, err := line.Dial(ctx, wire.ControlPort)
				if took := time.Since(began).Round(time.Second); err == nil || took != wait {
					t.Errorf("gave up after %v with %v, want %v", took, err, wait)
				}
			})
		})
	}
}

// A guest that has a session but no time, as on a busy host, is alive: who dials
// waits for its answer as he would for its boot.
func TestDial_waitsForASlowAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes longer than a channel without keep-alives waits for an answer")
	}
	t.Parallel()
	l := newWireLine()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		NewGuest(l.open, func(conn net.Conn, port uint32) {
			<-time.After(wire.PreambleTimeout + time.Second) // yamux has no place in a bubble
			serveTest(conn, port)
		}).Serve(ctx)
	}()
	line := Open(l.dial, nil)
	var dials sync.WaitGroup
	for name, ctx := range map[string]context.Context{"deadline": within(t, dialMax), "none": ctx} {
		dials.Go(func() {
			conn, err := line.Dial(ctx, echoPort)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			conn.Close()
		})
	}
	dials.Wait()
	line.Close()
	cancel()
	<-served
}

// bothWays is a line whose host serves what the test's guest serves, and its
// guest.
func bothWays(t *testing.T) (l *wireLine, line *Line, g *Guest) {
	t.Helper()
	l = newWireLine()
	g = NewGuest(l.open, serveTest)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Serve(ctx)
	}()
	line = Open(l.dial, serveTest)
	t.Cleanup(func() {
		line.Close()
		cancel()
		<-done
	})
	conn, err := line.Dial(within(t, 20*time.Second), echoPort)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	return l, line, g
}

// echoFromGuest sends data through a stream that the guest opens.
func echoFromGuest(ctx context.Context, g *Guest, data []byte) error {
	conn, err := g.Dial(ctx, echoPort)
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = conn.Write(data)
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err == nil && !bytes.Equal(got, data) {
		err = fmt.Errorf("%d bytes came back of %d", len(got), len(data))
	}
	return err
}

func TestGuest_opensStreams(t *testing.T) {
	_, line, g := bothWays(t)
	ctx := within(t, 30*time.Second)
	data := bytes.Repeat([]byte("up "), 100_000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := echoFromGuest(ctx, g, data); err != nil {
				t.Errorf("guest to host: %v", err)
			}
		})
		wg.Go(func() {
			if err := echo(ctx, line, data); err != nil {
				t.Errorf("host to guest: %v", err)
			}
		})
	}
	wg.Wait()
	if _, err := g.Dial(ctx, refused); !errs.Is(err, errs.Denied) || errs.Public(err) != "not this one" {
		t.Errorf("a port that the host refuses: %v", err)
	}
}

// A session that broke is begun anew by the host: it need not have anything to
// say to the guest.
func TestGuest_opensStreamsAfterABreak(t *testing.T) {
	l, _, g := bothWays(t)
	ctx := within(t, 60*time.Second)
	for range 3 {
		l.cutHost()
		for {
			once, cancel := patience.Context(ctx, 5*time.Second)
			err := echoFromGuest(once, g, []byte("again"))
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("the guest reaches the host no more: %v", err)
			}
		}
	}
}

// What a guest does not end takes the place of its other streams, and of
// nothing of the host's.
func TestGuest_streamsAreBounded(t *testing.T) {
	l := newWireLine()
	hold := make(chan struct{})
	line := Open(l.dial, func(conn net.Conn, port uint32) {
		defer conn.Close()
		_ = wire.Grant(conn, port)
		<-hold
	})
	defer line.Close()
	defer close(hold)
	g := NewGuest(l.open, serveTest)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Serve(ctx)
	}()
	defer func() { cancel(); <-done }()
	in := within(t, 60*time.Second)
	if err := echo(in, line, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	for i := range guestStreamsMax {
		conn, err := g.Dial(in, 9)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		defer conn.Close()
	}
	if _, err := g.Dial(in, 9); !errs.Is(err, errs.Limit) {
		t.Errorf("one more than the bound: %v", err)
	}
	if err := echo(in, line, []byte("hello")); err != nil {
		t.Errorf("the host's own stream: %v", err)
	}
}
