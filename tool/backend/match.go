package backend

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/skete-dev/skete/internal/glob"
	"github.com/skete-dev/skete/tool"
)

// This file decides which files a glob means and which lines a text is in,
// by the rules that every backend of files shares.
//
// A pattern without "/" is about the name at any depth; with one it begins at
// the directory of the search, as it does with "/" in front. "**" stands for
// any number of directories. Braces stand for alternatives. A name that begins
// with a dot is only found by a part of the pattern that does so too.
//
// Patterns come from models: matching takes time in proportion to pattern and
// path. Functions are pure.

// Bounds of a pattern.
const (
	globStarsMax = 16 // of one part
	globPartsMax = 64
	binaryProbe  = 8 << 10
)

// Glob is a parsed pattern.
type Glob struct {
	choices [][]string // alternatives without braces, in parts
}

// ParseGlob checks a pattern. The error is *tool.FileError invalid_arguments.
func ParseGlob(pattern string) (*Glob, error) {
	bad := func(why string) (*Glob, error) {
		if len(pattern) > 100 {
			pattern = pattern[:100]
		}
		return nil, &tool.FileError{Code: tool.CodeArgs, Path: strings.ToValidUTF8(pattern, "\uFFFD"), Hint: "the pattern " + why}
	}
	choices, fault := glob.Alternatives(pattern)
	if fault != "" {
		return bad(fault)
	}
	g := &Glob{}
	for _, c := range choices {
		parts, why := splitGlob(c)
		if why != "" {
			return bad(why)
		}
		if len(parts) > 0 {
			g.choices = append(g.choices, parts)
		}
	}
	return g, nil
}

// splitGlob makes the parts of an alternative, "**" in front of a bare one.
func splitGlob(c string) (parts []string, why string) {
	if !strings.Contains(c, "/") && c != "**" {
		parts = []string{"**"}
	}
	if strings.HasSuffix(c, "/") {
		c += "**"
	}
	for p := range strings.SplitSeq(c, "/") {
		switch {
		case p == "" || p == ".":
			continue
		case p == "..":
			return nil, `must not have ".." in it`
		case p == "**":
			if len(parts) > 0 && parts[len(parts)-1] == "**" {
				continue
			}
		case strings.Count(p, "*") > globStarsMax:
			return nil, "has more than 16 stars in a part"
		case !doublestar.ValidatePattern(p):
			return nil, "is not well formed"
		}
		parts = append(parts, p)
	}
	if len(parts) > globPartsMax {
		return nil, "has more than 64 parts"
	}
	return parts, ""
}

// Match reports whether a file is meant; rel is its path beneath the
// directory of the search.
func (g *Glob) Match(rel string) bool {
	names := strings.Split(rel, "/")
	for _, parts := range g.choices {
		at := globStart(parts)
		for i, name := range names {
			at = globStep(parts, at, name, i == len(names)-1)
		}
		if at[len(parts)] {
			return true
		}
	}
	return false
}

// MayContain reports whether a file beneath the directory rel can match.
func (g *Glob) MayContain(rel string) bool {
	return slices.ContainsFunc(g.choices, func(parts []string) bool { return len(globRest(parts, rel)) > 0 })
}

// Beneath returns the patterns that mean, in a search that begins at the
// directory rel, the files that g means there.
func (g *Glob) Beneath(rel string) []string {
	var patterns []string
	for _, parts := range g.choices {
		for _, r := range globRest(parts, rel) {
			p := "/" + strings.Join(r, "/")
			if !slices.Contains(patterns, p) {
				patterns = append(patterns, p)
			}
		}
	}
	return patterns
}

// String returns one pattern for the same files, relative and anchored, in
// which "**" and braces have the usual meaning and dots have no rule.
func (g *Glob) String() string {
	var list []string
	for _, parts := range g.choices {
		list = append(list, strings.ReplaceAll(strings.Join(parts, "/"), ",", `\,`))
	}
	if len(list) == 1 {
		return strings.Join(g.choices[0], "/")
	}
	return "{" + strings.Join(list, ",") + "}"
}

// globStart is the set of positions before the first name: position i means that
// parts[i:] have to match what follows. A "**" may stand for nothing.
func globStart(parts []string) []bool {
	at := make([]bool, len(parts)+1)
	at[0] = true
	return globSkip(parts, at)
}

