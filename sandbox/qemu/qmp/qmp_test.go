package qmp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hello = `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "x"}, "capabilities": ["oob"]}}` + "\n"

type asked struct {
	Execute   string          `json:"execute"`
	Arguments json.RawMessage `json:"arguments"`
	ID        string          `json:"id"`
}

// pair returns a Client's connection and the other end of it.
func pair(t testing.TB) (*net.UnixConn, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		conns[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return conns[0], conns[1]
}

// play starts a peer that greets and then answers requests with talk until it
// returns "".
func play(t testing.TB, talk func(asked, *os.File) string) *Client {
	t.Helper()
	ours, theirs := pair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		_, _ = theirs.Write([]byte(hello))
		for {
			q, f, err := hear(theirs)
			if err != nil {
				return
			}
			line := `{"return": {}, "id": "` + q.ID + `"}` + "\n"
			if q.Execute != "qmp_capabilities" {
				line = talk(q, f)
			}
			if line == "" {
				return
			}
			if _, err := theirs.Write([]byte(line)); err != nil {
				return
			}
		}
	}()
	c, err := New(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); <-done })
	return c
}

func hear(conn *net.UnixConn) (asked, *os.File, error) {
	var q asked
	var f *os.File
	var line []byte
	for !bytes.HasSuffix(line, []byte("\n")) {
		b, oob := make([]byte, 1), make([]byte, 256)
		n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
		if err != nil || n == 0 {
			return q, nil, fmt.Errorf("read: %w", errors.Join(err, net.ErrClosed))
		}
		line = append(line, b...)
		if oobn > 0 {
			msgs, _ := unix.ParseSocketControlMessage(oob[:oobn])
			if fds, err := unix.ParseUnixRights(&msgs[0]); err == nil {
				f = os.NewFile(uintptr(fds[0]), "passed")
			}
		}
	}
	return q, f, json.Unmarshal(line, &q)
}

func ok(id string) string { return `{"return": {}, "id": "` + id + `"}` + "\n" }

