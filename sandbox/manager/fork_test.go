package manager_test

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/microvm/microvmtest"
	"github.com/skete-dev/skete/sandbox/qemu"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest/disk"
	"github.com/skete-dev/skete/template"
)

var providerNames = flag.String("provider", gvisor.Name+","+qemu.Name, "with which machines the tests on real ones run")

// realBoot is more than a machine takes to come up, by the reference's time.
const realBoot = 3 * time.Minute

// real is a manager on real machines, which outlive it as they do a server.
type real struct {
	*manager.Manager
	t     *testing.T
	dir   string
	name  string // of the provider
	log   *slog.Logger
	c     manager.Config
	ahead atomic.Int64 // that the wall clock of the manager is
}

// onReal runs a test on each kind of machines that can be saved.
func onReal(t *testing.T, test func(t *testing.T, r *real)) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots real machines")
	}
	for name := range strings.SplitSeq(*providerNames, ",") {
		t.Run(name, func(t *testing.T) { test(t, openReal(t, name)) })
	}
}

func openReal(t *testing.T, name string) *real {
	t.Helper()
	r := &real{t: t, dir: t.TempDir(), name: name}
	r.log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	r.c = manager.Config{
		Dir: filepath.Join(r.dir, "sandboxes"), Node: "one", Guest: guesttest.Binary(t), Registry: kvtest.NewMemory(),
		Now: func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }, Log: r.log,
	}
	p := r.provider()
	if err := p.Probe(t.Context()); err != nil {
		t.Skipf("%s does not boot here: %v", p.Name(), err)
	}
	if !p.Capabilities().Snapshot {
		t.Skipf("%s saves no memory here", p.Name())
	}
	r.open(p)
	t.Cleanup(r.end)
	return r
}

// end destroys what there is and looks for what is left.
func (r *real) end() {
	ctx := context.Background()
	page, err := r.List(ctx, "t", sandbox.Filter{PageSize: 1000})
	if err != nil {
		r.t.Error(err)
	}
	var ids []sandbox.ID
	var all sync.WaitGroup
	atOnce := make(chan struct{}, 8)
	for _, i := range page.Items {
		ids = append(ids, i.ID)
		atOnce <- struct{}{}
		all.Go(func() {
			if err := r.Destroy(ctx, "t", i.ID); err != nil {
				r.t.Error(err)
			}
			<-atOnce
		})
	}
	all.Wait()
	_ = r.Close()
	sandboxtest.Leaks(r.t, r.dir, ids...)
}

// provider opens the provider, and says what its machines are made of.
func (r *real) provider() sandbox.Provider {
	r.t.Helper()
	var p sandbox.Provider
	var err error
	switch r.name {
	case gvisor.Name:
		r.c.Templates = oneTemplate{rootfs: sandboxtest.Rootfs(r.t)}
		r.c.Volumes = openVolumes(r.t, filepath.Join(r.dir, "volumes"))
		p, err = gvisor.New(gvisor.Config{
			Dir: filepath.Join(r.dir, "gvisor"), Exe: sandboxtest.Build(r.t, "github.com/skete-dev/skete/sandbox/gvisor/internal/runsctest"),
			Runsc: sandboxtest.Build(r.t, "github.com/skete-dev/skete/cmd/skete-runsc"),
		})
	case qemu.Name:
		microvmtest.Kernel(r.t)
		r.c.Templates = oneTemplate{rootfs: disk.Root(r.t)}
		v := openVolumes(r.t, filepath.Join(r.dir, "volumes"))
		if err := v.Weakness(); err != nil {
			r.t.Skipf("no disks for virtual machines: %v", err)
		}
		r.c.Volumes = v
		r.c.Defaults = sandbox.Defaults{Provider: qemu.Name, MemoryMB: 192, DiskMB: 64, CPUs: 1}
		p, err = qemu.New(qemu.Config{Dir: filepath.Join(r.dir, "qemu"), Cache: microvmtest.Dir(), Guest: r.c.Guest, Log: r.log})
	default:
		r.t.Fatalf("provider %q is none", r.name)
	}
	if err != nil {
		r.t.Skip(err)
	}
	r.t.Cleanup(func() {
		if c, ok := p.(io.Closer); ok {
			_ = c.Close()
		}
	})
	return p
}

// volumes are a server's: images where the host can mount them.
type volumes struct{ *volume.Store }

func openVolumes(t *testing.T, dir string) volumes {
	t.Helper()
	s, err := volume.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return volumes{s}
}

