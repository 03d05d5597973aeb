package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/server/envd/protocol"
)

// bridge is a server that clients of envd can use, and a sandbox there.
type bridge struct {
	*world
	t         *testing.T
	id, token string
}

func newBridge(t *testing.T, change ...func(*server.Config)) *bridge {
	t.Helper()
	w := newWorld(t, change...)
	b := &bridge{world: w, t: t}
	b.id, b.token = b.connect(w.admin, w.sandbox())
	return b
}

// connect gives the token of a sandbox.
func (b *bridge) connect(key, sandbox string) (id, token string) {
	b.t.Helper()
	var made struct{ SandboxID, EnvdAccessToken, EnvdVersion string }
	b.call(b.t, key, http.MethodPost, "/e2b/v2/sandboxes/"+strings.TrimPrefix(sandbox, "sbx_")+"/connect", struct{}{}, http.StatusOK, &made)
	if made.EnvdAccessToken == "" || made.EnvdVersion == "" || "sbx_"+made.SandboxID != sandbox {
		b.t.Fatalf("%+v", made)
	}
	return made.SandboxID, made.EnvdAccessToken
}

// envd makes a request of the sandbox; header pairs come last.
func (b *bridge) envd(method, path string, body any, header ...string) answer {
	b.t.Helper()
	h := append([]string{"E2b-Sandbox-Id", b.id, "E2b-Sandbox-Port", "49983", "X-Access-Token", b.token}, header...)
	return b.send(b.t, "", method, "/e2b"+path, body, h...)
}

// refused checks the shape of a refusal.
func (a answer) refused(t *testing.T, status int, says string) {
	t.Helper()
	var r struct {
		Code    int
		Message string
	}
	if a.status != status || json.Unmarshal(a.body, &r) != nil || r.Code != status || !strings.Contains(r.Message, says) {
		t.Errorf("status %d (want %d with %q): %s", a.status, status, says, a.body)
	}
}

// transport adds to each request what clients of envd send.
type transport struct {
	http.RoundTripper
	b *bridge
}

func (tr transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("E2b-Sandbox-Id", tr.b.id)
	r.Header.Set("E2b-Sandbox-Port", "49983")
	r.Header.Set("X-Access-Token", tr.b.token)
	return tr.RoundTripper.RoundTrip(r)
}

func (b *bridge) clients(o ...connect.ClientOption) (protocol.ProcessClient, protocol.FilesystemClient) {
	c := httpClient(b.t)
	c.Transport = transport{c.Transport, b}
	return protocol.NewProcessClient(c, b.base+"/e2b", o...), protocol.NewFilesystemClient(c, b.base+"/e2b", o...)
}

// ran is what a command did.
func ran(t *testing.T, p protocol.ProcessClient, req *protocol.StartRequest) (out string, end *protocol.ProcessEvent_EndEvent, err error) {
	ctx, cancel := patience.Context(context.Background(), time.Minute)
	defer cancel()
	st, err := p.Start(ctx, connect.NewRequest(req))
	if err != nil {
		return "", nil, err
	}
	defer st.Close()
	for st.Receive() {
		out += string(st.Msg().GetEvent().GetData().GetStdout()) + string(st.Msg().GetEvent().GetData().GetPty())
		if e := st.Msg().GetEvent().GetEnd(); e != nil {
			end = e
		}
	}
	return out, end, st.Err()
}

