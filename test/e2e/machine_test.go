package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/thread"
)

// machines is a world with gVisor and QEMU, and the templates of the tests.
type machines struct{ *world }

// cli runs the program as a user would and returns what it prints.
func (m *machines) cli(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.t.Fatalf("skete %s: %v\nserver's log:\n%s", strings.Join(args, " "), err, m.log)
	}
	return out
}

func (m *machines) try(args ...string) (string, error) {
	m.t.Helper()
	p, err := programs()
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := patience.Context(context.Background(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.skete, args...)
	cmd.Env = append(os.Environ(), "SKETE_HOME="+m.home, "SKETE_VM=", "AGENT_VM=")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w\n%s%s", err, out.String(), errOut.String())
	}
	return out.String(), nil
}

// each runs a test with every provider.
func (m *machines) each(t *testing.T, test func(m *machines, provider string)) {
	for _, provider := range []string{"gvisor", "qemu"} {
		t.Run(provider, func(t *testing.T) { test(m.with(t), provider) })
	}
}

// with is m in a part of its test.
func (m *machines) with(t *testing.T) *machines {
	w := *m.world
	w.t = t
	return &machines{&w}
}

// vm makes a sandbox from the template python and destroys it at the end.
func (m *machines) vm(args ...string) string {
	m.t.Helper()
	id := strings.TrimSpace(m.cli(append([]string{"vm", "create", "-q", "--mem", "256", "--disk", "128"}, args...)...))
	m.ids[id] = true
	m.t.Cleanup(func() { m.cli("vm", "clean", id) })
	return id
}

func (m *machines) in(id, line string) string {
	m.t.Helper()
	return strings.TrimSpace(m.cli("vm", "exec", id, "--cmd", line))
}

// TestMachines is the acceptance of machines with kernels of their own: one
// server, since its templates take a while to make.
func TestMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("boots machines in an emulator")
	}
	for _, tool := range []string{"qemu-system-x86_64", "mmdebstrap"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s: `skete doctor --fix` installs it", tool)
		}
	}
	m := &machines{newWorld(t, "--providers", "gvisor,qemu")}
	m.env = []string{"SKETE_HOST_REGISTRIES=true"} // for Registries
	m.doctor()
	m.start()
	t.Run("AnotherKernel", func(t *testing.T) { anotherKernel(m.with(t)) })
	if t.Failed() {
		return
	}
	t.Run("TemplatesAreTheSame", func(t *testing.T) { sameTemplates(m.with(t)) })
	t.Run("ForkOfARunningProgram", func(t *testing.T) { m.each(t, forkOfAProgram) })
	t.Run("HistoryOfTheShell", func(t *testing.T) { m.each(t, historyOfTheShell) })
	t.Run("LastWrites", func(t *testing.T) { m.each(t, lastWrites) })
	t.Run("MovedByHistory", func(t *testing.T) {
		movedByHistory(t, m, "gvisor", "qemu")
		movedByHistory(t, m, "qemu", "gvisor")
	})
	t.Run("PausedUntilTraffic", func(t *testing.T) { m.each(t, pausedUntilTraffic) })
	t.Run("Registries", func(t *testing.T) { m.each(t, registriesInside) })
	t.Run("TemplateOfARegistry", func(t *testing.T) { templateOfARegistry(m.with(t)) })
	networkOfItsOwnKernel(m)
	t.Run("Attacks", func(t *testing.T) { attacksOnItsOwnKernel(t, m) })
}

// doctor gets what QEMU needs, as on a fresh machine.
func (m *machines) doctor() {
	m.t.Helper()
	if err := doctor(m.home); err != nil {
		m.t.Fatal(err)
	}
}

func doctor(home string) error {
	p, err := programs()
	if err != nil {
		return err
	}
	ctx, cancel := patience.Context(context.Background(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.skete, "doctor", "--fix", "--yes", "--provider", "qemu")
	cmd.Env = append(os.Environ(), "SKETE_HOME="+home)
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("a machine booted")) {
		return fmt.Errorf("doctor --fix: %w\n%s", err, out)
	}
	return nil
}

