package pair

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// Client is supervise's end of the pair.
//
// All methods are safe for concurrent use. A broken connection means that init
// is gone and the machine with it: every call returns Unavailable then.
type Client struct {
	sock    *net.UnixConn
	onEntry func(Entry)
	onExit  func(Exit)
	done    chan struct{}

	writeMu sync.Mutex

	mu      sync.Mutex
	last    uint32
	waiting map[uint32]chan reply
	broken  bool
}

// Boot is what init says of the machine's present boot.
type Boot struct {
	ID string
	// Starts of supervise in this boot, the present one included.
	Starts uint64
	// Counted: the number of processes is limited.
	Counted bool
}

type reply struct {
	Outcome Outcome
	dec     *Decoder
	fds     []int
}

// Connect uses the descriptor that init has left in supervise. onEntry gets
// the processes that supervise did not start itself, onExit the ends; both are
// called one after the other from one goroutine and must not block.
func Connect(fd int, onEntry func(Entry), onExit func(Exit)) (*Client, error) {
	unix.CloseOnExec(fd)
	sock, err := UnixConn(fd)
	if err != nil {
		return nil, fmt.Errorf("connect to init: %w", err)
	}
	c := &Client{sock: sock, onEntry: onEntry, onExit: onExit, done: make(chan struct{}), waiting: map[uint32]chan reply{}}
	go c.receive()
	return c, nil
}

// Done is closed when init is gone or the client closed.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close hangs up. Safe to repeat.
func (c *Client) Close() error {
	err := c.sock.Close()
	<-c.done
	return err
}

func (c *Client) receive() {
	defer close(c.done)
	defer c.fail()
	buf := make([]byte, MessageBytesMax+1)
	oob := make([]byte, unix.CmsgSpace(4*FDsMax))
	for {
		n, fds, err := Receive(c.sock, buf, oob)
		if err != nil {
			return
		}
		k, request, dec, err := DecodeHeader(buf[:n])
		if err != nil {
			return
		}
		if err := c.dispatch(k, request, dec, fds); err != nil {
			return
		}
	}
}

func (c *Client) dispatch(k Kind, request uint32, dec *Decoder, fds []int) error {
	switch k {
	case KindEntry:
		e, mask, err := dec.Entry()
		if err != nil {
			return err
		}
		c.onEntry(e.withFiles(mask, fds))
	case KindExited:
		x, err := dec.Exit()
		if err != nil {
			return err
		}
		c.onExit(x)
	case KindReply:
		out := Outcome(dec.U8())
		c.mu.Lock()
		ch := c.waiting[request]
		delete(c.waiting, request)
		c.mu.Unlock()
		if ch != nil {
			rest := append([]byte(nil), dec.b...)
			ch <- reply{Outcome: out, dec: &Decoder{b: rest, bad: dec.bad}, fds: fds}
		}
	default:
		return ErrMessage
	}
	return nil
}

// fail answers all waiting calls.
func (c *Client) fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
	for _, ch := range c.waiting {
		close(ch)
	}
	c.waiting = nil
	_ = c.sock.Close()
}

var errGone = errs.New(errs.Unavailable, "the machine is going down")

// call sends a request and waits for its reply. It does not take a context:
// init answers at once or is gone, and a spawn that was asked for must be known.
func (c *Client) call(k Kind, fill func(*Encoder), fds ...int) (reply, error) {
	c.mu.Lock()
	if c.broken {
		c.mu.Unlock()
		return reply{}, errGone
	}
	c.last++
	request := c.last
	ch := make(chan reply, 1)
	c.waiting[request] = ch
	c.mu.Unlock()
	e := NewEncoder(k, request)
	if fill != nil {
		fill(e)
	}
	if err := c.write(e.b, fds); err != nil {
		return reply{}, err
	}
	r, ok := <-ch
	if !ok {
		return reply{}, errGone
	}
	return r, nil
}

