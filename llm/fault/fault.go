// Package fault turns what the server of a model vendor said into an
// *llm.Error: which trouble it is, how long to wait, and a text for the log
// that holds neither key nor prompt.
//
//	return fault.Status(info.Name, resp.StatusCode, resp.Header, fault.Message(body), req, key)
//
// Vendors agree on little: overflow comes as 400, 413, 422 or 500 with free
// text, and an empty purse as 429. So the text decides where it is plain, and
// the status decides the rest. The functions are pure.
package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/llm"
)

// Limits of what is believed.
const (
	TextMax       = 600           // bytes of a server's text that reach the log
	retryAfterMax = 1 * time.Hour // more is taken for a mistake
	quoteMin      = 20            // so many bytes in common with the prompt are a quotation
)

// Status returns the error that an HTTP answer with a failure means. said is
// what the server wrote, see Message; secrets are cut out of it, and so is what
// it quotes of req.
func Status(model string, status int, header http.Header, said string, req *llm.Request, secrets ...string) *llm.Error {
	e := &llm.Error{Trouble: Trouble(status, said), Status: status, Model: model, RetryAfter: RetryAfter(header)}
	if e.Trouble == llm.Overflow {
		e.WindowTokens, e.PromptTokens = Sizes(said)
	}
	if e.Said = Redact(said, req, secrets...); e.Said != "" {
		e.Cause = errors.New(e.Said)
	}
	return e
}

// Asked returns err with the address that was asked, if it is an error of a model.
func Asked(err error, address string) error {
	if e, ok := errors.AsType[*llm.Error](err); ok && e.URL == "" {
		e.URL = Address(address)
	}
	return err
}

