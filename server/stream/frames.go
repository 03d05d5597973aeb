package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/coder/websocket"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/server/problem"
)

const (
	// startTimeout is how long a client may take to send its first frame.
	startTimeout = 10 * time.Second
	// farewellTimeout is how long the end of a stream may take.
	farewellTimeout = 5 * time.Second
)

// Link is one WebSocket that carries the frames of api.FrameKind.
type Link struct {
	ws      *websocket.Conn
	in      []byte      // the frame being read
	stalled atomic.Bool // its reader waits for the command: a missing pong says nothing

	mu  sync.Mutex // guards out
	out []byte     // the frame being written
}

// NewLink takes over a WebSocket. Close it.
func NewLink(ws *websocket.Conn) *Link {
	ws.SetReadLimit(api.FrameBytesMax)
	return &Link{ws: ws}
}

// read returns the next frame; its body is good until the next read.
func (l *Link) read(ctx context.Context) (api.FrameKind, []byte, error) {
	typ, r, err := l.ws.Reader(ctx)
	if err != nil {
		return 0, nil, err
	}
	if typ != websocket.MessageBinary {
		return 0, nil, errs.New(errs.Invalid, "frames are binary messages")
	}
	if l.in, err = readAll(r, l.in[:0]); err != nil {
		return 0, nil, err
	}
	kind, body, err := api.ParseFrame(l.in)
	if err != nil {
		return 0, nil, errs.Wrap(errs.Invalid, err, "the frame is empty or too large")
	}
	return kind, body, nil
}

// readAll is io.ReadAll into a buffer that is used again.
func readAll(r io.Reader, b []byte) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// ReadStart reads the first frame of exec.
func (l *Link) ReadStart(ctx context.Context) (api.StartProcess, error) {
	var req api.StartProcess
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	kind, body, err := l.read(ctx)
	if err != nil {
		return req, err
	}
	if kind != api.FrameStart {
		return req, errs.New(errs.Invalid, "the first frame must be a start, not %#02x", byte(kind))
	}
	return req, strict(body, &req)
}

// strict parses JSON and refuses unknown keys and trailing data.
func strict(body []byte, v any) error {
	if !utf8.Valid(body) { // encoding/json would change it silently
		return errs.New(errs.Invalid, "the frame's text is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errs.New(errs.Invalid, "the frame's JSON is not what it must be: %s", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errs.New(errs.Invalid, "the frame's JSON has data behind its end")
	}
	return nil
}

func (l *Link) writeData(kind api.FrameKind, offset int64, data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = api.AppendOffsetFrame(l.out[:0], kind, offset, data)
	return l.write()
}

func (l *Link) writeJSON(kind api.FrameKind, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = append(append(l.out[:0], byte(kind)), body...)
	return l.write()
}

// write sends l.out. Not with the stream's context: its end would break the
// WebSocket before the client learns why. Preconditions: mu is held.
func (l *Link) write() error {
	ctx, cancel := context.WithTimeout(context.Background(), WriteTimeout)
	defer cancel()
	return l.ws.Write(ctx, websocket.MessageBinary, l.out)
}

// Fail tells the client of an error and closes.
func (l *Link) Fail(err error) {
	p := problem.Of(err)
	_ = l.writeJSON(api.FrameProblem, p.Problem)
	code := websocket.StatusInternalError
	switch {
	case errs.Is(err, errs.Unavailable):
		code = websocket.StatusGoingAway
	case p.Status < 500:
		code = websocket.StatusPolicyViolation
	}
	_ = l.ws.Close(code, p.Title)
}

// Close ends the WebSocket without a word, if it is still open.
func (l *Link) Close() { _ = l.ws.CloseNow() }

// errVanished is the client's end: it cannot be told anything.
var errVanished = errors.New("the client is gone")

// Frames serves one exec or attach until the command's end has been told, the
// client is gone (errVanished's kind, as nil) or something failed (which the
// client was told, and which is returned for the log).
func Frames(ctx context.Context, l *Link, guest *wire.Client, out *Output) error {
	ctx, cancel := context.WithCancelCause(ctx)
	f := &frames{link: l, guest: guest, out: out, in: newStdin(), credit: newCredit(), cancel: cancel, started: make(chan struct{})}
	var wg sync.WaitGroup
	// The reader's own context: cancelling it breaks the WebSocket.
	readCtx, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { f.fail(f.readFrames(ctx, readCtx)) })
	wg.Go(func() { f.fail(f.pumpStdin(ctx)) })
	wg.Go(func() { ping(ctx, l.ws, &l.stalled, func() { cancel(errVanished) }) })
	context.AfterFunc(ctx, func() { time.AfterFunc(farewellTimeout, l.Close) })
	err := f.writeEvents(ctx)
	if err == nil {
		out.Finish() // before its context ends, which would break the connection to the guest
	} else {
		err = why(ctx, err)
	}
	cancel(err)
	switch {
	case err == nil:
		_ = l.ws.Close(websocket.StatusNormalClosure, "")
	case errors.Is(err, errVanished):
		out.Close()
	default:
		out.Close()
		l.Fail(err)
	}
	stopReading()
	l.Close()
	wg.Wait()
	if errors.Is(err, errVanished) {
		return nil
	}
	return err
}

type frames struct {
	link    *Link
	guest   *wire.Client
	out     *Output
	in      *stdin
	credit  *credit
	cancel  context.CancelCauseFunc
	started chan struct{} // closed when the command is there
}

// fail ends the whole stream for a reason.
func (f *frames) fail(err error) {
	if err != nil {
		f.cancel(err)
	}
}