func TestACommandGetsItsOwnAnswer(t *testing.T) {
	c := play(t, func(q asked, _ *os.File) string {
		return `{"return": {"asked": "` + q.Execute + `", "with": ` + string(q.Arguments) + `}, "id": "` + q.ID + `"}` + "\n"
	})
	if c.Version() != (Version{7, 2, 22}) || c.Version().String() != "7.2.22" {
		t.Errorf("version %v", c.Version())
	}
	answers := make(chan error, 20)
	for i := range cap(answers) {
		go func() {
			var got struct {
				Asked string
				With  map[string]int
			}
			name := fmt.Sprintf("query-%d", i)
			err := c.Execute(context.Background(), name, map[string]int{"n": i}, &got)
			if err == nil && (got.Asked != name || got.With["n"] != i) {
				err = fmt.Errorf("%s: got %+v", name, got)
			}
			answers <- err
		}()
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

func TestARefusalIsTypedAndTheConnectionGoesOn(t *testing.T) {
	c := play(t, func(q asked, _ *os.File) string {
		if q.Execute == "stop" {
			return ok(q.ID)
		}
		return `{"error": {"class": "CommandNotFound", "desc": "no\u001b[31m"}, "id": "` + q.ID + `"}` + "\n"
	})
	err := c.Execute(t.Context(), "fly", nil, nil)
	var refused *Error
	if !errors.As(err, &refused) || *refused != (Error{"fly", "CommandNotFound", "no\x1b[31m"}) {
		t.Errorf("err = %v", err)
	}
	if strings.ContainsRune(err.Error(), '\x1b') {
		t.Errorf("not quoted: %s", err)
	}
	if err := c.Execute(t.Context(), "stop", nil, nil); err != nil {
		t.Error(err)
	}
}

func TestAFileArrivesWithItsName(t *testing.T) {
	got := make(chan string, 1)
	c := play(t, func(q asked, f *os.File) string {
		if f == nil {
			got <- "no file"
			return ok(q.ID)
		}
		defer f.Close()
		data := make([]byte, 100)
		n, _ := f.ReadAt(data, 0)
		got <- q.Execute + string(q.Arguments) + string(data[:n])
		return ok(q.ID)
	})
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, _ = f.WriteString("content")
	if err := c.PassFile(t.Context(), "state", f); err != nil {
		t.Fatal(err)
	}
	if g, want := <-got, `getfd{"fdname":"state"}content`; g != want {
		t.Errorf("QEMU got %q, want %q", g, want)
	}
}

func TestEventsComeInOrderAndTheOldestGo(t *testing.T) {
	c := play(t, func(q asked, _ *os.File) string {
		var b strings.Builder
		for i := range eventsMax + 10 {
			fmt.Fprintf(&b, `{"event": "E%d", "data": {"n": 1}, "timestamp": {"seconds": 5, "microseconds": 7}}`+"\n", i)
		}
		return b.String() + ok(q.ID)
	})
	if err := c.Execute(t.Context(), "go", nil, nil); err != nil {
		t.Fatal(err)
	}
	first := <-c.Events()
	want := Event{Name: "E10", Data: json.RawMessage(`{"n": 1}`), Time: time.Unix(5, 7000)}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Error(diff)
	}
	_ = c.Close()
	n := 1
	for range c.Events() {
		n++
	}
	if n != eventsMax {
		t.Errorf("%d events were kept, want %d", n, eventsMax)
	}
}

// A QEMU that is stopped, or wedged, must not hold us.
func TestNoAnswerEndsWithTheContextAndALateOneHurtsNobody(t *testing.T) {
	release := make(chan struct{})
	c := play(t, func(q asked, _ *os.File) string {
		if q.Execute == "slow" {
			<-release
		}
		return ok(q.ID)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Execute(ctx, "slow", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
	close(release)
	if err := c.Execute(t.Context(), "quick", nil, nil); err != nil {
		t.Errorf("after a late answer: %v", err)
	}
}

func TestAFullSocketEndsWithTheContext(t *testing.T) {
	ours, theirs := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = theirs.Write([]byte(hello))
		q, _, _ := hear(theirs)
		_, _ = theirs.Write([]byte(ok(q.ID)))
		_, _ = theirs.Read(make([]byte, 1)) // the next line has begun, and is never read
		cancel()
	}()
	c, err := New(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	big := map[string]string{"x": strings.Repeat("x", 4<<20)}
	if err := c.Execute(ctx, "big", big, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	if err := c.Execute(t.Context(), "next", nil, nil); !errs.Is(err, errs.Unavailable) {
		t.Errorf("after a line cut short: %v", err)
	}
}

func TestAConnectionThatEndsSaysSo(t *testing.T) {
	c := play(t, func(asked, *os.File) string { return "" })
	if err := c.Execute(t.Context(), "quit", nil, nil); !errs.Is(err, errs.Unavailable) {
		t.Errorf("err = %v", err)
	}
	<-c.Done()
	if err := c.Execute(t.Context(), "more", nil, nil); !errs.Is(err, errs.Unavailable) {
		t.Errorf("err = %v", err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What may stand where an answer is due, and after a good start.
var badLines = map[string]string{
	"nothing":              "",
	"an empty line":        "\n",
	"no JSON":              "QMP!\n",
	"cut short":            `{"return": {}`,
	"no object":            "[]\n",
	"a number":             "7\n",
	"null":                 "null\n",
	"nothing said":         "{}\n",
	"two things":           `{"return": {}, "event": "X", "id": "2"}` + "\n",
	"answer and refusal":   `{"return": {}, "error": {"class": "a", "desc": "b"}, "id": "2"}` + "\n",
	"no id":                `{"return": {}}` + "\n",
	"id a number":          `{"return": {}, "id": 2}` + "\n",
	"id not ours":          `{"return": {}, "id": "x"}` + "\n",
	"id with a sign":       `{"return": {}, "id": "+2"}` + "\n",
	"id with zeros":        `{"return": {}, "id": "02"}` + "\n",
	"id zero":              `{"return": {}, "id": "0"}` + "\n",
	"id never asked":       `{"return": {}, "id": "900"}` + "\n",
	"id too large":         `{"return": {}, "id": "99999999999999999999999"}` + "\n",
	"error no object":      `{"error": "no", "id": "2"}` + "\n",
	"event without a name": `{"event": ""}` + "\n",
	"event no string":      `{"event": 3}` + "\n",
	"greeting again":       hello,
	"greeting, no version": `{"QMP": {}}` + "\n",
	"version no numbers":   `{"QMP": {"version": {"qemu": {"major": "7"}}}}` + "\n",
	"two in a line":        `{"event": "A"} {"event": "B"}` + "\n",
	"too deep":             strings.Repeat("[", 20_000) + "\n",
	"too long":             `{"event": "` + strings.Repeat("x", lineBytesMax) + `"}` + "\n",
	"never ends":           strings.Repeat("x", 2*lineBytesMax),
}

func TestBadLinesEndTheConnection(t *testing.T) {
	for name, line := range badLines {
		t.Run(name, func(t *testing.T) {
			c := play(t, func(asked, *os.File) string { return line })
			if line != "" && !strings.HasSuffix(line, "\n") && len(line) < lineBytesMax {
				go func() { _ = c.conn.CloseWrite() }() // the peer ends, and its line is cut short
			}
			ctx, cancel := patience.Context(t.Context(), 10*time.Second)
			defer cancel()
			if err := c.Execute(ctx, "query-status", nil, nil); !errs.Is(err, errs.Unavailable) || ctx.Err() != nil {
				t.Errorf("err = %v", err)
			}
		})
	}
}

func TestBadGreetings(t *testing.T) {
	for name, line := range badLines {
		if name == "greeting again" {
			continue
		}
		ours, theirs := pair(t)
		go func() {
			_, _ = theirs.Write([]byte(line))
			_ = theirs.CloseWrite()
		}()
		if _, err := New(t.Context(), ours); !errs.Is(err, errs.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// QEMU says nothing to a second client.
func TestNoGreetingEndsWithTheContext(t *testing.T) {
	ours, _ := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := New(ctx, ours); !errs.Is(err, errs.Unavailable) {
		t.Errorf("err = %v", err)
	}
}

func TestDialReachesALongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), filepath.Join(dir, "none")); !errs.Is(err, errs.Unavailable) {
		t.Errorf("no socket: %v", err)
	}
	t.Chdir(dir)
	ln, err := net.Listen("unix", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte(hello))
		q, _, _ := hear(conn.(*net.UnixConn))
		_, _ = conn.Write([]byte(ok(q.ID)))
		_, _, _ = hear(conn.(*net.UnixConn))
	}()
	c, err := Dial(t.Context(), filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(hello))
	f.Add([]byte(ok("12")))
	f.Add([]byte(`{"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 2}}`))
	for _, line := range badLines {
		if len(line) < 4<<10 {
			f.Add([]byte(line))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		line, err := readLine(bufio.NewReaderSize(bytes.NewReader(data), 16))
		if err != nil {
			return
		}
		m, err := parse(line)
		if err != nil {
			return
		}
		if m.kind == happened && m.event.Name == "" || m.kind == 0 {
			t.Fatalf("%q became %+v", line, m)
		}
		_ = m.outcome("x", &struct{}{})
	})
}
