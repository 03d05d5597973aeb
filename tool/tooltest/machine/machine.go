// Package machine gives tests a real guest, as a plain process of this host.
//
//	m := machine.Start(t)
//	m.Client // speaks guest.v1; m.Workdir is where its files may be
//
// The guest, and all that it started, is gone at the end of the test.
package machine

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/guesttest"
)

// Machine is a running guest.
type Machine struct {
	Client  *wire.Client
	Workdir string

	t    testing.TB
	dir  string
	host *channel.Host
	cmd  *exec.Cmd
	log  *buffer
	end  sync.Once
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// Start boots a guest with an empty working directory.
func Start(t testing.TB) *Machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "machine-*") //nolint:usetesting // another user works in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &Machine{t: t, dir: dir, Workdir: filepath.Join(dir, "work"), log: &buffer{}}
	m.boot()
	t.Cleanup(m.Stop)
	return m
}

func (m *Machine) boot() {
	m.t.Helper()
	b := wire.Boot{
		Sandbox: "sbx_test", Hostname: "test", Channel: "unix:" + filepath.Join(m.dir, "host.sock"),
		User: "user", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: m.Workdir, Workdir: m.Workdir, StateDir: filepath.Join(m.dir, "state"),
		Env: map[string]string{"PATH": os.Getenv("PATH")},
	}
	if os.Getuid() == 0 {
		b.UID, b.GID = 1000, 1000
	}
	m.must(os.Chmod(m.dir, 0o755))
	for _, d := range []string{b.Workdir, b.StateDir} {
		m.must(os.MkdirAll(d, 0o755))
	}
	if os.Getuid() == 0 {
		m.must(os.Chown(b.Workdir, 1000, 1000))
	}
	data, err := json.Marshal(b)
	m.must(err)
	file := filepath.Join(m.dir, "boot.json")
	m.must(os.WriteFile(file, data, 0o600))
	m.host, err = channel.Listen(filepath.Join(m.dir, "host.sock"), nil)
	m.must(err)
	m.Client = wire.NewClient(m.host.Dial)
	m.cmd = exec.Command(guesttest.Binary(m.t), "init", "--boot", file)
	m.cmd.Stderr = m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	m.must(m.cmd.Start())
}

func (m *Machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// Stop ends the guest. It may be repeated.
func (m *Machine) Stop() {
	m.end.Do(func() {
		m.Client.Close()
		_ = m.cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(20*time.Second, func() { _ = m.cmd.Process.Kill() })
		_ = m.cmd.Wait()
		if !kill.Stop() {
			m.t.Error("the guest did not end within 20 s of TERM")
		}
		m.host.Close()
		if m.t.Failed() {
			m.t.Logf("log of the guest:\n%s", m.log.b.Bytes())
		}
	})
}

// Supervise returns the pid of the guest's supervisor, which init starts anew
// when it dies.
func (m *Machine) Supervise() int {
	for _, pid := range children(m.cmd.Process.Pid) {
		line, _ := os.ReadFile(filepath.Join("/proc", itoa(pid), "cmdline"))
		if bytes.Contains(line, []byte("\x00supervise\x00")) {
			return pid
		}
	}
	return 0
}
