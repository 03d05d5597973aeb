package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/event/eventtest"
	"github.com/skete-dev/skete/gateway"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/anthropic"
	"github.com/skete-dev/skete/llm/catalog"
	"github.com/skete-dev/skete/llm/compat"
	"github.com/skete-dev/skete/llm/llmtest"
	"github.com/skete-dev/skete/llm/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-the-key-of-the-host"

// models are those of a host.
type models map[string]catalog.Endpoint

// Endpoint implements gateway.Models.
func (m models) Endpoint(_ context.Context, name string) (catalog.Endpoint, error) {
	if e, ok := m[name]; ok {
		return e, nil
	}
	return catalog.Endpoint{}, errs.New(errs.NotFound, "there is no model %s", name)
}

func endpoint(vendor, url string) catalog.Endpoint {
	return catalog.Endpoint{
		Info: llm.Info{Name: "the-" + vendor, Vendor: vendor, ID: vendor + "-1", OutputTokensMax: 1000, Price: llm.Price{Input: 10, Output: 100}},
		URL:  url, Key: llm.NewKey(key), Headers: map[string]llm.Key{"X-Org": llm.NewKey("org")},
	}
}

// world is a gateway with a sandbox at its door.
type world struct {
	*gateway.Gateway
	t      *testing.T
	url    string // of the door
	token  string
	events *eventtest.Memory
}

func newWorld(t *testing.T, m models, store kv.Store, budget gateway.Budget) *world {
	t.Helper()
	w := &world{t: t, events: eventtest.NewMemory()}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true
	g, err := gateway.New(t.Context(), gateway.Config{Models: m, Seed: bytes.Repeat([]byte{7}, 32), Store: store, Transport: transport, Events: w.events})
	if err != nil {
		t.Fatal(err)
	}
	w.Gateway, w.token = g, g.Token("t", "sbx_a")
	s := httptest.NewServer(g.Door(gateway.Client{Tenant: "t", Sandbox: "sbx_a", Grant: gateway.Grant{Models: slices.Sorted(maps.Keys(m)), Budget: budget}}))
	w.url = s.URL
	t.Cleanup(func() {
		s.Close()
		transport.CloseIdleConnections()
	})
	return w
}

// used waits for what is told of the first calls.
func (w *world) used(n int) []gateway.Use {
	w.t.Helper()
	var list []gateway.Use
	r := eventtest.Read(w.t, w.events, "t", event.Query{From: 1})
	for range n {
		e := r.Next()
		var u gateway.Use
		if err := json.Unmarshal(e.Data, &u); err != nil || e.Type() != "models.used" || e.ID != "sbx_a" || e.Revision != u.N {
			w.t.Fatalf("%+v, %v", e, err)
		}
		list = append(list, u)
	}
	return list
}

func (w *world) post(path, body string, header http.Header) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	maps.Copy(req.Header, header)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		text = append(text, "; "+err.Error()...)
	}
	return res.StatusCode, string(text)
}

