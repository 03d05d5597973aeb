package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/launch"
	"github.com/skete-dev/skete/internal/patience"
)

// A server whose data directory is gone can be found by no command: it ends.
func TestServerEndsWithItsDataDirectory(t *testing.T) {
	for name, lose := range map[string]func(home string) error{
		"removed": os.RemoveAll,
		"moved":   func(home string) error { return os.Rename(home, home+".old") },
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, dir: bin(t), home: filepath.Join(t.TempDir(), "home"), provider: "process"}
			w.run("vm", "list")
			pid := pidOf(w.home)
			if pid == 0 {
				t.Fatal("no server runs")
			}
			t.Cleanup(func() {
				if alive(pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			if err := lose(w.home); err != nil {
				t.Fatal(err)
			}
			poll(t, "it has ended", func() bool { return !alive(pid) })
		})
	}
}

// One that hangs is found by the lock that it holds, and --force ends it.
func TestStopForcesAServerThatHangs(t *testing.T) {
	w := newWorld(t, "process")
	w.run("vm", "list")
	pid := pidOf(w.home)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p, err := launch.Holder(t.Context(), w.home)
	if err != nil || p == nil || p.PID != pid || !p.Listening {
		t.Fatalf("%+v, %v", p, err)
	}
	p.Close()
	// Without its socket it is still known by its lock.
	if err := os.Remove(filepath.Join(w.home, "skete.sock")); err != nil {
		t.Fatal(err)
	}
	if p, err = launch.Holder(t.Context(), w.home); err != nil || p == nil || p.PID != pid || p.Listening {
		t.Fatalf("without its socket: %+v, %v", p, err)
	}
	p.Close()
	out, err := w.command("status").CombinedOutput()
	if status(err) != 1 || !strings.Contains(string(out), "does not answer, pid") {
		t.Errorf("status: %v\n%s", err, out)
	}
	out, err = w.command("stop", "--timeout", "1").CombinedOutput()
	if status(err) != 125 || !strings.Contains(string(out), "has not ended within 1s") || !alive(pid) {
		t.Errorf("stop: %v\n%s", err, out)
	}
	out, err = w.command("stop", "--timeout", "1", "--force").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "was killed") {
		t.Errorf("stop --force: %v\n%s", err, out)
	}
	poll(t, "it has ended", func() bool { return !alive(pid) })
}

// systemd is told when the server is ready and when it ends.
func TestServerTellsSystemd(t *testing.T) {
	w := newWorld(t, "process")
	sock := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: sock, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := w.command("serve", "--listen", "")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+sock)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	next := func() string {
		if err := l.SetReadDeadline(time.Now().Add(patience.Of(time.Minute))); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		n, err := l.Read(buf)
		if err != nil {
			t.Fatalf("%v\n%s", err, errOut.String())
		}
		return string(buf[:n])
	}
	if got := next(); got != "READY=1" {
		t.Errorf("first %q", got)
	}
	if !launch.Answers(t.Context(), w.home) {
		t.Error("it said that it is ready, and no client can connect")
	}
	w.run("stop")
	if got := next(); got != "STOPPING=1" {
		t.Errorf("then %q", got)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, errOut.String())
	}
}

// The unit is one that systemd takes whole, and what it takes away is not
// missed: a machine of gVisor boots with it.
func TestServiceUnit(t *testing.T) {
	w := newWorld(t, "gvisor")
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze")
	}
	for _, args := range [][]string{{"--user"}, nil} {
		unit := filepath.Join(t.TempDir(), "skete.service")
		text := w.run(append([]string{"service-unit"}, args...)...)
		if err := os.WriteFile(unit, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), analyze, append([]string{"verify", "--man=no"}, append(args, unit)...)...)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || bytes.Contains(out, []byte(unit)) || bytes.Contains(out, []byte("Unknown")) {
			t.Errorf("verify %v: %v\n%s", args, err, out)
		}
		for _, own := range []string{"ProtectSystem", "PrivateTmp=", "ProtectHome", "ReadWritePaths", "ProtectKernel", "ProtectControlGroups", "PrivateDevices", "MemoryDenyWriteExecute", "RestrictSUIDSGID"} {
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, own) {
					t.Errorf("the unit has %s", line)
				}
			}
		}
	}
}

func TestServiceUnit_rightsAreEnough(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it takes rights away")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("needs setpriv")
	}
	w := newWorld(t, "gvisor")
	var drop []string
	for _, name := range droppedCapabilities {
		drop = append(drop, "-"+strings.ToLower(strings.TrimPrefix(name, "CAP_")))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	serve := exec.CommandContext(ctx, setpriv, "--no-new-privs", "--bounding-set", strings.Join(drop, ","), filepath.Join(w.dir, "skete"), "serve", "--listen", "")
	serve.Env = environOf(w.dir, w.home, "gvisor")
	var log bytes.Buffer
	serve.Stderr = &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	poll(t, "it listens", func() bool { return launch.Answers(ctx, w.home) })
	if got := w.run("vm", "temp", "--mem", "256", "--cmd", "id -u; cat /proc/sys/kernel/ostype"); got != "1000\nLinux" {
		t.Errorf("%q\n%s", got, log.String())
	}
	w.run("stop")
	if err := serve.Wait(); err != nil {
		var exit *exec.ExitError
		t.Errorf("%v (%v)\n%s", err, errors.As(err, &exit), log.String())
	}
}

// A server that does not take requests yet says what it is doing, and what one
// left that was killed is not believed.
func TestStatusSaysWhatAStartDoes(t *testing.T) {
	home := t.TempDir()
	launch.SayStarting(home, "opening the store")
	if got := launch.Starting(home, os.Getpid()+1); got != "" {
		t.Errorf("of another process: %q", got)
	}
	st := serverStatus{State: serverBusy, PID: os.Getpid(), Starting: launch.Starting(home, os.Getpid()), why: errors.New("no answer")}
	var out bytes.Buffer
	if err := (program{&app.App{Out: &out}}).printStatus(st); err != nil || !strings.Contains(out.String(), "starts: opening the store, pid") {
		t.Errorf("%v\n%s", err, &out)
	}
	launch.SayStarting(home, "")
	if got := launch.Starting(home, os.Getpid()); got != "" {
		t.Errorf("after the start: %q", got)
	}
	out.Reset()
	st = serverStatus{State: serverRuns, Attaching: &api.Attaching{Done: 12, Total: 30}}
	if err := (program{&app.App{Out: &out}}).printStatus(st); err != nil || !strings.Contains(out.String(), "attaching sandboxes, 12 of 30 done") {
		t.Errorf("%v\n%s", err, &out)
	}
}
