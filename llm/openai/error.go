package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skete-dev/skete/internal/modelwire"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// apiErr is an error object of the vendor.
type apiErr struct {
	Type    string `json:"type"`
	Code    string `json:"code"`
	Param   string `json:"param"`
	Message string `json:"message"`
}

// UnmarshalJSON also takes what gateways send: a string, a number as the code.
func (e *apiErr) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &e.Message) == nil {
		return nil
	}
	var w struct {
		Type    any    `json:"type"`
		Code    any    `json:"code"`
		Param   any    `json:"param"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*e = apiErr{Type: word(w.Type), Code: word(w.Code), Param: word(w.Param), Message: w.Message}
	return nil
}

func word(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

func (e apiErr) String() string {
	var parts []string
	for _, s := range []string{e.Type, e.Code, e.Param, e.Message} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

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

// sent is for a request that brought no stream. The SDK has read the body of a
// refusal and put it back; its own error is of no use for a page of HTML.
func (f failure) sent(res *http.Response, err error) error {
	if ended := f.ended(); ended != nil {
		return ended
	}
	if res == nil || res.StatusCode < http.StatusBadRequest {
		return fault.Broken(f.m.c.Info.Name, f.plain(err))
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return fault.Broken(f.m.c.Info.Name, f.plain(err))
	}
	var shape struct {
		Error apiErr `json:"error"`
	}
	said := fault.Message(body)
	if json.Unmarshal(body, &shape) == nil && shape.Error.Message != "" {
		said = shape.Error.String()
	}
	if id := res.Header.Get("X-Request-Id"); id != "" {
		said += " (request " + id + ")"
	}
	out := fault.Status(f.m.c.Info.Name, res.StatusCode, res.Header, said, f.req, f.secrets()...)
	if t := troubleOf(shape.Error.Code); t != "" && out.Trouble != llm.Overflow {
		out.Trouble = t
	}
	if out.RetryAfter == 0 && out.Retryable() {
		out.RetryAfter = max(modelwire.Reset(res.Header, time.Now()), modelwire.ResetText(shape.Error.Message))
	}
	return out
}

// plain leaves the URL out of an error of net/http: it may hold a key.
func (f failure) plain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return errors.New(fault.Redact(err.Error(), f.req, f.secrets()...))
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

// cut is for a stream that ended before the response did.
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
	return fault.Broken(f.m.c.Info.Name, errors.New("the stream ended before the response did"))
}

func (f failure) malformed(err error) error {
	return fault.Senseless(f.m.c.Info.Name, "%s", fault.Redact(err.Error(), f.req, f.secrets()...))
}

// late is for a failure inside a stream.
func (f failure) late(e apiErr) error {
	out := fault.Said(f.m.c.Info.Name, 0, e.String(), f.req, f.secrets()...)
	if t := troubleOf(e.Code); t != "" && out.Trouble != llm.Overflow {
		out.Trouble = t
	}
	if out.Retryable() {
		out.RetryAfter = modelwire.ResetText(e.Message)
	}
	return out
}

// troubleOf knows the vendor's codes, "" = status and text decide.
func troubleOf(code string) llm.Trouble {
	switch code {
	case "context_length_exceeded", "string_above_max_length":
		return llm.Overflow
	case "server_error", "vector_store_timeout", "server_is_overloaded":
		return llm.Overloaded
	case "rate_limit_exceeded", "slow_down":
		return llm.RateLimited
	case "insufficient_quota", "billing_hard_limit_reached", "invalid_api_key", "account_deactivated":
		return llm.Refused
	case "invalid_prompt", "data_residency_mismatch", "empty_image_file", "failed_to_download_image", "unsupported_image_media_type", "model_not_found":
		return llm.BadRequest
	}
	for _, part := range []string{"_policy", "image_", "invalid_image"} {
		if strings.Contains(code, part) {
			return llm.BadRequest
		}
	}
	return ""
}
