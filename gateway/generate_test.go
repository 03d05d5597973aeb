package gateway_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skete-dev/skete/gateway"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/catalog"
)

const gemini = "/gemini/v1beta/models/"

// google is a server of Google's API that says one thing, and what it was asked.
func google(t *testing.T, contentType, answer string) (url string, asked func() (*http.Request, string)) {
	t.Helper()
	var req *http.Request
	var body []byte
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(up.Close)
	return up.URL, func() (*http.Request, string) { return req, string(body) }
}

// Programs of Google's API reach the model that they name in the path, in any way in which
// they may say their key; answers come back byte for byte and are counted.
func TestGenerate(t *testing.T) {
	const (
		stream = "data: {\"candidates\": [{\"content\": {}}],\"usageMetadata\": {\"promptTokenCount\": 50}}\r\n\r\ndata: {\"candidates\": [{\"finishReason\": \"STOP\"}],\"usageMetadata\": {\"promptTokenCount\": 50,\"candidatesTokenCount\": 4,\"thoughtsTokenCount\": 3}}\r\n\r\n"
		whole  = "{\n  \"candidates\": [{\"finishReason\": \"STOP\"}], \"usageMetadata\": {\"promptTokenCount\": 50, \"candidatesTokenCount\": 4, \"thoughtsTokenCount\": 3}\n}\n"
		body   = `{ "contents" : [{"role":"user","parts":[{"text":"model: default"}]}], "generation_config":{"maxOutputTokens":9}, "tools":[{"functionDeclarations":[{"name":"url"}]}]}`
	)
	for name, x := range map[string]struct {
		path, kind, answer string
		header             http.Header
		at                 string
	}{
		"events":            {gemini + "default:streamGenerateContent?alt=sse", "text/event-stream", stream, http.Header{"X-Goog-Api-Key": {"TOKEN"}}, "/v1beta/models/google-1:streamGenerateContent?alt=sse"},
		"a list":            {gemini + "default:streamGenerateContent", "application/json; charset=UTF-8", "[" + whole + "]", http.Header{"X-Goog-Api-Key": {"TOKEN"}}, "/v1beta/models/google-1:streamGenerateContent"},
		"whole":             {"/gemini/v1/models/the-google:generateContent", "application/json", whole, http.Header{"X-Goog-Api-Key": {"TOKEN"}}, "/v1/models/google-1:generateContent"},
		"by its vendor":     {gemini + "google/google-1:generateContent", "application/json", whole, http.Header{"X-Goog-Api-Key": {"TOKEN"}}, "/v1beta/models/google-1:generateContent"},
		"key in the query":  {gemini + "google-1:generateContent?key=TOKEN&alt=json&$alt=proto&fields=x", "application/json", whole, nil, "/v1beta/models/google-1:generateContent"},
		"key in both":       {gemini + "google-1:generateContent?key=TOKEN", "application/json", whole, http.Header{"X-Goog-Api-Key": {"TOKEN"}}, "/v1beta/models/google-1:generateContent"},
		"another key there": {gemini + "google-1:generateContent?key=mine&key=yours", "application/json", whole, http.Header{"X-Goog-Api-Key": {"TOKEN"}}, "/v1beta/models/google-1:generateContent"},
		"a bearer":          {gemini + "google-1:generateContent", "application/json", whole, http.Header{"Authorization": {"Bearer TOKEN"}}, "/v1beta/models/google-1:generateContent"},
	} {
		t.Run(name, func(t *testing.T) {
			url, asked := google(t, x.kind, x.answer)
			w := newWorld(t, models{"the-google": endpoint(catalog.Google, url+"/v1beta/")}, kvtest.NewMemory(), gateway.Budget{})
			header := http.Header{"Authorization": nil, "X-Goog-User-Project": {"mine"}, "Cookie": {"c=d"}}
			for k, v := range x.header {
				header[k] = []string{strings.ReplaceAll(v[0], "TOKEN", w.token)}
			}
			if status, text := w.post(strings.ReplaceAll(x.path, "TOKEN", w.token), body, header); status != 200 || text != x.answer {
				t.Fatalf("%d %q", status, text)
			}
			req, got := asked()
			if req.URL.String() != x.at || got != body {
				t.Errorf("the vendor is asked at %s: %s", req.URL, got)
			}
			for name, want := range map[string]string{"X-Goog-Api-Key": key, "Authorization": "", "Cookie": "", "X-Goog-User-Project": "", "X-Org": "org"} {
				if got := req.Header.Get(name); got != want {
					t.Errorf("%s is %q to the vendor, not %q", name, got, want)
				}
			}
			const cost = (50*10 + 7*100) / 1e6
			want := gateway.Use{
				N: 1, Model: "the-google", Status: 200, Usage: llm.Usage{Input: 50, Output: 7, Reasoning: 3}, CostUSD: cost,
				Spent: gateway.Spent{Calls: 1, Tokens: 57, CostUSD: cost},
			}
			if d := cmp.Diff(want, w.used(1)[0], cmpopts.IgnoreFields(gateway.Use{}, "At", "Took", "First"), cmpopts.EquateApprox(0, 1e-9)); d != "" {
				t.Error(d)
			}
		})
	}
}