// writeEvents is the way out: events of the command become frames.
func (f *frames) writeEvents(ctx context.Context) error {
	for {
		ev, err := f.out.Next(ctx)
		if err != nil {
			return err
		}
		if data := ev.GetOutput().GetData(); len(data) > 0 {
			if err := f.credit.spend(ctx, len(data)); err != nil {
				return err
			}
		}
		ended, err := f.writeEvent(ev)
		if err != nil {
			return errVanished
		}
		if ended {
			return nil
		}
	}
}

func (f *frames) writeEvent(ev *wire.AttachEvent) (ended bool, err error) {
	switch e := ev.GetEvent().(type) {
	case *wire.AttachEvent_Output:
		kind := api.FrameStdout
		if e.Output.GetStream() == wire.Stream_STREAM_STDERR {
			kind = api.FrameStderr
		}
		return false, f.link.writeData(kind, e.Output.GetOffset(), e.Output.GetData())
	case *wire.AttachEvent_Started:
		p := ProcessView(e.Started)
		p.Existed = f.out.Existed()
		err := f.link.writeJSON(api.FrameStarted, p)
		close(f.started)
		return false, err
	case *wire.AttachEvent_Gap:
		return false, f.link.writeJSON(api.FrameGap, gapEvent(e.Gap))
	case *wire.AttachEvent_Exited:
		return true, f.link.writeJSON(api.FrameExited, ProcessView(e.Exited))
	}
	return false, nil
}

// readFrames is the way in. It ends when the WebSocket does.
func (f *frames) readFrames(ctx, readCtx context.Context) error {
	for {
		kind, body, err := f.link.read(readCtx)
		if err != nil {
			if errs.Is(err, errs.Invalid) {
				return err
			}
			return errVanished
		}
		f.link.stalled.Store(true)
		err = f.take(ctx, kind, body)
		f.link.stalled.Store(false)
		if err != nil {
			return err
		}
	}
}

func (f *frames) take(ctx context.Context, kind api.FrameKind, body []byte) error {
	switch kind {
	case api.FrameStdin, api.FrameStdinEOF:
		offset, data, err := api.ParseOffset(body)
		if err != nil || len(data) > api.StdinBytesMax {
			return errs.New(errs.Invalid, "a stdin frame has an offset and at most %d bytes", api.StdinBytesMax)
		}
		return f.in.put(ctx, offset, data, kind == api.FrameStdinEOF)
	case api.FrameSignal:
		var s api.SignalProcess
		if err := strict(body, &s); err != nil {
			return err
		}
		return f.control(ctx, func() error { return Signal(ctx, f.guest, f.out.Key(), s) })
	case api.FrameResize:
		var s api.TerminalSize
		if err := strict(body, &s); err != nil {
			return err
		}
		return f.control(ctx, func() error { return Resize(ctx, f.guest, f.out.Key(), s) })
	case api.FrameCredit:
		limit, rest, err := api.ParseOffset(body)
		if err != nil || len(rest) > 0 {
			return errs.New(errs.Invalid, "a credit frame has an offset alone")
		}
		f.credit.raise(limit)
		return nil
	}
	return errs.New(errs.Invalid, "frame %#02x is none that a client sends here", byte(kind))
}

// control waits for the command and does something to it. That it has ended
// meanwhile, or a guest that is away for a moment, is no reason to end the stream.
func (f *frames) control(ctx context.Context, do func() error) error {
	select {
	case <-f.started:
	case <-ctx.Done():
		return nil
	}
	err := do()
	if errs.Is(err, errs.Invalid) {
		return err
	}
	return nil
}

func (f *frames) pumpStdin(ctx context.Context) error {
	select {
	case <-f.started:
	case <-ctx.Done():
		return nil
	}
	return f.in.pump(ctx, f.guest, f.out.Key(), func(a api.StdinAck) error {
		if f.link.writeJSON(api.FrameAck, a) != nil {
			return errVanished
		}
		return nil
	})
}

// ping keeps a WebSocket warm until ctx ends and gives up on a client that
// does not answer, unless we ourselves do not read.
func ping(ctx context.Context, ws *websocket.Conn, stalled *atomic.Bool, giveUp func()) {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		// A client that takes its time with a large output answers late.
		once, stop := context.WithTimeout(context.WithoutCancel(ctx), WriteTimeout)
		unhook := context.AfterFunc(ctx, stop)
		err := ws.Ping(once)
		unhook()
		stop()
		if err != nil && ctx.Err() == nil && !stalled.Load() {
			giveUp()
			_ = ws.CloseNow()
			return
		}
	}
}

// Ping makes sure that the peer of a WebSocket lives until ctx ends; it calls
// giveUp and breaks the connection when the peer does not answer. Another
// goroutine must read from ws meanwhile.
func Ping(ctx context.Context, ws *websocket.Conn, giveUp func()) {
	var never atomic.Bool
	ping(ctx, ws, &never, giveUp)
}

// Signal signals a command.
func Signal(ctx context.Context, guest *wire.Client, key string, s api.SignalProcess) error {
	if s.Signal < 1 || s.Signal > 64 {
		return errs.New(errs.Invalid, "%d is not a signal", s.Signal).WithHint("1 to 64")
	}
	_, err := guest.Process.Signal(ctx, connect.NewRequest(&wire.SignalRequest{Key: key, Signal: int32(s.Signal), LeaderOnly: s.LeaderOnly}))
	return wire.Err(err)
}

// Resize sets the size of a command's terminal.
func Resize(ctx context.Context, guest *wire.Client, key string, s api.TerminalSize) error {
	size, err := ptySize(s)
	if err != nil {
		return err
	}
	_, err = guest.Process.Resize(ctx, connect.NewRequest(&wire.ResizeRequest{Key: key, Size: size}))
	return wire.Err(err)
}
