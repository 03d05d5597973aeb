package stream

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

func argvView(r *wire.StartRequest) []string {
	var s []string
	for _, a := range r.GetArgv() {
		s = append(s, string(a))
	}
	return s
}

func TestStart(t *testing.T) {
	for name, tt := range map[string]struct {
		req      api.StartProcess
		language string
		shell    int
		want     []string
	}{
		"argv":             {api.StartProcess{Argv: []string{"a", "b c"}}, "", 0, []string{"a", "b c"}},
		"command":          {api.StartProcess{Command: "x | y"}, "", 0, []string{"/bin/bash", "-c", "x | y"}},
		"without bash":     {api.StartProcess{Command: "x | y"}, "", 1, []string{"/bin/sh", "-c", "x | y"}},
		"python":           {api.StartProcess{Code: "1"}, "python", 0, []string{"python3", "-c", "1"}},
		"its own language": {api.StartProcess{Code: "1", Language: "ruby"}, "python", 0, []string{"ruby", "-e", "1"}},
		"node":             {api.StartProcess{Code: "1", Language: "node"}, "", 0, []string{"node", "-e", "1"}},
	} {
		r, err := StartRequest(tt.req, tt.language, tt.shell)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, argvView(r)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	for name, req := range map[string]api.StartProcess{
		"nothing": {}, "two": {Argv: []string{"a"}, Command: "b"}, "empty name": {Argv: []string{""}},
		"NUL": {Argv: []string{"a\x00"}}, "NUL in a line": {Command: "a\x00"}, "long": {Code: strings.Repeat("x", argBytesMax+1), Language: "python"},
		"many": {Argv: make([]string, argvMax+1)}, "env with =": {Argv: []string{"a"}, Env: map[string]string{"A=": "x"}},
		"env without a name": {Argv: []string{"a"}, Env: map[string]string{"": "x"}}, "NUL in env": {Argv: []string{"a"}, Env: map[string]string{"A": "\x00"}},
		"no language": {Code: "1"}, "strange language": {Code: "1", Language: "cobol"},
		"no rows": {Argv: []string{"a"}, Terminal: &api.TerminalSize{Cols: 80}}, "wide": {Argv: []string{"a"}, Terminal: &api.TerminalSize{Cols: 1001, Rows: 1}},
		"many rlimits": {Argv: []string{"a"}, Rlimits: make([]api.Rlimit, rlimitsMax+1)},
	} {
		if _, err := StartRequest(req, "", 0); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A Go program's exit code and its files are its own, and its directory goes.
func TestGoProgram(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command here:", err)
	}
	r, err := StartRequest(api.StartProcess{Code: "package main\nimport (\"fmt\"; \"os\")\nfunc main() { fmt.Print(\"it's $HOME\"); os.Exit(3) }", Language: "go"}, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), argvView(r)[0], argvView(r)[1:]...)
	cmd.Env = append(cmd.Environ(), "TMPDIR="+tmp)
	out, err := cmd.Output()
	if string(out) != "it's $HOME" || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("%q, %v", out, err)
	}
	left, err := exec.CommandContext(t.Context(), "ls", "-A", tmp).Output()
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %s %v", left, err)
	}
}

// Whatever a guest sends, nil included, becomes something that JSON can carry.
func TestHostileMessages(t *testing.T) {
	p := ProcessView(&wire.ProcessInfo{Argv: [][]byte{{0xff}, nil}, Cwd: []byte{0xfe}, State: 99, Exit: &wire.Exit{Code: 5}})
	if p.State != "lost" || p.Exit != nil || !utf8.ValidString(p.Argv[0]) || !utf8.ValidString(p.Cwd) {
		t.Errorf("%+v", p)
	}
	f := FileView(&wire.Entry{Name: []byte{0xff}, Path: []byte("/a\xff"), Type: 99, Target: []byte{0x80}})
	if f.Type != "other" || string(f.PathBytes) != "/a\xff" || string(f.TargetBytes) != "\x80" || !utf8.ValidString(f.Path+f.Name+f.Target) {
		t.Errorf("%+v", f)
	}
	if f := FileView(&wire.Entry{Path: []byte("/ü")}); f.PathBytes != nil || f.Path != "/ü" {
		t.Errorf("%+v", f)
	}
	_, _, _, _, _ = ProcessView(nil), FileView(nil), MetricsView(nil), fileEventView(nil), overflowView(nil)
	_, _, _ = PortView(nil), gapEvent(nil), MatchView(nil)
	if FileViews(nil) == nil {
		t.Error("no files are null in JSON")
	}
}
