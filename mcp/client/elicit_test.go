package client_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/skete-dev/skete/mcp/client"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// What a server asks is put before a person as the server's words, and the server is told
// what the person decided.
func TestSource_asksAPerson(t *testing.T) {
	m := newMachine(t)
	s := source(t, client.Config{Servers: map[string]client.Server{"good": m.server("good"), "older": m.server("elicits"), "secret": m.server("elicits-secret")}})
	tools, _ := found(t, s, m.place)
	for _, c := range []struct {
		tool   string
		answer tool.FormAnswer
		want   string
	}{
		{"mcp__good__ask", tool.FormAnswer{Decision: thread.Respond, Content: json.RawMessage(`{"colour":"red"}`)}, "accept red"},
		{"mcp__good__ask", tool.FormAnswer{Decision: thread.Reject}, "decline <nil>"},
		{"mcp__good__ask", tool.FormAnswer{Decision: thread.Dismiss}, "cancel <nil>"},
		{"mcp__older__go", tool.FormAnswer{Decision: thread.Respond, Content: json.RawMessage(`{"colour":"blue"}`)}, `{"action":"accept","content":{"colour":"blue"}}`},
		{"mcp__older__go", tool.FormAnswer{Decision: thread.Reject}, `{"action":"decline"}`},
		{"mcp__secret__go", tool.FormAnswer{Decision: thread.Dismiss}, `{"action":"cancel"}`},
	} {
		var form thread.Form
		r, err := s.Call(t.Context(), m.place, tools[c.tool], tool.Request{Args: json.RawMessage(`{}`), Ask: func(_ context.Context, f thread.Form) (tool.FormAnswer, error) {
			form = f
			return c.answer, nil
		}})
		if err != nil || said(r) != c.want {
			t.Errorf("%s, %s: %q, %v", c.tool, c.answer.Decision, said(r), err)
		}
		server := strings.Split(c.tool, "__")[1]
		if form.From != "MCP server "+server || !strings.HasPrefix(form.Message, "Which ") || !strings.Contains(string(form.Schema), `"type":"object"`) {
			t.Errorf("%s: %+v", c.tool, form)
		}
		if warned := strings.Contains(form.Warning, "(password)"); warned != (server == "secret") {
			t.Errorf("%s: %q", c.tool, form.Warning)
		}
		if strings.ContainsAny(form.Message, "\x1b\u202e") {
			t.Errorf("%s: the message was not cleaned: %q", c.tool, form.Message)
		}
	}
}
