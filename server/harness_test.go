package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/agent/schedule"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cowork/runner"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/sandbox/process"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/runs/runstest"
	"github.com/skete-dev/skete/skill"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// volumes are plain directories: the bound is tested elsewhere.
type volumes struct{ dir string }

func (v volumes) Create(_ context.Context, id string, _ int64, _ sandbox.Form) (sandbox.Volume, error) {
	path := filepath.Join(v.dir, id)
	return sandbox.Volume{Path: path, Enforced: true, Method: "test"}, errors.Join(os.MkdirAll(path, 0o777), os.Chmod(path, 0o777))
}

func (v volumes) Attach(_ context.Context, id string, _ sandbox.Form) (sandbox.Volume, error) {
	path := filepath.Join(v.dir, id)
	if _, err := os.Stat(path); err != nil {
		return sandbox.Volume{}, errs.Wrap(errs.NotFound, err, "no volume %s", id)
	}
	return sandbox.Volume{Path: path, Enforced: true, Method: "test"}, nil
}

func (v volumes) Copy(_ context.Context, from, to string) error {
	path := filepath.Join(v.dir, to)
	return errors.Join(os.RemoveAll(path), os.CopyFS(path, os.DirFS(filepath.Join(v.dir, from))), os.Chmod(path, 0o777))
}

func (v volumes) Detach(context.Context, string) error { return nil }

func (v volumes) Remove(_ context.Context, id string) error {
	return os.RemoveAll(filepath.Join(v.dir, id))
}

func (v volumes) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(v.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, err
}

func (v volumes) Usage(context.Context, string) (int64, error) { return 0, nil }

// templates has one, and lets tests import others without content.
type templates struct {
	*template.Store // what is not below
	rootfs          template.Rootfs

	mu    sync.Mutex
	infos []template.Info
}

func (s *templates) Rootfs(_ context.Context, name string) (template.Rootfs, error) {
	if name != template.HostName {
		return template.Rootfs{}, errs.New(errs.NotFound, "no template %.40q", name).WithHint("known: host")
	}
	return s.rootfs, nil
}

func (s *templates) Image(context.Context, template.Rootfs) (string, error) {
	return "", errs.New(errs.Unsupported, "no images here")
}

func (s *templates) Needs(context.Context, string) template.Needs { return template.Needs{} }

func (s *templates) Language(context.Context, string, string) error { return nil }

func (s *templates) List(context.Context) ([]template.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.infos), nil
}

func (s *templates) Get(_ context.Context, name string) (template.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.infos {
		if i.Name == name {
			return i, nil
		}
	}
	return template.Info{}, errs.New(errs.NotFound, "no template %.40q", name)
}

func (s *templates) Export(ctx context.Context, name string, _ io.Writer) error {
	_, err := s.Get(ctx, name)
	return err
}

func (s *templates) ImportFor(_ context.Context, name, _ string, tar io.Reader) (template.Info, error) {
	n, err := io.Copy(io.Discard, tar)
	if err != nil {
		return template.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info := template.Info{Name: name, Kind: "import", Hash: "00", Bytes: n}
	s.infos = append(s.infos, info)
	return info, nil
}

func (s *templates) Remove(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.infos)
	s.infos = slices.DeleteFunc(s.infos, func(i template.Info) bool { return i.Name == name })
	if len(s.infos) == n {
		return errs.New(errs.NotFound, "no template %.40q", name)
	}
	return nil
}

// histories are engines over the volumes.
type histories struct {
	dir     string
	manager *manager.Manager

	mu   sync.Mutex
	open map[sandbox.ID]*workspace.Workspace
}

func (h *histories) Open(ctx context.Context, tenant string, id sandbox.ID) (workspace.History, func(), error) {
	if _, err := h.manager.Get(ctx, tenant, id); err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.open[id]; w != nil {
		return w, func() {}, nil
	}
	beside := filepath.Join(h.dir, "history", string(id))
	if err := os.MkdirAll(beside, 0o700); err != nil {
		return nil, nil, err
	}
	w, err := workspace.Open(workspace.Config{
		Dir: filepath.Join(h.dir, "volumes", string(id)), Staging: filepath.Join(beside, "staging"), Store: filepath.Join(beside, "store"),
	})
	if err != nil {
		return nil, nil, err
	}
	h.open[id] = w
	return w, func() {}, nil
}