func shell(line string) *protocol.StartRequest {
	return &protocol.StartRequest{Process: &protocol.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", line}}}
}

// A client in Go, whose requests may go on while they are answered, gets all of every
// stream, in both encodings.
func TestBridge_goClient(t *testing.T) {
	b := newBridge(t)
	for name, o := range map[string][]connect.ClientOption{"binary": nil, "JSON": {connect.WithProtoJSON()}} {
		t.Run(name, func(t *testing.T) {
			p, f := b.clients(o...)
			var wg sync.WaitGroup
			for worker := range 4 {
				wg.Go(func() {
					for i := range 25 {
						want := fmt.Sprintf("%d of %d\n", i, worker)
						out, end, err := ran(t, p, shell("printf '"+strings.TrimSpace(want)+"\\n'"))
						if err != nil || out != want || end == nil || end.GetExitCode() != 0 || !end.GetExited() {
							t.Errorf("%q, %v, %v", out, end, err)
							return
						}
					}
				})
			}
			wg.Wait()
			_, end, err := ran(t, p, shell("kill -9 $$"))
			if err != nil || end.GetExitCode() != -1 || end.GetExited() || end.GetStatus() != "signal: killed" {
				t.Errorf("%v, %v", end, err)
			}
			dir, err := f.MakeDir(t.Context(), connect.NewRequest(&protocol.MakeDirRequest{Path: "d/" + name}))
			if err != nil || dir.Msg.GetEntry().GetType() != protocol.FileType_FILE_TYPE_DIRECTORY {
				t.Errorf("%v, %v", dir, err)
			}
			if _, err := f.MakeDir(t.Context(), connect.NewRequest(&protocol.MakeDirRequest{Path: "d/" + name})); connect.CodeOf(err) != connect.CodeAlreadyExists {
				t.Errorf("a directory that is there: %v", err)
			}
		})
	}
}

// Input comes in the order of the calls, and a stream of it as one.
func TestBridge_input(t *testing.T) {
	b := newBridge(t)
	p, _ := b.clients()
	tag := "the cat"
	req := shell("cat")
	req.Tag = &tag
	done := make(chan string, 1)
	go func() {
		out, _, err := ran(t, p, req)
		done <- fmt.Sprint(out, err)
	}()
	by := &protocol.ProcessSelector{Selector: &protocol.ProcessSelector_Tag{Tag: tag}}
	patience.Until(t, 10*time.Second, "the command is listed by its tag", func() bool {
		res, err := p.List(t.Context(), connect.NewRequest(&protocol.ListRequest{}))
		return err == nil && len(res.Msg.GetProcesses()) == 1 && res.Msg.GetProcesses()[0].GetTag() == tag
	})
	input := func(text string) *protocol.ProcessInput {
		return &protocol.ProcessInput{Input: &protocol.ProcessInput_Stdin{Stdin: []byte(text)}}
	}
	for _, text := range []string{"one ", "two "} {
		_, err := p.SendInput(t.Context(), connect.NewRequest(&protocol.SendInputRequest{Process: by, Input: input(text)}))
		must(t, err)
	}
	if _, err := p.SendInput(t.Context(), connect.NewRequest(&protocol.SendInputRequest{Process: by, Input: &protocol.ProcessInput{Input: &protocol.ProcessInput_Pty{Pty: []byte("x")}}})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("input of a terminal: %v", err)
	}
	st := p.StreamInput(t.Context())
	must(t, st.Send(&protocol.StreamInputRequest{Event: &protocol.StreamInputRequest_Start{Start: &protocol.StreamInputRequest_StartEvent{Process: by}}}))
	for _, text := range []string{"three ", strings.Repeat("x", 3<<20)} {
		must(t, st.Send(&protocol.StreamInputRequest{Event: &protocol.StreamInputRequest_Data{Data: &protocol.StreamInputRequest_DataEvent{Input: input(text)}}}))
	}
	_, err := st.CloseAndReceive()
	must(t, err)
	_, err = p.CloseStdin(t.Context(), connect.NewRequest(&protocol.CloseStdinRequest{Process: by}))
	must(t, err)
	if got, want := <-done, "one two three "+strings.Repeat("x", 3<<20)+"<nil>"; got != want {
		t.Errorf("%d bytes, want %d: %.60q", len(got), len(want), got)
	}
	st = p.StreamInput(t.Context())
	_ = st.Send(&protocol.StreamInputRequest{Event: &protocol.StreamInputRequest_Data{Data: &protocol.StreamInputRequest_DataEvent{Input: input("x")}}})
	if _, err := st.CloseAndReceive(); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("input for no process: %v", err)
	}
}

// The command of a client that goes away goes on; its deadline ends it.
func TestBridge_deadline(t *testing.T) {
	b := newBridge(t)
	p, f := b.clients()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(time.Second))
	defer cancel()
	st, err := p.Start(ctx, connect.NewRequest(shell("echo begun; sleep 600; echo >late")))
	must(t, err)
	defer st.Close()
	for st.Receive() {
	}
	if connect.CodeOf(st.Err()) != connect.CodeDeadlineExceeded {
		t.Errorf("after its time: %v", st.Err())
	}
	patience.Until(t, 20*time.Second, "the command is ended", func() bool {
		res, err := p.List(t.Context(), connect.NewRequest(&protocol.ListRequest{}))
		return err == nil && len(res.Msg.GetProcesses()) == 0
	})
	gone, leave := context.WithCancel(t.Context())
	st, err = p.Start(gone, connect.NewRequest(shell("echo begun; while [ ! -e go ]; do sleep 0.05; done; echo >went")))
	must(t, err)
	for st.Receive() && st.Msg().GetEvent().GetData() == nil {
	}
	leave()
	_ = st.Close()
	must(t, b.write("go", "").err(http.StatusOK))
	patience.Until(t, 20*time.Second, "the command went on", func() bool {
		_, err := f.Stat(t.Context(), connect.NewRequest(&protocol.StatRequest{Path: "went"}))
		return err == nil
	})
}

func (a answer) err(status int) error {
	if a.status != status {
		return fmt.Errorf("status %d: %s", a.status, a.body)
	}
	return nil
}

func (b *bridge) write(path, content string) answer {
	b.t.Helper()
	return b.envd(http.MethodPost, "/files?path="+url.QueryEscape(path), io.Reader(strings.NewReader(content)), "Content-Type", "application/octet-stream")
}

// parts is a multipart body.
func parts(t *testing.T, dispositions ...string) (body io.Reader, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, d := range dispositions {
		part, err := w.CreatePart(map[string][]string{"Content-Disposition": {d}})
		must(t, err)
		_, err = io.WriteString(part, "content")
		must(t, err)
	}
	must(t, w.Close())
	return &b, w.FormDataContentType()
}

func zipped(t *testing.T, size int) io.Reader {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(make([]byte, size))
	must(t, err)
	must(t, z.Close())
	return &b
}

