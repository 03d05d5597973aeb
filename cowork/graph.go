package cowork

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skete-dev/skete/internal/yamlfile"
)

// Graph is what every topology is compiled to, and all that a run has to know.
//
// A vertex is decided when all edges that lead to it are: it works if one of them is taken,
// and is skipped if none is; then its own edges are not taken either. When the vertex From
// of a loop has ended and the condition holds, the loop's Body is begun anew;
// only otherwise are the edges behind it decided. Without its loops the graph has no
// circles, and loops lie within each other or apart.
type Graph struct {
	Vertices []Vertex // in an order in which they can be done
	Edges    []Edge
	Loops    []Loop               // what lies within another stands before it
	Output   map[string]Reference // of the workflow
	Starts   int                  // how often vertices are started at most, attempts not counted
}

// Vertex is a node in its place.
type Vertex struct {
	Node
	Meeting   bool // paths meet here, and nothing is done
	Continues bool // when it is begun anew, it goes on with the conversation that it had
}

// What is added to the inputs of supervisors and workers, and what supervisors answer.
const (
	tasksInput  = "tasks" // of a supervisor that is a worker: what it was given
	taskInput   = "task"  // of a worker: the same
	fieldDone   = "done"
	fieldAnswer = "answer"
	fieldGive   = "delegate"
)

// compile makes the graph of a definition that is good as far as it was looked at.
func (c *checker) compile() Graph {
	b := &builder{checker: c, byName: map[string]int{}}
	for i, n := range c.d.Nodes {
		b.byName[n.Name] = i
	}
	switch c.d.Topology {
	case Sequential:
		b.sequential()
	case Parallel:
		b.parallel()
	case Directed:
		b.directed()
	default:
		b.supervised()
	}
	for i, l := range c.d.Loops {
		at := fmt.Sprintf("loops[%d]", i)
		b.known(at+".from", l.From)
		b.known(at+".to", l.To)
		b.g.Loops = append(b.g.Loops, l)
	}
	if len(c.problems.List()) > 0 {
		return Graph{}
	}
	(&analysis{builder: b}).run()
	return b.g
}

// builder makes edges of what a topology says.
type builder struct {
	*checker
	byName map[string]int    // places in Definition.Nodes
	boss   map[string]string // who gives work to a worker
	g      Graph
}

// known looks whether there is a node of a name.
func (b *builder) known(field, name string) bool {
	if _, is := b.byName[name]; is {
		return true
	}
	if name == "" {
		b.fail(field, "the name of a node is missing")
		return false
	}
	b.fail(field, "there is no node %.64q%s", name, yamlfile.Suggest(name, b.names()))
	return false
}

func (b *builder) names() []string { return slices.Sorted(maps.Keys(b.byName)) }

func (b *builder) vertices() {
	for _, n := range b.d.Nodes {
		b.g.Vertices = append(b.g.Vertices, Vertex{Node: n})
	}
}

func (b *builder) sequential() {
	b.vertices()
	for i := 1; i < len(b.d.Nodes); i++ {
		b.g.Edges = append(b.g.Edges, Edge{From: b.d.Nodes[i-1].Name, To: b.d.Nodes[i].Name})
	}
}

func (b *builder) parallel() {
	b.vertices()
	if b.d.Join == "" || !b.known("join", b.d.Join) {
		return
	}
	for _, n := range b.d.Nodes {
		if n.Name != b.d.Join {
			b.g.Edges = append(b.g.Edges, Edge{From: n.Name, To: b.d.Join})
		}
	}
}

