package hostproc

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func wait(t *testing.T, w *Watch) Status {
	t.Helper()
	select {
	case <-w.Done():
	case <-time.After(patience.Of(10 * time.Second)):
		t.Fatal("the end of the process was not seen")
	}
	return w.Status()
}

func TestWatchSeesTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		signal unix.Signal
		want   Status
	}{
		"exit":   {"read x; exit 7", 0, Status{Known: true, Code: 7}},
		"signal": {"read x; exit 7", unix.SIGKILL, Status{Known: true, Signal: unix.SIGKILL}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", c.script)
			in, _ := cmd.StdinPipe()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ref, err := Of(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			w, err := Open(ref)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if c.signal != 0 {
				if err := ref.Signal(c.signal); err != nil {
					t.Fatal(err)
				}
			}
			in.Close()
			if got := wait(t, w); got != c.want {
				t.Errorf("status %+v, want %+v", got, c.want)
			}
			if ref.Alive() {
				t.Error("still alive")
			}
			if _, err := Open(ref); !errors.Is(err, ErrGone) {
				t.Errorf("Open after the end: %v", err)
			}
		})
	}
}

// A process that is not our child: its parent reaps it, we learn the status.
func TestWatchOfAGrandchild(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 100 & echo $!; wait $!; read x")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	var pid int
	buf := make([]byte, 32)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range buf[:n] {
		if c >= '0' && c <= '9' {
			pid = pid*10 + int(c-'0')
		}
	}
	ref, err := Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Open(ref)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := ref.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, w); got.Known && got.Signal != unix.SIGTERM {
		t.Errorf("status %+v, want SIGTERM or unknown", got)
	}
}

func TestCloseBeforeTheEnd(t *testing.T) {
	ref, err := Of(start(t, "sleep", "100").Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Open(ref)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-w.Done():
		t.Error("Done though the process lives")
	default:
	}
}

func TestAnotherProcessIsNotTaken(t *testing.T) {
	ref, err := Of(start(t, "sleep", "100").Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]Ref{
		"another start": {ref.PID, ref.Start + 1, ref.Boot},
		"another boot":  {ref.PID, ref.Start, "x"},
		"init":          {1, 0, ref.Boot},
		"zero":          {},
	} {
		if r.Alive() {
			t.Errorf("%s: alive", name)
		}
		if err := r.Signal(unix.SIGKILL); !errors.Is(err, ErrGone) {
			t.Errorf("%s: signal: %v", name, err)
		}
	}
	if !ref.Alive() {
		t.Error("the process was hit")
	}
}

func TestTree(t *testing.T) {
	cmd := start(t, "sh", "-c", "sleep 100 & sleep 100 & wait")
	deadline := time.Now().Add(patience.Of(10 * time.Second))
	for {
		ps, err := List()
		if err != nil {
			t.Fatal(err)
		}
		if tree := Tree(ps, cmd.Process.Pid); len(tree) == 3 && tree[0].PID == cmd.Process.Pid {
			for _, ref := range tree {
				if err := ref.Signal(unix.SIGKILL); err != nil {
					t.Error(err)
				}
			}
			if tree := Tree(ps, -1); len(tree) != 0 {
				t.Errorf("the tree of nobody: %v", tree)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the tree never had three processes")
		}
	}
}

func TestParseStat(t *testing.T) {
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if st, err := parseStat(own); err != nil || st.parent != os.Getppid() || st.zombie() {
		t.Errorf("own: %+v, %v", st, err)
	}
	evil := "7 (a) Z 1 (\n) S 42 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 99 0"
	if st, err := parseStat([]byte(evil)); err != nil || st != (stat{'S', 42, 99}) {
		t.Errorf("evil name: %+v, %v", st, err)
	}
	for _, bad := range []string{"", "1", "1 (x)", "1 (x) S", "1 (x) S 2 3", "1 (x) SS 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 9 0", "1 (x) S y 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 9 0"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (a) S 42 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 99 0"))
	f.Fuzz(func(t *testing.T, data []byte) { _, _ = parseStat(data) })
}
