package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
)

// Bounds of what a server may send.
const (
	frameBytesMax  = 16 << 20  // one message
	skippedMax     = 512 << 20 // of a message that is longer, before we give up
	garbageMax     = 100       // lines that are no messages
	askedMax       = 16        // requests of the server that were not answered yet
	lineBufferSize = 64 << 10
)

// codeTooLarge is that of the answer that we put in the place of one that is too long. It is
// in the range that JSON-RPC leaves to applications.
const codeTooLarge = -31001

// frames reads messages, one a line. A line that is too long is passed over without being
// kept.
type frames struct {
	r       *bufio.Reader
	max     int
	garbage int
	last    string // of the lines that were none
}

// errTooLong says that a line was passed over.
var errTooLong = errors.New("a message is too long")

// next returns the next message. errTooLong may be followed by others; any other error is
// the last.
func (f *frames) next() (jsonrpc.Message, error) {
	for {
		line, err := f.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			continue
		}
		m, err := jsonrpc.DecodeMessage(line)
		if err == nil {
			return m, nil
		}
		f.last = clip.Line(string(line[:min(len(line), 400)]), 200)
		if f.garbage++; f.garbage > garbageMax {
			return nil, errs.New(errs.Unavailable, "it writes what is no message of the protocol: %q", f.last)
		}
	}
}

// line returns the next line without its end.
func (f *frames) line() ([]byte, error) {
	var line []byte
	skipped := 0
	for {
		part, err := f.r.ReadSlice('\n')
		switch {
		case skipped > 0 || len(line)+len(part) > f.max:
			skipped += len(line) + len(part)
			line = nil
		default:
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && skipped <= skippedMax:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, errs.New(errs.Unavailable, "it writes a message that does not end")
		case err != nil:
			return nil, err // a last line without its end is none
		case skipped > 0:
			return nil, errTooLong
		}
		return trimmed(line), nil
	}
}

func trimmed(line []byte) []byte {
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return line
}

// conn is the SDK's connection to a program. Notifications that nothing here waits for are
// dropped as they are read, so that a flood of them fills no queue.
type conn struct {
	rw     io.ReadWriteCloser
	in     chan incoming
	frames frames
	noted  func(*jsonrpc.Request) // is told of each notification; it does not block
	closed chan struct{}
	once   sync.Once
	reads  sync.WaitGroup

	mu    sync.Mutex
	calls map[jsonrpc.ID]bool // ours, without an answer
	asked map[jsonrpc.ID]bool // the server's, without one
}

type incoming struct {
	m   jsonrpc.Message
	err error
}

func newConn(rw io.ReadWriteCloser, noted func(*jsonrpc.Request)) *conn {
	c := &conn{
		rw: rw, in: make(chan incoming), noted: noted, closed: make(chan struct{}), calls: map[jsonrpc.ID]bool{}, asked: map[jsonrpc.ID]bool{},
		frames: frames{r: bufio.NewReaderSize(rw, lineBufferSize), max: frameBytesMax},
	}
	c.reads.Go(c.readAll)
	return c
}

// readAll hands on what comes until nothing does.
func (c *conn) readAll() {
	for {
		m, err := c.frames.next()
		var list []incoming
		switch {
		case errors.Is(err, errTooLong):
			list = c.tooLong()
		case err != nil:
			list = []incoming{{err: err}}
		default:
			list = c.admit(m)
		}
		for _, i := range list {
			select {
			case c.in <- i:
			case <-c.closed:
				return
			}
			if i.err != nil {
				return
			}
		}
	}
}

// admit decides what becomes of a message.
func (c *conn) admit(m jsonrpc.Message) []incoming {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m := m.(type) {
	case *jsonrpc.Response:
		if !c.calls[m.ID] {
			return nil // of a call that was cancelled, or of none
		}
		delete(c.calls, m.ID)
	case *jsonrpc.Request:
		if !m.IsCall() {
			c.noted(m)
			return nil
		}
		if c.asked[m.ID] = true; len(c.asked) > askedMax {
			return []incoming{{err: errs.New(errs.Unavailable, "it asks more than %d things at once", askedMax)}}
		}
	}
	return []incoming{{m: m}}
}

// tooLong answers our calls in the place of a server whose answer was passed over: to which
// of them it belongs is in it.
func (c *conn) tooLong() (list []incoming) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.calls {
		list = append(list, incoming{m: &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: codeTooLarge, Message: fmt.Sprintf("the answer is longer than %d bytes", c.frames.max)}}})
	}
	clear(c.calls)
	return list
}

// Read implements the SDK's Connection.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case i := <-c.in:
		return i.m, i.err
	case <-c.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write implements the SDK's Connection.
func (c *conn) Write(_ context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	c.note(m)
	_, err = c.rw.Write(append(data, '\n'))
	return err
}

// note keeps the books of what is open.
func (c *conn) note(m jsonrpc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m := m.(type) {
	case *jsonrpc.Request:
		if m.IsCall() {
			c.calls[m.ID] = true
		} else if id, ok := cancelled(m); ok {
			delete(c.calls, id)
		}
	case *jsonrpc.Response:
		delete(c.asked, m.ID)
	}
}

// cancelled returns the call that a notification of ours gives up.
func cancelled(m *jsonrpc.Request) (id jsonrpc.ID, ok bool) {
	var p struct {
		ID any `json:"requestId"`
	}
	if m.Method != "notifications/cancelled" || json.Unmarshal(m.Params, &p) != nil {
		return id, false
	}
	id, err := jsonrpc.MakeID(p.ID)
	return id, err == nil
}

// Close implements the SDK's Connection.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	err := c.rw.Close()
	c.reads.Wait()
	return err
}

// SessionID implements the SDK's Connection.
func (*conn) SessionID() string { return "" }
