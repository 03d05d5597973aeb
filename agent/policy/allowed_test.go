package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/policy"
	"github.com/skete-dev/skete/thread"
)

func TestPreapproved(t *testing.T) {
	allow := func(r definition.Rule) definition.Rule { r.Action = definition.Allow; return r }
	for _, x := range []struct {
		tool, pattern string
		want          definition.Rule
	}{
		{"Bash", "", definition.Rule{Tools: []string{"execute"}}},
		{"Bash", "*", definition.Rule{Tools: []string{"execute"}}},
		{"Bash", "git:*", definition.Rule{Tools: []string{"execute"}, Commands: []string{"git *"}}},
		{"Bash", "git push *", definition.Rule{Tools: []string{"execute"}, Commands: []string{"git push *"}}},
		{"Bash", "git status", definition.Rule{Tools: []string{"execute"}, Commands: []string{"git status"}}},
		{"execute", "make:*", definition.Rule{Tools: []string{"execute"}, Commands: []string{"make *"}}},
		{"Read", "", definition.Rule{Tools: []string{"read_file"}}},
		{"Read", "docs/**", definition.Rule{Tools: []string{"read_file"}, Paths: []string{"docs/**"}}},
		{"Edit", "//etc/app/*", definition.Rule{Tools: []string{"edit_file", "apply_patch"}, Paths: []string{"/etc/app/*"}}},
		{"mcp__github__get_issue", "", definition.Rule{Tools: []string{"mcp__github__get_issue"}}},
		{"word_count", "", definition.Rule{Tools: []string{"word_count"}}},
	} {
		got, ok := policy.Preapproved(x.tool, x.pattern)
		if d := cmp.Diff(allow(x.want), got); d != "" || !ok {
			t.Errorf("%s(%s): %v %s", x.tool, x.pattern, ok, d)
		}
	}
	for _, x := range [][2]string{
		{"", ""},
		{"Bash", ":*"},
		{"Bash", "**"},
		{"Bash", " * "},
		{"Bash", "git:*:*"},
		{"Bash", "git:* push"},
		{"Bash", "git; rm:*"},
		{"Bash", "echo $(x)"},
		{"Bash", "echo 'x"},
		{"Bash", "a && b"},
		{"Read", "~/.ssh/*"},
		{"Read", "docs/../../etc/*"},
		{"Read", "//"},
		{"Read", "a[b"},
		{"Read", "!a"},
		{"Read", "$HOME/x"},
		{"Read", "docs//x"},
		{"WebFetch", "domain:a.test"},
		{"Task", "coder"},
		{"service", "make:*"},
	} {
		if got, ok := policy.Preapproved(x[0], x[1]); ok {
			t.Errorf("%s(%s) approves %+v", x[0], x[1], got)
		}
	}
}

// What was approved beforehand answers where a rule asks, all of it and nothing else; what is
// denied stays denied.
func TestDecide_granted(t *testing.T) {
	grant := func(by, tool, pattern string) policy.Grant {
		r, ok := policy.Preapproved(tool, pattern)
		if !ok {
			t.Fatalf("%s(%s)", tool, pattern)
		}
		return policy.Grant{By: by, Rules: []definition.Rule{r}}
	}
	git, jq, docs := grant("git", "Bash", "git:*"), grant("jq", "Bash", "jq:*"), grant("docs", "Read", "docs/**")
	asks, denies := rules("ask"), rules("deny execute;;git push *", "ask")
	noApprove := rules("ask execute")
	noApprove[0].Decisions = []thread.Decision{thread.Edit, thread.Reject}
	for _, x := range []struct {
		name   string
		rules  []definition.Rule
		call   policy.Call
		grants []policy.Grant
		want   string
		by     string
	}{
		{"nothing is granted", asks, run("git status"), nil, "ask", ""},
		{"what is granted", asks, run("git status"), []policy.Grant{git}, "allow", "git"},
		{"another command", asks, run("gitx status"), []policy.Grant{git}, "ask", ""},
		{"a command beside it", asks, run("git status && curl x"), []policy.Grant{git}, "ask", ""},
		{"a command in it", asks, run("git log $(curl x)"), []policy.Grant{git}, "ask", ""},
		{"a file that it writes", asks, run("git log > /etc/passwd"), []policy.Grant{git}, "ask", ""},
		{"a variable before it", asks, run("GIT_PAGER=sh git log"), []policy.Grant{git}, "ask", ""},
		{"another program of the name", asks, run("./git status"), []policy.Grant{git}, "ask", ""},
		{"what cannot be understood", asks, run("git log <<<$((("), []policy.Grant{git}, "ask", ""},
		{"two that are granted", asks, run("git log | jq ."), []policy.Grant{git, jq}, "allow", "git, jq"},
		{"one of two", asks, run("git log | jq ."), []policy.Grant{git}, "ask", ""},
		{"what is denied", denies, run("git push"), []policy.Grant{git}, "deny", ""},
		{"what is denied beside it", denies, run("git log && git push"), []policy.Grant{git}, "deny", ""},
		{"what no rule asks about", nil, run("git log"), []policy.Grant{git}, "allow", ""},
		{"another tool", asks, on("write_file", "w:/workspace/docs/a"), []policy.Grant{git, docs}, "ask", ""},
		{"a path", asks, on("read_file", "/workspace/docs/a"), []policy.Grant{docs}, "allow", "docs"},
		{"a path beside it", asks, on("read_file", "/workspace/docs/a", "/etc/passwd"), []policy.Grant{docs}, "ask", ""},
		{"a way up", asks, on("read_file", "/workspace/docs/../../etc/passwd"), []policy.Grant{docs}, "ask", ""},
		{"a service that runs it", asks, serve("git log"), []policy.Grant{git}, "ask", ""},
		{"people may not approve it", noApprove, run("git log"), []policy.Grant{git}, "ask", ""},
		{"what asks unless a rule allows it", nil, policy.Call{Tool: "undo_changes"}, []policy.Grant{git}, "ask", ""},
	} {
		v := policy.Decide(x.rules, x.call, x.grants...)
		if v.Action != x.want || v.By != x.by {
			t.Errorf("%s: %s by %q, not %s by %q", x.name, v.Action, v.By, x.want, x.by)
		}
		if without := policy.Decide(x.rules, x.call); without.Action != v.Action && (without.Action != "ask" || v.Action != "allow") {
			t.Errorf("%s: %s became %s", x.name, without.Action, v.Action)
		}
	}
	deny := policy.Grant{By: "x", Rules: rules("deny execute", "ask execute")}
	if v := policy.Decide(asks, run("git log"), deny); v.Action != "ask" {
		t.Errorf("rules of a grant that do not allow: %s", v.Action)
	}
}

// No word of a skill makes more of a call than what a rule asks about.
func FuzzPreapproved(f *testing.F) {
	f.Add("Bash", "git:*", "git push")
	f.Add("Read", "docs/**", "cat x")
	f.Fuzz(func(t *testing.T, tool, pattern, line string) {
		r, ok := policy.Preapproved(tool, pattern)
		if !ok {
			return
		}
		g := policy.Grant{By: "x", Rules: []definition.Rule{r}}
		if v := policy.Decide(rules("deny"), run(line), g); v.Action != "deny" {
			t.Fatalf("%+v: %s", r, v.Action)
		}
		if v := policy.Decide(rules("ask"), policy.Call{Tool: "delete", Touches: nil}, g); v.Action != "ask" && tool != "delete" {
			t.Fatalf("%+v: %s", r, v.Action)
		}
	})
}
