// Package sse reads server-sent events, as browsers do and a little more
// patiently: servers leave out the space after the colon, mix line endings,
// and end without the last blank line.
//
//	r := sse.NewReader(body, 1<<20)
//	for {
//		event, err := r.Next()
//		if err == io.EOF { … }
//	}
//
// A Reader holds one event at most and never more than its limit. It is for
// one goroutine.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrTooLong is the error of an event that is larger than the limit. The
// stream cannot be read on.
var ErrTooLong = errors.New("an event is longer than allowed")

// Event is one event. Data is valid until the next call of Next.
type Event struct {
	Name string // "" = message
	ID   string
	Data []byte
	// Cut: the stream ended before the blank line that ends an event.
	Cut bool
}

// Reader reads events.
type Reader struct {
	in     *bufio.Reader
	max    int
	line   []byte
	data   []byte
	any    bool // a line of data was there
	begun  bool // the byte order mark was looked for
	skipLF bool // the last line ended with CR: an LF belongs to it
	failed error
}

// NewReader returns a reader of r for events of at most max bytes.
func NewReader(r io.Reader, max int) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, 4096), max: max}
}

// Next returns the next event that has data. io.EOF says that the stream
// ended; any other error is that of the underlying reader, or ErrTooLong. An
// error stays.
func (r *Reader) Next() (Event, error) {
	if r.failed != nil {
		return Event{}, r.failed
	}
	e := Event{}
	r.data, r.any = r.data[:0], false
	for {
		line, err := r.readLine()
		if err != nil {
			return r.end(e, line, err)
		}
		if len(line) > 0 {
			if r.field(&e, line); len(r.data) > r.max {
				r.failed = ErrTooLong
				return Event{}, r.failed
			}
			continue
		}
		if r.any {
			e.Data = r.data
			return e, nil
		}
		e.Name = "" // an event without data is none
	}
}

// end returns what was there when the stream ended.
func (r *Reader) end(e Event, line []byte, err error) (Event, error) {
	r.failed = err
	if !errors.Is(err, io.EOF) {
		return Event{}, err
	}
	if len(line) > 0 {
		r.field(&e, line)
	}
	if !r.any {
		return Event{}, err
	}
	e.Data, e.Cut = r.data, true
	return e, nil
}

// field takes one line that is not empty.
func (r *Reader) field(e *Event, line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if r.any {
			r.data = append(r.data, '\n')
		}
		r.data, r.any = append(r.data, value...), true
	case "event":
		e.Name = string(value)
	case "error": // no standard has it, but llama.cpp did
		e.Name, r.data, r.any = "error", append(r.data, value...), true
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			e.ID = string(value)
		}
	}
	// "retry", comments (the name is empty) and unknown fields are skipped.
}

// readLine returns the next line without its end: LF, CR, or both. With an
// error it returns what was there of the line. It must not wait for a byte
// behind a CR: that may be minutes away.
func (r *Reader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		if r.in.Buffered() == 0 {
			if _, err := r.in.Peek(1); err != nil {
				return r.line, err
			}
		}
		chunk, _ := r.in.Peek(r.in.Buffered())
		if !r.begun {
			r.begun = true
			if r.mark(chunk) {
				continue
			}
		}
		if r.skipLF {
			r.skipLF = false
			if chunk[0] == '\n' {
				r.discard(1)
				continue
			}
		}
		i := bytes.IndexAny(chunk, "\r\n")
		if i < 0 {
			r.line = append(r.line, chunk...)
			r.discard(len(chunk))
		} else {
			r.line = append(r.line, chunk[:i]...)
			r.skipLF = chunk[i] == '\r'
			r.discard(i + 1)
		}
		if len(r.line) > r.max {
			return nil, ErrTooLong
		}
		if i >= 0 {
			return r.line, nil
		}
	}
}

func (r *Reader) discard(n int) { _, _ = r.in.Discard(n) } // n is buffered

// mark skips a byte order mark, which may come in pieces.
func (r *Reader) mark(chunk []byte) bool {
	if chunk[0] != 0xEF {
		return false
	}
	if first, err := r.in.Peek(3); err == nil && bytes.Equal(first, []byte("\xEF\xBB\xBF")) {
		r.discard(3)
		return true
	}
	return false
}
