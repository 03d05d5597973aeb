package cowork_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
)

var update = flag.Bool("update", false, "write the golden files anew")

const examples = "../examples/workflows"

// files are the examples, by their names.
func files(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil || len(names) < 5 {
		t.Fatalf("%d examples: %v", len(names), err)
	}
	out := map[string][]byte{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(name)] = text
	}
	return out
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (go test -update rewrites it):\n%s", name, d)
	}
}

func parse(t *testing.T, text string) cowork.Workflow {
	t.Helper()
	w, err := cowork.Parse("w.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return w
}

// The pictures show what is compiled: all vertices, edges and loops with their conditions.
func TestExamples_compileToOneForm(t *testing.T) {
	for name, text := range files(t) {
		w, err := cowork.Parse(name, text)
		if err != nil {
			t.Error(err)
			continue
		}
		base := strings.TrimSuffix(name, ".yaml")
		if w.Name != base {
			t.Errorf("%s is called %s", name, w.Name)
		}
		golden(t, "testdata/"+base+".mmd", w.Graph.Mermaid())
	}
}

// three are nodes a, b and c of a graph that begins with a.
const three = `topology: graph
start: [a]
nodes:
  - {name: a, agent: x, task: t, result: {type: object, properties: {ok: {type: boolean}, list: {type: array, items: {type: string}}, how: {type: string, enum: [good, bad]}, n: {type: number}}}}
  - {name: b, agent: x, task: t}
  - {name: c, agent: x, task: t, artifacts: [out.txt]}
`

func TestGraph_ordersVerticesAndFindsWhatLoopsRepeat(t *testing.T) {
	w := parse(t, `topology: graph
start: [s]
nodes:
  - {name: e, agent: x, task: t}
  - {name: d, agent: x, task: t, input: {last: {node: c}}}
  - {name: c, agent: x, task: t, input: {earlier: {node: d}}}
  - {name: b, agent: x, task: t, each: {value: [1, 2], max: 3}}
  - {name: s, agent: x, task: t}
edges:
  - {from: s, to: b}
  - {from: b, to: c}
  - {from: b, to: d}
  - {from: c, to: d}
  - {from: d, to: e}
loops:
  - {from: e, to: b, when: {node: e, status: succeeded}, max: 4}
  - {from: d, to: b, when: {node: d, status: succeeded}, max: 2, exhausted: continue}
`)
	var order []string
	for _, v := range w.Graph.Vertices {
		order = append(order, v.Name)
	}
	if want := []string{"s", "b", "c", "d", "e"}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
	if len(w.Graph.Loops) != 2 || !slices.Equal(w.Graph.Loops[0].Body, []string{"b", "c", "d"}) || !slices.Equal(w.Graph.Loops[1].Body, []string{"b", "c", "d", "e"}) {
		t.Errorf("the inner loop stands first, with what it repeats: %+v", w.Graph.Loops)
	}
	// s once; e five times; b, c, d five times three, b for three elements.
	if want := 1 + 5 + 15*(3+1+1); w.Graph.Starts != want {
		t.Errorf("%d starts, want %d", w.Graph.Starts, want)
	}
	if d := cmp.Diff(map[string]cowork.Reference{"e": {Node: "e"}}, w.Graph.Output); d != "" {
		t.Error(d)
	}
}

func TestSupervisor_givesWorkByWhatItAnswers(t *testing.T) {
	w := parse(t, `topology: hierarchical
nodes:
  - {name: top, agent: x, task: t, workers: [mid, hand], input: {more: {node: low}}}
  - {name: mid, agent: x, workers: [low], rounds: 3}
  - {name: low, agent: x, description: Does it., result: {type: number}}
  - {name: hand, agent: x}
`)
	at := map[string]cowork.Vertex{}
	for _, v := range w.Graph.Vertices {
		at[v.Name] = v
	}
	item := ""
	low := at["low"]
	if d := cmp.Diff(map[string]cowork.Reference{"task": {Item: &item}}, low.Input); d != "" {
		t.Error(d)
	}
	if low.Each == nil || low.Each.Node != "mid" || low.Each.Path != "delegate.low" || low.Each.Max == 0 {
		t.Errorf("the worker's tasks are %+v", low.Each)
	}
	if d := cmp.Diff(map[string]cowork.Reference{"low": {Node: "low"}, "tasks": {Node: "top", Path: "delegate.mid"}}, at["mid"].Input); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]cowork.Reference{"more": {Node: "low"}, "mid": {Node: "mid", Path: "answer"}, "hand": {Node: "hand"}}, at["top"].Input); d != "" {
		t.Error(d)
	}
	if !at["top"].Continues || !at["mid"].Continues || low.Continues || !at["mid/round"].Meeting || at["mid"].Meeting {
		t.Errorf("%+v", w.Graph.Vertices)
	}
	if d := cmp.Diff(map[string]cowork.Reference{"result": {Node: "top", Path: "answer"}}, w.Graph.Output); d != "" {
		t.Error(d)
	}
	inner := w.Graph.Loops[0]
	if inner.From != "mid/round" || inner.To != "mid" || inner.Max != 2 || !slices.Equal(inner.Body, []string{"mid", "low", "mid/round"}) {
		t.Errorf("%+v", inner)
	}
	// What was written is as it was: a run shows the definition, and not what became of it.
	if w.Nodes[2].Input != nil || w.Nodes[2].Each != nil || len(w.Nodes[0].Input) != 1 || w.Nodes[0].Result != nil {
		t.Errorf("the definition was changed: %+v", w.Nodes)
	}
}

