package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

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

// failure makes errors of one request.
type failure struct{ fault.Stream }

// sent is for a request that brought no stream. The SDK has read the body of a
// refusal and put it back; its own error is of no use for a page of HTML.
func (f failure) sent(res *http.Response, err error) error {
	if ended := f.Ended(); ended != nil {
		return ended
	}
	if res == nil || res.StatusCode < http.StatusBadRequest {
		return f.Broken(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return f.Broken(err)
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
	out := f.Status(res.StatusCode, res.Header, said)
	if t := troubleOf(shape.Error.Code); t != "" && out.Trouble != llm.Overflow {
		out.Trouble = t
	}
	if out.RetryAfter == 0 && out.Retryable() {
		out.RetryAfter = max(fault.Reset(res.Header, time.Now()), fault.ResetText(shape.Error.Message))
	}
	return out
}

// late is for a failure inside a stream.
func (f failure) late(e apiErr) error {
	out := f.Said(e.String())
	if t := troubleOf(e.Code); t != "" && out.Trouble != llm.Overflow {
		out.Trouble = t
	}
	if out.Retryable() {
		out.RetryAfter = fault.ResetText(e.Message)
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
