package ui

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/thread"
)

// Of a range for documentation: a public address at which nothing is.
const publicIP = "203.0.113.7"

const metadataIP = "169.254.169.254"

// fetches is a command that is refused twice, and tries one of both again when it is told to.
const fetches = "get() { curl -sS -m 3 http://$1; }; get " + publicIP + "/a; get " + metadataIP + "/latest/; until [ -e go ]; do sleep 0.05; done; get " + publicIP + "/a; true"

type refused struct {
	MS    int64  `json:"ms"`
	Text  string `json:"text"`
	Allow int    `json:"allow"` // buttons
}

type allowed struct {
	Shown  string            `json:"shown"`
	Offers int               `json:"offers"`
	First  bool              `json:"first"` // the narrowest is chosen
	URL    string            `json:"url"`
	Body   api.NetworkPolicy `json:"body"`
}

// Scenarios 15 and 16: what machines are refused is seen and can be allowed, by exactly the
// rule that was shown and for that machine alone; and a secret's value is in the request that
// sets it, and nowhere else.
//
// There is no public network here: that a request which is allowed gets an answer, and that a
// secret is sent to its host alone, is tested in test/e2e.
func TestNetwork(t *testing.T) {
	w := newWorld(t, setup{scripts: map[string]string{
		"env": "replies:\n  - calls: [{name: execute, args: {command: 'env; echo token is $FORGE_TOKEN'}}]\nelse: {text: done}\n",
	}})
	t.Run("Egress", func(t *testing.T) { egress(t, w.with(t)) })
	t.Run("Secret", func(t *testing.T) { secret(t, w.with(t)) })
}

// ask sends a request from a machine. What becomes of it the log of decisions says.
func (w *world) ask(id, url string) {
	w.t.Helper()
	_, err := w.c.Sandbox(id).RunCommand(w.ctx(), api.RunCommand{Command: "curl -sS -m 3 " + url})
	w.ok(err)
}

func (w *world) create(name string) api.Sandbox {
	w.t.Helper()
	sb, err := w.c.CreateSandbox(w.ctx(), api.CreateSandbox{Name: name, Network: "none", Egress: &api.NetworkPolicy{}})
	w.ok(err)
	return sb
}

type refusal struct {
	At    int64  `json:"at"` // when its row was there, ms
	Text  string `json:"text"`
	Allow int    `json:"allow"` // buttons
}

