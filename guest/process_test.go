package guest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

func (m *machine) start(req *wire.StartRequest) *wire.ProcessInfo {
	m.t.Helper()
	r, err := m.client.Process.Start(background(m.t), connect.NewRequest(req))
	if err != nil {
		m.t.Fatal(err)
	}
	return r.Msg.Process
}

func (m *machine) wait(key string) *wire.ProcessInfo {
	m.t.Helper()
	r, err := m.client.Process.Wait(background(m.t), connect.NewRequest(&wire.WaitRequest{Key: key, WaitMs: 60_000}))
	if err != nil {
		m.t.Fatal(err)
	}
	return r.Msg.Process
}

func (m *machine) get(key string) *wire.ProcessInfo {
	m.t.Helper()
	r, err := m.client.Process.Get(background(m.t), connect.NewRequest(&wire.GetProcessRequest{Key: key}))
	if err != nil {
		m.t.Fatal(err)
	}
	return r.Msg.Process
}

func (m *machine) signal(key string, sig int32) {
	m.t.Helper()
	if _, err := m.client.Process.Signal(background(m.t), connect.NewRequest(&wire.SignalRequest{Key: key, Signal: sig})); err != nil {
		m.t.Fatal(err)
	}
}

// output waits until a process has written something that contains s.
func (m *machine) output(key, s string) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%s wrote %q", key, s), func() bool {
		r, err := m.attach(&wire.AttachRequest{Key: key, NoFollow: true})
		return err == nil && strings.Contains(r.out.String(), s)
	})
}

func TestExec_commandsSeeWhatTheyShould(t *testing.T) {
	m := start(t, options{change: func(b *wire.Boot) { b.Env["FROM_BOX"] = "yes" }})
	for name, c := range map[string]struct {
		req  *wire.StartRequest
		want string
	}{
		"environment":       {&wire.StartRequest{Argv: sh(`echo $FROM_BOX $MINE $SKETE_SANDBOX $SKETE_PROCESS $USER`), Key: "env", Env: map[string][]byte{"MINE": []byte("a b")}}, "yes a b sbx_test env user\n"},
		"working directory": {&wire.StartRequest{Argv: sh("pwd"), Cwd: []byte("/")}, "/\n"},
		"default directory": {&wire.StartRequest{Argv: sh("pwd")}, m.boot.Workdir + "\n"},
		"user":              {&wire.StartRequest{Argv: sh("id -u; id -g; id -G")}, fmt.Sprintf("%d\n%d\n%d\n", m.boot.UID, m.boot.GID, m.boot.GID)},
		"no stdin":          {&wire.StartRequest{Argv: argv("cat")}, ""},
		"descriptors":       {&wire.StartRequest{Argv: sh("ls /proc/self/fd | wc -l")}, "4\n"}, // 0 1 2 and the listing itself
		"rlimits":           {&wire.StartRequest{Argv: sh("ulimit -n; ulimit -Hn"), Rlimits: []*wire.Rlimit{{Name: "nofile", Soft: 77, Hard: 99}}}, "77\n99\n"},
		"no core files":     {&wire.StartRequest{Argv: sh("ulimit -c")}, "0\n"},
		"own session":       {&wire.StartRequest{Argv: sh(`set -- $(cat /proc/$$/stat); [ $1 = $5 ] && [ $1 = $6 ] && echo leads`)}, "leads\n"},
		"no new privileges": {&wire.StartRequest{Argv: sh("grep NoNewPrivs /proc/self/status")}, "NoNewPrivs:\t1\n"},
		"no capabilities":   {&wire.StartRequest{Argv: sh("grep -E 'Cap(Eff|Prm|Amb)' /proc/self/status | cut -f2 | sort -u")}, "0000000000000000\n"},
		"default signals":   {&wire.StartRequest{Argv: sh("grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f2 | sort -u")}, "0000000000000000\n"},
		"its own stderr":    {&wire.StartRequest{Argv: sh("echo x > /dev/stderr && echo could")}, "could\n"},
		"odd bytes":         {&wire.StartRequest{Argv: [][]byte{[]byte("printf"), []byte("%s"), {0xff, '\n', '"', 0x80}}}, "\xff\n\"\x80"},
	} {
		r, err := m.exec(c.req)
		if err != nil || r.out.String() != c.want || r.exit.GetExit().GetCode() != 0 {
			t.Errorf("%s: got %q and %q, %v, %v, want %q", name, &r.out, &r.err, r.exit, err, c.want)
		}
	}
}

