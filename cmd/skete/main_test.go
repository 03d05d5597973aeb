package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/launch"
	"github.com/skete-dev/skete/cmd/skete/internal/serve"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
)

var update = flag.Bool("update", false, "rewrite golden files")

// programs are built once: the real ones, static as gVisor wants them.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = scratch.Dir("cmd"); err != nil {
		return "", err
	}
	for _, name := range []string{"skete", "skete-guest"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, name), "github.com/skete-dev/skete/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("build %s: %w\n%s", name, err, text)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	flag.Parse()
	// What is set outside must not reach the programs under test.
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "SKETE_") || name == "AGENT_VM" {
			os.Unsetenv(name)
		}
	}
	code := m.Run()
	if built {
		if dir, _ := programs(); dir != "" {
			os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// built tells TestMain whether there is something to remove.
var built bool

func bin(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the whole program: not with -short")
	}
	built = true
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// environment of a program under test with a data directory of its own. With
// the provider process it needs no rights and boots fast; what runs there is
// not isolated, and is only what these tests say.
func environOf(dir, home, provider string) []string {
	env := []string{
		"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + filepath.Dir(home), "TERM=xterm",
		"SKETE_HOME=" + home, "SKETE_GUEST=" + filepath.Join(dir, "skete-guest"), "SKETE_HOST_REGISTRIES=false",
	}
	if provider == "process" {
		env = append(env, "SKETE_UNSAFE_NO_ISOLATION=1", "SKETE_PROVIDERS=process")
	}
	return env
}

// pidOf returns the server of a data directory, 0 = none.
func pidOf(home string) int {
	var f serve.Facts
	data, err := os.ReadFile(serve.FactsPath(home))
	if err != nil || json.Unmarshal(data, &f) != nil {
		return 0
	}
	return f.PID
}

// endServer destroys all sandboxes of a data directory, and ends its server.
func endServer(t testing.TB, dir, home, provider string) {
	t.Helper()
	ctx, cancel := patience.Context(context.Background(), time.Minute)
	defer cancel()
	if _, err := os.Stat(home); err != nil {
		return // nothing was ever started
	}
	clean := exec.CommandContext(ctx, filepath.Join(dir, "skete"), "vm", "clean", "--all", "--yes")
	clean.Env = environOf(dir, home, provider)
	if text, err := clean.CombinedOutput(); err != nil {
		t.Errorf("clean: %v\n%s", err, text)
	}
	if pid := pidOf(home); pid > 0 {
		killAndAwait(t, pid, home, syscall.SIGTERM)
	}
	if t.Failed() {
		log, _ := os.ReadFile(launch.LogPath(home))
		t.Logf("the server's log:\n%s", log)
	}
}

func killAndAwait(t testing.TB, pid int, home string, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
	poll(t, "the server has ended", func() bool {
		// If its parent does not wait for it, it may stay a zombie; it serves no more.
		return !launch.Answers(context.Background(), home) && !alive(pid)
	})
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(rest, []byte("Z"))
}

// poll waits until f is true.
func poll(t testing.TB, what string, f func() bool) {
	t.Helper()
	patience.Until(t, 30*time.Second, what, f)
}

func TestScripts(t *testing.T) { runScripts(t, "testdata/script", "process") }

// TestScripts_gvisor are the acceptance lines in real isolation.
func TestScripts_gvisor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: gVisor with all limits")
	}
	runScripts(t, "testdata/gvisor", "gvisor", "testdata/script/runs.txtar")
}

// runScripts runs the scripts of a directory, and others.
func runScripts(t *testing.T, scripts, provider string, more ...string) {
	dir := bin(t)
	all, err := filepath.Glob(filepath.Join(scripts, "*.txtar"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	testscript.Run(t, testscript.Params{
		Files:               append(all, more...),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			for _, pair := range environOf(dir, home, provider) {
				name, value, _ := strings.Cut(pair, "=")
				e.Setenv(name, value)
			}
			tt, ok := e.T().(testing.TB)
			if !ok {
				return errors.New("the script's T is no testing.TB")
			}
			e.Defer(func() { endServer(tt, dir, home, provider) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"killserver": cmdKillServer,
			"code":       cmdCode,
			"setid":      cmdSetID,
			"until":      cmdUntil,
			"api":        cmdAPI,
		},
	})
}

// cmdKillServer ends the server of $SKETE_HOME as kill -9 does.
func cmdKillServer(ts *testscript.TestScript, neg bool, args []string) {
	home := ts.Getenv("SKETE_HOME")
	pid := pidOf(home)
	if neg || len(args) > 0 || pid == 0 {
		ts.Fatalf("killserver: no arguments, and a server must run")
	}
	ts.Check(syscall.Kill(pid, syscall.SIGKILL))
	for alive(pid) {
		<-time.After(time.Millisecond)
	}
}

// cmdCode runs a program and wants an exit status: code 3 skete vm exec …
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code STATUS PROGRAM ARGS…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit status %d, want %s", got, args[0])
	}
}

// cmdSetID puts the last stdout, which must be one word, into a variable.
func cmdSetID(ts *testscript.TestScript, neg bool, args []string) {
	out := strings.TrimSuffix(ts.ReadFile("stdout"), "\n")
	if neg || len(args) != 1 || out == "" || strings.ContainsAny(out, " \n") {
		ts.Fatalf("setid NAME: stdout is %q, want one word", out)
	}
	ts.Setenv(args[0], out)
}

// cmdUntil repeats a program until its stdout holds a text: until [-90s] TEXT PROGRAM ARGS…
func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	most := 30 * time.Second
	var err error
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		most, err = time.ParseDuration(args[0][1:])
		ts.Check(err)
		args = args[1:]
	}
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until [-TIME] TEXT PROGRAM ARGS…")
	}
	said := func() bool {
		err = ts.Exec(args[1], args[2:]...)
		return err == nil && strings.Contains(ts.ReadFile("stdout"), args[0])
	}
	if !patience.Holds(most, said) {
		ts.Fatalf("waited in vain for %q: %v", args[0], err)
	}
}

