package history

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
)

func (h *house) ends(t *testing.T, s *Service, written bool) {
	t.Helper()
	must(t, h.Files(t.Context(), tenant, id, func(ctx context.Context, f sandbox.Files) error {
		s.Ending(ctx, tenant, id, f, written)
		return nil
	}))
	s.Detaching(h.host())
	h.gone = true
}

// A sandbox whose only call made no revision has a history that begins at its end.
func TestEnding_beginsAHistory(t *testing.T) {
	h, s := newHouse(t)
	h.empty = true
	h.write(t, "a", "last")
	h.ends(t, s, true)
	his, _, err := s.Open(t.Context(), tenant, id)
	must(t, err)
	revs, err := his.Revisions(t.Context())
	must(t, err)
	if len(revs) != 2 || revs[0].Files != 0 || revs[1].Files != 1 || revs[1].Actor != workspace.Outside {
		t.Errorf("%+v", revs)
	}
}

// One that no call came to leaves none.
func TestEnding_ofWhatWasNeverCalled(t *testing.T) {
	h, s := newHouse(t)
	h.ends(t, s, false)
	if any, err := s.Any(tenant); err != nil || any {
		t.Errorf("it has a history, %v", err)
	}
}

// inMachine is a history whose files are in a machine.
type inMachine struct {
	workspace.History
	made []workspace.Label
}

func (m *inMachine) Snapshot(_ context.Context, l workspace.Label) (workspace.Revision, bool, error) {
	m.made = append(m.made, l)
	return workspace.Revision{}, true, nil
}

func (m *inMachine) Revisions(context.Context) ([]workspace.Revision, error) { return nil, nil }

func (m *inMachine) Close() error { return nil }

// guestOf is the least that a guest does; one that hangs answers nothing.
func guestOf(t *testing.T, hangs bool) *wire.Client {
	conns := make(chan net.Conn)
	mux := http.NewServeMux()
	mux.Handle(wire.NewControlHandler(&greeter{}))
	server := &http.Server{Handler: mux}
	over := make(chan struct{})
	go func() { defer close(over); _ = server.Serve(&listener{conns: conns, done: t.Context().Done()}) }()
	c := wire.NewClient(func(ctx context.Context, _ uint32) (net.Conn, error) {
		if hangs {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		here, there := net.Pipe()
		conns <- there
		return here, nil
	})
	t.Cleanup(func() { c.Close(); _ = server.Close(); <-over })
	return c
}

type greeter struct {
	wire.UnimplementedControlHandler
}

func (greeter) Hello(context.Context, *connect.Request[wire.HelloRequest]) (*connect.Response[wire.HelloResponse], error) {
	return connect.NewResponse(&wire.HelloResponse{Version: wire.Version}), nil
}

type listener struct {
	conns chan net.Conn
	done  <-chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *listener) Close() error   { return nil }
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "guest"} }

// A machine that has its disk to itself makes its last revision while it runs; one
// that does not answer holds its end up for a moment only.
func TestEnding_inTheMachine(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := &inMachine{}
			s := New(Config{Dir: t.TempDir(), Sandboxes: &house{tenant: tenant}, Remote: func(string, *wire.Client, *workspace.Label) (workspace.History, error) { return m, nil }})
			defer func() { must(t, s.Close()) }()
			s.Ending(t.Context(), tenant, id, sandbox.Files{Host: "host", Guest: guestOf(t, hangs)}, true)
			s.Detaching("host")
			want := 1
			if hangs {
				want = 0
			}
			if len(m.made) != want {
				t.Errorf("hangs %t: %+v", hangs, m.made)
			}
		})
	}
}
