package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/test/browser"
)

// pageMutex is of docs/bridges.md, parts of which are written by tests that run side by side.
var pageMutex sync.Mutex

var updateBridges = flag.Bool("update", false, "write the table of docs/bridges.md")

// bridgeDir has scripts and the exact versions of what they use.
const bridgeDir = "testdata/bridge"

// pythonPackages installs what a list of requirements names, and keeps it.
func pythonPackages(t *testing.T, requirements string) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("pip3"); err != nil {
		t.Skip("skipped: no pip3 on this machine: `make need-test` installs it")
	}
	pipMutex.Lock()
	defer pipMutex.Unlock()
	dir, err := keptPackages(requirements)
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	return dir
}

var pipMutex sync.Mutex // one installation at a time

func keptPackages(requirements string) (dir string, err error) {
	wanted, err := os.ReadFile(requirements)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(wanted)
	kept, err := filepath.Abs("../../.build/pip")
	if err != nil {
		return "", err
	}
	place := filepath.Join(kept, hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(place); err == nil {
		return place, nil
	}
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp(kept, ".new-"); err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	out, err := exec.Command("pip3", "install", "--quiet", "--disable-pip-version-check", "--root-user-action", "ignore",
		"--target", dir, "--requirement", requirements).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("pip3 cannot install what the scripts need (is there a registry?): %w\n%s", err, out)
	}
	return place, os.Rename(dir, place)
}

// foreign is a client of others: a script, and with what it is run.
type foreign struct {
	name    string // as the table has it
	command func(t *testing.T, script string) *exec.Cmd
	script  string
	qemu    bool // in machines with a kernel of their own
}

func nodeClient(dir, pkg string) func(*testing.T, string) *exec.Cmd {
	return func(t *testing.T, script string) *exec.Cmd {
		modules := browser.Install(t, dir)
		return exec.Command(browser.Node(t), filepath.Join(dir, script), modules, pkg)
	}
}

func pythonClient(dir string) func(*testing.T, string) *exec.Cmd {
	return func(t *testing.T, script string) *exec.Cmd {
		packages := pythonPackages(t, filepath.Join(dir, "requirements.txt"))
		cmd := exec.Command("python3", filepath.Join(dir, script))
		cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
		return cmd
	}
}

var foreigns = []foreign{
	{"JavaScript 2.45.0", nodeClient(bridgeDir, "e2b"), "everything.mjs", false},
	{"JavaScript 2.51.0", nodeClient(bridgeDir, "e2b-newest"), "everything.mjs", false},
	{"Python 2.63.0", pythonClient(bridgeDir), "everything.py", false},
	{"JavaScript 2.51.0, QEMU", nodeClient(bridgeDir, "e2b-newest"), "everything.mjs", true},
}

// bridged is a server that clients of others may use, and the key that they have.
type bridged struct {
	*world
	address, key string
}

func newBridged(t *testing.T, f foreign, env ...string) *bridged {
	b := &bridged{address: listenAddress(t)}
	b.world = newWorldOf(t, f.qemu, "--listen", b.address)
	b.env = append(b.env, env...)
	b.start()
	made, err := b.c.CreateKey(b.ctx(), api.CreateKey{Name: "their-app"})
	b.ok(err)
	b.key = made.Secret
	return b
}

// newWorldOf is a world whose sandboxes are of gVisor or, if asked for, of QEMU, whose
// processors may be emulated.
func newWorldOf(t *testing.T, qemu bool, args ...string) *world {
	t.Helper()
	if !qemu {
		return newWorld(t, append([]string{"--providers", "gvisor"}, args...)...)
	}
	for _, tool := range []string{"qemu-system-x86_64", "mmdebstrap"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: no %s: `skete doctor --fix` installs it", tool)
		}
	}
	w := newWorld(t, append([]string{"--providers", "gvisor,qemu", "--set", "defaults.provider=qemu"}, args...)...)
	(&machines{w}).kernel()
	return w
}

// byHand skips what takes minutes where processors are emulated.
func byHand(t *testing.T) {
	t.Helper()
	if os.Getenv("SKETE_TEST_QEMU") == "" {
		t.Skip("skipped: without KVM it takes minutes in QEMU; SKETE_TEST_QEMU=1 runs it")
	}
}

// firstOf has the server make what its first sandbox needs.
func (b *bridged) firstOf(t *testing.T) {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), 8*time.Minute)
	defer cancel()
	sb, err := b.c.CreateSandbox(ctx, api.CreateSandbox{})
	b.ok(err)
	b.ids[sb.ID] = true
	b.ok(b.c.Sandbox(sb.ID).Destroy(ctx))
}

// run starts a client, with nothing but the two addresses and the key.
func (b *bridged) run(f foreign, script string) *exec.Cmd {
	cmd := f.command(b.t, script)
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	at := "http://" + b.address + "/e2b"
	cmd.Env = append(cmd.Env, "E2B_API_URL="+at, "E2B_SANDBOX_URL="+at, "E2B_API_KEY="+b.key)
	return cmd
}

// called is a line of a script.
type called struct{ Method, Result, Note string }

// Every method that an SDK of E2B exports and that docs/bridges.md claims works,
// unmodified but for its two addresses and the key: the page's table is made of what
// this test sees.
func TestBridge_everyMethod(t *testing.T) {
	t.Parallel()
	results := map[string]map[string]string{}
	var methods []string
	for _, f := range foreigns {
		t.Run(f.name, func(t *testing.T) {
			b := newBridged(t, f)
			results[f.name] = b.methods(t, b.run(f, f.script), 30, &methods)
		})
	}
	checkTable(t, "methods: made by TestBridge_everyMethod", names(foreigns), methods, results)
}