func TestParse_readsJSON(t *testing.T) {
	w, err := cowork.Parse("a/b.json", []byte(`{
	"topology": "sequential", "version": "1.0-rc",
	"limits": {"wall": "1h", "cost_usd": 0.5},
	"nodes": [{"name": "one", "human": {"ask": "Is it so?"}, "timeout": "90s"}]
}`))
	if err != nil || w.Name != "b" || w.Limits.Wall != time.Hour || w.Nodes[0].Timeout != 90*time.Second {
		t.Errorf("%+v, %v", w.Definition, err)
	}
}

func TestParse_takesWhatIsAllowed(t *testing.T) {
	for name, text := range map[string]string{
		"tests of every kind": three + `edges:
  - {from: a, to: b, when: {any: [{node: a, path: ok, equals: true}, {node: a, path: list.3, exists: false}, {node: a, path: how, in: [good, bad]}, {node: a, path: n, less_than: 3}]}}
  - {from: a, to: c, when: {node: a, status: succeeded}}
`,
		"a way for a failure":              strings.Replace(three, "name: a,", "name: a, on_failure: continue,", 1) + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, status: failed}}]\n",
		"a loop over one node":             three + "edges: [{from: a, to: b}, {from: b, to: c}]\nloops: [{from: b, to: b, when: {node: b, status: succeeded}, max: 1}]\n",
		"references of every kind":         "input: {type: object, properties: {l: {type: array}}}\n" + strings.Replace(three, "name: b, agent: x, task: t", "name: b, agent: x, task: t, each: {node: a, path: list}, input: {i: {item: a.b}, a: {node: a}, in: {input: l.0.x}, all: {input: ''}, v: {value: [1, {b: c}]}}", 1) + "edges: [{from: a, to: b}, {from: b, to: c}]\noutput: {file: {node: c, artifact: out.txt}, first: {node: b, path: '0.any'}}\n",
		"a path into what is not declared": three + "edges: [{from: a, to: b}, {from: b, to: c, when: {node: b, path: anything.0, exists: true}}]\n",
	} {
		if _, err := cowork.Parse("w.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sequence is a workflow of one node with further keys, flow style.
func sequence(keys string) string {
	return "topology: sequential\nnodes:\n  - {name: a, agent: x, task: t" + keys + "}\n"
}

func TestParse_refusesWithThePlace(t *testing.T) {
	long := strings.Repeat("a", 65)
	cases := []struct{ name, text, want string }{
		{"nothing", "", "w.yaml: topology: a workflow needs a topology"},
		{"a list", "- a", "w.yaml:1:1: the file should be a list of keys"},
		{"no YAML", "a: [", "w.yaml:1:"},
		{"too large", strings.Repeat("#", cowork.FileBytesMax+1), "w.yaml: larger than 1024 KiB"},
		{"too deep", "input: " + strings.Repeat("{a: ", 40) + "1" + strings.Repeat("}", 40), "nested deeper than"},
		{"an alias", "name: &a b\nversion: *a", "references (&, * and <<) are not taken"},
		{"two documents", "topology: sequential\n---\nname: x", "a second document"},

		{"an unknown key", "topology: graph\ntopolgy: x", `w.yaml:2:1: topolgy: "topolgy" is not a key here; did you mean "topology"?`},
		{"an unknown key of a node", "nodes:\n  - name: a\n    agnet: x", `w.yaml:3:5: nodes[0].agnet: "agnet" is not a key here; did you mean "agent"?`},
		{"an unknown key of a condition", "edges:\n  - when: {node: a, equal: 1}", `edges[0].when.equal: "equal" is not a key here; did you mean "equals"?`},
		{"a key twice", "name: a\nname: b", "w.yaml:2:1: mapping key \"name\" already defined"},
		{"a wrong kind", "nodes:\n  - name: a\n    rounds: many", "w.yaml:3:13: nodes[0].rounds: a whole number is wanted here, not text"},
		{"a wrong kind in a list", "start: [a, [b]]", "w.yaml:1:12: start[1]: text is wanted here, not a list"},
		{"a version as a number", "version: 1.0", "version: text is wanted here, not a number; put it in quotes"},
		{"a bare number for a time", "nodes: [{timeout: 10}]", `nodes[0].timeout: a time such as "10m"`},

		{"a bad name", "name: A b\n" + sequence(""), `w.yaml:1:1: name: "A b" is no name`},
		{"a bad version", "version: -x\n" + sequence(""), "version: \"-x\" is no version"},
		{"a long version", "version: " + long + "\n" + sequence(""), "is no version"},
		{"a long description", "description: " + strings.Repeat("a", 1025) + "\n" + sequence(""), "description: longer than 1024 bytes"},
		{"no topology", "nodes: [{name: a, agent: x}]", "a workflow needs a topology: sequential, parallel, supervisor-worker, hierarchical, graph"},
		{"an unknown topology", "topology: parallell\nnodes: [{name: a, agent: x}]", `w.yaml:1:1: topology: "parallell" is not one of sequential, parallel, supervisor-worker, hierarchical, graph; did you mean "parallel"?`},
		{"an input that is none", "input: {type: string}\n" + sequence(""), "input: what a run is started with is an object"},
		{"a broken schema of the input", "input: {type: objekt}\n" + sequence(""), "input: the schema cannot be used"},
		{"a schema from elsewhere", sequence(", result: {$ref: 'file:///etc/passwd'}"), "w.yaml:3:34: nodes[0].result: the schema refers to"},
		{"a limit below 0", "limits: {tokens: -1}\n" + sequence(""), "w.yaml:1:10: limits.tokens: a limit is not below 0"},
		{"too parallel", "parallel_max: 65\n" + sequence(""), "parallel_max: 1 to 64"},
		{"not parallel", "parallel_max: 0\n" + sequence(""), "parallel_max: 1 to 64"},

		{"no nodes", "topology: sequential\nnodes: []", "w.yaml:2:1: nodes: a workflow needs nodes"},
		{"a node without a name", "topology: sequential\nnodes: [{agent: x, task: t}]", "nodes[0].name: a node needs a name"},
		{"a bad name of a node", "topology: sequential\nnodes: [{name: a/round, agent: x, task: t}]", `nodes[0].name: "a/round" is no name`},
		{"a name twice", "topology: sequential\nnodes:\n  - {name: a, agent: x, task: t}\n  - {name: a, agent: x, task: t}", `w.yaml:4:6: nodes[1].name: "a" is there already, in line 3`},
		{"a node without work", "topology: sequential\nnodes: [{name: a, task: t}]", `w.yaml:2:9: nodes[0]: the node "a" has to have one of agent, inline and human`},
		{"two who work", sequence(", human: {ask: q}"), "has to have one of agent, inline and human"},
		{"a bad agent", strings.Replace(sequence(""), "agent: x", "agent: X", 1), `nodes[0].agent: "X" is no name`},
		{"no task", strings.Replace(sequence(""), ", task: t", "", 1), "nodes[0].task: a needs a task"},
		{"a long task", strings.Replace(sequence(""), "task: t", "task: "+strings.Repeat("t", 64<<10+1), 1), "nodes[0].task: longer than 65536 bytes"},
		{"a bad tool", "topology: sequential\nnodes:\n  - name: a\n    task: t\n    inline:\n      tools: [ls, '[']", `w.yaml:6:19: nodes[0].inline.tools[1]: "[" is no name of a tool`},
		{"a bad skill", "topology: sequential\nnodes: [{name: a, task: t, inline: {skills: [../x]}}]", `nodes[0].inline.skills[0]: "../x" is no name`},
		{"a bad effort", "topology: sequential\nnodes: [{name: a, task: t, inline: {effort: hihg}}]", `nodes[0].inline.effort: "hihg" is not one of low, medium, high; did you mean "high"?`},
		{"a person who is not asked", "topology: sequential\nnodes: [{name: a, human: {ask: ' '}}]", "nodes[0].human.ask: a person has to be asked something"},
		{"a choice twice", "topology: sequential\nnodes: [{name: a, human: {ask: q, choices: [y, y]}}]", `nodes[0].human.choices[1]: "y" is there twice`},
		{"an empty choice", "topology: sequential\nnodes: [{name: a, human: {ask: q, choices: ['']}}]", "nodes[0].human.choices[0]: a choice is"},
		{"a task for a person", "topology: sequential\nnodes: [{name: a, task: t, human: {ask: q}}]", "nodes[0].task: it means nothing to a person"},
		{"a sandbox for a person", "topology: sequential\nnodes: [{name: a, sandbox: own, human: {ask: q}}]", "nodes[0].sandbox: it means nothing to a person"},
		{"an unknown sandbox", sequence(", sandbox: forked"), `nodes[0].sandbox: "forked" is not one of shared, own, fork; did you mean`},
		{"a machine that is shared", sequence(", machine: {language: go}"), "nodes[0].machine: it says what a machine of its own is: `sandbox: own` is missing"},
		{"an unknown way to fail", sequence(", on_failure: retry"), `nodes[0].on_failure: "retry" is not one of stop, continue`},
		{"too many retries", sequence(", retries: {max: 11}"), "nodes[0].retries.max: 1 to 10"},
		{"no retries", sequence(", retries: {wait: 1s}"), "nodes[0].retries.max: 1 to 10"},
		{"a long wait", sequence(", retries: {max: 1, wait: 2h}"), "nodes[0].retries.wait: a time above 0, up to 1h"},
		{"no time at all", sequence(", timeout: 0s"), "nodes[0].timeout: a time above 0, up to 720h"},
		{"an artifact elsewhere", sequence(", artifacts: [/etc/passwd]"), `nodes[0].artifacts[0]: "/etc/passwd" is no path beneath the workspace`},
		{"an artifact that climbs", sequence(", artifacts: [ok, a/../../x]"), `nodes[0].artifacts[1]: "a/../../x" is no path`},
		{"an artifact twice", sequence(", artifacts: [a, a]"), `nodes[0].artifacts[1]: "a" is there twice`},
		{"rounds without workers", sequence(", rounds: 3"), "nodes[0].rounds: it means something to a node with workers alone"},

		{"edges of a sequence", sequence("") + "edges: [{from: a, to: a}]", "edges: it means nothing with `topology: sequential`"},
		{"a join of a sequence", sequence("") + "join: a", "join: it means nothing with `topology: sequential`"},
		{"workers of a sequence", sequence(", workers: [a]"), "nodes[0].workers: it means nothing with `topology: sequential`"},
		{"loops of parallel", strings.Replace(sequence(""), "sequential", "parallel", 1) + "loops: [{from: a, to: a}]", "loops: it means nothing with `topology: parallel`"},
		{"an unknown join", strings.Replace(sequence(""), "sequential", "parallel", 1) + "join: b", `join: there is no node "b"`},
		{"a graph without a start", strings.Replace(three, "start: [a]\n", "", 1), "start: a graph needs the names of the nodes that it begins with"},
		{"an unknown start", strings.Replace(three, "[a]", "[ab]", 1), `w.yaml:2:9: start[0]: there is no node "ab"; did you mean "a"?`},
		{"a start twice", strings.Replace(three, "[a]", "[a, a]", 1), `start[1]: "a" is there twice`},
		{"an edge to the start", three + "edges: [{from: b, to: a}]", "edges[0].to: the graph begins with a"},
		{"an edge to nowhere", three + "edges:\n  - {from: a, to: b}\n  - {from: b, to: d}", `w.yaml:9:15: edges[1].to: there is no node "d"`},
		{"an edge without an end", three + "edges: [{from: a}]", "edges[0].to: the name of a node is missing"},
		{"an edge twice", three + "edges: [{from: a, to: b}, {from: a, to: b}]", "edges[1]: there is an edge from a to b already"},
		{"an edge to itself", three + "edges: [{from: b, to: b}]", "edges[0]: the edge leads from b to itself"},
		{"a circle", three + "edges:\n  - {from: a, to: b}\n  - {from: b, to: c}\n  - {from: c, to: b}", "w.yaml:10:5: edges[2]: edges go in a circle without a bound: b → c → b; make the way back a loop: `loops: [{from: c, to: b, when: …, max: …}]`"},
		{"unreachable", three + "edges: [{from: a, to: b}]", "w.yaml:6:5: nodes[2]: c is never reached: no edge leads to it"},
		{"an unreachable circle", three + "edges: [{from: b, to: c}, {from: c, to: b}]", "edges go in a circle without a bound"},

		{"a loop to nowhere", sequence("") + "loops: [{from: a, to: b, max: 1, when: {node: a, status: succeeded}}]", `loops[0].to: there is no node "b"`},
		{"a loop without a bound", sequence("") + "loops: [{from: a, to: a, when: {node: a, status: succeeded}}]", "w.yaml:4:9: loops[0].max: a loop needs a bound: it goes back 1 to 100 times at most"},
		{"a loop with a large bound", sequence("") + "loops: [{from: a, to: a, max: 101, when: {node: a, status: succeeded}}]", "loops[0].max: a loop needs a bound"},
		{"a loop without a condition", sequence("") + "loops: [{from: a, to: a, max: 1}]", "loops[0].when: a loop needs a condition"},
		{"a loop that ends somehow", sequence("") + "loops: [{from: a, to: a, max: 1, exhausted: fail, when: {node: a, status: succeeded}}]", `loops[0].exhausted: "fail" is not one of stop, continue`},
		{"a loop forward", three + "edges: [{from: a, to: b}, {from: b, to: c}]\nloops: [{from: a, to: c, max: 1, when: {node: a, path: ok, equals: true}}]", "loops[0]: no way leads from c to a"},
		{"a loop that is left in the middle", three + "edges: [{from: a, to: b}, {from: a, to: c}]\nloops: [{from: b, to: a, max: 1, when: {node: b, status: succeeded}}]", "the loop from b back to a is left at a, towards c; it can be left at b alone"},
		{"a loop that is entered in the middle", three + "edges: [{from: a, to: c}, {from: a, to: b}, {from: b, to: c}]\nloops: [{from: c, to: b, max: 1, when: {node: c, status: succeeded}}]", "the loop from c back to b is entered at c, from a; it can be entered at b alone"},
		{"a start within a loop", strings.Replace(three, "[a]", "[a, b]", 1) + "edges: [{from: a, to: c}, {from: b, to: c}]\nloops: [{from: c, to: c, max: 1, when: {node: c, status: succeeded}}, {from: c, to: b, max: 1, when: {node: c, status: succeeded}}]", "loops[1]"},
		{"two loops from one node", three + "edges: [{from: a, to: b}, {from: b, to: c}]\nloops: [{from: c, to: b, max: 1, when: {node: c, status: succeeded}}, {from: c, to: a, max: 1, when: {node: c, status: succeeded}}]", "loops[1].from: there is a loop from c already, loops[0]"},
		{"loops that overlap", "topology: sequential\nnodes: [{name: a, agent: x, task: t}, {name: b, agent: x, task: t}, {name: c, agent: x, task: t}]\nloops: [{from: b, to: a, max: 1, when: {node: b, status: succeeded}}, {from: c, to: b, max: 1, when: {node: c, status: succeeded}}]", "loops[1]: it overlaps with loops[0]"},
		{"too many starts", sequence(", each: {value: [1], max: 1000}") + "loops: [{from: a, to: a, max: 10, when: {node: a, status: succeeded}}]", "nodes: nodes could be started more than 10000 times"},

		{"a condition about nothing", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {}}]", "edges[1].when: a condition is one test"},
		{"a condition about two things", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, path: ok, equals: true, exists: true}}]", "edges[1].when: a test asks one thing"},
		{"a condition of two forms", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, path: ok, equals: true, any: [{node: a, status: succeeded}]}}]", "edges[1].when: a condition is one test, or all or any"},
		{"a condition without tests", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {all: []}}]", "edges[1].when.all: 1 to 16 tests"},
		{"a test that asks nothing", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a}}]", "a test asks one thing"},
		{"a test of an unknown node", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: aa, status: succeeded}}]", `edges[1].when.node: there is no node "aa"; did you mean "a"?`},
		{"a test of what comes later", three + "edges: [{from: a, to: b}, {from: b, to: c}, {from: a, to: c, when: {node: b, status: succeeded}}]", "edges[2].when.node: b need not have ended when a has"},
		{"a test of an unknown status", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, status: done}}]", `edges[1].when.status: "done" is not one of succeeded, failed, skipped`},
		{"a status that ends the workflow", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, status: failed}}]", "edges[1].when.status: this is never so: the workflow fails with a, unless that has `on_failure: continue`"},
		{"a status of a part", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, path: ok, status: succeeded}}]", "edges[1].when.path: the status is that of the node"},
		{"a path to nowhere", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {any: [{node: a, path: okay, equals: true}]}}]", `edges[1].when.any[0].path: there is no "okay"`},
		{"a path beneath a text", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, path: how.x, exists: true}}]", `there is a string, and nothing beneath it, so "how.x" leads nowhere`},
		{"a path beneath a list", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, path: list.first, exists: true}}]", "there is a list, whose elements are numbered"},
		{"no path", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, path: 'a..b', exists: true}}]", `"a..b" is no path`},
		{"a long path", three + "edges: [{from: a, to: b}, {from: b, to: c, when: {node: b, path: " + strings.Repeat("a.", 16) + "a, exists: true}}]", "edges[1].when.path: the path has more than 16 parts"},
		{"a value that is never there", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, path: how, in: [good, goood]}}]", "edges[1].when.in: this is never so"},
		{"a value of another type", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, path: ok, equals: 'true'}}]", "edges[1].when.equals: this is never so"},
		{"a value that is a list", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, path: list, equals: [x]}}]", "edges[1].when.equals: a text, a number, true or false is wanted"},
		{"a value that is null", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, path: ok, equals: null}}]", "edges[1].when.equals: the value is missing"},
		{"a text above a number", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, path: how, greater_than: 1}}]", "edges[1].when.greater_than: this is never so: the value is of type string"},
		{"no values", three + "edges: [{from: a, to: b}, {from: a, to: c, when: {node: a, path: ok, in: []}}]", "edges[1].when.in: 1 to 100 values"},
		{"a choice that there is not", "topology: sequential\nnodes: [{name: a, human: {ask: q}}, {name: b, agent: x, task: t}]\nloops: [{from: b, to: a, max: 1, when: {node: a, path: choice, equals: yes}}]", "loops[0].when.equals: this is never so"},

		{"an input of nothing", sequence(", input: {b: {}}"), "nodes[0].input.b: one of input, node, item and value is wanted"},
		{"an input of two things", sequence(", input: {b: {item: x, value: 1}}"), "one of input, node, item and value"},
		{"an input of a workflow without", sequence(", input: {b: {input: x}}"), "nodes[0].input.b.input: the workflow is started with nothing"},
		{"an unknown input", "input: {type: object, properties: {subject: {type: string}}}\n" + sequence(", input: {b: {input: subjet}}"), `nodes[0].input.b.input: there is no "subjet"; did you mean "subject"?`},
		{"an element of nothing", sequence(", input: {b: {item: x}}"), "nodes[0].input.b.item: there is no element"},
		{"a name of an input", sequence(", input: {'b c': {value: 1}}"), `nodes[0].input.b c: "b c" is no name of an input`},
		{"a path in an input", sequence(", input: {b: {value: 1, path: x}}"), "path and artifact are about a node's result"},
		{"an input from later", "topology: sequential\nnodes: [{name: a, agent: x, task: t, input: {b: {node: b}}}, {name: b, agent: x, task: t}]", "nodes[0].input.b.node: b need not have ended before a begins"},
		{"an input from itself", sequence(", input: {b: {node: a}}"), "a need not have ended before a begins"},
		{"a part of a text", "topology: sequential\nnodes: [{name: a, task: t, inline: {}}, {name: b, agent: x, task: t, input: {b: {node: a, path: x}}}]", "nodes[1].input.b.path: there is a string, and nothing beneath it"},
		{"an unknown artifact", three + "edges: [{from: a, to: c}, {from: c, to: b}]\noutput: {b: {node: c, artifact: out.tx}}", `output.b.artifact: c leaves no "out.tx"; did you mean "out.txt"?`},
		{"an artifact and a path", three + "edges: [{from: a, to: c}, {from: c, to: b}]\noutput: {b: {node: c, artifact: out.txt, path: x}}", "output.b: it is either a part of the result or an artifact"},
		{"an output of no node", sequence("") + "output: {b: {node: c}}", `output.b.node: there is no node "c"`},
		{"each of an element", sequence(", each: {item: x}"), "nodes[0].each.item: the elements come from a list elsewhere"},
		{"each of a text", strings.Replace(three, "name: b, agent: x", "name: b, agent: x, each: {node: a, path: how}", 1) + "edges: [{from: a, to: b}, {from: a, to: c}]", "nodes[1].each: a list is wanted, whose elements b works on"},
		{"each of a value", sequence(", each: {value: x}"), "nodes[0].each.value: a list is wanted"},
		{"each of nothing", sequence(", each: {max: 3}"), "nodes[0].each: one of input, node, item and value is wanted"},
		{"each of too much", sequence(", each: {value: [1], max: 1001}"), "nodes[0].each.max: 1 to 1000"},
		{"each at once", sequence(", each: {value: [1], parallel_max: 0}"), "nodes[0].each.parallel_max: 1 to 64"},

		{"no supervisor", strings.Replace(sequence(""), "sequential", "supervisor-worker", 1), "nodes[0]: `topology: supervisor-worker` needs a node with workers"},
		{"an unknown worker", strings.Replace(sequence(", workers: [b]"), "sequential", "hierarchical", 1), `nodes[0].workers[0]: there is no node "b"`},
		{"its own worker", strings.Replace(sequence(", workers: [a]"), "sequential", "hierarchical", 1), "nodes[0].workers[0]: a cannot be its own worker"},
		{"two at the top", "topology: hierarchical\nnodes: [{name: a, agent: x, task: t, workers: [b]}, {name: b, agent: x}, {name: c, agent: x}]", "nodes[2]: c is no node's worker, and neither is a"},
		{"no node at the top", "topology: hierarchical\nnodes: [{name: a, agent: x, workers: [b]}, {name: b, agent: x, workers: [a]}]", "nodes: each node is a worker of another"},
		{"a circle beside the top", "topology: hierarchical\nnodes: [{name: t, agent: x, task: t, workers: [d]}, {name: d, agent: x}, {name: a, agent: x, workers: [b]}, {name: b, agent: x, workers: [a]}]", "nodes[2]: a is never reached: those that give it work go in a circle"},
		{"a worker of two", "topology: hierarchical\nnodes: [{name: a, agent: x, task: t, workers: [b, c]}, {name: b, agent: x, workers: [c]}, {name: c, agent: x}]", "nodes[1].workers[0]: c is a worker of a already"},
		{"a worker twice", "topology: supervisor-worker\nnodes: [{name: a, agent: x, task: t, workers: [b, b]}, {name: b, agent: x}]", "nodes[0].workers[1]: b is a worker of a already"},
		{"two levels where one is wanted", "topology: supervisor-worker\nnodes: [{name: a, agent: x, task: t, workers: [b]}, {name: b, agent: x, workers: [c]}, {name: c, agent: x}]", "nodes[1].workers: workers that have workers need `topology: hierarchical`"},
		{"the same the other way round", "topology: supervisor-worker\nnodes: [{name: c, agent: x}, {name: b, agent: x, workers: [c]}, {name: a, agent: x, task: t, workers: [b]}]", "workers: workers that have workers need `topology: hierarchical`"},
		{"a person as a worker", "topology: supervisor-worker\nnodes: [{name: a, agent: x, task: t, workers: [b]}, {name: b, human: {ask: q}}]", "nodes[0].workers[0]: b is a person, and no worker"},
		{"a worker with a list", "topology: supervisor-worker\nnodes: [{name: a, agent: x, task: t, workers: [b]}, {name: b, agent: x, each: {value: [1]}}]", "b works once for each task that it is given"},
		{"a supervisor without a task", "topology: supervisor-worker\nnodes: [{name: a, agent: x, workers: [b]}, {name: b, agent: x}]", "nodes[0].task: a needs a task"},
		{"a supervisor with a list", "topology: supervisor-worker\nnodes: [{name: a, agent: x, task: t, workers: [b], each: {value: [1]}}, {name: b, agent: x}]", "nodes[0].each: a supervisor cannot work once for each element"},
		{"an input named as a worker", "topology: supervisor-worker\nnodes: [{name: a, agent: x, task: t, workers: [b], input: {b: {value: 1}}}, {name: b, agent: x}]", "nodes[0].input.b: this is where the results of the worker \"b\" stand"},
		{"an input named task", "topology: supervisor-worker\nnodes: [{name: a, agent: x, task: t, workers: [b]}, {name: b, agent: x, input: {task: {value: 1}}}]", "nodes[1].input.task: this is where the task of a worker stands"},
		{"few rounds", "topology: supervisor-worker\nnodes: [{name: a, agent: x, task: t, rounds: 1, workers: [b]}, {name: b, agent: x}]", "nodes[0].rounds: 2 to 50"},
		{"a supervisor's schema with references", "topology: supervisor-worker\nnodes: [{name: a, agent: x, task: t, workers: [b], result: {$defs: {n: {type: number}}, $ref: '#/$defs/n'}}, {name: b, agent: x}]", "nodes[0].result: as a part of what a supervisor answers"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := cowork.Parse("w.yaml", []byte(c.text))
			if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}

