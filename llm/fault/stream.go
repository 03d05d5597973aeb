package fault

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/skete-dev/skete/llm"
)

// Stream makes the errors of one streamed request. None of them holds a secret
// or a part of the prompt, whatever the server quotes.
type Stream struct {
	Model    string
	Ctx      context.Context // the caller's
	Guard    *Guard
	Request  *llm.Request
	Secrets  []string
	BytesMax int64         // of the reply, as the guard has it
	Silence  time.Duration // likewise
}

// Ended returns the error of a request that we ended ourselves, nil if the
// server did.
func (s Stream) Ended() error {
	switch why := s.Guard.Cause(); {
	case errors.Is(why, ErrTooLong):
		return Senseless(s.Model, "%w: %d bytes", why, s.BytesMax)
	case why != nil:
		return Broken(s.Model, fmt.Errorf("%w: %v", why, s.Silence))
	}
	return s.Ctx.Err()
}

// Broken is for a connection that failed. It leaves the URL out of an error of
// net/http: it may hold a key.
func (s Stream) Broken(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return Broken(s.Model, errors.New(s.redact(err.Error())))
}

func (s Stream) redact(said string) string { return Redact(said, s.Request, s.Secrets...) }

// Status is for a refusal with a status, Said for one inside the stream.
func (s Stream) Status(status int, header http.Header, said string) *llm.Error {
	return Status(s.Model, status, header, said, s.Request, s.Secrets...)
}

// Said is for a failure that an event of the stream tells.
func (s Stream) Said(said string) *llm.Error {
	return Said(s.Model, 0, said, s.Request, s.Secrets...)
}

// NotStream is for a 2xx or 3xx that is no event stream: a proxy's page. nil:
// it is one.
func (s Stream) NotStream(res *http.Response) error {
	if res.StatusCode/100 == 3 {
		return &llm.Error{
			Trouble: llm.BadRequest, Status: res.StatusCode, Model: s.Model,
			Cause: errors.New("the server sends us elsewhere: the configured URL is not the right one"),
		}
	}
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err == nil && media == "text/event-stream" {
		return nil
	}
	return Senseless(s.Model, "the reply is no event stream but %q", s.redact(media))
}

// Cut is for a stream that ended before the reply did; begun says whether any
// event came.
func (s Stream) Cut(err error, begun bool) error {
	if ended := s.Ended(); ended != nil {
		return ended
	}
	if err != nil {
		return s.Broken(err)
	}
	if !begun && s.Guard.Bytes() > 0 {
		return Senseless(s.Model, "%d bytes came, and no event in them", s.Guard.Bytes())
	}
	return Broken(s.Model, errors.New("the stream ended before the reply did"))
}

// Malformed is for a reply that cannot be understood.
func (s Stream) Malformed(err error) error {
	return Senseless(s.Model, "%s", s.redact(err.Error()))
}
