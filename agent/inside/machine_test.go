package inside_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool/backend/guest"
	"github.com/skete-dev/skete/tool/tooltest/machine"
)

// inMachineOf makes the house's machine a real guest, in which the real program works.
func (h *house) inMachineOf(m *machine.Machine) {
	h.t.Helper()
	path := guesttest.Agent(h.t)
	content, err := os.ReadFile(path)
	must(h.t, err)
	sum := sha256.Sum256(content)
	is := wire.AgentProgram{Hash: hex.EncodeToString(sum[:]), Bytes: int64(len(content))}
	h.real = func(ctx context.Context) (net.Conn, error) {
		return m.Client.BeginAgent(ctx, is, func() (io.ReadCloser, error) { return os.Open(path) })
	}
	h.disk, h.realCommands = guest.NewFiles(m.Client), guest.NewCommands(m.Client)
	h.dir = m.Workdir
	h.driver = inMachine
}

// agents are the processes of the program, by their pids.
func agents(t testing.TB) (pids []string) {
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, f := range list {
		if line, _ := os.ReadFile(f); strings.HasPrefix(string(line), "skete-agent\x00") {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// In a real machine the real program works as the commands' user, with no capability;
// commands run beside it as ever, and cannot look into it.
func TestMachine(t *testing.T) {
	m := machine.Start(t)
	look := `for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -q '^skete-agent ' || continue; ` +
		`grep -E '^(Uid|CapEff|CapPrm|NoNewPrivs)' $p/status; ` +
		`for f in environ mem maps fd/3 fd/4; do if head -c 1 $p/$f >/dev/null 2>&1; then echo "READ $f"; fi; done; ls $p/fd >/dev/null 2>&1 && echo "LISTED fd"; done; echo looked`
	sc := scenario{reply: replies(
		blocks(call("c1", "execute", fmt.Sprintf(`{"command":%q}`, look))),
		blocks(call("c2", "write_file", fmt.Sprintf(`{"file_path":"%s/a.txt","content":"from inside\n"}`, m.Workdir)), call("c3", "execute", `{"command":"cat a.txt; id -u"}`)),
		blocks(call("c4", "execute", fmt.Sprintf(`{"command":%q}`, `cd /; for d in $(seq 3 9); do (cat <&$d) 2>/dev/null; done; echo none`))),
		blocks(llm.Text("done")))}
	h := newHouse(t, sc)
	h.inMachineOf(m)
	h.drive(sc)
	s := h.state()
	if s.Run.Ended.State != thread.RunSucceeded {
		t.Fatalf("it ended as %+v", s.Run.Ended)
	}
	saw := llm.Message{Blocks: s.Call("c1").Completed.Blocks}.String()
	if !strings.Contains(saw, "Uid:") || strings.Contains(saw, "READ") || strings.Contains(saw, "LISTED") || !strings.Contains(saw, "NoNewPrivs:\t1") {
		t.Errorf("a command sees of the agent:\n%s", saw)
	}
	if os.Getuid() == 0 && (!strings.Contains(saw, "Uid:\t1000\t1000\t1000\t1000") || !strings.Contains(saw, "CapEff:\t0000000000000000") || !strings.Contains(saw, "CapPrm:\t0000000000000000")) {
		t.Errorf("the agent is:\n%s", saw)
	}
	if got := (llm.Message{Blocks: s.Call("c3").Completed.Blocks}).String(); !strings.Contains(got, "from inside") {
		t.Errorf("the command read %q", got)
	}
	content, err := os.ReadFile(filepath.Join(m.Workdir, "a.txt"))
	if err != nil || string(content) != "from inside\n" {
		t.Errorf("the file is %q, %v", content, err)
	}
	patience.Until(t, 30*time.Second, "no agent is left", func() bool { return len(agents(t)) == 0 })
}

// An agent that is killed in the middle of a command is followed by another one, which
// finds what the command did.
func TestMachine_agentIsKilled(t *testing.T) {
	m := machine.Start(t)
	sc := scenario{reply: replies(
		blocks(call("c1", "execute", `{"command":"echo begun >> log; while [ ! -e go ]; do sleep 0.05; done; echo ended >> log; cat log"}`)),
		blocks(llm.Text("done")))}
	h := newHouse(t, sc)
	h.inMachineOf(m)
	h.wire = func(c net.Conn) net.Conn { return c } // its end is no surprise
	driven := make(chan struct{})
	go func() {
		defer close(driven)
		h.drive(sc)
	}()
	log := filepath.Join(m.Workdir, "log")
	there := func() bool { _, err := os.Stat(log); return err == nil }
	patience.Until(t, 60*time.Second, "the command has begun", there)
	first := agents(t)
	if len(first) != 1 {
		t.Fatalf("there are the agents %v", first)
	}
	kill(t, first[0])
	patience.Until(t, 60*time.Second, "another agent has come", func() bool {
		now := agents(t)
		return len(now) == 1 && now[0] != first[0]
	})
	must(t, os.WriteFile(filepath.Join(m.Workdir, "go"), nil, 0o644))
	<-driven
	content, err := os.ReadFile(log)
	if err != nil || string(content) != "begun\nended\n" {
		t.Errorf("the command did %q, %v", content, err)
	}
	if got := (llm.Message{Blocks: h.state().Call("c1").Completed.Blocks}).String(); !strings.Contains(got, "begun\nended") {
		t.Errorf("its result is %q", got)
	}
}

func kill(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	must(t, err)
	must(t, syscall.Kill(n, syscall.SIGKILL))
}
