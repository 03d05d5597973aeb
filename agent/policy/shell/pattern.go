package shell

import (
	"errors"
	"path"
	"strings"
)

// Bounds of a pattern.
const (
	patternBytesMax = 2048
	patternWordsMax = 64
)

// Pattern describes simple commands, word by word: "git push *".
//
// A * in a word stands for any characters. A * that is the last word stands
// for any further words, also none; ** does so anywhere. What is in quotes or
// behind \ is meant as it stands. NAME=value in front means a command with
// exactly this assignment.
type Pattern struct {
	words []patternWord
}

type patternWord struct {
	any   bool     // any number of words
	parts []string // literal parts with * between them
}

// ParsePattern reads a pattern. The error's text is for the author.
func ParsePattern(s string) (Pattern, error) {
	if len(s) > patternBytesMax {
		return Pattern{}, errors.New("it is too long")
	}
	var p Pattern
	for rest := strings.TrimLeft(s, " \t"); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		w, n, err := readPatternWord(rest)
		if err != nil {
			return Pattern{}, err
		}
		rest = rest[n:]
		w.any = w.any || len(w.parts) == 2 && w.parts[0]+w.parts[1] == "" && strings.TrimLeft(rest, " \t") == ""
		p.words = append(p.words, w)
	}
	switch {
	case len(p.words) == 0:
		return Pattern{}, errors.New("it is empty")
	case len(p.words) > patternWordsMax:
		return Pattern{}, errors.New("it has too many words")
	}
	return p, nil
}

// readPatternWord returns the first word of s, and its length in s.
func readPatternWord(s string) (w patternWord, n int, err error) {
	var b strings.Builder
	for n < len(s) {
		switch c := s[n]; c {
		case ' ', '\t':
			w.parts = append(w.parts, b.String())
			w.any = s[:n] == "**"
			return w, n, nil
		case '\'', '"':
			text, _, closed := strings.Cut(s[n+1:], string(c))
			if !closed {
				return w, n, errors.New("a quote is not closed")
			}
			b.WriteString(text)
			n += len(text) + 2
		case '\\':
			if n+1 == len(s) {
				return w, n, errors.New(`it ends with \`)
			}
			b.WriteByte(s[n+1])
			n += 2
		case '*':
			w.parts = append(w.parts, b.String())
			b.Reset()
			n++
		case ';', '&', '|', '<', '>', '(', ')', '`', '$', '\n', '\r':
			return w, n, errors.New("it describes one simple command; put " + string(c) + " in quotes, or write one pattern a command")
		default:
			b.WriteByte(c)
			n++
		}
	}
	w.parts = append(w.parts, b.String())
	w.any = s == "**"
	return w, n, nil
}

// everything: the pattern is * or **.
func (p Pattern) everything() bool { return len(p.words) == 1 && p.words[0].any }

// Covers reports whether a command is one of the pattern's and can be nothing
// else: its program is written as the pattern says, it sets no variable that
// the pattern does not, no argument beyond a * depends on run time, and it
// writes to no file. The pattern * covers all.
func (p Pattern) Covers(c Command) bool {
	if p.everything() {
		return true
	}
	if c.Writes || len(c.Words) == 0 {
		return false
	}
	return p.match(append(append([]Word{}, c.Assigns...), c.Words...), false)
}

// Hits reports whether a command may be one of the pattern's: by any path of
// its program, with any variables set, and whatever dynamic words become.
func (p Pattern) Hits(c Command) bool {
	if p.everything() || p.match(c.Words, true) || p.match(append(append([]Word{}, c.Assigns...), c.Words...), true) {
		return true
	}
	if len(c.Words) > 0 && !c.Words[0].Dynamic && strings.Contains(c.Words[0].Text, "/") {
		named := append([]Word{{Text: path.Base(c.Words[0].Text)}}, c.Words[1:]...)
		return p.match(named, true)
	}
	return false
}

// match compares word by word. With may, a dynamic word is any number of any
// words; else only what stands for any words matches it.
func (p Pattern) match(words []Word, may bool) bool {
	// reach[i]: the first i words of the pattern match the words so far.
	reach := make([]bool, len(p.words)+1)
	reach[0] = true
	spread := func(r []bool) {
		for i, w := range p.words {
			r[i+1] = r[i+1] || r[i] && w.any
		}
	}
	spread(reach)
	for _, w := range words {
		next := make([]bool, len(reach))
		for i, pw := range p.words {
			switch {
			case pw.any:
				next[i+1] = reach[i+1] || reach[i]
			case !w.Dynamic:
				next[i+1] = reach[i] && pw.match(w.Text)
			}
		}
		if w.Dynamic && may {
			// It may stand for none of the pattern's words, or for several.
			for i := range p.words {
				next[i] = next[i] || reach[i]
				next[i+1] = next[i+1] || next[i]
			}
			next[len(p.words)] = next[len(p.words)] || reach[len(p.words)]
		}
		spread(next)
		reach = next
	}
	return reach[len(p.words)]
}

// match compares one word.
func (w patternWord) match(s string) bool {
	last := len(w.parts) - 1
	if last == 0 {
		return s == w.parts[0]
	}
	s, ok := strings.CutPrefix(s, w.parts[0])
	if !ok {
		return false
	}
	for _, part := range w.parts[1:last] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return strings.HasSuffix(s, w.parts[last])
}

// Exact returns the pattern that only this command matches, in the sense of
// Covers. False: there is none, since it depends on run time or writes files.
func Exact(c Command) (string, bool) {
	if c.Writes || len(c.Words) == 0 {
		return "", false
	}
	var b strings.Builder
	for i, w := range append(append([]Word{}, c.Assigns...), c.Words...) {
		if w.Dynamic {
			return "", false
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(quote(w.Text))
	}
	if b.Len() > patternBytesMax || len(c.Assigns)+len(c.Words) > patternWordsMax {
		return "", false
	}
	return b.String(), true
}

func quote(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\n\r*'\"\\;&|<>()`$") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}
