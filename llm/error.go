package llm

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Trouble is why a model call failed; it decides what happens next.
type Trouble string

// Troubles.
const (
	RateLimited Trouble = "rate_limited"     // try again after Error.RetryAfter
	Overloaded  Trouble = "overloaded"       // the same: 500, 502, 503, 504, 529
	Transport   Trouble = "transport"        // no connection, cut, silent for too long: try again
	Malformed   Trouble = "malformed"        // the answer makes no sense: try again, a few times
	Overflow    Trouble = "context_overflow" // the prompt is too long: make it shorter
	Refused     Trouble = "auth"             // the key is wrong or may not
	BadRequest  Trouble = "bad_request"      // the request is wrong: trying again does not help
)

// Error is a model call that failed.
type Error struct {
	Trouble    Trouble
	Status     int           // HTTP, 0 = none
	RetryAfter time.Duration // what the server asked for, 0 = nothing
	Model      string
	// WindowTokens and PromptTokens are what the server counts, with Overflow; 0 = it
	// does not say.
	WindowTokens, PromptTokens int
	// Said is what the server wrote, for users: a line of at most 700 bytes, without
	// keys and without what it quotes of the prompt. "" = nothing.
	Said string
	// URL is what was asked, without what could be a secret in it; "" = not known.
	URL   string
	Cause error // for the log; it holds no key and no prompt
}

// Error returns the whole chain, for the operator.
func (e *Error) Error() string {
	s := fmt.Sprintf("model %s: %s", e.Model, e.Trouble)
	if e.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap gives the error its class, so that errs.Of says who must act.
func (e *Error) Unwrap() []error {
	return []error{errs.New(e.class(), "model %s: %s%s", e.Model, e.sentence(), e.told()), e.Cause}
}

// told is what the server said, and which one it was, as far as that is known.
func (e *Error) told() string {
	var where []string
	if e.Status != 0 {
		where = append(where, fmt.Sprintf("HTTP %d", e.Status))
	}
	if e.URL != "" && (e.Status != 0 || e.Said != "") {
		where = append(where, "from "+e.URL)
	}
	text := ""
	if e.Said != "" {
		text = ": " + e.Said
	}
	if len(where) > 0 {
		text += " (" + strings.Join(where, " ") + ")"
	}
	return text
}

func (e *Error) class() errs.Class {
	switch e.Trouble {
	case RateLimited, Overloaded, Transport, Malformed:
		return errs.Unavailable
	case Overflow:
		return errs.Limit
	case Refused:
		return errs.Denied
	}
	return errs.Invalid
}

func (e *Error) sentence() string {
	switch e.Trouble {
	case RateLimited:
		return "it is rate limited"
	case Overloaded:
		return "its server is overloaded"
	case Transport:
		return "its server cannot be reached, or the connection broke"
	case Malformed:
		return "its answer could not be understood"
	case Overflow:
		return "the prompt does not fit its context window"
	case Refused:
		return "its server refused the key or the account"
	}
	return "its server refused the request"
}

// Retryable reports whether the same request may work later.
func (e *Error) Retryable() bool { return e.class() == errs.Unavailable }

// TroubleOf returns the trouble of an error, "" if it is none of a model.
func TroubleOf(err error) Trouble {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Trouble
	}
	return ""
}
