package stream

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"

	"github.com/skete-dev/skete/guest/wire"
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
