// Package enginetest gives tests a real container engine of their own.
//
//	e := enginetest.Start(t, enginetest.Docker)
//	p, err := docker.New(docker.Config{Host: e.Host, …})
//
// The engine is the installed program (dockerd, podman), run on a temporary
// directory with its state and socket there, and stopped with the test. It
// makes no network and no firewall rules. A test is skipped, with the reason,
// where the program is not installed, or may not run (engines need root).
package enginetest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
)

// Kind of an engine.
type Kind string

// The engines that tests can start.
const (
	Docker Kind = "docker"
	Podman Kind = "podman"
)

// Kinds lists all.
var Kinds = []Kind{Docker, Podman}

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
)

// Engine is one that runs, or did.
type Engine struct {
	Kind Kind
	Host string // "unix:///…"

	t       testing.TB
	dir     string
	command *exec.Cmd
	done    chan struct{} // closed when the command has ended
}

// Start starts an engine.
func Start(t testing.TB, kind Kind) *Engine {
	t.Helper()
	program := map[Kind]string{Docker: "dockerd", Podman: "podman"}[kind]
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed (see scripts/need)", program)
	}
	if os.Geteuid() != 0 {
		t.Skipf("%s needs root here", program)
	}
	for _, left := range scratch.Left(string(kind)) { // of test processes that were killed
		(&Engine{Kind: kind, t: t, dir: left}).clear()
	}
	dir, err := scratch.Dir(string(kind))
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Kind: kind, Host: "unix://" + filepath.Join(dir, "api.sock"), t: t, dir: dir}
	t.Cleanup(e.remove)
	e.up(e.t.Skipf)
	return e
}

// Arguments of the programs. Groups of docker's containers have a parent of
// their own, so that it can be removed.
func (e *Engine) arguments() []string {
	in := func(name string) string { return filepath.Join(e.dir, name) }
	if e.Kind == Docker {
		return []string{
			"dockerd", "--host=" + e.Host, "--data-root=" + in("data"), "--exec-root=" + in("exec"), "--pidfile=" + in("pid"),
			"--bridge=none", "--iptables=false", "--ip6tables=false", "--cgroup-parent=" + e.group(), "--log-level=warn",
			"--exec-opt=native.cgroupdriver=cgroupfs",
		}
	}
	return append(e.Command(), "system", "service", "--time=0", e.Host)
}

// Command is Podman's own command line on this engine's state.
func (e *Engine) Command(words ...string) []string {
	in := func(name string) string { return filepath.Join(e.dir, name) }
	args := []string{
		"podman", "--root=" + in("data"), "--runroot=" + in("run"), "--tmpdir=" + in("tmp"),
		"--cgroup-manager=cgroupfs", "--events-backend=none", "--log-level=error",
	}
	if _, err := exec.LookPath("runc"); err == nil { // crun refuses hosts with both versions of control groups
		args = append(args, "--runtime=runc")
	}
	return append(args, words...)
}

func (e *Engine) group() string { return "/" + filepath.Base(e.dir) }

// Up starts the engine again and returns when it answers.
func (e *Engine) Up() {
	e.t.Helper()
	for e.killHelpers(" --config " + e.dir + "/") { // containerd, whose parent was killed
		<-time.After(10 * time.Millisecond)
	}
	for _, name := range []string{"pid", "exec/containerd/containerd.pid", "exec/containerd/containerd.sock"} {
		_ = os.Remove(filepath.Join(e.dir, name))
	}
	e.up(e.t.Fatalf)
}

func (e *Engine) up(fail func(format string, args ...any)) {
	e.t.Helper()
	args := e.arguments()
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		e.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
	e.command, e.done = cmd, make(chan struct{})
	started := make(chan error)
	go func(done chan struct{}) {
		// Its parent is the thread that starts it, and it ends with that: this one waits.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if started <- err; err == nil {
			_ = cmd.Wait()
		}
		close(done)
	}(e.done)
	if err := <-started; err != nil {
		e.t.Fatal(err)
	}
	up := false
	if !patience.Holds(startTimeout, func() bool {
		up = e.answers("/_ping") && e.answers("/info") // a first look at its store can take long
		select {
		case <-e.done:
			return true
		default:
			return up
		}
	}) {
		e.t.Fatalf("%s does not answer:\n%s", args[0], e.lastWords())
	}
	if !up {
		fail("%s does not start here:\n%s", args[0], e.lastWords())
	}
}

func (e *Engine) answers(path string) bool {
	conn, err := net.Dial("unix", strings.TrimPrefix(e.Host, "unix://"))
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience.Of(5 * time.Second)))
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: engine\r\n\r\n", path)
	line := make([]byte, 12)
	n, _ := conn.Read(line)
	return strings.HasSuffix(string(line[:n]), " 200")
}

func (e *Engine) lastWords() string {
	data, _ := os.ReadFile(filepath.Join(e.dir, "log"))
	return string(data[max(0, len(data)-2000):])
}

