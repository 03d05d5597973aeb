package runs

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/jsontext"
	"github.com/skete-dev/skete/thread"
)

// This file is about forms: what a program wants a person to fill in while it runs.

// Bounds of a form. It stands in one event, and on one screen.
const (
	formBytesMax   = 32 << 10
	formFieldsMax  = 50
	formDepthMax   = 6
	formMessageMax = 4000
)

// CheckForm refuses a form that cannot be put before a person. Invalid.
func CheckForm(f thread.Form) error {
	switch _, depth := jsontext.Extent(string(f.Schema)); {
	case f.From == "" || f.Message == "":
		return errs.New(errs.Invalid, "a form says who asks, and what")
	case len(f.Message) > formMessageMax:
		return errs.New(errs.Invalid, "the message of a form has at most %d bytes", formMessageMax)
	case len(f.Schema) > formBytesMax:
		return errs.New(errs.Invalid, "the schema of a form has at most %d bytes", formBytesMax)
	case depth > formDepthMax:
		return errs.New(errs.Invalid, "the schema of a form is nested deeper than %d", formDepthMax)
	case len(f.Schema) == 0:
		return nil
	}
	fields, err := fieldsOf(f.Schema)
	if err != nil {
		return err
	}
	if len(fields) > formFieldsMax {
		return errs.New(errs.Invalid, "a form has at most %d fields", formFieldsMax)
	}
	for name, field := range fields {
		if !slices.Contains([]string{"string", "number", "integer", "boolean", "array"}, field.Type) || len(field.Properties) > 0 {
			return errs.New(errs.Invalid, "the field %.60q of a form is no text, number, yes or no, or choice", name)
		}
	}
	_, err = definition.CompileResult(f.Schema)
	return err
}

// formField is one field of a form.
type formField struct {
	Type       string          `json:"type"`
	Properties json.RawMessage `json:"properties"`
}

func fieldsOf(schema json.RawMessage) (map[string]formField, error) {
	var s struct {
		Type       string               `json:"type"`
		Properties map[string]formField `json:"properties"`
	}
	if err := json.Unmarshal(schema, &s); err != nil || s.Type != "object" {
		return nil, errs.New(errs.Invalid, "the schema of a form is that of a flat object")
	}
	return s.Properties, nil
}

// answerOf reads what a person filled in: a JSON object, or, where there is one field, its
// value alone. Invalid says what does not fit.
func answerOf(f *thread.Form, text string) (json.RawMessage, error) {
	if len(f.Schema) == 0 {
		return json.RawMessage(`{}`), nil
	}
	fields, err := fieldsOf(f.Schema)
	if err != nil {
		return nil, err
	}
	content := json.RawMessage(strings.TrimSpace(text))
	var object map[string]json.RawMessage
	if json.Unmarshal(content, &object) != nil || object == nil {
		if content, err = lone(fields, text); err != nil {
			return nil, err
		}
	}
	schema, err := definition.CompileResult(f.Schema)
	if err != nil {
		return nil, err
	}
	if wrong := schema.Check(content); wrong != nil {
		return nil, errs.New(errs.Invalid, "the answer does not fit the form: %s", strings.Join(wrong, "; "))
	}
	var b bytes.Buffer
	if err := json.Compact(&b, content); err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the answer is no JSON")
	}
	return b.Bytes(), nil
}

// lone is the answer to a form that has one field, from the words of a person.
func lone(fields map[string]formField, text string) (json.RawMessage, error) {
	if len(fields) != 1 {
		return nil, errs.New(errs.Invalid, "the answer to a form of %d fields is a JSON object", len(fields)).
			WithHint(`for example: {"name":"Ada"}`)
	}
	for name, field := range fields {
		value := json.RawMessage(strings.TrimSpace(text))
		if field.Type == "string" || !json.Valid(value) {
			value, _ = json.Marshal(strings.TrimSpace(text)) // a text always can be
		}
		return json.Marshal(map[string]json.RawMessage{name: value})
	}
	return nil, nil
}
