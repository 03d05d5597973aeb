package client_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/mcp/client"
	"github.com/skete-dev/skete/tool"
)

// states are how the servers are, without times; each state has one.
func states(t *testing.T, s *client.Source, tenant string) []client.Status {
	t.Helper()
	list := s.Servers(tenant)
	for i, st := range list {
		if (st.State == client.Unused) != st.Since.IsZero() || time.Since(st.Since) < 0 {
			t.Errorf("%+v", st)
		}
		list[i].Since = time.Time{}
		if _, wrote, ok := strings.Cut(st.Error, "; it wrote: "); ok { // how it ended may not be known yet
			list[i].Error = wrote
		}
	}
	return list
}

// A program that does not start is broken, with what it wrote; when it starts again it works.
func TestSource_Servers(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	sick := client.Server{Command: "/bin/sh", Args: []string{"-c", `test -e well || { echo no such license >&2; exit 3; }; exec "$0"`, m.program}, Env: map[string]string{"TEST_MCP_SERVER": "good"}}
	s := source(t, client.Config{Servers: map[string]client.Server{"sick": sick, "spare": {URL: "http://127.0.0.1:1", Agents: []string{"b"}}}})
	spare := client.Status{Server: "spare", Transport: "http", Agents: []string{"b"}, State: client.Unused}
	is := func(what string, want client.Status) {
		t.Helper()
		want.Server, want.Transport = "sick", "stdio"
		if d := cmp.Diff([]client.Status{want, spare}, states(t, s, "")); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	is("at first", client.Status{State: client.Unused})
	found(t, s, m.place)
	is("without what it needs", client.Status{Tenant: "t", State: client.Broken, Failures: 1, Error: "no such license"})
	begun := s.Servers("")[0].Since
	if err := os.WriteFile(filepath.Join(m.Workdir, "well"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tools, _ := found(t, s, m.place)
	is("with it", client.Status{Tenant: "t", State: client.Working, Tools: 12, Sessions: 1})
	if !s.Servers("")[0].Since.After(begun) {
		t.Error("since is not since the state")
	}
	call(t, s, m.place, tools["mcp__sick__die"], `{}`)
	is("after a crash", client.Status{Tenant: "t", State: client.Broken, Tools: 12, Failures: 1, Error: "something broke"})
	call(t, s, m.place, tools["mcp__sick__count"], `{}`)
	other := m.place
	other.Thread = "thr_2"
	found(t, s, other)
	is("in two threads", client.Status{Tenant: "t", State: client.Working, Tools: 12, Sessions: 2})
	ill := m.place
	ill.Thread = "thr_3"
	if err := os.Remove(filepath.Join(m.Workdir, "well")); err != nil {
		t.Fatal(err)
	}
	found(t, s, ill)
	is("when it does not start for a third", client.Status{Tenant: "t", State: client.Broken, Tools: 12, Sessions: 2, Failures: 1, Error: "no such license"})
	call(t, s, other, tools["mcp__sick__count"], `{}`)
	is("when it works on for others", client.Status{Tenant: "t", State: client.Working, Tools: 12, Sessions: 2})
	s.Release("t", "thr_1")
	is("when one is gone", client.Status{Tenant: "t", State: client.Working, Tools: 12, Sessions: 1})
}

// A tenant sees what it may use, as it was for the tenant itself.
func TestSource_ServersOfTenants(t *testing.T) {
	var shut atomic.Bool
	its := good()
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return its }, &sdk.StreamableHTTPOptions{Stateless: true})
	url := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shut.Load() {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	}))
	s := source(t, client.Config{Servers: map[string]client.Server{"ours": {URL: url}, "theirs": {URL: url, Tenants: []string{"x"}}}})
	working := client.Status{Server: "ours", Tenant: "t", Transport: "http", State: client.Working, Tools: 12, Sessions: 1}
	tools, _ := found(t, s, elsewhere)
	shut.Store(true)
	refused := client.Status{
		Server: "ours", Tenant: "u", Transport: "http", State: client.Refused, Failures: 1,
		Error: "it answers 403 Forbidden: name a secret of the tenant that is granted for this host in mcp.servers.ours.secrets",
	}
	found(t, s, tool.Place{Tenant: "u", Agent: "a", Thread: "thr_2"})
	theirs := client.Status{Server: "theirs", Transport: "http", State: client.Unused}
	for tenant, want := range map[string][]client.Status{
		"t": {working}, "u": {refused}, "v": {{Server: "ours", Transport: "http", State: client.Unused}}, "": {working, refused, theirs},
		"x": {{Server: "ours", Transport: "http", State: client.Unused}, theirs},
	} {
		if d := cmp.Diff(want, states(t, s, tenant)); d != "" {
			t.Errorf("%q: %s", tenant, d)
		}
	}
	call(t, s, elsewhere, tools["mcp__ours__look"], `{}`)
	if got := states(t, s, "t")[0]; got.State != client.Refused || got.Failures != 1 || !strings.Contains(got.Error, "403") {
		t.Errorf("a server that refuses a call: %+v", got)
	}
	shut.Store(false)
	patience.Until(t, 20*time.Second, "the server to be asked again", func() bool { // the old session ends by and by
		return call(t, s, elsewhere, tools["mcp__ours__look"], `{}`) == "seen"
	})
	if d := cmp.Diff([]client.Status{working}, states(t, s, "t")); d != "" {
		t.Error(d)
	}
}
