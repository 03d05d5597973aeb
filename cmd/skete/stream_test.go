package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/cmd/skete/internal/serve"
)

// inEach runs a test in a sandbox of the provider process, which is fast and
// needs no rights, and where it can in gVisor, which is what users have.
func inEach(t *testing.T, f func(t *testing.T, w *world, id string)) {
	for _, provider := range []string{"process", "gvisor"} {
		t.Run(provider, func(t *testing.T) {
			if provider == "gvisor" && os.Getuid() != 0 {
				t.Skip("needs root: gVisor with all limits")
			}
			w := newWorld(t, provider)
			f(t, w, w.run("vm", "create", "-q"))
		})
	}
}

func status(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// TestExec_100MBThroughAndBack is acceptance 6.
func TestExec_100MBThroughAndBack(t *testing.T) { inEach(t, testExec_100MBThroughAndBack) }

func testExec_100MBThroughAndBack(t *testing.T, w *world, id string) {
	const size = 100 << 20
	src := rand.NewChaCha8([32]byte{1})
	sent, got := sha256.New(), sha256.New()
	cmd := w.command("vm", "exec", id, "--", "cat")
	cmd.Stdin = io.TeeReader(io.LimitReader(src, size), sent)
	var count counter
	cmd.Stdout = io.MultiWriter(got, &count)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if count != size || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Fatalf("%d bytes came back of %d, sha256 %s, want %s", count, size, hex.EncodeToString(got.Sum(nil)), hex.EncodeToString(sent.Sum(nil)))
	}
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// TestExec_outputComesAsItIsWritten: the first line is here while the command
// waits for what we answer to it.
func TestExec_outputComesAsItIsWritten(t *testing.T) {
	w := newWorld(t, "process")
	id := w.run("vm", "create", "-q")
	cmd := w.command("vm", "exec", id, "--cmd", "echo first; read x; echo got $x; exit 4")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	first, err := r.ReadString('\n')
	if err != nil || first != "first\n" {
		t.Fatalf("%q, %v", first, err)
	}
	fmt.Fprintln(in, "answer")
	rest, _ := io.ReadAll(r)
	if err := cmd.Wait(); status(err) != 4 || string(rest) != "got answer\n" {
		t.Fatalf("%q, %v", rest, err)
	}
}

func TestExec_forwardsSignals(t *testing.T) {
	w := newWorld(t, "process")
	id := w.run("vm", "create", "-q")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := w.command("vm", "exec", id, "--cmd", fmt.Sprintf(`trap 'echo caught; exit 9' %d; echo ready; while :; do sleep 0.02; done`, sig))
			out, _ := cmd.StdoutPipe()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(out)
			if line, err := r.ReadString('\n'); err != nil || line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			_ = cmd.Process.Signal(sig)
			rest, _ := io.ReadAll(r)
			if err := cmd.Wait(); status(err) != 9 || string(rest) != "caught\n" {
				t.Fatalf("%q, %v", rest, err)
			}
		})
	}
}

// TestExec_readerLeaves: skete vm exec … | head -1 ends.
func TestExec_readerLeaves(t *testing.T) {
	w := newWorld(t, "process")
	id := w.run("vm", "create", "-q")
	cmd := w.command("vm", "exec", id, "--key", "yes", "--", "yes")
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "y\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_ = out.Close()
	if err := cmd.Wait(); status(err) != 128+int(syscall.SIGPIPE) {
		t.Fatalf("ended with %v, want 141", err)
	}
	if p, err := w.client().Sandbox(id).Process(t.Context(), "yes"); err != nil || p.State != "exited" {
		t.Errorf("the command in the sandbox: %+v, %v", p, err)
	}
}