// What is wrong with an upload is said, and nothing but what was whole is written.
func TestBridge_uploads(t *testing.T) {
	b := newBridge(t, func(c *server.Config) { c.Limits.UploadBytesMax = 2 << 20 })
	send := func(path string, body io.Reader, kind string, header ...string) answer {
		return b.envd(http.MethodPost, "/files"+path, body, append([]string{"Content-Type", kind}, header...)...)
	}
	form := func(path string, dispositions ...string) answer {
		body, kind := parts(t, dispositions...)
		return send(path, body, kind)
	}
	const octets = "application/octet-stream"
	form("", `form-data; name="file"`).refused(t, http.StatusBadRequest, "no file name")
	form("", slices.Repeat([]string{`form-data; name="no file"`}, 10001)...).refused(t, http.StatusBadRequest, "at most 10000 parts")
	form("", `form-data; name="file"; filename="a"`, `form-data; name="file"; filename="a"`).refused(t, http.StatusBadRequest, "two parts")
	form("", `form-data; name="file"; filename="~other/a"`).refused(t, http.StatusBadRequest, "one's own home")
	send("?path=a", strings.NewReader("{}"), "application/json").refused(t, http.StatusBadRequest, "multipart/form-data or")
	send("", strings.NewReader("x"), octets).refused(t, http.StatusBadRequest, "path is missing")
	send("?path=a", strings.NewReader("x"), octets, "X-Metadata-Key", "v").refused(t, http.StatusBadRequest, "not supported")
	send("?path=a", strings.NewReader("x"), octets, "Content-Encoding", "br").refused(t, http.StatusBadRequest, "gzip is")
	send("?path=a", strings.NewReader("x"), octets, "Content-Encoding", "gzip").refused(t, http.StatusBadRequest, "not gzip")
	send("?path=bomb", zipped(t, 64<<20), octets, "Content-Encoding", "gzip").refused(t, http.StatusRequestEntityTooLarge, "larger than")
	send("?path=large", bytes.NewReader(make([]byte, 3<<20)), octets).refused(t, http.StatusRequestEntityTooLarge, "larger than")
	for _, name := range []string{"bomb", "large"} {
		b.envd(http.MethodGet, "/files?path="+name, nil).refused(t, http.StatusNotFound, "no such file")
	}
	b.envd(http.MethodGet, "/files?path=.", nil).refused(t, http.StatusBadRequest, "directory")

	// The rights of the sandbox's user are the bound, so ".." is no way out.
	must(t, form("", `form-data; name="file"; filename="d/../e/f"`, `form-data; name="other"; filename="g"`).err(http.StatusOK))
	must(t, send("?path=z", zipped(t, 9), octets, "Content-Encoding", "gzip").err(http.StatusOK))
	if a := b.envd(http.MethodGet, "/files?path=e/f", nil); string(a.body) != "content" {
		t.Errorf("%d %q", a.status, a.body)
	}
	if a := b.envd(http.MethodGet, "/files?path=z", nil, "Range", "bytes=-4"); a.status != http.StatusPartialContent || len(a.body) != 4 {
		t.Errorf("%d %q", a.status, a.body)
	}
	b.envd(http.MethodGet, "/files?path=g", nil).refused(t, http.StatusNotFound, "no such file")
	if a := b.write("empty", ""); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := b.envd(http.MethodGet, "/files?path=empty", nil); a.header.Get("Content-Length") != "0" {
		t.Errorf("an empty file: %v", a.header)
	}
}

// The token of a sandbox lets in there alone, and for as long as a key stands behind it.
func TestBridge_tokens(t *testing.T) {
	b := newBridge(t)
	other := b.create(t, api.CreateSandbox{})
	otherID, otherToken := b.connect(b.admin, other.ID)
	if otherToken == b.token {
		t.Fatal("two sandboxes have one token")
	}
	for name, token := range map[string]string{"none": "", "another's": otherToken, "a key": b.admin, "too short": b.token[:10]} {
		t.Run(name, func(t *testing.T) {
			b.envd(http.MethodGet, "/files?path=x", nil, "X-Access-Token", token).refused(t, http.StatusUnauthorized, "")
			b.envd(http.MethodPost, "/process.Process/List", "{}", "X-Access-Token", token).refused(t, http.StatusUnauthorized, "access token")
			b.envd(http.MethodGet, "/", nil, "X-Access-Token", token, "E2b-Sandbox-Port", "8080").refused(t, http.StatusUnauthorized, "access token")
		})
	}
	b.envd(http.MethodGet, "/health", nil, "E2b-Sandbox-Id", "aaaaaaaaaaaaaaaaaaaa").refused(t, http.StatusBadGateway, "not found")
	b.envd(http.MethodGet, "/health", nil, "E2b-Sandbox-Id", "../keys").refused(t, http.StatusBadGateway, "not found")
	b.envd(http.MethodGet, "/health", nil, "E2b-Sandbox-Port", "x").refused(t, http.StatusBadRequest, "names no port")

	// Another tenant's key finds nothing, and one that may only read gets no token.
	foreign, _ := b.key(t, "other")
	for _, call := range [][2]string{{http.MethodGet, ""}, {http.MethodDelete, ""}, {http.MethodPost, "/connect"}, {http.MethodPost, "/pause"}, {http.MethodPost, "/fork"}} {
		b.send(t, foreign, call[0], "/e2b/sandboxes/"+b.id+call[1], nil).refused(t, http.StatusNotFound, "")
	}
	reader, _ := b.key(t, "default", "read")
	a := b.send(t, reader, http.MethodGet, "/e2b/sandboxes/"+b.id, nil)
	if a.status != http.StatusOK || strings.Contains(string(a.body), b.token) {
		t.Errorf("%d %s", a.status, a.body)
	}
	b.send(t, reader, http.MethodPost, "/e2b/sandboxes/"+b.id+"/connect", "{}").refused(t, http.StatusForbidden, "may not")
	b.send(t, "e2b_"+strings.Repeat("0", 40), http.MethodGet, "/e2b/v2/sandboxes", nil).refused(t, http.StatusUnauthorized, "")

	must(t, b.envd(http.MethodGet, "/health", nil, "E2b-Sandbox-Id", otherID, "X-Access-Token", "").err(http.StatusNoContent))
	must(t, b.manager.Destroy(t.Context(), "default", sandbox.ID("sbx_"+otherID)))
	b.envd(http.MethodGet, "/health", nil, "E2b-Sandbox-Id", otherID).refused(t, http.StatusBadGateway, "not found")
	b.envd(http.MethodGet, "/files?path=x", nil, "E2b-Sandbox-Id", otherID, "X-Access-Token", otherToken).refused(t, http.StatusBadGateway, "not found")
}

