package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
)

// Wherever a command takes a model, those that the server knows are offered.
func TestCompletion_offersModels(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/v1/models" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(api.ModelList{Items: []api.Model{{Name: "claude-x"}, {Name: "local/small"}}})
	}))
	t.Cleanup(s.Close)
	var out bytes.Buffer
	root := program{app.New(nil, &out, &out)}.root()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs([]string{"__complete", "--url", s.URL, "--api-key", "e2b_x", "run", "--model", ""})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"claude-x", "local/small"} {
		if !strings.Contains("\n"+out.String(), "\n"+name) {
			t.Errorf("%s is not offered:\n%s", name, &out)
		}
	}
}
