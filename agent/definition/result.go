package definition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/jsontext"
	"github.com/skete-dev/skete/llm"
)

// This file is about results of a wanted form: it checks them against a
// JSON Schema, says to a model what is wrong, and describes the tool final_answer
// for models whose vendor cannot be asked for a form.
//
// Schemas come from users of the API, results from models; so both are bounded
// before anything is done with them. A schema may refer to its own parts
// ("#/$defs/x") and to nothing else, and not to itself: a schema that does can
// take exponential time to check.
//
// Everything is pure; a ResultSchema is safe for concurrent use.

// Bounds.
const (
	resultSchemaBytesMax = 64 << 10
	resultBytesMax       = 256 << 10
	depthMax             = 64   // of a schema and of a result
	costMax              = 5000 // subschemas, each counted as often as it is reached
	wrongMax             = 10   // mistakes that are told at once
)

// FinalTool is the name of the tool that ends a run with a result.
const FinalTool = "final_answer"

// ResultSchema checks results.
type ResultSchema struct {
	raw      json.RawMessage
	compiled *jsonschema.Schema
	object   bool // results are objects, so they can be arguments as they are
}

// CompileResult reads a JSON Schema (draft 2020-12 unless it says otherwise). The
// error is Invalid.
func CompileResult(raw json.RawMessage) (*ResultSchema, error) {
	if len(raw) > resultSchemaBytesMax {
		return nil, errs.New(errs.Invalid, "the schema is larger than %d KiB", resultSchemaBytesMax>>10)
	}
	if _, depth := jsontext.Extent(string(raw)); depth > depthMax {
		return nil, errs.New(errs.Invalid, "the schema is nested deeper than %d", depthMax)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the schema is no JSON")
	}
	if _, ok := doc.(map[string]any); !ok {
		return nil, errs.New(errs.Invalid, "the schema is no JSON object")
	}
	w := schemaWalker{doc: doc, open: map[string]bool{}}
	if err := w.walk(doc, 0); err != nil {
		return nil, errs.New(errs.Invalid, "the schema %v", err)
	}
	return compileSchema(raw, doc)
}

// compileResultMap is Compile for a schema that is decoded already.
func compileResultMap(schema map[string]any) (*ResultSchema, error) {
	raw, err := json.Marshal(schema)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the schema is no JSON")
	}
	return CompileResult(raw)
}

const schemaLocation = "schema.json"

func compileSchema(raw json.RawMessage, doc any) (s *ResultSchema, err error) {
	// The compiler is third-party code; a panic there is taken for a bad schema.
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, errs.New(errs.Invalid, "the schema cannot be used")
		}
	}()
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource("mem:///"+schemaLocation, doc); err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the schema cannot be used")
	}
	compiled, err := c.Compile("mem:///" + schemaLocation)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the schema cannot be used: %s", schemaReason(err))
	}
	s = &ResultSchema{raw: compactJSON(raw), compiled: compiled}
	s.object = doc.(map[string]any)["type"] == "object"
	return s, nil
}

// schemaReason is what is wrong with a schema, without the addresses that the
// library puts into its texts.
func schemaReason(err error) string {
	if v, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if inner, ok := errors.AsType[*jsonschema.ValidationError](v.Err); ok {
			return strings.Join(describeViolations(inner), "; ")
		}
	}
	text := strings.ReplaceAll(err.Error(), "mem:///"+schemaLocation, "")
	return strings.TrimSpace(text)
}

// noLoader loads nothing: a schema brings all that it needs.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%.80q is not a part of the schema", url)
}

// JSON returns the schema.
func (s *ResultSchema) JSON() json.RawMessage { return s.raw }

// Wanted returns the schema for Request.Schema.
func (s *ResultSchema) Wanted() *llm.Schema { return &llm.Schema{Name: "result", Schema: s.raw} }

