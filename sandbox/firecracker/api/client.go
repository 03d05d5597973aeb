// Package api speaks Firecracker's API: HTTP/1.1 and JSON over a unix socket.
//
//	c := api.New(func(ctx context.Context) (net.Conn, error) { … })
//	v, err := c.Await(ctx)            // until the process listens
//	err = c.PutDrive(ctx, api.Drive{ID: "root", Path: "root.img", ReadOnly: true})
//	err = c.Start(ctx)
//	var fault *api.Fault
//	errors.As(err, &fault)            // what Firecracker says was wrong
//
// Every call is one request; Firecracker answers them one after the other. A
// refusal is a *Fault. errs.Unavailable: there was no answer, or none that is
// Firecracker's. errs.Unsupported: this version does not know a field, and was
// not asked: it would refuse the whole request.
//
// A Client may be used by several goroutines once Await has returned.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
)

// Limits.
const (
	bodyBytesMax   = 64 << 10        // of an answer; the largest is the machine's configuration
	faultBytesMax  = 2 << 10         // of a fault's message
	requestTimeout = 5 * time.Minute // writing memory down takes as long as the disk needs
	pollMin        = time.Millisecond
	pollMax        = 20 * time.Millisecond
)

// DialFunc opens a connection to the API's socket.
type DialFunc func(ctx context.Context) (net.Conn, error)

// Client of one Firecracker process.
type Client struct {
	http      *http.Client
	transport *http.Transport
	version   Version
}

