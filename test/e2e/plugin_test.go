package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
)

// plug puts examples of plug-ins, and an agent with a hook, into the server's folders.
func (w *world) plug(names ...string) {
	w.t.Helper()
	for _, name := range names {
		from := filepath.Join("..", "..", "examples", "plugins", name)
		w.ok(os.CopyFS(filepath.Join(w.home, "plugins", name), os.DirFS(from)))
	}
	agents := filepath.Join(w.home, "agents")
	w.ok(errors.Join(os.MkdirAll(agents, 0o700), os.WriteFile(filepath.Join(agents, "careful.yaml"), []byte("tools: [execute]\nhooks: [{plugin: guard}]\n"), 0o600)))
}

// plugged are the sandboxes of plug-ins, by plug-in and tenant.
func (w *world) plugged() map[string]string {
	w.t.Helper()
	found := map[string]string{}
	for _, sb := range w.live() {
		if p := sb.Metadata["skete.plugin"]; p != "" {
			found[p+" for "+sb.Metadata["skete.plugin.for"]] = sb.ID
		}
	}
	return found
}

// onHost lists the processes of this host that work in the folder of a plug-in, or are the
// server's and run one.
func (w *world) onHost() (found []string) {
	w.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	w.ok(err)
	for _, dir := range all {
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		child := strings.Contains(string(status), "\nPPid:\t"+strconv.Itoa(w.cmd.Process.Pid)+"\n")
		if strings.HasPrefix(cwd, filepath.Join(w.home, "plugins")) || child && strings.Contains(string(line), "main.py") {
			found = append(found, fmt.Sprintf("%s in %s: %q", dir, cwd, line))
		}
	}
	return found
}

// A plug-in is a model and another one a hook, each in a sandbox of its own for each tenant, which
// the tenant does not see, and with no process on the host; kill -9 of the server changes nothing.
func TestPlugin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	w.plug("echo-model", "guard")
	w.start()
	if out := w.must("model", "list"); !strings.Contains(out, "echo-model/parrot") {
		t.Error(out)
	}
	parrot := []string{"run", "-q", "--agent", "careful", "--model", "echo-model/parrot"}
	if out := w.must(append(parrot, "Say it again.")...); strings.TrimSpace(out) != "Say it again." {
		t.Error(out)
	}
	if out := w.must(append(parrot, `call execute {"command": "rm -rf /"}`)...); !strings.Contains(out, "it would remove all files") {
		t.Errorf("the hook: %s", out)
	}
	if out := w.must(append(parrot, `call execute {"command": "expr 6 '*' 7"}`)...); !strings.Contains(out, "42") {
		t.Errorf("a call that the hook lets pass: %s", out)
	}
	for _, p := range w.onHost() {
		t.Errorf("a plug-in runs on the host: %s", p)
	}

	other, err := w.c.CreateKey(w.ctx(), api.CreateKey{Name: "other", Tenant: "other", Scopes: []string{"read", "write"}})
	w.ok(err)
	theirs, err := client.New(client.Config{Socket: client.SocketPath(w.home), Key: other.Secret})
	w.ok(err)
	defer theirs.Close()
	run, err := theirs.StartRun(w.ctx(), api.StartRun{Task: "Hello", Model: "echo-model/parrot", Agent: "careful"})
	w.ok(err)
	w.until("the other tenant's run is over", func() error {
		r, err := theirs.Run(run.ID).Get(w.ctx())
		if err == nil && r.State != "succeeded" {
			err = errors.New(r.State)
		}
		return err
	})
	seen := 0
	for sb, err := range theirs.Sandboxes(w.ctx(), client.SandboxFilter{}) {
		w.ok(err)
		if seen++; sb.Metadata["skete.plugin"] != "" {
			t.Errorf("a tenant sees the sandbox of a plug-in: %+v", sb)
		}
		defer func() { _ = theirs.Sandbox(sb.ID).Destroy(w.ctx()) }()
	}
	before := w.plugged()
	if seen == 0 || len(before) != 3 || before["echo-model for default"] == "" || before["guard for default"] == "" || before["echo-model for other"] == "" {
		t.Errorf("sandboxes of plug-ins: %v; %d of the other tenant", before, seen)
	}

	w.kill()
	w.start()
	if out := w.must(append(parrot, "Still there?")...); strings.TrimSpace(out) != "Still there?" {
		t.Error(out)
	}
	after := w.plugged()
	if before["echo-model for default"] != after["echo-model for default"] {
		t.Errorf("after kill -9 it has another sandbox: %v, then %v", before, after)
	}
	ps := w.must("vm", "ps", after["echo-model for default"], "--json")
	if n := strings.Count(ps, `"running"`); n != 1 || !strings.Contains(ps, "main.py") {
		t.Errorf("%d processes run in the plug-in's sandbox: %s", n, ps)
	}
}
