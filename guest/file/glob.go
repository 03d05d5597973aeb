package file

import (
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
)

// This file finds names by glob and lines by text or regular expression
// in a file tree.
//
// Patterns come from clients: their size is bounded so that no pattern costs
// more than polynomial time. Symbolic links are never followed; what cannot
// be read is passed over and counted.
//
// Functions are safe for concurrent use and run with the rights of the
// calling thread; Grep's workers only read what that thread opened.

// Bounds of a pattern.
const (
	globBytesMax  = 1024
	globChoiceMax = 256 // patterns that its braces stand for
	globStarsMax  = 16
)

// globPattern is a parsed pattern: ** (whole directories), *, ?, [a-z], {a,b}.
// Names that begin with a dot match as all others do.
type globPattern struct {
	choices []string // without braces
	depth   int      // levels that can match; 0 = all
}

// parseGlob checks a pattern. It must be relative and stay beneath its base.
func parseGlob(pattern string) (*globPattern, error) {
	bad := func(why string) (*globPattern, error) {
		return nil, errs.New(errs.Invalid, "the pattern %.80q %s", pattern, why)
	}
	switch {
	case pattern == "":
		return bad("is empty")
	case len(pattern) > globBytesMax:
		return bad("is longer than 1024 bytes")
	case strings.IndexByte(pattern, 0) >= 0:
		return bad("has a NUL in it")
	case pattern[0] == '/':
		return bad("must be relative to its base")
	case !doublestar.ValidatePattern(pattern):
		return bad("is not well formed")
	}
	g := &globPattern{}
	var ok bool
	if g.choices, ok = expand(pattern, globChoiceMax); !ok {
		return bad("stands for more than 256 alternatives")
	}
	for _, c := range g.choices {
		if strings.Count(c, "*") > globStarsMax {
			return bad("has more than 16 stars")
		}
		if !doublestar.ValidatePattern(c) {
			return bad("is not well formed")
		}
		for part := range strings.SplitSeq(c, "/") {
			if part == ".." || part == "." {
				return bad("must not have . or .. in it")
			}
		}
	}
	g.depth = depthOf(g.choices)
	return g, nil
}

// Match reports whether a path beneath the base matches.
func (g *globPattern) Match(rel string) bool {
	for _, c := range g.choices {
		if doublestar.MatchUnvalidated(c, rel) {
			return true
		}
	}
	return false
}

// Depth is how many levels a walk must go down.
func (g *globPattern) Depth() int { return g.depth }

// mayContain reports whether something in the directory rel can match, by the
// fixed beginning of the patterns.
func (g *globPattern) mayContain(rel string) bool {
	for _, c := range g.choices {
		base, _ := doublestar.SplitPattern(c)
		if base == "." || rel == base || strings.HasPrefix(base, rel+"/") || strings.HasPrefix(rel, base+"/") {
			return true
		}
	}
	return false
}

func depthOf(choices []string) int {
	deepest := 0
	for _, c := range choices {
		if strings.Contains(c, "**") {
			return 0
		}
		deepest = max(deepest, strings.Count(c, "/")+1)
	}
	return min(deepest, tree.DepthMax)
}

// expand writes out the first brace group and goes on with the results, so
// that matching never has to try alternatives inside each other.
func expand(pattern string, limit int) ([]string, bool) {
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
		if len(done)+len(todo) > limit {
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
