package gvisor

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// rootlessUID has no name and no rights on most hosts.
const rootlessUID = 61234

// TestRootless runs this test program again as an ordinary user, so that the
// suite sees what such a user gets.
func TestRootless(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("we are not root: TestProvider is the rootless test already")
	}
	if testing.Short() {
		t.Skip("short: runs the suite of TestProvider again, in a process without the race detector's reports")
	}
	dir, err := os.MkdirTemp("", "rootless-*") //nolint:usetesting // every user must get there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	programs := filepath.Join(dir, "programs") // the suite makes more of them there
	if err := os.Mkdir(programs, 0o755); err != nil {
		t.Fatal(err)
	}
	const suite = "github.com/skete-dev/skete/sandbox/sandboxtest/internal/"
	for _, program := range []string{exe(t), slim(t), sandboxtest.Build(t, suite+"tool"), sandboxtest.Build(t, suite+"oddguest")} {
		copyFile(t, program, filepath.Join(programs, filepath.Base(program)))
	}
	self := filepath.Join(dir, "gvisor.test")
	copyFile(t, os.Args[0], self)
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, tmp, programs} {
		if err := os.Chown(path, rootlessUID, rootlessUID); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(self, "-test.run=^(TestProbe|TestProvider|TestEscape|TestRootlessCapabilities)$", "-test.v", "-test.timeout=5m")
	cmd.Dir = tmp
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + tmp, "TMPDIR=" + tmp, sandboxtest.ProgramsEnv + "=" + programs, "SKETE_GUEST=" + guesttest.Binary(t)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: rootlessUID, Gid: rootlessUID}}
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "=== ") {
			t.Log(strings.TrimRight(line, "\n"))
		}
	}
	if err != nil {
		t.Errorf("as user %d: %v", rootlessUID, err)
	}
}

// TestRootlessCapabilities: what is lost is said.
func TestRootlessCapabilities(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("run by TestRootless")
	}
	c := open(t, t.TempDir()).Capabilities()
	if !c.Rootless || c.LimitsMemory || c.LimitsCPU || len(c.Notes) < 2 {
		t.Errorf("%+v", c)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
