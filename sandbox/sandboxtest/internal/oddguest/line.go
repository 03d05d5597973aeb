package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mdlayher/vsock"

	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/channel/mux"
	"github.com/skete-dev/skete/guest/wire"
)

// line is the way to the host.
type line interface {
	// serve gives every stream that the host opens to f.
	serve(ctx context.Context, f func(c net.Conn, port uint32))
	// hold is there and says what greet says, unasked, and no more.
	hold(greet func(io.Writer))
}

func lineOf(address, token string) line {
	kind, rest, _ := strings.Cut(address, ":")
	switch kind {
	case "unix":
		return parking(rest)
	case "virtio":
		return serial(rest)
	case "web":
		return web{address: "127.0.0.1:" + rest, token: token}
	default:
		port, err := strconv.ParseUint(rest, 10, 32)
		if err != nil {
			os.Exit(8)
		}
		return listening(port)
	}
}

// parking dials out and parks connections.
type parking string

func (p parking) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", string(p))
}

func (p parking) serve(ctx context.Context, f func(net.Conn, uint32)) { channel.Park(ctx, p.dial, f) }

func (p parking) hold(greet func(io.Writer)) {
	for range 4 {
		if c, err := p.dial(context.Background()); err == nil {
			greet(c)
			defer c.Close()
		}
	}
	<-time.After(time.Hour)
}

// serial is a virtio-serial port with many streams in it.
type serial string

func (s serial) open(context.Context) (mux.Port, error) { return s.file() }

func (s serial) file() (*os.File, error) {
	list, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
	for _, file := range list {
		if data, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(data)) == string(s) {
			return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(file))), os.O_RDWR|syscall.O_NONBLOCK, 0)
		}
	}
	return nil, fmt.Errorf("no port %s", string(s))
}

func (s serial) serve(ctx context.Context, f func(net.Conn, uint32)) {
	mux.NewGuest(s.open, f).Serve(ctx)
}

func (s serial) hold(greet func(io.Writer)) {
	f, err := s.file()
	if err != nil {
		os.Exit(9)
	}
	defer f.Close()
	for {
		greet(f)
		<-time.After(10 * time.Millisecond)
	}
}

// listening waits on a vsock port.
type listening uint32

func (l listening) accept(each func(net.Conn)) {
	ln, err := vsock.Listen(uint32(l), nil)
	if err != nil {
		os.Exit(10)
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			os.Exit(11)
		}
		go each(c)
	}
}

func (l listening) serve(_ context.Context, f func(net.Conn, uint32)) {
	l.accept(func(c net.Conn) {
		port, err := wire.Accept(c)
		if err != nil {
			c.Close()
			return
		}
		f(c, port)
	})
}

func (l listening) hold(greet func(io.Writer)) { l.accept(func(c net.Conn) { greet(c) }) }

// web is a port that streams come to as WebSockets.
type web struct{ address, token string }

func (w web) listen() net.Listener {
	ln, err := net.Listen("tcp", w.address)
	if err != nil {
		os.Exit(12)
	}
	return ln
}

func (w web) serve(ctx context.Context, f func(net.Conn, uint32)) {
	channel.ServeSockets(ctx, w.listen(), w.token, f)
}

func (w web) hold(greet func(io.Writer)) {
	ln := w.listen()
	for {
		c, err := ln.Accept()
		if err != nil {
			os.Exit(13)
		}
		greet(c)
	}
}
