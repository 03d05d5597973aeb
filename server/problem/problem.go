// Package problem turns errors into RFC 9457 answers: one shape for every
// refusal that a caller can get, whether it comes from the JSON layer, a
// stream or the door.
//
//	problem.Write(w, errs.New(errs.NotFound, "no sandbox %s", id))
//
// Only texts written for users leave the server (errs.Public); the cause stays
// in the log. All functions are pure and safe for concurrent use; Install
// sets package state of huma and runs once.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
)

// contentType of every problem.
const contentType = "application/problem+json"

// Bounds of what an answer repeats: a wrong value, a text that a guest wrote.
const (
	valueBytesMax  = 200
	detailBytesMax = 1000
)

// Error is a problem that is also an error, so that handlers may return it.
// Status is fixed by the class unless At chose another one.
type Error struct {
	api.Problem
	// RetryAfter is sent as a header when it is not 0.
	RetryAfter time.Duration `json:"-"`
	cause      error
}

// Error returns the text for users.
func (e *Error) Error() string { return e.Detail }

// Unwrap returns what the problem was made of, for the log.
func (e *Error) Unwrap() error { return e.cause }

// GetStatus implements huma.StatusError.
func (e *Error) GetStatus() int { return e.Status }

// GetHeaders implements huma.HeadersError.
func (e *Error) GetHeaders() http.Header {
	h := http.Header{}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	return h
}

// contentType implements huma.ContentTypeFilter.
func (*Error) ContentType(string) string { return contentType }

// Schema implements huma.SchemaProvider: what crosses the wire is api.Problem.
func (*Error) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[api.Problem](), true, "Problem")
}

// Of makes a problem of any error; nil stays nil. A problem stays what it is.
func Of(err error) *Error {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*Error](err); ok {
		return p
	}
	class := errs.Of(err)
	status := class.HTTPStatus()
	if errors.Is(err, context.DeadlineExceeded) {
		status = http.StatusGatewayTimeout
	}
	return &Error{
		Problem: api.Problem{
			Title:  http.StatusText(status),
			Status: status,
			Detail: clip.Line(errs.Public(err), detailBytesMax),
			Class:  string(class),
			Code:   errs.Code(err),
			Hint:   clip.Line(errs.Hint(err), detailBytesMax),

			ExitCode: errs.Exit(err),
		},
		cause: err,
	}
}

// At makes a problem with a status of its own, where HTTP has a finer word
// than the class: 401, 405, 412, 413, 416.
func At(status int, err error) *Error {
	p := *Of(err)
	p.Status, p.Title = status, http.StatusText(status)
	return &p
}

// Write answers a request with err. The header must not be written yet.
func Write(w http.ResponseWriter, err error) {
	p := Of(err)
	h := w.Header()
	maps.Copy(h, p.GetHeaders())
	h.Del("Content-Length")
	h.Del("Content-Range")
	h.Del("ETag")
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p.Problem)
}

// classOf maps the status codes that the JSON layer uses.
func classOf(status int) errs.Class {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return errs.Denied
	case status == http.StatusNotFound:
		return errs.NotFound
	case status == http.StatusConflict:
		return errs.Conflict
	case status == http.StatusTooManyRequests:
		return errs.Limit
	case status == http.StatusServiceUnavailable, status == http.StatusRequestTimeout:
		return errs.Unavailable
	case status == http.StatusNotImplemented:
		return errs.Unsupported
	case status >= 500:
		return errs.Internal
	}
	return errs.Invalid
}

// Private is the key in the metadata of an operation whose body holds secrets, if true:
// no problem repeats what stands there.
const Private = "private"

var install sync.Once

// Install makes huma answer with our problems, and take no key in another case
// than its own. huma keeps both in package variables, so this is process-wide;
// it is done once.
func Install() {
	install.Do(func() {
		huma.ValidateStrictCasing = true
		huma.NewError = fromHuma
		huma.NewErrorWithContext = func(c huma.Context, status int, msg string, details ...error) huma.StatusError {
			p := fromHuma(status, msg, details...)
			if e, ok := p.(*Error); ok && c != nil && c.Operation().Metadata[Private] == true {
				e.hush()
			}
			return p
		}
	})
}

// fromHuma makes a problem of what huma found. 422 becomes 400: one class,
// one status. A 500 of huma's carries the text of an unknown error, which is
// not written for users.
func fromHuma(status int, msg string, details ...error) huma.StatusError {
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	p := &Error{Problem: api.Problem{
		Title:  http.StatusText(status),
		Status: status,
		Detail: msg,
		Class:  string(classOf(status)),
	}}
	if status >= 500 {
		p.cause = errors.Join(append([]error{errors.New(msg)}, details...)...)
		p.Detail = errs.Public(errors.New(msg))
		return p
	}
	for _, d := range details {
		p.Errors = append(p.Errors, field(d))
	}
	return p
}

// hush takes away what was sent and is wrong.
func (e *Error) hush() {
	for i := range e.Errors {
		e.Errors[i].Value = nil
	}
}

// field makes a FieldError. It repeats a value that is wrong, if it is short; of an object
// or a list it does not, since what is wrong is in it or beside it: an unknown key would
// repeat all that stands beside it, variables of an environment and the like.
func field(err error) api.FieldError {
	var d huma.ErrorDetailer
	if !errors.As(err, &d) {
		return api.FieldError{Message: err.Error()}
	}
	detail := d.ErrorDetail()
	f := api.FieldError{Message: inWords(detail.Message), Location: detail.Location}
	switch detail.Value.(type) {
	case map[string]any, []any:
		return f
	}
	if b, err := json.Marshal(detail.Value); err == nil && len(b) <= valueBytesMax {
		f.Value = detail.Value
	}
	return f
}
