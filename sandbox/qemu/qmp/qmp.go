// Package qmp speaks with a running QEMU over its machine protocol: lines of
// JSON on a UNIX socket.
//
//	c, err := qmp.Dial(ctx, path)
//	err = c.Execute(ctx, "stop", nil, nil)
//	err = c.PassFile(ctx, "state", f)            // later: migrate to "fd:state"
//	for e := range c.Events() { … }
//
// QEMU talks to one client at a time; another one's Dial waits for the
// greeting until its context ends. QEMU is not trusted, since a guest may have
// taken it over: lines, depth and events are bounded, and whatever breaks the
// protocol ends the connection. A Client is safe for concurrent use.
package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// Limits of what is read.
const (
	lineBytesMax = 1 << 20
	eventsMax    = 64 // that are not read yet; the oldest are dropped
)

// greetTimeout bounds the greeting where the context has no deadline: QEMU
// says nothing to a second client while it has a first.
const greetTimeout = 10 * time.Second

// Version of QEMU.
type Version struct {
	Major int `json:"major"`
	Minor int `json:"minor"`
	Micro int `json:"micro"`
}

// String returns for example "7.2.22".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro) }

// Event is something that QEMU tells unasked.
type Event struct {
	Name string
	Data json.RawMessage // an object, or nil
	Time time.Time       // by the host's clock
}

// Error is QEMU's refusal of a command; the connection goes on.
type Error struct {
	Command string
	Class   string // "GenericError", "CommandNotFound", …
	Desc    string // for people
}

// Error implements error. What QEMU wrote is quoted: it may be anything.
func (e *Error) Error() string { return fmt.Sprintf("qmp %s: %q (%.40q)", e.Command, e.Desc, e.Class) }

// Client is one connection.
type Client struct {
	conn    *net.UnixConn
	version Version
	events  chan Event
	done    chan struct{} // closed when the reader has ended
	once    sync.Once

	writing sync.Mutex // held over one command's bytes; taken before mu

	mu      sync.Mutex
	last    uint64 // id of the newest command
	pending map[uint64]chan message
	err     error // why the connection ended
}

// Dial connects to the socket at path, which may be longer than a socket's
// address can hold, and negotiates. Unavailable: no QEMU answers there.
func Dial(ctx context.Context, path string) (*Client, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "QEMU has no control socket")
	}
	defer dir.Close()
	var d net.Dialer
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	conn, err := d.DialContext(ctx, "unix", short)
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "QEMU does not take the control connection")
	}
	return New(ctx, conn.(*net.UnixConn))
}

// New negotiates on a fresh connection, which is the Client's from now on,
// also when New fails.
func New(ctx context.Context, conn *net.UnixConn) (*Client, error) {
	c := &Client{
		conn: conn, events: make(chan Event, eventsMax), done: make(chan struct{}),
		pending: map[uint64]chan message{},
	}
	lines := bufio.NewReaderSize(conn, 4<<10)
	if err := c.greet(ctx, lines); err != nil {
		_ = conn.Close()
		return nil, errs.Wrap(errs.Unavailable, err, "QEMU does not greet")
	}
	go c.read(lines)
	if err := c.Execute(ctx, "qmp_capabilities", nil, nil); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("negotiate: %w", err)
	}
	return c, nil
}

func (c *Client) greet(ctx context.Context, lines *bufio.Reader) error {
	deadline, ok := ctx.Deadline()
	if limit := time.Now().Add(greetTimeout); !ok || limit.Before(deadline) {
		deadline = limit
	}
	_ = c.conn.SetReadDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	line, err := readLine(lines)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	m, err := parse(line)
	if err != nil {
		return err
	}
	if m.kind != greeting {
		return errors.New("the first line is no greeting")
	}
	c.version = m.version
	return c.conn.SetReadDeadline(time.Time{})
}

// Version of the QEMU at the other end.
func (c *Client) Version() Version { return c.version }

// Events gives what QEMU told; closed when the connection has ended. Who reads
// slowly loses the oldest.
func (c *Client) Events() <-chan Event { return c.events }

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Execute runs a command. args and result may be nil; result is filled from
// the answer. *Error: QEMU refused. Unavailable: the connection has ended,
// now or before; whether the command was done is not known then, and neither
// when ctx ended first.
func (c *Client) Execute(ctx context.Context, command string, args, result any) error {
	return c.execute(ctx, command, args, result, nil)
}

// PassFile gives QEMU a duplicate of f, to be known as name ("fd:name").
func (c *Client) PassFile(ctx context.Context, name string, f *os.File) error {
	return c.execute(ctx, "getfd", map[string]string{"fdname": name}, nil, f)
}

func (c *Client) execute(ctx context.Context, command string, args, result any, f *os.File) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	id, answer, err := c.expect()
	if err != nil {
		return err
	}
	defer c.forget(id)
	line, err := json.Marshal(request{Execute: command, Arguments: args, ID: strconv.FormatUint(id, 10)})
	if err != nil {
		return fmt.Errorf("qmp %s: %w", command, err)
	}
	if err := c.send(ctx, append(line, '\n'), f); err != nil {
		return err
	}
	select {
	case m := <-answer:
		return m.outcome(command, result)
	case <-ctx.Done():
		return fmt.Errorf("qmp %s: %w", command, ctx.Err())
	case <-c.done:
	}
	select { // the answer may have been the last that came
	case m := <-answer:
		return m.outcome(command, result)
	default:
		return c.ended()
	}
}

type request struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
	ID        string `json:"id"`
}

func (c *Client) expect() (uint64, chan message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	c.last++
	answer := make(chan message, 1)
	c.pending[c.last] = answer
	return c.last, answer, nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// send writes one line. A line cut short would spoil the next one, so a write
// that fails ends the connection.
func (c *Client) send(ctx context.Context, line []byte, f *os.File) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.conn.SetWriteDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	n, _, err := c.conn.WriteMsgUnix(line, rights, nil)
	if err == nil && n < len(line) {
		_, err = c.conn.Write(line[n:])
	}
	if err == nil {
		return nil
	}
	c.fail(err)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.ended()
}

// read is the one reader; it ends with the connection.
func (c *Client) read(lines *bufio.Reader) {
	defer close(c.done)
	defer close(c.events)
	for {
		line, err := readLine(lines)
		if err == nil {
			err = c.take(line)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *Client) take(line []byte) error {
	m, err := parse(line)
	if err != nil {
		return err
	}
	switch m.kind {
	case happened:
		c.tell(m.event)
		return nil
	case answered:
		return c.deliver(m)
	default:
		return errors.New("a second greeting")
	}
}

// deliver gives the answer to its caller. One whose caller waits no more is
// dropped; one to a question never asked breaks the protocol.
func (c *Client) deliver(m message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.id == 0 || m.id > c.last {
		return fmt.Errorf("an answer to command %d of %d", m.id, c.last)
	}
	if answer := c.pending[m.id]; answer != nil {
		delete(c.pending, m.id)
		answer <- m
	}
	return nil
}

func (c *Client) tell(e Event) {
	for {
		select {
		case c.events <- e:
			return
		default:
		}
		select {
		case <-c.events:
		default:
		}
	}
}

func (c *Client) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = errs.Wrap(errs.Unavailable, err, "the control connection to QEMU has ended")
	}
	c.mu.Unlock()
	_ = c.conn.Close()
}

func (c *Client) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection; QEMU goes on. Safe to repeat.
func (c *Client) Close() error {
	c.once.Do(func() {
		c.fail(net.ErrClosed)
		<-c.done
	})
	return nil
}
