package fcmodel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox/firecracker/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type request struct {
	method, path, body string
	want               int
}

// sequences are sent to fresh processes; none starts a machine, so that the
// real program answers them without KVM too.
var sequences = map[string][]request{
	"version and state": {{"GET", "/version", "", 200}, {"GET", "/", "", 200}, {"GET", "/nonsense", "", 400}, {"PUT", "/nonsense", "{}", 400}, {"PUT", "/vsock", "", 400}},
	"unknown fields": {
		{"PUT", "/machine-config", `{"vcpu_count":1,"mem_size_mib":128,"bogus":1}`, 400},
		{"PUT", "/vsock", `{"guest_cid":3,"uds_path":"v.sock","bogus":1}`, 400},
		{"PUT", "/snapshot/create", `{"snapshot_path":"a","mem_file_path":"b","bogus":1}`, 400},
		{"PUT", "/snapshot/load", `{"snapshot_path":"a","mem_backend":{"backend_type":"File","backend_path":"b"},"bogus":1}`, 400},
		{"PUT", "/entropy", `{"bogus":1}`, 400},
		{"PUT", "/serial", `{"bogus":1}`, 400},
	},
	"missing and misshapen fields": {
		{"PUT", "/machine-config", `{"vcpu_count":1}`, 400},
		{"PUT", "/machine-config", `{"vcpu_count":"1","mem_size_mib":128}`, 400},
		{"PUT", "/machine-config", `{"vcpu_count":0,"mem_size_mib":128}`, 400},
		{"PUT", "/machine-config", `{"vcpu_count":33,"mem_size_mib":128}`, 400},
		{"PUT", "/vsock", `{"uds_path":"v.sock"}`, 400},
		{"PUT", "/actions", `{"action_type":"Nonsense"}`, 400},
		{"PUT", "/boot-source", `[`, 400},
	},
	"what we send": {
		{"PUT", "/logger", `{"log_path":"log","level":"Info","show_level":true}`, 204},
		{"PUT", "/serial", `{"serial_out_path":"con","rate_limiter":{"size":65536,"one_time_burst":1,"refill_time":1000}}`, 204},
		{"PUT", "/machine-config", `{"vcpu_count":2,"mem_size_mib":128,"smt":false,"track_dirty_pages":false}`, 204},
		{"PUT", "/boot-source", `{"kernel_image_path":"file","initrd_path":"file","boot_args":"quiet"}`, 204},
		{"PUT", "/drives/root", `{"drive_id":"root","path_on_host":"file","is_read_only":true,"is_root_device":false,"cache_type":"Unsafe","io_engine":"Sync"}`, 204},
		{"PUT", "/vsock", `{"guest_cid":3,"uds_path":"v.sock"}`, 204},
		{"PUT", "/entropy", `{}`, 204},
	},
	"limiters": {
		{"PUT", "/drives/a", `{"drive_id":"a","path_on_host":"file","is_root_device":false,"rate_limiter":{"bandwidth":{"size":1000,"refill_time":1000},"ops":{"size":10,"one_time_burst":5,"refill_time":1000}}}`, 204},
		{"PUT", "/drives/a", `{"drive_id":"a","path_on_host":"file","is_root_device":false,"rate_limiter":null}`, 204},
		{"PUT", "/drives/a", `{"drive_id":"a","path_on_host":"file","is_root_device":false,"rate_limiter":{"bandwidth":{"size":1000}}}`, 400},
		{"PUT", "/drives/a", `{"drive_id":"a","path_on_host":"file","is_root_device":false,"rate_limiter":{"bandwidth":{"size":"1","refill_time":1}}}`, 400},
		{"PUT", "/drives/a", `{"drive_id":"a","path_on_host":"file","is_root_device":false,"rate_limiter":{"ops":{"size":1,"refill_time":1,"burst":1}}}`, 400},
		{"PUT", "/drives/a", `{"drive_id":"a","path_on_host":"file","is_root_device":false,"rate_limiter":{"iops":{"size":1,"refill_time":1}}}`, 400},
	},
	"metrics": {
		{"PUT", "/metrics", `{}`, 400},
		{"PUT", "/metrics", `{"metrics_path":"counted"}`, 204},
		{"PUT", "/metrics", `{"metrics_path":"counted"}`, 400},
		{"PUT", "/actions", `{"action_type":"FlushMetrics"}`, 400},
	},
	"drives": {
		{"PUT", "/drives/a", `{"drive_id":"b","is_root_device":false,"path_on_host":"file"}`, 400},
		{"PUT", "/drives/a-b", `{"drive_id":"a-b","is_root_device":false,"path_on_host":"file"}`, 400},
		{"PUT", "/drives/a", `{"drive_id":"a","is_root_device":false,"path_on_host":"none"}`, 400},
		{"PUT", "/drives/a", `{"drive_id":"a","is_root_device":false,"path_on_host":"file"}`, 204},
	},
	"before the start": {
		{"PATCH", "/vm", `{"state":"Paused"}`, 400},
		{"PUT", "/snapshot/create", `{"snapshot_path":"a","mem_file_path":"b"}`, 400},
		{"PUT", "/actions", `{"action_type":"FlushMetrics"}`, 400},
		{"PUT", "/actions", `{"action_type":"InstanceStart"}`, 400},
	},
	"no load after a configuration": {
		{"PUT", "/machine-config", `{"vcpu_count":1,"mem_size_mib":128}`, 204},
		{"PUT", "/snapshot/load", `{"snapshot_path":"file","mem_backend":{"backend_type":"File","backend_path":"file"}}`, 400},
		{"GET", "/version", "", 200}, // it lives: it was refused before it was tried
	},
	"logger and serial are no configuration, a failed load is the end": {
		{"PUT", "/logger", `{"level":"Info"}`, 204},
		{"PUT", "/serial", `{"serial_out_path":"con"}`, 204},
		{"PUT", "/snapshot/load", `{"snapshot_path":"none","mem_backend":{"backend_type":"File","backend_path":"none"},"resume_vm":true,"clock_realtime":true,"vsock_override":{"uds_path":"x"}}`, 400},
		{"GET", "/version", "", 0},
	},
	"a socket in the way":   {{"PUT", "/vsock", `{"guest_cid":3,"uds_path":"file"}`, 400}},
	"its own socket is not": {{"PUT", "/vsock", `{"guest_cid":3,"uds_path":"v.sock"}`, 204}, {"PUT", "/vsock", `{"guest_cid":3,"uds_path":"v.sock"}`, 204}},
}

