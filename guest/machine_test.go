package guest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
)

// machine is a real guest: init as PID 1 of namespaces of its own where the
// test may make them, else as a plain process.
type machine struct {
	t      testing.TB
	dir    string
	boot   wire.Boot
	host   *channel.Host
	client *wire.Client
	cmd    *exec.Cmd
	log    *syncBuffer
	ended  chan struct{}
	err    error
}

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

// scratch is a directory that every user may look into, as a sandbox's is.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "guest-*") //nolint:usetesting // t.TempDir is for its owner alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// options of a test machine.
type options struct {
	change  func(*wire.Boot)
	plain   bool // not PID 1
	dir     string
	mustPID bool
	uid     int // run all of it as this user, when root
}

// start boots a guest; it is ended, and checked for leftovers, at the end of the test.
func start(t testing.TB, o options) *machine {
	t.Helper()
	m := &machine{t: t, dir: o.dir, log: &syncBuffer{}, ended: make(chan struct{})}
	if m.dir == "" {
		m.dir = scratch(t)
	}
	work := filepath.Join(m.dir, "work")
	state := filepath.Join(m.dir, "state")
	for _, d := range []string{work, state} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.boot = wire.Boot{
		Sandbox: "sbx_test", Hostname: "test", Channel: "unix:" + filepath.Join(m.dir, "host.sock"),
		User: "user", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: work, Workdir: work, StateDir: state,
		Env: map[string]string{"PATH": os.Getenv("PATH")},
	}
	if os.Getuid() == 0 {
		m.boot.UID, m.boot.GID = 1000, 1000
		if err := os.Chown(work, 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if o.uid != 0 {
		for _, d := range []string{work, state} {
			if err := os.Chown(d, o.uid, o.uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	if o.change != nil {
		o.change(&m.boot)
	}
	m.run(o)
	return m
}

func (m *machine) run(o options) {
	t := m.t
	t.Helper()
	data, err := json.Marshal(m.boot)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(m.dir, "boot.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if m.host, err = channel.Listen(strings.TrimPrefix(m.boot.Channel, "unix:"), nil); err != nil {
		t.Fatal(err)
	}
	m.client = wire.NewClient(m.host.Dial)
	m.cmd = exec.Command(guesttest.Binary(t), "init", "--boot", file)
	m.cmd.Stderr = m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !o.plain {
		isolate(t, m)
	}
	if o.uid != 0 {
		m.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.uid)}
		for _, f := range []string{file, strings.TrimPrefix(m.boot.Channel, "unix:")} {
			if err := os.Chown(f, o.uid, o.uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := m.cmd.Start(); err != nil {
		if !o.plain && !o.mustPID {
			t.Logf("no namespaces here (%v): init runs as a plain process", err)
			o.plain = true
			m.host.Close()
			m.run(o)
			return
		}
		t.Skipf("init cannot be PID 1 here: %v", err)
	}
	go func() {
		m.err = m.cmd.Wait()
		close(m.ended)
	}()
	t.Cleanup(m.stop)
}

// isolate gives init namespaces of its own and a /proc that shows them.
func isolate(t testing.TB, m *machine) {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	m.cmd.Args = append([]string{sh, "-c", `mount -t proc proc /proc && exec "$0" "$@"`}, m.cmd.Args...)
	m.cmd.Path = sh
	m.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
	if os.Getuid() != 0 {
		m.cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		m.cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		m.cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	}
	m.cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS // makes Go set the propagation private
}

// stop ends the machine and waits for it.
func (m *machine) stop() {
	m.client.Close()
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.ended:
	case <-time.After(patience.Of(20 * time.Second)):
		m.t.Errorf("init did not end within 20 s of TERM; its log:\n%s", m.log)
		_ = m.cmd.Process.Kill()
		<-m.ended
	}
	m.host.Close()
	if s := m.log.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic") { // SKETE_GUEST may name one built with -race
		m.t.Errorf("the guest is broken")
	}
	if m.t.Failed() {
		m.t.Logf("log of the guest:\n%s", m.log)
	}
}

func background(t testing.TB) context.Context {
	ctx, cancel := patience.Context(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (m *machine) hello() *wire.HelloResponse {
	m.t.Helper()
	h, err := m.client.Hello(background(m.t))
	if err != nil {
		m.t.Fatalf("hello: %v\n%s", err, m.log)
	}
	return h
}

// result of a command whose stream was read to its end.
type result struct {
	out, err bytes.Buffer
	gaps     int64
	exit     *wire.ProcessInfo
}

func argv(args ...string) [][]byte {
	var list [][]byte
	for _, a := range args {
		list = append(list, []byte(a))
	}
	return list
}

func sh(script string) [][]byte { return argv("sh", "-c", script) }

func (m *machine) exec(req *wire.StartRequest) (*result, error) {
	st, err := m.client.Process.Exec(background(m.t), connect.NewRequest(req))
	if err != nil {
		return nil, wire.Err(err)
	}
	return read(m.t, st)
}

func (m *machine) mustExec(req *wire.StartRequest) *result {
	m.t.Helper()
	r, err := m.exec(req)
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

func (m *machine) attach(req *wire.AttachRequest) (*result, error) {
	st, err := m.client.Process.Attach(background(m.t), connect.NewRequest(req))
	if err != nil {
		return nil, wire.Err(err)
	}
	return read(m.t, st)
}

// read takes a stream to its end and checks its grammar.
func read(t testing.TB, st *connect.ServerStreamForClient[wire.AttachEvent]) (*result, error) {
	t.Helper()
	defer st.Close()
	r := &result{}
	at := map[wire.Stream]int64{}
	for n := 0; st.Receive(); n++ {
		e := st.Msg()
		if _, ok := e.Event.(*wire.AttachEvent_Started); ok != (n == 0) {
			t.Errorf("event %d is %T", n, e.Event)
		}
		if r.exit != nil {
			t.Errorf("%T after exited", e.Event)
		}
		switch e := e.Event.(type) {
		case *wire.AttachEvent_Output:
			o := e.Output
			if prev, seen := at[o.Stream]; seen && prev != o.Offset {
				t.Errorf("%v jumps from %d to %d", o.Stream, prev, o.Offset)
			}
			at[o.Stream] = o.Offset + int64(len(o.Data))
			if o.Stream == wire.Stream_STREAM_STDERR {
				r.err.Write(o.Data)
			} else {
				r.out.Write(o.Data)
			}
		case *wire.AttachEvent_Gap:
			r.gaps += e.Gap.To - e.Gap.From
			at[e.Gap.Stream] = e.Gap.To
		case *wire.AttachEvent_Exited:
			r.exit = e.Exited
		}
	}
	return r, wire.Err(st.Err())
}

// children returns the pids of init's children by name of their program's
// second argument, as the host sees them.
func (m *machine) supervise() int {
	list, _ := filepath.Glob("/proc/" + strconv.Itoa(m.cmd.Process.Pid) + "/task/*/children")
	for _, l := range list {
		data, _ := os.ReadFile(l)
		for f := range strings.FieldsSeq(string(data)) {
			line, _ := os.ReadFile("/proc/" + f + "/cmdline")
			if bytes.Contains(line, []byte("\x00supervise\x00")) {
				pid, _ := strconv.Atoi(f)
				return pid
			}
		}
	}
	return 0
}
