package ui

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/test/browser"
)

// appScript makes an app: a server of one page, which looks what it can read of the page that
// it is in, and has a file to save and a window to open.
var appScript = executes(
	"echo old text > text",
	`cat > server.py <<'E'
import html, http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ('<!doctype html><p id=x>' + html.escape(open('text').read().strip()) + '</p><p id=parent></p>'
            '<a id=save href=/save download=saved.txt>save</a><button id=open>open</button><script>'
            'document.querySelector("#open").onclick = () => window.open("/");'
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

// frameMay is what the frame of an app may do where a person allowed nothing.
const frameMay = "allow-scripts allow-forms allow-same-origin"

// undoTime is how long it may take after an undo until the app is as it was, on a reference machine.
const undoTime = 2 * time.Second

// shownApp is what the frame of a preview is.
type shownApp struct {
	Origin   string   `json:"origin"`
	UI       string   `json:"ui"`
	Said     string   `json:"said"`   // the origin that the page says it is
	Parent   string   `json:"parent"` // what the app read of the page around it
	Sandbox  string   `json:"sandbox"`
	Policies []string `json:"policies"` // of referrers, and of what the frame may use
	Width    int      `json:"width"`
	Room     int      `json:"room"` // that the pane has
	Mark     string   `json:"mark"`
	Loaded   float64  `json:"loaded"` // when
	Clicks   int      `json:"clicks"`
	Same     string   `json:"same"` // after an undo: true = the files are those of the revision
	MS       int64    `json:"ms"`
}

// apart checks that an app has an origin of its own beneath a suffix, and reads nothing of the page.
func (w *world) apart(a shownApp, suffix string) {
	w.t.Helper()
	_, port, _ := strings.Cut(w.address, ":")
	if a.Origin == a.UI || a.Origin != a.Said || a.UI != w.origin() || !strings.HasSuffix(a.Origin, suffix+":"+port) {
		w.t.Errorf("the app is at %s, the page that shows it at %s says %s", a.Origin, a.UI, a.Said)
	}
	if a.Parent != "SecurityError" || a.Sandbox != frameMay || !slices.Equal(a.Policies, []string{"no-referrer", ""}) {
		w.t.Errorf("the app reads of the page: %s; its frame may %s, with the policies %q", a.Parent, a.Sandbox, a.Policies)
	}
}

type attacked struct {
	Tries   map[string]any `json:"tries"`
	Again   map[string]any `json:"again"`   // with the cookies that it set
	Answers []string       `json:"answers"` // of the server to what is no GET
	Login   string         `json:"login"`
	Live    bool           `json:"live"`
	Before  []string       `json:"before"` // the login's cookies, and afterwards
	SIDs    []string       `json:"sids"`
	Tossed  []string       `json:"tossed"` // cookies of the app that the server's pages have
	URL     string         `json:"url"`
}

func show[T any](w *world, name string, args map[string]any) T {
	w.t.Helper()
	if args == nil {
		args = map[string]any{}
	}
	args["do"], args["origin"], args["within"] = name, w.origin(), patience.Of(20*time.Second).Milliseconds()
	return browser.Run[T](w.t, w.page, "preview.mjs", args)
}

// served declares the app of appScript as a service of a run's machine, and opens its preview.
func (w *world) served(run api.Run, command string) *client.Services {
	w.t.Helper()
	s := w.c.Sandbox(run.Sandbox).Services()
	_, err := s.Declare(w.ctx(), api.ServiceSpec{Name: "web", Command: command, Ports: []int{8000}, ReadyHTTP: 8000, Restart: "never"}, time.Minute)
	w.ok(err)
	do[any](w, "open", map[string]any{"path": "/runs/" + run.ID + "?pane=preview", "row": true})
	return s
}

// noWindows checks what a person would have seen of an app that does what it must not.
func (w *world) noWindows(suffix string) {
	w.t.Helper()
	got := do[watched](w, "watched", nil)
	for _, request := range got.Outside {
		if !strings.Contains(request, suffix+":") {
			w.t.Errorf("a request to elsewhere: %s", request)
		}
	}
	for _, what := range slices.Concat(got.Dialogs, got.Titles, got.Popups) {
		w.t.Errorf("the app made %s", what)
	}
}

// Scenario 14, and what of 13 needs no dev server, where previews have a site of their own and
// where they share that of the server: an app of a machine is seen in a frame of another origin,
// shows what its files are, also after an undo, and can do nothing in the name of the person who
// sees it.
func TestPreview(t *testing.T) {
	for _, l := range []struct {
		name, host, domain, suffix string
		shared                     bool
	}{
		{"OwnSite", "localhost", "localhost", ".preview.localhost", false},
		{"SharedSite", "app.skete.localhost", "skete.localhost", ".preview.skete.localhost", true},
	} {
		t.Run(l.name, func(t *testing.T) {
			w := newWorld(t, setup{scripts: map[string]string{"app": appScript}, host: l.host, domain: l.domain})
			if warned := strings.Contains(w.log.String(), "previews share a site with the app"); warned != l.shared {
				t.Errorf("the server warned of a shared site: %t", warned)
			}
			run := w.worked("app", api.StartRun{})
			w.served(run, "exec python3 server.py")
			t.Run("Shown", func(t *testing.T) { w.with(t).shown(run, l.suffix) })
			t.Run("Attack", func(t *testing.T) { w.with(t).attack(l.shared) })
			w.noWindows(l.suffix)
		})
	}
}

// shown changes what the app shows, and takes that back.
func (w *world) shown(run api.Run, suffix string) {
	w.t.Helper()
	app := func(text string, reload bool) shownApp {
		w.t.Helper()
		return show[shownApp](w, "app", map[string]any{"port": 8000, "want": text, "reload": reload})
	}
	w.apart(app("old text", false), suffix)
	root := w.root(run.Sandbox)
	_, err := w.c.Sandbox(run.Sandbox).Files().Write(w.ctx(), "/workspace/text", []byte("new text\n"), client.WriteOptions{})
	w.ok(err)
	if w.root(run.Sandbox) == root {
		w.t.Fatal("the change is no revision")
	}
	w.t.Logf("after a reload the new text was there after %d ms", app("new text", true).MS)
	act[planned](w, "plan", nil)
	got := show[shownApp](w, "undone", map[string]any{"port": 8000, "want": "old text"})
	w.tookBack(run.Sandbox, root, got)
}

// tookBack checks that an undo put the files back, and that the app showed it soon.
func (w *world) tookBack(sandbox, root string, got shownApp) {
	w.t.Helper()
	if got.Same != "true" || w.root(sandbox) != root {
		w.t.Errorf("the page says that the files are as they were: %q; their hash is %s, not %s", got.Same, w.root(sandbox), root)
	}
	w.t.Logf("after the order to undo, the old text was there after %d ms (bound %s)", got.MS, patience.Of(undoTime))
	if d := time.Duration(got.MS) * time.Millisecond; d > patience.Of(undoTime) {
		w.t.Errorf("after the order to undo, the old text was there after %s", d)
	}
}

// attack lets the app do what it must not be able to, and then the page, which may.
func (w *world) attack(shared bool) {
	w.t.Helper()
	attack := func(from string) attacked {
		w.t.Helper()
		return show[attacked](w, "attack", map[string]any{"from": from, "port": 8000, "want": "old text", "name": "made by " + from})
	}
	got := attack("app")
	harmless := map[string]any{"simple post": "opaque", "logout": "answered"} // what the answer was, the network says
	for _, tries := range []map[string]any{got.Tries, got.Again} {
		for what, answer := range tries {
			if answer != "refused" && answer != harmless[what] {
				w.t.Errorf("%s: %v", what, answer)
			}
		}
	}
	for _, what := range []string{"logout", "parent", "post", "read", "simple post", "socket", "top"} {
		if got.Tries[what] == nil {
			w.t.Errorf("the app did not try %s", what)
		}
	}
	for _, answer := range got.Answers {
		if !strings.HasSuffix(answer, " 403") && (shared || !strings.HasSuffix(answer, " 401")) {
			w.t.Errorf("the server's answer to the app: %s", answer)
		}
	}
	for _, path := range []string{"POST /v1/keys ", "POST /logout "} {
		if !slices.ContainsFunc(got.Answers, func(a string) bool { return strings.HasPrefix(a, path) }) {
			w.t.Errorf("no %sof the app came to the server: %v", path, got.Answers)
		}
	}
	// The app can set cookies for the server where they share a site, and for no other server. No
	// such cookie has the login's name.
	w.t.Logf("cookies of the app that the server gets: %v", got.Tossed)
	if (len(got.Tossed) > 0) != shared {
		w.t.Errorf("cookies of the app that the server gets: %v", got.Tossed)
	}
	for _, name := range got.Tossed {
		if !strings.HasPrefix(name, "sid ") {
			w.t.Errorf("the server gets a cookie %s", name)
		}
	}
	after := attack("page") // it also shows that what was refused to the app is there
	if after.Tries["post"] != float64(201) || after.Tries["read"] != float64(200) || after.Tries["socket"] != "open" {
		w.t.Errorf("the page itself may do %v", after.Tries)
	}
	if !strings.HasPrefix(got.Login, "200 ") || after.Login != got.Login || !after.Live || len(got.Before) != 1 || !slices.Equal(got.SIDs, got.Before) || !slices.Equal(after.SIDs, got.Before) {
		w.t.Errorf("the session was %+v, then %+v", got, after)
	}
	if !strings.HasPrefix(after.URL, w.origin()+"/runs/") {
		w.t.Errorf("the app led the page to %s", after.URL)
	}
	keys, err := w.c.Keys(w.ctx())
	w.ok(err)
	for _, k := range keys {
		if k.Name == "made by app" {
			w.t.Errorf("the app made the key %s", k.ID)
		}
	}
	if login := show[string](w, "reloaded", nil); login != got.Login {
		w.t.Errorf("after a reload the login is %s", login)
	}
}

// The pane of a preview says in words how the app is, shows why it is not there and starts it
// again, has the widths of devices, and lets it save files and open windows only where a person
// allowed that.
func TestPreviewPane(t *testing.T) {
	w := newWorld(t, setup{scripts: map[string]string{"app": appScript}})
	run := w.worked("app", api.StartRun{})
	sb := w.c.Sandbox(run.Sandbox)
	app := func(args map[string]any) shownApp {
		w.t.Helper()
		args["port"], args["want"] = 8000, "old text"
		return show[shownApp](w, "app", args)
	}
	said := func(want string) {
		w.t.Helper()
		show[string](w, "word", map[string]any{"want": want})
	}
	do[any](w, "open", map[string]any{"path": "/runs/" + run.ID + "?pane=preview", "row": true})
	said("No program listens on a port yet")
	show[string](w, "port", map[string]any{"port": 8000, "want": "waiting for port 8000"})
	_, err := sb.Services().Declare(w.ctx(), api.ServiceSpec{
		Name: "web", Command: "echo comes up; until test -e /tmp/go; do sleep 0.1; done; exec python3 server.py", Ports: []int{8000}, ReadyHTTP: 8000, Restart: "never",
	}, 0)
	w.ok(err)
	said("web is starting")
	_, err = sb.Files().Write(w.ctx(), "/tmp/go", nil, client.WriteOptions{})
	w.ok(err)
	said("web is ready")
	first := app(map[string]any{"mark": "first"})
	w.apart(first, ".preview.localhost")

	t.Run("Widths", func(t *testing.T) {
		w := w.with(t)
		for label, px := range map[string]int{"Phone, 390": 390, "Tablet, 768": 768, "Desktop, 1280": 1280, "As wide as the pane": 0} {
			got := show[shownApp](w, "wide", map[string]any{"port": 8000, "want": "old text", "label": label})
			if want := px; got.Width != want && (px != 0 || got.Width != got.Room) || got.Mark != "first" {
				t.Errorf("%s: the app is %d wide in a pane of %d, and marked %q", label, got.Width, got.Room, got.Mark)
			}
		}
		show[shownApp](w, "wide", map[string]any{"port": 8000, "want": "old text", "label": "As wide as the pane"})
	})
	t.Run("Tab", func(t *testing.T) {
		w := w.with(t)
		type tab struct{ Origin, Text, Opener string }
		if got := show[tab](w, "tab", map[string]any{"want": "old text"}); got != (tab{first.Origin, "old text", "null"}) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("Switch", func(t *testing.T) {
		w := w.with(t)
		type free struct {
			Was       bool
			Downloads []string
			Popups    int
			Sandbox   string
		}
		for i, on := range []bool{false, true, false} {
			got := show[free](w, "free", map[string]any{"port": 8000, "want": "old text", "on": on})
			may := frameMay
			if on {
				may += " allow-popups allow-downloads"
			}
			if got.Was != (i == 2) || got.Sandbox != may || (got.Popups == 1) != on || slices.Equal(got.Downloads, []string{"saved.txt"}) != on || len(got.Downloads) > 1 {
				t.Errorf("allowed: %t: %+v", on, got)
			}
		}
	})
	t.Run("Crashed", func(t *testing.T) {
		w := w.with(t)
		app(map[string]any{"mark": "before"})
		now, err := sb.Services().Get(w.ctx(), "web")
		w.ok(err)
		w.ok(sb.SignalProcess(w.ctx(), now.ProcessKey, syscall.SIGKILL))
		said("web crashed")
		show[string](w, "log", map[string]any{"want": "comes up"})
		show[any](w, "press", map[string]any{"name": "Restart web"})
		said("web is ready")
		w.until("the app is loaded anew", func() error {
			if got := app(map[string]any{}); got.Mark != "" {
				return errors.New("it is marked " + got.Mark)
			}
			return nil
		})
	})
	t.Run("Paused", func(t *testing.T) {
		w := w.with(t)
		if got := show[[]string](w, "looks", nil); !slices.Equal(got, []string{"false", "false"}) {
			t.Errorf("what the pane asks may wake the machine: %q", got)
		}
		_, err := sb.Pause(w.ctx())
		w.ok(err)
		if got := show[int](w, "asleep", map[string]any{"sandbox": run.Sandbox}); got != http.StatusConflict {
			t.Errorf("a look at a machine that is paused is answered %d", got)
		}
		now, err := sb.Get(w.ctx())
		w.ok(err)
		if now.State != "paused" {
			t.Errorf("the machine is %s", now.State)
		}
		_, err = sb.Resume(w.ctx())
		w.ok(err)
		said("web is ready")
	})
	w.noWindows(".preview.localhost")
}

// parts are the folders of packages, and of all that they need, in a node_modules.
func parts(t *testing.T, modules string, names ...string) []string {
	t.Helper()
	var all []string
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		data, err := os.ReadFile(filepath.Join(modules, name, "package.json"))
		if os.IsNotExist(err) || slices.Contains(all, name) { // what is optional may be missing
			continue
		}
		var p struct {
			Dependencies, OptionalDependencies map[string]string
		}
		if err == nil {
			err = json.Unmarshal(data, &p)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, name)
		for _, more := range []map[string]string{p.Dependencies, p.OptionalDependencies} {
			for n := range more {
				names = append(names, n)
			}
		}
	}
	return all
}

// Scenario 13, with the Vite that the UI itself is built with: an edit of a component is seen in
// the frame without a reload, by the component's state also, and so is its undo.
func TestPreview_hotReload(t *testing.T) {
	modules := browser.Install(t, filepath.Join("..", "..", "web", "ui"))
	node, carried := browser.Carried(t, "/tmp/node")
	w := newWorld(t, setup{scripts: map[string]string{"edit": executes("sed -i 's/old text/agent text/' src/App.jsx")}})
	made, err := w.c.CreateSandbox(w.ctx(), api.CreateSandbox{Language: "node", MemoryMB: 1024, DiskMB: 512, CPUs: 2})
	w.ok(err)
	sb := w.c.Sandbox(made.ID)
	if carried != "" {
		data, err := os.Open(carried)
		w.ok(err)
		defer data.Close()
		_, err = sb.Files().WriteFrom(w.ctx(), node, data, client.WriteOptions{Mode: 0o755})
		w.ok(err)
	}
	for _, name := range parts(t, modules, "vite", "@vitejs/plugin-react", "react", "react-dom") {
		_, err := sb.Files().UploadDir(w.ctx(), filepath.Join(modules, name), "/workspace/node_modules/"+name)
		w.ok(err)
	}
	_, err = sb.Files().UploadDir(w.ctx(), filepath.Join("testdata", "vite"), "/workspace")
	w.ok(err)
	web, err := sb.Services().Declare(w.ctx(), api.ServiceSpec{
		Name: "web", Command: "exec " + node + " node_modules/vite/bin/vite.js", Ports: []int{5173}, ReadyHTTP: 5173,
	}, time.Minute)
	w.ok(err)
	if web.State != "ready" {
		t.Fatalf("the dev server is %+v", web)
	}
	run := w.ended(w.run("edit", api.StartRun{Sandbox: made.ID}).ID)
	do[any](w, "open", map[string]any{"path": "/runs/" + run.ID + "?pane=preview&port=5173", "row": true})
	first := show[shownApp](w, "app", map[string]any{"port": 5173, "want": "agent text", "mark": "loaded once", "clicks": 3})
	w.apart(first, ".preview.localhost")
	same := func(what string, got shownApp) {
		t.Helper()
		if got.Mark != "loaded once" || got.Loaded != first.Loaded || got.Clicks != 3 {
			t.Errorf("%s: the app was loaded anew, or its component made anew: %+v, at first %+v", what, got, first)
		}
	}
	root := w.root(made.ID)
	now, err := os.ReadFile(filepath.Join("testdata", "vite", "src", "App.jsx"))
	w.ok(err)
	began := time.Now()
	_, err = sb.Files().Write(w.ctx(), "/workspace/src/App.jsx", []byte(strings.Replace(string(now), "old text", "new text", 1)), client.WriteOptions{})
	w.ok(err)
	got := show[shownApp](w, "app", map[string]any{"port": 5173, "want": "new text"})
	t.Logf("the new text was there %d ms after the order to write", time.Since(began).Milliseconds())
	same("the edit", got)
	if w.root(made.ID) == root {
		t.Fatal("the change is no revision")
	}
	show[any](w, "leave", nil)
	act[planned](w, "plan", nil)
	got = show[shownApp](w, "undone", map[string]any{"port": 5173, "want": "agent text"})
	w.tookBack(made.ID, root, got)
	same("the undo of the edit", got)
	w.noWindows(".preview.localhost")
}
