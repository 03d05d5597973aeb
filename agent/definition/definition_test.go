package definition_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

const whole = `name: reviewer
description: Reads changes and says what is wrong with them.
model: anthropic/some-model
instructions: |
  Read the change.
tools: [read_file, grep, execute, task]
agents: [general-purpose]
calling: json
effort: high
limits:
  steps: 40
  tokens: 200000
  cost_usd: 1.5
  wall: 30m
  parallel_max: 4
  window_tokens: 32000
  result_tokens_max: 4000
  tool_timeout: 2m
approvals:
  - action: allow
    tools: [execute]
    commands: ["git diff *", "git log *"]
  - action: ask
    tools: [execute]
    reason: a command that nobody expected
    decisions: [approve, reject]
    expires: 24h
  - {action: deny, paths: ["/workspace/.env"]}
hooks:
  - event: PreToolUse
    tools: [execute]
    command: [python3, /workspace/hook.py]
    timeout: 5s
    where: sandbox
memory: [/workspace/AGENTS.md]
skills: [review-*, "!review-old"]
plan: bug-fix
result:
  type: object
  properties: {ok: {type: boolean}}
  required: [ok]
sandbox: {template: python, memory_mb: 1024}
bare: true
`

func wanted() definition.Definition {
	return definition.Definition{
		Name: "reviewer", Description: "Reads changes and says what is wrong with them.", Model: "anthropic/some-model",
		Instructions: "Read the change.", Bare: true,
		Tools: []string{"read_file", "grep", "execute", "task"}, Agents: []string{"general-purpose"},
		Calling: "json", Effort: "high",
		Limits: definition.Limits{
			Budget:      thread.Budget{Steps: 40, Tokens: 200000, CostUSD: 1.5, Wall: 30 * time.Minute},
			ParallelMax: 4, WindowTokens: 32000, ResultTokensMax: 4000, ToolTimeout: 2 * time.Minute,
		},
		Rules: []definition.Rule{
			{Action: "allow", Tools: []string{"execute"}, Commands: []string{"git diff *", "git log *"}},
			{
				Action: "ask", Tools: []string{"execute"}, Reason: "a command that nobody expected",
				Decisions: []thread.Decision{thread.Approve, thread.Reject}, Expires: 24 * time.Hour,
			},
			{Action: "deny", Paths: []string{"/workspace/.env"}},
		},
		Hooks: []definition.CommandHook{{
			Event: "PreToolUse", Tools: []string{"execute"}, Command: []string{"python3", "/workspace/hook.py"},
			Timeout: 5 * time.Second, Where: "sandbox",
		}},
		Memory: []string{"/workspace/AGENTS.md"}, Skills: []string{"review-*", "!review-old"}, Plan: "bug-fix",
		Result: map[string]any{
			"type": "object", "properties": map[string]any{"ok": map[string]any{"type": "boolean"}}, "required": []any{"ok"},
		},
		Sandbox: map[string]any{"template": "python", "memory_mb": 1024.0},
	}
}