// Address is a URL without user, query and fragment, where secrets may be; "" = it
// is none.
func Address(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Said returns the error that a failure inside a stream means: there is no
// status of HTTP, but perhaps a code in the text.
func Said(model string, code int, said string, req *llm.Request, secrets ...string) *llm.Error {
	e := Status(model, code, nil, said, req, secrets...)
	if code == 0 {
		e.Trouble = saidTrouble(said)
	}
	return e
}

// Broken returns the error of a connection that broke. cause may name the
// address of the server, nothing more.
func Broken(model string, cause error) *llm.Error {
	return &llm.Error{Trouble: llm.Transport, Model: model, Cause: cause}
}

// Senseless returns the error of an answer that makes no sense.
func Senseless(model, format string, args ...any) *llm.Error {
	return &llm.Error{Trouble: llm.Malformed, Model: model, Cause: fmt.Errorf(format, args...)}
}

// Trouble sorts an HTTP status and the text that came with it.
func Trouble(status int, said string) llm.Trouble {
	switch {
	case status == http.StatusRequestEntityTooLarge, overflowable(status) && Overflow(said):
		return llm.Overflow
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired,
		status == http.StatusTooManyRequests && purse().MatchString(said):
		return llm.Refused
	case status == http.StatusTooManyRequests:
		return llm.RateLimited
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		return llm.Overloaded
	case status >= 500:
		return llm.Overloaded
	}
	return llm.BadRequest
}

// overflowable: llama.cpp and Ollama answer 500 for prompts that do not fit.
func overflowable(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusUnprocessableEntity || status == http.StatusInternalServerError || status == 0
}

// purse is what vendors say when the account has no money, which no waiting mends.
var purse = pattern.Lazy(`(?i)insufficient_quota|exceeded your current quota|billing|credit balance|insufficient (credits|balance|funds)`)

// overflow has the wordings of servers, newest known ones of: Anthropic,
// OpenAI, vLLM, llama.cpp, Ollama, LM Studio, OpenRouter, TGI, SGLang,
// DeepSeek, Mistral, Gemini, Groq, Together, Bedrock.
var overflow = pattern.Lazy(`(?i)` + strings.Join([]string{
	`context_length_exceeded`,
	`exceed_context_size_error`,
	`model_max_prompt_tokens_exceeded`,
	`string_above_max_length`,
	`prompt is too long`,
	`prompt too long`,
	`prompt contains too many tokens`,
	`input is too long`,
	`input length and .max_tokens. exceed`,
	`input token count .{0,40}exceeds`,
	`too many (input )?tokens`,
	`maximum context length`,
	`maximum (model|input|prompt) length`,
	`(larger|longer|greater) than the (maximum )?(model'?s )?context`,
	`(exceeds?|exceeded|exceeding) (the |this |its )?(available |model'?s |model |maximum |configured |allowed )*(context|input (token )?limit|number of tokens)`,
	`context (length|size|window).{0,40}(exceed|overflow|too (small|long))`,
	`(exceed|overflow|outside).{0,40}context (length|size|window)`,
	`tokens to keep from the initial prompt is greater than the context`,
	`.inputs. tokens \+ .max_new_tokens. must be`,
	`reduce the length of the (messages|prompt|input)`,
	`requested tokens.{0,40}exceed.{0,20}context`,
}, "|"))

// Where servers say how large the window is, and how long the prompt.
var (
	saidWindow = pattern.Lazy(`(?i)` + strings.Join([]string{
		`n_ctx\D{0,3}(\d+)`,
		`maximum (?:model |input |prompt )?(?:context )?length (?:is|of) (\d+)`,
		`(\d+) maximum\b`,
		`context size \((\d+)`,
		`context length of only (\d+)`,
		`must be <= (\d+)`,
		`tokens allowed \((\d+)`,
		`context limit: [\d +]+> (\d+)`,
	}, "|"))
	saidPrompt = pattern.Lazy(`(?i)` + strings.Join([]string{
		`n_prompt_tokens\D{0,3}(\d+)`,
		`prompt is too long: (\d+)`,
		`(?:resulted in|requested|requested about) (\d+)`,
		`request \((\d+) tokens`,
		`prompt \(length (\d+)`,
		`prompt contains (\d+)`,
		`input token count \((\d+)`,
		`given: (\d+)`,
	}, "|"))
	thousands = pattern.Lazy(`(\d),(\d{3})\b`)
)

// What is believed of such numbers.
const windowMin, windowMax = 256, 100_000_000

// Sizes reads from a server's text how many tokens its window has, and how many the
// prompt; 0 = it does not say.
func Sizes(said string) (window, prompt int) {
	said = thousands().ReplaceAllString(said, "$1$2")
	number := func(found []string) int {
		for _, text := range found[min(1, len(found)):] {
			if n, err := strconv.Atoi(text); err == nil && n >= windowMin && n <= windowMax {
				return n
			}
		}
		return 0
	}
	return number(saidWindow().FindStringSubmatch(said)), number(saidPrompt().FindStringSubmatch(said))
}

// Overflow reports whether a server's text means that the prompt is too long.
func Overflow(said string) bool { return overflow().MatchString(said) }

var (
	saidRate    = pattern.Lazy(`(?i)rate.?limit|too many requests|\b429\b`)
	saidAuth    = pattern.Lazy(`(?i)authentication_error|permission_error|invalid.{0,12}api.?key|unauthori[sz]ed|\b401\b|\b403\b`)
	saidInvalid = pattern.Lazy(`(?i)invalid_request|bad.?request|not_found_error|\b400\b|\b404\b`)
)

// saidTrouble sorts a text alone. What it does not know is the server's fault,
// and may work when tried again.
func saidTrouble(said string) llm.Trouble {
	switch {
	case Overflow(said):
		return llm.Overflow
	case purse().MatchString(said), saidAuth().MatchString(said):
		return llm.Refused
	case saidRate().MatchString(said):
		return llm.RateLimited
	case saidInvalid().MatchString(said):
		return llm.BadRequest
	}
	return llm.Overloaded
}

// RetryAfter reads how long a server wants us to wait: Retry-After in seconds
// or as a date, or retry-after-ms. 0 = it did not say, or nothing sensible.
func RetryAfter(header http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(header.Get("Retry-After-Ms"), 64); err == nil {
		return sensible(ms * float64(time.Millisecond))
	}
	text := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return sensible(seconds * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return sensible(float64(time.Until(at)))
	}
	return 0
}

func sensible(ns float64) time.Duration {
	if !(ns > 0) { // NaN too
		return 0
	}
	return time.Duration(min(ns, float64(retryAfterMax)))
}

// Message finds what a server said in the body of a failure: the message of
// the usual JSON shapes with its type and code, the title of an HTML page, or
// the text itself.
func Message(body []byte) string { return message(body, 3) }

func message(body []byte, depth int) string {
	text := strings.TrimSpace(string(body))
	var shape struct {
		Error   json.RawMessage `json:"error"`
		Message json.RawMessage `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Type    json.RawMessage `json:"type"`
		Code    json.RawMessage `json:"code"`
		Window  int             `json:"n_ctx"`
		Prompt  int             `json:"n_prompt_tokens"`
	}
	switch {
	case depth == 0:
	case strings.HasPrefix(text, "["): // Gemini wraps its error in a list
		var list []json.RawMessage
		if json.Unmarshal([]byte(text), &list) == nil && len(list) > 0 && len(list[0]) < len(text) {
			return message(list[0], depth-1)
		}
	case strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &shape) == nil:
		if s, ok := str(shape.Error); ok && s != "" {
			return s
		}
		if len(shape.Error) > 2 && shape.Error[0] == '{' {
			return message(shape.Error, depth-1)
		}
		parts := words(shape.Type, shape.Code, shape.Message, shape.Detail)
		if shape.Window > 0 { // llama.cpp
			parts = append(parts, fmt.Sprintf("n_ctx %d, n_prompt_tokens %d", shape.Window, shape.Prompt))
		}
		if len(parts) > 0 {
			return strings.Join(parts, ": ")
		}
	case strings.HasPrefix(text, "<"):
		if m := title().FindStringSubmatch(text); m != nil {
			return "an HTML page: " + strings.TrimSpace(m[1])
		}
		return "an HTML page"
	}
	return text
}

var title = pattern.Lazy(`(?is)<title[^>]*>(.{0,200}?)</title>`)

func str(raw json.RawMessage) (string, bool) {
	var s string
	return s, len(raw) > 0 && json.Unmarshal(raw, &s) == nil
}

// words shows strings, numbers and short values.
func words(raws ...json.RawMessage) []string {
	var parts []string
	for _, raw := range raws {
		s, ok := str(raw)
		if !ok {
			s = string(raw)
		}
		if s != "" && s != "null" {
			parts = append(parts, s)
		}
	}
	return parts
}

// Redact makes what a server said fit for a log: printable, at most TextMax
// bytes, without the secrets and without what it quotes of the request. Some
// servers repeat the key or the whole prompt in their complaints.
func Redact(said string, req *llm.Request, secrets ...string) string {
	for _, s := range secrets {
		if len(s) >= 4 {
			said = strings.ReplaceAll(said, s, "***")
		}
	}
	said = strings.Join(strings.Fields(strings.ToValidUTF8(said, "?")), " ")
	cut := len(said) > TextMax
	if cut {
		said = strings.ToValidUTF8(said[:TextMax], "")
	}
	if req != nil {
		said = unquote(said, texts(req))
	}
	if cut {
		said += " …"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, said)
}

// texts returns all that people, tools and the model wrote, with white space as Redact has it.
func texts(req *llm.Request) []string {
	var all []string
	add := func(s string) {
		if len(s) >= quoteMin {
			all = append(all, strings.Join(strings.Fields(s), " "))
		}
	}
	for _, b := range req.System {
		add(b.Text)
	}
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			add(b.Text)
			if b.Call != nil {
				add(string(b.Call.Args))
			}
			if b.Result != nil {
				for _, part := range b.Result.Blocks {
					add(part.Text)
				}
			}
		}
	}
	return all
}

// unquote replaces stretches of said that stand in one of the texts. It looks
// at windows of quoteMin bytes: said is short, so this is quick enough for what
// happens on failures only.
func unquote(said string, texts []string) string {
	if len(said) < quoteMin {
		return said
	}
	quoted := make([]bool, len(said))
	for _, text := range texts {
		for i := 0; i+quoteMin <= len(said); i++ {
			if strings.Contains(text, said[i:i+quoteMin]) {
				for j := i; j < i+quoteMin; j++ {
					quoted[j] = true
				}
			}
		}
	}
	var b strings.Builder
	for i := 0; i < len(said); i++ {
		switch {
		case !quoted[i]:
			b.WriteByte(said[i])
		case i == 0 || !quoted[i-1]:
			b.WriteString("[…]")
		}
	}
	return strings.ToValidUTF8(b.String(), "")
}