func globSkip(parts []string, at []bool) []bool {
	for i, p := range parts {
		if at[i] && p == "**" && i < len(parts)-1 {
			at[i+1] = true
		}
	}
	return at
}

// globStep is the set of positions after a name.
func globStep(parts []string, at []bool, name string, last bool) []bool {
	next := make([]bool, len(parts)+1)
	for i, p := range parts {
		if !at[i] {
			continue
		}
		if p != "**" {
			next[i+1] = next[i+1] || matchName(p, name)
			continue
		}
		if strings.HasPrefix(name, ".") {
			continue
		}
		next[i] = true
		if last && i == len(parts)-1 {
			next[i+1] = true // "src/**" means the files beneath
		}
	}
	return globSkip(parts, next)
}

func matchName(pattern, name string) bool {
	if strings.HasPrefix(name, ".") && !strings.HasPrefix(pattern, ".") && !strings.HasPrefix(pattern, `\.`) {
		return false
	}
	return doublestar.MatchUnvalidated(pattern, name)
}

// globRest returns the parts that remain after a directory; none: nothing beneath
// it can match.
func globRest(parts []string, rel string) [][]string {
	at := globStart(parts)
	if rel != "" && rel != "." {
		for name := range strings.SplitSeq(rel, "/") {
			at = globStep(parts, at, name, false)
		}
	}
	var rests [][]string
	for i := range parts {
		if at[i] {
			rests = append(rests, parts[i:])
		}
	}
	return rests
}

// isBinary reports content that is no text.
func isBinary(content []byte) bool {
	return bytes.IndexByte(content[:min(len(content), binaryProbe)], 0) >= 0
}

// LineMatcher finds lines of a text. The zero value finds none.
type LineMatcher struct {
	literal []byte
	expr    *regexp.Regexp // nil = literal
}

// Matcher returns the matcher of a pattern. FileError invalid_arguments: it is no
// regular expression.
func Matcher(p tool.Pattern) (LineMatcher, error) {
	if !p.Regexp {
		return LineMatcher{literal: []byte(p.Text)}, nil
	}
	expr, err := regexp.Compile(p.Text)
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
		return LineMatcher{}, &tool.FileError{Code: tool.CodeArgs, Path: p.Text, Hint: "it is no regular expression: " + why}
	}
	return LineMatcher{expr: expr}, nil
}

// lines finds the lines of a text that match, at most limit; more: there are others.
// Binary content has no lines.
func (m LineMatcher) lines(path string, content []byte, limit int) (found []tool.Match, more bool) {
	switch {
	case isBinary(content):
		return nil, false
	case m.expr != nil:
		return m.linesOfExpr(path, content, limit)
	case len(m.literal) == 0:
		return nil, false
	}
	number := 1
	for at := 0; at < len(content); {
		jump := bytes.Index(content[at:], m.literal)
		if jump < 0 {
			return found, false
		}
		skipped := content[at : at+jump]
		number += bytes.Count(skipped, []byte{'\n'})
		begin, end := at+bytes.LastIndexByte(skipped, '\n')+1, len(content)
		if i := bytes.IndexByte(content[at+jump:], '\n'); i >= 0 {
			end = at + jump + i
		}
		if line := bytes.TrimSuffix(content[begin:end], []byte{'\r'}); bytes.Contains(line, m.literal) {
			if len(found) == limit {
				return found, true
			}
			found = append(found, tool.Match{Path: path, Line: number, Text: MatchText(line)})
		}
		at, number = end+1, number+1
	}
	return found, false
}

func (m LineMatcher) linesOfExpr(path string, content []byte, limit int) (found []tool.Match, more bool) {
	for number := 1; len(content) > 0; number++ {
		line, rest, _ := bytes.Cut(content, []byte{'\n'})
		content = rest
		if line = bytes.TrimSuffix(line, []byte{'\r'}); !m.expr.Match(line) {
			continue
		}
		if len(found) == limit {
			return found, true
		}
		found = append(found, tool.Match{Path: path, Line: number, Text: MatchText(line)})
	}
	return found, false
}

// MatchText makes a line fit for an answer: bounded and UTF-8.
func MatchText(line []byte) string {
	return strings.ToValidUTF8(string(line[:min(len(line), tool.LineBytesMax)]), "\uFFFD")
}
