package stream

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

// A new connection to the guest costs both sides dozens of system calls, which
// are dear inside gVisor: commands one after the other need one.
func TestFrames_useTheConnectionToTheGuestAgain(t *testing.T) {
	s := &script{exec: func(_ *wire.StartRequest, send func(*wire.AttachEvent)) error {
		send(started())
		send(output(0, "hello"))
		send(exited())
		return nil
	}}
	guest := s.client(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		l := NewLink(ws)
		defer l.Close()
		if err := Frames(r.Context(), l, guest, Start(guest, &wire.StartRequest{})); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	for range 5 {
		ws, res, err := websocket.Dial(t.Context(), server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body != nil {
			_ = res.Body.Close()
		}
		for {
			if _, _, err = ws.Read(t.Context()); err != nil {
				break
			}
		}
		if code := websocket.CloseStatus(err); code != websocket.StatusNormalClosure {
			t.Errorf("it was closed with %v", err)
		}
	}
	if n := s.dials.Load(); n != 1 {
		t.Errorf("%d connections for five commands", n)
	}
}

// serveFrames serves an attach of a guest's command "k" and dials it.
func serveFrames(t *testing.T, guest *wire.Client) *websocket.Conn {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		l := NewLink(ws)
		defer l.Close()
		_ = Frames(r.Context(), l, guest, Attach(guest, "k", 0, 0, true)) // what the client is told is looked at
	}))
	t.Cleanup(server.Close)
	ws, res, err := websocket.Dial(t.Context(), server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.Body != nil {
		_ = res.Body.Close()
	}
	ws.SetReadLimit(api.FrameBytesMax)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

// next returns the next frame but those of acks.
func next(t *testing.T, ws *websocket.Conn) (api.FrameKind, []byte) {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), 20*time.Second)
	defer cancel()
	_, b, err := ws.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	kind, body, err := api.ParseFrame(b)
	if err != nil {
		t.Fatal(err)
	}
	return kind, body
}

func send(t *testing.T, ws *websocket.Conn, frame []byte) {
	t.Helper()
	if err := ws.Write(t.Context(), websocket.MessageBinary, frame); err != nil {
		t.Fatal(err)
	}
}

func creditFrame(limit int64) []byte { return api.AppendOffsetFrame(nil, api.FrameCredit, limit, nil) }

// A browser takes all that comes: what it has not allowed must not be sent.
func TestFrames_sendNoMoreThanTheClientAllows(t *testing.T) {
	const pieces = 8
	signalled := make(chan struct{})
	s := &script{
		signal: func() { close(signalled) },
		attach: func(_ *wire.AttachRequest, send func(*wire.AttachEvent)) error {
			send(started())
			<-signalled // frames are read in their order: the limit is there
			for i := range pieces {
				send(output(int64(i*10), "0123456789"))
			}
			send(exited())
			return nil
		},
	}
	guest := s.client(t)
	ws := serveFrames(t, guest)
	send(t, ws, creditFrame(15))
	send(t, ws, append([]byte{byte(api.FrameSignal)}, `{"signal":1}`...))
	if kind, _ := next(t, ws); kind != api.FrameStarted {
		t.Fatalf("the first frame is %#02x", kind)
	}
	for range 2 { // the second begins within the limit
		if kind, _ := next(t, ws); kind != api.FrameStdout {
			t.Fatalf("a frame %#02x in the place of output", kind)
		}
	}
	send(t, ws, creditFrame(25))
	if kind, _ := next(t, ws); kind != api.FrameStdout {
		t.Fatalf("a frame %#02x in the place of output", kind)
	}
	send(t, ws, append(creditFrame(1000), 'x')) // ends it: what comes next is no output
	if kind, body := next(t, ws); kind != api.FrameProblem {
		t.Errorf("output went beyond the limit, or a bad frame was taken: %#02x %q", kind, body)
	}
}

func TestFrames_sendAllWhenTheClientAllowsMore(t *testing.T) {
	const pieces = 8
	s := &script{attach: func(_ *wire.AttachRequest, send func(*wire.AttachEvent)) error {
		send(started())
		for i := range pieces {
			send(output(int64(i*10), "0123456789"))
		}
		send(exited())
		return nil
	}}
	ws := serveFrames(t, s.client(t))
	used := int64(0)
	send(t, ws, creditFrame(1))
	for {
		kind, body := next(t, ws)
		if kind == api.FrameExited {
			break
		}
		if kind != api.FrameStdout {
			continue
		}
		used += int64(len(body) - 8)
		send(t, ws, creditFrame(used+1))
	}
	if used != pieces*10 {
		t.Errorf("%d bytes came", used)
	}
}
