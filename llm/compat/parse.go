package compat

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/llm"
)

// textTools are those that were offered, with the types of their arguments.
type textTools map[string]map[string]string

func newTextTools(specs []llm.ToolSpec) textTools {
	known := textTools{}
	for _, s := range specs {
		known[s.Name] = argTypes(s.Schema)
	}
	return known
}

// argTypes returns the types that a schema gives to properties, where it names
// one type.
func argTypes(schema json.RawMessage) map[string]string {
	var shape struct {
		Properties map[string]struct {
			Type json.RawMessage `json:"type"`
		} `json:"properties"`
	}
	types := map[string]string{}
	if json.Unmarshal(schema, &shape) == nil {
		for name, p := range shape.Properties {
			types[name] = str(p.Type)
		}
	}
	return types
}

// parse reads what stands between a marker and its end.
func (t textTools) parse(m *callMarker, inner string) ([]textCall, bool) {
	inner = strings.TrimSpace(inner)
	switch {
	case m.start == "<function=":
		return t.parseFunction(inner)
	case m.fence:
		return t.parseJSON(strings.TrimPrefix(inner, "s"), true) // ```tool_calls
	case m.start == "[TOOL_CALLS]":
		if calls, ok := t.parseJSON(inner, false); ok {
			return calls, true
		}
		return parseNamed(inner)
	case m.start == "<|python_tag|>":
		return t.parseJSON(inner, false)
	}
	if calls, ok := t.parseJSON(inner, false); ok {
		return calls, true
	}
	if rest, ok := strings.CutPrefix(inner, "<function="); ok {
		return t.parseFunction(strings.TrimSpace(strings.TrimSuffix(rest, "</function>")))
	}
	return t.parseKeys(inner)
}

// parseUnclosed reads a call whose end is missing; rest is what follows it.
func (t textTools) parseUnclosed(m *callMarker, inner string) (calls []textCall, rest string, ok bool) {
	if m.start == "<function=" {
		calls, ok = t.parseFunction(strings.TrimSpace(inner))
		return calls, "", ok
	}
	value, rest, ok := firstJSON(strings.TrimPrefix(strings.TrimSpace(inner), "s\n"))
	if !ok {
		return nil, "", false
	}
	if strings.TrimSpace(rest) == m.end {
		rest = ""
	}
	calls, ok = t.parseJSON(value, m.fence)
	return calls, rest, ok
}

// firstJSON cuts the JSON object or list off that s begins with.
func firstJSON(s string) (value, rest string, ok bool) {
	s = strings.TrimSpace(s)
	if s == "" || s[0] != '{' && s[0] != '[' {
		return "", "", false
	}
	var raw json.RawMessage
	d := json.NewDecoder(strings.NewReader(s))
	if d.Decode(&raw) != nil {
		return "", "", false
	}
	return s[:d.InputOffset()], s[d.InputOffset():], true
}

// writtenCall is a call as models write it, under the names that they use.
type writtenCall struct {
	Name        json.RawMessage `json:"name"`
	ToolName    json.RawMessage `json:"tool_name"`
	Tool        json.RawMessage `json:"tool"`
	Function    json.RawMessage `json:"function"`
	Arguments   json.RawMessage `json:"arguments"`
	Parameters  json.RawMessage `json:"parameters"`
	Args        json.RawMessage `json:"args"`
	Input       json.RawMessage `json:"input"`
	Description json.RawMessage `json:"description"` // then it is a definition
}

// parseJSON reads one call, a list of calls, or several calls in a row, and
// nothing beside them. strict: only tools that exist, and only with arguments,
// for nothing else says that a call is meant.
func (t textTools) parseJSON(s string, strict bool) ([]textCall, bool) {
	var calls []textCall
	d := json.NewDecoder(strings.NewReader(strings.TrimSpace(s)))
	for {
		var raw json.RawMessage
		switch err := d.Decode(&raw); {
		case err == io.EOF:
			return calls, len(calls) > 0
		case err != nil || len(calls) > callsMax:
			return nil, false
		}
		list := []json.RawMessage{raw}
		if raw[0] == '[' && json.Unmarshal(raw, &list) != nil {
			return nil, false
		}
		for _, one := range list {
			call, ok := t.parseOne(one, strict)
			if !ok {
				return nil, false
			}
			calls = append(calls, call)
		}
	}
}

func (t textTools) parseOne(raw json.RawMessage, strict bool) (textCall, bool) {
	var w writtenCall
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &w) != nil || len(w.Description) > 0 {
		return textCall{}, false
	}
	if isObject(w.Function) { // as the API has it
		return t.parseOne(w.Function, strict)
	}
	name := firstText(str(w.Name), str(w.ToolName), str(w.Tool), str(w.Function))
	args := firstText(string(w.Arguments), string(w.Parameters), string(w.Args), string(w.Input))
	if inner := str(json.RawMessage(args)); inner != "" {
		args = inner // a string that holds JSON
	}
	if args == "" && !strict {
		args = "{}"
	}
	if _, offered := t[name]; name == "" || strict && (!offered || !isObject(json.RawMessage(args))) {
		return textCall{}, false
	}
	return textCall{name, args}, true
}

