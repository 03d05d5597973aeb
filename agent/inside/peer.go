package inside

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/skete-dev/skete/errs"
)

// Bounds of what the other side may send.
const (
	frameBytesMax = 96 << 20  // a blob of 64 MiB in base64, and what is around it
	heldBytesMax  = 160 << 20 // of calls that are under way together
	callsMax      = 64        // that are under way at once
	chunkBytes    = 64 << 10  // is made room for before it has come
)

// kind is what a frame is.
type kind string

const (
	kindCall   kind = "call"   // ID, Method, Data: the parameters
	kindPart   kind = "part"   // ID, Data: an answer is on its way
	kindDone   kind = "done"   // ID, Data or Fault: the answer is whole
	kindCancel kind = "cancel" // ID: the answer is not wanted any more
	kindNews   kind = "news"   // Method, Data
)

// frame is one message.
type frame struct {
	Kind   kind            `json:"kind"`
	ID     uint64          `json:"id,omitempty"` // of the caller
	Method string          `json:"method,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	Fault  *fault          `json:"fault,omitempty"`
}

// readFrame reads the next frame. Invalid: it is none, or too large.
func readFrame(r io.Reader) (f frame, size int, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return f, 0, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > frameBytesMax {
		return f, 0, errs.New(errs.Invalid, "a frame of %d bytes is over %d", n, frameBytesMax)
	}
	var body bytes.Buffer // grows with what comes, not with what is announced
	body.Grow(int(min(n, chunkBytes)))
	if _, err := io.CopyN(&body, r, int64(n)); err != nil {
		return f, 0, fmt.Errorf("a frame is cut off: %w", io.ErrUnexpectedEOF)
	}
	if err := json.Unmarshal(body.Bytes(), &f); err != nil {
		return f, 0, errs.Wrap(errs.Invalid, err, "a frame is no JSON")
	}
	return f, int(n), nil
}

// encode is json.Marshal without the escapes that make it safe in HTML: what a model or
// a tool wrote comes over as it was.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, errs.Wrap(errs.Internal, err, "what is to be sent cannot be written")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// writeFrame writes a frame whole, in one call.
func writeFrame(w io.Writer, f frame) error {
	body, err := encode(f)
	if err != nil {
		return err
	}
	if len(body) > frameBytesMax {
		return errs.New(errs.Limit, "a frame of %d bytes is over %d", len(body), frameBytesMax)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...))
	return err
}

// incoming is a call of the other side.
type incoming struct {
	Method string
	Data   json.RawMessage
	// Part sends a part of the answer.
	Part func(any) error
}

// peer is one end of a connection.
type peer struct {
	conn net.Conn
	// Serve answers calls, each in a goroutine of its own. News takes in what needs no
	// answer, in order, and must be quick; an error of it ends the connection.
	Serve func(ctx context.Context, c incoming) (any, error)
	News  func(method string, data json.RawMessage) error

	write sync.Mutex
	wg    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	last    uint64
	waiting map[uint64]*waiter
	serving map[uint64]context.CancelFunc
	held    int   // bytes of calls that are under way
	over    error // why the connection ended
}

// waiter is a call of ours that has no whole answer yet.
type waiter struct {
	frames chan frame
	gone   chan struct{} // closed when nothing more is wanted
}

func newPeer(conn net.Conn) *peer {
	return &peer{conn: conn, waiting: map[uint64]*waiter{}, serving: map[uint64]context.CancelFunc{}}
}

// Run reads until the connection ends, and returns when nothing runs for it any more.
// It returns why: io.EOF when the other side closed it.
func (p *peer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	err := p.read(ctx)
	cancel()
	_ = p.conn.Close()
	p.end(err)
	p.wg.Wait()
	return err
}

func (p *peer) read(ctx context.Context) error {
	for {
		f, size, err := readFrame(p.conn)
		if err != nil {
			return err
		}
		if err := p.take(ctx, f, size); err != nil {
			return err
		}
	}
}

// take acts on a frame. An error ends the connection.
func (p *peer) take(ctx context.Context, f frame, size int) error {
	switch f.Kind {
	case kindCall:
		return p.begin(ctx, f, size)
	case kindCancel:
		p.mu.Lock()
		cancel := p.serving[f.ID]
		p.mu.Unlock()
		if cancel != nil {
			cancel()
		}
		return nil
	case kindNews:
		if p.News == nil {
			return errs.New(errs.Invalid, "there is no news here")
		}
		return p.News(f.Method, f.Data)
	case kindPart, kindDone:
		p.mu.Lock()
		w := p.waiting[f.ID]
		p.mu.Unlock()
		if w == nil {
			return nil // it is not wanted any more
		}
		select {
		case w.frames <- f:
		case <-w.gone:
		}
		return nil
	}
	return errs.New(errs.Invalid, "a frame of the kind %.20q", f.Kind)
}

// begin answers a call in a goroutine of its own.
func (p *peer) begin(ctx context.Context, f frame, size int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, twice := p.serving[f.ID]; twice || p.Serve == nil {
		return errs.New(errs.Invalid, "a call that cannot be answered")
	}
	if len(p.serving) == callsMax || p.held+size > heldBytesMax {
		return errs.New(errs.Limit, "too many calls at once")
	}
	ctx, cancel := context.WithCancel(ctx)
	p.serving[f.ID] = cancel
	p.held += size
	p.wg.Go(func() {
		defer cancel()
		result, err := p.answer(ctx, f)
		p.mu.Lock()
		delete(p.serving, f.ID)
		p.held -= size
		p.mu.Unlock()
		done := frame{Kind: kindDone, ID: f.ID, Fault: faultOf(err)}
		if err == nil {
			if done.Data, err = encode(result); err != nil {
				done.Fault = faultOf(err)
			}
		}
		if err := p.send(done); errs.Is(err, errs.Limit) {
			_ = p.send(frame{Kind: kindDone, ID: f.ID, Fault: faultOf(err)})
		}
	})
	return nil
}

// answer calls Serve and makes a panic an error.
func (p *peer) answer(ctx context.Context, f frame) (result any, err error) {
	defer func() {
		if x := recover(); x != nil {
			result, err = nil, errs.Wrap(errs.Internal, fmt.Errorf("panic: %.200v", x), "the call %.40q broke", f.Method)
		}
	}()
	return p.Serve(ctx, incoming{Method: f.Method, Data: f.Data, Part: func(v any) error {
		data, err := encode(v)
		if err != nil {
			return err
		}
		return p.send(frame{Kind: kindPart, ID: f.ID, Data: data})
	}})
}

func (p *peer) send(f frame) error {
	p.write.Lock()
	defer p.write.Unlock()
	return writeFrame(p.conn, f)
}

// end tells all who wait that the connection is over.
func (p *peer) end(err error) {
	if err == nil || errors.Is(err, net.ErrClosed) {
		err = io.EOF
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != nil {
		return
	}
	p.over = err
	for id, w := range p.waiting {
		close(w.frames)
		delete(p.waiting, id)
	}
}

// broken is the error of a call whose connection ended: it may work over the next one.
func broken(cause error) error {
	return errs.Wrap(errs.Unavailable, cause, "the connection to the other side broke")
}

// Call asks the other side. result is a pointer, or nil; part visits what comes before
// it, in the caller's goroutine.
func (p *peer) Call(ctx context.Context, method string, params, result any, part func(json.RawMessage) error) error {
	data, err := encode(params)
	if err != nil {
		return err
	}
	id, w, err := p.wait()
	if err != nil {
		return err
	}
	defer p.forget(id, w)
	if err := p.send(frame{Kind: kindCall, ID: id, Method: method, Data: data}); err != nil {
		if errs.Is(err, errs.Limit) {
			return err
		}
		return broken(err)
	}
	for {
		select {
		case f, open := <-w.frames:
			switch {
			case !open:
				return broken(io.EOF)
			case f.Kind == kindDone:
				return finish(f, result)
			case part == nil:
			default:
				if err := part(f.Data); err != nil {
					_ = p.send(frame{Kind: kindCancel, ID: id})
					return err
				}
			}
		case <-ctx.Done():
			_ = p.send(frame{Kind: kindCancel, ID: id})
			return context.Cause(ctx)
		}
	}
}

// finish takes an answer in.
func finish(f frame, result any) error {
	if f.Fault != nil {
		return f.Fault.err()
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(f.Data, result); err != nil {
		return errs.Wrap(errs.Invalid, err, "an answer cannot be read")
	}
	return nil
}

func (p *peer) wait() (uint64, *waiter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != nil {
		return 0, nil, broken(p.over)
	}
	p.last++
	w := &waiter{frames: make(chan frame, 16), gone: make(chan struct{})}
	p.waiting[p.last] = w
	return p.last, w, nil
}

func (p *peer) forget(id uint64, w *waiter) {
	p.mu.Lock()
	delete(p.waiting, id)
	p.mu.Unlock()
	close(w.gone)
}

// Tell sends news.
func (p *peer) Tell(method string, v any) error {
	data, err := encode(v)
	if err != nil {
		return err
	}
	return p.send(frame{Kind: kindNews, Method: method, Data: data})
}
