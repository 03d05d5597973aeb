package guest

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
)

// This file knows the TCP ports that programs of the sandbox listen on,
// and carries streams to them.
//
// It looks at /proc/net/tcp and tcp6 (often while a client watches, and
// when asked); no guest network is needed, because a stream is dialled on the
// loopback of the machine itself: 127.0.0.1, then ::1.
//
// Everything is safe for concurrent use.

const (
	portListEvery      = 250 * time.Millisecond
	portKeepaliveEvery = 10 * time.Second
)

// portService is guest.v1's Port.
type portService struct {
	own func(netip.AddrPort) bool // at which the supervisor itself listens
}

// newPortService returns the service.
func newPortService(own func(netip.AddrPort) bool) *portService { return &portService{own} }

// list returns the ports of programs of the sandbox.
func (s *portService) list() ([]*wire.OpenPort, error) {
	all, err := listPorts()
	return slices.DeleteFunc(all, func(p *wire.OpenPort) bool {
		a, err := netip.ParseAddr(p.Address)
		return err == nil && s.own(netip.AddrPortFrom(a, uint16(p.Port)))
	}), err
}

// List says which ports are open now.
func (s *portService) List(context.Context, *connect.Request[wire.ListPortsRequest]) (*connect.Response[wire.ListPortsResponse], error) {
	ports, err := s.list()
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.ListPortsResponse{Ports: ports}), nil
}

// Watch sends the open ports, then what changes, until the client leaves.
func (s *portService) Watch(ctx context.Context, _ *connect.Request[wire.WatchPortsRequest], st *connect.ServerStream[wire.WatchPortsResponse]) error {
	return wire.ToConnect(portWatch(ctx, s.list, st.Send))
}

func portWatch(ctx context.Context, look func() ([]*wire.OpenPort, error), send func(*wire.WatchPortsResponse) error) error {
	tick := time.NewTicker(portListEvery)
	defer tick.Stop()
	var known []*wire.OpenPort
	quiet := time.Now()
	for {
		ports, err := look()
		if err != nil {
			return err
		}
		events := portChanges(known, ports)
		known = ports
		if len(events) == 0 && time.Since(quiet) > portKeepaliveEvery {
			events = append(events, &wire.WatchPortsResponse{Event: &wire.WatchPortsResponse_Keepalive{Keepalive: &wire.Keepalive{}}})
		}
		for _, e := range events {
			quiet = time.Now()
			if err := send(e); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// portChanges merges two sorted lists into the events that lead from one to the other.
func portChanges(old, now []*wire.OpenPort) []*wire.WatchPortsResponse {
	var events []*wire.WatchPortsResponse
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || (len(old) > 0 && portLess(old[0], now[0])):
			events = append(events, &wire.WatchPortsResponse{Event: &wire.WatchPortsResponse_Closed{Closed: old[0]}})
			old = old[1:]
		case len(old) == 0 || portLess(now[0], old[0]):
			events = append(events, &wire.WatchPortsResponse{Event: &wire.WatchPortsResponse_Opened{Opened: now[0]}})
			now = now[1:]
		default:
			old, now = old[1:], now[1:]
		}
	}
	return events
}
