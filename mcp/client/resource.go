package client

import (
	"context"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/internal/clip"
)

// listedMax bounds one page of a list.
const listedMax = 200

// resources adds a page of the list, and with the first one the templates.
func (a *answer) resources(ctx context.Context, cs *sdk.ClientSession, args commonArgs) error {
	page, err := cs.ListResources(ctx, &sdk.ListResourcesParams{Cursor: args.Cursor})
	if err != nil {
		return err
	}
	var b strings.Builder
	line := func(uri, name, about string) {
		fmt.Fprintf(&b, "%s\t%s\t%s\n", clip.Line(uri, 1000), clip.Line(name, noteBytesMax), clip.Line(about, noteBytesMax))
	}
	for _, r := range page.Resources[:min(len(page.Resources), listedMax)] {
		line(r.URI, r.Name, r.Description)
	}
	if args.Cursor == "" {
		if t, err := cs.ListResourceTemplates(ctx, &sdk.ListResourceTemplatesParams{}); err == nil { // not every server has that
			for _, r := range t.ResourceTemplates[:min(len(t.ResourceTemplates), listedMax)] {
				line(r.URITemplate, r.Name, r.Description)
			}
		}
	}
	a.text(b.String())
	a.more(len(page.Resources), page.NextCursor)
	return nil
}

// more says what a page does not show.
func (a *answer) more(listed int, cursor string) {
	if left := listed - listedMax; left > 0 {
		a.say("%d more on this page were left out", left)
	}
	if cursor != "" {
		a.say("there are more: cursor %q", clip.Line(cursor, 1000))
	}
}

// read adds what is in a resource.
func (a *answer) read(ctx context.Context, cs *sdk.ClientSession, args commonArgs) error {
	r, err := cs.ReadResource(ctx, &sdk.ReadResourceParams{URI: args.URI})
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
