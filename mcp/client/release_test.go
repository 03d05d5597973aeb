package client_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/mcp/client"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// After a hundred runs no server of any of them is left in the machine, and no connection to
// one elsewhere is open.
func TestSource_Release(t *testing.T) {
	runs := 100
	if testing.Short() {
		runs = 10
	}
	m := newMachine(t)
	var open, most atomic.Int32
	web := httptest.NewUnstartedServer(streamable())
	web.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			most.Store(max(most.Load(), open.Add(1)))
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
	web.Start()
	t.Cleanup(web.Close)
	s := source(t, client.Config{Servers: map[string]client.Server{"good": m.server("good"), "web": {URL: web.URL}}})
	processes := func() int {
		found, err := filepath.Glob("/proc/[0-9]*/exe")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, exe := range found {
			if to, err := os.Readlink(exe); err == nil && strings.TrimSuffix(to, " (deleted)") == m.program {
				n++
			}
		}
		return n
	}
	for i := range runs {
		p := m.place
		p.Thread = thread.ID(fmt.Sprintf("thr_%d", i))
		tools, notes := found(t, s, p)
		for _, name := range []string{"mcp__good__look", "mcp__web__look"} {
			if got := call(t, s, p, tools[name], `{}`); got != "seen" {
				t.Fatalf("run %d, %s: %q, %v", i, name, got, notes)
			}
		}
		if i == 0 && (processes() != 1 || open.Load() == 0) {
			t.Fatalf("%d processes and %d connections are counted", processes(), open.Load())
		}
		s.Release(p.Tenant, p.Thread)
		s.Release(p.Tenant, p.Thread) // it may be repeated
	}
	patience.Try(t, 30*time.Second, "the servers are gone", func() error {
		if n, c := processes(), open.Load(); n != 0 || c != 0 {
			return fmt.Errorf("%d processes and %d connections are left", n, c)
		}
		return nil
	})
	if most.Load() > 10 {
		t.Errorf("%d connections were open at once", most.Load())
	}
}

// What is called elsewhere is told, and what was sent there and came back is not.
func TestSource_tellsWhatIsCalledElsewhere(t *testing.T) {
	m := newMachine(t)
	var told []client.Called
	s := source(t, client.Config{
		Servers: map[string]client.Server{"web": {URL: listen(t, streamable())}, "near": m.server("good")},
		Called:  func(c client.Called) { told = append(told, c) },
	})
	p := m.place
	p.Run = "run_1"
	tools, _ := found(t, s, p)
	call(t, s, p, tools["mcp__near__look"], `{}`) // in the machine
	call(t, s, p, tools["mcp__web__look"], `{}`)
	call(t, s, p, tools["mcp__web__fail"], `{}`)
	call(t, s, p, tools["mcp__read_resource"], `{"server":"web","uri":"note://1"}`)
	want := []client.Called{
		{Tenant: "t", Server: "web", Tool: "look", Run: "run_1", Result: "done", Bytes: 4},
		{Tenant: "t", Server: "web", Tool: "fail", Run: "run_1", Result: "failed", Bytes: 15},
		{Tenant: "t", Server: "web", Tool: "read_resource", Run: "run_1", Result: "done", Bytes: 28},
	}
	if diff := cmp.Diff(want, told, cmpopts.IgnoreFields(client.Called{}, "Took")); diff != "" {
		t.Error(diff)
	}
	for _, c := range told {
		if c.Took <= 0 {
			t.Errorf("%+v", c)
		}
	}
}

var _ tool.Releaser = (*client.Source)(nil)
