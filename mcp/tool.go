package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
)

// tool is one that models can call.
type tool struct {
	name, title, about string
	scope              string
	hints              hints
	in                 reflect.Type
	run                func(context.Context, *Server, any) (*sdk.CallToolResult, error)

	schema   *jsonschema.Schema
	resolved *jsonschema.Resolved
}

// hints say what a tool does to the world.
type hints int

const (
	reads    hints = 1 << iota // it changes nothing
	destroys                   // what it takes away may not come back
	repeats                    // a second call with the same arguments changes nothing more
	open                       // it may reach beyond the server
)

// tools returns all of them.
var tools = sync.OnceValue(func() []*tool {
	var all []*tool
	for _, group := range [][]*tool{sandboxTools, execTools, fileTools, historyTools, serviceTools, runTools} {
		all = append(all, group...)
	}
	for _, t := range all {
		t.settle()
	}
	return all
})

// does makes a tool's function of one with a type for its arguments.
func does[I any](t tool, run func(context.Context, *Server, *I) (*sdk.CallToolResult, error)) *tool {
	t.in = reflect.TypeFor[I]()
	t.run = func(ctx context.Context, s *Server, in any) (*sdk.CallToolResult, error) { return run(ctx, s, in.(*I)) }
	return &t
}

// settle makes the schema of the arguments: of their type, and of the tags about,
// enum, minimum and maximum of its fields.
func (t *tool) settle() {
	var err error
	if t.schema, err = jsonschema.ForType(t.in, &jsonschema.ForOptions{}); err != nil {
		panic("mcp: " + t.name + ": " + err.Error())
	}
	for _, f := range reflect.VisibleFields(t.in) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if p := t.schema.Properties[name]; p != nil {
			describe(p, f.Tag)
		}
	}
	if t.resolved, err = t.schema.Resolve(nil); err != nil {
		panic("mcp: " + t.name + ": " + err.Error())
	}
}

func describe(p *jsonschema.Schema, tag reflect.StructTag) {
	p.Description = tag.Get("about")
	if values := tag.Get("enum"); values != "" {
		for v := range strings.SplitSeq(values, ",") {
			p.Enum = append(p.Enum, v)
		}
	}
	for name, bound := range map[string]**float64{"minimum": &p.Minimum, "maximum": &p.Maximum} {
		if n, err := strconv.ParseFloat(tag.Get(name), 64); err == nil {
			*bound = &n
		}
	}
}

// listed is the tool as clients see it.
func (t *tool) listed() *sdk.Tool {
	no, yes := false, true
	a := &sdk.ToolAnnotations{
		Title: t.title, ReadOnlyHint: t.hints&reads != 0, IdempotentHint: t.hints&(repeats|reads) != 0,
		DestructiveHint: &no, OpenWorldHint: &no,
	}
	if t.hints&destroys != 0 {
		a.DestructiveHint = &yes
	}
	if t.hints&open != 0 {
		a.OpenWorldHint = &yes
	}
	return &sdk.Tool{Name: t.name, Title: t.title, Description: t.about, Annotations: a, InputSchema: t.schema}
}

// read checks arguments against the schema.
func (t *tool) read(args json.RawMessage) (any, error) {
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	var plain map[string]any
	if err := json.Unmarshal(args, &plain); err != nil {
		return nil, errs.New(errs.Invalid, "the arguments of %s are no object", t.name)
	}
	if err := t.resolved.Validate(plain); err != nil {
		return nil, errs.New(errs.Invalid, "the arguments of %s do not fit its schema: %s", t.name, clip.Line(err.Error(), 500))
	}
	in := reflect.New(t.in).Interface()
	if err := json.Unmarshal(args, in); err != nil {
		return nil, errs.New(errs.Invalid, "the arguments of %s do not fit its schema: %s", t.name, clip.Line(err.Error(), 500))
	}
	return in, nil
}

// failure is an error as a result that the model sees.
func failure(err error) *sdk.CallToolResult {
	text := errs.Public(err)
	if hint := errs.Hint(err); hint != "" {
		text += "\nhint: " + hint
	}
	res := textResult(clip.Text(text, resultBytesMax))
	res.IsError = true
	return res
}

func textResult(texts ...string) *sdk.CallToolResult {
	res := &sdk.CallToolResult{}
	for _, t := range texts {
		res.Content = append(res.Content, &sdk.TextContent{Text: t})
	}
	return res
}

// object is a result as JSON.
func object(v any) (*sdk.CallToolResult, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return textResult(string(data)), nil
}

// resultBytesMax bounds the text of a result. Tools that can be long have bounds of
// their own, below it, and say how to read on; this is what no tool gets past.
const resultBytesMax = 256 << 10

func bounded(res *sdk.CallToolResult) *sdk.CallToolResult {
	for _, c := range res.Content {
		if t, ok := c.(*sdk.TextContent); ok && len(t.Text) > resultBytesMax {
			t.Text = clip.Text(t.Text, resultBytesMax) + fmt.Sprintf("\n[… cut: the result had %d bytes; ask for less …]", len(t.Text))
		}
	}
	return res
}
