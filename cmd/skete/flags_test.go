package main

import (
	"bytes"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// What is wrong with a flag is said in words and in the flag's unit, and the
// flag is named once, whether the program or the server finds it.
func TestFlags_errorsAreInWords(t *testing.T) {
	w := newWorld(t, "process")
	w.run("vm", "create", "-q", "--name", "demo")
	long := strings.Repeat("x", 70)
	foreign := regexp.MustCompile(`_mb|_ms\b|_max|_iops|body\.|strconv|validation|\b[0-9]{5,} ms|e\+0|expected`)
	for _, tt := range []struct{ flag, value, word string }{
		{"--cpus", "999", "cpus"},
		{"--cpus", "0.001", "cpus"},
		{"--cpus", "-1", "cpus"},
		{"--cpus", "many", "cpus"},
		{"--mem", "16m", "mem"},
		{"--mem", "9000g", "mem"},
		{"--mem", "-5", "mem"},
		{"--mem", "much", "mem"},
		{"--memory", "16m", "mem"},
		{"--disk", "90000g", "disk"},
		{"--disk", "0.1m", "disk"},
		{"--pids", "1", "pids"},
		{"--pids", "-1", "pids"},
		{"--pids", "abc", "pids"},
		{"--pids", "99999999", "pids"},
		{"--disk-mbps", "-1", "disk"},
		{"--disk-mbps", "100001", "disk"},
		{"--disk-mbps", "x", "disk"},
		{"--disk-iops", "-1", "disk"},
		{"--disk-iops", "99999999", "disk"},
		{"--ttl", "10ms", "ttl"},
		{"--ttl", "-5m", "ttl"},
		{"--ttl", "soon", "ttl"},
		{"--idle", "10ms", "idle"},
		{"--idle", "9000h", "idle"},
		{"--idle", "x", "idle"},
		{"--name", "a/b", "name"},
		{"--name", long, "name"},
		{"--name", "sbx_a", "name"},
		{"--template", "A", "template"},
		{"--template", long, "template"},
		{"--provider", "X", "provider"},
		{"--provider", "nope", "provider"},
		{"--lang", "cobol", "lang"},
		{"--require", "x", "require"},
		{"--workdir", "rel", "workdir"},
		{"--env", "1A=x", "env"},
		{"--env", "=x", "env"},
		{"--meta", "=x", "meta"},
		{"--persist=maybe", "", "persist"},
		{"--network", "host", "network"},
	} {
		for _, command := range []string{"create", "temp"} {
			args := []string{"vm", command, tt.flag, tt.value}
			if tt.value == "" {
				args = args[:3]
			}
			if command == "temp" {
				args = append(args, "--cmd", "true")
			}
			wrong(t, w, tt.word, foreign, args...)
		}
	}
	for _, tt := range []struct{ flag, value, word string }{
		{"--timeout", "-5", "timeout"},
		{"--timeout", "soon", "timeout"},
		{"--timeout", "99999999h", "timeout"},
		{"--env", "=x", "env"},
		{"--key", strings.Repeat("x", 300), "key"},
		{"--key", "a b", "key"},
		{"--tty=maybe", "", "tty"},
	} {
		args := []string{"vm", "exec", "demo", "-n", tt.flag, tt.value, "--cmd", "true"}
		if tt.value == "" {
			args = []string{"vm", "exec", "demo", "-n", tt.flag, "--cmd", "true"}
		}
		wrong(t, w, tt.word, foreign, args...)
	}
}

// wrong wants a command refused as wrong usage, and the flag's word in its
// message once.
func wrong(t *testing.T, w *world, word string, foreign *regexp.Regexp, args ...string) {
	t.Helper()
	cmd := w.command(args...)
	var text bytes.Buffer
	cmd.Stderr = &text
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 2 && !strings.Contains(text.String(), "not available in this version") {
		t.Errorf("%q: %v\n%s", args, err, text.String())
		return
	}
	message := ""
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "hint:") && !strings.Contains(line, "WARNING") {
			message += line
		}
	}
	for _, value := range args[2:] { // what was typed may hold anything
		if !strings.HasPrefix(value, "-") {
			message = strings.ReplaceAll(message, `"`+value+`"`, "")
		}
	}
	if n := strings.Count(strings.ToLower(message), word); n != 1 {
		t.Errorf("%q: %q is there %d times:\n%s", args, word, n, text.String())
	}
	if found := foreign.FindString(message); found != "" {
		t.Errorf("%q: %q is no word of people:\n%s", args, found, text.String())
	}
}
