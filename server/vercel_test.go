package server_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server"
)

// vercelWorld is a server that clients of Vercel Sandbox can use, and a sandbox there.
type vercelWorld struct {
	*world
	t  *testing.T
	id string
}

func newVercel(t *testing.T, change ...func(*server.Config)) *vercelWorld {
	t.Helper()
	v := &vercelWorld{world: newWorld(t, change...), t: t}
	v.id = v.sandbox()
	return v
}

// vercel makes a request of the surface.
func (v *vercelWorld) vercel(method, path string, body any, header ...string) answer {
	v.t.Helper()
	return v.send(v.t, v.admin, method, "/vercel"+path, body, header...)
}

// of makes a request of the session.
func (v *vercelWorld) of(method, path string, body any, header ...string) answer {
	v.t.Helper()
	return v.vercel(method, "/v2/sandboxes/sessions/"+v.id+path, body, header...)
}

// declined checks the shape of a refusal.
func (a answer) declined(t *testing.T, status int, code, says string) {
	t.Helper()
	var r struct {
		Error struct{ Code, Message string }
	}
	if a.status != status || json.Unmarshal(a.body, &r) != nil || code != "" && r.Error.Code != code || r.Error.Message == "" || !strings.Contains(r.Error.Message, says) {
		t.Errorf("status %d (want %d, %s with %q): %s", a.status, status, code, says, a.body)
	}
}

// vercelCommand is a command in answers.
type vercelCommand struct {
	ID       string
	ExitCode *int
}

// vercelLine is a line of a stream.
type vercelLine struct {
	Command *vercelCommand
	Stream  string
	Data    any
}

func vercelLines(t *testing.T, a answer) (all []vercelLine) {
	t.Helper()
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	for line := range bytes.Lines(a.body) {
		var l vercelLine
		must(t, json.Unmarshal(line, &l))
		all = append(all, l)
	}
	return all
}

