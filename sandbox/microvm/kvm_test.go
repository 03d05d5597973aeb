package microvm_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox/microvm"
)

// Whatever this machine's KVM is like, the probe comes to a verdict: it works
// in every point, or it is Unsupported and says what is wrong. Nothing hangs.
func TestProbeKVM_comesToAVerdict(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("KVM is probed on amd64 only")
	}
	begin := time.Now()
	r, err := microvm.InspectKVM(t.Context())
	t.Logf("%+v, %v, in %s", r, err, time.Since(begin))
	if err != nil && !errs.Is(err, errs.Unsupported) {
		t.Fatal(err)
	}
	verdict := microvm.ProbeKVM(t.Context())
	if works := err == nil && r.Works(); works != (verdict == nil) {
		t.Errorf("the report says %+v, the probe %v", r, verdict)
	}
	if verdict != nil && (!errs.Is(verdict, errs.Unsupported) || errs.Hint(verdict) == "") {
		t.Errorf("%v, hint %q", verdict, errs.Hint(verdict))
	}
}
