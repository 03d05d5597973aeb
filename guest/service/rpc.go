package service

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

const (
	waitMax        = 10 * time.Minute
	keepaliveEvery = 10 * time.Second
)

// settled: nothing more happens soon by itself.
func settled(s wire.ServiceState) bool {
	switch s {
	case wire.ServiceState_SERVICE_STATE_STARTING, wire.ServiceState_SERVICE_STATE_BACKOFF, wire.ServiceState_SERVICE_STATE_UNSPECIFIED:
		return false
	}
	return true
}

func isStopped(s wire.ServiceState) bool { return s == wire.ServiceState_SERVICE_STATE_STOPPED }

// waiting bounds ctx by what the caller wants to wait; ok is false when that
// is nothing.
func waiting(ctx context.Context, ms int64) (_ context.Context, cancel context.CancelFunc, ok bool, err error) {
	if ms < 0 || ms > waitMax.Milliseconds() {
		return nil, nil, false, errs.New(errs.Invalid, "wait_ms is not in 0..%d", waitMax.Milliseconds())
	}
	ctx, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
	return ctx, cancel, ms > 0, nil
}

// act does something to a service and waits for it.
func (m *Manager) act(ctx context.Context, name string, ms int64, do func(*unit) uint64, ok func(wire.ServiceState) bool) (*wire.ServiceInfo, error) {
	ctx, cancel, wait, err := waiting(ctx, ms)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	defer cancel()
	u, err := m.find(name)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	round := do(u)
	if wait {
		m.await(ctx, u, round, ok)
	}
	return u.info(), nil
}

// Declare implements wire.ServiceHandler.
func (m *Manager) Declare(ctx context.Context, r *connect.Request[wire.DeclareServiceRequest]) (*connect.Response[wire.DeclareServiceResponse], error) {
	ctx, cancel, wait, err := waiting(ctx, r.Msg.WaitMs)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	defer cancel()
	keep := r.Msg.Start == wire.DeclareStart_DECLARE_START_KEEP
	u, created, changed, err := m.declare(r.Msg.Declaration, keep)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	if wait {
		m.await(ctx, u, u.wish().round, settled)
	}
	return connect.NewResponse(&wire.DeclareServiceResponse{Service: u.info(), Created: created, Changed: changed}), nil
}

// Remove implements wire.ServiceHandler. It returns when nothing is left.
func (m *Manager) Remove(ctx context.Context, r *connect.Request[wire.RemoveServiceRequest]) (*connect.Response[wire.RemoveServiceResponse], error) {
	u, err := m.find(r.Msg.Name)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	m.remove(u)
	for {
		changed := m.change()
		if !m.has(u) {
			return connect.NewResponse(&wire.RemoveServiceResponse{}), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, wire.ToConnect(ctx.Err())
		case <-m.ctx.Done():
			return nil, wire.ToConnect(errs.New(errs.Unavailable, "the supervisor is going down"))
		}
	}
}

// Start implements wire.ServiceHandler.
func (m *Manager) Start(ctx context.Context, r *connect.Request[wire.StartServiceRequest]) (*connect.Response[wire.StartServiceResponse], error) {
	i, err := m.act(ctx, r.Msg.Name, r.Msg.WaitMs, (*unit).start, settled)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&wire.StartServiceResponse{Service: i}), nil
}

// Stop implements wire.ServiceHandler.
func (m *Manager) Stop(ctx context.Context, r *connect.Request[wire.StopServiceRequest]) (*connect.Response[wire.StopServiceResponse], error) {
	stop := func(u *unit) uint64 {
		return u.want(func(r *record) { again(r); r.Wanted = false })
	}
	i, err := m.act(ctx, r.Msg.Name, r.Msg.WaitMs, stop, isStopped)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&wire.StopServiceResponse{Service: i}), nil
}

// Restart implements wire.ServiceHandler.
func (m *Manager) Restart(ctx context.Context, r *connect.Request[wire.RestartServiceRequest]) (*connect.Response[wire.RestartServiceResponse], error) {
	i, err := m.act(ctx, r.Msg.Name, r.Msg.WaitMs, func(u *unit) uint64 { return u.want(again) }, settled)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&wire.RestartServiceResponse{Service: i}), nil
}

// Get implements wire.ServiceHandler.
func (m *Manager) Get(_ context.Context, r *connect.Request[wire.GetServiceRequest]) (*connect.Response[wire.GetServiceResponse], error) {
	u, err := m.find(r.Msg.Name)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.GetServiceResponse{Service: u.info()}), nil
}

// List implements wire.ServiceHandler.
func (m *Manager) List(context.Context, *connect.Request[wire.ListServicesRequest]) (*connect.Response[wire.ListServicesResponse], error) {
	res := &wire.ListServicesResponse{}
	for _, u := range m.all() {
		res.Services = append(res.Services, u.info())
	}
	return connect.NewResponse(res), nil
}

// Watch implements wire.ServiceHandler.
func (m *Manager) Watch(ctx context.Context, _ *connect.Request[wire.WatchServicesRequest], st *connect.ServerStream[wire.WatchServicesResponse]) error {
	return wire.ToConnect(m.watch(ctx, st.Send))
}

func (m *Manager) watch(ctx context.Context, send func(*wire.WatchServicesResponse) error) error {
	alive := time.NewTicker(keepaliveEvery)
	defer alive.Stop()
	sent := map[*unit]uint64{}
	for first := true; ; first = false {
		changed := m.change()
		if err := m.sendChanges(sent, send); err != nil {
			return err
		}
		if first {
			if err := send(&wire.WatchServicesResponse{Event: &wire.WatchServicesResponse_Listed{Listed: true}}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-alive.C:
			if err := send(&wire.WatchServicesResponse{Event: &wire.WatchServicesResponse_Keepalive{Keepalive: &wire.Keepalive{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-m.ctx.Done():
			return errs.New(errs.Unavailable, "the supervisor is going down; watch again")
		}
	}
}

// sendChanges sends what is not as it was sent.
func (m *Manager) sendChanges(sent map[*unit]uint64, send func(*wire.WatchServicesResponse) error) error {
	present := map[*unit]bool{}
	for _, u := range m.all() {
		present[u] = true
		u.mu.Lock()
		seq := u.seq + 1 // never zero
		u.mu.Unlock()
		if sent[u] == seq {
			continue
		}
		sent[u] = seq
		if err := send(&wire.WatchServicesResponse{Event: &wire.WatchServicesResponse_Service{Service: u.info()}}); err != nil {
			return err
		}
	}
	for u := range sent {
		if present[u] {
			continue
		}
		delete(sent, u)
		if err := send(&wire.WatchServicesResponse{Event: &wire.WatchServicesResponse_Removed{Removed: u.name}}); err != nil {
			return err
		}
	}
	return nil
}
