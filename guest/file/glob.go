package file

import (
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/file/tree"
	"github.com/skete-dev/skete/internal/glob"
)

// This file finds names by glob and lines by text or regular expression
// in a file tree.
//
// Symbolic links are never followed; what cannot be read is passed over and
// counted.
//
// Functions are safe for concurrent use and run with the rights of the
// calling thread; Grep's workers only read what that thread opened.

const globStarsMax = 16 // of an alternative

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
	choices, fault := glob.Alternatives(pattern)
	switch {
	case fault != "":
		return bad(fault)
	case pattern[0] == '/':
		return bad("must be relative to its base")
	}
	g := &globPattern{choices: choices}
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
