package gateway

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"github.com/skete-dev/skete/errs"
)

// Bounds of what is in a request, so that a hostile one does not fill the memory.
const (
	nodesMax = 100_000
	depthMax = 100
)

// fieldsFew are as many fields as are searched faster one by one than by a map.
const fieldsFew = 16

// text is a string of JSON as it stands in a request, without its quotes: most are long,
// and are not looked at.
type text struct {
	raw     []byte
	escaped bool
}

// String is what it says.
func (t text) String() string {
	if !t.escaped {
		return string(t.raw)
	}
	var s string
	if json.Unmarshal(append(append([]byte{'"'}, t.raw...), '"'), &s) != nil {
		return string(t.raw) // the scanner has checked it
	}
	return s
}

// field is one of an object.
type field struct {
	key   []byte // without escapes
	value any
}

// object holds its fields as they come: most have few, for which a map costs more than all
// else that is done with them.
type object []field

// has reports whether there is a field of the name.
func (o object) has(key string) bool {
	for i := range o {
		if string(o[i].key) == key {
			return true
		}
	}
	return false
}

// of returns the value of a field; nil: it is null, or there is none.
func (o object) of(key string) any {
	for i := range o {
		if string(o[i].key) == key {
			return o[i].value
		}
	}
	return nil
}

// scanner reads JSON (RFC 8259) more strictly than is usual, so that no reader after it can
// see another thing in it: an object that has a key twice is refused, and text that is not
// UTF-8. Numbers become json.Number, strings text, objects object, the rest what encoding/json
// makes of it.
type scanner struct {
	in    []byte
	at    int
	nodes int
	// onField is told of each field of the outermost object, with where its value is.
	onField func(key string, v any, begin, end int)
}

// scan reads all of in. Invalid.
func (s *scanner) scan() (any, error) {
	v, err := s.value(0)
	if err != nil {
		return nil, err
	}
	if s.space(); s.at < len(s.in) {
		return nil, errs.New(errs.Invalid, "something follows the request's JSON")
	}
	return v, nil
}

func (s *scanner) wrong() error {
	return errs.New(errs.Invalid, "the request is no JSON, at byte %d", s.at)
}

