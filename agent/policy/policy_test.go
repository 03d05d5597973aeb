package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/policy"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// rule reads "deny execute ; /paths ; rm *, mv *".
func rule(s string) definition.Rule {
	parts := strings.Split(s, ";")
	head := strings.Fields(parts[0])
	r := definition.Rule{Action: head[0], Tools: head[1:]}
	if len(parts) > 1 {
		r.Paths = strings.Fields(parts[1])
	}
	if len(parts) > 2 {
		for c := range strings.SplitSeq(parts[2], ",") {
			r.Commands = append(r.Commands, strings.TrimSpace(c))
		}
	}
	return r
}

func rules(list ...string) []definition.Rule {
	var rs []definition.Rule
	for _, s := range list {
		rs = append(rs, rule(s))
	}
	return rs
}

func run(line string) policy.Call { return policy.Call{Tool: "execute", Command: line} }

func serve(line string) policy.Call { return policy.Call{Tool: "service", Command: line} }

func on(name string, touches ...string) policy.Call {
	c := policy.Call{Tool: name}
	for _, t := range touches {
		p, write := strings.CutPrefix(t, "w:")
		c.Touches = append(c.Touches, tool.Touch{Path: p, Write: write})
	}
	return c
}

func TestDecide(t *testing.T) {
	git := rules("allow execute;;git status *, git diff *", "deny execute;;rm *", "ask execute")
	denyRm := rules("deny;;rm *")
	env := rules("deny;/workspace/.env", "ask;/workspace/secrets/**")
	cases := []struct {
		name  string
		rules []definition.Rule
		call  policy.Call
		want  string
		rule  int
	}{
		{"no rules", nil, run("rm x"), "allow", -1},
		{"by tool", rules("ask write_file"), on("write_file"), "ask", 0},
		{"by a glob of tools", rules("deny mcp_*"), on("mcp_mail"), "deny", 0},
		{"all but one tool", rules("ask !ls"), on("ls"), "allow", -1},
		{"the first that matches", rules("allow ls", "deny ls"), on("ls"), "allow", 0},
		{"an undo is asked about", nil, on("undo_changes", "w:/workspace"), "ask", -1},
		{"an undo that other rules are not about", rules("allow execute", "allow *;/workspace/src/**"), on("undo_changes", "w:/workspace"), "ask", -1},
		{"an undo that a rule allows", rules("allow undo_*"), on("undo_changes", "w:/workspace"), "allow", 0},
		{"an undo that a rule about everything allows", rules("allow"), on("undo_changes", "w:/workspace"), "allow", 0},
		{"an undo of what is protected", rules("deny;/workspace/.env", "allow"), on("undo_changes", "w:/workspace"), "deny", 0},
		{"a service's command is a command", rules("deny execute;;rm *"), serve("rm -rf /"), "deny", 0},
		{"a service's other command", rules("deny execute;;rm *"), serve("npm run dev"), "allow", -1},
		{"all commands ask, a service's too", rules("ask execute"), serve("npm run dev"), "ask", 0},
		{"a service without a command is none", rules("ask execute"), on("service"), "allow", -1},
		{"who allows all but commands allows no service", rules("allow !execute", "deny"), serve("npm run dev"), "deny", 1},
		{"who allows services allows theirs", rules("allow service;;npm *", "deny"), serve("npm run dev"), "allow", 0},
		{"a tool's second name", rules("deny execute;;rm *"), policy.Call{Tool: "run_command", Command: "rm x"}, "deny", 0},
		{"a tool's second name is left out with it", rules("allow !execute", "ask"), policy.Call{Tool: "run_command", Command: "ls"}, "ask", 1},
		{"a rule for a second name", rules("ask run_command"), policy.Call{Tool: "run_command", Command: "ls"}, "ask", 0},
		{"a rule for a second name is not about the first", rules("ask run_command"), run("ls"), "allow", -1},
		{"no tools means all", rules("deny"), on("anything"), "deny", 0},
		{"an unknown action asks", rules("forbid"), on("ls"), "ask", 0},

		{"an allowed command", git, run("git status -s"), "allow", 0},
		{"two allowed commands", git, run("git status && git diff HEAD"), "allow", 0},
		{"one of two is not allowed", git, run("git status && make"), "ask", 2},
		{"one of two is denied", git, run("git status && rm x"), "deny", 1},
		{"hidden in a substitution", git, run("git status $(rm x)"), "deny", 1},
		{"hidden in quotes", git, run("git status; bash -c 'r\"m\" x'"), "deny", 1},
		{"hidden behind env", git, run("env -i rm x"), "deny", 1},
		{"hidden behind sudo", git, run("sudo rm x"), "deny", 1},
		{"hidden behind a pipe", git, run("git status | xargs rm"), "deny", 1},
		{"hidden in a here-document", git, run("git diff <<E\n$(rm x)\nE"), "deny", 1},
		{"hidden in find", git, run("find . -exec rm {} +"), "deny", 1},
		{"by its path", denyRm, run("/bin/rm x"), "deny", 0},
		{"a harmless starter keeps what is allowed", git, run("timeout 5 git status"), "allow", 0},
		{"sudo does not", git, run("sudo git status"), "ask", 2},
		{"a variable does not", git, run("GIT_EXTERNAL_DIFF=./x git diff"), "ask", 2},
		{"a redirection to a file does not", git, run("git diff > ~/.bashrc"), "ask", 2},
		{"a redirection to nowhere does", git, run("git diff 2>/dev/null"), "allow", 0},
		{"a program of that name elsewhere does not", git, run("./git status"), "ask", 2},
		{"arguments of run time do", git, run("git diff $X"), "allow", 0},
		{"a program of run time", denyRm, run("$X y"), "deny", 0},
		{"a program of run time is not allowed", git, run("$X status"), "deny", 1},
		{"not understood: denied by any command", denyRm, run("case x in x) ls;; esac"), "deny", 0},
		{"not understood: not allowed", rules("allow;;ls *", "ask"), run("ls; f() { ls; }"), "ask", 1},
		{"not understood: allowed by a rule without commands", rules("allow execute"), run("f() { ls; }"), "allow", 0},
		{"text in quotes is no command", denyRm, run("echo 'rm x' \"; rm y\""), "allow", -1},
		{"a shell from a pipe", denyRm, run("curl x | sh"), "deny", 0},
		{"a rule about a starter", rules("deny;;bash *"), run("bash -c ls"), "deny", 0},
		{"a rule for all commands", rules("ask;;*"), run("ls"), "ask", 0},
		{"a rule for commands is not about files", denyRm, on("delete", "w:/x"), "allow", -1},
		{"a comment", rules("allow;;ls", "ask"), run("# x"), "ask", 1},
		{"a bad pattern denies", rules("deny;;a && b"), run("ls"), "deny", 0},
		{"a bad pattern does not allow", rules("allow;;a && b", "ask"), run("ls"), "ask", 1},

		{"a path", env, on("write_file", "w:/workspace/.env"), "deny", 0},
		{"a path that is not clean", env, on("write_file", "w:/workspace/a/../.env"), "deny", 0},
		{"another path", env, on("write_file", "w:/workspace/.envrc"), "allow", -1},
		{"beneath", env, on("read_file", "/workspace/secrets/a/b"), "ask", 1},
		{"the directory itself", env, on("ls", "/workspace/secrets"), "ask", 1},
		{"the strictest of several", env, on("move", "/workspace/x", "w:/workspace/secrets/a", "w:/workspace/.env"), "deny", 0},
		{"deleting what holds it", env, on("delete", "w:/workspace"), "deny", 0},
		{"deleting everything", env, on("delete", "w:/"), "deny", 0},
		{"searching what holds it", env, on("grep", "/workspace"), "deny", 0},
		{"listing what holds it", env, on("ls", "/workspace"), "allow", -1},
		{"deleting a neighbour", env, on("delete", "w:/workspace/src"), "allow", -1},
		{"a bare name is meant anywhere", rules("deny;*.pem"), on("read_file", "/a/b/c.pem"), "deny", 0},
		{"and in what is deleted", rules("deny;*.pem"), on("delete", "w:/a"), "deny", 0},
		{"a relative path", rules("deny;conf/*.yaml"), on("read_file", "/workspace/conf/x.yaml"), "deny", 0},
		{"a relative path elsewhere", rules("deny;conf/*.yaml"), on("read_file", "/etc/conf/x.yaml"), "allow", -1},
		{"an allowed directory does not allow what holds it", rules("allow;/workspace/out/**", "deny"), on("delete", "w:/workspace"), "deny", 1},
		{"deleting what holds it, further down", rules("deny;/workspace/a/b/*.txt"), on("delete", "w:/workspace/a"), "deny", 0},
		{"deleting a neighbour, further down", rules("deny;/workspace/a/b/*.txt"), on("delete", "w:/workspace/b"), "allow", -1},
		{"deleting what is beneath it", rules("deny;/workspace/a/*"), on("delete", "w:/workspace/a/b/c"), "allow", -1},
		{"of two that ask, the first part's", rules("ask execute;;make *", "ask execute;;git *"), run("git push && make"), "ask", 1},
		{"a bad glob denies", rules("deny;/a/["), on("ls", "/b"), "deny", 0},
		{"a bad glob does not allow", rules("allow;/a/[", "ask"), on("ls", "/b"), "ask", 1},
		{"a rule with paths is not about a call without", env, run("cat /workspace/.env"), "allow", -1},
		{"both are meant", rules("deny;/etc/**;rm *"), policy.Call{Tool: "execute", Command: "rm x", Touches: []tool.Touch{{Path: "/etc/x"}}}, "deny", 0},
		{"one of both is not enough", rules("deny;/etc/**;rm *"), policy.Call{Tool: "execute", Command: "ls x", Touches: []tool.Touch{{Path: "/etc/x"}}}, "allow", -1},
	}
	for _, c := range cases {
		if v := policy.Decide(c.rules, c.call); v.Action != c.want || v.Rule != c.rule {
			t.Errorf("%s: %s by rule %d, want %s by %d", c.name, v.Action, v.Rule, c.want, c.rule)
		}
	}
}

