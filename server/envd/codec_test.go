package envd

import (
	"encoding/base64"
	"testing"
)

// FuzzBase64: our base64 is the standard library's, behind what is there.
func FuzzBase64(f *testing.F) {
	all := make([]byte, 300)
	for i := range all {
		all[i] = byte(i * 7)
		f.Add(all[:i], i%3)
	}
	f.Fuzz(func(t *testing.T, data []byte, room int) {
		before := make([]byte, 2, 2+max(0, room&1023))
		want := base64.StdEncoding.AppendEncode([]byte{0, 0}, data)
		if got := appendBase64(before, data); string(got) != string(want) {
			t.Errorf("%q became %q, not %q", data, got, want)
		}
	})
}
