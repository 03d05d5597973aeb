package port

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
)

const (
	listEvery      = 250 * time.Millisecond
	keepaliveEvery = 10 * time.Second
)

// Service is guest.v1's Port. The zero value is ready.
type Service struct{}

// New returns the service.
func New() *Service { return &Service{} }

// List says which ports are open now.
func (*Service) List(context.Context, *connect.Request[wire.ListPortsRequest]) (*connect.Response[wire.ListPortsResponse], error) {
	ports, err := list()
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.ListPortsResponse{Ports: ports}), nil
}

// Watch sends the open ports, then what changes, until the client leaves.
func (*Service) Watch(ctx context.Context, _ *connect.Request[wire.WatchPortsRequest], st *connect.ServerStream[wire.WatchPortsResponse]) error {
	return wire.ToConnect(watch(ctx, list, st.Send))
}

func watch(ctx context.Context, look func() ([]*wire.OpenPort, error), send func(*wire.WatchPortsResponse) error) error {
	tick := time.NewTicker(listEvery)
	defer tick.Stop()
	var known []*wire.OpenPort
	quiet := time.Now()
	for {
		ports, err := look()
		if err != nil {
			return err
		}
		events := changes(known, ports)
		known = ports
		if len(events) == 0 && time.Since(quiet) > keepaliveEvery {
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

// changes merges two sorted lists into the events that lead from one to the other.
func changes(old, now []*wire.OpenPort) []*wire.WatchPortsResponse {
	var events []*wire.WatchPortsResponse
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || (len(old) > 0 && less(old[0], now[0])):
			events = append(events, &wire.WatchPortsResponse{Event: &wire.WatchPortsResponse_Closed{Closed: old[0]}})
			old = old[1:]
		case len(old) == 0 || less(now[0], old[0]):
			events = append(events, &wire.WatchPortsResponse{Event: &wire.WatchPortsResponse_Opened{Opened: now[0]}})
			now = now[1:]
		default:
			old, now = old[1:], now[1:]
		}
	}
	return events
}
