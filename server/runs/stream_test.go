package runs_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	news "github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/runs"
	"github.com/skete-dev/skete/server/runs/runstest"
	"github.com/skete-dev/skete/thread"
)

// sse is an event stream; each of its events is a line "id name data".
type sse struct {
	t     *testing.T
	r     *bufio.Reader
	close func()
}

func (w *world) sse(path, last string) *sse {
	w.t.Helper()
	ctx, cancel := patience.Context(w.t.Context(), 30*time.Second)
	req, err := http.NewRequestWithContext(ctx, "GET", w.URL+path, nil)
	must(w.t, err)
	req.Header.Set("Authorization", "Bearer "+w.Key)
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := w.client().Do(req)
	must(w.t, err)
	if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		w.t.Fatalf("%s: %s", path, res.Status)
	}
	s := &sse{w.t, bufio.NewReader(res.Body), func() { cancel(); res.Body.Close() }}
	w.t.Cleanup(s.close)
	return s
}

type sseEvent struct{ id, name, data string }

// next returns the next event; "" when the stream has ended.
func (s *sse) next() (ev sseEvent) {
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			return sseEvent{}
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			ev.id = value
		case "event":
			ev.name = value
		case "data":
			ev.data = value
		case "":
			if ev.name != "" {
				return ev
			}
		}
	}
}

// brief is "3 input", "live hello", "end succeeded"; heartbeats are left out.
func (s *sse) brief() string {
	s.t.Helper()
	for {
		ev := s.next()
		switch ev.name {
		case "":
			return "-"
		case "event":
			var e api.RunEvent
			must(s.t, json.Unmarshal([]byte(ev.data), &e))
			if fmt.Sprint(e.Seq) != ev.id {
				s.t.Errorf("event %d has the id %s", e.Seq, ev.id)
			}
			return ev.id + " " + e.Kind
		case "heartbeat":
			continue
		case "live":
			var l api.Live
			must(s.t, json.Unmarshal([]byte(ev.data), &l))
			if ev.id != "" {
				s.t.Errorf("live news have the id %s", ev.id)
			}
			return "live " + l.Text
		default:
			return ev.name + " " + ev.data
		}
	}
}

func (s *sse) rest() (all []string) {
	for {
		b := s.brief()
		all = append(all, b)
		if b == "-" {
			return all
		}
	}
}

func TestSSE_resumes(t *testing.T) {
	gate := make(chan struct{})
	w := newWorld(t, func(p *runstest.Play) {
		p.Answer("one", runstest.Call("c1", "ls", `{}`))
		p.Until(gate)
		p.Run("c1", "ls", "out")
		p.End(thread.RunSucceeded, "ok")
	})
	run := w.start("x")
	path := "/v1/runs/" + run.ID + "/events"
	s := w.sse(path, "")
	first := []string{s.brief(), s.brief(), s.brief()}
	if diff := cmp.Diff([]string{"2 run.started", "3 input", "4 model.completed"}, first); diff != "" {
		t.Error(diff)
	}
	s.close()
	close(gate)
	w.until(run.ID, api.Run.Final)
	want := []string{"5 tool.started", "6 tool.completed", "7 run.ended", `end {"seq":7,"state":"succeeded"}`, "-"}
	if diff := cmp.Diff(want, w.sse(path, "4").rest()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[2:], w.sse(path+"?from=7", "").rest()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[3:], w.sse(path, "7").rest()); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"x", "-1", "1:2", "99999999999999999999"} {
		if a := w.send(w.Key, "GET", path, nil, "Last-Event-ID", bad); a.status != 400 {
			t.Errorf("Last-Event-ID %s: %d", bad, a.status)
		}
	}
}

func TestSSE_once(t *testing.T) {
	w := newWorld(t, nil)
	run := w.start("x")
	if diff := cmp.Diff([]string{"2 run.started", "3 input", "-"}, w.sse("/v1/runs/"+run.ID+"/events?follow=false", "").rest()); diff != "" {
		t.Error(diff)
	}
}

