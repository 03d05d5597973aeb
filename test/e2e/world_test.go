package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
)

// programs are built once: static, with the guest beside.
var programs = sync.OnceValues(func() (p struct{ skete, guest, agent string }, err error) {
	dir, err := scratch.Dir("e2e")
	if err != nil {
		return p, err
	}
	p.skete, p.guest, p.agent = filepath.Join(dir, "skete"), filepath.Join(dir, "skete-guest"), filepath.Join(dir, "skete-agent")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", "github.com/skete-dev/skete/cmd/skete", "github.com/skete-dev/skete/cmd/skete-guest", "github.com/skete-dev/skete/cmd/skete-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return p, fmt.Errorf("build the programs: %w\n%s", err, text)
	}
	return p, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if p, err := programs(); err == nil {
		os.RemoveAll(filepath.Dir(p.skete))
	}
	os.Exit(code)
}

// world is one data directory and whatever server runs on it.
type world struct {
	t    *testing.T
	home string
	args []string
	cmd  *exec.Cmd
	log  *bytes.Buffer
	c    *client.Client
	env  []string // of the server, beside ours
	// enter calls a function where the server runs; nil = here.
	enter func(func() error)
	ids   map[string]bool // sandboxes ever seen, for the leak check
}

// newWorld makes a data directory; at the end of the test everything is
// destroyed and nothing may be left on the host.
func newWorld(t *testing.T, args ...string) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: the whole program is tested with cgroups and loop devices")
	}
	w := &world{t: t, home: filepath.Join(t.TempDir(), "home"), args: args, ids: map[string]bool{}}
	t.Cleanup(w.close)
	return w
}

// start runs the server and waits until it answers.
func (w *world) start() {
	w.t.Helper()
	w.launch()
	w.until("the server answers", func() error {
		_, err := w.c.Info(w.ctx())
		return err
	})
}

// launch runs the server.
func (w *world) launch() {
	w.t.Helper()
	p, err := programs()
	if err != nil {
		w.t.Fatal(err)
	}
	w.log = &bytes.Buffer{}
	w.cmd = exec.Command(p.skete, append([]string{"serve", "--listen", ""}, w.args...)...)
	w.cmd.Env = append(os.Environ(), "SKETE_HOME="+w.home, "SKETE_GUEST="+p.guest, "SKETE_AGENTS_PROGRAM="+p.agent, "SKETE_HOST_REGISTRIES=false")
	w.cmd.Env = append(w.cmd.Env, w.env...)
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	if w.enter != nil {
		w.enter(w.cmd.Start)
	} else if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	if w.c, err = client.New(client.Config{Socket: client.SocketPath(w.home), ReconnectTimeout: 30 * time.Second}); err != nil {
		w.t.Fatal(err)
	}
}

// kill ends the server as a power cut of the process would.
func (w *world) kill() {
	w.t.Helper()
	if w.cmd == nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	w.cmd = nil
	w.c.Close()
}

// stop ends the server politely; sandboxes live on.
func (w *world) stop() {
	w.t.Helper()
	if w.cmd == nil {
		return
	}
	cmd := w.cmd
	w.cmd = nil
	_ = cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(patience.Of(20 * time.Second)):
		w.t.Errorf("the server did not stop")
		_ = cmd.Process.Kill()
		<-done
	}
	w.c.Close()
}

func (w *world) ctx() context.Context {
	ctx, cancel := patience.Context(context.Background(), time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

// until polls f for at most a minute of the reference's time.
func (w *world) until(what string, f func() error) {
	w.t.Helper()
	patience.Try(w.t, time.Minute, what, func() error {
		err := f()
		if err != nil {
			err = fmt.Errorf("%w\nserver's log:\n%s", err, w.log)
		}
		return err
	})
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%v\nserver's log:\n%s", err, w.log)
	}
}

func (w *world) create(spec api.CreateSandbox) *client.Sandbox {
	w.t.Helper()
	sb, err := w.c.CreateSandbox(w.ctx(), spec)
	if err != nil {
		w.t.Fatalf("create: %v\nserver's log:\n%s", err, w.log)
	}
	w.ids[sb.ID] = true
	return w.c.Sandbox(sb.ID)
}

// live lists what is not destroyed.
func (w *world) live() (live []api.Sandbox) {
	w.t.Helper()
	for sb, err := range w.c.Sandboxes(w.ctx(), client.SandboxFilter{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		w.ids[sb.ID] = true
		if sb.State != "destroyed" {
			live = append(live, sb)
		}
	}
	return live
}

// close destroys all sandboxes and looks for what is left on the host.
func (w *world) close() {
	if w.cmd == nil {
		if _, err := os.Stat(w.home); errors.Is(err, fs.ErrNotExist) {
			return
		}
		w.start()
	}
	for _, sb := range w.live() {
		if err := w.c.Sandbox(sb.ID).Destroy(w.ctx()); err != nil {
			w.t.Errorf("destroy %s: %v", sb.ID, err)
		}
	}
	for _, leak := range w.leaks(false) {
		w.t.Errorf("left behind by live server: %s", leak)
	}
	w.stop()
	for _, leak := range w.leaks(true) {
		w.t.Errorf("left behind: %s", leak)
	}
	if w.t.Failed() {
		w.t.Logf("server's log:\n%s", w.log)
	}
}

// leaks names every process, mount, control group, loop device and directory
// that belongs to a sandbox of this world: to one of those seen or, if all, to
// any. A live server may keep machines warm that no sandbox has yet.
func (w *world) leaks(all bool) (found []string) {
	mine := func(s string) bool {
		if all && strings.Contains(s, w.home+"/") && strings.Contains(s, "sbx_") {
			return true
		}
		for id := range w.ids {
			if strings.Contains(s, id) {
				return true
			}
		}
		return false
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); mine(string(line)) {
			found = append(found, fmt.Sprintf("process %s: %q", e.Name(), line))
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for l := range strings.Lines(string(mounts)) {
		if mine(l) || all && strings.Contains(l, w.home+"/") {
			found = append(found, "mount: "+strings.TrimSpace(l))
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/skete*/*", "/sys/fs/cgroup/skete*/*", "/sys/fs/cgroup/*/*/skete*/*"} {
		dirs, _ := filepath.Glob(pattern)
		for _, d := range dirs {
			if mine(d) {
				found = append(found, "cgroup: "+d)
			}
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		if file, _ := os.ReadFile(l); mine(string(file)) {
			found = append(found, fmt.Sprintf("loop device %s: %s", l, file))
		}
	}
	_ = filepath.WalkDir(w.home, func(path string, d fs.DirEntry, err error) error {
		if path == filepath.Join(w.home, "history") {
			return filepath.SkipDir // histories outlive their sandboxes
		}
		if err == nil && strings.Contains(d.Name(), "sbx_") && mine(path) {
			found = append(found, "file: "+path)
			if d.IsDir() {
				return filepath.SkipDir
			}
		}
		return nil
	})
	return found
}

// raw speaks HTTP to the unix socket, for what no client would send.
func (w *world) raw() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: unixDial(client.SocketPath(w.home))}}
}
