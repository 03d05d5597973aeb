package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Bounds of one call.
const (
	attemptsMax     = 4
	backoffFirst    = 50 * time.Millisecond
	backoffMax      = 2 * time.Second
	answerBytesMax  = 64 << 20
	retryAfterLimit = 10 * time.Second
)

// call is one request. It is repeated after a temporary error only when it
// says repeatable, and then with the same header (an idempotency key stays).
type call struct {
	method     string
	path       string // below the base, escaped
	query      url.Values
	header     http.Header
	body       []byte    // sent again on a repetition
	stream     io.Reader // sent once; makes the call unrepeatable
	repeatable bool
}

func get(path string, query url.Values) call {
	return call{method: http.MethodGet, path: path, query: query, repeatable: true}
}

// withJSON returns the call with v as its body.
func (k call) withJSON(v any) call {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("client: %T is not JSON: %v", v, err)) // our own types only
	}
	k.body = b
	k.header = k.header.Clone()
	if k.header == nil {
		k.header = http.Header{}
	}
	k.header.Set("Content-Type", "application/json")
	return k
}

// fetch makes the call and parses its answer.
func fetch[T any](ctx context.Context, c *Client, k call) (T, error) {
	var v T
	res, err := c.do(ctx, k)
	if err != nil {
		return v, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, answerBytesMax+1))
	if err != nil {
		return v, brokenErr(ctx, err)
	}
	if len(body) > answerBytesMax {
		return v, errs.New(errs.Limit, "the server's answer is larger than %d bytes", answerBytesMax)
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return v, errs.Wrap(errs.Internal, err, "the server's answer is not what was agreed").
			WithHint("is %s a skete server of this version?", c.base)
	}
	return v, nil
}

// send makes a call whose answer has no content of interest.
func (c *Client) send(ctx context.Context, k call) error {
	res, err := c.do(ctx, k)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, answerBytesMax))
	return res.Body.Close()
}

// do returns a successful answer; its body must be closed.
func (c *Client) do(ctx context.Context, k call) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		res, wait, err := c.once(ctx, k)
		if err == nil {
			return res, nil
		}
		if !k.repeatable || k.stream != nil || attempt == attemptsMax || ctx.Err() != nil || !errs.Temporary(err) {
			return nil, err
		}
		if sleep(ctx, max(wait, backoff(attempt))) != nil {
			return nil, err
		}
	}
}

// once makes one attempt; wait is what the server asks for before the next.
func (c *Client) once(ctx context.Context, k call) (res *http.Response, wait time.Duration, err error) {
	req, err := c.request(ctx, k)
	if err != nil {
		return nil, 0, err
	}
	res, err = c.http.Do(req)
	if err != nil {
		return nil, 0, brokenErr(ctx, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		defer res.Body.Close()
		return nil, retryAfter(res.Header), problemOf(res)
	}
	return res, 0, nil
}

func (c *Client) request(ctx context.Context, k call) (*http.Request, error) {
	body := k.stream
	if k.body != nil {
		body = bytes.NewReader(k.body)
	}
	target := c.base + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, body)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the request cannot be written as a URL")
	}
	for name, values := range k.header {
		req.Header[name] = values
	}
	c.sign(req.Header)
	return req, nil
}

func (c *Client) sign(h http.Header) {
	if c.key != "" {
		h.Set("Authorization", "Bearer "+c.key)
	}
	h.Set("User-Agent", "skete-go")
}

func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n <= 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, retryAfterLimit)
}

// backoff grows by doubling; the jitter keeps many clients of one restarted
// server apart.
func backoff(attempt int) time.Duration {
	d := min(backoffFirst<<min(attempt-1, 10), backoffMax)
	return d/2 + rand.N(d/2+1)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
