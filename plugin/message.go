package plugin

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// Protocol is the version of the protocol: a plug-in answers `initialize` with the same.
const Protocol = 1

// Methods.
const (
	methodInitialize = "initialize"     // request
	methodHook       = "hook"           // request
	methodGenerate   = "model/generate" // request
	methodDelta      = "model/delta"    // notification of the plug-in
	methodCancel     = "cancel"         // notification of the host
	methodShutdown   = "shutdown"       // notification of the host
)

// Bounds of messages.
const (
	FrameBytesMax   = 8 << 20  // of a line that a plug-in writes
	requestBytesMax = 32 << 20 // of a line that it is sent
	errorTextMax    = 2 << 10  // of what it says of an error
	retryAfterMax   = time.Hour
)

// message is a line of either side: a request has a method and an id, a notification a method
// alone, an answer an id and a result or an error.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      *int64          `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

// heard is a message that a plug-in wrote. What both kinds of JSON-RPC messages may leave out
// can be told from what is null.
type heard struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *rpcError       `json:"error"`

	id int64 // of an answer, or that a delta belongs to; 0 = none
}

// rpcError is why a plug-in did not do something.
type rpcError struct {
	Code    int       `json:"code"`
	Message string    `json:"message"`
	Data    errorData `json:"data,omitzero"`
}

// errorData says what a caller can do about it.
type errorData struct {
	Trouble      llm.Trouble `json:"trouble,omitempty"` // of a model; see llm.Trouble
	Status       int         `json:"status,omitempty"`  // of HTTP, that the vendor answered
	RetryAfterMS int64       `json:"retry_after_ms,omitempty"`
	URL          string      `json:"url,omitempty"` // that was asked
}

// delta is a piece of an answer on its way.
type delta struct {
	ID    int64         `json:"id"` // of the request
	Kind  llm.DeltaKind `json:"kind"`
	Index int           `json:"index"`
	Call  string        `json:"call_id"`
	Name  string        `json:"name"`
	Text  string        `json:"text"`
}

func errNonsense(format string, args ...any) error {
	return errs.New(errs.Unavailable, "the plug-in wrote what makes no sense: "+format, args...)
}

// parse reads a line of a plug-in. An error means that nothing that follows can be trusted.
func parse(line []byte) (heard, error) {
	var h heard
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' {
		return h, errNonsense("%.60q is no JSON object", line)
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, errNonsense("%.60q is no message: %v", line, err)
	}
	if h.Version != "2.0" {
		return h, errNonsense("a message says jsonrpc %.20q, not 2.0", h.Version)
	}
	hasID := len(h.ID) > 0 && string(h.ID) != "null"
	switch {
	case h.Method != nil && (h.Result != nil || h.Error != nil):
		return h, errNonsense("a message has a method and an answer")
	case h.Method != nil:
		return h, nil
	case !hasID:
		if h.Error != nil { // JSON-RPC's answer to what it could not read
			return h, errNonsense("it could not read what it was sent: %.200s", h.Error.Message)
		}
		return h, errNonsense("a message has neither a method nor an id")
	case (h.Result == nil) == (h.Error == nil):
		return h, errNonsense("an answer has a result or an error")
	}
	if json.Unmarshal(h.ID, &h.id) != nil || h.id <= 0 {
		return h, errNonsense("%.40q is no id of a request", h.ID)
	}
	return h, nil
}

// parseDelta reads the parameters of model/delta.
func parseDelta(params json.RawMessage) (delta, error) {
	var d delta
	if err := json.Unmarshal(params, &d); err != nil {
		return d, errNonsense("a %s: %v", methodDelta, err)
	}
	switch d.Kind {
	case llm.DeltaText, llm.DeltaReasoning, llm.DeltaCall, llm.DeltaArgs:
	default:
		return d, errNonsense("a %s of kind %.40q", methodDelta, d.Kind)
	}
	if d.ID <= 0 {
		return d, errNonsense("a %s without the id of its request", methodDelta)
	}
	return d, nil
}

// line writes a message for a plug-in. Limit: it is too long.
func line(m message) ([]byte, error) {
	m.Version = "2.0"
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil { // it ends the line
		return nil, errs.Wrap(errs.Internal, err, "a message for a plug-in cannot be written")
	}
	if b.Len() > requestBytesMax {
		return nil, errs.New(errs.Limit, "a message for a plug-in would have %d bytes, at most %d", b.Len(), requestBytesMax)
	}
	return b.Bytes(), nil
}

// troubles are those that a plug-in may name.
var troubles = map[llm.Trouble]bool{
	llm.RateLimited: true, llm.Overloaded: true, llm.Transport: true, llm.Malformed: true,
	llm.Overflow: true, llm.Refused: true, llm.BadRequest: true,
}

// ofModel is the error as one of a model.
func (e *rpcError) ofModel(model string, req *llm.Request) *llm.Error {
	said := e.Message[:min(len(e.Message), errorTextMax)]
	out := fault.Said(model, max(e.Data.Status, 0), said, req)
	if troubles[e.Data.Trouble] {
		out.Trouble = e.Data.Trouble
	}
	if out.Trouble == llm.Overflow && out.WindowTokens == 0 {
		out.WindowTokens, out.PromptTokens = fault.Sizes(said)
	}
	if ms := e.Data.RetryAfterMS; ms > 0 {
		out.RetryAfter = min(time.Duration(min(ms, retryAfterMax.Milliseconds()))*time.Millisecond, retryAfterMax)
	}
	out.URL = fault.Address(e.Data.URL)
	return out
}
