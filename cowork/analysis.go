package cowork

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// analysis finds out what follows from a graph as a whole.
type analysis struct {
	*builder
	index  map[string]int // places in Graph.Vertices
	next   [][]int        // where edges lead
	before []set          // the vertices that lie on a way to each
	bodies []set          // of the loops
}

// run looks for what is wrong, in an order in which each step can lean on the ones
// before it, and completes the graph.
func (a *analysis) run() {
	if a.order(); a.failed() {
		return
	}
	if a.reach(); a.failed() {
		return
	}
	if a.loops(); a.failed() {
		return
	}
	a.conditions()
	a.references()
	a.output()
	a.starts()
	slices.SortStableFunc(a.g.Loops, func(l, m Loop) int { return cmp.Compare(len(l.Body), len(m.Body)) })
}

func (a *analysis) failed() bool { return len(a.problems.List()) > 0 }

// field is where a vertex's own keys stand in the file.
func (a *analysis) field(v int) string {
	name, _, _ := strings.Cut(a.g.Vertices[v].Name, "/")
	return fmt.Sprintf("nodes[%d]", a.byName[name])
}

func (a *analysis) names(vertices []int) []string {
	out := make([]string, len(vertices))
	for i, v := range vertices {
		out[i] = a.g.Vertices[v].Name
	}
	return out
}

// order puts vertices behind those that lead to them, else as they stand in the file, and
// refuses circles.
func (a *analysis) order() {
	a.link()
	open := make([]int, len(a.g.Vertices))
	for _, to := range a.next {
		for _, v := range to {
			open[v]++
		}
	}
	var ready, sorted []int
	for v, n := range open {
		if n == 0 {
			ready = append(ready, v)
		}
	}
	for len(ready) > 0 {
		v := ready[0]
		ready = ready[1:]
		sorted = append(sorted, v)
		for _, w := range a.next[v] {
			if open[w]--; open[w] == 0 {
				at, _ := slices.BinarySearch(ready, w)
				ready = slices.Insert(ready, at, w)
			}
		}
	}
	if len(sorted) < len(a.g.Vertices) {
		a.circle(open)
		return
	}
	vertices := make([]Vertex, len(sorted))
	for i, v := range sorted {
		vertices[i] = a.g.Vertices[v]
	}
	a.g.Vertices = vertices
	a.link()
}

// link indexes the vertices and edges.
func (a *analysis) link() {
	a.index = map[string]int{}
	for i, v := range a.g.Vertices {
		a.index[v.Name] = i
	}
	a.next = make([][]int, len(a.g.Vertices))
	for _, e := range a.g.Edges {
		from := a.index[e.From]
		a.next[from] = append(a.next[from], a.index[e.To])
	}
}

// circle names one: open counts the edges to each vertex that come from one that is in a
// circle, or behind one.
func (a *analysis) circle(open []int) {
	before := func(v int) int {
		for u, n := range open {
			if n > 0 && slices.Contains(a.next[u], v) {
				return u
			}
		}
		return v // what is open has such a one
	}
	way := []int{slices.IndexFunc(open, func(n int) bool { return n > 0 })}
	for {
		u := before(way[len(way)-1])
		if at := slices.Index(way, u); at >= 0 {
			way = append(way[at:], u)
			break
		}
		way = append(way, u)
	}
	slices.Reverse(way)
	last, first := way[len(way)-2], way[0]
	edge := slices.IndexFunc(a.g.Edges, func(e Edge) bool { return a.index[e.From] == last && a.index[e.To] == first })
	a.fail(fmt.Sprintf("edges[%d]", edge), "edges go in a circle without a bound: %s; make the way back a loop: `loops: [{from: %s, to: %s, when: …, max: …}]`",
		chain(a.names(way)), a.g.Vertices[last].Name, a.g.Vertices[first].Name)
}

// reach collects what lies before each vertex, and refuses what no way leads to.
func (a *analysis) reach() {
	n := len(a.g.Vertices)
	a.before = make([]set, n)
	for v := range a.before {
		a.before[v] = newSet(n)
	}
	led := make([]bool, n)
	for v := range n { // those before stand before
		for _, w := range a.next[v] {
			a.before[w].add(v)
			a.before[w].addAll(a.before[v])
			led[w] = true
		}
	}
	if a.d.Topology != Directed {
		return
	}
	for v, vertex := range a.g.Vertices {
		if !led[v] && !slices.Contains(a.d.Start, vertex.Name) {
			a.fail(a.field(v), "%s is never reached: no edge leads to it, and `start` does not name it", vertex.Name)
		}
	}
}

