package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/llmtest"
)

// vendorKey is what the host asks its models with.
const vendorKey = "sk-the-key-of-the-host"

// withVendor configures a model of a server that answers so.
func (w *world) withVendor(up *llmtest.Server) { w.t.Helper(); w.withModelAt("compat", up.URL) }

// withModelAt configures a model of a vendor, whose server is there.
func (w *world) withModelAt(vendor, url string) {
	w.t.Helper()
	w.env = append(w.env, "MODEL_KEY="+vendorKey)
	w.ok(os.MkdirAll(w.home, 0o700))
	w.ok(os.WriteFile(filepath.Join(w.home, "skete.yaml"), []byte("models: [{name: fast, vendor: "+vendor+", id: fast-1, url: "+url+", key_env: MODEL_KEY, output_tokens_max: 100}]\nmodel: fast\n"), 0o600))
}

// The agent of examples/node-agent works in a machine by a model of the host, unmodified:
// it writes, runs a command, and says that it is done; what it did is a run, whose undo
// takes it back, and its sandbox is removed unless it is kept.
func TestProgram_node(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("skipped: no node, which the sandbox has of the host")
	}
	call := func(name, args string) llm.Block {
		return llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: "call_" + name, Name: name, Args: json.RawMessage(args)}}
	}
	up := llmtest.NewServer(llmtest.Chat{}, llmtest.Replies(
		llmtest.Reply{Blocks: []llm.Block{call("write_file", `{"path":"/workspace/haiku.txt","content":"an old pond\n"}`)}, Stop: llm.StopTools, Usage: llm.Usage{Input: 50, Output: 7}},
		llmtest.Reply{Blocks: []llm.Block{call("run_command", `{"command":"wc -c < haiku.txt; id -u; env | grep -c MODEL_KEY"}`)}, Stop: llm.StopTools, Usage: llm.Usage{Input: 60, Output: 7}},
		llmtest.Reply{Blocks: []llm.Block{llm.Text("I wrote a haiku.")}, Usage: llm.Usage{Input: 70, Output: 7}},
	))
	defer up.Close()
	w := newWorld(t, "--providers", "gvisor")
	w.withVendor(up)
	w.start()
	example, err := filepath.Abs("../../examples/node-agent")
	w.ok(err)
	out := w.must("run", "--program", "node agent.js", "--events", "jsonl", "--inject", example, "--keep", "-q", "--mem", "512", "Write a haiku into haiku.txt.")
	if out != "I wrote a haiku." {
		t.Errorf("the result is %q", out)
	}
	seen := up.Seen()
	if len(seen) != 3 || seen[2].Model != "fast-1" || !strings.Contains(string(seen[0].Body), "Write a haiku into haiku.txt.") || !strings.Contains(string(seen[2].Body), `12\n1000\n0\n`) {
		t.Errorf("the model was asked %d times: %s", len(seen), seen[len(seen)-1].Body)
	}
	id := w.must("runs", "-q")
	run, err := w.c.Run(id).Get(w.ctx())
	w.ok(err)
	if run.State != "succeeded" || run.Model != "program" {
		t.Errorf("%+v", run)
	}
	sb := w.c.Sandbox(run.Sandbox)
	w.ids[run.Sandbox] = true
	if m, err := sb.Models(w.ctx()); err != nil || m.Used.Calls != 3 || m.Used.Tokens != 50+60+70+21 {
		t.Errorf("it has used %+v, %v", m, err)
	}
	w.must("undo", "--run", id, "--yes")
	if _, err := sb.Files().Stat(w.ctx(), "/workspace/haiku.txt", false); err == nil {
		t.Error("the file is there after an undo")
	}
	w.must("run", "--program", `echo '{"done":true,"result":"nothing"}'`, "--events", "jsonl", "--inject", example, "-q", "x")
	w.until("its sandbox is removed", func() error {
		if n := len(w.live()); n != 1 {
			return fmt.Errorf("%d sandboxes are there", n)
		}
		return nil
	})
}

// What a program says at its end is understood however much it has written before, and however
// long the line is.
func TestProgram_writesMuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	w.start()
	const much = `line=$(printf '%03000d' 0); i=0
while [ $i -lt 100 ]; do echo "{\"text\":\"step $i\",\"log\":\"$line\"}"; i=$((i+1)); done
echo "{\"log\":\"$line\",\"done\":true,\"result\":\"the end\"}"`
	if out := w.must("run", "--program", much, "--events", "jsonl", "--mem", "128", "-q", "x"); out != "the end" {
		t.Errorf("the result is %q", out)
	}
}

// A program that fails, does not say that it is done, or takes too long fails its run, which
// says why.
func TestProgram_fails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	w.start()
	for name, x := range map[string]struct {
		args []string
		code int
		says string
	}{
		"exit":     {[]string{"--program", "echo no key here >&2; exit 3"}, 1, "no key here"},
		"not done": {[]string{"--program", `echo '{"text":"I began."}'`, "--events", "jsonl"}, 1, "did not say that it is done"},
		"too long": {[]string{"--program", "sleep 1000", "--timeout", "3s"}, 5, ""},
		"no such":  {[]string{"--program", "no-such-program"}, 1, "not found"},
	} {
		out, code := w.cli(append(append([]string{"run", "--json", "--mem", "128"}, x.args...), "Do it.")...)
		if code != x.code || !strings.Contains(out, x.says) {
			t.Errorf("%s: status %d, %s", name, code, out)
		}
	}
	w.until("their sandboxes are removed", func() error {
		if n := len(w.live()); n > 0 {
			return fmt.Errorf("%d sandboxes are there", n)
		}
		return nil
	})
}

// The server is killed while a program works: the program goes on, is not begun again, and
// the run ends as if nothing had happened.
func TestProgram_serverKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--providers", "gvisor")
	w.start()
	id := w.must("run", "-d", "--keep", "--mem", "128", "--program", `echo began >> log; while [ ! -e go ]; do sleep 0.2; done; echo "$SKETE_TASK" >> log; cat log`, "it's {done}")
	var run api.Run
	w.until("the program works", func() (err error) {
		if run, err = w.c.Run(id).Get(w.ctx()); err != nil || run.Sandbox == "" {
			return errors.Join(err, errors.New("it has no sandbox yet"))
		}
		_, err = w.c.Sandbox(run.Sandbox).Files().Stat(w.ctx(), "/workspace/log", false)
		return err
	})
	w.ids[run.Sandbox] = true
	w.kill()
	w.start()
	_, err := w.c.Sandbox(run.Sandbox).Files().Write(w.ctx(), "/workspace/go", nil, client.WriteOptions{})
	w.ok(err)
	out := w.must("attach", id, "-q")
	if !strings.HasPrefix(out, "began\nit's {done}\n") || strings.Count(out, "began") != 1 {
		t.Errorf("the result is %q", out)
	}
}
