package life

import (
	"testing"

	"github.com/skete-dev/skete/sandbox"
)

func FuzzDecodeRecord(f *testing.F) {
	good, _ := record{V: 1, Info: sandbox.Info{ID: "sbx_aaaaaaaaaaaaaaaaaaaa"}}.encode()
	f.Add("sandbox/sbx_aaaaaaaaaaaaaaaaaaaa", good)
	f.Add("sandbox/", []byte("{}"))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		if rec, err := decodeRecord(key, value); err == nil && recordKey(rec.Info.ID) != key {
			t.Errorf("record of %s at %q", rec.Info.ID, key)
		}
	})
}