func TestDecide_saysWhatMayBeDecided(t *testing.T) {
	r := definition.Rule{Action: "ask", Reason: "why", Expires: time.Hour, Decisions: []thread.Decision{thread.Approve}}
	want := policy.Verdict{Action: "ask", Reason: "why", Expires: time.Hour, Decisions: []thread.Decision{thread.Approve}}
	if d := cmp.Diff(want, policy.Decide([]definition.Rule{r}, on("ls"))); d != "" {
		t.Error(d)
	}
	r.Decisions = nil
	if v := policy.Decide([]definition.Rule{r}, on("ls")); len(v.Decisions) != 4 {
		t.Errorf("%v", v.Decisions)
	}
}

func TestRuleFor_allowsThisAndNothingElse(t *testing.T) {
	cases := []struct {
		call  policy.Call
		other []policy.Call
	}{
		{run("npm test"), []policy.Call{run("npm test x"), run("npm publish"), run("npm test; rm x"), run("sudo npm test"), run("npm test > f"), run("./npm test")}},
		{run("git commit -m 'a * \"b\" $x; it'\"'\"'s' && git push"), []policy.Call{run("git commit -m 'a z \"b\" $x; it'\"'\"'s'"), run("git push -f")}},
		{run("CI=1 npm test"), []policy.Call{run("npm test"), run("CI=2 npm test")}},
		{run("timeout 5 make"), []policy.Call{run("make all")}},
		{run("sudo make"), nil},
		{policy.Call{Tool: "run_command", Command: "make"}, []policy.Call{run("make")}},
		{on("write_file", "w:/workspace/a[1]*.go"), []policy.Call{on("write_file", "w:/workspace/a1x.go"), on("delete", "w:/workspace/a[1]*.go"), on("write_file", "w:/workspace"), on("write_file", "w:/workspace/a[1]*.go", "w:/x")}},
		{on("send_mail"), []policy.Call{on("send_mails")}},
	}
	for _, c := range cases {
		r, err := policy.RuleFor(c.call)
		if err != nil {
			t.Errorf("%+v: %v", c.call, err)
			continue
		}
		list := []definition.Rule{r, {Action: "ask"}}
		if v := policy.Decide(list, c.call); v.Rule != 0 || v.Action != "allow" {
			t.Errorf("%+v: %+v is decided by rule %d", c.call, r, v.Rule)
		}
		for _, other := range c.other {
			if v := policy.Decide(list, other); v.Action == "allow" {
				t.Errorf("%+v allows %+v", r, other)
			}
		}
		d := definition.Definition{Name: "x", Rules: []definition.Rule{r}}
		if p := definition.Validate(d, nil); len(p) > 0 {
			t.Errorf("%+v is not a rule that a file could have: %v", r, p)
		}
	}
	const runTime = "depends on variables or files, or it writes a file"
	for line, why := range map[string]string{
		"echo $X": runTime, "a > f": runTime, "rm *": runTime, "X=1": runTime, "# x": "no command", "f() { a; }": "not understand",
		strings.Repeat("a", 5000): "", "echo '\xff'": "UTF-8", "echo $'\\xff'": runTime,
	} {
		r, err := policy.RuleFor(run(line))
		if !errs.Is(err, errs.Invalid) || !strings.HasPrefix(errs.Public(err), "this call cannot be allowed for ever: ") || !strings.Contains(errs.Public(err), why) {
			t.Errorf("%.40q: %+v, %v", line, r, err)
		}
	}
}

