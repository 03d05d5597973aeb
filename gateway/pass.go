package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm/catalog"
)

// Bounds of the way to a vendor.
const (
	answerWait     = 10 * time.Minute // for the first byte
	errorBytesMax  = 64 << 10         // of an answer that tells of a fault
	settleWait     = 10 * time.Second // for the books, when a call is over
	copyBufferSize = 32 << 10
)

// passed are the headers that a vendor is told: what the API means, and none that says who
// asks.
var passed = []string{"Accept", "Content-Type", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta", "User-Agent"}

// answered are the headers that are passed back.
var answered = []string{"Content-Type", "Retry-After", "Retry-After-Ms", "X-Should-Retry", "Request-Id", "X-Request-Id", "Openai-Processing-Ms", "Openai-Version", "Cache-Control"}

// pass sends the call, passes the answer back as it comes, and settles what it cost.
func (c *call) pass(w http.ResponseWriter, r *http.Request, to route) {
	m := newMeter(c.dialect)
	use := Use{At: c.began, Model: c.endpoint.Name}
	sent := false
	defer func() {
		if to.count || !sent {
			c.settle(r.Context(), amount{calls: c.held.calls})
			return
		}
		use.Usage = m.usage(c.in, use.Status)
		use.CostUSD, use.Took = c.endpoint.Price.Cost(use.Usage), c.door.g.c.Now().Sub(c.began)
		use.Spent = c.settle(r.Context(), amount{calls: 1, tokens: int64(use.Usage.Total()), cost: use.CostUSD})
		c.door.g.tell(c.door.c, use)
	}()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	late := time.AfterFunc(answerWait, func() { cancel(errSilent) })
	defer late.Stop()
	req, err := c.request(ctx, to, r.Header)
	if err != nil {
		refuse(w, c.dialect, http.StatusBadGateway, "the model %s cannot be asked: %s", c.endpoint.Name, errs.Public(err))
		return
	}
	res, err := c.door.g.c.Transport.RoundTrip(req)
	sent = true
	c.drop()
	if err != nil {
		c.door.g.c.Log.Debug("a model cannot be reached for a sandbox", "model", c.endpoint.Name, "error", err)
		refuse(w, c.dialect, http.StatusBadGateway, "the server of the model %s cannot be reached: %s", c.endpoint.Name, reason(ctx, err))
		return
	}
	late.Stop()
	defer res.Body.Close()
	use.Status, use.First = res.StatusCode, c.door.g.c.Now().Sub(c.began)
	if res.StatusCode/100 != 2 {
		c.fault(w, res)
		return
	}
	m.begin(res.Header.Get("Content-Type"))
	back(w, res)
	copyFlushing(w, io.TeeReader(res.Body, m))
}

var errSilent = errors.New("it did not answer in time")

// reason says why a server was not reached, without its address, which may be the
// operator's own.
func reason(ctx context.Context, err error) string {
	if cause := context.Cause(ctx); cause != nil {
		return cause.Error()
	}
	if with, ok := errors.AsType[*url.Error](err); ok {
		err = with.Err
	}
	if strings.Contains(err.Error(), "refused") {
		return "connection refused"
	}
	return "the host's log says more"
}

// request is the call as the vendor gets it.
func (c *call) request(ctx context.Context, to route, said http.Header) (*http.Request, error) {
	at, err := c.endpoint.At(to.at(c.endpoint.ID))
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(c.body))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "its URL cannot be used")
	}
	for _, name := range passed {
		if v := said.Values(name); len(v) > 0 {
			req.Header[name] = v
		}
	}
	if to.events {
		q := req.URL.Query()
		q.Set("alt", "sse")
		req.URL.RawQuery = q.Encode()
	}
	req.Header.Set("Accept-Encoding", "identity") // what is compressed cannot be counted
	key := c.endpoint.Key.Reveal()
	switch {
	case key == "":
	case c.endpoint.Vendor == catalog.Anthropic:
		req.Header.Set("X-Api-Key", key)
	case c.endpoint.Vendor == catalog.Google:
		req.Header.Set("X-Goog-Api-Key", key)
	default:
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for name, v := range c.endpoint.Headers {
		req.Header.Set(name, v.Reveal())
	}
	return req, nil
}

// fault passes on what went wrong at the vendor. What is wrong with the host's key is the
// operator's to know, and may repeat parts of it.
func (c *call) fault(w http.ResponseWriter, res *http.Response) {
	text, _ := io.ReadAll(io.LimitReader(res.Body, errorBytesMax))
	switch {
	case res.StatusCode == http.StatusUnauthorized, res.StatusCode == http.StatusForbidden, c.dialect == generate && bytes.Contains(text, []byte(keyInvalid)):
		c.door.g.c.Log.Warn("a model refuses the key of this host", "model", c.endpoint.Name, "status", res.StatusCode)
		refuse(w, c.dialect, http.StatusBadGateway, "the server of the model %s refuses the key of this host: its operator must look after it", c.endpoint.Name)
		return
	case res.StatusCode/100 == 3:
		refuse(w, c.dialect, http.StatusBadGateway, "the server of the model %s points elsewhere, which is not followed", c.endpoint.Name)
		return
	}
	if key := c.endpoint.Key.Reveal(); key != "" {
		text = bytes.ReplaceAll(text, []byte(key), bytes.Repeat([]byte("*"), len(key)))
	}
	back(w, res)
	_, _ = w.Write(text)
}

// back begins the answer.
func back(w http.ResponseWriter, res *http.Response) {
	h := http.Header{}
	for _, name := range answered {
		if v := res.Header.Values(name); len(v) > 0 {
			h[name] = v
		}
	}
	maps.Copy(w.Header(), h)
	w.WriteHeader(res.StatusCode)
}

// copyFlushing passes bytes on as they come. When either side ends, it does; an answer
// that is cut off is cut off here too.
func copyFlushing(w http.ResponseWriter, r io.Reader) {
	to := http.NewResponseController(w)
	buf := make([]byte, copyBufferSize)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil || to.Flush() != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// settle puts what a call cost in the place of what it could have, and returns what all
// have used.
func (c *call) settle(ctx context.Context, real amount) Spent {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWait)
	defer cancel()
	all, err := c.door.g.books.settle(ctx, c.door.c, c.book, c.held, real)
	if err != nil {
		c.door.g.c.Log.Warn("what a sandbox has used of a model is written down late", "sandbox", c.door.c.Sandbox, "error", err)
	}
	return all
}
