package app

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"
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
		master, tty, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: uint16(cols)}); err != nil {
			t.Fatal(err)
		}
		list(tty)
		buf := make([]byte, 4096)
		var got string
		for strings.Count(got, "\n") < 3 {
			n, err := master.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			got += string(buf[:n])
		}
		_, _ = tty.Close(), master.Close()
		for line := range strings.Lines(got) {
			line = strings.TrimRight(line, "\r\n")
			if n := utf8.RuneCountInString(line); n > cols {
				t.Errorf("%d columns: a line has %d: %s", cols, n, line)
			}
		}
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
