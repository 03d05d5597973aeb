package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What is no message is answered, and the connection goes on.
func TestAgent_badLines(t *testing.T) {
	in, send := io.Pipe()
	receive, out := io.Pipe()
	a := New(Config{Connect: func(context.Context) (*client.Client, error) {
		return nil, errs.New(errs.Unavailable, "the server does not answer")
	}})
	done := make(chan error, 1)
	go func() { done <- a.Run(t.Context(), in, out); out.Close() }()
	answers := json.NewDecoder(receive)
	for _, c := range []struct {
		line string
		id   any
		code int
		says string
	}{
		{`{"jsonrpc":"2.0","id":1,`, nil, -32700, "no JSON"},
		{`[]`, nil, -32600, "no request"},
		{`{"jsonrpc":"2.0"}`, nil, -32600, "no request"},
		{strings.Repeat("x", lineBytesMax+1), nil, -32600, "more than"},
		{`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}`, 2.0, -32600, "initialize comes first"},
		{`{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":1}}`, 3.0, 0, `"protocolVersion":1`},
		{`{"jsonrpc":"2.0","id":4,"method":"session/fly","params":{}}`, 4.0, -32601, "session/fly"},
		{`{"jsonrpc":"2.0","id":5,"method":"session/new","params":{"cwd":7}}`, 5.0, -32602, "cwd"},
		{`{"jsonrpc":"2.0","id":6,"method":"session/new","params":{"cwd":"tmp","mcpServers":[]}}`, 6.0, -32602, "absolute"},
		{`{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/nothing/here","mcpServers":[]}}`, 7.0, -32602, "not there"},
		{`{"jsonrpc":"2.0","id":8,"method":"session/new","params":{"cwd":"/etc","mcpServers":[]}}`, 8.0, -32603, "does not answer"},
		{`{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{"sessionId":"sbx_x","prompt":[{"type":"text","text":"x"}]}}`, 9.0, notFound, "no session"},
	} {
		_, err := io.WriteString(send, c.line+"\n")
		must(t, err)
		var raw json.RawMessage
		must(t, answers.Decode(&raw))
		var got struct {
			ID    any
			Error *sdk.RequestError
		}
		must(t, json.Unmarshal(raw, &got))
		code := 0
		if got.Error != nil {
			code = got.Error.Code
		}
		if got.ID != c.id || code != c.code || !strings.Contains(string(raw), c.says) {
			t.Errorf("%.60s: %.300s", c.line, raw)
		}
	}
	send.Close()
	must(t, <-done)
}

// A directory is copied without what git ignores, its own files, and links.
func TestScanDir(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		".gitignore": "*.log\n!keep.log\n/build/\nsub/*.tmp\n", "a.txt": "a", "b.log": "", "keep.log": "", "build/x": "", "sub/build/y": "",
		"sub/c.tmp": "", "sub/deep/d.tmp": "", "sub/.gitignore": "deep/e\n", "sub/deep/e": "", ".git/config": "", "sub/.git/config": "",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	must(t, os.Symlink("/etc", filepath.Join(dir, "etc")))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	got, err := scanDir(root)
	must(t, err)
	want := []string{".gitignore", "a.txt", "keep.log", "sub/.gitignore", "sub/build/y", "sub/deep/d.tmp"}
	if d := cmp.Diff(want, slices.Sorted(maps.Keys(got))); d != "" {
		t.Error(d)
	}
	big, err := os.Create(filepath.Join(dir, "big"))
	must(t, err)
	must(t, big.Truncate(fileBytesMax+1))
	must(t, big.Close())
	if _, err := scanDir(root); !errs.Is(err, errs.Limit) || !strings.Contains(errs.Public(err), "big has") {
		t.Errorf("a large file: %v", err)
	}
}

// What a pattern of a .gitignore means, as git's documentation has it.
func TestRule(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		dir, want     bool
	}{
		{"a", "a", false, true},
		{"a", "x/a", false, true},
		{"/a", "x/a", false, false},
		{"x/a", "y/x/a", false, false},
		{"a/", "a", false, false},
		{"a/", "a", true, true},
		{"*.o", "x/y.o", false, true},
		{"x/*.o", "x/z/y.o", false, false},
		{"**/b", "a/b", false, true},
		{"**/b", "b", false, true},
		{"a/**", "a/b/c", false, true},
		{"a/**", "a", true, false},
		{"a/**/b", "a/b", false, true},
		{"a/**/b", "a/x/y/b", false, true},
		{"[", "[", false, false},
		{`\#a`, "#a", false, true},
		{`\!a`, "!a", false, true},
	} {
		rules := parseIgnore("# nothing\n\n" + c.pattern + "  \r\n")
		if len(rules) != 1 || rules[0].matches(strings.Split(c.name, "/"), c.dir) != c.want {
			t.Errorf("%s of %s, directory %v: not %v", c.pattern, c.name, c.dir, c.want)
		}
	}
}

