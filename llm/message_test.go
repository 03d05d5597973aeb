package llm_test

import (
	"testing"

	"github.com/skete-dev/skete/llm"
)

func TestNewCall_keepsWhatIsNoObjectAsRaw(t *testing.T) {
	cases := []struct {
		written, args string
		raw           bool
	}{
		{`{"a":1}`, `{"a":1}`, false},
		{" {\"a\": 1}\n", `{"a": 1}`, false},
		{``, `{}`, false},
		{`null`, `{}`, false},
		{`{"a":`, `"{\"a\":"`, true},
		{`[1]`, `"[1]"`, true},
		{`"a"`, `"\"a\""`, true},
		{`"{\"a\":1}"`, `{"a":1}`, false},
		{`"{\"a\":"`, `"\"{\\\"a\\\":\""`, true},
		{`{} {}`, `"{} {}"`, true},
		{"{\"a\":\"\xff\"}", "{\"a\":\"\uFFFD\"}", false},
	}
	for _, c := range cases {
		got := llm.NewCall("c1", "f", c.written)
		if string(got.Args) != c.args || got.Raw != c.raw || got.ID != "c1" || got.Name != "f" {
			t.Errorf("NewCall(%q) = %+v (%s), want %s, raw %v", c.written, got, got.Args, c.args, c.raw)
		}
	}
}
