package service

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
)

const (
	// verdictAfter is how long a service without a check of its own must run to
	// be believed: one that cannot start has ended by then.
	verdictAfter = time.Second
	verdictEvery = 100 * time.Millisecond
)

// Verdict returns a service that was just started, for which its caller waits for
// as long as wait, when it is known whether it works. One without a check is ready
// for the guest as soon as it runs; here it is looked at until it has run for a
// second, and is "backoff" if it ended meanwhile and was started again.
func Verdict(ctx context.Context, g *wire.Client, first *wire.ServiceInfo, wait time.Duration) (*wire.ServiceInfo, error) {
	r := first.GetDeclaration().GetReadiness()
	if first.GetState() != wire.ServiceState_SERVICE_STATE_READY || r.GetHttp() != nil || r.GetTcp() != nil || r.GetLog() != nil {
		return first, nil
	}
	tick := time.NewTicker(verdictEvery)
	defer tick.Stop()
	end := time.After(min(wait, verdictAfter))
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-end:
			return first, nil
		case <-tick.C:
		}
		res, err := g.Service.Get(ctx, connect.NewRequest(&wire.GetServiceRequest{Name: first.GetDeclaration().GetName()}))
		if err != nil {
			return nil, err
		}
		now := res.Msg.GetService()
		if now.GetPid() == first.GetPid() && now.GetState() == wire.ServiceState_SERVICE_STATE_READY {
			continue
		}
		switch now.GetState() {
		case wire.ServiceState_SERVICE_STATE_READY, wire.ServiceState_SERVICE_STATE_STARTING: // again already
			now.State = wire.ServiceState_SERVICE_STATE_BACKOFF
		}
		return now, nil
	}
}
