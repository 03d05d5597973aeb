package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/skete-dev/skete/internal/modelwire"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// apiErr is an error object of the vendor.
type apiErr struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (e apiErr) String() string { return strings.Trim(e.Type+": "+e.Message, ": ") }

// failure makes errors of one request. None of them holds the key or a part of
// the prompt, whatever the server quotes.
type failure struct {
	m     *Model
	ctx   context.Context // the caller's
	guard *modelwire.Guard
	req   *llm.Request
}

func (f failure) secrets() []string {
	secrets := []string{f.m.c.Key.Reveal()}
	for _, v := range f.m.c.Headers {
		secrets = append(secrets, v.Reveal())
	}
	return secrets
}

// ended returns the error of a request that we ended ourselves, nil if the
// server did.
func (f failure) ended() error {
	switch why := f.guard.Cause(); {
	case errors.Is(why, modelwire.ErrTooLong):
		return fault.Senseless(f.m.c.Info.Name, "%w: %d bytes", why, f.m.c.ReplyBytesMax)
	case why != nil:
		return fault.Broken(f.m.c.Info.Name, fmt.Errorf("%w: %v", why, f.m.c.Silence))
	}
	return f.ctx.Err()
}

// sent is for a request that brought no stream.
func (f failure) sent(err error) error {
	if ended := f.ended(); ended != nil {
		return ended
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return f.status(e)
	}
	return fault.Broken(f.m.c.Info.Name, f.plain(err))
}

// plain leaves the URL out of an error of net/http: it may hold a key.
func (f failure) plain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return errors.New(fault.Redact(err.Error(), f.req, f.secrets()...))
}

func (f failure) status(e *sdk.Error) error {
	var body struct {
		Error apiErr `json:"error"`
	}
	raw := []byte(e.RawJSON())
	said := fault.Message(raw)
	if json.Unmarshal(raw, &body) == nil && body.Error.Message != "" {
		said = body.Error.String()
	}
	if e.RequestID != "" {
		said += " (request " + e.RequestID + ")"
	}
	var header http.Header
	if e.Response != nil {
		header = e.Response.Header
	}
	out := fault.Status(f.m.c.Info.Name, e.StatusCode, header, said, f.req, f.secrets()...)
	out.Trouble = troubleOf(body.Error.Type, out.Trouble)
	if out.RetryAfter == 0 && out.Retryable() {
		out.RetryAfter = modelwire.Reset(header, time.Now())
	}
	return out
}

// notStream is for a 2xx or 3xx that is no event stream: a proxy's page.
func (f failure) notStream(res *http.Response) error {
	name := f.m.c.Info.Name
	if res.StatusCode/100 == 3 {
		return &llm.Error{
			Trouble: llm.BadRequest, Status: res.StatusCode, Model: name,
			Cause: errors.New("the server sends us elsewhere: the configured URL is not the right one"),
		}
	}
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err == nil && media == "text/event-stream" {
		return nil
	}
	return fault.Senseless(name, "the reply is no event stream but %q", fault.Redact(media, f.req, f.secrets()...))
}

// cut is for a stream that ended before the message did.
func (f failure) cut(err error, begun bool) error {
	if ended := f.ended(); ended != nil {
		return ended
	}
	if err != nil {
		return fault.Broken(f.m.c.Info.Name, f.plain(err))
	}
	if !begun && f.guard.Bytes() > 0 {
		return fault.Senseless(f.m.c.Info.Name, "%d bytes came, and no event in them", f.guard.Bytes())
	}
	return fault.Broken(f.m.c.Info.Name, errors.New("the stream ended before the message did"))
}

func (f failure) malformed(err error) error {
	return fault.Senseless(f.m.c.Info.Name, "%s", fault.Redact(err.Error(), f.req, f.secrets()...))
}

// late is for an error event inside a stream.
func (f failure) late(e apiErr) error {
	out := fault.Said(f.m.c.Info.Name, 0, e.String(), f.req, f.secrets()...)
	out.Trouble = troubleOf(e.Type, out.Trouble)
	if out.Retryable() {
		out.RetryAfter = modelwire.ResetText(e.Message)
	}
	return out
}

// troubleOf prefers what the vendor calls a failure to what its status and its
// text look like; a prompt that is too long has no type of its own.
func troubleOf(kind string, or llm.Trouble) llm.Trouble {
	if or == llm.Overflow {
		return or
	}
	switch kind {
	case "request_too_large":
		return llm.Overflow
	case "authentication_error", "permission_error", "billing_error":
		return llm.Refused
	case "rate_limit_error":
		return llm.RateLimited
	case "overloaded_error", "api_error", "timeout_error":
		return llm.Overloaded
	case "invalid_request_error", "not_found_error":
		if or == llm.Refused { // "credit balance is too low" is an invalid request
			return or
		}
		return llm.BadRequest
	}
	return or
}