// Each route of the REST API asks for a key, and for one that may do it.
func TestBridge_whoMayDoWhat(t *testing.T) {
	b := newBridge(t, func(c *server.Config) { c.Limits.WrongKeysMax = 1000 })
	read, _ := b.key(t, "default", "read")
	watch, _ := b.key(t, "default", "runs:read")
	const other = "aaaaaaaaaaaaaaaaaaaa" // is not there: nothing is destroyed by trying
	for _, name := range []string{
		"GET /sandboxes", "GET /v2/sandboxes", "GET /sandboxes/" + other, "GET /sandboxes/" + other + "/metrics", "GET /snapshots", "GET /templates/aliases/x",
		"POST /sandboxes", "POST /v2/sandboxes", "DELETE /sandboxes/" + other, "POST /sandboxes/" + other + "/timeout", "POST /sandboxes/" + other + "/refreshes",
		"POST /sandboxes/" + other + "/connect", "POST /v2/sandboxes/" + other + "/connect", "POST /sandboxes/" + other + "/resume", "POST /sandboxes/" + other + "/pause",
		"GET /secrets", "GET /secrets/x", "POST /secrets", "POST /secrets/x", "DELETE /secrets/x",
		"PUT /sandboxes/" + other + "/network", "POST /sandboxes/" + other + "/snapshots", "POST /sandboxes/" + other + "/fork", "DELETE /templates/snp_" + other,
	} {
		t.Run(name, func(t *testing.T) {
			method, path, _ := strings.Cut(name, " ")
			for secret, status := range map[string]int{"": http.StatusUnauthorized, "e2b_" + strings.Repeat("0", 40): http.StatusUnauthorized, watch: http.StatusForbidden} {
				b.send(t, secret, method, "/e2b"+path, nil).refused(t, status, "")
			}
			if a := b.send(t, read, method, "/e2b"+path, nil); (a.status == http.StatusForbidden) != (method != http.MethodGet) || a.status == http.StatusUnauthorized {
				t.Errorf("a key that may read gets %d: %s", a.status, a.body)
			}
			if a := b.send(t, b.admin, method, "/e2b"+path, nil); a.status == http.StatusForbidden || a.status == http.StatusUnauthorized {
				t.Errorf("an admin gets %d: %s", a.status, a.body)
			}
		})
	}
}

