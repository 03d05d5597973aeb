package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/route"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func contains(b []byte, s string) bool { return bytes.Contains(b, []byte(s)) }

// The routes and the rights that they need, as a page to read in a review.
func TestRoutesAreGolden(t *testing.T) {
	w := newWorld(t)
	var lines []string
	for _, r := range w.server.Routes() {
		where := ""
		if r.Local {
			where = " (unix socket)"
		}
		lines = append(lines, fmt.Sprintf("%-62s %-7s %s%s", r.Path, r.Method, r.Scope, where))
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	name := filepath.Join("testdata", "routes.golden")
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want, err := os.ReadFile(name)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run with -update and read the difference:\n%s", diff)
	}
}

// Package api promises routes in a comment; they must be the ones that are served.
func TestRoutesAreTheContract(t *testing.T) {
	w := newWorld(t)
	served := map[string]bool{}
	for _, r := range w.server.Routes() {
		if path, ok := strings.CutPrefix(r.Path, "/v1"); ok {
			served[r.Method+" "+path] = true
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "api", "doc.go"))
	must(t, err)
	promised := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^//\t(GET|POST|PUT|PATCH|DELETE)\s+(\S+)`).FindAllStringSubmatch(string(text), -1) {
		for _, path := range alternatives(m[2]) {
			promised[m[1]+" "+path] = true
		}
	}
	if diff := cmp.Diff(promised, served); diff != "" || len(served) < 40 {
		t.Errorf("promised (-), served (+):\n%s", diff)
	}
}

// alternatives turns /x/{a,b} into /x/a and /x/b.
func alternatives(path string) []string {
	m := regexp.MustCompile(`^(.*)\{([a-z]+(?:,[a-z]+)+)\}$`).FindStringSubmatch(path)
	if m == nil {
		return []string{path}
	}
	var all []string
	for alt := range strings.SplitSeq(m[2], ",") {
		all = append(all, m[1]+alt)
	}
	return all
}

func TestOpenAPIIsWhole(t *testing.T) {
	w := newWorld(t)
	a := w.send(t, "", http.MethodGet, "/openapi.json", nil)
	var doc struct {
		OpenAPI string
		Info    struct{ Title, Version string }
		Paths   map[string]map[string]struct {
			OperationID string
			Summary     string
			Parameters  []struct {
				Name, In string
				Required bool
				Schema   map[string]any
			}
			RequestBody *struct {
				Content map[string]struct{ Schema map[string]any }
			}
			Responses map[string]struct {
				Description string
				Content     map[string]struct{ Schema map[string]any }
			}
			Security []map[string][]string
		}
		Components struct {
			Schemas         map[string]any
			SecuritySchemes map[string]any
		}
	}
	must(t, json.Unmarshal(a.body, &doc))
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") || doc.Info.Title == "" || doc.Info.Version != "test" {
		t.Errorf("document says openapi %q, info %+v", doc.OpenAPI, doc.Info)
	}
	documented, ids := map[string]bool{}, map[string]bool{}
	for path, item := range doc.Paths {
		for method, op := range item {
			name := strings.ToUpper(method) + " " + path
			documented[name] = true
			if op.OperationID == "" || ids[op.OperationID] || op.Summary == "" {
				t.Errorf("%s: operation id %q, summary %q", name, op.OperationID, op.Summary)
			}
			ids[op.OperationID] = true
			if len(op.Responses) < 2 {
				t.Errorf("%s: responses %v", name, op.Responses)
			}
			for code, res := range op.Responses {
				if res.Description == "" {
					t.Errorf("%s: response %s has no description", name, code)
				}
			}
			if _, ok := op.Responses["default"].Content["application/problem+json"]; !ok {
				t.Errorf("%s: no problem among its answers", name)
			}
			if len(op.Security) == 0 {
				t.Errorf("%s: no security", name)
			}
			for _, param := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				found := false
				for _, p := range op.Parameters {
					found = found || p.In == "path" && p.Name == param[1] && p.Required
				}
				if !found {
					t.Errorf("%s: path parameter %s is not described", name, param[1])
				}
			}
		}
	}
	for _, r := range w.server.Routes() {
		if strings.HasPrefix(r.Path, "/v1/") && !documented[r.Method+" "+r.Path] {
			t.Errorf("%s %s is not in the document", r.Method, r.Path)
		}
	}
	for _, m := range regexp.MustCompile(`"#/components/schemas/(\w+)"`).FindAllSubmatch(a.body, -1) {
		if doc.Components.Schemas[string(m[1])] == nil {
			t.Errorf("schema %s is referred to and not there", m[1])
		}
	}
	if doc.Components.Schemas["Problem"] == nil || doc.Components.SecuritySchemes["bearer"] == nil {
		t.Error("no Problem or no bearer scheme")
	}
	y := w.send(t, "", http.MethodGet, "/openapi.yaml", nil)
	if y.status != http.StatusOK || !contains(y.body, "openapi: 3.1.") {
		t.Errorf("yaml: %d %.100s", y.status, y.body)
	}
}

