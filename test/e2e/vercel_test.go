package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/test/browser"
)

// vercelDir has scripts and the exact version of the SDK that they use.
const vercelDir = "testdata/vercel"

// vercelScript is a client with Vercel's SDK, which is given nothing but an address and
// a key.
func (b *bridged) vercelScript(script string, args ...string) *exec.Cmd {
	modules := browser.Install(b.t, vercelDir)
	cmd := exec.Command(browser.Node(b.t), append([]string{filepath.Join(vercelDir, script), modules}, args...)...)
	cmd.Env = append(os.Environ(), b.vercelEnv()...)
	return cmd
}

func (b *bridged) vercelEnv() []string {
	return []string{"SKETE_URL=http://" + b.address, "SKETE_KEY=" + b.key}
}

// vercels are the places in which Vercel's SDK is tried, by their columns of the table.
var vercels = []foreign{
	{"@vercel/sandbox 3.5.0", nil, "everything.mjs", false},
	{"QEMU", nil, "everything.mjs", true},
}

// Every method that Vercel's SDK exports, unmodified but for its fetch, team and token:
// the table of docs/bridges.md is made of what this test sees.
func TestVercel_everyMethod(t *testing.T) {
	t.Parallel()
	results := map[string]map[string]string{}
	var methods []string
	for _, f := range vercels {
		t.Run(f.name, func(t *testing.T) {
			if f.qemu {
				byHand(t)
			}
			b := newBridged(t, f)
			results[f.name] = b.methods(t, b.vercelScript(f.script), 50, &methods)
		})
	}
	checkTable(t, "methods: made by TestVercel_everyMethod", names(vercels), methods, results)
}

// What a client of Vercel's SDK changed is a revision by its key, and undo takes it back.
func TestVercel_undo(t *testing.T) {
	t.Parallel()
	b := newBridged(t, foreign{})
	cmd := b.vercelScript("writes.mjs")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	b.ok(err)
	id := strings.TrimSpace(string(out))
	list := b.must("history", id)
	for _, want := range []string{"their-app", `write files, first "notes/a.txt"`, "exec rm -rf notes", `mkdir "made"`} {
		if !strings.Contains(list, want) {
			t.Errorf("the history does not tell of %q:\n%s", want, list)
		}
	}
	look := func() string {
		return b.must("vm", "exec", id, "--", "sh", "-c", "cd /workspace && ls && cat notes/* 2>/dev/null || true")
	}
	for _, want := range []string{"made", "", "notes\nfirst", ""} {
		if want != "made" {
			b.must("undo", id, "-y")
		}
		if got := look(); got != want {
			t.Errorf("it has %q, want %q", got, want)
		}
	}
}

// A detached command goes on when the server is killed; the client finds it by its own
// method, sees how it ended, and has all of its output.
func TestVercel_killed(t *testing.T) {
	t.Parallel()
	b := newBridged(t, foreign{})
	cmd := b.vercelScript("killed.mjs")
	in, err := cmd.StdinPipe()
	b.ok(err)
	out, err := cmd.StdoutPipe()
	b.ok(err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	b.ok(cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("it did not begin: %s", stderr.String())
	}
	b.kill()
	b.start()
	_, err = io.WriteString(in, "again\n")
	b.ok(err)
	patience.Within(t, time.Minute, "the client finds its command", func() {
		if !lines.Scan() {
			t.Errorf("it did not go on: %s\n%s", stderr.String(), b.log)
		}
	})
	var got struct {
		ExitCode int
		Stdout   string
	}
	b.ok(json.Unmarshal(lines.Bytes(), &got))
	if got.ExitCode != 7 || got.Stdout != "before\nafter\n" {
		t.Errorf("%+v", got)
	}
}

// hostApp starts the web server of examples/vercel and returns its address.
func (b *bridged) hostApp() string {
	b.t.Helper()
	dir := b.t.TempDir()
	for _, name := range []string{"server.mjs", "agent.js"} {
		text, err := os.ReadFile(filepath.Join("../../examples/vercel", name))
		b.ok(err)
		b.ok(os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	modules, err := filepath.Abs(browser.Install(b.t, vercelDir))
	b.ok(err)
	b.ok(os.Symlink(modules, filepath.Join(dir, "node_modules")))
	cmd := exec.Command(browser.Node(b.t), filepath.Join(dir, "server.mjs"))
	cmd.Env = append(append(os.Environ(), "PORT=0"), b.vercelEnv()...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	b.ok(err)
	b.ok(cmd.Start())
	b.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		b.t.Fatal("the host app did not start")
	}
	return lines.Text()
}

// The host app of examples/vercel shows what its agent says while it works, and leaves no
// sandbox, whether it is waited for or not.
func TestVercel_hostApp(t *testing.T) {
	t.Parallel()
	b := newBridged(t, foreign{})
	app := b.hostApp()
	ask := func(ctx context.Context) *http.Response {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, app+"/run?task=Count+the+words", nil)
		b.ok(err)
		res, err := http.DefaultClient.Do(req)
		b.ok(err)
		return res
	}
	gone := func() {
		b.until("its sandbox is destroyed", func() error {
			if n := len(b.live()); n != 0 {
				return fmt.Errorf("%d sandboxes are there", n)
			}
			return nil
		})
	}
	res := ask(t.Context())
	defer res.Body.Close()
	from := bufio.NewReader(res.Body)
	first, err := from.ReadString('\n')
	b.ok(err)
	live := b.live()
	if first != "task: Count the words\n" || len(live) != 1 {
		t.Fatalf("%q, with %d sandboxes", first, len(live))
	}
	for p, err := range b.c.Sandbox(live[0].ID).Processes(b.ctx()) {
		b.ok(err)
		if p.State != "running" {
			t.Errorf("what the agent says came when it was over: %+v", p)
		}
	}
	rest, err := io.ReadAll(from)
	b.ok(err)
	if want := "wrote report.txt\nit has 16 bytes\ndone\nexit code 0\n"; string(rest) != want {
		t.Errorf("%q, want %q", rest, want)
	}
	gone()
	ctx, leave := context.WithCancel(t.Context())
	left := ask(ctx)
	leave()
	_ = left.Body.Close()
	gone()
}