// Options that are not known or not supported are refused, not ignored.
func TestBridge_badCreates(t *testing.T) {
	b := newBridge(t)
	for body, says := range map[string]string{
		`{}`:                                              "templateID is missing",
		`{"templateID":"nope","timeout":5}`:               "no template",
		`{"templateID":"base","timeout":0}`:               "timeout of 0",
		`{"templateID":"base","timeout":-1}`:              "timeout of -1",
		`{"templateID":"base","timeout":"x"}`:             "wrong kind",
		`{"templateID":"base","timeout":1e99}`:            "wrong kind",
		`{"templateID":"base","firewall":true}`:           "not known here",
		`{"templateID":"base"} {}`:                        "behind the JSON",
		`[`:                                               "no JSON object",
		`{"templateID":"base","mcp":{"a":{}}}`:            "mcp is not supported",
		`{"templateID":"base","iam":{"tokens":{"a":{}}}}`: "iam is not supported",
		`{"templateID":"base","volumeMounts":[{"name":"a","path":"/b"}]}`:                                                             "volumeMounts is not supported",
		`{"templateID":"base","network":{"egressProxy":{"address":"a"}}}`:                                                             "egressProxy is not supported",
		`{"templateID":"base","network":{"maskRequestHost":"a"}}`:                                                                     "maskRequestHost is not supported",
		`{"templateID":"base","network":{"denyOut":["10.0.0.0/8"]}}`:                                                                  "ranges of addresses",
		`{"templateID":"base","network":{"allowOut":["169.254.169.254"]}}`:                                                            "always refused",
		`{"templateID":"base","network":{"allowOut":["http://x/"]}}`:                                                                  "without a scheme",
		`{"templateID":"base","network":{"rules":{"a.example":[{"transform":{"headers":{"X-Key":"plain-canary"}}}]}}}`:                "is no secret",
		`{"templateID":"base","network":{"rules":{"a.example":[{"transform":{"headers":{"X-Key":"${e2b.secrets.nope}"}}}]}}}`:         "no secret \"nope\"",
		`{"templateID":"base","network":{"rules":{"a.example":[{"transform":{"headers":{"X-Key":"Bearer ${e2b.secrets.nope}"}}}]}}}`:  "Bearer is of",
		`{"templateID":"base","network":{"rules":{"a.example":[{"transform":{"headers":{"X-Key":"${e2b.identity.tokens.nope}"}}}]}}}`: "X-Key",
		`{"templateID":"base","network":{"rules":{"a.example":[{},{}]}}}`:                                                             "more than one rule",
		`{"templateID":"base","network":{"rules":{"a.example":[{"transform":{"body":"x"}}]}}}`:                                        "not known here",
		`{"templateID":"base","network":{"rules":{"1":[],"2":[],"3":[],"4":[],"5":[],"6":[],"7":[],"8":[],"9":[],"10":[],"11":[]}}}`:  "at most 10 hosts",
		`{"templateID":"base","network":{"no":1}}`:                                                                                    "not known here",
		`{"templateID":"base","autoPauseMemory":false}`:                                                                               "of autoPause",
		`{"templateID":"snp_aaaaaaaaaaaaaaaaaaaa:default","network":{}}`:                                                              "made from a snapshot",
		`{"templateID":"base","envVars":{"":"x"}}`:                                                                                    "env",
		`{"templateID":"` + strings.Repeat("x", 2<<20) + `"}`:                                                                         "larger than",
	} {
		t.Run(says, func(t *testing.T) {
			a := b.send(t, b.admin, http.MethodPost, "/e2b/v2/sandboxes", body)
			if a.status < 400 || a.status >= 500 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			a.refused(t, a.status, says)
			if strings.Contains(string(a.body), "plain-canary") {
				t.Errorf("a refusal repeats a header's value: %s", a.body)
			}
		})
	}
	for path, says := range map[string]string{
		"/e2b/v2/sandboxes?state=asleep":   "is no state",
		"/e2b/v2/sandboxes?limit=0":        "limit is",
		"/e2b/v2/sandboxes?color=red":      "cannot be asked for",
		"/e2b/v2/sandboxes?metadata=%25zz": "cannot be read",
		"/e2b/snapshots?nextToken=x":       "nextToken",
		"/e2b/snapshots?sandboxID=x":       "not a sandbox id",
		"/e2b/sandboxes/not-an-id":         "no sandbox",
		"/e2b/templates/aliases/nope":      "no template",
		"/e2b/volumes":                     "not supported",
		"/e2b/something":                   "there is no",
		"/e2b/process.Process/List":        "there is no",
		"/files?path=a":                    "there is no",
		"/files?path=a&signature=v1_x":     "signature",
		"/e2b/files?path=a&signature=v1_x": "signature",
	} {
		t.Run(path, func(t *testing.T) {
			a := b.send(t, b.admin, http.MethodGet, path, nil)
			if a.status < 400 || a.status >= 500 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			a.refused(t, a.status, says)
		})
	}
	if !strings.Contains(b.log.String(), "asked for what is not here") {
		t.Error("what is not here is not logged")
	}
}

