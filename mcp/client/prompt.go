package client

import (
	"context"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/internal/clip"
)

// prompts adds a page of the list: a line for each, with its arguments.
func (a *answer) prompts(ctx context.Context, cs *sdk.ClientSession, args commonArgs) error {
	page, err := cs.ListPrompts(ctx, &sdk.ListPromptsParams{Cursor: args.Cursor})
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, p := range page.Prompts[:min(len(page.Prompts), listedMax)] {
		fmt.Fprintf(&b, "%s\t%s\t%s\n", clip.Line(p.Name, noteBytesMax), argumentsOf(p), clip.Line(p.Description, noteBytesMax))
	}
	a.text(b.String())
	a.more(len(page.Prompts), page.NextCursor)
	return nil
}

// argumentsOf are the names of a prompt's arguments; one that may be left out has a question
// mark.
func argumentsOf(p *sdk.Prompt) string {
	var names []string
	for _, arg := range p.Arguments[:min(len(p.Arguments), listedMax)] {
		name := clip.Line(arg.Name, nameBytesMax)
		if !arg.Required {
			name += "?"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// prompt adds the messages of a prompt.
func (a *answer) prompt(ctx context.Context, cs *sdk.ClientSession, args commonArgs) error {
	r, err := cs.GetPrompt(ctx, &sdk.GetPromptParams{Name: args.Name, Arguments: args.Arguments})
	if err != nil {
		return err
	}
	for i, m := range r.Messages {
		if i >= blocksMax {
			a.say("%d more messages were left out", len(r.Messages)-i)
			break
		}
		a.say("%s:", clip.Line(string(m.Role), nameBytesMax))
		a.content(m.Content)
	}
	return nil
}
