package file

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/internal/patience"
)

func TestParseGlob_matches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "a", true},
		{"*", "a/b", false},
		{"**", "a/b", true},
		{"**/x", "x", true},
		{"a/**/x", "a/x", true},
		{"a/**/x", "a/b/c/x", true},
		{"{a,b{c,d}}/*.go", "bd/x.go", true},
		{"{a,b{c,d}}/*.go", "b/x.go", false},
		{`\{a,b\}`, "{a,b}", true},
		{"[{]x", "{x", true},
		{"[a-c]?", "bx", true},
		{"[^a]", "a", false},
		{"ä*", "äö", true},
	} {
		g, err := parseGlob(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		if got := g.Match(c.name); got != c.want {
			t.Errorf("%s on %s: %v", c.pattern, c.name, got)
		}
	}
}

// A pattern that makes naive matchers try every combination.
func TestGlob_patternsCannotExplode(t *testing.T) {
	name := strings.Repeat("a", 255) + "/" + strings.Repeat("a", 255)
	for _, p := range []string{
		strings.Repeat("*a", 16) + "b",
		strings.Repeat("**/", 8) + "b",
		strings.Repeat("{a,a*}", 8) + "b",
		"**/" + strings.Repeat("a*", 13) + "b",
	} {
		g, err := parseGlob(p)
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		patience.Within(t, 10*time.Second, p, func() { // combinations would take until the end of time
			if g.Match(name) {
				t.Errorf("%s matched", p)
			}
		})
	}
}

func FuzzGlob(f *testing.F) {
	for _, p := range []string{"**/*.{go,mod}", "[a-z]?", `\*`, "{a,{b,c}}", "{,a}", "[", "{", "**", "a/../b"} {
		f.Add(p, "a/b.go")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(name) > 300 {
			return
		}
		g, err := parseGlob(pattern)
		if err != nil {
			return
		}
		if len(g.choices) > 256 {
			t.Fatalf("%d choices", len(g.choices))
		}
		g.Match(name)
		if dir, _, ok := strings.Cut(name, "/"); ok && g.Match(name) && dir != "" && !strings.ContainsAny(pattern, `\[`) && !g.mayContain(dir) {
			t.Fatalf("%q matches %q, but its directory would be left out", pattern, name)
		}
	})
}

func TestMatcher_linesAndContext(t *testing.T) {
	m, err := newMatcher("b", true, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	got := m.lines([]byte("a\nb\nc\n\nxb\r\n"), 10)
	want := []matchedLine{
		{Number: 2, Column: 1, Text: []byte("b"), Before: [][]byte{[]byte("a")}, After: [][]byte{[]byte("c")}},
		{Number: 5, Column: 2, Text: []byte("xb"), Before: [][]byte{{}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

// Whatever a file holds: lines are found exactly as a plain split finds them.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nneedle\n\nneedle needle\r\nend needle"), "needle", false)
	f.Add([]byte("\n\n\n"), "x", true)
	f.Fuzz(func(t *testing.T, content []byte, pattern string, fold bool) {
		m, err := newMatcher(pattern, true, fold, 0)
		if err != nil {
			return
		}
		var want, got []int
		for i, line := range strings.Split(strings.TrimSuffix(string(content), "\n"), "\n") {
			if m.find([]byte(strings.TrimSuffix(line, "\r"))) >= 0 {
				want = append(want, i+1)
			}
		}
		for _, l := range m.lines(content, 1<<30) {
			got = append(got, l.Number)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q in %q: %s", pattern, content, diff)
		}
	})
}
