package confine_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/internal/confine"
	"github.com/skete-dev/skete/internal/patience"
)

// sh runs a shell with rights, and returns what it says.
func sh(t *testing.T, line string, r confine.Rights) string {
	t.Helper()
	ctx, cancel := patience.Context(context.Background(), time.Minute)
	defer cancel()
	out, err := confine.CombinedOutput(exec.CommandContext(ctx, "/bin/sh", "-c", line), r)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", line, err)
	}
	return strings.TrimSpace(string(out))
}

func needLandlock(t *testing.T, level int) {
	t.Helper()
	if confine.Level() < level {
		t.Skipf("this kernel has Landlock %d, and %d is needed", confine.Level(), level)
	}
}

// A confined program does what it was given, and nothing else of what its user may.
func TestStart(t *testing.T) {
	needLandlock(t, 6)
	dir := t.TempDir()
	given, other, place := filepath.Join(dir, "given"), filepath.Join(dir, "other"), filepath.Join(dir, "place")
	for name, text := range map[string]string{given: "given", other: "secret"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(place, 0o755); err != nil {
		t.Fatal(err)
	}
	victim := exec.Command("sleep", "300")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
	r := confine.Rights{Read: []string{given}, Write: []string{place}}
	for _, c := range []struct{ line, want string }{
		{"cat " + given, "given"},
		{"echo x > " + place + "/new && mkdir " + place + "/sub && mv " + place + "/new " + place + "/moved && cat " + place + "/moved", "x"},
		{"grep NoNewPrivs /usr/../proc/self/status || echo none", "ermission denied"},
		{"cat " + other, "ermission denied"},
		{"ls " + dir, "ermission denied"},
		{"echo x >> " + given, "ermission denied"},
		{"echo x > " + dir + "/new", "ermission denied"},
		{"rm " + other, "ermission denied"},
		{"cat /etc/passwd", "ermission denied"},
		{"echo x > /usr/evil", "ermission denied"},
		{"mkfifo " + place + "/fifo", "ermission denied"},
		{fmt.Sprintf("kill -9 %d", victim.Process.Pid), "ermitted"},
		{"echo x > /dev/null && echo fine", "fine"},
	} {
		if got := sh(t, c.line, r); !strings.Contains(got, c.want) {
			t.Errorf("%s says %q, not %q", c.line, got, c.want)
		}
	}
	if text, err := os.ReadFile(given); err != nil || string(text) != "given" {
		t.Errorf("what it was given to read is %q, %v", text, err)
	}
	if err := victim.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the other process: %v", err)
	}
}

// It opens no TCP connection, though its user may.
func TestStart_noNetwork(t *testing.T) {
	needLandlock(t, 4)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	line := fmt.Sprintf("exec python3 -I -c 'import socket; socket.create_connection((\"127.0.0.1\", %d)); print(\"connected\")'", ln.Addr().(*net.TCPAddr).Port)
	if out, err := exec.Command("/bin/sh", "-c", line).CombinedOutput(); err != nil || !strings.Contains(string(out), "connected") {
		t.Fatalf("without confinement: %v, %s", err, out)
	}
	if got := sh(t, line, confine.Rights{}); strings.Contains(got, "connected") || !strings.Contains(got, "PermissionError") {
		t.Errorf("it says %q", got)
	}
}

// This process, and what it starts otherwise, keeps its rights.
func TestStart_leavesTheOthers(t *testing.T) {
	for range 20 {
		sh(t, "true", confine.Rights{})
	}
	for range 50 {
		if out, err := exec.Command("/bin/sh", "-c", "cat /etc/passwd && grep NoNewPrivs /proc/self/status").CombinedOutput(); err != nil || !strings.Contains(string(out), "root") {
			t.Fatalf("another program: %v, %s", err, out)
		}
	}
}

// What is not there cannot be given, and nothing is started then.
func TestStart_badRights(t *testing.T) {
	needLandlock(t, 1)
	made := filepath.Join(t.TempDir(), "made")
	cmd := exec.Command("/bin/sh", "-c", "touch "+made)
	if _, err := confine.CombinedOutput(cmd, confine.Rights{Write: []string{"/no/such/place"}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a place that is not there: %v", err)
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("it ran")
	}
	if err := confine.Start(exec.Command("/no/such/program"), confine.Rights{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}