func (c *Client) write(msg []byte, fds []int) error {
	if len(msg) > MessageBytesMax {
		return errs.New(errs.Invalid, "arguments and environment are larger than %d bytes", MessageBytesMax)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if _, _, err := c.sock.WriteMsgUnix(msg, oob, nil); err != nil {
		return errs.Wrap(errs.Unavailable, err, "the machine is going down")
	}
	return nil
}

// Adopt asks for every process that is there; they come through onEntry
// before Adopt returns.
func (c *Client) Adopt(context.Context) (Boot, error) {
	r, err := c.call(KindAdopt, nil)
	if err != nil {
		return Boot{}, err
	}
	b := Boot{ID: r.dec.Str(), Starts: r.dec.U64(), Counted: r.dec.Flag()}
	return b, r.dec.Done()
}

// Spawn starts a command unless its key is known; then existed is true and
// the entry, without files, tells of the one that has it.
//
// Errors: Limit (processes, keys), otherwise the errno of fork or exec.
func (c *Client) Spawn(s Spawn) (e Entry, existed bool, err error) {
	r, err := c.call(KindSpawn, func(e *Encoder) { e.Spawn(&s) })
	if err != nil {
		return Entry{}, false, err
	}
	switch r.Outcome {
	case OutcomeOK, OutcomeExisted:
		e, mask, err := r.dec.Entry()
		return e.withFiles(mask, r.fds), r.Outcome == OutcomeExisted, err
	}
	return Entry{}, false, r.error()
}

// Lookup returns the entry of a key, without files. NotFound: unknown.
func (c *Client) Lookup(key string) (Entry, error) {
	r, err := c.call(KindLookup, func(e *Encoder) { e.Str(key) })
	if err != nil {
		return Entry{}, err
	}
	if r.Outcome != OutcomeExisted {
		return Entry{}, r.error()
	}
	e, _, err := r.dec.Entry()
	return e, err
}

// Signal sends a signal; ESRCH: the process is gone. The first cause that is
// given for a running process is remembered.
func (c *Client) Signal(id uint64, sig unix.Signal, scope Scope, cause Cause) error {
	return c.simple(KindSignal, func(e *Encoder) {
		e.U64(id)
		e.U8(uint8(sig))
		e.U8(uint8(scope))
		e.U8(uint8(cause))
	})
}

// Feed gives init the file that feeds stdin from offset base on; init then
// holds it instead of the one before.
func (c *Client) Feed(id uint64, base int64, file *os.File) error {
	defer keepAlive(file)
	return c.simple(KindFeed, change(id, base, 0), int(file.Fd()))
}

// FeedEnd notes that stdin ends behind what is fed.
func (c *Client) FeedEnd(id uint64) error { return c.simple(KindFeedEnd, change(id, 0, 0)) }

// CloseStdin lets init close its end of stdin.
func (c *Client) CloseStdin(id uint64) error { return c.simple(KindCloseIn, change(id, 0, 0)) }

// Release lets init close every descriptor of the process.
func (c *Client) Release(id uint64) error { return c.simple(KindRelease, change(id, 0, 0)) }

// Evict lets init forget all but key, status and the sizes of the outputs.
func (c *Client) Evict(id uint64, outSize, errSize int64) error {
	return c.simple(KindEvict, change(id, outSize, errSize))
}

// Forget frees the key of an ended process.
func (c *Client) Forget(id uint64) error { return c.simple(KindForget, change(id, 0, 0)) }

// Used is a key that was used before this boot of the machine.
type Used struct{ Key, Fingerprint string }

// rememberMax is how many keys go into one message.
const rememberMax = 500

// Remember makes keys Lost that are not known. Limit: too many are known.
func (c *Client) Remember(used []Used) error {
	for part := range slices.Chunk(used, rememberMax) {
		list := make([]string, 0, 2*len(part))
		for _, u := range part {
			list = append(list, u.Key, u.Fingerprint)
		}
		if err := c.simple(KindRemember, func(e *Encoder) { e.Strs(list) }); err != nil {
			return err
		}
	}
	return nil
}

// Shutdown ends every command and then the machine. It returns at once.
func (c *Client) Shutdown(grace time.Duration) error {
	return c.simple(KindShutdown, func(e *Encoder) { e.I64(int64(grace)) })
}

func change(id uint64, a, b int64) func(*Encoder) {
	return func(e *Encoder) {
		e.U64(id)
		e.I64(a)
		e.I64(b)
	}
}

func (c *Client) simple(k Kind, fill func(*Encoder), fds ...int) error {
	r, err := c.call(k, fill, fds...)
	if err != nil {
		return err
	}
	if r.Outcome != OutcomeOK {
		return r.error()
	}
	return nil
}

func (r *reply) error() error {
	switch r.Outcome {
	case OutcomeErrno, OutcomeNoExec:
		return unix.Errno(r.dec.U32())
	case OutcomeKeysFull:
		return errs.New(errs.Limit, "%d process keys are remembered", KeysMax).WithHint("forget processes that have ended")
	case OutcomeUnknown:
		return errs.New(errs.NotFound, "no such process")
	case OutcomeStopping:
		return errGone
	}
	return ErrMessage
}
