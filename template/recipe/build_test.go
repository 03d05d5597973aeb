package recipe_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/apt"
	"github.com/skete-dev/skete/template/recipe"
)

// killEnv makes the test binary a program that builds, to be killed.
const killEnv = "SKETE_RECIPE_KILL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killEnv); dir != "" {
		fmt.Println(buildToBeKilled(dir))
		return
	}
	goleak.VerifyTestMain(m)
}

// machines boots gVisor sandboxes, as a manager would.
type machines struct {
	store    *template.Store
	provider sandbox.Provider
	guest    string
	dir      string

	mu       sync.Mutex
	opened   int
	networks int // of them, were to have one
}

func (m *machines) Open(ctx context.Context, name string, network bool) (*wire.Client, func(context.Context) error, error) {
	m.mu.Lock()
	m.opened++
	if network {
		m.networks++
	}
	m.mu.Unlock()
	root, err := m.store.Rootfs(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	id := sandbox.NewID()
	own, work := filepath.Join(m.dir, string(id)), filepath.Join(m.dir, string(id)+"-work")
	if err := errors.Join(os.MkdirAll(own, 0o700), os.MkdirAll(work, 0o755)); err != nil {
		return nil, nil, err
	}
	spec, err := sandbox.Normalise(sandbox.Spec{Root: true, Template: name, MemoryMB: 1024, PidsMax: 1000}, sandbox.Limits{}, sandbox.Defaults{})
	if err != nil {
		return nil, nil, err
	}
	machine, err := m.provider.Create(ctx, sandbox.Boot{ID: id, Spec: spec, Rootfs: root, Guest: m.guest, Dir: own, Workspace: work})
	if err != nil {
		return nil, nil, err
	}
	return machine.Guest(), func(ctx context.Context) error {
		return errors.Join(m.provider.Destroy(ctx, id), machine.Close(), os.RemoveAll(own), os.RemoveAll(work))
	}, nil
}

// world is a Builder on real sandboxes.
type world struct {
	store    *template.Store
	builder  *recipe.Builder
	machines *machines
	dir      string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldIn(t, t.TempDir())
}

func worldIn(t *testing.T, dir string) *world {
	t.Helper()
	w, err := open(dir, programs(t))
	must(t, err)
	t.Cleanup(func() { must(t, w.machines.provider.Close()) })
	if err := w.machines.provider.Probe(t.Context()); err != nil {
		t.Skipf("gVisor does not boot here: %v", err)
	}
	return w
}

// program are the paths of what machines are made of.
type program struct{ exe, runsc, guest string }

func programs(t testing.TB) program {
	const module = "github.com/skete-dev/skete/"
	return program{
		sandboxtest.Build(t, module+"sandbox/gvisor/internal/runsctest"), sandboxtest.Build(t, module+"cmd/skete-runsc"), sandboxtest.Build(t, module+"cmd/skete-guest"),
	}
}

func open(dir string, x program) (*world, error) {
	store, err := template.Open(filepath.Join(dir, "templates"))
	if err != nil {
		return nil, err
	}
	p, err := gvisor.New(gvisor.Config{Dir: filepath.Join(dir, "gvisor"), Runsc: x.runsc, Exe: x.exe})
	if err != nil {
		return nil, err
	}
	m := &machines{store: store, provider: p, guest: x.guest, dir: filepath.Join(dir, "machines")}
	b, err := recipe.New(recipe.Config{
		Templates: store, Machines: m, Dir: filepath.Join(dir, "steps"), Packages: hostPackages{apt.NewFetcher(filepath.Join(dir, "packages"))},
	})
	return &world{store: store, builder: b, machines: m, dir: dir}, err
}

type hostPackages struct{ f *apt.Fetcher }

func (p hostPackages) Fetch(ctx context.Context, tree string, names []string, say func(string)) ([]apt.Deb, error) {
	return p.f.Fetch(ctx, apt.Request{Tree: tree, Packages: names, Own: func(_, suite string) apt.Sources { return apt.HostSources("/").For(suite) }}, say)
}

// tiny imports a template of one static program, which is all that steps need.
func (w *world) tiny(t *testing.T) {
	t.Helper()
	box, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skip("no static busybox on this host (Debian: apt install busybox-static)")
	}
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		must(t, tw.WriteHeader(&h))
		_, err := tw.Write(data)
		must(t, err)
	}
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, box)
	for _, name := range []string{"sh", "chown", "cat", "ls", "mkdir", "ln", "chmod", "test", "sleep", "stat", "env", "id", "rm", "echo", "head", "touch"} {
		add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeLink, Linkname: "bin/busybox", Mode: 0o755}, nil)
	}
	must(t, tw.Close())
	_, err = w.store.Import(t.Context(), "tiny", &b)
	must(t, err)
}

