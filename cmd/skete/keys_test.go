package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
)

// outcome is what a command line of ours did.
type outcome struct {
	status      int
	out, errOut string
}

func (w *world) try(args ...string) outcome {
	w.t.Helper()
	cmd := w.command(args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	return outcome{status(cmd.Run()), out.String(), errOut.String()}
}

// TestExec_theSameKeyNeverRunsTwice: whatever ended the machine or the server
// between two calls, the second tells what became of the first.
func TestExec_theSameKeyNeverRunsTwice(t *testing.T) {
	inEach(t, func(t *testing.T, w *world, id string) {
		once := func() outcome {
			return w.try("vm", "exec", id, "--key", "once", "--cmd", "echo ran >>runs; echo out; exit 3")
		}
		ran := func(when string) {
			t.Helper()
			if got := w.run("vm", "exec", id, "--cmd", "cat runs"); got != "ran" {
				t.Fatalf("%s: it ran as often as this says: %q", when, got)
			}
		}
		if first := once(); first.status != 3 || first.out != "out\n" || first.errOut != "" && w.provider == "gvisor" {
			t.Fatalf("the first call: %+v", first)
		}
		replay := func(when string) {
			t.Helper()
			if again := once(); again.status != 3 || again.out != "out\n" || !strings.Contains(again.errOut, "the key once was known: nothing was started") {
				t.Fatalf("%s: %+v", when, again)
			}
			ran(when)
		}
		other := func(when string) {
			t.Helper()
			got := w.try("vm", "exec", id, "--key", "once", "--cmd", "echo other >>runs")
			if got.status == 0 || !strings.Contains(got.errOut, "was used for another command") {
				t.Fatalf("%s, another command with the key: %+v", when, got)
			}
			if got := w.try("vm", "exec", id, "-d", "--key", "once", "--cmd", "echo other >>runs"); got.status == 0 || !strings.Contains(got.errOut, "another command") {
				t.Fatalf("%s, another command with the key, detached: %+v", when, got)
			}
			ran(when)
		}
		replay("at once")
		other("at once")
		killAndAwait(t, pidOf(w.home), w.home, syscall.SIGKILL)
		replay("after a kill -9 of the server")
		other("after a kill -9 of the server")

		lost := func(when string) {
			t.Helper()
			for range 2 {
				if got := once(); got.status == 0 || got.status == 3 || got.out != "" || !strings.Contains(got.errOut, "lost") || !strings.Contains(got.errOut, "not run again") {
					t.Fatalf("%s: %+v", when, got)
				}
			}
			if got := w.try("vm", "attach", id, "once"); got.status == 0 || !strings.Contains(got.errOut, "lost") {
				t.Fatalf("%s, attach: %+v", when, got)
			}
			p, err := w.client().Sandbox(sandboxID(t, w, id)).StartProcess(t.Context(), api.StartProcess{Key: "once", Command: "echo ran >>runs; echo out; exit 3"})
			if err != nil || p.State != "lost" || !p.Existed || p.Exit != nil {
				t.Fatalf("%s, of the API: %+v, %v", when, p, err)
			}
			ran(when)
			other(when)
		}
		w.run("vm", "stop", id)
		w.run("vm", "start", id)
		lost("after a stop")
		killMachine(t, w, id)
		w.run("vm", "start", id)
		lost("after the machine was killed")
		killAndAwait(t, pidOf(w.home), w.home, syscall.SIGKILL)
		lost("after that and a kill -9 of the server")

		if got := w.try("vm", "exec", id, "--key", "none", "--", "no-such-program"); got.status == 0 {
			t.Fatalf("no program: %+v", got)
		}
		w.run("vm", "stop", id)
		w.run("vm", "start", id)
		if got := w.run("vm", "exec", id, "--key", "none", "--", "echo", "free"); got != "free" {
			t.Errorf("a key whose start was refused: %q", got)
		}
		if err := w.client().Sandbox(sandboxID(t, w, id)).ForgetProcess(t.Context(), "once"); err != nil {
			t.Fatal(err)
		}
		if got := once(); got.status != 3 || got.out != "out\n" {
			t.Errorf("after forget: %+v", got)
		}
	})
}

// TestFork_takesTheKeysAlong: what a copy's files show was done, and is not
// done again there.
func TestFork_takesTheKeysAlong(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: gVisor saves memory only then")
	}
	w := newWorld(t, "gvisor")
	id := w.run("vm", "create", "-q")
	line := []string{"--key", "k", "--cmd", "echo ran >>runs; echo out"}
	w.run(append([]string{"vm", "exec", id}, line...)...)
	fork := strings.TrimSpace(w.run("vm", "fork", "-q", id))
	again := w.try(append([]string{"vm", "exec", fork}, line...)...)
	if again.status != 0 || again.out != "out\n" || !strings.Contains(again.errOut, "was known") {
		t.Errorf("in the copy: %+v", again)
	}
	w.run("vm", "stop", fork)
	w.run("vm", "start", fork)
	if again = w.try(append([]string{"vm", "exec", fork}, line...)...); again.status == 0 || !strings.Contains(again.errOut, "lost") {
		t.Errorf("in the copy, after a stop: %+v", again)
	}
	if got := w.run("vm", "exec", fork, "--cmd", "cat runs"); got != "ran" {
		t.Errorf("it ran as often as this says: %q", got)
	}
}

