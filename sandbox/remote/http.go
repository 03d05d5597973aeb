package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// ParseURL reads the address of a service. A key goes nowhere in the clear but to this
// very host.
func ParseURL(what, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errs.New(errs.Invalid, "%s: %.100q is no address of a service", what, text).WithHint("it is as https://api.example")
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil, errs.New(errs.Invalid, "%s: the key would go to %.100q in the clear", what, text).WithHint("use https")
	}
	return u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// caller makes the calls of a service.
type caller struct {
	http *http.Client
	auth func(h http.Header)
}

func newCaller(auth func(http.Header)) caller {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: callTimeout, TLSHandshakeTimeout: callTimeout, IdleConnTimeout: callTimeout,
		MaxIdleConnsPerHost: 4, DialContext: (&net.Dialer{Timeout: callTimeout}).DialContext, ForceAttemptHTTP2: true,
	}
	return caller{
		http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		auth: auth,
	}
}

func (c caller) close() { c.http.CloseIdleConnections() }

// call is a request. What it says of itself in errors has no host and no secret.
type call struct {
	method, name string // name: what was asked, for people
	url          *url.URL
	header       http.Header
	body         io.Reader
	kind         string // of the body
}

func (c caller) send(ctx context.Context, r call) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), r.body)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, r.header)
	if r.kind != "" {
		req.Header.Set("Content-Type", r.kind)
	}
	c.auth(req.Header)
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, silent(r, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		defer res.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
		return nil, refused(r, res.StatusCode, body)
	}
	return res, nil
}

// silent says that there was no answer.
func silent(r call, err error) *errs.Error {
	return errs.Wrap(errs.Unavailable, err, "the service of the sandbox's machine does not answer (%s: %s)", r.name, cause(err)).WithCode(errs.Unreachable)
}

// cause is the innermost reason: those around it name addresses.
func cause(err error) string {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	for _, known := range []string{"connection refused", "connection reset", "no such host", "timeout", "EOF", "no route to host", "network is unreachable"} {
		if strings.Contains(err.Error(), known) {
			return known
		}
	}
	var te interface{ Timeout() bool }
	if errors.As(err, &te) && te.Timeout() {
		return "timeout"
	}
	return "the connection broke"
}

// refused says what a service answered.
func refused(r call, status int, body []byte) error {
	class, hint := errs.Unavailable, ""
	switch {
	case status == http.StatusNotFound:
		class = errs.NotFound
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		class, hint = errs.Denied, "look at the service's key in the configuration"
	case status == http.StatusConflict:
		class = errs.Conflict
	case status == http.StatusTooManyRequests:
		class = errs.Limit
	case status >= 400 && status < 500:
		class = errs.Invalid
	}
	var said struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(body, &said)
	text := strings.ToValidUTF8(said.Message, "?")
	e := errs.New(class, "the service of the sandbox's machine refuses (%s: status %d %.200q)", r.name, status, text)
	if hint != "" {
		return e.WithHint("%s", hint)
	}
	return e
}

// json sends what in says, and reads out; both may be nil.
func (c caller) json(ctx context.Context, r call, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		r.body, r.kind = bytes.NewReader(data), "application/json"
	}
	res, err := c.send(ctx, r)
	if err != nil {
		return late(r, err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, answerBytesMax+1))
	switch {
	case err != nil:
		return silent(r, err)
	case len(data) > answerBytesMax:
		return errs.New(errs.Unavailable, "the service answers with more than %d bytes (%s)", answerBytesMax, r.name)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return errs.Wrap(errs.Unavailable, err, "the service's answer cannot be read (%s)", r.name)
	}
	return nil
}

// late makes the end of our own patience an answer that did not come.
func late(r call, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errs.Wrap(errs.Unavailable, err, "the service of the sandbox's machine does not answer (%s: timeout)", r.name).WithCode(errs.Unreachable)
	}
	return err
}

// quote makes a text one word of sh.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// seconds rounds up.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