// TestHelp keeps the help of every command as it is, and complete.
func TestHelp(t *testing.T) {
	a := program{app.New(nil, nil, nil)}
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		t.Run(strings.Join(append([]string{"skete"}, path...), "_"), func(t *testing.T) {
			var out, errOut bytes.Buffer
			if code := run(append(path, "--help"), nil, &out, &errOut); code != 0 || errOut.Len() > 0 {
				t.Fatalf("status %d, stderr %q", code, errOut.String())
			}
			if c.Example == "" {
				t.Error("the help has no examples")
			}
			golden(t, strings.Join(append([]string{"skete"}, path...), "_"), out.Bytes())
		})
		for _, sub := range c.Commands() {
			if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
				walk(sub, append(slices.Clip(path), sub.Name()))
			}
		}
	}
	walk(a.root(), nil)
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "help", name+".txt")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(want, got) {
		t.Errorf("%s is not up to date (go test -update rewrites it): %v\n%s", path, err, got)
	}
}

// world is a data directory for tests that are no scripts.
type world struct {
	t         *testing.T
	dir, home string
	provider  string
}

func newWorld(t *testing.T, provider string) *world {
	t.Helper()
	w := &world{t: t, dir: bin(t), home: filepath.Join(t.TempDir(), "home"), provider: provider}
	t.Cleanup(func() { endServer(t, w.dir, w.home, provider) })
	return w
}

func (w *world) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	w.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(w.dir, "skete"), args...)
	cmd.Env = environOf(w.dir, w.home, w.provider)
	return cmd
}

// run returns stdout of a command that must succeed.
func (w *world) run(args ...string) string {
	w.t.Helper()
	cmd := w.command(args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("skete %q: %v\n%s", args, err, errOut.String())
	}
	return strings.TrimSuffix(string(out), "\n")
}

func (w *world) client() *client.Client {
	w.t.Helper()
	c, err := client.New(client.Config{Socket: client.SocketPath(w.home)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// cmdAPI sends a request to the server's socket, as curl would, and writes the
// body of the answer to stdout: api METHOD PATH [BODY]. An answer that is no
// success fails.
func cmdAPI(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: api METHOD PATH [BODY]")
	}
	home := ts.Getenv("SKETE_HOME")
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
		err = client.WithShortPath(client.SocketPath(home), func(short string) error {
			conn, err = (&net.Dialer{}).DialContext(ctx, "unix", short)
			return err
		})
		return conn, err
	}}}
	defer c.CloseIdleConnections()
	req, err := http.NewRequest(args[0], "http://localhost"+args[1], strings.NewReader(strings.Join(args[2:], "")))
	ts.Check(err)
	if len(args) == 3 {
		req.Header.Set("Content-Type", "application/json")
		if args[0] == http.MethodPut {
			req.Header.Set("Content-Type", "application/octet-stream")
		}
	}
	res, err := c.Do(req)
	ts.Check(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	ts.Check(err)
	if _, err := ts.Stdout().Write(body); err != nil || res.StatusCode >= 300 {
		ts.Fatalf("%s %s: %s %v", args[0], args[1], res.Status, err)
	}
}

// TestDay: what docs/day.md shows is what the script of it compares with.
func TestDay(t *testing.T) {
	document, err := os.ReadFile("../../docs/day.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	for rest := string(document); ; {
		_, after, found := strings.Cut(rest, "```console\n")
		if !found {
			break
		}
		block, behind, _ := strings.Cut(after, "```\n")
		shown.WriteString(block + "\n")
		rest = behind
	}
	script, err := os.ReadFile("testdata/gvisor/day.txtar")
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(script), "-- want --\n")
	if d := cmp.Diff(want, shown.String()); d != "" {
		t.Errorf("the document shows something else (-script +document)\n%s", d)
	}
}
