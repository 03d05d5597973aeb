package clip

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"", 10, ""},
		{"hello", 5, "hello"},
		{"hello!", 5, "he…"},
		{"hello", 3, "…"},
		{"hello", 2, ""},
		{"hello", -1, ""},
		{"", 0, ""},
		{"äöüß", 8, "äöüß"},
		{"äöüßx", 8, "äö…"},
		{"ä\xffb", 10, "ä\uFFFDb"},
		{"a\xff\xff\xff\xff", 5, "a\uFFFD"}, // a run of bytes becomes one mark
		{"a\xffb\xff", 4, "a…"},             // and a mark is longer than a byte
		{"日本語日本語", 10, "日本…"},
	} {
		if got := Text(c.in, c.n); got != c.want {
			t.Errorf("Text(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

func TestLine(t *testing.T) {
	if got := Line("  make\n\ttest \r\n", 100); got != "make test" {
		t.Errorf("Line = %q", got)
	}
	if got := Line("ls\x1b[31m\x00 -l", 100); got != "ls\uFFFD[31m\uFFFD -l" {
		t.Errorf("Line = %q", got)
	}
	if got := Line("a\nb c d", 6); got != "a b…" {
		t.Errorf("Line = %q", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("日本\xff語", 5)
	f.Add("hello", 4)
	f.Fuzz(func(t *testing.T, s string, n int) {
		got := Text(s, n)
		if len(got) > max(n, 0) || !utf8.ValidString(got) {
			t.Errorf("Text(%q, %d) = %q, %d bytes", s, n, got, len(got))
		}
		if utf8.ValidString(s) && len(s) <= n && got != s {
			t.Errorf("Text(%q, %d) = %q: it had room", s, n, got)
		}
		if cut, ok := strings.CutSuffix(got, ellipsis); ok && utf8.ValidString(s) && !strings.HasPrefix(s, cut) {
			t.Errorf("Text(%q, %d) = %q: not its beginning", s, n, got)
		}
	})
}
