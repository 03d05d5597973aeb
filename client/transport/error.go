package transport

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
)

// problemBytesMax bounds what is read of an error's body.
const problemBytesMax = 1 << 20

// Error is what the server answered instead of a result. errs.Of gives its
// class, errs.Public and errs.Hint its texts.
type Error struct {
	api.Problem
}

// Error returns the server's sentence.
func (e *Error) Error() string {
	fields := e.fields()
	switch {
	case e.Detail == invalid && fields != "":
		return fields
	case e.Detail != "":
		return join(e.Detail, fields)
	}
	return join(e.Title, fields)
}

// invalid is a detail that says less than the fields do.
const invalid = "validation failed"

func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}

// Unwrap makes the package errs see the class.
func (e *Error) Unwrap() error {
	return &errs.Error{Class: errs.Class(e.Class), Msg: e.Error(), Hint: e.Hint, Exit: e.ExitCode, Code: e.Code}
}

func (e *Error) fields() string {
	var list []string
	for _, f := range e.Errors {
		switch {
		case f.Message == e.Detail:
		case f.Location == "" || f.Location == "body":
			list = append(list, f.Message)
		default:
			list = append(list, fieldOf(f.Location)+": "+f.Message)
		}
	}
	return strings.Join(list, "; ")
}

// fieldOf is the name of a field without the place where requests have it.
func fieldOf(location string) string {
	for _, place := range []string{"body.", "query.", "path.", "for."} {
		location = strings.TrimPrefix(location, place)
	}
	return location
}

// problemOf turns an answer that is no success into an error.
func problemOf(res *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, problemBytesMax))
	var p api.Problem
	if json.Unmarshal(body, &p) != nil || p.Status == 0 {
		p = api.Problem{Status: res.StatusCode, Title: http.StatusText(res.StatusCode)}
	}
	return problem(p)
}

func problem(p api.Problem) *Error {
	if !slices.Contains(errs.Classes, errs.Class(p.Class)) {
		p.Class = string(classOf(p.Status))
	}
	if p.Title == "" && p.Detail == "" {
		p.Title = "the server refused without a reason"
	}
	return &Error{Problem: p}
}

// classOf guesses the class of an answer that did not come from skete itself,
// for example from a proxy before it.
func classOf(status int) errs.Class {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return errs.Denied
	case http.StatusNotFound:
		return errs.NotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return errs.Conflict
	case http.StatusTooManyRequests:
		return errs.Limit
	case http.StatusNotImplemented:
		return errs.Unsupported
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return errs.Unavailable
	}
	if status >= 400 && status < 500 {
		return errs.Invalid
	}
	return errs.Internal
}

// Broken classifies an error of the connection itself. A context's error
// and an error with a class stay what they are.
func Broken(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	if _, ok := errors.AsType[*errs.Error](err); ok {
		return err
	}
	return errs.Wrap(errs.Unavailable, err, "the skete server does not answer").
		WithHint("is it running? `skete serve` starts it, `skete doctor` looks for what is wrong")
}
