package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/launch"
)

// wrongUsages are command lines that make no sense.
var wrongUsages = []string{
	"bogus", "vm exce", "vm create extra", "vm create --flagless", "vm list extra", "serve extra", "status extra",
	"vm create --mem lots", "vm create --mem -1", "vm create --cpus -1", "vm create --disk 1.5", "vm create --ttl soon", "vm create --idle x",
	"vm create --env =x", "vm create --meta novalue", "vm create --require steel",
	"vm list --state bogus", "vm list --meta novalue",
	"vm exec", "vm exec ID", "vm exec ID --cmd true -- false", "vm exec ID ls -- x", "vm exec ID --cmd true --timeout soon", "vm exec ID --cmd true --env =x",
	"vm exec ID --key e2b_secret --cmd true", "vm exec ID --file nothere.py", "vm exec ID --cmd true --all", "vm exec --all --vm x --cmd true",
	"vm run", "vm temp", "vm temp true", "vm temp --cmd true --timeout soon", "vm temp --cmd true --mem lots",
	"vm shell ID", "vm attach ID key --from x", "vm attach a b c", "vm kill ID key -s NOPE", "vm kill", "vm forward", "vm forward ID notaport", "vm forward ID",
	"vm fork ID --count 0", "vm fork ID --count 1000", "vm clean --all", "vm clean", "vm stop --all ID", "vm inspect --all ID",
	"cp a b", "cp a:b c:d", "cp a", "cp ./nothere ID:x",
	"key create", "key create --name x --scope everything", "key revoke", "tenant erase x", "template build", "template build /nothere --name x", "template prepare", "template rm", "template pull",
	"run", "run x --schema nothere", "run x --budget-cost none", "run x --timeout soon", "run x --label novalue", "runs --state bogus",
	"show", "attach", "send", "cancel", "fork", "fork RUN --at x", "rewind RUN", "rewind RUN --to x", "replay", "resume", "resume RUN --budget-steps x", "approve RUN --reply", "agent validate nothere", "agent show",
	"schedule add", "schedule add a x", "schedule add a x --every soon", "schedule add a --every 1h", "schedule show", "schedule ls extra", "schedule bogus",
	"history ID ID2", "undo ID --to x", "undo ID --run", "revert ID", "revert ID x", "restore ID", "restore ID x", "history move x",
	"service add ID", "service add ID web", "service add ID web --http x -- true", "service add", "service logs", "service stop", "preview open", "preview open ID x", "preview share ID 5173 --for soon", "preview revoke",
	"doctor --provider steel", "fsck extra", "stop --timeout soon", "--log-level loud vm list",
}

