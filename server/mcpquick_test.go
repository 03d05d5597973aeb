package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asked is what a request to /mcp was answered: by one message, or by a stream of the SDK's.
type asked struct {
	status int
	kind   string
	body   string
}

func (w *world) askMCP(t *testing.T, version, body string) asked {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.base+"/mcp", strings.NewReader(body))
	must(t, err)
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + w.admin},
	}
	if version != "" {
		req.Header.Set("Mcp-Protocol-Version", version)
	}
	res, err := httpClient(t).Do(req)
	must(t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	must(t, err)
	_, after, is := bytes.Cut(data, []byte("data: "))
	if is {
		data, _, _ = bytes.Cut(after, []byte("\n"))
	}
	return asked{res.StatusCode, res.Header.Get("Content-Type"), string(data)}
}

const (
	byMessage = "application/json"
	byStream  = "text/event-stream"
)

// A call that only reads is answered by one message, which says what the SDK's answer says;
// all other calls, and all that are wrong, are answered by the SDK.
func TestMCP_readsAreAnsweredAtOnce(t *testing.T) {
	w := newWorld(t)
	for name, args := range map[string]string{
		"file_list": fmt.Sprintf(`{"sandbox":%q}`, w.sandbox()), "file_read": fmt.Sprintf(`{"sandbox":%q,"path":"<none> & \u0000"}`, w.sandbox()),
		"file_stat": `{"sandbox":"sbx_nothing","path":"x"}`, "file_search": `{"pattern":7}`, "sandbox_list": `null`,
	} {
		for _, id := range []string{`1`, `"a <b>"`, `-9007199254740993`} {
			call := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s%%s}}`, id, name, args)
			quick, slow := w.askMCP(t, "2025-11-25", fmt.Sprintf(call, "")), w.askMCP(t, "2025-11-25", fmt.Sprintf(call, `,"_meta":{"progressToken":1}`))
			if quick.kind != byMessage || !strings.HasPrefix(slow.kind, byStream) || quick.status != slow.status {
				t.Fatalf("%s: %+v, %+v", name, quick, slow)
			}
			var one, other any
			must(t, json.Unmarshal([]byte(quick.body), &one))
			must(t, json.Unmarshal([]byte(slow.body), &other))
			if d := cmp.Diff(other, one); d != "" {
				t.Errorf("%s: the answers differ: %s", name, d)
			}
		}
	}
	read := fmt.Sprintf(`"params":{"name":"file_list","arguments":{"sandbox":%q}}`, w.sandbox())
	for name, x := range map[string]struct{ version, body string }{
		"of another version": {"2026-07-28", `{"jsonrpc":"2.0","id":1,"method":"tools/call",` + read + `}`},
		"of no version":      {"", `{"jsonrpc":"2.0","id":1,"method":"tools/call",` + read + `}`},
		"not JSON-RPC 2.0":   {"2025-11-25", `{"jsonrpc":"1.0","id":1,"method":"tools/call",` + read + `}`},
		"without an id":      {"2025-11-25", `{"jsonrpc":"2.0","method":"tools/call",` + read + `}`},
		"with no id":         {"2025-11-25", `{"jsonrpc":"2.0","id":null,"method":"tools/call",` + read + `}`},
		"with a list as id":  {"2025-11-25", `{"jsonrpc":"2.0","id":[1],"method":"tools/call",` + read + `}`},
		"that writes":        {"2025-11-25", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"file_remove","arguments":{"sandbox":%q,"path":"none"}}}`, w.sandbox())},
		"of nothing":         {"2025-11-25", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nothing"}}`},
		"with a number":      {"2025-11-25", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`},
		"in a batch":         {"2025-11-25", `[{"jsonrpc":"2.0","id":1,"method":"tools/call",` + read + `}]`},
		"broken off":         {"2025-11-25", `{"jsonrpc":"2.0","id":1,"method":"tools/call",` + read},
	} {
		if got := w.askMCP(t, x.version, x.body); got.kind == byMessage && strings.Contains(got.body, `"result"`) {
			t.Errorf("a call %s: %+v", name, got)
		}
	}
}