// TestTemp_interrupted leaves no sandbox.
func TestTemp_interrupted(t *testing.T) {
	w := newWorld(t, "process")
	cmd := w.command("vm", "temp", "--cmd", "echo ready; exec sleep 1000")
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); status(err) != 128+int(syscall.SIGINT) {
		t.Errorf("ended with %v, want 130", err)
	}
	if left := w.run("vm", "list", "-q"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// TestAutostart_once: several programs at the same time start one server.
func TestAutostart_once(t *testing.T) {
	w := newWorld(t, "process")
	var wg sync.WaitGroup
	var mu sync.Mutex
	started := 0
	for range 6 {
		wg.Go(func() {
			cmd := w.command("vm", "list", "--json")
			var errOut bytes.Buffer
			cmd.Stderr = &errOut
			out, err := cmd.Output()
			if err != nil || strings.TrimSpace(string(out)) != "[]" {
				t.Errorf("%q, %v\n%s", out, err, errOut.String())
			}
			mu.Lock()
			defer mu.Unlock()
			started += strings.Count(errOut.String(), "starting one in the background")
		})
	}
	wg.Wait()
	if started != 1 {
		t.Errorf("%d servers were started", started)
	}
}

// TestForward reaches a web server that listens on loopback inside.
func TestForward(t *testing.T) { inEach(t, testForward) }

func testForward(t *testing.T, w *world, id string) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("needs python3 for the web server inside")
	}
	w.run("vm", "exec", id, "-n", "--cmd", "echo hello > index.html")
	w.run("vm", "exec", id, "-d", "--key", "web", "--cmd", `exec python3 -u -c '
import http.server, socketserver
s = socketserver.TCPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print(s.server_address[1])
s.serve_forever()'`)
	var port string
	poll(t, "the web server inside listens", func() bool {
		port = w.run("vm", "logs", id, "web")
		return port != ""
	})
	cmd := w.command("vm", "forward", "-q", id, "0:"+strings.TrimSpace(port))
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		res, err := http.Get("http://" + strings.TrimSpace(addr) + "/")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(body) != "hello\n" {
			t.Errorf("%q", body)
		}
	}
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); status(err) != 128+int(syscall.SIGINT) {
		t.Errorf("ended with %v", err)
	}
}

// screen is a program in a terminal of its own, and all that it has shown.
type screen struct {
	t           *testing.T
	cmd         *exec.Cmd
	master, tty *os.File
	before      unix.Termios // of the terminal
	done        chan struct{}
	mu          sync.Mutex
	seen        bytes.Buffer
}

// onScreen starts a command in a terminal.
func onScreen(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	s := &screen{t: t, cmd: cmd, done: make(chan struct{})}
	var err error
	if s.master, s.tty, err = pty.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.master.Close() })
	s.size(30, 100)
	s.before = termios(t, s.tty)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.tty, s.tty, s.tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go s.follow()
	return s
}

func (s *screen) follow() {
	defer close(s.done)
	buf := make([]byte, 4096)
	for {
		n, err := s.master.Read(buf)
		s.mu.Lock()
		s.seen.Write(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *screen) size(rows, cols uint16) {
	_ = pty.Setsize(s.master, &pty.Winsize{Rows: rows, Cols: cols})
}

func (s *screen) keys(text string) { _, _ = io.WriteString(s.master, text) }

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

func (s *screen) wants(text string) {
	s.t.Helper()
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the screen:\n%s", s.text())
		}
	})
	began := time.Now()
	poll(s.t, fmt.Sprintf("the screen shows %q", text), func() bool { return strings.Contains(s.text(), text) })
	s.t.Logf("%q after %s", text, time.Since(began).Round(time.Millisecond))
}

// ends waits for the command's end, and holds its status and the terminal's
// settings against what they must be.
func (s *screen) ends(want int) {
	s.t.Helper()
	if err := s.cmd.Wait(); status(err) != want {
		s.t.Errorf("it ended with %v, want %d\n%s", err, want, s.text())
	}
	if after := termios(s.t, s.tty); after != s.before {
		s.t.Errorf("the terminal's settings were not put back: %+v, want %+v", after, s.before)
	}
	_ = s.tty.Close()
	<-s.done
}

// TestShell is the terminal test of acceptance 6: size, resize, Ctrl-C, exit
// code, and a terminal that is as it was before.
func TestShell(t *testing.T) { inEach(t, testShell) }