func sandboxID(t *testing.T, w *world, id string) string {
	t.Helper()
	var sb api.Sandbox
	if err := json.Unmarshal([]byte(w.run("vm", "inspect", "--json", id)), &sb); err != nil {
		t.Fatal(err)
	}
	return sb.ID
}

// killMachine ends a sandbox's machine as the kernel does when memory is short,
// and waits until that is known.
func killMachine(t *testing.T, w *world, id string) {
	t.Helper()
	id = sandboxID(t, w, id)
	pattern := "runsc-sandbox.*" + id
	if w.provider == "process" {
		pattern = "skete-guest.*" + id
	}
	pids, err := exec.Command("pgrep", "-f", pattern).Output()
	if err != nil {
		t.Fatalf("no process of the sandbox: %v", err)
	}
	_ = exec.Command("kill", append([]string{"-9"}, strings.Fields(string(pids))...)...).Run()
	poll(t, "the sandbox has ended", func() bool {
		var sb api.Sandbox
		return json.Unmarshal([]byte(w.run("vm", "inspect", "--json", id)), &sb) == nil && sb.State != "running"
	})
}

// TestMachineDies_execSaysSo: an exec under way ends with what happened, and
// the sandbox remembers it.
func TestMachineDies_execSaysSo(t *testing.T) {
	inEach(t, func(t *testing.T, w *world, id string) {
		died := func() outcome {
			cmd := w.command("vm", "exec", id, "--cmd", "echo ready; sleep 600")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var errOut bytes.Buffer
			cmd.Stderr = &errOut
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			killMachine(t, w, id)
			err = cmd.Wait()
			return outcome{status(err), "", errOut.String()}
		}
		for i := range 6 {
			if i == 1 && w.provider == "gvisor" {
				break // the bound is the same everywhere
			}
			for _, got := range []outcome{died(), w.try("vm", "exec", id, "--", "true")} {
				if got.status != app.OwnFailure || !strings.Contains(got.errOut, "the machine of sandbox") || !strings.Contains(got.errOut, "all that ran in it has ended") || strings.Contains(got.errOut, "stopping") {
					t.Fatalf("%+v", got)
				}
			}
			var sb api.Sandbox
			if err := json.Unmarshal([]byte(w.run("vm", "inspect", "--json", id)), &sb); err != nil {
				t.Fatal(err)
			}
			if n := len(sb.Deaths); n != min(i+1, 5) || sb.Deaths[n-1].Reason == "" || sb.Deaths[n-1].Time.Before(sb.CreatedAt) || n > 1 && !sb.Deaths[n-1].Time.After(sb.Deaths[n-2].Time) {
				t.Fatalf("the deaths that it remembers: %+v", sb.Deaths)
			}
			w.run("vm", "start", id)
		}
		w.run("vm", "stop", id)
		var sb api.Sandbox
		if err := json.Unmarshal([]byte(w.run("vm", "inspect", "--json", id)), &sb); err != nil || sb.Reason != "stopped" || len(sb.Deaths) == 0 || len(sb.Deaths) > 5 || w.provider == "gvisor" && len(sb.Deaths) != 1 { // a stop is no death
			t.Errorf("after a stop: %s, %+v, %v", sb.Reason, sb.Deaths, err)
		}
		if got := w.try("vm", "exec", id, "--", "true"); !strings.Contains(got.errOut, "is stopped (stopped)") {
			t.Errorf("after a stop that was asked for: %+v", got)
		}
	})
}
