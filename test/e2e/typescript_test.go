package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
	"github.com/skete-dev/skete/test/browser"
)

const (
	// typescriptDir has scripts, and the exact versions of what they use.
	typescriptDir = "testdata/typescript"
	// typescriptSDK is the package skete of npm.
	typescriptSDK = "../../sdk/typescript"
)

// buildTypeScript compiles the package and keeps it by its content; what is installed by
// npm has the compiler.
func buildTypeScript(t *testing.T) (dir string) {
	t.Helper()
	modules := browser.Install(t, typescriptSDK)
	sum := sha256.New()
	for _, part := range []string{"src", "package.json", "package-lock.json", "tsconfig.json"} {
		must(t, filepath.WalkDir(filepath.Join(typescriptSDK, part), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
			return err
		}))
	}
	kept, err := filepath.Abs("../../.build/npm")
	must(t, err)
	place := filepath.Join(kept, "skete-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(place); err == nil {
		return place
	}
	fresh, err := os.MkdirTemp(kept, ".new-") //nolint:usetesting // it is kept, and a rename must not cross file systems
	must(t, err)
	defer os.RemoveAll(fresh)
	out, err := exec.Command(browser.Node(t), filepath.Join(modules, "typescript", "bin", "tsc"), "--project", typescriptSDK,
		"--typeRoots", filepath.Join(modules, "@types"), "--outDir", filepath.Join(fresh, "dist")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	manifest, err := os.ReadFile(filepath.Join(typescriptSDK, "package.json"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(fresh, "package.json"), manifest, 0o644))
	if err := os.Rename(fresh, place); err != nil {
		if _, gone := os.Stat(place); gone != nil { // else another test was faster
			t.Fatal(err)
		}
	}
	return place
}

// typescript is a server, and an application beside it that has the package skete.
type typescript struct {
	*world
	address, key, other string
	app                 string
	node                string
	up                  *llmtest.Server
}

func newTypeScript(t *testing.T, qemu bool) *typescript {
	ts := &typescript{address: listenAddress(t), node: browser.Node(t)}
	ts.world = newWorldOf(t, qemu, "--listen", ts.address)
	ts.app = newApp(t, buildTypeScript(t), browser.Install(t, typescriptDir))
	ts.up = llmtest.NewServer(tolerant{llmtest.Chat{}}, scripted)
	t.Cleanup(ts.up.Close)
	ts.withVendor(ts.up)
	ts.start()
	made, err := ts.c.CreateKey(ts.ctx(), api.CreateKey{Name: "their-app"})
	ts.ok(err)
	another, err := ts.c.CreateKey(ts.ctx(), api.CreateKey{Name: "another", Tenant: "another"})
	ts.ok(err)
	ts.key, ts.other = made.Secret, another.Secret
	return ts
}

// newApp makes a directory with all scripts, in which packages are found by their names.
func newApp(t *testing.T, skete, modules string) (dir string) {
	dir = t.TempDir()
	own := filepath.Join(dir, "node_modules")
	must(t, os.Mkdir(own, 0o755))
	installed, err := os.ReadDir(modules)
	must(t, err)
	for _, m := range installed {
		must(t, os.Symlink(filepath.Join(modules, m.Name()), filepath.Join(own, m.Name())))
	}
	must(t, os.Symlink(skete, filepath.Join(own, "skete")))
	for _, from := range []string{typescriptDir, filepath.Join(typescriptSDK, "examples")} {
		scripts, err := filepath.Glob(filepath.Join(from, "*.mjs"))
		must(t, err)
		for _, s := range scripts {
			text, err := os.ReadFile(s)
			must(t, err)
			must(t, os.WriteFile(filepath.Join(dir, filepath.Base(s)), text, 0o644))
		}
	}
	return dir
}

