package client

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/internal/picture"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// Bounds of results.
const (
	blocksMax      = 100
	textBytesMax   = 8 << 20 // of a whole result
	errorBytesMax  = 2 << 10
	mediaBlocksMax = 10
)

// answer collects what a model is told.
type answer struct {
	blocks []llm.Block
	room   int // for text
	media  int
	mask   func(string) string
}

func newAnswer(mask func(string) string) *answer { return &answer{room: textBytesMax, mask: mask} }

// result makes a Result of what a tool answered.
func (a *answer) result(r *sdk.CallToolResult) tool.Result {
	for i, c := range r.Content {
		if i >= blocksMax {
			a.say("%d more parts were left out", len(r.Content)-i)
			break
		}
		a.content(c)
	}
	if len(a.blocks) == 0 && r.StructuredContent != nil {
		if text, err := json.Marshal(r.StructuredContent); err == nil {
			a.text(string(text))
		}
	}
	if len(a.blocks) == 0 {
		a.text("(no output)")
	}
	return tool.Result{Blocks: a.blocks, Failed: r.IsError}
}

func (a *answer) content(c sdk.Content) {
	switch c := c.(type) {
	case *sdk.TextContent:
		a.text(c.Text)
	case *sdk.ImageContent:
		a.image("an image", c.MIMEType, c.Data)
	case *sdk.AudioContent:
		a.say("a sound of %d bytes (%s), which you cannot hear", len(c.Data), clip.Line(c.MIMEType, 100))
	case *sdk.ResourceLink:
		a.say("resource %s: %s %s", clip.Line(c.URI, 1000), clip.Line(c.Name, noteBytesMax), clip.Line(c.Description, noteBytesMax))
	case *sdk.EmbeddedResource:
		a.resource(c.Resource)
	default:
		a.say("a part of a kind that cannot be shown")
	}
}

// resource adds what is in one.
func (a *answer) resource(r *sdk.ResourceContents) {
	switch {
	case r == nil:
	case len(r.Blob) > 0:
		a.image("resource "+clip.Line(r.URI, 1000), r.MIMEType, r.Blob)
	default:
		a.say("resource %s:", clip.Line(r.URI, 1000))
		a.text(r.Text)
	}
}

// image adds a picture that models can look at, or says what is there.
func (a *answer) image(what, mime string, content []byte) {
	seen := http.DetectContentType(content)
	if !strings.HasPrefix(seen, "image/") || len(content) > picture.BytesMax || a.media >= mediaBlocksMax {
		a.say("%s of %d bytes (%s), which is not shown", what, len(content), clip.Line(mime, 100))
		return
	}
	if _, err := picture.Check(content); err != nil {
		a.say("%s (%s), which is not shown: %s", what, clip.Line(mime, 100), errs.Public(err))
		return
	}
	a.media++
	sum := sha256.Sum256(content)
	a.blocks = append(a.blocks, llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: seen, Hash: hex.EncodeToString(sum[:]), Data: content}})
}

// say adds words of ours.
func (a *answer) say(format string, args ...any) { a.text("[" + fmt.Sprintf(format, args...) + "]") }

// text adds text of a server.
func (a *answer) text(s string) {
	if s = a.mask(strings.ToValidUTF8(s, "\uFFFD")); len(s) > a.room {
		s = clip.Text(s, a.room)
	}
	if s == "" {
		return
	}
	a.room -= len(s)
	a.blocks = append(a.blocks, llm.Text(s))
}

// failure says to the model what went wrong with a call.
func failure(server string, timeout fmt.Stringer, err error) tool.Result {
	wire, ok := answered(err)
	switch {
	case ok && wire.Code == codeTooLarge:
		return tool.Fail(tool.CodeTooLarge, fmt.Sprintf("Error: too_large: the MCP server %s answered more than %d bytes. What the call did is not known; ask for less.", server, frameBytesMax))
	case ok && wire.Code == jsonrpc.CodeInvalidParams:
		return tool.Fail(tool.CodeArgs, "Error: invalid_arguments: the MCP server says: "+cleanText(wire.Message, errorBytesMax))
	case ok:
		return tool.Fail("", fmt.Sprintf("Error: the MCP server %s says: %s", server, cleanText(wire.Message, errorBytesMax)))
	case errors.Is(err, errTimeout):
		return tool.Fail(tool.CodeTimeout, fmt.Sprintf("Error: timeout: the MCP server %s did not answer within %s. What the call did is not known.", server, timeout))
	}
	return tool.Fail(tool.CodeInterrupted, fmt.Sprintf("Error: interrupted: the connection to the MCP server %s ended during the call (%s). What the call did is not known.", server, clip.Line(errs.Public(err), errorBytesMax)))
}
