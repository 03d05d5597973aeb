package declared_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/egress/outbound"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/declared"
)

// tracker is a server elsewhere, which the host knows as api.example.com.
type tracker struct {
	*httptest.Server
	mu     sync.Mutex
	got    []string // method, path and query as they came
	bodies []string
	heads  []http.Header
	answer http.HandlerFunc
}

func newTracker(t *testing.T) *tracker {
	t.Helper()
	k := &tracker{}
	k.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		k.mu.Lock()
		k.got, k.bodies, k.heads = append(k.got, r.Method+" "+r.URL.RequestURI()), append(k.bodies, string(body)), append(k.heads, r.Header)
		answer := k.answer
		k.mu.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		fmt.Fprint(w, "fine")
	}))
	t.Cleanup(k.Close)
	return k
}

// last is the newest request.
func (k *tracker) last() (line, body string, head http.Header) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.got) == 0 {
		return "", "", nil
	}
	n := len(k.got) - 1
	return k.got[n], k.bodies[n], k.heads[n]
}

func (k *tracker) says(h http.HandlerFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answer = h
}

// calling is a source of tools without sandboxes, whose requests reach the tracker.
func (k *tracker) calling(t *testing.T, c declared.Config) (*declared.Source, string) {
	t.Helper()
	dir := t.TempDir()
	roots := x509.NewCertPool()
	roots.AddCert(k.Certificate())
	c.Folder = declared.NewFolder(dir)
	c.Outbound.Roots = roots
	if c.Outbound.Lookup == nil {
		c.Outbound.Lookup = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
		}
	}
	c.Outbound.Dial = func(ctx context.Context, network, to string) (net.Conn, error) {
		if to != "192.0.2.1:443" {
			t.Errorf("dials %s", to)
		}
		return (&net.Dialer{}).DialContext(ctx, network, k.Listener.Addr().String())
	}
	return declared.New(c), dir
}

var elsewhere = tool.Place{Tenant: "acme", Agent: "clerk", Thread: "thr_1", Run: "run_1", Top: "run_1", By: "anna"}

