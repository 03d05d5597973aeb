package client

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// Bounds of what a model is told of a tool.
const (
	toolNameMax         = 64
	descriptionBytesMax = 4 << 10
	schemaBytesMax      = 32 << 10
	schemaDepthMax      = 32
)

// prefix is how the names of all our tools begin.
const prefix = "mcp__"

// data is what a Call has to know.
type data struct {
	Server string `json:"server"`
	Tool   string `json:"tool,omitempty"` // as the server calls it; "" = one that all servers share
	Form   string `json:"form,omitempty"`
}

// external makes a tool of the server's one. An error says why there is none.
func external(server string, conf Server, t *sdk.Tool) (tool.External, error) {
	schema, err := cleanSchema(t.InputSchema)
	if err != nil {
		return tool.External{}, err
	}
	form, err := formOf(t)
	if err != nil {
		return tool.External{}, err
	}
	d, err := json.Marshal(data{Server: server, Tool: t.Name, Form: form})
	if err != nil {
		return tool.External{}, err
	}
	about := cleanText(cmp.Or(t.Description, t.Title), descriptionBytesMax)
	class, asks := conf.effect(t.Annotations)
	return tool.External{
		Source: Name, Class: class, Asks: asks, Inquires: true, Data: d,
		Spec: llm.ToolSpec{Name: toolName(server, t.Name), Description: about, Schema: schema},
	}, nil
}

// effect is what a call may do, as far as the operator lets the server say so. A repetition
// is never taken to be harmless because a server says so: its tool may well be idempotent,
// and the world have changed between.
func (s Server) effect(a *sdk.ToolAnnotations) (class tool.Class, asks bool) {
	class = tool.Once
	if s.Trust && a != nil && a.ReadOnlyHint {
		class = tool.Read
	}
	switch s.Approval {
	case approveAlways:
		return class, true
	case approveNever:
		return class, false
	}
	return class, s.URL != "" && class != tool.Read
}

// formOf is a tool as it was found.
func formOf(t *sdk.Tool) (string, error) {
	text, err := json.Marshal([]any{t.Name, t.Title, t.Description, t.InputSchema, t.Annotations})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// toolName is the name of a server's tool for the model. One that has to be changed or cut
// ends with a hash of what it was, so that no two are the same.
func toolName(server, name string) string {
	clean := strings.Map(func(r rune) rune {
		if r < 128 && (r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, name)
	whole := prefix + server + "__" + clean
	if clean == name && len(whole) <= toolNameMax && name != "" {
		return whole
	}
	end := "_" + short(name)
	return whole[:min(len(whole), toolNameMax-len(end))] + end
}

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:5])
}

// cleanText is a text without what could hide or forge something on a screen.
func cleanText(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r' || unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return clip.Text(s, n)
}

// cleanSchema is the schema of a tool's arguments: an object, bounded.
func cleanSchema(given any) (json.RawMessage, error) {
	text, err := json.Marshal(given)
	if err != nil {
		return nil, errors.New("its schema is no JSON")
	}
	if bytes.Equal(text, []byte("null")) {
		return json.RawMessage(`{"type":"object"}`), nil
	}
	if len(text) > schemaBytesMax {
		return nil, fmt.Errorf("its schema has %d bytes, at most %d", len(text), schemaBytesMax)
	}
	var s map[string]any
	if json.Unmarshal(text, &s) != nil {
		return nil, errors.New("its schema is no object")
	}
	if kind, ok := s["type"]; ok && kind != "object" {
		return nil, errors.New("its schema is not of an object")
	}
	s["type"] = "object"
	clean, err := cleanValue(s, schemaDepthMax)
	if err != nil {
		return nil, err
	}
	return json.Marshal(clean)
}

// cleanValue cleans the texts of a schema, and refuses one that is too deep or refers to
// another document.
func cleanValue(v any, depth int) (any, error) {
	if depth == 0 {
		return nil, fmt.Errorf("its schema is deeper than %d", schemaDepthMax)
	}
	var err error
	switch v := v.(type) {
	case string:
		return cleanText(v, descriptionBytesMax), nil
	case []any:
		for i := range v {
			if v[i], err = cleanValue(v[i], depth-1); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		delete(v, "$schema")
		delete(v, "$id")
		if ref, ok := v["$ref"].(string); ok && !strings.HasPrefix(ref, "#") {
			return nil, errors.New("its schema refers to another document")
		}
		for k := range v {
			if v[k], err = cleanValue(v[k], depth-1); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// parseProgress reads a notification; nil = it is none.
func parseProgress(params json.RawMessage) *sdk.ProgressNotificationParams {
	p := &sdk.ProgressNotificationParams{}
	if len(params) > progressBytesMax || json.Unmarshal(params, p) != nil {
		return nil
	}
	return p
}

const progressBytesMax = 16 << 10
