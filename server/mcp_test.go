package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/mcp"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/server/runs/runstest"
	"github.com/skete-dev/skete/thread"
)

// mcpClient is a client of the protocol, with what it uses to check its results.
type mcpClient struct {
	*sdk.ClientSession
	t       *testing.T
	sandbox string
}

// overHTTP connects the official client to the server, with a key.
func overHTTP(t *testing.T, w *world, secret string, o *sdk.ClientOptions) *mcpClient {
	t.Helper()
	hc := httpClient(t)
	hc.Transport = withKey{hc.Transport, secret}
	return connectMCP(t, w, &sdk.StreamableClientTransport{Endpoint: w.base + "/mcp", HTTPClient: hc, MaxRetries: -1}, o)
}

type withKey struct {
	http.RoundTripper
	secret string
}

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.secret)
	return k.RoundTripper.RoundTrip(r)
}

// overPipes connects it to a Server as `skete mcp` runs one.
func overPipes(t *testing.T, w *world, secret string, o *sdk.ClientOptions) *mcpClient {
	t.Helper()
	c, err := client.New(client.Config{URL: w.base, Key: secret})
	must(t, err)
	login, err := c.Login(t.Context())
	must(t, err)
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- mcp.New(mcp.Config{Client: c, Scopes: login.Scopes}).Run(context.Background(), in, out)
		out.Close()
	}()
	t.Cleanup(func() {
		toServer.Close()
		must(t, <-done)
		c.Close()
	})
	return connectMCP(t, w, &sdk.IOTransport{Reader: fromServer, Writer: toServer}, o)
}

func connectMCP(t *testing.T, w *world, tr sdk.Transport, o *sdk.ClientOptions) *mcpClient {
	t.Helper()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test-client", Version: "1"}, o).Connect(t.Context(), tr, nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return &mcpClient{s, t, w.sandbox()}
}

