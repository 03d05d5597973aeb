package inside

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/stream"
)

// waiting is a guest that answers one kind of call.
type waiting struct {
	wire.ProcessClient
	wait func(ctx context.Context, n int) (wire.ProcessState, error)
	n    int // calls
}

func (w *waiting) Wait(ctx context.Context, _ *connect.Request[wire.WaitRequest]) (*connect.Response[wire.WaitResponse], error) {
	w.n++
	state, err := w.wait(ctx, w.n)
	return connect.NewResponse(&wire.WaitResponse{Process: &wire.ProcessInfo{State: state}}), err
}

// one is the only sandbox there is.
type one struct {
	Sandboxes
	state func() sandbox.State
}

func (o one) Get(context.Context, string, sandbox.ID) (sandbox.Info, error) {
	return sandbox.Info{State: o.state()}, nil
}

// The wait for a command's end is over when the command is, and when its guest
// is gone or silent; a machine that is paused is neither.
func TestEnds(t *testing.T) {
	const running, exited = wire.ProcessState_PROCESS_STATE_RUNNING, wire.ProcessState_PROCESS_STATE_EXITED
	silent := func(ctx context.Context, _ int) (wire.ProcessState, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	for name, c := range map[string]struct {
		wait   func(context.Context, int) (wire.ProcessState, error)
		paused time.Duration // at first
		took   time.Duration
		calls  int
	}{
		"it ends": {func(_ context.Context, n int) (wire.ProcessState, error) {
			if n == 3 {
				return exited, nil
			}
			<-time.After(waitOnce)
			return running, nil
		}, 0, 2 * waitOnce, 3},
		"it is not known": {func(context.Context, int) (wire.ProcessState, error) {
			return 0, connect.NewError(connect.CodeNotFound, nil)
		}, 0, 0, 1},
		"the guest is silent": {silent, 0, waitOnce + stream.SilenceMax, 1},
		"the guest is gone": {func(context.Context, int) (wire.ProcessState, error) {
			return 0, errs.New(errs.Unavailable, "no connection")
		}, 0, awayMax * waitPart, awayMax},
		"the guest answers too soon": {func(_ context.Context, n int) (wire.ProcessState, error) {
			if n == 10 {
				return exited, nil
			}
			return running, nil
		}, 0, 9 * waitPart, 10},
		"the machine is paused":      {silent, time.Hour, time.Hour + waitOnce + stream.SilenceMax, 1},
		"the machine becomes paused": {silent, -time.Hour, time.Hour + waitOnce + stream.SilenceMax, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				state := func() sandbox.State {
					now := time.Since(begin)
					if now < c.paused || c.paused < 0 && now > 0 && now < -c.paused {
						return sandbox.Paused
					}
					return sandbox.Running
				}
				g := &waiting{wait: c.wait}
				s := &service{sandboxes: one{state: state}}
				s.ends(guest{Client: &wire.Client{Process: g}}, "key")(t.Context())
				if took := time.Since(begin); took != c.took || g.n != c.calls {
					t.Errorf("after %v and %d calls, want %v and %d", took, g.n, c.took, c.calls)
				}
			})
		})
	}
}
