package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server"
)

const canary = "hunter2-canary"

// theSecret is what is said of a secret, but for its times.
func theSecret(t *testing.T, want, got api.Secret) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(api.Secret{}, "CreatedAt", "UpdatedAt", "ExpiresAt")); d != "" {
		t.Error(d)
	}
}

// A secret is set, listed, shown, set anew, changed and deleted; its value comes back in
// no answer, and is not in the log.
func TestSecrets(t *testing.T) {
	w := newWorld(t)
	const all, one = "/v1/secrets", "/v1/secrets/forge"
	var said strings.Builder // all that was answered
	call := func(method, path string, body any, status int, into any) {
		t.Helper()
		a := w.call(t, w.admin, method, path, body, status, into)
		said.Write(a.body)
	}
	var list api.SecretList
	call(http.MethodGet, all, nil, http.StatusOK, &list)
	if d := cmp.Diff(api.SecretList{Items: []api.Secret{}}, list); d != "" {
		t.Error(d)
	}

	grants := []api.SecretGrant{
		{Host: "*.example.com", Ports: []int{443, 8443}, Methods: []string{"GET"}, Paths: []string{"/repos/**"}, As: "bearer", Env: "FORGE_TOKEN", Sandboxes: []string{"web"}},
		{Host: "b.example.com", As: "header", Key: "X-Key"},
	}
	var made api.Secret
	call(http.MethodPut, one, api.PutSecret{Value: canary + "-1", Grants: &grants}, http.StatusOK, &made)
	want := api.Secret{Name: "forge", Version: 1, Versions: []int{1}, Grants: grants}
	theSecret(t, want, made)
	if week := 7 * 24 * time.Hour; made.CreatedAt.IsZero() || !made.UpdatedAt.Equal(made.CreatedAt) || made.ExpiresAt == nil || made.ExpiresAt.Sub(made.CreatedAt).Round(time.Hour) != week {
		t.Errorf("made %v, changed %v, ends %v", made.CreatedAt, made.UpdatedAt, made.ExpiresAt)
	}

	var anew api.Secret
	call(http.MethodPut, one, api.PutSecret{Value: canary + "-2", TTLMS: -1}, http.StatusOK, &anew)
	want.Version, want.Versions = 2, []int{1, 2}
	theSecret(t, want, anew)
	if anew.ExpiresAt != nil || !anew.CreatedAt.Equal(made.CreatedAt) {
		t.Errorf("made %v, ends %v", anew.CreatedAt, anew.ExpiresAt)
	}

	var changed, got api.Secret
	fewer := grants[1:]
	call(http.MethodPatch, one, api.ChangeSecret{Grants: &fewer, Version: 1}, http.StatusOK, &changed)
	want.Version, want.Grants = 1, fewer
	theSecret(t, want, changed)
	call(http.MethodPut, "/v1/secrets/a_b-2", api.PutSecret{Value: canary, TTLMS: 1000}, http.StatusOK, nil)
	call(http.MethodGet, one, nil, http.StatusOK, &got)
	theSecret(t, want, got)
	call(http.MethodGet, all, nil, http.StatusOK, &list)
	if len(list.Items) != 2 || list.Items[0].Name != "a_b-2" || !cmp.Equal(list.Items[1], got) {
		t.Errorf("%+v", list)
	}

	none := []api.SecretGrant{}
	call(http.MethodPatch, one, api.ChangeSecret{Grants: &none}, http.StatusOK, &changed)
	want.Grants = none
	theSecret(t, want, changed)
	call(http.MethodDelete, one, nil, http.StatusNoContent, nil)
	call(http.MethodGet, one, nil, http.StatusNotFound, nil)
	call(http.MethodGet, all, nil, http.StatusOK, &list)
	if len(list.Items) != 1 {
		t.Errorf("%+v", list)
	}
	if strings.Contains(said.String(), canary) || strings.Contains(w.log.String(), canary) {
		t.Errorf("a value came back:\n%s", said.String())
	}
}