func TestSSE_live(t *testing.T) {
	gate := make(chan struct{})
	w := newWorld(t, func(p *runstest.Play) {
		p.Until(gate)
		for _, part := range []string{"He", "llo"} {
			p.Live(news.Live{Kind: news.LiveText, Text: part})
		}
		p.Answer("Hello")
		p.End(thread.RunSucceeded, "Hello")
	})
	run := w.start("x")
	quiet, loud := w.sse("/v1/runs/"+run.ID+"/events", ""), w.sse("/v1/runs/"+run.ID+"/events?live=true", "")
	for _, s := range []*sse{quiet, loud} {
		s.brief()
		s.brief()
	}
	close(gate)
	text := ""
	var others []string
	for _, line := range loud.rest() {
		if part, ok := strings.CutPrefix(line, "live "); ok {
			text += part
			continue
		}
		others = append(others, line)
	}
	// News that come after the event that has them all may be left out.
	if !strings.HasPrefix("Hello", text) {
		t.Errorf("live text %q", text)
	}
	if diff := cmp.Diff(quiet.rest(), others); diff != "" {
		t.Errorf("(-without live +with)\n%s", diff)
	}
}

func TestSSE_heartbeats(t *testing.T) {
	w := newWorld(t, nil, func(c *runs.Config) { c.HeartbeatEvery = 5 * time.Millisecond })
	s := w.sse("/v1/runs/"+w.start("x").ID+"/events", "")
	beats := 0
	for beats < 3 {
		ev := s.next()
		if ev.name == "" {
			t.Fatal("the stream ended")
		}
		if ev.name == "heartbeat" {
			beats++
			if ev.id != "" || !strings.HasPrefix(ev.data, `{"time":"`) {
				t.Errorf("%+v", ev)
			}
		}
	}
}

// socket is a WebSocket of /v1/follow.
type socket struct {
	t  *testing.T
	ws *websocket.Conn
}

func (w *world) socket() *socket {
	w.t.Helper()
	ws, res, err := websocket.Dial(w.t.Context(), w.URL+"/v1/follow", &websocket.DialOptions{
		HTTPClient: w.client(), HTTPHeader: http.Header{"Authorization": {"Bearer " + w.Key}},
	})
	must(w.t, err)
	if res.Body != nil {
		defer res.Body.Close()
	}
	ws.SetReadLimit(api.FollowMessageBytesMax)
	w.t.Cleanup(func() { _ = ws.CloseNow() })
	return &socket{w.t, ws}
}

func (s *socket) say(req any) {
	s.t.Helper()
	data, is := req.(string)
	if !is {
		b, err := json.Marshal(req)
		must(s.t, err)
		data = string(b)
	}
	must(s.t, s.ws.Write(s.t.Context(), websocket.MessageText, []byte(data)))
}

func (s *socket) read() (m api.FollowMessage, err error) {
	ctx, cancel := patience.Context(s.t.Context(), 20*time.Second)
	defer cancel()
	_, data, err := s.ws.Read(ctx)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(data, &m)
}

// hear returns n messages in short: "run 3 input", "tree /c1 2 run.started", "run end", "run problem not_found", "pong 7".
func (s *socket) hear(n int) (all []string) {
	s.t.Helper()
	for len(all) < n {
		m, err := s.read()
		if err != nil {
			s.t.Fatalf("after %q: %v", all, err)
		}
		kind, _, _ := strings.Cut(m.Topic, ":")
		if _, sub, ok := strings.Cut(m.Thread, "/"); ok {
			kind += " /" + sub
		}
		switch {
		case m.Heartbeat != nil:
			continue
		case m.Event != nil:
			all = append(all, fmt.Sprintf("%s %d %s", kind, m.Seq, m.Event.Kind))
		case m.Live != nil:
			all = append(all, kind+" live "+m.Live.Text)
		case m.End != nil:
			all = append(all, kind+" end "+m.End.State)
		case m.Problem != nil:
			all = append(all, kind+" problem "+m.Problem.Class)
		case m.Pong != 0:
			all = append(all, fmt.Sprint("pong ", m.Pong))
		default:
			s.t.Fatalf("what is %+v?", m)
		}
	}
	return all
}

