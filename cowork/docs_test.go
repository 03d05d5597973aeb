package cowork_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/skete-dev/skete/cowork"
)

func TestDocument_itsExampleIsGood(t *testing.T) {
	text, err := os.ReadFile("../docs/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml\n# ([a-z/]+\\.yaml)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 {
		t.Fatalf("%d examples were found", len(blocks))
	}
	for _, b := range blocks {
		if _, err := cowork.Parse(b[1], []byte(b[2])); err != nil {
			t.Error(err)
		}
	}
}

// TestDocument_hasEveryKey: a key that a file may have is in a table.
func TestDocument_hasEveryKey(t *testing.T) {
	text, err := os.ReadFile("../docs/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for field := range typ.Fields() {
			if key, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); key != "-" {
				if key != "" {
					keys = append(keys, key)
				}
				walk(field.Type)
			}
		}
	}
	walk(reflect.TypeFor[cowork.Definition]())
	if len(keys) < 60 {
		t.Fatalf("only %d keys were found: %v", len(keys), keys)
	}
	for _, key := range keys {
		if !regexp.MustCompile("`[{]?" + key + "[`:]|, " + key + ":").Match(text) {
			t.Errorf("docs/workflows.md says nothing about %q", key)
		}
	}
	for _, word := range cowork.Topologies {
		if !strings.Contains(string(text), "| `"+word+"` |") {
			t.Errorf("docs/workflows.md says nothing about the topology %s", word)
		}
	}
}
