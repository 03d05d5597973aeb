// Package compat asks models over the Chat Completions dialect that llama.cpp,
// vLLM, Ollama, LM Studio, OpenRouter and many others speak, each a little
// differently. It is patient with what it reads and plain in what it sends.
//
//	m, err := compat.New(compat.Options{
//		Info: llm.Info{Name: "local", ID: "qwen3-32b"},
//		URL:  "http://127.0.0.1:8080", // or …/v1, or any base of …/chat/completions
//	})
//
// What it forgives on the way in: reasoning under two names and in lists, usage
// that is missing or comes last, tool calls without index or id, with repeated
// ids, with arguments as an object, or written as text by weak templates (only
// when tools were offered), unknown reasons to stop, a stream without an end
// mark, a whole answer where a stream was asked for, an error inside a stream.
// Each has a tape in testdata. What it does not forgive: an answer that ends
// before it is complete, or is longer than Options.ReplyBytesMax.
//
// A Model is safe for concurrent use. It keeps the encoded form of messages
// that it saw, at most 32 MiB, because a run sends the same ones again and
// again; nothing else outlives a call. It follows no redirects and never tries
// again by itself.
package compat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// Options say where a model is and what its server bears. Zero values are good.
type Options struct {
	// Info describes the model; ID is what its server calls it, and OutputTokensMax
	// bounds every answer.
	Info llm.Info
	// URL is the server: its address, its base URL (…/v1), or the full address
	// of …/chat/completions.
	URL string
	Key llm.Key // may be empty
	// KeyHeader carries the key instead of "Authorization: Bearer".
	KeyHeader string
	Headers   map[string]llm.Key // more headers; gateways want keys there

	// Origin marks opaque data as this server's, which alone gets it back;
	// "" = the URL. Set it for a server that moves.
	Origin string

	// Silence is how long the server may send nothing, also before its first
	// byte; 0 = 5 minutes, for a local model reads a long prompt silently.
	Silence time.Duration
	// Whole bounds a call; 0 = 30 minutes.
	Whole time.Duration
	// ReplyBytesMax bounds one answer as it comes over the wire; 0 = 16 MiB.
	ReplyBytesMax int64

	// EchoReasoning sends plain reasoning back to the server that it came from,
	// as some models need between tool calls. What is opaque goes back always.
	EchoReasoning bool
	// NoStream asks for whole answers.
	NoStream bool
	// NoUsage leaves stream_options out, which some old servers refuse.
	NoUsage bool
	// NoTextCalls takes text as text, even if it looks like a tool call.
	NoTextCalls bool
	// CompletionTokens names the limit max_completion_tokens, not max_tokens.
	CompletionTokens bool

	// Transport is for tests and proxies; nil = one of its own.
	Transport http.RoundTripper
}

const (
	silenceDefault    = 5 * time.Minute
	wholeDefault      = 30 * time.Minute
	replyBytesDefault = 16 << 20
	failureBytesMax   = 64 << 10         // of a body that tells of a failure
	graceMax          = 3 * time.Second  // for the usage and the end mark, once the reason to stop is known
	idleConns         = 16               // that wait for reuse, per server
	idleMax           = 60 * time.Second // how long they do
)

// Model is one model of one server.
type Model struct {
	o      Options
	url    string
	from   string // marks opaque data as this server's
	client *http.Client
	memo   *memo
}

var _ llm.Model = (*Model)(nil)

// New checks the options; it asks the server nothing.
func New(o Options) (*Model, error) {
	address, err := endpoint(o.URL, "chat/completions")
	if err != nil {
		return nil, err
	}
	if o.Info.ID == "" {
		return nil, errs.New(errs.Invalid, "model %q: its server's name for it is missing", o.Info.Name).WithHint("set `id`")
	}
	if o.Info.Name == "" {
		o.Info.Name = o.Info.ID
	}
	o.Info.Vendor = "compat"
	o.Silence, o.Whole = orDuration(o.Silence, silenceDefault), orDuration(o.Whole, wholeDefault)
	if o.ReplyBytesMax <= 0 {
		o.ReplyBytesMax = replyBytesDefault
	}
	if o.Origin == "" {
		o.Origin = address
	}
	sum := sha256.Sum256([]byte(o.Origin + "\x00" + o.Info.ID))
	return &Model{o: o, url: address, from: hex.EncodeToString(sum[:8]), client: client(o.Transport), memo: newMemo()}, nil
}

func orDuration(d, or time.Duration) time.Duration {
	if d <= 0 {
		return or
	}
	return d
}

func client(t http.RoundTripper) *http.Client {
	if t == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.MaxIdleConnsPerHost, own.IdleConnTimeout = idleConns, idleMax
		own.DisableCompression = true // a stream that waits for a full block is none
		t = own
	}
	// A redirect would carry the prompt, and perhaps the key, elsewhere.
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// endpoint finds the address of a call from what people write: a bare address
// means /v1, anything with a path is a base, or the whole already.
func endpoint(text, call string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errs.New(errs.Invalid, "the URL of a model server is not usable").WithHint("it looks like http://127.0.0.1:8080 or https://example.org/api/v1")
	}
	if u.User != nil {
		return "", errs.New(errs.Invalid, "the URL of a model server holds a name or a password").WithHint("give the key by itself")
	}
	base := strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/chat/completions")
	if base == "" && !strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/chat/completions") {
		base = "/v1"
	}
	u.Path, u.RawPath, u.Fragment = base+"/"+call, "", ""
	return u.String(), nil
}

// ModelsURL is where a server lists its models, "" = the URL is none.
func ModelsURL(text string) string {
	address, err := endpoint(text, "models")
	if err != nil {
		return ""
	}
	return address
}

// Info implements llm.Model.
func (m *Model) Info() llm.Info { return m.o.Info }

// String names the model; the key is not shown.
func (m *Model) String() string { return "compat:" + m.o.Info.Name }

// GoString is String: %#v would show what is inside.
func (m *Model) GoString() string { return m.String() }

// Format makes every verb show String.
func (m *Model) Format(s fmt.State, _ rune) { fmt.Fprint(s, m.String()) }

// Stream implements llm.Model.
func (m *Model) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		c := &call{m: m, req: req, yield: yield}
		err := c.run(ctx)
		if err != nil && !errors.Is(err, errLeft) {
			yield(llm.Delta{}, fault.Asked(err, m.url))
		}
	}
}

// errLeft says that the caller left the loop.
var errLeft = errors.New("the caller left")
