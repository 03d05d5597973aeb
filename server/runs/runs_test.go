package runs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/runs"
	"github.com/skete-dev/skete/server/runs/runstest"
	"github.com/skete-dev/skete/server/transcript"
	"github.com/skete-dev/skete/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server whose runs follow a script.
type world struct {
	t *testing.T
	*runstest.Server
	fake *runstest.Fake
}

func newWorld(t *testing.T, script func(*runstest.Play), change ...func(*runs.Config)) *world {
	t.Helper()
	f := runstest.New(script)
	t.Cleanup(f.Close)
	return &world{t, runstest.Serve(t, f, change...), f}
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (w *world) client() *http.Client {
	tr := &http.Transport{}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// send makes a request; body is nil, text, or anything as JSON.
func (w *world) send(secret, method, path string, body any, header ...string) answer {
	w.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		data, err := json.Marshal(b)
		must(w.t, err)
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.URL+path, r)
	must(w.t, err)
	req.Header.Set("Authorization", "Bearer "+secret)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := w.client().Do(req)
	must(w.t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	must(w.t, err)
	return answer{res.StatusCode, res.Header, data}
}

// call makes a request that must be answered with the status.
func call[T any](w *world, method, path string, body any, status int, header ...string) (v T) {
	w.t.Helper()
	a := w.send(w.Key, method, path, body, header...)
	if a.status != status {
		w.t.Fatalf("%s %s: status %d, want %d: %s", method, path, a.status, status, a.body)
	}
	if len(a.body) > 0 {
		must(w.t, json.Unmarshal(a.body, &v))
	}
	return v
}

func (w *world) start(task string) api.Run {
	w.t.Helper()
	return call[api.Run](w, "POST", "/v1/runs", api.StartRun{Task: task}, 201)
}

func (w *world) until(run string, ok func(api.Run) bool) api.Run {
	w.t.Helper()
	deadline := time.Now().Add(patience.Of(20 * time.Second))
	for {
		r := call[api.Run](w, "GET", "/v1/runs/"+run, nil, 200)
		if ok(r) {
			return r
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("it stays %+v", r)
		}
		<-time.After(2 * time.Millisecond)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func succeed(p *runstest.Play) {
	p.Answer("Nothing to do.")
	p.End(thread.RunSucceeded, "Nothing to do.")
}

func TestStart(t *testing.T) {
	w := newWorld(t, succeed)
	req := api.StartRun{
		Task: "Do it.", Agent: "reviewer", Model: "m", Title: "a title", Labels: map[string]string{"k": "v"},
		Budget: api.Budget{Steps: 5, WallMS: 60_000},
	}
	run := call[api.Run](w, "POST", "/v1/runs", req, 201, "Idempotency-Key", "once")
	if run.Agent != "reviewer" || run.Model != "m" || run.Title != "a title" || run.Labels["k"] != "v" || run.Budget != req.Budget || run.FirstSeq != 2 || !strings.HasPrefix(run.By, "key_") {
		t.Errorf("%+v", run)
	}
	again := call[api.Run](w, "POST", "/v1/runs", req, 201, "Idempotency-Key", "once")
	if again.ID != run.ID {
		t.Errorf("the same key gave %s and %s", run.ID, again.ID)
	}
	done := w.until(run.ID, api.Run.Final)
	if done.State != "succeeded" || done.Text != "Nothing to do." || done.EndedAt == nil || done.Steps != 1 || done.CostUSD != runstest.Cost {
		t.Errorf("%+v", done)
	}
	next := call[api.Run](w, "POST", "/v1/runs", api.StartRun{Task: "More.", Thread: run.Thread}, 201)
	if next.Thread != run.Thread || next.ID == run.ID {
		t.Errorf("%+v", next)
	}
}

func TestStart_refuses(t *testing.T) {
	w := newWorld(t, nil)
	for body, want := range map[string]int{
		`{}`:                            400,
		`{"task":""}`:                   400,
		`{"task":"  \n"}`:               400,
		`{"task":"x","unknown":1}`:      400,
		`{"task":"x","agent":"nobody"}`: 404,
		`{"task":"x","agent":"a","definition":{"name":"b"}}`:                                                400,
		`{"task":"x","definition":{"name":"b","nonsense":1}}`:                                               400,
		`{"task":"x","definition":{"name":"b","hooks":[{"event":"Stop","command":["id"],"where":"host"}]}}`: 403,
		`{"task":"x","thread":"thr_x"}`:                                                                     400,
		`{"task":"x","thread":"thr_aaaaaaaaaaaaaaaaaaaa","agent":"a"}`:                                      400,
		`{"task":"x","sandbox":"../x"}`:                                                                     400,
		`{"task":"x","sandbox":"sbx_aaaaaaaaaaaaaaaaaaaa","spec":{"a":1}}`:                                  400,
		`{"task":"x","budget":{"steps":-1}}`:                                                                400,
		`{"task":"x","budget":{"wall_ms":99999999999999}}`:                                                  400,
		`{"task":"x","labels":{"":"v"}}`:                                                                    400,
		`{"task":"x","labels":{"k":"a\nb"}}`:                                                                400,
		`{"task":"` + strings.Repeat("x", 600_000) + `"}`:                                                   400,
		`{"task":"x"`: 400,
	} {
		if a := w.send(w.Key, "POST", "/v1/runs", body); a.status != want {
			t.Errorf("%.100s: %d %s", body, a.status, a.body)
		}
	}
	if a := w.send(w.Key, "POST", "/v1/runs", `{"task":"x"}`, "Idempotency-Key", "a b"); a.status != 400 {
		t.Errorf("a key with a space: %d", a.status)
	}
	if page := call[api.RunPage](w, "GET", "/v1/runs", nil, 200); len(page.Items) > 0 {
		t.Errorf("refused and started all the same: %+v", page)
	}
}

func TestInlineDefinition(t *testing.T) {
	w := newWorld(t, succeed)
	run := call[api.Run](w, "POST", "/v1/runs", `{"task":"x","definition":{"name":"mine","instructions":"Be terse.","limits":{"steps":3}}}`, 201)
	if run.Agent != "mine" {
		t.Errorf("%+v", run)
	}
}

func TestScript_itsPathIsShownToNobody(t *testing.T) {
	w := newWorld(t, succeed)
	const dir = "/srv/secret"
	w.fake.Defs = append(w.fake.Defs, definition.Definition{
		Name: "rehearsed", Model: "script/" + dir + "/a.yaml",
		Subagents: map[string]definition.Definition{"sub": {Name: "sub", Model: "script/" + dir + "/b.yaml"}},
	})
	run := call[api.Run](w, "POST", "/v1/runs", `{"task":"x","model":"script/`+dir+`/fix.yaml","definition":{"name":"d","model":"script/`+dir+`/fix.yaml"}}`, 201)
	if run.Model != "script/fix.yaml" {
		t.Errorf("the model is called %q", run.Model)
	}
	w.until(run.ID, api.Run.Final)
	log, err := w.fake.Log(t.Context(), key.DefaultTenant)
	must(t, err)
	hidden := 0
	for e, err := range log.Load(t.Context(), thread.ID(run.Thread), 1) {
		must(t, err)
		inLog, err := json.Marshal(e)
		must(t, err)
		shown, err := transcript.Event(e)
		must(t, err)
		if strings.Contains(string(inLog), dir) {
			hidden++
		}
		if strings.Contains(string(shown.Data), dir) {
			t.Errorf("event %d shows %s", e.Seq, shown.Data)
		}
	}
	if hidden != 2 { // thread.opened, run.started
		t.Fatalf("%d events have the path, so this test shows too little", hidden)
	}
	base := "/v1/runs/" + run.ID
	for _, at := range []string{base, "/v1/runs", base + "/transcript", base + "/events", "/v1/agents", "/v1/agents/rehearsed"} {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			a := w.send(w.Key, "GET", at, nil, "Accept", accept)
			if a.status != 200 || strings.Contains(string(a.body), dir) {
				t.Errorf("%s: status %d: %s", at, a.status, a.body)
			}
		}
	}
	if a := w.send(w.Key, "GET", base+"/events", nil, "Accept", "application/json"); !strings.Contains(string(a.body), `"model":"script/fix.yaml"`) {
		t.Errorf("the events do not name the model: %s", a.body)
	}
	if a := w.send(w.Key, "GET", "/v1/agents/rehearsed", nil); !strings.Contains(string(a.body), "script/a.yaml") || !strings.Contains(string(a.body), "script/b.yaml") {
		t.Errorf("the agent does not name its models: %s", a.body)
	}
}

func TestList(t *testing.T) {
	w := newWorld(t, nil)
	var ids []string
	for i := range 5 {
		r := call[api.Run](w, "POST", "/v1/runs", api.StartRun{Task: "x", Labels: map[string]string{"n": fmt.Sprint(i % 2)}}, 201)
		ids = append(ids, r.ID)
	}
	slices.Reverse(ids)
	var got []string
	token := ""
	for range 4 {
		page := call[api.RunPage](w, "GET", "/v1/runs?page_size=2&page_token="+token, nil, 200)
		for _, r := range page.Items {
			got = append(got, r.ID)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if diff := cmp.Diff(ids, got); diff != "" {
		t.Error(diff)
	}
	call[api.Run](w, "POST", "/v1/runs/"+ids[0]+"/cancel", api.CancelRun{Reason: "enough"}, 200)
	for query, want := range map[string]int{"state=cancelled": 1, "state=running,cancelled": 5, "label=n%3D1": 2, "label=n%3D1&label=x%3Dy": 0, "agent=nobody": 0} {
		if page := call[api.RunPage](w, "GET", "/v1/runs?"+query, nil, 200); len(page.Items) != want {
			t.Errorf("%s: %d runs, want %d", query, len(page.Items), want)
		}
	}
	for _, query := range []string{"state=nonsense", "label=x", "thread=x", "page_size=-1", "other=1"} {
		if a := w.send(w.Key, "GET", "/v1/runs?"+query, nil); a.status != 400 {
			t.Errorf("%s: %d", query, a.status)
		}
	}
}

// A message to a run that goes on is queued, and to one that is over begins
// the next; the same message twice is one.
func TestStart_images(t *testing.T) {
	w := newWorld(t, nil)
	var out bytes.Buffer
	must(t, png.Encode(&out, image.NewGray(image.Rect(0, 0, 2, 1))))
	good := api.Image{Data: out.Bytes()}
	large := api.Image{Data: append(slices.Clone(out.Bytes()), make([]byte, 4<<20)...)}
	for name, c := range map[string]struct {
		images []api.Image
		status int
		says   string
	}{
		"one":            {[]api.Image{good}, 201, ""},
		"eight":          {[]api.Image{good, good, good, good, good, good, good, good}, 201, ""},
		"nine":           {[]api.Image{good, good, good, good, good, good, good, good, good}, 400, "images"},
		"as much as may": {[]api.Image{large, large, large, large}, 201, ""},
		"too much":       {[]api.Image{large, large, large, large, large}, 400, "images: together they have"},
		"more than read": {[]api.Image{large, large, large, large, large, large, large, large}, 413, ""},
		"no image":       {[]api.Image{good, {Data: []byte("hello")}}, 400, "images[1]: that is no image"},
		"nothing":        {[]api.Image{{}}, 400, "images[0]"},
		"one too large":  {[]api.Image{{Data: append(slices.Clone(out.Bytes()), make([]byte, 6<<20)...)}}, 400, "images[0]: an image has"},
	} {
		a := w.send(w.Key, "POST", "/v1/runs", api.StartRun{Task: "x", Images: c.images})
		if a.status != c.status || !strings.Contains(string(a.body), c.says) {
			t.Errorf("%s: %d %.300s", name, a.status, a.body)
		}
	}
	if a := w.send(w.Key, "POST", "/v1/runs", `{"task":"x","images":[{"data":"%"}]}`); a.status != 400 {
		t.Errorf("no base64: %d %s", a.status, a.body)
	}
	run := w.start("Wait.")
	if a := w.send(w.Key, "POST", "/v1/runs/"+run.ID+"/send", api.SendInput{Text: "see", Images: []api.Image{{Data: []byte("hello")}}}); a.status != 400 {
		t.Errorf("a message with no image: %d %s", a.status, a.body)
	}
}

func TestCompactAndCommands(t *testing.T) {
	w := newWorld(t, succeed)
	run := w.start("Do it.")
	got := call[api.Run](w, "POST", "/v1/runs/"+run.ID+"/compact", api.CompactRun{Focus: "the port"}, 200)
	if got.ID != run.ID {
		t.Errorf("%+v", got)
	}
	call[api.Run](w, "POST", "/v1/runs/"+run.ID+"/compact", nil, 200)
	if a := w.send(w.Key, "POST", "/v1/runs/"+run.ID+"/compact", api.CompactRun{Focus: strings.Repeat("x", 3000)}); a.status != 400 {
		t.Errorf("a long focus: %d", a.status)
	}
	list := call[api.SlashCommandList](w, "GET", "/v1/commands", nil, 200)
	if len(list.Items) != 2 || list.Items[0].Agent != "reviewer" || list.Items[1].Error != "commands/broken.md: it says nothing" {
		t.Errorf("%+v", list)
	}
}

func TestSend(t *testing.T) {
	w := newWorld(t, func(p *runstest.Play) {
		p.Answer("You said " + p.Input(0))
		p.End(thread.RunSucceeded, "ok")
	})
	run := w.start("Wait for me.")
	sent := call[api.Sent](w, "POST", "/v1/runs/"+run.ID+"/send", api.SendInput{Text: "hello"}, 200, "Idempotency-Key", "m1")
	if sent.Run != run.ID || sent.Seq == 0 || sent.New {
		t.Errorf("%+v", sent)
	}
	w.until(run.ID, api.Run.Final)
	sent = call[api.Sent](w, "POST", "/v1/runs/"+run.ID+"/send", api.SendInput{Text: "more"}, 200, "Idempotency-Key", "m2")
	if !sent.New || sent.Run == run.ID {
		t.Errorf("%+v", sent)
	}
	again := call[api.Sent](w, "POST", "/v1/runs/"+run.ID+"/send", api.SendInput{Text: "more"}, 200, "Idempotency-Key", "m2")
	if again.Run != sent.Run {
		t.Errorf("the same message began two runs")
	}
	if a := w.send(w.Key, "POST", "/v1/runs/"+run.ID+"/send", api.SendInput{Text: " "}); a.status != 400 {
		t.Errorf("an empty message: %d", a.status)
	}
}

func TestResume_addsRoom(t *testing.T) {
	w := newWorld(t, func(p *runstest.Play) {
		p.Answer("a")
		p.End(thread.RunFailed, "the budget is used up")
	})
	run := call[api.Run](w, "POST", "/v1/runs", api.StartRun{Task: "x", Budget: api.Budget{Tokens: 10}}, 201)
	w.until(run.ID, api.Run.Final)
	got := call[api.Run](w, "POST", "/v1/runs/"+run.ID+"/resume", api.ResumeRun{Add: api.Budget{Steps: 10, Tokens: 500}, Budget: api.Budget{CostUSD: 2}}, 200)
	want := api.Budget{Steps: 11, Tokens: runstest.Usage.Total() + 500, CostUSD: 2}
	if got.Budget != want {
		t.Errorf("%+v, want %+v", got.Budget, want)
	}
	w.until(run.ID, api.Run.Final)
	call[api.Run](w, "POST", "/v1/runs/"+run.ID+"/resume", nil, 200)
}

func TestForkRewindReplayCompareDelete(t *testing.T) {
	w := newWorld(t, succeed)
	w.fake.Report = map[string]any{"same": false}
	run := w.until(w.start("x").ID, api.Run.Final)
	fork := call[api.Run](w, "POST", "/v1/runs/"+run.ID+"/fork", api.ForkRun{At: 3, Task: "Otherwise."}, 201)
	if fork.Fork == nil || fork.Fork.Seq != 3 || fork.Fork.Thread != run.Thread || fork.Thread == run.Thread {
		t.Errorf("%+v", fork)
	}
	call[api.Run](w, "POST", "/v1/runs/"+run.ID+"/rewind", api.RewindRun{To: 3}, 200)
	replay := call[api.Run](w, "POST", "/v1/runs/"+run.ID+"/replay", nil, 201)
	if replay.Replay != run.ID {
		t.Errorf("%+v", replay)
	}
	c := call[api.Comparison](w, "GET", "/v1/runs/"+run.ID+"/compare?with="+replay.ID, nil, 200)
	if string(c.Report) != `{"same":false}` {
		t.Errorf("%s", c.Report)
	}
	call[struct{}](w, "DELETE", "/v1/threads/"+run.Thread, nil, 204)
	if a := w.send(w.Key, "GET", "/v1/runs/"+run.ID, nil); a.status != 404 {
		t.Errorf("after delete: %d", a.status)
	}
	if a := w.send(w.Key, "DELETE", "/v1/threads/"+run.Thread+"%2Fc1", nil); a.status != 400 {
		t.Errorf("a sub-agent's: %d", a.status)
	}
	if a := w.send(w.Key, "POST", "/v1/runs/"+run.ID+"/fork", api.ForkRun{}); a.status != 400 {
		t.Errorf("a fork at 0: %d", a.status)
	}
}

func asking(p *runstest.Play) {
	p.Answer("May I?", runstest.Call("c1", "execute", `{"command":"make"}`), runstest.Call("c2", "execute", `{"command":"rm -rf /"}`), runstest.Call("c3", "ls", `{}`))
	p.Ask("c1", "execute", `{"command":"make"}`, "builds")
	p.Ask("c2", "execute", `{"command":"rm -rf /"}`, "", thread.Approve, thread.Reject)
	p.Ask("c3", "ls", `{}`, "")
	for _, c := range []string{"c1", "c2", "c3"} {
		d := p.Decision(c)
		p.Run(c, "execute", string(d.Decision)+string(d.Args)+d.Text)
	}
	p.End(thread.RunSucceeded, "done")
}

// Several decisions in one request are each answered for themselves.
func TestDecisions(t *testing.T) {
	w := newWorld(t, asking)
	run := w.start("x")
	w.until(run.ID, func(r api.Run) bool { return r.Waiting == 3 && r.State == "interrupted" })
	list := call[api.ApprovalList](w, "GET", "/v1/runs/"+run.ID+"/approvals", nil, 200)
	if len(list.Items) != 3 || string(list.Items[0].Args) != `{"command":"make"}` || len(list.Items[1].Allowed) != 2 {
		t.Fatalf("%+v", list)
	}
	if all := call[api.ApprovalList](w, "GET", "/v1/approvals", nil, 200); len(all.Items) != 3 {
		t.Errorf("%+v", all)
	}
	got := call[api.DecidedList](w, "POST", "/v1/runs/"+run.ID+"/decisions", api.DecideList{Decisions: []api.Decide{
		{Call: "c1", Decision: "edit", Args: json.RawMessage(`{"command":"make -n"}`)},
		{Call: "c1", Decision: "approve"},
		{Call: "c2", Decision: "respond", Text: "no"},
		{Call: "nothing", Decision: "approve"},
		{Call: "c2", Decision: "reject", Text: "never"},
		{Call: "c3", Decision: "approve", Always: true},
	}}, 200)
	var classes []string
	for _, d := range got.Items {
		class := "ok"
		if !d.OK {
			class = d.Problem.Class
		}
		classes = append(classes, d.Call+" "+class)
	}
	if diff := cmp.Diff([]string{"c1 ok", "c1 conflict", "c2 denied", "nothing not_found", "c2 ok", "c3 ok"}, classes); diff != "" {
		t.Error(diff)
	}
	w.until(run.ID, api.Run.Final)
	a := w.send(w.Key, "GET", "/v1/runs/"+run.ID+"/calls/c1/output", nil)
	if string(a.body) != `edit{"command":"make -n"}` {
		t.Errorf("%s", a.body)
	}
	d := call[api.CallDetail](w, "GET", "/v1/runs/"+run.ID+"/calls/c2", nil, 200)
	if d.Status != "rejected" || d.Approval == nil || d.Approval.Text != "never" || !strings.HasPrefix(d.Approval.By, "key_") {
		t.Errorf("%+v", d)
	}
}

func TestDecisions_refused(t *testing.T) {
	w := newWorld(t, asking)
	run := w.start("x")
	w.until(run.ID, func(r api.Run) bool { return r.Waiting == 3 })
	for _, d := range []api.Decide{
		{Call: "c1", Decision: "edit"},
		{Call: "c1", Decision: "edit", Args: json.RawMessage(`[1]`)},
		{Call: "c1", Decision: "edit", Args: json.RawMessage(`null`)},
		{Call: "c1", Decision: "approve", Args: json.RawMessage(`{}`)},
		{Call: "c1", Decision: "approve", Text: "x"},
		{Call: "c1", Decision: "respond"},
		{Call: "c1", Decision: "reject", Always: true},
		{Call: "../c1", Decision: "approve"},
		{Call: "c1", Thread: "nonsense", Decision: "approve"},
		{Call: "c1", Thread: "thr_bbbbbbbbbbbbbbbbbbbb", Decision: "approve"},
	} {
		got := call[api.DecidedList](w, "POST", "/v1/runs/"+run.ID+"/decisions", api.DecideList{Decisions: []api.Decide{d}}, 200)
		if got.Items[0].OK || got.Items[0].Problem == nil {
			t.Errorf("%+v was taken", d)
		}
	}
	for _, body := range []string{`{}`, `{"decisions":[]}`, `{"decisions":[{"call":"c1","decision":"maybe"}]}`} {
		if a := w.send(w.Key, "POST", "/v1/runs/"+run.ID+"/decisions", body); a.status != 400 {
			t.Errorf("%s: %d", body, a.status)
		}
	}
	if r := w.until(run.ID, func(api.Run) bool { return true }); r.Waiting != 3 {
		t.Errorf("a refused decision changed something: %+v", r)
	}
}

func TestStory(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789"), 5000)
	w := newWorld(t, func(p *runstest.Play) {
		p.Answer("", runstest.Call("c0", "write_todos", `{"todos":[]}`))
		p.Todos("c0", thread.Todo{Content: "one", Status: "in_progress"})
		for i := 1; i <= 4; i++ {
			p.Answer(fmt.Sprint("step ", i), runstest.Call(fmt.Sprint("c", i), "execute", `{"command":"ls"}`))
			p.Begin(fmt.Sprint("c", i), "execute")
			if i == 2 {
				p.Blob("c2", "01234…", large)
				continue
			}
			if i == 4 {
				return
			}
			p.Done(fmt.Sprint("c", i), "output")
		}
	})
	run := w.start("x")
	w.until(run.ID, func(r api.Run) bool { return r.Steps == 5 })
	base := "/v1/runs/" + run.ID
	o := call[api.Transcript](w, "GET", base+"/transcript?last=2", nil, 200)
	if o.Total != 5 || len(o.Steps) != 2 || o.Steps[0].Step != 4 || o.Before != 4 || len(o.Todos) != 1 {
		t.Errorf("%+v", o)
	}
	o = call[api.Transcript](w, "GET", base+"/transcript?last=2&before=4", nil, 200)
	if o.Steps[0].Step != 2 || o.Steps[1].Calls[0].Bytes != int64(len(large)) {
		t.Errorf("%+v", o)
	}
	if todos := call[api.TodoList](w, "GET", base+"/todos", nil, 200); len(todos.Items) != 1 || todos.Items[0].Content != "one" {
		t.Errorf("%+v", todos)
	}
	output := base + "/calls/c2/output"
	for _, tt := range []struct {
		path, ranges string
		status       int
		want         string
	}{
		{output, "", 200, string(large)},
		{output + "?offset=49990", "", 200, "0123456789"},
		{output + "?offset=50000", "", 200, ""},
		{output, "bytes=5-9", 206, "56789"},
		{output, "bytes=-3", 206, "789"},
		{output, "bytes=49998-", 206, "89"},
		{output, "bytes=49998-99999", 206, "89"},
		{base + "/calls/c1/output", "bytes=0-2", 206, "out"},
		{output + "?offset=50001", "", 416, ""},
		{output, "bytes=50000-", 416, ""},
		{output, "bytes=9-5", 416, ""},
		{output, "bytes=0-1,5-6", 416, ""},
		{output, "lines=1-2", 416, ""},
		{output + "?offset=1", "bytes=0-1", 400, ""},
		{output + "?offset=-1", "", 400, ""},
		{base + "/calls/c4/output", "", 409, ""},
		{base + "/calls/nothing/output", "", 404, ""},
		{base + "/calls/nothing", "", 404, ""},
		{"/v1/blobs/" + strings.Repeat("0", 64), "", 404, ""},
		{"/v1/blobs/nonsense", "", 400, ""},
	} {
		var header []string
		if tt.ranges != "" {
			header = []string{"Range", tt.ranges}
		}
		a := w.send(w.Key, "GET", tt.path, nil, header...)
		if a.status != tt.status || a.status < 300 && string(a.body) != tt.want {
			t.Errorf("%s %s: %d %.80q (%d bytes)", tt.path, tt.ranges, a.status, a.body, len(a.body))
		}
		if a.status < 300 && (a.header.Get("Content-Type") != "application/octet-stream" || a.header.Get("Content-Disposition") != "attachment" ||
			!strings.HasPrefix(a.header.Get("Content-Security-Policy"), "sandbox;")) {
			t.Errorf("%s: a browser might show it: %v", tt.path, a.header)
		}
	}
	a := w.send(w.Key, "HEAD", output, nil)
	if a.status != 200 || a.header.Get("Content-Length") != "50000" {
		t.Errorf("HEAD: %d %v", a.status, a.header)
	}
}

// Pages of events go backwards from the end, without a gap or an overlap.
func TestEventPages(t *testing.T) {
	w := newWorld(t, func(p *runstest.Play) {
		for i := range 10 {
			p.Append(thread.Input{From: "user", ID: fmt.Sprint(i)})
		}
		p.End(thread.RunSucceeded, "")
	})
	run := w.until(w.start("x").ID, api.Run.Final)
	next := w.until(call[api.Run](w, "POST", "/v1/runs", api.StartRun{Task: "next", Thread: run.Thread}, 201).ID, api.Run.Final)
	var seqs []uint64
	before := ""
	for {
		page := call[api.RunEventPage](w, "GET", "/v1/runs/"+run.ID+"/events?last=5"+before, nil, 200, "Accept", "application/json")
		var part []uint64
		for _, e := range page.Items {
			part = append(part, e.Seq)
		}
		seqs = append(part, seqs...)
		if page.Before == 0 {
			break
		}
		before = fmt.Sprint("&before=", page.Before)
	}
	var want []uint64
	for seq := run.FirstSeq; seq <= run.LastSeq; seq++ {
		want = append(want, seq)
	}
	if diff := cmp.Diff(want, seqs); diff != "" {
		t.Error(diff)
	}
	// Of the next run, whose record does not know of it yet.
	call[api.Run](w, "POST", "/v1/runs/"+next.ID+"/rewind", api.RewindRun{To: next.FirstSeq}, 200)
	page := call[api.RunEventPage](w, "GET", "/v1/runs/"+next.ID+"/events?last=2", nil, 200, "Accept", "application/json")
	if n := len(page.Items); n != 2 || page.Items[n-1].Kind != "thread.rewound" || page.Items[n-1].Seq != next.LastSeq+1 {
		t.Errorf("the newest page is %+v, and the run's record ends at %d", page, next.LastSeq)
	}
	if a := w.send(w.Key, "GET", "/v1/runs/"+run.ID+"/events?last=5", nil); a.status != 400 {
		t.Errorf("last on a stream: %d", a.status)
	}
}

func TestAgents(t *testing.T) {
	w := newWorld(t, nil)
	list := call[api.AgentList](w, "GET", "/v1/agents", nil, 200)
	if len(list.Items) != 2 || list.Items[1].Name != "reviewer" || list.Items[1].Definition != nil {
		t.Errorf("%+v", list)
	}
	a := call[api.Agent](w, "GET", "/v1/agents/reviewer", nil, 200)
	if !strings.Contains(string(a.Definition), `"tools":["read_file","grep"]`) {
		t.Errorf("%s", a.Definition)
	}
	if got := w.send(w.Key, "GET", "/v1/agents/nobody", nil); got.status != 404 {
		t.Errorf("%d", got.status)
	}
	good := call[api.AgentValidated](w, "POST", "/v1/agents/validate", api.ValidateAgent{Path: "a/mine.yaml", Content: "description: Mine.\ninstructions: Be good.\n"}, 200)
	if !good.OK || good.Agent == nil || good.Agent.Name != "mine" {
		t.Errorf("%+v", good)
	}
	bad := call[api.AgentValidated](w, "POST", "/v1/agents/validate", api.ValidateAgent{Path: "mine.yaml", Content: "nonsense: 1\nalso: 2\n"}, 200)
	if bad.OK || len(bad.Problems) == 0 || !strings.Contains(bad.Problems[0].Text, "mine.yaml:1") {
		t.Errorf("%+v", bad)
	}
}

// Another tenant's run looks like one that does not exist, everywhere.
func TestForeignTenant(t *testing.T) {
	w := newWorld(t, asking)
	run := w.start("x")
	w.until(run.ID, func(r api.Run) bool { return r.Waiting == 3 })
	foreign := w.NewKey(t, "other", key.Read, key.Write)
	base := "/v1/runs/" + run.ID
	for _, r := range []struct {
		method, path string
		body         any
	}{
		{"GET", base, nil},
		{"POST", base + "/send", api.SendInput{Text: "x"}},
		{"POST", base + "/cancel", api.CancelRun{}},
		{"POST", base + "/resume", api.ResumeRun{}},
		{"POST", base + "/fork", api.ForkRun{At: 2}},
		{"POST", base + "/rewind", api.RewindRun{To: 2}},
		{"POST", base + "/replay", nil},
		{"GET", base + "/compare?with=" + run.ID, nil},
		{"GET", base + "/approvals", nil},
		{"POST", base + "/decisions", api.DecideList{Decisions: []api.Decide{{Call: "c1", Decision: "approve"}}}},
		{"GET", base + "/events", nil},
		{"GET", base + "/transcript", nil},
		{"GET", base + "/outline", nil},
		{"GET", base + "/todos", nil},
		{"GET", base + "/calls/c1", nil},
		{"GET", base + "/calls/c1/output", nil},
		{"DELETE", "/v1/threads/" + run.Thread, nil},
	} {
		if a := w.send(foreign, r.method, r.path, r.body); a.status != 404 {
			t.Errorf("%s %s: %d %s", r.method, r.path, a.status, a.body)
		}
	}
	for _, path := range []string{"/v1/runs", "/v1/approvals"} {
		if a := w.send(foreign, "GET", path, nil); a.status != 200 || strings.Contains(string(a.body), run.ID) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if r := w.until(run.ID, func(api.Run) bool { return true }); r.Waiting != 3 {
		t.Errorf("it changed: %+v", r)
	}
}

// A key for runs alone watches or drives runs, and nothing else.
func TestScopes(t *testing.T) {
	w := newWorld(t, nil)
	run := w.start("x")
	watch, drive := w.NewKey(t, "default", key.RunsRead), w.NewKey(t, "default", key.RunsWrite)
	for _, tt := range []struct {
		secret, method, path string
		body                 any
		status               int
	}{
		{watch, "GET", "/v1/runs/" + run.ID, nil, 200},
		{watch, "POST", "/v1/runs", api.StartRun{Task: "x"}, 403},
		{watch, "POST", "/v1/runs/" + run.ID + "/cancel", nil, 403},
		{watch, "DELETE", "/v1/threads/" + run.Thread, nil, 403},
		{drive, "GET", "/v1/runs/" + run.ID, nil, 200},
		{drive, "POST", "/v1/runs", api.StartRun{Task: "x"}, 201},
		{"e2b_" + strings.Repeat("0", 40), "GET", "/v1/runs", nil, 401},
	} {
		if a := w.send(tt.secret, tt.method, tt.path, tt.body); a.status != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, a.status, tt.status)
		}
	}
}

func TestWithoutSupervisor(t *testing.T) {
	w := &world{t: t, Server: runstest.Serve(t, nil)}
	for _, path := range []string{"/v1/runs", "/v1/runs/run_aaaaaaaaaaaaaaaaaaaa/events", "/v1/follow", "/v1/agents"} {
		a := w.send(w.Key, "GET", path, nil)
		if a.status != 501 || !strings.Contains(string(a.body), `"class":"unsupported"`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}