// Names that a sandbox makes up leave the editor's directory neither by themselves nor
// through links.
func TestWrite_hostile(t *testing.T) {
	for name, bad := range map[string]bool{
		"a": false, "a/b.txt": false, "..": true, "../a": true, "a/../../b": true, "a/../b": true, "/etc/passwd": true, "": true, ".": true, "a//b": true,
		"a\x00b": true, `a\b`: true, ".git/config": true, "a/.GIT/hooks/x": true, strings.Repeat("a/", 3000) + "b": true,
	} {
		if got := hostile(name) != "" || name == "."; got != bad {
			t.Errorf("%.40q: hostile %v", name, got)
		}
	}
	dir, outside := t.TempDir(), t.TempDir()
	must(t, os.Symlink(outside, filepath.Join(dir, "out")))
	must(t, os.Symlink(filepath.Join(outside, "f"), filepath.Join(dir, "file")))
	must(t, os.WriteFile(filepath.Join(outside, "f"), []byte("theirs"), 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "in"), 0o755))
	must(t, os.Symlink("in", filepath.Join(dir, "alias")))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	for _, name := range []string{"out/f", "file", "alias/x", "../x", "in"} {
		if err := writeFile(root, name, []byte("x"), false); err == nil {
			t.Errorf("%s was written", name)
		}
		if err := removeFile(root, name); err == nil {
			t.Errorf("%s was removed", name)
		}
		if data, err := readFile(root, name); err == nil {
			t.Errorf("%s was read: %q", name, data)
		}
	}
	if data, err := os.ReadFile(filepath.Join(outside, "f")); err != nil || string(data) != "theirs" {
		t.Errorf("outside: %q, %v", data, err)
	}
	must(t, writeFile(root, "new/dir/x.sh", []byte("x"), true))
	if info, err := os.Stat(filepath.Join(dir, "new/dir/x.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("a program: %v, %v", info, err)
	}
}

// A text that is streamed is told once, whatever is lost or begun anew.
func TestStream(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(s *stream) string
		want string
	}{
		"whole":     {func(s *stream) string { return s.add("ab") + s.add("c") + s.whole("abc") }, "abc"},
		"none live": {func(s *stream) string { return s.whole("abc") }, "abc"},
		"lost":      {func(s *stream) string { a := s.add("a"); s.lost = true; return a + s.add("c") + s.whole("abc") }, "abc"},
		"same again": {func(s *stream) string {
			a := s.add("ab")
			s.reset()
			return a + s.add("a") + s.add("bc") + s.whole("abc")
		}, "abc"},
		"other": {func(s *stream) string { a := s.add("ab"); s.reset(); return a + s.add("x") + s.whole("xy") }, "ab\n\nxy"},
		"again": {func(s *stream) string {
			a := s.add("ab") + s.take(&api.Live{Text: "a", Again: true}) + s.add("bc")
			return a + s.take(&api.Live{Text: "abcd", Again: true}) + s.whole("abcde")
		}, "abcde"},
		"the end again": {func(s *stream) string {
			return s.add("abc") + s.take(&api.Live{Text: "cd", Again: true}) + s.add("e") + s.whole("abcdef")
		}, "abcdef"},
		"next": {func(s *stream) string { return s.add("a") + s.whole("a") + s.add("a") + s.whole("a") }, "aa"},
	} {
		var s stream
		if got := c.do(&s); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Each end of a run is an end of a turn, or an error.
func TestStopOf(t *testing.T) {
	for _, c := range []struct {
		state, reason string
		want          sdk.StopReason
	}{
		{"succeeded", "done", sdk.StopReasonEndTurn},
		{"interrupted", "", sdk.StopReasonEndTurn},
		{"cancelled", "cancelled", sdk.StopReasonCancelled},
		{"failed", "steps", sdk.StopReasonMaxTurnRequests},
		{"timed_out", "wall", sdk.StopReasonMaxTurnRequests},
		{"failed", "tokens", sdk.StopReasonMaxTokens},
		{"failed", "refusal", sdk.StopReasonRefusal},
		{"failed", "model", ""},
		{"failed", "machine", ""},
	} {
		if got := stopOf(api.Run{State: c.state, Reason: c.reason}); got != c.want {
			t.Errorf("%s, %s: %q", c.state, c.reason, got)
		}
	}
}

// What was agreed on is known again, and another directory's is not.
func TestFiles_restore(t *testing.T) {
	state := t.TempDir()
	f, err := openFiles("/editor")
	must(t, err)
	f.keptAs(state, "sbx_1")
	f.Files["a"], f.Revision, f.Pending["b"] = agreed{SHA256: "x", Size: 1}, 7, true
	must(t, f.save())
	again, err := openFiles("/editor")
	must(t, err)
	if !again.restore(state, "sbx_1") {
		t.Fatal("it is not known")
	}
	if d := cmp.Diff(f.agreement, again.agreement); d != "" {
		t.Error(d)
	}
	other, err := openFiles("/other")
	must(t, err)
	if other.restore(state, "sbx_1") || other.restore(state, "sbx_2") || other.restore(state, "../sbx_1") {
		t.Error("what is not of it was restored")
	}
}

func FuzzPass(f *testing.F) {
	f.Add([]byte("{\"id\":1}\n{\n\n[]\r\n{\"method\":\"x\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		must(t, pass(bytes.NewReader(data), &out, func(*sdk.RequestError) {}))
		for line := range bytes.Lines(out.Bytes()) {
			if !json.Valid(line) {
				t.Fatalf("%q was passed on", line)
			}
		}
	})
}

func FuzzIgnore(f *testing.F) {
	f.Add("*.o\n!/a/**/b/\n[x", "a/b.o", true)
	f.Fuzz(func(t *testing.T, text, name string, dir bool) {
		for _, r := range parseIgnore(text) {
			r.matches(strings.Split(name, "/"), dir)
			if r.matches(nil, dir) && !slices.Contains(r.parts, "**") {
				t.Fatalf("%q matches nothing at all", r.parts)
			}
		}
	})
}
