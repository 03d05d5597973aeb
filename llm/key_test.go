package llm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/skete-dev/skete/llm"
)

func TestKey_isNeverPrinted(t *testing.T) {
	type inner struct{ key llm.Key }
	key := llm.NewKey("sk-very-secret")
	holder := struct {
		Key    llm.Key
		Map    map[string]llm.Key
		inside *inner
		inner
	}{key, map[string]llm.Key{"a": key}, &inner{key}, inner{key}}
	var out bytes.Buffer
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", holder, holder.Key, *holder.inside)
	}
	enc, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(enc)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "key", holder.Key, "holder", holder)
	if strings.Contains(out.String(), "secret") {
		t.Errorf("a key was printed:\n%s", out.String())
	}
	if key.Reveal() != "sk-very-secret" || key.IsZero() || (llm.Key{}).Reveal() != "" || !(llm.Key{}).IsZero() {
		t.Error("Reveal lost the key")
	}
}
