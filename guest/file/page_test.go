package file

import (
	"bytes"
	"testing"
)

func FuzzPageToken(f *testing.F) {
	f.Add(pageToken("/a", 1, "b/c"), "/a", 1)
	f.Add([]byte("AQE"), "/", 64)
	f.Fuzz(func(t *testing.T, token []byte, name string, depth int) {
		depth &= 63
		last, err := parsePageToken(token, name, depth)
		if err != nil || len(token) == 0 {
			return
		}
		if back := pageToken(name, depth, last); !bytes.Equal(back, token) {
			// Base64 may have more than one spelling; what it says must be the same.
			if again, err := parsePageToken(back, name, depth); err != nil || again != last {
				t.Fatalf("%q says %q, which makes %q", token, last, back)
			}
		}
	})
}
