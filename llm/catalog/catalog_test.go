package catalog_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/catalog"
	"github.com/skete-dev/skete/llm/llmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type env map[string]string

func (e env) get(name string) string { return e[name] }

// nobody is where no server listens.
var nobody = []catalog.Server{}

func newCatalog(t *testing.T, c catalog.Config, e env, local []catalog.Server) *catalog.Catalog {
	t.Helper()
	cat, err := catalog.New(c, catalog.Options{Getenv: e.get, Local: local})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cat.Close)
	return cat
}

// lists serves a list of models as local servers do.
func lists(t *testing.T, name, body string) (catalog.Server, *atomic.Int32) {
	t.Helper()
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/v1/models" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return catalog.Server{Name: name, Title: name, URL: s.URL}, &asked
}

func TestOpen_choosesByConfigurationThenEnvironmentThenLocalServer(t *testing.T) {
	ollama, _ := lists(t, "ollama", `{"object":"list","data":[{"id":"nomic-embed-text"},{"id":"qwen3:8b"}]}`)
	vllm, _ := lists(t, "vllm", `{"data":[{"id":"big","max_model_len":65536}]}`)
	silent := catalog.Server{Name: "lmstudio", Title: "LM Studio", URL: "http://127.0.0.1:1"}
	website, _ := lists(t, "llamacpp", `<html>hello</html>`)
	local := []catalog.Server{silent, website, ollama, vllm}
	keys := env{"ANTHROPIC_API_KEY": "sk-a", "OPENAI_API_KEY": "sk-o"}
	fast := catalog.Config{Model: "fast", Models: []catalog.Entry{{Name: "fast", Vendor: "openai", ID: "gpt-5-mini"}}}
	with := func(e env, name, value string) env {
		out := env{name: value}
		maps.Copy(out, e)
		return out
	}
	cases := []struct {
		name   string
		config catalog.Config
		env    env
		local  []catalog.Server
		ask    string
		want   string // Info.Name
	}{
		{"a flag wins", fast, keys, local, "anthropic/claude-opus-5-5", "anthropic/claude-opus-5-5"},
		{"then the configuration", fast, with(keys, "SKETE_MODEL", "openai/gpt-5.5"), local, "", "fast"},
		{"then SKETE_MODEL with a vendor", catalog.Config{}, with(keys, "SKETE_MODEL", "openai/gpt-4.1"), local, "", "openai/gpt-4.1"},
		{"SKETE_MODEL may name an entry", catalog.Config{Models: fast.Models}, with(keys, "SKETE_MODEL", "fast"), local, "", "fast"},
		{"SKETE_MODEL may be an id", catalog.Config{}, with(keys, "SKETE_MODEL", "claude-opus-5"), local, "", "anthropic/claude-opus-5"},
		{"then Anthropic's key", catalog.Config{}, keys, local, "", "anthropic/claude-sonnet-5-5"},
		{"then OpenAI's key", catalog.Config{}, env{"OPENAI_API_KEY": "sk-o"}, local, "", "openai/gpt-5.5"},
		{"then a local server", catalog.Config{}, nil, local, "", "ollama/qwen3:8b"},
		{"before Google's key", catalog.Config{}, env{"GEMINI_API_KEY": "k"}, local, "", "ollama/qwen3:8b"},
		{"then Google's key", catalog.Config{}, env{"GEMINI_API_KEY": "k"}, nil, "", "google/gemini-2.5-pro"},
		{"or its other one", catalog.Config{}, env{"GOOGLE_API_KEY": "k"}, nil, "", "google/gemini-2.5-pro"},
		{"Google's models have names", catalog.Config{}, env{"GOOGLE_API_KEY": "k"}, local, "google/gemini-9", "google/gemini-9"},
		{"SKETE_MODEL may be a local id", catalog.Config{}, env{"SKETE_MODEL": "big"}, local, "", "vllm/big"},
		{"compat/ID is any local server's", catalog.Config{}, nil, local, "compat/big", "vllm/big"},
		{"SERVER/ID is that server's", catalog.Config{}, nil, local, "ollama/qwen3:8b", "ollama/qwen3:8b"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m, err := newCatalog(t, c.config, c.env, c.local).Open(t.Context(), c.ask)
			if err != nil {
				t.Fatal(err)
			}
			if m.Info().Name != c.want {
				t.Errorf("opened %s, want %s", m.Info().Name, c.want)
			}
		})
	}
}

