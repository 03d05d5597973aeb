package runs_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/thread"
)

func formOf(schema string) thread.Form {
	return thread.Form{From: "s", Message: "m", Schema: json.RawMessage(schema)}
}

func TestCheckForm(t *testing.T) {
	many := strings.Builder{}
	for i := range 51 {
		fmt.Fprintf(&many, `"f%d":{"type":"string"},`, i)
	}
	for schema, want := range map[string]string{
		``:                  "",
		`{"type":"object"}`: "",
		`{"type":"object","properties":{"a":{"type":"string","format":"email"},"b":{"type":"array","items":{"type":"string","enum":["x"]}}}}`: "",
		`{"type":"string"}`: "flat object",
		`[]`:                "flat object",
		`{"type":"object","properties":{"a":{"type":"object"}}}`:                                   "is no text",
		`{"type":"object","properties":{"a":{}}}`:                                                  "is no text",
		`{"type":"object","properties":{"a":{"type":"string","properties":{"b":{}}}}}`:             "is no text",
		`{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}`:                     "cannot be used",
		`{"type":"object","properties":{"a":{"type":"array","items":{"$ref":"http://a.test/b"}}}}`: "schema",
		`{"type":"object","properties":{` + strings.TrimSuffix(many.String(), ",") + `}}`:          "at most 50 fields",
		`{"type":"object","x":` + strings.Repeat("[", 9) + strings.Repeat("]", 9) + `}`:            "deeper",
		`{"type":"object","title":"` + strings.Repeat("x", 40<<10) + `"}`:                          "at most 32768 bytes",
	} {
		err := runs.CheckForm(formOf(schema))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.100s: %v, want %q", schema, err, want)
		}
	}
	if runs.CheckForm(thread.Form{From: "s"}) == nil || runs.CheckForm(thread.Form{From: "s", Message: strings.Repeat("m", 5000)}) == nil {
		t.Error("a form without a message, and one with a long one, were taken")
	}
}

func asking(schema string) *runs.Call {
	f := formOf(schema)
	return &runs.Call{Asked: &thread.ApprovalAsked{Ask: thread.AskForm, Form: &f, Allowed: thread.AskForm.Decisions()}}
}

func TestDecide_form(t *testing.T) {
	const one, two = `{"type":"object","properties":{"n":{"type":"integer","maximum":9}}}`,
		`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"boolean"}},"required":["a"]}`
	for _, c := range []struct{ schema, text, want string }{
		{one, "7", `{"n":7}`},
		{one, ` {"n": 7 } `, `{"n":7}`},
		{one, "70", "!fit"},
		{one, "seven", "!fit"},
		{two, `{"a":"x","b":true}`, `{"a":"x","b":true}`},
		{two, `{"b":true}`, "!fit"},
		{two, `{"a":"x","b":"yes"}`, "!fit"},
		{two, "x", "!JSON object"},
		{two, "null", "!JSON object"},
		{``, "yes", `{}`},
	} {
		d, err := runs.Decide{Decision: thread.Respond, Text: c.text}.Check(asking(c.schema))
		if why, bad := strings.CutPrefix(c.want, "!"); bad != (err != nil) || bad && !strings.Contains(err.Error(), why) || !bad && d.Text != c.want {
			t.Errorf("%s: %q, %v", c.text, d.Text, err)
		}
	}
	for _, d := range []thread.Decision{thread.Approve, thread.Edit} {
		if _, err := (runs.Decide{Decision: d}).Check(asking(one)); err == nil {
			t.Errorf("a form was answered with %s", d)
		}
	}
}

// Whatever a program wants to know: what is taken for an answer is an object that fits.
func FuzzDecide_form(f *testing.F) {
	f.Add(`{"type":"object","properties":{"n":{"type":"integer"}}}`, "7")
	f.Add(`{"type":"object","properties":{"a":{"type":"string"}}}`, `{"a":1}`)
	f.Fuzz(func(t *testing.T, schema, text string) {
		if text == "" || runs.CheckForm(formOf(schema)) != nil {
			return
		}
		d, err := runs.Decide{Decision: thread.Respond, Text: text}.Check(asking(schema))
		var object map[string]any
		if err == nil && (json.Unmarshal([]byte(d.Text), &object) != nil || object == nil) {
			t.Errorf("%q", d.Text)
		}
	})
}
