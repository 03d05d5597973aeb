package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	eventlog "github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/gateway"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server"
)

// spending is models of which every sandbox has used as much.
type spending gateway.Spent

func (spending) Models(context.Context) []api.Model { return []api.Model{} }

func (s spending) Spent(context.Context, string) (gateway.Spent, error) {
	return gateway.Spent(s), nil
}

func newModelsWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, func(p sandbox.Provider) sandbox.Provider { return networked{p} }, func(c *server.Config) {
		c.Networks, c.Models = decisions{}, spending{Calls: 3, Tokens: 40, CostUSD: 0.5}
	})
}

// What the programs of a sandbox may use of models is made with it, replaced, taken away
// and given again.
func TestSandboxModels(t *testing.T) {
	w := newModelsWorld(t)
	sb := w.create(t, api.CreateSandbox{Network: "none", Models: &api.ModelGrant{Models: []string{"fast", "careful"}, Tokens: 100}})
	if sb.Models == nil || len(sb.Models.Models) != 2 {
		t.Errorf("%+v", sb.Models)
	}
	used := api.ModelsUsed{Calls: 3, Tokens: 40, CostUSD: 0.5}
	of := "/v1/sandboxes/" + sb.ID + "/models"
	is := func(when string, want api.SandboxModels, method string, body any) {
		t.Helper()
		var got api.SandboxModels
		w.call(t, w.admin, method, of, body, http.StatusOK, &got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", when, d)
		}
	}
	is("at first", api.SandboxModels{Models: []string{"fast", "careful"}, Tokens: 100, Used: used}, http.MethodGet, nil)
	next := api.SandboxModels{Models: []string{"fast"}, CostUSD: 2.5, PerMinute: 10, Used: used}
	is("replaced", next, http.MethodPut, api.SetSandboxModels{Models: []string{"fast"}, CostUSD: 2.5, PerMinute: 10})
	is("later", next, http.MethodGet, nil)
	none := api.SandboxModels{Models: []string{}, Used: used}
	is("none", none, http.MethodPut, api.SetSandboxModels{Models: []string{}})
	is("none, again", none, http.MethodPut, api.SetSandboxModels{Models: []string{}})
	is("given again", api.SandboxModels{Models: []string{"fast"}, Used: used}, http.MethodPut, api.SetSandboxModels{Models: []string{"fast"}})
}

// Another tenant does not see what a sandbox uses; a key that reads changes nothing.
func TestSandboxModels_refused(t *testing.T) {
	w := newModelsWorld(t)
	sb := w.create(t, api.CreateSandbox{Network: "none", Models: &api.ModelGrant{Models: []string{"fast"}}})
	of := "/v1/sandboxes/" + sb.ID + "/models"
	other, _ := w.key(t, "other", "read", "write")
	reader, _ := w.key(t, "default", "read")
	change := api.SetSandboxModels{Models: []string{"dear"}}
	for name, tt := range map[string]struct {
		got    answer
		status int
		text   string
	}{
		"another tenant reads":   {w.send(t, other, http.MethodGet, of, nil), http.StatusNotFound, ""},
		"another tenant changes": {w.send(t, other, http.MethodPut, of, change), http.StatusNotFound, ""},
		"a reader changes":       {w.send(t, reader, http.MethodPut, of, change), http.StatusForbidden, ""},
		"no name":                {w.send(t, w.admin, http.MethodPut, of, api.SetSandboxModels{Models: []string{""}}), http.StatusBadRequest, "no name of a model"},
		"without a network": {
			w.send(t, w.admin, http.MethodPut, "/v1/sandboxes/"+w.create(t, api.CreateSandbox{Network: "none"}).ID+"/models", change),
			http.StatusNotImplemented, "without a network",
		},
	} {
		if tt.got.status != tt.status || !strings.Contains(string(tt.got.body), tt.text) {
			t.Errorf("%s: %d %s", name, tt.got.status, tt.got.body)
		}
	}
	var got api.SandboxModels
	if w.call(t, w.admin, http.MethodGet, of, nil, http.StatusOK, &got); len(got.Models) != 1 || got.Models[0] != "fast" {
		t.Errorf("%+v", got)
	}
}

// A call of a program is an event, with what all have used.
func TestFollowEvents_models(t *testing.T) {
	w := newWorld(t)
	stream := w.events(t, "/v1/events?kind=models", "")
	at := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	data, err := json.Marshal(gateway.Use{
		N: 7, At: at, Model: "fast", Status: 200, Usage: llm.Usage{Input: 50, CacheRead: 5, Output: 7}, CostUSD: 0.25, First: time.Second, Took: 2 * time.Second,
		Spent: gateway.Spent{Calls: 9, Tokens: 900, CostUSD: 3},
	})
	must(t, err)
	w.store.Events().Append(eventlog.Event{Time: at, Tenant: "default", Node: "test", Kind: eventlog.Models, ID: "sbx_a", State: "used", Revision: 7, Data: data})
	var got api.Event
	must(t, json.Unmarshal(stream.must("models.used").data, &got))
	want := api.ModelCall{
		N: 7, Time: at, Model: "fast", Status: 200, TokensIn: 55, TokensOut: 7, CostUSD: 0.25, FirstMS: 1000, TookMS: 2000,
		Used: api.ModelsUsed{Calls: 9, Tokens: 900, CostUSD: 3},
	}
	if d := cmp.Diff(&want, got.Models); d != "" || got.ID != "sbx_a" {
		t.Errorf("of %s: %s", got.ID, d)
	}
}
