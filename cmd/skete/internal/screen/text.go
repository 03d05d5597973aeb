package screen

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// marksMax is how many combining marks one character keeps: more only serve to
// paint over the lines above.
const marksMax = 4

// tab in text that others wrote.
const tab = "    "

// Clean takes from a text everything that could drive a terminal: escape
// sequences go, with all that belongs to them; other control and formatting
// characters become U+FFFD; of a line that was written over by a carriage
// return the last version stays. What is left are printable characters and
// line breaks.
func Clean(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n")
	b := make([]byte, 0, len(s))
	line, marks := 0, 0 // where the line began in b; marks on the last character
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if skip := escape(s[i:]); skip > 0 {
			i += skip
			continue
		}
		i += n
		if !unicode.In(r, unicode.Mn, unicode.Me) {
			marks = 0
		}
		switch {
		case r == '\n':
			b = append(b, '\n')
			line = len(b)
		case r == '\t':
			b = append(b, tab...)
		case r == '\r':
			if i < len(s) { // at the very end the line stays
				b = b[:line]
			}
		case r == zeroWidthJoiner && len(b) > line:
			b = utf8.AppendRune(b, r) // holds emoji together
		case unicode.In(r, unicode.Mn, unicode.Me):
			if marks++; marks <= marksMax && len(b) > line {
				b = utf8.AppendRune(b, r)
			}
		case unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case r == '\u00AD' || r == '\uFEFF': // soft hyphen, byte order mark: nothing to see
		default:
			b = utf8.AppendRune(b, utf8.RuneError)
		}
	}
	return string(b)
}

// exactMarksMax is how many marks a character of a language has, at most.
const exactMarksMax = 2

// Exact is a text as it is, for what a person decides about: whatever cannot be seen,
// or would change what is seen (control characters, marks that turn the direction,
// characters without width), is written as an escape, as in \r or \u202e.
func Exact(s string) string {
	var b strings.Builder
	marks := 0 // on the last character
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if marks++; !unicode.In(r, unicode.Mn, unicode.Me) {
			marks = 0
		}
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n' || marks <= exactMarksMax && unicode.IsPrint(r):
			b.WriteString(s[i : i+n])
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += n
	}
	return b.String()
}

const zeroWidthJoiner = '\u200D'

// escapeMax bounds how far the end of an escape sequence is looked for; an
// unterminated one must not swallow the rest of a text.
const escapeMax = 4096

// escape returns the length of the escape sequence at the beginning of s, 0 =
// there is none. It knows ESC and the single-character (C1) forms of CSI, OSC,
// DCS, APC, PM and SOS.
func escape(s string) int {
	r, n := utf8.DecodeRuneInString(s)
	kind := rune(0)
	switch {
	case r == 0x1b && len(s) > n:
		kind, n = rune(s[n]), n+1
		if kind >= utf8.RuneSelf {
			return 1
		}
	case r == 0x1b:
		return n
	case r >= 0x80 && r < 0xa0:
		kind = r - 0x40 // C1: ESC and this
	default:
		return 0
	}
	switch kind {
	case '[':
		return n + csi(s[n:])
	case ']', 'P', '_', '^', 'X':
		return n + until(s[n:])
	case '(', ')', '*', '+', '-', '.', '/', '#', '%', ' ':
		if len(s) > n && s[n] >= ' ' && s[n] < 0x7f {
			n++
		}
	}
	return n
}

// csi is the length of a control sequence behind its introducer: parameters,
// intermediates, one final byte.
func csi(s string) int {
	for i := range min(len(s), escapeMax) {
		switch c := s[i]; {
		case c >= 0x40 && c <= 0x7e:
			return i + 1
		case c < 0x20 || c > 0x3f:
			return i // broken: what follows is text
		}
	}
	return min(len(s), escapeMax)
}

// until is the length of a string sequence behind its introducer, with its
// end: BEL, ESC \ or the C1 form. A line break ends an unterminated one.
func until(s string) int {
	for i := 0; i < min(len(s), escapeMax); i++ {
		switch {
		case s[i] == 0x07:
			return i + 1
		case s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\':
			return i + 2
		case strings.HasPrefix(s[i:], "\u009c"):
			return i + 2
		case s[i] == '\n', s[i] == 0x1b:
			return i
		}
	}
	return min(len(s), escapeMax)
}

