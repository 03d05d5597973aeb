package screen

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Key is a key that was pressed: a character, or one of the constants.
type Key rune

// Keys that are no characters. Those of terminals' sequences have numbers that no
// character has.
const (
	KeyInterrupt Key = 3 // Ctrl-C
	KeyEnd       Key = 4 // Ctrl-D
	KeyTab       Key = '\t'
	KeyBackspace Key = 0x7f
	KeyEnter     Key = '\r'
	KeyEscape    Key = 0x1b
	KeyClear     Key = 0x15 // Ctrl-U

	KeyNewline Key = unicode.MaxRune + iota // Alt-Enter, and the ends of lines that are pasted
	KeyUp
	KeyDown
	KeyLeft
	KeyRight
	KeyLineStart // Home, Ctrl-A
	KeyLineEnd   // End, Ctrl-E
	KeyDelete
)

// sequences are those of keys that mean something here; all others are left out.
var sequences = map[string]Key{
	"\x1b[A": KeyUp, "\x1b[B": KeyDown, "\x1b[C": KeyRight, "\x1b[D": KeyLeft, "\x1bOA": KeyUp, "\x1bOB": KeyDown, "\x1bOC": KeyRight, "\x1bOD": KeyLeft,
	"\x1b[H": KeyLineStart, "\x1b[F": KeyLineEnd, "\x1bOH": KeyLineStart, "\x1bOF": KeyLineEnd, "\x1b[1~": KeyLineStart, "\x1b[4~": KeyLineEnd, "\x1b[3~": KeyDelete,
}

// Marks around what is pasted, of terminals that are asked for them (PasteOn).
const (
	PasteOn    = "\x1b[?2004h"
	PasteOff   = "\x1b[?2004l"
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// Reader takes apart what a terminal in raw mode sends. The zero value is ready.
type Reader struct {
	rest    []byte // the beginning of a character, or of a sequence whose end has not come yet
	pasting bool
}

// Read returns the keys in what came. Sequences of keys that mean nothing here are left
// out. What is pasted is text: an end of a line in it is KeyNewline, not KeyEnter.
func (r *Reader) Read(b []byte) (keys []Key) {
	b = append(r.rest, b...)
	r.rest = nil
	for len(b) > 0 {
		if b[0] == 0x1b && len(b) > 1 {
			n, key := r.sequence(b)
			if n == 0 {
				r.rest = bytes.Clone(b)
				return keys
			}
			if key != 0 {
				keys = append(keys, key)
			}
			b = b[n:]
			continue
		}
		if !utf8.FullRune(b) {
			r.rest = bytes.Clone(b)
			return keys
		}
		c, n := utf8.DecodeRune(b)
		b = b[n:]
		if key, ok := r.character(c); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// sequence reads a key sequence, an ESC and more; n = 0: its end is missing.
func (r *Reader) sequence(b []byte) (n int, key Key) {
	if b[1] == '\r' || b[1] == '\n' {
		return 2, KeyNewline
	}
	n = sequence(b)
	switch s := string(b[:n]); {
	case s == pasteBegin, s == pasteEnd:
		r.pasting = s == pasteBegin
	case n == 1 && !r.pasting:
		key = KeyEscape
	case !r.pasting:
		key = sequences[s]
	}
	return n, key
}

func (r *Reader) character(c rune) (Key, bool) {
	if r.pasting {
		switch c {
		case '\r', '\n':
			return KeyNewline, true
		case '\t':
			return ' ', true
		}
		return Key(c), unicode.IsPrint(c) && c != utf8.RuneError
	}
	switch c {
	case '\n':
		return KeyEnter, true
	case '\b':
		return KeyBackspace, true
	case 1: // Ctrl-A
		return KeyLineStart, true
	case 5: // Ctrl-E
		return KeyLineEnd, true
	case '\r', '\t', 3, 4, 0x7f, 0x1b, 0x15:
		return Key(c), true
	}
	return Key(c), unicode.IsPrint(c) && c != utf8.RuneError
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

// line is a text that is being typed, of one line or several.
type line struct {
	text []rune
	at   int // the cursor: before which character
	// past are earlier texts, the newest last; shown is how far back the one is that
	// stands in the line, 0 = none, and draft what stood there before.
	past  [][]rune
	shown int
	draft []rune
}

// lineMax bounds it, in characters, and pastMax how many earlier ones are kept.
const (
	lineMax = 8000
	pastMax = 100
)

// press edits; done: Enter was pressed, gone: Escape was.
func (l *line) press(k Key) (done, gone bool) {
	switch k {
	case KeyEnter:
		return true, false
	case KeyEscape:
		return false, true
	case KeyBackspace:
		if l.at > 0 {
			l.at--
			l.text = slices.Delete(l.text, l.at, l.at+1)
		}
	case KeyDelete:
		if l.at < len(l.text) {
			l.text = slices.Delete(l.text, l.at, l.at+1)
		}
	case KeyClear:
		l.set(nil)
	case KeyLeft:
		l.at = max(l.at-1, 0)
	case KeyRight:
		l.at = min(l.at+1, len(l.text))
	case KeyLineStart:
		l.at = 0
	case KeyLineEnd:
		l.at = len(l.text)
	case KeyUp:
		l.recall(1)
	case KeyDown:
		l.recall(-1)
	case KeyNewline:
		l.insert('\n')
	case KeyInterrupt, KeyEnd, KeyTab:
	default:
		l.insert(rune(k))
	}
	return false, false
}

func (l *line) insert(text ...rune) {
	if len(l.text)+len(text) <= lineMax {
		l.text = slices.Insert(l.text, l.at, text...)
		l.at += len(text)
	}
}

func (l *line) set(text []rune) { l.text, l.at = slices.Clone(text), len(text) }

// recall puts an earlier text into the line: further back, or forth to what was typed.
func (l *line) recall(back int) {
	to := l.shown + back
	if to < 0 || to > len(l.past) {
		return
	}
	if l.shown == 0 {
		l.draft = l.text
	}
	l.shown = to
	if to == 0 {
		l.set(l.draft)
		return
	}
	l.set(l.past[len(l.past)-to])
}

// keep remembers the text and empties the line.
func (l *line) keep() {
	if n := len(l.past); n == 0 || !slices.Equal(l.past[n-1], l.text) {
		l.past = append(l.past[max(0, n+1-pastMax):], l.text)
	}
	l.clear()
}

func (l *line) clear() { l.text, l.at, l.shown, l.draft = nil, 0, 0, nil }

// word is what stands before the cursor, back to the last space.
func (l *line) word() string {
	text := string(l.text[:l.at])
	return text[strings.LastIndexAny(text, " \n")+1:]
}

// drawn is the text with the cursor in it.
func (l *line) drawn() string { return string(l.text[:l.at]) + "▏" + string(l.text[l.at:]) }

func (l *line) String() string { return strings.TrimSpace(string(l.text)) }
