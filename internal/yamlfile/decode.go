package yamlfile

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/skete-dev/skete/internal/clip"
)

type decoder struct {
	at       Positions
	problems *Problems
	depth    int
}

func (d *decoder) file(body ast.Node, into any) {
	if body == nil {
		return
	}
	v := reflect.ValueOf(into).Elem()
	if entries, ok := mapping(body); ok {
		d.fields("", entries, v)
		return
	}
	d.problems.Add(place(body), "the file should be a list of keys with values")
}

// entry is one key of a mapping with its value.
type entry struct {
	key   string
	at    Pos
	value ast.Node
	bad   string // why the key cannot be used
}

func mapping(n ast.Node) ([]entry, bool) {
	m, ok := n.(ast.MapNode)
	if !ok {
		return nil, false
	}
	var entries []entry
	for i := m.MapRange(); i.Next(); {
		e := entry{at: place(i.Key()), value: i.Value()}
		switch k := ast.Node(i.Key()).(type) {
		case *ast.StringNode:
			e.key = k.Value
		default:
			e.bad = "a key should be plain text"
		}
		entries = append(entries, e)
	}
	return entries, true
}

func place(n ast.Node) Pos {
	if n == nil {
		return Pos{}
	}
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
		return place(m.Values[0].Key)
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		return place(m.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return Pos{t.Position.Line, t.Position.Column}
	}
	return Pos{}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// fields fills a struct.
func (d *decoder) fields(path string, entries []entry, v reflect.Value) {
	known := map[string]reflect.Value{}
	var names []string
	collect(v, known, &names)
	d.each(path, entries, func(e entry) {
		field, ok := known[e.key]
		if !ok {
			d.problems.Add(e.at, "%q is not a key here%s", clip.Text(e.key, quoteMax), Suggest(e.key, names))
			return
		}
		d.value(join(path, e.key), e.value, field)
	})
}

// each visits the entries whose keys are good and not repeated.
func (d *decoder) each(path string, entries []entry, visit func(entry)) {
	first := map[string]Pos{}
	around := d.problems.path
	defer func() { d.problems.path = around }()
	for _, e := range entries {
		d.problems.path = join(path, e.key)
		if e.bad != "" {
			d.problems.Add(e.at, "%s", e.bad)
			continue
		}
		if before, twice := first[e.key]; twice {
			d.problems.Add(e.at, "%q is there already, in line %d", clip.Text(e.key, quoteMax), before.Line)
			continue
		}
		first[e.key] = e.at
		d.at[join(path, e.key)] = e.at
		visit(e)
	}
}

// collect lists the fields of a struct by key.
func collect(v reflect.Value, known map[string]reflect.Value, names *[]string) {
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case option == "inline":
			collect(v.Field(i), known, names)
		case name != "" && name != "-":
			known[name] = v.Field(i)
			*names = append(*names, name)
		}
	}
}

var durationType = reflect.TypeFor[time.Duration]()

// value fills v from a node, or says why it cannot.
func (d *decoder) value(path string, n ast.Node, v reflect.Value) {
	if v.Kind() == reflect.Pointer { // so that what is there differs from what is zero
		if _, null := n.(*ast.NullNode); null {
			d.wrong(n, "a value")
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if d.depth++; d.depth > depthMax {
		d.problems.Add(place(n), "nested deeper than %d", depthMax)
		d.depth--
		return
	}
	defer func() { d.depth-- }()
	if reason := refused(n); reason != "" {
		d.problems.Add(place(n), "%s", reason)
		return
	}
	switch {
	case v.Type() == durationType:
		d.duration(n, v)
	case v.Kind() == reflect.Interface:
		if x := d.free(path, n); x != nil {
			v.Set(reflect.ValueOf(x))
		}
	case v.Kind() == reflect.String:
		if s, ok := text(n); ok {
			v.SetString(s)
		} else {
			d.wrong(n, "text")
		}
	case v.Kind() == reflect.Bool:
		if b, ok := n.(*ast.BoolNode); ok {
			v.SetBool(b.Value)
		} else {
			d.wrong(n, "true or false")
		}
	case v.CanInt():
		d.integer(n, v)
	case v.CanFloat():
		if f, ok := number(n); ok {
			v.SetFloat(f)
		} else {
			d.wrong(n, "a number")
		}
	case v.Kind() == reflect.Slice:
		d.list(path, n, v)
	case v.Kind() == reflect.Map:
		d.table(path, n, v)
	case v.Kind() == reflect.Struct:
		if entries, ok := mapping(n); ok {
			d.fields(path, entries, v)
		} else {
			d.wrong(n, "keys with values")
		}
	default:
		panic("yamlfile: a field of kind " + v.Kind().String())
	}
}

// refused says why a node is not taken whatever is wanted, "" if it is.
func refused(n ast.Node) string {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "references (&, * and <<) are not taken; put text that begins with * in quotes"
	case *ast.TagNode:
		return "tags (!) are not taken; put text that begins with ! in quotes"
	case *ast.DirectiveNode:
		return "directives (%) are not taken"
	}
	return ""
}

func (d *decoder) wrong(n ast.Node, want string) {
	hint := ""
	if _, scalar := n.(ast.ScalarNode); scalar && want == "text" {
		hint = "; put it in quotes"
	}
	if _, null := n.(*ast.NullNode); null {
		d.problems.Add(place(n), "the value is missing; leave the key out, or give %s", want)
		return
	}
	d.problems.Add(place(n), "%s is wanted here, not %s%s", want, kind(n), hint)
}

func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.SequenceNode:
		return "a list"
	case ast.MapNode:
		return "keys with values"
	}
	return "this"
}