func TestOpen_saysWhatToDoIfThereIsNoModel(t *testing.T) {
	down := []catalog.Server{{Name: "ollama", Title: "Ollama", URL: "http://127.0.0.1:1"}}
	configured := catalog.Config{Models: []catalog.Entry{
		{Name: "theirs", Vendor: "openai", ID: "x", KeyEnv: "THEIR_KEY"},
		{Name: "filed", Vendor: "anthropic", ID: "x", KeyFile: filepath.Join(t.TempDir(), "none")},
	}}
	cases := []struct {
		config catalog.Config
		env    env
		ask    string
		class  errs.Class
		hint   string
	}{
		{catalog.Config{}, nil, "", errs.Unsupported, "ANTHROPIC_API_KEY"},
		{catalog.Config{}, nil, "", errs.Unsupported, "script/FILE"},
		{catalog.Config{}, nil, "gpt", errs.NotFound, "vendor/id"},
		{configured, nil, "thiers", errs.NotFound, "theirs, filed"},
		{catalog.Config{}, env{"SKETE_MODEL": "gone"}, "", errs.NotFound, "vendor/id"},
		{catalog.Config{}, nil, "anthropic/claude-opus-5-5", errs.Unsupported, "ANTHROPIC_API_KEY"},
		{catalog.Config{}, nil, "openai/gpt-5.5", errs.Unsupported, "OPENAI_API_KEY"},
		{catalog.Config{}, nil, "google/gemini-2.5-pro", errs.Unsupported, "GEMINI_API_KEY"},
		{configured, nil, "theirs", errs.Unsupported, "THEIR_KEY"},
		{configured, nil, "filed", errs.Unsupported, "key_file"},
		{catalog.Config{}, nil, "compat/qwen", errs.Unsupported, "url"},
		{catalog.Config{}, nil, "ollama/qwen", errs.Unsupported, "running"},
		{catalog.Config{}, nil, "script/none.yaml", errs.NotFound, "path"},
		{catalog.Config{}, nil, "anthropic/", errs.NotFound, "vendor/id"},
		{catalog.Config{}, nil, "/x", errs.NotFound, "vendor/id"},
	}
	for _, c := range cases {
		m, err := newCatalog(t, c.config, c.env, down).Open(t.Context(), c.ask)
		if m != nil || errs.Of(err) != c.class || !strings.Contains(errs.Hint(err), c.hint) {
			t.Errorf("Open(%q) = %v, %v (%s, hint %q), want %s and a hint of %q", c.ask, m, err, errs.Of(err), errs.Hint(err), c.class, c.hint)
		}
	}
}

