package compat

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/internal/sse"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// call is one Stream from its request to its response.
type call struct {
	m     *Model
	req   *llm.Request
	yield func(llm.Delta, error) bool
	sent  int64 // bytes of the request
}

var (
	errSilent  = errors.New("the server sent nothing for too long")
	errOverdue = errors.New("the answer took too long")
	errTooLong = errors.New("the answer is longer than allowed")
)

// run asks and reads the answer. Everything that it starts has ended when it
// returns.
func (c *call) run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	overdue := time.AfterFunc(c.m.o.Whole, func() { stop(errOverdue) })
	defer overdue.Stop()
	watch := &watch{limit: c.m.o.Silence, fire: func() { stop(errSilent) }}

	err := c.exchange(inner, watch)
	if c.req.Schema != nil && refusesSchema(err) {
		// Not another attempt: the server has told that it does not know what was
		// asked for, which the caller allows it not to.
		noSchema.Store(c.m.url, true)
		err = c.exchange(inner, watch)
	}
	switch {
	case err == nil || errors.Is(err, errLeft):
		return err
	case ctx.Err() != nil:
		return ctx.Err() // how the connection ended does not matter then
	}
	if _, ok := errors.AsType[*llm.Error](err); ok {
		return err
	}
	return c.broken(inner, err)
}

// broken makes an error of what the connection said.
func (c *call) broken(ctx context.Context, err error) error {
	name := c.m.o.Info.Name
	if errors.Is(err, errTooLong) || errors.Is(err, sse.ErrTooLong) {
		return fault.Senseless(name, "%w (%d bytes)", errTooLong, c.m.o.ReplyBytesMax)
	}
	if cause := context.Cause(ctx); cause != nil {
		return fault.Broken(name, cause)
	}
	if with, ok := errors.AsType[*url.Error](err); ok {
		err = with.Err // without the URL, whose query may hold a key
	}
	return fault.Broken(name, err)
}

func (c *call) exchange(ctx context.Context, w *watch) error {
	req, err := c.request(ctx)
	if err != nil {
		return err
	}
	w.begin()
	resp, err := c.m.client.Do(req)
	w.end()
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := &limited{in: resp.Body, watch: w, left: c.m.o.ReplyBytesMax}
	if resp.StatusCode != http.StatusOK {
		body.left = failureBytesMax
		return c.failure(resp, body)
	}
	return c.read(resp.Header, body)
}

// noSchema are the servers that refuse a form of replies, by their URLs.
var noSchema sync.Map

var saidSchema = pattern.Lazy(`(?i)response_format|json_schema|schema|grammar|structured output|guided`)

// refusesSchema reports whether a server does not take the form of replies that was
// asked for.
func refusesSchema(err error) bool {
	e, ok := errors.AsType[*llm.Error](err)
	return ok && e.Trouble == llm.BadRequest && e.Status >= 400 && saidSchema().MatchString(e.Said)
}

func (c *call) request(ctx context.Context) (*http.Request, error) {
	if _, refused := noSchema.Load(c.m.url); refused && c.req.Schema != nil {
		plain := *c.req
		plain.Schema = nil
		c.req = &plain
	}
	parts, size := c.m.encode(c.req)
	c.sent = size
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.m.url, nil)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	req.ContentLength = size
	req.GetBody = func() (io.ReadCloser, error) { return &partsReader{parts: parts}, nil }
	req.Body, _ = req.GetBody() // never fails
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream, application/json")
	req.Header.Set("User-Agent", "skete")
	c.m.authorize(req)
	return req, nil
}

// secrets must not show in any error.
func (m *Model) secrets() []string {
	secrets := []string{m.o.Key.Reveal()}
	for _, v := range m.o.Headers {
		secrets = append(secrets, v.Reveal())
	}
	if u, err := url.Parse(m.url); err == nil {
		for _, values := range u.Query() {
			secrets = append(secrets, values...)
		}
	}
	return secrets
}