func TestSocket_topics(t *testing.T) {
	gate := make(chan struct{})
	w := newWorld(t, func(p *runstest.Play) {
		p.Until(gate)
		p.End(thread.RunSucceeded, "ok")
	})
	a, b := w.start("a"), w.start("b")
	s := w.socket()
	s.say(api.FollowRequest{Subscribe: "run:" + a.ID})
	if diff := cmp.Diff([]string{"run 2 run.started", "run 3 input"}, s.hear(2)); diff != "" {
		t.Error(diff)
	}
	s.say(api.FollowRequest{Subscribe: "run:" + b.ID, From: 3})
	if diff := cmp.Diff([]string{"run 3 input"}, s.hear(1)); diff != "" {
		t.Error(diff)
	}
	s.say(api.FollowRequest{Ping: 7})
	if diff := cmp.Diff([]string{"pong 7"}, s.hear(1)); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct{ topic, want string }{
		{"run:" + a.ID, "run problem exists"},
		{"run:run_bbbbbbbbbbbbbbbbbbbb", "run problem not_found"},
		{"run:nonsense", "run problem invalid"},
		{"other:x", "other problem invalid"},
		{"x", "x problem invalid"},
	} {
		s.say(api.FollowRequest{Subscribe: tt.topic})
		if diff := cmp.Diff([]string{tt.want}, s.hear(1)); diff != "" {
			t.Errorf("%s: %s", tt.topic, diff)
		}
	}
	s.say(api.FollowRequest{Unsubscribe: "run:" + b.ID})
	s.say(api.FollowRequest{Ping: 8})
	s.hear(1)
	close(gate)
	if diff := cmp.Diff([]string{"run 4 run.ended", "run end succeeded"}, s.hear(2)); diff != "" {
		t.Error(diff)
	}
	// A topic that is over may be opened again.
	s.say(api.FollowRequest{Subscribe: "run:" + a.ID, From: 4})
	if diff := cmp.Diff([]string{"run 4 run.ended", "run end succeeded"}, s.hear(2)); diff != "" {
		t.Error(diff)
	}
}

func TestSocket_tree(t *testing.T) {
	gate := make(chan struct{})
	w := newWorld(t, func(p *runstest.Play) {
		p.Answer("", runstest.Call("c1", "task", `{"description":"look","subagent_type":"scout"}`))
		p.Begin("c1", "task")
		sub := p.Sub("c1", "scout", "look")
		p.Until(gate)
		sub.Live(news.Live{Kind: news.LiveText, Text: "found"})
		sub.Answer("found")
		sub.End(thread.RunSucceeded, "found")
		p.Done("c1", "found")
		p.End(thread.RunSucceeded, "ok")
	})
	run := w.start("x")
	s := w.socket()
	s.say(api.FollowRequest{Subscribe: "tree:" + run.ID, Live: true})
	got := s.hear(7)
	close(gate)
	for last := ""; !strings.HasPrefix(last, "tree end"); {
		last = s.hear(1)[0]
		got = append(got, last)
	}
	for _, want := range []string{"tree 2 run.started", "tree 5 tool.started", "tree /c1 3 input", "tree /c1 4 model.completed", "tree /c1 5 run.ended", "tree 7 run.ended"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing: %q", want, got)
		}
	}
	// Resume by sequence, each thread for itself.
	s.say(api.FollowRequest{Subscribe: "tree:" + run.ID, From: 7, Threads: map[string]uint64{run.Thread + "/c1": 5}})
	again := s.hear(3)
	slices.Sort(again)
	if diff := cmp.Diff([]string{"tree /c1 5 run.ended", "tree 7 run.ended", "tree end succeeded"}, again); diff != "" {
		t.Error(diff)
	}
}

// A message that cannot be right ends the connection with a reason.
func TestSocket_badMessages(t *testing.T) {
	w := newWorld(t, nil)
	for _, bad := range []string{
		"", "{", "null", "[]", `{"subscribe":"a","ping":1}`, `{}`, `{"subscribe":1}`, `{"other":1}`, `{"ping":1}{"ping":2}`, `{"from":3}`,
		strings.Repeat("x", api.FollowRequestBytesMax+1),
	} {
		s := w.socket()
		s.say(bad)
		m, err := s.read()
		if err == nil {
			if m.Problem == nil || m.Topic != "" || m.Problem.Class != "invalid" {
				t.Errorf("%.40q: %+v", bad, m)
			}
			_, err = s.read()
		}
		if code := websocket.CloseStatus(err); code != websocket.StatusPolicyViolation && code != websocket.StatusMessageTooBig {
			t.Errorf("%.40q: the connection ended with %v", bad, err)
		}
	}
	s := w.socket()
	must(t, s.ws.Write(t.Context(), websocket.MessageBinary, []byte(`{"ping":1}`)))
	if m, err := s.read(); err != nil || m.Problem == nil {
		t.Errorf("a binary message: %+v, %v", m, err)
	}
}

func TestSocket_bounds(t *testing.T) {
	w := newWorld(t, nil)
	s := w.socket()
	var problems int
	for range 65 {
		s.say(api.FollowRequest{Subscribe: "run:" + w.start("x").ID, From: 100})
	}
	for problems == 0 {
		if got := s.hear(1); got[0] == "run problem limit" {
			problems++
		}
	}
}

