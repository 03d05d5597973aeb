package client

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
)

// What is asked for is what the server is asked: the method, the name in the path
// whatever it is, and a body that says no more than the caller did.
func TestSecrets(t *testing.T) {
	var asked []string
	one := api.Secret{Name: "forge", Version: 2, Versions: []int{1, 2}, Grants: []api.SecretGrant{{Host: "a.example", As: "bearer"}}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.Method+" "+r.URL.EscapedPath()+" "+string(body))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/v1/secrets":
			_ = json.NewEncoder(w).Encode(api.SecretList{Items: []api.Secret{one}})
		case r.URL.Path == "/v1/secrets/forge":
			_ = json.NewEncoder(w).Encode(one)
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(api.Problem{Status: http.StatusNotFound, Class: "not_found", Detail: "there is no such secret"})
		}
	}))
	t.Cleanup(srv.Close)
	c, err := New(Config{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, none := t.Context(), []api.SecretGrant{}
	list, err := c.Secrets(ctx)
	if d := cmp.Diff([]api.Secret{one}, list); d != "" || err != nil {
		t.Error(d, err)
	}
	for name, f := range map[string]func() (api.Secret, error){
		"show":    func() (api.Secret, error) { return c.Secret(ctx, "forge") },
		"set":     func() (api.Secret, error) { return c.PutSecret(ctx, "forge", api.PutSecret{Value: "x"}) },
		"change":  func() (api.Secret, error) { return c.ChangeSecret(ctx, "forge", api.ChangeSecret{Grants: &none}) },
		"go back": func() (api.Secret, error) { return c.ChangeSecret(ctx, "forge", api.ChangeSecret{Version: 1}) },
	} {
		asked = nil
		got, err := f()
		if d := cmp.Diff(one, got); d != "" || err != nil {
			t.Errorf("%s: %s %v", name, d, err)
		}
		want := map[string]string{
			"show": "GET /v1/secrets/forge ", "set": `PUT /v1/secrets/forge {"value":"x"}`,
			"change": `PATCH /v1/secrets/forge {"grants":[]}`, "go back": `PATCH /v1/secrets/forge {"version":1}`,
		}[name]
		if d := cmp.Diff([]string{want}, asked); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	if err := c.DeleteSecret(ctx, "forge"); err != nil {
		t.Error(err)
	}
	asked = nil
	if _, err := c.Secret(ctx, "../keys?a=b"); !errs.Is(err, errs.NotFound) || !cmp.Equal(asked, []string{"GET /v1/secrets/..%2Fkeys%3Fa=b "}) {
		t.Errorf("%v, asked %q", err, asked)
	}
}
