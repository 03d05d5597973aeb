package thread

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	Seq  uint64          `json:"seq,omitempty"`
	V    int             `json:"v"`
	Kind Kind            `json:"kind"`
	At   time.Time       `json:"at"`
	Run  RunID           `json:"run,omitempty"`
	Data json.RawMessage `json:"data"`
}

// MarshalJSON writes {"seq","v","kind","at","run","data"}.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.Body == nil {
		return nil, errs.New(errs.Internal, "an event without a body")
	}
	w := wireEvent{Seq: e.Seq, V: Version, Kind: e.Body.Kind(), At: e.At, Run: e.Run}
	var err error
	if u, ok := e.Body.(Unknown); ok {
		w.V, w.Data = u.V, u.Data
	} else if w.Data, err = json.Marshal(e.Body); err != nil {
		return nil, err
	}
	return json.Marshal(w)
}

// UnmarshalJSON is strict about what it knows and keeps what it does not.
func (e *Event) UnmarshalJSON(b []byte) error {
	var w wireEvent
	if err := json.Unmarshal(b, &w); err != nil {
		return errs.Wrap(errs.Corrupt, err, "an event is no JSON")
	}
	if w.Kind == "" || w.V <= 0 {
		return errs.New(errs.Corrupt, "an event without kind or version")
	}
	body, err := decode(w)
	if err != nil {
		return err
	}
	*e = Event{Seq: w.Seq, At: w.At, Run: w.Run, Body: body}
	return nil
}

func decode(w wireEvent) (Body, error) {
	make, known := bodies[w.Kind]
	if !known {
		return Unknown{Name: w.Kind, V: w.V, Data: bytes.Clone(w.Data)}, nil
	}
	if w.V > Version {
		return nil, errs.New(errs.Unsupported, "an event %q of version %d was written by a newer skete", w.Kind, w.V).
			WithHint("run a version that is at least as new as the one that wrote it")
	}
	body, err := make(w.Data)
	if err != nil {
		return nil, errs.Wrap(errs.Corrupt, err, "an event %q cannot be read", w.Kind)
	}
	return body, nil
}

// as decodes a body of type T.
func as[T Body](data json.RawMessage) (Body, error) {
	var v T
	if len(data) == 0 {
		return nil, fmt.Errorf("no data")
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
	Rewound{}.Kind():         as[Rewound],
	CancelAsked{}.Kind():     as[CancelAsked],
	BudgetChanged{}.Kind():   as[BudgetChanged],
	PolicyChanged{}.Kind():   as[PolicyChanged],
	Bound{}.Kind():           as[Bound],
}

// Unknown is an event of a kind that a newer program writes.
type Unknown struct {
	Name Kind
	V    int
	Data json.RawMessage
}

// Kind implements Body.
func (u Unknown) Kind() Kind { return u.Name }