func (b *builder) directed() {
	b.vertices()
	type pair struct{ from, to string }
	seen := map[pair]bool{}
	for i, e := range b.d.Edges {
		at := fmt.Sprintf("edges[%d]", i)
		from, to := b.known(at+".from", e.From), b.known(at+".to", e.To)
		switch {
		case !from || !to:
		case e.From == e.To:
			b.fail(at, "the edge leads from %s to itself; a way back is a loop with a bound: `loops: [{from: %[1]s, to: %[1]s, when: …, max: …}]`", e.From)
		case seen[pair{e.From, e.To}]:
			b.fail(at, "there is an edge from %s to %s already; one condition can have several tests: `any`", e.From, e.To)
		case slices.Contains(b.d.Start, e.To):
			b.fail(at+".to", "the graph begins with %s, so no edge leads to it; a way back is a loop", e.To)
		}
		seen[pair{e.From, e.To}] = true
		b.g.Edges = append(b.g.Edges, e)
	}
	for i, name := range b.d.Start {
		at := fmt.Sprintf("start[%d]", i)
		b.known(at, name)
		if slices.Index(b.d.Start, name) < i {
			b.fail(at, "%.64q is there twice", name)
		}
	}
}

// supervised compiles supervisors with their workers: in each round the supervisor says
// who is to do what, those work, and all paths meet before the next round.
func (b *builder) supervised() {
	b.bosses()
	if len(b.problems.List()) > 0 {
		return
	}
	var roots []string
	for _, n := range b.d.Nodes {
		if b.boss[n.Name] == "" {
			roots = append(roots, n.Name)
		}
	}
	switch {
	case len(roots) == 0:
		b.fail("nodes", "each node is a worker of another, so none can begin")
		return
	case len(roots) > 1:
		n := b.byName[roots[1]]
		b.fail(fmt.Sprintf("nodes[%d]", n), "%s is no node's worker, and neither is %s: one node alone begins", roots[1], roots[0])
		return
	}
	root := &b.d.Nodes[b.byName[roots[0]]]
	if len(root.Workers) == 0 {
		b.fail(fmt.Sprintf("nodes[%d]", b.byName[root.Name]), "`topology: %s` needs a node with workers", b.d.Topology)
		return
	}
	reached := map[string]bool{}
	b.team(root, nil, 1, reached)
	for i, n := range b.d.Nodes {
		if !reached[n.Name] && len(b.problems.List()) == 0 {
			b.fail(fmt.Sprintf("nodes[%d]", i), "%s is never reached: those that give it work go in a circle", n.Name)
		}
	}
	b.g.Output = map[string]Reference{resultOutput: {Node: root.Name, Path: fieldAnswer}}
}

const resultOutput = "result"

// bosses finds out who gives work to whom.
func (b *builder) bosses() {
	b.boss = map[string]string{}
	for i, n := range b.d.Nodes {
		for j, w := range n.Workers {
			at := fmt.Sprintf("nodes[%d].workers[%d]", i, j)
			switch {
			case !b.known(at, w):
			case w == n.Name:
				b.fail(at, "%s cannot be its own worker", w)
			case b.boss[w] != "":
				b.fail(at, "%s is a worker of %s already", w, b.boss[w])
			case b.d.Nodes[b.byName[w]].Human != nil:
				b.fail(at, "%s is a person, and no worker; agents ask people with `ask_user`", w)
			case b.d.Nodes[b.byName[w]].Each != nil:
				b.fail(at, "%s works once for each task that it is given, so it has no `each`", w)
			default:
				b.boss[w] = n.Name
			}
		}
	}
	for i, n := range b.d.Nodes {
		if b.d.Topology == Supervised && len(n.Workers) > 0 && b.boss[n.Name] != "" {
			b.fail(fmt.Sprintf("nodes[%d].workers", i), "workers that have workers need `topology: %s`", Hierarchical)
		}
	}
}