// A client's secret is sent nowhere until a rule of a sandbox's network names it; then it
// is granted to that sandbox, for that host and header, and for as long as both are there.
func TestBridge_secrets(t *testing.T) {
	w := newWorldOn(t, func(p sandbox.Provider) sandbox.Provider { return networked{p} })
	var said strings.Builder
	call := func(key, method, path string, body any, status int, into any) {
		t.Helper()
		a := w.send(t, key, method, "/e2b"+path, body)
		said.Write(a.body)
		if a.status != status {
			t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
		}
		if into != nil {
			must(t, json.Unmarshal(a.body, into))
		}
	}
	type view struct {
		SecretID, Name string
		CurrentVersion int
	}
	var made, anew view
	call(w.admin, "POST", "/secrets", map[string]string{"name": "forge", "value": canary + "-1"}, http.StatusCreated, &made)
	call(w.admin, "POST", "/secrets/forge", map[string]string{"value": canary + "-2"}, http.StatusOK, &anew)
	if (made != view{"forge", "forge", 1}) || (anew != view{"forge", "forge", 2}) {
		t.Errorf("%+v, %+v", made, anew)
	}
	call(w.admin, "POST", "/secrets", map[string]string{"name": "forge", "value": "x"}, http.StatusConflict, nil)
	call(w.admin, "POST", "/secrets/none", map[string]string{"value": "x"}, http.StatusNotFound, nil)
	call(w.admin, "POST", "/secrets", map[string]string{"name": "No Name", "value": "x"}, http.StatusBadRequest, nil)
	call(w.admin, "POST", "/secrets", map[string]any{"name": "a", "value": "x", "metadata": map[string]string{"a": "b"}}, http.StatusBadRequest, nil)
	var list []view
	call(w.admin, "GET", "/secrets?limit=1", nil, http.StatusOK, &list)
	if len(list) != 1 || list[0] != anew {
		t.Errorf("%+v", list)
	}
	foreign, _ := w.key(t, "other")
	call(foreign, "GET", "/secrets", nil, http.StatusOK, &list)
	if len(list) != 0 {
		t.Errorf("another tenant sees %+v", list)
	}
	for _, method := range []string{"GET", "DELETE"} {
		call(foreign, method, "/secrets/forge", nil, http.StatusNotFound, nil)
	}
	grants := func() (got []string) {
		t.Helper()
		var s api.Secret
		w.call(t, w.admin, "GET", "/v1/secrets/forge", nil, http.StatusOK, &s)
		for _, g := range s.Grants {
			if len(g.Sandboxes) == 0 {
				t.Errorf("a grant for all: %+v", g)
			}
			got = append(got, strings.Join([]string{g.Host, g.As, g.Key, fmt.Sprint(len(g.Sandboxes))}, " "))
		}
		return got
	}
	want := func(when string, all ...string) {
		t.Helper()
		if d := cmp.Diff(all, grants()); d != "" {
			t.Errorf("%s: %s", when, d)
		}
	}
	want("a secret that no rule names")
	rules := func(host, header, value string) map[string]any {
		return map[string]any{"rules": map[string]any{host: []any{map[string]any{"transform": map[string]any{"headers": map[string]string{header: value}}}}}}
	}
	const fill = "${e2b.secrets.forge}"
	create := func(key string, network map[string]any, status int) (id string) {
		t.Helper()
		var s struct{ SandboxID string }
		call(key, "POST", "/v2/sandboxes", map[string]any{"templateID": "base", "network": network}, status, &s)
		return s.SandboxID
	}
	create(foreign, rules("api.example", "Authorization", "Bearer "+fill), http.StatusBadRequest) // it has no such secret
	one := create(w.admin, rules("api.example", "Authorization", "Bearer "+fill), http.StatusCreated)
	two := create(w.admin, rules("api.example", "Authorization", "Bearer "+fill), http.StatusCreated)
	want("two sandboxes", "api.example bearer  2")
	call(w.admin, "PUT", "/sandboxes/"+two+"/network", rules("*.Other.example", "X-Key", fill), http.StatusNoContent, nil)
	want("another rule", "api.example bearer  1", "*.other.example header X-Key 1")
	var info struct {
		Network struct{ Rules map[string]any }
	}
	call(w.admin, "GET", "/sandboxes/"+two, nil, http.StatusOK, &info)
	if _, ok := info.Network.Rules["*.Other.example"]; !ok {
		t.Errorf("the sandbox is said to have %+v", info.Network.Rules)
	}
	call(w.admin, "DELETE", "/sandboxes/"+one, nil, http.StatusNoContent, nil)
	want("one is killed", "*.other.example header X-Key 1")
	must(t, w.manager.Destroy(t.Context(), "default", sandbox.ID("sbx_"+two)))
	must(t, w.server.Sweep(t.Context()))
	want("the other ended otherwise")
	call(w.admin, "DELETE", "/secrets/forge", nil, http.StatusNoContent, nil)
	call(w.admin, "GET", "/secrets/forge", nil, http.StatusNotFound, nil)
	if strings.Contains(said.String(), canary) || strings.Contains(w.log.String(), canary) {
		t.Error("a value came back, or is in the log")
	}
}