func (s *scanner) space() {
	for s.at < len(s.in) {
		switch s.in[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// next returns the byte after spaces; 0: there is none.
func (s *scanner) next() byte {
	s.space()
	if s.at < len(s.in) {
		return s.in[s.at]
	}
	return 0
}

func (s *scanner) value(depth int) (any, error) {
	if s.nodes++; s.nodes > nodesMax || depth > depthMax {
		return nil, errs.New(errs.Invalid, "the request has more than %d values, or is nested more than %d deep", nodesMax, depthMax)
	}
	switch c := s.next(); c {
	case '{':
		return s.object(depth)
	case '[':
		return s.array(depth)
	case '"':
		return s.text()
	case 't':
		return true, s.word("true")
	case 'f':
		return false, s.word("false")
	case 'n':
		return nil, s.word("null")
	default:
		return s.number()
	}
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.in[s.at:], []byte(w)) {
		return s.wrong()
	}
	s.at += len(w)
	return nil
}

// more moves behind a comma, or behind the end of what began, and reports whether another
// element follows.
func (s *scanner) more(end byte, first bool) (bool, error) {
	switch c := s.next(); {
	case c == end:
		s.at++
		return false, nil
	case first:
		return true, nil
	case c != ',':
		return false, s.wrong()
	}
	s.at++
	if s.next() == end {
		return false, s.wrong()
	}
	return true, nil
}

func (s *scanner) array(depth int) (any, error) {
	s.at++
	list := []any{}
	for {
		more, err := s.more(']', len(list) == 0)
		if err != nil || !more {
			return list, err
		}
		v, err := s.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
}

func (s *scanner) object(depth int) (any, error) {
	s.at++
	var o object
	var keys map[string]bool // of o, when they are many
	for {
		more, err := s.more('}', len(o) == 0)
		if err != nil || !more {
			return o, err
		}
		key, err := s.key()
		if err != nil {
			return nil, err
		}
		if len(o) == fieldsFew {
			keys = map[string]bool{}
			for _, f := range o {
				keys[string(f.key)] = true
			}
		}
		if keys[string(key)] || keys == nil && o.has(string(key)) {
			return nil, errs.New(errs.Invalid, "%.40q is twice in an object", key)
		}
		if keys != nil {
			keys[string(key)] = true
		}
		begin := s.at
		v, err := s.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if o = append(o, field{key, v}); depth == 0 {
			s.onField(string(key), v, begin, s.at)
		}
	}
}

// key reads the name of a field, and moves to its value.
func (s *scanner) key() ([]byte, error) {
	if s.next() != '"' {
		return nil, s.wrong()
	}
	name, err := s.text()
	if err != nil {
		return nil, err
	}
	if s.next() != ':' {
		return nil, s.wrong()
	}
	s.at++
	s.space()
	if name.escaped {
		return []byte(name.String()), nil
	}
	return name.raw, nil
}

// text reads a string, and stands at its quote.
func (s *scanner) text() (text, error) {
	s.at++
	begin, escaped, ascii := s.at, false, true
	for {
		ascii = s.plain() && ascii
		if s.at >= len(s.in) {
			return text{}, s.wrong()
		}
		switch c := s.in[s.at]; {
		case c == '"':
			t := text{s.in[begin:s.at:s.at], escaped}
			if !ascii && !utf8.Valid(t.raw) {
				return text{}, errs.New(errs.Invalid, "the request is not UTF-8")
			}
			s.at++
			return t, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return text{}, err
			}
		case c < ' ':
			return text{}, s.wrong()
		default: // in the last bytes of all
			ascii = ascii && c < utf8.RuneSelf
			s.at++
		}
	}
}

// plain moves over text of which nothing is to be known, eight bytes at a time, to the first
// quote, backslash or control character, and reports whether all of it was ASCII. How a word
// is searched for a byte: H. Warren, Hacker's Delight, 6-1.
func (s *scanner) plain() (ascii bool) {
	const (
		ones, highs = 0x0101010101010101, 0x8080808080808080
		quotes      = '"' * ones
		backslashes = '\\' * ones
		spaces      = ' ' * ones
	)
	rest, all := s.in[s.at:], uint64(0)
	for len(rest) >= 8 {
		w := binary.LittleEndian.Uint64(rest)
		all |= w
		if found := ((w - spaces) | (w ^ quotes - ones) | (w ^ backslashes - ones)) &^ w & highs; found != 0 {
			rest = rest[bits.TrailingZeros64(found)/8:] // of several, the first is right
			break
		}
		rest = rest[8:]
	}
	s.at = len(s.in) - len(rest)
	return all&highs == 0
}

// escape moves behind one.
func (s *scanner) escape() error {
	rest := s.in[s.at+1:]
	switch {
	case len(rest) > 0 && bytes.IndexByte([]byte(`"\/bfnrt`), rest[0]) >= 0:
		s.at += 2
		return nil
	case len(rest) >= 5 && rest[0] == 'u':
		if _, err := strconv.ParseUint(string(rest[1:5]), 16, 16); err == nil {
			s.at += 6
			return nil
		}
	}
	return s.wrong()
}

// number reads one.
func (s *scanner) number() (any, error) {
	begin := s.at
	digits := func() bool {
		from := s.at
		for s.at < len(s.in) && '0' <= s.in[s.at] && s.in[s.at] <= '9' {
			s.at++
		}
		return s.at > from
	}
	is := func(set string) bool {
		if s.at >= len(s.in) || bytes.IndexByte([]byte(set), s.in[s.at]) < 0 {
			return false
		}
		s.at++
		return true
	}
	is("-")
	if !is("0") && !digits() {
		return nil, s.wrong()
	}
	if is(".") && !digits() {
		return nil, s.wrong()
	}
	if is("eE") {
		if is("+-"); !digits() {
			return nil, s.wrong()
		}
	}
	return json.Number(s.in[begin:s.at]), nil
}
