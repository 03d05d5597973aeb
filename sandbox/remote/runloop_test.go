package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// theirs plays Runloop's API as the types of @runloop/api-client 1.32.0 have it: a request
// that they do not allow is an error of the test. Its one devbox is a directory, and its
// commands are real processes.
type theirs struct {
	t    *testing.T
	home string
	url  *url.URL

	mu       sync.Mutex
	metadata map[string]string
	keeps    int
	polls    int
	down     bool
	commands map[string]*command
	running  sync.WaitGroup
}

type command struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
	done     chan struct{}
}

func newTheirs(t *testing.T) *theirs {
	f := &theirs{t: t, home: filepath.Join(t.TempDir(), "home"), commands: map[string]*command{}}
	bin := filepath.Join(f.home, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "sudo"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(w http.ResponseWriter, r *http.Request) any{
		"POST /v1/devboxes": f.create, "GET /v1/devboxes": f.list, "GET /v1/devboxes/dbx_1": f.get, "POST /v1/devboxes/dbx_1/keep_alive": f.keep,
		"POST /v1/devboxes/dbx_1/shutdown": f.shutdown, "POST /v1/devboxes/dbx_1/upload_file": f.upload,
		"POST /v1/devboxes/dbx_1/execute_async": f.execute, "POST /v1/devboxes/dbx_1/executions/{id}/wait_for_status": f.wait,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer the-key" {
				t.Errorf("%s: no key", pattern)
			}
			if v := h(w, r); v != nil {
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(v)
			}
		})
	}
	mux.HandleFunc("/tunnel/{host}/", f.tunnel)
	srv := httptest.NewServer(mux)
	f.url, _ = url.Parse(srv.URL)
	t.Cleanup(func() {
		f.end()
		f.running.Wait()
		srv.Close()
	})
	return f
}

// body reads a request, which may have these fields only.
func (f *theirs) body(r *http.Request, v any) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		f.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	_, _ = io.Copy(io.Discard, r.Body) // only then is a client that hangs up noticed
}

func (f *theirs) view() map[string]any {
	status := "running"
	if f.polls++; f.polls < 2 {
		status = "provisioning"
	}
	v := map[string]any{"id": "dbx_1", "status": status, "metadata": f.metadata, "tunnel": map[string]any{"tunnel_key": "thekey", "auth_token": "thetoken", "auth_mode": "authenticated"}}
	if f.down {
		v["status"], v["shutdown_reason"] = "shutdown", "api_shutdown"
	}
	return v
}

func (f *theirs) create(_ http.ResponseWriter, r *http.Request) any {
	var in struct {
		Blueprint string            `json:"blueprint_name"`
		Metadata  map[string]string `json:"metadata"`
		Tunnel    struct {
			Mode string `json:"auth_mode"`
		} `json:"tunnel"`
		Launch struct {
			Keep int `json:"keep_alive_time_seconds"`
		} `json:"launch_parameters"`
	}
	f.body(r, &in)
	if in.Tunnel.Mode != "authenticated" || in.Launch.Keep < 1 || in.Blueprint != "ours" {
		f.t.Errorf("create: %+v", in)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.metadata = in.Metadata
	return f.view()
}

func (f *theirs) get(http.ResponseWriter, *http.Request) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view()
}

func (f *theirs) list(_ http.ResponseWriter, r *http.Request) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Query().Get("starting_after") == "" {
		other := map[string]any{"id": "dbx_0", "status": "running", "metadata": map[string]string{"a": "b"}}
		return map[string]any{"devboxes": []any{other}, "has_more": true}
	}
	return map[string]any{"devboxes": []any{f.view()}, "has_more": false}
}

func (f *theirs) keep(http.ResponseWriter, *http.Request) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keeps++
	return map[string]any{}
}

func (f *theirs) shutdown(http.ResponseWriter, *http.Request) any {
	f.end()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = true
	return f.view()
}

func (f *theirs) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.commands {
		_ = c.cmd.Process.Signal(os.Interrupt) // the guest ends its own
	}
}

func (f *theirs) upload(w http.ResponseWriter, r *http.Request) any {
	name := r.FormValue("path")
	file, _, err := r.FormFile("file")
	if err != nil || filepath.IsAbs(name) || !filepath.IsLocal(name) {
		f.t.Errorf("upload of %q: %v", name, err)
		w.WriteHeader(http.StatusBadRequest)
		return nil
	}
	data, _ := io.ReadAll(file)
	if err := os.WriteFile(filepath.Join(f.home, name), data, 0o644); err != nil {
		f.t.Error(err)
	}
	return map[string]any{}
}

