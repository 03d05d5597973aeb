package ui

import (
	"bytes"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
)

// A run that is shared can be read at its address without a login, until it is taken back; the
// address opens nothing else, and what an agent wrote is text there.
func TestShare(t *testing.T) {
	var w *world
	var secrets []string
	t.Cleanup(func() { // behind the server's end: until then it writes there
		for _, secret := range secrets {
			if strings.Contains(w.log.String(), secret) {
				t.Errorf("the server's log has the secret %s", secret)
			}
		}
	})
	w = newWorld(t, setup{scripts: map[string]string{"hostile": hostileShare}})
	run := w.worked("hostile", api.StartRun{Task: "Say <b>it</b>.", Title: "<img src=x onerror=alert(1)>"})
	address := pane[string](w, "share", nil)
	at, err := url.Parse(address)
	w.ok(err)
	secret := strings.TrimPrefix(at.Path, "/share/")
	if at.Scheme+"://"+at.Host != w.origin() || len(secret) != 26 {
		t.Fatalf("the address is %q, the server's %q", address, w.origin())
	}
	ask := func(path, key string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(w.ctx(), http.MethodGet, w.origin()+path, nil)
		w.ok(err)
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		res, err := http.DefaultClient.Do(r)
		w.ok(err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		w.ok(err)
		return res.StatusCode, string(body)
	}
	if code, body := ask(at.Path, ""); code != http.StatusOK || strings.Contains(body, "<img") || strings.Contains(body, "<script") {
		t.Errorf("without a key: %d %s", code, body)
	}
	for _, path := range []string{"/v1/runs/" + run.ID, "/v1/runs/" + run.ID + "/shares", "/v1/runs/" + run.ID + "/events?last=1", "/v1/runs"} {
		for _, key := range []string{"", secret} {
			if code, _ := ask(path, key); code != http.StatusUnauthorized {
				t.Errorf("%s with %q is answered %d", path, key, code)
			}
		}
	}
	pane[any](w, "unshare", nil)
	if code, body := ask(at.Path, ""); code != http.StatusNotFound || !strings.Contains(body, "not any more") {
		t.Errorf("after it was taken back: %d %s", code, body)
	}
	s, err := w.c.Run(run.ID).Share(w.ctx(), api.CreateShare{})
	w.ok(err)
	got := lay[struct {
		accessible
		Text    string `json:"text"`
		Scripts int    `json:"scripts"` // and all else that does something
	}](w, "shared", map[string]any{"path": s.Path, "shot": shot(t, 90, "/share")})
	got.atLeast(t, "the page of a shared run", 6)
	if got.Title != "<img src=x onerror=alert(1)>" || got.Scripts != 0 {
		t.Errorf("the page is titled %q and has %d elements that do something", got.Title, got.Scripts)
	}
	for _, part := range []string{"Say <b>it</b>.", "<script>alert(2)</script>", "exit 3", "It is <i>done</i>.", "Step 2", "succeeded"} {
		if !strings.Contains(got.Text, part) {
			t.Errorf("the page lacks %q: %s", part, got.Text)
		}
	}
	secrets = []string{secret, strings.TrimPrefix(s.Path, "/share/")}
	w.keepsNot(secrets)
	w.clean()
}

// keepsNot: secrets are in no file of the server's data directory.
func (w *world) keepsNot(secrets []string) {
	w.t.Helper()
	files := 0
	w.ok(filepath.WalkDir(w.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // it went away meanwhile, or has no content of its own
		}
		data, err := os.ReadFile(path)
		for _, secret := range secrets {
			if bytes.Contains(data, []byte(secret)) {
				w.t.Errorf("%s has the secret %s", path, secret)
			}
		}
		if err == nil {
			files++
		}
		return nil
	}))
	if files < 10 {
		w.t.Errorf("%d files were looked at", files)
	}
}

const hostileShare = `
replies:
  - text: I do it.
    calls: [{name: execute, id: c-a, args: {command: "echo '<script>alert(2)</script>'; exit 3"}}]
else: {text: "It is <i>done</i>."}
`