// Programs that use the vendors' own libraries work unmodified: what they say arrives with
// the host's key, what is said to them arrives, and is counted.
func TestDoor_libraries(t *testing.T) {
	reply := llmtest.Reply{Blocks: []llm.Block{llm.Text("Hello.")}, Usage: llm.Usage{Input: 50, Output: 7}}
	for name, c := range map[string]struct {
		dialect llmtest.Dialect
		vendor  string
		model   func(url, token string) (llm.Model, error)
	}{
		"messages": {llmtest.Anthropic{}, catalog.Anthropic, func(url, token string) (llm.Model, error) {
			return anthropic.New(anthropic.Config{Info: llm.Info{ID: "the-anthropic", OutputTokensMax: 500}, URL: url + "/anthropic", Key: llm.NewKey(token), HTTP: http.DefaultClient})
		}},
		"responses": {llmtest.OpenAI{}, catalog.OpenAI, func(url, token string) (llm.Model, error) {
			return openai.New(openai.Config{Info: llm.Info{ID: "the-openai", OutputTokensMax: 500}, URL: url + "/openai/v1", Key: llm.NewKey(token), HTTP: http.DefaultClient})
		}},
		"chat": {llmtest.Chat{}, catalog.Compat, func(url, token string) (llm.Model, error) {
			return compat.New(compat.Options{Info: llm.Info{ID: "the-compat", OutputTokensMax: 500}, URL: url + "/openai/v1", Key: llm.NewKey(token), Transport: http.DefaultTransport})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			up := llmtest.NewServer(c.dialect, llmtest.Replies(reply))
			defer up.Close()
			w := newWorld(t, models{"the-" + c.vendor: endpoint(c.vendor, up.URL)}, kvtest.NewMemory(), gateway.Budget{})
			m, err := c.model(w.url, w.token)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			for d, err := range m.Stream(t.Context(), &llm.Request{Messages: []llm.Message{llm.User("Hi.")}}) {
				if err != nil {
					t.Fatal(err, up.Wrong())
				}
				text.WriteString(d.Text)
			}
			if text.String() != "Hello." {
				t.Errorf("it says %q", text.String())
			}
			seen := up.Seen()
			if len(seen) != 1 || seen[0].Key != key || seen[0].Model != c.vendor+"-1" || seen[0].Header.Get("X-Org") != "org" {
				t.Fatalf("the vendor sees %+v", seen)
			}
			if bytes.Contains(fmt.Append(nil, seen[0].Header), []byte(w.token)) {
				t.Errorf("the vendor is told the sandbox's token")
			}
			want := gateway.Use{
				N: 1, Model: "the-" + c.vendor, Status: 200, Usage: reply.Usage, CostUSD: (50*10 + 7*100) / 1e6,
				Spent: gateway.Spent{Calls: 1, Tokens: 57, CostUSD: (50*10 + 7*100) / 1e6},
			}
			if d := cmp.Diff(want, w.used(1)[0], cmpopts.IgnoreFields(gateway.Use{}, "At", "Took", "First"), cmpopts.EquateApprox(0, 1e-9)); d != "" {
				t.Error(d)
			}
		})
	}
}

// An answer comes back byte for byte, as it comes; of a request the model's name alone is
// another, and of headers what says who asks.
func TestDoor_bytes(t *testing.T) {
	var got []byte
	var header http.Header
	next := make(chan struct{})
	pieces := []string{"event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\r\n\r\n", "data: {\"odd\"  :1}\n\n", ": ping\n\ndata: {\"usage\":{\"output_tokens\":9}}"}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		header = r.Header
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("Request-Id", "req_1")
		w.Header().Set("Set-Cookie", "a=b")
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	}))
	defer up.Close()
	w := newWorld(t, models{"the-anthropic": endpoint(catalog.Anthropic, up.URL)}, kvtest.NewMemory(), gateway.Budget{})
	const body = `{ "max_tokens":  5,"model" :"the-anthropic", "messages":[{"role":"user","content":"model: the-anthropic"}] }`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/anthropic/v1/messages?beta=true", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"X-Api-Key": {w.token}, "Authorization": {"Bearer mine"}, "Cookie": {"c=d"}, "Anthropic-Version": {"2023-06-01"}, "X-Forwarded-For": {"10.0.0.1"}, "Openai-Organization": {"mine"}}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for _, p := range pieces {
		buf := make([]byte, len(p))
		if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != p {
			t.Fatalf("%q comes, %v, and not %q", buf, err, p)
		}
		next <- struct{}{} // it came before the next was sent
	}
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
		t.Errorf("then %q comes, %v", rest, err)
	}
	if res.Header.Get("Request-Id") != "req_1" || res.Header.Get("Set-Cookie") != "" {
		t.Errorf("%v", res.Header)
	}
	if want := strings.Replace(body, `"the-anthropic"`, `"anthropic-1"`, 1); string(got) != want {
		t.Errorf("the vendor gets %s, not %s", got, want)
	}
	for name, want := range map[string]string{"X-Api-Key": key, "Authorization": "", "Cookie": "", "X-Forwarded-For": "", "Openai-Organization": "", "Anthropic-Version": "2023-06-01", "X-Org": "org"} {
		if header.Get(name) != want {
			t.Errorf("%s is %q to the vendor, not %q", name, header.Get(name), want)
		}
	}
	if u := w.used(1)[0]; u.Usage != (llm.Usage{Input: 3, Output: 9}) {
		t.Errorf("%+v is counted", u.Usage)
	}
}

