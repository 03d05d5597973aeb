package errs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/skete-dev/skete/errs"
)

func TestOf_findsTheClassThroughWrapping(t *testing.T) {
	base := errs.New(errs.Conflict, "the revision moved")
	cases := []struct {
		err  error
		want errs.Class
	}{
		{nil, ""},
		{base, errs.Conflict},
		{fmt.Errorf("undo rev_1: %w", base), errs.Conflict},
		{errs.Wrap(errs.Denied, base, "no"), errs.Denied},
		{errors.New("plain"), errs.Internal},
		{context.Canceled, errs.Unavailable},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), errs.Unavailable},
	}
	for _, c := range cases {
		if got := errs.Of(c.err); got != c.want {
			t.Errorf("Of(%v) = %q, want %q", c.err, got, c.want)
		}
	}
	if errs.Is(nil, "") {
		t.Error("Is(nil) must be false")
	}
}

func TestPublic_neverShowsTheCause(t *testing.T) {
	secret := errors.New("open /host/path: permission denied")
	for _, err := range []error{secret, errs.Wrap(errs.Internal, secret, "cannot read the template"), fmt.Errorf("a: %w", secret)} {
		if got := errs.Public(err); got == "" || errs.Public(err) == err.Error() {
			t.Errorf("Public(%v) = %q", err, got)
		}
	}
	if got := errs.Wrap(errs.Internal, secret, "x").Error(); got != "x: open /host/path: permission denied" {
		t.Errorf("Error = %q: the operator wants the chain", got)
	}
}

func TestHint_isTheFirstInTheChain(t *testing.T) {
	inner := errs.New(errs.Unsupported, "no KVM").WithHint("load kvm")
	if got := errs.Hint(fmt.Errorf("a: %w", errs.Wrap(errs.Unsupported, inner, "no provider"))); got != "load kvm" {
		t.Errorf("Hint = %q", got)
	}
	if got := errs.Hint(errors.New("x")); got != "" {
		t.Errorf("Hint = %q", got)
	}
	plain := errs.New(errs.Invalid, "x")
	if plain.WithHint("h"); plain.Hint != "" {
		t.Error("WithHint changed its receiver")
	}
}

func TestClasses_haveAStatus(t *testing.T) {
	if len(errs.Classes) != 10 {
		t.Fatalf("%d classes, the design has ten", len(errs.Classes))
	}
	for _, c := range errs.Classes {
		if s := c.HTTPStatus(); s < 400 {
			t.Errorf("%s: status %d", c, s)
		}
		if errs.Temporary(errs.New(c, "x")) != (c == errs.Unavailable) {
			t.Errorf("%s: only Unavailable is retried", c)
		}
	}
}
