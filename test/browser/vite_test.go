package browser_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/preview"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/test/browser"
)

// vite runs the dev server of a copy of the app, as a sandbox's service would.
type vite struct {
	dir, addr string
	cmd       *exec.Cmd
	edited    time.Time
}

// watched is how long Vite's watcher (chokidar) is deaf to a second change of
// a file: a page is quicker than that, a person and an agent are not.
const watched = 50 * time.Millisecond

func newVite(t *testing.T) *vite {
	t.Helper()
	modules := browser.Install(t, "app")
	dir := filepath.Join(t.TempDir(), "app")
	must(t, os.CopyFS(dir, os.DirFS("app")))
	must(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	v := &vite{dir: dir, addr: ln.Addr().String()}
	must(t, ln.Close())
	t.Cleanup(v.kill)
	return v
}

func (v *vite) start(t *testing.T) {
	t.Helper()
	_, port, _ := net.SplitHostPort(v.addr)
	v.cmd = exec.Command(browser.Node(t), "node_modules/vite/bin/vite.js", "--port", port, "--strictPort", "--host", "127.0.0.1")
	v.cmd.Dir = v.dir
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, v.cmd.Start())
}

func (v *vite) kill() {
	if v.cmd != nil {
		_ = syscall.Kill(-v.cmd.Process.Pid, syscall.SIGKILL)
		_ = v.cmd.Wait()
		v.cmd = nil
	}
}

func (v *vite) edit(t *testing.T, file, old, now string) {
	t.Helper()
	path := filepath.Join(v.dir, file)
	data, err := os.ReadFile(path)
	must(t, err)
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q", file, old)
	}
	<-time.After(time.Until(v.edited.Add(2 * watched)))
	v.edited = time.Now()
	must(t, os.WriteFile(path, []byte(strings.Replace(string(data), old, now, 1)), 0o644))
}

type shown struct {
	Theme    string  `json:"theme"`
	LoadedAt float64 `json:"loaded_at"`
	Took     float64 `json:"took"`
}

// A dev server behind a preview, nothing configured: edits reach the open page
// without a reload; when it dies and comes back, the open page does too.
func TestHotReloadThroughAPreview(t *testing.T) {
	b := browser.Start(t)
	w, v := newWorld(t), newVite(t)
	v.start(t)
	w.app.Store(&v.addr)
	enter, _, err := w.previews.Invite(t.Context(), preview.Visitor{Tenant: key.DefaultTenant, User: "usr_alice"}, preview.Target{Sandbox: boxID, Port: 5173}, "/")
	must(t, err)
	first := browser.Run[shown](t, b, "theme.mjs", map[string]any{"url": enter, "want": "light"})
	if first.Theme != "light" {
		t.Fatalf("%+v", first)
	}
	for _, name := range []string{"dark", "light", "dark"} {
		old := map[string]string{"dark": "light", "light": "dark"}[name]
		v.edit(t, "src/theme.js", "name: '"+old+"'", "name: '"+name+"'")
		began := time.Now()
		got := browser.Run[shown](t, b, "theme.mjs", map[string]any{"want": name})
		t.Logf("%s: seen after %s", name, time.Since(began).Round(time.Millisecond))
		if got.Theme != name || got.LoadedAt != first.LoadedAt {
			t.Errorf("the page shows %q; reloaded: %v", got.Theme, got.LoadedAt != first.LoadedAt)
		}
	}
	v.kill()
	v.edit(t, "src/theme.js", "name: 'dark'", "name: 'red'")
	began := time.Now()
	v.start(t)
	got := browser.Run[shown](t, b, "theme.mjs", map[string]any{"want": "red"})
	t.Logf("from the start of a new server to its page: %s", time.Since(began).Round(time.Millisecond))
	if got.Theme != "red" || got.LoadedAt == first.LoadedAt {
		t.Errorf("the page did not come back: %+v", got)
	}
}
