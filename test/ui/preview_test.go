package ui

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
)

// appScript makes an app: a server of one page, which looks what it can read of the page that
// it is in.
var appScript = executes(
	"echo old text > text",
	`cat > server.py <<'E'
import html, http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ('<!doctype html><p id=x>' + html.escape(open('text').read().strip()) + '</p><p id=parent></p><script>'
            'const p = document.querySelector("#parent");'
            'try { p.textContent = "read " + parent.document.title } catch (e) { p.textContent = e.name }</script>').encode()
        self.send_response(200)
        self.send_header('Content-Type', 'text/html')
        self.send_header('Cache-Control', 'no-store')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(('127.0.0.1', 8000), H).serve_forever()
E`,
)

// shownApp is what the frame of a preview is.
type shownApp struct {
	Origin  string `json:"origin"`
	UI      string `json:"ui"`
	Said    string `json:"said"`   // the origin that the page says it is
	Parent  string `json:"parent"` // what the app read of the page around it
	Sandbox string `json:"sandbox"`
	MS      int64  `json:"ms"`
}

type attacked struct {
	Tries   map[string]any `json:"tries"`
	Answers []string       `json:"answers"` // of the API to what is no GET
	Login   string         `json:"login"`
	Live    bool           `json:"live"`
	SIDs    []string       `json:"sids"`
	URL     string         `json:"url"`
}

// Scenarios 13 and 14: an app of a machine is seen in a frame of another origin, shows what its
// files are, also after an undo, and can do nothing in the name of the person who sees it. That
// a change of a module is seen without a reload (HMR) is tested by test/browser, with the real
// Vite: it needs more memory and disk than machines of these tests have.
func TestPreview(t *testing.T) {
	w := newWorld(t, setup{scripts: map[string]string{"app": appScript}})
	run := w.worked("app", api.StartRun{})
	sb := w.c.Sandbox(run.Sandbox)
	_, err := sb.Services().Declare(w.ctx(), api.ServiceSpec{Name: "web", Command: "exec python3 server.py", Ports: []int{8000}, ReadyHTTP: 8000}, time.Minute)
	w.ok(err)
	do[any](w, "open", map[string]any{"path": "/runs/" + run.ID + "?pane=preview", "row": true})
	app := func(text string, reload bool) shownApp {
		t.Helper()
		return act[shownApp](w, "app", map[string]any{"port": 8000, "want": text, "reload": reload})
	}
	t.Run("Shown", func(t *testing.T) {
		w := w.with(t)
		got := app("old text", false)
		if got.Origin == got.UI || got.Origin != got.Said || got.UI != w.origin() {
			t.Errorf("the app is at %s, the page that shows it at %s says %s", got.Origin, got.UI, got.Said)
		}
		if got.Parent != "SecurityError" || got.Sandbox != "allow-scripts allow-forms allow-same-origin" {
			t.Errorf("the app reads of the page: %s; its frame may %s", got.Parent, got.Sandbox)
		}
		root := w.root(run.Sandbox)
		_, err := sb.Files().Write(w.ctx(), "/workspace/text", []byte("new text\n"), client.WriteOptions{})
		w.ok(err)
		if w.root(run.Sandbox) == root {
			t.Fatal("the change is no revision")
		}
		got = app("new text", true)
		t.Logf("after a reload the new text was there after %d ms", got.MS)
		act[planned](w, "plan", nil)
		undone := act[outcome](w, "apply", nil)
		got = app("old text", false)
		w.did(run.Sandbox, undone, "undo", root)
		t.Logf("after an undo the old text was there after %d ms", got.MS)
		if d := time.Duration(got.MS) * time.Millisecond; d > patience.Of(2*time.Second) {
			t.Errorf("after an undo the old text was there after %s", d)
		}
	})
	attack := func(from string) attacked {
		t.Helper()
		return act[attacked](w, "attack", map[string]any{"from": from, "port": 8000, "want": "old text", "name": "made by " + from})
	}
	t.Run("Attack", func(t *testing.T) {
		w := w.with(t)
		got := attack("app")
		for what, answer := range got.Tries {
			if answer != "refused" && (what != "simple post" || answer != "opaque") {
				t.Errorf("%s: %v", what, answer)
			}
		}
		want := []string{"parent", "post", "read", "simple post", "socket", "top"}
		for _, what := range want {
			if got.Tries[what] == nil {
				t.Errorf("the app did not try %s", what)
			}
		}
		if !slices.Contains(got.Answers, "POST /v1/keys 403") && !slices.Contains(got.Answers, "POST /v1/keys 401") {
			t.Errorf("no POST of the app came to the API and was refused: %v", got.Answers)
		}
		after := attack("page") // it also shows that what was refused to the app is there
		if after.Tries["post"] != float64(201) || after.Tries["read"] != float64(200) || after.Tries["socket"] != "open" {
			t.Errorf("the page itself may do %v", after.Tries)
		}
		if !strings.HasPrefix(got.Login, "200 ") || after.Login != got.Login || !after.Live || !slices.Equal(after.SIDs, got.SIDs) || len(after.SIDs) != 1 || after.SIDs[0] == "evil" {
			t.Errorf("the session was %+v, then %+v", got, after)
		}
		if !strings.HasPrefix(after.URL, w.origin()+"/runs/") {
			t.Errorf("the app led the page to %s", after.URL)
		}
		keys, err := w.c.Keys(w.ctx())
		w.ok(err)
		for _, k := range keys {
			if k.Name == "made by app" {
				t.Errorf("the app made the key %s", k.ID)
			}
		}
	})
	got := do[watched](w, "watched", nil)
	for _, request := range got.Outside {
		if !strings.Contains(request, ".preview.localhost:") {
			t.Errorf("a request to elsewhere: %s", request)
		}
	}
	for _, what := range slices.Concat(got.Dialogs, got.Titles, got.Popups) {
		t.Errorf("the app made %s", what)
	}
}
