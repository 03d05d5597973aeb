package history

import (
	"strings"
	"testing"

	"github.com/skete-dev/skete/workspace"
)

func TestTitle(t *testing.T) {
	for label, want := range map[string]string{
		`edit_file {"file_path":"src/theme.js","old_string":"a","new_string":"b"}`: "edit_file src/theme.js",
		`execute {"description":"build it","command":"make\ttest"}`:                "execute make test",
		`execute {"command":"make \"all\""}; meanwhile exec ls`:                    `execute make "all"; meanwhile exec ls`,
		`write_file {"file_path":"a b.txt","content":"a long te…`:                  "write_file a b.txt",
		`write_file {"content":"a long te…`:                                        "write_file a long te…",
		`write_file {"content":"` + strings.Repeat("x", 3) + `\n` + `","file_path`: "write_file xxx",
		`checkout {}`:         "checkout",
		`exec echo {"a":"b"}`: `exec echo {"a":"b"}`,
		`note {not json`:      `note {not json`,
		`before lunch`:        "before lunch",
		``:                    "changed",
	} {
		if got := titleOf(workspace.Revision{Label: label}); got != want {
			t.Errorf("%s: %q, want %q", label, got, want)
		}
	}
	if got := titleOf(workspace.Revision{Actor: workspace.Outside}); got != "changed outside" {
		t.Error(got)
	}
}

func TestWho(t *testing.T) {
	for _, c := range []struct {
		workspace.Revision
		want string
	}{
		{workspace.Revision{Actor: "agent", Run: "run_1", Call: "call_1"}, "the agent"},
		{workspace.Revision{Actor: workspace.Outside, Run: "run_1"}, "your message"},
		{workspace.Revision{Actor: workspace.Outside}, "unknown"},
		{workspace.Revision{Actor: "api:ci"}, "API (ci)"},
		{workspace.Revision{Actor: "user:key_1", Undoes: 3}, "by hand"},
		{workspace.Revision{Actor: "user:key_1 ana of ops", Undoes: 3}, "ana of ops"},
		{workspace.Revision{Actor: "user:usr_1 local", Undoes: 3}, "local"},
		{workspace.Revision{Actor: "user:john doe", Undoes: 3}, "by hand"},
	} {
		if got := whoOf(c.Revision); got != c.want {
			t.Errorf("%+v: %q, want %q", c.Revision, got, c.want)
		}
	}
}