// try calls a tool and returns the texts of its result.
func (c *mcpClient) try(ctx context.Context, tool string, args map[string]any) (texts []string, failed bool) {
	c.t.Helper()
	if args == nil {
		args = map[string]any{}
	}
	if _, ok := args["sandbox"]; !ok && !slices.Contains([]string{"sandbox_create", "sandbox_list"}, tool) && !strings.HasPrefix(tool, "run_") {
		args["sandbox"] = c.sandbox
	}
	res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return []string{err.Error()}, true
	}
	for _, part := range res.Content {
		if text, ok := part.(*sdk.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	return texts, res.IsError
}

// does calls a tool that must work, and returns its first text.
func (c *mcpClient) does(tool string, args map[string]any) string {
	c.t.Helper()
	texts, failed := c.try(c.t.Context(), tool, args)
	if failed || len(texts) == 0 {
		c.t.Fatalf("%s %v: %q", tool, args, texts)
	}
	return texts[0]
}

// refuses calls a tool that must fail and say why.
func (c *mcpClient) refuses(tool string, args map[string]any, says string) {
	c.t.Helper()
	texts, failed := c.try(c.t.Context(), tool, args)
	if !failed || !strings.Contains(strings.Join(texts, "\n"), says) {
		c.t.Errorf("%s %.200v: failed %v, %.500q, want %q", tool, args, failed, texts, says)
	}
}

type object = map[string]any

var ways = map[string]func(*testing.T, *world, string, *sdk.ClientOptions) *mcpClient{"http": overHTTP, "stdio": overPipes}

// The tools work alike over both transports.
func TestMCP_works(t *testing.T) {
	w := newWorld(t)
	for name, connect := range ways {
		t.Run(name, func(t *testing.T) {
			c := connect(t, w, w.admin, nil)
			dir := "mcp-" + name
			if got, want := c.does("exec", object{"command": "cat; echo e >&2; exit 3", "stdin": "in"}), "in\n[stderr]\ne\n[exit code 3]"; got != want {
				t.Errorf("exec: %q, want %q", got, want)
			}
			c.does("file_write", object{"path": dir + "/a.txt", "content": "one\ntwo\n"})
			c.refuses("file_write", object{"path": dir + "/a.txt", "content": "x", "create_only": true}, "exist")
			c.does("file_write", object{"path": dir + "/a.txt", "content": "three\n", "append": true})
			c.does("file_edit", object{"path": dir + "/a.txt", "old": "two", "new": "2"})
			c.refuses("file_edit", object{"path": dir + "/a.txt", "old": "two", "new": "2"}, "not in")
			c.refuses("file_edit", object{"path": dir + "/a.txt", "old": "e\n", "new": ""}, "2 times")
			if got := c.does("file_read", object{"path": dir + "/a.txt"}); got != "one\n2\nthree\n" {
				t.Errorf("file_read: %q", got)
			}
			if got, _ := c.try(t.Context(), "file_read", object{"path": dir + "/a.txt", "offset": 4, "limit": 2}); len(got) != 2 || got[0] != "2\n" || !strings.Contains(got[1], "offset 6 ") {
				t.Errorf("a part of a file: %q", got)
			}
			if got := c.does("file_search", object{"pattern": "thre+", "path": dir}); !strings.HasSuffix(got, "a.txt:3:three\n") {
				t.Errorf("file_search: %q", got)
			}
			if got := c.does("file_search", object{"glob": "**/*.txt", "path": dir}); !strings.HasSuffix(got, "/a.txt\n") {
				t.Errorf("file_search by glob: %q", got)
			}
			if got := c.does("file_list", object{"path": dir}); !strings.Contains(got, `a.txt","type":"file","size":12`) {
				t.Errorf("file_list: %q", got)
			}
			if got := c.does("file_stat", object{"path": dir + "/a.txt", "hash": true}); !strings.Contains(got, `"sha256":"`) {
				t.Errorf("file_stat: %q", got)
			}
			if got := c.does("file_list", nil); !strings.Contains(got, dir) {
				t.Errorf("file_list of nothing: %q", got)
			}
			c.does("file_remove", object{"path": dir, "recursive": true})
			c.refuses("file_read", object{"path": dir + "/a.txt"}, "no ")
			if got := c.does("sandbox_list", nil); !strings.Contains(got, c.sandbox) {
				t.Errorf("sandbox_list: %q", got)
			}
		})
	}
}

// A command in the background is read from where one likes, and can be ended.
func TestMCP_background(t *testing.T) {
	w := newWorld(t)
	c := overHTTP(t, w, w.admin, nil)
	var made struct{ Process string }
	must(t, json.Unmarshal([]byte(c.does("exec", object{"command": "echo first; cat; sleep 1000", "stdin": "second\n", "background": true})), &made))
	patience.Until(t, time.Minute, "the output is there", func() bool {
		return strings.HasPrefix(c.does("process_output", object{"process": made.Process}), "first\nsecond\n[running]\n[next: stdout_from 13, ")
	})
	if got := c.does("process_output", object{"process": made.Process, "stdout_from": 6, "output_bytes_max": 3}); !strings.HasPrefix(got, "sec\n[running]\n[next: stdout_from 9, stderr_from 0; there is more]") {
		t.Errorf("a part of the output: %q", got)
	}
	if got := c.does("process_list", object{"running": true}); !strings.Contains(got, made.Process) {
		t.Errorf("process_list: %q", got)
	}
	c.does("process_kill", object{"process": made.Process})
	if got := c.does("process_output", object{"process": made.Process, "wait_seconds": 60}); !strings.Contains(got, "[exit code 137") {
		t.Errorf("after it was ended: %q", got)
	}
	c.refuses("process_output", object{"process": "nothing"}, "nothing")
}

// Of a long output the beginning and the end are shown, and the rest can be had.
func TestMCP_longOutput(t *testing.T) {
	w := newWorld(t)
	c := overHTTP(t, w, w.admin, nil)
	got := c.does("exec", object{"command": "seq 1 200000", "output_bytes_max": 1000})
	if len(got) > 1300 || !strings.HasPrefix(got, "1\n2\n3\n") || !strings.HasSuffix(got, "\n200000\n[exit code 0]") {
		t.Fatalf("%d bytes: %q", len(got), got)
	}
	var left int64
	var process string
	_, note, _ := strings.Cut(got, "[… ")
	if _, err := fmt.Sscanf(note, "%d bytes are left out here; process_output with process %s and", &left, &process); err != nil {
		t.Fatalf("%v: %q", err, note)
	}
	if want := int64(1288895 - 1000); left != want { // what seq writes
		t.Errorf("%d bytes are left out, want %d", left, want)
	}
	if rest := c.does("process_output", object{"process": process, "stdout_from": 500, "output_bytes_max": 131072}); len(rest) < 131072 || !strings.Contains(rest, "there is more") {
		t.Errorf("the rest: %d bytes", len(rest))
	}
}

// A key sees the tools that it may use, and is told what others need.
func TestMCP_scopes(t *testing.T) {
	w := newWorld(t)
	names := func(c *mcpClient) (all []string, writing int) {
		t.Helper()
		for tool, err := range c.Tools(t.Context(), nil) {
			must(t, err)
			all = append(all, tool.Name)
			if !tool.Annotations.ReadOnlyHint {
				writing++
			}
		}
		return all, writing
	}
	all, _ := names(overHTTP(t, w, w.admin, nil))
	for scopes, want := range map[string]struct {
		tools, writing int
		refused        string
	}{
		"read,write": {len(all), 19, ""},
		"read":       {15, 0, "exec"},
		"runs:read":  {3, 0, "file_read"},
		"runs:write": {7, 4, "file_read"},
	} {
		for way, connect := range ways {
			secret, _ := w.key(t, "default", strings.Split(scopes, ",")...)
			if scopes[0] == 'r' && scopes[1] == 'u' && way == "stdio" {
				continue // GET /v1/login needs more
			}
			c := connect(t, w, secret, nil)
			got, writing := names(c)
			if len(got) != want.tools || writing != want.writing {
				t.Errorf("%s, %s: %d tools, %d of them write: %q", scopes, way, len(got), writing, got)
			}
			if want.refused != "" {
				c.refuses(want.refused, object{}, "this key may not use "+want.refused)
			}
		}
	}
	if got := w.send(t, "", http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); got.status != http.StatusUnauthorized {
		t.Errorf("without a key: %d", got.status)
	}
	if got := w.send(t, w.admin, http.MethodPost, "/mcp", `{}`, "Origin", "http://evil.example"); got.status != http.StatusForbidden {
		t.Errorf("of a foreign page: %d", got.status)
	}
}

// What is wrong with a call is said to the model, and nothing of others is shown.
func TestMCP_badCalls(t *testing.T) {
	w := newWorld(t)
	foreign, _ := w.key(t, "other", "read", "write")
	for name, connect := range ways {
		t.Run(name, func(t *testing.T) {
			c := connect(t, w, w.admin, nil)
			c.refuses("no_such_tool", nil, "unknown tool")
			c.refuses("exec", nil, "command")
			c.refuses("exec", object{"command": 7}, "schema")
			c.refuses("exec", object{"command": "true", "shell": "zsh"}, "shell")
			c.refuses("exec", object{"command": "true", "timeout_seconds": 1e9}, "maximum")
			c.refuses("process_kill", object{"process": "x", "signal": "STOP"}, "enum")
			c.refuses("file_read", object{"path": "/nowhere"}, "/nowhere")
			c.refuses("file_read", object{"path": ""}, "path")
			c.refuses("file_write", object{"path": "b", "content": strings.Repeat("x", 1<<20+1)}, "with append")
			c.refuses("file_write", object{"path": "b", "content": "!", "encoding": "base64"}, "base64")
			c.refuses("sandbox_get", object{"sandbox": "sbx_aaaaaaaaaaaaaaaaaaaa"}, "sbx_aaaaaaaaaaaaaaaaaaaa")
			c.refuses("history_undo", object{"do": "restore", "n": 1 << 40}, "")
			theirs := connect(t, w, foreign, nil)
			theirs.refuses("sandbox_get", object{"sandbox": c.sandbox}, c.sandbox)
			theirs.refuses("exec", object{"sandbox": c.sandbox, "command": "true"}, c.sandbox)
			for _, uri := range []string{
				"skete://sandbox/" + c.sandbox + "/workspace/../etc/passwd", "skete://sandbox/" + c.sandbox + "/workspace/%2e%2e/etc/passwd",
				"skete://sandbox/" + c.sandbox + "/workspace//etc/passwd", "skete://sandbox/" + c.sandbox + "/workspace/nothing", "skete://run/run_x/transcript", "file:///etc/passwd",
			} {
				if res, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil {
					t.Errorf("%s: %+v", uri, res)
				}
			}
		})
	}
}

// Pictures are pictures, and other bytes are said to be none.
func TestMCP_bytes(t *testing.T) {
	w := newWorld(t)
	c := overHTTP(t, w, w.admin, nil)
	png := "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	c.does("file_write", object{"path": "a.png", "content": png, "encoding": "base64"})
	got, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "file_read", Arguments: object{"sandbox": c.sandbox, "path": "a.png"}})
	must(t, err)
	if picture, ok := got.Content[0].(*sdk.ImageContent); !ok || picture.MIMEType != "image/png" || len(picture.Data) != 70 {
		t.Errorf("%+v", got.Content)
	}
	c.does("exec", object{"command": `printf '\377\000' > b.bin; : > empty`})
	c.refuses("file_read", object{"path": "b.bin"}, "no text")
	if got := c.does("file_read", object{"path": "b.bin", "encoding": "base64"}); got != "/wA=" {
		t.Errorf("%q", got)
	}
	if got := c.does("file_read", object{"path": "empty"}); got != "" {
		t.Errorf("%q", got)
	}
}

