package file

import (
	"bytes"
	"path"
	"strings"
	"testing"
)

func FuzzNormalise(f *testing.F) {
	for _, s := range []string{"", "a", "/", "~", "~/x", "~x", "../..", "a\x00", "a//b/./c", "\xff", strings.Repeat("a/", 3000)} {
		f.Add([]byte(s))
	}
	s := &Service{cfg: Config{Home: "/home/user", Workdir: "/workspace"}}
	f.Fuzz(func(t *testing.T, p []byte) {
		name, err := s.normalise(p)
		if err != nil {
			return
		}
		switch {
		case !path.IsAbs(name), path.Clean(name) != name, len(name) > pathBytesMax, strings.IndexByte(name, 0) >= 0:
			t.Fatalf("%q became %q", p, name)
		}
		if again, err := s.normalise([]byte(name)); err != nil || again != name {
			t.Fatalf("%q became %q, then %q (%v)", p, name, again, err)
		}
	})
}

func FuzzPageToken(f *testing.F) {
	f.Add(makeToken("/a", 1, "b/c"), "/a", 1)
	f.Add([]byte("AQE"), "/", 64)
	f.Fuzz(func(t *testing.T, token []byte, name string, depth int) {
		depth &= 63
		last, err := parseToken(token, name, depth)
		if err != nil || len(token) == 0 {
			return
		}
		if back := makeToken(name, depth, last); !bytes.Equal(back, token) {
			// Base64 may have more than one spelling; what it says must be the same.
			if again, err := parseToken(back, name, depth); err != nil || again != last {
				t.Fatalf("%q says %q, which makes %q", token, last, back)
			}
		}
	})
}
