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
	holder := struct {
		Key llm.Key
		Map map[string]llm.Key
	}{"sk-very-secret", map[string]llm.Key{"a": "sk-very-secret"}}
	var out bytes.Buffer
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q"} {
		fmt.Fprintf(&out, verb+" "+verb+"\n", holder, holder.Key)
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
	if holder.Key.Reveal() != "sk-very-secret" {
		t.Error("Reveal lost the key")
	}
}
