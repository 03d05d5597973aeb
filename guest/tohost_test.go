package guest_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

// hostPort is a port of the test's host: it sends back what comes.
const hostPort = 70_000

// serveGuest is the host's end of the machine's streams until the test ends, or
// the returned function is called.
func serveGuest(t *testing.T, m *machine) (stop func()) {
	t.Helper()
	a, err := channel.Accept(channel.AcceptPath(strings.TrimPrefix(m.boot.Channel, "unix:")), func(conn net.Conn, port uint32) {
		if port != hostPort {
			_ = wire.Refuse(conn, errs.New(errs.Denied, "port %d is not served", port))
			return
		}
		_ = wire.Grant(conn, port)
		_, _ = io.Copy(conn, conn)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return func() { a.Close() }
}

// through sends data to a place in the machine and returns what comes back.
func through(place string, data []byte) ([]byte, error) {
	conn, err := net.DialTimeout("unix", place, 5*time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience.Of(20 * time.Second)))
	go func() {
		_, _ = conn.Write(data)
		_ = conn.(*net.UnixConn).CloseWrite()
	}()
	return io.ReadAll(conn)
}

// A place in the machine leads to a port of the host, whatever has died at
// either end before.
func TestForwards_leadToTheHost(t *testing.T) {
	place, denied := "@skete-test-"+rand.Text(), "@skete-test-"+rand.Text()
	m := start(t, options{change: func(b *wire.Boot) {
		b.Forwards = []wire.Forward{
			{Listen: "unix:/a/path", Port: hostPort}, // refused: the next ones are served all the same
			{Listen: "unix:" + place, Port: hostPort},
			{Listen: "unix:" + denied, Port: 1},
		}
	}})
	stop := serveGuest(t, m)
	data := bytes.Repeat([]byte("to the host "), 100_000)
	works := func() bool {
		got, err := through(place, data)
		return err == nil && bytes.Equal(got, data)
	}
	patience.Until(t, 20*time.Second, "a stream to the host", works)
	if got, err := through(denied, data); len(got) > 0 {
		t.Errorf("a port that the host does not serve: %d bytes, %v", len(got), err)
	}
	stop()
	if got, err := through(place, data); len(got) > 0 {
		t.Errorf("without a host: %d bytes, %v", len(got), err)
	}
	serveGuest(t, m)
	patience.Until(t, 20*time.Second, "a stream to the next host", works)
	m.killSupervise()
	patience.Until(t, 20*time.Second, "a stream of the next supervise", works)
	if !strings.Contains(m.log.String(), "unix:/a/path") {
		t.Errorf("the log does not name the bad place: %s", m.log)
	}
}
