package shell_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend/guest"
	"github.com/skete-dev/skete/tool/shell"
	"github.com/skete-dev/skete/tool/tooltest/machine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is the tools over a real machine.
type bench struct {
	t     testing.TB
	m     *machine.Machine
	tools map[string]tool.Planner
}

func makeTools(t testing.TB, env tool.Env) map[string]tool.Planner {
	t.Helper()
	r := &tool.Registry{}
	shell.Add(r)
	tools, err := r.Make(env, r.Names())
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]tool.Planner{}
	for _, tl := range tools {
		named[tl.Spec().Name] = tl.(tool.Planner)
	}
	return named
}

func newBench(t testing.TB, boot string) *bench {
	t.Helper()
	m := machine.Start(t)
	return &bench{t: t, m: m, tools: makeTools(t, tool.Env{Commands: guest.NewCommands(m.Client), Boot: boot, Dir: m.Workdir})}
}

var calls struct {
	sync.Mutex
	n int
}

// request makes a call with a key of its own.
func request(args string) tool.Request {
	calls.Lock()
	defer calls.Unlock()
	calls.n++
	return tool.Request{Key: fmt.Sprintf("thr_x/call_%d", calls.n), Call: fmt.Sprintf("call_%d", calls.n), Args: json.RawMessage(args)}
}

func quote(command string) string {
	b, _ := json.Marshal(command)
	return string(b)
}

func (b *bench) run(ctx context.Context, name string, req tool.Request) tool.Result {
	b.t.Helper()
	plan, done, err := b.tools[name].Plan(ctx, req)
	if err != nil {
		b.t.Fatalf("%s: plan: %v", name, err)
	}
	if done != nil {
		return *done
	}
	if req.Plan == nil {
		req.Plan = plan
	}
	r, err := b.tools[name].Run(ctx, req)
	if err != nil {
		b.t.Fatalf("%s %.200s: %v", name, req.Args, err)
	}
	return r
}

func (b *bench) call(name, args string) tool.Result {
	b.t.Helper()
	return b.run(b.t.Context(), name, request(args))
}

func text(r tool.Result) string { return r.Blocks[0].Text }

func exit(r tool.Result) int {
	if r.Exit == nil {
		return -1
	}
	return *r.Exit
}

func (b *bench) file(name string) string {
	content, _ := os.ReadFile(filepath.Join(b.m.Workdir, name))
	return string(content)
}

// eventually polls until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	patience.Until(t, 20*time.Second, what, holds)
}

func TestExecute_tellsTheWholeTruth(t *testing.T) {
	b := newBench(t, "boot")
	for _, c := range []struct {
		args, want, code string
		exit             int
	}{
		{`{"command":"echo out; echo err >&2; printf end"}`, "out\nerr\nend\n[Command succeeded with exit code 0]", "", 0},
		{`{"command":"true"}`, "[Command succeeded with exit code 0]", "", 0},
		{`{"command":"echo no; exit 3"}`, "no\n[Command failed with exit code 3]", tool.CodeExit, 3},
		{`{"command":"pwd"}`, b.m.Workdir + "\n[Command succeeded with exit code 0]", "", 0},
		{`{"command":"printf 'gr\\xc3\\xbc\\xff'"}`, "grü\uFFFD\n[Command succeeded with exit code 0]", "", 0},
		{`{"command":"kill -KILL $$"}`, "[Command failed with exit code 137; it ended by SIGKILL]", tool.CodeExit, 137},
		{`{"command":"echo a; sleep 600","timeout":"1"}`, "a\n[Command failed with exit code 143; it was ended after its timeout of 1s]", tool.CodeTimeout, 143},
		{`{"command":"   "}`, "Error: the command is empty", tool.CodeArgs, -1},
		{`{"command":"a\u0000b"}`, "Error: the command has a NUL in it", tool.CodeArgs, -1},
	} {
		r := b.call("execute", c.args)
		if text(r) != c.want || r.Code != c.code || r.Failed != (c.code != "") || exit(r) != c.exit {
			t.Errorf("%s: %q %s %d, want %q", c.args, text(r), r.Code, exit(r), c.want)
		}
	}
	if r := b.call("execute", `{"command":`+quote("echo "+strings.Repeat("x", 100<<10))+`}`); r.Code != tool.CodeArgs || !strings.Contains(text(r), "write a script") {
		t.Errorf("a long command: %.200s", text(r))
	}
	if r := b.call("run_command", `{"command":"echo hi"}`); text(r) != "hi\n[Command succeeded with exit code 0]" {
		t.Errorf("run_command: %s", text(r))
	}
	if r := b.call("run_command", `{"command":"x","background":true}`); r.Code != tool.CodeArgs {
		t.Errorf("run_command in the background: %v", r)
	}
}

