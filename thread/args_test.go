package thread_test

import (
	"encoding/json"
	"testing"

	"github.com/skete-dev/skete/thread"
)

func TestArgsHash(t *testing.T) {
	same := []string{`{"a":1,"b":"<&>"}`, `{ "b": "\u003c\u0026\u003e", "a": 1 }`, "{\"a\":1,\n\"b\":\"<&>\"}"}
	for _, args := range same {
		if thread.ArgsHash(json.RawMessage(args)) != thread.ArgsHash(json.RawMessage(same[0])) {
			t.Errorf("%s is another one", args)
		}
	}
	for _, args := range []string{`{"a":2,"b":"<&>"}`, `{"a":1.0,"b":"<&>"}`, `{"a":1,"b":"<&> "}`, `{`, ``, `null`, `{"a":1,"b":"<&>\r"}`} {
		if thread.ArgsHash(json.RawMessage(args)) == thread.ArgsHash(json.RawMessage(same[0])) {
			t.Errorf("%s is the same", args)
		}
	}
}
