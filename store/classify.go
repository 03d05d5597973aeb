package store

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skete-dev/skete/errs"
)

// This file gives the errors of a NATS client their classes.
//
// All functions are pure.

// JetStream's error codes that mean something to us.
const (
	codeAccountResources   = 10002
	codeInsufficient       = 10023
	codeMemoryResources    = 10028
	codeStorageResources   = 10047
	codeMessageTooLarge    = 10054
	codeNotEnabled         = 10076
	codeStoreFailed        = 10077 // "maximum bytes exceeded" among others
	codeWrongLast          = 10071
	codeWrongLastInFlight  = 10164
	codeStreamBytesTooHigh = 10122
)

// faultCode is the error code of JetStream, 0 = it is no answer of JetStream.
func faultCode(err error) int {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return int(api.ErrorCode)
	}
	return 0
}

// refusedError reports whether the server answered that it did not do it, for a
// reason other than the revision. (After a lost acknowledgement the client's
// own repetition meets a wrong revision: ours.)
func refusedError(err error) bool {
	code := faultCode(err)
	return code != 0 && code != codeWrongLast && code != codeWrongLastInFlight
}

// busyError reports whether another write of the key was in flight.
func busyError(err error) bool { return faultCode(err) == codeWrongLastInFlight }

// fullError says that there is no room for more.
func fullError(cause error) error {
	return errs.Wrap(errs.Limit, cause, "the store is full").
		WithHint("remove what is no longer needed, or give the store more room (disk, store limit)")
}

// classify gives an error of the NATS client its class.
func classify(err error, doing string) error {
	switch faultCode(err) {
	case codeWrongLast, codeWrongLastInFlight:
		return errs.Wrap(errs.Conflict, err, "another writer has changed it")
	case codeAccountResources, codeInsufficient, codeMemoryResources, codeStorageResources, codeStoreFailed, codeStreamBytesTooHigh:
		return fullError(err)
	case codeMessageTooLarge:
		return errs.Wrap(errs.Limit, err, "the value is too large for the store")
	case codeNotEnabled:
		return errs.Wrap(errs.Unavailable, err, "the store has switched itself off").
			WithHint("the disk was full, or the NATS server has no JetStream; then restart the server")
	}
	var own *errs.Error
	switch {
	case errors.As(err, &own):
		return err
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionReconnecting),
		errors.Is(err, jetstream.ErrNoStreamResponse):
		return errs.Wrap(errs.Unavailable, err, "the store does not answer (%s)", doing)
	}
	return errs.Wrap(errs.Internal, err, "the store failed (%s)", doing)
}
