package ui

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
	"github.com/skete-dev/skete/test/browser"
)

// programs are built once.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = scratch.Dir("ui"); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", "github.com/skete-dev/skete/cmd/skete", "github.com/skete-dev/skete/cmd/skete-guest", "github.com/skete-dev/skete/cmd/skete-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build the programs: %w\n%s", err, text)
	}
	return dir, nil
})

// built says whether programs was asked for.
var built bool

func TestMain(m *testing.M) {
	code := m.Run()
	if built {
		dir, _ := programs()
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// world is a server, and a browser that a person has logged in.
type world struct {
	t       *testing.T
	home    string
	address string // host and port
	host    string // by which browsers know the server
	domain  string // of previews; "" = localhost
	cmd     *exec.Cmd
	log     *bytes.Buffer
	c       *client.Client
	page    *browser.Browser
	flags   []string // of the server
	wire    *wire
	program string // that is started instead of what programs built; "" = that
	feed    *feed
}

// setup is what a world begins with.
type setup struct {
	scripts, agents map[string]string // by name
	wired           bool              // the browser comes through a wire
	fed             bool              // the browser comes through a feed
	cold            bool              // no machine is warm: each has its sandbox's name
	host, domain    string            // by which browsers know the server, and of previews; "" = localhost
	providers       string            // "" = gvisor
}

// newWorld starts a server with scripted models and logs a browser in.
func newWorld(t *testing.T, s setup) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: the whole program is tested with cgroups and loop devices")
	}
	w := &world{t: t, home: filepath.Join(t.TempDir(), "home"), address: freeAddress(t), host: cmp.Or(s.host, "localhost"), domain: s.domain}
	var flags []string
	via := ""
	if s.wired {
		w.wire = newWire(t, w.address)
		via = w.wire.address
	}
	if s.fed {
		w.feed = newFeed(t, w.address)
		via = w.feed.address()
	}
	if via != "" {
		flags = append(flags, "--host-resolver-rules=MAP "+strings.TrimPrefix(w.origin(), "http://")+" "+via)
	}
	w.page = browser.Start(t, flags...)
	w.flags = []string{"--providers", cmp.Or(s.providers, "gvisor")}
	if strings.Contains(s.providers, "process") {
		w.flags = append(w.flags, "--set", "unsafe_no_isolation=true")
	}
	config := "models:\n"
	for name, text := range s.scripts {
		path := "scripts/" + name + ".yaml"
		w.write(path, text)
		config += fmt.Sprintf("  - {name: %s, vendor: script, script: %s}\n", name, filepath.Join(w.home, path))
	}
	for name, text := range s.agents {
		w.write("agents/"+name+".yaml", text)
	}
	if s.cold {
		config += "pool_demand: 0\n"
	}
	w.write("skete.yaml", config)
	t.Cleanup(w.close)
	w.start()
	key, err := w.c.CreateKey(w.ctx(), api.CreateKey{Name: "ana", Scopes: []string{"admin"}})
	w.ok(err)
	do[struct{}](w, "enter", map[string]any{"key": key.Secret})
	return w
}

func (w *world) origin() string {
	_, port, _ := net.SplitHostPort(w.address)
	return "http://" + w.host + ":" + port
}

// freeAddress is one that a server can have again after it was killed.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (w *world) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.home, name)
	w.ok(os.MkdirAll(filepath.Dir(path), 0o700))
	w.ok(os.WriteFile(path, []byte(text), 0o600))
}

// start runs the server and waits until it answers.
func (w *world) start() {
	w.t.Helper()
	built = true
	dir, err := programs()
	w.ok(err)
	w.log = &bytes.Buffer{}
	args := append([]string{
		"serve", "--listen", w.address, "--set", "defaults.memory_mb=128", "--set", "defaults.disk_mb=64",
		"--set", "origin=" + w.origin(), "--set", "preview.domain=" + w.domain,
	}, w.flags...)
	w.cmd = exec.Command(cmp.Or(w.program, filepath.Join(dir, "skete")), args...)
	w.cmd.Env = append(os.Environ(), "SKETE_HOME="+w.home, "SKETE_GUEST="+filepath.Join(dir, "skete-guest"), "SKETE_AGENTS_PROGRAM="+filepath.Join(dir, "skete-agent"), "SKETE_HOST_REGISTRIES=false")
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	w.ok(w.cmd.Start())
	w.c, err = client.New(client.Config{Socket: client.SocketPath(w.home), ReconnectTimeout: 30 * time.Second})
	w.ok(err)
	w.until("the server answers", func() error {
		_, err := w.c.Info(w.ctx())
		return err
	})
}

