package cowork_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skete-dev/skete/cowork"
)

// schemaFile is the JSON Schema of a workflow, for editors.
const schemaFile = "../docs/workflow.schema.json"

// duration stands for time.Duration, which is a text in files.
type duration string

func (duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$`, Examples: []any{"90s", "1h30m"}}
}

// schema is made of the types that files are read into.
func schema(t *testing.T) map[string]any {
	t.Helper()
	nullable := huma.DefaultArrayNullable
	huma.DefaultArrayNullable = false // a value that is null is refused
	defer func() { huma.DefaultArrayNullable = nullable }()
	const place = "#/$defs/"
	registry := huma.NewMapRegistry(place, huma.DefaultSchemaNamer)
	registry.RegisterTypeAlias(reflect.TypeFor[time.Duration](), reflect.TypeFor[duration]())
	root := registry.Schema(reflect.TypeFor[cowork.Definition](), false, "Workflow")
	raw, err := json.Marshal(map[string]any{"root": root, "defs": registry.Map()})
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ Root, Defs map[string]any }
	if err := json.Unmarshal(raw, &made); err != nil {
		t.Fatal(err)
	}
	out := made.Root
	delete(made.Defs, "Definition")
	out["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	out["title"] = "Workflow"
	out["$defs"] = made.Defs
	one(made.Defs["Node"], "agent", "inline", "human")
	for _, name := range []string{"Reference", "Each"} {
		one(made.Defs[name], "input", "node", "item", "value")
	}
	return out
}

// one says that an object has one of some keys.
func one(schema any, keys ...string) {
	var list []any
	for _, key := range keys {
		list = append(list, map[string]any{"required": []string{key}})
	}
	schema.(map[string]any)["oneOf"] = list
}

func TestSchema_isUpToDate(t *testing.T) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, schemaFile, b.String())
}

// An editor that has the schema says the same of a file as the program, as far as a
// schema can.
func TestSchema_agreesWithTheParser(t *testing.T) {
	raw, err := json.Marshal(schema(t))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///workflow", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("mem:///workflow")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(text string) error {
		t.Helper()
		asJSON, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
		if err != nil {
			t.Fatal(err)
		}
		return compiled.Validate(value)
	}
	for name, text := range files(t) {
		if err := valid(string(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := valid(sequence(", each: {value: [1]}, timeout: 1h30m, input: {a: {value: false}}")); err != nil {
		t.Error(err)
	}
	for _, text := range []string{
		"topology: sequential",
		sequence("") + "edgess: []",
		sequence(", agnet: x"),
		sequence(", human: {ask: q}"),
		strings.Replace(sequence(""), "agent: x", "description: d", 1),
		sequence(", sandbox: forked"),
		sequence(", timeout: 10"),
		sequence(", timeout: soon"),
		sequence(", retries: {wait: 1s}"),
		sequence(", artifacts: null"),
		sequence(", input: {b: {}}"),
		sequence(", input: {b: {item: x, value: 1}}"),
		sequence(", each: {max: 3}"),
		sequence(", each: {value: [1], max: 1001}"),
		strings.Replace(sequence(""), "name: a", "name: A", 1),
		sequence("") + "loops: [{from: a, to: a, max: 101, when: {node: a, status: succeeded}}]",
		sequence("") + "loops: [{from: a, to: a, max: 1}]",
		strings.Replace(sequence(""), "sequential", "row", 1),
	} {
		if valid(text) == nil {
			t.Errorf("the schema takes\n%s", text)
		}
		if _, err := cowork.Parse("w.yaml", []byte(text)); err == nil {
			t.Errorf("the parser takes\n%s", text)
		}
	}
}