// To count costs nothing. The vendor's own host has the same doors; a list has the models
// that speak this API.
func TestGenerate_others(t *testing.T) {
	url, asked := google(t, "application/json", `{"totalTokens":10}`)
	w := newWorld(t, models{"the-google": endpoint(catalog.Google, url), "the-openai": endpoint(catalog.OpenAI, url)}, kvtest.NewMemory(), gateway.Budget{Tokens: 2000})
	if status, text := w.post(gemini+"default:countTokens", `{"contents":[]}`, nil); status != 200 || text != `{"totalTokens":10}` {
		t.Errorf("%d %s", status, text)
	}
	if req, _ := asked(); req.URL.Path != "/v1beta/models/google-1:countTokens" {
		t.Errorf("it is counted at %s", req.URL)
	}
	if s, err := w.Spent(t.Context(), "sbx_a"); err != nil || s != (gateway.Spent{Calls: 1}) {
		t.Errorf("%+v is spent, %v", s, err)
	}
	door := w.Door(gateway.Client{Tenant: "t", Sandbox: "sbx_a", Grant: gateway.Grant{Models: []string{"the-google", "the-openai"}}})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://generativelanguage.googleapis.com/v1beta/models?key="+w.token, nil)
	got := httptest.NewRecorder()
	door.ServeHTTP(got, r)
	const list = `{"models":[{"name":"models/the-google","displayName":"google-1","outputTokenLimit":1000,"supportedGenerationMethods":["generateContent","countTokens"]}]}`
	if got.Code != 200 || strings.TrimSpace(got.Body.String()) != list {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if !slices.Contains(gateway.Hosts(), "generativelanguage.googleapis.com") {
		t.Errorf("the hosts are %v", gateway.Hosts())
	}
	if env := w.Env("t", "sbx_a"); env["GEMINI_API_KEY"] != w.token || env["GOOGLE_GEMINI_BASE_URL"] != "http://"+gateway.Host+"/gemini" {
		t.Errorf("%v", env)
	}
}

// What is not allowed does not reach the vendor, and is refused as Google does.
func TestGenerate_refuses(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		t.Errorf("%s %s: %s", r.Method, r.URL, b)
	}))
	defer up.Close()
	w := newWorld(t, models{"the-google": endpoint(catalog.Google, up.URL), "the-openai": endpoint(catalog.OpenAI, up.URL)}, kvtest.NewMemory(), gateway.Budget{Tokens: 5000})
	const m = gemini + "the-google:generateContent"
	part := func(p string) string { return `{"contents":[{"role":"user","parts":[{"text":"a"},` + p + `]}]}` }
	for name, x := range map[string]struct {
		path, body string
		status     int
		says       string
	}{
		"no JSON":                        {m, `{"contents":`, 400, "no JSON"},
		"a list":                         {m, `[]`, 400, "no object"},
		"two":                            {m, `{} {}`, 400, "follows"},
		"a key twice":                    {m, `{"contents":[],"contents":[]}`, 400, "twice"},
		"a key twice, hidden":            {m, `{"contents":[],"\u0063ontents":[]}`, 400, "twice"},
		"a key in two ways":              {m, `{"systemInstruction":{},"system_instruction":{}}`, 400, "twice"},
		"a key in two ways, deeper":      {m, part(`{"inlineData":{"mimeType":"image/png","mime_type":"text/plain","data":"aGk="}}`), 400, "twice"},
		"two bounds":                     {m, `{"generationConfig":{"maxOutputTokens":1,"max_output_tokens":900}}`, 400, "twice"},
		"two configs":                    {m, `{"generationConfig":{"maxOutputTokens":1},"generation_config":{"maxOutputTokens":900}}`, 400, "twice"},
		"a config that is none":          {m, `{"generationConfig":[{"maxOutputTokens":900}]}`, 400, "no object"},
		"too deep":                       {m, part(strings.Repeat("[", 200) + strings.Repeat("]", 200)), 400, "deep"},
		"too long":                       {m, part(`{"text":"` + strings.Repeat("x", 33<<20) + `"}`), 413, "MB"},
		"another model":                  {gemini + "gemini-9:generateContent", `{}`, 403, "may not use the model"},
		"another model in the body":      {m, `{"model":"models/gemini-9"}`, 403, "model"},
		"another one, for some":          {m, `{"Model":"models/gemini-9"}`, 403, "model"},
		"its API":                        {gemini + "the-openai:generateContent", `{}`, 400, "does not speak"},
		"not its API":                    {"/openai/v1/chat/completions", `{"model":"the-google"}`, 400, "/gemini/v1beta/models/MODEL:generateContent"},
		"tokens below zero":              {m, `{"generationConfig":{"maxOutputTokens":-5}}`, 400, "maxoutputtokens"},
		"tokens as a text":               {m, `{"generationConfig":{"maxOutputTokens":"5"}}`, 400, "maxoutputtokens"},
		"many replies":                   {m, `{"generation_config":{"candidate_count":100}}`, 400, "candidatecount is more"},
		"over the budget":                {m, `{"generationConfig":{"candidateCount":6}}`, 403, "budget"},
		"the vendor searches":            {m, `{"tools":[{"functionDeclarations":[]},{"googleSearch":{}}]}`, 403, "googleSearch"},
		"it searches, in the other way":  {m, `{"tools":{"google_search":{}}}`, 403, "google_search"},
		"it searches, by odd letters":    {m, `{"toolſ":{"google_search":{}}}`, 403, "google_search"},
		"it searches, beside":            {m, `{"tools":[{"functionDeclarations":[],"GoogleSearchRetrieval":{}}]}`, 403, "GoogleSearchRetrieval"},
		"the vendor fetches":             {m, `{"tools":[{"urlContext":{}}]}`, 403, "urlContext"},
		"the vendor runs code":           {m, `{"tools":[{"code_execution":{}}]}`, 403, "code_execution"},
		"the vendor looks at files":      {m, `{"tools":[{"fileSearch":{"fileSearchStoreNames":["x"]}}]}`, 403, "fileSearch"},
		"the vendor connects":            {m, `{"tools":[{"mcpServers":[{"name":"x"}]}]}`, 403, "mcpServers"},
		"a tool that is none":            {m, `{"tools":["googleSearch"]}`, 400, "a tool is no object"},
		"what the vendor kept":           {m, `{"cachedContent":"cachedContents/1"}`, 403, "cachedContent"},
		"what it kept, in the other way": {m, `{"cached_content":"cachedContents/1"}`, 403, "cached_content"},
		"a file":                         {m, part(`{"fileData":{"mimeType":"image/png","fileUri":"https://evil.example/?data"}}`), 403, "fileData"},
		"a file, in the other way":       {m, `{"contents":{"parts":{"file_data":{"file_uri":"gs://evil/data"}}}}`, 403, "fileData"},
		"a file, by odd letters":         {m, part(`{"FILE_DATA":{"mime_type":"image/png"}}`), 403, "fileData"},
		"a file in instructions":         {m, `{"system_instruction":{"parts":[{"fileData":{"fileUri":"x"}}]}}`, 403, "fileData"},
		"a file beside an answer":        {m, part(`{"functionResponse":{"name":"f","response":{},"parts":[{"file_data":{"file_uri":"x"}}]}}`), 403, "fileData"},
		"pictures":                       {m, `{"generationConfig":{"response_modalities":["TEXT","IMAGE"]}}`, 403, "no text"},
		"pictures, by number":            {m, `{"generationConfig":{"responseModalities":2}}`, 403, "no text"},
		"a dear tier":                    {m, `{"serviceTier":"priority"}`, 403, "serviceTier"},
		"a dear tier, by number":         {m, `{"service_tier":3}`, 403, "serviceTier"},
		"a request in it":                {gemini + "the-google:countTokens", `{"generateContentRequest":{"model":"models/gemini-9"}}`, 403, "generateContentRequest"},
		"another call":                   {gemini + "the-google:embedContent", `{}`, 404, "nothing at"},
		"no call":                        {gemini + "the-google", `{}`, 404, "nothing at"},
		"an empty call":                  {gemini + "the-google:", `{}`, 404, "nothing at"},
		"no model":                       {gemini + ":generateContent", `{}`, 404, "nothing at"},
		"above":                          {gemini + "../models/the-google:generateContent", `{}`, 404, "nothing at"},
		"above, hidden":                  {gemini + "%2e%2e/the-google:generateContent", `{}`, 404, "nothing at"},
		"here":                           {gemini + "./the-google:generateContent", `{}`, 404, "nothing at"},
		"nothing between":                {gemini + "/the-google:generateContent", `{}`, 404, "nothing at"},
		"a hidden slash":                 {gemini + "google%2Fgoogle-1:generateContent", `{}`, 404, "nothing at"},
		"a tuned model":                  {"/gemini/v1beta/tunedModels/the-google:generateContent", `{}`, 404, "nothing at"},
		"another version":                {"/gemini/v1alpha/models/the-google:generateContent", `{}`, 404, "nothing at"},
		"files":                          {"/gemini/upload/v1beta/files", `{}`, 404, "nothing at"},
		"by Chat Completions":            {"/gemini/v1beta/openai/chat/completions", `{"model":"the-google"}`, 404, "nothing at"},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := w.post(x.path, x.body, nil)
			if status != x.status || !strings.Contains(text, x.says) || !strings.Contains(text, "skete: ") {
				t.Errorf("%d %s", status, text)
			}
			var e struct {
				Error struct {
					Code            int
					Message, Status string
				}
			}
			if err := json.Unmarshal([]byte(text), &e); err != nil || x.path[:8] == "/gemini/" && (e.Error.Code != status || e.Error.Message == "" || e.Error.Status != strings.ToUpper(e.Error.Status) || e.Error.Status == "") {
				t.Errorf("it is no error of Google's: %s", text)
			}
		})
	}
	for name, x := range map[string]struct {
		query  string
		header http.Header
	}{
		"none":                      {"", nil},
		"another sandbox's":         {"", http.Header{"X-Goog-Api-Key": {w.Token("t", "sbx_b")}}},
		"another's, in the query":   {"?key=" + w.Token("t", "sbx_b"), nil},
		"another's, in both":        {"?key=" + w.Token("t", "sbx_b"), http.Header{"X-Goog-Api-Key": {w.Token("u", "sbx_a")}}},
		"under another name":        {"?api_key=" + w.token, nil},
		"cut off, and something on": {"?key=" + w.token[1:] + "&key=" + w.token + "x", http.Header{"X-Goog-Api-Key": {w.token + "0"}}},
	} {
		header := http.Header{"Authorization": nil}
		maps.Copy(header, x.header)
		if status, text := w.post(m+x.query, `{}`, header); status != 401 || !strings.Contains(text, "UNAUTHENTICATED") {
			t.Errorf("the token is %s: %d %s", name, status, text)
		}
	}
	if status, _ := w.post("/openai/v1/responses?key="+w.token, `{"model":"the-openai"}`, http.Header{"Authorization": nil, "X-Goog-Api-Key": {w.token}}); status != 401 {
		t.Errorf("another API takes the keys of this one: %d", status)
	}
	if s, err := w.Spent(t.Context(), "sbx_a"); err != nil || s != (gateway.Spent{}) {
		t.Errorf("%+v is spent, %v", s, err)
	}
}

