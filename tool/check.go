package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
)

// Bounds of arguments and of their schemas.
const (
	ArgsBytesMax   = 1 << 20
	schemaBytesMax = 256 << 10
	troublesMax    = 8 // that one answer tells
)

// Checked is a Tool whose arguments are held against its schema first, with
// what models often get wrong put right: numbers and booleans as strings,
// null for what is optional, a list or an object as a string of JSON. It is
// always a Planner, so that bad arguments are answered before anything is
// logged as started.
type Checked struct {
	Tool
	schema *jsonschema.Schema
	shape  map[string]any
	// last is the last answer of Args: the same arguments are looked at three
	// times a call, before it is logged, for its effect, and when it runs.
	last atomic.Pointer[argued]
}

// argued is an answer of Args. It is never changed.
type argued struct {
	raw, args json.RawMessage
	bad       *Result
}

// Check compiles a tool's schema. Invalid: the schema is none, too large, or
// refers to documents elsewhere.
func Check(t Tool) (*Checked, error) {
	spec := t.Spec()
	bad := func(err error) (*Checked, error) {
		return nil, errs.Wrap(errs.Invalid, err, "the schema of the tool %.64q cannot be used", spec.Name)
	}
	if len(spec.Schema) > schemaBytesMax {
		return bad(fmt.Errorf("%d bytes", len(spec.Schema)))
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(spec.Schema))
	if err != nil {
		return bad(err)
	}
	shape, ok := doc.(map[string]any)
	if !ok {
		return bad(errors.New("no object"))
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is read from files or the network
	if err := c.AddResource(schemaURL, doc); err != nil {
		return bad(err)
	}
	schema, err := c.Compile(schemaURL)
	if err != nil {
		return bad(err)
	}
	return &Checked{Tool: t, schema: schema, shape: shape}, nil
}

const schemaURL = "tool:///arguments"

// Args returns the arguments as the tool will see them, or the answer to a
// model that wrote bad ones. It is pure: the same arguments give the same.
func (c *Checked) Args(raw json.RawMessage) (json.RawMessage, *Result) {
	if known := c.last.Load(); known != nil && bytes.Equal(known.raw, raw) {
		return known.args, known.bad
	}
	raw = bytes.Clone(raw) // the caller may reuse its bytes
	args, bad := c.argue(raw)
	c.last.Store(&argued{raw: raw, args: args, bad: bad})
	return args, bad
}

func (c *Checked) argue(raw json.RawMessage) (json.RawMessage, *Result) {
	if len(raw) > ArgsBytesMax {
		return nil, c.refuse([]string{fmt.Sprintf("they have %d bytes, at most %d are allowed", len(raw), ArgsBytesMax)})
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, c.refuse([]string{"they are no JSON: " + clip.Text(err.Error(), 120)})
	}
	if value == nil {
		value, raw = map[string]any{}, json.RawMessage("{}")
	}
	value, changed := coerce(c.shape, value)
	if err := c.schema.Validate(value); err != nil {
		return nil, c.refuse(c.troubles(err))
	}
	if !changed {
		return raw, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, c.refuse([]string{"they cannot be read"})
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// Effect implements Tool.
func (c *Checked) Effect(args json.RawMessage) Effect {
	if good, bad := c.Args(args); bad == nil {
		args = good
	}
	return c.Tool.Effect(args)
}

// Plan implements Planner.
func (c *Checked) Plan(ctx context.Context, req Request) (json.RawMessage, *Result, error) {
	args, bad := c.Args(req.Args)
	if bad != nil {
		return nil, bad, nil
	}
	p, ok := c.Tool.(Planner)
	if !ok {
		return nil, nil, nil
	}
	req.Args = args
	return p.Plan(ctx, req)
}

// Run implements Tool.
func (c *Checked) Run(ctx context.Context, req Request) (Result, error) {
	args, bad := c.Args(req.Args)
	if bad != nil {
		return *bad, nil
	}
	req.Args = args
	return c.Tool.Run(ctx, req)
}

// Settle implements Settler.
func (c *Checked) Settle(ctx context.Context, req Request) (*Result, error) {
	args, bad := c.Args(req.Args)
	if bad != nil {
		return bad, nil
	}
	s, ok := c.Tool.(Settler)
	if !ok {
		return nil, nil
	}
	req.Args = args
	return s.Settle(ctx, req)
}

// refuse says what is wrong and what would be right.
func (c *Checked) refuse(troubles []string) *Result {
	var b strings.Builder
	fmt.Fprintf(&b, "invalid arguments for %s:\n", c.Spec().Name)
	for _, t := range troubles {
		fmt.Fprintf(&b, "- %s\n", t)
	}
	if fields := c.fields(); len(fields) > 0 {
		fmt.Fprintf(&b, "Its arguments are: %s", strings.Join(fields, ", "))
	}
	r := Fail(CodeArgs, strings.TrimSpace(b.String()))
	return &r
}

func (c *Checked) names() []string {
	props, _ := c.shape["properties"].(map[string]any)
	names := make([]string, 0, len(props))
	for n := range props {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (c *Checked) fields() []string {
	props, _ := c.shape["properties"].(map[string]any)
	required, _ := c.shape["required"].([]any)
	var fields []string
	for _, n := range c.names() {
		of, _ := props[n].(map[string]any)
		what := strings.Join(typesOf(of), " or ")
		if what == "" {
			what = "any"
		}
		if slices.Contains(required, any(n)) {
			what += ", required"
		}
		fields = append(fields, n+" ("+what+")")
	}
	return fields
}

// troubles turns the tree of a validation's errors into sentences.
func (c *Checked) troubles(err error) []string {
	ve, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []string{"they do not fit"}
	}
	var list []string
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			walk(cause)
		}
		if len(e.Causes) == 0 && len(list) < troublesMax {
			list = append(list, c.trouble(e))
		}
	}
	walk(ve)
	slices.Sort(list)
	return slices.Compact(list)
}

func (c *Checked) trouble(e *jsonschema.ValidationError) string {
	at := where(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return fmt.Sprintf("%s: expected %s, got %s", at, strings.Join(k.Want, " or "), k.Got)
	case *kind.Required:
		return fmt.Sprintf("%s: missing", where(append(slices.Clone(e.InstanceLocation), k.Missing...)))
	case *kind.AdditionalProperties:
		unknown := clip.Text(strings.Join(k.Properties, ", "), 200)
		if len(e.InstanceLocation) == 0 && len(k.Properties) == 1 {
			if near := nearest(k.Properties[0], c.names()); near != "" {
				return fmt.Sprintf("%s: not an argument; did you mean %s?", unknown, near)
			}
		}
		return fmt.Sprintf("%s: not known here", unknown)
	case *kind.Enum:
		var want []string
		for _, w := range k.Want {
			want = append(want, fmt.Sprint(w))
		}
		return fmt.Sprintf("%s: expected one of %s, got %s", at, clip.Text(strings.Join(want, ", "), 1000), clip.Text(fmt.Sprintf("%v", k.Got), 60))
	}
	text := "does not fit"
	if out := e.BasicOutput(); out.Error != nil {
		text = clip.Text(out.Error.String(), 200)
	}
	return at + ": " + text
}

// where writes a location as programs do: todos[0].status.
func where(location []string) string {
	var b strings.Builder
	for _, part := range location {
		if _, err := strconv.Atoi(part); err == nil {
			fmt.Fprintf(&b, "[%s]", part)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	if b.Len() == 0 {
		return "the arguments"
	}
	return clip.Text(b.String(), 200)
}

func typesOf(schema map[string]any) []string {
	switch t := schema["type"].(type) {
	case string:
		return []string{t}
	case []any:
		var list []string
		for _, x := range t {
			if s, ok := x.(string); ok {
				list = append(list, s)
			}
		}
		return list
	}
	return nil
}

// coerce puts right what models often get wrong and no reader could mistake.
// It follows types, properties and items, not references.
func coerce(schema map[string]any, value any) (any, bool) {
	types := typesOf(schema)
	value, changed := coerceType(types, value)
	switch v := value.(type) {
	case map[string]any:
		return v, coerceObject(schema, v) || changed
	case []any:
		items, _ := schema["items"].(map[string]any)
		for i := range v {
			var c bool
			v[i], c = coerce(items, v[i])
			changed = changed || c
		}
	}
	return value, changed
}

func coerceObject(schema map[string]any, v map[string]any) (changed bool) {
	props, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for name, of := range props {
		field, there := v[name]
		sub, _ := of.(map[string]any)
		if !there || sub == nil {
			continue
		}
		if field == nil && !slices.Contains(required, any(name)) && !slices.Contains(typesOf(sub), "null") {
			delete(v, name)
			changed = true
			continue
		}
		var c bool
		v[name], c = coerce(sub, field)
		changed = changed || c
	}
	return changed
}

func coerceType(types []string, value any) (any, bool) {
	if len(types) != 1 {
		return value, false // what is meant is not clear
	}
	switch v := value.(type) {
	case string:
		return coerceString(types[0], v)
	case json.Number:
		switch types[0] {
		case "integer":
			return wholeNumber(v)
		case "string":
			return v.String(), true
		}
	case bool:
		if types[0] == "string" {
			return strconv.FormatBool(v), true
		}
	}
	return value, false
}

func coerceString(want, s string) (any, bool) {
	trimmed := strings.TrimSpace(s)
	switch want {
	case "integer", "number":
		var n json.Number
		if json.Unmarshal([]byte(trimmed), &n) != nil || n == "" || strings.HasPrefix(trimmed, `"`) {
			return s, false
		}
		if want == "integer" {
			v, _ := wholeNumber(n)
			return v, true
		}
		return n, true
	case "boolean":
		switch strings.ToLower(trimmed) {
		case "true":
			return true, true
		case "false":
			return false, true
		}
	case "array", "object":
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(trimmed))
		if err != nil {
			return s, false
		}
		_, list := v.([]any)
		_, object := v.(map[string]any)
		if list && want == "array" || object && want == "object" {
			return v, true
		}
	}
	return s, false
}

// wholeNumber writes 3.0 and 3e0 as 3, which JSON Schema takes for integers
// and Go does not.
func wholeNumber(n json.Number) (any, bool) {
	if _, err := n.Int64(); err == nil {
		return n, false
	}
	f, err := n.Float64()
	if err != nil || f != float64(int64(f)) || f > 1<<53 || f < -(1<<53) {
		return n, false
	}
	return json.Number(strconv.FormatInt(int64(f), 10)), true
}
