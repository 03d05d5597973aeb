package tool_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// echo is a tool whose result is the arguments that it saw.
type echo struct{ name, schema string }

func (e echo) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: e.name, Description: "echoes", Schema: json.RawMessage(e.schema)}
}
func (echo) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }
func (echo) Run(_ context.Context, req tool.Request) (tool.Result, error) {
	return tool.Text(string(req.Args)), nil
}

const readSchema = `{"type":"object","additionalProperties":false,"required":["file_path"],"properties":{
	"file_path":{"type":"string"},"offset":{"type":"integer","minimum":0},"ratio":{"type":"number"},"all":{"type":"boolean"},
	"mode":{"type":"string","enum":["content","count"]},
	"todos":{"type":"array","items":{"type":"object","required":["status"],"properties":{"status":{"type":"string","enum":["pending","completed"]},"n":{"type":"integer"}}}},
	"either":{"type":["string","null"]}}}`

func TestCheck_coercesWhatNobodyCouldMistake(t *testing.T) {
	c, err := tool.Check(echo{"read_file", readSchema})
	if err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{
		`{"file_path":"/a"}`:                                                  `{"file_path":"/a"}`,
		` {"file_path": "/a<b>"} `:                                            ` {"file_path": "/a<b>"} `, // untouched to the byte
		`{"file_path":"/a<b>","offset":"5"}`:                                  `{"file_path":"/a<b>","offset":5}`,
		`{"file_path":"/a","offset":" 5 "}`:                                   `{"file_path":"/a","offset":5}`,
		`{"file_path":"/a","offset":5.0}`:                                     `{"file_path":"/a","offset":5}`,
		`{"file_path":"/a","offset":"5.0"}`:                                   `{"file_path":"/a","offset":5}`,
		`{"file_path":"/a","offset":5e0}`:                                     `{"file_path":"/a","offset":5}`,
		`{"file_path":"/a","ratio":"0.5"}`:                                    `{"file_path":"/a","ratio":0.5}`,
		`{"file_path":"/a","all":"True"}`:                                     `{"all":true,"file_path":"/a"}`,
		`{"file_path":"/a","all":null,"offset":null}`:                         `{"file_path":"/a"}`,
		`{"file_path":"/a","either":null}`:                                    `{"file_path":"/a","either":null}`,
		`{"file_path":123}`:                                                   `{"file_path":"123"}`,
		`{"file_path":true}`:                                                  `{"file_path":"true"}`,
		`{"file_path":"/a","todos":"[{\"status\":\"pending\",\"n\":\"3\"}]"}`: `{"file_path":"/a","todos":[{"n":3,"status":"pending"}]}`,
	} {
		got, bad := c.Args(json.RawMessage(raw))
		if bad != nil || string(got) != want {
			t.Errorf("%s became %s (%v), want %s", raw, got, bad, want)
		}
		r, err := c.Run(t.Context(), tool.Request{Args: json.RawMessage(raw)})
		if err != nil || r.Failed || r.Blocks[0].Text != want {
			t.Errorf("%s: the tool saw %v, %v", raw, r, err)
		}
	}
}

func TestCheck_tellsTheModelWhatToChange(t *testing.T) {
	c, err := tool.Check(echo{"read_file", readSchema})
	if err != nil {
		t.Fatal(err)
	}
	fields := "\nIts arguments are: all (boolean), either (string or null), file_path (string, required), mode (string), offset (integer), ratio (number), todos (array)"
	for raw, want := range map[string]string{
		``:                                   "- file_path: missing",
		`null`:                               "- file_path: missing",
		`[]`:                                 "- the arguments: expected object, got array",
		`{"file_path":null}`:                 "- file_path: expected string, got null",
		`{"file_path":"/a","offset":"five"}`: "- offset: expected integer, got string",
		`{"file_path":"/a","offset":"5.5"}`:  "- offset: expected integer, got number",
		`{"file_path":"/a","offset":-1}`:     "- offset: minimum: got -1, want 0",
		`{"path":"/a"}`:                      "- file_path: missing\n- path: not an argument; did you mean file_path?",
		`{"file_path":"/a","mode":"x"}`:      "- mode: expected one of content, count, got x",
		`{"file_path":"/a","all":"yes"}`:     "- all: expected boolean, got string",
		`{"file_path":"/a","todos":[{"status":"pending"},{"status":"done"}]}`: "- todos[1].status: expected one of pending, completed, got done",
	} {
		_, bad := c.Args(json.RawMessage(raw))
		if bad == nil {
			t.Errorf("%s was let through", raw)
			continue
		}
		if d := cmp.Diff(tool.Fail(tool.CodeArgs, "invalid arguments for read_file:\n"+want+fields), *bad); d != "" {
			t.Errorf("%s: %s", raw, d)
		}
		if _, done, err := c.Plan(t.Context(), tool.Request{Args: json.RawMessage(raw)}); err != nil || done == nil {
			t.Errorf("%s: the plan did not end the call: %v", raw, err)
		}
		if r, err := c.Run(t.Context(), tool.Request{Args: json.RawMessage(raw)}); err != nil || r.Code != tool.CodeArgs {
			t.Errorf("%s: the tool ran: %v, %v", raw, r, err)
		}
	}
	for _, raw := range []string{`{`, `{"file_path":"/a"} x`, `{"file_path":"/a","offset":1e999999999999}`, strings.Repeat("[", 20_000), `"` + strings.Repeat("x", tool.ArgsBytesMax) + `"`} {
		if _, bad := c.Args(json.RawMessage(raw)); bad == nil || len(bad.Blocks[0].Text) > 1500 {
			t.Errorf("%.40s: %v", raw, bad)
		}
	}
}

func TestCheck_refusesSchemasThatReachOut(t *testing.T) {
	for name, schema := range map[string]string{
		"none": ``, "no object": `[]`, "true": `true`, "not a schema": `{"type":"objekt"}`,
		"file":    `{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`,
		"network": `{"$ref":"http://127.0.0.1:1/x"}`,
		"huge":    `{"description":"` + strings.Repeat("x", 256<<10) + `"}`,
	} {
		if _, err := tool.Check(echo{"x", schema}); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{}`, `null`, `{"file_path":"/a","offset":"1e400"}`, `{"offset":1e1000000000}`, `{"todos":"[1,{}]"}`, `{"file_path":"\ud800"}`} {
		f.Add([]byte(s))
	}
	c, err := tool.Check(echo{"read_file", readSchema})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		args, bad := c.Args(raw)
		if bad != nil {
			return
		}
		var v struct {
			FilePath *string `json:"file_path"`
		}
		if err := json.Unmarshal(args, &v); err != nil || v.FilePath == nil {
			t.Fatalf("%q was let through as %q: %v", raw, args, err)
		}
		if again, bad := c.Args(args); bad != nil || string(again) != string(args) {
			t.Fatalf("%q became %q, then %q", raw, args, again)
		}
	})
}
