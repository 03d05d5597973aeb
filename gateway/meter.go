package gateway

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/skete-dev/skete/llm"
)

const (
	lineBytesMax  = 1 << 20 // of an event that is looked at
	replyBytesMax = 8 << 20 // of an answer that is no stream
	envelopeBytes = 200     // of an event, beside what it says
)

// meter counts what an answer cost while it passes by. It keeps one event at most. For one
// goroutine.
type meter struct {
	dialect dialect
	streams bool
	line    []byte
	skips   bool // the rest of a line that is too long
	whole   []byte
	told    tokens
	final   bool // the vendor told all
	events  int
	bytes   int
}

// tokens are as vendors tell them; each tells some.
type tokens struct {
	Input, Output, CacheRead, CacheWrite, Reasoning int
}

func newMeter(d dialect) *meter { return &meter{dialect: d} }

// begin says what comes.
func (m *meter) begin(contentType string) {
	m.streams = strings.HasPrefix(strings.ToLower(contentType), "text/event-stream")
}

// Write implements io.Writer; it never fails.
func (m *meter) Write(b []byte) (int, error) {
	n := len(b)
	m.bytes += n
	if !m.streams {
		if len(m.whole) < replyBytesMax {
			m.whole = append(m.whole, b...)
		}
		return n, nil
	}
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		part := b
		if i >= 0 {
			part = b[:i]
		}
		if m.skips = m.skips || len(m.line)+len(part) > lineBytesMax; !m.skips {
			m.line = append(m.line, part...)
		}
		if i < 0 {
			break
		}
		m.event(m.line)
		m.line, m.skips = m.line[:0], false
		b = b[i+1:]
	}
	return n, nil
}

// event looks at a line.
func (m *meter) event(line []byte) {
	data, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\r")), []byte("data:"))
	if !ok {
		return
	}
	m.events++
	if bytes.Contains(data, []byte(`"usage`)) { // or usageMetadata
		m.learn(data)
	}
}

// said is where vendors tell what a reply cost.
type said struct {
	Usage    *usage                  `json:"usage"`
	Message  *struct{ Usage *usage } `json:"message"`
	Response *struct{ Usage *usage } `json:"response"`
}

type usage struct {
	InputTokens         *int `json:"input_tokens"`
	OutputTokens        *int `json:"output_tokens"`
	CacheReadTokens     *int `json:"cache_read_input_tokens"`
	CacheCreationTokens *int `json:"cache_creation_input_tokens"`
	PromptTokens        *int `json:"prompt_tokens"`
	CompletionTokens    *int `json:"completion_tokens"`
	InputDetails        struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	PromptDetails struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	OutputDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
}

// learn takes what a piece of JSON tells. Later pieces tell more of the same reply.
func (m *meter) learn(data []byte) {
	if m.dialect == generate {
		m.learnGenerate(data)
		return
	}
	var s said
	if json.Unmarshal(data, &s) != nil {
		return
	}
	u := s.Usage
	if u == nil && s.Message != nil {
		u = s.Message.Usage
	}
	if u == nil && s.Response != nil {
		u = s.Response.Usage
	}
	if u == nil {
		return
	}
	m.final = m.final || s.Message == nil
	set(&m.told.Input, u.InputTokens, u.PromptTokens)
	set(&m.told.Output, u.OutputTokens, u.CompletionTokens)
	set(&m.told.CacheRead, u.CacheReadTokens)
	set(&m.told.CacheWrite, u.CacheCreationTokens)
	if m.dialect != messages { // there it is a part of the input
		m.told.CacheRead = max(m.told.CacheRead, u.InputDetails.Cached, u.PromptDetails.Cached)
	}
	m.told.Reasoning = max(m.told.Reasoning, u.OutputDetails.Reasoning)
}

func set(to *int, from ...*int) {
	for _, v := range from {
		if v != nil {
			*to = max(*to, *v)
		}
	}
}

// usage is what the answer cost. Where the vendor did not tell, or not to the end, it is
// a guess by what was sent, in tokens, and what came.
func (m *meter) usage(in int64, status int) llm.Usage {
	if status/100 != 2 {
		return llm.Usage{}
	}
	if !m.streams {
		m.learn(m.whole)
	}
	m.event(m.line) // it may end without a new line
	u := llm.Usage{Input: m.told.Input, Output: m.told.Output, CacheRead: m.told.CacheRead, CacheWrite: m.told.CacheWrite, Reasoning: m.told.Reasoning}
	if m.dialect != messages {
		u.Input -= min(u.CacheRead, u.Input)
	}
	if came := m.came(); !m.final && u.Output < came {
		u.Output, u.Estimated = came, true
	}
	if u.Input+u.CacheRead+u.CacheWrite == 0 {
		u.Input, u.Estimated = int(in), true
	}
	return u
}

// came guesses how many tokens came: an event is one at least.
func (m *meter) came() int {
	if !m.streams {
		return m.bytes / bytesPerToken
	}
	return max(m.events, (m.bytes-m.events*envelopeBytes)/bytesPerToken) / 2
}