func (m *Model) authorize(req *http.Request) {
	for k, v := range m.o.Headers {
		req.Header.Set(k, v.Reveal())
	}
	switch {
	case m.o.Key.IsZero():
	case m.o.KeyHeader != "":
		req.Header.Set(m.o.KeyHeader, m.o.Key.Reveal())
	default:
		req.Header.Set("Authorization", "Bearer "+m.o.Key.Reveal())
	}
}

// failure reads an answer that is none. If its body cannot be read, the
// status is enough.
func (c *call) failure(resp *http.Response, body io.Reader) error {
	text, _ := io.ReadAll(body)
	return fault.Status(c.m.o.Info.Name, resp.StatusCode, resp.Header, fault.Message(text), c.req, c.m.secrets()...)
}

// read takes a stream or a whole answer, whichever came: the header is only
// believed where it fits the first byte.
func (c *call) read(header http.Header, body *limited) error {
	in := bufio.NewReader(body)
	first, err := firstByte(in)
	switch {
	case errors.Is(err, io.EOF):
		return fault.Senseless(c.m.o.Info.Name, "an empty answer")
	case err != nil:
		return err
	case first == '{' && !strings.HasPrefix(header.Get("Content-Type"), "text/event-stream"):
		return c.whole(in)
	case first == '<':
		text, _ := io.ReadAll(io.LimitReader(in, failureBytesMax))
		return fault.Senseless(c.m.o.Info.Name, "%s", fault.Redact(fault.Message(text), c.req, c.m.secrets()...))
	}
	return c.stream(in, body)
}

// firstByte returns the first byte that is no white space, unread.
func firstByte(in *bufio.Reader) (byte, error) {
	for {
		b, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		if b != ' ' && b != '\n' && b != '\r' && b != '\t' {
			return b, in.UnreadByte()
		}
	}
}

// whole reads an answer in one piece.
func (c *call) whole(in io.Reader) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	a := newAnswer(c)
	if err := a.take(text, false); err != nil {
		return err
	}
	return a.finish()
}

func (c *call) stream(in io.Reader, body *limited) error {
	a := newAnswer(c)
	events := sse.NewReader(in, int(c.m.o.ReplyBytesMax))
	for n := 0; ; n++ {
		event, err := events.Next()
		if err != nil {
			return c.ended(a, n, err)
		}
		data := bytes.TrimSpace(event.Data)
		switch {
		case len(data) == 0:
			continue
		case bytes.Equal(data, []byte("[DONE]")):
			a.done = true
			return a.finish()
		case event.Name == "error":
			return a.said(data)
		case event.Cut && !json.Valid(data):
			return c.ended(a, n, io.ErrUnexpectedEOF)
		}
		if err := a.take(data, true); err != nil {
			return err
		}
		if a.stop != "" { // only usage and the end mark can follow
			body.watch.limit = min(body.watch.limit, graceMax)
		}
	}
}

// ended judges a stream that ended without its mark: with a reason to stop the
// answer is whole.
func (c *call) ended(a *answer, events int, err error) error {
	switch {
	case a.stop != "" && !errors.Is(err, errTooLong) && !errors.Is(err, sse.ErrTooLong):
		return a.finish()
	case !errors.Is(err, io.EOF):
		return err
	case events == 0:
		return fault.Senseless(c.m.o.Info.Name, "an answer without a single event")
	}
	return io.ErrUnexpectedEOF
}

// watch fires when one wait takes too long. Only waiting counts, not what the
// caller does with what came.
type watch struct {
	limit time.Duration
	fire  func()
	timer *time.Timer
}

func (w *watch) begin() {
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit, w.fire)
		return
	}
	w.timer.Reset(w.limit)
}

func (w *watch) end() { w.timer.Stop() }

// limited reads at most left bytes and watches every wait.
type limited struct {
	in    io.Reader
	watch *watch
	left  int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLong
	}
	if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	l.watch.begin()
	n, err := l.in.Read(p)
	l.watch.end()
	l.left -= int64(n)
	return n, err
}