// Kept has nothing: a history goes with its sandbox here.
func (h *histories) Kept(context.Context, string) ([]sandbox.KeptHistory, error) { return nil, nil }

func (h *histories) Delete(ctx context.Context, tenant string, id sandbox.ID) error {
	if _, err := h.manager.Get(ctx, tenant, id); err != nil {
		return err
	}
	return errs.New(errs.Conflict, "sandbox %s is not destroyed", id)
}

func (h *histories) close(t testing.TB) {
	for _, w := range h.open {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// world is a whole server: real store, real manager, real guests.
type world struct {
	manager *manager.Manager
	store   *store.Store
	server  *server.Server
	ring    *key.Ring
	base    string // http://127.0.0.1:…
	socket  string // of the unix listener
	log     *syncBuffer
	stop    context.CancelFunc
	done    chan error // of Serve
	admin   string     // a secret

	sandbox func() string // id of a sandbox that tests share
}

// serverConfig is short for tests that change it.
type serverConfig = server.Config

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newWorld(t testing.TB, change ...func(*server.Config)) *world {
	t.Helper()
	return newWorldOn(t, func(p sandbox.Provider) sandbox.Provider { return p }, change...)
}

// newWorldOn is newWorld on another provider than provider process.
func newWorldOn(t testing.TB, on func(sandbox.Provider) sandbox.Provider, change ...func(*server.Config)) *world {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	st, err := store.Open(t.Context(), store.Config{Dir: filepath.Join(dir, "store")})
	must(t, err)
	t.Cleanup(func() { _ = st.Close() })
	kv := func(bucket string) *store.KV {
		k, err := st.KV(t.Context(), bucket)
		must(t, err)
		return k
	}
	provider, err := process.New(process.Config{Dir: filepath.Join(dir, "process"), Allow: true})
	must(t, err)
	t.Cleanup(func() { _ = provider.Close() })
	tpl := &templates{rootfs: sandboxtest.Rootfs(t), infos: []template.Info{{Name: "host", Kind: "host", Hash: "test"}}}
	m, err := manager.Open(t.Context(), manager.Config{
		Dir: filepath.Join(dir, "sandboxes"), Node: "test", Providers: []sandbox.Provider{on(provider)},
		Templates: tpl, Volumes: volumes{filepath.Join(dir, "volumes")}, Registry: kv("sandboxes"), Events: st.Events(), Guest: guesttest.Binary(t),
	})
	must(t, err)
	past := &histories{dir: dir, manager: m, open: map[sandbox.ID]*workspace.Workspace{}}
	t.Cleanup(func() { past.close(t) })
	w := &world{manager: m, store: st, log: &syncBuffer{}, done: make(chan error, 1), socket: filepath.Join(dir, "s")}
	t.Cleanup(func() { w.destroyAll(t) })
	keys := kv("keys")
	w.ring = key.NewRing(keys)
	fake := runstest.New(nil)
	t.Cleanup(fake.Close)
	schedules, err := schedule.Open(t.Context(), schedule.Config{Records: kv("schedules"), Runs: fake})
	must(t, err)
	t.Cleanup(func() { _ = schedules.Close() })
	workflows, err := runner.Open(t.Context(), runner.Config{Threads: fake, Records: kv("workflows"), Runs: fake})
	must(t, err)
	t.Cleanup(func() { _ = workflows.Close() })
	sealer, err := secret.NewSealer(make([]byte, 32))
	must(t, err)
	secrets, err := secret.Open(t.Context(), secret.Config{KV: kv("secrets"), Sealer: sealer})
	must(t, err)
	t.Cleanup(func() { must(t, secrets.Close()) })
	skills, err := skill.Open(t.Context(), kv("skills"), kv("skill-files"))
	must(t, err)
	config := server.Config{
		Sandboxes: m, Events: st.Events(), Templates: tpl, Runs: fake, Schedules: schedules, Workflows: workflows, Secrets: secrets, Skills: skills, Keys: keys, Bridges: kv("bridges"), Histories: past, Ready: st.Healthy, Version: "test",
		Log: slog.New(slog.NewJSONHandler(w.log, nil)),
	}
	for _, c := range change {
		c(&config)
	}
	w.server, err = server.New(config)
	must(t, err)
	first, created, err := w.server.EnsureAdminKey(t.Context())
	must(t, err)
	if !created {
		t.Fatal("the first start made no admin key")
	}
	w.admin = first.Reveal()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	unix, err := net.Listen("unix", w.socket)
	must(t, err)
	w.base = "http://" + tcp.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	go func() { w.done <- w.server.Serve(ctx, tcp, unix) }()
	t.Cleanup(func() { w.shutdown(t) })
	w.sandbox = sync.OnceValue(func() string { return w.create(t, api.CreateSandbox{}).ID })
	return w
}

func (w *world) shutdown(t testing.TB) {
	w.stop()
	if w.done == nil {
		return
	}
	select {
	case err := <-w.done:
		if err != nil {
			t.Errorf("Serve: %v", err)
		}
		w.done = nil
	case <-time.After(patience.Of(30 * time.Second)):
		t.Error("Serve does not end")
	}
}

func (w *world) destroyAll(t testing.TB) {
	ctx := context.Background()
	for _, tenant := range []string{"default", "other"} {
		page, err := w.manager.List(ctx, tenant, sandbox.Filter{PageSize: 1000})
		if err != nil {
			t.Error(err)
		}
		for _, i := range page.Items {
			if err := w.manager.Destroy(ctx, tenant, i.ID); err != nil {
				t.Error(err)
			}
		}
	}
	_ = w.manager.Close()
}

// key makes an API key and returns its secret and id.
func (w *world) key(t testing.TB, tenant string, scopes ...string) (secret, id string) {
	t.Helper()
	var k api.CreatedKey
	w.call(t, w.admin, http.MethodPost, "/v1/keys", api.CreateKey{Name: "test", Tenant: tenant, Scopes: scopes}, http.StatusCreated, &k)
	return k.Secret, k.ID
}

func (w *world) create(t testing.TB, c api.CreateSandbox) api.Sandbox {
	t.Helper()
	if c.Provider == "" {
		c.Provider = "process"
	}
	var sb api.Sandbox
	w.call(t, w.admin, http.MethodPost, "/v1/sandboxes", c, http.StatusCreated, &sb)
	return sb
}

// httpClient has no pool that outlives it.
func httpClient(t testing.TB) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (w *world) unixClient(t testing.TB) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", w.socket)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// send makes a request; body is a reader, or anything as JSON, or nil.
func (w *world) send(t testing.TB, secret, method, path string, body any, header ...string) answer {
	t.Helper()
	var r io.Reader
	contentType := ""
	switch b := body.(type) {
	case nil:
	case io.Reader:
		r = b
	case string:
		r, contentType = strings.NewReader(b), "application/json"
	default:
		data, err := json.Marshal(b)
		must(t, err)
		r, contentType = bytes.NewReader(data), "application/json"
	}
	req, err := http.NewRequestWithContext(t.Context(), method, w.base+path, r)
	must(t, err)
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	return do(t, httpClient(t), req)
}

func do(t testing.TB, c *http.Client, req *http.Request) answer {
	t.Helper()
	res, err := c.Do(req)
	must(t, err)
	defer res.Body.Close()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return answer{res.StatusCode, res.Header, nil} // it has no end
	}
	data, err := io.ReadAll(res.Body)
	must(t, err)
	return answer{res.StatusCode, res.Header, data}
}

// call makes a request that must be answered with the status, and parses the answer.
func (w *world) call(t testing.TB, secret, method, path string, body any, status int, into any) answer {
	t.Helper()
	a := w.send(t, secret, method, path, body)
	if a.status != status {
		t.Fatalf("%s %s: status %d, want %d: %s", method, path, a.status, status, a.body)
	}
	if into != nil {
		must(t, json.Unmarshal(a.body, into))
	}
	return a
}

// problem checks that an answer is a whole problem.
func (a answer) problem(t testing.TB, status int) api.Problem {
	t.Helper()
	var p api.Problem
	if a.status != status || a.header.Get("Content-Type") != "application/problem+json" || a.header.Get("X-Request-Id") == "" {
		t.Fatalf("status %d (want %d), content type %q, request id %q: %s", a.status, status, a.header.Get("Content-Type"), a.header.Get("X-Request-Id"), a.body)
	}
	must(t, json.Unmarshal(a.body, &p))
	if p.Status != status || p.Title == "" || p.Class == "" || p.Detail == "" {
		t.Fatalf("half a problem: %s", a.body)
	}
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sha hashes what write writes.
func sha(write func(io.Writer)) string {
	h := sha256.New()
	write(h)
	return hex.EncodeToString(h.Sum(nil))
}
