package thread

import (
	"bytes"

	"github.com/skete-dev/skete/errs"
)

// Encode numbers the events of one append, which follow the one numbered
// after, checks the bounds, and returns what a log stores: an event a line.
//
// It sets Seq and Body of the events to what Decode will yield: what is folded
// now is what will be folded after a restart, down to the white space of a
// call's arguments. Invalid: no events, or one that cannot be written. Limit:
// too many or too large.
func Encode(after uint64, events []Event) ([]byte, error) {
	if len(events) == 0 {
		return nil, errs.New(errs.Invalid, "an append without events")
	}
	if len(events) > AppendMax {
		return nil, errs.New(errs.Limit, "an append of %d events is over %d", len(events), AppendMax)
	}
	var record []byte
	for i := range events {
		start := len(record)
		e := events[i]
		e.Seq = after + 1 + uint64(i)
		var err error
		if record, err = e.AppendJSON(record); err != nil {
			return nil, err
		}
		line := record[start:]
		if len(line) > EventBytesMax {
			return nil, errs.New(errs.Limit, "an event %q of %d bytes is over %d", e.Body.Kind(), len(line), EventBytesMax)
		}
		oneLine(line)
		if err := events[i].UnmarshalJSON(line); err != nil {
			return nil, errs.Wrap(errs.Invalid, err, "an event %q would not be readable", e.Body.Kind())
		}
		record = append(record, '\n')
	}
	if len(record) > AppendBytesMax {
		return nil, errs.New(errs.Limit, "an append of %d bytes is over %d", len(record), AppendBytesMax)
	}
	return record, nil
}

// oneLine replaces line ends, which JSON has only between its tokens; only the
// data of an Unknown can hold them.
func oneLine(b []byte) {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
}

// Decode reads a record that Encode made; first is the number that its first
// event must have. It refuses (Corrupt) any event that is not the next one.
func Decode(record []byte, first uint64) ([]Event, error) {
	events := make([]Event, 0, bytes.Count(record, []byte{'\n'}))
	for len(record) > 0 {
		line, rest, ok := bytes.Cut(record, []byte{'\n'})
		if !ok {
			return nil, errs.New(errs.Corrupt, "event %d: its record is torn", first)
		}
		record = rest
		var e Event
		if err := e.UnmarshalJSON(line); err != nil {
			return nil, errs.Wrap(errs.Of(err), err, "event %d: %s", first, errs.Public(err)).WithHint("%s", errs.Hint(err))
		}
		if e.Seq != first {
			return nil, errs.New(errs.Corrupt, "event %d: the record there has number %d", first, e.Seq)
		}
		events = append(events, e)
		first++
	}
	if len(events) == 0 {
		return nil, errs.New(errs.Corrupt, "event %d: an empty record", first)
	}
	return events, nil
}
