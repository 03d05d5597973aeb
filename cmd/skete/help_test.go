package main

import (
	"bytes"
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

// Help of the program names no file that who has only the program lacks.
func TestHelpNamesNoFilesOfTheRepository(t *testing.T) {
	lacking := regexp.MustCompile(`docs/[a-z-]+\.md|README|ARCHITECTURE|SECURITY\.md`)
	root := program{app.New(nil, nil, nil)}.root()
	listed := root.Long
	for _, topic := range topics {
		if !strings.Contains(listed, "  "+topic.name+" ") {
			t.Errorf("the root's help does not list the topic %s", topic.name)
		}
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if found := lacking.FindString(c.Short + c.Long + c.Flags().FlagUsages()); found != "" {
			t.Errorf("%s: the help names %s", c.CommandPath(), found)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}