// wide are characters that take two columns, as terminals agree.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1},
		{0x231a, 0x231b, 1},
		{0x23e9, 0x23ec, 1},
		{0x25fd, 0x25fe, 1},
		{0x2614, 0x2615, 1},
		{0x2648, 0x2653, 1},
		{0x26a1, 0x26a1, 1},
		{0x26bd, 0x26be, 1},
		{0x26d4, 0x26d4, 1},
		{0x2705, 0x2705, 1},
		{0x2728, 0x2728, 1},
		{0x274c, 0x274c, 1},
		{0x2753, 0x2755, 1},
		{0x2795, 0x2797, 1},
		{0x2b50, 0x2b50, 1},
		{0x2e80, 0x303e, 1},
		{0x3041, 0xa4cf, 1},
		{0xa960, 0xa97c, 1},
		{0xac00, 0xd7a3, 1},
		{0xf900, 0xfaff, 1},
		{0xfe30, 0xfe6f, 1},
		{0xff00, 0xff60, 1},
		{0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{
		{0x16fe0, 0x18cff, 1},
		{0x1b000, 0x1b2ff, 1},
		{0x1f004, 0x1f004, 1},
		{0x1f0cf, 0x1f0cf, 1},
		{0x1f18e, 0x1f18e, 1},
		{0x1f191, 0x1f19a, 1},
		{0x1f1e6, 0x1f202, 1},
		{0x1f210, 0x1f265, 1},
		{0x1f300, 0x1f64f, 1},
		{0x1f680, 0x1f6ff, 1},
		{0x1f7e0, 0x1f7f0, 1},
		{0x1f900, 0x1f9ff, 1},
		{0x1fa70, 0x1faff, 1},
		{0x20000, 0x3fffd, 1},
	},
}

// cluster returns the length and the width of the first character of s, with
// the marks and joined characters that belong to it. A width that terminals
// disagree about is the larger one: a line may end early, never late.
func cluster(s string) (n, width int) {
	r, n := utf8.DecodeRuneInString(s)
	if r < 0x300 && (len(s) == n || s[n] < utf8.RuneSelf) {
		return n, 1
	}
	width = 1
	if unicode.Is(wide, r) {
		width = 2
	}
	for n < len(s) {
		next, m := utf8.DecodeRuneInString(s[n:])
		switch {
		case next == zeroWidthJoiner && n+m < len(s):
			_, k := utf8.DecodeRuneInString(s[n+m:])
			n, width = n+m+k, 2
		case next == '\uFE0F' || next >= 0x1f3fb && next <= 0x1f3ff:
			n, width = n+m, 2
		case unicode.In(next, unicode.Mn, unicode.Me) || next == zeroWidthJoiner:
			n += m
		default:
			return n, width
		}
	}
	return n, width
}

// Width is how many columns a clean line takes.
func Width(s string) int {
	total := 0
	for len(s) > 0 {
		n, w := cluster(s)
		total += w
		s = s[n:]
	}
	return total
}

// Cut shortens a clean line to a width; where it was cut stands an ellipsis.
func Cut(s string, width int) string {
	if width <= 0 {
		return ""
	}
	used, keep := 0, 0 // keep: bytes that leave room for the ellipsis
	for i := 0; i < len(s); {
		n, w := cluster(s[i:])
		if used+w > width {
			return s[:keep] + "…"
		}
		used += w
		i += n
		if used < width {
			keep = i
		}
	}
	return s
}

// wrap breaks a clean text into lines of a width, between words where there
// are some, and in them where they are too long.
func wrap(s string, width int) []string {
	width = max(width, 1)
	var lines []string
	for paragraph := range strings.SplitSeq(s, "\n") {
		lines = append(lines, wrapLine(strings.TrimRight(paragraph, " "), width)...)
	}
	return lines
}

func wrapLine(s string, width int) []string {
	var lines []string
	start, used := 0, 0   // of the present line
	space, after := -1, 0 // where the line can be broken, and the width behind that
	for i := 0; i < len(s); {
		n, w := cluster(s[i:])
		blank := s[i] == ' ' && n == 1 // a space with a mark on it is a character
		if used+w > width && i > start {
			if blank {
				space, after = i, 0 // the break falls between words
			}
			if space > start {
				lines = append(lines, strings.TrimRight(s[start:space], " "))
				start, used = space+1, after
				if blank {
					i, start, used = i+1, i+1, 0
				}
			} else {
				lines = append(lines, s[start:i])
				start, used = i, 0
			}
			space = -1
			continue
		}
		if blank {
			space, after = i, 0
		} else if space >= 0 {
			after += w
		}
		used += w
		i += n
	}
	if start < len(s) || len(lines) == 0 {
		lines = append(lines, s[min(start, len(s)):])
	}
	return lines
}
