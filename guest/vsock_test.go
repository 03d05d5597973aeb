package guest

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A connected vsock is a file, and a file's errors are not what net/http knows:
// it took the deadline by which it ends its own reads for a broken connection.
func TestTheSecondRequestOnAVsockIsNotCancelled(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	host := os.NewFile(uintptr(fds[0]), "host")
	client, err := net.FileConn(host)
	host.Close()
	if err != nil {
		t.Fatal(err)
	}
	ln := newListener(t.Context())
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Context().Err() != nil {
			w.WriteHeader(http.StatusTeapot)
		}
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(ln) }()
	defer func() { srv.Close(); <-served }()
	ln.offer(&vsockConn{os.NewFile(uintptr(fds[1]), "vsock")})

	dials := 0
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { dials++; return client, nil }}
	defer tr.CloseIdleConnections()
	hc := &http.Client{Transport: tr}
	for i := range 3 {
		res, err := hc.Post("http://guest/", "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("request %d was cancelled before it began", i)
		}
	}
	if dials != 1 {
		t.Errorf("%d connections, not one", dials)
	}
}
