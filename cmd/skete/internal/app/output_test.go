package app

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/creack/pty"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
)

// A table is no wider than the terminal; what is piped is whole.
func TestListFitsTheTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	items := []string{"sbx_aaaaaaaaaaaaaaaaaaaa", "sbx_bbbbbbbbbbbbbbbbbbbb"}
	command := strings.Repeat("word ", 40)
	list := func(out *os.File) {
		a := New(nil, out, out)
		err := List(a, items, func(s string) string { return s }, []string{"ID", "STATE", "COMMAND", "REASON"},
			func(s string) []string { return []string{s, "running", command, "größer als der Rest der Zeile"} })
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, cols := range []int{60, 80, 120} {
		got := inTerminal(t, cols, 3, list)
		if !strings.Contains(got, "…") || !strings.Contains(got, items[0]) {
			t.Errorf("%d columns: the ids must be whole, the commands cut:\n%s", cols, got)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	list(w)
	_ = w.Close()
	buf := make([]byte, 4096)
	n, _ := r.Read(buf)
	if got := string(buf[:n]); strings.Contains(got, "…") || !strings.Contains(got, strings.TrimRight(command, " ")) {
		t.Errorf("a pipe gets it whole:\n%s", got)
	}
}

// inTerminal returns what prints so many lines in a terminal; none may be wider.
func inTerminal(t *testing.T, cols, lines int, print func(*os.File)) string {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = tty.Close(), master.Close() }()
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: uint16(cols)}); err != nil {
		t.Fatal(err)
	}
	print(tty)
	buf := make([]byte, 4096)
	var got string
	for strings.Count(got, "\n") < lines {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:n])
	}
	got = strings.ReplaceAll(got, "\r", "")
	for line := range strings.Lines(got) {
		if n := screen.Width(strings.TrimSuffix(line, "\n")); n > cols {
			t.Errorf("%d columns: a line has %d: %s", cols, n, line)
		}
	}
	return got
}

// A sandbox that was made for a tool says for which, and who shares it.
func TestSandboxRow_ofATool(t *testing.T) {
	row := SandboxRow(api.Sandbox{ID: "sbx_a", Metadata: map[string]string{"skete.tool.name": "scan", "skete.tool.scope": "user anna"}})
	if got := row[slices.Index(SandboxHeader, "RUN")]; got != "scan (user anna)" {
		t.Errorf("%q", got)
	}
}

// The list of sandboxes leaves columns out in a narrow terminal, so that ids,
// names and states can be read.
func TestSandboxesFitTheTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	soon := time.Now().Add(time.Hour + time.Minute)
	items := []api.Sandbox{
		{
			ID: "sbx_aaaaaaaaaaaaaaaaaaaa", Name: "frontend", State: "running", Run: "run_aaaaaaaaaaaaaaaaaaaa", Isolation: "user-kernel",
			Provider: "gvisor", Language: "python", CPUs: 0.5, MemoryMB: 512, ExpiresAt: &soon, CreatedAt: time.Now().Add(-3*time.Hour - time.Minute),
		},
		{ID: "sbx_bbbbbbbbbbbbbbbbbbbb", Name: "前端开发环境前端开发环境🚀", State: "stopped", Reason: "it was idle", CPUs: 2, MemoryMB: 16384, CreatedAt: time.Now().Add(-3*time.Hour - time.Minute)},
	}
	for cols, header := range map[int]string{
		60:  "ID NAME STATE AGE",
		80:  "ID NAME STATE RUN AGE",
		200: strings.Join(SandboxHeader, " "),
	} {
		got := inTerminal(t, cols, 3, func(out *os.File) {
			if err := List(New(nil, out, out), items, func(s api.Sandbox) string { return s.ID }, SandboxHeader, SandboxRow); err != nil {
				t.Fatal(err)
			}
		})
		lines := strings.Split(got, "\n")
		if h := strings.Join(strings.Fields(lines[0]), " "); h != header {
			t.Errorf("%d columns: header %q, want %q", cols, h, header)
		}
		for i, want := range [][]string{{items[0].ID, " frontend ", " running ", " 3h"}, {items[1].ID, " 前端开发", " stopped", " 3h"}} {
			at := lines[i+1]
			for _, w := range want {
				if !strings.Contains(at, w) {
					t.Errorf("%d columns: %q is missing:\n%s", cols, w, got)
				}
			}
			// The columns stand beneath their names, whatever is written in them.
			if a, b := strings.Index(lines[0], "AGE"), screen.Width(at[:strings.LastIndex(at, "3h")]); a != b {
				t.Errorf("%d columns: AGE is at %d, its value at %d:\n%s", cols, a, b, got)
			}
		}
	}
}

// JSON of what a guest said drives no terminal, and says the same.
func TestPrintJSON_isPrintable(t *testing.T) {
	v := map[string]any{"a": "x\u009b2J\u202e\x7f\U000E0001é🙂\r\x1b[0m", "raw": json.RawMessage("\"\u200b\"")}
	for name, print := range map[string]func(io.Writer, any) error{"indented": PrintJSON, "a line": PrintJSONLine} {
		var b bytes.Buffer
		if err := print(&b, v); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || !strings.Contains(b.String(), "é🙂") {
			t.Errorf("%s: %q", name, b.String())
		}
		var got map[string]string
		if err := json.Unmarshal(b.Bytes(), &got); err != nil || got["a"] != v["a"] || got["raw"] != "\u200b" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
