package catalog

import (
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
)

func TestEndpoint(t *testing.T) {
	c, err := New(Config{Models: []Entry{
		{Name: "fast", Vendor: Anthropic, ID: "claude-x", KeyEnv: "FAST_KEY", Headers: map[string]string{"X-Org": "o"}},
		{Name: "own", Vendor: Compat, ID: "small", URL: "http://127.0.0.1:8080"},
		{Name: "gone", Vendor: OpenAI, ID: "gpt-x", KeyEnv: "NOT_SET"},
		{Name: "play", Vendor: Script, Script: "play.yaml"},
	}}, Options{Getenv: func(name string) string { return map[string]string{"FAST_KEY": "k", "OPENAI_API_KEY": "o"}[name] }, Local: []Server{}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ vendor, id, key, at string }{
		"fast":           {Anthropic, "claude-x", "k", "https://api.anthropic.com/v1/messages"},
		"own":            {Compat, "small", "", "http://127.0.0.1:8080/v1/messages"},
		"openai/gpt-5.5": {OpenAI, "gpt-5.5", "o", "https://api.openai.com/v1/messages"},
	} {
		e, err := c.Endpoint(t.Context(), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		at, err := e.At("messages")
		if err != nil || at != want.at || e.Vendor != want.vendor || e.ID != want.id || e.Key.Reveal() != want.key || e.Name != name {
			t.Errorf("%s: %+v at %s, %v", name, e, at, err)
		}
	}
	for _, name := range []string{"gone", "play", "nothing", "anthropic/claude-x"} {
		if e, err := c.Endpoint(t.Context(), name); !errs.Is(err, errs.Unsupported) && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

func TestEndpoint_At(t *testing.T) {
	for _, c := range []struct{ vendor, url, want string }{
		{Anthropic, "https://a.example", "https://a.example/v1/chat/completions"},
		{Anthropic, "https://a.example/v1/", "https://a.example/v1/chat/completions"},
		{Anthropic, "https://a.example/proxy", "https://a.example/proxy/v1/chat/completions"},
		{OpenAI, "https://a.example", "https://a.example/chat/completions"},
		{OpenAI, "https://a.example/v1", "https://a.example/v1/chat/completions"},
		{Google, "https://a.example/x", "https://a.example/x/chat/completions"},
		{Compat, "http://a.example:1", "http://a.example:1/v1/chat/completions"},
		{Compat, "http://a.example:1/api/v3", "http://a.example:1/api/v3/chat/completions"},
		{Compat, "http://a.example:1/v1/chat/completions", "http://a.example:1/v1/chat/completions"},
		{Compat, "http://a.example:1/chat/completions", "http://a.example:1/chat/completions"},
		{Compat, "http://u:p@a.example", ""},
		{Compat, "ftp://a.example", ""},
		{Compat, "", ""},
	} {
		got, err := (Endpoint{Info: llm.Info{Vendor: c.vendor}, URL: c.url}).At("chat/completions")
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s at %s: %q, %v", c.vendor, c.url, got, err)
		}
	}
}

// A call that says its version has that one, whatever the URL says.
func TestEndpoint_At_version(t *testing.T) {
	for url, want := range map[string]string{
		"https://a.example": "https://a.example/v1beta/models/m%3F:generateContent", "https://a.example/v1beta/": "https://a.example/v1beta/models/m%3F:generateContent",
		"https://a.example/proxy/v1?key=1": "https://a.example/proxy/v1beta/models/m%3F:generateContent?key=1",
	} {
		for _, vendor := range []string{Google, Compat} {
			if got, err := (Endpoint{Info: llm.Info{Vendor: vendor}, URL: url}).At("v1beta/models/m?:generateContent"); err != nil || got != want {
				t.Errorf("%s at %s: %s, %v", vendor, url, got, err)
			}
		}
	}
}
