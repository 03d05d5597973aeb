package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skete-dev/skete/api"
)

// feed lies between a browser and a server. It hands on all that they say, and adds events to
// a run, as fast as a test wants, each with the time at which it was sent. To a page that is no
// more than a WebSocket and a list it sends the same: that is what this machine's browser can do.
type feed struct {
	*httptest.Server
	to string

	mu      sync.Mutex
	sockets map[string]*websocket.Conn // that events go to, by the topic that was subscribed
	opened  chan string                // topics that were subscribed
}

// barePath is the page without the UI, and its WebSocket below.
const barePath = "/bare"

func newFeed(t *testing.T, to string) *feed {
	t.Helper()
	f := &feed{to: to, sockets: map[string]*websocket.Conn{}, opened: make(chan string, 64)}
	back := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: to})
		r.Out.Host = r.In.Host // the server looks at it
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+barePath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(barePage))
	})
	mux.HandleFunc("GET "+barePath+"/follow", f.bare)
	mux.HandleFunc("GET /v1/follow", f.relay)
	mux.Handle("/", back)
	f.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func (f *feed) address() string { return f.Listener.Addr().String() }

// barePage paints each event as a line at the end of a list, in the frame after it came.
const barePage = `<!doctype html><title>skete</title><body><main><h1>bare</h1><input aria-label="Message">
<div role="feed" style="height:600px;overflow:auto"></div></main><script>
const feed = document.querySelector('[role=feed]');
let due = [];
const ws = new WebSocket(location.origin.replace('http', 'ws') + '/bare/follow');
ws.onmessage = (e) => {
  const m = JSON.parse(e.data);
  if (!due.length) requestAnimationFrame(draw);
  due.push(m);
};
function draw() {
  for (const m of due) {
    if (m.event.kind !== 'model.completed') continue;
    const row = document.createElement('div');
    row.dataset.seq = m.event.seq;
    row.textContent = JSON.stringify(m.event.data);
    feed.append(row);
    while (feed.childElementCount > 50) feed.firstElementChild.remove();
  }
  due = [];
  feed.scrollTop = feed.scrollHeight;
}
</script>`

func (f *feed) bare(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	f.keep(barePath, ws)
	_, _, _ = ws.Read(r.Context()) // until it is gone
}

func (f *feed) keep(topic string, ws *websocket.Conn) {
	f.mu.Lock()
	f.sockets[topic] = ws
	f.mu.Unlock()
	f.opened <- topic
}

// relay hands on what a browser and the server say on a WebSocket.
func (f *feed) relay(w http.ResponseWriter, r *http.Request) {
	header := http.Header{}
	for _, name := range []string{"Cookie", "Origin"} {
		header[name] = r.Header[name]
	}
	up, _, err := websocket.Dial(r.Context(), "ws://"+f.to+r.URL.RequestURI(), &websocket.DialOptions{HTTPHeader: header, Host: r.Host})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = up.CloseNow() }()
	up.SetReadLimit(-1)
	down, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // the server has looked at the origin
	if err != nil {
		return
	}
	defer func() { _ = down.CloseNow() }()
	var both sync.WaitGroup
	both.Go(func() {
		f.hand(r.Context(), up, down)
		_ = down.CloseNow()
	})
	f.listen(r.Context(), down, up)
	_ = up.CloseNow()
	both.Wait()
}

func (f *feed) hand(ctx context.Context, from, to *websocket.Conn) {
	for {
		kind, data, err := from.Read(ctx)
		if err != nil || to.Write(ctx, kind, data) != nil {
			return
		}
	}
}

// listen is hand for what the browser says, and notes what it subscribes.
func (f *feed) listen(ctx context.Context, from, to *websocket.Conn) {
	for {
		kind, data, err := from.Read(ctx)
		if err != nil || to.Write(ctx, kind, data) != nil {
			return
		}
		var m api.FollowRequest
		if json.Unmarshal(data, &m) == nil && strings.HasPrefix(m.Subscribe, "tree:") {
			f.keep(m.Subscribe, from)
		}
	}
}

// await waits until a page has subscribed a topic.
func (f *feed) await(ctx context.Context, topic string) error {
	for {
		select {
		case got := <-f.opened:
			if got == topic {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("no page subscribed %s: %w", topic, ctx.Err())
		}
	}
}

// sent is an answer that a feed has sent: it opens a row.
type sent struct {
	seq uint64
	at  time.Time
}

// send sends so many events a second, for a while: by threes, an answer with a command, its
// beginning and its result. It returns the answers, and the last seq.
func (f *feed) send(ctx context.Context, socket, topic string, after uint64, rate int, during time.Duration) (answers []sent, last uint64, err error) {
	f.mu.Lock()
	ws := f.sockets[socket]
	f.mu.Unlock()
	beat := time.NewTicker(5 * time.Millisecond)
	defer beat.Stop()
	all := uint64(during.Seconds()*float64(rate)) / 3 * 3
	last = after
	for began := time.Now(); last < after+all; {
		for due := min(all, uint64(time.Since(began).Seconds()*float64(rate))); last < after+due; {
			last++
			m := api.FollowMessage{Topic: topic, Seq: last, Event: fedEvent(last, int((last-after-1)%3))}
			data, err := json.Marshal(m)
			if err != nil {
				return nil, 0, err
			}
			if err := ws.Write(ctx, websocket.MessageText, data); err != nil {
				return nil, 0, err
			}
			if m.Event.Kind == "model.completed" {
				answers = append(answers, sent{last, m.Event.At})
			}
		}
		select {
		case <-beat.C:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	return answers, last, nil
}

// fedEvent is the nth of three events of a step.
func fedEvent(seq uint64, nth int) *api.RunEvent {
	call := fmt.Sprintf("fed_%d", seq-uint64(nth))
	kind, data := "", any(nil)
	switch nth {
	case 0:
		kind, data = "model.completed", map[string]any{
			"message": map[string]any{"role": "assistant", "blocks": []any{map[string]any{
				"kind": "call", "call": map[string]any{"id": call, "name": "execute", "args": map[string]any{"command": fmt.Sprintf("go test ./part%d/... 2>&1 | tail", seq)}},
			}}},
			"usage": map[string]any{"input": 1000, "output": 20}, "model": "fed", "stop": "tool_use", "through": seq - 1,
		}
	case 1:
		kind, data = "tool.started", map[string]any{"call": call, "tool": "execute", "key": call}
	default:
		kind, data = "tool.completed", map[string]any{
			"call": call, "tool": "execute", "exit": 0, "took_ns": 12e6,
			"blocks": []any{map[string]any{"kind": "text", "text": strings.Repeat("ok  \tan/example/of/a/package\t0.012s\n", 10)}},
		}
	}
	raw, _ := json.Marshal(data)
	return &api.RunEvent{Seq: seq, V: 1, Kind: kind, At: time.Now().UTC(), Data: raw}
}
