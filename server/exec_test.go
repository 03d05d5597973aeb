package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
)

// frame is what a WebSocket message carries.
type frame struct {
	kind   api.FrameKind
	offset int64
	body   []byte
}

// socket is a client's end of exec or attach.
type socket struct {
	t  testing.TB
	ws *websocket.Conn
}

func (w *world) socketAt(t testing.TB, secret, path string) (*socket, *http.Response, error) {
	t.Helper()
	h := http.Header{}
	if secret != "" {
		h.Set("Authorization", "Bearer "+secret)
	}
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	ws, res, err := websocket.Dial(t.Context(), w.base+path, &websocket.DialOptions{
		HTTPHeader: h, HTTPClient: &http.Client{Transport: tr}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, res, err
	}
	ws.SetReadLimit(api.FrameBytesMax + 1)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &socket{t, ws}, res, nil
}

func (w *world) open(t testing.TB, path string) *socket {
	t.Helper()
	s, _, err := w.socketAt(t, w.admin, path)
	must(t, err)
	return s
}

func (s *socket) send(kind api.FrameKind, body []byte) {
	s.t.Helper()
	must(s.t, s.ws.Write(s.t.Context(), websocket.MessageBinary, append([]byte{byte(kind)}, body...)))
}

func (s *socket) sendJSON(kind api.FrameKind, v any) {
	s.t.Helper()
	body, err := json.Marshal(v)
	must(s.t, err)
	s.send(kind, body)
}

func (s *socket) stdin(offset int64, data string) {
	s.t.Helper()
	must(s.t, s.ws.Write(s.t.Context(), websocket.MessageBinary, api.AppendOffsetFrame(nil, api.FrameStdin, offset, []byte(data))))
}

func (s *socket) read() (frame, error) {
	ctx, cancel := patience.Context(context.Background(), 30*time.Second)
	defer cancel()
	_, msg, err := s.ws.Read(ctx)
	if err != nil {
		return frame{}, err
	}
	kind, body, err := api.ParseFrame(msg)
	if err != nil {
		return frame{}, err
	}
	f := frame{kind: kind, body: body}
	if kind == api.FrameStdout || kind == api.FrameStderr {
		f.offset, f.body, err = api.ParseOffset(body)
	}
	return f, err
}

func (s *socket) next() frame {
	s.t.Helper()
	f, err := s.read()
	must(s.t, err)
	return f
}

func (f frame) process(t testing.TB) api.Process {
	t.Helper()
	var p api.Process
	must(t, json.Unmarshal(f.body, &p))
	return p
}

// result is all that came out of a command.
type result struct {
	Stdout, Stderr string
	Process        api.Process
	Problem        api.Problem
}

// rest reads until the end and checks that the offsets have neither hole nor overlap.
func (s *socket) rest() result {
	s.t.Helper()
	var r result
	for {
		f, err := s.read()
		if err != nil {
			return r
		}
		switch f.kind {
		case api.FrameStdout, api.FrameStderr:
			to := &r.Stdout
			if f.kind == api.FrameStderr {
				to = &r.Stderr
			}
			if f.offset != int64(len(*to)) {
				s.t.Fatalf("offset %d after %d bytes", f.offset, len(*to))
			}
			*to += string(f.body)
		case api.FrameStarted, api.FrameExited:
			r.Process = f.process(s.t)
		case api.FrameProblem:
			must(s.t, json.Unmarshal(f.body, &r.Problem))
		}
	}
}

func (w *world) exec(t testing.TB, req api.StartProcess) *socket {
	t.Helper()
	s := w.open(t, "/v1/sandboxes/"+w.sandbox()+"/exec")
	s.sendJSON(api.FrameStart, req)
	return s
}

func TestExec(t *testing.T) {
	w := newWorld(t)
	tests := []struct {
		name           string
		req            api.StartProcess
		stdout, stderr string
		code           int
	}{
		{"argv", api.StartProcess{Argv: []string{"/bin/echo", "hi"}}, "hi\n", "", 0},
		{"command and exit code", api.StartProcess{Command: "echo out; echo err >&2; exit 3"}, "out\n", "err\n", 3},
		{"bash is the shell", api.StartProcess{Command: `printf %s "${BASH_VERSION:+bash}"`}, "bash", "", 0},
		{"code", api.StartProcess{Code: "print(6*7)", Language: "python"}, "42\n", "", 0},
		{"env and cwd", api.StartProcess{Command: "echo $A; pwd", Env: map[string]string{"A": "b c"}, Cwd: "/usr"}, "b c\n/usr\n", "", 0},
		{"killed by a signal", api.StartProcess{Command: "kill -9 $$"}, "", "", 137},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := w.exec(t, tt.req).rest()
			if got.Stdout != tt.stdout || got.Stderr != tt.stderr || got.Process.State != "exited" || got.Process.Exit == nil || got.Process.Exit.Code != tt.code {
				t.Errorf("got %+v exit %+v", got, got.Process.Exit)
			}
		})
	}
}

