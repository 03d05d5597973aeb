package client_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/mcp/client"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// elsewhere is a place without a machine.
var elsewhere = tool.Place{Tenant: "t", Agent: "a", Thread: "thr_1"}

func streamable() http.Handler {
	s := good()
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
}

func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestSource_http(t *testing.T) {
	for name, conf := range map[string]client.Server{
		"streamable": {URL: listen(t, streamable())},
		"sse":        {URL: listen(t, sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return good() }, nil)), Transport: "sse"},
	} {
		t.Run(name, func(t *testing.T) {
			s := source(t, client.Config{Servers: map[string]client.Server{"web": conf}})
			tools, notes := found(t, s, elsewhere)
			if len(notes) > 0 {
				t.Fatal(notes)
			}
			if e := tools["mcp__web__look"]; e.Class != tool.Once || !e.Asks {
				t.Errorf("a server elsewhere that is not trusted is not asked about: %+v", e)
			}
			for range 2 {
				if got := call(t, s, elsewhere, tools["mcp__web__look"], `{}`); got != "seen" {
					t.Error(got)
				}
			}
			var seen atomic.Int32
			r, err := s.Call(t.Context(), elsewhere, tools["mcp__web__step"], tool.Request{Emit: func(string) { seen.Add(1) }})
			if err != nil || said(r) != "done" {
				t.Error(said(r), err)
			}
		})
	}
}

func TestSource_trust(t *testing.T) {
	url := listen(t, streamable())
	for _, c := range []struct {
		conf  client.Server
		name  string
		class tool.Class
		asks  bool
	}{
		{client.Server{URL: url, Trust: true}, "look", tool.Read, false},
		{client.Server{URL: url, Trust: true}, "count", tool.Once, true},
		{client.Server{URL: url, Approval: "never"}, "count", tool.Once, false},
		{client.Server{URL: url, Approval: "always", Trust: true}, "look", tool.Read, true},
	} {
		s := source(t, client.Config{Servers: map[string]client.Server{"web": c.conf}})
		tools, _ := found(t, s, elsewhere)
		if e := tools["mcp__web__"+c.name]; e.Class != c.class || e.Asks != c.asks {
			t.Errorf("%+v: %s asks %v", c, e.Class, e.Asks)
		}
	}
}

