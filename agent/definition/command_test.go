package definition_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/yamlfile"
)

func TestParseCommand(t *testing.T) {
	c, err := definition.ParseCommand("commands/fix.md", []byte("---\ndescription: Mends.\nagent: a\nmodel: m\nplan: true\ncheck: make test\nrubric: r\n---\n\nFix $1.\n"))
	want := definition.Command{Name: "fix", Description: "Mends.", Agent: "a", Model: "m", Plan: true, Check: "make test", Rubric: "r", Text: "Fix $1."}
	if d := cmp.Diff(want, c); d != "" || err != nil {
		t.Error(err, d)
	}
	if c, err := definition.ParseCommand("fix.md", []byte("Fix it.")); err != nil || c.Text != "Fix it." {
		t.Errorf("%+v, %v", c, err)
	}
	for name, bad := range map[string]struct{ file, text, says string }{
		"nothing":       {"a.md", "", "says nothing"},
		"only keys":     {"a.md", "---\ndescription: x\n---\n", "says nothing"},
		"a wrong key":   {"a.md", "---\nagnet: x\n---\ny", `did you mean "agent"?`},
		"a wrong value": {"a.md", "---\nplan: [1]\n---\ny", "a.md:2"},
		"a wrong name":  {"A B.md", "y", "is no name"},
		"too large":     {"a.md", strings.Repeat("x", yamlfile.BytesMax+1), "larger than"},
	} {
		if _, err := definition.ParseCommand(bad.file, []byte(bad.text)); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), bad.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExpand(t *testing.T) {
	for _, c := range []struct{ text, said, want string }{
		{"Fix it.", "", "Fix it."},
		{"Fix it.", " the parser ", "Fix it.\n\nthe parser"},
		{"Fix $ARGUMENTS now.", "a  b", "Fix a  b now."},
		{"$2 before $1, not $3", "a b", "b before a, not "},
		{"costs $10 and $ARGUMENTSX", "a", "costs $10 and $ARGUMENTSX\n\na"},
		{"$1", "$ARGUMENTS $2", "$ARGUMENTS"}, // what was said is not looked into
	} {
		if got := (definition.Command{Text: c.text}).Expand(c.said); got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.text, c.said, got, c.want)
		}
	}
}

func TestCommandOf(t *testing.T) {
	for task, want := range map[string][3]string{
		"/fix": {"fix", "", "y"}, "/fix the parser": {"fix", "the parser", "y"}, "/fix\nall": {"fix", "all", "y"},
		"/etc/hosts is empty": {"etc/hosts", "is empty", ""}, "fix": {"", "", ""}, "/": {"", "", ""}, "/ fix": {"", "fix", ""}, "/../x": {"../x", "", ""},
	} {
		name, said, ok := definition.CommandOf(task)
		if name != want[0] || said != want[1] || ok != (want[2] == "y") {
			t.Errorf("%q: %q, %q, %v", task, name, said, ok)
		}
	}
}

func TestFolder_commands(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, definition.CommandsDir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := definition.NewFolder(dir, tools, nil)
	if list := f.Commands(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	write("b.md", "do b")
	write("a.md", "")
	write("README", "no command")
	write("No Name.md", "none either")
	write("large.md", strings.Repeat("x", yamlfile.BytesMax*2))
	list := f.Commands()
	if len(list) != 3 || list[0].Name != "a" || list[0].Err == nil || list[1].Name != "b" || list[1].Err != nil || list[2].Err == nil {
		t.Errorf("%+v", list)
	}
	for _, name := range []string{"c", "../b", "", "b.md"} {
		if _, err := f.Command(name); !errs.Is(err, errs.NotFound) {
			t.Errorf("%q: %v", name, err)
		}
	}
	write("b.md", "do it differently")
	if c, err := f.Command("b"); err != nil || c.Text != "do it differently" {
		t.Errorf("a change does not count: %+v, %v", c, err)
	}
	if d, err := f.Resolve(""); err != nil || d.Name != "default" {
		t.Errorf("the agents beside them: %v", err)
	}
}

func FuzzParseCommand(f *testing.F) {
	f.Add("---\nplan: true\n---\nFix $1.", "the parser")
	f.Add("$ARGUMENTS", "$1")
	f.Fuzz(func(t *testing.T, text, said string) {
		c, err := definition.ParseCommand("a.md", []byte(text))
		if err == nil && len(c.Expand(said)) > len(c.Text)*(len(said)+1)+len(said)+2 {
			t.Errorf("%q says too much", text)
		}
	})
}
