package guest_test

import (
	"testing"

	"github.com/skete-dev/skete/guest/wire"
)

func TestExec_outputAndStatusAreExact(t *testing.T) {
	m := start(t, options{})
	h := m.hello()
	if h.SuperviseStarts != 1 || h.BootId == "" {
		t.Errorf("hello: %v", h)
	}
	r := m.mustExec(&wire.StartRequest{Argv: sh("echo out; echo err >&2; exit 7")})
	if r.out.String() != "out\n" || r.err.String() != "err\n" || r.exit.GetExit().GetCode() != 7 {
		t.Errorf("got %q, %q, %v", &r.out, &r.err, r.exit)
	}
}