// end ends the server by a signal. SIGKILL is as a power cut of the process.
func (w *world) end(signal syscall.Signal) {
	w.t.Helper()
	cmd := w.cmd
	w.cmd = nil
	_ = cmd.Process.Signal(signal)
	late := time.AfterFunc(patience.Of(20*time.Second), func() {
		w.t.Errorf("the server did not end")
		_ = cmd.Process.Kill()
	})
	_ = cmd.Wait()
	late.Stop()
	w.c.Close()
}

// close destroys all sandboxes.
func (w *world) close() {
	if w.cmd == nil {
		w.start()
	}
	for sb, err := range w.c.Sandboxes(w.ctx(), client.SandboxFilter{}) {
		w.ok(err)
		if sb.State != "destroyed" {
			w.ok(w.c.Sandbox(sb.ID).Destroy(w.ctx()))
		}
	}
	w.end(syscall.SIGTERM)
	if w.t.Failed() {
		w.t.Logf("server's log:\n%s", w.log)
	}
}

func (w *world) ctx() context.Context {
	ctx, cancel := patience.Context(context.Background(), time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) until(what string, f func() error) {
	w.t.Helper()
	patience.Try(w.t, time.Minute, what, f)
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// with is w in a part of its test.
func (w *world) with(t *testing.T) *world {
	t.Helper()
	outer := w.t
	w.t = t
	t.Cleanup(func() { w.t = outer })
	return w
}

// do runs a function of page.mjs, which is called by name.
func do[T any](w *world, name string, args map[string]any) T {
	w.t.Helper()
	return browser.Run[T](w.t, w.page, "page.mjs", w.args(name, args))
}

// args are what a function of a page gets.
func (w *world) args(name string, args map[string]any) map[string]any {
	if args == nil {
		args = map[string]any{}
	}
	args["do"], args["origin"], args["within"] = name, w.origin(), patience.Of(20*time.Second).Milliseconds()
	return args
}

// run starts a run by the API.
func (w *world) run(model string, r api.StartRun) api.Run {
	w.t.Helper()
	r.Model = model
	if r.Task == "" {
		r.Task = "Do it."
	}
	run, err := w.c.StartRun(w.ctx(), r)
	w.ok(err)
	return run
}

// ended waits for the end of a run that is to succeed.
func (w *world) ended(id string) api.Run {
	w.t.Helper()
	run, err := w.c.Run(id).Wait(w.ctx())
	w.ok(err)
	if run.State != "succeeded" {
		w.t.Fatalf("the run is %s (%s): %s", run.State, run.Reason, run.Text)
	}
	return run
}

// clean asserts what holds for every page of every test: no dialog, no request to
// elsewhere, no report of a policy, no error, and a title of ours.
func (w *world) clean() {
	w.t.Helper()
	w.report(do[watched](w, "watched", nil))
}

func (w *world) report(got watched) {
	w.t.Helper()
	for what, list := range map[string][]string{
		"dialogs": got.Dialogs, "requests to elsewhere": got.Outside, "violations of the policy": got.Violations, "errors": got.Errors,
		"titles": got.Titles, "popups": got.Popups,
	} {
		if len(list) > 0 {
			w.t.Errorf("%s: %s", what, strings.Join(list, "\n"))
		}
	}
}

// watched is what the browser has seen since the login.
type watched struct {
	Dialogs    []string `json:"dialogs"`
	Outside    []string `json:"outside"`
	Violations []string `json:"violations"`
	Errors     []string `json:"errors"`
	Titles     []string `json:"titles"`
	Popups     []string `json:"popups"`
}
