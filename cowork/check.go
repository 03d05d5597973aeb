package cowork

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/internal/yamlfile"
	"github.com/skete-dev/skete/thread"
)

// Bounds of a definition.
const (
	nameMax        = 64
	descriptionMax = 1024
	taskBytesMax   = 64 << 10
	nodesMax       = 1000
	edgesMax       = 5000
	loopsMax       = 100
	namesMax       = 64 // of inputs, outputs, artifacts and skills
	workersMax     = 32 // of one supervisor
	levelsMax      = 8  // of supervisors
	roundsMin      = 2
	roundsMax      = 50
	againMax       = 100 // how often a loop goes back
	eachMax        = 1000
	parallelMax    = 64
	retriesMax     = 10
	waitMax        = time.Hour
	timeoutMax     = 30 * 24 * time.Hour
	choicesMax     = 16
	testsMax       = 16
	valuesMax      = 100
	startsMax      = 10_000 // of nodes in one run, as far as the bounds allow
)

// Unless stated.
const (
	roundsDefault = 5
	eachDefault   = 20
	tasksDefault  = 8 // of one worker in one round
	sideDefault   = 4 // elements at once
	choiceYes     = "approve"
	choiceNo      = "reject"
)

// checker looks at one definition.
type checker struct {
	d        *Definition
	at       yamlfile.Positions
	problems *yamlfile.Problems
}

func (c *checker) fail(field, format string, args ...any) {
	c.problems.AddTo(field, c.at.Of(field), format, args...)
}

// definition looks at all that can be seen without knowing what follows what.
func (c *checker) definition() {
	c.name("name", c.d.Name)
	if v := c.d.Version; v != "" && (len(v) > nameMax || !isVersion(v)) {
		c.fail("version", "%.80q is no version; use 1 to %d letters, digits, and . _ - between them", v, nameMax)
	}
	c.text("description", c.d.Description, descriptionMax)
	c.oneOf("topology", c.d.Topology, Topologies...)
	if c.d.Topology == "" {
		c.fail("topology", "a workflow needs a topology: %s", strings.Join(Topologies, ", "))
	}
	c.input()
	c.budget("limits", c.d.Limits)
	c.bounded("parallel_max", c.d.ParallelMax, 1, parallelMax)
	c.nodes()
	c.keysOfTopology()
	c.count("edges", len(c.d.Edges), edgesMax)
	c.count("loops", len(c.d.Loops), loopsMax)
	c.count("output", len(c.d.Output), namesMax)
}

// input looks at what a run is started with.
func (c *checker) input() {
	if c.d.Input == nil {
		return
	}
	c.schema("input", c.d.Input)
	if c.d.Input["type"] != "object" {
		c.fail("input", "what a run is started with is an object: `type: object` is missing")
	}
}

