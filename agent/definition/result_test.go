package definition_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/errs"
)

const report = `{
  "type": "object",
  "properties": {"passed": {"type": "boolean"}, "files": {"type": "array", "items": {"$ref": "#/$defs/file"}}},
  "required": ["passed"], "additionalProperties": false,
  "$defs": {"file": {"type": "string", "minLength": 1}}
}`

func compileSchema(t *testing.T, schema string) *definition.ResultSchema {
	t.Helper()
	s, err := definition.CompileResult(json.RawMessage(schema))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCheck_saysWhereWhatIsWrong(t *testing.T) {
	s := compileSchema(t, report)
	cases := []struct{ result, want string }{
		{`{"passed": true, "files": ["a"]}`, ""},
		{`{"passed": "yes"}`, "/passed: got string, want boolean"},
		{`{"files": []}`, "the whole: missing property 'passed'"},
		{`{"passed": true, "files": ["a", ""]}`, "/files/1: minLength: got 0, want 1"},
		{`{"passed": true, "x": 1}`, "the whole: additional properties 'x' not allowed"},
		{`[]`, "the whole: got array, want object"},
		{`{"passed": true`, "the result is no JSON: unexpected EOF"},
		{`{"passed": true} x`, "the result is no JSON: "},
		{``, "the result is no JSON: EOF"},
		{strings.Repeat("[", 100), "the result is nested deeper than 64"},
		{`"` + strings.Repeat("x", 256<<10) + `"`, "the result is larger than 256 KiB"},
	}
	for _, c := range cases {
		got := s.Check(json.RawMessage(c.result))
		if (c.want == "") != (got == nil) || c.want != "" && !strings.HasPrefix(got[0], c.want) {
			t.Errorf("Check(%.80s) = %q, want %q", c.result, got, c.want)
		}
	}
	if got := definition.ResultCorrection(s.Check(json.RawMessage(`{}`))); !strings.Contains(got, "- the whole: missing property 'passed'\n") {
		t.Error(got)
	}
	many := compileSchema(t, `{"type":"array","items":{"type":"string"}}`)
	if got := many.Check(json.RawMessage("[" + strings.Repeat("1,", 99) + "1]")); len(got) != 11 || got[10] != "and more" {
		t.Errorf("%d: %q", len(got), got)
	}
}

func TestFromText_findsTheResult(t *testing.T) {
	s := compileSchema(t, report)
	const good = `{"passed":true}`
	cases := []struct{ name, text, want string }{
		{"alone", ` {"passed": true} `, good},
		{"in a block", "Done.\n```json\n{\"passed\": true}\n```\n", good},
		{"in a block without a language", "```\n{\"passed\": true}```", good},
		{"in a block that was cut off", "x ```json\n{\"passed\": true}", good},
		{"the last of two blocks", "```json\n{\"passed\": false}\n```\n```json\n{\"passed\": true}\n```", good},
		{"in a sentence", `The result is {"passed": true}. Good.`, good},
		{"after other braces", `Set {a} said: {"passed": true}`, good},
		{"after prose that quotes", `He said "it's {fine}": {"passed": true}`, good},
		{"none", "All is well.", ""},
		{"a bad one", `{"passed": 1}`, ""},
		{"cut off", `{"passed": tr`, ""},
		{"empty", "", ""},
		{"enormous", strings.Repeat("{", 1<<20), ""},
	}
	for _, c := range cases {
		got, wrong := s.FromText(c.text)
		if string(got) != c.want || (c.want == "") == (wrong == nil) {
			t.Errorf("%s: %s, %q", c.name, got, wrong)
		}
	}
}

func TestFinalAnswer_takesAnyResult(t *testing.T) {
	object, list := compileSchema(t, report), compileSchema(t, `{"type":"array","items":{"type":"integer"}}`)
	if got, wrong := object.FromCall(json.RawMessage(`{"passed": false}`)); wrong != nil || string(got) != `{"passed":false}` {
		t.Errorf("%s, %q", got, wrong)
	}
	if got, wrong := list.FromCall(json.RawMessage(`{"result": [1, 2]}`)); wrong != nil || string(got) != `[1,2]` {
		t.Errorf("%s, %q", got, wrong)
	}
	for _, bad := range []string{`[1]`, `{}`, `{"result": ["a"]}`, `x`, ``} {
		if got, wrong := list.FromCall(json.RawMessage(bad)); wrong == nil {
			t.Errorf("%s was taken as %s", bad, got)
		}
	}
	for _, s := range []*definition.ResultSchema{object, list, compileSchema(t, `{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}`)} {
		spec := s.Spec()
		if _, err := definition.CompileResult(spec.Schema); err != nil || spec.Name != definition.FinalTool {
			t.Errorf("%s: %v", spec.Schema, err)
		}
	}
	if want := list.Wanted(); string(want.Schema) != `{"type":"array","items":{"type":"integer"}}` {
		t.Errorf("%s", want.Schema)
	}
}

func TestCompile_refuses(t *testing.T) {
	doubling := `{"allOf":[{"$ref":"#/$defs/0"}],"$defs":{`
	for i := range 20 {
		doubling += fmt.Sprintf(`"%d":{"allOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]},`, i, i+1, i+1)
	}
	doubling += `"20":{}}}`
	cases := []struct{ name, schema, want string }{
		{"nothing", ``, "is no JSON"},
		{"no JSON", `{`, "is no JSON"},
		{"no object", `[]`, "is no JSON object"},
		{"a bool", `true`, "is no JSON object"},
		{"a bad keyword", `{"type": "strnig"}`, "cannot be used"},
		{"a bad pattern", `{"pattern": "("}`, "cannot be used"},
		{"a remote reference", `{"$ref": "https://example.com/x.json"}`, "which is not a part of it"},
		{"a file", `{"$ref": "file:///etc/passwd"}`, "which is not a part of it"},
		{"a remote reference deep inside", `{"properties": {"a": {"items": [{"anyOf": [{"$ref": "http://x"}]}]}}}`, "which is not a part of it"},
		{"a remote one behind a reference", `{"$ref": "#/x/0", "x": [{"$ref": "http://x"}]}`, "which is not a part of it"},
		{"a missing part", `{"$ref": "#/$defs/x"}`, "which is not a part of it"},
		{"itself", `{"properties": {"a": {"$ref": "#"}}}`, "refers to itself"},
		{"itself around a corner", `{"$ref":"#/$defs/a","$defs":{"a":{"items":{"$ref":"#/$defs/b"}},"b":{"not":{"$ref":"#/$defs/a"}}}}`, "refers to itself"},
		{"another base", `{"$id": "https://example.com/", "type": "object"}`, "uses $id"},
		{"a dynamic reference", `{"$dynamicRef": "#x"}`, "uses $dynamicRef"},
		{"an unknown dialect", `{"$schema": "https://example.com/schema"}`, "cannot be used"},
		{"doubling", doubling, "reaches more than 5000 parts"},
		{"too deep", strings.Repeat(`{"not":`, 100) + "{}" + strings.Repeat("}", 100), "nested deeper than 64"},
		{"too large", `{"description": "` + strings.Repeat("x", 64<<10) + `"}`, "larger than 64 KiB"},
	}
	for _, c := range cases {
		_, err := definition.CompileResult(json.RawMessage(c.schema))
		if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if strings.Contains(errs.Public(err), "mem://") || strings.Contains(errs.Public(err), "/work") {
			t.Errorf("%s: an address of ours in %q", c.name, errs.Public(err))
		}
	}
	// A property may be called like a keyword.
	compileSchema(t, `{"type":"object","properties":{"$ref":{"type":"string"},"$id":{"type":"string"},"properties":{"type":"string"}}}`)
	compileSchema(t, `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","definitions":{"a":{}}}`)
}

func FuzzFromText(f *testing.F) {
	for _, s := range []string{`{"passed": true}`, "```json\n[1]\n```", `a {"b": "}"} c`, "[[[", `"\"`, "```", "``````"} {
		f.Add(s)
	}
	s, err := definition.CompileResult(json.RawMessage(report))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		result, wrong := s.FromText(text)
		if (result == nil) == (wrong == nil) {
			t.Fatalf("%s, %q", result, wrong)
		}
		if result != nil && s.Check(result) != nil {
			t.Fatalf("%s does not fit", result)
		}
	})
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{report, `{"$ref":"#/a"}`, `{"items":[{}],"allOf":[]}`, `{"type":["a"]}`, `{"$schema":"x"}`, `{"pattern":"["}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := definition.CompileResult(raw)
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Fatal(err)
			}
			return
		}
		s.Check(json.RawMessage(`{"a":[1,"b",null,{"passed":true}]}`))
		s.Spec()
	})
}
