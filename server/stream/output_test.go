package stream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a guest whose answers a test writes.
type script struct {
	wire.UnimplementedProcessHandler
	exec   func(*wire.StartRequest, func(*wire.AttachEvent)) error
	attach func(*wire.AttachRequest, func(*wire.AttachEvent)) error
	signal func()
	dials  atomic.Int32
}

func sender(st *connect.ServerStream[wire.AttachEvent]) func(*wire.AttachEvent) {
	return func(ev *wire.AttachEvent) { _ = st.Send(ev) }
}

func (s *script) Exec(_ context.Context, r *connect.Request[wire.StartRequest], st *connect.ServerStream[wire.AttachEvent]) error {
	return s.exec(r.Msg, sender(st))
}

func (s *script) Attach(_ context.Context, r *connect.Request[wire.AttachRequest], st *connect.ServerStream[wire.AttachEvent]) error {
	return s.attach(r.Msg, sender(st))
}

func (s *script) Signal(context.Context, *connect.Request[wire.SignalRequest]) (*connect.Response[wire.SignalResponse], error) {
	s.signal()
	return connect.NewResponse(&wire.SignalResponse{}), nil
}

func (s *script) client(t *testing.T) *wire.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(wire.NewProcessHandler(s))
	srv := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	c := wire.NewClient(func(ctx context.Context, _ uint32) (net.Conn, error) {
		s.dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
	t.Cleanup(func() { c.Close(); _ = srv.Close(); <-done })
	return c
}

func started() *wire.AttachEvent {
	return &wire.AttachEvent{Event: &wire.AttachEvent_Started{Started: &wire.ProcessInfo{Key: "k"}}}
}

func output(offset int64, data string) *wire.AttachEvent {
	return &wire.AttachEvent{Event: &wire.AttachEvent_Output{Output: &wire.Output{Stream: wire.Stream_STREAM_STDOUT, Offset: offset, Data: []byte(data)}}}
}

func gap(from, to int64) *wire.AttachEvent {
	return &wire.AttachEvent{Event: &wire.AttachEvent_Gap{Gap: &wire.Gap{Stream: wire.Stream_STREAM_STDOUT, From: from, To: to}}}
}

func exited() *wire.AttachEvent {
	return &wire.AttachEvent{Event: &wire.AttachEvent_Exited{Exited: &wire.ProcessInfo{Key: "k", State: wire.ProcessState_PROCESS_STATE_EXITED}}}
}

// read reads all events and returns what was written, "|" for a gap.
func read(t *testing.T, out *Output) (text string, starts int, err error) {
	t.Helper()
	defer out.Close()
	ctx, cancel := patience.Context(t.Context(), 20*time.Second)
	defer cancel()
	for {
		ev, err := out.Next(ctx)
		if err != nil || ev == nil {
			return text, starts, err
		}
		switch e := ev.GetEvent().(type) {
		case *wire.AttachEvent_Started:
			starts++
		case *wire.AttachEvent_Output:
			text += string(e.Output.GetData())
		case *wire.AttachEvent_Gap:
			text += "|"
		case *wire.AttachEvent_Exited:
			return text, starts, nil
		}
	}
}

// The supervisor in the guest dies and comes back: the reader sees one stream.
func TestOutputBridgesABrokenGuest(t *testing.T) {
	var attaches atomic.Int64
	s := &script{
		exec: func(_ *wire.StartRequest, send func(*wire.AttachEvent)) error {
			send(started())
			send(output(0, "abc"))
			panic(http.ErrAbortHandler)
		},
		attach: func(r *wire.AttachRequest, send func(*wire.AttachEvent)) error {
			switch attaches.Add(1) {
			case 1:
				panic(http.ErrAbortHandler)
			case 2:
				if !wire.MadeUp(r.Key) || r.StdoutFrom != 3 {
					return connect.NewError(connect.CodeInternal, errors.New("attached elsewhere"))
				}
				send(started())
				send(output(3, "de"))
				return nil // an end before the command's
			}
			send(started())
			send(gap(5, 7))
			send(output(7, "f"))
			send(exited())
			return nil
		},
	}
	text, starts, err := read(t, Start(s.client(t), &wire.StartRequest{Argv: [][]byte{[]byte("x")}}))
	if text != "abcde|f" || starts != 1 || err != nil {
		t.Errorf("%q, %d starts, %v", text, starts, err)
	}
}

// A start whose answer got lost is asked for again with the same key, which
// the guest made sure of; nothing runs twice.
func TestOutputRepeatsAStartWithItsKey(t *testing.T) {
	keys := make(chan string, 2)
	s := &script{exec: func(r *wire.StartRequest, send func(*wire.AttachEvent)) error {
		keys <- r.Key
		if len(keys) == 1 {
			panic(http.ErrAbortHandler)
		}
		send(started())
		send(exited())
		return nil
	}}
	if _, _, err := read(t, Start(s.client(t), &wire.StartRequest{})); err != nil {
		t.Fatal(err)
	}
	if first, second := <-keys, <-keys; first == "" || first != second {
		t.Errorf("keys %q and %q", first, second)
	}
}

func TestOutputFallsBackToTheNextProgram(t *testing.T) {
	s := &script{exec: func(r *wire.StartRequest, send func(*wire.AttachEvent)) error {
		if string(r.Argv[0]) == "/bin/bash" {
			return connect.NewError(connect.CodeNotFound, errors.New("command not found"))
		}
		send(started())
		send(output(0, string(r.Argv[0])))
		send(exited())
		return nil
	}}
	argv := func(s string) *wire.StartRequest { return &wire.StartRequest{Argv: [][]byte{[]byte(s)}} }
	if text, _, err := read(t, Start(s.client(t), argv("/bin/bash"), argv("/bin/sh"))); text != "/bin/sh" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if _, _, err := read(t, Start(s.client(t), argv("/bin/bash"))); !errs.Is(err, errs.NotFound) {
		t.Errorf("no other program: %v", err)
	}
}

func TestOutputRefusesDisorder(t *testing.T) {
	for name, events := range map[string][]*wire.AttachEvent{
		"a hole":            {started(), output(0, "abc"), output(5, "x")},
		"a repetition":      {started(), output(0, "abc"), output(0, "abc")},
		"a negative offset": {started(), output(-1, "abc")},
		"a backward gap":    {started(), output(0, "abc"), gap(3, 1)},
		"a gap elsewhere":   {started(), gap(7, 9)},
	} {
		t.Run(name, func(t *testing.T) {
			play := func(send func(*wire.AttachEvent)) error {
				for _, ev := range events {
					send(ev)
				}
				return nil
			}
			s := &script{
				exec:   func(_ *wire.StartRequest, send func(*wire.AttachEvent)) error { return play(send) },
				attach: func(_ *wire.AttachRequest, send func(*wire.AttachEvent)) error { return play(send) },
			}
			if _, _, err := read(t, Start(s.client(t), &wire.StartRequest{})); !errs.Is(err, errs.Unavailable) {
				t.Errorf("err %v", err)
			}
		})
	}
}

// When the sandbox is gone, the reader learns why, at once.
func TestOutputEndsWithItsSandbox(t *testing.T) {
	s := &script{exec: func(_ *wire.StartRequest, send func(*wire.AttachEvent)) error {
		send(started())
		panic(http.ErrAbortHandler)
	}}
	out := Start(s.client(t), &wire.StartRequest{})
	out.Alive = func(context.Context) error { return errs.New(errs.Conflict, "out of memory") }
	if _, _, err := read(t, out); !errs.Is(err, errs.Conflict) || errs.Public(err) != "out of memory" {
		t.Errorf("err %v", err)
	}
}

// A guest that says nothing is left when the caller's time is over.
func TestOutputOfASilentGuest(t *testing.T) {
	release := make(chan struct{})
	s := &script{exec: func(*wire.StartRequest, func(*wire.AttachEvent)) error {
		<-release
		return nil
	}}
	c := s.client(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errs.New(errs.Unavailable, "the server stops")
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	out := Start(c, &wire.StartRequest{})
	_, err := out.Next(ctx)
	out.Close()
	close(release)
	if !errors.Is(err, cause) {
		t.Errorf("err %v", err)
	}
}

func TestHub(t *testing.T) {
	h := NewHub(2)
	ctx1, release1, err := h.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	_, release2, err := h.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Open(t.Context(), "a"); !errs.Is(err, errs.Limit) {
		t.Errorf("a third of one owner: %v", err)
	}
	ctxB, releaseB, err := h.Open(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	h.Cut("a")
	if !errs.Is(context.Cause(ctx1), errs.Denied) || ctxB.Err() != nil {
		t.Errorf("cut: %v, %v", context.Cause(ctx1), ctxB.Err())
	}
	release1()
	release1() // may be repeated
	release2()
	if h.Count() != 1 {
		t.Errorf("%d are open", h.Count())
	}
	late, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := h.Close(late); err == nil || !errs.Is(context.Cause(ctxB), errs.Unavailable) {
		t.Errorf("close does not wait: %v; told %v", err, context.Cause(ctxB))
	}
	releaseB()
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, _, err := h.Open(t.Context(), "c"); !errs.Is(err, errs.Unavailable) {
		t.Errorf("after the end: %v", err)
	}
}
