package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	eventlog "github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/internal/patience"
)

// event is one server-sent event.
type event struct {
	id, name string
	data     []byte
}

// events reads a stream of events; close ends it as a vanished client would.
type events struct {
	t      *testing.T
	r      *bufio.Reader
	lastID string
	close  func()
	res    *http.Response
}

func (w *world) events(t *testing.T, path, lastID string) *events {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), 60*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+path, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+w.admin)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	res, err := httpClient(t).Do(req)
	must(t, err)
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("%s: %s, %s", path, res.Status, res.Header.Get("Content-Type"))
	}
	e := &events{t: t, r: bufio.NewReaderSize(res.Body, 1<<20), lastID: lastID, res: res}
	e.close = func() { cancel(); res.Body.Close() }
	t.Cleanup(e.close)
	return e
}

// next returns the next event; ok is false at the end of the stream.
func (e *events) next() (ev event, ok bool) {
	e.t.Helper()
	for {
		line, err := e.r.ReadString('\n')
		if err != nil {
			return ev, false
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			ev.id, e.lastID = value, value
		case "event":
			ev.name = value
		case "data":
			ev.data = []byte(value)
		case "":
			if ev.name != "" {
				return ev, true
			}
		}
	}
}

func (e *events) must(name string) event {
	e.t.Helper()
	ev, ok := e.next()
	if !ok || ev.name != name {
		e.t.Fatalf("event %q (ok %v, data %s), want %q", ev.name, ok, ev.data, name)
	}
	return ev
}

func (e *events) output(name string) api.OutputEvent {
	e.t.Helper()
	var o api.OutputEvent
	must(e.t, json.Unmarshal(e.must(name).data, &o))
	return o
}

func TestOutputEventsResume(t *testing.T) {
	w := newWorld(t)
	sb := "/v1/sandboxes/" + w.sandbox()
	var p api.Process
	w.call(t, w.admin, http.MethodPost, sb+"/processes", api.StartProcess{Command: "echo one; echo two >&2; read x; echo three", Stdin: true}, http.StatusCreated, &p)
	path := sb + "/processes/" + p.Key
	e := w.events(t, path+"/output", "")
	if got := e.output("started"); got.Process == nil || got.Process.Key != p.Key {
		t.Errorf("started with %+v", got)
	}
	seen := map[string]string{}
	for len(seen) < 2 {
		ev, ok := e.next()
		if !ok {
			t.Fatal("the stream ended")
		}
		var o api.OutputEvent
		must(t, json.Unmarshal(ev.data, &o))
		seen[ev.name] += string(o.Data)
	}
	if seen["stdout"] != "one\n" || seen["stderr"] != "two\n" || e.lastID != "4:4" {
		t.Errorf("saw %v up to %s", seen, e.lastID)
	}
	e.close()
	w.send(t, w.admin, http.MethodPost, path+"/stdin?offset=0&eof=true", strings.NewReader("\n"))
	w.call(t, w.admin, http.MethodGet, path+"/wait", nil, http.StatusOK, nil)
	again := w.events(t, path+"/output", e.lastID)
	again.must("started")
	if o := again.output("stdout"); string(o.Data) != "three\n" || o.Offset != 4 {
		t.Errorf("resumed with %+v", o)
	}
	if o := again.output("exited"); o.Process == nil || o.Process.Exit == nil || o.Process.Exit.Code != 0 {
		t.Errorf("exited with %+v", o)
	}
	if ev, ok := again.next(); ok {
		t.Errorf("behind the end: %+v", ev)
	}
	// Nothing new: the same id gives the end at once, without the bytes.
	end := w.events(t, path+"/output", again.lastID)
	end.must("started")
	end.must("exited")
}

func TestOutputEventsWithoutFollowing(t *testing.T) {
	w := newWorld(t)
	sb := "/v1/sandboxes/" + w.sandbox()
	s := w.exec(t, api.StartProcess{Key: "going-on", Command: "echo here; exec sleep 600"})
	for s.next().kind != api.FrameStdout {
	}
	e := w.events(t, sb+"/processes/going-on/output?follow=false&stdout_from=1", "")
	e.must("started")
	if o := e.output("stdout"); string(o.Data) != "ere\n" || o.Offset != 1 {
		t.Errorf("got %+v", o)
	}
	if ev, ok := e.next(); ok {
		t.Errorf("it goes on: %+v", ev)
	}
}

func TestFileEventsResume(t *testing.T) {
	w := newWorld(t)
	sb := "/v1/sandboxes/" + w.sandbox()
	dir := t.TempDir() // the process provider shows the host's files
	e := w.events(t, sb+"/files/watch?path="+dir, "")
	made := func(e *events) string {
		t.Helper()
		for {
			ev, ok := e.next()
			if !ok {
				t.Fatal("the stream ended")
			}
			var f api.FileEvent
			must(t, json.Unmarshal(ev.data, &f))
			if ev.name != f.Type || !strings.HasSuffix(ev.id, fmt.Sprintf(":%d", f.Seq)) {
				t.Fatalf("id %q, name %q, data %s", ev.id, ev.name, ev.data)
			}
			if f.Type == "create" {
				return strings.TrimPrefix(f.Path, dir+"/")
			}
		}
	}
	mkdir := func(name string) {
		w.call(t, w.admin, http.MethodPost, sb+"/files/mkdir", api.MakeDir{Path: dir + "/" + name}, http.StatusOK, nil)
	}
	mkdir("a")
	if got := made(e); got != "a" {
		t.Errorf("created %q", got)
	}
	e.close()
	mkdir("b") // while no stream is open
	again := w.events(t, sb+"/files/watch?path="+dir, e.lastID)
	mkdir("c")
	if first, second := made(again), made(again); first != "b" || second != "c" {
		t.Errorf("resumed with %q, %q", first, second)
	}
}

