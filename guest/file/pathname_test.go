package file

import (
	"path"
	"strings"
	"testing"
)

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "a", "/", "~", "~/x", "~x", "../..", "a\x00", "a//b/./c", "\xff", strings.Repeat("a/", 3000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		name, err := cleanPath(p, "/workspace", "/home/user")
		if err != nil {
			return
		}
		switch {
		case !path.IsAbs(name), path.Clean(name) != name, len(name) > pathBytesMax, strings.IndexByte(name, 0) >= 0:
			t.Fatalf("%q became %q", p, name)
		}
		if again, err := cleanPath(name, "/workspace", "/home/user"); err != nil || again != name {
			t.Fatalf("%q became %q, then %q (%v)", p, name, again, err)
		}
	})
}
