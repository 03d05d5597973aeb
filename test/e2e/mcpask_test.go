package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/test/browser"
)

const mcpAsking = `
mcp:
  servers:
    everything: {command: NODE, args: [/tmp/npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js, stdio], timeout_s: 2}
`

const usingMCPAsking = `
replies:
  - calls:
      - name: mcp__everything__trigger-elicitation-request
        args: {}
else: {text: Thank you.}
`

// A server from npm asks a person in the middle of a call, for longer than a call may take,
// and is told what was filled in; after a kill -9 what it asked is dismissed, and the call is
// not made again. With the run its processes are gone.
func TestMCPClient_asksAPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	node, carried := browser.Carried(t, "/tmp/node")
	npm := browser.Install(t, "testdata/mcp")
	w.withModel(usingMCPAsking, nil)
	file, err := os.OpenFile(filepath.Join(w.home, "skete.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	w.ok(err)
	_, err = file.WriteString(strings.Replace(mcpAsking, "NODE", node, 1))
	w.ok(err)
	w.ok(file.Close())
	w.start()
	made, err := w.c.CreateSandbox(w.ctx(), api.CreateSandbox{Name: "tools"})
	w.ok(err)
	w.ids[made.ID] = true
	w.carry(made.ID, carried, node)
	_, err = w.c.Sandbox(made.ID).Files().UploadDir(w.ctx(), npm, "/tmp/npm/node_modules")
	w.ok(err)

	run, asked := w.mcpAsked()
	for _, want := range []string{"Please provide inputs", `"from":"MCP server everything"`, "firstLine", "It may be asking for a secret"} {
		if !strings.Contains(string(asked.Args), want) {
			t.Errorf("what is asked has no %q: %s", want, asked.Args)
		}
	}
	d := api.Decide{Call: asked.Call, Decision: api.DecisionRespond, Text: `{"name":"Ada","integer":1000}`, ArgsHash: asked.ArgsHash}
	if _, err := w.c.Run(run).Decide(w.ctx(), d); err == nil || !strings.Contains(err.Error(), "does not fit the form: /integer") {
		t.Errorf("an answer that does not fit: %v", err)
	}
	w.until("it takes longer than a call may", func() error {
		if time.Since(asked.AskedAt) < 3*time.Second {
			return fmt.Errorf("asked at %s", asked.AskedAt)
		}
		return nil
	})
	w.must("approve", run, "--respond", `{"name":"Ada Lovelace","check":true}`)
	w.must("attach", run)
	if got := w.outputs(run); len(got) != 1 || !strings.Contains(got[0], "Ada Lovelace") {
		t.Errorf("the server was told %q", got)
	}
	count, err := w.c.Sandbox(made.ID).Shell("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c '[/]dist/index.js'").CombinedOutput(w.ctx())
	if strings.TrimSpace(string(count)) != "0" {
		t.Errorf("after the run there are %q processes of the server, %v", count, err)
	}

	run, _ = w.mcpAsked()
	w.kill()
	w.start()
	w.must("attach", run)
	if got := w.outputs(run); len(got) != 1 || !strings.Contains(got[0], "The server stopped while this ran") {
		t.Errorf("after kill -9: %q", got)
	}
	if open, err := w.c.Run(run).Approvals(w.ctx()); err != nil || len(open) != 0 {
		t.Errorf("after kill -9 there are %v, %v", open, err)
	}
}

// mcpAsked lets an agent call the server, and returns what it asks then.
func (w *world) mcpAsked() (run string, asked api.Approval) {
	w.t.Helper()
	run = w.must("run", "-q", "--detach", "--sandbox", "tools", "Use the tools.")
	w.until("the server asks", func() error {
		open, err := w.c.Run(run).Approvals(w.ctx())
		if err != nil {
			return err
		}
		r, err := w.c.Run(run).Get(w.ctx())
		if err != nil {
			return err
		}
		if len(open) != 1 || r.State != "interrupted" || open[0].Ask != api.AskForm {
			return fmt.Errorf("%+v wait, it is %s %s", open, r.State, r.Text)
		}
		asked = open[0]
		return nil
	})
	return run, asked
}