type vercelRun struct {
	Command string            `json:"command"`
	Args    []string          `json:"args,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Sudo    bool              `json:"sudo,omitempty"`
	Wait    bool              `json:"wait,omitempty"`
	Logs    bool              `json:"logs,omitempty"`
	Timeout int64             `json:"timeout,omitempty"`
}

func vercelShell(line string) vercelRun {
	return vercelRun{Command: "/bin/sh", Args: []string{"-c", line}, Wait: true, Logs: true}
}

// A command that is waited for is a line that names it, its output, and a line with its
// end; one that is not is found by its id, with its output from the start.
func TestVercel_commands(t *testing.T) {
	v := newVercel(t)
	got := vercelLines(t, v.of(http.MethodPost, "/cmd", vercelShell("echo out; sleep 0.2; echo err >&2; exit 3")))
	if len(got) != 4 || got[0].Command == nil || got[0].Command.ExitCode != nil || got[3].Command == nil || *got[3].Command.ExitCode != 3 || got[0].Command.ID != got[3].Command.ID {
		t.Fatalf("%+v", got)
	}
	if d := cmp.Diff([]vercelLine{{Stream: "stdout", Data: "out\n"}, {Stream: "stderr", Data: "err\n"}}, got[1:3]); d != "" {
		t.Error(d)
	}
	var made, now struct{ Command vercelCommand }
	run := vercelShell("echo begun; while [ ! -e go ]; do sleep 0.05; done; echo more; kill -9 $$")
	run.Wait, run.Logs = false, false
	must(t, json.Unmarshal(v.of(http.MethodPost, "/cmd", run).body, &made))
	at := "/cmd/" + made.Command.ID
	must(t, json.Unmarshal(v.of(http.MethodGet, at, nil).body, &now))
	if now.Command.ExitCode != nil || now.Command.ID != made.Command.ID {
		t.Errorf("%+v", now)
	}
	ended := make(chan answer, 1)
	go func() { ended <- v.of(http.MethodGet, at+"?wait=true", nil) }()
	vercelLines(t, v.of(http.MethodPost, "/cmd", vercelShell("touch go")))
	must(t, json.Unmarshal((<-ended).body, &now))
	if now.Command.ExitCode == nil || *now.Command.ExitCode != 137 {
		t.Errorf("%+v", now)
	}
	for range 2 { // as often as it is asked for
		got = vercelLines(t, v.of(http.MethodGet, at+"/logs", nil))
		text := ""
		for _, l := range got {
			text += fmt.Sprint(l.Data)
		}
		if text != "begun\nmore\n" {
			t.Errorf("%+v", got)
		}
	}
}

// A stream is told when its sandbox is stopped; what is asked for then has the status by
// which the SDK starts it again.
func TestVercel_stopped(t *testing.T) {
	v := newVercel(t)
	var made struct {
		Session struct{ ID, Status string }
	}
	must(t, json.Unmarshal(v.vercel(http.MethodPost, "/v3/sandboxes", `{"name":"its own"}`).body, &made))
	v.id = made.Session.ID
	streamed := make(chan answer, 1)
	go func() { streamed <- v.of(http.MethodPost, "/cmd", vercelShell("echo begun; sleep 600")) }()
	patience.Until(t, 20*time.Second, "the command runs", func() bool {
		var page api.ProcessPage
		v.call(t, v.admin, http.MethodGet, "/v1/sandboxes/"+v.id+"/processes", nil, http.StatusOK, &page)
		return len(page.Items) > 0 && page.Items[0].Stdout.Size > 0
	})
	must(t, v.of(http.MethodPost, "/stop", nil).err(http.StatusOK))
	got := vercelLines(t, <-streamed)
	if last := got[len(got)-1]; last.Stream != "error" && (last.Command == nil || last.Command.ExitCode == nil) {
		t.Errorf("the stream of a stopped sandbox ends with %+v", last)
	}
	for _, call := range []string{
		"POST /cmd", "GET /cmd/x", "GET /cmd/x/logs", "POST /cmd/x/kill", "POST /snapshot", "POST /fs/mkdir", "POST /fs/read", "POST /extend-timeout",
		"POST /network-policy",
	} {
		method, path, _ := strings.Cut(call, " ")
		body := map[string]string{"/cmd": `{"command":"true"}`, "/extend-timeout": `{"duration":60000}`, "/network-policy": `{"mode":"deny-all"}`}[path]
		v.of(method, path, body).declined(t, http.StatusGone, "sandbox_stopped", "is stopped")
	}
	v.upload(nil).declined(t, http.StatusGone, "sandbox_stopped", "is stopped")
	var again struct {
		Resumed bool
		Session struct{ ID, Status string }
	}
	for _, resumed := range []bool{true, false} {
		must(t, json.Unmarshal(v.vercel(http.MethodGet, "/v2/sandboxes/its%20own?resume=true", nil).body, &again))
		if again.Resumed != resumed || again.Session.Status != "running" || again.Session.ID != v.id {
			t.Errorf("%+v", again)
		}
	}
	vercelLines(t, v.of(http.MethodPost, "/cmd", vercelShell("true")))
}

// tarball packs headers; files have their name as content.
func tarball(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			h.Size = int64(len(h.Name))
		}
		must(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			_, err := io.CopyN(w, io.MultiReader(strings.NewReader(h.Name), zeros{}), h.Size)
			must(t, err)
		}
	}
	must(t, w.Close())
	must(t, z.Close())
	return &b
}

func zippedText(t *testing.T, text string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, text)
	must(t, err)
	must(t, z.Close())
	return &b
}

func (v *vercelWorld) upload(body io.Reader, header ...string) answer {
	v.t.Helper()
	if body == nil {
		body = tarball(v.t)
	}
	return v.of(http.MethodPost, "/fs/write", body, append([]string{"Content-Type", "application/gzip", "X-Cwd", "/"}, header...)...)
}

func (v *vercelWorld) read(path string) answer {
	v.t.Helper()
	return v.of(http.MethodPost, "/fs/read", map[string]string{"path": path})
}

// What is wrong with an upload is said, and what is refused is not written.
func TestVercel_uploads(t *testing.T) {
	v := newVercel(t, func(c *server.Config) { c.Limits.UploadBytesMax = 1 << 20 })
	file := func(name string, size int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}
	}
	const dir = "vercel/sandbox/"
	must(t, v.upload(tarball(t, file(dir+"a", 0), file(dir+"d/e/b", 0))).err(http.StatusOK))
	if a := v.read("/vercel/sandbox/d/e/b"); a.status != http.StatusOK || string(a.body) != dir+"d/e/b" || a.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	must(t, v.upload(tarball(t, file("c", 0)), "X-Cwd", "/vercel/sandbox/d").err(http.StatusOK))
	if a := v.read("d/c"); string(a.body) != "c" {
		t.Errorf("%d %s", a.status, a.body)
	}
	v.upload(strings.NewReader("x")).declined(t, http.StatusBadRequest, "bad_request", "")
	v.upload(tarball(t), "Content-Type", "application/x-tar").declined(t, http.StatusBadRequest, "bad_request", "application/gzip")
	v.upload(zippedText(t, strings.Repeat("x", 1024))).declined(t, http.StatusBadRequest, "bad_request", "no whole tar")
	v.upload(tarball(t, file(dir+"bomb", 64<<20))).declined(t, http.StatusRequestEntityTooLarge, "payload_too_large", "larger than")
	v.upload(bytes.NewReader(make([]byte, 2<<20))).declined(t, http.StatusRequestEntityTooLarge, "payload_too_large", "larger than")
	for says, h := range map[string]tar.Header{
		"has .. in it":     file("a/../../bad", 0),
		"not a name":       file("/workspace/bad", 0),
		"links and devic":  {Typeflag: tar.TypeSymlink, Name: dir + "bad", Linkname: "/etc"},
		"neither a file n": {Typeflag: tar.TypeChar, Name: dir + "bad"},
	} {
		v.upload(tarball(t, h)).declined(t, http.StatusBadRequest, "bad_request", says)
	}
	for _, name := range []string{"bomb", "bad", "/bad"} {
		v.read(name).declined(t, http.StatusNotFound, "not_found", "")
	}
	v.read("d").declined(t, http.StatusBadRequest, "bad_request", "directory")
	v.read("").declined(t, http.StatusBadRequest, "bad_request", "path is missing")
	v.read("a\x00b").declined(t, http.StatusBadRequest, "bad_request", "")
}

// Each route asks for a key, and for one that may do it; another tenant's key finds nothing.
func TestVercel_whoMayDoWhat(t *testing.T) {
	v := newVercel(t, func(c *server.Config) { c.Limits.WrongKeysMax = 1000 })
	read, _ := v.key(t, "default", "read")
	watch, _ := v.key(t, "default", "runs:read")
	foreign, _ := v.key(t, "other")
	const none = "sbx_aaaaaaaaaaaaaaaaaaaa" // is not there: nothing is destroyed by trying
	const one, session = "/v2/sandboxes/{}", "/v2/sandboxes/sessions/{}"
	reading := []string{
		"GET /v2/sandboxes", "GET " + one, "GET " + session, "GET " + session + "/cmd/x", "GET " + session + "/cmd/x?wait=true", "GET " + session + "/cmd/x/logs",
		"POST " + session + "/fs/read", "GET /v2/sandboxes/snapshots", "GET /v2/sandboxes/snapshots/snp_aaaaaaaaaaaaaaaaaaaa", "GET /v2/sandboxes/sessions?name={}",
		"GET /v2/sandboxes/snapshots/tree", "GET /v2/sandboxes/drives",
	}
	writing := []string{
		"POST /v2/sandboxes", "POST /v3/sandboxes", "GET " + one + "?resume=true", "PATCH " + one, "DELETE " + one, "POST " + one + "/fork",
		"POST " + session + "/stop", "POST " + session + "/extend-timeout", "POST " + session + "/network-policy", "POST " + session + "/snapshot", "POST " + session + "/interactive",
		"POST " + session + "/cmd", "POST " + session + "/cmd/x/kill", "POST " + session + "/fs/mkdir", "POST " + session + "/fs/write",
		"DELETE /v2/sandboxes/snapshots/snp_aaaaaaaaaaaaaaaaaaaa",
	}
	for _, name := range slices.Concat(reading, writing) {
		t.Run(name, func(t *testing.T) {
			method, path, _ := strings.Cut(name, " ")
			to := func(secret, id string, body any) answer {
				return v.send(t, secret, method, "/vercel"+strings.ReplaceAll(path, "{}", id), body)
			}
			for secret, status := range map[string]int{"": http.StatusUnauthorized, "e2b_" + strings.Repeat("0", 40): http.StatusUnauthorized, watch: http.StatusForbidden} {
				to(secret, none, nil).declined(t, status, "", "")
			}
			if a := to(read, none, nil); (a.status == http.StatusForbidden) != slices.Contains(writing, name) || a.status == http.StatusUnauthorized {
				t.Errorf("a key that may read gets %d: %s", a.status, a.body)
			}
			bad := `{"command":""}` // asks for nothing that is done
			if a := to(v.admin, none, bad); a.status == http.StatusForbidden || a.status == http.StatusUnauthorized || a.status >= 500 {
				t.Errorf("an admin gets %d: %s", a.status, a.body)
			}
			if strings.Contains(path, "{}") {
				bodies := map[string]string{"/cmd": `{"command":"true"}`, "/extend-timeout": `{"duration":60000}`, "/network-policy": `{"mode":"deny-all"}`, "/fs/mkdir": `{"path":"x"}`, "/fs/read": `{"path":"x"}`}
				body := any(bodies[strings.TrimPrefix(path, session)])
				header := []string(nil)
				if strings.HasSuffix(path, "/fs/write") {
					body, header = tarball(t), []string{"Content-Type", "application/gzip"}
				}
				a := v.send(t, foreign, method, "/vercel"+strings.ReplaceAll(path, "{}", v.id), body, header...)
				if !strings.HasSuffix(path, "/interactive") {
					a.declined(t, http.StatusNotFound, "not_found", "")
				}
			}
		})
	}
	if info, err := v.manager.Get(t.Context(), "default", sandbox.ID(v.id)); err != nil || info.State != sandbox.Running {
		t.Errorf("%+v, %v", info, err)
	}
}

// Options that are not known or not supported are refused, not ignored.
func TestVercel_badCalls(t *testing.T) {
	v := newVercel(t)
	for body, says := range map[string]string{
		`{"runtime":"node22"}`:                                  "no template of that name",
		`{"image":"node22"}`:                                    "no template of that name",
		`{"image":"vercel/sandbox/universal:latest"}`:           "of another registry",
		`{"runtime":"node22","image":"a"}`:                      "exclude each other",
		`{"timeout":0}`:                                         "timeout: 0 ms",
		`{"timeout":-1}`:                                        "timeout: -1 ms",
		`{"timeout":99999999999999}`:                            "timeout: 99999999999999",
		`{"timeout":"x"}`:                                       "wrong kind",
		`{"ports":[0]}`:                                         "0 is no port",
		`{"ports":[80,80]}`:                                     "80 is no port",
		`{"ports":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`:    "at most 15",
		`{"ports":[3000]}`:                                      "shows no ports", // this server
		`{"resources":{"vcpus":0}}`:                             "no machine",
		`{"resources":{"vcpus":999}}`:                           "cpus",
		`{"resources":{"gpus":1}}`:                              "not known here",
		`{"networkPolicy":{"mode":"some"}}`:                     "no mode",
		`{"networkPolicy":{"subnets":{"deny":["10.0.0.0/8"]}}}`: "subnets as",
		`{"networkPolicy":{"allow":{"a.example":[{"forwardURL":"https://b.example"}]}}}`: "a rule for requests",
		`{"networkPolicy":{"allow":["169.254.169.254"]}}`:                                "always refused",
		`{"networkId":"x"}`:                                   "networkId is not supported",
		`{"region":"iad1"}`:                                   "region is not supported",
		`{"failoverRegions":["iad1"]}`:                        "failoverRegions is not supported",
		`{"mounts":{"/d":{"drive":"a"}}}`:                     "mounts is not supported",
		`{"snapshotExpiration":1}`:                            "snapshotExpiration",
		`{"keepLastSnapshots":{"count":1}}`:                   "keepLastSnapshots is not supported",
		`{"tags":{"vercel.ports":"1"}}`:                       "kept for what is no tag",
		`{"name":"snapshots"}`:                                "cannot be called",
		`{"name":"sbx_x"}`:                                    "cannot be told from an id",
		`{"env":{"":"x"}}`:                                    "env",
		`{"source":{"type":"git","url":"https://a.example"}}`: "not supported",
		`{"source":{"type":"snapshot","snapshotId":"x"}}`:     "not a snapshot id",
		`{"source":{"type":"snapshot","snapshotId":"snp_aaaaaaaaaaaaaaaaaaaa"},"networkPolicy":{"mode":"deny-all"}}`: "the network that was there",
		`{"source":{"type":"snapshot","snapshotId":"snp_aaaaaaaaaaaaaaaaaaaa"},"runtime":"a"}`:                       "the runtime",
		`{"__interactive":true}`: "not known here",
		`{} {}`:                  "behind the JSON",
		`[`:                      "no JSON object",
		`{"name":"` + strings.Repeat("x", 2<<20) + `"}`: "larger than",
	} {
		t.Run(says, func(t *testing.T) {
			a := v.vercel(http.MethodPost, "/v3/sandboxes", body)
			if a.status < 400 || a.status >= 500 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			a.declined(t, a.status, "", says)
		})
	}
	const session = "/v2/sandboxes/sessions/"
	for _, x := range []struct{ method, path, body, says string }{
		{"GET", "/v2/sandboxes?sortBy=color", "", "sortBy is"},
		{"GET", "/v2/sandboxes?sortOrder=up", "", "sortOrder is"},
		{"GET", "/v2/sandboxes?limit=0", "", "limit is"},
		{"GET", "/v2/sandboxes?cursor=x", "", "cursor"},
		{"GET", "/v2/sandboxes?tags=a", "", "is no tag"},
		{"GET", "/v2/sandboxes?color=red", "", "not known here"},
		{"GET", "/v2/sandboxes/" + v.id[:10], "", "no sandbox"},
		{"GET", "/v2/sandboxes/..%2Fkeys", "", "no sandbox"},
		{"PATCH", "/v2/sandboxes/" + v.id, `{"persistent":false}`, "not supported"},
		{"PATCH", "/v2/sandboxes/" + v.id, `{"currentSnapshotId":"x"}`, "not supported"},
		{"POST", "/v2/sandboxes/" + v.id + "/fork", `{"image":"x"}`, "not supported"},
		{"POST", session + v.id + "/cmd", `{}`, "command is missing"},
		{"POST", session + v.id + "/cmd", `{"command":"true","timeout":-1}`, "timeout"},
		{"POST", session + v.id + "/cmd", `{"command":"true","logs":true}`, "logs are of"},
		{"POST", session + v.id + "/cmd", `{"command":"/no/such"}`, ""},
		{"POST", session + v.id + "/cmd", `{"command":"/no/such","wait":true}`, ""},
		{"POST", session + v.id + "/cmd", `{"command":"a\u0000b"}`, "NUL"},
		{"POST", session + v.id + "/cmd/nope/kill", `{"signal":9}`, ""},
		{"GET", session + v.id + "/cmd/nope?wait=true", "", ""},
		{"GET", session + v.id + "/cmd/nope/logs", "", ""},
		{"POST", session + v.id + "/extend-timeout", `{"duration":0}`, "duration: 0 ms"},
		{"POST", session + v.id + "/snapshot", `{"expiration":5}`, "not supported"},
		{"POST", session + v.id + "/interactive", `{}`, "not supported"},
		{"POST", "/v2/sandboxes/drives/data", `{}`, "not supported"},
		{"GET", "/v2/sandboxes/snapshots/snap_x", "", "not a snapshot id"},
		{"GET", "/v9/sandboxes", "", "there is no"},
	} {
		t.Run(x.method+" "+x.path+" "+x.body, func(t *testing.T) {
			a := v.vercel(x.method, x.path, x.body)
			if a.status < 400 || a.status >= 500 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			a.declined(t, a.status, "", x.says)
		})
	}
	if !strings.Contains(v.log.String(), "asked for what is not here") {
		t.Error("what is not here is not logged")
	}
}

// What a client changes is a step by its key: a command's and an upload's alike.
func TestVercel_steps(t *testing.T) {
	v := newVercel(t, withHistory(t, true))
	must(t, v.upload(tarball(t, tar.Header{Typeflag: tar.TypeReg, Name: "vercel/sandbox/a", Mode: 0o644})).err(http.StatusOK))
	vercelLines(t, v.of(http.MethodPost, "/cmd", vercelShell("echo x >b")))
	must(t, v.of(http.MethodPost, "/fs/mkdir", `{"path":"c"}`).err(http.StatusOK))
	got := strings.Join(v.labels(t, v.id), "\n")
	for _, want := range []string{`write files, first "a"`, "exec /bin/sh -c echo x >b", `mkdir "c"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no revision is of %q:\n%s", want, got)
		}
	}
}

// What changes something is told to the audit log, and what only looks is not.
func TestVercel_audit(t *testing.T) {
	w := newAuditWorld(t)
	v := &vercelWorld{world: w, t: t, id: w.sandbox()}
	vercelLines(t, v.of(http.MethodPost, "/cmd", vercelRun{Command: "true", Wait: true, Logs: true}))
	must(t, v.of(http.MethodGet, "", nil).err(http.StatusOK))
	must(t, v.of(http.MethodPost, "/fs/mkdir", `{"path":"d"}`).err(http.StatusOK))
	v.send(t, "x", http.MethodGet, "/vercel/v2/sandboxes", nil).declined(t, http.StatusUnauthorized, "unauthorized", "")
	var got []string
	for _, r := range w.audit(t, "") {
		got = append(got, strings.Join([]string{r.What, r.Result, r.Detail["asked"]}, " "))
	}
	want := []string{"api.refused 401 ", `api.make-directory 200 mkdir "d"`, "api.run-command 200 exec true"}
	if d := cmp.Diff(want, got[:min(len(got), len(want))]); d != "" {
		t.Error(d)
	}
}
