package stream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// pipes is a listener for connections within a bubble of time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// within serves a guest in the bubble until the test ends.
func within(t *testing.T, path string, h http.Handler) *wire.Client {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle(path, h)
	srv := &http.Server{Handler: mux}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(p) })
	c := wire.NewClient(func(ctx context.Context, _ uint32) (net.Conn, error) {
		here, there := net.Pipe()
		select {
		case p.conns <- there:
			return here, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	t.Cleanup(func() { c.Close(); _ = srv.Close(); wg.Wait() })
	return c
}

func withinProcess(t *testing.T, s *script) *wire.Client {
	path, h := wire.NewProcessHandler(s)
	return within(t, path, h)
}

func TestOutput_silentGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		defer close(never)
		guest := withinProcess(t, &script{exec: func(_ *wire.StartRequest, send func(*wire.AttachEvent)) error {
			send(started())
			for range 20 { // it lives, and the command is quiet
				<-time.After(10 * time.Second)
				send(&wire.AttachEvent{Event: &wire.AttachEvent_Keepalive{Keepalive: &wire.Keepalive{}}})
			}
			<-never
			return nil
		}})
		out := Start(guest, &wire.StartRequest{})
		defer out.Close()
		asked := 0
		out.Still = func(context.Context) bool { asked++; return asked < 3 } // it is paused for a while
		begin := time.Now()
		var err error
		for n := 0; err == nil; n++ {
			_, err = out.Next(t.Context())
		}
		if !errors.Is(err, ErrSilent) || errs.Temporary(err) || !strings.Contains(errs.Public(err), "does not answer") {
			t.Errorf("%v", err)
		}
		if took, want := time.Since(begin), 200*time.Second+3*SilenceMax; took != want || asked != 3 {
			t.Errorf("after %v, asked %d times; want %v", took, asked, want)
		}
	})
}

// A guest that does not even begin to answer is silent too; who goes away does
// not wait for that.
func TestOutput_silentFromTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		defer close(never)
		guest := withinProcess(t, &script{exec: func(*wire.StartRequest, func(*wire.AttachEvent)) error { <-never; return nil }})
		out := Start(guest, &wire.StartRequest{})
		if _, err := out.Next(t.Context()); !errors.Is(err, ErrSilent) {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		out = Start(guest, &wire.StartRequest{})
		if _, err := out.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// A call does not wait long for a machine that cannot be reached; a stream that has
// begun waits as for any other.
func TestOutput_unreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unreachable := errs.New(errs.Unavailable, "the service does not answer").WithCode(errs.Unreachable)
		nowhere := wire.NewClient(func(context.Context, uint32) (net.Conn, error) { return nil, unreachable })
		for name, c := range map[string]struct {
			out   *Output
			least time.Duration
		}{
			"start":      {Start(nowhere, &wire.StartRequest{}), reachFor},
			"attach":     {Attach(nowhere, "k", -1, -1, true), reachFor},
			"in the way": {&Output{guest: nowhere, key: "k", started: true}, bridgeFor},
		} {
			begin := time.Now()
			if _, err := c.out.Next(t.Context()); errs.Code(err) != errs.Unreachable || !errs.Temporary(err) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(begin); took < c.least || took > c.least+bridgeMax {
				t.Errorf("%s: after %v", name, took)
			}
		}
		for begun, least := range map[bool]time.Duration{false: reachFor, true: bridgeFor} {
			begin := time.Now()
			src := &Source[wire.LogsResponse]{begun: begun, Open: func(ctx context.Context) (*connect.ServerStreamForClient[wire.LogsResponse], error) {
				return nowhere.Service.Logs(ctx, connect.NewRequest(&wire.LogsRequest{}))
			}}
			_, err := src.Next(t.Context())
			if took := time.Since(begin); errs.Code(err) != errs.Unreachable || took < least || took > least+bridgeMax {
				t.Errorf("begun %v: after %v: %v", begun, took, err)
			}
		}
	})
}

type logs struct {
	wire.UnimplementedServiceHandler
	serve func(*wire.LogsRequest, func(*wire.LogsResponse)) error
}

func (l *logs) Logs(_ context.Context, r *connect.Request[wire.LogsRequest], st *connect.ServerStream[wire.LogsResponse]) error {
	return l.serve(r.Msg, func(m *wire.LogsResponse) { _ = st.Send(m) })
}

func logOf(t *testing.T, serve func(*wire.LogsRequest, func(*wire.LogsResponse)) error) *Source[wire.LogsResponse] {
	path, h := wire.NewServiceHandler(&logs{serve: serve})
	guest, req := within(t, path, h), &wire.LogsRequest{}
	return &Source[wire.LogsResponse]{
		End: ErrEnd,
		Note: func(m *wire.LogsResponse) error {
			req.From += int64(len(m.GetOutput().GetData()))
			return nil
		},
		Open: func(ctx context.Context) (*connect.ServerStreamForClient[wire.LogsResponse], error) {
			return guest.Service.Logs(ctx, connect.NewRequest(req))
		},
	}
}

func logged(text string) *wire.LogsResponse {
	return &wire.LogsResponse{Event: &wire.LogsResponse_Output{Output: &wire.Output{Data: []byte(text)}}}
}

func TestSource_silentGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		defer close(never)
		src := logOf(t, func(_ *wire.LogsRequest, send func(*wire.LogsResponse)) error {
			for range 20 { // it lives, and the service is quiet
				select {
				case <-time.After(10 * time.Second):
				case <-never:
				}
				send(&wire.LogsResponse{Event: &wire.LogsResponse_Keepalive{Keepalive: &wire.Keepalive{}}})
			}
			<-never
			return nil
		})
		defer src.Close()
		asked := 0
		src.Still = func(context.Context) bool { asked++; return asked < 3 } // it is paused for a while
		begin := time.Now()
		var err error
		for err == nil {
			_, err = src.Next(t.Context())
		}
		if !errors.Is(err, ErrSilent) || errs.Temporary(err) {
			t.Errorf("%v", err)
		}
		if took, want := time.Since(begin), 200*time.Second+3*SilenceMax; took != want || asked != 3 {
			t.Errorf("after %v, asked %d times; want %v", took, asked, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		if _, err := src.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("who goes away waited %v: %v", time.Since(begin), err)
		}
	})
}

// A connection that breaks is made again at the place that was reached; the
// guest's own end and its refusals are final.
func TestSource_goesOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		src := logOf(t, func(r *wire.LogsRequest, send func(*wire.LogsResponse)) error {
			if tries++; tries > 3 {
				return nil
			}
			send(logged(string(rune('a' + r.GetFrom()))))
			return connect.NewError(connect.CodeUnavailable, errors.New("supervise starts anew"))
		})
		defer src.Close()
		var got string
		for {
			m, err := src.Next(t.Context())
			if err != nil {
				if !errors.Is(err, ErrEnd) {
					t.Error(err)
				}
				break
			}
			got += string(m.GetOutput().GetData())
		}
		if got != "abc" || tries != 4 {
			t.Errorf("%q in %d tries", got, tries)
		}
		src = logOf(t, func(*wire.LogsRequest, func(*wire.LogsResponse)) error {
			return connect.NewError(connect.CodeUnavailable, errors.New("supervise never comes back"))
		})
		defer src.Close()
		begin := time.Now()
		if _, err := src.Next(t.Context()); !errs.Is(err, errs.Unavailable) || time.Since(begin) < bridgeFor || time.Since(begin) > bridgeFor+time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}
