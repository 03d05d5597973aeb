package page

import (
	"bytes"
	"testing"
)

func FuzzPageToken(f *testing.F) {
	f.Add(Token("/a", 1, "b/c"), "/a", 1)
	f.Add([]byte("AQE"), "/", 64)
	f.Fuzz(func(t *testing.T, token []byte, name string, depth int) {
		depth &= 63
		last, err := Parse(token, name, depth)
		if err != nil || len(token) == 0 {
			return
		}
		if back := Token(name, depth, last); !bytes.Equal(back, token) {
			// Base64 may have more than one spelling; what it says must be the same.
			if again, err := Parse(back, name, depth); err != nil || again != last {
				t.Fatalf("%q says %q, which makes %q", token, last, back)
			}
		}
	})
}
