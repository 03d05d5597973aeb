package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/cmd/skete/internal/app"
)

func TestHelpShowsTopics(t *testing.T) {
	for _, topic := range topics {
		var out, errOut bytes.Buffer
		if code := run([]string{"help", topic.name}, nil, &out, &errOut); code != 0 || errOut.Len() > 0 {
			t.Fatalf("%s: status %d, %s", topic.name, code, errOut.String())
		}
		text := out.String()
		title, _, _ := strings.Cut(text, "\n")
		if len(text) < 1000 || title == "" || title != strings.ToUpper(title) {
			t.Errorf("%s is short, or has no heading:\n%.200s", topic.name, text)
		}
		if found := regexp.MustCompile("(?m)^```|^#+ |\\]\\([a-z.]+\\)").FindString(text); found != "" {
			t.Errorf("%s still has %q", topic.name, found)
		}
	}
	for _, args := range [][]string{{"help", "modles"}, {"help", "bogus"}, {"help", "vm", "exce"}} {
		var out, errOut bytes.Buffer
		if code := run(args, nil, &out, &errOut); code != 2 || out.Len() > 0 {
			t.Errorf("%q: status %d, %q", args, code, out.String())
		}
		if near := strings.Contains(errOut.String(), "did you mean `skete help models`?"); near != (args[1] == "modles") {
			t.Errorf("%q: %s", args, errOut.String())
		}
	}
}

// lacking are files of the repository; the program carries topics of help.
var lacking = regexp.MustCompile(`docs/[a-zA-Z0-9/-]+\.md|CONTRIBUTING|ARCHITECTURE|SECURITY\.md`)

// Help of the program names no file that who has only the program lacks.
func TestHelpNamesNoFilesOfTheRepository(t *testing.T) {
	root := program{app.New(nil, nil, nil)}.root()
	listed := root.Long
	for _, topic := range topics {
		if !strings.Contains(listed, "  "+topic.name+" ") {
			t.Errorf("the root's help does not list the topic %s", topic.name)
		}
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, text := range []string{c.Short, c.Long, c.Flags().FlagUsages(), strings.ReplaceAll(c.Example, " README.md", "")} { // a file of the user's
			if found := regexp.MustCompile(lacking.String() + "|README").FindString(text); found != "" {
				t.Errorf("%s: the help names %s", c.CommandPath(), found)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// Neither do hints and errors, of the server or of any package.
func TestHintsNameNoFilesOfTheRepository(t *testing.T) {
	root := filepath.Join("..", "..")
	files, texts := token.NewFileSet(), 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == filepath.Join(root, "test") || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != root):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				texts++
				if found := lacking.FindString(lit.Value); found != "" {
					t.Errorf("%s: a text names %s", files.Position(lit.Pos()), found)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || texts < 1000 {
		t.Errorf("%d texts were read: %v", texts, err)
	}
}
