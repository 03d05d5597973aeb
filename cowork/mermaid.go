package cowork

import (
	"encoding/json"
	"fmt"
	"strings"
)

// labelMax is how much of a text stands in a picture.
const labelMax = 60

// Mermaid writes the graph as a flowchart of Mermaid. Solid arrows are edges, dotted ones
// are loops; a person is a hexagon, a node that works for each element of a list has
// double sides, and paths meet in a circle.
func (g Graph) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	id := map[string]string{} // names such as "end" mean something to Mermaid
	for i, v := range g.Vertices {
		id[v.Name] = fmt.Sprintf("n%d", i)
		fmt.Fprintf(&b, "    %s%s\n", id[v.Name], v.shape())
	}
	for _, e := range g.Edges {
		fmt.Fprintf(&b, "    %s -->%s %s\n", id[e.From], label(e.When.String()), id[e.To])
	}
	for _, l := range g.Loops {
		text := fmt.Sprintf("at most %d times, while %s", l.Max, l.When)
		fmt.Fprintf(&b, "    %s -.->%s %s\n", id[l.From], label(text), id[l.To])
	}
	return b.String()
}

func (v Vertex) shape() string {
	text := escape(v.Name)
	switch {
	case v.Meeting:
		return `((" "))`
	case v.Human != nil:
		return `{{"` + text + `"}}`
	case v.Each != nil:
		return `[["` + text + v.about() + `"]]`
	}
	return `["` + text + v.about() + `"]`
}

// about is a second line: who does it, and where if that is not the shared machine.
func (v Vertex) about() string {
	var list []string
	if v.Agent != "" {
		list = append(list, v.Agent)
	}
	if v.Sandbox == SandboxOwn || v.Sandbox == SandboxFork {
		list = append(list, v.Sandbox+" sandbox")
	}
	if len(list) == 0 {
		return ""
	}
	return "<br/>" + escape(strings.Join(list, ", "))
}

func label(text string) string {
	if text == "" {
		return ""
	}
	return `|"` + escape(text) + `"|`
}

// escape writes a text so that nothing in it means anything to Mermaid or to HTML.
func escape(text string) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > labelMax {
			b.WriteString("…")
			break
		}
		switch {
		case r < ' ':
			b.WriteByte(' ')
		case strings.ContainsRune("\"#&<>`;{}[]()|\\*_~$%", r):
			fmt.Fprintf(&b, "#%d;", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// String writes a condition for people: "review.ok is true".
func (c *Condition) String() string {
	switch {
	case c == nil:
		return ""
	case c.All != nil:
		return tests(c.All, " and ")
	case c.Any != nil:
		return tests(c.Any, " or ")
	}
	return c.Test.String()
}

func tests(list []Test, between string) string {
	texts := make([]string, len(list))
	for i, t := range list {
		texts[i] = t.String()
	}
	return strings.Join(texts, between)
}

// String writes a test for people.
func (t Test) String() string {
	of := strings.TrimSuffix(t.Node+"."+t.Path, ".")
	switch {
	case t.Status != "":
		return of + " " + t.Status
	case t.Exists != nil && *t.Exists:
		return of + " exists"
	case t.Exists != nil:
		return "no " + of
	case t.Equals != nil:
		return of + " = " + plain(*t.Equals)
	case t.GreaterThan != nil:
		return of + " > " + plain(*t.GreaterThan)
	case t.LessThan != nil:
		return of + " < " + plain(*t.LessThan)
	}
	values := make([]string, len(t.In))
	for i, v := range t.In {
		values[i] = plain(v)
	}
	return of + " = " + strings.Join(values, " or ")
}

func plain(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // escape does it
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