func firstText(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

var toolName = pattern.Lazy(`^[A-Za-z0-9_.:-]{1,128}$`)

// parseFunction reads name>{…} and name><parameter=k>v</parameter>….
func (t textTools) parseFunction(s string) ([]textCall, bool) {
	name, body, ok := strings.Cut(s, ">")
	name, body = strings.Trim(name, `"' `), strings.TrimSpace(body)
	if !ok || !toolName().MatchString(name) {
		return nil, false
	}
	if body == "" {
		return []textCall{{name, "{}"}}, true
	}
	if value, rest, ok := firstJSON(body); ok && strings.TrimSpace(rest) == "" && value[0] == '{' {
		return []textCall{{name, value}}, true
	}
	args, ok := t.pairs(name, body, "<parameter=", ">", "</parameter>")
	return []textCall{{name, args}}, ok
}

// parseKeys reads name<arg_key>k</arg_key><arg_value>v</arg_value>….
func (t textTools) parseKeys(s string) ([]textCall, bool) {
	name, body, _ := strings.Cut(s, "<arg_key>")
	if name = strings.TrimSpace(name); !toolName().MatchString(name) || body == "" {
		return nil, false
	}
	body = strings.ReplaceAll(body, "</arg_key>\n<arg_value>", "</arg_key><arg_value>")
	args, ok := t.pairs(name, "<arg_key>"+body, "<arg_key>", "</arg_key><arg_value>", "</arg_value>")
	return []textCall{{name, args}}, ok
}

// pairs reads keys and values between marks. A value is text unless the
// tool's schema says otherwise and it is JSON.
func (t textTools) pairs(tool, s, start, mid, end string) (string, bool) {
	args := []byte{'{'}
	seen := map[string]bool{}
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		rest, ok := strings.CutPrefix(s, start)
		k, rest, ok2 := strings.Cut(rest, mid)
		v, after, ok3 := strings.Cut(rest, end)
		k = strings.TrimSpace(k)
		if !ok || !ok2 || !ok3 || k == "" || seen[k] {
			return "", false
		}
		if seen[k] = true; len(args) > 1 {
			args = append(args, ',')
		}
		args = append(append(quoteJSON(args, k), ':'), t.value(tool, k, v)...)
		s = after
	}
	return string(append(args, '}')), true
}

func (t textTools) value(tool, k, v string) []byte {
	v = strings.TrimSuffix(strings.TrimPrefix(v, "\n"), "\n")
	kind, known := t[tool][k]
	plain := []byte(strings.TrimSpace(v))
	if kind != "string" && (known || bytes.IndexAny(plain, "{[") == 0) && json.Valid(plain) {
		return plain
	}
	return quoteJSON(nil, v)
}

// parseNamed reads name{…} and name[ARGS]{…}, one or several in a row.
func parseNamed(s string) ([]textCall, bool) {
	var calls []textCall
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		i := strings.IndexAny(s, "{[")
		if i < 0 || len(calls) == callsMax {
			return nil, false
		}
		name, body := strings.TrimSpace(s[:i]), s[i:]
		if _, after, ok := strings.Cut(body, "[ARGS]"); ok && strings.HasPrefix(body, "[") {
			body = after
		}
		value, rest, ok := firstJSON(body)
		if !ok || value[0] != '{' || !toolName().MatchString(name) {
			return nil, false
		}
		calls = append(calls, textCall{name, value})
		s = strings.TrimPrefix(strings.TrimSpace(rest), "[TOOL_CALLS]")
	}
	return calls, len(calls) > 0
}

var (
	brokenName = pattern.Lazy(`^\s*\{\s*"name"\s*:\s*"([A-Za-z0-9_.:-]{1,128})"`)
	brokenArgs = pattern.Lazy(`"(?:arguments|parameters)"\s*:`)
)

// broken makes a call of JSON that is none, if it names a tool that exists.
func (t textTools) broken(s string) (textCall, bool) {
	name := brokenName().FindStringSubmatch(s)
	if name == nil || t[name[1]] == nil {
		return textCall{}, false
	}
	args := strings.TrimSpace(s)
	if at := brokenArgs().FindStringIndex(s); at != nil {
		args = strings.TrimSpace(s[at[1]:])
	}
	return textCall{name[1], args}, true
}

// quoteJSON appends s as a JSON string, without the escapes for HTML.
func quoteJSON(b []byte, s string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always can
	return append(b, bytes.TrimSpace(out.Bytes())...)
}
