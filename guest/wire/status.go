package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"syscall"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
)

// codes pairs our classes with Connect's codes, one to one, so that a class
// survives the wire in both directions.
var codes = []struct {
	class errs.Class
	code  connect.Code
}{
	{errs.Invalid, connect.CodeInvalidArgument},
	{errs.NotFound, connect.CodeNotFound},
	{errs.Exists, connect.CodeAlreadyExists},
	{errs.Denied, connect.CodePermissionDenied},
	{errs.Conflict, connect.CodeAborted},
	{errs.Unsupported, connect.CodeUnimplemented},
	{errs.Limit, connect.CodeResourceExhausted},
	{errs.Unavailable, connect.CodeUnavailable},
	{errs.Corrupt, connect.CodeDataLoss},
	{errs.Internal, connect.CodeInternal},
}

// ToConnect turns an error into what a handler returns: only the public text
// crosses the wire.
func ToConnect(err error) error {
	if err == nil {
		return nil
	}
	class, code := errs.Of(err), connect.CodeInternal
	for _, c := range codes {
		if c.class == class {
			code = c.code
		}
	}
	if _, classified := errors.AsType[*errs.Error](err); !classified && errors.Is(err, context.DeadlineExceeded) {
		// The guest ends a call by the caller's deadline, and may be the first
		// to say so.
		code = connect.CodeDeadlineExceeded
	}
	ce := connect.NewError(code, errors.New(errs.Public(err)))
	if exit := errs.Exit(err); exit != 0 {
		ce.Meta().Set(exitHeader, strconv.Itoa(exit))
	}
	if code := errs.Code(err); code != "" {
		ce.Meta().Set(codeHeader, code)
	}
	return ce
}

// What of an error has no place in Connect's own.
const (
	exitHeader = "Skete-Exit" // errs.Exit
	codeHeader = "Skete-Code" // errs.Code
)

// codeOf is the guest's code, if it is one of ours: a client may rely on it.
func codeOf(ce *connect.Error) string {
	if code := ce.Meta().Get(codeHeader); slices.Contains(errs.Codes, code) {
		return code
	}
	return ""
}

// Err turns what a client call returned into an error with a class. Context
// errors stay what they are; a broken connection is Unavailable.
func Err(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if own, ok := errors.AsType[*errs.Error](err); ok {
		return own // from the dialler: a refusal, a dead machine
	}
	var ce *connect.Error
	if !errors.As(err, &ce) || (!connect.IsWireError(err) && broken(err)) {
		return errs.Wrap(errs.Unavailable, err, "the guest's connection broke")
	}
	for _, c := range codes {
		if c.code == ce.Code() {
			exit, _ := strconv.Atoi(ce.Meta().Get(exitHeader)) // errs.Exit looks whether it is one
			return errs.Wrap(c.class, err, "%s", ce.Message()).WithExit(exit).WithCode(codeOf(ce))
		}
	}
	switch ce.Code() {
	case connect.CodeCanceled:
		return context.Canceled
	case connect.CodeDeadlineExceeded:
		return context.DeadlineExceeded
	case connect.CodeFailedPrecondition, connect.CodeOutOfRange:
		return errs.Wrap(errs.Invalid, err, "%s", ce.Message())
	}
	return errs.Wrap(errs.Unavailable, err, "the guest's connection broke")
}

// broken tells a connection that ended in the middle of a message (which
// Connect calls a protocol error) from a message that is wrong.
func broken(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