func text(n ast.Node) (string, bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, true
	case *ast.LiteralNode:
		return s.Value.Value, true
	}
	return "", false
}

func number(n ast.Node) (float64, bool) {
	switch f := n.(type) {
	case *ast.FloatNode:
		return f.Value, !math.IsInf(f.Value, 0) && !math.IsNaN(f.Value)
	case *ast.IntegerNode:
		switch i := f.Value.(type) {
		case int64:
			return float64(i), true
		case uint64:
			return float64(i), true
		}
	}
	return 0, false
}

func (d *decoder) integer(n ast.Node, v reflect.Value) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		d.wrong(n, "a whole number")
		return
	}
	var x int64
	switch value := i.Value.(type) {
	case int64:
		x = value
	case uint64:
		if value > math.MaxInt64 {
			d.problems.Add(place(n), "the number is too large")
			return
		}
		x = int64(value)
	}
	if v.OverflowInt(x) {
		d.problems.Add(place(n), "the number is too large")
		return
	}
	v.SetInt(x)
}

func (d *decoder) duration(n ast.Node, v reflect.Value) {
	s, ok := text(n)
	if !ok {
		d.wrong(n, `a time such as "10m" or "90s"`)
		return
	}
	t, err := time.ParseDuration(s)
	if err != nil {
		d.problems.Add(place(n), `%q is no time; write "10m", "90s" or "1h30m"`, clip.Text(s, quoteMax))
		return
	}
	v.SetInt(int64(t))
}

func (d *decoder) list(path string, n ast.Node, v reflect.Value) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.wrong(n, "a list")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values)))
	around := d.problems.path
	defer func() { d.problems.path = around }()
	for i, x := range seq.Values {
		inner := path + "[" + strconv.Itoa(i) + "]"
		d.at[inner] = place(x)
		d.problems.path = inner
		d.value(inner, x, v.Index(i))
	}
}

// table fills a map with text keys.
func (d *decoder) table(path string, n ast.Node, v reflect.Value) {
	entries, ok := mapping(n)
	if !ok {
		d.wrong(n, "keys with values")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	d.each(path, entries, func(e entry) {
		x := reflect.New(v.Type().Elem()).Elem()
		d.value(join(path, e.key), e.value, x)
		v.SetMapIndex(reflect.ValueOf(e.key), x)
	})
}

// free reads any value as encoding/json would.
func (d *decoder) free(path string, n ast.Node) any {
	if s, ok := text(n); ok {
		return s
	}
	if f, ok := number(n); ok {
		return f
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return nil
	case *ast.BoolNode:
		return n.Value
	case *ast.SequenceNode:
		list := make([]any, len(n.Values))
		d.list(path, n, reflect.ValueOf(&list).Elem())
		return list
	case ast.MapNode:
		table := map[string]any{}
		d.table(path, n.(ast.Node), reflect.ValueOf(&table).Elem())
		return table
	}
	d.problems.Add(place(n), "this is nothing that JSON can say")
	return nil
}
