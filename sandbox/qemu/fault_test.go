package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/microvm/microvmtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// serverEnv makes this test program a server that does one thing to a machine
// and says when: tests kill it meanwhile.
const serverEnv = "SKETE_TEST_QEMU_SERVER"

func TestMain(m *testing.M) {
	if what := os.Getenv(serverEnv); what != "" {
		if err := serve(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// task is what a test's server does.
type task struct {
	Dir      string
	Boot     sandbox.Boot
	Snapshot string // where to; "" = none
}

func serve(what string) error {
	var j task
	if err := json.Unmarshal([]byte(what), &j); err != nil {
		return err
	}
	p, err := New(Config{Dir: j.Dir, Cache: microvmtest.Dir()})
	if err != nil {
		return err
	}
	fmt.Println("go")
	ctx, cancel := patience.Context(context.Background(), 90*time.Second)
	defer cancel()
	m, err := p.Create(ctx, j.Boot)
	if err != nil {
		return err
	}
	fmt.Println("up")
	if j.Snapshot == "" {
		select {}
	}
	for i := 0; ; i++ {
		dir := filepath.Join(j.Snapshot, fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if err := m.Snapshot(context.Background(), dir, func(context.Context) error { return nil }); err != nil {
			return err
		}
	}
}

// server starts such a server and returns when it has said word.
func server(t *testing.T, j task, word string) (kill func()) {
	t.Helper()
	data, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+string(data))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	var said bool
	patience.Within(t, 3*time.Minute, "a server to say "+word, func() {
		for s := bufio.NewScanner(out); !said && s.Scan(); {
			said = s.Text() == word
		}
	})
	if !said {
		kill()
		t.Fatalf("the server ended before it said %q", word)
	}
	return kill
}

// clearAll does what the next server does with what it finds.
func clearAll(t *testing.T, p *Provider, after string, id sandbox.ID) {
	t.Helper()
	ids, err := p.List(t.Context())
	if err != nil || len(ids) > 1 || len(ids) == 1 && ids[0] != id {
		t.Fatalf("%s: List = %v, %v", after, ids, err)
	}
	for _, id := range ids {
		if err := p.Destroy(context.Background(), id); err != nil {
			t.Errorf("%s: %v", after, err)
		}
	}
	_ = p.Close()
	sandboxtest.Leaks(t, p.c.Dir, id)
	if t.Failed() {
		t.Fatal(after)
	}
}

// A server killed at any moment of a create: the next one lists what there is
// and removes all of it.
func TestServerKilledDuringCreate(t *testing.T) {
	open(t, t.TempDir())
	for _, ms := range []int{0, 3, 10, 30, 60, 100, 200, 400, 800, 1200} {
		dir, b := t.TempDir(), bootOf(t)
		kill := server(t, task{Dir: dir, Boot: b}, "go")
		<-time.After(time.Duration(ms) * time.Millisecond)
		kill()
		clearAll(t, open(t, dir), fmt.Sprintf("killed after %d ms of a create", ms), b.ID)
	}
}

// The same with a snapshot: the snapshot has no manifest or is whole, the
// machine goes on under the next server.
func TestServerKilledDuringSnapshot(t *testing.T) {
	open(t, t.TempDir())
	for _, ms := range []int{0, 10, 25, 50, 100, 200} {
		dir, b, snaps := t.TempDir(), bootOf(t), t.TempDir()
		kill := server(t, task{Dir: dir, Boot: b, Snapshot: snaps}, "up")
		<-time.After(time.Duration(ms) * time.Millisecond)
		kill()
		p := open(t, dir)
		m, err := p.Attach(t.Context(), b.ID)
		if err != nil {
			t.Fatalf("after %d ms: attach: %v", ms, err)
		}
		if res := sandboxtest.NewGuest(t, m).Run("/bin/echo", "alive"); res.Stdout != "alive\n" {
			t.Errorf("after %d ms: %+v", ms, res)
		}
		tryEach(t, p, snaps, b)
		clearAll(t, p, fmt.Sprintf("killed after %d ms of a snapshot", ms), b.ID)
	}
}

// tryEach loads every snapshot below dir.
func tryEach(t *testing.T, p *Provider, dir string, b sandbox.Boot) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		clone := bootOf(t)
		clone.From = filepath.Join(dir, e.Name())
		ctx, cancel := patience.Context(t.Context(), 90*time.Second)
		m, err := p.Create(ctx, clone)
		cancel()
		if err != nil && !errors.Is(err, sandbox.ErrSnapshot) {
			t.Errorf("snapshot %s of %s: %v", e.Name(), b.ID, err)
		}
		if err == nil {
			_ = m.Destroy(context.Background())
		}
		sandboxtest.Leaks(t, p.c.Dir, clone.ID)
	}
}

// snapshotOf makes a machine, saves and ends it.
func snapshotOf(t *testing.T, p *Provider) string {
	t.Helper()
	m, _ := create(t, p, bootOf(t))
	dir := t.TempDir()
	if err := m.Snapshot(t.Context(), dir, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestServerKilledDuringRestore(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir)
	snap := snapshotOf(t, p)
	for _, ms := range []int{0, 3, 10, 20, 40, 80, 160} {
		b := bootOf(t)
		b.From = snap
		kill := server(t, task{Dir: dir, Boot: b}, "go")
		<-time.After(time.Duration(ms) * time.Millisecond)
		kill()
		clearAll(t, open(t, dir), fmt.Sprintf("killed after %d ms of a restore", ms), b.ID)
	}
}

// Machines that come and go, some by force: nothing adds up.
func TestCyclesWithCrashes(t *testing.T) {
	p := open(t, t.TempDir())
	snap := snapshotOf(t, p)
	var ids []sandbox.ID
	files := 0
	for i := range 24 {
		b := bootOf(t)
		b.From = snap
		ids = append(ids, b.ID)
		ctx, cancel := patience.Context(t.Context(), 90*time.Second)
		m, err := p.Create(ctx, b)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := m.(*machine).rec.QEMU.Signal(unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		if i%3 == 0 {
			_ = m.Close()
		}
		if err := p.Destroy(t.Context(), b.ID); err != nil {
			t.Error(err)
		}
		if n := openFiles(t); i == 1 {
			files = n
		} else if i > 1 && n > files+2 {
			t.Fatalf("cycle %d: %d open files, %d after the first", i, n, files)
		}
	}
	sandboxtest.Leaks(t, p.c.Dir, ids...)
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestAKernelPanicIsNamed(t *testing.T) {
	p := open(t, t.TempDir())
	b := bootOf(t)
	b.Spec.Root = true
	m, g := create(t, p, b)
	r := sandboxtest.Start("/bin/sh", "-c", "echo c > /proc/sysrq-trigger")
	r.User = "root"
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	go func() { _, _ = g.Exec(ctx, r) }()
	e, err := m.Wait(ctx)
	if err != nil || e.Reason != sandbox.ReasonExited || !strings.Contains(e.Detail, "panicked") || !strings.Contains(e.Detail, "sysrq") {
		t.Errorf("exit = %+v, %v", e, err)
	}
	if _, err := m.Dial(t.Context(), wire.ControlPort); !errs.Is(err, errs.Unavailable) {
		t.Errorf("dial: %v", err)
	}
}

// A QEMU that does not move holds no caller longer than its context allows.
func TestAWedgedMachineKeepsDeadlinesAndCanBeDestroyed(t *testing.T) {
	p := open(t, t.TempDir())
	b := bootOf(t)
	m, _ := create(t, p, b)
	m.Guest().Close()
	if err := m.(*machine).rec.QEMU.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(context.Context) error{
		"dial": func(ctx context.Context) error {
			c, err := m.Dial(ctx, wire.ControlPort)
			if err == nil {
				_ = c.Close()
			}
			return err
		},
		"pause":    m.Pause,
		"snapshot": func(ctx context.Context) error { return m.Snapshot(ctx, t.TempDir(), nil) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		patience.Within(t, 25*time.Second, name+" to give up", func() {
			if err := call(ctx); err == nil {
				t.Errorf("%s: no error", name)
			}
		})
		cancel()
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	sandboxtest.Leaks(t, p.c.Dir, b.ID)
}

// Without its workspace a machine is none.
func TestACorruptDiskIsNoMachine(t *testing.T) {
	p := open(t, t.TempDir())
	for name, spoil := range map[string]func(path string) error{
		"zeros":   func(path string) error { return errors.Join(os.Truncate(path, 0), os.Truncate(path, 64<<20)) },
		"no file": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		b := bootOf(t)
		if err := spoil(b.Disk); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := patience.Context(t.Context(), time.Minute)
		_, err := p.Create(ctx, b)
		if err == nil || ctx.Err() != nil {
			t.Errorf("%s: create: %v", name, err)
		}
		cancel()
		if ids, err := p.List(t.Context()); err != nil || slices.Contains(ids, b.ID) {
			t.Errorf("%s: List = %v, %v", name, ids, err)
		}
		sandboxtest.Leaks(t, p.c.Dir, b.ID)
	}
}

// Whatever single trace is left of a machine, it is listed and removed.
func TestHalfMadeIsListedAndRemoved(t *testing.T) {
	p := open(t, t.TempDir())
	for name, leave := range map[string]func(id sandbox.ID) error{
		"directory": func(id sandbox.ID) error { return os.Mkdir(p.dir(id), 0o700) },
		"broken record": func(id sandbox.ID) error {
			return errors.Join(os.Mkdir(p.dir(id), 0o700), os.WriteFile(filepath.Join(p.dir(id), recordName), []byte("{"), 0o600))
		},
		"control group": func(id sandbox.ID) error {
			if p.cgroups == nil {
				return os.Mkdir(p.dir(id), 0o700)
			}
			return p.group(id).Make("memory")
		},
	} {
		id := sandbox.NewID()
		if err := leave(id); err != nil {
			t.Fatal(err)
		}
		if ids, err := p.List(t.Context()); err != nil || !slices.Contains(ids, id) {
			t.Errorf("%s: List = %v, %v", name, ids, err)
		}
		for range 2 {
			if err := p.Destroy(context.Background(), id); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		sandboxtest.Leaks(t, p.c.Dir, id)
	}
}

// QEMU is on the host a process without root, capabilities and network.
func TestQEMUIsConfined(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without root QEMU is the server's user")
	}
	p := open(t, t.TempDir())
	m, _ := create(t, p, bootOf(t))
	pid := m.(*machine).rec.QEMU.PID
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	facts := map[string]string{}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		facts[key] = strings.Join(strings.Fields(value), " ")
	}
	for key, want := range map[string]string{"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2", "Groups": ""} {
		if facts[key] != want {
			t.Errorf("%s = %q, want %q", key, facts[key], want)
		}
	}
	if uid := strings.Fields(facts["Uid"]); uid[0] == "0" || uid[0] != uid[1] || uid[1] != uid[2] {
		t.Errorf("Uid = %v", uid)
	}
	ours, _ := os.Readlink("/proc/self/ns/net")
	if theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil || theirs == ours {
		t.Errorf("network namespace %s, %v", theirs, err)
	}
}
