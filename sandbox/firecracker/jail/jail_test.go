package jail

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newJail(t *testing.T) Jail {
	j := Jail{Dir: t.TempDir(), ID: "sbx-a", Exec: "/opt/firecracker"}
	must(t, j.Make())
	return j
}

func TestTheJailerIsToldAllItsLimits(t *testing.T) {
	j := Jail{Dir: "/d", ID: "sbx-a", Exec: "/opt/firecracker", Jailer: "/opt/jailer", UID: 7, GID: 8, Parent: "skete-x", Limits: Limits{1 << 30, true, 96, 4 << 30}}
	program, args := j.command()
	want := strings.Fields("--id sbx-a --exec-file /opt/firecracker --uid 7 --gid 8 --chroot-base-dir /d/jail --new-pid-ns" +
		" --resource-limit no-file=2048 --resource-limit fsize=4294967296 --cgroup-version 2 --parent-cgroup skete-x" +
		" --cgroup cpu.weight=100 --cgroup memory.max=1073741824 --cgroup memory.swap.max=0 --cgroup pids.max=96" +
		" -- --api-sock api.sock --log-path firecracker.log --level Info --show-level")
	if d := cmp.Diff(want, args); d != "" || program != "/opt/jailer" {
		t.Errorf("%s %s", program, d)
	}
	if j.Root() != "/d/jail/firecracker/sbx-a/root" {
		t.Errorf("Root = %s", j.Root())
	}
	for _, a := range args {
		if strings.Contains(a, "seccomp") {
			t.Errorf("the seccomp filter is touched: %s", a)
		}
	}
}

// A guest that has taken over Firecracker can put anything into its root directory.
func TestNothingInTheJailIsReachedThroughALink(t *testing.T) {
	j := newJail(t)
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	must(t, os.Symlink(secret, j.Path("link")))
	must(t, os.Symlink(filepath.Dir(secret), j.Path("dir")))
	must(t, unix.Mkfifo(j.Path("fifo"), 0o600))
	for _, name := range []string{"link", "dir/secret", "../../../../etc/passwd", "/etc/passwd", "fifo", "."} {
		if data, err := j.ReadTail(name, 100); err == nil {
			t.Errorf("%s was read: %q", name, data)
		}
	}
	outside := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", outside)
	must(t, err)
	defer ln.Close()
	must(t, os.Symlink(outside, j.Path(VsockSocket)))
	must(t, os.WriteFile(j.Path("file"), nil, 0o600))
	for _, name := range []string{VsockSocket, "file", "none"} {
		if conn, err := j.Dial(t.Context(), name); err == nil {
			conn.Close()
			t.Errorf("%s was connected to", name)
		}
	}
	must(t, os.Symlink(secret, j.Path(State)))
	if err := j.Take(State, filepath.Join(t.TempDir(), "x")); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a link was taken out as a file: %v", err)
	}
	if info, err := os.Stat(secret); err != nil || info.Mode() != 0o600 {
		t.Errorf("the secret's mode: %v, %v", info.Mode(), err)
	}
}

func TestASocketIsReachedThroughAPathOfAnyLength(t *testing.T) {
	j := Jail{Dir: filepath.Join(t.TempDir(), strings.Repeat("d", 120), strings.Repeat("e", 120)), ID: "sbx-a", Exec: "/opt/firecracker"}
	must(t, j.Make())
	dir, err := os.Open(j.Root())
	must(t, err)
	defer dir.Close()
	ln, err := net.Listen("unix", "/proc/self/fd/"+strconv.Itoa(int(dir.Fd()))+"/"+VsockSocket)
	must(t, err)
	defer ln.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			_, err = conn.Write([]byte("x"))
			conn.Close()
		}
		done <- err
	}()
	conn, err := j.Dial(t.Context(), VsockSocket)
	must(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience.Of(5 * time.Second)))
	if n, err := conn.Read(make([]byte, 1)); n != 1 {
		t.Error(err)
	}
	must(t, <-done)
}

