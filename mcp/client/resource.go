package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// The tools of resources, which there are when a server has some.
const (
	listName = prefix + "list_resources"
	readName = prefix + "read_resource"
)

// resourcesMax bounds one page of a list.
const resourcesMax = 200

// resourceTools are those by which the resources of servers are read.
func (s *Source) resourceTools(servers []string) []tool.External {
	if len(servers) == 0 {
		return nil
	}
	class, asks := tool.Read, false
	for _, name := range servers {
		c, a := s.c.Servers[name].effect(&sdk.ToolAnnotations{ReadOnlyHint: true})
		if asks = asks || a; c != tool.Read {
			class = c
		}
	}
	enum, _ := json.Marshal(servers) // strings always can
	of := `"server":{"type":"string","enum":` + string(enum) + `}`
	make := func(name, about, schema string) tool.External {
		return tool.External{Source: Name, Class: class, Asks: asks, Data: json.RawMessage(`{}`), Spec: llm.ToolSpec{Name: name, Description: about, Schema: json.RawMessage(schema)}}
	}
	return []tool.External{
		make(listName, "Lists the resources of an MCP server, a page at a time.",
			`{"type":"object","properties":{`+of+`,"cursor":{"type":"string","description":"Of the page before."}},"required":["server"],"additionalProperties":false}`),
		make(readName, "Reads a resource of an MCP server.",
			`{"type":"object","properties":{`+of+`,"uri":{"type":"string"}},"required":["server","uri"],"additionalProperties":false}`),
	}
}

// callResource runs one of the tools of resources.
func (s *Source) callResource(ctx context.Context, p tool.Place, name string, req tool.Request) (tool.Result, error) {
	var args struct{ Server, Cursor, URI string }
	if err := json.Unmarshal(req.Args, &args); err != nil {
		return tool.Fail(tool.CodeArgs, "Error: invalid_arguments"), nil
	}
	if conf, ok := s.c.Servers[args.Server]; !ok || !conf.mayUse(p.Tenant, p.Agent) {
		return tool.Fail(tool.CodeArgs, fmt.Sprintf("Error: invalid_arguments: there is no MCP server %q", clip.Line(args.Server, nameBytesMax))), nil
	}
	return s.with(ctx, p, args.Server, strings.TrimPrefix(name, prefix), func(ctx context.Context, _ *live, ses *session) (tool.Result, error) {
		a := newAnswer(ses.mask())
		err := error(nil)
		if name == listName {
			err = a.resources(ctx, ses.cs, args.Cursor)
		} else {
			err = a.read(ctx, ses.cs, args.URI)
		}
		if err != nil {
			return tool.Result{}, err
		}
		ses.works.Store(true)
		return a.result(&sdk.CallToolResult{}), nil
	})
}

// resources adds a page of the list, and with the first one the templates.
func (a *answer) resources(ctx context.Context, cs *sdk.ClientSession, cursor string) error {
	page, err := cs.ListResources(ctx, &sdk.ListResourcesParams{Cursor: cursor})
	if err != nil {
		return err
	}
	var b strings.Builder
	line := func(uri, name, about string) {
		fmt.Fprintf(&b, "%s\t%s\t%s\n", clip.Line(uri, 1000), clip.Line(name, noteBytesMax), clip.Line(about, noteBytesMax))
	}
	for _, r := range page.Resources[:min(len(page.Resources), resourcesMax)] {
		line(r.URI, r.Name, r.Description)
	}
	if cursor == "" {
		if t, err := cs.ListResourceTemplates(ctx, &sdk.ListResourceTemplatesParams{}); err == nil { // not every server has that
			for _, r := range t.ResourceTemplates[:min(len(t.ResourceTemplates), resourcesMax)] {
				line(r.URITemplate, r.Name, r.Description)
			}
		}
	}
	a.text(b.String())
	if left := len(page.Resources) - resourcesMax; left > 0 {
		a.say("%d more on this page were left out", left)
	}
	if page.NextCursor != "" {
		a.say("there are more: cursor %q", clip.Line(page.NextCursor, 1000))
	}
	return nil
}

// read adds what is in a resource.
func (a *answer) read(ctx context.Context, cs *sdk.ClientSession, uri string) error {
	r, err := cs.ReadResource(ctx, &sdk.ReadResourceParams{URI: uri})
	if err != nil {
		return err
	}
	for i, c := range r.Contents {
		if i >= blocksMax {
			a.say("%d more parts were left out", len(r.Contents)-i)
			break
		}
		a.resource(c)
	}
	return nil
}