// A call that its client cancels ends its command, and no command in the background.
// Until then the client hears that it goes on, if it wants to.
func TestMCP_cancel(t *testing.T) {
	w := newWorld(t)
	for name, connect := range ways {
		t.Run(name, func(t *testing.T) {
			heard := make(chan string, 100)
			c := connect(t, w, w.admin, &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, p *sdk.ProgressNotificationClientRequest) {
				heard <- p.Params.Message
			}})
			c.does("exec", object{"command": "sleep 2001", "background": true})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				p := &sdk.CallToolParams{Name: "exec", Arguments: object{"sandbox": c.sandbox, "command": "sleep 2002", "timeout_seconds": 3600}}
				p.SetProgressToken("a")
				_, err := c.CallTool(ctx, p)
				ended <- err
			}()
			running := func() string { return c.does("process_list", object{"running": true}) }
			patience.Until(t, time.Minute, "the command runs", func() bool { return strings.Contains(running(), "sleep 2002") })
			patience.Within(t, time.Minute, "the client hears that it goes on", func() {
				if got := <-heard; !strings.HasPrefix(got, "exec: ") {
					t.Errorf("%q", got)
				}
			})
			cancel()
			if err := <-ended; err == nil {
				t.Error("the call was not cancelled")
			}
			patience.Until(t, time.Minute, "the command is ended", func() bool { return !strings.Contains(running(), "sleep 2002") })
			if !strings.Contains(running(), "sleep 2001") {
				t.Error("the command in the background was ended too")
			}
			var list struct{ Items []struct{ Process string } }
			must(t, json.Unmarshal([]byte(running()), &list))
			for _, p := range list.Items {
				c.does("process_kill", object{"process": p.Process})
			}
		})
	}
}