func testShell(t *testing.T, w *world, id string) {
	s := onScreen(t, w.command("vm", "shell", id, "--cmd", "exec bash --norc --noprofile -i"))
	s.keys("echo size=$(stty size)\r")
	s.wants("size=30 100")
	s.size(41, 121)
	s.keys("until [ \"$(stty size)\" = '41 121' ]; do sleep 0.02; done; echo resized=yes-it-is\r")
	s.wants("resized=yes-it-is\r\n")
	// The command itself says that it is in the foreground: a Ctrl-C while bash
	// is about to start it would be bash's.
	s.keys("sh -c \"echo wait''ing; exec sleep 1000\"\r")
	s.wants("waiting\r\n")
	s.keys("\x03")
	s.keys("echo after=$?\r")
	s.wants("after=130")
	s.keys("exit 7\r")
	s.ends(7)
}

// TestShell_terminated: the terminal is put back also when a signal ends us.
func TestShell_terminated(t *testing.T) {
	w := newWorld(t, "process")
	id := w.run("vm", "create", "-q")
	s := onScreen(t, w.command("vm", "shell", id, "--cmd", "echo rea''dy; exec sleep 1000"))
	s.wants("ready\r\n")
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	s.ends(128 + int(syscall.SIGTERM))
}

// TestShell_left: a program that prints, and takes no Ctrl-C, can be left.
func TestShell_left(t *testing.T) {
	w := newWorld(t, "process")
	id := w.run("vm", "create", "-q")
	s := onScreen(t, w.command("vm", "shell", id, "--cmd", "trap '' INT; while :; do echo on it; sleep 0.1; done"))
	s.wants("on it\r\n")
	for _, keys := range []string{"\x03", "\x03\x03", "~.", "\r~", "."} {
		s.keys(keys)
	}
	s.ends(128 + int(syscall.SIGINT))
	if !strings.Contains(s.text(), " was killed\r\n") {
		t.Errorf("it does not say what became of the program:\n%s", s.text())
	}
}

func TestServe_secondRefuses(t *testing.T) {
	w := newWorld(t, "process")
	w.run("vm", "list")
	second := w.command("serve", "--listen", "")
	text, err := second.CombinedOutput()
	if status(err) != 75 || !strings.Contains(string(text), "uses this data directory") || !strings.Contains(string(text), "hint: ") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestServe_showsTheAdminKeyOnce on stderr; with it everything can be done over HTTP.
func TestServe_showsTheAdminKeyOnce(t *testing.T) {
	w := newWorld(t, "process")
	secret := ""
	for start := range 2 {
		cmd := w.command("serve", "--listen", "127.0.0.1:0")
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		poll(t, "the server answers", func() bool { return w.client().Ready(t.Context()) == nil })
		if start == 1 {
			w.overHTTP(secret)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("stopped with %v\n%s", err, errOut.String())
		}
		found := regexp.MustCompile(`e2b_[0-9a-f]{40}`).FindAllString(errOut.String(), -1)
		if want := 1 - start; len(found) != want {
			t.Fatalf("start %d showed %d keys, want %d", start, len(found), want)
		}
		if start == 0 {
			secret = found[0]
		}
		for _, name := range []string{"skete.sock", "server.json"} {
			if _, err := os.Stat(filepath.Join(w.home, name)); err == nil {
				t.Errorf("%s was left behind", name)
			}
		}
	}
}

// overHTTP uses the server by its TCP address, with and without a key.
func (w *world) overHTTP(secret string) {
	w.t.Helper()
	var facts serve.Facts
	data, err := os.ReadFile(serve.FactsPath(w.home))
	if err != nil || json.Unmarshal(data, &facts) != nil {
		w.t.Fatal(err)
	}
	for key, want := range map[string]int{secret: 0, "": 125, "e2b_0000000000000000000000000000000000000000": 125} {
		cmd := w.command("vm", "temp", "--", "echo", "over", "http")
		cmd.Env = append(cmd.Env, "SKETE_URL="+facts.URL, "SKETE_KEY="+key)
		out, err := cmd.Output()
		if status(err) != want || want == 0 && string(out) != "over http\n" {
			w.t.Errorf("key %.8q: %q, %v", key, out, err)
		}
	}
}
