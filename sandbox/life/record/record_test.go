package record

import (
	"testing"

	"github.com/skete-dev/skete/sandbox"
)

func FuzzDecode(f *testing.F) {
	good, _ := Record{V: 1, Info: sandbox.Info{ID: "sbx_aaaaaaaaaaaaaaaaaaaa"}}.Encode()
	f.Add("sandbox/sbx_aaaaaaaaaaaaaaaaaaaa", good)
	f.Add("sandbox/", []byte("{}"))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		if rec, err := Decode(key, value); err == nil && keyOf(rec.Info.ID) != key {
			t.Errorf("record of %s at %q", rec.Info.ID, key)
		}
	})
}
