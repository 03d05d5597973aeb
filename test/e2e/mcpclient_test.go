package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/test/browser"
)

const mcpServers = `
mcp:
  servers:
    everything: {command: NODE, args: [/tmp/npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js, stdio]}
    time: {command: python3, args: [-m, mcp_server_time, --local-timezone, UTC], env: {PYTHONPATH: /tmp/pip}}
    gone: {command: no-such-program}
`

const usingMCP = `
replies:
  - calls:
      - name: mcp__everything__echo
        args: {message: hello}
      - name: mcp__everything__get-sum
        args: {a: 2, b: 40}
      - name: mcp__everything__trigger-long-running-operation
        args: {duration: 1, steps: 2}
      - name: mcp__everything__get-tiny-image
        args: {}
      - name: mcp__time__convert_time
        args: {source_timezone: Europe/Berlin, time: "12:00", target_timezone: Asia/Tokyo}
      - name: mcp__time__convert_time
        args: {source_timezone: Nowhere, time: "12:00", target_timezone: Asia/Tokyo}
      - name: mcp__list_resources
        args: {server: everything}
      - name: mcp__get_prompt
        args: {server: everything, name: args-prompt, arguments: {city: Berlin}}
  - calls:
      - name: execute
        args: {command: "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c -e '[/]dist/index.js' -e ^mcp_server_time"}
else: {text: It is forty-two.}
`

// mcpRun lets an agent work in the sandbox, and returns what its calls gave.
func (w *world) mcpRun(sandbox string) []string {
	w.t.Helper()
	run := w.must("run", "-q", "--detach", "--sandbox", sandbox, "Use the tools.")
	w.must("attach", run)
	return w.outputs(run)
}

// carry puts a program of the host into a sandbox; "" = there is none to put.
func (w *world) carry(sandbox, from, to string) {
	w.t.Helper()
	if from == "" {
		return
	}
	data, err := os.Open(from)
	w.ok(err)
	defer data.Close()
	_, err = w.c.Sandbox(sandbox).Files().WriteFrom(w.ctx(), to, data, client.WriteOptions{Mode: 0o755})
	w.ok(err)
}

// Servers of others, from npm and PyPI, run in a sandbox and are used by an agent. The next
// server of skete ends those that one that was killed has left, and begins anew.
func TestMCPClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	node, carried := browser.Carried(t, "/tmp/node")
	npm := browser.Install(t, "testdata/mcp")
	pip := pythonPackages(t, "testdata/mcp/requirements.txt")
	w.withModel(usingMCP, nil)
	file, err := os.OpenFile(filepath.Join(w.home, "skete.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	w.ok(err)
	_, err = file.WriteString(strings.Replace(mcpServers, "NODE", node, 1))
	w.ok(err)
	w.ok(file.Close())
	w.start()
	made, err := w.c.CreateSandbox(w.ctx(), api.CreateSandbox{Name: "tools"})
	w.ok(err)
	w.ids[made.ID] = true
	w.carry(made.ID, carried, node)
	for to, from := range map[string]string{"/tmp/npm/node_modules": npm, "/tmp/pip": pip} {
		_, err = w.c.Sandbox(made.ID).Files().UploadDir(w.ctx(), from, to)
		w.ok(err)
	}
	for _, when := range []string{"at first", "after kill -9"} {
		got := w.mcpRun("tools")
		if len(got) != 9 {
			t.Fatalf("%s: %q", when, got)
		}
		for i, want := range []string{"Echo: hello", "The sum of 2 and 40 is 42.", "Long running operation completed", "The image above is the MCP logo.", "Asia/Tokyo", "timezone", "demo://resource/static", "What's weather in Berlin?", "2"} {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: call %d: %q has no %q", when, i+1, got[i], want)
			}
		}
		if line := onHost("server-everything/dist/index.js"); line != "" {
			t.Errorf("%s: on the host: %q", when, line)
		}
		if when == "at first" {
			w.kill()
			w.start()
		}
	}
	if !strings.Contains(fmt.Sprint(w.log), "MCP server gone: ") {
		t.Errorf("what is left out is not in the log")
	}
}
