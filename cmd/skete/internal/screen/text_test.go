package screen

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestClean(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "héllo\nworld", "héllo\nworld"},
		{"colours", "\x1b[1;31mred\x1b[0m!", "red!"},
		{"cursor", "a\x1b[2J\x1b[H\x1b[10Ab", "ab"},
		{"title", "\x1b]0;owned\x07text", "text"},
		{"title, other end", "\x1b]0;owned\x1b\\text", "text"},
		{"link", "\x1b]8;;http://x\x1b\\click\x1b]8;;\x1b\\", "click"},
		{"clipboard", "\x1b]52;c;cm0gLXJm\x07", ""},
		{"device string", "\x1bPq#0\x1b\\x", "x"},
		{"eight-bit csi", "\u009b31mred", "red"},
		{"eight-bit osc", "\u009d0;x\u009cy", "y"},
		{"raw eight-bit bytes", "\x9b31m", "\uFFFD31m"},
		{"charset", "\x1b(0lqk", "lqk"},
		{"reset", "\x1bctext", "text"},
		{"lone escape", "a\x1b", "a"},
		{"unterminated title ends with the line", "\x1b]0;abc\nnext", "\nnext"},
		{"broken csi", "\x1b[12\nx", "\nx"},
		{"control", "a\x00\x08\x07b", "a\uFFFD\uFFFD\uFFFDb"},
		{"progress bar", "10%\r50%\r100%\ndone", "100%\ndone"},
		{"carriage return at the end", "100%\r", "100%"},
		{"dos", "a\r\nb", "a\nb"},
		{"tab", "a\tb", "a    b"},
		{"right to left override", "abc\u202Etxt.exe", "abc\uFFFDtxt.exe"},
		{"zero width", "a\u200Bb\uFEFFc\u00ADd", "a\uFFFDbcd"},
		{"tags", "x\U000E0041", "x\uFFFD"},
		{"emoji family", "👩\u200D👧", "👩\u200D👧"},
		{"marks", "z" + strings.Repeat("\u0301", 50), "z" + strings.Repeat("\u0301", 4)},
		{"not UTF-8", "a\xffb", "a\uFFFDb"},
	} {
		if got := Clean(tt.in); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		in    string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"one two three", 7, []string{"one two", "three"}},
		{"one two three", 8, []string{"one two", "three"}},
		{"one two three", 5, []string{"one", "two", "three"}},
		{"abcdefghij", 4, []string{"abcd", "efgh", "ij"}},
		{"ab cdefghij", 4, []string{"ab", "cdef", "ghij"}},
		{"a\n\nb", 4, []string{"a", "", "b"}},
		{"日本語です", 4, []string{"日本", "語で", "す"}},
		{"日本語", 1, []string{"日", "本", "語"}},
		{"e\u0301e\u0301e\u0301", 2, []string{"e\u0301e\u0301", "e\u0301"}},
		{"  indented text", 10, []string{"  indented", "text"}},
		{"trailing   ", 20, []string{"trailing"}},
	} {
		if diff := cmp.Diff(tt.want, wrap(tt.in, tt.width)); diff != "" {
			t.Errorf("%q at %d: %s", tt.in, tt.width, diff)
		}
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		in    string
		width int
		want  string
	}{
		{"hello", 5, "hello"}, {"hello", 4, "hel…"}, {"hello", 1, "…"}, {"hello", 0, ""}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"", 3, ""},
	} {
		if got := Cut(tt.in, tt.width); got != tt.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", tt.in, tt.width, got, tt.want)
		}
	}
}

// Whatever comes in: what goes out cannot drive a terminal, fits, and is not
// more than there was.
func FuzzText(f *testing.F) {
	f.Add("\x1b[31mred\x1b]0;t\x07 日本語 e\u0301 👩\u200D👧\r\n\ttext", 10)
	f.Add("\x1b[", 1)
	f.Fuzz(func(t *testing.T, s string, width int) {
		width = 1 + abs(width)%200
		c := Clean(s)
		if !utf8.ValidString(c) {
			t.Fatalf("%q is not UTF-8", c)
		}
		for _, r := range c {
			if r != '\n' && r != zeroWidthJoiner && !unicode.IsPrint(r) && !unicode.In(r, unicode.Mn, unicode.Me) {
				t.Fatalf("%q holds %U", c, r)
			}
		}
		if Clean(c) != c {
			t.Errorf("cleaning twice: %q, %q", c, Clean(c))
		}
		for _, line := range wrap(c, width) {
			if w := Width(line); w > width && w > 2 || strings.Contains(line, "\n") {
				t.Errorf("a line of %d columns in %d: %q", w, width, line)
			}
		}
		line := strings.ReplaceAll(c, "\n", " ")
		if cut := Cut(line, width); Width(cut) > width {
			t.Errorf("%q cut to %d has %d columns", cut, width, Width(cut))
		}
		squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if got := squeeze(strings.Join(wrap(c, width), " ")); got != squeeze(c) {
			t.Errorf("wrapping changed the text: %q, %q", got, squeeze(c))
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}
