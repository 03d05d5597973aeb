package guest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/skete-dev/skete/guest/wire"
)

// An agent reaches what its tools need of guest.v1, and nothing that rules the machine.
func TestAgentDoor(t *testing.T) {
	door := agentDoor(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for path, open := range map[string]bool{
		wire.ProcessStartProcedure: true, wire.FileReadProcedure: true, wire.ServiceListProcedure: true, wire.ControlHelloProcedure: true,
		wire.ControlShutdownProcedure: false, wire.ControlAdoptProcedure: false, wire.ControlStepClockProcedure: false, wire.ControlQuiesceProcedure: false,
		wire.HistoryApplyProcedure: false, wire.PortListProcedure: false, "/": false, "/x/../" + wire.ControlName + "/Shutdown": false,
		"/" + wire.ProcessName + "x/Start": false, wire.ControlHelloProcedure + "/": false,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "http://guest/", nil)
		r.URL.Path = path
		door.ServeHTTP(w, r)
		if got := w.Code == http.StatusTeapot; got != open {
			t.Errorf("%s: open %v", path, got)
		}
	}
}

// A stream that comes while the supervisor goes down is waited for or refused, and one that
// comes behind that is refused: no agent outlives it.
func TestAgents_endWhileStreamsBegin(t *testing.T) {
	for range 100 {
		a := newAgents(Config{Boot: wire.Boot{StateDir: t.TempDir()}}, http.NotFoundHandler())
		ctx, cancel := context.WithCancel(t.Context())
		var streams sync.WaitGroup
		begun := make(chan struct{})
		for range 4 {
			streams.Go(func() {
				<-begun
				begins(ctx, a)
			})
		}
		close(begun)
		cancel()
		a.Close()
		if n := len(a.slots); n != 0 {
			t.Fatalf("%d agents are left", n)
		}
		if got := begins(t.Context(), a); !strings.HasPrefix(got, "NO unavailable") {
			t.Fatalf("a stream behind the end is told %q", got)
		}
		streams.Wait()
	}
}

// begins opens the stream of an agent, of which no program is said, and returns what the
// host is told.
func begins(ctx context.Context, a *agents) string {
	host, conn := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		a.serve(ctx, conn)
	}()
	defer func() { <-served }()
	defer host.Close()
	line := make([]byte, 200)
	n, _ := io.ReadAtLeast(host, line, 1)
	return string(line[:n])
}
