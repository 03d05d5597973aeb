package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server"
)

// toolCalls notes the calls of tools.
type toolCalls struct{ got []any }

func (c *toolCalls) Run(_ context.Context, tenant, by, name string, in api.RunTool) (api.ToolResult, error) {
	c.got = append(c.got, []any{tenant, by != "", name, string(in.Args), in.Sandbox, in.Agent})
	return api.ToolResult{Text: "done"}, nil
}

// A tool is called for the caller's tenant, in a sandbox of that tenant alone.
func TestRunTool(t *testing.T) {
	calls := &toolCalls{}
	w := newWorld(t, func(c *server.Config) { c.ToolRuns = calls })
	id := w.sandbox()
	in := api.RunTool{Args: json.RawMessage(`{"a":1}`), Sandbox: id[:12], Agent: "clerk"}
	var out api.ToolResult
	w.call(t, w.admin, http.MethodPost, "/v1/tools/scan/run", in, http.StatusOK, &out)
	foreign, _ := w.key(t, "other", "runs:write")
	w.call(t, foreign, http.MethodPost, "/v1/tools/scan/run", in, http.StatusNotFound, nil)
	w.call(t, foreign, http.MethodPost, "/v1/tools/scan/run", api.RunTool{}, http.StatusOK, nil)
	for _, bad := range []string{`{"args":`, `{"agent":"` + strings.Repeat("x", 65) + `"}`} {
		if a := w.send(t, w.admin, http.MethodPost, "/v1/tools/scan/run", strings.NewReader(bad)); a.status != http.StatusBadRequest {
			t.Errorf("%.40s: %d", bad, a.status)
		}
	}
	want := []any{[]any{"default", true, "scan", `{"a":1}`, id, "clerk"}, []any{"other", true, "scan", "", "", ""}}
	if d := cmp.Diff(want, calls.got); d != "" || out.Text != "done" {
		t.Error(d, out)
	}
}
