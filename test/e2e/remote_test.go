package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/remote"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// newService starts a server B on whose machines others' sandboxes run, and returns the
// key with which its API for E2B's SDKs is used.
func newService(t *testing.T, args ...string) (b *world, address, key string) {
	address = listenAddress(t)
	b = newWorld(t, append([]string{"--providers", "gvisor", "--listen", address}, args...)...)
	b.start()
	made, err := b.c.CreateKey(b.ctx(), api.CreateKey{Name: "server-a"})
	b.ok(err)
	return b, "http://" + address + "/e2b", made.Secret
}

// remoteProvider is one whose machines are B's.
func remoteProvider(t testing.TB, dir, at, key string) *remote.Provider {
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	p, err := remote.New(remote.Config{
		Name: remote.Name, Dir: dir, Keep: 2 * time.Minute,
		Service: remote.NewE2B(remote.E2B{URL: u, SandboxURL: u, Key: key, Template: "base"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Machines elsewhere pass the suite that all providers pass, with a second server of
// ours as the service.
//
// Not beside other tests, as the suite counts the open files of this process; with no
// warm machines, as those have ids of their own and pidOf would not find them.
func TestRemote_suite(t *testing.T) {
	b, at, key := newService(t, "--set", "pool_demand=0")
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		dir := t.TempDir()
		return sandboxtest.Fixture{
			Dir: dir, Boot: 3 * time.Second,
			New:  func(t testing.TB) sandbox.Provider { return remoteProvider(t, dir, at, key) },
			Disk: func(t testing.TB, _ int64) string { return filepath.Join(t.TempDir(), "none") },
			HostPID: func(t testing.TB, id sandbox.ID) int {
				return pidOf(t, remoteID(t, filepath.Join(dir, "machines", string(id), "machine.json")))
			},
		}
	})
	if live := b.live(); len(live) != 0 {
		t.Errorf("%d machines are left at the service: %+v", len(live), live)
	}
}

// remoteID is the id of a machine at its service.
func remoteID(t testing.TB, record string) string {
	t.Helper()
	data, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var r struct{ ID string }
	if err := json.Unmarshal(data, &r); err != nil || r.ID == "" {
		t.Fatalf("%s: %v", data, err)
	}
	return r.ID
}

// pidOf is the process of the host that a machine of gVisor is.
func pidOf(t testing.TB, id string) int {
	t.Helper()
	list, err := hostproc.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		args := strings.Join(p.Args, " ")
		if strings.Contains(args, " boot ") && strings.Contains(args, "sbx_"+id) {
			return p.PID
		}
	}
	t.Fatalf("no machine of %s", id)
	return 0
}

const elsewhere = `
replies:
  - calls:
      - name: write_file
        args: {file_path: /workspace/a.txt, content: "hello\n"}
  - calls:
      - name: execute
        args: {command: 'cd /workspace; echo started >> starts; while [ ! -e go ]; do sleep 0.1; done; wc -l < starts; cat a.txt', timeout: 600}
else: {text: Done.}
`

// A run on A whose sandbox is a machine of B: it outlives a kill of A; while B is dead A
// says so, and it goes on when B is back. Its files have a history, which is A's.
func TestRemote_run(t *testing.T) {
	t.Parallel()
	b, at, key := newService(t)
	keyFile := filepath.Join(t.TempDir(), "key")
	b.ok(os.WriteFile(keyFile, []byte(key+"\n"), 0o600))
	a := newWorld(t, "--providers", "remote", "--set", "defaults.provider=remote", "--set", "remote.url="+at, "--set", "remote.sandbox_url="+at,
		"--set", "remote.key_file="+keyFile)
	a.withModel(elsewhere, nil)
	a.start()
	run, err := a.c.StartRun(a.ctx(), api.StartRun{Task: "Work elsewhere."})
	a.ok(err)
	var sb *client.Sandbox
	a.until("the command has begun", func() error {
		for _, s := range a.live() {
			sb = a.c.Sandbox(s.ID)
			if res, err := sb.RunCommand(a.ctx(), api.RunCommand{Argv: []string{"cat", "starts"}}); err == nil && res.ExitCode == 0 {
				return nil
			}
		}
		return errors.New("it has not")
	})
	info, err := sb.Get(a.ctx())
	a.ok(err)
	if info.Isolation != "remote" || info.Provider != "remote" || !slices.ContainsFunc(info.Notes, func(n string) bool { return strings.Contains(n, "not verified") }) {
		t.Errorf("A says of its machine: %+v", info)
	}

	a.kill()
	a.start()
	sb = a.c.Sandbox(info.ID)
	if res, err := sb.RunCommand(a.ctx(), api.RunCommand{Argv: []string{"cat", "a.txt"}}); err != nil || string(res.Out) != "hello\n" {
		t.Fatalf("after a kill of A: %+v, %v\n%s", res, err, a.log)
	}

	b.kill()
	patience.Within(t, 15*time.Second, "a call while B is dead", func() {
		_, err = sb.RunCommand(a.ctx(), api.RunCommand{Argv: []string{"true"}})
	})
	if err == nil || !strings.Contains(err.Error(), "the service of the sandbox's machine does not answer") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("while B is dead A says: %v", err)
	}
	if now, err := sb.Get(a.ctx()); err != nil || now.State != "running" {
		t.Errorf("a moment after B died: %+v, %v", now, err)
	}
	b.start()
	a.until("B's machine answers again", func() error {
		_, err := sb.RunCommand(a.ctx(), api.RunCommand{Argv: []string{"touch", "go"}})
		return err
	})
	done, err := a.c.Run(run.ID).Wait(a.ctx())
	if err != nil || done.State != "succeeded" {
		t.Fatalf("%+v, %v\nA's log:\n%s\nB's log:\n%s", done, err, a.log, b.log)
	}
	if got := a.output(run.ID, "execute"); !strings.HasPrefix(got, "1\nhello\n") {
		t.Errorf("the output is %q: the number says how often it was started", got)
	}
	a.remoteHistory(sb)
	a.remoteLost(b, sb)
}

// remoteHistory: what a run has changed is undone, and a new machine gets the files back.
func (w *world) remoteHistory(sb *client.Sandbox) {
	w.t.Helper()
	if list := w.must("history", sb.ID); !strings.Contains(list, "Work elsewhere.") {
		w.t.Errorf("the history:\n%s", list)
	}
	read := func(path string) (string, int) {
		res, err := sb.RunCommand(w.ctx(), api.RunCommand{Argv: []string{"cat", path}})
		w.ok(err)
		return string(res.Out), res.ExitCode
	}
	_, err := sb.RunCommand(w.ctx(), api.RunCommand{Argv: []string{"sh", "-c", "echo changed > a.txt; echo more > b.txt"}})
	w.ok(err)
	w.must("undo", sb.ID, "-y")
	if text, _ := read("a.txt"); text != "hello\n" {
		w.t.Errorf("after the undo: %q", text)
	}
	if _, code := read("b.txt"); code == 0 {
		w.t.Error("a file that was undone is there")
	}
	w.must("vm", "stop", sb.ID)
	w.must("vm", "start", sb.ID)
	if text, _ := read("a.txt"); text != "hello\n" {
		w.t.Errorf("in a new machine: %q", text)
	}
}

// remoteLost: a machine that its service has ended is lost, and A says that.
func (w *world) remoteLost(b *world, sb *client.Sandbox) {
	w.t.Helper()
	for _, s := range b.live() {
		b.ok(b.c.Sandbox(s.ID).Destroy(b.ctx()))
	}
	w.until("A notices that the machine is gone", func() error {
		info, err := sb.Get(w.ctx())
		if err == nil && info.Reason != "lost" {
			err = fmt.Errorf("%s, %q", info.State, info.Reason)
		}
		return err
	})
}
