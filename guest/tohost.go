package guest

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// This file serves the places in the machine that lead to the host.

// Bounds of a forward.
const (
	forwardStreamsMax = 64 // connections to all places that are not over
	forwardDialWait   = 30 * time.Second
	forwardAgain      = 100 * time.Millisecond // after a failed accept
)

// forwardToHost listens at the places that the boot file names, until ctx ends. A
// place that cannot be listened at is logged: the machine goes on without it.
func forwardToHost(ctx context.Context, cfg Config, host transport) *sync.WaitGroup {
	var wg sync.WaitGroup
	slots := make(chan struct{}, forwardStreamsMax)
	for _, f := range cfg.Boot.Forwards {
		ln, err := listenForward(f.Listen)
		if err != nil {
			logf(cfg.Log, "forward %s to the host: %v", f.Listen, err)
			continue
		}
		stop := context.AfterFunc(ctx, func() { ln.Close() })
		wg.Go(func() {
			defer stop()
			defer ln.Close()
			acceptForwards(ctx, ln, slots, func(conn net.Conn) { forwardConn(ctx, cfg, host, conn, f) })
		})
	}
	return &wg
}

func listenForward(place string) (net.Listener, error) {
	network, address, _ := strings.Cut(place, ":")
	if network != "tcp" && (network != "unix" || !strings.HasPrefix(address, "@")) {
		return nil, errs.New(errs.Unsupported, "a place is tcp:ADDRESS or unix:@NAME, not %.60q", place)
	}
	return net.Listen(network, address)
}

// acceptForwards calls f in a goroutine of its own for each connection; those
// beyond the bound are hung up.
func acceptForwards(ctx context.Context, ln net.Listener, slots chan struct{}, f func(net.Conn)) {
	for ctx.Err() == nil {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors
			select {
			case <-ctx.Done():
			case <-time.After(forwardAgain):
			}
			continue
		}
		select {
		case slots <- struct{}{}:
			go func() {
				defer func() { <-slots }()
				f(conn)
			}()
		default:
			conn.Close()
		}
	}
}

// forwardConn connects a program's connection with a port of the host.
func forwardConn(ctx context.Context, cfg Config, host transport, conn net.Conn, f wire.Forward) {
	defer conn.Close()
	dialing, cancel := context.WithTimeout(ctx, forwardDialWait)
	defer cancel()
	stream, err := host.dial(dialing, f.Port)
	if err != nil {
		logf(cfg.Log, "%s: port %d of the host: %v", f.Listen, f.Port, err)
		return
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() {
		conn.Close()
		stream.Close()
	})
	defer stop()
	relay(conn, stream)
}
