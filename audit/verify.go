package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"github.com/skete-dev/skete/errs"
)

// badMax is how many of what is wrong are told.
const badMax = 20

// Report is what was found of a log.
type Report struct {
	Records uint64 `json:"records"`
	First   uint64 `json:"first"` // numbers; 0 = there is none
	Last    uint64 `json:"last"`
	Hash    string `json:"hash"` // of the last record
	// Removed is the last of the records that were removed since they were old; 0 = none.
	Removed uint64 `json:"removed,omitempty"`
	// Bad is what is wrong, in the order of the log; at most 20 of it.
	Bad []Bad `json:"bad"`
}

// Bad is a place where a log is not what was written.
type Bad struct {
	N    uint64 `json:"n"` // of the record; of missing ones, of the first
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Why  string `json:"why"`
}

// verifier looks at the lines of a log, one after the other.
type verifier struct {
	Report
	known Head // a record that must be there, and its hash; zero: none is
	file  string
	line  int
	began bool   // a first line was read
	start uint64 // the number that it says
	next  uint64 // the number that is to come
	prev  sum
}

func (v *verifier) bad(n uint64, format string, args ...any) {
	if len(v.Bad) < badMax {
		v.Bad = append(v.Bad, Bad{n, v.file, v.line, fmt.Sprintf(format, args...)})
	}
}

// read takes a line.
func (v *verifier) read(line []byte, whole bool) {
	v.line++
	if bytes.HasPrefix(line, []byte("{")) || !v.began {
		v.header(line)
		return
	}
	r, s, wrong := decode(line, v.prev)
	if !whole {
		wrong = "it is longer than a record can be, or has no end"
	}
	if wrong != "" {
		v.bad(v.next, "%s", wrong)
		r, s = v.guess(line)
	}
	if r.N != v.next {
		v.bad(v.next, "%s missing before record %d", missing(v.next, r.N-1), r.N)
	}
	if r.N == v.known.N && s.String() != v.known.Hash {
		v.bad(r.N, "its hash is not the one that is kept apart from the log")
	}
	v.prev, v.next = s, r.N+1
	v.Records++
	v.Last, v.Hash = r.N, s.String()
	if v.First == 0 {
		v.First = r.N
	}
	if wrong == "" && r.What == removed {
		if through, err := strconv.ParseUint(r.Detail["through"], 10, 64); err == nil {
			v.Removed = max(v.Removed, through)
		}
	}
}

// guess is what a bad line most likely was: what it says of its place is what those after it
// follow, if that was not changed too.
func (v *verifier) guess(line []byte) (Record, sum) {
	said, text, _ := bytes.Cut(line, []byte(" "))
	s, _ := parseSum(said)
	if r, ok := parseRecord(text); ok && r.N >= v.next {
		return Record{N: r.N}, s
	}
	return Record{N: v.next}, s
}

func missing(from, to uint64) string {
	if from >= to {
		return fmt.Sprintf("record %d is", from)
	}
	return fmt.Sprintf("records %d to %d are", from, to)
}

// header takes the first line of a file.
func (v *verifier) header(line []byte) {
	h, prev, ok := parseHeader(line)
	first := !v.began
	v.began = true
	switch {
	case !ok:
		if v.bad(max(v.next, 1), "the first line of a file cannot be read"); first {
			v.next = 1
		}
		return
	case first:
		v.start = h.First
	case h.First > v.next:
		v.bad(v.next, "%s missing before this file", missing(v.next, h.First-1))
	case h.First != v.next || prev != v.prev:
		v.bad(v.next, "the file does not follow what is before it")
	}
	v.next, v.prev = h.First, prev
}

// end tells what was found.
func (v *verifier) end() Report {
	v.file, v.line = "", 0
	if v.start > 1 && v.Removed < v.start-1 {
		v.Bad = append([]Bad{{N: v.Removed + 1, Why: missing(v.Removed+1, v.start-1) + " missing, and no record says that they were removed"}}, v.Bad...)
	}
	if v.known.N > v.Last {
		v.bad(v.Last+1, "%s missing at the end", missing(v.Last+1, v.known.N))
	}
	if v.Bad == nil {
		v.Bad = []Bad{}
	}
	return v.Report
}

// Verify reads all of the log and tells what is wrong with it.
func (l *Log) Verify(ctx context.Context) (Report, error) {
	list, head, done, err := l.tail()
	if err != nil {
		return Report{}, err
	}
	defer done()
	v := &verifier{known: head}
	for _, f := range list {
		if err := ctx.Err(); err != nil {
			return Report{}, err
		}
		v.file, v.line = filepath.Base(f.path), 0
		err := f.read(func(r io.Reader) error {
			return lines(r, func(line []byte, whole bool) error {
				v.read(line, whole)
				return ctx.Err()
			})
		})
		if err != nil {
			return Report{}, err
		}
	}
	return v.end(), nil
}

// Verify reads an exported log. known is a record that must be in it, and its hash; zero:
// none is known.
func Verify(r io.Reader, known Head) (Report, error) {
	v := &verifier{known: known}
	err := lines(r, func(line []byte, whole bool) error {
		v.read(line, whole)
		return nil
	})
	if err != nil {
		return Report{}, errs.Wrap(errs.Unavailable, err, "the log cannot be read")
	}
	return v.end(), nil
}

func parseRecord(text []byte) (r Record, ok bool) {
	err := json.Unmarshal(text, &r)
	return r, err == nil && r.N > 0
}