// Services are started, looked at and stopped.
func TestMCP_services(t *testing.T) {
	w := newWorld(t)
	c := overHTTP(t, w, w.admin, nil)
	var v struct{ Name, State string }
	must(t, json.Unmarshal([]byte(c.does("service_start", object{"name": "web", "command": "echo hello; exec sleep 1000", "wait_seconds": 60})), &v))
	if d := cmp.Diff(struct{ Name, State string }{"web", "ready"}, v); d != "" {
		t.Error(d)
	}
	patience.Until(t, time.Minute, "it logs", func() bool {
		return strings.HasPrefix(c.does("service_logs", object{"name": "web"}), "hello\n[bytes 0 to 6;")
	})
	if got := c.does("service_list", nil); !strings.Contains(got, `"web"`) {
		t.Errorf("%q", got)
	}
	must(t, json.Unmarshal([]byte(c.does("service_stop", object{"name": "web"})), &v))
	if v.State != "stopped" {
		t.Errorf("%+v", v)
	}
	if got := c.does("service_logs", object{"name": "web", "from": 6}); !strings.Contains(got, "nothing here") {
		t.Errorf("%q", got)
	}
}

// Runs are started, looked at, followed and cancelled.
func TestMCP_runs(t *testing.T) {
	w := newWorld(t)
	c := overHTTP(t, w, w.admin, nil)
	var run api.Run
	must(t, json.Unmarshal([]byte(c.does("run_start", object{"task": "do it"})), &run))
	must(t, json.Unmarshal([]byte(c.does("run_get", object{"run": run.ID})), &run))
	if got := c.does("run_list", nil); !strings.Contains(got, run.ID) {
		t.Errorf("%q", got)
	}
	if got := c.does("run_follow", object{"run": run.ID}); !strings.Contains(got, "next: from") {
		t.Errorf("%q", got)
	}
	c.refuses("run_decide", object{"run": run.ID, "call": "call_x", "decision": "approve"}, "call_x")
	c.does("run_cancel", object{"run": run.ID, "reason": "enough"})
	if got := c.does("run_follow", object{"run": run.ID, "wait_seconds": 60}); !strings.Contains(got, "[cancelled") {
		t.Errorf("%q", got)
	}
	res, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "skete://run/" + run.ID + "/transcript"})
	must(t, err)
	var story api.Transcript
	must(t, json.Unmarshal([]byte(res.Contents[0].Text), &story))
	c.refuses("run_get", object{"run": "run_x"}, "run_x")
}

