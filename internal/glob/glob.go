// Package glob checks glob patterns that clients and models write: **, *, ?,
// [a-z], {a,b}. What they mean beyond that is their readers' business.
package glob

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Bounds of a pattern.
const (
	bytesMax        = 1024
	alternativesMax = 256
)

// Alternatives returns the patterns without braces that a pattern stands for, in
// its order, or what is wrong with it: a fault that completes "the pattern …".
// Matching them one by one never tries alternatives inside each other, so no
// pattern costs more than polynomial time.
func Alternatives(pattern string) (list []string, fault string) {
	switch {
	case pattern == "":
		return nil, "is empty"
	case len(pattern) > bytesMax:
		return nil, fmt.Sprintf("is longer than %d bytes", bytesMax)
	case strings.IndexByte(pattern, 0) >= 0:
		return nil, "has a NUL in it"
	case !doublestar.ValidatePattern(pattern):
		return nil, "is not well formed"
	}
	list, ok := expand(pattern)
	if !ok {
		return nil, fmt.Sprintf("stands for more than %d alternatives", alternativesMax)
	}
	return list, ""
}

// expand writes out the first brace group and goes on with the results.
func expand(pattern string) ([]string, bool) {
	done, todo := []string{}, []string{pattern}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		open, parts, end := group(p)
		if open < 0 {
			done = append(done, p)
		}
		for _, part := range slices.Backward(parts) {
			todo = append(todo, p[:open]+part+p[end:])
		}
		if len(done)+len(todo) > alternativesMax {
			return nil, false
		}
	}
	return done, true
}

// group finds the first brace group: where it opens, its alternatives, and
// where the rest of the pattern begins. open is -1 without one.
func group(p string) (open int, parts []string, end int) {
	open = -1
	depth, from, class := 0, 0, false
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '{':
			if depth++; depth == 1 {
				open, from = i, i+1
			}
		case c == ',' && depth == 1:
			parts, from = append(parts, p[from:i]), i+1
		case c == '}' && depth > 0:
			if depth--; depth == 0 {
				return open, append(parts, p[from:i]), i + 1
			}
		}
	}
	return -1, nil, 0
}