// run is a script of the application.
func (ts *typescript) run(script string) *exec.Cmd {
	cmd := exec.Command(ts.node, "--expose-gc", script)
	cmd.Dir = ts.app
	cmd.Env = append(os.Environ(), "SKETE_URL=http://"+ts.address, "SKETE_KEY="+ts.key, "OTHER_KEY="+ts.other, "SKETE_SOCKET="+filepath.Join(ts.home, "skete.sock"),
		"OPENAI_BASE_URL="+ts.up.URL+"/v1", "OPENAI_API_KEY=none", "MODEL=scripted", "LANGSMITH_TRACING=false")
	return cmd
}

// scripted is what the model says: to an agent of ours, and to a deep agent.
func scripted(_ int, seen llmtest.Seen) llmtest.Reply {
	has := func(text string) bool { return strings.Contains(string(seen.Body), text) }
	reply := llmtest.Reply{Usage: llm.Usage{Input: 50, Output: 7}, Piece: 20}
	say := func(blocks ...llm.Block) llmtest.Reply { reply.Blocks = blocks; return reply }
	switch {
	case has("a-question-of-ours") && has("blue"):
		return say(llm.Text("You said blue."))
	case has("a-question-of-ours"):
		return say(callOf("call_ask", "execute", map[string]any{"command": "echo colour"}))
	case has("a-task-of-ours") && !has("call_first"):
		return say(callOf("call_first", "execute", map[string]any{"command": "echo run > by-run"}))
	case has("a-task-of-ours"):
		return say(llm.Text("It is done."))
	case !has("call_plan"):
		todos := []map[string]any{{"content": "write it", "status": "in_progress"}, {"content": "run it", "status": "pending"}}
		return say(llm.Text("I plan."), callOf("call_plan", "write_todos", map[string]any{"todos": todos}))
	case !has("call_write"):
		return say(callOf("call_write", "write_file", map[string]any{"file_path": "/workspace/primes.py", "content": "print([n for n in range(2, 10) if all(n % d for d in range(2, n))])\n"}))
	case !has("call_edit"):
		return say(callOf("call_edit", "edit_file", map[string]any{"file_path": "/workspace/primes.py", "old_string": "10", "new_string": "20"}))
	case !has("call_find"):
		return say(callOf("call_find", "glob", map[string]any{"pattern": "**/*.py", "path": "/workspace"}), callOf("call_read", "read_file", map[string]any{"file_path": "/workspace/primes.py"}))
	case !has("call_run"):
		return say(callOf("call_run", "execute", map[string]any{"command": "python3 primes.py | tee out.txt"}))
	}
	return say(llm.Text("It prints the primes below 20."))
}

// The package skete of npm does what docs/bridges.md says of it, and so does its backend for
// deep agents; the page's tables are made of what this test sees.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	ts := newTypeScript(t, false)
	ts.scripts(t)
	t.Run("example", ts.example)
	t.Run("killed", ts.killed)
}

// The same in machines with a kernel of their own.
func TestTypeScript_qemu(t *testing.T) {
	byHand(t)
	newTypeScript(t, true).scripts(t)
}

// scripts run what calls each method, of the client and of the backend.
func (ts *typescript) scripts(t *testing.T) {
	for _, x := range []struct{ script, name string }{{"client.mjs", "client"}, {"backend.mjs", "backend"}} {
		t.Run(x.name, func(t *testing.T) {
			cmd := ts.run(x.script)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, out, stderr.String())
			}
			var methods []string
			for line := range bytes.Lines(out) {
				var c called
				must(t, json.Unmarshal(line, &c))
				if c.Result != "works" {
					t.Errorf("%s %s: %s", c.Method, c.Result, c.Note)
				}
				methods = append(methods, c.Method)
			}
			checkMethods(t, "typescript "+x.name, methods)
		})
	}
}

