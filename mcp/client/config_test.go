package client

import (
	"fmt"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	many := map[string]Server{}
	for i := range serversMax + 1 {
		many[fmt.Sprint(i)] = Server{Command: "x"}
	}
	if p := Check(many); len(p) != 1 || p[0] != "at most 100 servers" {
		t.Error(p)
	}
	for _, c := range []struct {
		name string
		s    Server
		want string // "" = nothing is wrong
	}{
		{"files", Server{Command: "npx", Args: []string{"-y", "x"}, Env: map[string]string{"A_B": "c"}, Agents: []string{"re*"}, Tools: []string{"read_*"}, TimeoutS: 10, Approval: "always"}, ""},
		{"web", Server{URL: "https://mcp.example.com/mcp", Headers: map[string]string{"X-Team": "a"}, Secrets: []string{"forge"}, Transport: "sse", Trust: true}, ""},
		{"near", Server{URL: "http://127.0.0.1:3000/mcp"}, ""},
		{"near6", Server{URL: "http://[fd00::1]:3000/mcp"}, ""},
		{"none", Server{}, "none: it needs either command or url"},
		{"both", Server{Command: "x", URL: "https://a.example"}, "it needs either command or url"},
		{"Big", Server{Command: "x"}, "a name is 1 to 32 of a-z"},
		{"a__b", Server{Command: "x"}, "a name is 1 to 32 of a-z"},
		{strings.Repeat("a", 33), Server{Command: "x"}, "a name is 1 to 32 of a-z"},
		{"a", Server{Command: "x", Secrets: []string{"s"}}, "secrets are for a url"},
		{"a", Server{Command: "x", Headers: map[string]string{"A": "b"}}, "are for a url"},
		{"a", Server{URL: "https://a.example", Args: []string{"x"}}, "args and env are for a command"},
		{"a", Server{URL: "ftp://a.example"}, "it is not http"},
		{"a", Server{URL: "http://a.example/mcp"}, "elsewhere it has to be https"},
		{"a", Server{URL: "https://me:pw@a.example"}, "it holds a user"},
		{"a", Server{URL: "https://a.example/#x"}, "it has a fragment"},
		{"a", Server{URL: "https://a.example", Transport: "ws"}, "neither http nor sse"},
		{"a", Server{URL: "https://a.example", Headers: map[string]string{"Mcp-Session-Id": "x"}}, "headers: \"Mcp-Session-Id\" cannot be set"},
		{"a", Server{URL: "https://a.example", Headers: map[string]string{"X": "a\r\nY: b"}}, "headers: \"X\" cannot be set"},
		{"a", Server{Command: "x", Env: map[string]string{"A=B": "c"}}, "env: \"A=B\" cannot be set"},
		{"a", Server{Command: "x\x00"}, "args: at most"},
		{"a", Server{Command: "x", Args: make([]string, wordsMax+2)}, "args: at most"},
		{"a", Server{Command: "x", Tools: []string{"["}}, "is no name and no glob"},
		{"a", Server{Command: "x", Approval: "maybe"}, "neither always nor never"},
		{"a", Server{Command: "x", TimeoutS: -1}, "timeout_s: 0 to 3600"},
		{"a", Server{Command: "x", TimeoutS: 3601}, "timeout_s: 0 to 3600"},
	} {
		got := strings.Join(Check(map[string]Server{c.name: c.s}), "|")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s %+v: %q", c.name, c.s, got)
		}
	}
}
