package remote

import (
	"bytes"
	"context"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
)

// RunloopName is the name of the provider whose service is Runloop.
const RunloopName = "runloop"

// Runloop says where a service is that speaks Runloop's API, as its published client
// package does (1.32.0).
type Runloop struct {
	URL *url.URL // https://api.runloop.ai
	// Tunnel is what ports of machines are beneath, as PORT-KEY.Tunnel; "" =
	// tunnel.runloop.ai. TunnelURL, if not nil, is one address for all in its place, for tests.
	Tunnel    string
	TunnelURL *url.URL
	Key       string
	Blueprint string // "" = the service's default
}

// runloop is a Service. It pauses nothing: what it suspends are disks, without what runs.
type runloop struct {
	Runloop
	api caller
}

// NewRunloop returns a service that speaks Runloop's API.
func NewRunloop(c Runloop) Service {
	if c.Tunnel == "" {
		c.Tunnel = "tunnel.runloop.ai"
	}
	return &runloop{Runloop: c, api: newCaller(func(h http.Header) { h.Set("Authorization", "Bearer "+c.Key) })}
}

// devbox is a machine of theirs.
type devbox struct {
	ID       string            `json:"id"`
	Status   string            `json:"status"`
	Metadata map[string]string `json:"metadata"`
	Why      string            `json:"shutdown_reason"`
	Failure  string            `json:"failure_reason"`
	Tunnel   *struct {
		Key   string `json:"tunnel_key"`
		Token string `json:"auth_token"`
	} `json:"tunnel"`
}

func (d devbox) over() bool { return d.Status == "failure" || d.Status == "shutdown" }

const (
	devboxPoll     = 500 * time.Millisecond
	commandWait    = 25 // seconds, the most that is waited for in one call
	runloopKeepMax = 48 * time.Hour
)

func (s *runloop) call(method string, parts ...string) call {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	u := s.URL.JoinPath(append([]string{"v1", "devboxes"}, escaped...)...)
	return call{method: method, name: method + " /" + path.Join(append([]string{"v1/devboxes"}, escaped...)...), url: u}
}

// Close implements Service.
func (s *runloop) Close() { s.api.close() }

// CanPause implements Service.
func (s *runloop) CanPause() bool { return false }

// Notes implements Service.
func (s *runloop) Notes() []string {
	return []string{"what the machine may reach is what its service allows: programs in it may have the Internet"}
}

// Create implements Service.
func (s *runloop) Create(ctx context.Context, labels map[string]string, keep time.Duration) (Place, error) {
	in := map[string]any{
		"metadata": labels, "tunnel": map[string]any{"auth_mode": "authenticated"},
		"launch_parameters": map[string]any{"keep_alive_time_seconds": seconds(min(keep, runloopKeepMax))},
	}
	if s.Blueprint != "" {
		in["blueprint_name"] = s.Blueprint
	}
	var d devbox
	if err := s.api.json(ctx, s.call(http.MethodPost), in, &d); err != nil {
		return Place{}, err
	}
	if !plain(d.ID, idBytesMax) {
		return Place{}, Place{ID: d.ID}.check()
	}
	at := Place{ID: d.ID}
	for d.Status != "running" {
		err := sleep.For(ctx, devboxPoll)
		if err == nil {
			err = s.api.json(ctx, s.call(http.MethodGet, at.ID), nil, &d)
		}
		if err == nil && d.over() {
			err = errs.New(errs.Unavailable, "the service's machine ended before it ran (%.40q, %.40q)", d.Why, d.Failure)
		}
		if err != nil {
			return at, err
		}
	}
	if d.Tunnel == nil {
		return at, errs.New(errs.Unavailable, "the service gave its machine no tunnel")
	}
	at.Domain, at.Traffic = d.Tunnel.Key, d.Tunnel.Token
	return at, at.check()
}

// Find implements Service.
func (s *runloop) Find(ctx context.Context, labels map[string]string) (ids []string, err error) {
	for after, page := "", 0; page < findPages; page++ {
		r := s.call(http.MethodGet)
		q := url.Values{"limit": {"100"}}
		if after != "" {
			q.Set("starting_after", after)
		}
		r.url.RawQuery = q.Encode()
		var list struct {
			Devboxes []devbox `json:"devboxes"`
			More     bool     `json:"has_more"`
		}
		if err := s.api.json(ctx, r, nil, &list); err != nil {
			return nil, err
		}
		for _, d := range list.Devboxes {
			if after = d.ID; !d.over() && has(d.Metadata, labels) && plain(d.ID, idBytesMax) {
				ids = append(ids, d.ID)
			}
		}
		if !list.More || len(list.Devboxes) == 0 {
			return ids, nil
		}
	}
	return nil, errs.New(errs.Limit, "the service's list of machines does not end")
}

