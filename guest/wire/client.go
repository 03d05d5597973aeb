package wire

import (
	"context"
	"math"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
)

// DialFunc opens a stream to a port of a machine; sandbox.Machine.Dial is one.
type DialFunc func(ctx context.Context, port uint32) (net.Conn, error)

// Client speaks guest.v1 over a machine's channel.
//
// Errors are *connect.Error; Err maps them to errs classes.
type Client struct {
	Control ControlClient
	Process ProcessClient
	File    FileClient
	Port    PortClient
	Service ServiceClient
	History HistoryClient

	dial      DialFunc
	transport *http.Transport
}

// NewClient returns a client that dials on demand and keeps idle connections.
func NewClient(dial DialFunc, more ...connect.ClientOption) *Client {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := dialContext(ctx)
			defer cancel()
			return dial(ctx, ControlPort)
		},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     90 * time.Second,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      ChunkBytes,
	}
	return newClient(t, dial, more...)
}

func newClient(t *http.Transport, dial DialFunc, more ...connect.ClientOption) *Client {
	hc := &http.Client{Transport: keepDeadline{t}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	opts := append([]connect.ClientOption{
		connect.WithReadMaxBytes(MessageBytesMax),
		connect.WithSendMaxBytes(MessageBytesMax),
		connect.WithAcceptCompression("gzip", nil, nil), // faster without, and no bomb to unpack
	}, more...)
	const base = "http://guest"
	return &Client{
		Control:   NewControlClient(hc, base, opts...),
		Process:   NewProcessClient(hc, base, opts...),
		File:      NewFileClient(hc, base, opts...),
		Port:      NewPortClient(hc, base, opts...),
		Service:   NewServiceClient(hc, base, opts...),
		History:   NewHistoryClient(hc, base, opts...),
		dial:      dial,
		transport: t,
	}
}

// keepDeadline tells dials the deadline of the call that they are for. A dial of
// http.Transport outlives the call that began it, so its context has none; and a channel
// without a deadline gives a guest up that may boot for longer.
type keepDeadline struct{ http.RoundTripper }

type deadlineKey struct{}

// RoundTrip implements http.RoundTripper.
func (k keepDeadline) RoundTrip(req *http.Request) (*http.Response, error) {
	if at, ok := req.Context().Deadline(); ok {
		req = req.WithContext(context.WithValue(req.Context(), deadlineKey{}, at))
	}
	return k.RoundTripper.RoundTrip(req)
}

func dialContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if at, ok := ctx.Value(deadlineKey{}).(time.Time); ok {
		return context.WithDeadline(ctx, at)
	}
	return ctx, func() {}
}

// Hello negotiates the protocol version; errs.Unsupported when there is none.
func (c *Client) Hello(ctx context.Context) (*HelloResponse, error) {
	res, err := c.Control.Hello(ctx, connect.NewRequest(&HelloRequest{VersionMin: VersionMin, VersionMax: Version}))
	if err != nil {
		return nil, Err(err)
	}
	if _, err := Negotiate(res.Msg.Version, res.Msg.Version); err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// Limits of AlignClock.
const (
	alignTries  = 8
	alignWithin = 20 * time.Millisecond
)

// AlignClock steps the guest's clock until it is right to alignWithin, or as
// near as several tries come on a busy host; now tells the time. Adopt sets the
// clock, but late by as long as the call was on its way; after that, and after
// a pause, call this. A guest that shares its host's clock is right.
func (c *Client) AlignClock(ctx context.Context, now func() time.Time) error {
	low, high := time.Duration(math.MinInt64), time.Duration(math.MaxInt64) // how far the guest's is ahead of ours
	for range alignTries {
		sent := now()
		res, err := c.Control.Metrics(ctx, connect.NewRequest(&MetricsRequest{}))
		if err != nil {
			return Err(err)
		}
		at := time.Unix(0, res.Msg.TimeUnixNs)
		low, high = max(low, at.Sub(now())), min(high, at.Sub(sent))
		if high-low <= alignWithin {
			break
		}
	}
	for range alignTries {
		off := low + (high-low)/2
		if off.Abs() <= alignWithin {
			return nil
		}
		// The guest says by how much it moved its clock: we know where that is
		// then, however long the call took, and whether to try again.
		res, err := c.Control.StepClock(ctx, connect.NewRequest(&StepClockRequest{TimeUnixNs: now().UnixNano()}))
		if err = Err(err); errs.Is(err, errs.Unsupported) {
			return nil
		}
		if err != nil {
			return err
		}
		low, high = low+time.Duration(res.Msg.SteppedNs), high+time.Duration(res.Msg.SteppedNs)
	}
	return nil
}

// DialTCP opens a TCP port inside the guest, loopback included.
func (c *Client) DialTCP(ctx context.Context, port uint32) (net.Conn, error) {
	if port == 0 || port > TCPPortMax {
		return nil, errs.New(errs.Invalid, "port %d is not in 1..%d", port, TCPPortMax)
	}
	return c.dial(ctx, port)
}

// Close drops idle connections. Calls under way go on.
func (c *Client) Close() { c.transport.CloseIdleConnections() }
