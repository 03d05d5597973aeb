package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

const waitMS = 20_000

// declare declares a service and waits until nothing more happens by itself.
func (m *machine) declare(d *wire.ServiceDeclaration) *wire.ServiceInfo {
	m.t.Helper()
	res, err := retry(m.t, func() (*connect.Response[wire.DeclareServiceResponse], error) {
		return m.client.Service.Declare(background(m.t), connect.NewRequest(&wire.DeclareServiceRequest{Declaration: d, WaitMs: waitMS}))
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return res.Msg.Service
}

func (m *machine) service(name string) *wire.ServiceInfo {
	m.t.Helper()
	res, err := retry(m.t, func() (*connect.Response[wire.GetServiceResponse], error) {
		return m.client.Service.Get(background(m.t), connect.NewRequest(&wire.GetServiceRequest{Name: name}))
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return res.Msg.Service
}

func (m *machine) restartHolders(kill bool, paths ...string) *wire.RestartHoldersResponse {
	m.t.Helper()
	res, err := m.client.Service.RestartHolders(background(m.t), connect.NewRequest(&wire.RestartHoldersRequest{Paths: argv(paths...), KillUnmanaged: kill}))
	if err != nil {
		m.t.Fatal(err)
	}
	return res.Msg
}

// serviceLog reads the log from an offset; gaps are counted.
func (m *machine) serviceLog(name string, from int64) (text string, gaps int64) {
	m.t.Helper()
	st, err := m.client.Service.Logs(background(m.t), connect.NewRequest(&wire.LogsRequest{Name: name, From: from, NoFollow: true}))
	if err != nil {
		m.t.Fatal(err)
	}
	defer st.Close()
	var b bytes.Buffer
	for st.Receive() {
		b.Write(st.Msg().GetOutput().GetData())
		gaps += st.Msg().GetGap().GetTo() - st.Msg().GetGap().GetFrom()
	}
	if err := st.Err(); err != nil {
		m.t.Fatal(err)
	}
	return b.String(), gaps
}

// write makes a file in the workspace that the sandbox's user owns, put in
// place by a rename, as an undo does.
func (m *machine) write(name, text string) string {
	m.t.Helper()
	path := filepath.Join(m.boot.Workdir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
	if os.Getuid() == 0 {
		_ = os.Chown(path+".new", 1000, 1000)
	}
	if err := os.Rename(path+".new", path); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// freePort is a port of the loopback that no process listens on.
func freePort(t *testing.T) uint32 {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return uint32(ln.Addr().(*net.TCPAddr).Port)
}

func shell(name, command string) *wire.ServiceDeclaration {
	return &wire.ServiceDeclaration{Name: name, Command: []byte(command), StopTimeoutMs: 2000}
}

// python is a Python that the sandbox's user may run.
func python(t *testing.T, module string) string {
	t.Helper()
	for _, p := range []string{"/usr/bin/python3", "/usr/local/bin/python3"} {
		if exec.Command(p, "-c", "import "+module).Run() == nil {
			return p
		}
	}
	t.Skipf("there is no Python with %s that every user may run", module)
	return ""
}

func TestService_becomesReadyAsItIsAsked(t *testing.T) {
	m := start(t, options{})
	py := python(t, "http.server")
	port, second := freePort(t), freePort(t)
	serve := func(p uint32) string {
		return fmt.Sprintf("sleep 0.2; exec %s -u -m http.server %d --bind 127.0.0.1", py, p)
	}
	m.write("page.html", "hi")
	web := shell("web", serve(port))
	web.Readiness = &wire.Readiness{Probe: &wire.Readiness_Http{Http: &wire.HttpReadiness{Port: port, Path: "/page.html"}}}
	tcp := shell("tcp", serve(second))
	tcp.Readiness = &wire.Readiness{Probe: &wire.Readiness_Tcp{Tcp: &wire.TcpReadiness{Port: second}}}
	line := shell("line", "echo starting; sleep 0.2; printf 'listening on 1'; sleep 1000")
	line.Readiness = &wire.Readiness{Probe: &wire.Readiness_Log{Log: &wire.LogReadiness{Pattern: `^listening on \d`}}}
	never := shell("never", "sleep 1000")
	never.Readiness = &wire.Readiness{Probe: &wire.Readiness_Http{Http: &wire.HttpReadiness{Port: port, Path: "/missing"}}, TimeoutMs: 300}
	for d, want := range map[*wire.ServiceDeclaration]wire.ServiceState{
		web: wire.ServiceState_SERVICE_STATE_READY, tcp: wire.ServiceState_SERVICE_STATE_READY, line: wire.ServiceState_SERVICE_STATE_READY,
		shell("plain", "sleep 1000"): wire.ServiceState_SERVICE_STATE_READY, never: wire.ServiceState_SERVICE_STATE_UNREADY,
	} {
		if i := m.declare(d); i.State != want || i.Pid == 0 {
			t.Errorf("%s: %v", d.Name, i)
		}
	}
	if i := m.service("never"); !strings.Contains(i.Reason, "not ready after 300ms: ") {
		t.Errorf("the reason is %q", i.Reason)
	}
	res, err := m.client.Service.Stop(background(t), connect.NewRequest(&wire.StopServiceRequest{Name: "web", WaitMs: waitMS}))
	if err != nil || res.Msg.Service.State != wire.ServiceState_SERVICE_STATE_STOPPED || res.Msg.Service.Wanted {
		t.Errorf("stop: %v, %v", res, err)
	}
	again, err := m.client.Service.Start(background(t), connect.NewRequest(&wire.StartServiceRequest{Name: "web", WaitMs: waitMS}))
	if err != nil || again.Msg.Service.State != wire.ServiceState_SERVICE_STATE_READY { // its port is free again
		t.Errorf("start: %v, %v", again, err)
	}
}

func TestService_refusesWhatIsAbsurd(t *testing.T) {
	m := start(t, options{})
	for why, change := range map[string]func(*wire.ServiceDeclaration){
		"name":    func(d *wire.ServiceDeclaration) { d.Name = "../x" },
		"long":    func(d *wire.ServiceDeclaration) { d.Name = strings.Repeat("a", 41) },
		"both":    func(d *wire.ServiceDeclaration) { d.Argv = argv("true") },
		"neither": func(d *wire.ServiceDeclaration) { d.Command = nil },
		"port":    func(d *wire.ServiceDeclaration) { d.Ports = []uint32{70_000} },
		"pattern": func(d *wire.ServiceDeclaration) {
			d.Readiness = &wire.Readiness{Probe: &wire.Readiness_Log{Log: &wire.LogReadiness{Pattern: "("}}}
		},
		"path": func(d *wire.ServiceDeclaration) {
			d.Readiness = &wire.Readiness{Probe: &wire.Readiness_Http{Http: &wire.HttpReadiness{Port: 1, Path: "/ HTTP/1.1"}}}
		},
		"timeout":  func(d *wire.ServiceDeclaration) { d.StopTimeoutMs = 1 << 40 },
		"restart":  func(d *wire.ServiceDeclaration) { d.Restart = 9 },
		"log size": func(d *wire.ServiceDeclaration) { d.LogBytesMax = 1 },
	} {
		d := shell("x", "true")
		change(d)
		_, err := m.client.Service.Declare(background(t), connect.NewRequest(&wire.DeclareServiceRequest{Declaration: d}))
		if !errs.Is(wire.Err(err), errs.Invalid) {
			t.Errorf("%s: %v", why, err)
		}
	}
	if _, err := m.client.Service.Start(background(t), connect.NewRequest(&wire.StartServiceRequest{Name: "x"})); !errs.Is(wire.Err(err), errs.NotFound) {
		t.Errorf("start of an unknown one: %v", err)
	}
}

func TestService_endsByItsPolicy(t *testing.T) {
	m := start(t, options{})
	for _, c := range []struct {
		exit   int
		policy wire.RestartPolicy
		state  wire.ServiceState
		least  uint64
	}{
		{0, wire.RestartPolicy_RESTART_POLICY_NEVER, wire.ServiceState_SERVICE_STATE_STOPPED, 0},
		{3, wire.RestartPolicy_RESTART_POLICY_NEVER, wire.ServiceState_SERVICE_STATE_FAILED, 0},
		{0, wire.RestartPolicy_RESTART_POLICY_ON_FAILURE, wire.ServiceState_SERVICE_STATE_STOPPED, 0},
		{7, wire.RestartPolicy_RESTART_POLICY_ON_FAILURE, wire.ServiceState_SERVICE_STATE_CRASH_LOOP, 4},
		{0, wire.RestartPolicy_RESTART_POLICY_ALWAYS, wire.ServiceState_SERVICE_STATE_CRASH_LOOP, 4},
	} {
		name := fmt.Sprintf("s%d-%d", c.policy, c.exit)
		d := shell(name, fmt.Sprintf("echo run; exit %d", c.exit))
		d.Restart = c.policy
		m.declare(d)
		eventually(t, name+" is over", func() bool { return m.service(name).State == c.state })
		i := m.service(name)
		if i.LastExit.GetCode() != int32(c.exit) || i.Restarts != c.least || i.Reason == "" {
			t.Errorf("%s: %v", name, i)
		}
		if text, gaps := m.serviceLog(name, 0); text != strings.Repeat("run\n", int(c.least)+1) || gaps != 0 {
			t.Errorf("%s: log %q", name, text)
		}
	}
	// What was repaired runs at once when asked, and the past is forgotten.
	m.write("repaired", "")
	d := shell("s2-7", "test -e repaired && sleep 1000")
	if i := m.declare(d); i.State != wire.ServiceState_SERVICE_STATE_READY {
		t.Errorf("%v", i)
	}
}

// Fault 17: what runs is neither lost nor started twice, no byte of a log is
// lost or doubled, an exit while supervise was down has its exact status.
func TestService_superviseKilledHundredTimesLosesNoService(t *testing.T) {
	m := start(t, options{})
	kills := 100
	if testing.Short() {
		kills = 20
	}
	const script = `n=$1; i=0; while :; do i=$((i+1)); echo "$n line $i"; sleep 0.01; done`
	pids := map[string]uint32{}
	for _, n := range []string{"one", "two", "three"} {
		d := &wire.ServiceDeclaration{Name: n, Argv: argv("sh", "-c", script, "sh", n)}
		d.Readiness = &wire.Readiness{Probe: &wire.Readiness_Log{Log: &wire.LogReadiness{Pattern: "line 2$"}}}
		if i := m.declare(d); i.State != wire.ServiceState_SERVICE_STATE_READY {
			t.Fatalf("%v", i)
		} else {
			pids[n] = i.Pid
		}
	}
	done := m.killer(17, kills, 60*time.Millisecond)
	ends := 0
	for n, over := 0, false; !over; n++ { // meanwhile, services come and end
		select {
		case <-done:
			over = true
		default:
		}
		name := "short-" + strconv.Itoa(n%50)
		d := shell(name, fmt.Sprintf("echo %d; exit %d", n, n%256))
		d.Restart = wire.RestartPolicy_RESTART_POLICY_NEVER
		m.declare(d)
		eventually(t, name+" has ended", func() bool { return m.service(name).LastExit != nil })
		if i := m.service(name); i.LastExit.Code != int32(n%256) || i.Restarts != 0 {
			t.Errorf("%s: %v", name, i)
		}
		if _, err := retry(t, func() (*connect.Response[wire.RemoveServiceResponse], error) {
			res, err := m.client.Service.Remove(background(t), connect.NewRequest(&wire.RemoveServiceRequest{Name: name}))
			if errs.Is(wire.Err(err), errs.NotFound) { // an attempt before went through
				return res, nil
			}
			return res, err
		}); err != nil {
			t.Fatal(err)
		}
		ends++
	}
	t.Logf("%d services came and ended through %d kills", ends, m.hello().SuperviseStarts-1)
	for n, pid := range pids {
		i := m.service(n)
		if i.Pid != pid || i.Restarts != 0 || i.State != wire.ServiceState_SERVICE_STATE_READY {
			t.Errorf("%s had pid %d, then %v", n, pid, i)
		}
		text, gaps := m.serviceLog(n, 0)
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		for k, l := range lines[:len(lines)-1] {
			if l != fmt.Sprintf("%s line %d", n, k+1) {
				t.Fatalf("%s: line %d is %q", n, k+1, l)
			}
		}
		if gaps != 0 || len(lines) < kills {
			t.Errorf("%s: %d lines, %d bytes of gaps", n, len(lines), gaps)
		}
	}
	eventually(t, "no zombies", func() bool { return m.zombies() == 0 })
}

func TestService_logsFollowThroughRunsByOffset(t *testing.T) {
	m := start(t, options{})
	d := shell("talk", "echo out; echo err >&2; echo $$; sleep 1000")
	m.declare(d)
	ctx, cancel := context.WithCancel(background(t))
	defer cancel()
	st, err := m.client.Service.Logs(ctx, connect.NewRequest(&wire.LogsRequest{Name: "talk"}))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var seen bytes.Buffer
	until := func(lines int) {
		t.Helper()
		for bytes.Count(seen.Bytes(), []byte("\n")) < lines {
			if !st.Receive() {
				t.Fatal(st.Err())
			}
			if o := st.Msg().GetOutput(); o != nil {
				if o.Offset != int64(seen.Len()) {
					t.Fatalf("offset %d after %d bytes", o.Offset, seen.Len())
				}
				seen.Write(o.Data)
			}
		}
	}
	until(3)
	if _, err := m.client.Service.Restart(background(t), connect.NewRequest(&wire.RestartServiceRequest{Name: "talk", WaitMs: waitMS})); err != nil {
		t.Fatal(err)
	}
	until(6)
	lines := strings.Split(seen.String(), "\n")
	if lines[0] != "out" || lines[1] != "err" || lines[3] != "out" || lines[2] == lines[5] {
		t.Errorf("%q", lines)
	}
	if text, _ := m.serviceLog("talk", int64(len(lines[0])+1)); text != seen.String()[len(lines[0])+1:] {
		t.Errorf("from an offset: %q", text)
	}
	if text, _ := m.serviceLog("talk", -5); text != seen.String()[seen.Len()-4:] {
		t.Errorf("the last four bytes: %q", text)
	}
	if i := m.service("talk"); i.LogSize != int64(seen.Len()) || i.Restarts != 1 {
		t.Errorf("%v, %d bytes seen", i, seen.Len())
	}
}

// What a service started ends with it, also what left its session.
func TestService_stopLeavesNothingBehind(t *testing.T) {
	m := start(t, options{})
	d := shell("tree", `trap "" TERM; setsid sh -c 'trap "" TERM; echo up; while :; do sleep 1; done' & while :; do sleep 1; done`)
	d.StopTimeoutMs = 100
	d.Readiness = &wire.Readiness{Probe: &wire.Readiness_Log{Log: &wire.LogReadiness{Pattern: "^up$"}}}
	m.declare(d)
	if _, err := m.client.Service.Remove(background(t), connect.NewRequest(&wire.RemoveServiceRequest{Name: "tree"})); err != nil {
		t.Fatal(err)
	}
	if n := m.alive(); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	res, err := m.client.Service.List(background(t), connect.NewRequest(&wire.ListServicesRequest{}))
	if err != nil || len(res.Msg.Services) != 0 {
		t.Errorf("%v, %v", res, err)
	}
}

func TestService_declarationsOutliveABoot(t *testing.T) {
	dir := scratch(t)
	first := start(t, options{dir: dir})
	was := first.declare(shell("up", "sleep 1000"))
	first.declare(shell("down", "sleep 1000"))
	if _, err := first.client.Service.Stop(background(t), connect.NewRequest(&wire.StopServiceRequest{Name: "down", WaitMs: waitMS})); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Process.Kill()
	<-first.ended
	second := start(t, options{dir: dir})
	eventually(t, "it is up again", func() bool { return second.service("up").State == wire.ServiceState_SERVICE_STATE_READY })
	if now := second.service("up"); now.ProcessKey == was.ProcessKey || now.Restarts != 0 {
		t.Errorf("was %v, is %v", was, now)
	}
	if i := second.service("down"); i.State != wire.ServiceState_SERVICE_STATE_STOPPED {
		t.Errorf("%v", i)
	}
}

func TestService_watchShowsEveryChangeOfState(t *testing.T) {
	m := start(t, options{})
	m.declare(shell("old", "sleep 1000"))
	ctx, cancel := context.WithCancel(background(t))
	defer cancel()
	st, err := m.client.Service.Watch(ctx, connect.NewRequest(&wire.WatchServicesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	next := func(ok func(*wire.WatchServicesResponse) bool) {
		t.Helper()
		for st.Receive() {
			if ok(st.Msg()) {
				return
			}
		}
		t.Fatal(st.Err())
	}
	is := func(name string, s wire.ServiceState) func(*wire.WatchServicesResponse) bool {
		return func(r *wire.WatchServicesResponse) bool {
			return r.GetService().GetDeclaration().GetName() == name && r.GetService().GetState() == s
		}
	}
	next(is("old", wire.ServiceState_SERVICE_STATE_READY))
	next(func(r *wire.WatchServicesResponse) bool { return r.GetListed() })
	m.declare(shell("new", "sleep 1000"))
	next(is("new", wire.ServiceState_SERVICE_STATE_READY))
	if err := syscall.Kill(m.hostPID(m.service("new").Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	next(func(r *wire.WatchServicesResponse) bool { return r.GetService().GetLastExit().GetSignal() == 9 })
	next(is("new", wire.ServiceState_SERVICE_STATE_READY))
	if _, err := m.client.Service.Remove(background(t), connect.NewRequest(&wire.RemoveServiceRequest{Name: "new"})); err != nil {
		t.Fatal(err)
	}
	next(func(r *wire.WatchServicesResponse) bool { return r.GetRemoved() == "new" })
}

// hostPID is the pid that a process of the machine has here.
func (m *machine) hostPID(pid uint32) int {
	m.t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, s := range stats {
		data, _ := os.ReadFile(s)
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) == 0 || f[0] != "NSpid:" || f[len(f)-1] != strconv.Itoa(int(pid)) {
				continue
			}
			if outer, err := strconv.Atoi(filepath.Base(filepath.Dir(s))); err == nil && m.inside(outer) {
				return outer
			}
		}
	}
	m.t.Fatal(errors.New("no such process"))
	return 0
}

// inside reports whether a process has this machine's init among its forebears.
func (m *machine) inside(pid int) bool {
	for pid > 1 {
		if pid == m.cmd.Process.Pid {
			return true
		}
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(data), ") ")
		f := strings.Fields(rest)
		if len(f) < 2 {
			return false
		}
		pid, _ = strconv.Atoi(f[1])
	}
	return false
}