func TestExec_errorsSayWhoMustAct(t *testing.T) {
	m := start(t, options{})
	if err := os.WriteFile(filepath.Join(m.boot.Workdir, "script"), []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.boot.Workdir, "garbage"), []byte("\x00\x01\x02"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		req  *wire.StartRequest
		want errs.Class
		text string
	}{
		"unknown command":     {&wire.StartRequest{Key: "again", Argv: argv("no-such-command")}, errs.NotFound, "command not found: no-such-command"},
		"no interpreter":      {&wire.StartRequest{Argv: argv("./script")}, errs.NotFound, "interpreter"},
		"not a program":       {&wire.StartRequest{Argv: argv("./garbage")}, errs.Denied, "not executable"},
		"no directory":        {&wire.StartRequest{Argv: argv("true"), Cwd: []byte("/no/such")}, errs.Invalid, "working directory"},
		"root":                {&wire.StartRequest{Argv: argv("true"), User: "root"}, errs.Denied, "root"},
		"a file as directory": {&wire.StartRequest{Argv: argv("true"), Cwd: []byte(m.boot.Workdir + "/script")}, errs.Invalid, "working directory"},
	} {
		if _, err := m.exec(c.req); !errs.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v (%s), want %s with %q", name, err, errs.Of(err), c.want, c.text)
		}
	}
	// A start that failed has not used its key.
	if r := m.mustExec(&wire.StartRequest{Key: "again", Argv: argv("true")}); r.exit.GetExit().GetCode() != 0 {
		t.Errorf("%v", r.exit)
	}
	for name, call := range map[string]func() error{
		"attach": func() error { _, err := m.attach(&wire.AttachRequest{Key: "nobody"}); return err },
		"get": func() error {
			_, err := m.client.Process.Get(background(t), connect.NewRequest(&wire.GetProcessRequest{Key: "nobody"}))
			return wire.Err(err)
		},
		"signal": func() error {
			_, err := m.client.Process.Signal(background(t), connect.NewRequest(&wire.SignalRequest{Key: "nobody", Signal: 9}))
			return wire.Err(err)
		},
	} {
		if err := call(); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s of an unknown key: %v", name, err)
		}
	}
	if _, err := m.attach(&wire.AttachRequest{Key: "again", StdoutFrom: 5}); !errs.Is(err, errs.Invalid) {
		t.Errorf("attach beyond the end: %v", err)
	}
}

func TestStart_keyIsKnownUntilForget(t *testing.T) {
	m := start(t, options{})
	req := &wire.StartRequest{Key: "once", Argv: sh("echo ran >> log; echo hi")}
	for i := range 3 {
		r, err := m.client.Process.Start(background(t), connect.NewRequest(req))
		if err != nil || r.Msg.Existed != (i > 0) {
			t.Fatalf("start %d: %v, %v", i, r, err)
		}
		m.wait("once")
	}
	if data, _ := os.ReadFile(filepath.Join(m.boot.Workdir, "log")); string(data) != "ran\n" {
		t.Errorf("side effects: %q", data)
	}
	if _, err := m.client.Process.Forget(background(t), connect.NewRequest(&wire.ForgetRequest{Key: "once"})); err != nil {
		t.Fatal(err)
	}
	if files, _ := os.ReadDir(filepath.Join(m.boot.StateDir, "p")); len(files) != 0 {
		t.Errorf("left of the spool: %v", files)
	}
	if r := m.mustExec(req); r.out.String() != "hi\n" {
		t.Errorf("after forget: %q", &r.out)
	}
	m.start(&wire.StartRequest{Key: "runs", Argv: argv("sleep", "60")})
	if _, err := m.client.Process.Forget(background(t), connect.NewRequest(&wire.ForgetRequest{Key: "runs"})); !errs.Is(wire.Err(err), errs.Conflict) {
		t.Errorf("forget of a running process: %v", err)
	}
}

func TestStart_keyOfAnEarlierBootIsLost(t *testing.T) {
	dir := scratch(t)
	m := start(t, options{dir: dir})
	m.mustExec(&wire.StartRequest{Key: "old", Argv: sh("echo ran >> log; exit 3")})
	m.stop()
	m = start(t, options{dir: dir})
	r, err := m.client.Process.Start(background(t), connect.NewRequest(&wire.StartRequest{Key: "old", Argv: sh("echo ran >> log")}))
	if err != nil || !r.Msg.Existed || r.Msg.Process.State != wire.ProcessState_PROCESS_STATE_LOST || r.Msg.Process.Exit != nil {
		t.Fatalf("%v, %v", r, err)
	}
	got, err := m.attach(&wire.AttachRequest{Key: "old"})
	if err != nil || got.exit.GetState() != wire.ProcessState_PROCESS_STATE_LOST {
		t.Errorf("attach: %v, %v", got, err)
	}
	if data, _ := os.ReadFile(filepath.Join(m.boot.Workdir, "log")); string(data) != "ran\n" {
		t.Errorf("side effects: %q", data)
	}
}

