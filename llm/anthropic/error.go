package anthropic

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// apiErr is an error object of the vendor.
type apiErr struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (e apiErr) String() string { return strings.Trim(e.Type+": "+e.Message, ": ") }

// failure makes errors of one request.
type failure struct{ fault.Stream }

// sent is for a request that brought no stream.
func (f failure) sent(err error) error {
	if ended := f.Ended(); ended != nil {
		return ended
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return f.status(e)
	}
	return f.Broken(err)
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
	out := f.Status(e.StatusCode, header, said)
	out.Trouble = troubleOf(body.Error.Type, out.Trouble)
	if out.RetryAfter == 0 && out.Retryable() {
		out.RetryAfter = fault.Reset(header, time.Now())
	}
	return out
}

// late is for an error event inside a stream.
func (f failure) late(e apiErr) error {
	out := f.Said(e.String())
	out.Trouble = troubleOf(e.Type, out.Trouble)
	if out.Retryable() {
		out.RetryAfter = fault.ResetText(e.Message)
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
