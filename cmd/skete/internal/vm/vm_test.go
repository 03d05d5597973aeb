package vm

import (
	"bytes"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/skill"
)

func TestInterpreter(t *testing.T) {
	for _, c := range []struct {
		name, lang string
		want       string // "" = it is refused
	}{
		{"a.py", "", "python3 ./a.py"},
		{"a.PY", "node", "python3 ./a.PY"},
		{"a.mjs", "", "node ./a.mjs"},
		{"a.go", "python", "go run ./a.go"},
		{"a.sh", "", "sh ./a.sh"},
		{"-c.rb", "", "ruby ./-c.rb"}, // no option, whatever it is called
		{"a", "python", "python3 ./a"},
		{"a.txt", "node", "node ./a.txt"},
		{"a", "", ""},
		{"a.txt", "cobol", ""},
	} {
		got, err := interpreter(c.name, c.lang)
		if strings.Join(got, " ") != c.want || (err != nil) != (c.want == "") || err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%s of %q: %q, %v", c.name, c.lang, got, err)
		}
	}
}

func TestSignalNumber(t *testing.T) {
	for s, want := range map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "term": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL, "sigint": syscall.SIGINT, "9": 9, "1": 1, "64": 64,
		"0": 0, "65": 0, "-9": 0, "": 0, "SIG": 0, "KILLL": 0, "9x": 0,
	} {
		got, err := signalNumber(s)
		if got != want || (err != nil) != (want == 0) || err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
}

func TestParseForward(t *testing.T) {
	for s, want := range map[string]forwarding{
		"5173":                   {"127.0.0.1:5173", 5173},
		"8080:5173":              {"127.0.0.1:8080", 5173},
		"0:5173":                 {"127.0.0.1:0", 5173},
		"0.0.0.0:80:5173":        {"0.0.0.0:80", 5173},
		"[::1]:8080:5173":        {"[::1]:8080", 5173},
		"::1:8080:5173":          {"[::1]:8080", 5173},
		"localhost:65535:65535":  {"localhost:65535", 65535},
		"":                       {},
		"0":                      {},
		"8080:0":                 {},
		"65536":                  {},
		"-1":                     {},
		":80:80":                 {},
		"sbx_0123456789abcdefgh": {},
		"80:":                    {},
		":80":                    {},
		"a:b":                    {},
	} {
		got, err := parseForward(s)
		if got != want || (err != nil) != (want == forwarding{}) || err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
}

func FuzzParseForward(f *testing.F) {
	for _, s := range []string{"5173", "8080:5173", "[::1]:8080:5173", "::::", "[]:1:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseForward(s)
		if err != nil && !errs.Is(err, errs.Invalid) || err == nil && (got.remote < 1 || got.remote > 65535) {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	})
}

// Output in one object is bounded, says so, and is whole as bytes where it is no text.
func TestResult(t *testing.T) {
	var out, errOut capped
	for range 3 {
		if n, err := out.Write(bytes.Repeat([]byte("x"), cappedMax/2)); n != cappedMax/2 || err != nil {
			t.Fatalf("a write that is cut says %d, %v: its writer would end", n, err)
		}
	}
	_, _ = errOut.Write([]byte("a\xffb"))
	r := resultOf("sbx_a", api.Process{Key: "k", Existed: true, Exit: &api.Exit{Code: 137, Signal: 9, Reason: "memory"}}, &out, &errOut, 1500000)
	if len(r.Stdout) != cappedMax || !r.Truncated || r.StdoutBytes != nil {
		t.Errorf("stdout: %d bytes, cut %v", len(r.Stdout), r.Truncated)
	}
	r.Stdout = ""
	want := result{
		Sandbox: "sbx_a", Key: "k", ExitCode: 137, Signal: 9, Reason: "memory", Stderr: "a\uFFFDb", StderrBytes: []byte("a\xffb"),
		Truncated: true, DurationMS: 1.5, Existed: true,
	}
	if d := cmp.Diff(want, r); d != "" {
		t.Error(d)
	}
}

func TestServiceBroken(t *testing.T) {
	for state, broken := range map[string]bool{
		"ready": false, "starting": false, "stopped": false, "unready": true, "backoff": true, "crash-loop": true, "failed": true,
	} {
		err := serviceBroken(api.Service{ServiceSpec: api.ServiceSpec{Name: "web"}, State: state, Reason: "port 80 is not open\x1b[2J"})
		if (err != nil) != broken || err != nil && (!errs.Is(err, errs.Unavailable) || strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("%s: %v", state, err)
		}
	}
	if err := serviceBroken(api.Service{State: "failed", LastExit: &api.Exit{Code: 3}}); err == nil || !strings.Contains(err.Error(), "status 3") {
		t.Errorf("without a reason: %v", err)
	}
}

// ERA's words for states are taken too.
func TestStateNames(t *testing.T) {
	for s, want := range map[string]string{"provisioning": "creating", "ready": "running", "stopped": "stopped", "": ""} {
		if got := stateNames(s); got != want {
			t.Errorf("%s: %s", s, got)
		}
	}
}

// People see before they agree what they install: programs, and which tools its author wants
// approved, also when these hold what a terminal would obey.
func TestSkillPreview(t *testing.T) {
	var said bytes.Buffer
	a := skillCommands{app.New(nil, io.Discard, &said)}
	tree := skill.Tree{Folder: "forms", Files: []skill.Entry{
		{Path: skill.File, Content: []byte("---\nname: forms\ndescription: Fills forms.\nallowed-tools: Bash(rm:*) \"\u009b2J\"\n---\nDo it.\n")}, {Path: "a.sh", Content: []byte("#!/bin/sh"), Executable: true},
	}}
	s, warnings, err := skill.Load(tree)
	if err != nil {
		t.Fatal(err)
	}
	a.preview(s, tree, warnings, false)
	a.preview(s, tree, warnings, true)
	for _, want := range []string{"forms  Fills forms.", "approved beforehand, which it is not: Bash(rm:*)", "unless a rule denies it: Bash(rm:*)", "a.sh (a program)"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("nothing says %q: %s", want, said.String())
		}
	}
	if strings.Contains(said.String(), "\u009b") {
		t.Errorf("the terminal is told: %q", said.String())
	}
}