// loops finds out what each repeats, and refuses those that cannot be told apart.
func (a *analysis) loops() {
	for i := range a.g.Loops {
		a.body(i)
	}
	if a.failed() {
		return
	}
	for i := range a.g.Loops {
		for j := range i {
			a.apart(i, j)
		}
	}
}

func (a *analysis) body(i int) {
	l := &a.g.Loops[i]
	at := fmt.Sprintf("loops[%d]", i)
	from, to := a.index[l.From], a.index[l.To]
	if len(a.d.Loops) > 0 { // those that were compiled are good
		a.loopKeys(at, l)
	}
	if from != to && !a.before[from].has(to) {
		a.fail(at, "no way leads from %s to %s, so there is nothing to go back over", l.To, l.From)
		return
	}
	in := newSet(len(a.g.Vertices))
	a.bodies = append(a.bodies, in)
	for v := range a.g.Vertices {
		if (v == to || a.before[v].has(to)) && (v == from || a.before[from].has(v)) {
			in.add(v)
			l.Body = append(l.Body, a.g.Vertices[v].Name)
		}
	}
	for _, e := range a.g.Edges {
		u, v := a.index[e.From], a.index[e.To]
		switch {
		case in.has(u) && !in.has(v) && u != from:
			a.fail(at, "the loop from %s back to %s is left at %s, towards %s; it can be left at %s alone", l.From, l.To, e.From, e.To, l.From)
		case !in.has(u) && in.has(v) && v != to:
			a.fail(at, "the loop from %s back to %s is entered at %s, from %s; it can be entered at %s alone", l.From, l.To, e.To, e.From, l.To)
		}
	}
	for _, v := range l.Body {
		if slices.Contains(a.d.Start, v) && v != l.To {
			a.fail(at, "the graph begins with %s, within the loop from %s back to %s; it can be entered at %s alone", v, l.From, l.To, l.To)
		}
	}
}

func (a *analysis) loopKeys(at string, l *Loop) {
	if l.When == nil {
		a.fail(at+".when", "a loop needs a condition: it goes back while that holds")
	}
	if l.Max < 1 || l.Max > againMax {
		a.fail(at+".max", "a loop needs a bound: it goes back 1 to %d times at most", againMax)
	}
	a.oneOf(at+".exhausted", l.Exhausted, Stop, Continue)
}

// apart refuses two loops of which neither lies within the other.
func (a *analysis) apart(i, j int) {
	at := fmt.Sprintf("loops[%d]", i)
	if from := a.g.Loops[i].From; from == a.g.Loops[j].From {
		a.fail(at+".from", "there is a loop from %s already, loops[%d]", from, j)
		return
	}
	both := a.bodies[i].shared(a.bodies[j])
	if both > 0 && both < len(a.g.Loops[i].Body) && both < len(a.g.Loops[j].Body) {
		a.fail(at, "it overlaps with loops[%d]; one has to lie within the other, or apart from it", j)
	}
}

// ended reports whether a vertex has always ended, or been skipped, when another begins;
// within a loop also one that comes later, whose result is then that of the time before.
func (a *analysis) ended(vertex, before int) bool {
	if a.before[before].has(vertex) {
		return true
	}
	return slices.ContainsFunc(a.bodies, func(body set) bool { return body.has(vertex) && body.has(before) })
}

// starts counts how often vertices are started at most.
func (a *analysis) starts() {
	for i, v := range a.g.Vertices {
		if v.Meeting {
			continue
		}
		n := 1
		if v.Each != nil {
			n = cmp.Or(v.Each.Max, eachDefault)
		}
		for j, l := range a.g.Loops {
			if a.bodies[j].has(i) {
				n = min(n*(l.Max+1), startsMax+1)
			}
		}
		a.g.Starts += n
	}
	if a.g.Starts > startsMax {
		a.fail("nodes", "nodes could be started more than %d times in one run; lower max of loops and each, or rounds", startsMax)
	}
}

// set is a set of vertices.
type set []uint64

func newSet(n int) set { return make(set, (n+63)/64) }

func (s set) add(v int)      { s[v/64] |= 1 << (v % 64) }
func (s set) has(v int) bool { return s[v/64]&(1<<(v%64)) != 0 }

func (s set) addAll(o set) {
	for i := range s {
		s[i] |= o[i]
	}
}

// shared counts what is in both.
func (s set) shared(o set) (n int) {
	for i := range s {
		n += bits.OnesCount64(s[i] & o[i])
	}
	return n
}