// Spec returns the tool final_answer. Its arguments are the result, or, when
// results need not be objects, hold it under "result".
func (s *ResultSchema) Spec() llm.ToolSpec {
	schema := s.raw
	if !s.object {
		schema = json.RawMessage(`{"type":"object","properties":{"result":{}},"required":["result"],"additionalProperties":false}`)
		if !bytes.Contains(s.raw, []byte(`"$ref"`)) { // a reference would point beside it
			schema = slices.Concat([]byte(`{"type":"object","properties":{"result":`), s.raw, []byte(`},"required":["result"],"additionalProperties":false}`))
		}
	}
	return llm.ToolSpec{
		Name:        FinalTool,
		Description: "Ends the task with its result. Call it once, alone, when everything else is done.",
		Schema:      schema,
	}
}

// Check returns what is wrong with a result, nil if it fits.
func (s *ResultSchema) Check(result json.RawMessage) []string {
	if len(result) > resultBytesMax {
		return []string{fmt.Sprintf("the result is larger than %d KiB", resultBytesMax>>10)}
	}
	if _, depth := jsontext.Extent(string(result)); depth > depthMax {
		return []string{fmt.Sprintf("the result is nested deeper than %d", depthMax)}
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(result))
	if err != nil {
		return []string{"the result is no JSON: " + err.Error()}
	}
	err = s.compiled.Validate(value)
	if err == nil {
		return nil
	}
	if v, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return describeViolations(v)
	}
	return []string{"the result does not fit"}
}

// describeViolations lists the mistakes, innermost only, each with its place.
func describeViolations(v *jsonschema.ValidationError) (list []string) {
	for _, cause := range v.Causes {
		for _, text := range describeViolations(cause) {
			if !slices.Contains(list, text) {
				list = append(list, text)
			}
			if len(list) > wrongMax {
				return append(list[:wrongMax], "and more")
			}
		}
	}
	if len(v.Causes) > 0 {
		return list
	}
	where := "/" + strings.Join(v.InstanceLocation, "/")
	if where == "/" {
		where = "the whole"
	}
	text := "it does not fit the schema"
	if unit := v.BasicOutput(); unit.Error != nil {
		text = unit.Error.String()
	}
	return []string{where + ": " + text}
}

// FromCall takes the result out of the arguments of final_answer.
func (s *ResultSchema) FromCall(args json.RawMessage) (result json.RawMessage, wrong []string) {
	if s.object {
		return s.checked(args)
	}
	var wrapped struct {
		Result json.RawMessage `json:"result"`
	}
	if len(args) > resultBytesMax || json.Unmarshal(args, &wrapped) != nil || wrapped.Result == nil {
		return nil, []string{`the arguments should be an object with the result under "result"`}
	}
	return s.checked(wrapped.Result)
}

func (s *ResultSchema) checked(result json.RawMessage) (json.RawMessage, []string) {
	if wrong := s.Check(result); wrong != nil {
		return nil, wrong
	}
	return compactJSON(result), nil
}

// FromText finds the result in a model's last words: the whole text, or what
// stands in its last code block, or its last JSON object or list.
func (s *ResultSchema) FromText(text string) (result json.RawMessage, wrong []string) {
	if len(text) > 2*resultBytesMax {
		return nil, []string{fmt.Sprintf("the answer is larger than %d KiB", 2*resultBytesMax>>10)}
	}
	for _, c := range jsonCandidates(text) {
		if !json.Valid([]byte(c)) {
			continue
		}
		var now []string
		if result, now = s.checked(json.RawMessage(c)); now == nil {
			return result, nil
		}
		if wrong == nil {
			wrong = now
		}
	}
	if wrong == nil {
		wrong = []string{"there is no JSON in the answer"}
	}
	return nil, wrong
}

// ResultCorrection tells the model what to do about a result that does not fit.
func ResultCorrection(wrong []string) string {
	return "The result does not have the wanted form:\n- " + strings.Join(wrong, "\n- ") +
		"\nGive the whole result again, as JSON of the schema and nothing else."
}

func compactJSON(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}
