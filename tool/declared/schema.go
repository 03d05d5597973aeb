package declared

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// shape is a tool that is only looked at.
type shape struct{ spec llm.ToolSpec }

func (s shape) Spec() llm.ToolSpec                                   { return s.spec }
func (shape) Effect(json.RawMessage) tool.Effect                     { return tool.Effect{Class: tool.Once} }
func (shape) Run(context.Context, tool.Request) (tool.Result, error) { return tool.Result{}, nil }

const schemaURL = "tool:///output"

// compile compiles a schema. It reads no files and asks no servers.
func compile(schema map[string]any) (*jsonschema.Schema, error) {
	data, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	return c.Compile(schemaURL)
}

// misfit says why what a command wrote does not fit a schema; "" = it does.
func misfit(schema map[string]any, output string) string {
	s, err := compile(schema)
	if err != nil {
		return clip.Line(err.Error(), misfitMax)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(output)))
	if err == nil {
		err = s.Validate(value)
	}
	if err != nil {
		return clip.Line(err.Error(), misfitMax)
	}
	return ""
}

const misfitMax = 500