// What is not allowed does not reach the vendor.
func TestDoor_refuses(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		t.Errorf("%s %s: %s", r.Method, r.URL, b)
	}))
	defer up.Close()
	w := newWorld(t, models{"the-anthropic": endpoint(catalog.Anthropic, up.URL), "the-openai": endpoint(catalog.OpenAI, up.URL)}, kvtest.NewMemory(), gateway.Budget{})
	const m, r, c = "/anthropic/v1/messages", "/openai/v1/responses", "/openai/v1/chat/completions"
	claude := func(rest string) string { return `{"model":"the-anthropic","max_tokens":5` + rest + `}` }
	gpt := func(rest string) string { return `{"model":"the-openai"` + rest + `}` }
	for name, x := range map[string]struct {
		path, body string
		status     int
		says       string
	}{
		"no JSON":                        {m, `{"model":`, 400, "no JSON"},
		"a list":                         {m, `["model"]`, 400, "no object"},
		"two":                            {m, `{"model":"the-anthropic"} {}`, 400, "follows"},
		"no model":                       {m, `{"max_tokens":5}`, 400, "names no model"},
		"a model of another kind":        {m, `{"model":5}`, 400, "names no model"},
		"two models":                     {m, `{"model":"the-anthropic","model":"the-openai"}`, 400, "twice"},
		"two models, one of them hidden": {m, `{"model":"the-anthropic","mod\u0065l":"the-openai"}`, 400, "twice"},
		"a key twice, deeper":            {m, claude(`,"tools":[{"type":"custom","type":"web_search_20260209"}]`), 400, "twice"},
		"too deep":                       {m, claude(`,"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200)), 400, "deep"},
		"too many values":                {m, claude(`,"x":[` + strings.Repeat("0,", 110_000) + `0]`), 400, "values"},
		"too long":                       {m, claude(`,"x":"` + strings.Repeat("x", 33<<20) + `"`), 413, "MB"},
		"another model":                  {m, `{"model":"claude-opus-9","max_tokens":5}`, 403, "may not use the model"},
		"its API":                        {c, claude(""), 400, "does not speak"},
		"tokens below zero":              {m, `{"model":"the-anthropic","max_tokens":-5}`, 400, "max_tokens"},
		"tokens without end":             {m, `{"model":"the-anthropic","max_tokens":1e400}`, 400, "max_tokens"},
		"many replies":                   {c, gpt(`,"n":100000`), 400, "n is more"},
		"the vendor searches":            {m, claude(`,"tools":[{"type":"web_search_20260209","name":"web_search"}]`), 403, "web_search"},
		"the vendor fetches":             {m, claude(`,"tools":[{"type":"web_fetch_20260209"}]`), 403, "web_fetch"},
		"the vendor runs code":           {m, claude(`,"tools":[{"name":"a","input_schema":{}},{"type":"code_execution_20260120"}]`), 403, "code_execution"},
		"the vendor connects":            {m, claude(`,"mcp_servers":[{"url":"https://evil.example"}]`), 403, "mcp_servers"},
		"a container":                    {m, claude(`,"container":"c"`), 403, "container"},
		"an image elsewhere":             {m, claude(`,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://evil.example/?data"}}]}]`), 403, "source with a URL"},
		"in a result of a tool":          {m, claude(`,"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"document","source":{"type":"url","url":"https://evil.example/?data"}}]}]}]`), 403, "source with a URL"},
		"OpenAI searches":                {r, gpt(`,"tools":[{"type":"web_search"}]`), 403, "web_search"},
		"OpenAI connects":                {r, gpt(`,"tools":[{"type":"mcp","server_url":"https://evil.example"}]`), 403, "mcp"},
		"OpenAI runs code":               {r, gpt(`,"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`), 403, "code_interpreter"},
		"OpenAI searches, in a name":     {r, gpt(`,"tools":[{"type":"namespace","name":"n","tools":[{"type":"function"},{"type":"web_search"}]}]`), 403, "web_search"},
		"a tool without a type":          {r, gpt(`,"tools":[{"name":"a"}]`), 403, "type"},
		"OpenAI fetches an image":        {r, gpt(`,"input":[{"role":"user","content":[{"type":"input_image","image_url":"https://evil.example/?data"}]}]`), 403, "image_url"},
		"OpenAI fetches a file":          {r, gpt(`,"input":[{"type":"function_call_output","output":[{"type":"input_file","file_url":"https://evil.example/?data"}]}]`), 403, "file_url"},
		"chat fetches":                   {c, gpt(`,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://evil.example/?data"}}]}]`), 403, "image_url"},
		"chat searches":                  {c, gpt(`,"web_search_options":{}`), 403, "web_search_options"},
		"in the background":              {r, gpt(`,"background":true`), 403, "background"},
		"a stored prompt":                {r, gpt(`,"prompt":{"id":"pmpt_1"}`), 403, "stored prompt"},
		"a dear tier":                    {r, gpt(`,"service_tier":"priority"`), 403, "service_tier"},
		"another model, for some":        {c, `{"model":"the-openai","Model":"other"}`, 403, "small letters"},
		"another, by odd letters":        {c, `{"model":"the-openai","toolſ":[]}`, 403, "small letters"},
		"tools, for some":                {r, gpt(`,"tools":[{"type":"custom","Type":"mcp"}]`), 403, "small letters"},
		"an image, for some":             {c, gpt(`,"messages":[{"content":[{"type":"image_url","Image_URL":"http://evil.example"}]}]`), 403, "small letters"},
		"a URL, for some":                {c, gpt(`,"messages":[{"content":[{"type":"image_url","image_url":{"URL":"http://evil.example"}}]}]`), 403, "small letters"},
		"a file of the host's":           {r, gpt(`,"input":[{"content":[{"type":"input_file","file_id":"file_1"}]}]`), 403, "file_id"},
		"a file of the host's, there":    {m, claude(`,"messages":[{"content":[{"type":"document","source":{"type":"file","file_id":"file_1"}}]}]`), 403, "file_id"},
		"a file of the host's, in chat":  {c, gpt(`,"messages":[{"content":[{"type":"file","file":{"file_id":"file_1"}}]}]`), 403, "file_id"},
		"another place":                  {"/openai/v1/files", `{}`, 404, "nothing at"},
		"above":                          {"/openai/v1/../v1/responses", `{}`, 404, "nothing at"},
		"hidden":                         {"/openai/v1%2Fresponses", `{}`, 404, "nothing at"},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := w.post(x.path, x.body, nil)
			if status != x.status || !strings.Contains(text, x.says) || !strings.Contains(text, "skete: ") {
				t.Errorf("%d %s", status, text)
			}
			var e struct {
				Error struct{ Type, Message string }
			}
			if err := json.Unmarshal([]byte(text), &e); err != nil || e.Error.Type == "" || e.Error.Message == "" {
				t.Errorf("it is no error of the vendor's: %s", text)
			}
		})
	}
	for name, header := range map[string]http.Header{"none": {"Authorization": nil}, "another sandbox's": {"Authorization": {"Bearer " + w.Token("t", "sbx_b")}}, "another tenant's": {"Authorization": {"Bearer " + w.Token("u", "sbx_a")}}} {
		if status, text := w.post(m, claude(""), header); status != 401 {
			t.Errorf("the token is %s: %d %s", name, status, text)
		}
	}
	if next, err := w.events.Next(t.Context()); err != nil || next != 1 {
		t.Errorf("%d calls were told of, %v", next-1, err)
	}
	if s, err := w.Spent(t.Context(), "sbx_a"); err != nil || s != (gateway.Spent{}) {
		t.Errorf("%+v is spent, %v", s, err)
	}
}

