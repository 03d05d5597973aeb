package guest_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

// program names a program of an agent.
func program(content string) wire.AgentProgram {
	sum := sha256.Sum256([]byte(content))
	return wire.AgentProgram{Hash: hex.EncodeToString(sum[:]), Bytes: int64(len(content))}
}

// sends returns the program, and counts.
func sends(content string, times *int) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		*times++
		return io.NopCloser(strings.NewReader(content)), nil
	}
}

// said reads a line of an agent.
func said(t *testing.T, conn net.Conn) string {
	t.Helper()
	must(t, conn.SetReadDeadline(time.Now().Add(patience.Of(30*time.Second))))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatalf("the agent said %q, and then %v", line, err)
	}
	return strings.TrimSpace(line)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A program is sent once, runs for each stream, and ends with it; the one before it is
// forgotten.
func TestAgent(t *testing.T) {
	m := start(t, options{})
	first := "#!/bin/sh\necho \"first $1 $2 $$\" >&3\nexec cat <&3 >&3\n"
	sent := 0
	conn, err := m.client.BeginAgent(t.Context(), program(first), sends(first, &sent))
	must(t, err)
	want := fmt.Sprintf("first %d %d", m.boot.UID, m.boot.GID)
	hello := said(t, conn)
	if !strings.HasPrefix(hello, want) {
		t.Errorf("it says %q, not %q", hello, want)
	}
	_, err = io.WriteString(conn, "over there\n")
	must(t, err)
	if got := said(t, conn); got != "over there" {
		t.Errorf("it says %q", got)
	}
	other, err := m.client.BeginAgent(t.Context(), program(first), sends(first, &sent))
	must(t, err)
	if got := said(t, other); !strings.HasPrefix(got, want) || sent != 1 {
		t.Errorf("the second one says %q; sent %d times", got, sent)
	}
	must(t, conn.Close())
	must(t, other.Close())
	name := agentsIn(m)
	if len(name) != 1 || name[0] != program(first).Hash {
		t.Errorf("there are the programs %v", name)
	}
	second := "#!/bin/sh\necho a word for the log >&2\necho second >&3\n"
	conn, err = m.client.BeginAgent(t.Context(), program(second), sends(second, &sent))
	must(t, err)
	if got := said(t, conn); got != "second" {
		t.Errorf("it says %q", got)
	}
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // of the connection itself
		t.Errorf("behind its end: %v", err)
	}
	if name := agentsIn(m); len(name) != 1 || name[0] != program(second).Hash {
		t.Errorf("there are the programs %v", name)
	}
	patience.Until(t, 30*time.Second, "its words are in the log", func() bool { return strings.Contains(m.log.String(), `"a word for the log"`) })
	patience.Until(t, 30*time.Second, "the first agents have ended", func() bool { return !runs(first) })
}

func agentsIn(m *machine) (names []string) {
	list, _ := os.ReadDir(filepath.Join(m.boot.StateDir, "agents"))
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// runs reports whether a process of a program is left.
func runs(content string) bool {
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range list {
		if line, _ := os.ReadFile(f); bytes.Contains(line, []byte(program(content).Hash)) {
			return true
		}
	}
	return false
}

// What is not the program that was named does not run, and the machine goes on.
func TestAgent_badPrograms(t *testing.T) {
	m := start(t, options{})
	good := "#!/bin/sh\necho ran >&3\n"
	sent := 0
	for name, c := range map[string]struct {
		is   wire.AgentProgram
		send string
		want errs.Class
	}{
		"another hash":  {program(good), strings.Replace(good, "ran", "RAN", 1), errs.Invalid},
		"no hash":       {wire.AgentProgram{Hash: "../../../bin/sh", Bytes: 5}, good, errs.Invalid},
		"upper case":    {wire.AgentProgram{Hash: strings.ToUpper(program(good).Hash), Bytes: int64(len(good))}, good, errs.Invalid},
		"nothing":       {wire.AgentProgram{Hash: program("").Hash}, "", errs.Invalid},
		"too large":     {wire.AgentProgram{Hash: program(good).Hash, Bytes: wire.AgentBytesMax + 1}, good, errs.Invalid},
		"cut off":       {wire.AgentProgram{Hash: program(good).Hash, Bytes: int64(len(good)) + 10}, good, errs.Unavailable},
		"not there":     {program(good), "-", errs.NotFound},
		"a long header": {wire.AgentProgram{Hash: strings.Repeat("a", 10_000), Bytes: 1}, good, errs.Invalid},
	} {
		conn, err := m.client.BeginAgent(t.Context(), c.is, func() (io.ReadCloser, error) {
			if c.send == "-" {
				return nil, errs.New(errs.NotFound, "no such program")
			}
			return io.NopCloser(strings.NewReader(c.send)), nil
		})
		if err == nil {
			conn.Close()
		}
		if !errs.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A caller that has gone does not wait for the guest to clear up.
	patience.Until(t, 30*time.Second, "nothing is left of them", func() bool { return len(agentsIn(m)) == 0 })
	text := "this is no program"
	conn, err := m.client.BeginAgent(t.Context(), program(text), sends(text, &sent))
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(patience.Of(30*time.Second))))
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // of the connection itself
		t.Errorf("of what cannot run: %v", err)
	}
	conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = m.client.BeginAgent(ctx, program(good), func() (io.ReadCloser, error) { cancel(); return io.NopCloser(strings.NewReader(good)), nil })
	if err == nil {
		t.Error("a caller that has gone got an agent")
	}
	conn, err = m.client.BeginAgent(t.Context(), program(good), sends(good, &sent))
	must(t, err)
	if got := said(t, conn); got != "ran" {
		t.Errorf("after all of that it says %q", got)
	}
	conn.Close()
}

// More agents than there may be are refused.
func TestAgent_tooMany(t *testing.T) {
	m := start(t, options{})
	waits := "#!/bin/sh\necho here >&3\nexec cat <&3 >&3\n"
	sent := 0
	for n := range 17 {
		conn, err := m.client.BeginAgent(t.Context(), program(waits), sends(waits, &sent))
		if n == 16 {
			if !errs.Is(err, errs.Limit) {
				t.Errorf("one too many: %v", err)
			}
			break
		}
		must(t, err)
		defer conn.Close()
		said(t, conn)
	}
}

// FuzzReadAgentProgram reads what the host may name.
func FuzzReadAgentProgram(f *testing.F) {
	f.Add([]byte(program("x").Hash + " 1\n"))
	f.Add([]byte("\n"))
	f.Add([]byte(strings.Repeat("a", 300)))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := wire.ReadAgentProgram(bytes.NewReader(data))
		if err == nil && (len(p.Hash) != 64 || strings.ContainsAny(p.Hash, "/.") || p.Bytes <= 0 || p.Bytes > wire.AgentBytesMax) {
			t.Errorf("%q is %+v", data, p)
		}
	})
}
