package snapshot_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/sandbox/snapshot"
)

// slowGuest takes its time for each call.
type slowGuest struct {
	wire.ControlClient
	takes time.Duration
}

func (g slowGuest) Adopt(ctx context.Context, _ *connect.Request[wire.AdoptRequest]) (*connect.Response[wire.AdoptResponse], error) {
	return connect.NewResponse(&wire.AdoptResponse{ClockSet: true}), sleep.For(ctx, g.takes)
}

func (g slowGuest) Thaw(ctx context.Context, _ *connect.Request[wire.ThawRequest]) (*connect.Response[wire.ThawResponse], error) {
	return connect.NewResponse(&wire.ThawResponse{}), sleep.For(ctx, g.takes)
}

func (g slowGuest) Metrics(ctx context.Context, _ *connect.Request[wire.MetricsRequest]) (*connect.Response[wire.MetricsResponse], error) {
	return connect.NewResponse(&wire.MetricsResponse{TimeUnixNs: time.Now().UnixNano()}), sleep.For(ctx, g.takes)
}

func (g slowGuest) StepClock(ctx context.Context, _ *connect.Request[wire.StepClockRequest]) (*connect.Response[wire.StepClockResponse], error) {
	return connect.NewResponse(&wire.StepClockResponse{}), sleep.For(ctx, g.takes)
}

// A restored guest on a busy host needs seconds for calls that else take
// milliseconds, and its clock is set with several. It keeps its memory; one that
// does not answer leaves the caller time to boot another.
func TestAdopt_aSlowGuestKeepsItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const whole = 3 * time.Minute
		come := func(takes time.Duration) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), whole)
			defer cancel()
			began := time.Now()
			c := &wire.Client{Control: slowGuest{takes: takes}}
			err := snapshot.Adopt(ctx, c, wire.Boot{}, time.Now)
			if err == nil {
				err = snapshot.Thaw(ctx, c)
			}
			return time.Since(began), err
		}
		if took, err := come(4 * time.Second); err != nil {
			t.Errorf("a slow guest is given up after %v: %v", took, err)
		}
		if took, err := come(time.Hour); err == nil || took != whole/2 {
			t.Errorf("a silent guest took %v, %v; want an error after %v", took, err, whole/2)
		}
	})
}
