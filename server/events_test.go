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
