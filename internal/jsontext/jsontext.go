// Package jsontext finds JSON in texts that models wrote, without parsing it.
package jsontext

// Extent returns the length in bytes of the object or list with which s begins
// (0: it is never closed) and how deep that nests. Which bracket closes which is
// not looked at: a parser says so later.
func Extent(s string) (length, deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1, deepest
			}
		}
	}
	return 0, deepest
}
