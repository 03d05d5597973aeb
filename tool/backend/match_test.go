package backend

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/tool"
)

func TestMatch_deepagentsRules(t *testing.T) {
	for _, c := range []struct {
		pattern, yes, no string // paths, separated by spaces
	}{
		{"*.py", "a.py src/a.py src/b/c.py", "a.pyc .a.py .git/a.py a.py/b"},
		{"/*.py", "a.py", "src/a.py"},
		{"src/*.py", "src/a.py", "a.py x/src/a.py src/b/c.py"},
		{"**/*.py", "a.py src/a.py", ".venv/a.py src/.a.py"},
		{"src/**", "src/a src/b/c", "src a/src/b src/.git/x src/.x"},
		{"src/", "src/a src/b/c", "src"},
		{"**", "a a/b", ".a .a/b a/.b"},
		{".*", ".env a/.env", "env .git/config"},
		{"/.github/**/*.yml", ".github/a.yml .github/w/a.yml", ".github/.x/a.yml"},
		{"**/.env", ".env a/.env", ".a/.env"},
		{"*.{ts,tsx}", "a.ts x/a.tsx", "a.js"},
		{"{src,test}/**/*.go", "src/a.go test/x/a.go", "a.go"},
		{"{*.md,docs/*.txt}", "a.md x/a.md docs/a.txt", "a.txt"},
		{"a/**/b", "a/b a/x/b a/x/y/b", "a/.x/b ab"},
		{"a/**/**/b", "a/b a/x/y/b", "b"},
		{"[ab].go", "a.go", "c.go"},
		{"?.go", "a.go ü.go", "ab.go .go"},
		{"./a.go", "a.go", "x/a.go"},
		{`\{a\}`, "{a}", "a"},
		{"a,b", "a,b", "a b"},
		{"{a,b}", "a x/b", "a,b"},
		{"Makefile", "Makefile x/Makefile", "makefile"},
	} {
		g, err := ParseGlob(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for p := range strings.FieldsSeq(c.yes) {
			if !g.Match(p) {
				t.Errorf("%s does not match %s", c.pattern, p)
			}
		}
		for p := range strings.FieldsSeq(c.no) {
			if g.Match(p) {
				t.Errorf("%s matches %s", c.pattern, p)
			}
		}
	}
}

func TestParse_badPatterns(t *testing.T) {
	for _, p := range []string{"", "[", "{a", "a\x00", "../a", "a/../b", strings.Repeat("a", 2000), strings.Repeat("{a,b}", 10), strings.Repeat("*a", 20), strings.Repeat("a/", 200), `a\`} {
		_, err := ParseGlob(p)
		if fe, ok := err.(*tool.FileError); !ok || fe.Code != tool.CodeArgs || fe.Hint == "" { //nolint:errorlint // the very type is promised
			t.Errorf("%.40q: %v", p, err)
		}
	}
}

// A search that goes on in a mounted backend finds what one search would.
func TestBeneath_meansTheSameFiles(t *testing.T) {
	names := []string{"a", "b", ".c", "a.go"}
	var paths []string
	for _, x := range names {
		for _, y := range names {
			for _, z := range names {
				paths = append(paths, x, x+"/"+y, x+"/"+y+"/"+z)
			}
		}
	}
	for _, pattern := range []string{"*.go", "/a/*", "a/**", "**/b/*.go", "a/b/*", "{a,b}/**/*.go", "**", ".c/*", "*/*/*.go", "**/.c/**"} {
		g, err := ParseGlob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"a", "b", ".c", "a/b", "a/.c"} {
			inside := g.Beneath(dir)
			if g.MayContain(dir) != (len(inside) > 0) {
				t.Errorf("%s: MayContain(%s) = %v, %v", pattern, dir, g.MayContain(dir), inside)
			}
			for _, p := range paths {
				rel, ok := strings.CutPrefix(p, dir+"/")
				if !ok {
					continue
				}
				found := slices.ContainsFunc(inside, func(s string) bool {
					sub, err := ParseGlob(s)
					return err == nil && sub.Match(rel)
				})
				if found != g.Match(p) {
					t.Errorf("%s in %s (%v): %s is found: %v, should be %v", pattern, dir, inside, rel, found, g.Match(p))
				}
			}
		}
	}
}

func TestLines_regexp(t *testing.T) {
	text := "func main() {\r\n\tx := 1\n}\nfunc mainly() {}\n\nlast func"
	for expr, want := range map[string][]int{
		`^func \w+\(`: {1, 4}, `func$`: {6}, `^$`: {5}, `(?i)FUNC`: {1, 4, 6}, `\{$`: {1}, `x.*\n`: nil, `a+b`: nil, ``: {1, 2, 3, 4, 5, 6},
	} {
		m, err := Matcher(tool.Pattern{Text: expr, Regexp: true})
		if err != nil {
			t.Fatal(err)
		}
		found, more := m.lines("/f", []byte(text), 9)
		var got []int
		for _, f := range found {
			got = append(got, f.Line)
		}
		if d := cmp.Diff(want, got); d != "" || more {
			t.Errorf("%s: %s", expr, d)
		}
	}
	m, err := Matcher(tool.Pattern{Text: "func", Regexp: true})
	if found, more := m.lines("/f", []byte(text), 2); err != nil || len(found) != 2 || !more {
		t.Errorf("%v %v %v", found, more, err)
	}
	_, err = Matcher(tool.Pattern{Text: "a(b", Regexp: true})
	if bad, ok := errors.AsType[*tool.FileError](err); !ok || !strings.Contains(bad.Hint, "missing closing )") {
		t.Errorf("%v", err)
	}
}

func find(text, literal string, limit int) ([]tool.Match, bool) {
	return LineMatcher{literal: []byte(literal)}.lines("/f", []byte(text), limit)
}

func TestLines(t *testing.T) {
	text := "one\r\nTwo needle\nno\nneedle needle\nlast needle"
	got, more := find(text, "needle", 2)
	want := []tool.Match{{Path: "/f", Line: 2, Text: "Two needle"}, {Path: "/f", Line: 4, Text: "needle needle"}}
	if d := cmp.Diff(want, got); d != "" || !more {
		t.Errorf("more %v, %s", more, d)
	}
	if got, more = find(text, "needle", 3); len(got) != 3 || more || got[2].Line != 5 {
		t.Errorf("%v %v", got, more)
	}
	if got, _ = find(text, "one\r", 3); len(got) != 0 {
		t.Errorf("the line's end is no part of it: %v", got)
	}
	if got, _ = find("a.c\nabc", "a.c", 9); len(got) != 1 {
		t.Errorf("the text is literal: %v", got)
	}
	if got, _ = find("x\x00needle", "needle", 3); len(got) != 0 {
		t.Errorf("binary: %v", got)
	}
	if got, _ = find("needle\xff"+strings.Repeat("x", 9000), "needle", 3); len(got) != 1 || len(got[0].Text) > 4100 || !strings.HasPrefix(got[0].Text, "needle\uFFFDx") {
		t.Errorf("a long line: %d", len(got))
	}
	if got, _ = find("one\ntwo\n", "e\nt", 3); len(got) != 0 {
		t.Errorf("a match over two lines: %v", got)
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("**/*.{a,b}", "x/y.a")
	f.Add("{a/**,[x]}", "a/.b")
	f.Fuzz(func(t *testing.T, pattern, rel string) {
		g, err := ParseGlob(pattern)
		if err != nil || len(rel) > 1000 {
			return
		}
		matched := g.Match(rel)
		if again, err := ParseGlob("/" + strings.TrimPrefix(g.String(), "/")); err == nil && again.Match(rel) != matched {
			t.Fatalf("%q became %q, and %q matches: %v", pattern, g.String(), rel, matched)
		}
		if dir, name, ok := strings.Cut(rel, "/"); ok && dir != "" && dir != "." && matched && !g.MayContain(dir) {
			t.Fatalf("%q matches %q/%q but nothing in it", pattern, dir, name)
		}
	})
}
