package gvisor

import (
	"context"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/wire"
)

// memoryKills says of commands that the host's kernel ended them for want of
// memory. The guest ends the largest command before the machine is at its
// limit. Where memory is taken faster than the guest looks, the kernel kills a
// process of the machine's group: the sentry, and the machine is over, or the
// one that holds a command's memory. Then that command alone has died of
// SIGKILL, the sentry does not tell the guest why, and only the group's count
// of such kills, which is outside, has gone up.
//
// It is an interceptor of the machine's client: each process killed so without a
// reason takes one of the kills that no other has taken. What took which is
// forgotten with this server. Safe for concurrent use.
type memoryKills struct {
	count func() uint64 // of the group so far

	mu    sync.Mutex
	taken map[string]bool // keys of processes
}

// explain gives a process the reason that its guest could not know.
func (k *memoryKills) explain(p *wire.ProcessInfo) {
	e := p.GetExit()
	if e.GetReason() != "" || e.GetSignal() != uint32(unix.SIGKILL) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.taken[p.Key] {
		if uint64(len(k.taken)) >= k.count() {
			return
		}
		k.taken[p.Key] = true
	}
	e.Reason = "out of memory"
}

// look explains whatever processes a message has.
func (k *memoryKills) look(message any) {
	switch m := message.(type) {
	case *wire.AttachEvent:
		k.explain(m.GetStarted())
		k.explain(m.GetExited())
	case *wire.ListProcessesResponse:
		for _, p := range m.Processes {
			k.explain(p)
		}
	case interface{ GetProcess() *wire.ProcessInfo }: // Start, Get, Wait
		k.explain(m.GetProcess())
	}
}

// WrapUnary implements connect.Interceptor.
func (k *memoryKills) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		if err == nil {
			k.look(res.Any())
		}
		return res, err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (k *memoryKills) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		return explained{next(ctx, spec), k}
	}
}

// WrapStreamingHandler implements connect.Interceptor; there is no handler here.
func (k *memoryKills) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// explained is a stream of which each message is looked at.
type explained struct {
	connect.StreamingClientConn
	kills *memoryKills
}

// Receive implements connect.StreamingClientConn.
func (s explained) Receive(message any) error {
	err := s.StreamingClientConn.Receive(message)
	if err == nil {
		s.kills.look(message)
	}
	return err
}
