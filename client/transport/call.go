package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
)

// AttemptsMax is how often a repeatable call is made at most.
const AttemptsMax = 4

// Bounds of one call.
const (
	backoffFirst    = 50 * time.Millisecond
	backoffMax      = 2 * time.Second
	answerBytesMax  = 64 << 20
	retryAfterLimit = 10 * time.Second
)

// Call is one request. It is repeated after a temporary error only when it
// says repeatable, and then with the same header (an idempotency key stays).
type Call struct {
	Method     string
	Path       string // below the base, escaped
	Query      url.Values
	Header     http.Header
	Body       []byte    // sent again on a repetition
	Stream     io.Reader // sent once; makes the call unrepeatable
	Repeatable bool

	refused error // of WithJSON; what Do returns instead of sending anything
}

// Get is a call that reads.
func Get(path string, query url.Values) Call {
	return Call{Method: http.MethodGet, Path: path, Query: query, Repeatable: true}
}

// WithJSON returns the call with v as its body. A call whose body would be
// changed on its way, because a text in it is not UTF-8, is refused by Do.
func (k Call) WithJSON(v any) Call {
	if k.refused = checkText(v); k.refused != nil {
		return k
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("client: %T is not JSON: %v", v, err)) // our own types only
	}
	k.Body = b
	k.Header = k.Header.Clone()
	if k.Header == nil {
		k.Header = http.Header{}
	}
	k.Header.Set("Content-Type", "application/json")
	return k
}

// Fetch makes the call and parses its answer.
func Fetch[T any](ctx context.Context, c *Client, k Call) (T, error) {
	var v T
	res, err := c.Do(ctx, k)
	if err != nil {
		return v, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, answerBytesMax+1))
	if err != nil {
		return v, Broken(ctx, err)
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

// Send makes a call whose answer has no content of interest.
func (c *Client) Send(ctx context.Context, k Call) error {
	res, err := c.Do(ctx, k)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, answerBytesMax))
	return res.Body.Close()
}

// Do returns a successful answer; its body must be closed.
func (c *Client) Do(ctx context.Context, k Call) (*http.Response, error) {
	if k.refused != nil {
		return nil, k.refused
	}
	for attempt := 1; ; attempt++ {
		res, wait, err := c.once(ctx, k)
		if err == nil {
			return res, nil
		}
		if !k.Repeatable || k.Stream != nil || attempt == AttemptsMax || ctx.Err() != nil || !errs.Temporary(err) {
			return nil, err
		}
		if sleep.For(ctx, max(wait, Backoff(attempt))) != nil {
			return nil, err
		}
	}
}

// once makes one attempt; wait is what the server asks for before the next.
func (c *Client) once(ctx context.Context, k Call) (res *http.Response, wait time.Duration, err error) {
	req, err := c.request(ctx, k)
	if err != nil {
		return nil, 0, err
	}
	res, err = c.http.Do(req)
	if err != nil {
		return nil, 0, Broken(ctx, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		defer res.Body.Close()
		return nil, retryAfter(res.Header), problemOf(res)
	}
	return res, 0, nil
}

func (c *Client) request(ctx context.Context, k Call) (*http.Request, error) {
	body := k.Stream
	if k.Body != nil {
		body = bytes.NewReader(k.Body)
	}
	target := c.base + k.Path
	if len(k.Query) > 0 {
		target += "?" + k.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.Method, target, body)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the request cannot be written as a URL")
	}
	maps.Copy(req.Header, k.Header)
	c.sign(req.Header)
	if program, ok := ctx.Value(programKey{}).(string); ok {
		req.Header.Set(ProgramHeader, program)
	}
	return req, nil
}

// ProgramHeader names the program that makes a call for the caller.
const ProgramHeader = "Skete-Program"

type programKey struct{}

// Through returns a context whose calls tell by which program they are made.
func Through(ctx context.Context, program string) context.Context {
	return context.WithValue(ctx, programKey{}, program)
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

// Backoff grows by doubling; the jitter keeps many clients of one restarted
// server apart.
func Backoff(attempt int) time.Duration {
	d := min(backoffFirst<<min(attempt-1, 10), backoffMax)
	return d/2 + rand.N(d/2+1)
}