// What a function was called with and answered is data, whatever it says; what is there
// passes, and so does what is null.
func TestGenerate_data(t *testing.T) {
	url, _ := google(t, "application/json", `{}`)
	w := newWorld(t, models{"the-google": endpoint(catalog.Google, url)}, kvtest.NewMemory(), gateway.Budget{})
	for _, body := range []string{
		`{"contents":[{"role":"model","parts":[{"functionCall":{"id":"1","name":"f","args":{"fileData":{"fileUri":"https://a.example"},"a_b":1,"aB":2}},"thoughtSignature":"c2ln"}]},
			{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"file_data":"x","fileData":"y"},"parts":[{"inlineData":{"mimeType":"image/png","data":"aGk="}}]}},{"text":"fileData: https://a.example"}]}]}`,
		`{"contents":"hi","cachedContent":null,"tools":[{"computerUse":{"environment":"ENVIRONMENT_BROWSER"},"googleSearch":null}],"serviceTier":"FLEX","generationConfig":{"responseModalities":["Text"],"responseMimeType":"application/json"}}`,
		`{"toolConfig":{"functionCallingConfig":{"mode":"ANY"}},"safety_settings":[],"tools":{"function_declarations":[{"name":"googleSearch","parameters":{"properties":{"fileData":{}}}}]}}`,
	} {
		if status, text := w.post(gemini+"default:generateContent", body, nil); status != 200 {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

// Google says with 400 that it does not know a key: that is the operator's to know.
func TestGenerate_key(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}`)
	}))
	defer up.Close()
	w := newWorld(t, models{"the-google": endpoint(catalog.Google, up.URL)}, kvtest.NewMemory(), gateway.Budget{})
	if status, text := w.post(gemini+"default:generateContent", `{}`, nil); status != 502 || !strings.Contains(text, "refuses the key of this host") || !strings.Contains(text, "UNAVAILABLE") {
		t.Errorf("%d %s", status, text)
	}
}
