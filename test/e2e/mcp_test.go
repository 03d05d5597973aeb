package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/test/browser"
)

// mcpDir has scripts that use clients of the Model Context Protocol, and their versions.
const mcpDir = "testdata/mcp"

// mcpClients are those of the protocol's own SDKs, by their columns of the table.
var mcpClients = []struct {
	name, way string
	command   func(t *testing.T, way string) *exec.Cmd
	qemu      bool
}{
	{"TypeScript 1.32.2, HTTP", "http", mcpNode, false},
	{"TypeScript 1.32.2, stdio", "stdio", mcpNode, false},
	{"Python 2.3.0, HTTP", "http", mcpPython, false},
	{"Python 2.3.0, stdio", "stdio", mcpPython, false},
	{"TypeScript 1.32.2, HTTP, QEMU", "http", mcpNode, true},
}

func mcpNode(t *testing.T, way string) *exec.Cmd {
	modules := browser.Install(t, mcpDir)
	return exec.Command(browser.Node(t), filepath.Join(mcpDir, "everything.mjs"), modules, way)
}

func mcpPython(t *testing.T, way string) *exec.Cmd {
	dir := pythonPackages(t, filepath.Join(mcpDir, "requirements.txt"))
	cmd := exec.Command("python3", filepath.Join(mcpDir, "everything.py"), way)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir)
	return cmd
}

// newModelled is a server for clients of the protocol, with an agent that asks before it acts.
func newModelled(t *testing.T, qemu bool) *bridged {
	b := &bridged{address: listenAddress(t)}
	b.world = newWorldOf(t, qemu, "--listen", b.address)
	b.withModel(acting, map[string]string{"careful.yaml": careful})
	b.start()
	made, err := b.c.CreateKey(b.ctx(), api.CreateKey{Name: "their-app"})
	b.ok(err)
	b.key = made.Secret
	return b
}

// withMCP says where the server is.
func (b *bridged) withMCP(cmd *exec.Cmd) *exec.Cmd {
	p, err := programs()
	b.ok(err)
	reader, err := b.c.CreateKey(b.ctx(), api.CreateKey{Name: "their-reader", Scopes: []string{"read"}})
	b.ok(err)
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "MCP_URL=http://"+b.address, "MCP_KEY="+b.key, "MCP_READER="+reader.Secret, "SKETE="+p.skete)
	return cmd
}

// The clients of the protocol's own SDKs use every tool, over both transports: the table of
// docs/bridges.md is made of what this test sees.
func TestMCP_everyTool(t *testing.T) {
	t.Parallel()
	b := newModelled(t, false)
	results := map[string]map[string]string{}
	var methods, clients []string
	for _, m := range mcpClients {
		clients = append(clients, m.name)
		t.Run(m.name, func(t *testing.T) {
			b := b
			if m.qemu {
				byHand(t)
				b = newModelled(t, true)
				b.firstOf(t) // clients wait a minute for an answer, and the template may take longer
			}
			results[m.name] = b.methods(t, b.withMCP(m.command(t, m.way)), 18, &methods)
		})
	}
	checkTable(t, "tools: made by TestMCP_everyTool", clients, methods, results)
}

// The server is killed in the middle of a call and started again: the client sees an error,
// its next call works, and the command in the background is there with its output.
func TestMCP_killed(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"http", "stdio"} {
		t.Run(way, func(t *testing.T) {
			b := newModelled(t, false)
			cmd := b.withMCP(mcpNode(t, way))
			cmd.Env = append(cmd.Env, "MCP_STEPS=killed")
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
			var made struct{ Sandbox string }
			b.ok(json.Unmarshal(lines.Bytes(), &made))
			b.until("the call is under way", func() error {
				for p, err := range b.c.Sandbox(made.Sandbox).Processes(b.ctx()) {
					if err != nil || strings.Contains(strings.Join(p.Argv, " "), "sleep 1000") {
						return err
					}
				}
				return errors.New("the command does not run yet")
			})
			b.kill()
			b.start()
			_, err = io.WriteString(in, "again\n")
			b.ok(err)
			patience.Within(t, time.Minute, "the client goes on", func() {
				if !lines.Scan() {
					t.Errorf("it did not go on: %s\n%s", stderr.String(), b.log)
				}
			})
			var got struct{ Output string }
			b.ok(json.Unmarshal(lines.Bytes(), &got))
			if !strings.HasPrefix(got.Output, "before\nafter\n[exit code 7]") {
				t.Errorf("%q", got.Output)
			}
			if list := b.must("history", made.Sandbox); !strings.Contains(list, "their-app by their-editor 7") {
				t.Errorf("the history does not say who it was:\n%s", list)
			}
			b.must("undo", made.Sandbox, "-y") // of file_write
			if left := b.must("vm", "exec", made.Sandbox, "--", "ls", "/workspace"); strings.Contains(left, "go") {
				t.Errorf("after the undo there are %q", left)
			}
		})
	}
}