func TestParse_readsEveryKey(t *testing.T) {
	got, err := definition.Parse("agents/reviewer.yaml", []byte(whole), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wanted(), got); d != "" {
		t.Error(d)
	}
	front := strings.Replace(whole, "instructions: |\n  Read the change.\n", "", 1)
	got, err = definition.Parse("agents/reviewer.md", []byte("---\n"+front+"---\n\nRead the change.\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wanted(), got); d != "" {
		t.Error(d)
	}
}

func TestJSON_saysTheSame(t *testing.T) {
	front := strings.Replace(whole, "instructions: |\n  Read the change.\n", "", 1)
	for file, text := range map[string]string{"agents/reviewer.yaml": whole, "agents/reviewer.md": "---\n" + front + "---\n\nRead the change.\n"} {
		sent, err := definition.JSON(file, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := definition.Parse("definition.yaml", sent, nil)
		if err != nil {
			t.Fatalf("%s: %v: %s", file, err, sent)
		}
		if d := cmp.Diff(wanted(), got); d != "" {
			t.Error(d)
		}
	}
	if _, err := definition.JSON("a.yaml", []byte("mdel: x")); errs.Public(err) != `a.yaml:1:1: "mdel" is not a key here; did you mean "model"?` {
		t.Error(err)
	}
}

func TestParse_namesAnAgentAfterItsFile(t *testing.T) {
	for _, file := range []string{"agents/a-b.yaml", "a-b.yml", "x/a-b.md"} {
		content := "description: x\n"
		if strings.HasSuffix(file, ".md") {
			content = "---\n" + content + "---\nHello"
		}
		d, err := definition.Parse(file, []byte(content), nil)
		if err != nil || d.Name != "a-b" {
			t.Errorf("%s: %q, %v", file, d.Name, err)
		}
	}
}

func TestParse_refusesWithThePlace(t *testing.T) {
	cases := []struct{ name, file, content, want string }{
		{"an unknown key", "a.yaml", "name: a\nmodell: x\n", `a.yaml:2:1: "modell" is not a key here; did you mean "model"?`},
		{"an unknown key in a list", "a.yaml", "approvals:\n  - action: ask\n    tool: [x]\n", `a.yaml:3:5: "tool" is not a key here; did you mean "tools"?`},
		{"a key twice", "a.yaml", "name: a\nname: b\n", "a.yaml:2:1: "},
		{"a wrong type", "a.yaml", "tools: ls\n", "a.yaml:1:8: a list is wanted here, not text"},
		{"a bare number for a time", "a.yaml", "limits: {wall: 10}\n", `a.yaml:1:16: a time such as "10m"`},
		{"a place behind front matter", "a.md", "---\nname: a\ncalling: jsno\n---\nHello", `a.md:3:1: "jsno" is not one of native, json; did you mean "json"?`},
		{"no front matter", "a.md", "Hello", "a.md:1:1: the file should begin with ---"},
		{"instructions twice", "a.md", "---\ninstructions: a\n---\nb", "a.md:2:1: the instructions are there twice"},
		{"a bad name", "a.yaml", "name: A_b", `a.yaml:1:1: "A_b" is no name`},
		{"a bad name of a file", "A b.yaml", "", `A b.yaml: "A b" is no name`},
		{"a hyphen too many", "a.yaml", "name: a--b", "is no name"},
		{"a long name", "a.yaml", "name: " + strings.Repeat("a", 65), "is no name"},
		{"a rule without action", "a.yaml", "approvals: [{tools: [ls]}]", "a rule needs an action"},
		{"an unknown action", "a.yaml", "approvals:\n- action: alow", `a.yaml:2:3: "alow" is not one of allow, deny, ask; did you mean "allow"?`},
		{"a bad glob", "a.yaml", "approvals: [{action: deny, paths: ['/a/[']}]", `"/a/[" is no pattern of paths`},
		{"a bad command", "a.yaml", "approvals: [{action: deny, commands: ['a && b']}]", "it describes one simple command"},
		{"an unknown decision", "a.yaml", "approvals: [{action: ask, decisions: [aprove]}]", `did you mean "approve"?`},
		{"a time below 0", "a.yaml", "approvals: [{action: ask, expires: -1h}]", "a time is not below 0"},
		{"a limit below 0", "a.yaml", "limits:\n  steps: -1", "a.yaml:2:3: a limit is not below 0"},
		{"too parallel", "a.yaml", "limits: {parallel_max: 1000}", "at most 64"},
		{"too few repeats", "a.yaml", "limits: {repeats_max: 2}", "3 to 500"},
		{"too many repeats", "a.yaml", "limits: {repeats_max: 501}", "3 to 500"},
		{"an unknown event", "a.yaml", "hooks: [{event: PreTooluse, command: [x]}]", `did you mean "PreToolUse"?`},
		{"a hook without a command", "a.yaml", "hooks: [{event: Stop}]", "a hook needs a command"},
		{"a hook that is two", "a.yaml", "hooks: [{plugin: p, command: [x]}]", "a hook is a command or a plug-in, not both"},
		{"a plug-in elsewhere", "a.yaml", "hooks: [{plugin: p, where: host}]", "a plug-in runs in a sandbox of its own"},
		{"a plug-in's bad name", "a.yaml", "hooks: [{plugin: ../p}]", "is no name"},
		{"a hook elsewhere", "a.yaml", "hooks: [{event: Stop, command: [x], where: moon}]", `"moon" is not one of sandbox, host`},
		{"a patient hook", "a.yaml", "hooks: [{event: Stop, command: [x], timeout: 1h}]", "at most 10m0s"},
		{"a skill without a name", "a.yaml", "skills: ['!']", "no name and no glob"},
		{"a broken glob of skills", "a.yaml", "skills: ['a[']", "no name and no glob"},
		{"a relative memory", "a.yaml", "memory: [AGENTS.md]", "is no absolute path"},
		{"a memory that climbs", "a.yaml", "memory: [/workspace/../etc/x]", "is no absolute path"},
		{"a bad schema", "a.yaml", "result:\n  type: strnig", "a.yaml:1:1: the schema cannot be used"},
		{"an agent twice", "a.yaml", "agents: [b, b]", `"b" is there twice`},
		{"all at once", "a.yaml", "name: A\nplan: B\n", "\na.yaml:2:1: "},
		{"too large", "a.yaml", strings.Repeat("#", 64<<10) + "#", "a.yaml: larger than 64 KiB"},
		{"too large a Markdown", "a.md", "---\n---\n" + strings.Repeat("x", 64<<10), "a.md: larger than 64 KiB"},
		{"an alias", "a.yaml", "name: &n a\ndescription: *n", "references"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := definition.Parse(c.file, []byte(c.content), nil)
			if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}

func TestDefinition_survivesJSON(t *testing.T) {
	d := wanted()
	d.Agents = nil // resolved ones stand in Subagents
	d.Subagents = map[string]definition.Definition{"helper": {Name: "helper", Description: "x"}}
	first, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var again definition.Definition
	if err := json.Unmarshal(first, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, again); diff != "" {
		t.Error(diff)
	}
	second, _ := json.Marshal(again)
	if string(first) != string(second) {
		t.Errorf("%s\n%s", first, second)
	}
}

func TestPicks(t *testing.T) {
	cases := []struct {
		patterns string
		in, out  string
	}{
		{"", "ls execute mcp_x", ""},
		{"ls execute", "ls execute", "lss mcp_x"},
		{"mcp_*", "mcp_x mcp_", "ls"},
		{"!execute", "ls mcp_x", "execute"},
		{"!execute !mcp_*", "ls", "execute mcp_x"},
		{"* !mcp_* mcp_x", "ls mcp_x", "mcp_y"},
		{"{ls,grep}", "ls grep", "glob"},
	}
	for _, c := range cases {
		for name := range strings.FieldsSeq(c.in) {
			if !definition.Picks(strings.Fields(c.patterns), name) {
				t.Errorf("%q does not pick %s", c.patterns, name)
			}
		}
		for name := range strings.FieldsSeq(c.out) {
			if definition.Picks(strings.Fields(c.patterns), name) {
				t.Errorf("%q picks %s", c.patterns, name)
			}
		}
	}
}

var tools = []string{"ls", "read_file", "write_file", "edit_file", "delete", "glob", "grep", "execute", "write_todos", "task", "adopt_plan"}

func TestBuiltIn_isWithoutProblems(t *testing.T) {
	set := definition.BuiltIn()
	for _, e := range set.List() {
		if e.Err != nil || !e.BuiltIn {
			t.Fatalf("%s: %v", e.Name, e.Err)
		}
		d, err := set.Resolve(e.Name)
		if err != nil {
			t.Fatal(err)
		}
		if p := definition.Validate(d, tools); len(p) > 0 {
			t.Errorf("%s: %v", e.Name, p)
		}
		if d.Program == nil {
			goldenInstructions(t, d)
		}
	}
	d, err := set.Resolve("")
	if err != nil || d.Name != "default" || len(d.Subagents) != 1 {
		t.Fatalf("%s has %d sub-agents: %v", d.Name, len(d.Subagents), err)
	}
	if !strings.Contains(d.Instructions, "write_todos") || !strings.Contains(d.Instructions, "/memories/") {
		t.Errorf("the default agent does not know what it has:\n%s", d.Instructions)
	}
	if len(d.Subagents["general-purpose"].Subagents) != 0 {
		t.Error("the general-purpose agent can start another one")
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// instructionTokensMax bounds what the instructions of an agent that is built in cost in
// every request, at four characters a token. The tools have the rest of 4,500: tool/kit.
const instructionTokensMax = 1000

// goldenInstructions holds what an agent is told by a file; ADR 0040 says what each
// paragraph is for.
func goldenInstructions(t *testing.T, d definition.Definition) {
	t.Helper()
	if n := len(d.Instructions) / 4; n > instructionTokensMax {
		t.Errorf("%s: %d tokens of instructions, at most %d", d.Name, n, instructionTokensMax)
	}
	golden := "testdata/" + d.Name + ".txt"
	if *update {
		if err := os.WriteFile(golden, []byte(d.Instructions+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), d.Instructions+"\n"); diff != "" {
		t.Errorf("%s is told something else; -update writes %s anew\n%s", d.Name, golden, diff)
	}
}

func file(content string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(content)} }

func load(t *testing.T, files fstest.MapFS) *definition.Set {
	t.Helper()
	set, err := definition.Load(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestResolve_fillsInSubagents(t *testing.T) {
	set := load(t, fstest.MapFS{
		"lead.yaml":   file("description: l\nagents: [coder, general-purpose]\napprovals: [{action: ask, tools: [execute]}]\nmodel: m\ntools: ['!delete']\nhooks: [{event: Stop, command: [x]}]\nlimits: {steps: 9, parallel_max: 2}"),
		"coder.md":    file("---\ndescription: c\nagents: [tester]\n---\nWrite code."),
		"tester.yaml": file("description: t\napprovals: []\nbare: true\ninstructions: Test."),
		"README.md":   file("not an agent"),
		"_draft.yaml": file("{{"),
		"x.txt":       file("no"),
		"dir/y.yaml":  file("no: y"),
	})
	d, err := set.Resolve("lead")
	if err != nil {
		t.Fatal(err)
	}
	coder, general := d.Subagents["coder"], d.Subagents["general-purpose"]
	if len(d.Subagents) != 2 || len(coder.Subagents) != 1 || d.Agents != nil {
		t.Errorf("%+v", d.Subagents)
	}
	if diff := cmp.Diff(d.Rules, coder.Rules); diff != "" || len(coder.Hooks) != 1 {
		t.Errorf("a sub-agent without rules of its own has not its parent's: %s", diff)
	}
	if tester := coder.Subagents["tester"]; len(tester.Rules) != 0 || tester.Instructions != "Test." {
		t.Errorf("%+v", tester)
	}
	if !cmp.Equal(general.Rules, d.Rules) || !cmp.Equal(general.Tools, d.Tools) || general.Limits.ParallelMax != 2 || general.Limits.Steps != 0 {
		t.Errorf("the general-purpose agent is not like its parent: %+v", general)
	}
	if general.Uses("delete") {
		t.Error("a parent without delete gets it by general-purpose")
	}
	// Twice is the same bytes: a thread's first event depends on nothing else.
	again, _ := set.Resolve("lead")
	a, _ := json.Marshal(d)
	b, _ := json.Marshal(again)
	if string(a) != string(b) {
		t.Error("two resolutions differ")
	}
	if twice, err := set.Complete(coder); err != nil || strings.Count(twice.Instructions, "You work by calling tools") != 1 {
		t.Errorf("%v\n%s", err, twice.Instructions)
	}
}

func TestResolve_refuses(t *testing.T) {
	chain := fstest.MapFS{}
	for i := range 7 {
		chain[fmt.Sprintf("n%d.yaml", i)] = file(fmt.Sprintf("description: x\nagents: [n%d]", i+1))
	}
	chain["n7.yaml"] = file("description: x")
	wide := fstest.MapFS{}
	for _, layer := range []string{"a", "b", "c"} {
		for i := range 9 {
			text := "description: x\n"
			if layer != "c" {
				next := string(layer[0] + 1)
				text += "agents: ["
				for j := range 9 {
					text += fmt.Sprintf("%s%d,", next, j)
				}
				text += "]"
			}
			wide[fmt.Sprintf("%s%d.yaml", layer, i)] = file(text)
		}
	}
	cases := []struct {
		name    string
		files   fstest.MapFS
		resolve string
		class   errs.Class
		want    string
	}{
		{"an unknown agent", nil, "defaul", errs.NotFound, `there is no agent "defaul"; did you mean "default"?`},
		{"an unknown sub-agent", fstest.MapFS{"a.yaml": file("agents: [b]")}, "a", errs.NotFound, `a sub-agent of a: there is no agent "b"`},
		{"itself", fstest.MapFS{"a.yaml": file("agents: [a]")}, "a", errs.Invalid, "a circle: a -> a"},
		{"a circle", fstest.MapFS{"a.yaml": file("agents: [b]"), "b.yaml": file("agents: [c]"), "c.yaml": file("agents: [b]")}, "a", errs.Invalid, "a circle: a -> b -> c -> b"},
		{"too deep", chain, "n0", errs.Invalid, "nest deeper than 4: n0 -> n1 -> n2 -> n3 -> n4 -> n5"},
		{"too wide", wide, "a0", errs.Invalid, "more than 63 sub-agents"},
		{"too large", fstest.MapFS{"a.yaml": file("instructions: " + strings.Repeat("x", 50<<10))}, "a", errs.Invalid, "at most 40"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			set := load(t, c.files)
			_, err := set.Resolve(c.resolve)
			if !errs.Is(err, c.class) || !strings.Contains(errs.Public(err), c.want) {
				t.Errorf("%v: %v\nwant %s", errs.Of(err), err, c.want)
			}
		})
	}
	if _, err := load(t, chain).Resolve("n3"); err != nil {
		t.Errorf("four levels of sub-agents: %v", err)
	}
	_, err := load(t, nil).Resolve("x")
	if hint := errs.Hint(err); hint != "the agents are: claude-code, codex, default, gemini, general-purpose, opencode" {
		t.Errorf("hint %q", hint)
	}
}

// Files are looked at when an agent is asked for: a new one counts at once, a broken
// one breaks its agent alone, and is told once.
func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "agents")
	var told []string
	f := definition.NewFolder(dir, []string{"read_file", "execute"}, func(_ *definition.Set, err error) { told = append(told, errs.Public(err)) })
	if d, err := f.Resolve(""); err != nil || d.Name != "default" {
		t.Fatalf("without a directory: %v", err)
	}
	write := func(name, content string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yaml", "description: first")
	if d, err := f.Resolve("a"); err != nil || d.Description != "first" {
		t.Errorf("a new file: %+v, %v", d, err)
	}
	write("a.yaml", "description: second one")
	write("b.yaml", "tools: [red_file]")
	write("c.yaml", "tools: []")
	write("d.yaml", "modell: x")
	if d, err := f.Resolve("a"); err != nil || d.Description != "second one" {
		t.Errorf("a changed file beside broken ones: %+v, %v", d, err)
	}
	if _, err := f.Resolve("b"); !errs.Is(err, errs.Invalid) || errs.Public(err) != `b.yaml:1:9: there is no tool "red_file"; did you mean "read_file"?` {
		t.Errorf("an unknown tool: %v", err)
	}
	if d, err := f.Resolve("c"); err != nil || d.Uses("execute") || d.Uses("read_file") {
		t.Errorf("an empty list of tools: %+v, %v", d.Tools, err)
	}
	if _, err := f.Complete(definition.Definition{Name: "x", Tools: []string{"exekute"}}); !errs.Is(err, errs.Invalid) {
		t.Errorf("an unknown tool of a definition that was sent along: %v", err)
	}
	if n := len(f.List()); n != 10 {
		t.Errorf("%d agents", n)
	}
	if len(told) != 3 || !strings.Contains(told[2], "b.yaml:1:9") || !strings.Contains(told[2], "d.yaml:1:1") {
		t.Errorf("told: %q", told)
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Resolve("a"); !errs.Is(err, errs.NotFound) {
		t.Errorf("a file that is gone: %v", err)
	}
}

func TestLoad_keepsTheGoodOnes(t *testing.T) {
	set, err := definition.Load(fstest.MapFS{
		"good.yaml":    file("description: x"),
		"bad.yaml":     file("modell: x"),
		"worse.md":     file("x"),
		"twin.yaml":    file("description: x"),
		"twin.md":      file("---\ndescription: y\n---\n"),
		"default.yaml": file("description: mine"),
	}, nil)
	if !errs.Is(err, errs.Invalid) {
		t.Fatal(err)
	}
	for _, want := range []string{"bad.yaml:1:1: ", "worse.md:1:1: ", `twin.yaml: the agent "twin" is in twin.md too`} {
		if !strings.Contains(errs.Public(err), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
	if _, err := set.Resolve("good"); err != nil {
		t.Error(err)
	}
	if _, err := set.Resolve("bad"); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), "bad.yaml:1:1") {
		t.Errorf("a broken file is not told when it is asked for: %v", err)
	}
	if d, err := set.Resolve("default"); err != nil || d.Description != "mine" {
		t.Errorf("a file does not override what is built in: %v", err)
	}
	many := fstest.MapFS{}
	for i := range 65 {
		many[fmt.Sprintf("a%d.yaml", i)] = file("")
	}
	if _, err := definition.Load(many, nil); err == nil || !strings.Contains(err.Error(), "more than 64 agents") {
		t.Error(err)
	}
	if set, err := definition.Load(fstest.MapFS{}, nil); err != nil || len(set.List()) != 6 {
		t.Error(err)
	}
}

// A program that is built in and cannot be installed ends with what its installation says, and
// not with what a shell says of a program that is not there.
func TestBuiltin_notInstalled(t *testing.T) {
	bin := t.TempDir() // has nothing but what the commands need, none of the programs for one
	mkdir, err := exec.LookPath("mkdir")
	if err != nil {
		t.Skip("skipped: no mkdir")
	}
	const npm = "#!/bin/sh\ncase \"$*\" in *--silent*) ;; *) echo \"npm error: no registry\" >&2 ;; esac\nexit 7\n"
	if err := errors.Join(os.Symlink(mkdir, filepath.Join(bin, "mkdir")), os.WriteFile(filepath.Join(bin, "npm"), []byte(npm), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"codex", "opencode", "claude-code", "gemini"} {
		d, err := load(t, nil).Resolve(name)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", d.Program.Command)
		cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + bin}
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 7 || !strings.Contains(string(out), "npm error: no registry") {
			t.Errorf("%s: status %d, %v: %s", name, code, err, out)
		}
	}
}

// The recipes of coding agents install the versions that are installed without them.
func TestBuiltin_recipes(t *testing.T) {
	install := regexp.MustCompile(`npm install [^&\n]*\s(\S+@[0-9.]+)`)
	for _, name := range []string{"codex", "opencode", "claude-code", "gemini"} {
		d, err := load(t, nil).Resolve(name)
		if err != nil {
			t.Fatal(err)
		}
		recipe, err := os.ReadFile(filepath.Join("../../examples/coding", name, "skete.template.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		here, there := install.FindStringSubmatch(d.Program.Command), install.FindSubmatch(recipe)
		if here == nil || there == nil || here[1] != string(there[1]) {
			t.Errorf("%s: installed is %q, by the recipe %q", name, here, there)
		}
	}
}

func TestValidate_warns(t *testing.T) {
	cases := []struct {
		content, path, text string
		warning             bool
	}{
		{"tools: [raed_file]", "tools[0]", `there is no tool "raed_file"; did you mean "read_file"?`, false},
		{"tools: [mcp_*]", "tools[0]", `no tool matches "mcp_*"`, true},
		{"tools: [ls]\nagents: [b]", "agents", "no tool `task`", true},
		{"approvals: [{action: ask}, {action: deny}]", "approvals[1]", "never reached: approvals[0] is for every call", true},
		{"approvals: [{action: allow, expires: 1h}]", "approvals[0]", "mean something only with `action: ask`", true},
		{"approvals: [{action: deny, paths: [/x]}]", "approvals[0].paths", "paths bind the file tools", true},
		{"hooks: [{event: Stop, command: [x], tools: [ls]}]", "hooks[0].tools", "Stop is not about a tool", true},
		{"limits: {window_tokens: 1000}", "limits.window_tokens", "a window of 1000 tokens", true},
	}
	for _, c := range cases {
		d, err := definition.Parse("a.yaml", []byte(c.content), nil)
		if err != nil {
			t.Errorf("%s: %v", c.content, err)
			continue
		}
		got := definition.Validate(d, tools)
		if len(got) != 1 || got[0].Path != c.path || !strings.Contains(got[0].Text, c.text) || got[0].Warning != c.warning {
			t.Errorf("%s: %v", c.content, got)
		}
	}
}

func TestHostHooks_areFoundInSubagents(t *testing.T) {
	host := definition.Definition{Hooks: []definition.CommandHook{{Where: "host"}}}
	nested := definition.Definition{Subagents: map[string]definition.Definition{"a": {Subagents: map[string]definition.Definition{"b": host}}}}
	if !host.HostHooks() || !nested.HostHooks() || (definition.Definition{}).HostHooks() {
		t.Error("HostHooks is wrong")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a.yaml", []byte(whole))
	f.Add("a.md", []byte("---\nname: a\n---\nx"))
	f.Add("a.yaml", []byte("approvals: [{action: deny, commands: ['a *'], paths: ['{a,b}/**']}]"))
	f.Add("a.yaml", []byte("result: {type: [string]}"))
	set := definition.BuiltIn()
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		d, err := definition.Parse(name, data, nil)
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Fatal(err)
			}
			return
		}
		first, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var again definition.Definition
		if err := json.Unmarshal(first, &again); err != nil {
			t.Fatal(err)
		}
		if second, _ := json.Marshal(again); string(first) != string(second) {
			t.Fatalf("%s\n%s", first, second)
		}
		if _, err := set.Complete(d); err != nil && errs.Of(err) == errs.Internal {
			t.Fatal(err)
		}
	})
}
