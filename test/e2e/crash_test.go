package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

func unixDial(path string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return client.DialUnix(ctx, path) }
}

// TestServerKilled_aCommandGoesOnAndNothingOfItIsLost is acceptance 5.
func TestServerKilled_aCommandGoesOnAndNothingOfItIsLost(t *testing.T) {
	w := newWorld(t)
	w.start()
	sb := w.create(api.CreateSandbox{})
	_, err := sb.StartProcess(w.ctx(), api.StartProcess{
		Key: "count", Background: true,
		Command: `for i in $(seq 1 60); do echo line $i; sleep 0.05; done; echo oops >&2; exit 7`,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.kill()
		w.start()
	}
	got, err := sbOf(w, sb).Get(w.ctx())
	if err != nil || got.State != "running" {
		t.Fatalf("after the restart: %+v, %v", got, err)
	}
	cmd := sbOf(w, sb).Attach("count")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run(w.ctx())
	var exit *client.ExitError
	if !errors.As(err, &exit) || exit.Code() != 7 {
		t.Fatalf("the command ended with %v, want status 7", err)
	}
	var want strings.Builder
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if out.String() != want.String() || errOut.String() != "oops\n" {
		t.Errorf("stdout %q, stderr %q", out.String(), errOut.String())
	}
}

func sbOf(w *world, sb *client.Sandbox) *client.Sandbox { return w.c.Sandbox(sb.ID) }

// TestServerKilled_atRandomPoints kills the server while sandboxes are made,
// used and destroyed at once. After each restart: what is listed as running
// answers, and at the end nothing is left on the host.
func TestServerKilled_atRandomPoints(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	for round := range rounds {
		w.start()
		for _, sb := range w.live() {
			switch sb.State {
			case "running":
				out, err := w.c.Sandbox(sb.ID).Command("echo", "alive").Output(w.ctx())
				if err != nil || string(out) != "alive\n" {
					t.Fatalf("round %d: %s is listed as running and answers %q, %v", round, sb.ID, out, err)
				}
			case "creating":
				t.Fatalf("round %d: %s is still creating after a restart", round, sb.ID)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { churn(ctx, w.c) })
		}
		<-time.After(time.Duration(rnd.IntN(900)) * time.Millisecond)
		w.kill()
		cancel()
		wg.Wait()
	}
}

// TestServerKilled_whileItStarts kills servers that know of many sandboxes and
// runs before they are up. The one that is let live knows all of them: the
// programs in the sandboxes are those that ran before, and no run is lost or went
// on twice. (How long it takes, `make bench ONLY=start` measures.)
func TestServerKilled_whileItStarts(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many sandboxes")
	}
	const sandboxes, done, kills = 30, 500, 15
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	b := newBrain(t, map[string]string{"quick": "else: {text: done}\n"}, nil, "")
	shared := "" // else each run makes one of its own
	for range sandboxes {
		sb := b.create(api.CreateSandbox{MemoryMB: 256, DiskMB: 64})
		shared = sb.ID
		_, err := sb.StartProcess(b.ctx(), api.StartProcess{Key: "lives", Command: "echo $$ > alive; sleep 100000", Background: true})
		b.ok(err)
	}
	for range done {
		_, err := b.c.StartRun(b.ctx(), api.StartRun{Model: "quick", Task: "Nothing.", Sandbox: shared})
		b.ok(err)
	}
	b.kill()
	for range kills {
		b.launch()
		<-time.After(time.Duration(rnd.IntN(2000)) * time.Millisecond)
		b.kill()
	}
	b.start()
	running := 0
	for _, sb := range b.live() {
		if sb.State != "running" {
			t.Errorf("%s is %s (%s)", sb.ID, sb.State, sb.Reason)
			continue
		}
		running++
		out, err := b.c.Sandbox(sb.ID).Command("sh", "-c", "kill -0 $(cat alive) && echo alive").Output(b.ctx())
		if err != nil || string(out) != "alive\n" {
			t.Errorf("%s answers %q, %v", sb.ID, out, err)
		}
	}
	if running != sandboxes {
		t.Errorf("%d of %d sandboxes run", running, sandboxes)
	}
	b.until("every run is over", func() error {
		ended := 0
		for run, err := range b.c.Runs(b.ctx(), client.RunFilter{}) {
			if err != nil {
				return err
			}
			if run.State == "succeeded" && run.Text == "done" && run.Steps == 1 {
				ended++
			}
		}
		if ended != done {
			return fmt.Errorf("%d of %d runs succeeded in one step", ended, done)
		}
		return nil
	})
}

