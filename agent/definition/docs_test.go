package definition_test

import (
	"io/fs"
	"os"
	"path"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/plan"
)

// examples are the files that docs/agents.md shows.
func examples(t *testing.T) fstest.MapFS {
	t.Helper()
	text, err := os.ReadFile("../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	block := regexp.MustCompile("(?ms)^```[a-z]+\n(?:# |<!-- )([a-z/-]+\\.(?:yaml|md))(?: -->)?\n(.*?)^```$")
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		files[m[1]] = &fstest.MapFile{Data: []byte(m[2])}
	}
	return files
}

func TestDocument_itsExamplesAreGood(t *testing.T) {
	files := examples(t)
	if len(files) != 5 {
		t.Fatalf("%d examples were found", len(files))
	}
	sub := func(dir string) fs.FS {
		fsys, err := fs.Sub(files, dir)
		if err != nil {
			t.Fatal(err)
		}
		return fsys
	}
	set, err := definition.Load(sub("agents"), nil)
	if err != nil {
		t.Fatal(err)
	}
	plans, err := plan.Load(sub("plans"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range set.List() {
		d, err := set.Resolve(e.Name)
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		for _, p := range definition.Validate(d, tools) {
			// The document says itself that paths do not bind execute.
			if !p.Warning || !strings.Contains(p.Text, "paths bind the file tools") {
				t.Errorf("%s: %s", e.Name, p)
			}
		}
		if d.Plan != "" {
			if _, err := plans.Find(d.Plan); err != nil {
				t.Error(err)
			}
		}
	}
	if d, _ := set.Resolve("maintainer"); len(d.Subagents) != 2 || len(d.Subagents["reviewer"].Rules) != len(d.Rules) {
		t.Errorf("the example's sub-agents: %+v", d.Subagents)
	}
	for name := range files {
		if base := strings.TrimSuffix(path.Base(name), path.Ext(name)); path.Dir(name) == "plans" {
			if _, err := plans.Find(base); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestDocument_hasEveryKey: a key that a file may have is in a table.
func TestDocument_hasEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() {
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
	walk(reflect.TypeFor[definition.Definition]())
	walk(reflect.TypeFor[plan.Template]())
	if len(keys) < 35 {
		t.Fatalf("only %d keys were found: %v", len(keys), keys)
	}
	for _, key := range keys {
		if !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("docs/agents.md says nothing about %q", key)
		}
	}
	for _, event := range definition.HookEvents {
		if !strings.Contains(string(text), "`"+event+"`") {
			t.Errorf("docs/agents.md says nothing about the event %s", event)
		}
	}
}
