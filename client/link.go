package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
	"github.com/skete-dev/skete/errs"
)

// pingEvery is how often a stream makes sure that the other side lives, and
// how long it waits for the answer.
const pingEvery = 20 * time.Second

// link is one WebSocket that carries frames.
type link struct {
	ws  *websocket.Conn
	buf []byte
	// broken is why the connection ended in the middle of a frame of which
	// the beginning was good; the next read returns it.
	broken error
	// taking is set while the frame's reader is busy with it, so that an
	// unanswered ping is no sign of a dead connection.
	taking atomic.Bool
}

func (c *Client) openLink(ctx context.Context, k transport.Call) (*link, error) {
	ws, err := c.t.DialWS(ctx, k)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(api.FrameBytesMax + 1)
	return &link{ws: ws, buf: make([]byte, 64<<10)}, nil
}

// read returns the next frame; its body is good until the next read. The
// beginning of a frame of output is such a frame itself, only shorter: so a
// connection that never lives as long as a frame makes progress too.
func (l *link) read(ctx context.Context) (api.FrameKind, []byte, error) {
	if l.broken != nil {
		return 0, nil, l.broken
	}
	typ, r, err := l.ws.Reader(ctx)
	if err != nil {
		return 0, nil, transport.Broken(ctx, err)
	}
	if typ != websocket.MessageBinary {
		return 0, nil, badFrame(errors.New("a text message"))
	}
	n := 0
	for {
		m, err := r.Read(l.buf[n:])
		n += m
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if l.broken = transport.Broken(ctx, err); !isOutput(l.buf[:n]) {
				return 0, nil, l.broken
			}
			break
		}
		if n == len(l.buf) {
			l.buf = append(l.buf, make([]byte, len(l.buf))...)
		}
	}
	kind, body, err := api.ParseFrame(l.buf[:n])
	if err != nil {
		return 0, nil, badFrame(err)
	}
	return kind, body, nil
}

// isOutput tells whether b begins with the head of a frame of output and has
// some of the output too.
func isOutput(b []byte) bool {
	kind, body, err := api.ParseFrame(b)
	if err != nil || kind != api.FrameStdout && kind != api.FrameStderr {
		return false
	}
	_, data, err := api.ParseOffset(body)
	return err == nil && len(data) > 0
}

func (l *link) send(ctx context.Context, frame []byte) error {
	return l.ws.Write(ctx, websocket.MessageBinary, frame)
}

func (l *link) sendJSON(ctx context.Context, k api.FrameKind, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return l.send(ctx, append([]byte{byte(k)}, body...))
}

// watch pings until ctx ends; it breaks the connection when the peer does not
// answer. Without it a peer that vanished without a word would be waited for for
// ever.
func (l *link) watch(ctx context.Context) {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		once, cancel := context.WithTimeout(ctx, pingEvery)
		err := l.ws.Ping(once)
		cancel()
		if err != nil && !l.taking.Load() {
			l.close()
			return
		}
	}
}

func (l *link) close() { _ = l.ws.CloseNow() }

func badFrame(err error) error {
	return errs.Wrap(errs.Internal, err, "the server sent a frame that was not agreed")
}

func parse[T any](kind api.FrameKind, body []byte) (T, error) {
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		return v, badFrame(fmt.Errorf("frame %#x: %w", byte(kind), err))
	}
	return v, nil
}
