package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/scratch"
	"github.com/skete-dev/skete/sandbox/docker/engine"
)

// Model is an engine without containers, for faults that a real one does not
// give on demand. It keeps the states that a container may have, refuses what
// an engine refuses and every path, parameter and field that it does not know.
// The guest of a container that runs is a stand-in that says hello.
type Model struct {
	Host   string
	t      testing.TB
	server *httptest.Server

	mu         sync.Mutex
	containers map[string]*modelled // by name
	images     map[string]engine.Image
	made       int
	fault      func(call string) Fault
	tasks      sync.WaitGroup
}

// Fault is something that goes wrong.
type Fault struct {
	Status  int           // this answer, nothing done
	Drop    bool          // done, but the connection breaks before the answer
	Hang    chan struct{} // done only after this is closed; the caller may be gone
	Garbage string        // done, but answered so
}

type modelled struct {
	id     string
	name   string
	labels map[string]string
	boot   string // the directory at /.skete
	state  engine.State
	ended  chan struct{}
	stop   context.CancelFunc
}

// NewModel starts a model; it ends with the test.
func NewModel(t testing.TB) *Model {
	t.Helper()
	dir, err := scratch.Dir("model") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	m := &Model{t: t, containers: map[string]*modelled{}, images: map[string]engine.Image{}}
	path := filepath.Join(dir, "api.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	m.Host = "unix://" + path
	m.server = httptest.NewUnstartedServer(http.HandlerFunc(m.serve))
	m.server.Listener.Close()
	m.server.Listener = ln
	m.server.Start()
	t.Cleanup(func() {
		m.mu.Lock()
		for _, c := range m.containers {
			c.end(137, false)
		}
		m.mu.Unlock()
		m.server.CloseClientConnections()
		m.server.Close()
		m.tasks.Wait()
		_ = os.RemoveAll(dir)
	})
	return m
}

// Names lists the containers there are.
func (m *Model) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.containers {
		names = append(names, name)
	}
	return names
}

