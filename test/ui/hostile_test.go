package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/test/browser"
)

// payload is a text that means no good.
type payload struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

const payloadsMin = 60

func corpus(t *testing.T) (list []payload) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "hostile.json"))
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < payloadsMin {
		t.Fatalf("%d payloads, at least %d", len(list), payloadsMin)
	}
	return list
}

// fileName is a payload as a name that a file can have.
func fileName(p payload) string {
	name := strings.NewReplacer("/", "\u2215", "\x00", "").Replace(p.Text)
	for len(name) > 150 {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	return name
}

// quoted is a text as YAML; brackets would count as levels.
func quoted(text string) string {
	return strings.NewReplacer("[", `\x5b`, "{", `\x7b`).Replace(strconv.QuoteToASCII(text))
}

// hostileScript says each payload, as a text, as arguments, as a file's name, and as what
// a tool gives back.
func hostileScript(list []payload) string {
	var b strings.Builder
	b.WriteString("replies:\n")
	for _, p := range list {
		text := "before-" + p.Name + "\n\n" + p.Text + "\n\n~~~~~~\n~~~~~~\n\nafter-" + p.Name
		if strings.HasPrefix(p.Text, "```") {
			text = "before-" + p.Name + "\n\n" + p.Text + "\nafter-" + p.Name
		}
		path := "/workspace/" + p.Name + " " + fileName(p)
		fmt.Fprintf(&b, "  - text: %s\n    calls:\n", quoted(text))
		fmt.Fprintf(&b, "      - {name: write_file, args: {file_path: %s, content: %s}}\n", quoted(path), quoted("in-"+p.Name+"\n"+p.Text))
		fmt.Fprintf(&b, "      - {name: execute, args: {command: 'cat %s*; echo out-%s'}}\n", p.Name, p.Name)
	}
	b.WriteString("else: {text: done}\n")
	return b.String()
}

// Scenario 19: nothing that models, tools and files say does anything in the page.
func TestHostile_textStaysText(t *testing.T) {
	const most = 14 // payloads of a run: a script is small
	s := setup{scripts: map[string]string{}}
	var models []string
	list := corpus(t)
	for part := range slices.Chunk(list, most) {
		name := fmt.Sprintf("hostile%d", len(models))
		models = append(models, name)
		s.scripts[name] = hostileScript(part)
	}
	w := newWorld(t, s)
	var runs []api.Run
	for i, model := range models {
		p := list[i]
		runs = append(runs, w.run(model, api.StartRun{Task: p.Text, Title: p.Text, Budget: api.Budget{Steps: 500}}))
	}
	var said strings.Builder
	for i, run := range runs {
		run = w.ended(run.ID)
		do[any](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
		got := do[struct {
			Said  string   `json:"said"`
			Wrong []string `json:"wrong"`
		}](w, "unfold", nil)
		said.WriteString(got.Said)
		for _, wrong := range got.Wrong {
			t.Errorf("a page has %s", wrong)
		}
		if i > 0 {
			continue
		}
		do[[]string](w, "tabs", nil)
		for _, path := range []string{"/", "/approvals", "/vms", "/vms/" + run.Sandbox, "/vms/" + run.Sandbox + "/files", "/vms/" + run.Sandbox + "/history", "/network"} {
			do[any](w, "open", map[string]any{"path": path})
		}
	}
	for _, p := range list {
		for _, mark := range []string{"before-", "after-", "in-", "out-"} {
			if !strings.Contains(said.String(), mark+p.Name) {
				t.Errorf("the page does not show %s%s", mark, p.Name)
			}
		}
	}
	w.clean()
	t.Run("TheTestWouldSee", func(t *testing.T) {
		w := w.with(t)
		do[any](w, "attack", nil)
		if got := do[watched](w, "watched", nil); len(got.Violations) < 2 || len(got.Titles) == 0 {
			t.Errorf("an attack was not seen: %+v", got)
		}
	})
}

// hostile runs a function of hostile.mjs, which is called by name.
func hostile[T any](w *world, name string, args map[string]any) T {
	w.t.Helper()
	if args == nil {
		args = map[string]any{}
	}
	args["do"], args["origin"], args["within"] = name, w.origin(), patience.Of(20*time.Second).Milliseconds()
	return browser.Run[T](w.t, w.page, "hostile.mjs", args)
}

// swept is what a page shows, and what no text may have become in it.
type swept struct {
	Said  string   `json:"said"`
	Wrong []string `json:"wrong"`
}

// shown is a text as pages write it where a person decides by it: what hides or turns is an escape.
func shown(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r != '\n' && r != '\t' && (unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029') {
			fmt.Fprintf(&b, `\u{%x}`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// spaced is a text with each gap as one space, as pages have it.
func spaced(text string) string { return strings.Join(strings.Fields(text), " ") }

// marked is a payload of one way into the page, which no other text begins like.
func marked(way string, p payload) string { return way + "-" + p.Name + ": " + p.Text }

// within cuts a text to so many bytes.
func within(text string, most int) string {
	for len(text) > most {
		_, n := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-n]
	}
	return text
}

// lacks is the first line of a text that a page, which is spaced, does not show.
func lacks(said string, lines []string) string {
	for _, line := range lines {
		if want := spaced(shown(line)); !strings.Contains(said, want) {
			return want
		}
	}
	return ""
}

// delivery is the payloads that go one way.
type delivery struct {
	way  string
	list []payload
	most int  // bytes of the first line that are shown; 0 = all of the text
	md   bool // as Markdown: the mark is looked for alone
}

// arrived asserts that a page shows all payloads of the deliveries, and what it must not have.
func arrived(t *testing.T, page string, got swept, all ...delivery) {
	t.Helper()
	for _, wrong := range got.Wrong {
		t.Errorf("%s has %s", page, wrong)
	}
	said := spaced(got.Said)
	for _, d := range all {
		if len(d.list) == 0 {
			t.Errorf("%s: nothing went the way of %s", page, d.way)
		}
		lost := 0
		for _, p := range d.list {
			lines := strings.Split(marked(d.way, p), "\n")
			if d.md {
				lines = []string{d.way + "-" + p.Name + ":"}
			} else if d.most > 0 {
				lines = []string{within(lines[0], d.most)}
			}
			if missing := lacks(said, lines); missing != "" {
				if lost++; lost < 4 {
					t.Errorf("%s does not show %q", page, missing)
				}
			}
		}
		if lost > 0 {
			t.Errorf("%s: of %d texts that went the way of %s, %d are not shown", page, len(d.list), d.way, lost)
		}
	}
}

// everywhere is a world in which payloads have gone each way into it that there is.
type everywhere struct {
	*world
	all, short []payload
	runs       map[string]api.Run
	flow       string
	refused    []payload // whose addresses were refused
	secrets    []string
	keys       []payload // as names of keys
	machines   []payload // as names of machines
	titles     []payload // as titles of runs
}

// turnScript makes all the short payloads go through one turn of an agent.
func turnScript(short []payload) string {
	var reasoning, todos strings.Builder
	bytes := 0
	for i, p := range short {
		reasoning.WriteString(marked("thought", p) + "\n")
		if bytes += len(marked("todo", p)) + 60; bytes < 15<<10 {
			status := []string{"pending", "completed", "in_progress"}[min(i%3, 1+min(i, 1))]
			fmt.Fprintf(&todos, "          - {content: %s, status: %s}\n", quoted(marked("todo", p)), status)
		}
	}
	return "replies:\n  - reasoning: " + quoted(reasoning.String()) + "\n    calls:\n      - name: write_todos\n        args:\n          todos:\n" + todos.String()
}

// asksMax is how many calls a turn can have.
const asksMax = 24

// deliver makes a world, and sends payloads into it by each way.
func deliver(t *testing.T) *everywhere {
	t.Helper()
	e := &everywhere{all: corpus(t), runs: map[string]api.Run{}}
	for _, p := range e.all {
		if len(p.Text) <= 160 {
			e.short = append(e.short, p)
		}
	}
	some := func(n int) []payload { return e.short[len(e.short)-n:] }
	asking := func(list []payload, tool string, args func(p payload) string) string {
		var b strings.Builder
		b.WriteString("replies:\n  - calls:\n")
		for _, p := range list {
			fmt.Fprintf(&b, "      - {name: %s, args: {%s}}\n", tool, args(p))
		}
		return b.String() + "else: {text: done}\n"
	}
	var options, steps []string
	var plan strings.Builder
	for _, p := range some(9) {
		options = append(options, quoted(marked("option", p)))
	}
	for _, p := range e.short[:50] {
		steps = append(steps, quoted(marked("plan", p)))
	}
	for _, p := range e.all {
		plan.WriteString(marked("written", p) + "\n\n")
	}
	child := e.short[0]
	scripts := map[string]string{
		"todos":    turnScript(e.short) + "else: {text: done}\n",
		"question": "replies:\n  - calls: [{name: ask_user, args: {question: " + quoted(marked("question", e.short[3])) + ", options: [" + strings.Join(options, ", ") + "]}}]\nelse: {text: done}\n",
		"plan":     "replies:\n  - calls: [{name: submit_plan, args: {plan: " + quoted(within(plan.String(), 30<<10)) + ", steps: [" + strings.Join(steps, ", ") + "]}}]\nelse: {text: done}\n",
		"team": "replies:\n  - calls: [{name: task, args: {description: " + quoted(marked("task", child)) + ", subagent_type: helper}}]\nelse: {text: done}\n" +
			"scenes:\n  - system: ROLE=helper\n    replies:\n      - {text: " + quoted(marked("helper", child)) + "}\n    else: {text: done}\n",
		"title": "else: {text: done}\n",
	}
	for i, list := range slices.Collect(slices.Chunk(e.short, asksMax)) {
		scripts[fmt.Sprint("commands", i)] = asking(list, "execute", func(p payload) string { return "command: " + quoted(marked("command", p)) })
		scripts[fmt.Sprint("paths", i)] = asking(list, "write_file", func(p payload) string {
			return "file_path: " + quoted("/workspace/path-"+p.Name+": "+fileName(p)) + ", content: " + quoted(marked("content", p))
		})
	}
	e.world = newWorld(t, setup{
		scripts: scripts,
		agents: map[string]string{
			"careful": "approvals:\n  - {action: ask, tools: [execute, write_file]}\n",
			"lead":    "agents: [helper]\napprovals: []\n",
			"helper":  "description: " + quoted(marked("about", child)) + "\ninstructions: ROLE=helper\nmodel: team\napprovals: []\n",
		},
	})
	e.runs["todos"] = e.run("todos", api.StartRun{})
	for name := range scripts {
		if strings.HasPrefix(name, "commands") || strings.HasPrefix(name, "paths") {
			e.runs[name] = e.run(name, api.StartRun{Agent: "careful"})
		}
	}
	e.runs["question"] = e.run("question", api.StartRun{})
	e.runs["plan"] = e.run("plan", api.StartRun{Plan: true})
	e.runs["team"] = e.run("team", api.StartRun{Agent: "lead"})
	e.titles = some(25)
	for _, p := range e.titles {
		e.run("title", api.StartRun{Title: marked("title", p), Task: marked("task", p)})
	}
	for _, p := range e.short {
		if text := marked("key", p); len(text) <= 64 {
			if _, err := e.c.CreateKey(e.ctx(), api.CreateKey{Name: text, Scopes: []string{"read"}}); err == nil {
				e.keys = append(e.keys, p)
			}
		}
		if _, err := e.c.PutSecret(e.ctx(), marked("secret", p), api.PutSecret{Value: "not-a-real-one"}); err == nil {
			e.secrets = append(e.secrets, marked("secret", p))
		}
	}
	e.machine()
	e.workflow()
	for _, name := range []string{"todos", "team"} {
		e.runs[name] = e.ended(e.runs[name].ID)
	}
	return e
}

// machine makes machines with such names, and one with such files, services and requests.
func (e *everywhere) machine() {
	for _, p := range e.short {
		if text := marked("vm", p); len(text) <= 64 && len(e.machines) < 3 && strings.ContainsAny(p.Text, "<\u202e\u200b") {
			if _, err := e.c.CreateSandbox(e.ctx(), api.CreateSandbox{Name: text, Network: "none"}); err == nil {
				e.machines = append(e.machines, p)
			}
		}
	}
	sb, err := e.c.CreateSandbox(e.ctx(), api.CreateSandbox{Network: "none", Egress: &api.NetworkPolicy{}})
	e.ok(err)
	e.runs["machine"] = api.Run{Sandbox: sb.ID}
	files := e.c.Sandbox(sb.ID).Files()
	var whole strings.Builder
	for _, p := range e.all {
		whole.WriteString(marked("line", p) + "\n")
	}
	_, err = files.Write(e.ctx(), "/workspace/whole.txt", []byte(whole.String()), client.WriteOptions{})
	e.ok(err)
	for _, p := range e.short {
		_, err = files.Write(e.ctx(), "/workspace/file-"+p.Name+": "+fileName(p), []byte(p.Text), client.WriteOptions{})
		e.ok(err)
	}
	_, err = e.c.Sandbox(sb.ID).Services().Declare(e.ctx(), api.ServiceSpec{Name: "evil", Command: "cat /workspace/whole.txt; " + `: '<img src=x onerror=window.pwned=8>'; sleep 1000`, Ports: []int{5173}}, 0)
	e.ok(err)
	var script strings.Builder
	for _, p := range e.short {
		if strings.IndexFunc(p.Text, func(r rune) bool { return r <= ' ' || r == '#' || r > 0x7e }) < 0 && !strings.ContainsAny(p.Text, `?\'`) {
			e.refused = append(e.refused, p)
			fmt.Fprintf(&script, "curl -g --path-as-is -sS -m 3 'http://%s/path-%s:%s' || :\n", publicIP, p.Name, p.Text)
		}
	}
	script.WriteString("curl -sS -m 3 -H 'Host: \u0430\u0440\u0440\u04cf\u0435.test' 'http://" + publicIP + "/host' || :\n")
	_, err = e.c.Sandbox(sb.ID).RunCommand(e.ctx(), api.RunCommand{Command: script.String()})
	e.ok(err)
	_, err = e.c.Sandbox(sb.ID).Snapshot(e.ctx(), api.CreateSnapshot{Name: "snap-<img src=x onerror=window.pwned=10>"})
	e.ok(err)
}

// choices are payloads that a person can choose between.
func (e *everywhere) choices() (list []payload) {
	for _, p := range e.short {
		if len(marked("choice", p)) <= 64 && len(list) < 9 {
			list = append(list, p)
		}
	}
	return list
}

// workflow makes a workflow of payloads, starts it, and installs such a skill.
func (e *everywhere) workflow() {
	about := quoted(marked("describes", e.short[0]))
	var nodes, edges, body strings.Builder
	choices := func(way string, list []payload) string {
		var all []string
		for _, p := range list {
			all = append(all, quoted(marked(way, p)))
		}
		return strings.Join(all, ", ")
	}
	chosen := e.choices()
	for i, p := range e.short[:20] {
		way, list := "edge", chosen[i%len(chosen):][:1]
		if i == 0 {
			way, list = "choice", chosen
		}
		fmt.Fprintf(&nodes, "  - {name: n%d, description: %s, human: {ask: %s, choices: [%s]}}\n", i, quoted(marked("node", p)), quoted(marked("asks", p)), choices(way, list))
		fmt.Fprintf(&edges, "  - {from: n%d, to: n%d, when: {node: n%d, path: choice, equals: %s}}\n", i, i+1, i, choices(way, list[:1]))
	}
	nodes.WriteString("  - {name: n20, human: {ask: The end?, choices: [ok]}}\n")
	_, err := e.c.PutWorkflow(e.ctx(), api.PutWorkflow{File: marked("file", e.short[0]) + ".yaml", Text: "name: evil\ndescription: " + about + `
topology: graph
start: [n0]
input: {type: object, properties: {"field-<img src=x onerror=window.pwned=9>": {type: string, description: ` + about + `}}}
nodes:
` + nodes.String() + "edges:\n" + edges.String()})
	e.ok(err)
	flow, err := e.c.StartWorkflow(e.ctx(), api.StartWorkflow{Workflow: "evil"})
	e.ok(err)
	e.flow = flow.ID
	for _, p := range e.all {
		body.WriteString(marked("skill", p) + "\n\n~~~~~~\n~~~~~~\n\n")
	}
	_, err = e.c.InstallSkill(e.ctx(), api.InstallSkill{Archive: e.skill("evil", quoted(marked("describes", e.short[0])), body.String()), From: marked("from", e.short[1])})
	e.ok(err)
}

// Scenario 19, the other ways: plans, questions, calls that wait, names, workflows, skills,
// requests, shells. Where a person decides by a text, what hides or turns in it is an escape.
func TestHostile_everywhere(t *testing.T) {
	e := deliver(t)
	w := e.world
	sweep := func(path, has string, args map[string]any) swept {
		t.Helper()
		if args == nil {
			args = map[string]any{}
		}
		args["path"], args["has"] = path, has
		return hostile[swept](w, "sweep", args)
	}
	run := func(name string) string { return "/runs/" + e.runs[name].ID }
	vm := "/vms/" + e.runs["machine"].Sandbox
	last := func(way string, list []payload) string { return way + "-" + list[len(list)-1].Name }
	waits := func(name string) {
		t.Helper()
		e.until("calls of "+name+" wait", func() error {
			open, err := e.c.Run(e.runs[name].ID).Approvals(e.ctx())
			if err == nil && len(open) == 0 {
				err = errors.New("none does")
			}
			return err
		})
	}
	for _, name := range []string{"question", "plan"} {
		waits(name)
	}
	for i, list := range slices.Collect(slices.Chunk(e.short, asksMax)) {
		commands, paths := fmt.Sprint("commands", i), fmt.Sprint("paths", i)
		waits(commands)
		got := sweep(run(commands), last("command", list), map[string]any{"calls": len(list)})
		arrived(t, "calls that wait", got, delivery{way: "command", list: list})
		if slices.ContainsFunc(list, func(p payload) bool { return p.Name == "idn-host" }) && !strings.Contains(got.Said, "xn--80ak6aa92e.test") {
			t.Error("a host is shown with letters that look like others, and not by its own name")
		}
		waits(paths)
		got = sweep(run(paths), last("content", list), map[string]any{"calls": len(list)})
		arrived(t, "files that would be written", got, delivery{way: "content", list: list})
		for _, p := range list {
			if missing := lacks(spaced(got.Said), strings.Split("/workspace/path-"+p.Name+": "+fileName(p), "\n")); missing != "" {
				t.Errorf("files that would be written: %q is not shown", missing)
			}
		}
	}
	options := e.short[len(e.short)-9:]
	arrived(t, "a question", sweep(run("question"), last("option", options), nil), delivery{way: "option", list: options}, delivery{way: "question", list: e.short[3:4]})
	var inPlan []payload
	n := 0
	for _, p := range e.all {
		if n += len(marked("written", p)) + 2; n < 30<<10 {
			inPlan = append(inPlan, p)
		}
	}
	arrived(t, "a plan", sweep(run("plan"), last("plan", e.short[:50]), nil), delivery{way: "plan", list: e.short[:50]}, delivery{way: "written", list: inPlan[:40], md: true})
	arrived(t, "/approvals", sweep("/approvals", last("content", e.short), map[string]any{"calls": 2 * len(e.short)}), delivery{way: "command", list: e.short}, delivery{way: "content", list: e.short}, delivery{way: "option", list: options})

	todos := e.short[:60]
	got := sweep(run("todos"), "todo-"+todos[0].Name, map[string]any{"press": [][]string{{"button", "thought"}}})
	arrived(t, "a list of what is to do", got, delivery{way: "todo", list: todos, most: 200}, delivery{way: "thought", list: e.short})
	arrived(t, "a sub-agent", sweep(run("team"), "helper-"+e.short[0].Name, map[string]any{"press": [][]string{{"button", "helper"}}}), delivery{way: "helper", list: e.short[:1], md: true})
	arrived(t, "/", sweep("/", "title-", nil), delivery{way: "title", list: e.titles, most: 80})
	do[any](w, "open", map[string]any{"path": "/usage"})
	arrived(t, "/usage", sweep("/usage", "", nil))

	arrived(t, "/vms", sweep("/vms", last("vm", e.machines), nil), delivery{way: "vm", list: e.machines})
	arrived(t, "keys", sweep("/settings/keys", last("key", e.keys), nil), delivery{way: "key", list: e.keys})
	got = sweep("/secrets", "", nil)
	for _, name := range e.secrets {
		if !strings.Contains(spaced(got.Said), spaced(shown(name))) {
			t.Errorf("/secrets does not show %q", name)
		}
	}
	arrived(t, "/secrets", got)
	for _, page := range []string{"/settings/audit", "/settings/models", "/settings/mcp", "/settings/plugins", "/settings/templates", vm + "/events", vm, "/skills", "/workflows"} {
		arrived(t, page, sweep(page, "", map[string]any{"open": true}))
	}

	got = sweep("/network", "path-", map[string]any{"open": true})
	arrived(t, "/network", got)
	for _, p := range e.refused {
		if !strings.Contains(got.Said, "path-"+p.Name+":") {
			t.Errorf("/network does not show the path of %s", p.Name)
		}
	}
	if len(e.refused) < 5 {
		t.Errorf("%d requests were refused", len(e.refused))
	}

	arrived(t, "files", sweep(vm+"/files", "file-", nil))
	got = hostile[swept](w, "tree", nil)
	arrived(t, "names of files", got)
	for _, p := range e.short {
		if missing := lacks(spaced(got.Said), strings.Split("file-"+p.Name+": "+fileName(p), "\n")); missing != "" {
			t.Errorf("names of files: %q is not shown", missing)
		}
	}
	arrived(t, "a file", sweep(vm+"/files?file=whole.txt", "", nil))
	arrived(t, "changes", sweep(vm+"/changes", "", nil))
	arrived(t, "a service", sweep(vm+"/preview", "evil", nil))
	do[any](w, "open", map[string]any{"path": vm + "/terminal"})
	got = hostile[swept](w, "shell", map[string]any{"line": "cat whole.txt"})
	arrived(t, "a shell", got)

	first := e.short[:1]
	got = sweep("/workflows/evil", "describes-", map[string]any{"open": true})
	arrived(t, "a workflow", got, delivery{way: "describes", list: first})
	got = sweep("/workflow-runs/"+e.flow, "asks-", map[string]any{"open": true})
	arrived(t, "a run of a workflow", got, delivery{way: "asks", list: first}, delivery{way: "choice", list: e.choices()})
	arrived(t, "a run of a workflow as a table", sweep("/workflow-runs/"+e.flow+"?as=table", "", nil))
	arrived(t, "a skill", sweep("/skills/evil", last("skill", e.all), nil), delivery{way: "skill", list: e.all, md: true}, delivery{way: "describes", list: first})
	w.clean()
	if got := hostile[swept](w, "spoil", nil); len(got.Wrong) != 6 {
		t.Errorf("of six things that are wrong these were seen: %q", got.Wrong)
	}
}
