// Package engine is a client of the few calls of a container engine's API that
// machines need; Docker and Podman answer them alike.
//
//	c, err := engine.Open("unix:///var/run/docker.sock")
//	id, err := c.Create(ctx, name, engine.Container{…})
//	err = c.Start(ctx, id)
//
// It is our own and not github.com/moby/moby/client, which was measured: 80
// packages more, 1.0 MB of program and 0.7 ms of package initialisation (regular
// expressions of image names, which we never use) at every start of the
// command line, for fourteen requests that are one JSON object each.
//
// Errors: what the engine refused is an *Error with the engine's status and
// words, inside an errs class: NotFound (404), Conflict (409), Invalid (400),
// Unavailable (the rest: an engine says 500 for most things). An engine that
// does not answer is Unavailable too, one that may not be asked is Denied; both
// carry a hint. No call outlives its context, and none waits longer than
// callTimeout but Wait.
//
// All methods are safe for concurrent use.
package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Bounds.
const (
	callTimeout    = 60 * time.Second
	answerBytesMax = 8 << 20 // of one answer
	wordsBytesMax  = 500     // of what an engine says about an error
)

// Versions of the API that we know, as 1.minor. The engine's own is used where
// it lies between them; newer engines still speak the newest here.
const (
	minorMin = 40
	minorMax = 47
)

// Client speaks with one engine.
type Client struct {
	http *http.Client
	path string // of the socket

	mu      sync.Mutex
	version string // as negotiated; "" = not yet
}

// Open returns a client of the engine at host, "unix:///path". It does not ask
// the engine anything. Unsupported: another kind of address; the workspace and
// the channel are directories of this host, so the engine must be here too.
func Open(host string) (*Client, error) {
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok || !strings.HasPrefix(path, "/") {
		return nil, errs.New(errs.Unsupported, "the container engine is not on this host").
			WithHint("name the engine's socket as unix:///path; over tcp and ssh it cannot share directories with us")
	}
	c := &Client{path: path}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", path)
			},
			DisableCompression:  true,
			MaxIdleConnsPerHost: 8,
			IdleConnTimeout:     30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Path is the engine's socket.
func (c *Client) Path() string { return c.path }

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is what an engine refused.
type Error struct {
	Status int
	Words  string // the engine's own, for the log
}

func (e *Error) Error() string { return fmt.Sprintf("engine: status %d: %s", e.Status, e.Words) }

// refusal makes the error of an answer with a bad status.
func refusal(status int, body []byte) error {
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &said) != nil || said.Message == "" {
		said.Message = string(body)
	}
	words := strings.TrimSpace(said.Message)
	e := &Error{Status: status, Words: strings.ToValidUTF8(words[:min(len(words), wordsBytesMax)], "")}
	class := errs.Unavailable
	switch status {
	case http.StatusNotFound:
		class = errs.NotFound
	case http.StatusConflict:
		class = errs.Conflict
	case http.StatusBadRequest:
		class = errs.Invalid
	case http.StatusForbidden, http.StatusUnauthorized:
		class = errs.Denied
	}
	return errs.Wrap(class, e, "the container engine refused")
}

// unreachable gives the error of an engine that did not answer its class and hint.
func (c *Client) unreachable(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return errs.Wrap(errs.Unavailable, err, "the container engine does not answer")
	case errors.Is(err, fs.ErrPermission):
		return errs.Wrap(errs.Denied, err, "the container engine's socket may not be opened").
			WithHint("run the server as root, or put its user into the group that owns %s (usually docker)", c.path)
	case errors.Is(err, fs.ErrNotExist):
		return errs.Wrap(errs.Unavailable, err, "there is no container engine").
			WithHint("install and start Docker or Podman (systemctl start docker, or podman.socket), or name its socket in DOCKER_HOST")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errs.Wrap(errs.Unavailable, err, "the container engine is down").
			WithHint("start it: systemctl start docker, or podman.socket")
	}
	return errs.Wrap(errs.Unavailable, err, "the container engine broke off")
}

// Ping asks the engine for its version and keeps it.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.negotiate(ctx, true)
	return err
}

// negotiate returns the prefix of all paths, "/v1.41".
func (c *Client) negotiate(ctx context.Context, anew bool) (string, error) {
	c.mu.Lock()
	known := c.version
	c.mu.Unlock()
	if known != "" && !anew {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := c.send(ctx, http.MethodGet, "/_ping", "", nil)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := read(res.Body)
	if err != nil {
		return "", c.unreachable(err)
	}
	if res.StatusCode != http.StatusOK {
		return "", refusal(res.StatusCode, body)
	}
	version, err := choose(res.Header.Get("Api-Version"))
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	c.version = version
	c.mu.Unlock()
	return version, nil
}

// choose picks the version to speak from the newest that the engine knows.
func choose(theirs string) (string, error) {
	major, rest, _ := strings.Cut(theirs, ".")
	minor, err := strconv.Atoi(rest)
	if err != nil || major != "1" {
		return "", errs.New(errs.Unsupported, "the container engine speaks version %.20q of its API, which is not known", theirs)
	}
	if minor < minorMin {
		return "", errs.New(errs.Unsupported, "the container engine is too old: it speaks version 1.%d of its API, 1.%d is needed", minor, minorMin).
			WithHint("Docker 19.03 or Podman 3 and later will do")
	}
	return fmt.Sprintf("/v1.%d", min(minor, minorMax)), nil
}

// call does one request; in and out may be nil. 304 is no error: it was so already.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.do(ctx, method, path, query, in, out)
}

// do is call without a limit of its own.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	kind := ""
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return errs.Wrap(errs.Internal, err, "write a request to the container engine")
		}
		body, kind = bytes.NewReader(data), "application/json"
	}
	data, err := c.exchange(ctx, method, path, query, kind, body)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return errs.Wrap(errs.Unavailable, err, "the container engine's answer makes no sense")
	}
	return nil
}

// exchange sends a body and returns that of a good answer.
func (c *Client) exchange(ctx context.Context, method, path string, query url.Values, kind string, body io.Reader) ([]byte, error) {
	version, err := c.negotiate(ctx, false)
	if err != nil {
		return nil, err
	}
	path = version + path
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	res, err := c.send(ctx, method, path, kind, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := read(res.Body)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if res.StatusCode >= 300 && res.StatusCode != http.StatusNotModified {
		return nil, refusal(res.StatusCode, data)
	}
	return data, nil
}

func (c *Client) send(ctx context.Context, method, path, kind string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, body)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "write a request to the container engine")
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	return res, nil
}

// read takes an answer of bounded size.
func read(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, answerBytesMax+1))
	if err == nil && len(data) > answerBytesMax {
		err = fmt.Errorf("answer of more than %d bytes", answerBytesMax)
	}
	return data, err
}

// StatusOf returns the engine's status behind an error, 0 if it was not the engine's.
func StatusOf(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	return 0
}