// heard is what a build told.
type heard struct {
	steps, output, progress []string
}

func (h *heard) tell(n recipe.News) {
	switch n.Kind {
	case recipe.Step:
		h.steps = append(h.steps, fmt.Sprintf("%d/%d %s %v", n.N, n.Steps, n.Text, n.Cached))
	case recipe.Output:
		h.output = append(h.output, n.Text)
	default:
		h.progress = append(h.progress, n.Text)
	}
}

func (w *world) build(t *testing.T, dir string, fresh bool) (template.Info, *heard, error) {
	t.Helper()
	h := &heard{}
	info, err := w.builder.Build(t.Context(), recipe.Request{Name: "mine", Folder: sent(t, dir), Fresh: fresh}, h.tell)
	return info, h, err
}

// in runs a command in a sandbox of a template.
func (w *world) in(t *testing.T, name, command string) string {
	t.Helper()
	guest, end, err := w.machines.Open(t.Context(), name, false)
	must(t, err)
	defer func() { must(t, end(context.Background())) }()
	var out strings.Builder
	must(t, recipe.Exec(t.Context(), guest, command, func(s string) { out.WriteString(s) }))
	return out.String()
}

func TestBuild_makesWhatTheRecipeSays(t *testing.T) {
	w := newWorld(t)
	w.tiny(t)
	dir := folder(t, `from: tiny
files:
  - {from: tool, to: /usr/local/bin/tool, mode: "0750", owner: "0:1000"}
  - {from: data, to: /opt/data}
  - {from: data/x, to: /opt/}
run:
  - echo out; echo err >&2; env >/opt/env; id -u >/opt/uid
  - |
    ln /opt/uid /opt/same
    ln -s uid /opt/link
    chmod 4711 /opt/env
    chown 7:8 /opt/data/x
    touch /tmp/gone /workspace/gone /run/gone
env: {GREETING: "hello there"}
workdir: /opt
user: root
start: sleep 0.2; touch /run/up; exec sleep 100
ready: test -e /run/up
`, map[string]string{"tool": "#!/bin/sh\necho tool\n", "data/x": "X", "data/sub/y": "Y"})
	info, h, err := w.build(t, dir, false)
	must(t, err)
	if info.Name != "mine" {
		t.Errorf("%+v", info)
	}
	if d := cmp.Diff([]string{
		"1/4 copy tool and 2 more false", "2/4 echo out; echo err >&2; env >/opt/env; id -u >/opt/uid false", "3/4 ln /opt/uid /opt/same … false", "4/4 settings false",
	}, h.steps); d != "" {
		t.Error(d)
	}
	if out := strings.Join(h.output, ""); !strings.Contains(out, "out\n") || !strings.Contains(out, "err\n") {
		t.Errorf("output %q", out)
	}
	got := w.in(t, "mine", `
stat -c '%a %u:%g %n' /opt /opt/data
stat -c '%a %u:%g %h %n' /usr/local/bin/tool /opt/data/x /opt/data/sub/y /opt/x /opt/env /opt/uid /opt/same
cat /opt/uid /opt/link; /bin/busybox grep GREETING /opt/env; cat /etc/skete/template.json; ls -A /tmp /run /workspace`)
	want := `755 0:0 /opt
755 0:0 /opt/data
750 0:1000 1 /usr/local/bin/tool
644 7:8 1 /opt/data/x
644 0:0 1 /opt/data/sub/y
644 0:0 1 /opt/x
4711 0:0 1 /opt/env
644 0:0 2 /opt/uid
644 0:0 2 /opt/same
0
0
GREETING=hello there
`
	rest, ok := strings.CutPrefix(got, want)
	if !ok {
		t.Fatalf("got %s", got)
	}
	for _, part := range []string{`"GREETING": "hello there"`, `"workdir": "/opt"`, `"ready": "test -e /run/up"`} {
		if !strings.Contains(rest, part) {
			t.Errorf("the settings lack %s: %s", part, rest)
		}
	}
	if strings.Contains(rest, "gone") {
		t.Errorf("kept what belongs to a running machine: %s", rest)
	}
	if left, _ := os.ReadDir(w.machines.dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestBuild_doesNotRepeatWhatWasDone(t *testing.T) {
	w := newWorld(t)
	w.tiny(t)
	text := "from: tiny\nfiles: [{from: f, to: /opt/f}]\nrun:\n  - echo one\n  - echo two\n"
	dir := folder(t, text, map[string]string{"f": "1"})
	count := func(want int, fresh bool, what string) template.Info {
		t.Helper()
		before := w.machines.opened
		info, _, err := w.build(t, dir, fresh)
		must(t, err)
		if n := w.machines.opened - before; n != want {
			t.Errorf("%s: %d sandboxes, want %d", what, n, want)
		}
		return info
	}
	first := count(3, false, "the first build")
	if again := count(0, false, "the same again"); again.Hash != first.Hash {
		t.Error("the same recipe is another template")
	}
	must(t, os.WriteFile(filepath.Join(dir, recipe.FileName), []byte(strings.Replace(text, "two", "three", 1)), 0o600))
	count(1, false, "the last step changed")
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("2"), 0o600))
	count(3, false, "a file changed")
	must(t, os.Chmod(filepath.Join(dir, "f"), 0o700))
	count(3, false, "a file may be executed now")
	must(t, os.Chmod(filepath.Join(dir, "f"), 0o711))
	count(0, false, "another mode that means the same")
	count(3, true, "fresh")
	text = strings.Replace(text, "two", "three", 1)
	must(t, os.WriteFile(filepath.Join(dir, recipe.FileName), []byte(text+"network: none\n"), 0o600))
	count(0, false, "the network that it has anyway")
	w.machines.networks = 0
	must(t, os.WriteFile(filepath.Join(dir, recipe.FileName), []byte(text+"network: default\n"), 0o600))
	if count(2, false, "a network"); w.machines.networks != 2 {
		t.Errorf("%d sandboxes had a network, and two commands were run", w.machines.networks)
	}
}

