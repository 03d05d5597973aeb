package qmp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// kind of a line that QEMU sent.
type kind int

const (
	greeting kind = iota + 1
	answered
	happened
)

// message is one line, understood.
type message struct {
	kind    kind
	version Version         // of a greeting
	event   Event           // of what happened
	id      uint64          // of an answer
	result  json.RawMessage // of an answer that is no refusal
	refusal *refusal
}

type refusal struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

// outcome turns an answer into a command's result.
func (m message) outcome(command string, result any) error {
	if m.refusal != nil {
		return &Error{Command: command, Class: m.refusal.Class, Desc: m.refusal.Desc}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(m.result, result); err != nil {
		return fmt.Errorf("qmp %s: understand the answer: %w", command, err)
	}
	return nil
}

// readLine returns one line without its end, at most lineBytesMax long. The
// last line of a connection counts only if it is whole.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > lineBytesMax {
			return nil, fmt.Errorf("a line longer than %d bytes", lineBytesMax)
		}
		line = append(line, part...)
		if err == nil {
			return bytes.TrimRight(line, "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// parse understands one line: an object with exactly one of "QMP", "return",
// "error" and "event". Unknown members are let pass, since QEMU adds some from
// time to time.
func parse(line []byte) (message, error) {
	var w struct {
		Greeting *struct {
			Version struct {
				QEMU *Version `json:"qemu"`
			} `json:"version"`
		} `json:"QMP"`
		Return json.RawMessage `json:"return"`
		Error  *refusal        `json:"error"`
		ID     json.RawMessage `json:"id"`
		Event  *string         `json:"event"`
		Data   json.RawMessage `json:"data"`
		Time   struct {
			Seconds      int64 `json:"seconds"`
			Microseconds int64 `json:"microseconds"`
		} `json:"timestamp"`
	}
	if err := json.Unmarshal(line, &w); err != nil {
		return message{}, fmt.Errorf("a line that is no message: %w", err)
	}
	said := 0
	for _, there := range []bool{w.Greeting != nil, w.Return != nil, w.Error != nil, w.Event != nil} {
		if there {
			said++
		}
	}
	switch {
	case said != 1:
		return message{}, fmt.Errorf("a message that is %d things at once", said)
	case w.Greeting != nil:
		if w.Greeting.Version.QEMU == nil {
			return message{}, errors.New("a greeting without a version")
		}
		return message{kind: greeting, version: *w.Greeting.Version.QEMU}, nil
	case w.Event != nil:
		if *w.Event == "" {
			return message{}, errors.New("an event without a name")
		}
		return message{kind: happened, event: Event{
			Name: *w.Event, Data: w.Data, Time: time.Unix(w.Time.Seconds, w.Time.Microseconds*1000),
		}}, nil
	}
	id, err := parseID(w.ID)
	if err != nil {
		return message{}, err
	}
	return message{kind: answered, id: id, result: w.Return, refusal: w.Error}, nil
}

// parseID reads what we sent as a string of digits. An answer without one is
// QEMU's to a line that it did not understand: ours are always understood.
func parseID(raw json.RawMessage) (uint64, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return 0, errors.New("an answer without our id")
	}
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(id, 10) != s {
		return 0, fmt.Errorf("an answer to %.40q", s)
	}
	return id, nil
}
