package transport

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/internal/sse"
)

// sseBytesMax bounds one server-sent event.
const sseBytesMax = 4 << 20

// Event is one server-sent event.
type Event struct {
	ID, Name string
	Data     []byte
}

// eventReader reads the events of an answer.
type eventReader struct {
	r    *sse.Reader
	last string // id of the last event that had one
}

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{r: sse.NewReader(r, sseBytesMax)}
}

// next returns the next event that carries data, valid until the next call. An
// event that the end of the stream cut short is not returned.
func (s *eventReader) next() (Event, error) {
	ev, err := s.r.Next()
	switch {
	case errors.Is(err, sse.ErrTooLong):
		return Event{}, errs.New(errs.Internal, "an event of the server is larger than %d bytes", sseBytesMax)
	case err != nil:
		return Event{}, err
	case ev.Cut:
		return Event{}, io.EOF
	case ev.ID != "":
		s.last = ev.ID
	}
	return Event{ID: s.last, Name: ev.Name, Data: ev.Data}, nil
}

// Events follows a stream of JSON events and comes back after a disconnect at
// the event behind the last one seen.
func Events[T any](ctx context.Context, c *Client, path string, q url.Values, last string) iter.Seq2[T, error] {
	f := Follower{Client: c, Path: path, Query: q, Last: last}
	return Follow(ctx, &f, func(Event, *T) bool { return true })
}

// Follow is Events with a look at each event before it is passed on; more
// returns false for the last one.
func Follow[T any](ctx context.Context, f *Follower, more func(Event, *T) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		for {
			err := f.once(ctx, func(ev Event) (bool, error) {
				var v T
				if err := json.Unmarshal(ev.Data, &v); err != nil {
					return false, errs.Wrap(errs.Internal, err, "an event of the server is not what was agreed")
				}
				goOn := more(ev, &v)
				return yield(v, nil) && goOn, nil
			})
			if err == nil {
				return // the reader has enough
			}
			if err := f.Pause(ctx, err); err != nil {
				yield(zero, err)
				return
			}
		}
	}
}

// Once makes a call that answers with a stream of JSON events, and returns them
// until the stream ends. It does not come back after a disconnect, which is an
// error.
func Once[T any](ctx context.Context, c *Client, k Call) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		res, err := c.Do(ctx, k)
		if err != nil {
			yield(zero, err)
			return
		}
		defer res.Body.Close()
		for r := newEventReader(res.Body); ; {
			ev, err := r.next()
			if errors.Is(err, io.EOF) {
				return
			}
			var v T
			switch {
			case err != nil:
				err = Broken(ctx, err)
			case ev.Name == "problem":
				err = StreamProblem(ev.Data)
			default:
				err = json.Unmarshal(ev.Data, &v)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// Follower is the state of a stream over several connections.
type Follower struct {
	Client *Client
	Path   string
	Query  url.Values
	Last   string // id of the last event seen

	// Finite: a stream that ends properly has told all; it is not resumed.
	Finite bool
	// Silence is how long the server may send no event, not even a heartbeat,
	// before the connection counts as broken; 0 = for ever.
	Silence time.Duration

	attempt int
	broken  time.Time // when it was first seen broken
}

// once follows one connection. nil: take had enough.
func (f *Follower) once(ctx context.Context, take func(Event) (bool, error)) error {
	k := Get(f.Path, f.Query)
	k.Repeatable = false // pause decides
	k.Header = http.Header{"Accept": {"text/event-stream"}}
	if f.Last != "" {
		k.Header.Set("Last-Event-ID", f.Last)
	}
	conn, cut := context.WithCancel(ctx)
	defer cut()
	res, err := f.Client.Do(conn, k)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	f.Alive()
	r := newEventReader(res.Body)
	r.last = f.Last
	silence := f.Silence
	if silence == 0 {
		silence = math.MaxInt64
	}
	watch := time.AfterFunc(silence, cut)
	defer watch.Stop()
	for {
		watch.Reset(silence)
		ev, err := r.next()
		watch.Stop() // who takes the event may take its time
		if errors.Is(err, io.EOF) && f.Finite {
			return nil
		}
		if err != nil {
			return Broken(ctx, err)
		}
		if ev.Name == "problem" {
			return StreamProblem(ev.Data)
		}
		more, err := take(ev)
		if err != nil {
			return err
		}
		f.Last = ev.ID
		if !more {
			return nil
		}
	}
}

// Alive notes that the connection works.
func (f *Follower) Alive() { f.attempt = 0 }

// Pause waits before the next attempt, or returns the error that ends the stream.
func (f *Follower) Pause(ctx context.Context, err error) error {
	if ctx.Err() != nil || !errs.Temporary(err) {
		return err
	}
	now := time.Now()
	if f.attempt == 0 {
		f.broken = now
	}
	f.attempt++
	if now.Sub(f.broken) > f.Client.reconnect {
		return err
	}
	return sleep.For(ctx, Backoff(f.attempt))
}

// StreamProblem is the error that a problem on a stream means.
func StreamProblem(data []byte) error {
	var p api.Problem
	if err := json.Unmarshal(data, &p); err != nil {
		return errs.Wrap(errs.Internal, err, "the server's problem is not what was agreed")
	}
	return problem(p)
}