func client(t *testing.T, dir string) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, "api.sock"))
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

// send returns the status, 0 for no answer.
func send(c *http.Client, r request) (int, string) {
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	req, err := http.NewRequest(r.method, "http://localhost"+r.path, body)
	if err != nil {
		panic(err)
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

func await(t *testing.T, c *http.Client) {
	t.Helper()
	deadline := time.After(patience.Of(10 * time.Second))
	for {
		if code, _ := send(c, request{method: "GET", path: "/version"}); code == 200 {
			return
		}
		select {
		case <-deadline:
			t.Fatal("nobody answers")
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func replay(t *testing.T, dir string, requests []request) {
	t.Helper()
	c := client(t, dir)
	await(t, c)
	for _, r := range requests {
		code, text := send(c, r)
		if r.want == 0 { // it may take a moment to end
			for deadline := time.Now().Add(patience.Of(5 * time.Second)); code != 0 && time.Now().Before(deadline); {
				code, text = send(c, r)
			}
		}
		if code != r.want {
			t.Errorf("%s %s %s: %d %s, want %d", r.method, r.path, r.body, code, text, r.want)
		}
	}
}

func newDir(t *testing.T) string {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// serveModel runs one; the test waits for its end.
func serveModel(t *testing.T, c Config) *Model {
	t.Helper()
	m := New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Serve(ctx, "api.sock") }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestTheModelRefusesWhatFirecrackerRefuses(t *testing.T) {
	for name, requests := range sequences {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			serveModel(t, Config{Dir: dir, Version: "1.16.1"})
			replay(t, dir, requests)
		})
	}
}

// What the model says is true of the real one, wherever there is one: none of
// these needs KVM.
func TestTheModelAnswersAsFirecrackerDoes(t *testing.T) {
	program := os.Getenv("SKETE_FIRECRACKER")
	if program == "" {
		t.Skip("NOT RUN: no real Firecracker to compare with (SKETE_FIRECRACKER is not set)")
	}
	for name, requests := range sequences {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			cmd := exec.Command(program, "--id", "test", "--api-sock", "api.sock")
			cmd.Dir = dir
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			replay(t, dir, requests)
		})
	}
}

func TestOlderVersionsKnowFewerFields(t *testing.T) {
	dir := newDir(t)
	serveModel(t, Config{Dir: dir, Version: "1.15.1"})
	replay(t, dir, []request{
		{"PUT", "/serial", `{"serial_out_path":"con"}`, 204},
		{"PUT", "/serial", `{"rate_limiter":{"size":1,"refill_time":1}}`, 400},
		{"PUT", "/snapshot/load", `{"snapshot_path":"a","mem_backend":{"backend_type":"File","backend_path":"b"},"vsock_override":{"uds_path":"x"}}`, 400},
		{"PUT", "/snapshot/load", `{"snapshot_path":"a","mem_backend":{"backend_type":"File","backend_path":"b"},"clock_realtime":true}`, 400},
		{"GET", "/version", "", 200},
	})
}

// echo is a guest that listens on port 7 once it is ready.
type echo struct {
	ready chan struct{}
	done  chan struct{}
}

func (e *echo) Dial(_ context.Context, port uint32) (net.Conn, error) {
	select {
	case <-e.ready:
	default:
		return nil, errors.New("not yet")
	}
	if port != 7 {
		return nil, errors.New("nobody listens")
	}
	a, b, err := pair()
	if err != nil {
		return nil, err
	}
	go func() { _, _ = io.Copy(b, b); b.Close() }()
	return a, nil
}
func (e *echo) Stop() { close(e.done) }
func (e *echo) Wait() { <-e.done }

func TestTheTrapsOfTheVsock(t *testing.T) {
	dir := newDir(t)
	g := &echo{make(chan struct{}), make(chan struct{})}
	m := serveModel(t, Config{Dir: dir, Version: "1.16.1", Greeting: "hello", Boot: func(BootSource) (Guest, error) { return g, nil }})
	c := client(t, dir)
	await(t, c)
	do := func(method, path, body string) {
		t.Helper()
		if code, text := send(c, request{method: method, path: path, body: body}); code != 204 {
			t.Fatalf("%s %s: %d %s", method, path, code, text)
		}
	}
	do("PUT", "/boot-source", `{"kernel_image_path":"file"}`)
	do("PUT", "/vsock", `{"guest_cid":3,"uds_path":"v.sock"}`)
	do("PUT", "/actions", `{"action_type":"InstanceStart"}`)
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("unix", filepath.Join(dir, "v.sock"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience.Of(5 * time.Second)))
		fmt.Fprint(conn, "CONNECT 7\n")
		return conn
	}
	if data, err := io.ReadAll(dial()); err != nil || len(data) > 0 {
		t.Errorf("before the guest listens: %q, %v", data, err)
	}
	close(g.ready)
	conn := dial()
	buf := make([]byte, 64)
	n, err := conn.Read(buf)
	if err != nil || !bytes.HasPrefix(buf[:n], []byte("OK 107374")) || !bytes.HasSuffix(buf[:n], []byte("\nhello")) {
		t.Errorf("in one packet: %q, %v", buf[:n], err)
	}
	for _, r := range []request{
		{"PUT", "/machine-config", `{"vcpu_count":1,"mem_size_mib":128}`, 400},
		{"PUT", "/actions", `{"action_type":"InstanceStart"}`, 400},
		{"PUT", "/snapshot/create", `{"snapshot_path":"s","mem_file_path":"m"}`, 400}, // not paused
	} {
		if code, text := send(c, r); code != r.want {
			t.Errorf("after the start: %s %s: %d %s", r.method, r.path, code, text)
		}
	}
	do("PATCH", "/vm", `{"state":"Paused"}`)
	do("PUT", "/snapshot/create", `{"snapshot_type":"Full","snapshot_path":"s","mem_file_path":"m"}`)
	if _, err := io.ReadAll(conn); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection lived through a snapshot: %v", err)
	}
	do("PATCH", "/vm", `{"state":"Resumed"}`)
	if n, err := dial().Read(buf); err != nil || n == 0 {
		t.Errorf("after the resume: %v", err)
	}
	do("PATCH", "/vm", `{"state":"Paused"}`)
	do("PATCH", "/vm", `{"state":"Resumed"}`)
	deaf := dial()
	_ = deaf.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := deaf.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after a resume without a snapshot: %q, %v", buf[:n], err)
	}
	m.mu.Lock()
	m.end()
	m.mu.Unlock()
	if _, err := os.Lstat(filepath.Join(dir, "v.sock")); err != nil {
		t.Errorf("the socket was unlinked: %v", err)
	}
}

func TestOurClientAndTheModelAgree(t *testing.T) {
	dir := newDir(t)
	serveModel(t, Config{Dir: dir, Version: "1.16.1"})
	c := api.New(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, "api.sock"))
	})
	defer c.Close()
	if v, err := c.Await(t.Context()); err != nil || v.String() != "1.16.1" {
		t.Fatal(v, err)
	}
	err := c.PutDrive(t.Context(), api.Drive{ID: "x", Path: "none"})
	var f *api.Fault
	if !errors.As(err, &f) || f.Status != 400 || !strings.Contains(f.Message, "no such file") {
		t.Errorf("a drive without a file: %v", err)
	}
}
