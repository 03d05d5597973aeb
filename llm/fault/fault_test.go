package fault_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

func TestTrouble_knowsTheWordsOfServers(t *testing.T) {
	cases := []struct {
		status int
		said   string
		want   llm.Trouble
	}{
		{400, "prompt is too long: 215044 tokens > 200000 maximum", llm.Overflow},                                                                                     // Anthropic
		{400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", llm.Overflow},                                                            // Anthropic
		{400, "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.", llm.Overflow},                                    // OpenAI, vLLM
		{400, "Your input exceeds the context window of this model. Please adjust your input and try again.", llm.Overflow},                                           // OpenAI Responses
		{400, "invalid_request_error: context_length_exceeded: x", llm.Overflow},                                                                                      // OpenAI
		{400, "The decoder prompt (length 40000) is longer than the maximum model length of 32768.", llm.Overflow},                                                    // vLLM
		{400, "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 4096 tokens and your request has 20", llm.Overflow}, // vLLM
		{400, "the request exceeds the available context size, try increasing it", llm.Overflow},                                                                      // llama.cpp
		{400, "request (4321 tokens) exceeds the available context size (2048 tokens), try increasing it", llm.Overflow},                                              // llama.cpp
		{500, "Input prompt is too big compared to KV size, context size exceeded", llm.Overflow},                                                                     // llama.cpp, old
		{400, "input length exceeds the context length", llm.Overflow},                                                                                                // Ollama
		{500, "prompt too long; exceeded max context length by 5 tokens", llm.Overflow},                                                                               // Ollama
		{400, "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. The number of tokens to keep from the initial prompt is greater than the context length", llm.Overflow}, // LM Studio
		{400, "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens", llm.Overflow},                                                                                                                                                 // OpenRouter
		{422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000", llm.Overflow},                                                                                                                                                             // TGI
		{400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", llm.Overflow},                                                                                                                                                             // Gemini
		{400, "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", llm.Overflow},                                                                                                                                              // Mistral
		{400, "Please reduce the length of the messages or completion.", llm.Overflow},                                                                                                                                                                                             // Groq
		{413, "request too large", llm.Overflow},
		{400, "messages: at least one message is required", llm.BadRequest},
		{400, "'temperature' exceeds the maximum of 2", llm.BadRequest},
		{400, "tool name is too long", llm.BadRequest},
		{422, "extra inputs are not permitted", llm.BadRequest},
		{404, "model 'x' not found", llm.BadRequest},
		{307, "", llm.BadRequest},
		{401, "", llm.Refused},
		{403, "maximum context length", llm.Refused},
		{402, "Insufficient credits", llm.Refused},
		{429, "insufficient_quota: You exceeded your current quota, please check your plan and billing details.", llm.Refused},
		{429, "Rate limit reached for requests", llm.RateLimited},
		{429, "Number of request tokens has exceeded your per-minute rate limit", llm.RateLimited},
		{408, "", llm.Overloaded},
		{500, "internal error", llm.Overloaded},
		{503, "Loading model", llm.Overloaded},
		{529, "overloaded_error: Overloaded", llm.Overloaded},
	}
	for _, c := range cases {
		if got := fault.Trouble(c.status, c.said); got != c.want {
			t.Errorf("%d %q is %q, want %q", c.status, c.said, got, c.want)
		}
	}
}

// What servers say of sizes is used: it is better than any guess.
func TestSizes(t *testing.T) {
	for said, want := range map[string][2]int{
		"prompt is too long: 215044 tokens > 200000 maximum":                                                                       {200000, 215044},
		"prompt is too long: 215,044 tokens > 200,000 maximum":                                                                     {200000, 215044},
		"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000":                                              {200000, 0},
		"This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.":                      {8192, 9001},
		"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 more)": {4096, 5000},
		"The decoder prompt (length 40000) is longer than the maximum model length of 32768.":                                      {32768, 40000},
		"request (4321 tokens) exceeds the available context size (2048 tokens), try increasing it":                                {2048, 4321},
		"the model is loaded with context length of only 4096 tokens, which is not enough":                                         {4096, 0},
		"This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens":                      {131072, 140000},
		"`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000":                                                          {4096, 5000},
		"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).":                                  {1048576, 1200000},
		"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length":                   {32768, 40000},
		"exceed_context_size_error: 400: the request exceeds the available context size: n_ctx 2048, n_prompt_tokens 4321":         {2048, 4321},
		"the request exceeds the available context size, try increasing it":                                                        {0, 0},
		"maximum context length is 0 tokens":                                                                                       {0, 0},
		"maximum context length is 99999999999999999999 tokens":                                                                    {0, 0},
		"": {0, 0},
	} {
		window, prompt := fault.Sizes(said)
		if got := [2]int{window, prompt}; got != want {
			t.Errorf("%q: %v, want %v", said, got, want)
		}
	}
	llamacpp := `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":4321,"n_ctx":2048}}`
	e := fault.Status("m", 400, nil, fault.Message([]byte(llamacpp)), nil)
	if e.Trouble != llm.Overflow || e.WindowTokens != 2048 || e.PromptTokens != 4321 {
		t.Errorf("%+v", e)
	}
}

func FuzzSizes(f *testing.F) {
	f.Add("maximum context length is 8192 tokens, requested 9,001")
	f.Fuzz(func(t *testing.T, said string) {
		window, prompt := fault.Sizes(said)
		for _, n := range []int{window, prompt} {
			if n != 0 && (n < 256 || n > 100_000_000) {
				t.Errorf("%q: %d", said, n)
			}
		}
	})
}

func TestSaid_sortsTextsWithoutAStatus(t *testing.T) {
	for said, want := range map[string]llm.Trouble{
		"overloaded_error: Overloaded":            llm.Overloaded,
		"rate_limit_error: slow down":             llm.RateLimited,
		"authentication_error: invalid x-api-key": llm.Refused,
		"invalid_request_error: bad":              llm.BadRequest,
		"prompt is too long: 5 > 4":               llm.Overflow,
		"something":                               llm.Overloaded,
	} {
		if got := fault.Said("m", 0, said, nil).Trouble; got != want {
			t.Errorf("%q is %q, want %q", said, got, want)
		}
	}
}

func TestMessage_findsTheTextInEveryShape(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"m","type":"t","code":"c"}}`:                      "t: c: m",
		`{"error":{"message":"m","type":null,"code":400}}`:                     "400: m",
		`{"type":"error","error":{"type":"overloaded_error","message":"m"}}`:   "overloaded_error: m",
		`{"error":"model 'x' not found"}`:                                      "model 'x' not found",
		`{"object":"error","message":"m","type":"BadRequestError","code":400}`: "BadRequestError: 400: m",
		`{"detail":"Not Found"}`:                                               "Not Found",
		`{"detail":[{"loc":["body"],"msg":"field required"}]}`:                 `[{"loc":["body"],"msg":"field required"}]`,
		`[{"error":{"code":400,"message":"m","status":"INVALID"}}]`:            "400: m",
		"<html><head><title>502 Bad Gateway</title></head></html>":             "an HTML page: 502 Bad Gateway",
		"<p>x":          "an HTML page",
		" plain text\n": "plain text",
		`{"error":`:     `{"error":`,
		`{"x":1}`:       `{"x":1}`,
		`[[[[[`:         `[[[[[`,
		``:              ``,
	} {
		if got := fault.Message([]byte(body)); got != want {
			t.Errorf("%s\nis %q\nwant %q", body, got, want)
		}
	}
}

func TestRetryAfter_believesWhatIsSensible(t *testing.T) {
	for _, c := range []struct {
		key, value string
		want       time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After", "-3", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "Inf", time.Hour},
		{"Retry-After", "soon", 0},
		{"Retry-After", "999999999999", time.Hour},
		{"Retry-After", "Thu, 01 Jan 1970 00:00:00 GMT", 0},
		{"Retry-After-Ms", "250", 250 * time.Millisecond},
	} {
		h := http.Header{}
		h.Set(c.key, c.value)
		if got := fault.RetryAfter(h); got != c.want {
			t.Errorf("%s: %s is %s, want %s", c.key, c.value, got, c.want)
		}
	}
	h := http.Header{}
	h.Set("Retry-After", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat))
	if got := fault.RetryAfter(h); got < 50*time.Second || got > time.Minute {
		t.Errorf("a date in a minute is %s", got)
	}
}

func TestRedact_leavesNeitherKeyNorPrompt(t *testing.T) {
	secret := "sk-abcdef123456"
	req := &llm.Request{Messages: []llm.Message{
		llm.User("my mother's maiden name is Smith-Jones,\nkeep it quiet"),
		llm.Results(llm.Result{Blocks: []llm.Block{llm.Text("-----BEGIN PRIVATE KEY----- MIIEvQIBADANBg")}}),
	}}
	said := "bad key " + secret + ": 'my mother's maiden name is Smith-Jones, keep it quiet' and BEGIN PRIVATE KEY----- MIIEvQ\x1b[31m at messages[0]"
	got := fault.Redact(said, req, secret, "")
	for _, leak := range []string{secret, "maiden", "MIIE", "\x1b"} {
		if strings.Contains(got, leak) {
			t.Errorf("%q is left in %q", leak, got)
		}
	}
	for _, keep := range []string{"bad key ***", "at messages[0]"} {
		if !strings.Contains(got, keep) {
			t.Errorf("%q is missing in %q", keep, got)
		}
	}
	if got := fault.Redact(strings.Repeat("é", 5000), nil); len(got) > fault.TextMax+8 {
		t.Errorf("%d bytes are left", len(got))
	}
}