// ask calls a tool of a manifest.
func ask(t *testing.T, s *declared.Source, dir, manifest, args string) tool.Result {
	t.Helper()
	write(t, dir, "t.yaml", "description: d\n"+manifest)
	found, notes, err := s.Find(t.Context(), elsewhere)
	if err != nil || len(found) != 1 {
		t.Fatal(notes, err)
	}
	r, err := s.Call(t.Context(), elsewhere, found[0], tool.Request{Key: "k", Call: "c", Args: json.RawMessage(args)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const properties = "input: {type: object, required: [id], properties: {id: {}, q: {}, more: {}}}\n"

// An argument fills the place that the manifest leaves, and changes nothing else.
func TestHTTP_request(t *testing.T) {
	k := newTracker(t)
	s, dir := k.calling(t, declared.Config{})
	get := properties + "http: {url: 'https://api.example.com/v1/issues/{id}/notes', query: {text: '{q}', state: 'is:{more}', fixed: 'a&b'}, headers: {X-Team: blue}}\n"
	post := properties + "http: {method: POST, url: 'https://api.example.com/v1/x{id}', body: {a: '{q}', list: ['{id}', 'say {id}'], n: 1, gone: '{more}'}}\n"
	all := properties + "http: {method: PUT, url: 'https://api.example.com/{id}', body: '{*}'}\n"
	for _, c := range []struct{ manifest, args, line, body string }{
		{get, `{"id": 7}`, "GET /v1/issues/7/notes?fixed=a%26b&state=is%3A", ""},
		{get, `{"id": 12345678901234567890, "q": ["a", "b&fixed=c"], "more": true}`, "GET /v1/issues/12345678901234567890/notes?fixed=a%26b&state=is%3Atrue&text=a&text=b%26fixed%3Dc", ""},
		{get, `{"id": "a?x=1#y", "q": "{id}", "more": "{id}\r\nX-Team: red"}`, "GET /v1/issues/a%3Fx=1%23y/notes?fixed=a%26b&state=is%3A%7Bid%7D%0D%0AX-Team%3A+red&text=%7Bid%7D", ""},
		{get, `{"id": "%2e%2e%2f"}`, "GET /v1/issues/%252e%252e%252f/notes?fixed=a%26b&state=is%3A", ""},
		{get, `{"id": "@evil.example.com:80"}`, "GET /v1/issues/@evil.example.com:80/notes?fixed=a%26b&state=is%3A", ""},
		{post, `{"id": "z", "q": {"deep": [1.50]}}`, "POST /v1/xz", `{"a":{"deep":[1.50]},"list":["z","say z"],"n":1}`},
		{post, `{"id": "\"}", "more": "{q}"}`, "POST /v1/x%22%7D", `{"gone":"{q}","list":["\"}","say \"}"],"n":1}`},
		{all, `{"id": 1, "q": null}`, "PUT /1", `{"id":1,"q":null}`},
	} {
		r := ask(t, s, dir, c.manifest, c.args)
		line, body, head := k.last()
		if r.Failed || textOf(r) != "fine" || line != c.line || body != c.body || head.Get("X-Team") == "red" {
			t.Errorf("%s: %q %q, want %q %q; %+v", c.args, line, body, c.line, c.body, r)
		}
	}
	if _, _, head := k.last(); head.Get("Content-Type") != "application/json" {
		t.Errorf("%v", head)
	}
	before, _, _ := k.last()
	for _, args := range []string{`{"id": ".."}`, `{"id": "."}`, `{"id": ""}`, `{"id": "a/b"}`, `{"id": "..\\x"}`, `{"id": "a\u0000"}`, `{"id": [1]}`, `{"id": null}`, `{"id": {}}`, `[]`, fmt.Sprintf(`{"id": %q}`, strings.Repeat("x", 2000)), fmt.Sprintf(`{"id": 1, "q": %q}`, strings.Repeat("x", 100_000)), `{"id": 1, "more": {}}`} {
		if r := ask(t, s, dir, get, args); r.Code != tool.CodeArgs {
			t.Errorf("%.60s: %+v", args, r)
		}
	}
	if line, _, _ := k.last(); line != before {
		t.Errorf("it was sent: %s", line)
	}
}

// What may be repeated follows from the method, unless the manifest says more; a request that
// acts once per key has one.
func TestHTTP_effects(t *testing.T) {
	k := newTracker(t)
	s, dir := k.calling(t, declared.Config{})
	for manifest, want := range map[string]tool.Class{
		"http: {url: 'https://api.example.com'}\n":                               tool.Read,
		"http: {url: 'https://api.example.com/', method: HEAD}\n":                tool.Read,
		"http: {url: 'https://api.example.com/', method: POST}\n":                tool.Once,
		"http: {url: 'https://api.example.com/', method: DELETE}\n":              tool.Once,
		"effect: read\nhttp: {url: 'https://api.example.com/', method: POST}\n":  tool.Read,
		"effect: keyed\nhttp: {url: 'https://api.example.com/', method: POST}\n": tool.Keyed,
	} {
		write(t, dir, "t.yaml", "description: d\n"+manifest)
		found, notes, err := s.Find(t.Context(), elsewhere)
		if err != nil || len(found) != 1 || found[0].Class != want {
			t.Errorf("%s: %+v %v %v", manifest, found, notes, err)
		}
		ask(t, s, dir, manifest, "{}")
		_, _, head := k.last()
		if (head.Get("Idempotency-Key") != "") != (want == tool.Keyed) {
			t.Errorf("%s: key %q", manifest, head.Get("Idempotency-Key"))
		}
	}
}

// What a server answers becomes a text of bounded length, or an error that says what to do.
func TestHTTP_answers(t *testing.T) {
	k := newTracker(t)
	s, dir := k.calling(t, declared.Config{})
	const get, post = "http: {url: 'https://api.example.com/a'}\n", "http: {url: 'https://api.example.com/a', method: POST}\n"
	late := strings.Replace(post, "POST", "POST, timeout: 300ms", 1)
	const shaped = get + "output: {type: object, required: [n]}\n"
	status := func(n int, header, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if key, value, ok := strings.Cut(header, ": "); ok {
				w.Header().Set(key, value)
			}
			w.WriteHeader(n)
			fmt.Fprint(w, text)
		}
	}
	for name, c := range map[string]struct {
		manifest, code, want string
		h                    http.HandlerFunc
	}{
		"JSON":                   {shaped, "", `{"n": 1}`, status(200, "", `{"n": 1}`)},
		"other JSON":             {shaped, declared.CodeOutput, "missing property 'n'", status(200, "", `{"m": 1}`)},
		"no JSON":                {shaped, declared.CodeOutput, "<html>", status(200, "Content-Type: text/html", `<html>`)},
		"nothing":                {get, "", "answers with nothing", status(204, "", "")},
		"a picture":              {get, "", "(3 bytes of image/png, which cannot be shown)", status(200, "Content-Type: image/png", "\xff\xfe\x00")},
		"a long text":            {get + "result: {bytes_max: 100}\n", "", "bytes are left out here", status(200, "", strings.Repeat("x", 10_000)+"end")},
		"more than is taken":     {shaped, tool.CodeTooLarge, "more than", status(200, "", strings.Repeat(" ", 5<<20))},
		"arguments that are bad": {post, declared.CodeStatus, "422 Unprocessable Entity. Look at the arguments.\nno title", status(422, "", "no title")},
		"not found":              {get, declared.CodeStatus, "404 Not Found", status(404, "", "")},
		"denied":                 {get, tool.CodeDenied, "The operator has to grant a secret", status(401, "", "who are you?")},
		"too often":              {get, tool.CodeLimit, "Try again after 30", status(429, "Retry-After: 30", "")},
		"broken":                 {get, declared.CodeStatus, "may work later", status(503, "", strings.Repeat("x", 100_000))},
		"broken, once":           {post, declared.CodeStatus, "not known", status(503, "", "")},
		"late":                   {late, tool.CodeTimeout, "not known", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		"cut off":                {post, declared.CodeStatus, "not known", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"elsewhere":              {get, tool.CodeDenied, "redirects to another host", status(307, "Location: https://evil.example.com/", "")},
		"elsewhere by http":      {get, tool.CodeDenied, "redirects to another host", status(307, "Location: http://api.example.com/a", "")},
		"another place, once":    {post, declared.CodeStatus, "which is not done", status(307, "Location: /b", "")},
		"round and round":        {get, declared.CodeStatus, "redirects too often", status(307, "Location: /a", "")},
		"another place": {get, "", "here", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/a" {
				http.Redirect(w, r, "/b", http.StatusFound)
				return
			}
			fmt.Fprint(w, "here")
		}},
	} {
		k.says(c.h)
		r := ask(t, s, dir, c.manifest, "{}")
		if r.Code != c.code || r.Failed != (c.code != "") || !strings.Contains(textOf(r), c.want) || len(textOf(r)) > 5000 {
			t.Errorf("%s: %s %.300q", name, r.Code, textOf(r))
		}
	}
}

// A secret is sent where it is granted; neither the model nor the audit log sees it, also
// when the server gives it back; another tenant's, and another host's, are not sent.
func TestHTTP_secrets(t *testing.T) {
	k := newTracker(t)
	sealer, err := secret.NewSealer(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	store, err := secret.Open(t.Context(), secret.Config{KV: kvtest.NewMemory(), Sealer: sealer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	for name, host := range map[string]string{"mine": "api.example.com", "others": "other.example.com"} {
		if _, err := store.Put(t.Context(), "acme", secret.Put{Name: name, Value: secret.New("very+secret/value"), Grants: []secret.Grant{{Where: egress.Rule{Host: host}, As: secret.Header, Key: "X-Key"}}}); err != nil {
			t.Fatal(err)
		}
	}
	var sent []declared.Sent
	s, dir := k.calling(t, declared.Config{Outbound: outbound.Config{Held: store.Held}, Sent: func(x declared.Sent) { sent = append(sent, x) }})
	k.says(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", r.Header.Get("X-Key"))
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprintf(w, "you sent %s and %s", r.Header.Get("X-Key"), url.QueryEscape(r.Header.Get("X-Key")))
	})
	const from = "http: {url: 'https://api.example.com/%s', query: {q: private}, secrets: [%s]}\n"
	for named, want := range map[string]string{"mine": "very+secret/value", "others": "", "none": ""} {
		sent = nil
		r := ask(t, s, dir, fmt.Sprintf(from, "p", named), "{}")
		_, _, head := k.last()
		whole, err := json.Marshal([]any{r, sent})
		if err != nil {
			t.Fatal(err)
		}
		if head.Get("X-Key") != want || strings.Contains(string(whole), "very+secret") || strings.Contains(string(whole), "very%2Bsecret") {
			t.Errorf("%s: was sent %q: %s", named, head.Get("X-Key"), whole)
		}
		if want != "" && !strings.Contains(textOf(r), "you sent *** and ***") {
			t.Errorf("%q", textOf(r))
		}
		if len(sent) != 1 || sent[0].Status != 429 || sent[0].Host != "api.example.com" || sent[0].Path != "/p" || strings.Contains(string(whole), "private") || (len(sent[0].Secrets) == 1) != (want != "") {
			t.Errorf("%s", whole)
		}
	}
}

// A name of an address of the host or its networks is not asked; an address that the operator
// wrote is.
func TestHTTP_addresses(t *testing.T) {
	k := newTracker(t)
	s, dir := k.calling(t, declared.Config{Outbound: outbound.Config{Lookup: func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1")}, nil
	}}})
	if r := ask(t, s, dir, "http: {url: 'https://inside.example.com/'}\n", "{}"); r.Code != tool.CodeDenied || !strings.Contains(textOf(r), "which is refused") {
		t.Errorf("%+v", r)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "near") }))
	t.Cleanup(plain.Close)
	near := declared.New(declared.Config{Folder: declared.NewFolder(dir)})
	if r := ask(t, near, dir, "http: {url: '"+plain.URL+"/'}\n", "{}"); textOf(r) != "near" {
		t.Errorf("%+v", r)
	}
}

