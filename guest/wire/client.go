package wire

import (
	"context"
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

	dial      DialFunc
	transport *http.Transport
}

// NewClient returns a client that dials on demand and keeps idle connections.
func NewClient(dial DialFunc) *Client {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, ControlPort)
		},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     90 * time.Second,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      ChunkBytes,
	}
	hc := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	opts := []connect.ClientOption{
		connect.WithReadMaxBytes(MessageBytesMax),
		connect.WithSendMaxBytes(MessageBytesMax),
		connect.WithAcceptCompression("gzip", nil, nil), // faster without, and no bomb to unpack
	}
	const base = "http://guest"
	return &Client{
		Control:   NewControlClient(hc, base, opts...),
		Process:   NewProcessClient(hc, base, opts...),
		File:      NewFileClient(hc, base, opts...),
		Port:      NewPortClient(hc, base, opts...),
		dial:      dial,
		transport: t,
	}
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
// near as several tries come on a busy host: how long the time was on its way
// is not known before it has arrived. Adopt sets the clock once; after that,
// and after a pause, call this. A guest that shares its host's clock is right.
func (c *Client) AlignClock(ctx context.Context) error {
	ahead := time.Duration(0) // how long the way there is thought to be
	for range alignTries {
		sent := time.Now()
		_, err := c.Control.StepClock(ctx, connect.NewRequest(&StepClockRequest{TimeUnixNs: sent.Add(ahead).UnixNano()}))
		if err = Err(err); errs.Is(err, errs.Unsupported) {
			return nil
		}
		if err != nil {
			return err
		}
		took := time.Since(sent)
		if took <= alignWithin { // it arrived somewhere in between
			return nil
		}
		ahead = min(took/2, alignWithin/2)
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