// checkMethods compares a list of docs/bridges.md with what was seen to work.
func checkMethods(t *testing.T, name string, methods []string) {
	t.Helper()
	const page = "../../docs/bridges.md"
	pageMutex.Lock()
	defer pageMutex.Unlock()
	text, err := os.ReadFile(page)
	must(t, err)
	begin, end := "<!-- "+name+": made by TestTypeScript -->\n", "<!-- end of "+name+" -->"
	head, rest, ok := strings.Cut(string(text), begin)
	list, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for %q", page, name)
	}
	want := strings.Join(methods, " · ") + "\n"
	if *updateBridges {
		must(t, os.WriteFile(page, []byte(head+begin+want+end+tail), 0o644))
		return
	}
	if d := cmp.Diff(list, want); d != "" {
		t.Errorf("what %s says of %s is not what was seen (-update writes it):\n%s", page, name, d)
	}
}

// example runs the example of the package, with the real deepagents and a model that says
// what it is told to.
func (ts *typescript) example(t *testing.T) {
	out, err := ts.run("deep-agent.mjs").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, ts.log)
	}
	for _, want := range []string{
		"It prints the primes below 20.", "in_progress: write it", `write "/workspace/primes.py"`, "exec python3 primes.py | tee out.txt", "files after all was taken back: 0",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the example does not say %q:\n%s", want, out)
		}
	}
	seen := ts.up.Seen()
	last := string(seen[len(seen)-1].Body)
	for _, want := range []string{"[2, 3, 5, 7, 11, 13, 17, 19]", "/workspace/primes.py", "succeeded with exit code 0", "@@ lines 1-1 of 1 @@"} {
		if !strings.Contains(last, want) {
			t.Errorf("the model was not told %q:\n%s", want, last)
		}
	}
	var tools []string
	for _, tool := range seen[len(seen)-1].Request.Tools {
		tools = append(tools, tool.Name)
	}
	for _, want := range []string{"ls", "read_file", "write_file", "edit_file", "delete", "glob", "grep", "execute", "write_todos"} {
		if !slices.Contains(tools, want) {
			t.Errorf("the agent has no tool %s: %q", want, tools)
		}
	}
}

// killed kills the server under all that the package can be waiting for: output, input and a
// command in one call are whole, and nothing was done twice.
func (ts *typescript) killed(t *testing.T) {
	cmd := ts.run("killed.mjs")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("it did not begin: %s", stderr.String())
	}
	for range 2 {
		ts.kill()
		ts.start()
	}
	_, err = io.WriteString(in, "again\n")
	must(t, err)
	patience.Within(t, time.Minute, "the streams end", func() {
		if !lines.Scan() {
			t.Errorf("it did not go on: %s\n%s", stderr.String(), ts.log)
		}
	})
	const want = `{"whole":true,"exit":7,"input":true,"run":[4,"before\nafter\n","x\n"]}`
	if got := lines.Text(); got != want {
		t.Errorf("%s\n%s", got, stderr.String())
	}
}

// The types of the backend are those that deepagents asks for, and the bridge of three
// methods in docs/bridges.md is right as it stands there.
func TestTypeScript_types(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/bridges.md")
	must(t, err)
	block := regexp.MustCompile("(?s)```ts\n(// three-methods\\.ts\n.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/bridges.md has no three-methods.ts")
	}
	skete, tools := buildTypeScript(t), browser.Install(t, typescriptSDK)
	app := newApp(t, skete, browser.Install(t, typescriptDir))
	must(t, os.WriteFile(filepath.Join(app, "three-methods.ts"), block[1], 0o644))
	must(t, os.WriteFile(filepath.Join(app, "package.json"), []byte(`{"type":"module"}`), 0o644))
	must(t, os.WriteFile(filepath.Join(app, "assign.ts"), []byte(`import type { SandboxBackendProtocolV2 } from 'deepagents'
import { SketeSandbox } from 'skete/deepagents'
export const as = (b: SketeSandbox): SandboxBackendProtocolV2 => b
`), 0o644))
	out, err := exec.Command(browser.Node(t), filepath.Join(tools, "typescript", "bin", "tsc"), "--strict", "--skipLibCheck", "--target", "ES2022", "--module", "NodeNext",
		"--typeRoots", filepath.Join(tools, "@types"), "--types", "node", filepath.Join(app, "assign.ts"), filepath.Join(app, "three-methods.ts")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