// Calls of the services with bad arguments are told so, by the codes that clients know.
func TestBridge_badCalls(t *testing.T) {
	b := newBridge(t)
	p, f := b.clients()
	ctx := t.Context()
	for name, x := range map[string]struct {
		err  func() error
		code connect.Code
	}{
		"no program": {func() error {
			_, _, err := ran(t, p, &protocol.StartRequest{Process: &protocol.ProcessConfig{Cmd: "/no/such"}})
			return err
		}, connect.CodeInvalidArgument},
		"no command": {func() error { _, _, err := ran(t, p, &protocol.StartRequest{}); return err }, connect.CodeInvalidArgument},
		"no directory": {func() error {
			r, at := shell("true"), "/nowhere"
			r.Process.Cwd = &at
			_, _, err := ran(t, p, r)
			return err
		}, connect.CodeInvalidArgument},
		"a long tag": {func() error {
			r, tag := shell("true"), strings.Repeat("x", 999)
			r.Tag = &tag
			_, _, err := ran(t, p, r)
			return err
		}, connect.CodeInvalidArgument},
		"a terminal of no size": {func() error {
			r := shell("true")
			r.Pty = &protocol.PTY{Size: &protocol.PTY_Size{}}
			_, _, err := ran(t, p, r)
			return err
		}, connect.CodeInvalidArgument},
		"a terminal too wide": {func() error {
			r := shell("true")
			r.Pty = &protocol.PTY{Size: &protocol.PTY_Size{Cols: 65535, Rows: 1}}
			_, _, err := ran(t, p, r)
			return err
		}, connect.CodeInvalidArgument},
		"no such process": {func() error {
			_, err := p.SendSignal(ctx, connect.NewRequest(&protocol.SendSignalRequest{Process: &protocol.ProcessSelector{Selector: &protocol.ProcessSelector_Pid{Pid: 999999}}, Signal: protocol.Signal_SIGNAL_SIGTERM}))
			return err
		}, connect.CodeNotFound},
		"no selector": {func() error {
			_, err := p.CloseStdin(ctx, connect.NewRequest(&protocol.CloseStdinRequest{}))
			return err
		}, connect.CodeNotFound},
		"another signal": {func() error {
			_, err := p.SendSignal(ctx, connect.NewRequest(&protocol.SendSignalRequest{Signal: 1}))
			return err
		}, connect.CodeInvalidArgument},
		"a watch of nothing": {func() error {
			_, err := f.CreateWatcher(ctx, connect.NewRequest(&protocol.CreateWatcherRequest{Path: "nope"}))
			return err
		}, connect.CodeNotFound},
		"no such watcher": {func() error {
			_, err := f.GetWatcherEvents(ctx, connect.NewRequest(&protocol.GetWatcherEventsRequest{WatcherId: "x"}))
			return err
		}, connect.CodeNotFound},
		"another's home": {func() error {
			_, err := f.Stat(ctx, connect.NewRequest(&protocol.StatRequest{Path: "~root/x"}))
			return err
		}, connect.CodeInvalidArgument},
		"a NUL": {func() error {
			_, err := f.Stat(ctx, connect.NewRequest(&protocol.StatRequest{Path: "a\x00b"}))
			return err
		}, connect.CodeInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			if err := x.err(); connect.CodeOf(err) != x.code {
				t.Errorf("%v, want %v", err, x.code)
			}
		})
	}
}

// A directory that goes while it is watched ends the watch, or says that it went.
func TestBridge_watchOfWhatGoes(t *testing.T) {
	b := newBridge(t)
	_, f := b.clients()
	_, err := f.MakeDir(t.Context(), connect.NewRequest(&protocol.MakeDirRequest{Path: "going"}))
	must(t, err)
	made, err := f.CreateWatcher(t.Context(), connect.NewRequest(&protocol.CreateWatcherRequest{Path: "going"}))
	must(t, err)
	_, err = f.Remove(t.Context(), connect.NewRequest(&protocol.RemoveRequest{Path: "going"}))
	must(t, err)
	patience.Until(t, 10*time.Second, "the client is told", func() bool {
		res, err := f.GetWatcherEvents(t.Context(), connect.NewRequest(&protocol.GetWatcherEventsRequest{WatcherId: made.Msg.GetWatcherId()}))
		return err != nil || len(res.Msg.GetEvents()) > 0
	})
	_, err = f.RemoveWatcher(t.Context(), connect.NewRequest(&protocol.RemoveWatcherRequest{WatcherId: made.Msg.GetWatcherId()}))
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
}

// A request for another port is carried to the sandbox, without what lets its sender in.
func TestBridge_ports(t *testing.T) {
	b := newBridge(t)
	seen := make(chan http.Header, 1)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		w.Header().Set("Set-Cookie", "__Host-sid=stolen; Secure; Path=/")
		w.Header().Set("Clear-Site-Data", `"*"`)
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "hello from "+r.Method+" "+r.URL.Path)
	}))
	t.Cleanup(app.Close)
	port := app.Listener.Addr().(*net.TCPAddr).Port // with the process provider this host is the sandbox
	a := b.envd(http.MethodPost, "/sandboxes/x?q=1", io.Reader(strings.NewReader("body")), "E2b-Sandbox-Port", fmt.Sprint(port), "X-Own", "1", "X-Api-Key", b.admin)
	if a.status != http.StatusOK || string(a.body) != "hello from POST /sandboxes/x" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a.header.Get("Set-Cookie")+a.header.Get("Clear-Site-Data") != "" || !strings.HasPrefix(a.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("a program of the sandbox speaks for our origin: %v", a.header)
	}
	h := <-seen
	for name, values := range h {
		if v := strings.Join(values, ""); strings.Contains(v, b.token) || strings.Contains(v, b.admin) {
			t.Errorf("%s told the sandbox %q", name, v)
		}
	}
	if h.Get("X-Own") != "1" {
		t.Errorf("the client's own headers are lost: %v", h)
	}
	a = b.envd(http.MethodGet, "/", nil, "E2b-Sandbox-Port", "1")
	a.refused(t, http.StatusBadGateway, "port is not open")

	// Some clients ask with the token that is for ports alone.
	var made struct{ TrafficAccessToken string }
	b.call(t, b.admin, http.MethodPost, "/e2b/v2/sandboxes/"+b.id+"/connect", struct{}{}, http.StatusOK, &made)
	traffic := func(port, token string) answer {
		return b.envd(http.MethodGet, "/files?path=x", nil, "E2b-Sandbox-Port", port, "X-Access-Token", "", "E2b-Traffic-Access-Token", token)
	}
	must(t, traffic(fmt.Sprint(port), made.TrafficAccessToken).err(http.StatusOK))
	if v := strings.Join((<-seen)["E2b-Traffic-Access-Token"], ""); v != "" {
		t.Errorf("the sandbox was told %q", v)
	}
	traffic(fmt.Sprint(port), "").refused(t, http.StatusUnauthorized, "access token")
	traffic(fmt.Sprint(port), b.token).refused(t, http.StatusUnauthorized, "access token")
	traffic("49983", made.TrafficAccessToken).refused(t, http.StatusUnauthorized, "")
}