// What a run's machine may not send is in the run's log and in its row, and the row's rule
// lets the next try pass, of this run and of no other.
func TestNetwork_timeline(t *testing.T) {
	w := newWorld(t, setup{scripts: map[string]string{
		"fetch": fmt.Sprintf("replies:\n  - calls: [{name: execute, args: {command: %q}}]\nelse: {text: done}\n", fetches),
	}})
	run, other := w.run("fetch", api.StartRun{}), w.run("fetch", api.StartRun{})
	do[any](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
	const row = "GET " + publicIP + ":80/a"
	got := with[refusal](w, "refusal", map[string]any{"text": row})
	if got.Allow != 1 || !strings.Contains(got.Text, "no rule allows") || !strings.Contains(got.Text, "was refused 1 time and let out 0 times") {
		t.Errorf("the row says %q", got.Text)
	}
	if m := with[refusal](w, "refusal", map[string]any{"text": metadataIP + ":80"}); m.Allow != 0 || !strings.Contains(m.Text, "metadata") {
		t.Errorf("the row of metadata has %d buttons, and %q", m.Allow, m.Text)
	}
	refusals := func(id string) (hosts []string) {
		for _, e := range w.events(id) {
			if e.Kind == "network.refused" {
				d := data[thread.NetworkRefused](w, e)
				hosts = append(hosts, d.Host)
				if d.Host == publicIP && id == run.ID {
					t.Logf("the row was there %d ms after the event", got.At-e.At.UnixMilli())
				}
			}
		}
		return hosts
	}
	now, err := w.c.Run(run.ID).Get(w.ctx())
	w.ok(err)
	policy := func() api.NetworkPolicy {
		t.Helper()
		p, err := w.c.Sandbox(now.Sandbox).Network(w.ctx())
		w.ok(err)
		return p
	}
	before := policy()
	added := with[allowed](w, "permit", map[string]any{"text": row})
	if want := "allow " + publicIP + ":80 GET /a"; added.Shown != want || !added.First || added.Offers < 2 || !strings.HasSuffix(added.URL, "/sandboxes/"+now.Sandbox+"/network") {
		t.Errorf("the dialog was %+v, without %q", added, want)
	}
	rule := api.NetworkRule{Host: publicIP, Ports: []int{80}, Methods: []string{"GET"}, Paths: []string{"/a"}}
	if got, want := policy().Allow, append(slices.Clone(before.Allow), rule); !reflect.DeepEqual(got, want) {
		t.Errorf("the rules are %+v, not %+v", got, want)
	}
	with[any](w, "withdraw", map[string]any{"text": row})
	if got := policy(); !reflect.DeepEqual(got, before) {
		t.Errorf("after an undo the policy is %+v, not %+v", got, before)
	}
	with[allowed](w, "permit", map[string]any{"text": row})
	w.touch(run.ID, "go")
	w.touch(other.ID, "go")
	for _, is := range []struct {
		id      string
		allowed bool
	}{{run.ID, true}, {other.ID, false}} {
		ended := w.ended(is.id)
		list, err := w.c.Sandbox(ended.Sandbox).NetworkLog(w.ctx(), 0)
		w.ok(err)
		if len(list) != 3 || list[2].Host != publicIP || list[2].Allowed != is.allowed {
			t.Errorf("the decisions are %+v", list)
		}
		if hosts := refusals(is.id); !slices.Equal(hosts, []string{publicIP, metadataIP}) { // each once a step
			t.Errorf("the log tells of %v", hosts)
		}
	}
	w.clean()
}

func egress(t *testing.T, w *world) {
	web, db := w.create("web"), w.create("db")
	policy := func(sb api.Sandbox) api.NetworkPolicy {
		t.Helper()
		p, err := w.c.Sandbox(sb.ID).Network(w.ctx())
		w.ok(err)
		return p
	}
	first, other := policy(web), policy(db)
	do[any](w, "open", map[string]any{"path": "/network"})
	url := "http://" + publicIP + "/a"
	w.ask(web.ID, url)
	got := decide[refused](w, "refused", map[string]any{"host": publicIP})
	t.Logf("the page showed the refusal %d ms after the request", got.MS)
	if got.Allow != 1 || !strings.Contains(got.Text, "GET "+publicIP+":80/a") || !strings.Contains(got.Text, "web") {
		t.Errorf("the page says %q", got.Text)
	}
	w.ask(web.ID, "http://"+metadataIP+"/latest/meta-data/")
	if got := decide[refused](w, "refused", map[string]any{"host": metadataIP}); got.Allow != 0 || !strings.Contains(got.Text, "metadata") {
		t.Errorf("for metadata there are %d buttons, and %q", got.Allow, got.Text)
	}
	added := decide[allowed](w, "allow", map[string]any{"host": publicIP, "machine": "web"})
	if !added.First || added.Offers < 2 || !strings.HasSuffix(added.URL, "/sandboxes/"+web.ID+"/network") {
		t.Errorf("the dialog was %+v", added)
	}
	rule := api.NetworkRule{Host: publicIP, Ports: []int{80}, Methods: []string{"GET"}, Paths: []string{"/a"}}
	if want := "allow " + publicIP + ":80 GET /a"; added.Shown != want {
		t.Errorf("the rule was shown as %q, not %q", added.Shown, want)
	}
	for what, p := range map[string]api.NetworkPolicy{"was sent": added.Body, "is there": policy(web)} {
		if want := append(slices.Clone(first.Allow), rule); !reflect.DeepEqual(p.Allow, want) || len(p.Deny) != len(first.Deny) || p.Profile != first.Profile {
			t.Errorf("%s: %+v, which is not %+v with the rule", what, p, first)
		}
	}
	// The next try passes, by the very rule that was shown; the other machine's does not.
	w.ask(web.ID, url)
	w.ask(db.ID, url)
	if row := decide[string](w, "passed", map[string]any{"host": publicIP}); !strings.Contains(row, "web") || !strings.Contains(row, strings.TrimPrefix(added.Shown, "allow ")) {
		t.Errorf("the row of the next try is %q", row)
	}
	if now := policy(db); !reflect.DeepEqual(now, other) {
		t.Errorf("the policy of the other machine was %+v, and is %+v", other, now)
	}
	for _, is := range []struct {
		sb      api.Sandbox
		allowed bool
	}{{web, true}, {db, false}} {
		list, err := w.c.Sandbox(is.sb.ID).NetworkLog(w.ctx(), 0)
		w.ok(err)
		if len(list) == 0 || list[len(list)-1].Host != publicIP || list[len(list)-1].Allowed != is.allowed {
			t.Errorf("%s: the decisions are %+v", is.sb.Name, list)
		}
	}
	w.clean()
}

func secret(t *testing.T, w *world) {
	const begins = "zq7-hunter-"
	value, name := begins+rand.Text(), "forge-"+strings.ToLower(rand.Text())
	decide[any](w, "record", nil)
	do[any](w, "open", map[string]any{"path": "/secrets"})
	type places struct {
		Found   []string `json:"found"`
		Answers int      `json:"answers"`
		Frames  int      `json:"frames"`
	}
	search := func(text string) places { return decide[places](w, "places", map[string]any{"text": text}) }
	if kind := decide[string](w, "secret", map[string]any{"name": name, "value": value, "host": "api.example.com", "env": "FORGE_TOKEN"}); kind != "password off" {
		t.Errorf("the field of the value is %q", kind)
	}
	nowhere := func(where string) {
		t.Helper()
		if got := search(value); !slices.Equal(got.Found, []string{"sent"}) {
			t.Errorf("%s: the value is in %v; it was to be in what was sent alone", where, got.Found)
		}
	}
	nowhere("after it was saved")
	if got := search(name); !slices.Contains(got.Found, "page") || !slices.Contains(got.Found, "answers") {
		t.Errorf("the test would not see what is in pages and answers: %+v", got)
	}
	run := w.ended(w.run("env", api.StartRun{}).ID)
	// The command does not name the value: the audit log has commands.
	r, err := w.c.Sandbox(run.Sandbox).RunCommand(w.ctx(), api.RunCommand{Command: "cat /proc/*/environ 2>/dev/null; echo; echo token is $FORGE_TOKEN; grep -rls " + begins + " /workspace /tmp /etc /run /root /home"})
	w.ok(err)
	if out := string(r.Out); strings.Contains(out, begins) || !strings.Contains(out, "token is skete-secret-"+name+"\n") || !strings.HasSuffix(out, name+"\n") {
		t.Errorf("the machine sees %q", out)
	}
	for _, path := range []string{"/runs/" + run.ID, "/secrets", "/network", "/vms/" + run.Sandbox, "/vms/" + run.Sandbox + "/network", "/vms/" + run.Sandbox + "/events", "/settings/audit", "/usage"} {
		do[any](w, "open", map[string]any{"path": path})
		nowhere(path)
	}
	api := []string{"/v1/secrets", "/v1/secrets/" + name, "/v1/audit", "/v1/runs/" + run.ID, "/v1/runs/" + run.ID + "/events?last=500", "/v1/sandboxes/" + run.Sandbox, "/v1/sandboxes/" + run.Sandbox + "/network", "/v1/sandboxes/" + run.Sandbox + "/network/log"}
	for path, status := range decide[map[string]int](w, "ask", map[string]any{"paths": api}) {
		if status != 200 {
			t.Errorf("%s answers %d", path, status)
		}
	}
	nowhere("after the API was asked")
	if got := search(name); got.Answers < len(api) || got.Frames == 0 {
		t.Errorf("the test saw %d answers and %d frames", got.Answers, got.Frames)
	}
	w.clean()
	w.end(syscall.SIGTERM)
	if bytes.Contains(w.log.Bytes(), []byte(value)) {
		t.Errorf("the value is in the server's log:\n%s", w.log)
	}
	named := 0
	w.ok(filepath.WalkDir(w.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(value)) {
			t.Errorf("the value is in the file %s", strings.TrimPrefix(path, w.home))
		}
		if bytes.Contains(text, []byte(name)) {
			named++
		}
		return err
	}))
	if named == 0 {
		t.Error("no file has the secret's name: the test would not see its value")
	}
}
