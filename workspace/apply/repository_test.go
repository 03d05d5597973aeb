package apply

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPackedRefs(t *testing.T) {
	hash := strings.Repeat("a", 40)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":        {"", nil},
		"as git writes":  {"# pack-refs with: peeled fully-peeled sorted \n" + hash + " refs/tags/v1\n^" + hash + "\n" + hash + " refs/heads/main\n", []string{"refs/heads/main", "refs/tags/v1"}},
		"no end":         {hash + " refs/heads/c", []string{"refs/heads/c"}},
		"other names":    {hash + " HEAD\n" + hash + " ../refs/x\n" + hash + " refs/heads/../x\n", nil},
		"no lines of it": {"refs/heads/x\n\n \n^refs/heads/y refs/heads/y\n# refs/heads/z\n", nil},
		"CRLF":           {hash + " refs/x\r\n", []string{"refs/x"}},
		"too long":       {hash + " refs/" + strings.Repeat("x", 1<<16) + "\n", nil},
	} {
		if d := cmp.Diff(c.want, packedRefs([]byte(c.text))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// A file for a branch comes back only where git would find none without it.
func TestRepository_named(t *testing.T) {
	r := repository{packed: packedRefs([]byte("a refs/heads/main\na refs/heads/x/y\na refs/heads/x-z\n"))}
	for name, want := range map[string]bool{
		"refs/heads/main": true, "refs/heads/main/sub": true, "refs/heads/x": true, "refs/heads/x/y": true, "refs/heads/x/y/z/w": true,
		"refs/heads/mai": false, "refs/heads/main2": false, "refs/heads/x/z": false, "refs/tags/main": false,
	} {
		if got := r.named(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if r = (repository{unreadable: true}); !r.named("refs/heads/any") {
		t.Error("a list that cannot be read names nothing")
	}
}

func FuzzPackedRefs(f *testing.F) {
	f.Add([]byte("# pack-refs\nabc refs/heads/main\n^abc\n"))
	f.Add([]byte("a refs/a/b\na refs/a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := repository{packed: packedRefs(data)}
		for _, name := range r.packed {
			if !strings.HasPrefix(name, "refs/") || !r.named(name) || !r.named(name+"/beneath") {
				t.Fatalf("%q is not found", name)
			}
		}
	})
}