// clones reports whether files here share blocks without sharing an inode: then
// nothing is linked.
func clones(t *testing.T) bool {
	t.Helper()
	from, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer from.Close()
	to, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	defer to.Close()
	return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil
}

// TestBuild_stepsShareWhatTheyDoNotChange: what comes out of a sandbox is, file
// by file, what went into it.
func TestBuild_stepsShareWhatTheyDoNotChange(t *testing.T) {
	w := newWorld(t)
	w.tiny(t)
	_, _, err := w.build(t, folder(t, "from: tiny\nrun:\n  - head -c 3000000 /dev/zero >/big\n  - echo two >/two\n  - chmod 600 /two\n", nil), false)
	must(t, err)
	if clones(t) {
		t.Skip("this file system has clones, which look like files of their own")
	}
	inodes := map[string]map[uint64]int{}
	trees, err := filepath.Glob(filepath.Join(w.dir, "templates/trees/*"))
	must(t, err)
	for _, name := range []string{"bin/busybox", "bin/sh", "big", "two", "etc/passwd"} {
		inodes[name] = map[uint64]int{}
		for _, tree := range trees {
			if info, err := os.Lstat(filepath.Join(tree, name)); err == nil {
				inodes[name][info.Sys().(*syscall.Stat_t).Ino]++
			}
		}
	}
	for name, want := range map[string][]int{"bin/busybox": {4}, "bin/sh": {4}, "big": {3}, "two": {1, 1}, "etc/passwd": {1, 1, 1, 1}} {
		if got := slices.Sorted(maps.Values(inodes[name])); !slices.Equal(got, want) {
			t.Errorf("%d trees hold %s as %v, want %v", len(trees), name, got, want)
		}
	}
}

