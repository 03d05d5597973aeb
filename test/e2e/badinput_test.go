package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/test/browser"
)

// badInputDir has a script for each SDK.
const badInputDir = "testdata/badinput"

// serverPeakMB is the most memory that the server may have held after uploads of 2 GB.
const serverPeakMB = 400

// What no client should send is refused to each SDK by its own class of error, ends in a
// moment, and costs the server no memory: files larger than the disk, terminals of sizes
// that there are not, watches of what goes away, calls of a sandbox that is paused.
func TestBadInput(t *testing.T) {
	t.Parallel()
	b := &bridged{address: listenAddress(t)}
	b.world = newWorld(t, "--providers", "gvisor", "--set", "defaults.disk_mb=256", "--listen", b.address)
	b.start()
	made, err := b.c.CreateKey(b.ctx(), api.CreateKey{Name: "their-app"})
	b.ok(err)
	b.key = made.Secret
	e2b := "http://" + b.address + "/e2b"
	theirs := []string{"E2B_API_URL=" + e2b, "E2B_SANDBOX_URL=" + e2b, "E2B_API_KEY=" + b.key}
	script := func(name string) string { return filepath.Join(badInputDir, name) }
	for _, sdk := range []struct {
		name    string
		least   int
		command func(t *testing.T) *exec.Cmd
	}{
		{"E2B, JavaScript", 5, func(t *testing.T) *exec.Cmd {
			return exec.Command(browser.Node(t), script("e2b.mjs"), browser.Install(t, bridgeDir), "e2b-newest")
		}},
		{"E2B, Python", 4, func(t *testing.T) *exec.Cmd {
			return pythonScript(t, script("with_e2b.py"))
		}},
		{"Vercel", 3, func(t *testing.T) *exec.Cmd {
			return exec.Command(browser.Node(t), script("vercel.mjs"), browser.Install(t, vercelDir))
		}},
		{"skete, JavaScript", 4, func(t *testing.T) *exec.Cmd {
			app := newApp(t, buildTypeScript(t), browser.Install(t, typescriptDir))
			for _, name := range []string{"skete.mjs", "tried.mjs"} {
				text, err := os.ReadFile(script(name))
				must(t, err)
				must(t, os.WriteFile(filepath.Join(app, name), text, 0o644))
			}
			cmd := exec.Command(browser.Node(t), "skete.mjs")
			cmd.Dir = app
			return cmd
		}},
		{"skete, Python", 3, func(t *testing.T) *exec.Cmd { return pythonScript(t, script("with_skete.py")) }},
	} {
		t.Run(sdk.name, func(t *testing.T) {
			cmd := sdk.command(t)
			if cmd.Env == nil {
				cmd.Env = os.Environ()
			}
			cmd.Env = append(append(cmd.Env, theirs...), b.vercelEnv()...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s\n%s\n%s", err, out, stderr.String(), b.log)
			}
			n := 0
			for line := range bytes.Lines(out) {
				var c called
				must(t, json.Unmarshal(line, &c))
				if n++; c.Result != "works" {
					t.Errorf("%s %s: %s", c.Method, c.Result, c.Note)
				}
			}
			if n != sdk.least {
				t.Errorf("%d things were tried, not %d\n%s", n, sdk.least, stderr.String())
			}
		})
	}
	peak, err := peakMB(b.cmd.Process.Pid)
	must(t, err)
	t.Logf("the server held at most %d MB", peak)
	if peak > serverPeakMB {
		t.Errorf("the server held %d MB", peak)
	}
}

// pythonScript runs with E2B's package, whose HTTP client ours needs too, and with ours.
func pythonScript(t *testing.T, script string) *exec.Cmd {
	packages := pythonPackages(t, filepath.Join(bridgeDir, "requirements.txt"))
	own, err := filepath.Abs(filepath.Join(pythonSDK, "src"))
	must(t, err)
	cmd := exec.Command("python3", script)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+own+":"+packages, "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// peakMB is the most memory that a process has held, in MB.
func peakMB(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kb, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.Atoi(kb)
	return n / 1024, err
}