// names are those of clients, as a table has them.
func names(clients []foreign) (list []string) {
	for _, f := range clients {
		list = append(list, f.name)
	}
	return list
}

// methods runs the script of a client, which calls at least so many, and returns what
// came of each. New ones are added to all.
func (b *bridged) methods(t *testing.T, cmd *exec.Cmd, least int, all *[]string) map[string]string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	b.ok(err)
	b.ok(cmd.Start())
	got := map[string]string{}
	began := time.Now()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var c called
		b.ok(json.Unmarshal(lines.Bytes(), &c))
		if !slices.Contains([]string{"works", "differs", "refused"}, c.Result) {
			t.Errorf("%s %s: %s", c.Method, c.Result, c.Note)
		}
		t.Logf("%.1f s: %s", time.Since(began).Seconds(), c.Method)
		got[c.Method] = c.Result
		if !slices.Contains(*all, c.Method) {
			*all = append(*all, c.Method)
		}
	}
	if err := errors.Join(lines.Err(), cmd.Wait()); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stderr.String(), b.log)
	}
	if len(got) < least {
		t.Fatalf("only %d methods were called\n%s", len(got), stderr.String())
	}
	return got
}

// checkTable compares a table of docs/bridges.md with what was seen. The columns of clients
// that were not tried now are as the page has them: some are tried by hand.
func checkTable(t *testing.T, title string, clients, methods []string, results map[string]map[string]string) {
	t.Helper()
	what, _, _ := strings.Cut(title, ":")
	const page = "../../docs/bridges.md"
	pageMutex.Lock()
	defer pageMutex.Unlock()
	begin, end := "<!-- "+title+" -->\n", "<!-- end of "+what+" -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	table, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	old, oldMethods := readTable(table)
	for _, name := range clients {
		if results[name] == nil {
			results[name] = old[name]
		}
	}
	if len(methods) < len(oldMethods) { // of those that were tried, none calls them all
		methods = oldMethods
	}
	seen := tableOf(strings.TrimSuffix(what, "s"), clients, methods, results)
	if *updateBridges {
		if err := os.WriteFile(page, []byte(head+begin+seen+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := gocmp.Diff(table, seen); d != "" {
		t.Errorf("the table of %s is not what was seen (-update writes it):\n%s", page, d)
	}
}

// tableOf is a table of the page: a row for each method, a column for each client.
func tableOf(what string, clients, methods []string, results map[string]map[string]string) string {
	var b strings.Builder
	b.WriteString("| " + what + " | " + strings.Join(clients, " | ") + " |\n| --- |" + strings.Repeat(" --- |", len(clients)) + "\n")
	for _, m := range methods {
		if !slices.ContainsFunc(clients, func(name string) bool { return results[name][m] != "" }) {
			continue
		}
		b.WriteString("| " + m + " |")
		for _, name := range clients {
			b.WriteString(" " + cmp.Or(results[name][m], untried) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

const untried = "–"

// readTable reads what tableOf has made.
func readTable(table string) (results map[string]map[string]string, methods []string) {
	results = map[string]map[string]string{}
	var clients []string
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		switch {
		case i == 0:
			clients = cells[1:]
		case i > 1:
			methods = append(methods, cells[0])
			for j, cell := range cells[1:] {
				if cell != untried && j < len(clients) {
					if results[clients[j]] == nil {
						results[clients[j]] = map[string]string{}
					}
					results[clients[j]][cells[0]] = cell
				}
			}
		}
	}
	return results, methods
}

// What a client of others changed is a revision by its key, and undo takes it back:
// a file that it wrote, and what its command did.
func TestBridge_undo(t *testing.T) {
	t.Parallel()
	b := newBridged(t, foreigns[1])
	cmd := b.run(foreigns[1], "writes.mjs")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	b.ok(err)
	id := "sbx_" + strings.TrimSpace(string(out))
	list := b.must("history", id)
	for _, want := range []string{"their-app", `write "notes/a.txt"`, "exec rm -rf notes", `mkdir "made"`} {
		if !strings.Contains(list, want) {
			t.Errorf("the history does not tell of %q:\n%s", want, list)
		}
	}
	look := func() string {
		return b.must("vm", "exec", id, "--", "sh", "-c", "cd /workspace && ls && cat notes/* 2>/dev/null || true")
	}
	if got := look(); got != "made" {
		t.Fatalf("before the undo: %q", got)
	}
	b.must("undo", id, "-y") // the directory
	b.must("undo", id, "-y") // rm
	if got := look(); got != "notes\nfirst" {
		t.Errorf("after two undos: %q", got)
	}
	b.must("undo", id, "-y")
	if got := look(); got != "" {
		t.Errorf("after three undos: %q", got)
	}
}

// A command that a client of others has started goes on when the server is killed; the
// client finds it by its own method, and sees how it ended.
func TestBridge_killed(t *testing.T) {
	t.Parallel()
	for _, f := range foreigns[:2] {
		t.Run(f.name, func(t *testing.T) {
			b := newBridged(t, f)
			cmd := b.run(f, "killed.mjs")
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
			if got.ExitCode != 7 || got.Stdout != "after\n" {
				t.Errorf("%+v", got)
			}
		})
	}
}
