package e2e

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/thread"
)

// plugFrom puts plug-ins of tests into the server's folder.
func (w *world) plugFrom(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.ok(os.CopyFS(filepath.Join(w.home, "plugins", name), os.DirFS(filepath.Join("testdata", "plugins", name))))
	}
}

// calling is a script that makes a call of each line, one a step.
func calling(lines ...string) string {
	text := "replies:\n"
	for _, line := range lines {
		text += fmt.Sprintf("  - calls: [{name: execute, args: {command: %q}}]\n", line)
	}
	return text + "else: {text: Done.}\n"
}

// A hook of a plug-in that breaks in a real sandbox refuses the call that it was to decide about, and
// the next call is decided by a new process. One that only hears of calls is passed over, and the run
// tells it. One that is not there refuses too.
func TestPlugin_breaks(t *testing.T) {
	t.Parallel()
	const refused, cannot = "A hook refused the call: ", "the plug-in odd decides about this and cannot be asked: "
	ways := []struct{ line, want string }{
		{": die", cannot + "the process ended"},
		{": hang", cannot + "the plug-in was silent for too long"},
		{": flood", "a line is longer than"},
		{": wrong id", "which was not sent"},
		{": nonsense", cannot + "its answer makes no sense"},
		{": text", "is no JSON object"},
		{": twice; echo went", "went"},
		{": noise; echo went", "went"},
	}
	var lines []string
	for _, w := range ways {
		lines = append(lines, w.line, fmt.Sprint("echo next ", len(lines)))
	}
	w := newWorld(t, "--providers", "gvisor")
	w.plugFrom("odd")
	w.ok(os.MkdirAll(filepath.Join(w.home, "plugins", "bad"), 0o700))
	b := newBrainOn(w, map[string]string{"ways": calling(lines...), "deaf": calling(": deaf", "echo next"), "one": calling("echo one")}, map[string]string{
		"watched":  "tools: [execute]\nhooks: [{plugin: odd, timeout: 5s}]\n",
		"orphan":   "tools: [execute]\nhooks: [{plugin: nobody}]\n",
		"orphaned": "tools: [execute]\nhooks: [{plugin: nobody, event: PreToolUse}]\n",
	}, "")
	run := b.wait(b.run("ways", api.StartRun{Agent: "watched"}).ID, "succeeded")
	results := b.results(run.ID)
	if len(results) != len(lines) {
		t.Fatalf("%d results, not %d", len(results), len(lines))
	}
	for i, c := range ways {
		is, next := results[2*i], results[2*i+1]
		if !strings.Contains(is.text, c.want) || strings.HasPrefix(is.text, refused) == (c.want == "went") {
			t.Errorf("%s: %q", c.line, is.text)
		}
		if !strings.Contains(next.text, "next") || next.Failed {
			t.Errorf("the call after %s: %q", c.line, next.text)
		}
	}
	if n := strings.Count(b.log.String(), "a plug-in says"); n > 61 {
		t.Errorf("%d lines of the plug-in's stderr are in the log", n)
	}
	b.pluginDies(t)
	b.pluginsTold(t)

	run = b.wait(b.run("one", api.StartRun{Agent: "orphan"}).ID, "failed")
	if !strings.Contains(run.Text, "the plug-in nobody decides about this and cannot be asked: there is no plug-in") {
		t.Errorf("a plug-in that is not there: %s", run.Text)
	}
	run = b.wait(b.run("one", api.StartRun{Agent: "orphaned"}).ID, "succeeded")
	if r := b.results(run.ID); len(r) != 1 || !strings.HasPrefix(r[0].text, refused+"the plug-in nobody") {
		t.Errorf("a call that a plug-in that is not there decides about: %+v", r)
	}

	// The server dies, and the plug-in is gone when the next one starts: so is its sandbox.
	if len(b.plugged()) != 1 {
		t.Errorf("sandboxes of plug-ins: %v", b.plugged())
	}
	b.kill()
	b.ok(os.RemoveAll(filepath.Join(b.home, "plugins", "odd")))
	b.start()
	b.until("the sandbox of the former plug-in is gone", func() error {
		if left := b.plugged(); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}

// pluginDies kills the process of a plug-in in its sandbox from outside, and looks at a run in which
// it dies while it only hears of a call.
func (b *brain) pluginDies(t *testing.T) {
	t.Helper()
	out, err := b.c.Sandbox(b.plugged()["odd for default"]).Shell("for p in /proc/[0-9]*; do if tr '\\0' ' ' <$p/cmdline | grep -q '^python3 main.py'; then kill -9 ${p#/proc/} && echo killed; fi; done").CombinedOutput(b.ctx())
	if err != nil || string(out) != "killed\n" {
		t.Fatalf("kill -9 of the plug-in's process: %v %q", err, out)
	}
	run := b.wait(b.run("deaf", api.StartRun{Agent: "watched"}).ID, "succeeded")
	for _, r := range b.results(run.ID) {
		if r.Failed {
			t.Errorf("a call after kill -9 of the plug-in's process: %q", r.text)
		}
	}
	told := 0
	for _, e := range b.events(run.ID) {
		if in, is := e.Body.(thread.Input); is && in.From == "hook" && in.Name == "skipped" && strings.Contains(in.Blocks[0].Text, "The plug-in odd was not asked about PostToolUse") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("the run tells %d times that a plug-in was passed over", told)
	}
}

// pluginsTold looks at what the server and the commands tell of plug-ins.
func (b *brain) pluginsTold(t *testing.T) {
	t.Helper()
	list, err := b.c.Plugins(b.ctx())
	b.ok(err)
	if len(list) != 2 || list[0].Name != "bad" || list[0].State != "unusable" || len(list[0].Problems) == 0 {
		t.Fatalf("plug-ins: %+v", list)
	}
	odd := list[1]
	if odd.Name != "odd" || odd.Hooks[0].OnFailure != "deny" || odd.Hooks[1].OnFailure != "skip" || len(odd.Processes) != 1 {
		t.Fatalf("plug-ins: %+v", list)
	}
	if p := odd.Processes[0]; p.Tenant != "default" || p.Sandbox != b.plugged()["odd for default"] || p.Starts < 6 || odd.State != "running" && odd.State != "broken" {
		t.Errorf("its process: %+v", odd)
	}
	for _, c := range []struct{ cmd, want string }{{"list", "unusable"}, {"show odd", "for default: "}, {"show odd --json", `"on_failure": "deny"`}} {
		if out := b.must(append([]string{"plugin"}, strings.Fields(c.cmd)...)...); !strings.Contains(out, c.want) {
			t.Errorf("skete plugin %s: %s", c.cmd, out)
		}
	}
}

// A model vendor as a plug-in calls out with a secret of the operator: the host that its manifest
// names is sent the secret, and the machine has a placeholder alone, in its environment, memory and
// files. No other host is, what is granted to all sandboxes is not for it, and what its manifest does
// not allow is refused.
func TestPlugin_secrets(t *testing.T) {
	t.Parallel()
	n := newInternet(t)
	w := newWorld(t, "--providers", "gvisor", "--log-level", "debug")
	w.enter, w.env = n.enter, []string{"SSL_CERT_FILE=" + n.roots}
	w.plugFrom("seller")
	agents := filepath.Join(w.home, "agents")
	w.ok(errors.Join(os.MkdirAll(agents, 0o700), os.WriteFile(filepath.Join(agents, "bare.yaml"), []byte("sandbox: {none: true}\n"), 0o600)))
	w.start()
	value, general, canary := "hunter"+rand.Text(), "general"+rand.Text(), canaryName+rand.Text()
	for name, s := range map[string]api.PutSecret{
		"vendor": {Value: value, Grants: &[]api.SecretGrant{
			{Host: "api.example.com", As: "bearer", Env: "VENDOR_KEY", Sandboxes: []string{"plugin-seller"}}, {Host: "files.example.com", As: "bearer", Sandboxes: []string{"plugin-seller"}},
		}},
		"general": {Value: general, Grants: &[]api.SecretGrant{{Host: "files.example.com", As: "bearer", Env: "GENERAL"}}},
	} {
		_, err := w.c.PutSecret(w.ctx(), name, s)
		w.ok(err)
	}
	ask := func(words string) string {
		return w.must("run", "-q", "--agent", "bare", "--model", "seller/any", words)
	}
	ask(canary)
	if got := ask("https://api.example.com/a"); !strings.Contains(got, sum("Bearer "+value)) {
		t.Errorf("the host that the manifest names: %s", got)
	}
	for _, address := range []string{"https://files.example.com/a", "http://api.example.com/a"} {
		if got := ask(address); !strings.Contains(got, "example.com/a") || strings.Contains(got, "its sum is") {
			t.Errorf("%s: %s", address, got)
		}
	}
	if got := ask("https://other.example.com/a"); !strings.HasPrefix(got, "failed: ") || !strings.Contains(got, "403") {
		t.Errorf("a host that the manifest does not allow: %s", got)
	}
	if got := ask("env"); !strings.Contains(got, `"VENDOR_KEY": "skete-secret-vendor"`) || strings.Contains(got, "GENERAL") {
		t.Errorf("the environment: %s", got)
	}
	s := &search{t: t, canary: canary, places: map[string]bool{}, needles: map[string]string{"the secret": value, "the other secret": general}}
	id := w.plugged()["seller for default"]
	for _, pid := range processesOf(id) {
		s.memory("memory", pid)
	}
	w.stop()
	s.bytes("server's log", "", w.log.Bytes())
	for _, place := range []string{"store", "volumes", "sandboxes"} {
		s.dir(place, filepath.Join(w.home, place))
	}
	for _, place := range []string{"memory", "store"} {
		if !s.places[place] {
			t.Errorf("the search did not find the canary in %s: it can find nothing there", place)
		}
	}
	w.start()
}
