package llm

import (
	"encoding/json"
	"strings"
)

// Role says who speaks. Tool results are user messages that hold result blocks.
type Role string

// Roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Message is one contribution to the conversation: ordered blocks.
type Message struct {
	Role   Role    `json:"role"`
	Blocks []Block `json:"blocks"`
	// Cache is a hint: the prompt up to here will be sent again. Drivers use at
	// most as many hints as their vendor allows, the last ones first.
	Cache bool `json:"cache,omitempty"`
}

// Kind says what a Block holds.
type Kind string

// Kinds. The field of Block that each uses is named beside it.
const (
	KindText      Kind = "text"        // Text
	KindReasoning Kind = "reasoning"   // Text ("" when redacted or encrypted)
	KindCall      Kind = "tool_call"   // Call
	KindResult    Kind = "tool_result" // Result
	KindMedia     Kind = "media"       // Media
)

// Block is a part of a message.
type Block struct {
	Kind   Kind    `json:"kind"`
	Text   string  `json:"text,omitempty"`
	Call   *Call   `json:"call,omitempty"`
	Result *Result `json:"result,omitempty"`
	Media  *Media  `json:"media,omitempty"`
	Vendor *Vendor `json:"vendor,omitempty"`
	// Cache is the hint of Message.Cache for blocks of Request.System.
	Cache bool `json:"cache,omitempty"`
}

// Vendor is opaque data of a model vendor, echoed byte for byte to the same
// dialect and model family, dropped for any other.
type Vendor struct {
	Dialect string          `json:"dialect"` // "anthropic", "openai", "compat"
	Data    json.RawMessage `json:"data"`
}

// Call is a tool call that a model asked for. IDs are unique within a thread:
// the agent rewrites missing, malformed and repeated ones before it logs them.
type Call struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"` // what the model wrote; may be no valid JSON: then Raw is true
	// Raw: Args is a JSON string that holds what the model wrote, because that
	// was no JSON object. The agent answers such a call with an error result.
	Raw bool `json:"raw,omitempty"`
}

// Result answers a Call.
type Result struct {
	CallID string  `json:"call_id"`
	Name   string  `json:"name,omitempty"` // the tool's
	Blocks []Block `json:"blocks"`         // text and media
	Failed bool    `json:"failed,omitempty"`
}

// PDF is the MIME type of the documents that models take.
const PDF = "application/pdf"

// Media is an image, a sound or a document. In a log only its hash is kept;
// Data is filled in before a request is sent.
type Media struct {
	Type string `json:"type"`           // MIME type
	Hash string `json:"hash,omitempty"` // of a blob: sha256, hex
	Data []byte `json:"-"`
}

// NewCall returns the call that a model wrote. What is no JSON object becomes
// Raw; nothing at all, and null, mean no arguments; a JSON string that holds an
// object means the object.
func NewCall(id, name, written string) *Call {
	written = strings.ToValidUTF8(strings.TrimSpace(written), "\uFFFD")
	if written == "" || written == "null" {
		written = "{}"
	}
	if isObject(written) {
		return &Call{ID: id, Name: name, Args: json.RawMessage(written)}
	}
	var inner string
	if written[0] == '"' && json.Unmarshal([]byte(written), &inner) == nil && isObject(inner) {
		return &Call{ID: id, Name: name, Args: json.RawMessage(inner)}
	}
	raw, _ := json.Marshal(written) // a string always can
	return &Call{ID: id, Name: name, Args: raw, Raw: true}
}

func isObject(s string) bool { return s != "" && s[0] == '{' && json.Valid([]byte(s)) }

// Text returns a text block.
func Text(s string) Block { return Block{Kind: KindText, Text: s} }

// User returns a message of the user.
func User(text string) Message { return Message{Role: RoleUser, Blocks: []Block{Text(text)}} }

// Assistant returns a message of the model.
func Assistant(blocks ...Block) Message { return Message{Role: RoleAssistant, Blocks: blocks} }

// Results returns the message that answers calls, in their order.
func Results(results ...Result) Message {
	m := Message{Role: RoleUser}
	for i := range results {
		m.Blocks = append(m.Blocks, Block{Kind: KindResult, Result: &results[i]})
	}
	return m
}

// Calls returns the tool calls of a message in their order.
func (m Message) Calls() []*Call {
	var calls []*Call
	for _, b := range m.Blocks {
		if b.Kind == KindCall && b.Call != nil {
			calls = append(calls, b.Call)
		}
	}
	return calls
}

// String returns the text blocks of a message, joined.
func (m Message) String() string {
	var s strings.Builder
	for _, b := range m.Blocks {
		if b.Kind == KindText {
			s.WriteString(b.Text)
		}
	}
	return s.String()
}
