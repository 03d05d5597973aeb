package thread

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Version of the events that this program writes. A known kind with a newer
// version is refused (Unsupported): guessing what it means could repeat an
// effect. A kind that is not known is kept as Unknown and skipped.
const Version = 1

// Kind names what an event tells.
type Kind string

// Body is the content of an event: one of the types of this package.
type Body interface{ Kind() Kind }

// Event is one entry of a thread's log.
type Event struct {
	Seq  uint64    // its number in the thread, from 1; the log sets it
	At   time.Time // when it was made, UTC
	Run  RunID     // "" before the first run
	Body Body
}

// New returns an event of now.
func New(run RunID, body Body) Event {
	return Event{At: time.Now().UTC().Truncate(time.Microsecond), Run: run, Body: body}
}

// wireEvent is the JSON of an event in a log.
type wireEvent struct {
	Seq  uint64          `json:"seq"`
	V    int             `json:"v"`
	Kind Kind            `json:"kind"`
	At   time.Time       `json:"at"`
	Run  RunID           `json:"run"`
	Data json.RawMessage `json:"data"`
}

// jsonBytesMax bounds what is parsed as one event: far more than EventBytesMax,
// so that a log written with a larger bound can still be read.
const jsonBytesMax = 1 << 20

// MarshalJSON writes {"seq","v","kind","at","run","data"}.
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil) }

