package cowork

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/internal/yamlfile"
)

// Bounds of a path.
const (
	partsMax = 16
	partMax  = 64
)

// parts takes a path apart: findings.0.file.
func parts(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	list := strings.Split(path, ".")
	if len(list) > partsMax {
		return nil, fmt.Errorf("the path has more than %d parts", partsMax)
	}
	for _, p := range list {
		if p == "" || len(p) > partMax || strings.Trim(p, alphanumeric+"_-") != "" {
			return nil, fmt.Errorf("%.80q is no path; write names and numbers with points between them: findings.0.file", path)
		}
	}
	return list, nil
}

// beneath is the part of a schema that a path leads to; nil = that is not known. It is an
// error when there can be nothing.
func beneath(schema map[string]any, path string) (map[string]any, error) {
	way, err := parts(path)
	if err != nil {
		return nil, err
	}
	for i, name := range way {
		if schema == nil {
			return nil, nil
		}
		if schema, err = step(schema, name); err != nil {
			return nil, fmt.Errorf("%w, so %q leads nowhere", err, strings.Join(way[:i+1], "."))
		}
	}
	return schema, nil
}

// indirect are keys of schemas by which more can be there than stands in properties.
var indirect = []string{"$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "prefixItems"}

func step(schema map[string]any, name string) (map[string]any, error) {
	for _, key := range indirect {
		if schema[key] != nil {
			return nil, nil
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	switch kind, _ := schema["type"].(string); kind {
	case "string", "number", "integer", "boolean", "null":
		return nil, fmt.Errorf("there is a %s, and nothing beneath it", kind)
	case "array":
		if _, err := strconv.ParseUint(name, 10, 31); err != nil {
			return nil, errors.New("there is a list, whose elements are numbered from 0")
		}
		items, _ := schema["items"].(map[string]any)
		return items, nil
	}
	if sub, is := properties[name]; is {
		table, _ := sub.(map[string]any)
		return table, nil
	}
	if more := schema["additionalProperties"]; properties == nil || more != nil && more != false {
		table, _ := more.(map[string]any)
		return table, nil
	}
	return nil, fmt.Errorf("there is no %q%s", name, yamlfile.Suggest(name, slices.Collect(maps.Keys(properties))))
}

// isList reports whether a schema may describe a list.
func isList(schema map[string]any) bool {
	kind, is := schema["type"].(string)
	return !is || kind == "array"
}

// references looks at what nodes are given.
func (a *analysis) references() {
	for v, vertex := range a.g.Vertices {
		if vertex.Meeting {
			continue
		}
		written := a.d.Nodes[a.byName[vertex.Name]]
		at := a.field(v)
		for _, name := range slices.Sorted(maps.Keys(written.Input)) {
			field := at + ".input." + name
			if !isField(name) {
				a.fail(field, "%.80q is no name of an input; use 1 to %d letters, digits, _ and -", name, partMax)
			}
			a.reference(field, written.Input[name], v, vertex.Each)
		}
		if e := written.Each; e != nil {
			a.each(at+".each", e, v)
		}
		a.task(at, vertex, written)
	}
}

func isField(s string) bool {
	return s != "" && len(s) <= partMax && strings.Trim(s, alphanumeric+"_-") == ""
}

func (a *analysis) task(at string, v Vertex, written Node) {
	_, worker := a.boss[v.Name]
	if written.Task == "" && written.Human == nil && !worker {
		a.fail(at+".task", "%s needs a task: what it is to do, in a sentence or more", v.Name)
	}
	if _, taken := written.Input[taskInput]; taken && worker {
		a.fail(at+".input."+taskInput, "this is where the task of a worker stands")
	}
}

func (a *analysis) each(at string, e *Each, v int) {
	if e.Item != nil {
		a.fail(at+".item", "the elements come from a list elsewhere: a node's result, the input, or a value")
		return
	}
	schema := a.reference(at, e.Reference, v, nil)
	if e.Artifact != "" || schema != nil && !isList(schema) {
		a.fail(at, "a list is wanted, whose elements %s works on", a.g.Vertices[v].Name)
	}
	if e.Value != nil {
		if list, is := (*e.Value).([]any); !is || len(list) == 0 {
			a.fail(at+".value", "a list is wanted, with something in it")
		}
	}
}

// reference looks at what a vertex is given, -1 = the workflow's output, and returns the
// schema of that if it is known. each is the list whose element can be meant.
func (a *analysis) reference(at string, r Reference, v int, each *Each) map[string]any {
	kinds := 0
	for _, has := range []bool{r.Input != nil, r.Node != "", r.Item != nil, r.Value != nil} {
		if has {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		a.fail(at, "one of input, node, item and value is wanted")
	case r.Node == "" && (r.Path != "" || r.Artifact != ""):
		a.fail(at, "path and artifact are about a node's result; behind input and item stands a path itself")
	case r.Input != nil && a.d.Input == nil:
		a.fail(at+".input", "the workflow is started with nothing: it has no `input`")
	case r.Input != nil:
		return a.path(at+".input", a.d.Input, *r.Input)
	case r.Item != nil && each == nil:
		a.fail(at+".item", "there is no element: the node has no `each`")
	case r.Item != nil:
		return a.path(at+".item", nil, *r.Item)
	case r.Node != "":
		return a.result(at, r, v)
	}
	return nil
}

func (a *analysis) path(field string, schema map[string]any, path string) map[string]any {
	found, err := beneath(schema, path)
	if err != nil {
		a.fail(field, "%v", err)
	}
	return found
}

// result looks at a reference to what a node did.
func (a *analysis) result(at string, r Reference, v int) map[string]any {
	if !a.known(at+".node", r.Node) {
		return nil
	}
	from := a.index[r.Node]
	if v >= 0 && !a.ended(from, v) {
		a.fail(at+".node", "%s need not have ended before %s begins: no way leads from it to there", r.Node, a.g.Vertices[v].Name)
		return nil
	}
	vertex := a.g.Vertices[from]
	if r.Artifact == "" {
		return a.path(at+".path", vertex.resultOf(), r.Path)
	}
	if r.Path != "" {
		a.fail(at, "it is either a part of the result or an artifact")
	}
	if !slices.Contains(vertex.Artifacts, r.Artifact) {
		a.fail(at+".artifact", "%s leaves no %.80q%s", r.Node, r.Artifact, yamlfile.Suggest(r.Artifact, vertex.Artifacts))
	}
	return nil
}

// output looks at what the workflow's result is, and says it where the definition does not.
func (a *analysis) output() {
	for _, name := range slices.Sorted(maps.Keys(a.d.Output)) {
		field := "output." + name
		if !isField(name) {
			a.fail(field, "%.80q is no name of an output; use 1 to %d letters, digits, _ and -", name, partMax)
		}
		a.reference(field, a.d.Output[name], -1, nil)
	}
	if a.d.Output != nil {
		a.g.Output = a.d.Output
		return
	}
	if a.g.Output != nil {
		return
	}
	a.g.Output = map[string]Reference{}
	for v, vertex := range a.g.Vertices {
		if len(a.next[v]) == 0 {
			a.g.Output[vertex.Name] = Reference{Node: vertex.Name}
		}
	}
}

// conditions looks at those of edges and loops.
func (a *analysis) conditions() {
	for i, e := range a.g.Edges {
		if a.d.Topology == Directed && e.When != nil {
			a.condition(fmt.Sprintf("edges[%d].when", i), e.When, a.index[e.From])
		}
	}
	for i, l := range a.d.Loops {
		a.condition(fmt.Sprintf("loops[%d].when", i), l.When, a.index[l.From])
	}
}

func (a *analysis) condition(at string, c *Condition, behind int) {
	kinds := 0
	for key, tests := range map[string][]Test{"all": c.All, "any": c.Any} {
		if tests == nil {
			continue
		}
		kinds++
		if n := len(tests); n == 0 || n > testsMax {
			a.fail(at+"."+key, "1 to %d tests", testsMax)
		}
		for i, t := range tests {
			a.test(fmt.Sprintf("%s.%s[%d]", at, key, i), t, behind)
		}
	}
	if !c.isZero() {
		kinds++
		a.test(at, c.Test, behind)
	}
	if kinds != 1 {
		a.fail(at, "a condition is one test, or all or any of a list of them")
	}
}

func (t Test) isZero() bool {
	return t.Node == "" && t.Path == "" && len(t.asked()) == 0
}

// asked are the keys by which a test asks something.
func (t Test) asked() (keys []string) {
	for _, k := range []struct {
		name string
		is   bool
	}{
		{"status", t.Status != ""},
		{"exists", t.Exists != nil},
		{"equals", t.Equals != nil},
		{"in", t.In != nil},
		{"greater_than", t.GreaterThan != nil},
		{"less_than", t.LessThan != nil},
	} {
		if k.is {
			keys = append(keys, k.name)
		}
	}
	return keys
}

// test looks at one that is asked when the vertex behind has ended.
func (a *analysis) test(at string, t Test, behind int) {
	if !a.known(at+".node", t.Node) {
		return
	}
	if v := a.index[t.Node]; v != behind && !a.ended(v, behind) {
		a.fail(at+".node", "%s need not have ended when %s has: no way leads from it to there", t.Node, a.g.Vertices[behind].Name)
	}
	asked := t.asked()
	if len(asked) != 1 {
		a.fail(at, "a test asks one thing: status, exists, equals, in, greater_than or less_than")
		return
	}
	if t.Status != "" {
		a.oneOf(at+".status", t.Status, Succeeded, Failed, Skipped)
		if n := a.g.Vertices[a.index[t.Node]]; t.Status == Failed && n.OnFailure != Continue {
			a.fail(at+".status", "this is never so: the workflow fails with %s, unless that has `on_failure: continue`", t.Node)
		}
		if t.Path != "" {
			a.fail(at+".path", "the status is that of the node, and not of a part of its result")
		}
		return
	}
	schema, err := beneath(a.g.Vertices[a.index[t.Node]].resultOf(), t.Path)
	if err != nil {
		a.fail(at+".path", "%v", err)
		return
	}
	a.values(at+"."+asked[0], t, schema)
}

// values looks at what a value is compared with.
func (a *analysis) values(at string, t Test, schema map[string]any) {
	list := t.In
	if t.Equals != nil {
		list = []any{*t.Equals}
	}
	if t.In != nil && (len(list) == 0 || len(list) > valuesMax) {
		a.fail(at, "1 to %d values", valuesMax)
		return
	}
	for _, v := range list {
		switch v.(type) {
		case string, float64, bool:
			if why := never(schema, v); why != "" {
				a.fail(at, "this is never so: %s", why)
			}
		default:
			a.fail(at, "a text, a number, true or false is wanted")
		}
	}
	if kind, is := schema["type"].(string); is && (t.GreaterThan != nil || t.LessThan != nil) && kind != "number" && kind != "integer" {
		a.fail(at, "this is never so: the value is of type %s, and no number", kind)
	}
}

// never says why a value cannot be one of a schema, "" if it can. A schema with references
// to other parts is not looked at.
func never(schema map[string]any, v any) string {
	if schema == nil {
		return ""
	}
	raw, err := json.Marshal(schema)
	if err != nil {
		return ""
	}
	s, err := definition.CompileResult(raw)
	if err != nil {
		return ""
	}
	value, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	wrong := s.Check(value)
	if len(wrong) == 0 {
		return ""
	}
	return strings.TrimPrefix(wrong[0], "the whole: ")
}
