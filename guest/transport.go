package guest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/channel/mux"
)

// transport is the way between us and the host.
type transport interface {
	// serve calls f in a goroutine of its own for each stream that the host
	// opens, until ctx ends. f owns the stream and must Grant or Refuse it.
	serve(ctx context.Context, f func(conn net.Conn, port uint32))
	// dial opens a stream to a port of the host. Unavailable: it serves none. A
	// refusal comes back with its class.
	dial(ctx context.Context, port uint32) (net.Conn, error)
}

// newTransport returns the one that an address names; token is for one that anyone in
// the machine reaches.
func newTransport(address, token string) (transport, error) {
	kind, rest, _ := strings.Cut(address, ":")
	switch {
	case kind == "unix" && rest != "":
		return dialOut(rest), nil
	case kind == "virtio" && rest != "":
		return &serialLine{open: func(ctx context.Context) (mux.Port, error) { return openVirtio(ctx, rest) }, begun: make(chan struct{})}, nil
	case kind == "vsock":
		if port, err := strconv.ParseUint(rest, 10, 32); err == nil {
			return vsockPort(port), nil
		}
	case kind == "web" && token != "":
		if port, err := strconv.ParseUint(rest, 10, 16); err == nil && port > 0 {
			return webPort{port: int(port), token: token}, nil
		}
	}
	return nil, errs.New(errs.Unsupported, "channel %.60q is not spoken by this guest, only unix:/path, virtio:name, vsock:port, web:port with a token", address)
}

// dialOut is the path of the socket where connections are parked.
type dialOut string

func (d dialOut) serve(ctx context.Context, f func(net.Conn, uint32)) {
	channel.Park(ctx, func(ctx context.Context) (net.Conn, error) { return dialUnix(ctx, string(d)) }, f)
}

func (d dialOut) dial(ctx context.Context, port uint32) (net.Conn, error) {
	return channel.Open(ctx, func(ctx context.Context) (net.Conn, error) { return dialUnix(ctx, channel.AcceptPath(string(d))) }, port)
}

// serialLine is a line with many streams in it.
type serialLine struct {
	open  func(context.Context) (mux.Port, error)
	begun chan struct{} // closed when line is set
	line  *mux.Guest
}

func (l *serialLine) serve(ctx context.Context, f func(net.Conn, uint32)) {
	l.line = mux.NewGuest(l.open, f)
	close(l.begun)
	l.line.Serve(ctx)
}

func (l *serialLine) dial(ctx context.Context, port uint32) (net.Conn, error) {
	select {
	case <-l.begun:
		return l.line.Dial(ctx, port)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// vsockPort is where we listen for the host.
type vsockPort uint32

func (p vsockPort) serve(ctx context.Context, f func(net.Conn, uint32)) {
	serveVsock(ctx, uint32(p), f)
}

func (vsockPort) dial(ctx context.Context, port uint32) (net.Conn, error) {
	return channel.Open(ctx, dialVsock, port)
}

// webPort is the port of the loopback where we listen for a host that reaches us through
// a proxy of others. It cannot be dialled: such a host is behind nothing that we reach.
type webPort struct {
	port  int
	token string
}

const webPause = 50 * time.Millisecond // while the port is taken, by a supervise that just ends

func (p webPort) serve(ctx context.Context, f func(net.Conn, uint32)) {
	for ctx.Err() == nil {
		var lc net.ListenConfig
		if ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port))); err == nil {
			channel.ServeSockets(ctx, ln, p.token, f)
		}
		select {
		case <-ctx.Done():
		case <-time.After(webPause):
		}
	}
}

func (webPort) dial(context.Context, uint32) (net.Conn, error) {
	return nil, errs.New(errs.Unavailable, "the host serves no streams of this machine")
}

// Pauses while a virtio port is not there, or no host is at its other end.
const (
	portPauseMin = 2 * time.Millisecond
	portPauseMax = 20 * time.Millisecond
)

// openVirtio opens the virtio-serial port of that name once the host is there.
// Without a host every read is the end of the file, so there is nothing to
// wait on but time.
func openVirtio(ctx context.Context, name string) (*os.File, error) {
	f, err := virtioPort(name)
	if err != nil {
		return nil, err
	}
	for wait := portPauseMin; !hostThere(f); wait = min(wait+wait/8, portPauseMax) {
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
	return f, nil
}

func virtioPort(name string) (*os.File, error) {
	list, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, file := range list {
		data, err := os.ReadFile(file)
		if err != nil || strings.TrimSuffix(string(data), "\n") != name {
			continue
		}
		path := filepath.Join("/dev", filepath.Base(filepath.Dir(file)))
		return os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	return nil, fmt.Errorf("there is no virtio port %q", name)
}

func hostThere(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	there := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		_, err := unix.Poll(p, 0)
		there = err == nil && p[0].Revents&unix.POLLHUP == 0
	})
	return err == nil && there
}

// addressMax is what a socket address holds, with its end.
const addressMax = 107

// dialUnix connects to a path of any length: a long one through its
// directory's descriptor.
func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	if len(path) <= addressMax {
		return d.DialContext(ctx, "unix", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}
