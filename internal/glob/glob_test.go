package glob

import (
	"slices"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/google/go-cmp/cmp"
)

func TestAlternatives(t *testing.T) {
	for _, c := range []struct {
		pattern string
		want    []string
	}{
		{"*.go", []string{"*.go"}},
		{"*.{go,mod}", []string{"*.go", "*.mod"}},
		{"{a,{b,c}d}/{x,y}", []string{"a/x", "a/y", "bd/x", "bd/y", "cd/x", "cd/y"}},
		{"{,a}b", []string{"b", "ab"}},
		{`\{a,b\}`, []string{`\{a,b\}`}},
		{"[{]a,b", []string{"[{]a,b"}},
	} {
		got, fault := Alternatives(c.pattern)
		if d := cmp.Diff(c.want, got); d != "" || fault != "" {
			t.Errorf("%s: %s %s", c.pattern, fault, d)
		}
	}
}

func TestAlternatives_faults(t *testing.T) {
	for pattern, want := range map[string]string{
		"":                          "is empty",
		strings.Repeat("a", 1025):   "is longer than 1024 bytes",
		"a\x00":                     "has a NUL in it",
		"[a":                        "is not well formed",
		"{a,b":                      "is not well formed",
		strings.Repeat("{a,b}", 9):  "stands for more than 256 alternatives",
		strings.Repeat("{a,b}", 99): "stands for more than 256 alternatives",
	} {
		if list, fault := Alternatives(pattern); list != nil || fault != want {
			t.Errorf("%.30q: %q, %q; want %q", pattern, list, fault, want)
		}
	}
	if list, fault := Alternatives(strings.Repeat("{a,b}", 8)); len(list) != 256 || fault != "" {
		t.Errorf("%d alternatives, %q", len(list), fault)
	}
}

func FuzzAlternatives(f *testing.F) {
	for _, p := range []string{"**/*.{go,mod}", "[a-z]?", `\*`, "{a,{b,c}}", "{,a}", "[", "{", "{a,b}{c,d}", `{a\,b,c}`} {
		f.Add(p, "a/b.go")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(name) > 60 || len(pattern) > 60 {
			return
		}
		list, fault := Alternatives(pattern)
		if fault != "" {
			return
		}
		if len(list) == 0 || len(list) > alternativesMax {
			t.Fatalf("%q: %d alternatives", pattern, len(list))
		}
		any := slices.ContainsFunc(list, func(p string) bool { ok, _ := doublestar.Match(p, name); return ok })
		whole, _ := doublestar.Match(pattern, name)
		if any != whole && !strings.Contains(pattern, "{") {
			t.Fatalf("%q of %q: alternatives %v, the pattern %v", pattern, name, any, whole)
		}
	})
}