// A secret goes to the host that it is granted for, and comes back as stars.
func TestSource_secrets(t *testing.T) {
	var sent atomic.Value
	h := streamable()
	there := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Store(r.Header.Get("Authorization") + "|" + r.Header.Get("X-Team"))
		if r.Header.Get("Authorization") != "Bearer verysecretvalue" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		r.Host = r.Context().Value(http.LocalAddrContextKey).(net.Addr).String() //nolint:forcetypeassert // of net/http
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(there.Close)
	store := secrets(t)
	for name, where := range map[string]string{"mine": "example.com", "others": "api.example.com"} {
		_, err := store.Put(t.Context(), "t", secret.Put{Name: name, Value: secret.New("verysecretvalue"), Grants: []secret.Grant{{Where: egress.Rule{Host: where}, As: secret.Bearer}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	public := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
	}
	dial := func(ctx context.Context, network, to string) (net.Conn, error) {
		if to != "192.0.2.1:443" {
			t.Errorf("dials %s", to)
		}
		return (&net.Dialer{}).DialContext(ctx, network, there.Listener.Addr().String())
	}
	roots := x509.NewCertPool()
	roots.AddCert(there.Certificate())
	held := func(tenant string, u secret.User, q egress.Request) []secret.Held { return store.Held(tenant, u, q) }
	for _, c := range []struct {
		named []string
		note  string
	}{
		{[]string{"mine"}, ""},
		{[]string{"others"}, "it answers 401 Unauthorized: name a secret of the tenant"},
		{nil, "it answers 401 Unauthorized: name a secret of the tenant"},
	} {
		s := source(t, client.Config{Held: held, Lookup: public, Dial: dial, Roots: roots, Servers: map[string]client.Server{"web": {URL: "https://example.com/mcp", Secrets: c.named, Headers: map[string]string{"X-Team": "blue"}}}})
		tools, notes := found(t, s, elsewhere)
		if got := strings.Join(notes, "|"); c.note == "" && got != "" || !strings.Contains(got, c.note) {
			t.Fatal(c.named, got)
		}
		if c.note != "" {
			if sent.Load() != "|blue" {
				t.Errorf("%v: was sent %q", c.named, sent.Load())
			}
			continue
		}
		if got := call(t, s, elsewhere, tools["mcp__web__echo"], `{}`); got != "you sent ***" {
			t.Error(got)
		}
		if got := call(t, s, elsewhere, tools["mcp__web__look"], `{}`); got != "seen" || sent.Load() != "Bearer verysecretvalue|blue" {
			t.Error(got, sent.Load())
		}
	}
}

func secrets(t *testing.T) *secret.Store {
	t.Helper()
	sealer, err := secret.NewSealer(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	s, err := secret.Open(t.Context(), secret.Config{KV: kvtest.NewMemory(), Sealer: sealer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSource_ways(t *testing.T) {
	other := listen(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another host was asked") }))
	private := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.1.2.3")}, nil
	}
	none := func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("none") }
	for name, c := range map[string]struct {
		conf   client.Server
		lookup func(context.Context, string) ([]netip.Addr, error)
		h      http.HandlerFunc
		note   string
	}{
		"a redirect to another host": {h: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusTemporaryRedirect) }, note: "redirects to another host"},
		"an endpoint elsewhere": {conf: client.Server{Transport: "sse"}, h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "event: endpoint\ndata: %s/x\n\n", other)
			w.(http.Flusher).Flush() //nolint:forcetypeassert // it is one
			<-r.Context().Done()
		}, note: "names another host"},
		"a name of a private address": {conf: client.Server{URL: "https://inside.example.com/mcp"}, lookup: private, note: "resolves to a private address, which is refused"},
		"no such name":                {conf: client.Server{URL: "https://nowhere.example.com/mcp"}, lookup: none, note: "cannot be resolved"},
		"a page": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>hello</html>")
		}, note: `it answers "text/html", which is no message of the protocol`},
		"a body without an end": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for chunk := []byte(strings.Repeat(" ", 1<<20)); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, note: "it answers more than is taken"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.h != nil {
				c.conf.URL = listen(t, c.h)
			}
			s := source(t, client.Config{Servers: map[string]client.Server{"web": c.conf}, Lookup: c.lookup})
			tools, notes := found(t, s, elsewhere)
			if len(tools) > 0 || len(notes) != 1 || !strings.Contains(notes[0], c.note) {
				t.Errorf("%d tools, %q", len(tools), notes)
			}
		})
	}
}

// A session that the server has forgotten is begun again, and the call is made once.
func TestSource_sessionExpires(t *testing.T) {
	var which atomic.Pointer[http.Handler]
	renew := func() {
		s := good()
		t.Cleanup(func() {
			for session := range s.Sessions() {
				session.Close()
			}
		})
		h := http.Handler(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
		which.Store(&h)
	}
	renew()
	url := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*which.Load()).ServeHTTP(w, r) }))
	s := source(t, client.Config{Servers: map[string]client.Server{"web": {URL: url}}})
	tools, _ := found(t, s, elsewhere)
	if got := call(t, s, elsewhere, tools["mcp__web__count"], `{}`); got != "1" {
		t.Fatal(got)
	}
	renew()
	if got := call(t, s, elsewhere, tools["mcp__web__count"], `{}`); got != "1" {
		t.Error(got)
	}
}