// New returns a client that dials on demand.
func New(dial DialFunc) *Client {
	t := &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableCompression:     true,
		MaxConnsPerHost:        1,
		IdleConnTimeout:        10 * time.Second,
		MaxResponseHeaderBytes: 8 << 10,
	}
	return &Client{transport: t, http: &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close drops idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Fault is a refusal by Firecracker.
type Fault struct {
	Request string // "PUT /vsock"
	Status  int
	Message string // cleaned of control characters, bounded
}

// Error implements error.
func (f *Fault) Error() string {
	return fmt.Sprintf("firecracker refuses %s (%d): %s", f.Request, f.Status, f.Message)
}

// Await polls until the process answers and returns its version, which decides
// from then on what may be sent. It ends early only with ctx.
func (c *Client) Await(ctx context.Context) (Version, error) {
	for wait := pollMin; ; wait = min(2*wait, pollMax) {
		v, err := c.GetVersion(ctx)
		if err == nil {
			c.version = v
			return v, nil
		}
		if !errs.Is(err, errs.Unavailable) {
			return Version{}, err
		}
		select {
		case <-ctx.Done():
			return Version{}, errs.Wrap(errs.Unavailable, errors.Join(context.Cause(ctx), err), "firecracker does not answer")
		case <-time.After(wait):
		}
	}
}

// Version is what Await has returned.
func (c *Client) Version() Version { return c.version }

// GetVersion asks for the version.
func (c *Client) GetVersion(ctx context.Context) (Version, error) {
	var answer struct {
		Version string `json:"firecracker_version"`
	}
	if err := c.do(ctx, http.MethodGet, "/version", nil, &answer); err != nil {
		return Version{}, err
	}
	return ParseVersion(answer.Version)
}

// GetInfo asks for the machine's state.
func (c *Client) GetInfo(ctx context.Context) (Info, error) {
	var i Info
	return i, c.do(ctx, http.MethodGet, "/", nil, &i)
}

// PutLogger says where log lines go.
func (c *Client) PutLogger(ctx context.Context, l Logger) error { return c.put(ctx, "/logger", l) }

// PutMetrics says where metrics go, one line of JSON a minute.
func (c *Client) PutMetrics(ctx context.Context, m Metrics) error { return c.put(ctx, "/metrics", m) }

// PutSerial says where the console goes.
func (c *Client) PutSerial(ctx context.Context, s Serial) error {
	return c.put(ctx, "/serial", s, s.fields()...)
}

// PutMachineConfig sets cpus and memory.
func (c *Client) PutMachineConfig(ctx context.Context, m MachineConfig) error {
	return c.put(ctx, "/machine-config", m)
}

// PutBootSource sets kernel, initramfs and command line.
func (c *Client) PutBootSource(ctx context.Context, b BootSource) error {
	return c.put(ctx, "/boot-source", b)
}

// PutDrive adds a disk. The file must exist.
func (c *Client) PutDrive(ctx context.Context, d Drive) error {
	return c.put(ctx, "/drives/"+d.ID, d)
}

// PutNetworkInterface adds an interface.
func (c *Client) PutNetworkInterface(ctx context.Context, n NetworkInterface) error {
	return c.put(ctx, "/network-interfaces/"+n.ID, n, n.fields()...)
}

// PutVsock adds the vsock device; the socket exists when it returns.
func (c *Client) PutVsock(ctx context.Context, v Vsock) error { return c.put(ctx, "/vsock", v) }

// PutEntropy adds a source of randomness.
func (c *Client) PutEntropy(ctx context.Context, e Entropy) error { return c.put(ctx, "/entropy", e) }

// Start boots what was configured.
func (c *Client) Start(ctx context.Context) error { return c.action(ctx, "InstanceStart") }

// FlushMetrics writes a line of metrics now.
func (c *Client) FlushMetrics(ctx context.Context) error { return c.action(ctx, "FlushMetrics") }

func (c *Client) action(ctx context.Context, what string) error {
	return c.put(ctx, "/actions", struct {
		Type string `json:"action_type"`
	}{what})
}

// Pause stops all virtual cpus. All connections over vsock must be closed.
func (c *Client) Pause(ctx context.Context) error { return c.state(ctx, "Paused") }

// Resume lets them go on.
func (c *Client) Resume(ctx context.Context) error { return c.state(ctx, "Resumed") }

func (c *Client) state(ctx context.Context, what string) error {
	return c.do(ctx, http.MethodPatch, "/vm", struct {
		State string `json:"state"`
	}{what}, nil)
}

// CreateSnapshot writes a paused machine down; it stays paused.
func (c *Client) CreateSnapshot(ctx context.Context, s CreateSnapshot) error {
	return c.put(ctx, "/snapshot/create", s)
}

// LoadSnapshot makes a fresh process the machine that was written down.
func (c *Client) LoadSnapshot(ctx context.Context, l LoadSnapshot) error {
	return c.put(ctx, "/snapshot/load", l, l.fields()...)
}

// put sends body unless it has something that this version does not know.
func (c *Client) put(ctx context.Context, path string, body any, fields ...field) error {
	for _, f := range fields {
		if f.used && !c.version.AtLeast(f.since) {
			return errs.New(errs.Unsupported, "%s needs Firecracker %s or newer; this is %s", f.name, f.since, c.version)
		}
	}
	return c.do(ctx, http.MethodPut, path, body, nil)
}

func (c *Client) do(ctx context.Context, method, path string, body, answer any) error {
	what := method + " " + path
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var reader io.Reader // Firecracker refuses a GET with a body, an empty one too
	if body != nil {
		reader = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, reader)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "firecracker does not answer %s", what)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(io.LimitReader(res.Body, bodyBytesMax+1))
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "firecracker breaks off its answer to %s", what)
	}
	return parse(what, res.StatusCode, got, answer)
}

// parse judges an answer; into is nil where none is expected but success.
func parse(what string, status int, body []byte, into any) error {
	if len(body) > bodyBytesMax {
		return errs.New(errs.Unavailable, "the answer to %s is longer than %d bytes", what, bodyBytesMax)
	}
	switch {
	case status == http.StatusNoContent && into == nil:
		return nil
	case status == http.StatusOK && into != nil:
		if err := json.Unmarshal(body, into); err != nil {
			return errs.Wrap(errs.Unavailable, err, "the answer to %s is not what Firecracker says", what)
		}
		return nil
	case status >= 400:
		return &Fault{Request: what, Status: status, Message: faultMessage(body)}
	}
	return errs.New(errs.Unavailable, "the answer to %s has the status %d, which Firecracker does not use", what, status)
}

// faultMessage reads {"fault_message": "…"}; anything else is quoted as it is.
func faultMessage(body []byte) string {
	var f struct {
		Message string `json:"fault_message"`
	}
	if err := json.Unmarshal(body, &f); err != nil || f.Message == "" {
		f.Message = string(body)
	}
	return clip.Line(f.Message, faultBytesMax)
}
