package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// Vendor data of this dialect is {"model":ID,"item":ITEM}: which model was
// asked, and of its output item
//   - reasoning: the whole item as the vendor wrote it,
//   - messages and calls: the id, the status and the phase. Their texts and
//     arguments are the block's own.
//
// The model stands first, so that the item of a long history is found without
// reading it: reasoning that only the vendor understands is most of the bytes.

// markOf is how data of a model begins.
func markOf(id string) string {
	return `{"model":` + string(fault.AppendString(nil, id)) + `,"item":`
}

func (m *Model) vendor(item []byte) *llm.Vendor {
	data := append([]byte(m.mark), item...)
	return &llm.Vendor{Dialect: dialect, Data: append(data, '}')}
}

// item returns the vendor's item of a block, nil if the block is another
// dialect's or another model's: reasoning is sealed for the model that made it.
func (m *Model) item(v *llm.Vendor) json.RawMessage {
	if v == nil || v.Dialect != dialect {
		return nil
	}
	if rest, ok := bytes.CutPrefix(v.Data, []byte(m.mark)); ok && len(rest) > 1 && rest[len(rest)-1] == '}' {
		return json.RawMessage(rest[:len(rest)-1])
	}
	var data struct { // white space, or another order of the keys
		Model string          `json:"model"`
		Item  json.RawMessage `json:"item"`
	}
	if json.Unmarshal(v.Data, &data) != nil || data.Model != m.c.Info.ID {
		return nil
	}
	return data.Item
}

// label is what is kept of a message or a call beside its content.
type label struct {
	ID     string `json:"id,omitempty"`
	Status string `json:"status,omitempty"`
	Phase  string `json:"phase,omitempty"`
}

// label returns the members of a block's label as they stand in an item:
// `,"id":"msg_1","status":"completed"`, nil if there is none. Without the id if
// the vendor must not look for what belongs to it.
func (m *Model) label(v *llm.Vendor, withoutID bool) []byte {
	item := m.item(v)
	if len(item) > 2 && item[1] != '"' { // it is indented
		var b bytes.Buffer
		if json.Compact(&b, item) != nil {
			return nil
		}
		item = b.Bytes()
	}
	if len(item) < 2 || item[0] != '{' || string(item) == "{}" {
		return nil
	}
	if withoutID {
		var l label
		if json.Unmarshal(item, &l) != nil || l.Phase == "" {
			return nil
		}
		return appendMember(nil, "phase", l.Phase)
	}
	// Spliced in as we wrote it: a long history has thousands of these.
	return append([]byte{','}, item[1:len(item)-1]...)
}

// reasons reports whether a model reasons. The vendor's older ones do not, and
// refuse the fields of those that do.
func reasons(id string) bool {
	id = strings.ToLower(id)
	for _, old := range []string{"gpt-3", "gpt-4", "chatgpt", "gpt-5-chat"} {
		if strings.HasPrefix(id, old) {
			return false
		}
	}
	return true
}
