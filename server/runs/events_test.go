package runs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	agentruns "github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/runs"
	"github.com/skete-dev/skete/server/runs/runstest"
	"github.com/skete-dev/skete/thread"
)

// happened are the events of a tenant, 7 to 9; 8 cannot be shown. What comes behind them
// is the error, nil = nothing does.
func happened(end error) func(*runs.Config) {
	return func(c *runs.Config) {
		c.Events = func(_ context.Context, tenant string, from uint64) (runs.Events, error) {
			if from == 0 {
				from = 7
			}
			at := from
			return runs.Events{From: from, Next: func(ctx context.Context) (uint64, *api.Event, error) {
				seq := at
				at++
				switch {
				case seq > 9 && end != nil:
					return 0, nil, end
				case seq > 9:
					<-ctx.Done()
					return 0, nil, ctx.Err()
				case seq == 8:
					return seq, nil, nil
				}
				return seq, &api.Event{Seq: seq, Type: "sandbox.running", ID: tenant}, nil
			}}, nil
		}
	}
}

// told returns n messages of the topic events in short: "6" for one with a number alone,
// "7 sandbox.running TENANT", "denied: HINT" for a problem.
func (s *socket) told(n int) (all []string) {
	s.t.Helper()
	for len(all) < n {
		m, err := s.read()
		must(s.t, err)
		switch {
		case m.Heartbeat != nil:
		case m.Topic != api.TopicEvents:
			s.t.Fatalf("what is %+v?", m)
		case m.Problem != nil:
			all = append(all, m.Problem.Class+": "+m.Problem.Hint)
		case m.Domain != nil:
			all = append(all, fmt.Sprint(m.Seq, " ", m.Domain.Type, " ", m.Domain.ID))
		default:
			all = append(all, fmt.Sprint(m.Seq))
		}
	}
	return all
}

func TestSocket_events(t *testing.T) {
	w := newWorld(t, nil, happened(nil))
	w.Server.Key = w.NewKey(t, "mine", key.Read, key.RunsWrite)
	s := w.socket()
	for _, from := range []uint64{0, 7} {
		s.say(api.FollowRequest{Subscribe: api.TopicEvents, From: from, Live: true})
		// The first message says that it begins, and behind which event.
		if diff := cmp.Diff([]string{"6", "7 sandbox.running mine", "8", "9 sandbox.running mine"}, s.told(4)); diff != "" {
			t.Errorf("from %d: %s", from, diff)
		}
		s.say(api.FollowRequest{Subscribe: api.TopicEvents})
		if got := s.told(1); !strings.HasPrefix(got[0], "exists: ") {
			t.Errorf("twice: %q", got)
		}
		s.say(api.FollowRequest{Unsubscribe: api.TopicEvents})
	}
	s.say(api.FollowRequest{Subscribe: api.TopicEvents, From: 10})
	if diff := cmp.Diff([]string{"9"}, s.told(1)); diff != "" {
		t.Error(diff)
	}
	// A run is followed on the same connection.
	s.say(api.FollowRequest{Subscribe: "run:" + w.start("x").ID})
	if m, err := s.read(); err != nil || m.Event == nil && m.Problem == nil {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestSocket_eventsAreRefused(t *testing.T) {
	lost := errs.New(errs.Unavailable, "the events are gone")
	for name, tt := range map[string]struct {
		change []func(*runs.Config)
		scope  key.Scope
		req    api.FollowRequest
		want   []string
	}{
		"runs alone":   {[]func(*runs.Config){happened(nil)}, key.RunsRead, api.FollowRequest{}, []string{"denied: it needs the scope read"}},
		"no events":    {nil, key.Admin, api.FollowRequest{}, []string{"unsupported: "}},
		"with threads": {[]func(*runs.Config){happened(nil)}, key.Admin, api.FollowRequest{Threads: map[string]uint64{"thr_x": 1}}, []string{"invalid: leave them out for events"}},
		"that end":     {[]func(*runs.Config){happened(lost)}, key.Admin, api.FollowRequest{From: 9}, []string{"8", "9 sandbox.running default", "unavailable: "}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, tt.change...)
			w.Server.Key = w.NewKey(t, "default", tt.scope)
			s := w.socket()
			tt.req.Subscribe = api.TopicEvents
			for range 2 { // a topic that was refused is not open
				s.say(tt.req)
				if diff := cmp.Diff(tt.want, s.told(len(tt.want))); diff != "" {
					t.Error(diff)
				}
			}
			s.say(api.FollowRequest{Ping: 1}) // nor is the connection over
			if diff := cmp.Diff([]string{"pong 1"}, s.hear(1)); diff != "" {
				t.Error(diff)
			}
		})
	}
	w := newWorld(t, nil, happened(nil))
	s := w.socket()
	s.say(api.FollowRequest{Subscribe: "events:x"})
	if diff := cmp.Diff([]string{"events problem invalid"}, s.hear(1)); diff != "" {
		t.Error(diff)
	}
}

// A server without agents still tells what happens to its sandboxes.
func TestSocket_eventsWithoutSupervisor(t *testing.T) {
	w := &world{t: t, Server: runstest.Serve(t, nil, happened(nil))}
	s := w.socket()
	s.say(api.FollowRequest{Subscribe: api.TopicEvents})
	if diff := cmp.Diff([]string{"6", "7 sandbox.running default"}, s.told(2)); diff != "" {
		t.Error(diff)
	}
	s.say(api.FollowRequest{Unsubscribe: api.TopicEvents})
	s.say(api.FollowRequest{Subscribe: "run:run_aaaaaaaaaaaaaaaaaaaa"})
	for {
		m, err := s.read()
		must(t, err)
		if m.Problem != nil {
			if m.Problem.Class != "unsupported" {
				t.Errorf("%+v", m)
			}
			return
		}
	}
}

