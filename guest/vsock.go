package guest

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/wire"
)

const (
	vsockPause   = 10 * time.Millisecond // after a failure
	vsockBacklog = 64
)

// serveVsock listens for the host. A listener lives through a snapshot and its
// restore, connections do not.
func serveVsock(ctx context.Context, port uint32, serve func(net.Conn, uint32)) {
	for ctx.Err() == nil {
		if ln, err := listenVsock(port); err == nil {
			acceptVsock(ctx, ln, serve)
		}
		select {
		case <-ctx.Done():
		case <-time.After(vsockPause):
		}
	}
}

// listenVsock returns a listening socket that waits in Go's poller: the net
// package does not know the family.
func listenVsock(port uint32) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: port})
	if err == nil {
		err = unix.Listen(fd, vsockBacklog)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "vsock"), nil
}

// acceptVsock serves connections until the listener breaks or ctx ends. It serves
// the host only: programs inside could connect to their own machine.
func acceptVsock(ctx context.Context, ln *os.File, serve func(net.Conn, uint32)) {
	defer ln.Close()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	raw, err := ln.SyscallConn()
	if err != nil {
		return
	}
	for {
		fd, peer := -1, unix.Sockaddr(nil)
		var aerr error
		err := raw.Read(func(l uintptr) bool {
			fd, peer, aerr = unix.Accept4(int(l), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return aerr != unix.EAGAIN
		})
		switch {
		case err != nil: // closed
			return
		case aerr == unix.EINTR || aerr == unix.ECONNABORTED:
			continue
		case aerr != nil: // out of descriptors, or the device went away
			return
		}
		a, ok := peer.(*unix.SockaddrVM)
		if !ok || a.CID != unix.VMADDR_CID_HOST {
			_ = unix.Close(fd)
			continue
		}
		go acceptStream(&vsockConn{os.NewFile(uintptr(fd), "vsock")}, serve)
	}
}

// dialVsock connects to where the host serves our streams.
func dialVsock(ctx context.Context) (net.Conn, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Connect(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_HOST, Port: wire.VsockHostPort})
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd)
		return nil, err
	}
	conn := &vsockConn{os.NewFile(uintptr(fd), "vsock")}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Unix(1, 0)) })
	err = conn.connected()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// connected waits for the end of a connect.
func (c *vsockConn) connected() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = raw.Write(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(p, 0); n == 0 && err == nil {
			return false
		}
		number, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			refused = err
		} else if number != 0 {
			refused = unix.Errno(number)
		}
		return true
	})
	return errors.Join(err, refused)
}

func acceptStream(conn net.Conn, serve func(net.Conn, uint32)) {
	_ = conn.SetDeadline(time.Now().Add(wire.PreambleTimeout))
	port, err := wire.Accept(conn)
	if err != nil {
		conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	serve(conn, port)
}

// vsockConn is a connected vsock as a net.Conn.
type vsockConn struct{ *os.File }

var _ net.Conn = (*vsockConn)(nil)

// Read and Write return errors of package net. A file's own are none, and
// net/http, which interrupts its reads between two requests by a deadline,
// takes one that is not a net.Error for the end of the connection: the next
// request on it would be cancelled from the start.

func (c *vsockConn) Read(b []byte) (int, error) {
	n, err := c.File.Read(b)
	return n, netError("read", err)
}

func (c *vsockConn) Write(b []byte) (int, error) {
	n, err := c.File.Write(b)
	return n, netError("write", err)
}

func netError(op string, err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return &net.OpError{Op: op, Net: vsockAddr{}.Network(), Addr: vsockAddr{}, Err: pe.Err}
	}
	return err // nil, and the end
}

func (c *vsockConn) LocalAddr() net.Addr  { return vsockAddr{} }
func (c *vsockConn) RemoteAddr() net.Addr { return vsockAddr{} }

// CloseWrite ends one direction.
func (c *vsockConn) CloseWrite() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := raw.Control(func(fd uintptr) { serr = unix.Shutdown(int(fd), unix.SHUT_WR) }); err != nil {
		return err
	}
	return serr
}

type vsockAddr struct{}

func (vsockAddr) Network() string { return "vsock" }
func (vsockAddr) String() string  { return "host" }