// Look implements Service.
func (s *runloop) Look(ctx context.Context, p Place) (paused bool, err error) {
	var d devbox
	r := s.call(http.MethodGet, p.ID)
	if err := s.api.json(ctx, r, nil, &d); err != nil {
		return false, err
	}
	if d.over() {
		return false, errs.New(errs.NotFound, "the service's machine has ended (%.40q, %.40q)", d.Why, d.Failure)
	}
	return d.Status == "suspended" || d.Status == "suspending", nil
}

// Keep implements Service. The time is the one that the machine was made with.
func (s *runloop) Keep(ctx context.Context, p Place, _ time.Duration) error {
	return s.api.json(ctx, s.call(http.MethodPost, p.ID, "keep_alive"), nil, nil)
}

// Kill implements Service.
func (s *runloop) Kill(ctx context.Context, id string) error {
	err := s.api.json(ctx, s.call(http.MethodPost, id, "shutdown"), nil, nil)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil { // one that is down may be refused
		if _, lerr := s.Look(ctx, Place{ID: id}); errs.Is(lerr, errs.NotFound) {
			return nil
		}
	}
	return err
}

// Pause implements Service.
func (s *runloop) Pause(context.Context, Place) error { return errNoPause }

// Resume implements Service.
func (s *runloop) Resume(context.Context, Place, time.Duration) error { return errNoPause }

var errNoPause = errs.New(errs.Unsupported, "the service cannot pause a machine with what runs in it")

// Put implements Service.
func (s *runloop) Put(ctx context.Context, p Place, _, name string, data []byte) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	_ = form.WriteField("path", name)
	part, err := form.CreateFormFile("file", path.Base(name))
	if err == nil {
		_, err = part.Write(data)
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		return err
	}
	r := s.call(http.MethodPost, p.ID, "upload_file")
	r.body, r.kind = &body, form.FormDataContentType()
	res, err := s.api.send(ctx, r)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// execution is a command of theirs.
type execution struct {
	ID     string `json:"execution_id"`
	Status string `json:"status"`
	Exit   *int   `json:"exit_status"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

// Start implements Service.
func (s *runloop) Start(ctx context.Context, p Place, script string) (string, error) {
	var e execution
	err := s.api.json(ctx, s.call(http.MethodPost, p.ID, "execute_async"), map[string]any{"command": "/bin/sh -c " + quote(script)}, &e)
	if err == nil && !plain(e.ID, idBytesMax) {
		err = errs.New(errs.Unavailable, "the service started a command with an id that cannot be")
	}
	return e.ID, err
}

// wait returns a command that has ended.
func (s *runloop) wait(ctx context.Context, p Place, id string) (e execution, err error) {
	for e.Status != "completed" {
		r := s.call(http.MethodPost, p.ID, "executions", id, "wait_for_status")
		began := time.Now()
		err := s.api.json(ctx, r, map[string]any{"statuses": []string{"completed"}, "timeout_seconds": commandWait}, &e)
		if err == nil && e.Status != "completed" && time.Since(began) < devboxPoll { // a service that does not wait
			err = sleep.For(ctx, devboxPoll)
		}
		if err != nil {
			return e, err
		}
	}
	return e, nil
}

// Run implements Service.
func (s *runloop) Run(ctx context.Context, p Place, script string) (string, error) {
	id, err := s.Start(ctx, p, script)
	if err != nil {
		return "", err
	}
	e, err := s.wait(ctx, p, id)
	if err == nil && (e.Exit == nil || *e.Exit != 0) {
		err = errs.New(errs.Unavailable, "a command in the service's machine failed: %.200q", e.Stderr)
	}
	return e.Stdout, err
}

// Await implements Service.
func (s *runloop) Await(ctx context.Context, p Place, program string) (string, error) {
	e, err := s.wait(ctx, p, program)
	switch {
	case errs.Is(err, errs.NotFound):
		return "the service does not tell how", nil
	case err != nil:
		return "", err
	case e.Exit == nil:
		return "the service does not tell how", nil
	}
	return "status " + strconv.Itoa(*e.Exit), nil
}

// Address implements Service.
func (s *runloop) Address(_ context.Context, p Place, port int) (*url.URL, http.Header, error) {
	h := http.Header{}
	h.Set("X-Runloop-Tunnel-Authorization", "Bearer "+p.Traffic)
	host := strconv.Itoa(port) + "-" + p.Domain + "." + s.Tunnel
	if s.TunnelURL != nil {
		return s.TunnelURL.JoinPath(host), h, nil
	}
	return &url.URL{Scheme: "https", Host: host, Path: "/"}, h, nil
}