// TestStart_keyOfAnotherCommandIsRefused: within one boot, after an eviction
// from memory as well, and of keys that the host remembers.
func TestStart_keyOfAnotherCommandIsRefused(t *testing.T) {
	m := start(t, options{})
	start := func(key, what string) (*wire.StartResponse, error) {
		r, err := m.client.Process.Start(background(t), connect.NewRequest(&wire.StartRequest{Key: key, Argv: sh("echo " + what + " >> log"), Fingerprint: []byte(what)}))
		if err != nil {
			return nil, wire.Err(err)
		}
		return r.Msg, nil
	}
	if r, err := start("k", "one"); err != nil || r.Existed {
		t.Fatalf("the first: %v, %v", r, err)
	}
	m.wait("k")
	if r, err := start("k", "one"); err != nil || !r.Existed {
		t.Errorf("the same again: %v, %v", r, err)
	}
	if _, err := start("k", "two"); !errs.Is(err, errs.Conflict) {
		t.Errorf("another command: %v", err)
	}
	remember := &wire.RememberRequest{Keys: []*wire.UsedKey{{Key: "k", Fingerprint: []byte("zero")}, {Key: "old", Fingerprint: []byte("one")}, {Key: "bare"}}}
	if _, err := m.client.Process.Remember(background(t), connect.NewRequest(remember)); err != nil {
		t.Fatal(err)
	}
	for key, state := range map[string]wire.ProcessState{"k": wire.ProcessState_PROCESS_STATE_EXITED, "old": wire.ProcessState_PROCESS_STATE_LOST, "bare": wire.ProcessState_PROCESS_STATE_LOST} {
		if r, err := start(key, "one"); err != nil || !r.Existed || r.Process.State != state {
			t.Errorf("%s: %v, %v", key, r, err)
		}
	}
	if _, err := start("old", "two"); !errs.Is(err, errs.Conflict) {
		t.Errorf("another command with a key of an earlier boot: %v", err)
	}
	if data, _ := os.ReadFile(filepath.Join(m.boot.Workdir, "log")); string(data) != "one\n" {
		t.Errorf("side effects: %q", data)
	}
	if _, err := m.client.Process.Forget(background(t), connect.NewRequest(&wire.ForgetRequest{Key: "old"})); err != nil {
		t.Fatal(err)
	}
	if r, err := start("old", "two"); err != nil || r.Existed {
		t.Errorf("after forget: %v, %v", r, err)
	}
	for _, bad := range []*wire.UsedKey{{Key: ""}, {Key: "a b"}, {Key: "x", Fingerprint: make([]byte, 65)}} {
		if _, err := m.client.Process.Remember(background(t), connect.NewRequest(&wire.RememberRequest{Keys: []*wire.UsedKey{bad}})); !errs.Is(wire.Err(err), errs.Invalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestSignal_reachesTheGroupAndIsReported(t *testing.T) {
	m := start(t, options{})
	m.start(&wire.StartRequest{Key: "trap", Argv: sh(`trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.01; done`)})
	m.output("trap", "ready")
	m.signal("trap", 15)
	if p := m.wait("trap"); p.Exit.GetCode() != 5 || p.Exit.Signal != 0 || p.Exit.Reason != "" {
		t.Errorf("trapped: %v", p.Exit)
	}
	m.start(&wire.StartRequest{Key: "kill", Argv: sh(`sleep 300 & echo ready; wait`)})
	m.output("kill", "ready")
	m.signal("kill", 9)
	if p := m.wait("kill"); p.Exit.GetCode() != 137 || p.Exit.Signal != 9 || p.Exit.Reason != "killed" {
		t.Errorf("killed: %v", p.Exit)
	}
	eventually(t, "the child of the killed one is gone", func() bool { return m.alive() == 0 })
}

func (m *machine) alive() uint32 {
	m.t.Helper()
	r, err := m.client.Control.Metrics(background(m.t), connect.NewRequest(&wire.MetricsRequest{}))
	if err != nil {
		m.t.Fatal(err)
	}
	return r.Msg.Processes
}

func TestTimeout_endsTheCommandAndWhatLeftItsGroup(t *testing.T) {
	m := start(t, options{})
	r := m.mustExec(&wire.StartRequest{Argv: sh(`trap 'echo told' TERM; setsid sleep 4321 & echo $!; (setsid setsid sleep 4322 &) ; while :; do sleep 1; done`), TimeoutMs: 300})
	if r.exit.Exit.GetReason() != "timeout" || r.exit.Exit.Code != 137 {
		t.Errorf("%v", r.exit.Exit)
	}
	if !strings.HasSuffix(r.out.String(), "\ntold\n") {
		t.Errorf("%q: KILL came before TERM", &r.out)
	}
	eventually(t, "no sleeper is left", func() bool {
		r := m.mustExec(&wire.StartRequest{Argv: sh(`cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' | grep -c 'sleep 43[2]' || true`)})
		return r.out.String() == "0\n"
	})
	r = m.mustExec(&wire.StartRequest{Argv: sh("sleep 60"), TimeoutMs: 50})
	if r.exit.Exit.GetReason() != "timeout" || r.exit.Exit.Code != 143 {
		t.Errorf("%v", r.exit.Exit)
	}
}

func TestExec_exitedComesWhenDescendantsKeepTheOutputOpen(t *testing.T) {
	m := start(t, options{})
	// The descendant ends after the call has: it waits for a file.
	r := m.mustExec(&wire.StartRequest{Key: "daemon", Argv: sh(`(until [ -e go ]; do sleep 0.05; done; echo late) & echo early; exit 4`)})
	if r.out.String() != "early\n" || r.exit.Exit.GetCode() != 4 {
		t.Errorf("%q, %v", &r.out, r.exit.Exit)
	}
	m.mustExec(&wire.StartRequest{Argv: sh(`> go`)})
	eventually(t, "what came later is kept", func() bool { return m.get("daemon").Stdout.Size == int64(len("early\nlate\n")) })
	late, err := m.attach(&wire.AttachRequest{Key: "daemon", StdoutFrom: 6})
	if err != nil || late.out.String() != "late\n" {
		t.Errorf("%q, %v", &late.out, err)
	}
}

func TestAttach_fromAnyOffsetAndSeveralAtOnce(t *testing.T) {
	m := start(t, options{})
	m.start(&wire.StartRequest{Key: "seq", Argv: sh("seq 1 200000")})
	m.wait("seq")
	whole, err := m.attach(&wire.AttachRequest{Key: "seq"})
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []int64{0, 1, 777_777, 1 << 20, 1<<20 + 1, int64(whole.out.Len()) - 1, int64(whole.out.Len())} {
		r, err := m.attach(&wire.AttachRequest{Key: "seq", StdoutFrom: from})
		if err != nil || !bytes.Equal(r.out.Bytes(), whole.out.Bytes()[from:]) {
			t.Errorf("from %d: %d bytes, %v", from, r.out.Len(), err)
		}
	}
	r, err := m.attach(&wire.AttachRequest{Key: "seq", StdoutFrom: -1})
	if err != nil || r.out.Len() != 0 || r.exit == nil {
		t.Errorf("from the end: %d bytes, %v", r.out.Len(), err)
	}
}

func TestOutput_isBoundedAndTheCutIsStated(t *testing.T) {
	m := start(t, options{})
	total := int64(10_000_000_000)
	if testing.Short() {
		total = 1_000_000_000
	}
	m.start(&wire.StartRequest{Key: "flood", Argv: sh(fmt.Sprintf("head -c %d /dev/zero; echo end", total))})
	p := m.wait("flood")
	eventually(t, "the stream is whole", func() bool { p = m.get("flood"); return p.Stdout.Eof })
	if p.Stdout.Size != total+4 || p.Stdout.HeadEnd != 1<<20 || p.Stdout.Size-p.Stdout.TailStart > 16<<20 {
		t.Errorf("%v", p.Stdout)
	}
	if n := diskUse(t, filepath.Join(m.boot.StateDir, "p")); n > 18<<20 {
		t.Errorf("%d bytes on disk", n)
	}
	r, err := m.attach(&wire.AttachRequest{Key: "flood"})
	if err != nil || r.gaps != p.Stdout.TailStart-p.Stdout.HeadEnd || int64(r.out.Len())+r.gaps != p.Stdout.Size || !bytes.HasSuffix(r.out.Bytes(), []byte("end\n")) {
		t.Errorf("%d bytes, %d in gaps, %v, %v", r.out.Len(), r.gaps, p.Stdout, err)
	}
}

func diskUse(t *testing.T, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
	}
	return n
}

func TestOutput_allSpoolsTogetherAreBounded(t *testing.T) {
	const most = 8 << 20
	m := start(t, options{change: func(b *wire.Boot) { b.OutputBytesMax = most }})
	for i := range 12 {
		m.mustExec(&wire.StartRequest{Key: fmt.Sprint("p", i), Argv: sh("head -c 3000000 /dev/zero")})
	}
	if n := diskUse(t, filepath.Join(m.boot.StateDir, "p")); n > most+(4<<20) {
		t.Errorf("%d bytes on disk", n)
	}
	first, last := m.get("p0"), m.get("p11")
	if first.Stdout.Size != 3_000_000 || first.Stdout.TailStart != 3_000_000 || first.Stdout.HeadEnd != 0 || first.Exit.GetCode() != 0 {
		t.Errorf("the oldest: %v", first)
	}
	if last.Stdout.TailStart != last.Stdout.HeadEnd {
		t.Errorf("the newest: %v", last)
	}
	if r, err := m.attach(&wire.AttachRequest{Key: "p0"}); err != nil || r.gaps != 3_000_000 {
		t.Errorf("attach to the oldest: %d in gaps, %v", r.gaps, err)
	}
}

func TestOutput_waitsForASlowReaderThatVanishesAndReturns(t *testing.T) {
	m := start(t, options{})
	total := 60_000_000
	if testing.Short() {
		total = 20_000_000
	}
	m.start(&wire.StartRequest{Key: "slow", Argv: sh(fmt.Sprintf("seq 1 100000000 | head -c %d", total)), Overflow: wire.Overflow_OVERFLOW_WAIT})
	hash, at := sha256.New(), int64(0)
	for n := 0; ; n++ {
		st, err := m.client.Process.Attach(background(t), connect.NewRequest(&wire.AttachRequest{Key: "slow", StdoutFrom: at}))
		if err != nil {
			t.Fatal(err)
		}
		done := false
		for chunks := 0; st.Receive() && (chunks < 20 || n > 5); chunks++ { // a few times the reader goes away in the middle
			switch e := st.Msg().Event.(type) {
			case *wire.AttachEvent_Gap:
				t.Fatalf("gap %v", e.Gap)
			case *wire.AttachEvent_Output:
				hash.Write(e.Output.Data)
				at += int64(len(e.Output.Data))
			case *wire.AttachEvent_Exited:
				done = true
			}
		}
		st.Close()
		if done {
			break
		}
	}
	want := sha256.New()
	var b bytes.Buffer
	for i := 1; b.Len() < total; i++ {
		fmt.Fprintln(&b, i)
	}
	want.Write(b.Bytes()[:total])
	if at != int64(total) || !bytes.Equal(hash.Sum(nil), want.Sum(nil)) {
		t.Errorf("%d of %d bytes, or other ones", at, total)
	}
}

func TestInput_hundredMegabytesAndBackAreExact(t *testing.T) {
	m := start(t, options{})
	total := int64(100 << 20)
	if testing.Short() {
		total = 20 << 20
	}
	m.start(&wire.StartRequest{Key: "cat", Argv: argv("tee", "/dev/stderr"), Stdin: true, Overflow: wire.Overflow_OVERFLOW_WAIT})
	done := make(chan struct{})
	close(done)
	sent := make(chan int64, 1)
	go func() { sent <- m.feed("cat", total, done) }()
	seen := follow(t, m, "cat")
	if n := <-sent; seen.out != n || seen.err != n || seen.exit.StdinAcked != n || seen.exit.Exit.GetCode() != 0 {
		t.Errorf("sent %d, got %d and %d, %v", n, seen.out, seen.err, seen.exit)
	}
}

func TestInput_isAcknowledgedByOffset(t *testing.T) {
	m := start(t, options{})
	m.start(&wire.StartRequest{Key: "cat", Argv: argv("cat"), Stdin: true})
	for _, c := range []struct {
		offset int64
		data   string
		eof    bool
		want   string // "acked closed" or an error's class
	}{
		{0, "hello ", false, "6 false"},
		{0, "hello ", false, "6 false"},        // repeated
		{3, "lo world", false, "11 false"},     // overlapping
		{20, "x", false, string(errs.Invalid)}, // a hole
		{-1, "x", false, string(errs.Invalid)},
		{11, "\n", true, "12 true"},
		{11, "\n", true, "12 true"},
		{12, "more", false, string(errs.Conflict)},
	} {
		r, err := m.client.Process.Input(background(t), connect.NewRequest(&wire.InputRequest{Key: "cat", Offset: c.offset, Data: []byte(c.data), Eof: c.eof}))
		got := string(errs.Of(wire.Err(err)))
		if err == nil {
			got = fmt.Sprint(r.Msg.Acked, " ", r.Msg.Closed)
		}
		// The last: the process may be gone already, then nothing is taken either.
		if got != c.want && !(c.offset == 12 && got == "12 true") {
			t.Errorf("%d %q: %s, want %s", c.offset, c.data, got, c.want)
		}
	}
	if r, err := m.attach(&wire.AttachRequest{Key: "cat"}); err != nil || r.out.String() != "hello world\n" {
		t.Errorf("%q, %v", &r.out, err)
	}
}

func TestInput_doesNotHangOnAProcessThatDoesNotRead(t *testing.T) {
	m := start(t, options{})
	m.start(&wire.StartRequest{Key: "deaf", Argv: argv("sleep", "3"), Stdin: true})
	var at int64
	for { // until the guest stops taking more, or the process has ended
		r, err := m.client.Process.Input(background(t), connect.NewRequest(&wire.InputRequest{Key: "deaf", Offset: at, Data: make([]byte, 1<<20)}))
		if err != nil {
			t.Fatal(err)
		}
		if r.Msg.Closed || r.Msg.Acked == at {
			break
		}
		at = r.Msg.Acked
	}
	if at > 16<<20 {
		t.Errorf("%d bytes were taken for a process that reads nothing", at)
	}
}

func TestPty_resizeCtrlCAndStatus(t *testing.T) {
	m := start(t, options{})
	m.start(&wire.StartRequest{Key: "tty", Argv: sh(`trap 'stty size' WINCH; trap 'echo int' INT; tty; echo TERM=$TERM; stty size; while :; do read -r x || continue; case $x in q) exit 9;; *) echo "<$x>";; esac; done`), Pty: &wire.PtySize{Cols: 90, Rows: 30}})
	m.output("tty", "TERM=xterm-256color\r\n30 90\r\n")
	if _, err := m.client.Process.Resize(background(t), connect.NewRequest(&wire.ResizeRequest{Key: "tty", Size: &wire.PtySize{Cols: 120, Rows: 40}})); err != nil {
		t.Fatal(err)
	}
	var at int64
	typed := func(s string) {
		t.Helper()
		r, err := m.client.Process.Input(background(t), connect.NewRequest(&wire.InputRequest{Key: "tty", Offset: at, Data: []byte(s)}))
		if err != nil {
			t.Fatal(err)
		}
		at = r.Msg.Acked
	}
	typed("one\n") // the shell runs its trap when read returns
	m.output("tty", "40 120\r\n")
	m.output("tty", "<one>\r\n")
	typed("\x03")
	typed("\n")
	m.output("tty", "int\r\n")
	typed("q\n")
	p := m.wait("tty")
	if p.Exit.GetCode() != 9 || !p.Pty || p.StdinAcked != at {
		t.Errorf("%v", p)
	}
	r, err := m.attach(&wire.AttachRequest{Key: "tty"})
	if err != nil || !strings.HasPrefix(r.out.String(), "/dev/pts/") || r.err.Len() != 0 {
		t.Errorf("%q, %q, %v", &r.out, &r.err, err)
	}
}

func TestPty_outputIsWholeThroughKills(t *testing.T) {
	m := start(t, options{})
	m.start(&wire.StartRequest{Key: "tty", Argv: sh("stty -opost; seq 1 400000"), Pty: &wire.PtySize{Cols: 80, Rows: 24}})
	killed := m.killer(3, 10, 40*time.Millisecond)
	var want bytes.Buffer
	for i := range 400_000 {
		fmt.Fprintln(&want, i+1)
	}
	var got []byte
	for {
		r, err := m.attach(&wire.AttachRequest{Key: "tty", StdoutFrom: int64(len(got))})
		if r != nil {
			got = append(got, r.out.Bytes()...)
			if r.exit != nil {
				break
			}
		}
		if err != nil && !errs.Temporary(err) {
			t.Fatal(err)
		}
	}
	<-killed
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%d bytes, want %d, or other ones", len(got), want.Len())
	}
}

func TestBomb_cannotHurtTheGuestAndTheHostEndsIt(t *testing.T) {
	m := start(t, options{mustPID: true, change: func(b *wire.Boot) { b.ProcessesMax = 64 }})
	m.hello()
	if strings.Contains(m.log.String(), "not limited") {
		t.Skipf("no pids controller to use here: %s", m.log)
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash: other shells give up where a fork fails")
	}
	m.start(&wire.StartRequest{Key: "bomb", Argv: argv("bash", "-c", "f() { f | f & f; }; f"), TimeoutMs: 60_000})
	eventually(t, "the bomb has filled its bound", func() bool { return m.alive() > 50 })
	if _, err := m.exec(&wire.StartRequest{Argv: argv("true")}); err != nil && !errs.Is(err, errs.Limit) {
		t.Errorf("another command meanwhile: %v", err)
	}
	m.signal("bomb", 9)
	if p := m.wait("bomb"); p.Exit.GetReason() != "killed" {
		t.Logf("the bomb ended before the signal: %v", p.Exit)
	}
	eventually(t, "the bomb is over", func() bool { return m.alive() == 0 })
	if h := m.hello(); h.SuperviseStarts != 1 {
		t.Errorf("supervise was started %d times", h.SuperviseStarts)
	}
	if r := m.mustExec(&wire.StartRequest{Argv: sh("echo fine")}); r.out.String() != "fine\n" {
		t.Errorf("%q", &r.out)
	}
}

func TestMemory_theLargestCommandEnds(t *testing.T) {
	m := start(t, options{change: func(b *wire.Boot) { b.MemoryBytes = 256 << 20 }})
	m.start(&wire.StartRequest{Key: "small", Argv: argv("sleep", "60")})
	r := m.mustExec(&wire.StartRequest{Argv: sh("head -c 2000000000 /dev/zero | tail"), TimeoutMs: 60_000})
	if r.exit.Exit.GetReason() != "out of memory" || r.exit.Exit.Code != 137 {
		t.Errorf("%v", r.exit)
	}
	if p := m.get("small"); p.State != wire.ProcessState_PROCESS_STATE_RUNNING {
		t.Errorf("the small one: %v", p)
	}
}

// Of what runs in the background, as a template's service does, only the process that has
// the memory ends, also one with a session of its own; and what began it can begin it again.
func TestMemory_aServiceKeepsItsLoop(t *testing.T) {
	m := start(t, options{change: func(b *wire.Boot) { b.MemoryBytes = 256 << 20 }})
	const script = `setsid sh -c 'head -c 700000000 /dev/zero | exec tail'; echo $?; sleep 60`
	m.start(&wire.StartRequest{Key: "service", Argv: sh(script), Background: true})
	m.output("service", "137\n")
	if p := m.get("service"); p.State != wire.ProcessState_PROCESS_STATE_RUNNING {
		t.Errorf("its loop: %v", p)
	}
}

func TestQuiesce_stopsAndThawsByItself(t *testing.T) {
	m := start(t, options{})
	m.start(&wire.StartRequest{Key: "tick", Argv: sh("while :; do echo x; sleep 0.01; done")})
	m.output("tick", "x\nx\n")
	r, err := m.client.Control.Quiesce(background(t), connect.NewRequest(&wire.QuiesceRequest{ThawAfterMs: 1000}))
	if err != nil || r.Msg.Stopped == 0 {
		t.Fatalf("%v, %v", r, err)
	}
	size := func() int64 { return m.get("tick").Stdout.Size }
	before := size()
	eventually(t, "it goes on by itself", func() bool { return size() > before })
	if _, err := m.client.Control.Quiesce(background(t), connect.NewRequest(&wire.QuiesceRequest{})); err != nil {
		t.Fatal(err)
	}
	before = size()
	if th, err := m.client.Control.Thaw(background(t), connect.NewRequest(&wire.ThawRequest{})); err != nil || th.Msg.Resumed == 0 {
		t.Fatalf("%v, %v", th, err)
	}
	eventually(t, "it goes on", func() bool { return size() > before })
}

// What is started while commands are stopped would not be: it waits. What asks
// for a process that there is gets it.
func TestQuiesce_nothingStartsMeanwhile(t *testing.T) {
	m := start(t, options{})
	m.start(&wire.StartRequest{Key: "known", Argv: argv("sleep", "60")})
	if _, err := m.client.Control.Quiesce(background(t), connect.NewRequest(&wire.QuiesceRequest{ThawAfterMs: 60_000})); err != nil {
		t.Fatal(err)
	}
	r, err := m.client.Process.Start(background(t), connect.NewRequest(&wire.StartRequest{Key: "known", Argv: argv("sleep", "60")}))
	if err != nil || !r.Msg.Existed {
		t.Fatalf("a process that there is: %v, %v", r, err)
	}
	marker := filepath.Join(m.boot.Workdir, "marker")
	touch := func(key string) *wire.StartRequest { return &wire.StartRequest{Key: key, Argv: argv("touch", marker)} }
	brief, cancel := context.WithTimeout(background(t), 500*time.Millisecond)
	defer cancel()
	_, err = m.client.Process.Start(brief, connect.NewRequest(touch("impatient")))
	if code := connect.CodeOf(err); code != connect.CodeDeadlineExceeded && code != connect.CodeUnavailable { // by our clock, or by the guest's
		t.Errorf("a start meanwhile: %v", err)
	}
	briefer, cancel := context.WithTimeout(background(t), 500*time.Millisecond)
	defer cancel()
	if st, err := m.client.Process.Exec(briefer, connect.NewRequest(touch("hasty"))); err == nil && st.Receive() {
		t.Errorf("it was executed meanwhile: %v", st.Msg())
	}
	started := make(chan error, 1)
	go func() {
		_, err := m.client.Process.Start(context.WithoutCancel(t.Context()), connect.NewRequest(touch("patient")))
		started <- err
	}()
	if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something ran meanwhile: %v", err)
	}
	if _, err := m.client.Control.Thaw(background(t), connect.NewRequest(&wire.ThawRequest{})); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatalf("after the thaw: %v", err)
	}
	eventually(t, "it ran after the thaw", func() bool { _, err := os.Stat(marker); return err == nil })
	for _, key := range []string{"impatient", "hasty"} {
		if _, err := m.client.Process.Get(background(t), connect.NewRequest(&wire.GetProcessRequest{Key: key})); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s was started though nobody waited any more: %v", key, err)
		}
	}
}