func (f *theirs) execute(_ http.ResponseWriter, r *http.Request) any {
	var in struct {
		Command string `json:"command"`
	}
	f.body(r, &in)
	c := &command{cmd: exec.Command("/bin/sh", "-c", "exec "+in.Command), done: make(chan struct{})}
	c.cmd.Dir = f.home
	c.cmd.Env = []string{"HOME=" + f.home, "PATH=" + filepath.Join(f.home, "bin") + ":/usr/bin:/bin"}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.err
	if err := c.cmd.Start(); err != nil {
		f.t.Error(err)
	}
	f.running.Go(func() {
		_ = c.cmd.Wait()
		close(c.done)
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	id := "exe_" + string(rune('a'+len(f.commands)))
	f.commands[id] = c
	return map[string]any{"devbox_id": "dbx_1", "execution_id": id, "status": "running"}
}

func (f *theirs) wait(w http.ResponseWriter, r *http.Request) any {
	var in struct {
		Statuses []string `json:"statuses"`
		Timeout  int      `json:"timeout_seconds"`
	}
	f.body(r, &in)
	f.mu.Lock()
	c := f.commands[r.PathValue("id")]
	f.mu.Unlock()
	if c == nil || !slices.Equal(in.Statuses, []string{"completed"}) || in.Timeout < 1 || in.Timeout > 25 {
		f.t.Errorf("wait: %+v", in)
		w.WriteHeader(http.StatusNotFound)
		return nil
	}
	v := map[string]any{"devbox_id": "dbx_1", "execution_id": r.PathValue("id"), "status": "running", "exit_status": nil}
	select {
	case <-c.done:
		v["status"], v["exit_status"], v["stdout"], v["stderr"] = "completed", c.cmd.ProcessState.ExitCode(), c.out.String(), c.err.String()
	case <-time.After(time.Duration(in.Timeout) * time.Second):
	case <-r.Context().Done():
	}
	return v
}

// tunnel is https://PORT-KEY.tunnel.runloop.ai, as a path.
func (f *theirs) tunnel(w http.ResponseWriter, r *http.Request) {
	port, key, _ := strings.Cut(r.PathValue("host"), "-")
	if key != "thekey.tunnel.runloop.ai" || r.Header.Get("X-Runloop-Tunnel-Authorization") != "Bearer thetoken" {
		f.t.Errorf("tunnel %s: %v", r.URL, r.Header)
	}
	to := &url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
	http.StripPrefix("/tunnel/"+r.PathValue("host"), httputil.NewSingleHostReverseProxy(to)).ServeHTTP(w, r)
}

func (f *theirs) open(dir string) *Provider {
	p, err := New(Config{
		Name: RunloopName, Dir: dir, Keep: 3 * time.Second,
		Service: NewRunloop(Runloop{URL: f.url, TunnelURL: f.url.JoinPath("tunnel"), Key: "the-key", Blueprint: "ours"}),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// A machine of Runloop's: made, used, found again by the next server, kept alive, ended.
func TestRunloop(t *testing.T) {
	f := newTheirs(t)
	dir := t.TempDir()
	p := f.open(dir)
	b := sandbox.Boot{ID: sandbox.NewID(), Guest: guesttest.Binary(t), Spec: sandbox.Spec{Workdir: sandbox.WorkspaceDir, Env: map[string]string{"COLOUR": "green"}}}
	m, err := p.Create(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if res := sandboxtest.NewGuest(t, m).Shell("echo $COLOUR"); res.Stdout != "green\n" {
		t.Errorf("%+v", res)
	}
	if c := p.Capabilities(); c.Pause || !slices.ContainsFunc(c.Notes, func(n string) bool { return strings.Contains(n, "Internet") }) {
		t.Errorf("%+v", c)
	}
	if ids, err := p.c.Service.Find(t.Context(), p.labels(b.ID)); err != nil || !slices.Equal(ids, []string{"dbx_1"}) {
		t.Errorf("found: %v, %v", ids, err)
	}
	if err := m.Pause(t.Context()); !errs.Is(err, errs.Unsupported) {
		t.Errorf("pause: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = f.open(dir)
	defer p.Close()
	if m, err = p.Attach(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	if res := sandboxtest.NewGuest(t, m).Shell("echo again"); res.Stdout != "again\n" {
		t.Errorf("%+v", res)
	}
	f.mu.Lock()
	if f.keeps == 0 {
		t.Error("it is not kept alive")
	}
	f.mu.Unlock()
	for range 2 {
		if err := p.Destroy(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	if e, err := m.Wait(context.Background()); err != nil || e.Reason != sandbox.ReasonDestroyed || !f.down {
		t.Errorf("%+v, %v", e, err)
	}
}
