package wire_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
)

// clock is a guest whose calls are slow at first.
type clock struct {
	wire.UnimplementedControlHandler
	off   time.Duration // ahead of ours
	slow  []time.Duration
	fixed bool // the clock is the host's
}

func (c *clock) wait() {
	if len(c.slow) > 0 {
		<-time.After(c.slow[0])
		c.slow = c.slow[1:]
	}
}

func (c *clock) Metrics(context.Context, *connect.Request[wire.MetricsRequest]) (*connect.Response[wire.MetricsResponse], error) {
	c.wait()
	return connect.NewResponse(&wire.MetricsResponse{TimeUnixNs: time.Now().Add(c.off).UnixNano()}), nil
}

func (c *clock) StepClock(_ context.Context, r *connect.Request[wire.StepClockRequest]) (*connect.Response[wire.StepClockResponse], error) {
	if c.fixed {
		return nil, connect.NewError(connect.CodeUnimplemented, nil)
	}
	c.wait()
	now := time.Now()
	step := time.Unix(0, r.Msg.TimeUnixNs).Sub(now.Add(c.off))
	c.off += step
	return connect.NewResponse(&wire.StepClockResponse{SteppedNs: step.Nanoseconds()}), nil
}

func TestAlignClock(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]*clock{
		"right":             {},
		"behind":            {off: -time.Hour},
		"ahead":             {off: time.Hour},
		"slow to tell":      {off: -time.Second, slow: []time.Duration{150 * ms, 150 * ms}},
		"slow to step":      {off: -time.Second, slow: []time.Duration{0, 200 * ms, 200 * ms}},
		"the host's own is": {fixed: true},
	} {
		mux := http.NewServeMux()
		mux.Handle(wire.NewControlHandler(c))
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: mux}
		go func() { _ = srv.Serve(ln) }()
		client := wire.NewClient(func(ctx context.Context, _ uint32) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", ln.Addr().String())
		})
		if err := client.AlignClock(t.Context(), time.Now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		client.Close()
		_ = srv.Close()
		if c.off.Abs() > 45*ms { // 20 of the aim, and what a busy host adds
			t.Errorf("%s: the clock is %v off", name, c.off)
		}
	}
}

// A call's deadline is that of the dial which it waits for, and one without has none.
func TestClient_dialsWithTheDeadlineOfTheCall(t *testing.T) {
	var dialled []time.Time
	client := wire.NewClient(func(ctx context.Context, _ uint32) (net.Conn, error) {
		at, _ := ctx.Deadline()
		dialled = append(dialled, at)
		return nil, errors.New("no guest")
	})
	defer client.Close()
	at := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), at)
	defer cancel()
	for _, ctx := range []context.Context{ctx, t.Context()} {
		if _, err := client.Hello(ctx); err == nil {
			t.Fatal("it has a guest")
		}
	}
	if len(dialled) != 2 || !dialled[0].Equal(at) || !dialled[1].IsZero() {
		t.Errorf("%v", dialled)
	}
}
