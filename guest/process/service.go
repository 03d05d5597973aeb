package process

import (
	"context"
	"sort"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/wire"
)

const (
	inputBytesMax = 1 << 20
	pageDefault   = 100
	pageMax       = 1000
	waitMax       = time.Hour
)

// rememberMax is how many keys one Remember may name.
const rememberMax = 1000

// service is guest.v1's Process over a Core.
type service struct{ c *Core }

// Service returns the handler of guest.v1's Process.
func (c *Core) Service() wire.ProcessHandler { return &service{c} }

func (s *service) Start(ctx context.Context, r *connect.Request[wire.StartRequest]) (*connect.Response[wire.StartResponse], error) {
	p, existed, err := s.c.launch(ctx, r.Msg)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.StartResponse{Process: p.info(), Existed: existed}), nil
}

func (s *service) Exec(ctx context.Context, r *connect.Request[wire.StartRequest], st *connect.ServerStream[wire.AttachEvent]) error {
	p, _, err := s.c.launch(ctx, r.Msg)
	if err != nil {
		return wire.ToConnect(err)
	}
	return wire.ToConnect(s.c.attach(ctx, p, &wire.AttachRequest{}, st.Send))
}

func (s *service) Attach(ctx context.Context, r *connect.Request[wire.AttachRequest], st *connect.ServerStream[wire.AttachEvent]) error {
	p, err := s.c.find(r.Msg.Key)
	if err != nil {
		return wire.ToConnect(err)
	}
	return wire.ToConnect(s.c.attach(ctx, p, r.Msg, st.Send))
}

func (s *service) Get(_ context.Context, r *connect.Request[wire.GetProcessRequest]) (*connect.Response[wire.GetProcessResponse], error) {
	p, err := s.c.find(r.Msg.Key)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.GetProcessResponse{Process: p.info()}), nil
}

// List pages by the order of starts; the token is the last key's id.
func (s *service) List(_ context.Context, r *connect.Request[wire.ListProcessesRequest]) (*connect.Response[wire.ListProcessesResponse], error) {
	after, err := parseToken(r.Msg.PageToken)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	size := int(min(r.Msg.PageSize, pageMax))
	if size == 0 {
		size = pageDefault
	}
	procs := s.c.list(after)
	res := &wire.ListProcessesResponse{}
	if len(procs) > size {
		procs = procs[:size]
		res.NextPageToken = formatToken(procs[size-1].id)
	}
	for _, p := range procs {
		res.Processes = append(res.Processes, p.info())
	}
	return connect.NewResponse(res), nil
}

// list returns the processes whose id is larger than after, oldest first.
func (c *Core) list(after uint64) []*proc {
	c.mu.Lock()
	defer c.mu.Unlock()
	var procs []*proc
	for _, p := range c.byID {
		if p.id > after {
			procs = append(procs, p)
		}
	}
	sort.Slice(procs, func(i, j int) bool { return procs[i].id < procs[j].id })
	return procs
}

func (s *service) Input(ctx context.Context, r *connect.Request[wire.InputRequest]) (*connect.Response[wire.InputResponse], error) {
	m := r.Msg
	if len(m.Data) > inputBytesMax || m.Offset < 0 {
		return nil, wire.ToConnect(errs.New(errs.Invalid, "one call takes at most %d bytes at an offset from 0 on", inputBytesMax))
	}
	p, err := s.c.find(m.Key)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	acked, closed, err := p.stdin.Write(ctx, m.Offset, m.Data, m.Eof)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.InputResponse{Acked: acked, Closed: closed}), nil
}

func (s *service) Signal(_ context.Context, r *connect.Request[wire.SignalRequest]) (*connect.Response[wire.SignalResponse], error) {
	m := r.Msg
	if m.Signal < 1 || m.Signal > 64 {
		return nil, wire.ToConnect(errs.New(errs.Invalid, "signal %d is not in 1..64", m.Signal))
	}
	p, err := s.c.find(m.Key)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	scope := pair.ScopeGroup
	if m.LeaderOnly {
		scope = pair.ScopeLeader
	}
	if err := s.c.signal(p, unix.Signal(m.Signal), scope, pair.CauseKilled); err != nil {
		return nil, wire.ToConnect(err)
	}
	if m.Signal == int32(unix.SIGKILL) && !m.LeaderOnly {
		s.c.spawnTask(func() { s.c.sweep(p) })
	}
	return connect.NewResponse(&wire.SignalResponse{}), nil
}

func (s *service) Resize(_ context.Context, r *connect.Request[wire.ResizeRequest]) (*connect.Response[wire.ResizeResponse], error) {
	if !validSize(r.Msg.Size) {
		return nil, wire.ToConnect(errs.New(errs.Invalid, "a terminal has 1..%d columns and rows", ptySizeMax))
	}
	p, err := s.c.find(r.Msg.Key)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	if err := p.resize(r.Msg.Size); err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.ResizeResponse{}), nil
}

func (p *proc) resize(size *wire.PtySize) error {
	if !p.entry.Pty {
		return errs.New(errs.Invalid, "process %q has no terminal", p.key)
	}
	gone := errs.New(errs.NotFound, "process %q has ended", p.key)
	if p.entry.Master == nil {
		return gone
	}
	raw, err := p.entry.Master.SyscallConn()
	if err != nil {
		return gone
	}
	cerr := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(size.Cols), Row: uint16(size.Rows)})
	})
	if cerr != nil {
		return gone
	}
	return err
}

func (s *service) Wait(ctx context.Context, r *connect.Request[wire.WaitRequest]) (*connect.Response[wire.WaitResponse], error) {
	if r.Msg.WaitMs < 0 {
		return nil, wire.ToConnect(errs.New(errs.Invalid, "wait_ms is negative"))
	}
	p, err := s.c.find(r.Msg.Key)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	limit := time.NewTimer(min(time.Duration(min(r.Msg.WaitMs, waitMax.Milliseconds()))*time.Millisecond, waitMax))
	defer limit.Stop()
	select {
	case <-p.exited:
	case <-limit.C:
	case <-s.c.quit:
	case <-ctx.Done():
		return nil, wire.ToConnect(ctx.Err())
	}
	return connect.NewResponse(&wire.WaitResponse{Process: p.info()}), nil
}

func (s *service) Forget(_ context.Context, r *connect.Request[wire.ForgetRequest]) (*connect.Response[wire.ForgetResponse], error) {
	p, err := s.c.find(r.Msg.Key)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	if err := s.c.forget(p); err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.ForgetResponse{}), nil
}

func (s *service) Remember(_ context.Context, r *connect.Request[wire.RememberRequest]) (*connect.Response[wire.RememberResponse], error) {
	if len(r.Msg.Keys) > rememberMax {
		return nil, wire.ToConnect(errs.New(errs.Invalid, "more than %d keys", rememberMax))
	}
	used := make([]pair.Used, 0, len(r.Msg.Keys))
	for _, k := range r.Msg.Keys {
		if err := checkKey(k.Key); err != nil {
			return nil, wire.ToConnect(err)
		}
		if len(k.Fingerprint) > pair.FingerprintBytesMax {
			return nil, wire.ToConnect(errs.New(errs.Invalid, "a fingerprint has more than %d bytes", pair.FingerprintBytesMax))
		}
		used = append(used, pair.Used{Key: k.Key, Fingerprint: string(k.Fingerprint)})
	}
	if err := s.c.init.Remember(used); err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.RememberResponse{}), nil
}