func TestBuild_failsWithThePlaceAndKeepsWhatWasDone(t *testing.T) {
	w := newWorld(t)
	w.tiny(t)
	dir := folder(t, "from: tiny\nrun:\n  - echo fine >/fine\n  - |\n    echo last words\n    exit 3\n", nil)
	_, h, err := w.build(t, dir, false)
	text := fmt.Sprint(err)
	if !errs.Is(err, errs.Invalid) || !strings.Contains(text, recipe.FileName+":4:5") || !strings.Contains(text, "exit status 3") || !strings.Contains(text, "last words") {
		t.Errorf("%v", err)
	}
	if len(h.steps) != 2 {
		t.Errorf("%q", h.steps)
	}
	if _, err := w.store.Get(t.Context(), "mine"); !errs.Is(err, errs.NotFound) {
		t.Errorf("a failed build has a template: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, recipe.FileName), []byte("from: tiny\nrun:\n  - echo fine >/fine\n  - cat /fine >/good\n"), 0o600))
	_, h, err = w.build(t, dir, false)
	must(t, err)
	if !strings.HasSuffix(h.steps[0], "true") || !strings.HasSuffix(h.steps[1], "false") {
		t.Errorf("%q", h.steps)
	}
}

func TestBuild_isNotDoneWhenItDoesNotGetReady(t *testing.T) {
	w := newWorld(t)
	w.tiny(t)
	dir := folder(t, "from: tiny\nstart: exit 7\nready: exit 1\nready_timeout: 2s\n", nil)
	for range 2 { // the second time too: it is no step that was done
		_, _, err := w.build(t, dir, false)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(fmt.Sprint(err), "not ready in 2s") || !strings.Contains(fmt.Sprint(err), "status 7") {
			t.Fatalf("%v", err)
		}
	}
	if _, err := w.store.Get(t.Context(), "mine"); !errs.Is(err, errs.NotFound) {
		t.Errorf("it has a template: %v", err)
	}
}

func TestBuild_refusesNamesAndBases(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name, from string
		class      errs.Class
	}{
		{"python", "tiny", errs.Invalid},
		{"step.x", "tiny", errs.Invalid},
		{"mine", "nosuch", errs.NotFound},
		{"mine", "registry.example/x:1", errs.Unsupported},
	} {
		f := sent(t, folder(t, "from: "+c.from+"\n", nil))
		if _, err := w.builder.Build(t.Context(), recipe.Request{Name: c.name, Folder: f}, func(recipe.News) {}); !errs.Is(err, c.class) {
			t.Errorf("%s from %s: %v", c.name, c.from, err)
		}
	}
}

// buildToBeKilled builds from a directory; its second step never ends.
func buildToBeKilled(dir string) error {
	w, err := open(dir, program{os.Getenv("EXE"), os.Getenv("RUNSC"), os.Getenv("GUEST")})
	if err != nil {
		return err
	}
	f, err := recipe.Open(filepath.Join(dir, "recipe"))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = w.builder.Build(context.Background(), recipe.Request{Name: "mine", Folder: f}, func(n recipe.News) { fmt.Println(n.Kind, n.Text) })
	return err
}

func TestBuild_goesOnAfterKill9(t *testing.T) {
	dir := t.TempDir()
	w := worldIn(t, dir)
	w.tiny(t)
	rdir := filepath.Join(dir, "recipe")
	must(t, os.Mkdir(rdir, 0o700))
	write := func(second string) {
		must(t, os.WriteFile(filepath.Join(rdir, recipe.FileName), []byte("from: tiny\nrun:\n  - echo one >/one\n  - "+second+"\n"), 0o600))
	}
	write("echo began; exec sleep 1000")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killEnv+"="+dir, "EXE="+programs(t).exe, "RUNSC="+programs(t).runsc, "GUEST="+programs(t).guest)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var said strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(said.String(), "output began") {
		n, err := out.Read(buf)
		said.Write(buf[:n])
		if err != nil {
			t.Fatalf("it ended: %v; %s", err, said.String())
		}
	}
	must(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	// The server that starts next destroys the machines that have no owner.
	ids, err := w.machines.provider.List(t.Context())
	must(t, err)
	for _, id := range ids {
		must(t, w.machines.provider.Destroy(t.Context(), id))
	}
	must(t, os.RemoveAll(w.machines.dir))
	write("cat /one >/two")
	_, h, err := w.build(t, rdir, false)
	must(t, err)
	if d := cmp.Diff([]string{"1/2 echo one >/one true", "2/2 cat /one >/two false"}, h.steps); d != "" {
		t.Error(d)
	}
	if got := w.in(t, "mine", "cat /two"); got != "one\n" {
		t.Errorf("%q", got)
	}
}
