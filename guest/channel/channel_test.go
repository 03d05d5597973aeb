package channel_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guestAt parks connections at path until the test ends; port 7 echoes,
// port 9 is refused, all others are silent.
func guestAt(t *testing.T, path string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		channel.Park(ctx, dialer(path), func(conn net.Conn, port uint32) {
			defer conn.Close()
			switch port {
			case 7:
				_ = wire.Grant(conn, port)
				_, _ = io.Copy(conn, conn)
			case 9:
				_ = wire.Refuse(conn, errs.New(errs.NotFound, "nothing listens on port 9"))
			case 10:
				_ = wire.Refuse(conn, errs.New(errs.Unavailable, "nobody accepts on port 10"))
			default:
				<-ctx.Done()
			}
		})
	}()
	// Park does not wait for the streams; that none is left is goleak's to see.
	return sync.OnceFunc(func() { cancel(); <-done })
}

func dialer(path string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path)))
	}
}

func listen(t *testing.T, path string) *channel.Host {
	t.Helper()
	h, err := channel.Listen(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func ctx(t *testing.T) context.Context {
	c, cancel := patience.Context(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return c
}

func echo(t *testing.T, conn net.Conn, n int) {
	t.Helper()
	defer conn.Close()
	want := make([]byte, n)
	_, _ = rand.Read(want)
	go func() { _, _ = conn.Write(want); _ = conn.(*net.UnixConn).CloseWrite() }()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("echo of %d bytes: %d came back, %v", n, len(got), err)
	}
}

func TestDial_manyStreamsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.sock")
	h := listen(t, path)
	defer guestAt(t, path)()
	var wg sync.WaitGroup
	for range 40 { // more than are parked at any time
		wg.Go(func() {
			conn, err := h.Dial(ctx(t), 7)
			if err != nil {
				t.Error(err)
				return
			}
			echo(t, conn, 300_000)
		})
	}
	wg.Wait()
}

func TestDial_aRefusalKeepsItsClass(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.sock")
	h := listen(t, path)
	defer guestAt(t, path)()
	if _, err := h.Dial(ctx(t), 9); !errs.Is(err, errs.NotFound) || errs.Public(err) != "nothing listens on port 9" {
		t.Fatalf("Dial = %v", err)
	}
}

// A refusal as Unavailable is an answer, not a connection that broke: a retry
// with the next parked one would go on until ctx ends.
func TestDial_aRefusalAsUnavailableIsNotRetried(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	h, err := channel.Listen(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	defer guestAt(t, path)()
	ctx, cancel := patience.Context(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := h.Dial(ctx, 10); !errs.Is(err, errs.Unavailable) || errs.Public(err) != "nobody accepts on port 10" {
		t.Errorf("dial: %v", err)
	}
}

func TestDial_endsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.sock")
	h := listen(t, path)
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := h.Dial(short, 7); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with no guest: %v", err)
	}
	defer guestAt(t, path)()
	short2, cancel2 := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel2()
	if _, err := h.Dial(short2, 1234); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a silent guest: %v", err)
	}
	if conn, err := h.Dial(ctx(t), 7); err != nil {
		t.Errorf("after that: %v", err)
	} else {
		echo(t, conn, 10)
	}
}

func TestHost_survivesTheGuestsDeathAndItsOwn(t *testing.T) {
	// A path of 200 bytes: longer than a socket address.
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 100))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "host.sock")
	h := listen(t, path)
	stop := guestAt(t, path)
	conn, err := h.Dial(ctx(t), 7)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, conn, 10)

	stop() // the supervisor dies: its parked connections are stale
	defer guestAt(t, path)()
	if conn, err = h.Dial(ctx(t), 7); err != nil {
		t.Fatalf("after the guest's death: %v", err)
	}
	echo(t, conn, 10)

	h.Close() // the server dies: the guest finds the new socket by itself
	if _, err := h.Dial(ctx(t), 7); !errs.Is(err, errs.Unavailable) {
		t.Errorf("Dial on a closed host = %v", err)
	}
	h2 := listen(t, path)
	if conn, err = h2.Dial(ctx(t), 7); err != nil {
		t.Fatalf("after the host's death: %v", err)
	}
	echo(t, conn, 10)
}

func TestHost_aGuestThatSpeaksFirstIsDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.sock")
	h := listen(t, path)
	for range 200 { // also more than may be parked
		conn, err := dialer(path)(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("OK 7\nGET / HTTP/1.1\r\n\r\n"))
	}
	defer guestAt(t, path)()
	conn, err := h.Dial(ctx(t), 7)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, conn, 10)
}