// Fail has f asked about each request from now on, as "POST /containers/create".
// What it returns is done instead of, or around, the right thing. nil: all is well.
func (m *Model) Fail(f func(call string) Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// Add puts a container there that another client made.
func (m *Model) Add(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(name, nil, "")
}

// End ends a container as if its first process had.
func (m *Model) End(name string, code int, oom bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.containers[name].end(code, oom)
}

// end must be called with the lock held. It may be repeated.
func (c *modelled) end(code int, oom bool) {
	if !c.state.Running {
		return
	}
	c.state = engine.State{Status: "exited", ExitCode: code, OOMKilled: oom, FinishedAt: time.Now()}
	c.stop()
	close(c.ended)
}

func (m *Model) add(name string, labels map[string]string, boot string) *modelled {
	m.made++
	c := &modelled{
		id: fmt.Sprintf("%064x", m.made), name: name, labels: labels, boot: boot,
		state: engine.State{Status: "created"}, ended: make(chan struct{}),
	}
	m.containers[name] = c
	return c
}

// reply is a status and a value.
type reply struct {
	status int
	value  any
}

func refuse(status int, format string, args ...any) reply {
	return reply{status, map[string]string{"message": fmt.Sprintf(format, args...)}}
}

func (m *Model) serve(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/v1.41")
	if !ok && path != "/_ping" {
		m.answer(w, refuse(http.StatusBadRequest, "version of %s", path))
		return
	}
	call := r.Method + " " + path
	m.mu.Lock()
	fault := m.fault
	m.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var f Fault
	if fault != nil {
		f = fault(call)
	}
	if f.Status != 0 {
		m.answer(w, refuse(f.Status, "fault"))
		return
	}
	if f.Hang != nil {
		<-f.Hang
	}
	res := m.do(r, path, body)
	switch {
	case f.Drop:
		panic(http.ErrAbortHandler)
	case f.Garbage != "":
		_, _ = io.WriteString(w, f.Garbage)
	default:
		m.answer(w, res)
	}
}

func (m *Model) answer(w http.ResponseWriter, res reply) {
	w.Header().Set("Api-Version", "1.41")
	if res.status == 0 {
		res.status = http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(res.status)
	if res.value != nil {
		_ = json.NewEncoder(w).Encode(res.value)
	}
}

// do finds the operation; parameters that it does not know are refused.
func (m *Model) do(r *http.Request, path string, body []byte) reply {
	for _, op := range []struct {
		method, pattern string
		params          []string
		do              func(r *http.Request, name string, body []byte) reply
	}{
		{"GET", "/_ping", nil, m.ping},
		{"GET", "/info", nil, m.info},
		{"GET", "/images/json", []string{"filters"}, m.listImages},
		{"POST", "/images/create", []string{"fromSrc", "repo", "changes"}, m.importImage},
		{"DELETE", "/images/*", nil, m.removeImage},
		{"GET", "/containers/json", []string{"all", "filters"}, m.list},
		{"POST", "/containers/create", []string{"name"}, m.create},
		{"POST", "/containers/*/start", nil, m.start},
		{"POST", "/containers/*/pause", nil, m.pause},
		{"POST", "/containers/*/unpause", nil, m.unpause},
		{"POST", "/containers/*/wait", nil, m.wait},
		{"GET", "/containers/*/json", nil, m.inspect},
		{"DELETE", "/containers/*", []string{"force", "v"}, m.remove},
	} {
		if ok, _ := filepath.Match(op.pattern, path); !ok || op.method != r.Method {
			continue
		}
		query := r.URL.Query()
		for _, p := range op.params {
			query.Del(p)
		}
		if len(query) > 0 {
			m.t.Errorf("unknown parameters: %s %s", r.Method, r.URL)
			return refuse(http.StatusBadRequest, "parameters")
		}
		part := strings.Split(path, "/")
		name := ""
		if len(part) > 2 {
			name = part[2]
		}
		return op.do(r, name, body)
	}
	m.t.Errorf("unknown call: %s %s", r.Method, r.URL)
	return refuse(http.StatusNotFound, "page not found")
}

func (m *Model) ping(*http.Request, string, []byte) reply { return reply{} }

func (m *Model) info(*http.Request, string, []byte) reply {
	return reply{value: map[string]any{
		"OSType": "linux", "MemoryLimit": true, "SwapLimit": true, "CpuCfsQuota": true, "PidsLimit": true,
		"SecurityOptions": []string{"name=seccomp,profile=default"},
	}}
}

// label is the one that a list asks for.
func label(r *http.Request) (key, value string) {
	var f struct{ Label []string }
	if json.Unmarshal([]byte(r.URL.Query().Get("filters")), &f) != nil || len(f.Label) != 1 {
		return "", ""
	}
	key, value, _ = strings.Cut(f.Label[0], "=")
	return key, value
}

func (m *Model) listImages(r *http.Request, _ string, _ []byte) reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	key, value := label(r)
	list := []engine.Image{}
	for _, i := range m.images {
		if i.Labels[key] == value {
			list = append(list, i)
		}
	}
	return reply{value: list}
}

func (m *Model) importImage(r *http.Request, _ string, _ []byte) reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	i := engine.Image{ID: fmt.Sprintf("sha256:%064x", m.made), Labels: map[string]string{}}
	for _, change := range r.URL.Query()["changes"] {
		key, value, _ := strings.Cut(strings.TrimPrefix(change, "LABEL "), "=")
		i.Labels[key] = value
	}
	m.images[i.ID] = i
	return reply{value: map[string]string{"status": i.ID}}
}

func (m *Model) removeImage(_ *http.Request, id string, _ []byte) reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.images[id]; !ok {
		return refuse(http.StatusNotFound, "no such image")
	}
	delete(m.images, id)
	return reply{value: []string{}}
}

func (m *Model) list(r *http.Request, _ string, _ []byte) reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	key, value := label(r)
	list := []map[string]any{}
	for _, c := range m.containers {
		if c.labels[key] == value {
			list = append(list, map[string]any{"Id": c.id, "State": c.state.Status, "Labels": c.labels})
		}
	}
	return reply{value: list}
}

// create refuses fields that an engine's documentation does not have: those of
// our types are written by hand from it, and anything else is a slip.
func (m *Model) create(r *http.Request, _ string, body []byte) reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	var in engine.Container
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	name := r.URL.Query().Get("name")
	switch _, known := m.images[in.Image]; {
	case m.containers[name] != nil:
		return refuse(http.StatusConflict, "the name is in use")
	case !known:
		return refuse(http.StatusNotFound, "no such image")
	case !reflect.DeepEqual(in.HostConfig.CapDrop, []string{"ALL"}):
		return refuse(http.StatusBadRequest, "capabilities")
	}
	boot := ""
	for _, mount := range in.HostConfig.Mounts {
		if _, err := os.Stat(mount.Source); err != nil {
			return refuse(http.StatusBadRequest, "bind source path does not exist")
		}
		if mount.Target == wire.BootDir {
			boot = mount.Source
		}
	}
	c := m.add(name, in.Labels, boot)
	return reply{http.StatusCreated, map[string]any{"Id": c.id, "Warnings": []string{}}}
}

