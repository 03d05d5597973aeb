package server_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
)

func TestRunCommand(t *testing.T) {
	w := newWorld(t)
	sb := w.sdk(t)
	broken := "a\xff\x00b"
	tests := []struct {
		name     string
		req      api.RunCommand
		out, err string
		code     int
	}{
		{"argv", api.RunCommand{Argv: []string{"/bin/echo", "hi"}}, "hi\n", "", 0},
		{"command line and exit code", api.RunCommand{Command: "echo out; echo err >&2; exit 3"}, "out\n", "err\n", 3},
		{"code", api.RunCommand{Code: "print(6*7)", Language: "python"}, "42\n", "", 0},
		{"env and cwd", api.RunCommand{Command: "echo $A; pwd", Env: map[string]string{"A": "é"}, Cwd: "/usr"}, "é\n/usr\n", "", 0},
		{"input", api.RunCommand{Argv: []string{"cat"}, Stdin: "line\n"}, "line\n", "", 0},
		{"input of bytes", api.RunCommand{Argv: []string{"cat"}, StdinBase64: []byte(broken)}, broken, "", 0},
		{"input that is not read", api.RunCommand{Argv: []string{"true"}, Stdin: strings.Repeat("x", 500_000)}, "", "", 0},
		{"much input", api.RunCommand{Argv: []string{"cat"}, Stdin: strings.Repeat("x", 500_000)}, strings.Repeat("x", 500_000), "", 0},
		{"no input ends", api.RunCommand{Argv: []string{"cat"}}, "", "", 0},
		{"killed by a signal", api.RunCommand{Command: "kill -9 $$"}, "", "", 137},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := sb.RunCommand(t.Context(), tt.req)
			if err != nil || string(got.Out) != tt.out || string(got.Err) != tt.err || got.ExitCode != tt.code || got.NotStarted || got.Existed || got.StdoutBytes != int64(len(tt.out)) {
				t.Errorf("%v, %v", got.CommandResult, err)
			}
		})
	}
	t.Run("as curl sees it", func(t *testing.T) {
		var got map[string]any
		w.call(t, w.admin, http.MethodPost, "/v1/sandboxes/"+w.sandbox()+"/exec:run", `{"command":"printf 'a\\377'; echo text >&2; exit 7"}`, 200, &got)
		if got["exit_code"] != 7.0 || got["stdout"] != "Yf8=" || got["stdout_encoding"] != "base64" || got["stderr"] != "text\n" || got["stderr_encoding"] != "utf-8" {
			t.Errorf("%v", got)
		}
	})
	t.Run("a cut in a character", func(t *testing.T) {
		got, err := sb.RunCommand(t.Context(), api.RunCommand{Argv: []string{"echo", "abé", "tail"}, OutputMax: 3})
		if err != nil || got.Stdout != "ab" || got.StdoutEncoding != "utf-8" || !got.StdoutTruncated || got.StdoutBytes != 10 || got.StderrTruncated {
			t.Errorf("%+v, %v", got, err)
		}
		all, err := sb.RunCommand(t.Context(), api.RunCommand{Key: "long", Command: "head -c 3000000 /dev/zero | tr '\\0' x"})
		if err != nil || len(all.Out) != 1<<20 || !all.StdoutTruncated || all.StdoutBytes != 3_000_000 {
			t.Errorf("%d bytes, %v, %v", len(all.Out), all.StdoutTruncated, err)
		}
	})
	t.Run("time is over", func(t *testing.T) {
		got, err := sb.RunCommand(t.Context(), api.RunCommand{Command: "echo begun; sleep 600", TimeoutMS: 300})
		if err != nil || got.ExitCode != 143 || got.Reason != "timeout" || got.Stdout != "begun\n" {
			t.Errorf("%+v, %v", got.CommandResult, err)
		}
	})
	t.Run("not started", func(t *testing.T) {
		for status, argv := range map[int]string{127: "no-such-program", 126: "/etc/passwd"} {
			got, err := sb.RunCommand(t.Context(), api.RunCommand{Argv: []string{argv}})
			if err != nil || !got.NotStarted || got.ExitCode != status || got.Reason == "" || got.Stdout != "" {
				t.Errorf("%s: %+v, %v", argv, got.CommandResult, err)
			}
			if _, err := sb.StartProcess(t.Context(), api.StartProcess{Argv: []string{argv}}); errs.Exit(err) != status {
				t.Errorf("%s, as a process: %v with %d", argv, err, errs.Exit(err))
			}
			if err := sb.Command(argv).Run(t.Context()); errs.Exit(err) != status {
				t.Errorf("%s, with streams: %v with %d", argv, err, errs.Exit(err))
			}
		}
		if _, err := w.sdk(t).StartProcess(t.Context(), api.StartProcess{Argv: []string{"a\x00"}}); err == nil || errs.Exit(err) != 0 {
			t.Errorf("a request that is wrong is no command's failure: %v", err)
		}
	})
	t.Run("the same key", func(t *testing.T) {
		req := api.RunCommand{Key: "once", Command: "echo $$; exit 4", Stdin: "x"}
		first, err := sb.RunCommand(t.Context(), req)
		if err != nil || first.ExitCode != 4 || first.Existed {
			t.Fatalf("%+v, %v", first.CommandResult, err)
		}
		again, err := sb.RunCommand(t.Context(), req)
		if err != nil || again.ExitCode != 4 || !again.Existed || again.Stdout != first.Stdout {
			t.Errorf("%+v, %v", again.CommandResult, err)
		}
		req.Command = "echo other"
		if _, err := sb.RunCommand(t.Context(), req); !errs.Is(err, errs.Conflict) {
			t.Errorf("another command: %v", err)
		}
	})
	for name, body := range map[string]string{
		"nothing to run": `{}`, "two ways": `{"argv":["true"],"command":"true"}`, "two inputs": `{"argv":["cat"],"stdin":"a","stdin_base64":"YQ=="}`,
		"too long": `{"argv":["true"],"timeout_ms":3600001}`, "too much": `{"argv":["true"],"output_bytes_max":16777217}`,
		"unknown field": `{"argv":["true"],"detach":true}`, "no base64": `{"argv":["cat"],"stdin_base64":"%"}`, "not UTF-8": "{\"argv\":[\"\xff\"]}",
		"a long argument": `{"argv":["` + strings.Repeat("x", 128<<10) + `"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			w.call(t, w.admin, http.MethodPost, "/v1/sandboxes/"+w.sandbox()+"/exec:run", body, 400, nil)
		})
	}
}

// TestRunCommand_callerGoesAway: a command that no client can ask for ends with
// its caller; one with a key goes on.
func TestRunCommand_callerGoesAway(t *testing.T) {
	w := newWorld(t)
	sb := w.sdk(t)
	dir := t.TempDir()
	for key, goesOn := range map[string]bool{"": false, "kept": true} {
		began, ended := filepath.Join(dir, "began"+key), filepath.Join(dir, "ended"+key)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := sb.RunCommand(ctx, api.RunCommand{Key: key, Argv: []string{"/bin/sh", "-c", `trap '' TERM; : >"$1"; while [ ! -e "$1.go" ]; do sleep 0.05; done; : >"$2"`, "sh", began, ended}})
			done <- err
		}()
		there := func(path string) func() bool {
			return func() bool { _, err := os.Stat(path); return err == nil }
		}
		eventually(t, "the command runs", there(began))
		cancel()
		if err := <-done; err == nil {
			t.Error("a call that was given up has an answer")
		}
		if goesOn {
			must(t, os.WriteFile(began+".go", nil, 0o600))
			eventually(t, "the command has gone on", there(ended))
			continue
		}
		eventually(t, "the command is killed", func() bool {
			for p, err := range sb.Processes(t.Context()) {
				if err != nil || p.State == "running" && bytes.Contains([]byte(strings.Join(p.Argv, " ")), []byte(began)) {
					return false
				}
			}
			return true
		})
	}
}

// A command that is run in one call is a step by its name, also one that goes on
// when its caller has left.
func TestRunCommand_isAStep(t *testing.T) {
	w := newWorld(t, withHistory(t, true))
	sb := w.sdk(t)
	_, err := sb.RunCommand(t.Context(), api.RunCommand{Command: "echo 1 >a"})
	must(t, err)
	if d := cmp.Diff([]string{"what was there at first", "exec echo 1 >a"}, w.labels(t, sb.ID)); d != "" {
		t.Error(d)
	}
	began := filepath.Join(t.TempDir(), "began")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	goesOn := api.RunCommand{Key: "kept", Argv: []string{"/bin/sh", "-c", `: >"$0"; while [ ! -e "$0.go" ]; do sleep 0.05; done; echo 2 >b`, began}}
	go func() {
		_, err := sb.RunCommand(ctx, goesOn)
		done <- err
	}()
	eventually(t, "the command runs", func() bool { _, err := os.Stat(began); return err == nil })
	cancel()
	if err := <-done; err == nil {
		t.Error("a call that was given up has an answer")
	}
	must(t, os.WriteFile(began+".go", nil, 0o600))
	eventually(t, "what it did is a revision of its own", func() bool {
		labels := w.labels(t, sb.ID)
		return strings.HasPrefix(labels[len(labels)-1], "exec /bin/sh -c ")
	})
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	patience.Until(t, time.Minute, what, f)
}