// Kill ends the engine's own process as a crash would. Containers live on.
func (e *Engine) Kill() { e.end(unix.SIGKILL) }

// Stop ends the engine in good order; Docker's containers end with it.
func (e *Engine) Stop() { e.end(unix.SIGTERM) }

func (e *Engine) end(sig unix.Signal) {
	e.t.Helper()
	if e.command == nil {
		return
	}
	_ = e.command.Process.Signal(sig)
	select {
	case <-e.done:
	case <-time.After(stopTimeout):
		e.t.Errorf("%s did not end within %v", e.Kind, stopTimeout)
		_ = e.command.Process.Kill()
		<-e.done
	}
	e.command = nil
}

// remove stops the engine and takes away all that it left: helpers that
// outlive it, mounts, groups, files.
func (e *Engine) remove() {
	e.end(unix.SIGTERM)
	e.clear()
}

// clear takes away all that an engine left that does not run any more.
func (e *Engine) clear() {
	patience.Holds(stopTimeout, func() bool {
		return !e.killHelpers(e.dir+"/") && !e.killInits() && !e.killInside()
	})
	groups, _ := filepath.Glob("/sys/fs/cgroup/*" + e.group())
	for _, pattern := range []string{"/libpod_parent/*", "/libpod_parent"} { // of all Podman's: refused unless empty
		shared, _ := filepath.Glob("/sys/fs/cgroup/*" + pattern)
		groups = append(groups, shared...)
	}
	for _, g := range append(groups, "/sys/fs/cgroup"+e.group()) {
		_ = os.Remove(g)
	}
	if err := scratch.Remove(e.dir); err != nil {
		e.t.Errorf("remove the engine's directory: %v", err)
	}
}

// EndOrphans ends what an engine that was killed has left of a container that it
// was just starting. Podman leaves a conmon then, which waits for ever for a
// word from it and belongs to no container, or the first process of a container,
// which waits for ever to be let go; Podman itself never ends them.
func (e *Engine) EndOrphans(name string) bool {
	if e.Kind != Podman {
		return false
	}
	monitors := e.killHelpers(name)
	return e.killInits() || monitors
}

// killInits ends the first processes of containers of this engine that have not
// been let go yet, with what runc remembers of them, and reports whether there
// was one. Their command lines say nothing; where they stand does.
func (e *Engine) killInits() bool {
	ps, err := hostproc.List()
	if err != nil {
		return false
	}
	found := false
	for _, p := range ps {
		if len(p.Args) != 2 || filepath.Base(p.Args[0]) != "runc" || p.Args[1] != "init" {
			continue
		}
		proc := filepath.Join("/proc", strconv.Itoa(p.PID))
		if dir, _ := os.Readlink(filepath.Join(proc, "cwd")); !strings.HasPrefix(dir, e.dir+"/") && !e.rootOf(p.PID) {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		if err := p.Signal(unix.SIGKILL); errors.Is(err, hostproc.ErrGone) {
			continue
		}
		found = true
		for pair := range strings.SplitSeq(string(environ), "\x00") {
			if dir, ok := strings.CutPrefix(pair, "_LIBCONTAINER_STATEDIR="); ok && filepath.Dir(dir) == "/run/runc" {
				_ = os.RemoveAll(dir)
			}
		}
	}
	return found
}

// killInside ends what runs in this engine's containers and reports whether
// there was anything.
func (e *Engine) killInside() bool {
	ps, err := hostproc.List()
	if err != nil {
		return false
	}
	found := false
	for _, p := range ps {
		if e.rootOf(p.PID) && !errors.Is(p.Signal(unix.SIGKILL), hostproc.ErrGone) {
			found = true
		}
	}
	return found
}

// rootOf reports whether a process has one of this engine's root file systems
// for its own. That the engine's mounts are among its mounts says nothing: each
// new mount namespace of the host begins with a copy of all.
func (e *Engine) rootOf(pid int) bool {
	mounts, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "mountinfo"))
	for line := range strings.Lines(string(mounts)) {
		// 36 35 98:0 /where/in/it /mounted/at rw,noatime shared:1 - ext4 /dev/root rw,upperdir=/…
		if f := strings.Fields(line); len(f) > 4 && f[4] == "/" && strings.Contains(line, "/"+filepath.Base(e.dir)+"/") {
			return true
		}
	}
	return false
}

// killHelpers ends every process with the mark, the engine's directory in it,
// among its arguments, and reports whether there was one: containerd, its
// shims, conmon.
func (e *Engine) killHelpers(mark string) bool {
	ps, err := hostproc.List()
	if err != nil {
		return false
	}
	found := false
	for _, p := range ps {
		if p.PID == os.Getpid() || !strings.Contains(strings.Join(p.Args, " "), mark) {
			continue
		}
		if err := p.Signal(unix.SIGKILL); !errors.Is(err, hostproc.ErrGone) {
			found = true
		}
	}
	return found
}