func TestList_pages(t *testing.T) {
	m := start(t, options{})
	var want []string
	for i := range 25 {
		key := fmt.Sprint("p", i)
		m.mustExec(&wire.StartRequest{Key: key, Argv: argv("true")})
		want = append(want, key)
	}
	var got []string
	for token := ""; ; {
		r, err := m.client.Process.List(background(t), connect.NewRequest(&wire.ListProcessesRequest{PageSize: 10, PageToken: token}))
		if err != nil || len(r.Msg.Processes) > 10 {
			t.Fatalf("%v, %v", r, err)
		}
		for _, p := range r.Msg.Processes {
			got = append(got, p.Key)
		}
		if token = r.Msg.NextPageToken; token == "" {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v", got)
	}
	if _, err := m.client.Process.List(background(t), connect.NewRequest(&wire.ListProcessesRequest{PageToken: "x"})); !errs.Is(wire.Err(err), errs.Invalid) {
		t.Errorf("a foreign token: %v", err)
	}
}

func TestStart_evictedKeysAreStillKnown(t *testing.T) {
	m := start(t, options{})
	const more = 1100 // than are kept with their output
	m.mustExec(&wire.StartRequest{Key: "first", Argv: sh("echo hi; exit 6")})
	for i := range more {
		m.start(&wire.StartRequest{Key: fmt.Sprint("p", i), Argv: argv("true")})
	}
	eventually(t, "the first one is evicted", func() bool { return len(m.get("first").Argv) == 0 })
	p := m.get("first")
	if p.Exit.GetCode() != 6 || p.Stdout.Size != 3 || p.Stdout.TailStart != 3 {
		t.Errorf("%v", p)
	}
	r, err := m.client.Process.Start(background(t), connect.NewRequest(&wire.StartRequest{Key: "first", Argv: argv("true")}))
	if err != nil || !r.Msg.Existed || r.Msg.Process.Exit.GetCode() != 6 {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := m.attach(&wire.AttachRequest{Key: "first"}); err != nil || r.gaps != 3 || r.exit.Exit.GetCode() != 6 {
		t.Errorf("attach: %v, %v", r, err)
	}
}

func TestShutdown_endsEverything(t *testing.T) {
	m := start(t, options{})
	m.start(&wire.StartRequest{Key: "stubborn", Argv: sh("trap '' TERM; (setsid sleep 987 &); while :; do sleep 1; done")})
	if _, err := m.client.Control.Shutdown(background(t), connect.NewRequest(&wire.ShutdownRequest{GraceMs: 100})); err != nil {
		t.Fatal(err)
	}
	<-m.ended
	if m.err != nil {
		t.Errorf("init ended with %v", m.err)
	}
}

func TestPlain_shutdownLeavesNobody(t *testing.T) {
	m := start(t, options{plain: true})
	mark := fmt.Sprintf("98.%d", os.Getpid())
	m.start(&wire.StartRequest{Key: "d", Argv: sh("(setsid sleep " + mark + " &); sleep " + mark)})
	eventually(t, "both run", func() bool { return running(mark) == 2 })
	if _, err := m.client.Control.Shutdown(background(t), connect.NewRequest(&wire.ShutdownRequest{})); err != nil {
		t.Fatal(err)
	}
	<-m.ended
	if n := running(mark); n != 0 {
		t.Errorf("%d processes are left on the host", n)
	}
}

// running counts the processes of the host whose last argument is s.
func running(s string) (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if data, _ := os.ReadFile(f); bytes.HasSuffix(data, []byte("sleep\x00"+s+"\x00")) {
			n++
		}
	}
	return n
}

func TestControl_garbageHurtsNobody(t *testing.T) {
	m := start(t, options{})
	m.hello()
	garbage := []string{
		"", "GET / HTTP/1.1\r\n\r\n", "\x00\xff\x00\xff", strings.Repeat("A", 1<<20),
		"POST /skete.guest.v1.Process/Exec HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+proto\r\nContent-Length: 9\r\n\r\n\x00\xff\xff\xff\xffxxxx",
		"POST /skete.guest.v1.Process/Start HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff",
	}
	for _, g := range garbage {
		conn, err := m.host.Dial(background(t), wire.ControlPort)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience.Of(5 * time.Second)))
		_, _ = io.WriteString(conn, g)
		if uc, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = uc.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
		conn.Close()
	}
	for _, port := range []uint32{0, wire.ControlPort + 1, 1<<32 - 1} {
		if conn, err := m.host.Dial(background(t), port); err == nil {
			conn.Close()
			t.Errorf("port %d was opened", port)
		}
	}
	if h := m.hello(); h.SuperviseStarts != 1 {
		t.Errorf("supervise was started %d times", h.SuperviseStarts)
	}
}