func TestExecRefusals(t *testing.T) {
	w := newWorld(t)
	for name, first := range map[string]string{
		"not a start":      "\x12\x00\x00\x00\x00\x00\x00\x00\x00x",
		"no JSON":          "\x11{",
		"unknown key":      `{"argv":["true"],"nonsense":1}`,
		"two objects":      `{"argv":["true"]}{}`,
		"nothing to run":   `{}`,
		"argv and command": `{"argv":["true"],"command":"true"}`,
		"a NUL":            `{"argv":["a\u0000b"]}`,
		"not UTF-8":        "{\"argv\":[\"echo\",\"a\xffb\"]}",
		"absurd terminal":  `{"argv":["true"],"terminal":{"cols":0,"rows":1}}`,
		"bad key":          `{"argv":["true"],"key":"a b"}`,
		"no language":      `{"code":"1"}`,
		"strange language": `{"code":"1","language":"cobol"}`,
		"no such command":  `{"argv":["/no/such/command"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := w.open(t, "/v1/sandboxes/"+w.sandbox()+"/exec")
			msg := first
			if strings.HasPrefix(first, "{") {
				msg = "\x11" + first
			}
			must(t, s.ws.Write(t.Context(), websocket.MessageBinary, []byte(msg)))
			if r := s.rest(); r.Problem.Class == "" || r.Problem.Detail == "" || r.Problem.Status < 400 || r.Problem.Status >= 500 {
				t.Errorf("problem %+v, process %+v", r.Problem, r.Process)
			}
		})
	}
}

func TestStdinIsExact(t *testing.T) {
	w := newWorld(t)
	s := w.exec(t, api.StartProcess{Argv: []string{"/bin/cat"}, Stdin: true})
	if f := s.next(); f.kind != api.FrameStarted {
		t.Fatalf("first frame %#x", f.kind)
	}
	const size = 8 << 20
	data := pattern(0, size)
	go func() {
		for at := 0; at < size; at += 200_000 {
			s.stdin(int64(at), string(data[at:min(at+200_000, size)]))
		}
		s.stdin(100, "again, must be skipped") // repeated bytes
		s.send(api.FrameStdinEOF, api.AppendOffsetFrame(nil, 0, size, nil)[1:])
	}()
	r := s.rest()
	if !bytes.Equal([]byte(r.Stdout), data) || r.Process.Exit == nil || r.Process.Exit.Code != 0 {
		t.Errorf("%d bytes came back of %d; exit %+v, problem %+v", len(r.Stdout), size, r.Process.Exit, r.Problem)
	}
	if r.Process.StdinAcked != size {
		t.Errorf("acked %d", r.Process.StdinAcked)
	}
}

func TestStdinHoleEndsTheStream(t *testing.T) {
	w := newWorld(t)
	s := w.exec(t, api.StartProcess{Argv: []string{"/bin/cat"}, Stdin: true})
	s.next()
	s.stdin(0, "abc")
	s.stdin(10, "x")
	if r := s.rest(); r.Problem.Class != "invalid" {
		t.Errorf("problem %+v", r.Problem)
	}
}

// A command that does not read its stdin must still be killable over the same
// stream, however much stdin is queued.
func TestSignalPassesStdin(t *testing.T) {
	w := newWorld(t)
	s := w.exec(t, api.StartProcess{Argv: []string{"/bin/sleep", "600"}, Stdin: true})
	s.next()
	for at := 0; at < 3<<20; at += 256 << 10 {
		s.stdin(int64(at), strings.Repeat("x", 256<<10))
	}
	s.sendJSON(api.FrameSignal, api.SignalProcess{Signal: 15})
	if r := s.rest(); r.Process.Exit == nil || r.Process.Exit.Signal != 15 {
		t.Errorf("ended as %+v, problem %+v", r.Process, r.Problem)
	}
}

func TestTerminal(t *testing.T) {
	w := newWorld(t)
	s := w.exec(t, api.StartProcess{Command: "stty size; read x; stty size; echo got $x", Terminal: &api.TerminalSize{Cols: 80, Rows: 24}})
	var seen string
	want := func(text string) {
		t.Helper()
		for !strings.Contains(seen, text) {
			f := s.next()
			if f.kind == api.FrameStdout {
				seen += string(f.body)
			}
			if f.kind == api.FrameExited || f.kind == api.FrameProblem {
				t.Fatalf("ended before %q: %q %s", text, seen, f.body)
			}
		}
	}
	want("24 80")
	s.sendJSON(api.FrameResize, api.TerminalSize{Cols: 100, Rows: 30})
	s.stdin(0, "yes\n")
	want("30 100")
	want("got yes")
}

// pattern is n bytes of a stream that tells where it was cut: every 8 bytes are
// their own offset.
func pattern(from, n int) []byte {
	b := make([]byte, 0, n+8)
	for at := from &^ 7; len(b) < n+(from&7); at += 8 {
		b = fmt.Appendf(b, "%07x\n", at/8)
	}
	return b[from&7:][:n]
}

// The client vanishes in the middle, again and again: not a byte may be lost.
func TestForcedDisconnects(t *testing.T) {
	w := newWorld(t)
	size, breaks := 100<<20, 1000
	if testing.Short() {
		size, breaks = 8<<20, 50
	}
	key := "disconnects"
	s := w.exec(t, api.StartProcess{Key: key, Wait: true, Command: fmt.Sprintf("seq -f %%015.0f 0 %d", size/16-1)})
	want := sha(func(h io.Writer) {
		for i := range size / 16 {
			fmt.Fprintf(h, "%015d\n", i)
		}
	})
	var got bytes.Buffer
	var ended api.Process
	for n := 0; ended.Key == ""; n++ {
		limit := got.Len() + size/breaks
		for got.Len() < limit {
			f, err := s.read()
			must(t, err)
			if f.kind == api.FrameStdout {
				if f.offset != int64(got.Len()) {
					t.Fatalf("offset %d after %d bytes", f.offset, got.Len())
				}
				got.Write(f.body)
			}
			if f.kind == api.FrameGap || f.kind == api.FrameProblem {
				t.Fatalf("%#x %s", f.kind, f.body)
			}
			if f.kind == api.FrameExited {
				ended = f.process(t)
				break
			}
		}
		if ended.Key == "" {
			_ = s.ws.CloseNow()
			s = w.open(t, fmt.Sprintf("/v1/sandboxes/%s/processes/%s/attach?stdout_from=%d&stderr_from=0", w.sandbox(), key, got.Len()))
		}
	}
	if diff := cmp.Diff(want, sha(func(h io.Writer) { _, _ = h.Write(got.Bytes()) })); diff != "" || got.Len() != size {
		t.Errorf("%d bytes of %d; hash %s", got.Len(), size, diff)
	}
	if ended.Exit == nil || ended.Exit.Code != 0 {
		t.Errorf("ended as %+v", ended)
	}
}

// A client that reads nothing holds up itself alone.
func TestSlowClientHoldsUpNobody(t *testing.T) {
	w := newWorld(t)
	slow := w.exec(t, api.StartProcess{Key: "slow", Argv: []string{"/bin/cat", "/dev/zero"}})
	slow.next()
	deadline := time.Now().Add(patience.Of(20 * time.Second))
	for i := range 20 {
		if r := w.exec(t, api.StartProcess{Argv: []string{"/bin/echo", "quick"}}).rest(); r.Stdout != "quick\n" || time.Now().After(deadline) {
			t.Fatalf("exec %d beside a slow client: %+v", i, r)
		}
	}
	w.call(t, w.admin, http.MethodPost, "/v1/sandboxes/"+w.sandbox()+"/processes/slow/signal", api.SignalProcess{Signal: 9}, http.StatusNoContent, nil)
}

// A client that goes leaves the command running.
func TestClientVanishes(t *testing.T) {
	w := newWorld(t)
	s := w.exec(t, api.StartProcess{Key: "stays", Command: "echo one; read x; echo two", Stdin: true})
	s.next()
	_ = s.ws.CloseNow()
	path := "/v1/sandboxes/" + w.sandbox() + "/processes/stays"
	var p api.Process
	w.call(t, w.admin, http.MethodGet, path, nil, http.StatusOK, &p)
	if p.State != "running" {
		t.Fatalf("after the client went: %+v", p)
	}
	a := w.send(t, w.admin, http.MethodPost, path+"/stdin?offset=0&eof=true", strings.NewReader("x\n"), "Content-Type", "application/octet-stream")
	var ack api.StdinAck
	must(t, json.Unmarshal(a.body, &ack))
	if a.status != http.StatusOK || ack.Acked != 2 {
		t.Fatalf("stdin: %d %s", a.status, a.body)
	}
	r := w.open(t, path+"/attach").rest()
	if r.Stdout != "one\ntwo\n" || r.Process.Exit == nil || r.Process.Exit.Code != 0 {
		t.Errorf("attached: %+v", r)
	}
}

func TestSameKeyNeverRunsTwice(t *testing.T) {
	w := newWorld(t)
	path := "/v1/sandboxes/" + w.sandbox() + "/processes"
	req := api.StartProcess{Key: "once", Command: "echo ran >>/tmp/ran.$PPID"}
	var first, second api.Process
	w.call(t, w.admin, http.MethodPost, path, req, http.StatusCreated, &first)
	w.call(t, w.admin, http.MethodPost, path, req, http.StatusOK, &second)
	if !second.Existed || second.PID != first.PID {
		t.Errorf("first %+v, second %+v", first, second)
	}
}
