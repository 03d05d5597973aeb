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

// transport serves the host's streams until ctx ends.
type transport func(ctx context.Context, serve func(conn net.Conn, port uint32))

// newTransport returns the one that an address names.
func newTransport(address string) (transport, error) {
	kind, rest, _ := strings.Cut(address, ":")
	switch {
	case kind == "unix" && rest != "":
		return func(ctx context.Context, serve func(net.Conn, uint32)) {
			channel.Park(ctx, func(ctx context.Context) (net.Conn, error) { return dialUnix(ctx, rest) }, serve)
		}, nil
	case kind == "virtio" && rest != "":
		return func(ctx context.Context, serve func(net.Conn, uint32)) {
			mux.Serve(ctx, func(ctx context.Context) (mux.Port, error) { return openVirtio(ctx, rest) }, serve)
		}, nil
	case kind == "vsock":
		port, err := strconv.ParseUint(rest, 10, 32)
		if err == nil {
			return func(ctx context.Context, serve func(net.Conn, uint32)) { serveVsock(ctx, uint32(port), serve) }, nil
		}
	}
	return nil, errs.New(errs.Unsupported, "channel %.60q is not spoken by this guest, only unix:/path, virtio:name, vsock:port", address)
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
