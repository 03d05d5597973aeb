package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers on a unix socket as handler says, after start; the client is
// at version v.
func serve(t *testing.T, v Version, handler http.HandlerFunc) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	c := New(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	})
	c.version = v
	t.Cleanup(func() { c.Close(); srv.Close(); <-done })
	return c
}

func TestRequestsAreWhatTheAPIWants(t *testing.T) {
	type request struct{ Method, Path, Body string }
	var got []request
	c := serve(t, Version{1, 16, 1, ""}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, request{r.Method, r.URL.Path, string(body)})
		w.WriteHeader(http.StatusNoContent)
	})
	ctx := t.Context()
	for _, err := range []error{
		c.PutLogger(ctx, Logger{LogPath: "log", Level: "Warning", ShowLevel: true}),
		c.PutMetrics(ctx, Metrics{"m"}),
		c.PutSerial(ctx, Serial{OutPath: "con", RateLimiter: &Bucket{Size: 1, OneTimeBurst: 2, RefillTimeMS: 3}}),
		c.PutMachineConfig(ctx, MachineConfig{VCPUCount: 2, MemSizeMiB: 512}),
		c.PutBootSource(ctx, BootSource{"k", "i", "a b"}),
		c.PutDrive(ctx, Drive{ID: "work", Path: "w", Cache: Writeback, Engine: "Sync", RateLimiter: &RateLimiter{Ops: &Bucket{Size: 5, RefillTimeMS: 100}}}),
		c.PutNetworkInterface(ctx, NetworkInterface{ID: "eth0", Tap: "tap0", MTU: 1400}),
		c.PutVsock(ctx, Vsock{3, "v.sock"}),
		c.PutEntropy(ctx, Entropy{}),
		c.Start(ctx),
		c.FlushMetrics(ctx),
		c.Pause(ctx),
		c.CreateSnapshot(ctx, CreateSnapshot{"Full", "s", "m"}),
		c.Resume(ctx),
		c.LoadSnapshot(ctx, LoadSnapshot{StatePath: "s", Memory: MemoryBackend{"File", "m"}, Resume: true}),
		c.LoadSnapshot(ctx, LoadSnapshot{StatePath: "s", Memory: MemoryBackend{"File", "m"}, VsockOverride: &VsockOverride{"v2"}, ClockRealtime: true, NetworkOverrides: []NetworkOverride{{"eth0", "tap1"}}}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []request{
		{"PUT", "/logger", `{"log_path":"log","level":"Warning","show_level":true}`},
		{"PUT", "/metrics", `{"metrics_path":"m"}`},
		{"PUT", "/serial", `{"serial_out_path":"con","rate_limiter":{"size":1,"one_time_burst":2,"refill_time":3}}`},
		{"PUT", "/machine-config", `{"vcpu_count":2,"mem_size_mib":512,"smt":false,"track_dirty_pages":false}`},
		{"PUT", "/boot-source", `{"kernel_image_path":"k","initrd_path":"i","boot_args":"a b"}`},
		{"PUT", "/drives/work", `{"drive_id":"work","path_on_host":"w","is_read_only":false,"is_root_device":false,"cache_type":"Writeback","io_engine":"Sync","rate_limiter":{"ops":{"size":5,"refill_time":100}}}`},
		{"PUT", "/network-interfaces/eth0", `{"iface_id":"eth0","host_dev_name":"tap0","mtu":1400}`},
		{"PUT", "/vsock", `{"guest_cid":3,"uds_path":"v.sock"}`},
		{"PUT", "/entropy", `{}`},
		{"PUT", "/actions", `{"action_type":"InstanceStart"}`},
		{"PUT", "/actions", `{"action_type":"FlushMetrics"}`},
		{"PATCH", "/vm", `{"state":"Paused"}`},
		{"PUT", "/snapshot/create", `{"snapshot_type":"Full","snapshot_path":"s","mem_file_path":"m"}`},
		{"PATCH", "/vm", `{"state":"Resumed"}`},
		{"PUT", "/snapshot/load", `{"snapshot_path":"s","mem_backend":{"backend_type":"File","backend_path":"m"},"resume_vm":true}`},
		{"PUT", "/snapshot/load", `{"snapshot_path":"s","mem_backend":{"backend_type":"File","backend_path":"m"},"resume_vm":false,"network_overrides":[{"iface_id":"eth0","host_dev_name":"tap1"}],"vsock_override":{"uds_path":"v2"},"clock_realtime":true}`},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// An older Firecracker refuses the whole request for one field that it does
// not know, and a refused load ends the process.
func TestFieldsThatThisVersionDoesNotKnowAreNotSent(t *testing.T) {
	load := LoadSnapshot{StatePath: "s", Memory: MemoryBackend{"File", "m"}}
	for _, x := range []struct {
		version Version
		send    func(*Client) error
		known   bool
	}{
		{Version{1, 13, 0, ""}, func(c *Client) error { return c.PutSerial(t.Context(), Serial{OutPath: "x"}) }, false},
		{Version{1, 14, 0, ""}, func(c *Client) error { return c.PutSerial(t.Context(), Serial{OutPath: "x"}) }, true},
		{Version{1, 15, 9, ""}, func(c *Client) error { return c.PutSerial(t.Context(), Serial{RateLimiter: &Bucket{}}) }, false},
		{Version{1, 16, 0, "dev"}, func(c *Client) error { return c.PutSerial(t.Context(), Serial{RateLimiter: &Bucket{}}) }, false},
		{Version{1, 16, 0, ""}, func(c *Client) error { return c.PutSerial(t.Context(), Serial{RateLimiter: &Bucket{}}) }, true},
		{Version{1, 15, 0, ""}, func(c *Client) error { l := load; l.ClockRealtime = true; return c.LoadSnapshot(t.Context(), l) }, false},
		{Version{1, 15, 0, ""}, func(c *Client) error {
			l := load
			l.VsockOverride = &VsockOverride{"v"}
			return c.LoadSnapshot(t.Context(), l)
		}, false},
		{Version{1, 11, 0, ""}, func(c *Client) error {
			l := load
			l.NetworkOverrides = []NetworkOverride{{}}
			return c.LoadSnapshot(t.Context(), l)
		}, false},
		{Version{1, 11, 0, ""}, func(c *Client) error { return c.LoadSnapshot(t.Context(), load) }, true},
		{Version{1, 15, 0, ""}, func(c *Client) error { return c.PutNetworkInterface(t.Context(), NetworkInterface{ID: "e", MTU: 1}) }, false},
	} {
		asked := false
		c := serve(t, x.version, func(w http.ResponseWriter, _ *http.Request) {
			asked = true
			w.WriteHeader(http.StatusNoContent)
		})
		err := x.send(c)
		if x.known && (err != nil || !asked) || !x.known && (!errs.Is(err, errs.Unsupported) || asked) {
			t.Errorf("%v: %v, asked %v", x.version, err, asked)
		}
	}
}

func TestARefusalIsAFaultWithFirecrackersWords(t *testing.T) {
	c := serve(t, Version{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"fault_message":"no\u001b[31m such\nfile"}`)
	})
	err := c.PutVsock(t.Context(), Vsock{})
	var f *Fault
	if !errors.As(err, &f) {
		t.Fatalf("err = %v", err)
	}
	if d := cmp.Diff(&Fault{"PUT /vsock", 400, "no\uFFFD[31m such file"}, f); d != "" {
		t.Error(d)
	}
}

func TestAnswersThatAreNotFirecrackersAreUnavailable(t *testing.T) {
	for what, answer := range map[string]func(http.ResponseWriter){
		"a page":   func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>") },
		"too long": func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Repeat("x", bodyBytesMax+1)) },
		"a redirect": func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://localhost/elsewhere")
			w.WriteHeader(http.StatusFound)
		},
		"nothing": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
	} {
		c := serve(t, Version{}, func(w http.ResponseWriter, _ *http.Request) { answer(w) })
		if v, err := c.GetVersion(t.Context()); !errs.Is(err, errs.Unavailable) {
			t.Errorf("%s: %v, %v", what, v, err)
		}
	}
}

func TestAwaitPollsUntilTheProcessListens(t *testing.T) {
	tries := 0
	c := serve(t, Version{}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"firecracker_version":"1.16.1"}`)
	})
	dial := c.transport.DialContext
	c.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if tries++; tries < 5 {
			return nil, errors.New("no such file")
		}
		return dial(ctx, network, addr)
	}
	v, err := c.Await(t.Context())
	if err != nil || v != (Version{1, 16, 1, ""}) || c.version != v || tries != 5 {
		t.Errorf("Await = %v, %v after %d tries", v, err, tries)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	none := New(func(context.Context) (net.Conn, error) { return nil, errors.New("no such file") })
	if _, err := none.Await(ctx); !errs.Is(err, errs.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Await of nothing: %v", err)
	}
}

func TestVersions(t *testing.T) {
	for in, want := range map[string]Version{
		"1.16.1": {1, 16, 1, ""}, "v1.16.1": {1, 16, 1, ""}, "1.17.0-dev": {1, 17, 0, "dev"},
	} {
		if got, err := ParseVersion(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, bad := range []string{"", "1", "1.16", "1.16.1.2", "1.x.1", "1.-1.1", "1.16.99999999999", "vv1.16.1", strings.Repeat("1", 65)} {
		if v, err := ParseVersion(bad); err == nil {
			t.Errorf("%q is %v", bad, v)
		}
	}
	const out = "Firecracker v1.16.1\n\n2026-08-21T11:30:10 [anonymous-instance:main] Firecracker exiting successfully. exit_code=0\n"
	if v, err := ParseVersionOutput(out); err != nil || v.String() != "1.16.1" {
		t.Errorf("the program's output: %v, %v", v, err)
	}
	if _, err := ParseVersionOutput("bash: no such file"); err == nil {
		t.Error("a shell's complaint is a version")
	}
	order := []string{"1.9.9", "1.16.0-dev", "1.16.0", "1.16.1", "1.17.0-dev", "2.0.0"}
	for i, a := range order {
		for k, b := range order {
			va, _ := ParseVersion(a)
			vb, _ := ParseVersion(b)
			if va.AtLeast(vb) != (i >= k) {
				t.Errorf("%s at least %s: %v", a, b, va.AtLeast(vb))
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(400, []byte(`{"fault_message":"no"}`), false)
	f.Add(200, []byte(`{"firecracker_version":"1.16.1"}`), true)
	f.Add(204, []byte(nil), false)
	f.Fuzz(func(t *testing.T, status int, body []byte, wanted bool) {
		var into any
		var v struct {
			Version string `json:"firecracker_version"`
		}
		if wanted {
			into = &v
		}
		err := parse("GET /version", status, body, into)
		var fault *Fault
		switch {
		case err == nil && wanted && (status != 200 || !json.Valid(body)), err == nil && !wanted && status != 204:
			t.Errorf("%d %q is a success", status, body)
		case errors.As(err, &fault) && (status < 400 || len(fault.Message) > faultBytesMax+len("…") || strings.ContainsAny(fault.Message, "\n\x1b\x00")):
			t.Errorf("%d %q: fault %q", status, body, fault.Message)
		}
		_, _ = ParseVersion(v.Version)
	})
}
