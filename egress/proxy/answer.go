package proxy

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skete-dev/skete/secret"
)

// This file takes the tokens out of what a token endpoint answers (RFC 6749, section 5.1).

// Bounds of an answer.
const (
	answerBytesMax = 256 << 10
	answerDepthMax = 32
	answerTokens   = 8
	tokenBytesMin  = 8 // a shorter one would be found in other words
)

// Names of what an answer has.
const (
	accessToken  = "access_token"
	refreshToken = "refresh_token"
	idToken      = "id_token"
	expiresIn    = "expires_in"
)

// errNoObject says that an answer is not JSON of the form that all of them have.
var errNoObject = errors.New("its answer is no JSON object, in which its tokens could be found")

// object is one of JSON, in its order.
type object []member

type member struct {
	name  string
	value any // object, []any, string, json.Number, bool or nil
}

// parseAnswer reads one object. Names that are there twice are refused: who reads it may
// take either.
func parseAnswer(body []byte) (object, error) {
	if !utf8.Valid(body) {
		return nil, errNoObject
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		return nil, err
	}
	o, ok := v.(object)
	if _, err := d.Token(); !ok || !errors.Is(err, io.EOF) {
		return nil, errNoObject
	}
	return o, nil
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	if depth > answerDepthMax {
		return nil, errors.New("its answer is nested too deeply")
	}
	t, err := d.Token()
	if err != nil {
		return nil, errNoObject
	}
	switch t {
	case json.Delim('{'):
		return parseObject(d, depth)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, closed(d)
	}
	return t, nil
}

func parseObject(d *json.Decoder, depth int) (object, error) {
	o, seen := object{}, map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, errNoObject
		}
		v, err := parseValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		once := nameOf(name)
		if seen[once] {
			return nil, fmt.Errorf("its answer has %.40q twice", name)
		}
		seen[once] = true
		o = append(o, member{name, v})
	}
	return o, closed(d)
}

// closed reads the end of an object or a list.
func closed(d *json.Decoder) error {
	if _, err := d.Token(); err != nil {
		return errNoObject
	}
	return nil
}

// nameOf is the one that readers may take a name for: some do not look at its case.
func nameOf(name string) string {
	for _, known := range []string{accessToken, refreshToken, idToken, expiresIn} {
		if strings.EqualFold(name, known) {
			return known
		}
	}
	return name
}

// sealer takes the tokens out of an answer.
type sealer struct {
	fresh []secret.NewToken
	ids   []string          // JWTs that say who the user is
	words map[string]string // what stands for each real text
	order []string          // of words: the longest first
	hit   bool              // something was replaced
	body  bytes.Buffer
	err   error
}

// sealAnswer returns an answer in which placeholders stand for tokens, and what else of this
// answer must not be seen. known are the tokens that the sandbox has; keep keeps new ones
// before the answer is passed on. An answer without a token is returned as it is.
// errNoObject: it is none.
func sealAnswer(body []byte, known []secret.Token, keep func([]secret.NewToken) ([]secret.Token, error)) (out []byte, real []secret.Token, err error) {
	o, err := parseAnswer(body)
	if err != nil {
		return nil, nil, err
	}
	s := &sealer{words: map[string]string{}}
	if s.find(o); s.err != nil {
		return nil, nil, s.err
	}
	for _, t := range known {
		s.words[t.Value.Reveal()] = t.Placeholder
	}
	s.apart()
	if len(s.fresh) > 0 {
		if real, err = keep(s.fresh); err != nil {
			return nil, nil, err
		}
	}
	for _, t := range real {
		s.words[t.Value.Reveal()] = t.Placeholder
	}
	for _, id := range s.ids {
		s.words[id] = cmp.Or(s.words[id], unsigned(id))
		real = append(real, secret.Token{Value: secret.New(id)})
	}
	for text := range s.words {
		s.order = append(s.order, text)
	}
	slices.SortFunc(s.order, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) })
	if s.write(o); !s.hit {
		return body, real, s.leaks()
	}
	return s.body.Bytes(), real, s.leaks()
}

// apart takes a JWT for a token like others if what it says has one.
func (s *sealer) apart() {
	fresh := s.fresh
	s.ids = slices.DeleteFunc(s.ids, func(id string) bool {
		var said strings.Builder
		for part := range strings.SplitSeq(id, ".") {
			b, _ := base64.RawURLEncoding.DecodeString(part)
			said.Write(append(b, '\n'))
		}
		says := slices.ContainsFunc(fresh, func(n secret.NewToken) bool { return strings.Contains(said.String(), n.Value.Reveal()) })
		if says {
			s.add(secret.NewToken{Value: secret.New(id)})
		}
		return says
	})
}