// examined is a home that doctor has been at, beside the programs.
var examined = sync.OnceValues(func() (string, error) {
	p, err := programs()
	if err != nil {
		return "", err
	}
	home := filepath.Join(filepath.Dir(p.skete), "examined")
	return home, doctor(home)
})

// kernel gives the server what doctor has got for another one.
func (m *machines) kernel() {
	m.t.Helper()
	from, err := examined()
	if err == nil {
		err = os.MkdirAll(m.home, 0o700)
	}
	if err == nil {
		err = os.CopyFS(filepath.Join(m.home, "kernels"), os.DirFS(filepath.Join(from, "kernels")))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// Acceptance 1: without a template or a kernel on this server, one command ends
// in Python on a kernel that is not the host's.
func anotherKernel(m *machines) {
	out := m.cli("vm", "temp", "--provider", "qemu", "--lang", "python", "--cmd", "uname -r && python3 -V")
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		m.t.Fatal(err)
	}
	host := unix.ByteSliceToString(u.Release[:])
	kernel, python, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if kernel == "" || kernel == host || !strings.HasPrefix(python, "Python 3") {
		m.t.Errorf("%q on a host with kernel %s", out, host)
	}
}

// image is a small image with what is easily lost: owners, modes, links.
func image(t *testing.T) v1.Image {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no busybox to make an image of: apt install busybox-static")
	}
	shell, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(shell))},
		{Name: "bin/sh", Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777},
		{Name: "odd/", Typeflag: tar.TypeDir, Mode: 0o1777, Uid: 7, Gid: 8},
		{Name: "odd/setuid", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 1234, Gid: 4321, Size: 5},
		{Name: "odd/hard", Typeflag: tar.TypeLink, Linkname: "odd/setuid"},
		{Name: "odd/secret", Typeflag: tar.TypeReg, Mode: 0o600, Uid: 0, Gid: 5, Size: 5},
		{Name: "odd/dangling", Typeflag: tar.TypeSymlink, Linkname: "/nowhere/at all", Uid: 9, Gid: 9, Mode: 0o777},
		{Name: "odd/empty/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: 1000, Gid: 1000},
		{Name: "odd/name with\nline", Typeflag: tar.TypeReg, Mode: 0o444, Size: 5},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		data := []byte("hello")
		if h.Name == "bin/busybox" {
			data = shell
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "layer.tar")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// pull makes the template small from a registry of ours.
func (m *machines) pull() {
	m.t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelError))))
	defer server.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://")+"/small:1", name.Insecure)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := remote.Write(ref, image(m.t)); err != nil {
		m.t.Fatal(err)
	}
	m.cli("template", "pull", ref.String(), "--name", "small")
}