func TestCheck_reportsAllAtOnce(t *testing.T) {
	_, problems := cowork.Check("w.yaml", []byte("name: A\nversion: '?'\ntopology: sequential\nnodes:\n  - {name: a, agent: B, timeout: -1s}\n"))
	want := []cowork.Problem{
		{Line: 1, Column: 1, Field: "name", Text: `"A" is no name; use 1 to 64 of a-z, 0-9 and single hyphens`},
		{Line: 2, Column: 1, Field: "version", Text: `"?" is no version; use 1 to 64 letters, digits, and . _ - between them`},
		{Line: 5, Column: 15, Field: "nodes[0].agent", Text: `"B" is no name; use 1 to 64 of a-z, 0-9 and single hyphens`},
		{Line: 5, Column: 25, Field: "nodes[0].timeout", Text: "a time above 0, up to 720h"},
	}
	if d := cmp.Diff(want, problems); d != "" {
		t.Error(d)
	}
}

// many is a graph of n nodes in a row, each with an edge to the one behind the next too.
func many(n int) []byte {
	var b strings.Builder
	b.WriteString("topology: graph\nstart: [n0]\nnodes:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: n%d, agent: x, task: t, result: {type: object, properties: {ok: {type: boolean}}}}\n", i)
	}
	b.WriteString("edges:\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "  - {from: n%d, to: n%d, when: {node: n%d, path: ok, equals: true}}\n", i, i+1, i)
		if i+2 < n {
			fmt.Fprintf(&b, "  - {from: n%d, to: n%d}\n", i, i+2)
		}
	}
	b.WriteString("loops:\n")
	for i := range 3 {
		fmt.Fprintf(&b, "  - {from: n%d, to: n%d, max: 1, when: {node: n0, path: ok, equals: false}}\n", n-1-i, n-1-i)
	}
	return []byte(b.String())
}

