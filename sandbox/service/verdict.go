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

// Verdicts returns services of these names when it is known of each whether it
// works, or as long as wait is over. One that has just been declared is meant: it
// starts by itself.
func Verdicts(ctx context.Context, g *wire.Client, names []string, wait time.Duration) ([]*wire.ServiceInfo, error) {
	var list []*wire.ServiceInfo
	end := time.Now().Add(wait)
	for _, name := range names {
		i, err := started(ctx, g, name, end)
		if err == nil {
			i, err = Verdict(ctx, g, i, max(time.Until(end), 0))
		}
		if err != nil {
			return nil, err
		}
		list = append(list, i)
	}
	return list, nil
}

// started waits until a service is not starting any more, but not beyond end.
func started(ctx context.Context, g *wire.Client, name string, end time.Time) (*wire.ServiceInfo, error) {
	tick := time.NewTicker(verdictEvery)
	defer tick.Stop()
	for {
		res, err := g.Service.Get(ctx, connect.NewRequest(&wire.GetServiceRequest{Name: name}))
		if err != nil {
			return nil, err
		}
		if i := res.Msg.GetService(); !starting(i) || !time.Now().Before(end) {
			return i, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// starting reports whether a service is about to run: one that was declared a
// moment ago counts as stopped until its process is there.
func starting(i *wire.ServiceInfo) bool {
	switch i.GetState() {
	case wire.ServiceState_SERVICE_STATE_STARTING:
		return true
	case wire.ServiceState_SERVICE_STATE_STOPPED:
		return i.GetWanted()
	}
	return false
}