func TestSandboxEventsResume(t *testing.T) {
	w := newWorld(t)
	e := w.events(t, "/v1/sandboxes/events", "")
	sb := w.create(t, api.CreateSandbox{})
	until := func(e *events, state string) {
		t.Helper()
		for {
			ev, ok := e.next()
			if !ok {
				t.Fatalf("the stream ended before %s", state)
			}
			var s api.SandboxEvent
			must(t, json.Unmarshal(ev.data, &s))
			if ev.name != "change" || s.Resync {
				t.Fatalf("event %q: %s", ev.name, ev.data)
			}
			if s.Sandbox.ID == sb.ID && s.Sandbox.State == state {
				return
			}
		}
	}
	until(e, "running")
	e.close()
	w.call(t, w.admin, http.MethodPost, "/v1/sandboxes/"+sb.ID+"/stop", nil, http.StatusOK, nil)
	until(w.events(t, "/v1/sandboxes/events", e.lastID), "stopped")
	// A place that the server does not know is answered with resync.
	if ev := w.events(t, "/v1/sandboxes/events", "1000000").must("resync"); len(ev.data) == 0 {
		t.Error("resync without data")
	}
}

// One stream tells of all that happens, by kind if wanted, from any number on,
// to its tenant only.
func TestFollowEvents(t *testing.T) {
	w := newWorld(t)
	now := w.events(t, "/v1/events", "")
	w.store.Events().Append(eventlog.Event{
		Time: time.Now(), Tenant: "default", Node: "test", Kind: eventlog.Run, ID: "run_x", State: "running", Revision: 1,
		Data: json.RawMessage(`{"id":"run_x","thread":"thr_x","state":"running","agent":"default"}`),
	})
	w.store.Events().Append(eventlog.Event{Time: time.Now(), Tenant: "stranger", Node: "test", Kind: eventlog.Run, ID: "run_y", State: "running", Revision: 2})
	sb := w.create(t, api.CreateSandbox{})
	read := func(e *events, name string) api.Event {
		t.Helper()
		ev := e.must(name)
		var got api.Event
		must(t, json.Unmarshal(ev.data, &got))
		if got.Type != name && !got.Resync || ev.id != strconv.FormatUint(got.Seq, 10) {
			t.Errorf("event %q with id %q: %s", name, ev.id, ev.data)
		}
		return got
	}
	run := read(now, "run.running")
	if run.ID != "run_x" || run.Run == nil || run.Run.Agent != "default" || run.Sandbox != nil {
		t.Errorf("%+v", run)
	}
	read(now, "sandbox.creating")
	up := read(now, "sandbox.running")
	if up.ID != sb.ID || up.Sandbox == nil || up.Sandbox.State != "running" || up.Seq <= run.Seq {
		t.Errorf("%+v", up)
	}
	all := w.events(t, "/v1/events?from=1&kind=sandbox", "")
	if first := read(all, "sandbox.creating"); first.ID != sb.ID {
		t.Errorf("%+v", first)
	}
	w.call(t, w.admin, http.MethodPost, "/v1/sandboxes/"+sb.ID+"/stop", nil, http.StatusOK, nil)
	again := w.events(t, "/v1/events?kind=sandbox", strconv.FormatUint(up.Seq, 10))
	if down := read(again, "sandbox.stopped"); down.Seq <= up.Seq {
		t.Errorf("%+v", down)
	}
	if lost := read(w.events(t, "/v1/events?from=1000000", ""), "resync"); lost.Type != "" || !lost.Resync {
		t.Errorf("%+v", lost)
	}
}

