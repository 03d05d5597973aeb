package life

import (
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

func FuzzDecode(f *testing.F) {
	good, _ := registryRecord{V: 1, Info: sandbox.Info{ID: "sbx_aaaaaaaaaaaaaaaaaaaa"}}.Encode()
	f.Add("sandbox/sbx_aaaaaaaaaaaaaaaaaaaa", good)
	f.Add("sandbox/", []byte("{}"))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		if rec, err := decodeRecord(key, value); err == nil && recordKey(rec.Info.ID) != key {
			t.Errorf("record of %s at %q", rec.Info.ID, key)
		}
	})
}

// A call meets a machine that is on its way down: it may be made again, and then
// is told that the machine is stopped.
func TestUsable_stoppingIsTemporary(t *testing.T) {
	r := registryRecord{Info: sandbox.Info{ID: "sbx_1", State: sandbox.Running}, Plan: planHalt}
	if err := r.Usable(true); !errs.Temporary(err) {
		t.Errorf("while it stops: %v (%s)", err, errs.Of(err))
	}
	r.Info.State, r.Plan = sandbox.Stopped, planNone
	if err := r.Usable(false); errs.Temporary(err) || errs.Hint(err) == "" {
		t.Errorf("when it is stopped: %v (%s)", err, errs.Of(err))
	}
}