func TestSocket_heartbeats(t *testing.T) {
	w := newWorld(t, nil, func(c *runs.Config) { c.HeartbeatEvery = 5 * time.Millisecond })
	s := w.socket()
	for range 3 {
		if m, err := s.read(); err != nil || m.Heartbeat == nil {
			t.Fatalf("%+v, %v", m, err)
		}
	}
}

// A client that reads nothing holds up neither the run nor other clients.
func TestSocket_slowClient(t *testing.T) {
	gate := make(chan struct{})
	const n = 300
	w := newWorld(t, func(p *runstest.Play) {
		p.Until(gate)
		text := strings.Repeat("x", 16<<10)
		for range n {
			p.Live(news.Live{Kind: news.LiveOutput, Call: "c", Text: text})
			p.Append(thread.Input{From: "user", Blocks: []llm.Block{llm.Text(text)}})
		}
		p.End(thread.RunSucceeded, "ok")
	})
	run := w.start("x")
	slow, quick := w.socket(), w.socket()
	for _, s := range []*socket{slow, quick} {
		s.say(api.FollowRequest{Subscribe: "run:" + run.ID, Live: true})
	}
	if got := quick.hear(2); got[1] != "run 3 input" {
		t.Fatal(got)
	}
	close(gate)
	read := func(s *socket) (events int, gap bool) {
		for {
			m, err := s.read()
			must(t, err)
			gap = gap || m.Gap != nil
			if m.Event != nil && m.Event.Kind == "input" {
				events++
			}
			if m.End != nil {
				return events, gap
			}
		}
	}
	if events, _ := read(quick); events != n {
		t.Errorf("the quick one saw %d events", events)
	}
	events, gap := read(slow)
	if events != n+1 || !gap {
		t.Errorf("the slow one saw %d events of %d, told of a gap: %v", events, n+1, gap)
	}
}

func TestSocket_revokedKey(t *testing.T) {
	w := newWorld(t, nil)
	w.Server.Key = w.NewKey(t, "default", key.RunsRead)
	s := w.socket()
	s.say(api.FollowRequest{Ping: 1})
	s.hear(1)
	w.CutAll()
	m, err := s.read()
	if err != nil || m.Problem == nil || m.Problem.Class != "denied" {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestLatency is a promise: an event is at an SSE client within 10 ms (p99).
func TestLatency(t *testing.T) {
	const n = 500
	sent := make(chan time.Time, 1)
	gate := make(chan struct{})
	w := newWorld(t, func(p *runstest.Play) {
		p.Until(gate)
		for range n {
			now := time.Now()
			p.Append(thread.Input{From: "user", ID: now.String()})
			sent <- now
		}
		p.End(thread.RunSucceeded, "ok")
	})
	s := w.sse("/v1/runs/"+w.start("x").ID+"/events", "")
	s.brief()
	s.brief()
	close(gate)
	var took []time.Duration
	for range n {
		if got := s.brief(); !strings.HasSuffix(got, "input") {
			t.Fatal(got)
		}
		took = append(took, time.Since(<-sent))
	}
	slices.Sort(took)
	p50, p99 := took[n/2], took[n*99/100]
	t.Logf("append to client: p50 %v, p99 %v, max %v", p50, p99, took[n-1])
	if p50 > patience.Of(50*time.Millisecond) { // a poll or a buffer would delay each of them
		t.Errorf("p50 %v", p50)
	}
}

func FuzzFollowRequest(f *testing.F) {
	f.Add([]byte(`{"subscribe":"run:x","from":3,"live":true}`), true)
	f.Add([]byte(`{"ping":1} `), true)
	f.Fuzz(func(t *testing.T, data []byte, text bool) {
		req, err := runs.ParseRequest(text, data)
		if err != nil {
			return
		}
		ways := 0
		for _, set := range []bool{req.Subscribe != "", req.Unsubscribe != "", req.Ping != 0} {
			if set {
				ways++
			}
		}
		if !text || ways != 1 {
			t.Errorf("%q was taken as %+v", data, req)
		}
	})
}

// A client that hears of the end and asks for the run sees it ended, though the
// record of a run follows its log.
func TestStream_endsWhenTheRecordSaysSo(t *testing.T) {
	w := newWorld(t, succeed)
	w.fake.Behind = 5
	run := w.start("x")
	s := w.sse("/v1/runs/"+run.ID+"/events?follow=true", "")
	for ev := s.next(); ev.name != "end"; ev = s.next() {
		if ev.name == "" {
			t.Fatal("the stream ended without its end")
		}
	}
	if now := call[api.Run](w, "GET", "/v1/runs/"+run.ID, nil, 200); !now.Final() {
		t.Errorf("after the end it is %s", now.State)
	}
}
