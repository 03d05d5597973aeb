package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
)

func TestMain(m *testing.M) {
	flag.Parse()
	stop, err := startServer()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		stop()
		os.Exit(code)
	}))
}

// startServer runs a real server for the examples, with the provider process:
// they do nothing that needs isolation. Building it takes too long for -short,
// which leaves the examples out.
func startServer() (stop func(), err error) {
	if testing.Short() {
		if flag.Lookup("test.run").Value.String() == "" {
			_ = flag.Set("test.run", "^(Test|Fuzz)")
		}
		return func() {}, nil
	}
	dir, err := scratch.Dir("client")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"skete", "skete-guest"} {
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, name), "github.com/skete-dev/skete/cmd/"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", name, err, text)
		}
	}
	home := filepath.Join(dir, "home")
	cmd := exec.Command(filepath.Join(dir, "skete"), "serve", "--listen", "", "--providers", "process", "--unsafe-no-isolation", "--log-level", "warn")
	cmd.Env = append(os.Environ(), "SKETE_HOME="+home, "SKETE_GUEST="+filepath.Join(dir, "skete-guest"), "SKETE_HOST_REGISTRIES=false")
	log, err := os.Create(filepath.Join(dir, "log")) // a buffer would need a goroutine, which goleak sees
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	_ = os.Setenv("SKETE_HOME", home)
	_ = os.Unsetenv("SKETE_URL")
	return stop, awaitServer(log.Name())
}

func awaitServer(log string) error {
	c, err := FromEnv()
	if err != nil {
		return err
	}
	defer c.Close()
	if !patience.Holds(time.Minute, func() bool { err = c.Ready(context.Background()); return err == nil }) {
		text, _ := os.ReadFile(log)
		return fmt.Errorf("the server did not start: %w\n%s", err, text)
	}
	return nil
}

// cutter is a server with one command in it, whose stdout is what it got on
// stdin. It breaks its connections whenever its dice say so.
type cutter struct {
	t       *testing.T
	mu      sync.Mutex
	dice    *rand.Rand
	cuts    int // left
	started int // how often a new command was started
	in      []byte
	eof     bool
	wake    chan struct{}
	signals []int
	refuse  func(http.ResponseWriter) bool // answers in place of the upgrade
}

func newCutter(t *testing.T, cuts int, seed uint64) (*cutter, *Sandbox) {
	c := &cutter{t: t, cuts: cuts, dice: rand.New(rand.NewPCG(seed, 1)), wake: make(chan struct{})}
	srv := httptest.NewServer(c)
	t.Cleanup(srv.Close)
	cl, err := New(Config{URL: srv.URL, Key: "e2b_test", ReconnectTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return c, cl.Sandbox("sbx_aaaaaaaaaaaaaaaaaaaa")
}

// cut says whether to break now.
func (c *cutter) cut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cuts == 0 || c.dice.IntN(4) != 0 {
		return false
	}
	c.cuts--
	return true
}

func (c *cutter) process(state string) api.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := api.Process{Key: "k", State: state, StdinAcked: int64(len(c.in)), Existed: c.started > 1}
	if state == "exited" {
		p.Exit = &api.Exit{Code: 3}
	}
	return p
}