// The page must work without any other host, and a browser must hold it to that.
func TestDocsWorkOffline(t *testing.T) {
	w := newWorld(t)
	for path, contentType := range map[string]string{"/docs": "text/html", "/docs/docs.js": "text/javascript", "/docs/docs.css": "text/css"} {
		a := w.send(t, "", http.MethodGet, path, nil)
		if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), contentType) {
			t.Errorf("%s: %d %s", path, a.status, a.header.Get("Content-Type"))
		}
		if csp := a.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") {
			t.Errorf("%s: policy %q", path, csp)
		}
		if contains(a.body, "://") || contains(a.body, "innerHTML") || regexp.MustCompile(`(?i)\son\w+=|<style|style=`).Match(a.body) {
			t.Errorf("%s refers to another host, or the policy would stop it", path)
		}
		if contentType == "text/html" {
			for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllSubmatch(a.body, -1) {
				if got := w.send(t, "", http.MethodGet, string(m[1]), nil); got.status != http.StatusOK {
					t.Errorf("the page needs %s: %d", m[1], got.status)
				}
			}
		}
	}
}

func TestHealth(t *testing.T) {
	var sick atomic.Bool
	w := newWorld(t, func(c *serverConfig) {
		healthy := c.Ready
		c.Ready = func(ctx context.Context) error {
			if sick.Load() {
				return errors.New("secret cause /var/lib/x")
			}
			return healthy(ctx)
		}
	})
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := w.send(t, "", http.MethodGet, path, nil); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	sick.Store(true)
	a := w.send(t, "", http.MethodGet, "/readyz", nil)
	a.problem(t, http.StatusServiceUnavailable)
	if contains(a.body, "secret") {
		t.Errorf("the cause is shown: %s", a.body)
	}
	if !strings.Contains(w.log.String(), "secret cause") {
		t.Error("the cause is not in the log")
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.exec(t, api.StartProcess{Argv: []string{"/bin/true"}}).rest()
	w.events(t, "/v1/sandboxes/events", "")
	for deadline := time.Now().Add(patience.Of(10 * time.Second)); w.server.Streams() != 1 && time.Now().Before(deadline); {
		w.call(t, w.admin, http.MethodGet, "/healthz", nil, http.StatusOK, nil) // the exec's stream is about to end
	}
	a := w.send(t, w.admin, http.MethodGet, "/metrics", nil)
	for _, line := range []string{
		`skete_http_request_duration_seconds_count{code="201",route="POST /v1/sandboxes"} 1`,
		`skete_sandboxes{provider="process",state="running"} 1`,
		`skete_sandbox_create_duration_seconds_count{result="ok"} 1`,
		"skete_commands_started_total 1",
		"skete_streams_open 1",
		"go_goroutines ",
		"process_resident_memory_bytes ",
	} {
		if !contains(a.body, line) {
			t.Errorf("no %s", line)
		}
	}
	if contains(a.body, "sbx_") {
		t.Error("a sandbox's id is a label: there would be a series for each")
	}
}

// counted is a provider whose machines have a monitor that counts.
type counted struct {
	sandbox.Provider
	made atomic.Int64
}

func (p *counted) Create(ctx context.Context, b sandbox.Boot) (sandbox.Machine, error) {
	m, err := p.Provider.Create(ctx, b)
	if err != nil {
		return nil, err
	}
	return &monitored{Machine: m, n: p.made.Add(1)}, nil
}

// monitored counts n times what the first one counts.
type monitored struct {
	sandbox.Machine
	n     int64
	asked atomic.Int64
}

func (m *monitored) Counts(context.Context) (sandbox.Counts, error) {
	n := m.n * m.asked.Add(1)
	return sandbox.Counts{
		DiskReadBytes: n, DiskWrittenBytes: 2 * n, DiskReads: 3 * n, DiskWrites: 4 * n,
		DiskThrottled: 5 * n, ChannelInBytes: 6 * n, ChannelOutBytes: 7 * n, Denied: 8 * n,
	}, nil
}

func TestMetrics_whatMonitorsCountIsSummedByProvider(t *testing.T) {
	w := newWorldOn(t, func(p sandbox.Provider) sandbox.Provider { return &counted{Provider: p} })
	shows := func(factor int) {
		t.Helper()
		a := w.send(t, w.admin, http.MethodGet, "/metrics", nil)
		for n, name := range []string{"disk_read_bytes", "disk_written_bytes", "disk_reads", "disk_writes", "disk_throttled", "channel_in_bytes", "channel_out_bytes", "denied_calls"} {
			line := fmt.Sprintf("skete_machine_%s_total{provider=\"process\"} %d\n", name, (n+1)*factor)
			if factor == 0 && contains(a.body, "skete_machine_") || factor > 0 && !contains(a.body, line) {
				t.Errorf("want %s in\n%s", line, a.body)
			}
		}
		if contains(a.body, "sbx_") {
			t.Error("a sandbox's id is a label: there would be a series for each")
		}
	}
	shows(0) // no machine counts yet
	first, second := w.create(t, api.CreateSandbox{}), w.create(t, api.CreateSandbox{})
	shows(1 + 2)
	shows(2 * (1 + 2))
	w.call(t, w.admin, http.MethodDelete, "/v1/sandboxes/"+second.ID, nil, http.StatusNoContent, nil)
	shows(3*1 + 2*2) // a sum does not go down when a machine goes
	w.call(t, w.admin, http.MethodPost, "/v1/sandboxes/"+first.ID+"/stop", nil, http.StatusOK, nil)
	w.call(t, w.admin, http.MethodPost, "/v1/sandboxes/"+first.ID+"/start", nil, http.StatusOK, nil)
	shows(3*1 + 2*2 + 3) // another machine, which begins at nought
}

func TestInfo(t *testing.T) {
	w := newWorld(t)
	var info api.Info
	w.call(t, w.admin, http.MethodGet, "/v1/info", nil, http.StatusOK, &info)
	if info.Version != "test" || len(info.Providers) != 1 || info.Providers[0].Name != "process" || info.Providers[0].Isolation != "none" || !info.Providers[0].OK || info.Limits.CPUsMax <= 0 {
		t.Errorf("%+v", info)
	}
	if info.Used != (api.Used{}) {
		t.Errorf("nothing is used yet: %+v", info.Used)
	}
	sb := w.create(t, api.CreateSandbox{DiskMB: 300})
	w.call(t, w.admin, http.MethodGet, "/v1/info", nil, http.StatusOK, &info)
	if info.Used.Sandboxes != 1 || info.Used.DiskMB != sb.DiskMB || info.Used.MemoryMB != sb.MemoryMB {
		t.Errorf("%+v of %+v", info.Used, sb)
	}
}

func TestTemplates(t *testing.T) {
	w := newWorld(t)
	a := w.send(t, w.admin, http.MethodPost, "/v1/templates?name=mine", strings.NewReader("a tar"), "Content-Type", "application/x-tar")
	var tpl api.Template
	must(t, json.Unmarshal(a.body, &tpl))
	if a.status != http.StatusCreated || tpl.Name != "mine" || tpl.Bytes != 5 || tpl.Languages == nil {
		t.Errorf("%d %s", a.status, a.body)
	}
	var list api.TemplateList
	w.call(t, w.admin, http.MethodGet, "/v1/templates", nil, http.StatusOK, &list)
	if len(list.Items) != 2 {
		t.Errorf("%+v", list)
	}
	w.call(t, w.admin, http.MethodDelete, "/v1/templates/mine", nil, http.StatusNoContent, nil)
}

func TestRequestIDs(t *testing.T) {
	w := newWorld(t)
	if id := w.send(t, "", http.MethodGet, "/healthz", nil, "X-Request-Id", "mine-1").header.Get("X-Request-Id"); id != "mine-1" {
		t.Errorf("a good id became %q", id)
	}
	for _, bad := range []string{"a b", strings.Repeat("x", 65), `"`} {
		if id := w.send(t, "", http.MethodGet, "/healthz", nil, "X-Request-Id", bad).header.Get("X-Request-Id"); id == bad || id == "" {
			t.Errorf("%.20q became %q", bad, id)
		}
	}
}

func TestSandboxesArePaged(t *testing.T) {
	w := newWorld(t)
	want := map[string]bool{}
	for i := range 3 {
		want[w.create(t, api.CreateSandbox{Metadata: map[string]string{"n": fmt.Sprint(i), "all": "a=b"}}).ID] = true
	}
	got, token := map[string]bool{}, ""
	for pages := 1; ; pages++ {
		var page api.SandboxPage
		w.call(t, w.admin, http.MethodGet, "/v1/sandboxes?page_size=2&metadata=all%3Da%3Db&page_token="+token, nil, http.StatusOK, &page)
		for _, sb := range page.Items {
			got[sb.ID] = true
		}
		if token = page.NextPageToken; token == "" {
			if pages != 2 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var page api.SandboxPage
	w.call(t, w.admin, http.MethodGet, "/v1/sandboxes?metadata=n%3D1&metadata=all%3Da%3Db&state=running,paused", nil, http.StatusOK, &page)
	if len(page.Items) != 1 {
		t.Errorf("%d sandboxes have both", len(page.Items))
	}
	var sb api.Sandbox
	ttl := int64(60_000)
	w.call(t, w.admin, http.MethodPatch, "/v1/sandboxes/"+page.Items[0].ID, api.UpdateSandbox{TTLMS: &ttl, Metadata: map[string]string{"x": "y"}}, http.StatusOK, &sb)
	if sb.ExpiresAt == nil || len(sb.Metadata) != 1 {
		t.Errorf("updated to %+v", sb)
	}
}

func TestPublicRoutesAreFew(t *testing.T) {
	w := newWorld(t)
	var public []string
	for _, r := range w.server.Routes() {
		if r.Scope == route.Public {
			public = append(public, r.Path)
		}
	}
	slices.Sort(public)
	// The UI's page asks auth itself: without a login it leads to one. See TestUI.
	want := []string{
		"/approvals", "/docs", "/docs/docs.css", "/docs/docs.js", "/healthz", "/network", "/openapi.json", "/openapi.yaml", "/preview/{label}", "/readyz",
		"/runs", "/runs/{rest...}", "/s/{id}", "/secrets", "/settings", "/settings/{rest...}", "/share/{secret}",
		"/skills", "/skills/{rest...}", "/ui/{name...}", "/usage", "/vms", "/vms/{rest...}", "/workflow-runs/{rest...}", "/workflows", "/workflows/{rest...}", "/{$}",
	}
	if diff := cmp.Diff(want, public); diff != "" {
		t.Error(diff)
	}
}