// What changes something is told to the audit log, and what only looks is not.
func TestBridge_audit(t *testing.T) {
	w := newAuditWorld(t)
	b := &bridge{world: w, t: t}
	b.id, b.token = b.connect(w.admin, w.sandbox())
	p, f := b.clients()
	_, _, err := ran(t, p, shell("true"))
	must(t, err)
	_, err = p.List(t.Context(), connect.NewRequest(&protocol.ListRequest{}))
	must(t, err)
	_, err = f.MakeDir(t.Context(), connect.NewRequest(&protocol.MakeDirRequest{Path: "d"}))
	must(t, err)
	_, err = f.Stat(t.Context(), connect.NewRequest(&protocol.StatRequest{Path: "d"}))
	must(t, err)
	must(t, b.write("f", "x").err(http.StatusOK))
	must(t, b.envd(http.MethodGet, "/files?path=f", nil).err(http.StatusOK))
	b.envd(http.MethodGet, "/files?path=f", nil, "X-Access-Token", "x").refused(t, http.StatusUnauthorized, "")
	var got []string
	for _, r := range w.audit(t, "") {
		if r.What == "api.create-key" {
			continue
		}
		got = append(got, strings.Join([]string{r.What, r.Result, r.Detail["asked"]}, " "))
		if strings.Contains(fmt.Sprint(r), b.token) {
			t.Errorf("%+v tells the token", r)
		}
	}
	want := []string{
		"api.refused 401 ", `api.envd-write-file 200 write "f"`, `api.envd-filesystem 200 mkdir "d"`,
		"api.envd-process 200 exec /bin/sh -c true", "api.resume-sandbox 200 ", "api.create-sandbox 201 ",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A client that was given a domain in place of addresses calls the bridge by names.
func TestBridge_names(t *testing.T) {
	b := newBridge(t, browse(t, nil))
	api, envd := "api.preview.localhost:7733", "49983-"+b.id+".preview.localhost"
	ask := func(host, method, path string, header ...string) answer {
		return b.send(t, "", method, path, nil, append([]string{"Host", host}, header...)...)
	}
	withKey := []string{"X-API-Key", b.admin}
	if a := ask(api, "GET", "/sandboxes/"+b.id, withKey...); a.status != 200 || !strings.Contains(string(a.body), b.id) {
		t.Errorf("by name: %d %s", a.status, a.body)
	}
	ask(api, "GET", "/sandboxes/"+b.id).refused(t, 401, "key")
	ask(api, "DELETE", "/templates/a%2Fb", withKey...).refused(t, 403, "a/b")
	if a := ask(envd, "GET", "/health"); a.status != 204 {
		t.Errorf("a sandbox by name: %d %s", a.status, a.body)
	}
	withToken := []string{"X-Access-Token", b.token}
	if a := ask(envd, "POST", "/files?path=named.txt", append(withToken, "Content-Type", "application/octet-stream")...); a.status != 200 {
		t.Errorf("a file by name: %d %s", a.status, a.body)
	}
	if a := ask(envd, "GET", "/files?path=named.txt", withToken...); a.status != 200 {
		t.Errorf("the file again: %d %s", a.status, a.body)
	}
	var second struct{ SandboxID string }
	b.call(t, b.admin, http.MethodPost, "/e2b/v2/sandboxes", map[string]any{"templateID": "base"}, 201, &second)
	other := second.SandboxID
	aimed := []string{"E2b-Sandbox-Id", b.id, "E2b-Sandbox-Port", "49983"}
	// A name is not for headers to change: neither the API's nor another sandbox's.
	if a := ask("49983-"+other+".preview.localhost", "GET", "/files?path=named.txt", append(aimed, withToken...)...); a.status != 401 {
		t.Errorf("another sandbox by its name, aimed by headers: %d %s", a.status, a.body)
	}
	ask(api, "GET", "/health", aimed...).refused(t, 404, "/health")
	for host, want := range map[string]int{
		"49983-aaaaaaaaaaaaaaaaaaaa.preview.localhost": 502, // no such sandbox
		"49983-.preview.localhost":                     404,
		"8080-" + b.id + ".preview.localhost":          401, // a preview, which asks for a login
		"apx.preview.localhost":                        404,
		"api.preview.localhost.":                       421,
		"api.preview.localhost.example":                421,
	} {
		if a := ask(host, "GET", "/health", withToken...); a.status != want {
			t.Errorf("%s: %d %s", host, a.status, a.body)
		}
	}
}
