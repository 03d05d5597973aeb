package screen

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Key is a key that was pressed: a character, or one of the constants.
type Key rune

// Keys that are no characters.
const (
	KeyInterrupt Key = 3 // Ctrl-C
	KeyEnd       Key = 4 // Ctrl-D
	KeyBackspace Key = 0x7f
	KeyEnter     Key = '\r'
	KeyEscape    Key = 0x1b
	KeyClear     Key = 0x15 // Ctrl-U
)

// Keys reads what a terminal in raw mode sent. Sequences of other keys
// (arrows, function keys) are left out. rest is the beginning of a character
// or of a sequence whose end has not come yet.
func Keys(b []byte) (keys []Key, rest []byte) {
	for len(b) > 0 {
		if b[0] == 0x1b && len(b) > 1 {
			n := sequence(b)
			if n == 0 {
				return keys, b
			}
			if n > 1 {
				b = b[n:]
				continue
			}
		}
		if !utf8.FullRune(b) {
			return keys, b
		}
		r, n := utf8.DecodeRune(b)
		b = b[n:]
		switch {
		case r == '\n':
			keys = append(keys, KeyEnter)
		case r == '\b':
			keys = append(keys, KeyBackspace)
		case r == '\r', r == 3, r == 4, r == 0x7f, r == 0x1b, r == 0x15, unicode.IsPrint(r) && r != utf8.RuneError:
			keys = append(keys, Key(r))
		}
	}
	return keys, nil
}

// sequenceMax: what is longer is no key.
const sequenceMax = 32

// sequence is the length of the key sequence that b, an ESC and more, begins
// with; 1 = it is the key alone, 0 = its end is missing.
func sequence(b []byte) int {
	if b[1] == 'O' {
		return min(len(b), 3) // an unfinished one is of no use either
	}
	if b[1] != '[' {
		return 1
	}
	for i := 2; i < min(len(b), sequenceMax); i++ {
		if b[i] >= 0x40 && b[i] <= 0x7e {
			return i + 1
		}
	}
	if len(b) >= sequenceMax {
		return sequenceMax
	}
	return 0
}

// line is a line of text that is being typed.
type line struct{ text []rune }

// lineMax bounds it, in characters.
const lineMax = 8000

// press edits; done: Enter was pressed, gone: Escape was.
func (l *line) press(k Key) (done, gone bool) {
	switch k {
	case KeyEnter:
		return true, false
	case KeyEscape:
		return false, true
	case KeyBackspace:
		if n := len(l.text); n > 0 {
			l.text = l.text[:n-1]
		}
	case KeyClear:
		l.text = nil
	case KeyInterrupt, KeyEnd:
	default:
		if len(l.text) < lineMax {
			l.text = append(l.text, rune(k))
		}
	}
	return false, false
}

func (l *line) String() string { return strings.TrimSpace(string(l.text)) }
