package app_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

func TestFindRun(t *testing.T) {
	runs := []api.Run{
		{ID: "run_abcdefghijklmnopqrst", State: "failed", Title: "The first one"},
		{ID: "run_abcdzzzzzzzzzzzzzzzz", State: "succeeded"},
		{ID: "run_xyz22222222222222222", State: "running", Title: "Another"},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, run := range runs {
			if r.URL.Path == "/v1/runs/"+run.ID {
				_ = json.NewEncoder(w).Encode(run)
				return
			}
		}
		_ = json.NewEncoder(w).Encode(api.RunPage{Items: runs})
	}))
	t.Cleanup(s.Close)
	c, err := client.New(client.Config{URL: s.URL, Key: "e2b_x"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"run_x": runs[2].ID, "run-xyz": runs[2].ID, "run_abcde": runs[0].ID, runs[1].ID: runs[1].ID, "last": runs[0].ID,
	} {
		if got, err := app.FindRun(t.Context(), c, name); err != nil || got.ID != want {
			t.Errorf("%s: %s, %v", name, got.ID, err)
		}
	}
	for name, class := range map[string]errs.Class{"run_q": errs.NotFound, "run_": errs.Invalid, "": errs.Invalid, "nonsense": errs.Invalid, "a/b": errs.Invalid} {
		if _, err := app.FindRun(t.Context(), c, name); !errs.Is(err, class) {
			t.Errorf("%q: %v", name, err)
		}
	}
	_, err = app.FindRun(t.Context(), c, "run_abcd")
	for _, part := range []string{runs[0].ID, runs[1].ID, "The first one", "failed"} {
		if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Hint(err), part) {
			t.Errorf("which ones fit is not said (%s): %v, %s", part, err, errs.Hint(err))
		}
	}
}

// Find says which sandboxes fit the beginning of an id, or a name that several have.
func TestFind(t *testing.T) {
	all := []api.Sandbox{
		{ID: "sbx_abcdefghijklmnopqrst", State: "running", Name: "web"},
		{ID: "sbx_abcd2222222222222222", State: "stopped", Name: "twin"},
		{ID: "sbx_xyz22222222222222222", State: "paused", Name: "twin"},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, sb := range all {
			if r.URL.Path == "/v1/sandboxes/"+sb.ID {
				_ = json.NewEncoder(w).Encode(sb)
				return
			}
		}
		if r.URL.Path != "/v1/sandboxes" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(api.SandboxPage{Items: all})
	}))
	t.Cleanup(s.Close)
	c, err := client.New(client.Config{URL: s.URL, Key: "e2b_x"})
	if err != nil {
		t.Fatal(err)
	}
	a := app.New(nil, io.Discard, io.Discard)
	for name, want := range map[string]string{"web": all[0].ID, "sbx_abcde": all[0].ID, "sbx_x": all[2].ID, all[1].ID: all[1].ID} {
		if got, err := a.Find(t.Context(), c, name); err != nil || got.ID != want {
			t.Errorf("%s: %s, %v", name, got.ID, err)
		}
	}
	for name, class := range map[string]errs.Class{"sbx_q": errs.NotFound, "sbx_": errs.NotFound, "abcde": errs.NotFound, "": errs.Invalid} {
		if _, err := a.Find(t.Context(), c, name); !errs.Is(err, class) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, parts := range map[string][]string{
		"sbx_abcd": {all[0].ID + " (web, running)", all[1].ID + " (twin, stopped)"},
		"twin":     {all[1].ID, all[2].ID + " (twin, paused)"},
	} {
		_, err := a.Find(t.Context(), c, name)
		for _, part := range parts {
			if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "2 sandboxes") || !strings.Contains(errs.Hint(err), part) {
				t.Errorf("which ones fit %s is not said (%s): %v, %s", name, part, err, errs.Hint(err))
			}
		}
	}
}
