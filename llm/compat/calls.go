package compat

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/skete-dev/skete/llm"
)

// building is a tool call on its way.
type building struct {
	at        int // its place among the calls
	id, name  string
	args      strings.Builder
	extra     json.RawMessage
	announced bool
	object    bool // the arguments came as an object, whole
}

// whole reports whether the arguments so far are a JSON object.
func (b *building) whole() bool {
	text := b.args.String()
	return strings.HasSuffix(strings.TrimRight(text, " \r\n\t"), "}") && json.Valid([]byte(text))
}

func (a *answer) begin() (*building, error) {
	if len(a.calls) == callsMax {
		return nil, a.senseless("more than %d tool calls", callsMax)
	}
	b := &building{at: len(a.calls)}
	a.calls = append(a.calls, b)
	return b, nil
}

// callPart adds a piece to the call that it belongs to.
func (a *answer) callPart(p *callPart) error {
	id, name := str(p.ID), str(p.Function.Name)
	b := a.find(p, id, name)
	if b == nil {
		var err error
		if b, err = a.begin(); err != nil {
			return err
		}
	}
	if present(p.Index) {
		a.byIndex[string(p.Index)] = b
	}
	if b.id == "" {
		b.id = id
	}
	if present(p.Extra) {
		b.extra = p.Extra
	}
	if b.name == "" {
		b.name = name
	}
	return a.arguments(b, p.Function.Arguments)
}

// arguments takes the arguments of a piece: a string that grows, or an object
// that is whole. The name is announced with the first of them.
func (a *answer) arguments(b *building, raw json.RawMessage) error {
	if !present(raw) {
		return nil
	}
	text := str(raw)
	if raw[0] != '"' {
		if b.object || b.args.Len() > 0 {
			return nil // the same once more
		}
		text, b.object = string(raw), true
	}
	if text == "" {
		return nil
	}
	if err := a.announce(b); err != nil {
		return err
	}
	return a.grow(b, text)
}

func (a *answer) grow(b *building, text string) error {
	if text == "" {
		return nil
	}
	b.args.WriteString(text)
	return a.say(llm.Delta{Kind: llm.DeltaArgs, Index: b.at, Text: text})
}

// announce tells of a call, and of those before it that had no arguments.
func (a *answer) announce(b *building) error {
	for _, before := range a.calls[:b.at+1] {
		if before.announced {
			continue
		}
		before.announced = true
		if err := a.say(llm.Delta{Kind: llm.DeltaCall, Index: before.at, Name: before.name}); err != nil {
			return err
		}
	}
	return nil
}

// find returns the call that a piece goes on with, nil if it begins one.
//
// Good servers number their calls. Others number all of them 0, or none, give
// every call the same id, or repeat id and name with every piece. So a piece
// begins a call if its id is a new one, or if it names a tool while the call
// before is complete.
func (a *answer) find(p *callPart, id, name string) *building {
	var b *building
	switch {
	case present(p.Index):
		b = a.byIndex[string(p.Index)]
	case id != "":
		if b = a.byID(id); b == nil {
			return nil
		}
	case len(a.calls) > 0:
		b = a.calls[len(a.calls)-1]
	}
	switch args := p.Function.Arguments; {
	case b == nil, id != "" && b.id != "" && id != b.id:
		return nil
	case name == "" || b.name == "":
		return b
	case name != b.name:
		return nil
	case !b.announced:
		// No argument came yet: the same call again, or one without arguments
		// followed by another. Only a number or an id can tell.
		if present(p.Index) || id != "" {
			return b
		}
		return nil
	case !b.whole():
		return b // the name repeated with each piece
	case !isObject(args) && str(args) == "", sameJSON(b.args.String(), string(args)) && id != "":
		return b // all of it again, as a farewell
	}
	return nil
}

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

func (a *answer) byID(id string) *building {
	for _, v := range slices.Backward(a.calls) {
		if v.id == id {
			return v
		}
	}
	return nil
}
