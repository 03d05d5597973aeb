package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/egress/proxy"
	"github.com/skete-dev/skete/egress/registry"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/network"
	"github.com/skete-dev/skete/server"
)

// networked is a provider that says that its machines have a network.
type networked struct{ sandbox.Provider }

func (n networked) Capabilities() sandbox.Capabilities {
	c := n.Provider.Capabilities()
	c.Network = true
	return c
}

// decisions is what was decided, of whatever sandbox.
type decisions []network.Decision

func (d decisions) Decisions(_ sandbox.ID, from uint64) []network.Decision {
	return d[min(max(from, 1)-1, uint64(len(d))):]
}

func (decisions) Registries() registry.Set {
	return registry.Set{Sources: []registry.Source{{Tool: "pip", URL: "https://py.example.com:8443/simple"}}}
}

var decidedAt = time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)

func newNetworkWorld(t *testing.T) *world {
	t.Helper()
	list := decisions{
		{Decision: proxy.Decision{At: decidedAt, Host: "a.example.com", Port: 443, Method: "GET", Path: "/x", Allowed: true, Rule: "a.example.com read"}, N: 1, Times: 3},
		{Decision: proxy.Decision{At: decidedAt, Host: "b.example.com", Port: 22, Why: "no rule allows it"}, N: 2, Times: 1},
	}
	return newWorldOn(t, func(p sandbox.Provider) sandbox.Provider { return networked{p} }, func(c *server.Config) { c.Networks = list })
}

// A policy is made with its sandbox, read and replaced whole; what was decided is listed
// from a number on.
func TestNetwork(t *testing.T) {
	w := newNetworkWorld(t)
	var info api.Info
	w.call(t, w.admin, http.MethodGet, "/v1/info", nil, http.StatusOK, &info)
	if d := cmp.Diff([]string{"network"}, info.Providers[0].Can); d != "" {
		t.Error(d)
	}
	rules := []api.NetworkRule{{Host: "*.example.com", Ports: []int{443}, Access: "read"}, {Host: "b.example.com", Methods: []string{"POST"}, Paths: []string{"/v1/**"}}}
	sb := w.create(t, api.CreateSandbox{Egress: &api.NetworkPolicy{Allow: rules, Deny: []api.NetworkRule{{Host: "c.example.com"}}}})
	of := "/v1/sandboxes/" + sb.ID + "/network"
	want := api.NetworkPolicy{Profile: "none", Allow: rules, Deny: []api.NetworkRule{{Host: "c.example.com"}}}
	var got api.NetworkPolicy
	w.call(t, w.admin, http.MethodGet, of, nil, http.StatusOK, &got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	want, got = api.NetworkPolicy{Profile: "open", Deny: []api.NetworkRule{{Host: "d.example.com", Ports: []int{25}}}}, api.NetworkPolicy{}
	w.call(t, w.admin, http.MethodPut, of, want, http.StatusOK, &got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	got = api.NetworkPolicy{}
	w.call(t, w.admin, http.MethodGet, of, nil, http.StatusOK, &got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	var after api.Sandbox
	w.call(t, w.admin, http.MethodGet, "/v1/sandboxes/"+sb.ID, nil, http.StatusOK, &after)
	if after.Network != "open" {
		t.Errorf("the sandbox's network is %q", after.Network)
	}
	var log api.NetworkLog
	w.call(t, w.admin, http.MethodGet, of+"/log?from=2", nil, http.StatusOK, &log)
	if d := cmp.Diff([]api.NetworkDecision{{N: 2, Time: decidedAt, Times: 1, Host: "b.example.com", Port: 22, Why: "no rule allows it"}}, log.Items); d != "" {
		t.Error(d)
	}
}

// Who may not see a sandbox does not see where it connects; who may only read does not
// change that.
func TestNetwork_refused(t *testing.T) {
	w := newNetworkWorld(t)
	sb := w.create(t, api.CreateSandbox{Network: "open"})
	of := "/v1/sandboxes/" + sb.ID + "/network"
	other, _ := w.key(t, "other", "read", "write")
	reader, _ := w.key(t, "default", "read")
	open := api.NetworkPolicy{Profile: "open"}
	for name, tt := range map[string]struct {
		got    answer
		status int
		text   string
	}{
		"another tenant reads":   {w.send(t, other, http.MethodGet, of, nil), http.StatusNotFound, ""},
		"another tenant changes": {w.send(t, other, http.MethodPut, of, open), http.StatusNotFound, ""},
		"another tenant's log":   {w.send(t, other, http.MethodGet, of+"/log", nil), http.StatusNotFound, ""},
		"a reader changes":       {w.send(t, reader, http.MethodPut, of, open), http.StatusForbidden, ""},
		"a profile twice":        {w.send(t, w.admin, http.MethodPost, "/v1/sandboxes", api.CreateSandbox{Egress: &open}), http.StatusBadRequest, "network names"},
		"two mistakes": {
			w.send(t, w.admin, http.MethodPut, of, api.NetworkPolicy{Allow: []api.NetworkRule{{Host: "https://a.example.com"}, {Host: "10.0.0.1"}}}),
			http.StatusBadRequest, "allow[1].host",
		},
	} {
		if tt.got.status != tt.status || !strings.Contains(string(tt.got.body), tt.text) {
			t.Errorf("%s: %d %s", name, tt.got.status, tt.got.body)
		}
	}
	var same api.NetworkPolicy
	w.call(t, w.admin, http.MethodGet, of, nil, http.StatusOK, &same)
	if d := cmp.Diff(open, same); d != "" {
		t.Error(d)
	}
	plain := newWorld(t)
	if got := plain.send(t, plain.admin, http.MethodPost, "/v1/sandboxes", api.CreateSandbox{Network: "open"}); got.status != http.StatusNotImplemented || !strings.Contains(string(got.body), "isolates") {
		t.Errorf("where machines have no network: %d %s", got.status, got.body)
	}
	if got := plain.send(t, plain.admin, http.MethodGet, "/v1/sandboxes/"+plain.sandbox()+"/network/log", nil); got.status != http.StatusNotImplemented {
		t.Errorf("where there are no networks: %d %s", got.status, got.body)
	}
}