func TestExecute_showsOutputAsItComes(t *testing.T) {
	b := newBench(t, "boot")
	req := request(`{"command":"echo first; while [ ! -e go ]; do sleep 0.02; done; echo second"}`)
	var seen strings.Builder
	req.Emit = func(s string) {
		if seen.WriteString(s); seen.String() == "first\n" {
			if err := os.WriteFile(filepath.Join(b.m.Workdir, "go"), nil, 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	if r := b.run(t.Context(), "execute", req); text(r) != "first\nsecond\n[Command succeeded with exit code 0]" || seen.String() != "first\nsecond\n" {
		t.Errorf("%q was shown for %q", seen.String(), text(r))
	}
}

// The server goes down while a command runs: it goes on, and the next run of
// the call collects what really happened, without running it again.
func TestExecute_againAttaches(t *testing.T) {
	b := newBench(t, "boot")
	req := request(`{"command":"echo begin; echo x >> ran; while [ ! -e go ]; do sleep 0.02; done; echo end; exit 5"}`)
	ctx, shutdown := context.WithCancelCause(t.Context())
	down := errors.New("the server goes down")
	req.Emit = func(string) { shutdown(down) }
	r, err := b.tools["execute"].Run(ctx, req)
	if !errors.Is(err, down) {
		t.Fatalf("%v, %v", r, err)
	}
	if err := os.WriteFile(filepath.Join(b.m.Workdir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	req.Again, req.Emit = true, nil
	for _, plan := range []string{`{"boot":"boot"}`, `{"boot":"another"}`, ``} { // the key is known in any case
		req.Plan = json.RawMessage(plan)
		if r = b.run(t.Context(), "execute", req); text(r) != "begin\nend\n[Command failed with exit code 5]" || exit(r) != 5 {
			t.Errorf("collected: %q", text(r))
		}
	}
	settle := func() (*tool.Result, error) { return b.tools["execute"].(tool.Settler).Settle(t.Context(), req) }
	if r, err := settle(); err != nil || r == nil || text(*r) != "begin\nend\n[Command failed with exit code 5]" {
		t.Errorf("settled: %v, %v", r, err)
	}
	req.Key += "-unknown"
	if r, err := settle(); err != nil || r != nil {
		t.Errorf("settled, of a call that began nothing: %v, %v", r, err)
	}
	if ran := b.file("ran"); ran != "x\n" {
		t.Errorf("it ran %d times", len(ran)/2)
	}
}

func TestExecute_againInAnotherMachine(t *testing.T) {
	b := newBench(t, "boot 2")
	req := request(`{"command":"echo x >> ran"}`)
	req.Again = true
	for _, plan := range []string{`{"boot":"boot 1"}`, `{}`, `null`} {
		req.Plan = json.RawMessage(plan)
		if r := b.run(t.Context(), "execute", req); r.Code != tool.CodeInterrupted || !r.Failed || exit(r) != -1 {
			t.Errorf("%s: %v", plan, r)
		}
	}
	if b.file("ran") != "" {
		t.Error("it ran, though it may have run before")
	}
	// In the same life of the machine, an unknown key was never started.
	req.Plan = json.RawMessage(`{"boot":"boot 2"}`)
	if r := b.run(t.Context(), "execute", req); r.Failed || b.file("ran") != "x\n" {
		t.Errorf("%v, ran %q", r, b.file("ran"))
	}
}

func TestExecute_cancelEndsTheCommand(t *testing.T) {
	b := newBench(t, "boot")
	for name, c := range map[string]struct {
		cause error
		code  string
		text  string
	}{
		"cancelled": {tool.ErrCancelled, tool.CodeCancelled, "[the run was cancelled; the command was ended]"},
		"time over": {context.DeadlineExceeded, tool.CodeTimeout, "[the time for this call is over; the command was ended]"},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		req := request(`{"command":"trap 'echo tidied > tidy; exit' TERM; echo $$; while true; do sleep 0.02; done"}`)
		pid := ""
		req.Emit = func(s string) {
			pid = strings.TrimSpace(s)
			cancel(c.cause)
		}
		r, err := b.tools["execute"].Run(ctx, req)
		if err != nil || r.Code != c.code || !r.Failed || text(r) != pid+"\n"+c.text {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		if b.file("tidy") != "tidied\n" {
			t.Errorf("%s: the command had no chance to tidy up", name)
		}
		os.Remove(filepath.Join(b.m.Workdir, "tidy"))
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("%s: process %s goes on", name, pid)
		}
	}
}

// The guest's supervisor dies under a running command.
func TestExecute_outlivesTheSupervisor(t *testing.T) {
	b := newBench(t, "boot")
	req := request(`{"command":"echo begin; while [ ! -e go ]; do sleep 0.02; done; echo end"}`)
	var once sync.Once
	req.Emit = func(string) {
		once.Do(func() {
			if pid := b.m.Supervise(); pid == 0 || syscall.Kill(pid, syscall.SIGKILL) != nil {
				t.Error("the supervisor was not found")
			}
			if err := os.WriteFile(filepath.Join(b.m.Workdir, "go"), nil, 0o644); err != nil {
				t.Error(err)
			}
		})
	}
	if r := b.run(t.Context(), "execute", req); text(r) != "begin\nend\n[Command succeeded with exit code 0]" {
		t.Errorf("%q", text(r))
	}
}

func TestExecute_largeOutputIsCutInTheMiddle(t *testing.T) {
	b := newBench(t, "boot")
	for _, n := range []int{512 << 10, 512<<10 + 1, 600_000, 3 << 20, 40 << 20} {
		r := b.call("execute", fmt.Sprintf(`{"command":"yes 0123456789abcde | head -c %d"}`, n))
		all := strings.Repeat("0123456789abcde\n", n/16+1)[:n]
		got, _ := strings.CutSuffix(text(r), "[Command succeeded with exit code 0]")
		omitted := max(n-512<<10, 0)
		if omitted == 0 {
			if got != all || r.Bytes != 0 {
				t.Errorf("%d bytes: %d are shown, %d told", n, len(got), r.Bytes)
			}
			continue
		}
		head, rest, _ := strings.Cut(got, "\n\n[… output left out here …]\n\n")
		tail, note, ok := strings.Cut(rest, "[")
		tail = strings.TrimSuffix(tail, "\n")
		wantTail := strings.TrimSuffix(all[n-256<<10:], "\n")
		if head != all[:256<<10] || tail != wantTail || !ok {
			t.Errorf("%d bytes: head %d, tail %d", n, len(head), len(tail))
		}
		if want := fmt.Sprintf("%d bytes were left out above; process_output with id proc_", omitted); !strings.HasPrefix(note, want) || r.Bytes != int64(n) {
			t.Errorf("%d bytes: %q, %d", n, note, r.Bytes)
		}
	}
}

// What was left out can be read by its offset, as long as it is kept.
func TestProcessOutput_readsWhatWasLeftOut(t *testing.T) {
	b := newBench(t, "boot")
	r := b.call("execute", `{"command":"seq -f %09.0f 100000"}`) // 1,000,000 bytes
	m := regexp.MustCompile(`id (proc_\w+) and offset (\d+)`).FindStringSubmatch(text(r))
	if m == nil {
		t.Fatalf("%.300s", text(r)[len(text(r))-300:])
	}
	r = b.call("process_output", `{"id":"`+m[1]+`","offset":`+m[2]+`}`)
	if !strings.HasPrefix(text(r), fmt.Sprintf("%09d\n", 256<<10/10+1)[256<<10%10:]) || !strings.Contains(text(r), "[1000000 bytes in all; go on with offset=342144]") || !r.Whole {
		t.Errorf("%.20q … %q", text(r), text(r)[len(text(r))-200:])
	}
}

func TestBackground(t *testing.T) {
	b := newBench(t, "boot")
	req := request(`{"command":"echo one; while [ ! -e go ]; do sleep 0.02; done; echo two","background":true}`)
	r := b.run(t.Context(), "execute", req)
	m := regexp.MustCompile(`^Started in the background as (proc_[a-z2-7]{16})\.`).FindStringSubmatch(text(r))
	if m == nil || r.Failed {
		t.Fatalf("%v", r)
	}
	id := m[1]
	req.Again = true
	if again := b.run(t.Context(), "execute", req); text(again) != text(r) {
		t.Errorf("again: %v", again)
	}
	if r = b.call("process_output", `{"id":"`+id+`","wait_s":10}`); text(r) != "one\n[that is all so far; go on with offset=4]\n[it is running]" {
		t.Errorf("%q", text(r))
	}
	if r = b.call("process_output", `{"id":"`+id+`","offset":4,"wait_s":0.05}`); text(r) != "[that is all so far; go on with offset=4]\n[it is running]" {
		t.Errorf("nothing new: %q", text(r))
	}
	if r = b.call("process_list", `{}`); !strings.Contains(text(r), id) || !strings.Contains(text(r), "running  4 bytes of output  echo one; while") {
		t.Errorf("%q", text(r))
	}
	if err := os.WriteFile(filepath.Join(b.m.Workdir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r = b.call("process_output", `{"id":"`+id+`","offset":4,"wait_s":10}`); !strings.HasPrefix(text(r), "two\n") {
		t.Errorf("%q", text(r))
	}
	eventually(t, "it has ended", func() bool {
		r := b.call("process_output", `{"id":"`+id+`","offset":8}`)
		return text(r) == "[Command succeeded with exit code 0]" && exit(r) == 0
	})
	sleeper := regexp.MustCompile(`proc_\w+`).FindString(text(b.call("execute", `{"command":"sleep 600","background":true}`)))
	for range 2 {
		if r = b.call("process_kill", `{"id":"`+sleeper+`"}`); text(r) != sleeper+" has ended." {
			t.Errorf("%q", text(r))
		}
	}
	if r = b.call("process_output", `{"id":"`+sleeper+`"}`); !strings.Contains(text(r), "it was killed]") {
		t.Errorf("%q", text(r))
	}
	for _, name := range []string{"process_output", "process_kill"} {
		if r = b.call(name, `{"id":"proc_aaaaaaaaaaaaaaaa"}`); r.Code != tool.CodeArgs || !strings.Contains(text(r), "process_list shows all") {
			t.Errorf("%s: %v", name, r)
		}
		if r = b.call(name, `{"id":"other-key"}`); r.Code != tool.CodeArgs {
			t.Errorf("%s reaches processes that are not ours: %v", name, r)
		}
	}
}

// However much a command writes, its call stays small.
func TestExecute_tenGigabytesDoNotGrowMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 10 GB through a pipe")
	}
	b := newBench(t, "boot")
	const n = 10 << 30
	peak := watchHeap(t)
	begin := time.Now()
	r := b.call("execute", fmt.Sprintf(`{"command":"yes 0123456789abcde | head -c %d","timeout":3600}`, int64(n)))
	took := time.Since(begin)
	if r.Failed || r.Bytes != n || !strings.Contains(text(r), fmt.Sprintf("%d bytes were left out above", int64(n)-512<<10)) {
		t.Errorf("%d bytes, %.300s", r.Bytes, text(r)[len(text(r))-300:])
	}
	grown := peak()
	t.Logf("%d bytes in %s, %d KiB more memory", int64(n), took, grown>>10)
	if grown > 32<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// watchHeap samples the heap until the function that it returns is called.
func watchHeap(t *testing.T) func() int64 {
	t.Helper()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse)
	}
	runtime.GC()
	first, most := heap(), int64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				most = max(most, heap())
			}
		}
	}()
	return func() int64 {
		close(stop)
		<-done
		return most - first
	}
}

// deaf is a machine that starts commands and then says nothing any more.
type deaf struct{ killed chan struct{} }

func (d deaf) Start(context.Context, string, tool.Command) (tool.Process, error) { return d, nil }
func (d deaf) Find(context.Context, string) (tool.Process, error)                { return d, nil }
func (d deaf) List(context.Context, string) ([]tool.Listed, error)               { return nil, nil }
func (d deaf) Output(ctx context.Context, _ tool.Offsets, _ bool, visit func(tool.Chunk) error) error {
	if err := visit(tool.Chunk{Data: []byte("begin")}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (d deaf) Wait(ctx context.Context) (tool.Ended, error) {
	<-ctx.Done()
	return tool.Ended{}, ctx.Err()
}

func (d deaf) Status(ctx context.Context) (tool.Ended, bool, error) {
	e, err := d.Wait(ctx)
	return e, true, err
}

func (d deaf) Kill(ctx context.Context) error {
	close(d.killed)
	_, err := d.Wait(ctx)
	return err
}

func TestExecute_aDeadMachineDoesNotHangTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deaf{killed: make(chan struct{})}
		tools := makeTools(t, tool.Env{Commands: d, CommandTimeout: time.Minute})
		begin := time.Now()
		r, err := tools["execute"].Run(t.Context(), tool.Request{Key: "k", Args: json.RawMessage(`{"command":"x"}`)})
		if err != nil || r.Code != tool.CodeTimeout || !strings.HasPrefix(text(r), "begin\n[timeout: the machine did not answer in time") {
			t.Errorf("%v, %v", r, err)
		}
		if took := time.Since(begin); took > 2*time.Minute {
			t.Errorf("it took %s", took)
		}
		<-d.killed
	})
}

// refusing is a machine that starts nothing.
type refusing struct {
	tool.Commands
	err error
}

func (r refusing) Start(context.Context, string, tool.Command) (tool.Process, error) {
	return nil, r.err
}

func TestExecute_whatCannotBeStarted(t *testing.T) {
	gone := errs.New(errs.Unavailable, "the machine is away")
	for err, code := range map[error]string{
		errs.New(errs.Limit, "process limit reached"):                         tool.CodeTooLarge,
		errs.New(errs.NotFound, "command not found: /bin/sh"):                 tool.CodeDenied,
		&tool.FileError{Code: tool.CodeInvalidPath, Path: "/w", Hint: "none"}: tool.CodeInvalidPath,
		gone: "",
	} {
		r, got := makeTools(t, tool.Env{Commands: refusing{err: err}})["execute"].Run(t.Context(), tool.Request{Key: "k", Args: json.RawMessage(`{"command":"x"}`)})
		if r.Code != code || (got != nil) != (code == "") {
			t.Errorf("%v: %v, %v", err, r, got)
		}
	}
}