func (s *sealer) add(n secret.NewToken) {
	if !slices.ContainsFunc(s.fresh, func(x secret.NewToken) bool { return x.Value == n.Value }) {
		s.fresh = append(s.fresh, n)
	}
}

// find visits all objects. Some answers have further tokens in objects of their own.
func (s *sealer) find(v any) {
	switch v := v.(type) {
	case object:
		s.findIn(v)
		for _, m := range v {
			s.find(m.value)
		}
	case []any:
		for _, e := range v {
			s.find(e)
		}
	}
}

func (s *sealer) findIn(o object) {
	var life time.Duration
	for _, m := range o {
		if nameOf(m.name) == expiresIn {
			life = lifeOf(m.value)
		}
	}
	for _, m := range o {
		name := nameOf(m.name)
		if name != accessToken && name != refreshToken && name != idToken || m.value == nil || m.value == "" {
			continue
		}
		text, ok := m.value.(string)
		switch {
		case !ok:
			s.err = fmt.Errorf("of its answer %s is no text", name)
		case len(text) < tokenBytesMin || len(text) > secret.TokenMax:
			s.err = fmt.Errorf("of its answer %s has %d bytes; %d to %d can be hidden", name, len(text), tokenBytesMin, secret.TokenMax)
		case name == idToken && isJWT(text):
			s.ids = append(s.ids, text)
		default:
			s.add(secret.NewToken{Value: secret.New(text), Refresh: name == refreshToken, Life: life})
		}
	}
	if len(s.fresh)+len(s.ids) > answerTokens {
		s.err = fmt.Errorf("its answer has more than %d tokens", answerTokens)
	}
}

// lifeOf reads seconds, which some write as a text; 0 = it says none.
func lifeOf(v any) time.Duration {
	text := ""
	switch v := v.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	}
	const most = 1 << 31 // seconds
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0) {
		return 0
	}
	return max(time.Duration(min(n, most)*float64(time.Second)), 1)
}

// isJWT reports whether a text has the form of one that is signed.
func isJWT(text string) bool {
	parts := strings.Split(text, ".")
	if len(parts) != 3 || parts[2] == "" {
		return false
	}
	for i, p := range parts {
		b, err := base64.RawURLEncoding.DecodeString(p)
		if err != nil || i < 2 && !json.Valid(b) {
			return false
		}
	}
	return true
}

// unsigned is a JWT that says the same and proves nothing.
func unsigned(jwt string) string {
	end := strings.LastIndexByte(jwt, '.') + 1
	b := make([]byte, max(base64.RawURLEncoding.DecodedLen(len(jwt)-end), 32))
	_, _ = rand.Read(b)
	return jwt[:end] + base64.RawURLEncoding.EncodeToString(b)
}

// write writes a value with what stands for tokens in their place.
func (s *sealer) write(v any) {
	switch v := v.(type) {
	case object:
		s.body.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				s.body.WriteByte(',')
			}
			s.body.Write(quoted(m.name))
			s.body.WriteByte(':')
			s.write(m.value)
		}
		s.body.WriteByte('}')
	case []any:
		s.body.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				s.body.WriteByte(',')
			}
			s.write(e)
		}
		s.body.WriteByte(']')
	case string:
		s.body.Write(quoted(s.without(v)))
	default:
		s.body.Write(quoted(v))
	}
}

// without replaces all that is real in a text.
func (s *sealer) without(text string) string {
	for _, real := range s.order {
		if strings.Contains(text, real) {
			text, s.hit = strings.ReplaceAll(text, real, s.words[real]), true
		}
	}
	return text
}

// leaks is an error if something real is still there: in a name, a number, or in a part of
// something that may be seen.
func (s *sealer) leaks() error {
	for _, real := range s.order {
		inside := quoted(real)
		if bytes.Contains(s.body.Bytes(), []byte(real)) || bytes.Contains(s.body.Bytes(), inside[1:len(inside)-1]) {
			return errors.New("its answer says a token where it cannot be hidden")
		}
	}
	return nil
}

// quoted is JSON of a plain value, in which no more is escaped than has to be.
func quoted(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // plain data
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
