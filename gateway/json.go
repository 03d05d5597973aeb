package gateway

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/skete-dev/skete/errs"
)

// Bounds of what is in a request, so that a hostile one does not fill the memory.
const (
	nodesMax = 100_000
	depthMax = 100
)

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

// scanner reads JSON (RFC 8259) more strictly than is usual, so that no reader after it can
// see another thing in it: an object that has a key twice is refused, and text that is not
// UTF-8. Numbers become json.Number, strings text, the rest what encoding/json makes of it.
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
	m := map[string]any{}
	for {
		more, err := s.more('}', len(m) == 0)
		if err != nil || !more {
			return m, err
		}
		if s.next() != '"' {
			return nil, s.wrong()
		}
		name, err := s.text()
		if err != nil {
			return nil, err
		}
		key := name.String()
		if _, twice := m[key]; twice {
			return nil, errs.New(errs.Invalid, "%.40q is twice in an object", key)
		}
		if s.next() != ':' {
			return nil, s.wrong()
		}
		s.at++
		s.space()
		begin := s.at
		v, err := s.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if m[key] = v; depth == 0 {
			s.onField(key, v, begin, s.at)
		}
	}
}

// text reads a string, and stands at its quote.
func (s *scanner) text() (text, error) {
	s.at++
	begin, escaped, ascii := s.at, false, true
	for {
		s.plain()
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
		default:
			ascii = ascii && c < utf8.RuneSelf
			s.at++
		}
	}
}

// plain moves over text of which nothing is to be known, eight bytes at a time: ASCII without
// quotes, backslashes and control characters. How a word is searched for a byte: H. Warren,
// Hacker's Delight, 6-1.
func (s *scanner) plain() {
	const (
		ones, highs = 0x0101010101010101, 0x8080808080808080
		quotes      = '"' * ones
		backslashes = '\\' * ones
		spaces      = ' ' * ones
	)
	for s.at+8 <= len(s.in) {
		w := binary.LittleEndian.Uint64(s.in[s.at:])
		q, b := w^quotes, w^backslashes
		if (w|(w-spaces)|(q-ones)|(b-ones))&highs != 0 {
			return
		}
		s.at += 8
	}
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
