package snapshot

import (
	"testing"

	"github.com/skete-dev/skete/sandbox"
)

// The rest is tested through its only user: sandbox/manager.
func FuzzDecode(f *testing.F) {
	f.Add("snapshot/snp_aaaaaaaaaaaaaaaaaaaa", []byte(`{"v":1,"snapshot":{"id":"snp_aaaaaaaaaaaaaaaaaaaa"}}`))
	f.Add("snapshot/", []byte(`{"v":1}`))
	f.Add("snapshot/../x", []byte(`{"v":1,"snapshot":{"id":"../x"}}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		r, err := decode(key, value)
		if err != nil {
			return
		}
		if _, perr := sandbox.ParseSnapshotID(string(r.Snapshot.ID)); perr != nil || keyOf(r.Snapshot.ID) != key {
			t.Errorf("record of %q at %q", r.Snapshot.ID, key)
		}
	})
}