func TestLinksAreOfRegularFilesOnly(t *testing.T) {
	j := newJail(t)
	dir := t.TempDir()
	file, link := filepath.Join(dir, "f"), filepath.Join(dir, "l")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Symlink(file, link))
	for _, bad := range []string{link, dir, filepath.Join(dir, "none")} {
		if err := j.Link(bad, "x"); err == nil {
			t.Errorf("%s was linked", bad)
		}
	}
	must(t, j.Link(file, "x"))
	if err := j.Link(file, "x"); err == nil {
		t.Error("a file was replaced")
	}
}

func TestThePIDFileIsNotBelieved(t *testing.T) {
	j := newJail(t)
	for what, text := range map[string]string{"us": strconv.Itoa(os.Getpid()), "init": "1", "none": "", "words": "kill them all", "a group": "-1"} {
		must(t, os.WriteFile(j.Path("firecracker.pid"), []byte(text), 0o600))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if ref, err := j.find(ctx); !errs.Is(err, errs.Unavailable) {
			t.Errorf("%s: %v, %v", what, ref, err)
		}
		cancel()
	}
}

func TestEndingIsReadFromTheLog(t *testing.T) {
	j := newJail(t)
	for text, want := range map[string][2]bool{
		"":                       {false, false},
		"x:INFO] vcpu: IO write": {false, false},
		"a\n[x:main:INFO] Firecracker exiting successfully. exit_code=0\n":     {true, true},
		"a\n[x:main:ERROR] Firecracker exiting with error. exit_code=1\n":      {false, true},
		strings.Repeat("noise\n", 10_000) + "Firecracker exiting successfully": {true, true},
	} {
		must(t, os.WriteFile(j.Path(Log), []byte(text), 0o600))
		if clean, known := j.Ending(); clean != want[0] || known != want[1] {
			t.Errorf("%.60q: clean %v, known %v", text, clean, known)
		}
	}
}

// programs to run really, where they are: starting needs no KVM.
func TestAProcessInTheJailIsSomebodyElseSomewhereElse(t *testing.T) {
	program := os.Getenv("SKETE_FIRECRACKER")
	if program == "" || os.Geteuid() != 0 {
		t.Skip("NOT RUN: no real Firecracker and jailer (SKETE_FIRECRACKER is not set), or not root")
	}
	j := Jail{Dir: t.TempDir(), ID: "sbx-jail-test", Exec: program, Jailer: filepath.Join(filepath.Dir(program), "jailer"), UID: 2_000_000_123, GID: 2_000_000_123}
	must(t, j.Make())
	ref, err := j.Start(t.Context())
	must(t, err)
	defer func() {
		_ = ref.Signal(unix.SIGKILL)
		for deadline := time.Now().Add(patience.Of(5 * time.Second)); ref.Alive() && time.Now().Before(deadline); {
			<-time.After(time.Millisecond)
		}
	}()
	for _, ns := range []string{"net", "mnt", "pid"} {
		own, _ := os.Readlink("/proc/self/ns/" + ns)
		its, err := os.Readlink("/proc/" + strconv.Itoa(ref.PID) + "/ns/" + ns)
		if err != nil || own == its {
			t.Errorf("%s namespace: %q, %v", ns, its, err)
		}
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(ref.PID) + "/status")
	must(t, err)
	if !strings.Contains(string(status), "Uid:\t2000000123\t2000000123") {
		t.Errorf("status:\n%s", status)
	}
	refs, err := j.Processes()
	if err != nil || len(refs) != 1 || refs[0] != ref {
		t.Errorf("found %v, %v; it is %v", refs, err, ref)
	}
	for deadline := time.Now().Add(patience.Of(5 * time.Second)); ; {
		conn, err := j.Dial(t.Context(), APISocket)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(time.Millisecond)
	}
	if _, err := j.Start(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a second one in the same jail: %v", err)
	}
}

// The caller gets the error of its context, not that the jailer was killed.
func TestAStartThatIsCancelledSaysSo(t *testing.T) {
	dir := t.TempDir()
	jailer := filepath.Join(dir, "jailer")
	must(t, os.WriteFile(jailer, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755))
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	j := Jail{Dir: dir, ID: "sbx-a", Exec: filepath.Join(dir, "firecracker"), Jailer: jailer}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := j.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
}