// team adds a supervisor and all beneath it, or a worker. orders are the tasks that it is
// given. What follows it follows the vertex last.
func (b *builder) team(n *Node, orders *Reference, level int, reached map[string]bool) (last string) {
	reached[n.Name] = true
	if len(n.Workers) == 0 {
		b.g.Vertices = append(b.g.Vertices, worker(*n, orders))
		return n.Name
	}
	if level > levelsMax {
		b.fail(fmt.Sprintf("nodes[%d].workers", b.byName[n.Name]), "more than %d supervisors above each other", levelsMax)
		return n.Name
	}
	v := Vertex{Node: *n, Continues: true}
	v.Input, v.Result = inputs(n.Input), decision(n)
	if orders != nil {
		v.Input[tasksInput] = *orders
	}
	place := len(b.g.Vertices)
	b.g.Vertices = append(b.g.Vertices, v)
	meeting := n.Name + "/round"
	b.g.Edges = append(b.g.Edges, Edge{From: n.Name, To: meeting})
	for _, w := range n.Workers {
		given := fieldGive + "." + w
		under := &b.d.Nodes[b.byName[w]]
		end := b.team(under, &Reference{Node: n.Name, Path: given}, level+1, reached)
		yes := true
		b.g.Edges = append(
			b.g.Edges,
			Edge{From: n.Name, To: w, When: &Condition{Test: Test{Node: n.Name, Path: given, Exists: &yes}}},
			Edge{From: end, To: meeting},
		)
		v.Input[w] = Reference{Node: w}
		if len(under.Workers) > 0 {
			v.Input[w] = Reference{Node: w, Path: fieldAnswer}
		}
	}
	b.g.Vertices[place] = v
	b.g.Vertices = append(b.g.Vertices, Vertex{Node: Node{Name: meeting}, Meeting: true})
	var not any = false
	b.g.Loops = append(b.g.Loops, Loop{
		From: meeting, To: n.Name, Max: cmp.Or(n.Rounds, roundsDefault) - 1,
		When: &Condition{Test: Test{Node: n.Name, Path: fieldDone, Equals: &not}},
	})
	return meeting
}

// worker is a node that works once for each task that it is given.
func worker(n Node, orders *Reference) Vertex {
	item := ""
	n.Input = inputs(n.Input)
	n.Input[taskInput] = Reference{Item: &item}
	n.Each = &Each{Reference: *orders, Max: tasksDefault}
	return Vertex{Node: n}
}

func inputs(of map[string]Reference) map[string]Reference {
	if of == nil {
		return map[string]Reference{}
	}
	return maps.Clone(of)
}

// decision is the schema of what a supervisor answers in each round.
func decision(n *Node) map[string]any {
	give := map[string]any{}
	for _, w := range n.Workers {
		give[w] = map[string]any{
			"type": "array", "minItems": 1.0, "maxItems": float64(tasksDefault),
			"items": map[string]any{"type": "string", "minLength": 1.0},
		}
	}
	answer := n.Result
	if answer == nil {
		answer = textSchema
	}
	return map[string]any{
		"type": "object", "required": []any{fieldDone}, "additionalProperties": false,
		"properties": map[string]any{
			fieldDone:   map[string]any{"type": "boolean", "description": "Whether the work is done, and answer says what came of it."},
			fieldAnswer: answer,
			fieldGive: map[string]any{
				"type": "object", "additionalProperties": false, "properties": give,
				"description": "The tasks of this round for each worker that is to have some.",
			},
		},
	}
}

var textSchema = map[string]any{"type": "string"}

// resultOf is the schema of what stands as a vertex's result; nil = it is not known.
func (v Vertex) resultOf() map[string]any {
	of := v.Result
	switch {
	case v.Human != nil:
		choices := []any{}
		for _, c := range v.Human.All() {
			choices = append(choices, c)
		}
		return map[string]any{
			"type": "object", "additionalProperties": false,
			"properties": map[string]any{"choice": map[string]any{"type": "string", "enum": choices}, "text": textSchema},
		}
	case of == nil && v.Inline != nil:
		of = textSchema
	}
	if v.Each == nil {
		return of
	}
	list := map[string]any{"type": "array"}
	if of != nil {
		list["items"] = of
	}
	return list
}

// All are what can be chosen.
func (h *Human) All() []string {
	if len(h.Choices) == 0 {
		return []string{choiceYes, choiceNo}
	}
	return h.Choices
}

// chain writes names as a way: a → b → a.
func chain(names []string) string { return strings.Join(names, " → ") }