func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.refuse != nil && c.refuse(w) {
		return
	}
	if strings.HasSuffix(r.URL.Path, "/signal") {
		var s api.SignalProcess
		_ = json.NewDecoder(r.Body).Decode(&s)
		c.mu.Lock()
		c.signals = append(c.signals, s.Signal)
		if s.Signal == int(syscall.SIGPIPE) {
			c.eof = true // the command dies of it
			close(c.wake)
			c.wake = make(chan struct{})
		}
		c.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
		return
	}
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	ws.SetReadLimit(api.FrameBytesMax)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	from, _ := strconv.ParseInt(r.URL.Query().Get("stdout_from"), 10, 64)
	if strings.HasSuffix(r.URL.Path, "/exec") {
		if _, _, err := ws.Read(ctx); err != nil {
			return
		}
		c.mu.Lock()
		c.started++
		c.mu.Unlock()
		if c.cut() {
			return // started, and the client was not told
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if c.frame(ctx, ws, api.FrameStarted, c.process("running")) != nil {
		return
	}
	wg.Go(func() {
		defer cancel()
		c.take(ctx, ws)
	})
	c.emit(ctx, ws, from)
}

func (c *cutter) frame(ctx context.Context, ws *websocket.Conn, k api.FrameKind, v any) error {
	b, _ := json.Marshal(v)
	return ws.Write(ctx, websocket.MessageBinary, append([]byte{byte(k)}, b...))
}

func (c *cutter) take(ctx context.Context, ws *websocket.Conn) {
	for {
		_, msg, err := ws.Read(ctx)
		if err != nil {
			return
		}
		kind, body, err := api.ParseFrame(msg)
		if err != nil {
			c.t.Error(err)
			return
		}
		if kind != api.FrameStdin && kind != api.FrameStdinEOF {
			continue
		}
		at, data, err := api.ParseOffset(body)
		if err != nil || len(data) > api.StdinBytesMax {
			c.t.Errorf("stdin frame of %d bytes: %v", len(data), err)
			return
		}
		if !c.accept(at, data, kind == api.FrameStdinEOF) {
			return
		}
		if c.cut() {
			_ = ws.CloseNow()
			return
		}
		c.mu.Lock()
		ack := api.StdinAck{Acked: int64(len(c.in)), Closed: c.eof}
		c.mu.Unlock()
		if c.frame(ctx, ws, api.FrameAck, ack) != nil {
			return
		}
	}
}

func (c *cutter) accept(at int64, data []byte, eof bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := int64(len(c.in))
	if at > have {
		c.t.Errorf("a hole in stdin: have %d, got offset %d", have, at)
		return false
	}
	if fresh := at + int64(len(data)) - have; fresh > 0 {
		c.in = append(c.in, data[int64(len(data))-fresh:]...)
	}
	c.eof = c.eof || eof
	close(c.wake)
	c.wake = make(chan struct{})
	return true
}

// emit sends the echo from an offset, now and then a few bytes that were seen already.
func (c *cutter) emit(ctx context.Context, ws *websocket.Conn, from int64) {
	for {
		c.mu.Lock()
		back := int64(c.dice.IntN(8))
		at := max(0, min(from-back, int64(len(c.in))))
		data := bytes.Clone(c.in[at:min(at+50_000, int64(len(c.in)))])
		end, wake := c.eof && at+int64(len(data)) == int64(len(c.in)), c.wake
		c.mu.Unlock()
		if at+int64(len(data)) > from {
			f := api.AppendOffsetFrame(nil, api.FrameStdout, at, data)
			if ws.Write(ctx, websocket.MessageBinary, f) != nil || c.cut() {
				return
			}
			from = at + int64(len(data))
			continue
		}
		if end {
			_ = c.frame(ctx, ws, api.FrameExited, c.process("exited"))
			return
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}

func TestCmd_losesNoByteOverDisconnects(t *testing.T) {
	const cuts = 40
	srv, sb := newCutter(t, cuts, 7)
	want := make([]byte, 8<<20)
	for i := range want {
		want[i] = byte(i ^ i>>8 ^ i>>16)
	}
	cmd := sb.Shell("cat; exit 3")
	cmd.Stdin = bytes.NewReader(want)
	var got bytes.Buffer
	cmd.Stdout = &got
	breaks := 0
	cmd.OnReconnect = func(error) { breaks++ }
	err := cmd.Run(t.Context())
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code() != 3 {
		t.Fatalf("Run = %v, want exit status 3", err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Fatalf("got %d bytes, want %d equal ones", got.Len(), len(want))
	}
	if cmd.Lost() != 0 || !bytes.Equal(srv.in, want) {
		t.Fatalf("lost %d; the command got %d bytes of stdin", cmd.Lost(), len(srv.in))
	}
	if breaks < cuts/2 {
		t.Fatalf("only %d disconnects happened", breaks)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// What a caller does on OnStart holds when it sees output: skete forwards
// signals from then on.
func TestCmd_onStartComesBeforeOutput(t *testing.T) {
	_, sb := newCutter(t, 0, 1)
	cmd := sb.Shell("cat")
	cmd.Stdin = strings.NewReader("hello")
	var started atomic.Bool
	cmd.OnStart = func(api.Process) {
		<-time.After(50 * time.Millisecond) // output may be waiting
		started.Store(true)
	}
	var got bytes.Buffer
	cmd.Stdout = writerFunc(func(b []byte) (int, error) {
		if !started.Load() {
			t.Error("output came before OnStart returned")
		}
		return got.Write(b)
	})
	_ = cmd.Run(t.Context())
	if !started.Load() || got.String() != "hello" {
		t.Errorf("started %v, output %q", started.Load(), got.String())
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestCmd_tellsTheCommandThatItsReaderLeft(t *testing.T) {
	srv, sb := newCutter(t, 0, 1)
	cmd := sb.Shell("cat")
	r, w := io.Pipe() // stays open: only the signal ends the command
	cmd.Stdin, cmd.Stdout = r, brokenWriter{}
	if err := cmd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, "hello")
	if err := cmd.Wait(); !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("Wait = %v, want EPIPE", err)
	}
	_ = w.Close()
	if len(srv.signals) != 1 || srv.signals[0] != int(syscall.SIGPIPE) {
		t.Fatalf("signals %v, want one PIPE", srv.signals)
	}
}

func TestCmd_cancelKills(t *testing.T) {
	srv, sb := newCutter(t, 0, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := sb.Shell("cat")
	r, w := io.Pipe() // never ends by itself
	cmd.Stdin = r
	if err := cmd.Start(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := cmd.Wait(); !errors.Is(err, context.Canceled) {
		t.Fatalf("Wait = %v", err)
	}
	_ = w.Close()
	if len(srv.signals) != 1 || srv.signals[0] != int(syscall.SIGKILL) {
		t.Fatalf("signals %v, want one KILL", srv.signals)
	}
}

func TestCmd_refusalKeepsItsProblem(t *testing.T) {
	srv, sb := newCutter(t, 0, 1)
	long := strings.Repeat("long ", 2000)
	srv.refuse = func(w http.ResponseWriter) bool {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(api.Problem{Status: 404, Title: "Not Found", Detail: "no sandbox " + long, Class: "not_found", Hint: "look"})
		return true
	}
	err := sb.Command("true").Run(t.Context())
	if !errs.Is(err, errs.NotFound) || errs.Hint(err) != "look" || !strings.HasSuffix(errs.Public(err), long) {
		t.Fatalf("got %.100v, class %s, hint %q", err, errs.Of(err), errs.Hint(err))
	}
}

func TestCmd_inventsNoStatus(t *testing.T) {
	for name, p := range map[string]api.Process{
		"lost":              {State: "lost", Key: "k"},
		"exited, no status": {State: "exited", Key: "k"},
	} {
		var exit *ExitError
		if err := endOf(p); err == nil || errors.As(err, &exit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGarbageFrames(t *testing.T) {
	for name, msg := range map[string][]byte{
		"empty":             {},
		"wrong first frame": {byte(api.FrameStdout), 0, 0, 0, 0, 0, 0, 0, 0, 'x'},
		"no JSON":           {byte(api.FrameStarted), '{'},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ws, err := websocket.Accept(w, r, nil)
				if err != nil {
					return
				}
				_ = ws.Write(r.Context(), websocket.MessageBinary, msg)
				_, _, _ = ws.Read(r.Context())
				_, _, _ = ws.Read(r.Context())
				_ = ws.CloseNow()
			}))
			defer srv.Close()
			c, _ := New(Config{URL: srv.URL})
			defer c.Close()
			err := c.Sandbox("sbx").Command("true").Run(t.Context())
			if !errs.Is(err, errs.Internal) {
				t.Fatalf("got %v of class %s, want internal", err, errs.Of(err))
			}
		})
	}
}