// Create makes a volume.
func (v volumes) Create(ctx context.Context, id string, bytes int64, form sandbox.Form) (sandbox.Volume, error) {
	if form == sandbox.Disk {
		made, err := v.CreateDisk(ctx, id, bytes)
		return sandbox.Volume(made), err
	}
	made, err := v.Store.Create(ctx, id, bytes)
	return sandbox.Volume(made), err
}

// Attach shows a volume.
func (v volumes) Attach(ctx context.Context, id string, form sandbox.Form) (sandbox.Volume, error) {
	if form == sandbox.Disk {
		found, err := v.AttachDisk(ctx, id)
		return sandbox.Volume(found), err
	}
	found, err := v.Store.Attach(ctx, id)
	return sandbox.Volume(found), err
}

// open opens the manager, again after a Close.
func (r *real) open(p sandbox.Provider) {
	r.t.Helper()
	r.c.Providers = []sandbox.Provider{p}
	m, err := openSettled(r.t.Context(), r.c)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Manager = m
}

// oneTemplate is a root file system of the host's programs.
type oneTemplate struct {
	fakeTemplates
	rootfs template.Rootfs
}

func (o oneTemplate) Rootfs(context.Context, string) (template.Rootfs, error) { return o.rootfs, nil }

func (o oneTemplate) Image(context.Context, template.Rootfs) (string, error) {
	return o.rootfs.Image, nil
}

// run runs a command to its end and returns what it said.
func (r *real) run(id sandbox.ID, argv ...string) string {
	r.t.Helper()
	c, release, err := r.Guest(r.t.Context(), "t", id)
	if err != nil {
		r.t.Fatal(err)
	}
	defer release()
	res, err := sandboxtest.Guest{Client: c}.Exec(r.t.Context(), sandboxtest.Start(argv...))
	if err != nil || res.Code != 0 {
		r.t.Fatalf("%q: %v, %+v", argv, err, res)
	}
	return strings.TrimSpace(res.Stdout)
}

// start starts a background command and does not wait for it.
func (r *real) start(id sandbox.ID, key string, argv ...string) {
	r.t.Helper()
	c, release, err := r.Guest(r.t.Context(), "t", id)
	if err != nil {
		r.t.Fatal(err)
	}
	defer release()
	req := sandboxtest.Start(argv...)
	req.Key, req.Background = key, true
	if _, err := c.Process.Start(r.t.Context(), connect.NewRequest(req)); err != nil {
		r.t.Fatal(err)
	}
}

