package manager_test

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor"
	"github.com/skete-dev/skete/sandbox/gvisor/saved"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/registrytest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/template"
)

var providerName = flag.String("provider", "gvisor", "with which machines the acceptance tests run")

// real is a manager on real machines, which outlive it as they do a server.
type real struct {
	*manager.Manager
	t     *testing.T
	dir   string
	c     manager.Config
	ahead atomic.Int64 // that the wall clock of the manager is
}

// openReal needs machines that can be saved.
func openReal(t *testing.T) *real {
	t.Helper()
	if testing.Short() {
		t.Skip("boots real machines")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 on this host")
	}
	r := &real{t: t, dir: t.TempDir()}
	r.c = manager.Config{
		Dir: filepath.Join(r.dir, "sandboxes"), Node: "one", Guest: guesttest.Binary(t), Registry: registrytest.NewMemory(),
		Templates: oneTemplate{rootfs: sandboxtest.Rootfs(t)}, Volumes: dirVolumes(filepath.Join(r.dir, "volumes")),
		Now: func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) },
	}
	p := r.provider()
	if err := p.Probe(t.Context()); err != nil {
		t.Skipf("%s does not boot here: %v", p.Name(), err)
	}
	if !p.Capabilities().Snapshot {
		t.Skipf("%s saves no memory here", p.Name())
	}
	r.open(p)
	t.Cleanup(func() {
		ctx := context.Background()
		page, err := r.List(ctx, "t", sandbox.Filter{PageSize: 1000})
		if err != nil {
			t.Error(err)
		}
		var ids []sandbox.ID
		for _, i := range page.Items {
			ids = append(ids, i.ID)
			if err := r.Destroy(ctx, "t", i.ID); err != nil {
				t.Error(err)
			}
		}
		_ = r.Close()
		sandboxtest.Leaks(t, r.dir, ids...)
	})
	return r
}

func (r *real) provider() sandbox.Provider {
	r.t.Helper()
	if *providerName != gvisor.Name {
		r.t.Skipf("this test does not know how to open provider %s", *providerName)
	}
	p, err := gvisor.New(gvisor.Config{
		Dir: filepath.Join(r.dir, "gvisor"), Exe: sandboxtest.Build(r.t, "github.com/skete-dev/skete/sandbox/gvisor/internal/runsctest"),
		Runsc: sandboxtest.Build(r.t, "github.com/skete-dev/skete/cmd/skete-runsc"),
	})
	if err != nil {
		r.t.Skip(err)
	}
	r.t.Cleanup(func() { _ = p.Close() })
	return p
}

// open opens the manager, again after a Close.
func (r *real) open(p sandbox.Provider) {
	r.t.Helper()
	r.c.Providers = []sandbox.Provider{p}
	m, err := manager.Open(r.t.Context(), r.c)
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

// start starts a command that nobody waits for.
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

// keeper is a program that holds state in memory and tells of itself.
const keeper = `
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
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
`

type told struct {
	Token    string
	Asked    int
	Random   string
	Seeded   float64
	Hostname string
	Time     float64
	Ran      float64
}

func (r *real) serving(spec sandbox.Spec) sandbox.Info {
	r.t.Helper()
	info, err := r.Create(r.t.Context(), "t", sandbox.CreateRequest{Spec: spec})
	if err != nil {
		r.t.Fatal(err)
	}
	r.start(info.ID, "keeper", "python3", "-c", keeper)
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
func TestFork_ofARunningProgram(t *testing.T) {
	r := openReal(t)
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
		if len(i.Notes) != 0 {
			t.Errorf("notes of %s: %q", i.ID, i.Notes)
		}
		var now told
		r.ask(i.ID, &now)
		if now.Token != before.Token || now.Asked != before.Asked+1 {
			t.Errorf("%s does not go on: %+v, before %+v", i.ID, now, before)
		}
		if d := now.Time - float64(time.Now().UnixMilli())/1000; d < -2 || d > 2 {
			t.Errorf("the clock of %s is wrong by %.1f s", i.ID, d)
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

// A paused sandbox, an hour later by the wall clock: traffic on a forwarded
// port wakes it, and the server inside answers.
func TestWake_byTraffic(t *testing.T) {
	r := openReal(t)
	info := r.serving(sandbox.Spec{})
	var before, after told
	r.ask(info.ID, &before)
	boot := bootID(t, r.Manager, info.ID)
	if _, err := r.Pause(t.Context(), "t", info.ID); err != nil {
		t.Fatal(err)
	}
	r.ahead.Store(int64(time.Hour))
	begun := time.Now()
	r.ask(info.ID, &after)
	t.Logf("answered %s after the call", time.Since(begun))
	isState(t, r.Manager, info.ID, sandbox.Running, "")
	if after.Token != before.Token || after.Asked != before.Asked+1 {
		t.Errorf("%+v; before %+v", after, before)
	}
	// The machine's clock is either the host's or ours to set.
	off := after.Time - float64(time.Now().UnixMilli())/1000
	if (off < -2 || off > 2) && (off < 3598 || off > 3602) {
		t.Errorf("the clock inside is off by %.1f s", off)
	}
	if got := bootID(t, r.Manager, info.ID); got != boot {
		t.Error("it woke as another machine")
	}
}

// A snapshot outlives its server and its sandbox; where its memory is gone or
// damaged, its files are booted.
func TestSnapshot_onRealMachines(t *testing.T) {
	r := openReal(t)
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
	if err != nil || len(copied.Notes) != 0 {
		t.Fatalf("%v; notes %q", err, copied.Notes)
	}
	r.ask(copied.ID, &now)
	t.Logf("%d bytes, back in %.0f ms", s.Bytes, copied.BootMS)
	if err := os.Truncate(filepath.Join(r.dir, "sandboxes", "snapshots", string(s.ID), saved.Pages), 4096); err != nil {
		t.Fatal(err)
	}
	cold, err := r.Create(t.Context(), "t", sandbox.CreateRequest{From: s.ID})
	if err != nil || len(cold.Notes) != 1 {
		t.Fatalf("%v; notes %q", err, cold.Notes)
	}
	if got := r.run(cold.ID, "cat", "note"); got != "here" {
		t.Errorf("its files say %q", got)
	}
}