// AppendJSON appends what MarshalJSON writes. Unlike json.Marshal, which
// rewrites what a MarshalJSON returns, it keeps the data of an Unknown and
// every "<" byte for byte; so logs use it.
func (e Event) AppendJSON(b []byte) ([]byte, error) {
	if e.Body == nil {
		return b, errs.New(errs.Internal, "an event without a body")
	}
	kind, v, data := e.Body.Kind(), Version, []byte(nil)
	if u, ok := e.Body.(Unknown); ok {
		if len(u.Data) > 0 && !json.Valid(u.Data) {
			return b, errs.New(errs.Invalid, "the data of an event %q is no JSON", u.Name)
		}
		v, data = u.V, u.Data
	}
	at, err := e.At.UTC().MarshalJSON()
	if err != nil {
		return b, errs.Wrap(errs.Invalid, err, "the time of an event cannot be written")
	}
	b = append(b, '{')
	if e.Seq != 0 {
		b = append(b, `"seq":`...)
		b = append(strconv.AppendUint(b, e.Seq, 10), ',')
	}
	b = append(b, `"v":`...)
	b = strconv.AppendInt(b, int64(v), 10)
	b = append(b, `,"kind":`...)
	if b, err = appendValue(b, kind); err != nil {
		return b, err
	}
	b = append(append(b, `,"at":`...), at...)
	if e.Run != "" {
		b = append(b, `,"run":`...)
		if b, err = appendValue(b, e.Run); err != nil {
			return b, err
		}
	}
	switch e.Body.(type) {
	case Unknown:
		if len(data) > 0 {
			b = append(append(b, `,"data":`...), data...)
		}
	default:
		b = append(b, `,"data":`...)
		if b, err = appendValue(b, e.Body); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// appendValue appends the JSON of v without the escapes that make it safe in
// HTML: what a model wrote comes back as it was.
func appendValue(b []byte, v any) ([]byte, error) {
	w := (*appender)(&b)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return b, errs.Wrap(errs.Invalid, err, "an event cannot be written as JSON")
	}
	return b[:len(b)-1], nil // without the newline
}

type appender []byte

func (a *appender) Write(p []byte) (int, error) { *a = append(*a, p...); return len(p), nil }

// UnmarshalJSON is strict about what it knows and keeps what it does not.
// Corrupt: it is no event. Unsupported: a newer skete wrote it.
func (e *Event) UnmarshalJSON(b []byte) error {
	if len(b) > jsonBytesMax {
		return errs.New(errs.Limit, "an event of %d bytes is over %d", len(b), jsonBytesMax)
	}
	w, ok := cutEnvelope(b)
	if !ok {
		if err := json.Unmarshal(b, &w); err != nil {
			return errs.Wrap(errs.Corrupt, err, "an event is no JSON")
		}
	}
	if w.Kind == "" || w.V <= 0 {
		return errs.New(errs.Corrupt, "an event without kind or version")
	}
	body, err := decode(w)
	if err != nil {
		return err
	}
	*e = Event{Seq: w.Seq, At: w.At.UTC(), Run: w.Run, Body: body}
	return nil
}

// cutEnvelope takes an event apart that looks just as AppendJSON writes those
// of known kinds, in half the time that it takes to parse it. Whatever looks
// different in any way is left to the parser; so is the body.
func cutEnvelope(b []byte) (w wireEvent, ok bool) {
	c := cutter{b: b, ok: true}
	c.cut(`{"seq":`)
	seq := c.until(',')
	c.cut(`"v":`)
	v := c.until(',')
	c.cut(`"kind":"`)
	kind := c.until('"')
	c.cut(`,"at":"`)
	at := c.until('"')
	run := []byte(nil)
	if bytes.HasPrefix(c.b, []byte(`,"run":"`)) {
		c.cut(`,"run":"`)
		run = c.until('"')
	}
	c.cut(`,"data":{`)
	if !c.ok || len(c.b) < 2 || c.b[len(c.b)-1] != '}' || !plain(kind) || !plain(run) || len(v) != 1 || v[0] != '0'+Version {
		return w, false
	}
	if _, known := bodies[Kind(kind)]; !known {
		return w, false
	}
	data := b[len(b)-len(c.b)-1 : len(b)-1]
	n, err := strconv.ParseUint(string(seq), 10, 64)
	t, terr := time.Parse(time.RFC3339Nano, string(at))
	if err != nil || terr != nil || n == 0 || seq[0] == '0' || seq[0] == '+' {
		return w, false
	}
	return wireEvent{Seq: n, V: Version, Kind: Kind(kind), At: t, Run: RunID(run), Data: data}, true
}

// cutter takes bytes apart from the front.
type cutter struct {
	b  []byte
	ok bool
}

func (c *cutter) cut(prefix string) {
	rest, ok := bytes.CutPrefix(c.b, []byte(prefix))
	c.b, c.ok = rest, c.ok && ok
}

// until returns what stands before the next end, and cuts both off.
func (c *cutter) until(end byte) []byte {
	at := bytes.IndexByte(c.b, end)
	if at < 0 {
		c.ok = false
		return nil
	}
	head := c.b[:at]
	c.b = c.b[at+1:]
	return head
}

// plain reports whether a string of JSON stands for itself.
func plain(s []byte) bool {
	for _, c := range s {
		if c < 0x20 || c >= 0x7f || c == '\\' {
			return false
		}
	}
	return true
}

func decode(w wireEvent) (Body, error) {
	read, known := bodies[w.Kind]
	if !known {
		return Unknown{Name: w.Kind, V: w.V, Data: w.Data}, nil
	}
	if w.V > Version {
		return nil, errs.New(errs.Unsupported, "an event %q of version %d was written by a newer skete", w.Kind, w.V).
			WithHint("run a version that is at least as new as the one that wrote it")
	}
	body, err := read(w.Data)
	if err != nil {
		return nil, errs.Wrap(errs.Corrupt, err, "an event %q cannot be read", w.Kind)
	}
	return body, nil
}

// as decodes a body of type T.
func as[T Body](data json.RawMessage) (Body, error) {
	var v T
	if len(data) == 0 || data[0] != '{' {
		return nil, errors.New("its data is no object")
	}
	err := json.Unmarshal(data, &v)
	return v, err
}

// bodies lists every kind that is known.
var bodies = map[Kind]func(json.RawMessage) (Body, error){
	Opened{}.Kind():          as[Opened],
	RunStarted{}.Kind():      as[RunStarted],
	RunEnded{}.Kind():        as[RunEnded],
	Claimed{}.Kind():         as[Claimed],
	Input{}.Kind():           as[Input],
	Context{}.Kind():         as[Context],
	ModelCompleted{}.Kind():  as[ModelCompleted],
	ModelFailed{}.Kind():     as[ModelFailed],
	ToolStarted{}.Kind():     as[ToolStarted],
	ToolCompleted{}.Kind():   as[ToolCompleted],
	ApprovalAsked{}.Kind():   as[ApprovalAsked],
	ApprovalDecided{}.Kind(): as[ApprovalDecided],
	Cleared{}.Kind():         as[Cleared],
	Compacted{}.Kind():       as[Compacted],
	CompactAsked{}.Kind():    as[CompactAsked],
	CheckStarted{}.Kind():    as[CheckStarted],
	CheckEnded{}.Kind():      as[CheckEnded],
	Rewound{}.Kind():         as[Rewound],
	CancelAsked{}.Kind():     as[CancelAsked],
	BudgetChanged{}.Kind():   as[BudgetChanged],
	PolicyChanged{}.Kind():   as[PolicyChanged],
	Bound{}.Kind():           as[Bound],
	NetworkRefused{}.Kind():  as[NetworkRefused],

	WorkflowStarted{}.Kind():   as[WorkflowStarted],
	WorkflowCancelled{}.Kind(): as[WorkflowCancelled],
	WorkflowEnded{}.Kind():     as[WorkflowEnded],
	NodeStarted{}.Kind():       as[NodeStarted],
	NodeEnded{}.Kind():         as[NodeEnded],
	NodeAnswered{}.Kind():      as[NodeAnswered],
}

// Unknown is an event of a kind that a newer program writes.
type Unknown struct {
	Name Kind
	V    int
	Data json.RawMessage
}

// Kind implements Body.
func (u Unknown) Kind() Kind { return u.Name }
