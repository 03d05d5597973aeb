package guest

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/capture"
	"github.com/skete-dev/skete/guest/history"
	"github.com/skete-dev/skete/guest/process"
	"github.com/skete-dev/skete/guest/service"
	"github.com/skete-dev/skete/guest/wire"
)

// Bounds of control requests.
const (
	thawDefault = 30 * time.Second
	thawMax     = 600 * time.Second
	graceMax    = time.Minute
	entropyMin  = 32
	entropyMax  = 512
)

// control is guest.v1's Control.
type control struct {
	cfg      Config
	core     *process.Core
	files    fileService
	who      *identity
	services *service.Manager // nil until they are taken over
	past     *history.Service // nil: the host keeps the workspace's history
	network  *capture.Capture // nil: there is none

	adoptMu sync.Mutex // one Adopt at a time; taken before identity.mu
}

// Hello says what the guest is and which version of the protocol is spoken.
func (c *control) Hello(_ context.Context, r *connect.Request[wire.HelloRequest]) (*connect.Response[wire.HelloResponse], error) {
	v, err := wire.Negotiate(r.Msg.VersionMin, r.Msg.VersionMax)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	b, id := c.who.now()
	var name unix.Utsname
	_ = unix.Uname(&name)
	return connect.NewResponse(&wire.HelloResponse{
		Version: v, BootId: id, SuperviseStarts: c.core.Boot().Starts, User: b.User, Uid: b.UID, Home: []byte(b.Home),
		Workdir: []byte(b.Workdir), RootGranted: b.Root, Kernel: unix.ByteSliceToString(name.Release[:]), Build: c.cfg.Build,
	}), nil
}

// Quiesce stops every command; it thaws by itself.
func (c *control) Quiesce(_ context.Context, r *connect.Request[wire.QuiesceRequest]) (*connect.Response[wire.QuiesceResponse], error) {
	wait := time.Duration(r.Msg.ThawAfterMs) * time.Millisecond
	if r.Msg.ThawAfterMs == 0 {
		wait = thawDefault
	}
	if r.Msg.ThawAfterMs < 0 || r.Msg.ThawAfterMs > thawMax.Milliseconds() {
		return nil, wire.ToConnect(errs.New(errs.Invalid, "thaw_after_ms is not in 0..%d", thawMax.Milliseconds()))
	}
	n := c.core.Quiesce(wait)
	if !r.Msg.Unsynced {
		unix.Sync()
	}
	return connect.NewResponse(&wire.QuiesceResponse{Stopped: n}), nil
}

// Thaw continues what Quiesce stopped.
func (c *control) Thaw(context.Context, *connect.Request[wire.ThawRequest]) (*connect.Response[wire.ThawResponse], error) {
	c.renewNetwork(nil, nil)
	return connect.NewResponse(&wire.ThawResponse{Resumed: c.core.Thaw()}), nil
}

// StepClock sets the machine's clock.
func (c *control) StepClock(_ context.Context, r *connect.Request[wire.StepClockRequest]) (*connect.Response[wire.StepClockResponse], error) {
	if r.Msg.TimeUnixNs <= 0 {
		return nil, wire.ToConnect(errs.New(errs.Invalid, "time_unix_ns is not after 1970"))
	}
	if !c.cfg.Own {
		return nil, wire.ToConnect(errs.New(errs.Unsupported, "this machine has its host's clock"))
	}
	step := r.Msg.TimeUnixNs - time.Now().UnixNano()
	ts := unix.NsecToTimespec(r.Msg.TimeUnixNs)
	if err := setClock(&ts); err != nil {
		return nil, wire.ToConnect(errs.Wrap(errs.Unsupported, err, "this machine's clock cannot be set"))
	}
	return connect.NewResponse(&wire.StepClockResponse{SteppedNs: step}), nil
}

// Reseed mixes entropy into the kernel's pool and so into everything that is
// seeded from it later.
func (c *control) Reseed(_ context.Context, r *connect.Request[wire.ReseedRequest]) (*connect.Response[wire.ReseedResponse], error) {
	if n := len(r.Msg.Entropy); n < entropyMin || n > entropyMax {
		return nil, wire.ToConnect(errs.New(errs.Invalid, "entropy has %d bytes, not %d..%d", n, entropyMin, entropyMax))
	}
	if err := reseed(r.Msg.Entropy); err != nil {
		return nil, wire.ToConnect(errs.Wrap(errs.Unsupported, err, "this machine takes no entropy"))
	}
	return connect.NewResponse(&wire.ReseedResponse{}), nil
}

// Shutdown ends all commands and then the machine.
func (c *control) Shutdown(_ context.Context, r *connect.Request[wire.ShutdownRequest]) (*connect.Response[wire.ShutdownResponse], error) {
	grace := time.Duration(r.Msg.GraceMs) * time.Millisecond
	if r.Msg.GraceMs < 0 || r.Msg.GraceMs > graceMax.Milliseconds() {
		return nil, wire.ToConnect(errs.New(errs.Invalid, "grace_ms is not in 0..%d", graceMax.Milliseconds()))
	}
	if err := c.core.Shutdown(grace); err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.ShutdownResponse{}), nil
}