// churn makes, uses and destroys sandboxes until the server dies.
func churn(ctx context.Context, c *client.Client) {
	for ctx.Err() == nil {
		sb, err := c.CreateSandbox(ctx, api.CreateSandbox{MemoryMB: 128, DiskMB: 64})
		if err != nil {
			return
		}
		s := c.Sandbox(sb.ID)
		_, _ = s.StartProcess(ctx, api.StartProcess{Argv: []string{"sleep", "1000"}, Background: true})
		if s.Destroy(ctx) != nil {
			return
		}
	}
}

// TestKeyedStart_runsOnceOverRestarts: the caller does not know whether its
// start arrived before the server died, and asks again.
func TestKeyedStart_runsOnceOverRestarts(t *testing.T) {
	w := newWorld(t)
	w.start()
	sb := w.create(api.CreateSandbox{})
	start := api.StartProcess{Key: "once", Command: "echo ran >> /workspace/runs; sleep 0.3"}
	for range 4 {
		ctx, cancel := context.WithTimeout(w.ctx(), 3*time.Millisecond)
		_, _ = sbOf(w, sb).StartProcess(ctx, start)
		cancel()
		w.kill()
		w.start()
	}
	if _, err := sbOf(w, sb).StartProcess(w.ctx(), start); err != nil {
		t.Fatal(err)
	}
	if _, err := sbOf(w, sb).WaitProcess(w.ctx(), "once"); err != nil {
		t.Fatal(err)
	}
	out, err := sbOf(w, sb).Command("cat", "/workspace/runs").Output(w.ctx())
	if err != nil || string(out) != "ran\n" {
		t.Fatalf("the keyed command ran as often as this says: %q, %v", out, err)
	}
}

func TestIdempotencyKey_oneSandboxOverRestarts(t *testing.T) {
	w := newWorld(t)
	w.start()
	spec := api.CreateSandbox{Name: "one", MemoryMB: 128}
	first, err := createKeyed(w, spec, "order-7")
	if err != nil {
		t.Fatal(err)
	}
	w.kill()
	w.start()
	again, err := createKeyed(w, spec, "order-7")
	if err != nil || again != first {
		t.Fatalf("the same key gave %s, then %s, %v", first, again, err)
	}
	spec.MemoryMB = 256
	if id, err := createKeyed(w, spec, "order-7"); err == nil {
		t.Fatalf("the same key with another spec gave %s", id)
	}
}

func TestTwoServers_theSecondRefuses(t *testing.T) {
	w := newWorld(t)
	w.start()
	p, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	second := exec.Command(p.skete, "serve", "--listen", "")
	second.Env = append(second.Environ(), "SKETE_HOME="+w.home, "SKETE_GUEST="+p.guest)
	text, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "uses this data directory") || !strings.Contains(string(text), "hint:") {
		t.Fatalf("the second server said %v\n%s", err, text)
	}
	if _, err := w.c.Info(w.ctx()); err != nil {
		t.Fatalf("the first one does not answer any more: %v", err)
	}
}

// TestMemoryHog_endsWithTheReason: the command or the sandbox ends, and says why.
func TestMemoryHog_endsWithTheReason(t *testing.T) {
	w := newWorld(t)
	w.start()
	sb := w.create(api.CreateSandbox{MemoryMB: 256, Language: "python"})
	err := sb.Command("python3", "-c", "b=[]\nwhile True: b.append(bytearray(8<<20))").Run(w.ctx())
	if err == nil {
		t.Fatal("a program took all the memory and succeeded")
	}
	var exit *client.ExitError
	if errors.As(err, &exit) && exit.Process.Exit != nil && exit.Process.Exit.Reason == "out of memory" {
		return // the guest ended the command
	}
	w.until("the sandbox says out of memory", func() error {
		got, err := sb.Get(w.ctx())
		if err != nil {
			return err
		}
		if got.Reason != "out of memory" {
			return fmt.Errorf("state %s, reason %q", got.State, got.Reason)
		}
		return nil
	})
}

