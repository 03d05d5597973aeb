// Package clip shortens texts for people and models.
package clip

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const ellipsis = "…"

// Text returns the beginning of s as valid UTF-8 of at most n bytes; where it
// was cut it ends with an ellipsis, if n has room for one.
func Text(s string, n int) string {
	n = max(n, 0)
	whole := len(s) <= n
	if !whole {
		s = s[:n]
	}
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if whole && len(s) <= n {
		return s
	}
	if n < len(ellipsis) {
		return ""
	}
	end := min(n-len(ellipsis), len(s))
	for end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}

// Line returns one line of a text that anyone may have written: at most n bytes,
// cut as Text cuts, one space for white space and line ends, U+FFFD for what
// cannot be printed.
func Line(s string, n int) string {
	var b strings.Builder
	space := false
	for _, r := range s {
		if unicode.IsSpace(r) {
			space = b.Len() > 0
			continue
		}
		if b.Len() > n { // Text sees that there is more
			break
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		if !unicode.IsPrint(r) {
			r = utf8.RuneError
		}
		b.WriteRune(r)
	}
	return Text(b.String(), n)
}
