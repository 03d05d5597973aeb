package anthropic

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// dialect marks the opaque data of this package in Block.Vendor.
const dialect = "anthropic"

// Limits and defaults.
const (
	silenceDefault       = 3 * time.Minute // pings come about every 15 seconds
	replyBytesMaxDefault = 32 << 20
	outputTokensDefault  = 16_000 // when neither the request nor the model says
	drainWait            = 200 * time.Millisecond
)

// Config says which model, where and how.
type Config struct {
	Info llm.Info // Info.ID is what the vendor calls it; Info.OutputTokensMax bounds every answer
	Key  llm.Key
	// URL is the base URL, with or without the version; "" = the vendor's own.
	URL string
	// Headers are added to every request; gateways want keys there.
	Headers map[string]llm.Key
	// HTTP carries the requests; nil = a client that follows no redirects.
	HTTP *http.Client
	// Silence is how long the server may send no event, 0 = 3 minutes.
	Silence time.Duration
	// ReplyBytesMax bounds a reply, 0 = 32 MiB.
	ReplyBytesMax int64
}

// Model is one model of the vendor.
type Model struct {
	c      Config
	form   form
	client sdk.Client
}

// New returns a model. It opens nothing. Invalid: there is no id, or the URL
// is none.
func New(c Config) (*Model, error) {
	if c.Info.ID == "" {
		return nil, errs.New(errs.Invalid, "model %s has no id", c.Info.Name)
	}
	if c.Info.Name == "" {
		c.Info.Name = c.Info.ID
	}
	c.Info.Vendor, c.Info.Documents = dialect, c.Info.Media
	if c.Silence <= 0 {
		c.Silence = silenceDefault
	}
	if c.ReplyBytesMax <= 0 {
		c.ReplyBytesMax = replyBytesMaxDefault
	}
	if c.HTTP == nil {
		c.HTTP = fault.HTTPClient()
	}
	opts := []option.RequestOption{
		option.WithoutEnvironmentDefaults(), // what is not configured must not act
		option.WithoutOpenTelemetry(),       // prompts go to the vendor and nowhere else
		option.WithMaxRetries(0),
		option.WithHTTPClient(c.HTTP),
		option.WithAPIKey(c.Key.Reveal()),
		option.WithHeader("Accept", "text/event-stream"),
	}
	if c.URL != "" {
		u, err := url.Parse(c.URL)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, errs.New(errs.Invalid, "the URL of model %s is not an http or https URL", c.Info.Name)
		}
		opts = append(opts, option.WithBaseURL(strings.TrimSuffix(strings.TrimRight(c.URL, "/"), "/v1")))
	}
	f := formOf(c.Info.ID)
	if f.bound {
		opts = append(opts, option.WithHeader("anthropic-beta", string(sdk.AnthropicBetaThinkingBindingControls2026_08_01)))
	}
	for name, value := range c.Headers {
		opts = append(opts, option.WithHeader(name, value.Reveal()))
	}
	return &Model{c: c, form: f, client: sdk.NewClient(opts...)}, nil
}

// Info implements llm.Model.
func (m *Model) Info() llm.Info { return m.c.Info }

// URL is the vendor's own base URL, which the SDK has too.
const URL = "https://api.anthropic.com"

// Stream implements llm.Model.
func (m *Model) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		err := m.stream(ctx, req, func(d llm.Delta) bool { return yield(d, nil) })
		if err != nil && !errors.Is(err, errLeft) {
			yield(llm.Delta{}, fault.Asked(err, cmp.Or(m.c.URL, URL)))
		}
	}
}

// secrets must not show in any error.
func (m *Model) secrets() []string {
	secrets := []string{m.c.Key.Reveal()}
	for _, v := range m.c.Headers {
		secrets = append(secrets, v.Reveal())
	}
	return secrets
}

// errLeft: the caller left the loop; yield must not be called any more.
var errLeft = errors.New("the caller left")

func (m *Model) stream(ctx context.Context, req *llm.Request, yield func(llm.Delta) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	body := m.encode(req)
	guard, inner := fault.NewGuard(ctx, m.c.Silence, m.c.ReplyBytesMax)
	defer guard.Close()
	f := failure{fault.Stream{
		Model: m.c.Info.Name, Ctx: ctx, Guard: guard, Request: req, Secrets: m.secrets(),
		BytesMax: m.c.ReplyBytesMax, Silence: m.c.Silence,
	}}

	var res *http.Response
	guard.Arm()
	err := m.client.Post(inner, "v1/messages", body, &res, option.WithMiddleware(
		func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			res, err := next(r)
			if err == nil {
				res.Body = guard.Body(res.Body)
			}
			return res, err
		}))
	guard.Disarm()
	if err != nil {
		return f.sent(err)
	}
	defer res.Body.Close()
	if err := f.NotStream(res); err != nil {
		return err
	}
	a := assembly{yield: yield, id: m.c.Info.ID, sent: len(body)}
	if err := m.read(ssestream.NewDecoder(res), guard, f, &a); err != nil {
		return err
	}
	r := a.response()
	if !yield(llm.Delta{Kind: llm.DeltaDone, Response: &r}) {
		return errLeft
	}
	guard.Drain(res.Body, drainWait)
	return nil
}

// read feeds the assembly until the message ends.
func (m *Model) read(dec ssestream.Decoder, guard *fault.Guard, f failure, a *assembly) error {
	for {
		guard.Arm()
		more := dec.Next()
		guard.Disarm()
		if !more {
			return f.Cut(dec.Err(), a.begun)
		}
		ev, err := parseEvent(dec.Event().Data)
		if err != nil {
			return f.Malformed(err)
		}
		if ev.Type == "error" {
			return f.late(ev.Error)
		}
		done, err := a.add(ev)
		switch {
		case errors.Is(err, errLeft):
			return err
		case err != nil:
			return f.Malformed(err)
		case done:
			return nil
		}
	}
}