func TestSource_whoMayUseWhat(t *testing.T) {
	url := listen(t, streamable())
	s := source(t, client.Config{Servers: map[string]client.Server{
		"open":  {URL: url, Tools: []string{"l*"}},
		"few":   {URL: url, Agents: []string{"b"}},
		"other": {URL: url, Tenants: []string{"u"}},
		"stdio": {Command: "x"},
	}})
	tools, notes := found(t, s, elsewhere)
	if len(tools) != 5 || tools["mcp__open__look"].Spec.Name == "" || len(notes) != 1 || notes[0] != "MCP server stdio: it runs in a sandbox, and this thread has none" {
		t.Error(tools, notes)
	}
	for _, patterns := range [][]string{{"read_file"}, {"!mcp__*"}, {"mcp__few__*", "read*"}, {"!mcp__open__*", "!mcp__stdio__*"}} {
		few := elsewhere
		few.Tools = patterns
		if tools, notes := found(t, s, few); len(tools) > 0 || len(notes) > 0 {
			t.Errorf("an agent with %v asked servers: %v %v", patterns, tools, notes)
		}
	}
	asB := elsewhere
	asB.Agent = "b"
	both, _ := found(t, s, asB)
	if got := call(t, s, elsewhere, both["mcp__few__look"], `{}`); !strings.HasPrefix(got, "failed unknown_tool ") {
		t.Error(got)
	}
	for name, want := range map[string]bool{
		"mcp__open__look": true, "mcp__open__*": true, "mcp__*": true, "mcp__op*": true, "*": true, "mcp__stdio__x": true, "mcp__list_resources": true,
		"mcp__other__look": false, "mcp__none__look": false, "read_file": false, "mcp__open": false, "read*": false, "mcp__other__*": false,
	} {
		if got := s.Covers("t", name); got != want {
			t.Errorf("Covers(%s) = %v", name, got)
		}
	}
}

// A server that says what it was sent, wherever it can, tells no one.
func TestSource_secretsInWords(t *testing.T) {
	store := secrets(t)
	if _, err := store.Put(t.Context(), "t", secret.Put{Name: "mine", Value: secret.New("verysecretvalue"), Grants: []secret.Grant{{Where: egress.Rule{Host: "example.com"}, As: secret.Bearer}}}); err != nil {
		t.Fatal(err)
	}
	var lists atomic.Bool
	seen, answered := make(chan struct{}), make(chan struct{})
	there := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := r.Header.Get("Authorization")
		var q struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Meta struct {
					Token json.RawMessage `json:"progressToken"`
				} `json:"_meta"`
			} `json:"params"`
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&q) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		fails := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"do I know %s?"}}`, q.ID, sent)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case q.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case q.Method == "": // what the person said
			w.WriteHeader(http.StatusAccepted)
			close(answered)
		case q.Method == "initialize":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`, q.ID)
		case q.Method == "tools/list" && lists.Load():
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"go","description":"for %s","inputSchema":{"type":"object"}}]}}`, q.ID, sent)
		case q.Method == "tools/call":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":1,\"message\":%q}}\n\n", q.Params.Meta.Token, sent)
			w.(http.Flusher).Flush() //nolint:forcetypeassert // it is one
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"e1\",\"method\":\"elicitation/create\",\"params\":{\"message\":\"is it %s?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{}}}}\n\n", sent)
			w.(http.Flusher).Flush() //nolint:forcetypeassert // it is one
			for _, done := range []chan struct{}{seen, answered} {
				select {
				case <-done:
				case <-r.Context().Done():
				}
			}
			fmt.Fprintf(w, "data: %s\n\n", fails)
		default:
			fmt.Fprint(w, fails)
		}
	}))
	t.Cleanup(there.Close)
	public := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
	}
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, there.Listener.Addr().String())
	}
	roots := x509.NewCertPool()
	roots.AddCert(there.Certificate())
	s := source(t, client.Config{Held: store.Held, Lookup: public, Dial: dial, Roots: roots, Servers: map[string]client.Server{"web": {URL: "https://example.com/mcp", Secrets: []string{"mine"}}}})
	_, notes := found(t, s, elsewhere)
	lists.Store(true)
	status := s.Servers("t")
	tools, _ := found(t, s, elsewhere)
	told, question := "", ""
	r, err := s.Call(t.Context(), elsewhere, tools["mcp__web__go"], tool.Request{
		Args: json.RawMessage(`{}`), Emit: func(text string) { told = text; close(seen) },
		Ask: func(_ context.Context, f thread.Form) (tool.FormAnswer, error) {
			question = f.Message
			return tool.FormAnswer{Decision: thread.Reject}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"note": strings.Join(notes, ""), "status": status[0].Error, "description": tools["mcp__web__go"].Spec.Description, "progress": told, "question": question, "error": said(r)} {
		if !strings.Contains(text, "***") || strings.Contains(text, "verysecret") {
			t.Errorf("%s: %q", where, text)
		}
	}
}
