package openai

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/fault"
)

// dialect marks the opaque data of this package in Block.Vendor.
const dialect = "openai"

// URL is the vendor's own base URL.
const URL = "https://api.openai.com/v1"

// Limits and defaults.
const (
	silenceDefault       = 10 * time.Minute // the vendor says nothing while a model thinks
	replyBytesMaxDefault = 32 << 20
	drainWait            = 200 * time.Millisecond
	// repeats is how often the stream says everything: in deltas, at the end of
	// a part, of an item, and of the response.
	repeats = 4
)

// Config says which model, where and how.
type Config struct {
	Info llm.Info // Info.ID is what the vendor calls it; Info.OutputTokensMax bounds every answer
	Key  llm.Key
	// URL is the base URL with its version, as in URL; "" = the vendor's own.
	URL string
	// Headers are added to every request; gateways want keys there.
	Headers map[string]llm.Key
	// HTTP carries the requests; nil = a client that follows no redirects.
	HTTP *http.Client
	// Silence is how long the server may send no event, 0 = 10 minutes.
	Silence time.Duration
	// ReplyBytesMax bounds a reply, 0 = 32 MiB. The stream may be four times as
	// long, for it says everything four times.
	ReplyBytesMax int64
	// Summary asks for summaries of the reasoning: "auto", "concise",
	// "detailed"; "" = none, because the vendor gives them to verified
	// organisations only and refuses the request of others.
	Summary string
}

// Model is one model of the vendor.
type Model struct {
	c       Config
	reasons bool   // it is a reasoning model
	mark    string // how Vendor data of this model begins, see vendor.go
	service responses.ResponseService
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
	if c.URL == "" {
		c.URL = URL
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errs.New(errs.Invalid, "the URL of model %s is not an http or https URL", c.Info.Name)
	}
	return &Model{
		c: c, reasons: reasons(c.Info.ID), mark: markOf(c.Info.ID),
		service: responses.ResponseService{Options: options(c)},
	}, nil
}

// options are all that the service knows. The SDK's whole client would read a
// dozen variables of the environment, and what is not configured must not act;
// its package alone also takes a minute to compile.
func options(c Config) []option.RequestOption {
	opts := []option.RequestOption{
		option.WithBaseURL(c.URL),
		option.WithMaxRetries(0),
		option.WithHTTPClient(c.HTTP),
		option.WithHeader("Accept", "text/event-stream"),
	}
	if !c.Key.IsZero() {
		opts = append(opts, option.WithAPIKey(c.Key.Reveal()))
	}
	for name, value := range c.Headers {
		opts = append(opts, option.WithHeader(name, value.Reveal()))
	}
	return opts
}

// Info implements llm.Model.
func (m *Model) Info() llm.Info { return m.c.Info }

// Stream implements llm.Model.
func (m *Model) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		err := m.stream(ctx, req, func(d llm.Delta) bool { return yield(d, nil) })
		if err != nil && !errors.Is(err, errLeft) {
			yield(llm.Delta{}, fault.Asked(err, m.c.URL))
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
	guard, inner := fault.NewGuard(ctx, m.c.Silence, repeats*m.c.ReplyBytesMax)
	defer guard.Close()
	f := failure{fault.Stream{
		Model: m.c.Info.Name, Ctx: ctx, Guard: guard, Request: req, Secrets: m.secrets(),
		BytesMax: m.c.ReplyBytesMax, Silence: m.c.Silence,
	}}

	var res *http.Response
	body := m.encode(req)
	guard.Arm()
	_, err := m.service.New(inner, responses.ResponseNewParams{},
		option.WithRequestBody("application/json", body), option.WithResponseBodyInto(&res),
		option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			res, err := next(r)
			if err == nil {
				res.Body = guard.Body(res.Body)
			}
			return res, err
		}))
	guard.Disarm()
	if res != nil {
		defer res.Body.Close()
	}
	if err != nil {
		return f.sent(res, err)
	}
	if err := f.NotStream(res); err != nil {
		return err
	}
	a := assembly{yield: yield, m: m, sent: len(body)}
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

// read feeds the assembly until the response ends.
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
		if failed, is := ev.failed(); is {
			return f.late(failed)
		}
		done, err := a.add(ev)
		switch {
		case errors.Is(err, errLeft):
			return err
		case err != nil:
			return f.Malformed(err)
		case done:
			return a.finish()
		}
	}
}