// A wrong command line is status 2, says so in one line, and starts no server.
func TestWrongUsageStartsNoServer(t *testing.T) {
	w := &world{t: t, dir: bin(t), home: filepath.Join(t.TempDir(), "home"), provider: "process"}
	for _, line := range wrongUsages {
		args := strings.Fields(line)
		cmd := w.command(args...)
		cmd.Dir = t.TempDir()
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		out, err := cmd.Output()
		if status(err) != 2 || !strings.HasPrefix(errOut.String(), "skete: ") || len(out) > 0 {
			t.Errorf("skete %s: status %d, stdout %q\n%s", line, status(err), out, errOut.String())
		}
		if _, err := os.Stat(w.home); err == nil {
			t.Errorf("skete %s started a server", line)
			endServer(t, w.dir, w.home, "process")
			if err := os.RemoveAll(w.home); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What is not UTF-8 would be changed on its way: it is refused, with the name
// of its field, and nothing is made.
func TestTextThatIsNotUTF8IsWrongUsage(t *testing.T) {
	w := newWorld(t, "process")
	id, broken := w.run("vm", "create", "-q"), "a\xff"
	for _, tt := range []struct {
		field string
		args  []string
	}{
		{"name", []string{"vm", "create", "--name", broken}},
		{"metadata.k", []string{"vm", "create", "--meta", "k=" + broken}},
		{"env.K", []string{"vm", "create", "--env", "K=" + broken}},
		{"argv[1]", []string{"service", "add", id, "web", "--", "echo", broken}},
		{"command", []string{"service", "add", id, "web", "--cmd", broken}},
		{"env.K", []string{"service", "add", id, "web", "--env", "K=" + broken, "--", "true"}},
		{"task", []string{"run", broken, "--model", "script/none"}},
		{"title", []string{"run", "task", "--title", broken, "--model", "script/none"}},
		{"labels.k", []string{"run", "task", "--label", "k=" + broken, "--model", "script/none"}},
	} {
		got := w.try(tt.args...)
		if got.status != 2 || !strings.Contains(got.errOut, "skete: "+tt.field+" is not UTF-8") {
			t.Errorf("%q: %+v", tt.args, got)
		}
	}
	if left := w.run("vm", "list", "-q"); left != id {
		t.Errorf("sandboxes: %q, want %s alone", left, id)
	}
	if left := w.run("service", "list", id, "-q"); left != "" {
		t.Errorf("a service was declared: %q", left)
	}
}

func TestNearNamesAreProposed(t *testing.T) {
	w := &world{t: t, dir: bin(t), home: filepath.Join(t.TempDir(), "home"), provider: "process"}
	for line, near := range map[string]string{
		"vm exce": "`skete vm exec`", "vm creat": "`skete vm create`", "stauts": "`skete status`", "histroy ID": "`skete history`", "template ls-all": "",
		"vm create --memroy 5": "--memory?", "vm list --sate running": "--state?", "run x --modell y": "--model?", "vm exec --tiemout 5": "--timeout?", "vm exec --xyzzy": "",
	} {
		out, err := w.command(strings.Fields(line)...).CombinedOutput()
		got := ""
		if _, rest, ok := strings.Cut(string(out), "did you mean "); ok {
			got = rest
		}
		if status(err) != 2 || near == "" && got != "" || !strings.HasPrefix(got, near) {
			t.Errorf("skete %s: proposes %q, want %q\n%s", line, got, near, out)
		}
	}
}

// A Ctrl-C while nothing has answered yet must not be taken for the answer that
// there is no server.
func TestCtrlCStartsNoServer(t *testing.T) {
	w := &world{t: t, dir: bin(t), home: filepath.Join(t.TempDir(), "home"), provider: "process"}
	if err := os.Mkdir(w.home, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", client.SocketPath(w.home)) // takes connections, says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	reached := make(chan struct{})
	go func() {
		conn, err := l.Accept()
		if err == nil {
			defer conn.Close()
			close(reached)
			_, _ = conn.Read(make([]byte, 1))
			_, _ = conn.Read(make([]byte, 1<<20))
		}
	}()
	cmd := w.command("vm", "list")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-reached
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); status(err) != 128+int(syscall.SIGINT) {
		t.Errorf("ended with %v\n%s", err, errOut.String())
	}
	if _, err := os.Stat(launch.LogPath(w.home)); err == nil {
		t.Errorf("a server was started:\n%s", errOut.String())
	}
}

// TestThreeCtrlCsLeaveAnExec: of a command that ignores them, and of a server
// that answers nothing any more.
func TestThreeCtrlCsLeaveAnExec(t *testing.T) {
	w := newWorld(t, "process")
	id := w.run("vm", "create", "-q")
	for _, hang := range []bool{false, true} {
		cmd := w.command("vm", "exec", id, "-n", "--cmd", `trap '' INT; echo ready; while :; do read x < /dev/zero; done`)
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		pid := pidOf(w.home)
		if hang {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for range 3 {
			_ = cmd.Process.Signal(os.Interrupt)
			<-time.After(100 * time.Millisecond) // signals of one kind that are pending are one
		}
		err := cmd.Wait()
		if hang {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		if status(err) != 128+int(syscall.SIGINT) {
			t.Errorf("hang %v: ended with %v after %s", hang, err, time.Since(began))
		}
		want := " was killed"
		if hang {
			want = " may go on"
		}
		if !strings.Contains(errOut.String(), want) {
			t.Errorf("hang %v: it does not say that the command%s:\n%s", hang, want, errOut.String())
		}
	}
}

// TestCleanAsks at a terminal: what was shown is destroyed, or nothing.
func TestCleanAsks(t *testing.T) {
	w := newWorld(t, "process")
	id := w.run("vm", "create", "-q", "--name", "doomed")
	for _, answer := range []string{"n", "", "y"} {
		master, tty, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		cmd := w.command("vm", "clean", "--all")
		cmd.Stdin = tty
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if _, err := master.WriteString(answer + "\n"); err != nil {
			t.Fatal(err)
		}
		err = cmd.Run()
		_, _ = master.Close(), tty.Close()
		if !strings.Contains(errOut.String(), id+" doomed running") || !strings.Contains(errOut.String(), "Destroy this sandbox with its files? [y/N]") {
			t.Errorf("%q: it does not show what it destroys:\n%s", answer, errOut.String())
		}
		want, left := 4, id
		if answer == "y" {
			want, left = 0, ""
		}
		if got := w.run("vm", "list", "-q"); status(err) != want || got != left {
			t.Errorf("%q: status %d, left %q", answer, status(err), got)
		}
	}
}

// TestUndoAsks at a terminal: a no is no wrong usage, and changes nothing.
func TestUndoAsks(t *testing.T) {
	w := newWorld(t, "process")
	w.run("vm", "create", "-q", "--name", "demo")
	w.run("vm", "exec", "demo", "-n", "--cmd", "echo kept > file")
	w.run("vm", "exec", "demo", "-n", "--cmd", "echo newer > file")
	for _, tt := range []struct {
		answer, left string
		status       int
	}{{"n", "newer", 4}, {"", "newer", 4}, {"y", "kept", 0}} {
		master, tty, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		cmd := w.command("undo", "demo")
		cmd.Stdin = tty
		if _, err := master.WriteString(tt.answer + "\n"); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		_, _ = master.Close(), tty.Close()
		if left := w.run("vm", "exec", "demo", "-n", "--", "cat", "file"); status(err) != tt.status || left != tt.left {
			t.Errorf("%q: status %d, the file says %q:\n%s", tt.answer, status(err), left, out)
		}
	}
}

// TestExport_toATerminal is refused before a server is started for it.
func TestExport_toATerminal(t *testing.T) {
	w := newWorld(t, "process")
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	cmd := w.command("history", "export", "demo")
	cmd.Stdout = tty
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	err = cmd.Run()
	_ = tty.Close()
	if status(err) != 2 || !strings.Contains(errOut.String(), "use --git DIR") {
		t.Errorf("status %d: %s", status(err), errOut.String())
	}
	if _, err := os.Stat(w.home); !os.IsNotExist(err) {
		t.Errorf("a server was started, or its directory made: %v", err)
	}
}