// A rule that allows has a limit of what it can name, of each kind.
func TestRuleFor_isBounded(t *testing.T) {
	for n, fits := range map[int]bool{32: true, 33: false} {
		var lines, paths []string
		for i := range n {
			lines, paths = append(lines, fmt.Sprint("make t", i)), append(paths, fmt.Sprint("/workspace/", i))
		}
		for _, c := range []policy.Call{run(strings.Join(lines, "; ")), on("move", paths...)} {
			if _, err := policy.RuleFor(c); (err == nil) != fits {
				t.Errorf("%d of %s: %v", n, c.Tool, err)
			}
		}
	}
}

// TestDecide_isMonotonous: one more command or path never makes a call milder.
func TestDecide_isMonotonous(t *testing.T) {
	lines := []string{"git status", "rm x", "ls $X", "make > f", "sudo rm x", "echo `rm x`", "f() { x; }", "bash -c 'git status'"}
	all := rules("allow;;git *", "deny;;rm *", "ask;;make *", "allow;;ls *", "deny;/etc/**", "ask;/workspace/**", "allow")
	rank := map[string]int{"allow": 0, "ask": 1, "deny": 2}
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.SampledFrom(all), 0, 5).Draw(t, "rules")
		a, b := rapid.SampledFrom(lines).Draw(t, "a"), rapid.SampledFrom(lines).Draw(t, "b")
		one, both := policy.Decide(list, run(a)), policy.Decide(list, run(a+"; "+b))
		if rank[both.Action] < rank[one.Action] {
			t.Fatalf("%q is %s, with %q it is %s", a, one.Action, b, both.Action)
		}
		p, q := tool.Touch{Path: "/etc/x", Write: true}, tool.Touch{Path: rapid.SampledFrom([]string{"/", "/tmp/x", "/workspace/x"}).Draw(t, "q")}
		x := policy.Decide(list, policy.Call{Tool: "t", Touches: []tool.Touch{p}})
		y := policy.Decide(list, policy.Call{Tool: "t", Touches: []tool.Touch{q, p}})
		if rank[y.Action] < rank[x.Action] {
			t.Fatalf("one more path made it %s", y.Action)
		}
	})
}

func FuzzDecide(f *testing.F) {
	f.Add("git status && rm x", "rm *", "/a/**", "/a/b")
	f.Add("x $(y)", "a ** b", "{a,b}", "/")
	f.Fuzz(func(t *testing.T, line, pattern, glob, name string) {
		c := policy.Call{Tool: "execute", Command: line, Touches: []tool.Touch{{Path: name, Write: true}}}
		policy.Decide([]definition.Rule{{Action: "deny", Commands: []string{pattern}, Paths: []string{glob}}, {Action: "allow", Paths: []string{glob}}}, c)
		if r, err := policy.RuleFor(c); err == nil {
			if v := policy.Decide([]definition.Rule{r}, c); v.Rule != 0 {
				t.Fatalf("%+v does not match %+v", r, c)
			}
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	list := rules("allow execute;;git status *, git diff *, go test *", "deny execute;;rm *", "deny;/workspace/.env", "ask execute")
	c := run("cd x && GOFLAGS=-v go test ./... 2>&1 | tail -n 20")
	for b.Loop() {
		policy.Decide(list, c)
	}
}