func isName(s string) bool {
	if s == "" || len(s) > nameMax || s[0] == '-' || s[len(s)-1] == '-' || strings.Contains(s, "--") {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

func isVersion(s string) bool {
	return strings.Trim(s, alphanumeric+"._-") == "" && strings.ContainsAny(s[:1], alphanumeric)
}

func (c *checker) name(field, s string) {
	if !isName(s) {
		c.fail(field, "%.80q is no name; use 1 to %d of a-z, 0-9 and single hyphens", s, nameMax)
	}
}

func (c *checker) text(field, s string, most int) {
	if len(s) > most {
		c.fail(field, "longer than %d bytes", most)
	}
	if strings.ContainsRune(s, 0) {
		c.fail(field, "a NUL byte is in it")
	}
}

func (c *checker) oneOf(field, s string, allowed ...string) {
	if s != "" && !slices.Contains(allowed, s) {
		c.fail(field, "%.60q is not one of %s%s", s, strings.Join(allowed, ", "), yamlfile.Suggest(s, allowed))
	}
}

// bounded looks at a number that may be left out.
func (c *checker) bounded(field string, n, least, most int) {
	if _, there := c.at[field]; there && (n < least || n > most) {
		c.fail(field, "%d to %d", least, most)
	}
}

func (c *checker) count(field string, n, most int) {
	if n > most {
		c.fail(field, "more than %d", most)
	}
}

func (c *checker) duration(field string, d, most time.Duration) {
	if _, there := c.at[field]; there && (d <= 0 || d > most) {
		c.fail(field, "a time above 0, up to %.0fh", most.Hours())
	}
}

func (c *checker) budget(field string, b Budget) {
	for _, limit := range []struct {
		key string
		n   float64
	}{{"steps", float64(b.Steps)}, {"tokens", float64(b.Tokens)}, {"cost_usd", b.CostUSD}, {"wall", float64(b.Wall)}} {
		if !(limit.n >= 0) { // not a number is none either
			c.fail(field+"."+limit.key, "a limit is not below 0; leave the key out for none")
		}
	}
}

// schema looks at a JSON Schema.
func (c *checker) schema(field string, schema map[string]any) {
	if err := compiles(schema); err != nil {
		c.fail(field, "%v", err)
	}
}

func compiles(schema map[string]any) error {
	raw, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	_, err = definition.CompileResult(raw)
	return err
}

// nodes looks at each node by itself.
func (c *checker) nodes() {
	switch n := len(c.d.Nodes); {
	case n == 0:
		c.fail("nodes", "a workflow needs nodes")
	case n > nodesMax:
		c.fail("nodes", "more than %d nodes", nodesMax)
		return
	}
	first := map[string]string{}
	for i := range c.d.Nodes {
		at := fmt.Sprintf("nodes[%d]", i)
		name := c.d.Nodes[i].Name
		if before, twice := first[name]; twice && name != "" {
			c.fail(at+".name", "%.64q is there already, in line %d", name, c.at.Of(before).Line)
		}
		first[name] = cmp.Or(first[name], at+".name")
		c.node(at, &c.d.Nodes[i])
	}
}

func (c *checker) node(at string, n *Node) {
	if n.Name == "" {
		c.fail(at+".name", "a node needs a name")
	} else {
		c.name(at+".name", n.Name)
	}
	c.text(at+".description", n.Description, descriptionMax)
	c.text(at+".task", n.Task, taskBytesMax)
	c.kind(at, n)
	c.count(at+".input", len(n.Input), namesMax)
	c.budget(at+".limits", n.Limits)
	c.duration(at+".timeout", n.Timeout, timeoutMax)
	c.oneOf(at+".on_failure", n.OnFailure, Stop, Continue)
	c.oneOf(at+".sandbox", n.Sandbox, SandboxShared, SandboxOwn, SandboxFork)
	if n.Machine != nil && n.Sandbox != SandboxOwn {
		c.fail(at+".machine", "it says what a machine of its own is: `sandbox: own` is missing")
	}
	if n.Result != nil {
		c.schema(at+".result", n.Result)
	}
	if r := n.Retries; r != nil {
		if r.Max < 1 || r.Max > retriesMax {
			c.fail(at+".retries.max", "1 to %d", retriesMax)
		}
		c.duration(at+".retries.wait", r.Wait, waitMax)
	}
	if n.Each != nil {
		c.bounded(at+".each.max", n.Each.Max, 1, eachMax)
		c.bounded(at+".each.parallel_max", n.Each.ParallelMax, 1, parallelMax)
	}
	c.artifacts(at, n)
	c.supervisor(at, n)
}

// kind looks at who does the work.
func (c *checker) kind(at string, n *Node) {
	kinds := 0
	for _, has := range []bool{n.Agent != "", n.Inline != nil, n.Human != nil} {
		if has {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		c.fail(at, "the node %.64q has to have one of agent, inline and human", n.Name)
	case n.Human != nil:
		c.human(at, n)
	case n.Agent != "":
		c.name(at+".agent", n.Agent)
	default:
		c.inline(at+".inline", n)
	}
}

func (c *checker) human(at string, n *Node) {
	h := n.Human
	if strings.TrimSpace(h.Ask) == "" {
		c.fail(at+".human.ask", "a person has to be asked something")
	}
	c.text(at+".human.ask", h.Ask, 4096)
	c.count(at+".human.choices", len(h.Choices), choicesMax)
	for i, choice := range h.Choices {
		field := fmt.Sprintf("%s.human.choices[%d]", at, i)
		if choice == "" || len(choice) > nameMax || strings.TrimSpace(choice) != choice {
			c.fail(field, "a choice is 1 to %d bytes, without space around them", nameMax)
		}
		if slices.Index(h.Choices, choice) < i {
			c.fail(field, "%.64q is there twice", choice)
		}
	}
	for _, means := range []struct {
		key string
		is  bool
	}{
		{"task", n.Task != ""},
		{"each", n.Each != nil},
		{"workers", n.Workers != nil},
		{"rounds", n.Rounds != 0},
		{"result", n.Result != nil},
		{"artifacts", n.Artifacts != nil},
		{"sandbox", n.Sandbox != ""},
		{"limits", n.Limits != Budget{}},
		{"retries", n.Retries != nil},
	} {
		if means.is {
			c.fail(at+"."+means.key, "it means nothing to a person")
		}
	}
}

// inline looks at an agent of the workflow as at one that has a file.
func (c *checker) inline(at string, n *Node) {
	a := n.Inline
	found := definition.Validate(definition.Definition{
		Name: "inline", Model: a.Model, Instructions: a.Instructions, Tools: a.Tools, Effort: a.Effort,
		Limits: definition.Limits{Budget: thread.Budget{}},
	}, nil)
	for _, p := range found {
		if !p.Warning {
			c.fail(at+"."+p.Path, "%s", p.Text)
		}
	}
	c.text(at+".instructions", a.Instructions, taskBytesMax)
	c.count(at+".skills", len(a.Skills), namesMax)
	for i, s := range a.Skills {
		c.name(fmt.Sprintf("%s.skills[%d]", at, i), s)
	}
}

// artifacts looks at the paths of files, which lie beneath the workspace.
func (c *checker) artifacts(at string, n *Node) {
	c.count(at+".artifacts", len(n.Artifacts), namesMax)
	for i, p := range n.Artifacts {
		field := fmt.Sprintf("%s.artifacts[%d]", at, i)
		if !isLocal(p) {
			c.fail(field, "%.80q is no path beneath the workspace: no / in front, no . and ..", p)
		}
		if slices.Index(n.Artifacts, p) < i {
			c.fail(field, "%.80q is there twice", p)
		}
	}
}

func isLocal(p string) bool {
	return p != "" && p != "." && len(p) <= 1024 && !path.IsAbs(p) && path.Clean(p) == p && p != ".." && !strings.HasPrefix(p, "../") && !strings.ContainsRune(p, 0)
}

// supervisor looks at what only nodes with workers have.
func (c *checker) supervisor(at string, n *Node) {
	c.bounded(at+".rounds", n.Rounds, roundsMin, roundsMax)
	c.count(at+".workers", len(n.Workers), workersMax)
	if n.Rounds != 0 && len(n.Workers) == 0 {
		c.fail(at+".rounds", "it means something to a node with workers alone")
	}
	if len(n.Workers) == 0 {
		return
	}
	if n.Each != nil {
		c.fail(at+".each", "a supervisor cannot work once for each element; its workers can")
	}
	for _, w := range n.Workers {
		if _, taken := n.Input[w]; taken {
			c.fail(at+".input."+w, "this is where the results of the worker %.64q stand", w)
		}
	}
	if _, taken := n.Input[tasksInput]; taken {
		c.fail(at+".input."+tasksInput, "this is where the tasks of a supervisor stand")
	}
	if err := compiles(decision(n)); err != nil {
		c.fail(at+".result", "as a part of what a supervisor answers, %v", err)
	}
}

// keysOfTopology looks for keys that mean nothing in the topology, and for those that it
// needs.
func (c *checker) keysOfTopology() {
	d := c.d
	supervised := d.Topology == Supervised || d.Topology == Hierarchical
	for _, key := range []struct {
		name        string
		there, good bool
	}{
		{"start", d.Start != nil, d.Topology == Directed},
		{"edges", d.Edges != nil, d.Topology == Directed},
		{"join", d.Join != "", d.Topology == Parallel},
		{"loops", d.Loops != nil, d.Topology == Sequential || d.Topology == Directed},
	} {
		if key.there && !key.good && d.Topology != "" {
			c.fail(key.name, "it means nothing with `topology: %s`", d.Topology)
		}
	}
	if d.Topology == Directed && len(d.Start) == 0 {
		c.fail("start", "a graph needs the names of the nodes that it begins with")
	}
	for i := range d.Nodes {
		if n := &d.Nodes[i]; n.Workers != nil && !supervised {
			c.fail(fmt.Sprintf("nodes[%d].workers", i), "it means nothing with `topology: %s`", d.Topology)
		}
	}
}