func TestControl_refusesWhatIsAbsurd(t *testing.T) {
	m := start(t, options{})
	ctx := background(t)
	for name, call := range map[string]func() error{
		"old version": func() error {
			_, err := m.client.Control.Hello(ctx, connect.NewRequest(&wire.HelloRequest{VersionMin: 99, VersionMax: 100}))
			return err
		},
		"short entropy": func() error {
			_, err := m.client.Control.Reseed(ctx, connect.NewRequest(&wire.ReseedRequest{Entropy: []byte("x")}))
			return err
		},
		"year 1900": func() error {
			_, err := m.client.Control.StepClock(ctx, connect.NewRequest(&wire.StepClockRequest{TimeUnixNs: -1}))
			return err
		},
		"long freeze": func() error {
			_, err := m.client.Control.Quiesce(ctx, connect.NewRequest(&wire.QuiesceRequest{ThawAfterMs: 1e9}))
			return err
		},
		"long grace": func() error {
			_, err := m.client.Control.Shutdown(ctx, connect.NewRequest(&wire.ShutdownRequest{GraceMs: -5}))
			return err
		},
	} {
		if err := wire.Err(call()); !errs.Is(err, errs.Invalid) && !errs.Is(err, errs.Unsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.client.Control.Reseed(ctx, connect.NewRequest(&wire.ReseedRequest{Entropy: make([]byte, 64)})); err != nil && !errs.Is(wire.Err(err), errs.Unsupported) {
		t.Errorf("reseed: %v", err)
	}
	r, err := m.client.Control.Metrics(ctx, connect.NewRequest(&wire.MetricsRequest{}))
	if err != nil || r.Msg.CpuCount == 0 || r.Msg.MemTotalBytes == 0 || r.Msg.UptimeMs == 0 || r.Msg.DiskTotalBytes == 0 || r.Msg.CpuUsedUs == 0 {
		t.Errorf("%v, %v", r, err)
	}
}

func TestChannel_pathLongerThanASocketAddress(t *testing.T) {
	dir := filepath.Join(scratch(t), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m := start(t, options{dir: dir, plain: true})
	if h := m.hello(); h.BootId == "" {
		t.Errorf("%v", h)
	}
}

func TestMachine_asAPlainUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this is the plain user's run already")
	}
	m := start(t, options{plain: true, uid: 1000})
	r := m.mustExec(&wire.StartRequest{Argv: sh("id -u; echo out; exit 2"), Rlimits: []*wire.Rlimit{{Name: "nofile", Soft: 50, Hard: 60}}})
	if r.out.String() != "1000\nout\n" || r.exit.Exit.GetCode() != 2 {
		t.Errorf("%q, %q, %v", &r.out, &r.err, r.exit)
	}
}