func TestParse_takesAThousandNodesAndNoMore(t *testing.T) {
	patience.Within(t, 20*time.Second, "a thousand nodes", func() {
		w, err := cowork.Parse("w.yaml", many(1000))
		if err != nil || len(w.Graph.Vertices) != 1000 || len(w.Graph.Edges) != 1997 {
			t.Errorf("%d vertices, %d edges: %v", len(w.Graph.Vertices), len(w.Graph.Edges), err)
		}
	})
	if _, err := cowork.Parse("w.yaml", many(1001)); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), "w.yaml:3:1: nodes: more than 1000 nodes") {
		t.Error(err)
	}
}

func TestMermaid_quotesWhatMeansSomething(t *testing.T) {
	w := parse(t, `topology: sequential
nodes:
  - {name: end, agent: x, task: t}
  - {name: class, agent: x, task: t}
loops:
  - {from: class, to: end, max: 2, when: {node: class, path: a, in: ['"];x()', '<b>', "a\nb", '#35;', long]}}
`)
	golden(t, "testdata/hostile.mmd", w.Graph.Mermaid())
}

func FuzzParse(f *testing.F) {
	// Short ones: longer inputs are shortened for a minute each before others are tried.
	f.Add([]byte(sequence(", each: {value: [1]}, input: {i: {item: ''}}, timeout: 1m")))
	f.Add([]byte("topology: parallel\njoin: b\nnodes: [{name: a, agent: x, task: t}, {name: b, human: {ask: q}}]"))
	f.Add([]byte("topology: hierarchical\nnodes: [{name: a, agent: x, task: t, workers: [b]}, {name: b, agent: x, workers: [c]}, {name: c, agent: x}]"))
	f.Add([]byte(sequence("") + "loops: [{from: a, to: a, max: 1, when: {any: [{node: a, status: succeeded}]}}]"))
	f.Add([]byte(three + "edges: [{from: a, to: b, when: {node: a, path: ok, equals: true}}, {from: a, to: c}]"))
	f.Add([]byte(three + "edges: [{from: b, to: c}, {from: c, to: b}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, problems := cowork.Check("w.yaml", data)
		if len(problems) > 0 {
			for _, p := range problems {
				if p.Text == "" || strings.Contains(p.In("w.yaml"), "%!") {
					t.Errorf("%+v", p)
				}
			}
			return
		}
		place := map[string]int{}
		for i, v := range w.Graph.Vertices {
			place[v.Name] = i
		}
		for _, e := range w.Graph.Edges {
			if place[e.From] >= place[e.To] {
				t.Errorf("the edge from %s to %s leads back", e.From, e.To)
			}
		}
		for _, l := range w.Graph.Loops {
			if place[l.From] < place[l.To] || l.Max < 1 || l.When == nil || !slices.Contains(l.Body, l.From) || !slices.Contains(l.Body, l.To) {
				t.Errorf("%+v", l)
			}
		}
		if len(place) != len(w.Graph.Vertices) || len(place) == 0 || w.Graph.Starts > 10_000 || len(w.Graph.Output) == 0 {
			t.Errorf("%+v", w.Graph)
		}
		if lines := strings.Count(w.Graph.Mermaid(), "\n"); lines != 1+len(w.Graph.Vertices)+len(w.Graph.Edges)+len(w.Graph.Loops) {
			t.Errorf("%d lines", lines)
		}
	})
}
