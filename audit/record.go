package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
)

// Record is what happened once.
type Record struct {
	N      uint64    `json:"n"` // from 1, without gaps; the log sets it
	Time   time.Time `json:"time"`
	Node   string    `json:"node,omitempty"`
	Tenant string    `json:"tenant,omitempty"`
	// Who did it: the name of a key or a login, a run, "skete".
	Who  string `json:"who"`
	What string `json:"what"` // api.create-sandbox, tool.started, network.refused, …
	On   string `json:"on,omitempty"`
	// Result is how it ended: a status, a state; "" = it is told by what follows.
	Result string `json:"result,omitempty"`
	// Detail is more of it, never a secret value. Large texts are cut.
	Detail map[string]string `json:"detail,omitempty"`
}

// Bounds of a record.
const (
	fieldBytesMax  = 256
	detailBytesMax = 1024 // of a value
	detailsMax     = 16
	lineBytesMax   = 64 << 10
)

// bounded returns the record with what is too large cut.
func (r Record) bounded() Record {
	for _, f := range []*string{&r.Node, &r.Tenant, &r.Who, &r.What, &r.On, &r.Result} {
		*f = clip.Text(*f, fieldBytesMax)
	}
	detail := map[string]string{}
	for k, v := range r.Detail {
		if len(detail) < detailsMax && v != "" {
			detail[clip.Text(k, fieldBytesMax)] = clip.Text(v, detailBytesMax)
		}
	}
	r.Detail = detail
	return r
}

// sum is a place in the chain.
type sum [sha256.Size]byte

// after is the sum of a record that follows.
func (s sum) after(record []byte) (next sum) {
	h := sha256.New()
	h.Write(s[:])
	h.Write(record)
	h.Sum(next[:0])
	return next
}

func (s sum) String() string { return hex.EncodeToString(s[:]) }

func parseSum(text []byte) (s sum, ok bool) {
	if len(text) != hex.EncodedLen(len(s)) || bytes.ContainsAny(text, "ABCDEF") { // one way to write it
		return s, false
	}
	_, err := hex.Decode(s[:], text)
	return s, err == nil
}

// encode returns the line of a record, and its place.
func (r Record) encode(prev sum) (line []byte, s sum, err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, s, errs.Wrap(errs.Internal, err, "a record of the audit log cannot be written")
	}
	s = prev.after(text)
	line = append([]byte(s.String()), ' ')
	return append(append(line, text...), '\n'), s, nil
}

// decode reads a line, without its end. What does not fit is said in words.
func decode(line []byte, prev sum) (r Record, s sum, wrong string) {
	said, text, _ := bytes.Cut(line, []byte(" "))
	s, ok := parseSum(said)
	switch {
	case !ok:
		return r, s, "it does not begin with a hash"
	case prev.after(text) != s:
		return r, s, "it is not what was written, or does not follow what is before it"
	case json.Unmarshal(text, &r) != nil:
		return r, s, "it cannot be read"
	}
	return r, s, ""
}

// header is the first line of a file.
type header struct {
	V     int    `json:"skete_audit"`
	First uint64 `json:"first"` // number of the first record
	Prev  string `json:"prev"`  // hash of the record before it
}

const headerVersion = 1

func (h header) encode() ([]byte, error) {
	text, err := json.Marshal(h)
	return append(text, '\n'), err
}

// parseHeader reads one, without its end. There is one way to write it.
func parseHeader(line []byte) (h header, prev sum, ok bool) {
	if json.Unmarshal(line, &h) != nil || h.V != headerVersion || h.First == 0 {
		return h, prev, false
	}
	if prev, ok = parseSum([]byte(h.Prev)); !ok {
		return h, prev, false
	}
	text, err := h.encode()
	return h, prev, err == nil && bytes.Equal(text[:len(text)-1], line)
}