// The same events come over the WebSocket that a page has open anyway, and go on behind
// the number that it heard last.
func TestFollowEvents_socket(t *testing.T) {
	w := newWorld(t)
	tell := func(tenant, id string, data string) {
		w.store.Events().Append(eventlog.Event{Time: time.Now(), Tenant: tenant, Node: "test", Kind: eventlog.Run, ID: id, State: "running", Revision: 1, Data: json.RawMessage(data)})
	}
	tell("default", "run_before", `{"id":"run_before"}`)
	secret, _ := w.key(t, "default", "read", "runs:read")
	s, _, err := w.socketAt(t, secret, "/v1/follow")
	must(t, err)
	say := func(req api.FollowRequest) {
		t.Helper()
		data, err := json.Marshal(req)
		must(t, err)
		must(t, s.ws.Write(t.Context(), websocket.MessageText, data))
	}
	read := func() (m api.FollowMessage) {
		t.Helper()
		ctx, cancel := patience.Context(t.Context(), 20*time.Second)
		defer cancel()
		_, data, err := s.ws.Read(ctx)
		must(t, err)
		must(t, json.Unmarshal(data, &m))
		return m
	}
	leave := func() { // when it is answered, the topic is closed
		t.Helper()
		say(api.FollowRequest{Unsubscribe: api.TopicEvents})
		say(api.FollowRequest{Ping: 7})
		for read().Pong != 7 {
		}
	}
	last := uint64(0)
	next := func() (m api.FollowMessage) {
		t.Helper()
		for m = read(); m.Topic == ""; m = read() { // heartbeats
		}
		if m.Topic != api.TopicEvents || m.Problem != nil || m.Domain != nil && m.Domain.Seq != m.Seq {
			t.Fatalf("%+v", m)
		}
		last = m.Seq
		return m
	}
	say(api.FollowRequest{Subscribe: api.TopicEvents})
	if first := next(); first.Domain != nil || first.Seq == 0 {
		t.Fatalf("it begins with %+v", first)
	}
	begun := last
	// From here on nothing is missed.
	tell("default", "run_x", `{"id":"run_x","agent":"default"}`)
	tell("stranger", "run_y", `{"id":"run_y"}`)
	tell("default", "run_broken", `"no run"`)
	sb := w.create(t, api.CreateSandbox{})
	var got []string
	for range 4 {
		m := next()
		if m.Domain == nil {
			got = append(got, "not shown")
			continue
		}
		got = append(got, m.Domain.Type+" "+m.Domain.ID)
	}
	want := []string{"run.running run_x", "not shown", "sandbox.creating " + sb.ID, "sandbox.running " + sb.ID}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	up := last
	leave()
	w.call(t, w.admin, http.MethodPost, "/v1/sandboxes/"+sb.ID+"/stop", nil, http.StatusOK, nil)
	say(api.FollowRequest{Subscribe: api.TopicEvents, From: up + 1})
	if m := next(); m.Domain != nil || m.Seq != up {
		t.Errorf("again it begins with %+v, not %d", m, up)
	}
	if m := next(); m.Domain == nil || m.Domain.Type != "sandbox.stopped" || m.Domain.Sandbox == nil || m.Domain.Sandbox.ID != sb.ID {
		t.Errorf("%+v", m)
	}
	// Where the first message said, there it goes on as well.
	leave()
	say(api.FollowRequest{Subscribe: api.TopicEvents, From: begun + 1})
	if m := next(); m.Domain != nil || m.Seq != begun {
		t.Errorf("%+v", m)
	}
	if m := next(); m.Domain == nil || m.Domain.Run == nil || m.Domain.ID != "run_x" {
		t.Errorf("%+v", m)
	}
	leave()
	say(api.FollowRequest{Subscribe: api.TopicEvents, From: 1_000_000})
	for {
		if m := next(); m.Domain != nil && m.Domain.Resync {
			break
		}
	}
}

func TestStopEndsStreamsWithAReason(t *testing.T) {
	w := newWorld(t)
	s := w.exec(t, api.StartProcess{Key: "lives-on", Argv: []string{"/bin/sleep", "600"}})
	s.next()
	e := w.events(t, "/v1/sandboxes/"+w.sandbox()+"/processes/lives-on/output", "")
	e.must("started")
	waited := make(chan answer, 1)
	go func() {
		waited <- w.send(t, w.admin, http.MethodGet, "/v1/sandboxes/"+w.sandbox()+"/processes/lives-on/wait?wait_ms=600000", nil)
	}()
	patience.Until(t, 10*time.Second, "three streams", func() bool { return w.server.Streams() >= 3 })
	patience.Within(t, 10*time.Second, "the server to stop", func() { w.shutdown(t) })
	if r := s.rest(); r.Problem.Class != "unavailable" {
		t.Errorf("the WebSocket ended with %+v", r.Problem)
	}
	e.must("problem")
	(<-waited).problem(t, http.StatusServiceUnavailable)
	if w.server.Streams() != 0 {
		t.Errorf("%d streams are left", w.server.Streams())
	}
}

func TestStreamsPerKeyAreBounded(t *testing.T) {
	w := newWorld(t, func(c *serverConfig) { c.Limits.StreamsPerKey = 2 })
	first := w.events(t, "/v1/sandboxes/events", "")
	w.events(t, "/v1/sandboxes/events", "")
	w.send(t, w.admin, http.MethodGet, "/v1/sandboxes/events", nil).problem(t, http.StatusTooManyRequests)
	other, _ := w.key(t, "default", "read")
	if a := w.send(t, other, http.MethodGet, "/v1/sandboxes/events", nil); a.status != http.StatusOK {
		t.Errorf("another key: %d", a.status)
	}
	first.close()
	deadline := time.Now().Add(patience.Of(10 * time.Second))
	for w.send(t, w.admin, http.MethodGet, "/v1/sandboxes/events", nil).status != http.StatusOK {
		if time.Now().After(deadline) {
			t.Fatal("the place of a closed stream is not given again")
		}
	}
}