// What a tool was called with is data, whatever it says; images that are there pass.
func TestDoor_data(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage":{"input_tokens":1,"output_tokens":1}}`)
	}))
	defer up.Close()
	w := newWorld(t, models{"the-anthropic": endpoint(catalog.Anthropic, up.URL), "the-openai": endpoint(catalog.OpenAI, up.URL)}, kvtest.NewMemory(), gateway.Budget{})
	for path, body := range map[string]string{
		"/anthropic/v1/messages": `{"model":"anthropic-1","max_tokens":5,"tools":[{"type":"bash_20250124","name":"bash"},{"name":"fetch","input_schema":{"properties":{"url":{}}}}],"messages":[
			{"role":"assistant","content":[{"type":"tool_use","input":{"source":{"url":"https://a.example"},"image_url":"https://a.example","URL":"https://a.example"}}]},
			{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"aGk="}},{"type":"text","text":"image_url: https://a.example"}]}]}`,
		"/openai/v1/chat/completions": `{"model":"openai/openai-1","n":1,"tools":[{"type":"function","function":{"name":"a"}}],"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}]}`,
		"/openai/v1/responses":        `{"model":"the-openai","background":false,"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]},{"type":"local_shell"},{"type":"custom","name":"apply_patch"}],"input":[{"type":"function_call","arguments":"{\"file_url\":\"https://a.example\"}"},{"role":"user","content":"hi"}]}`,
	} {
		if status, text := w.post(path, body, nil); status != 200 {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// What a vendor says of a fault is passed on, but for what is about the host's key.
func TestDoor_faults(t *testing.T) {
	for name, c := range map[string]struct {
		status   int
		header   http.Header
		body     string
		want     int
		says     string
		mustHave string
	}{
		"too many":   {429, http.Header{"Retry-After": {"7"}}, `{"error":{"message":"slow down"}}`, 429, "slow down", "7"},
		"bad":        {400, nil, `{"error":{"message":"no such field; ` + key + `"}}`, 400, "no such field; *****", ""},
		"key":        {401, nil, `{"error":{"message":"Incorrect API key provided: sk-the***host"}}`, 502, "refuses the key of this host", ""},
		"forbidden":  {403, nil, `no`, 502, "refuses the key of this host", ""},
		"elsewhere":  {302, http.Header{"Location": {"http://127.0.0.1:1/"}}, ``, 502, "points elsewhere", ""},
		"overloaded": {529, nil, `{"error":{"message":"overloaded"}}`, 529, "overloaded", ""},
	} {
		t.Run(name, func(t *testing.T) {
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				maps.Copy(w.Header(), c.header)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer up.Close()
			w := newWorld(t, models{"the-openai": endpoint(catalog.OpenAI, up.URL)}, kvtest.NewMemory(), gateway.Budget{Tokens: 10_000})
			status, text := w.post("/openai/v1/responses", `{"model":"default","input":"hi"}`, nil)
			if status != c.want || !strings.Contains(text, c.says) || strings.Contains(text, "sk-the") {
				t.Errorf("%d %s", status, text)
			}
			if s, err := w.Spent(t.Context(), "sbx_a"); err != nil || s.Tokens != 0 {
				t.Errorf("%+v is spent, %v", s, err)
			}
		})
	}
	w := newWorld(t, models{"the-openai": endpoint(catalog.OpenAI, "http://127.0.0.1:1/v1")}, kvtest.NewMemory(), gateway.Budget{})
	if status, text := w.post("/openai/v1/responses", `{"model":"default","input":"hi"}`, nil); status != 502 || !strings.Contains(text, "connection refused") || strings.Contains(text, "127.0.0.1") {
		t.Errorf("%d %s", status, text)
	}
}

// Fifty calls at once do not use more than there is, whatever they say that they use.
func TestBudget_race(t *testing.T) {
	const calls, fit = 50, 7
	var mu sync.Mutex
	reached := 0
	release := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		reached++
		mu.Unlock()
		<-release
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage":{"input_tokens":20,"output_tokens":900}}`)
	}))
	defer up.Close()
	const body = `{"model":"the-anthropic","max_tokens":900,"messages":[]}`
	one := int64(len(body)/3 + 900)
	store := kvtest.NewMemory()
	w := newWorld(t, models{"the-anthropic": endpoint(catalog.Anthropic, up.URL)}, store, gateway.Budget{Tokens: fit*one + one/2})
	var wg sync.WaitGroup
	statuses := make(chan int, calls)
	for range calls {
		wg.Go(func() {
			status, _ := w.post("/anthropic/v1/messages", body, nil)
			statuses <- status
		})
	}
	refused := 0
	for range calls - fit {
		if s := <-statuses; s == http.StatusForbidden {
			refused++
		}
	}
	close(release)
	wg.Wait()
	if refused != calls-fit || reached != fit {
		t.Errorf("%d are refused, and %d reach the vendor", refused, reached)
	}
	w.used(fit)
	s, err := w.Spent(t.Context(), "sbx_a")
	if err != nil || s.Tokens != fit*920 || s.Calls != fit {
		t.Errorf("%+v is spent, %v", s, err)
	}
}

