package file

import (
	"bytes"
	"regexp"

	"github.com/skete-dev/skete/errs"
)

const (
	patternBytesMax = 4096
	lineBytesMax    = 4096 // of a line in the answer
	binaryProbe     = 8 << 10
)

// matchedLine is a line that matches, or its neighbour.
type matchedLine struct {
	Number, Column int // from 1; the column counts bytes
	Text           []byte
	Before, After  [][]byte
}

// matcher finds matching lines in a whole file.
type matcher struct {
	literal []byte         // set: plain search
	re      *regexp.Regexp // else
	prefix  []byte         // every match of re begins so; may be empty
	around  int
}

// newMatcher compiles a pattern; an empty one is refused.
func newMatcher(pattern string, literal, ignoreCase bool, around int) (*matcher, error) {
	if pattern == "" || len(pattern) > patternBytesMax {
		return nil, errs.New(errs.Invalid, "the pattern is empty or longer than %d bytes", patternBytesMax)
	}
	if literal && !ignoreCase {
		return &matcher{literal: []byte(pattern), around: around}, nil
	}
	if literal {
		pattern = regexp.QuoteMeta(pattern)
	}
	if ignoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the regular expression %.80q is not valid RE2", pattern)
	}
	prefix, _ := re.LiteralPrefix()
	return &matcher{re: re, prefix: []byte(prefix), around: around}, nil
}

// isBinary reports content that is no text.
func isBinary(content []byte) bool {
	return bytes.IndexByte(content[:min(len(content), binaryProbe)], 0) >= 0
}

// lines returns up to limit matching lines; the texts are copies.
func (m *matcher) lines(content []byte, limit int) []matchedLine {
	var found []matchedLine
	number, at := 1, 0 // at is the start of the line with this number
	for at < len(content) && len(found) < limit {
		jump := m.candidate(content[at:])
		if jump < 0 {
			break
		}
		// Count the lines up to the candidate; only those.
		skipped := content[at : at+jump]
		number += bytes.Count(skipped, newline)
		start := at + bytes.LastIndexByte(skipped, '\n') + 1
		end := len(content)
		if i := bytes.IndexByte(content[start:], '\n'); i >= 0 {
			end = start + i
		}
		if col := m.find(trimCR(content[start:end])); col >= 0 {
			found = append(found, matchedLine{
				Number: number, Column: col + 1, Text: clip(content[start:end]),
				Before: before(content, start, m.around), After: after(content, end, m.around),
			})
		}
		at = end + 1
		number++
	}
	return found
}

var newline = []byte{'\n'}

// candidate returns where a match can begin at the earliest, or -1.
func (m *matcher) candidate(rest []byte) int {
	switch {
	case m.literal != nil:
		return bytes.Index(rest, m.literal)
	case len(m.prefix) > 0:
		return bytes.Index(rest, m.prefix)
	}
	return 0
}

func (m *matcher) find(line []byte) int {
	if m.literal != nil {
		return bytes.Index(line, m.literal)
	}
	loc := m.re.FindIndex(line)
	if loc == nil {
		return -1
	}
	return loc[0]
}

func trimCR(line []byte) []byte { return bytes.TrimSuffix(line, []byte{'\r'}) }

func clip(line []byte) []byte {
	line = trimCR(line)
	return bytes.Clone(line[:min(len(line), lineBytesMax)])
}

// before returns up to n lines that end where start begins, in order.
func before(content []byte, start, n int) [][]byte {
	var lines [][]byte
	for ; n > 0 && start > 0; n-- {
		end := start - 1
		start = bytes.LastIndexByte(content[:end], '\n') + 1
		lines = append(lines, clip(content[start:end]))
	}
	for i, j := 0, len(lines)-1; i < j; i, j = i+1, j-1 {
		lines[i], lines[j] = lines[j], lines[i]
	}
	return lines
}

// after returns up to n lines behind the newline at end.
func after(content []byte, end, n int) [][]byte {
	var lines [][]byte
	for ; n > 0 && end+1 < len(content); n-- {
		rest := content[end+1:]
		size := bytes.IndexByte(rest, '\n')
		if size < 0 {
			size = len(rest)
		}
		lines = append(lines, clip(rest[:size]))
		end += 1 + size
	}
	return lines
}