// find takes a name or an id.
func (m *Model) find(name string) *modelled {
	if c := m.containers[name]; c != nil {
		return c
	}
	for _, c := range m.containers {
		if c.id == name {
			return c
		}
	}
	return nil
}

// change does something with a container that exists.
func (m *Model) change(name string, do func(c *modelled) reply) reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.find(name)
	if c == nil {
		return refuse(http.StatusNotFound, "no such container")
	}
	return do(c)
}

func (m *Model) start(_ *http.Request, name string, _ []byte) reply {
	return m.change(name, func(c *modelled) reply {
		if c.state.Running {
			return reply{status: http.StatusNotModified}
		}
		ctx, stop := context.WithCancel(context.Background())
		c.state, c.stop = engine.State{Status: "running", Running: true}, stop
		m.tasks.Go(func() { hello(ctx, c.boot) })
		return reply{status: http.StatusNoContent}
	})
}

func (m *Model) pause(_ *http.Request, name string, _ []byte) reply {
	return m.setPaused(name, true)
}

func (m *Model) unpause(_ *http.Request, name string, _ []byte) reply {
	return m.setPaused(name, false)
}

func (m *Model) setPaused(name string, paused bool) reply {
	return m.change(name, func(c *modelled) reply {
		if !c.state.Running || c.state.Paused == paused {
			return refuse(http.StatusConflict, "is %s", c.state.Status)
		}
		c.state.Paused = paused
		return reply{status: http.StatusNoContent}
	})
}

func (m *Model) inspect(_ *http.Request, name string, _ []byte) reply {
	return m.change(name, func(c *modelled) reply {
		return reply{value: map[string]any{"Id": c.id, "State": c.state, "Config": map[string]any{"Labels": c.labels}}}
	})
}

func (m *Model) remove(r *http.Request, name string, _ []byte) reply {
	return m.change(name, func(c *modelled) reply {
		if c.state.Running && r.URL.Query().Get("force") != "1" {
			return refuse(http.StatusConflict, "it runs")
		}
		c.end(137, false)
		delete(m.containers, c.name)
		return reply{status: http.StatusNoContent}
	})
}

func (m *Model) wait(r *http.Request, name string, _ []byte) reply {
	var ended chan struct{}
	var c *modelled
	if res := m.change(name, func(k *modelled) reply { c, ended = k, k.ended; return reply{} }); res.status != 0 {
		return res
	}
	select {
	case <-ended:
	case <-r.Context().Done():
		return refuse(http.StatusInternalServerError, "the caller is gone")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return reply{value: map[string]any{"StatusCode": c.state.ExitCode}}
}

// hello stands in for a guest until ctx ends.
func hello(ctx context.Context, boot string) {
	_, handler := wire.NewControlHandler(greeter{})
	streams := &listener{conns: make(chan net.Conn), done: ctx.Done()}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: wire.PreambleTimeout}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(streams) })
	dial := func(ctx context.Context) (net.Conn, error) {
		dir, err := os.Open(boot) // so that the address is short, whatever the test's name
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		var d net.Dialer
		return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(wire.HostSocket)))
	}
	channel.Park(ctx, dial, func(conn net.Conn, port uint32) {
		if wire.Grant(conn, port) == nil {
			select {
			case streams.conns <- conn:
				return
			case <-ctx.Done():
			}
		}
		conn.Close()
	})
	_ = server.Close()
	wg.Wait()
}

type greeter struct {
	wire.UnimplementedControlHandler
}

func (greeter) Hello(context.Context, *connect.Request[wire.HelloRequest]) (*connect.Response[wire.HelloResponse], error) {
	return connect.NewResponse(&wire.HelloResponse{Version: wire.Version, BootId: "model", SuperviseStarts: 1}), nil
}

// listener hands out connections that others accepted.
type listener struct {
	conns chan net.Conn
	done  <-chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { return nil }
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "model", Net: "unix"} }