// What was used stays used: after a stop exactly, after kill -9 at least.
func TestBudget_restart(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage":{"input_tokens":20,"output_tokens":100}}`)
	}))
	defer up.Close()
	m, store, budget := models{"the-anthropic": endpoint(catalog.Anthropic, up.URL)}, kvtest.NewMemory(), gateway.Budget{Tokens: 100_000}
	const body = `{"model":"default","max_tokens":100,"messages":[]}`
	first := newWorld(t, m, store, budget)
	for range 3 {
		if status, text := first.post("/anthropic/v1/messages", body, nil); status != 200 {
			t.Fatal(status, text)
		}
	}
	first.used(3)
	killed := newWorld(t, m, store, budget)
	if s, err := killed.Spent(t.Context(), "sbx_a"); err != nil || s.Tokens < 3*120 || s.Tokens > 3*120+100_000/50 {
		t.Errorf("after kill -9 %+v is spent, %v", s, err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopped := newWorld(t, m, store, budget)
	if s, err := stopped.Spent(t.Context(), "sbx_a"); err != nil || s != (gateway.Spent{Calls: 3, Tokens: 360, CostUSD: s.CostUSD}) {
		t.Errorf("after a stop %+v is spent, %v", s, err)
	}
	if err := stopped.Forget(t.Context(), "sbx_a"); err != nil {
		t.Fatal(err)
	}
	if s, err := stopped.Spent(t.Context(), "sbx_a"); err != nil || s != (gateway.Spent{}) {
		t.Errorf("of a sandbox that is gone %+v is spent, %v", s, err)
	}
}

// Many calls at once are told of some, with what all have used; a server that comes later
// counts on.
func TestEvents(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage":{"input_tokens":1,"output_tokens":1}}`)
	}))
	defer up.Close()
	m, store, events := models{"the-anthropic": endpoint(catalog.Anthropic, up.URL)}, kvtest.NewMemory(), eventtest.NewMemory()
	now := time.Now()
	serve := func(calls int) {
		t.Helper()
		g, err := gateway.New(t.Context(), gateway.Config{Models: m, Seed: bytes.Repeat([]byte{7}, 32), Store: store, Transport: http.DefaultTransport, Events: events, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		door := g.Door(gateway.Client{Tenant: "t", Sandbox: "sbx_a", Grant: gateway.Grant{Models: []string{"the-anthropic"}}})
		for range calls {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/anthropic/v1/messages", strings.NewReader(`{"model":"default","max_tokens":1,"messages":[]}`))
			r.Header.Set("X-Api-Key", g.Token("t", "sbx_a"))
			w := httptest.NewRecorder()
			if door.ServeHTTP(w, r); w.Code != 200 {
				t.Fatal(w.Code, w.Body)
			}
		}
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}
	told := func(n, calls int64) {
		t.Helper()
		var last gateway.Use
		err := events.Newest(t.Context(), event.Models, func(e event.Event) error { return json.Unmarshal(e.Data, &last) })
		if err != nil || last.N != uint64(n) || last.Spent.Calls != calls {
			t.Errorf("the newest is %+v, %v, not number %d after %d calls", last, err, n, calls)
		}
	}
	serve(50)
	told(30, 30)
	now = now.Add(time.Hour)
	serve(2)
	told(32, 52)
}

// What requests take of the host's memory is bounded: those that say that they are large,
// and send nothing, leave room for no other one, until they are gone.
func TestDoor_large(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	}))
	defer up.Close()
	w := newWorld(t, models{"the-anthropic": endpoint(catalog.Anthropic, up.URL)}, kvtest.NewMemory(), gateway.Budget{})
	const body = `{"model":"default","max_tokens":1,"messages":[]}`
	answers := func(want int) {
		t.Helper()
		patience.Until(t, 10*time.Second, "the answer", func() bool {
			status, _ := w.post("/anthropic/v1/messages", body, nil)
			return status == want
		})
	}
	var open []net.Conn
	for _, size := range []string{"Content-Length: 33554432", "Transfer-Encoding: chunked"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n%s\r\n\r\n", w.token, size)
		open = append(open, conn)
	}
	answers(429)
	for _, conn := range open {
		conn.Close()
	}
	answers(200)
}

