package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/thread"
)

// This file measures what an agent's call of an MCP server costs: of a program in its sandbox,
// and of a service elsewhere, each beside the same calls by the SDK's own client, made where the
// server is before and after the run. A call has its events in the run's log, which cost what
// they cost for any tool: that is measured with a tool that does nothing else, in turns.

// pathOfMCP is where the program is in the sandbox: not in the workspace, which has a history.
const pathOfMCP = "/tmp/mcpserver"

// idleTool is one of skete's own.
const idleTool = "write_todos"

// mcpClient needs servers in the configuration, and so a server of its own.
func (b *bench) mcpClient() (err error) {
	program, err := b.program("mcpserver")
	if err != nil {
		return err
	}
	defer os.Remove(program)
	url, stop, err := serveMCP(program)
	if err != nil {
		return err
	}
	defer stop()
	home, err := os.MkdirTemp("", "skete-bench-")
	if err != nil {
		return err
	}
	calls := b.count(200)
	if err := writeMCP(home, url, calls); err != nil {
		return errors.Join(err, os.RemoveAll(home))
	}
	s, err := b.startIn(home)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	sb, err := s.sandbox(b.ctx)
	if err != nil {
		return err
	}
	if err := upload(b.ctx, sb, program, pathOfMCP); err != nil {
		return err
	}
	own := map[string][]time.Duration{}
	measure := func() error {
		n := strconv.Itoa((calls + 1) / 2)
		inside, err := sb.Command(pathOfMCP, "-calls", n).Output(b.ctx)
		if err != nil {
			return err
		}
		here, err := exec.CommandContext(b.ctx, program, "-calls", n, "-url", url).Output()
		if err != nil {
			return err
		}
		for name, text := range map[string][]byte{"near": inside, "far": here} {
			ds, err := durations(text)
			if err != nil {
				return err
			}
			own[name] = append(own[name], ds...)
		}
		return nil
	}
	if err := measure(); err != nil {
		return err
	}
	ours, err := b.mcpCalls(s, sb)
	if err != nil {
		return err
	}
	if err := measure(); err != nil {
		return err
	}
	events := b.Millis("MCP client: a call of write_todos, beside it", ours[idleTool], "", "what the run's log costs, for calls of any tool")
	for _, m := range []struct{ name, way string }{{"near", "stdio"}, {"far", "HTTP"}} {
		if len(ours[m.name]) != calls {
			return fmt.Errorf("%d calls over %s, not %d", len(ours[m.name]), m.way, calls)
		}
		a := b.Millis("MCP client: a call over "+m.way, ours[m.name], "", "in a run, its log included")
		k := b.Millis("MCP client: the same over "+m.way+" by the SDK's own client, beside it", own[m.name], "", "where the server is: in the sandbox for stdio, here for HTTP")
		b.Value("MCP client: what we add over "+m.way, a-k-events, "ms", "<= 2 ms", "p50s: the call, less the SDK's own, less write_todos")
	}
	return nil
}

// serveMCP starts the server over HTTP, until stop.
func serveMCP(program string) (url string, stop func(), err error) {
	cmd := exec.Command(program, "-http", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, err
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
	}
	return strings.TrimSpace(line), stop, err
}

// writeMCP configures a server whose model makes the calls, over both ways in turns, and one of idleTool.
func writeMCP(home, url string, calls int) error {
	script := filepath.Join(home, "script.yaml")
	var replies strings.Builder
	replies.WriteString("replies:\n")
	for n := range calls {
		for _, server := range []string{"near", "far"} {
			fmt.Fprintf(&replies, "  - calls: [{name: mcp__%s__look, args: {n: %d}}]\n", server, n)
		}
		fmt.Fprintf(&replies, "  - calls: [{name: %s, args: {todos: [{content: '%d', status: pending}]}}]\n", idleTool, n)
	}
	replies.WriteString("else: {text: Done.}\n")
	config := fmt.Sprintf(`models: [{name: play, vendor: script, script: %q}]
model: play
mcp:
  servers:
    near: {command: %s, trust: true, approval: never}
    far: {url: %q, trust: true, approval: never}
`, script, pathOfMCP, url)
	return errors.Join(os.WriteFile(script, []byte(replies.String()), 0o600), os.WriteFile(filepath.Join(home, "skete.yaml"), []byte(config), 0o600))
}

// mcpCalls lets an agent make the calls, and returns how long they took, by server.
func (b *bench) mcpCalls(s *server, sb *client.Sandbox) (map[string][]time.Duration, error) {
	run, err := s.c.StartRun(b.ctx, api.StartRun{Task: "Look.", Sandbox: sb.ID, Budget: api.Budget{Steps: 1000}})
	if err == nil {
		run, err = s.c.Run(run.ID).Wait(b.ctx)
	}
	if err != nil {
		return nil, err
	}
	if run.State != string(thread.RunSucceeded) {
		return nil, fmt.Errorf("the run %s: %s", run.State, run.Text)
	}
	began := map[string]time.Time{}
	took := map[string][]time.Duration{}
	for e, err := range s.c.Run(run.ID).History(b.ctx, 1) {
		if err != nil {
			return nil, err
		}
		switch e.Kind {
		case "tool.started":
			var t thread.ToolStarted
			if err := json.Unmarshal(e.Data, &t); err != nil {
				return nil, err
			}
			began[t.Call] = e.At
		case "tool.completed":
			var t thread.ToolCompleted
			if err := json.Unmarshal(e.Data, &t); err != nil {
				return nil, err
			}
			if t.Failed {
				return nil, fmt.Errorf("%s failed: %v", t.Tool, t.Blocks)
			}
			server := strings.TrimSuffix(strings.TrimPrefix(t.Tool, "mcp__"), "__look")
			took[server] = append(took[server], e.At.Sub(began[t.Call]))
		}
	}
	return took, nil
}