// A manifest of a request is refused with its key where it could not mean what it says.
func TestHTTP_refuses(t *testing.T) {
	const start = "description: d\n" + properties
	for name, tt := range map[string]struct{ file, want string }{
		"both":                       {start + "command: c\nhttp: {url: 'https://a.example.com'}\n", "command: a tool has a command or http, not both"},
		"no URL":                     {start + "http: {method: GET}\n", "http.url"},
		"another scheme":             {start + "http: {url: 'file:///etc/passwd'}\n", "http.url: it is not http"},
		"http elsewhere":             {start + "http: {url: 'http://a.example.com/'}\n", "elsewhere it has to be https"},
		"a user":                     {start + "http: {url: 'https://u:p@a.example.com/'}\n", "name a secret"},
		"an argument as host":        {start + "http: {url: 'https://{id}.example.com/'}\n", "cannot choose the host"},
		"an argument as port":        {start + "http: {url: 'https://a.example.com:{id}/'}\n", "cannot choose the host"},
		"parameters in the URL":      {start + "http: {url: 'https://a.example.com/?q={q}'}\n", "http.query"},
		"a path that goes up":        {start + "http: {url: 'https://a.example.com/a/../b'}\n", "is no part of a path"},
		"a path that goes up, coded": {start + "http: {url: 'https://a.example.com/a/%2e%2E/b'}\n", "is no part of a path"},
		"a blank":                    {start + "http: {url: 'https://a.example.com/a b'}\n", "without blanks"},
		"a brace":                    {start + "http: {url: 'https://a.example.com/{id'}\n", "{name} stands for an argument"},
		"a place of no argument":     {start + "http: {url: 'https://a.example.com/{nope}'}\n", "{nope} is none of the properties"},
		"a place that may be empty":  {start + "http: {url: 'https://a.example.com/{q}'}\n", "has to be `required`"},
		"a parameter of no argument": {start + "http: {url: 'https://a.example.com/', query: {a: '{nope}'}}\n", "http.query.a"},
		"a body of no argument":      {start + "http: {url: 'https://a.example.com/', method: POST, body: [{x: '{nope}'}]}\n", "http.body: {nope}"},
		"a body of GET":              {start + "http: {url: 'https://a.example.com/', body: {}}\n", "http.body: GET has none"},
		"a method":                   {start + "http: {url: 'https://a.example.com/', method: get}\n", "http.method"},
		"CONNECT":                    {start + "http: {url: 'https://a.example.com/', method: CONNECT}\n", "http.method"},
		"a header with an argument":  {start + "http: {url: 'https://a.example.com/', headers: {X-A: '{id}'}}\n", "an argument cannot stand in a header"},
		"a header of two lines":      {start + "http: {url: 'https://a.example.com/', headers: {X-A: \"a\\r\\nX-B: c\"}}\n", "on one line"},
		"a header that is none":      {start + "http: {url: 'https://a.example.com/', headers: {'X A': b}}\n", "is no header"},
		"Host":                       {start + "http: {url: 'https://a.example.com/', headers: {host: b}}\n", "it is that of the URL"},
		"a secret in a header":       {start + "http: {url: 'https://a.example.com/', headers: {authorization: Bearer x}}\n", "name it in http.secrets"},
		"a secret in the clear":      {start + "http: {url: 'http://127.0.0.1:1/', secrets: [a]}\n", "over https alone"},
		"a sandbox required":         {start + "requires_sandbox: true\nhttp: {url: 'https://a.example.com/'}\n", "the host makes the request itself"},
		"a sandbox":                  {start + "sandbox: {scope: '{run}'}\nhttp: {url: 'https://a.example.com/'}\n", "there is no sandbox"},
		"files":                      {start + "files: [id]\nhttp: {url: 'https://a.example.com/'}\n", "for commands"},
		"a long time":                {start + "http: {url: 'https://a.example.com/', timeout: 1h}\n", "http.timeout"},
		"a key that there is not":    {start + "http: {url: 'https://a.example.com/', verb: GET}\n", "\"verb\" is not a key here"},
	} {
		_, err := declared.Parse("t.yaml", []byte(tt.file))
		if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// Whatever arguments say, a request goes to its host, with its method, its headers, its number
// of segments and its parameters.
func FuzzRequest(f *testing.F) {
	m, err := declared.Parse("t.yaml", []byte("description: d\n"+properties+"http: {method: POST, url: 'https://api.example.com/v1/{id}/x-{id}', query: {a: '{q}', b: 'b{more}'}, body: {a: '{q}', b: ['x{more}']}}\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"id": "a", "q": "b", "more": 1}`)
	f.Add(`{"id": "../..", "q": ["b&a=1"], "more": "{q}"}`)
	f.Add(`{"id": "a\r\nHost: b", "q": {"x": null}, "more": "#?/"}`)
	f.Fuzz(func(t *testing.T, args string) {
		r, err := declared.Fill(m, json.RawMessage(args))
		if err != nil {
			return
		}
		again, err := url.Parse(r.URL.String()) // as a server reads it
		if err != nil {
			t.Fatal(err)
		}
		if r.Method != http.MethodPost || again.Host != "api.example.com" || again.Scheme != "https" || again.Fragment != "" || again.User != nil || strings.Count(again.EscapedPath(), "/") != 3 || strings.Count(again.Path, "/") != 3 || !strings.HasPrefix(again.Path, "/v1/") {
			t.Fatalf("%s: %s", args, r.URL)
		}
		for name := range again.Query() {
			if name != "a" && name != "b" {
				t.Fatalf("%s: %s", args, r.URL)
			}
		}
		if len(r.Header) != 2 {
			t.Fatalf("%v", r.Header)
		}
		var body map[string]any
		data, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(data, &body) != nil || len(body) > 2 {
			t.Fatalf("%s: %s", args, data)
		}
	})
}