// A budget of dollars is none for a model whose price is not known.
func TestBudget_noPrice(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	}))
	defer up.Close()
	e := endpoint(catalog.Anthropic, up.URL)
	e.Price = llm.Price{}
	for want, budget := range map[int]gateway.Budget{403: {CostUSD: 1}, 200: {CostUSD: 1, Tokens: 10_000}} {
		w := newWorld(t, models{"the-anthropic": e}, kvtest.NewMemory(), budget)
		if status, text := w.post("/anthropic/v1/messages", `{"model":"default","max_tokens":1,"messages":[]}`, nil); status != want || want == 403 && !strings.Contains(text, "budget of tokens") {
			t.Errorf("with %+v: %d %s", budget, status, text)
		}
	}
}

// A fork has the key of the sandbox that it comes from, and a budget of its own.
func TestDoor_fork(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage":{"input_tokens":1,"output_tokens":1}}`)
	}))
	defer up.Close()
	w := newWorld(t, models{"the-anthropic": endpoint(catalog.Anthropic, up.URL)}, kvtest.NewMemory(), gateway.Budget{})
	for want, c := range map[int]gateway.Client{200: {Tenant: "t", Sandbox: "sbx_b", KeyOf: "sbx_a"}, 401: {Tenant: "t", Sandbox: "sbx_c"}} {
		c.Grant.Models = []string{"the-anthropic"}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/anthropic/v1/messages", strings.NewReader(`{"model":"default","max_tokens":1,"messages":[]}`))
		r.Header.Set("X-Api-Key", w.token)
		got := httptest.NewRecorder()
		if w.Door(c).ServeHTTP(got, r); got.Code != want {
			t.Errorf("%+v: %d %s", c, got.Code, got.Body)
		}
	}
	for sandbox, calls := range map[string]int64{"sbx_a": 0, "sbx_b": 1, "sbx_c": 0} {
		if s, err := w.Spent(t.Context(), sandbox); err != nil || s.Calls != calls {
			t.Errorf("%s has used %+v, %v", sandbox, s, err)
		}
	}
}

// Too many calls in a minute are to come again; a store that fails lets nothing through.
func TestBudget_now(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	}))
	defer up.Close()
	m := models{"the-anthropic": endpoint(catalog.Anthropic, up.URL)}
	w := newWorld(t, m, kvtest.NewMemory(), gateway.Budget{PerMinute: 2})
	const body = `{"model":"default","max_tokens":100,"messages":[]}`
	for _, want := range []int{200, 200, 429} {
		if status, text := w.post("/anthropic/v1/messages", body, nil); status != want {
			t.Errorf("%d %s, not %d", status, text, want)
		}
	}
	store := kvtest.NewMemory()
	store.Fail = func(string, string) error { return errors.New("the disk is full") }
	w = newWorld(t, m, store, gateway.Budget{})
	if status, text := w.post("/anthropic/v1/messages", body, nil); status != 503 || strings.Contains(text, "disk") {
		t.Errorf("%d %s", status, text)
	}
}