// A tenant's secrets are its own; who may only read does not change them.
func TestSecrets_tenants(t *testing.T) {
	w := newWorld(t)
	const one = "/v1/secrets/forge"
	w.call(t, w.admin, http.MethodPut, one, api.PutSecret{Value: "theirs"}, http.StatusOK, nil)
	other, _ := w.key(t, "other", "read", "write")
	reader, _ := w.key(t, "default", "read")
	none := []api.SecretGrant{}
	for name, tt := range map[string]struct {
		key, method, path string
		body              any
		status            int
	}{
		"another tenant reads":       {other, http.MethodGet, one, nil, http.StatusNotFound},
		"another tenant changes":     {other, http.MethodPatch, one, api.ChangeSecret{Grants: &none}, http.StatusNotFound},
		"another tenant goes back":   {other, http.MethodPatch, one, api.ChangeSecret{Version: 1}, http.StatusNotFound},
		"another tenant deletes":     {other, http.MethodDelete, one, nil, http.StatusNotFound},
		"another tenant by its name": {other, http.MethodGet, "/v1/secrets/..%2Fdefault%2Fforge", nil, http.StatusNotFound},
		"a reader sets":              {reader, http.MethodPut, one, api.PutSecret{Value: "x"}, http.StatusForbidden},
		"a reader changes":           {reader, http.MethodPatch, one, api.ChangeSecret{Grants: &none}, http.StatusForbidden},
		"a reader deletes":           {reader, http.MethodDelete, one, nil, http.StatusForbidden},
		"nobody reads":               {"", http.MethodGet, one, nil, http.StatusUnauthorized},
	} {
		if a := w.send(t, tt.key, tt.method, tt.path, tt.body); a.status != tt.status {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	var list api.SecretList
	if w.call(t, other, http.MethodGet, "/v1/secrets", nil, http.StatusOK, &list); len(list.Items) != 0 {
		t.Errorf("another tenant sees %+v", list.Items)
	}
	var own, same api.Secret
	w.call(t, other, http.MethodPut, one, api.PutSecret{Value: "x"}, http.StatusOK, &own)
	w.call(t, other, http.MethodDelete, one, nil, http.StatusNoContent, nil)
	w.call(t, reader, http.MethodGet, one, nil, http.StatusOK, &same)
	for _, got := range []api.Secret{own, same} {
		theSecret(t, api.Secret{Name: "forge", Version: 1, Versions: []int{1}, Grants: none}, got)
	}
}

// What is wrong with a secret is told whole, without its value, and changes nothing.
func TestSecrets_refused(t *testing.T) {
	w := newWorld(t)
	const one = "/v1/secrets/forge"
	to := func(grants ...api.SecretGrant) any { return api.PutSecret{Value: canary, Grants: &grants} }
	w.call(t, w.admin, http.MethodPut, one, api.PutSecret{Value: canary}, http.StatusOK, nil)
	for name, tt := range map[string]struct {
		method, path string
		body         any
		status       int
		text         string
	}{
		"a name in capitals":             {http.MethodPut, "/v1/secrets/Forge", to(), 400, "name"},
		"a name that ends in a hyphen":   {http.MethodPut, "/v1/secrets/a-", to(), 400, "name"},
		"a name with a slash":            {http.MethodPut, "/v1/secrets/a%2Fb", to(), 400, "name"},
		"a long name":                    {http.MethodPut, "/v1/secrets/" + strings.Repeat("a", 64), to(), 400, "name"},
		"no value":                       {http.MethodPut, one, `{}`, 400, "value"},
		"a long value":                   {http.MethodPut, one, api.PutSecret{Value: strings.Repeat("x", 64<<10+1)}, 400, "value"},
		"a long value in few characters": {http.MethodPut, one, api.PutSecret{Value: strings.Repeat("ä", 33<<10)}, 400, "value"},
		"an unknown key":                 {http.MethodPut, one, `{"value":"` + canary + `","nonsense":1}`, 400, "nonsense"},
		"a value in a list":              {http.MethodPut, one, `{"value":["` + canary + `"]}`, 400, "value"},
		"half an object":                 {http.MethodPut, one, `{"value":"` + canary + `"`, 400, "JSON"},
		"a time with a negative number":  {http.MethodPut, one, api.PutSecret{Value: canary, TTLMS: -2}, 400, "ttl_ms"},
		"an absurd time":                 {http.MethodPut, one, api.PutSecret{Value: canary, TTLMS: 1<<63 - 1}, 400, "ttl_ms"},
		"every host":                     {http.MethodPut, one, to(api.SecretGrant{Host: "*", As: "bearer"}), 400, "grants[0].host"},
		"a URL":                          {http.MethodPut, one, to(api.SecretGrant{Host: "https://a.example", As: "bearer"}), 400, "grants[0].host"},
		"a metadata address":             {http.MethodPut, one, to(api.SecretGrant{Host: "169.254.169.254", As: "bearer"}), 400, "grants[0].host"},
		"no host":                        {http.MethodPut, one, to(api.SecretGrant{As: "bearer"}), 400, "host"},
		"a port that there is not":       {http.MethodPut, one, to(api.SecretGrant{Host: "a.example", Ports: []int{65536}, As: "bearer"}), 400, "ports"},
		"a header about the connection":  {http.MethodPut, one, to(api.SecretGrant{Host: "a.example", As: "header", Key: "host"}), 400, "grants[0].key"},
		"a header of two lines":          {http.MethodPut, one, to(api.SecretGrant{Host: "a.example", As: "header", Key: "a\r\nb"}), 400, "grants[0].key"},
		"a variable with a sign":         {http.MethodPut, one, to(api.SecretGrant{Host: "a.example", As: "bearer", Env: "A=B"}), 400, "grants[0].env"},
		"two mistakes":                   {http.MethodPut, one, to(api.SecretGrant{Host: "a.example", As: "bearer"}, api.SecretGrant{Host: "*", As: "bearer", Key: "x"}), 400, "grants[1].key"},
		"a value of two lines":           {http.MethodPut, one, api.PutSecret{Value: canary + "\n2", Grants: &[]api.SecretGrant{{Host: "a.example", As: "bearer"}}}, 400, "more than one line"},
		"too many grants":                {http.MethodPut, one, to(make([]api.SecretGrant, 33)...), 400, "grants"},
		"a version that is not kept":     {http.MethodPatch, one, api.ChangeSecret{Grants: &[]api.SecretGrant{{Host: "a.example", As: "bearer"}}, Version: 2}, 404, "version 2"},
		"a negative version":             {http.MethodPatch, one, `{"version":-1}`, 400, "version"},
		"a value that is changed":        {http.MethodPatch, one, `{"value":"` + canary + `"}`, 400, "value"},
		"grants that are null":           {http.MethodPatch, one, `{"grants":null}`, 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.send(t, w.admin, tt.method, tt.path, tt.body)
			a.problem(t, tt.status)
			if !strings.Contains(string(a.body), tt.text) || strings.Contains(string(a.body), canary) {
				t.Errorf("%.2000s", a.body)
			}
		})
	}
	var same api.Secret
	w.call(t, w.admin, http.MethodGet, one, nil, http.StatusOK, &same)
	theSecret(t, api.Secret{Name: "forge", Version: 1, Versions: []int{1}, Grants: []api.SecretGrant{}}, same)
	if strings.Contains(w.log.String(), canary) {
		t.Error("the log has a value")
	}
}

// A server that keeps none says so.
func TestSecrets_none(t *testing.T) {
	w := newWorld(t, func(c *server.Config) { c.Secrets = nil })
	for _, r := range w.server.Routes() {
		if !strings.HasPrefix(r.Path, "/v1/secrets") {
			continue
		}
		var body any
		switch r.Method {
		case http.MethodPut:
			body = api.PutSecret{Value: "x"}
		case http.MethodPatch:
			body = api.ChangeSecret{Version: 1}
		}
		w.send(t, w.admin, r.Method, strings.ReplaceAll(r.Path, "{name}", "forge"), body).problem(t, http.StatusNotImplemented)
	}
}
