package mcp

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// This file answers calls of tools that only read. The SDK makes a session for each
// request, in which it parses the request several times, each with a buffer of 32 KiB:
// for a small file that costs as much as to read it. A call whose answer is one message
// needs none of that; all else is the SDK's.

// quickVersions of the protocol are those in which a result is nothing but what a tool says.
var quickVersions = []string{"2025-03-26", "2025-06-18", "2025-11-25"}

// answered is a response of JSON-RPC.
type answered struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result"`
}

// texts is a result of texts alone: the SDK's own copies each text four times.
type texts struct {
	Content []text `json:"content"`
	IsError bool   `json:"isError,omitempty"`
}

type text struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// written is what is written of a result.
func written(res *sdk.CallToolResult) any {
	t := texts{Content: make([]text, 0, len(res.Content)), IsError: res.IsError}
	for _, c := range res.Content {
		one, is := c.(*sdk.TextContent)
		if !is {
			return res
		}
		t.Content = append(t.Content, text{"text", one.Text})
	}
	return t
}

// quick answers a call if it can; false: the SDK has to, which also says what is wrong
// with a request.
func (h *Handler) quick(w http.ResponseWriter, r *http.Request, body []byte) bool {
	if !plain(r.Header) {
		return false
	}
	m, ok := brief(body)
	c := callOf(r.Context())
	i := slices.IndexFunc(tools(), func(t *tool) bool { return t.name == m.name })
	if !ok || i < 0 || tools()[i].hints&reads == 0 || !allows(c.scopes, tools()[i].scope) {
		return false
	}
	res := h.server(c.scopes).call(r.Context(), tools()[i], c.program, m.arguments)
	data, err := json.Marshal(answered{"2.0", m.id, written(res)})
	if err != nil {
		return false // it changed nothing: the SDK may try
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // a client that is gone need not know
	return true
}

// briefly is a call of a tool, and nothing more.
type briefly struct {
	id, arguments json.RawMessage
	name          string
}

// brief reads a call as the SDK does; false: it is none, or it says something else too.
// Names are told apart by their case, which a struct's fields are not.
func brief(body []byte) (c briefly, ok bool) {
	if !utf8.Valid(body) {
		return c, false
	}
	m, ok := fields(body, "jsonrpc", "id", "method", "params")
	if !ok || wordOf(m["jsonrpc"]) != "2.0" || wordOf(m["method"]) != "tools/call" || !isID(m["id"]) {
		return c, false
	}
	params, ok := fields(m["params"], "name", "arguments")
	return briefly{m["id"], params["arguments"], wordOf(params["name"])}, ok
}

// fields reads one that has no names but these.
func fields(data []byte, names ...string) (map[string]json.RawMessage, bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(data, &m) != nil {
		return nil, false
	}
	for name := range m {
		if !slices.Contains(names, name) {
			return nil, false
		}
	}
	return m, true
}

// wordOf is a text; "" if it is none.
func wordOf(data json.RawMessage) (s string) {
	_ = json.Unmarshal(data, &s)
	return s
}

// plain reports whether headers are those of a call that can be answered by one message.
func plain(h http.Header) bool {
	accept := strings.Join(h.Values("Accept"), ",")
	return h.Get("Content-Type") == "application/json" && slices.Contains(quickVersions, h.Get("Mcp-Protocol-Version")) &&
		strings.Contains(accept, "application/json") && strings.Contains(accept, "text/event-stream")
}

// isID reports whether a call's id is a text or a whole number.
func isID(id json.RawMessage) bool {
	if len(id) == 0 {
		return false
	}
	var n int64
	return id[0] == '"' || json.Unmarshal(id, &n) == nil && id[0] != 'n'
}
