// Package errs sorts errors by who must act on them.
//
// There are ten classes and no more: a class exists so that the party that must
// act can do something different because of it. Return a class at the place that
// knows who must act; everywhere else wrap once with the operation and the id:
//
//	return errs.New(errs.NotFound, "no sandbox %s", id)
//	return errs.New(errs.Unsupported, "no KVM").WithHint("run `skete doctor`")
//	return fmt.Errorf("resume %s: %w", id, err)
//
// An error has three readers. The operator reads the whole chain in the log
// (Error). The user reads Public, which shows only texts that were written
// for users. The model reads tool results, never errors.
//
// All functions are pure and safe for concurrent use.
package errs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Class says who must act on an error.
type Class string

const (
	// Invalid: the caller must change the request.
	Invalid Class = "invalid"
	// NotFound: the caller names something that does not exist (or is not theirs).
	NotFound Class = "not_found"
	// Exists: the caller wants to make something that is already there.
	Exists Class = "exists"
	// Denied: the caller may not do this.
	Denied Class = "denied"
	// Conflict: the caller must read again; what they saw has moved.
	Conflict Class = "conflict"
	// Unsupported: the operator must choose another provider or machine.
	Unsupported Class = "unsupported"
	// Limit: a quota or budget is used up; its owner must act.
	Limit Class = "limit"
	// Unavailable: no action is needed; the same call may work later.
	Unavailable Class = "unavailable"
	// Corrupt: stored data is damaged; the operator must look, nothing is repaired silently.
	Corrupt Class = "corrupt"
	// Internal: our bug.
	Internal Class = "internal"
)

// Classes lists every class, in the order of the documentation.
var Classes = []Class{Invalid, NotFound, Exists, Denied, Conflict, Unsupported, Limit, Unavailable, Corrupt, Internal}

// Error is an error with a class and a text that a user may read.
type Error struct {
	Class Class
	// Msg is written for users: no host path, no secret, lower case.
	Msg string
	// Hint says what an operator or user can do; may be empty.
	Hint string
	// Cause is for the operator's log only; may be nil.
	Cause error
	// Exit is what a shell says of a command that was not started: NotThere or
	// NotRunnable; 0 = the error is of something else.
	Exit int
	// Code names the refusal for programs, where its class is not enough to
	// tell it from others: one of the codes below; "" = it has none.
	Code string
}

// Codes of refusals.
const (
	// NothingToDo: there is nothing to undo, or to redo.
	NothingToDo = "nothing_to_do"
	// Unreachable: the machine is elsewhere, and its service does not answer.
	Unreachable = "machine_unreachable"

	// Of a path in a sandbox. Those that LangChain's Deep Agents knows have its names.
	FileNotFound      = "file_not_found"
	PermissionDenied  = "permission_denied" // by the file system: the caller's key is good
	FileExists        = "file_exists"
	DirectoryNotEmpty = "directory_not_empty"
	IsDirectory       = "is_directory"
	NotADirectory     = "not_a_directory"
	NotAFile          = "not_a_file" // a device, a socket
	InvalidPath       = "invalid_path"
	FileChanged       = "file_changed" // it is not what the caller saw
	FileTooLarge      = "file_too_large"
	NoSpace           = "no_space"
)

// Codes lists every code.
var Codes = []string{
	NothingToDo, Unreachable, FileNotFound, PermissionDenied, FileExists, DirectoryNotEmpty, IsDirectory, NotADirectory, NotAFile, InvalidPath,
	FileChanged, FileTooLarge, NoSpace,
}

// Exit statuses of commands that were not started, as shells and docker have them.
const (
	NotRunnable = 126
	NotThere    = 127
)

// New returns an error of the class with a text for users.
func New(c Class, format string, args ...any) *Error {
	return &Error{Class: c, Msg: fmt.Sprintf(format, args...)}
}

// OnNode says that another node owns what is asked for: its machine and its files
// are there. Conflict.
func OnNode(what, node string) *Error {
	return New(Conflict, "%s is on another node, %.64q", what, node).WithHint("ask the server of that node")
}

// Wrap returns an error of the class whose cause is kept for the log only.
func Wrap(c Class, cause error, format string, args ...any) *Error {
	return &Error{Class: c, Msg: fmt.Sprintf(format, args...), Cause: cause}
}

// WithHint returns a copy of e with the hint set.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// WithExit returns a copy of e with the exit status set.
func (e *Error) WithExit(status int) *Error {
	c := *e
	c.Exit = status
	return &c
}

// WithCode returns a copy of e with the code set.
func (e *Error) WithCode(code string) *Error {
	c := *e
	c.Code = code
	return &c
}

// Error returns the whole chain, for the operator.
func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Msg + ": " + e.Cause.Error()
	}
	return e.Msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Of returns the class of the first classified error in the chain. A context
// error is Unavailable; anything else unclassified is Internal. Of(nil) is "".
func Of(err error) Class {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Unavailable
	}
	return Internal
}

// Is reports whether err has class c.
func Is(err error, c Class) bool { return err != nil && Of(err) == c }

// Public returns what a user may read: the text of the first classified error,
// or a fixed sentence for everything else.
func Public(err error) string {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Msg
	case errors.Is(err, context.DeadlineExceeded):
		return "the time for this call ran out"
	case errors.Is(err, context.Canceled):
		return "the call was cancelled"
	}
	return "internal error; the server's log has the cause"
}

// Hint returns the first hint in the chain, or "".
func Hint(err error) string {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Cause
	}
	return ""
}

// Exit returns the exit status of a command that was not started for this
// error; 0 = it is no such error.
func Exit(err error) int {
	if e, ok := errors.AsType[*Error](err); ok && (e.Exit == NotThere || e.Exit == NotRunnable) {
		return e.Exit
	}
	return 0
}

// Code returns the code of the first classified error in the chain, or "".
func Code(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Temporary reports whether the same call may work later. Retry is decided
// from this and nowhere else.
func Temporary(err error) bool { return Of(err) == Unavailable }

// HTTPStatus returns the status code that the class maps to.
func (c Class) HTTPStatus() int {
	switch c {
	case Invalid:
		return http.StatusBadRequest
	case NotFound:
		return http.StatusNotFound
	case Exists, Conflict:
		return http.StatusConflict
	case Denied:
		return http.StatusForbidden
	case Unsupported:
		return http.StatusNotImplemented
	case Limit:
		return http.StatusTooManyRequests
	case Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