// ask asks the HTTP server at port 8000 inside.
func (r *real) ask(id sandbox.ID, answer any) {
	r.t.Helper()
	conn, err := r.Dial(r.t.Context(), "t", id, 8000)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	req, err := http.NewRequest(http.MethodGet, "http://inside/", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Close = true
	if err := req.Write(conn); err != nil {
		r.t.Fatal(err)
	}
	data, err := io.ReadAll(conn)
	if err != nil {
		r.t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(data), "\r\n\r\n")
	if err := json.Unmarshal([]byte(body), answer); err != nil {
		r.t.Fatalf("%v: %q", err, data)
	}
}

// pythonWitness is a program that holds state in memory and tells of itself, as
// an agent would have written it.
const pythonWitness = `
import http.server, json, os, random, socket, time
token, asked, begun = os.urandom(8).hex(), 0, time.monotonic()
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        global asked
        asked += 1
        body = json.dumps({"token": token, "asked": asked, "random": os.urandom(8).hex(),
            "seeded": random.Random(os.urandom(16)).random(), "hostname": socket.gethostname(),
            "time": time.time(), "ran": time.monotonic() - begun}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
# Else it wakes up twice a second, and a hundred of them keep the host busy.
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever(poll_interval=3600)
`

// told is what the witnesses tell of themselves; see package witness.
type told struct {
	Token    string
	Asked    int
	Random   string
	Seeded   float64
	Hostname string
	Time     float64
	Ran      float64
	Timers   map[string]struct {
		Times     int
		Ran, Time float64
	}
}

// make makes a sandbox with the test's own witness in its workspace.
func (r *real) make(spec sandbox.Spec) sandbox.Info {
	r.t.Helper()
	ctx, cancel := patience.Context(r.t.Context(), realBoot)
	defer cancel()
	info, err := r.Create(ctx, "t", sandbox.CreateRequest{Spec: spec})
	if err != nil {
		r.t.Fatal(err)
	}
	program, err := os.ReadFile(sandboxtest.Build(r.t, "github.com/skete-dev/skete/sandbox/manager/internal/witness"))
	if err != nil {
		r.t.Fatal(err)
	}
	c, release, err := r.Guest(ctx, "t", info.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	defer release()
	sandboxtest.GuestOf(r.t, c).Write("witness", 0o755, program)
	return info
}

// serving makes a sandbox in which a witness runs: Python's, where there is one.
func (r *real) serving(spec sandbox.Spec, timers ...string) sandbox.Info {
	r.t.Helper()
	info := r.make(spec)
	argv := append([]string{"./witness"}, timers...)
	if r.name == gvisor.Name && len(timers) == 0 {
		argv = []string{"python3", "-c", pythonWitness}
	}
	r.start(info.ID, "witness", argv...)
	sandboxtest.Eventually(r.t, "the server inside listens", func() bool {
		conn, err := r.Dial(r.t.Context(), "t", info.ID, 8000)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return info
}

// A sandbox in which a program holds state in memory is forked: all go on from
// there, each with its own identity and randomness, the right time, and none
// with the environment that was given to the original.
func TestFork_ofARunningProgram(t *testing.T) { onReal(t, testForkOfARunningProgram) }

func testForkOfARunningProgram(t *testing.T, r *real) {
	orig := r.serving(sandbox.Spec{Env: map[string]string{"SECRET": "of-the-original"}})
	var before told
	r.ask(orig.ID, &before)
	r.run(orig.ID, "sh", "-c", "echo here > note; echo layer > /tmp/layer")
	boot := bootID(t, r.Manager, orig.ID)
	begun := time.Now()
	forks, err := r.Fork(t.Context(), "t", orig.ID, sandbox.ForkRequest{Count: 2, Changes: sandbox.Changes{Env: map[string]string{"MINE": "yes"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("two forks in %s", time.Since(begun))
	seen := map[any]bool{}
	for _, i := range append(forks, orig) {
		if len(i.Notes) != len(orig.Notes) {
			t.Errorf("notes of %s: %q", i.ID, i.Notes)
		}
		var now told
		r.askTime(i.ID, &now, "after the fork")
		if now.Token != before.Token || now.Asked != before.Asked+1 {
			t.Errorf("%s does not go on: %+v, before %+v", i.ID, now, before)
		}
		if got := r.run(i.ID, "cat", "note", "/tmp/layer"); got != "here\nlayer" {
			t.Errorf("the files of %s say %q", i.ID, got)
		}
		host, name := r.run(i.ID, "hostname"), strings.ReplaceAll(string(i.ID), "_", "-")
		if host != name || now.Hostname != name {
			t.Errorf("%s is called %q, and its program thinks %q", i.ID, host, now.Hostname)
		}
		for _, unique := range []any{now.Random, now.Seeded, host, bootID(t, r.Manager, i.ID)} {
			if seen[unique] {
				t.Errorf("%s shares %v with another", i.ID, unique)
			}
			seen[unique] = true
		}
	}
	for _, i := range forks {
		if env := r.run(i.ID, "env"); strings.Contains(env, "SECRET") || !strings.Contains(env, "MINE=yes") {
			t.Errorf("the environment of %s:\n%s", i.ID, env)
		}
	}
	if env := r.run(orig.ID, "env"); !strings.Contains(env, "SECRET=of-the-original") {
		t.Errorf("the original's environment:\n%s", env)
	}
	if got := bootID(t, r.Manager, orig.ID); got != boot {
		t.Error("the original is another machine to its callers")
	}
	r.run(forks[0].ID, "sh", "-c", "echo mine > note")
	if got := r.run(orig.ID, "cat", "note"); got != "here" {
		t.Errorf("a fork wrote into the original: %q", got)
	}
}

// The timers of TestWake_byTraffic, as witness takes them. Those of the wall
// clock watch the hour pass; for the others the machine stood still.
var wakeTimers = []string{
	"soon=mono:2s", "later=mono:30m", "passed=real:30m", "not-yet=real:2h",
}

// A paused sandbox, an hour later by the wall clock: traffic on a forwarded
// port wakes it, the server inside answers, and the clock is right. Timers run
// out when it is their time, neither an hour early nor never.
func TestWake_byTraffic(t *testing.T) { onReal(t, testWakeByTraffic) }

func testWakeByTraffic(t *testing.T, r *real) {
	info := r.serving(sandbox.Spec{}, wakeTimers...)
	r.start(info.ID, "sleeper", "sleep", "3")
	var before, after told
	r.ask(info.ID, &before)
	boot := bootID(t, r.Manager, info.ID)
	if _, err := r.Pause(t.Context(), "t", info.ID); err != nil {
		t.Fatal(err)
	}
	paused := time.Now()
	own := r.name == qemu.Name // a clock of its own; gVisor's is the host's, which no test moves
	if own {
		r.ahead.Store(int64(time.Hour))
	} else {
		<-time.After(3 * time.Second) // what is measured is the passing of time
	}
	begun := time.Now()
	r.askTime(info.ID, &after, "after the wake")
	t.Logf("answered %s after the call", time.Since(begun))
	isState(t, r.Manager, info.ID, sandbox.Running, "")
	if after.Token != before.Token || after.Asked != before.Asked+1 {
		t.Errorf("%+v; before %+v", after, before)
	}
	if ran := after.Ran - before.Ran; ran < 0 || ran > time.Since(paused).Seconds()+5 {
		t.Errorf("the clock that nobody sets went on by %.1f s", ran)
	}
	if got := bootID(t, r.Manager, info.ID); got != boot {
		t.Error("it woke as another machine")
	}
	r.sleeperEnds(info.ID)
	sandboxtest.Eventually(t, "the short timer ends", func() bool {
		r.ask(info.ID, &after)
		return after.Timers["soon"].Times > 0 && (!own || after.Timers["passed"].Times > 0)
	})
	r.askTime(info.ID, &after, "a while later")
	if at := after.Timers["soon"].Ran; at < 2 {
		t.Errorf("a timer of 2 s ended after %.1f s", at)
	}
	if got := after.Timers["passed"]; own && (got.Times != 1 || got.Time < before.Time+1800-before.Ran-1) {
		t.Errorf("the wall clock's timer of half an hour, after an hour: %+v", got)
	}
	for _, name := range []string{"later", "not-yet"} {
		if got := after.Timers[name]; got.Times != 0 {
			t.Errorf("%s ended too early: %+v", name, got)
		}
	}
}

// askTime is ask of a witness whose clock has to be the manager's: it lies
// between question and answer, with two seconds to spare.
func (r *real) askTime(id sandbox.ID, now *told, when string) {
	r.t.Helper()
	wall := r.c.Now
	if r.name == gvisor.Name {
		wall = time.Now
	}
	asked := wall().Add(-2 * time.Second)
	r.ask(id, now)
	clock, answered := time.UnixMilli(int64(now.Time*1000)), wall().Add(2*time.Second)
	if clock.Before(asked) || clock.After(answered) {
		r.t.Errorf("%s the clock of %s is %s; it was asked at %s and answered at %s", when, id,
			clock.Format(time.StampMilli), asked.Add(2*time.Second).Format(time.StampMilli), answered.Add(-2*time.Second).Format(time.StampMilli))
	}
}

// sleeperEnds waits for a command that sleeps for some seconds.
func (r *real) sleeperEnds(id sandbox.ID) {
	r.t.Helper()
	c, release, err := r.Guest(r.t.Context(), "t", id)
	if err != nil {
		r.t.Fatal(err)
	}
	defer release()
	ctx, cancel := patience.Context(r.t.Context(), 30*time.Second)
	defer cancel()
	if res, err := (sandboxtest.Guest{Client: c}).AttachAll(ctx, "sleeper"); err != nil || res.Code != 0 {
		r.t.Errorf("sleep: %v, %+v", err, res)
	}
}

// memory is the file with a machine's memory in a snapshot.
var memory = map[string]string{gvisor.Name: gvisor.PagesFile, qemu.Name: qemu.MemoryFile}

// A snapshot outlives its server and its sandbox; where its memory is gone or
// damaged, its files are booted.
func TestSnapshot_onRealMachines(t *testing.T) { onReal(t, testSnapshotOnReal) }

func testSnapshotOnReal(t *testing.T, r *real) {
	orig := r.serving(sandbox.Spec{})
	r.run(orig.ID, "sh", "-c", "echo here > note")
	s := save(t, r.Manager, orig.ID, sandbox.SnapshotRequest{Name: "golden"})
	if err := r.Destroy(t.Context(), "t", orig.ID); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	r.open(r.provider())
	var now told
	copied, err := r.Create(t.Context(), "t", sandbox.CreateRequest{From: s.ID})
	if err != nil || len(copied.Notes) != len(orig.Notes) {
		t.Fatalf("%v; notes %q", err, copied.Notes)
	}
	r.ask(copied.ID, &now)
	t.Logf("%d bytes, back in %.0f ms", s.Bytes, copied.BootMS)
	if err := os.Truncate(filepath.Join(r.dir, "sandboxes", "snapshots", string(s.ID), memory[r.name]), 4096); err != nil {
		t.Fatal(err)
	}
	cold, err := r.Create(t.Context(), "t", sandbox.CreateRequest{From: s.ID})
	if err != nil || len(cold.Notes) != len(orig.Notes)+1 {
		t.Fatalf("%v; notes %q", err, cold.Notes)
	}
	if got := r.run(cold.ID, "cat", "note"); got != "here" {
		t.Errorf("its files say %q", got)
	}
}