// pipes is a listener without a network, so that its time is that of a bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7733} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p.conns <- there
	return here, nil
}

// A page takes a connection for dead that says nothing for 12 seconds: while nothing
// happens there is a heartbeat every 5.
func TestSocket_heartbeatsOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		srv, err := runstest.OpenOn(ln, nil, happened(nil))
		must(t, err)
		ws, res, err := websocket.Dial(t.Context(), srv.URL+"/v1/follow", &websocket.DialOptions{
			HTTPClient: &http.Client{Transport: &http.Transport{DialContext: ln.dial}}, HTTPHeader: http.Header{"Authorization": {"Bearer " + srv.Key}},
		})
		must(t, err)
		if res.Body != nil {
			defer res.Body.Close()
		}
		for range 5 {
			begun := time.Now()
			_, data, err := ws.Read(t.Context())
			must(t, err)
			var m api.FollowMessage
			must(t, json.Unmarshal(data, &m))
			if m.Heartbeat == nil || time.Since(begun) > 5*time.Second {
				t.Errorf("%s after %s", data, time.Since(begun))
			}
		}
		_ = ws.CloseNow()
		must(t, srv.Close())
	})
}

// withSubagents is a Fake that has records of sub-agents too.
type withSubagents struct {
	*runstest.Fake
	records map[thread.ID]agentruns.Run
}

func (k *withSubagents) List(ctx context.Context, tenant string, f agentruns.Filter) (agentruns.Page, error) {
	if f.Thread.Depth() == 0 {
		return k.Fake.List(ctx, tenant, f)
	}
	r, ok := k.records[f.Thread]
	if !ok || !f.Subagents {
		return agentruns.Page{}, nil
	}
	return agentruns.Page{Runs: []agentruns.Run{r}}, nil
}

func TestOutline(t *testing.T) {
	fake := runstest.New(func(p *runstest.Play) {
		for i := 1; i <= 3; i++ {
			p.Answer(fmt.Sprint("step ", i), runstest.Call(fmt.Sprint("c", i), "execute", `{"command":"ls"}`))
			p.Run(fmt.Sprint("c", i), "execute", "a")
		}
		p.Answer("", runstest.Call("t1", "task", `{"description":"a","subagent_type":"scout"}`), runstest.Call("t2", "task", `{"description":"b","subagent_type":"scout","background":true}`),
			runstest.Call("t3", "task", `{"description":"c","subagent_type":"scout"}`), runstest.Call("t4", "task", `{"description":"d","subagent_type":"scout"}`))
		for _, c := range []string{"t1", "t2", "t3", "t4"} {
			p.Begin(c, "task")
		}
		p.Done("t2", "started")
		p.Append(thread.Input{From: "sub-agent", Name: "scout t2", Spent: thread.Spent{Steps: 2}})
		p.Done("t3", "found")
	})
	t.Cleanup(fake.Close)
	k := &withSubagents{fake, map[thread.ID]agentruns.Run{}}
	w := &world{t: t, Server: runstest.Serve(t, k), fake: fake}
	run := w.start("x")
	for call, r := range map[string]agentruns.Run{
		"t1": {State: thread.RunInterrupted, Steps: 5, Below: 2, CostUSD: 0.5},
		"t2": {State: thread.RunCancelled, Steps: 9, CostUSD: 9},
		"t3": {State: thread.RunRunning, Steps: 9, CostUSD: 9}, // its call has its result: that counts
	} {
		k.records[thread.ID(run.Thread).Sub(call)] = r
	}
	base := "/v1/runs/" + run.ID + "/outline"
	var o api.RunOutline
	w.until(run.ID, func(api.Run) bool {
		o = call[api.RunOutline](w, "GET", base, nil, 200)
		return len(o.Agents) == 4 && o.Agents[2].EndedSeq > 0
	})
	var agents []string
	for _, a := range o.Agents {
		agents = append(agents, fmt.Sprint(strings.TrimPrefix(a.Thread, run.Thread), " ", a.Agent, " ", a.State, " ", a.Steps, " ", a.CostUSD))
	}
	want := []string{"/t1 scout interrupted 7 0.5", "/t2 scout cancelled 2 0", "/t3 scout succeeded 0 0", "/t4 scout running 0 0"}
	if diff := cmp.Diff(want, agents); diff != "" {
		t.Error(diff)
	}
	if o.Run != run.ID || o.Thread != run.Thread || o.State != "running" || o.FirstSeq != 2 || o.Total != 4 || len(o.Steps) != 4 || o.Steps[0].Text != "step 1" || o.Steps[3].Kind != "agent" {
		t.Errorf("%+v", o)
	}
	o = call[api.RunOutline](w, "GET", base+"?last=2&before=4", nil, 200)
	if len(o.Steps) != 2 || o.Steps[0].Step != 2 || o.Before != 2 || o.Total != 4 {
		t.Errorf("%+v", o)
	}
	for _, bad := range []string{"?last=20001", "?last=-1", "?before=-1", "?last=x", "?other=1"} {
		if a := w.send(w.Key, "GET", base+bad, nil); a.status != 400 {
			t.Errorf("%s: %d %s", bad, a.status, a.body)
		}
	}
}