// lagging tells of a run that is not over as it was when it began, as a record that is
// written behind the log does for a moment.
type lagging struct{ *runstest.Fake }

func (l lagging) Get(ctx context.Context, tenant string, id thread.RunID) (runs.Run, error) {
	r, err := l.Fake.Get(ctx, tenant, id)
	if !r.State.Final() {
		r.State, r.Waiting, r.Last = thread.RunRunning, 0, r.First
	}
	return r, err
}

// A question is seen as soon as the log has it, and not any more when the log has its answer,
// whatever the run's numbers say.
func TestMCP_asksTheLog(t *testing.T) {
	const args = `{"command":"one"}`
	release := make(chan struct{})
	fake := runstest.New(func(p *runstest.Play) {
		p.Answer("", runstest.Call("c1", "execute", args))
		p.Ask("c1", "execute", args, "a rule", thread.Approve)
		p.Decision("c1")
		p.Run("c1", "execute", "one")
		p.Until(release)
		p.End(thread.RunSucceeded, "done")
	})
	t.Cleanup(fake.Close)
	w := newWorld(t, func(o *server.Config) { o.Runs = lagging{fake} })
	c := overHTTP(t, w, w.admin, nil)
	var run struct {
		ID        string
		Approvals []api.Approval
	}
	must(t, json.Unmarshal([]byte(c.does("run_start", object{"task": "do it"})), &run))
	if got := c.does("run_follow", object{"run": run.ID, "wait_seconds": 60}); !strings.Contains(got, "1 calls wait for a person") {
		t.Errorf("%q", got)
	}
	must(t, json.Unmarshal([]byte(c.does("run_get", object{"run": run.ID})), &run))
	if len(run.Approvals) != 1 {
		t.Fatalf("%+v", run)
	}
	c.does("run_decide", object{"run": run.ID, "call": "c1", "decision": "approve"})
	if got := c.does("run_follow", object{"run": run.ID, "wait_seconds": 1}); !strings.Contains(got, "tool.completed") || strings.Contains(got, "wait for a person") {
		t.Errorf("%q", got)
	}
	close(release)
	if got := c.does("run_follow", object{"run": run.ID, "wait_seconds": 60}); !strings.Contains(got, "[succeeded") {
		t.Errorf("%q", got)
	}
}