// Acceptance 2: a template that was pulled, and one that was built upon it, are
// the same on gVisor and on QEMU: contents, owners, modes, links.
func sameTemplates(m *machines) {
	m.pull()
	recipe := filepath.Join(m.t.TempDir(), "recipe")
	if err := os.MkdirAll(recipe, 0o755); err != nil {
		m.t.Fatal(err)
	}
	for file, text := range map[string]string{
		"skete.template.yaml": "from: small\nfiles:\n  - {from: motd, to: /odd/motd, mode: \"0640\"}\nrun:\n  - mkdir -p /odd/made && chmod 2750 /odd/made && chown 11:12 /odd/made && echo built > /odd/made/f\n",
		"motd":                "welcome\n",
	} {
		if err := os.WriteFile(filepath.Join(recipe, file), []byte(text), 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	m.cli("template", "build", recipe, "--name", "built")
	const list = `busybox find /odd -exec busybox stat -c '%N %a %u %g %F' {} + | busybox sort; ` +
		`busybox find /odd -type f -exec busybox stat -c '%N %h %s' {} + | busybox sort; ` +
		`busybox find /odd -type f -exec busybox sha256sum {} + | busybox sort`
	for _, template := range []string{"small", "built"} {
		var lists [2]string
		for i, provider := range []string{"gvisor", "qemu"} {
			lists[i] = m.cli("vm", "temp", "--provider", provider, "--template", template, "--root", "--user", "root",
				"--mem", "256", "--disk", "128", "--", "/bin/busybox", "sh", "-c", list)
		}
		if lists[0] != lists[1] || !strings.Contains(lists[0], "/odd/setuid 4755 1234 4321") || !strings.Contains(lists[0], "/odd/setuid 2 5") {
			m.t.Errorf("%s on gVisor:\n%s\non QEMU:\n%s", template, lists[0], lists[1])
		}
		if template == "built" && !strings.Contains(lists[0], "/odd/made 2750 11 12 directory") {
			m.t.Errorf("what the recipe made:\n%s", lists[0])
		}
	}
}

// counter is a program whose state is in memory alone. Each request answers
// with it.
const counter = `
import http.server, json, os, random, time
count = 0
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global count
        count += 1
        body = json.dumps({"count": count, "random": os.urandom(16).hex(), "time": time.time(),
            "host": os.uname().nodename, "machine": open("/etc/machine-id").read() if os.path.exists("/etc/machine-id") else ""}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", 8000), H).serve_forever(poll_interval=3600)
`

type told struct {
	Count  int     `json:"count"`
	Random string  `json:"random"`
	Time   float64 `json:"time"`
	Host   string  `json:"host"`
}

const ask = `python3 -c 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:8000", timeout=20).read().decode())'`

// serving makes a sandbox in which the counter runs.
func (m *machines) serving(provider string, args ...string) string {
	m.t.Helper()
	id := m.vm(append([]string{"--provider", provider, "--template", "python"}, args...)...)
	file := filepath.Join(m.t.TempDir(), "counter.py")
	if err := os.WriteFile(file, []byte(counter), 0o644); err != nil {
		m.t.Fatal(err)
	}
	m.cli("cp", file, id+":/workspace/counter.py")
	sb := m.c.Sandbox(id)
	if _, err := sb.StartProcess(m.ctx(), api.StartProcess{Key: "counter", Background: true, Command: "python3 /workspace/counter.py"}); err != nil {
		m.t.Fatal(err)
	}
	m.until("the program serves", func() error { _, err := m.try("vm", "exec", id, "--cmd", ask); return err })
	return id
}

func (m *machines) tell(id string) (t told) {
	m.t.Helper()
	out := m.in(id, ask)
	if err := json.Unmarshal([]byte(out), &t); err != nil {
		m.t.Fatalf("%q: %v", out, err)
	}
	return t
}

// tellTime reports too whether the program's clock is right, which is that it
// lies between question and answer, with a second to spare.
func (m *machines) tellTime(id string) (t told, right bool) {
	m.t.Helper()
	asked := time.Now().Add(-time.Second)
	t = m.tell(id)
	clock, answered := time.UnixMilli(int64(t.Time*1000)), time.Now().Add(time.Second)
	return t, clock.After(asked) && clock.Before(answered)
}

// Acceptance 4: a program that holds its state in memory is forked. All copies
// go on from there, each with randomness, a name and an environment of its own,
// and the right time.
func forkOfAProgram(m *machines, provider string) {
	id := m.serving(provider, "--env", "TOKEN=secret")
	before := m.tell(id)
	m.in(id, "echo shared > /workspace/file; echo layer > /tmp/file")
	forks := strings.Fields(m.cli("vm", "fork", id, "--count", "2", "-q"))
	if len(forks) != 2 {
		m.t.Fatalf("forks: %q", forks)
	}
	for _, f := range forks {
		m.ids[f] = true
		m.t.Cleanup(func() { m.cli("vm", "clean", f) })
	}
	m.in(forks[0], "echo own > /workspace/file")
	seen := map[string]bool{}
	for _, x := range append([]string{id}, forks...) {
		t, right := m.tellTime(x)
		if t.Count != before.Count+1 {
			m.t.Errorf("%s counts %d, after %d", x, t.Count, before.Count)
		}
		if seen[t.Random] || seen[m.in(x, "hostname")] {
			m.t.Errorf("%s shares randomness or a name: %+v", x, t)
		}
		seen[t.Random], seen[m.in(x, "hostname")] = true, true
		if !right {
			m.t.Errorf("%s has a clock that is wrong by more than a second", x)
		}
		want := "shared"
		if x == forks[0] {
			want = "own"
		}
		if got := m.in(x, "cat /workspace/file /tmp/file"); got != want+"\nlayer" {
			m.t.Errorf("%s has the files %q", x, got)
		}
		if got := m.in(x, "echo token=$TOKEN"); (x == id) != (got == "token=secret") {
			m.t.Errorf("%s: %s", x, got)
		}
	}
}

// Acceptance 5, with a real pause: traffic wakes the sandbox, the program in it
// goes on, and its clock is right. (An hour is moved in sandbox/manager's tests.)
func pausedUntilTraffic(m *machines, provider string) {
	id := m.serving(provider)
	before := m.tell(id)
	m.cli("vm", "pause", id)
	if now, err := m.c.Sandbox(id).Get(m.ctx()); err != nil || now.State != "paused" {
		m.t.Fatalf("after a pause: %s, %v", now.State, err)
	}
	<-time.After(3 * time.Second)
	after, right := m.tellTime(id)
	if after.Count != before.Count+1 {
		m.t.Errorf("it counts %d, after %d", after.Count, before.Count)
	}
	if !right {
		m.t.Error("its clock is wrong by more than a second")
	}
}

// Acceptance 7: an agent's run in a QEMU machine, which is stopped while the
// model thinks and killed in the middle of a command. The run goes on in the same
// sandbox, on the same files; what the model asked for when the machine was
// stopped is done, though without it the files could not be kept before, and of
// the command the model learns that it is not known what it did.
func TestBrain_machineWithItsOwnKernelKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("boots machines in an emulator")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("no qemu-system-x86_64: `skete doctor --fix` installs it")
	}
	m := &machines{newWorld(t, "--providers", "gvisor,qemu")}
	m.kernel()
	b := newBrainOn(m.world, map[string]string{"slow": `
replies:
  - calls: [{name: write_file, args: {file_path: /workspace/kept, content: kept}}]
  - calls: [{name: write_file, args: {file_path: /workspace/more, content: more}}]
    delay: 3s
  - calls: [{name: execute, args: {command: 'busybox sleep 600'}}]
  - calls: [{name: execute, args: {command: 'busybox cat kept more; busybox uname -r'}}]
else: {text: 'It says {{result "execute"}}'}
`}, nil, "")
	m.pull()
	run, err := b.c.StartRun(b.ctx(), api.StartRun{
		Model: "slow", Task: "Do it.",
		Spec: map[string]any{"provider": "qemu", "template": "small", "memory_mb": 128, "disk_mb": 64},
	})
	b.ok(err)
	b.untilEvent(run.ID, func(e thread.Event) bool {
		_, is := e.Body.(thread.ToolCompleted)
		return is
	})
	now, err := b.c.Run(run.ID).Get(b.ctx())
	b.ok(err)
	_, err = b.c.Sandbox(now.Sandbox).Stop(b.ctx())
	b.ok(err)
	b.untilEvent(run.ID, func(e thread.Event) bool {
		s, is := e.Body.(thread.ToolStarted)
		return is && s.Tool == "execute"
	})
	killMachine(t, now.Sandbox)
	ended := b.wait(run.ID, "succeeded")
	got := b.results(run.ID)
	if len(got) != 4 || got[1].Failed || got[2].Code != "interrupted" || !strings.HasPrefix(got[3].text, "keptmore6.") {
		t.Errorf("%q\n%+v", ended.Text, got)
	}
	if after, err := b.c.Run(run.ID).Get(b.ctx()); err != nil || after.Sandbox != now.Sandbox {
		t.Errorf("it went on in %s, began in %s: %v", after.Sandbox, now.Sandbox, err)
	}
}

// killMachine ends the QEMU of a sandbox as a failing host would.
func killMachine(t *testing.T, id string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		pid, perr := strconv.Atoi(e.Name())
		program, args, _ := strings.Cut(string(line), "\x00")
		if err == nil && perr == nil && strings.HasPrefix(filepath.Base(program), "qemu-system") && strings.Contains(args, id) {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no QEMU runs for %s", id)
}