func TestOpen_readsKeysEachTimeAndShowsThemToNobody(t *testing.T) {
	seen := make(chan llmtest.Seen, 10)
	s := llmtest.NewServer(llmtest.Anthropic{}, func(_ int, got llmtest.Seen) llmtest.Reply {
		seen <- got
		return llmtest.Reply{Blocks: []llm.Block{llm.Text("ok")}}
	})
	defer s.Close()
	file := filepath.Join(t.TempDir(), "key")
	write := func(key string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newCatalog(t, catalog.Config{Models: []catalog.Entry{{
		Name: "m", Vendor: "anthropic", ID: "claude-sonnet-5", URL: s.URL + "/v1/", KeyFile: file,
		Headers: map[string]string{"X-Team": "header-secret"}, Effort: "low",
	}}}, nil, nobody)
	for _, key := range []string{"key-number-one", "key-number-two"} {
		write(key + "\n")
		m, err := c.Open(t.Context(), "m")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := llmtest.Ask(t.Context(), m, &llm.Request{Messages: []llm.Message{llm.User("hi")}}); err != nil {
			t.Fatal(err, s.Wrong())
		}
		got := <-seen
		if got.Key != key || got.Header.Get("X-Team") != "header-secret" || got.Request.Effort != "low" {
			t.Errorf("key %q, header %q, effort %q arrived", got.Key, got.Header.Get("X-Team"), got.Request.Effort)
		}
		list, err := json.Marshal(c.List(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		shown := fmt.Sprintf("%v %+v %#v %+v %s", m, m, m, c, list)
		if strings.Contains(shown, key) {
			t.Errorf("the key is shown: %s", shown)
		}
	}
	for _, bad := range []string{"", "\n", "two\nlines"} {
		write(bad)
		if _, err := c.Open(t.Context(), "m"); errs.Of(err) != errs.Unsupported || strings.Contains(fmt.Sprint(err), "lines\n") {
			t.Errorf("key file %q: %v", bad, err)
		}
	}
}

func TestOpen_respectsTheBaseURLsOfTheEnvironment(t *testing.T) {
	s := llmtest.NewServer(llmtest.OpenAI{}, llmtest.Replies(llmtest.Reply{Blocks: []llm.Block{llm.Text("ok")}}))
	defer s.Close()
	c := newCatalog(t, catalog.Config{}, env{"OPENAI_BASE_URL": s.URL}, nobody) // a gateway of one's own may need no key
	m, err := c.Open(t.Context(), "openai/gpt-5.5")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := llmtest.Ask(t.Context(), m, &llm.Request{Messages: []llm.Message{llm.User("hi")}}); err != nil {
		t.Error(err, s.Wrong())
	}
}

func TestInfo_comesFromTheConfigurationThenTheTableThenTheServer(t *testing.T) {
	no := false
	vllm, _ := lists(t, "vllm", `{"data":[{"id":"big","max_model_len":65536},{"id":"plain"}]}`)
	c := newCatalog(t, catalog.Config{Models: []catalog.Entry{
		{Name: "mine", Vendor: "anthropic", ID: "claude-opus-5-5", WindowTokens: 90_000, Media: &no, Price: llm.Price{Input: 1}},
		{Name: "unknown", Vendor: "openai", ID: "gpt-99"},
		{Name: "json", Vendor: "compat", ID: "tiny", URL: "http://127.0.0.1:1", WindowTokens: 4096, OutputTokensMax: 1024, Calling: llm.CallingJSON},
	}}, env{"ANTHROPIC_API_KEY": "sk", "OPENAI_API_KEY": "sk"}, []catalog.Server{vllm})
	for name, want := range map[string]llm.Info{
		"mine": {Name: "mine", Vendor: "anthropic", ID: "claude-opus-5-5", WindowTokens: 90_000, OutputTokensMax: 90_000, Price: llm.Price{Input: 1}},
		"anthropic/claude-haiku-4-5-20251001": {
			Name: "anthropic/claude-haiku-4-5-20251001", Vendor: "anthropic", ID: "claude-haiku-4-5-20251001",
			WindowTokens: 200_000, OutputTokensMax: 64_000, Media: true, Documents: true, Price: llm.Price{Input: 1, Output: 5, CacheRead: 0.1, CacheWrite: 1.25},
		},
		"unknown":    {Name: "unknown", Vendor: "openai", ID: "gpt-99", WindowTokens: 32_768, Guessed: true, Profile: llm.Profile{Edit: "apply_patch"}},
		"json":       {Name: "json", Vendor: "compat", ID: "tiny", WindowTokens: 4096, OutputTokensMax: 1024, Calling: llm.CallingJSON},
		"vllm/big":   {Name: "vllm/big", Vendor: "compat", ID: "big", WindowTokens: 65_536},
		"vllm/plain": {Name: "vllm/plain", Vendor: "compat", ID: "plain", WindowTokens: 32_768, Guessed: true},
	} {
		m, err := c.Open(t.Context(), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, m.Info()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A configured server is asked how large its windows are; a smaller one is believed
// before the configuration, and all of it once a minute.
func TestOpen_asksConfiguredServersForTheirWindows(t *testing.T) {
	s, asked := lists(t, "x", `{"data":[{"id":"vllm","max_model_len":8192},{"id":"llamacpp","meta":{"n_ctx":4096}},{"id":"silent"}]}`)
	entry := func(name, id, url string, window, output int) catalog.Entry {
		return catalog.Entry{Name: name, Vendor: "compat", ID: id, URL: url, WindowTokens: window, OutputTokensMax: output}
	}
	c := newCatalog(t, catalog.Config{Models: []catalog.Entry{
		entry("unset", "vllm", s.URL, 0, 0), entry("large", "vllm", s.URL+"/v1/", 200_000, 10_000), entry("small", "vllm", s.URL, 2048, 0),
		entry("llama", "llamacpp", s.URL+"/v1/chat/completions", 0, 0), entry("silent", "silent", s.URL, 0, 0), entry("down", "vllm", "http://127.0.0.1:1", 0, 0),
	}}, env{}, nil)
	for range 3 {
		for name, want := range map[string]struct {
			window, output int
			guessed        bool
		}{
			"unset": {8192, 0, false}, "large": {8192, 8192, false}, "small": {2048, 0, false}, "llama": {4096, 0, false},
			"silent": {32_768, 0, true}, "down": {32_768, 0, true},
		} {
			m, err := c.Open(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if i := m.Info(); i.WindowTokens != want.window || i.OutputTokensMax != want.output || i.Guessed != want.guessed {
				t.Errorf("%s: %+v", name, i)
			}
		}
	}
	if n := asked.Load(); n != 3 { // one for each URL that is written
		t.Errorf("the server was asked %d times", n)
	}
}

func TestOpen_asksLocalServersOnceAMinute(t *testing.T) {
	ollama, asked := lists(t, "ollama", `{"data":[{"id":"qwen3:8b"}]}`)
	c := newCatalog(t, catalog.Config{}, nil, []catalog.Server{ollama})
	for range 5 {
		if _, err := c.Open(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	c.List(t.Context())
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestOpen_doesNotRememberALookThatTheCallerLeft(t *testing.T) {
	ollama, _ := lists(t, "ollama", `{"data":[{"id":"qwen3:8b"}]}`)
	c := newCatalog(t, catalog.Config{}, nil, []catalog.Server{ollama})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Open(gone, ""); err == nil {
		t.Error("a cancelled call found a model")
	}
	if _, err := c.Open(t.Context(), ""); err != nil {
		t.Errorf("the next call is told of the last one's end: %v", err)
	}
}

func TestLocals_redirectsAreNotFollowed(t *testing.T) {
	var reached atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer elsewhere.Close()
	s := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	defer s.Close()
	c := newCatalog(t, catalog.Config{}, nil, []catalog.Server{{Name: "ollama", Title: "Ollama", URL: s.URL}})
	if _, err := c.Open(t.Context(), ""); err == nil || reached.Load() {
		t.Errorf("a redirect was followed: %v", err)
	}
}

const aScript = "replies:\n  - text: hello\n"

func TestScript_isOpenedByPathAndByName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(path, []byte(aScript), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCatalog(t, catalog.Config{Models: []catalog.Entry{{Name: "test", Vendor: "script", Script: path, WindowTokens: 5000}}}, nil, nobody)
	for _, name := range []string{"test", "script/" + path} {
		m, err := c.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		resp, _, err := llmtest.Ask(t.Context(), m, &llm.Request{Step: 1, Messages: []llm.Message{llm.User("hi")}})
		if err != nil || resp.Message.String() != "hello" || resp.Model != "s.yaml" || m.Info().ID != "s.yaml" || m.Info().Name != strings.ReplaceAll(name, path, "s.yaml") {
			t.Errorf("%s: %+v, %v, info %+v", name, resp, err, m.Info())
		}
		again, err := c.Open(t.Context(), name)
		if err != nil || again != m {
			t.Errorf("%s: opened twice, it is not the same model: %v", name, err)
		}
	}
	if err := os.WriteFile(path, []byte("replies:\n  - text: changed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := c.Open(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	if resp, _, err := llmtest.Ask(t.Context(), m, &llm.Request{Step: 1, Messages: []llm.Message{llm.User("hi")}}); err != nil || resp.Message.String() != "changed" {
		t.Errorf("%+v, %v", resp, err)
	}
	if m.Info().WindowTokens != 5000 {
		t.Errorf("window %d", m.Info().WindowTokens)
	}
}

func TestScript_showsNoPathToUsers(t *testing.T) {
	dir := t.TempDir()
	bad, none := filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "none.yaml")
	mute := filepath.Join(dir, "mute.yaml")
	for path, content := range map[string]string{bad: "replies:\n  - txet: hello\n", mute: "replies:\n  - {text: a, fail: {with: auth}}\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entries := []catalog.Entry{{Name: "bad", Vendor: "script", Script: bad}, {Name: "none", Vendor: "script", Script: none}}
	cases := []struct {
		name   string
		config catalog.Config
		env    env
		ask    string
		class  errs.Class
		says   string
	}{
		{"named, broken", catalog.Config{}, nil, "script/" + bad, errs.Invalid, "bad.yaml:2:5"},
		{"named, missing", catalog.Config{}, nil, "script/" + none, errs.NotFound, "script/none.yaml"},
		{"an entry, broken", catalog.Config{Models: entries}, nil, "bad", errs.Unsupported, "bad.yaml:2:5"},
		{"an entry, missing", catalog.Config{Models: entries}, nil, "none", errs.Unsupported, "model none"},
		{"the default, broken", catalog.Config{Model: "script/" + bad}, nil, "", errs.Unsupported, "bad.yaml:2:5"},
		{"the environment's, missing", catalog.Config{}, env{"SKETE_MODEL": "script/" + none}, "", errs.Unsupported, "script/none.yaml"},
	}
	for _, c := range cases {
		_, err := newCatalog(t, c.config, c.env, nobody).Open(t.Context(), c.ask)
		public := errs.Public(err) + " " + errs.Hint(err)
		if errs.Of(err) != c.class || !strings.Contains(public, c.says) || strings.Contains(public, dir) {
			t.Errorf("%s: %s %q, want %s and %q and no path", c.name, errs.Of(err), public, c.class, c.says)
		}
		if err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: the operator is not told which file: %v", c.name, err)
		}
	}
	c := newCatalog(t, catalog.Config{Model: "script/" + mute, Models: entries}, nil, nobody)
	m, err := c.Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = llmtest.Ask(t.Context(), m, &llm.Request{Step: 1, Messages: []llm.Message{llm.User("hi")}})
	if shown := fmt.Sprintf("%+v %v %s", m.Info(), err, errs.Public(err)); err == nil || strings.Contains(shown, dir) {
		t.Errorf("a failure shows %s", shown)
	}
	for _, l := range c.List(t.Context()) {
		if shown := fmt.Sprintf("%+v", l); strings.Contains(shown, dir) {
			t.Errorf("the list shows %s", shown)
		}
	}
}

// The example needs nothing of the host, and is nothing that a run gets unasked.
func TestExample_isThereByItsNameAlone(t *testing.T) {
	c := newCatalog(t, catalog.Config{}, nil, nobody)
	m, err := c.Open(t.Context(), "example")
	if err != nil {
		t.Fatal(err)
	}
	req := &llm.Request{Step: 1, Messages: []llm.Message{llm.User("Mend it.")}}
	resp, _, err := llmtest.Ask(t.Context(), m, req)
	if err != nil || !strings.Contains(resp.Message.String(), "I am a script, not a model") {
		t.Errorf("it says %v, %v", resp, err)
	}
	if i := m.Info(); i.Name != "example" || i.Vendor != "script" || i.Guessed || i.WindowTokens == 0 {
		t.Errorf("it says of itself %+v", i)
	}
	req.Step = 99
	if resp, _, err = llmtest.Ask(t.Context(), m, req); err != nil || !strings.Contains(resp.Message.String(), "Choose a real model") {
		t.Errorf("for work that is none of its own it says %v, %v", resp, err)
	}
	if m, err := c.Open(t.Context(), ""); err == nil {
		t.Errorf("without a model, a run gets %s", m.Info().Name)
	}
	for _, l := range c.List(t.Context()) {
		if l.Default || l.Source != "example" || l.State != catalog.Ready {
			t.Errorf("it is listed as %+v", l)
		}
	}
	mine := newCatalog(t, catalog.Config{Models: []catalog.Entry{{Name: "example", Vendor: "compat", ID: "x", URL: "http://127.0.0.1:1"}}}, nil, nobody)
	if m, err := mine.Open(t.Context(), "example"); err != nil || m.Info().Vendor != "compat" {
		t.Errorf("a configured model of that name is not it: %v, %v", m, err)
	}
}

func TestList(t *testing.T) {
	ollama, _ := lists(t, "ollama", `{"data":[{"id":"qwen3:8b"}]}`)
	up, _ := lists(t, "up", `{"data":[{"id":"x"}]}`)
	c := newCatalog(t, catalog.Config{Model: "up", Models: []catalog.Entry{
		{Name: "up", Vendor: "compat", ID: "x", URL: up.URL},
		{Name: "down", Vendor: "compat", ID: "x", URL: "http://127.0.0.1:1"},
		{Name: "keyless", Vendor: "openai", ID: "gpt-5.5"},
		{Name: "script", Vendor: "script", Script: "/nowhere.yaml"},
	}}, env{"ANTHROPIC_API_KEY": "sk"}, []catalog.Server{ollama})
	var got []string
	for _, m := range c.List(t.Context()) {
		line := fmt.Sprintf("%s %s %s", m.Info.Name, m.Source, m.State)
		if m.Default {
			line += " default"
		}
		got = append(got, line)
	}
	want := []string{
		"up configuration ready default", "down configuration down", "keyless configuration no_key", "script configuration down",
		"anthropic/claude-sonnet-5-5 environment key", "ollama/qwen3:8b local server ready",
		"example example ready",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestValidate_refusesWhatCannotWork(t *testing.T) {
	cases := []struct{ yaml, want string }{
		{`models: [{name: "", vendor: openai, id: x}]`, "no name"},
		{`models: [{name: "a b", vendor: openai, id: x}]`, "no name"},
		{`models: [{name: a, vendor: mistral, id: x}]`, "vendor"},
		{`models: [{name: a, vendor: openai}]`, "id is missing"},
		{`models: [{name: a, vendor: compat, id: x}]`, "url is missing"},
		{`models: [{name: a, vendor: compat, id: x, url: "ftp://x"}]`, "url"},
		{`models: [{name: a, vendor: compat, id: x, url: "localhost:8080"}]`, "url"},
		{`models: [{name: a, vendor: script}]`, "script"},
		{`models: [{name: a, vendor: openai, id: x, script: y}]`, "script"},
		{`models: [{name: a, vendor: openai, id: x, key_env: A, key_file: b}]`, "not both"},
		{`models: [{name: a, vendor: openai, id: x, window_tokens: -1}]`, "negative"},
		{`models: [{name: a, vendor: openai, id: x, window_tokens: 10, output_tokens_max: 11}]`, "larger"},
		{`models: [{name: a, vendor: openai, id: x, calling: xml}]`, "calling"},
		{`models: [{name: a, vendor: openai, id: x, price: {input: -1}}]`, "price"},
		{`models: [{name: a, vendor: openai, id: x, effort: huge}]`, "effort"},
		{`models: [{name: a, vendor: anthropic, id: x, summary: auto}]`, "summary"},
		{`models: [{name: a, vendor: openai, id: x, headers: {"X Y": z}}]`, "headers"},
		{`models: [{name: a, vendor: openai, id: x, headers: {X: "a\r\nb: c"}}]`, "headers"},
		{`models: [{name: a, vendor: openai, id: x}, {name: a, vendor: openai, id: y}]`, "twice"},
		{`model: nothing`, "there is no model nothing"},
	}
	for _, c := range cases {
		var config catalog.Config
		if err := yaml.UnmarshalWithOptions([]byte(c.yaml), &config, yaml.Strict()); err != nil {
			t.Fatalf("%s: %v", c.yaml, err)
		}
		if err := config.Validate(); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.yaml, err, c.want)
		}
	}
	good := `
model: local
models:
  - {name: local, vendor: compat, id: "qwen3:8b", url: "http://127.0.0.1:11434", window_tokens: 32768}
  - {name: opus, vendor: anthropic, id: claude-opus-5-5, key_env: MY_KEY, effort: high, price: {input: 4, output: 20, cache_read: 0.2, cache_write: 5}}
  - {name: gpt, vendor: openai, id: gpt-5.5, key_file: /run/secrets/openai, headers: {X-Team: a}, media: false, calling: json, output_tokens_max: 1000, summary: auto}
  - {name: play, vendor: script, script: fix.yaml}
`
	var config catalog.Config
	if err := yaml.UnmarshalWithOptions([]byte(good), &config, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if err := config.Validate(); err != nil {
		t.Error(err)
	}
}

// TestDocument: the configuration in docs/models.md is one that is taken.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	block, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("there is no block of YAML")
	}
	var config catalog.Config
	if err := yaml.UnmarshalWithOptions([]byte(block), &config, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if err := config.Validate(); err != nil || len(config.Models) < 4 {
		t.Errorf("%d models, %v", len(config.Models), err)
	}
}

// Families are known by the ends of their ids, wherever they are served.
func TestProfiles(t *testing.T) {
	var entries []catalog.Entry
	ids := map[string]string{
		"gpt-5.5": "apply_patch", "openai/gpt-5": "apply_patch", "gpt-4.1-mini": "apply_patch", "o3": "apply_patch", "o4-mini": "apply_patch",
		"gpt-4o": "", "gpt-oss:20b": "", "claude-opus-5-5": "", "qwen3:32b": "", "qwen3:8b": "", "o300": "", "Llama-3.1-13B": "",
		"SmolLM2-135M-Instruct": "serial", "qwen2.5:0.5b": "serial", "Qwen/Qwen2.5-1.5B-Instruct": "serial", "llama3.2:3b": "serial", "hf/TinyLlama-1.1B-Chat": "serial",
	}
	for id := range ids {
		entries = append(entries, catalog.Entry{Name: id, Vendor: "compat", ID: id, URL: "http://127.0.0.1:1"})
	}
	c := newCatalog(t, catalog.Config{Models: entries}, env{}, nil)
	for id, want := range ids {
		m, err := c.Open(t.Context(), id)
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		p := m.Info().Profile
		if got := p.Edit; p.Serial != (want == "serial") || p.Serial != (p.Advice != "") || !p.Serial && got != want {
			t.Errorf("%s: %+v, want %q", id, p, want)
		}
	}
}

// Google's models are there for programs; an agent that is to use one is told so.
func TestOpen_googleIsForPrograms(t *testing.T) {
	c := newCatalog(t, catalog.Config{}, env{"GOOGLE_API_KEY": "of-google", "GEMINI_API_KEY": "of-gemini", "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:1"}, nil)
	m, err := c.Open(t.Context(), "google/gemini-2.5-pro")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Info().ForAgents(); !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "programs in sandboxes") {
		t.Errorf("%v", err)
	}
	for _, err := range m.Stream(t.Context(), &llm.Request{}) {
		if err == nil || !strings.Contains(err.Error(), "programs in sandboxes") {
			t.Errorf("%v", err)
		}
	}
	e, err := c.Endpoint(t.Context(), "google/gemini-2.5-pro")
	if err != nil || e.Vendor != "google" || e.Key.Reveal() != "of-google" || e.URL != "http://127.0.0.1:1" || e.OutputTokensMax != 65_536 {
		t.Errorf("%+v, %v", e, err)
	}
	list := c.List(t.Context())
	if len(list) != 2 || list[0].Info.Name != "google/gemini-2.5-pro" || list[0].State != catalog.Keyed || !list[0].Default {
		t.Errorf("%+v", list)
	}
}