func TestMachineKilled_theStateSaysSo(t *testing.T) {
	w := newWorld(t)
	w.start()
	sb := w.create(api.CreateSandbox{})
	killed := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, _ := os.ReadFile(f)
		if program, args, _ := strings.Cut(string(line), "\x00"); !strings.HasPrefix(filepath.Base(program), "runsc-sandbox") || !strings.Contains(args, sb.ID) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		t.Fatal("no process of the sandbox")
	}
	w.until("the sandbox has failed", func() error {
		got, err := sb.Get(w.ctx())
		if err != nil {
			return err
		}
		if got.State != "failed" || got.Reason == "" {
			return fmt.Errorf("state %s, reason %q", got.State, got.Reason)
		}
		return nil
	})
	if err := sb.Command("true").Run(w.ctx()); err == nil || errs.Is(err, errs.Internal) {
		t.Errorf("a command in a dead sandbox: %v", err)
	}
}

// TestVanishingClient_leavesTheCommandRunning: a client that goes away in the
// middle of the output does no harm, and another reads all of it.
func TestVanishingClient_leavesTheCommandRunning(t *testing.T) {
	w := newWorld(t)
	w.start()
	sb := w.create(api.CreateSandbox{})
	cmd := sb.Shell("seq 1 300000")
	cmd.Spec.Key, cmd.Detached = "seq", true
	ctx, cancel := context.WithCancel(w.ctx())
	cmd.Stdout = cancelWriter{cancel, 100_000}
	_ = cmd.Run(ctx)
	var out bytes.Buffer
	again := sb.Attach("seq")
	again.Stdout = &out
	if err := again.Run(w.ctx()); err != nil {
		t.Fatal(err)
	}
	want, _ := exec.Command("seq", "1", "300000").Output()
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%d bytes came, %d were written", out.Len(), len(want))
	}
}

type cancelWriter struct {
	cancel context.CancelFunc
	n      int
}

func (c cancelWriter) Write(p []byte) (int, error) {
	c.cancel()
	return 0, io.ErrClosedPipe
}

// createKeyed sends the header that the client makes up by itself.
func createKeyed(w *world, spec api.CreateSandbox, key string) (string, error) {
	return postSandbox(w, spec, key)
}

// TestIdleSandbox_livesOn: a timer in some linked package must not make gVisor's
// kernel process do what its seccomp filter kills it for (ADR 0006).
func TestIdleSandbox_livesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	sb := w.create(api.CreateSandbox{})
	for range 5 {
		<-time.After(time.Second)
		if out, err := sb.Command("echo", "alive").Output(w.ctx()); err != nil || string(out) != "alive\n" {
			t.Fatalf("%q, %v", out, err)
		}
	}
}

// TestShortLivedConnections: no connection lives as long as one frame of
// output, and still every byte arrives.
func TestShortLivedConnections(t *testing.T) {
	w := newWorld(t)
	w.start()
	sb := w.create(api.CreateSandbox{})
	path := filepath.Join(w.home, "cut.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var cuts atomic.Int64
	go func() {
		for {
			down, err := ln.Accept()
			if err != nil {
				return
			}
			up, err := client.DialUnix(context.Background(), client.SocketPath(w.home))
			if err != nil {
				down.Close()
				return
			}
			go func() { _, _ = io.Copy(up, down); up.Close() }()
			go func() { _, _ = io.CopyN(down, up, 60_000); cuts.Add(1); down.Close(); up.Close() }()
		}
	}()
	c, err := client.New(client.Config{Socket: path, ReconnectTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out bytes.Buffer
	cmd := c.Sandbox(sb.ID).Shell("seq 1 400000")
	cmd.Stdout = &out
	if err := cmd.Run(w.ctx()); err != nil {
		t.Fatal(err)
	}
	want, _ := exec.Command("seq", "1", "400000").Output()
	if !bytes.Equal(out.Bytes(), want) || cmd.Lost() != 0 || cuts.Load() < 20 {
		t.Errorf("%d of %d bytes came, %d lost, %d cuts", out.Len(), len(want), cmd.Lost(), cuts.Load())
	}
}
