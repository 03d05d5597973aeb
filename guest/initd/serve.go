package initd

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/initd/pair"
)

// queueMax is how many messages may wait for supervise before init stops
// reading its requests.
const queueMax = 1024

// conn is init's end of the pair to one supervise.
type conn struct {
	d    *daemon
	sock *net.UnixConn

	adopted bool // it has asked for all entries; guarded by daemon.mu

	mu      sync.Mutex
	queue   []outgoing
	sending bool // the sender holds a message that is ahead of the queue
	closed  bool
	more    *sync.Cond // queue or closed changed
}

type outgoing struct {
	msg []byte
	fds []int // duplicates, closed after sending
}

func newConn(d *daemon, fd int) (*conn, error) {
	sock, err := pair.UnixConn(fd)
	if err != nil {
		return nil, err
	}
	c := &conn{d: d, sock: sock}
	c.more = sync.NewCond(&c.mu)
	return c, nil
}

// serve reads requests until the connection breaks or speaks nonsense.
func (c *conn) serve() {
	var wg sync.WaitGroup
	wg.Go(func() {
		defer c.d.recovered("send")
		c.send()
	})
	defer wg.Wait()
	defer c.close()
	buf := make([]byte, pair.MessageBytesMax+1)
	oob := make([]byte, unix.CmsgSpace(4*pair.FDsMax))
	for {
		n, fds, err := pair.Receive(c.sock, buf, oob)
		if err != nil {
			return
		}
		err = c.handle(buf[:n], fds)
		for _, fd := range fds {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
		if err != nil {
			c.d.log.printf("init: supervise sent a %v", err)
			return
		}
		c.throttle()
	}
}

// handle acts on one request.
func (c *conn) handle(msg []byte, fds []int) error {
	k, request, dec, err := pair.DecodeHeader(msg)
	if err != nil {
		return err
	}
	switch k {
	case pair.KindAdopt:
		return c.adopt(request, dec)
	case pair.KindSpawn:
		s, err := dec.Spawn()
		if err != nil {
			return err
		}
		c.d.jobs <- func() {
			defer c.d.recovered("spawn")
			if !c.isClosed() { // else the reply would reach no supervise; the caller will ask again
				c.d.spawn(c, request, s)
			}
		}
		return nil
	case pair.KindLookup:
		key := dec.Str()
		if err := dec.Done(); err != nil {
			return err
		}
		c.lookup(request, key)
		return nil
	case pair.KindSignal:
		return c.signal(request, dec)
	case pair.KindRemember:
		list := dec.Strs()
		if err := dec.Done(); err != nil || len(list)%2 != 0 {
			return pair.ErrMessage
		}
		c.replyCode(request, c.d.remember(list))
		return nil
	case pair.KindShutdown:
		grace := time.Duration(dec.I64())
		if err := dec.Done(); err != nil {
			return err
		}
		c.replyOK(request)
		go c.d.shutdown(grace)
		return nil
	}
	return c.change(k, request, dec, fds)
}

// change handles the requests that alter one entry.
func (c *conn) change(k pair.Kind, request uint32, dec *pair.Decoder, fds []int) error {
	id := dec.U64()
	a, b := dec.I64(), dec.I64()
	if err := dec.Done(); err != nil {
		return err
	}
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.byID[id]
	if r == nil {
		c.replyCode(request, pair.OutcomeUnknown)
		return nil
	}
	switch k {
	case pair.KindFeed:
		if len(fds) != 1 {
			return pair.ErrMessage
		}
		r.closeSlots(pair.SlotFeed)
		r.fds[pair.SlotFeed], r.FeedBase = fds[0], a
		fds[0] = -1
	case pair.KindFeedEnd:
		r.FeedEnded = true
	case pair.KindCloseIn:
		r.closeSlots(pair.SlotStdin, pair.SlotFeed)
	case pair.KindRelease:
		r.closeAll()
	case pair.KindEvict:
		d.evict(r, a, b)
	case pair.KindForget:
		if r.State == pair.Running {
			c.replyCode(request, pair.OutcomeErrno)
			return nil
		}
		d.remove(r)
		if !r.Auto {
			d.journal.drop(r.Key)
		}
	default:
		return pair.ErrMessage
	}
	c.replyOK(request)
	return nil
}

// evict keeps of an ended process what answers "did this key run, and how did
// it end". Preconditions: mu is held.
func (d *daemon) evict(r *record, out, errSize int64) {
	if r.State == pair.Running {
		return
	}
	if r.Auto {
		d.remove(r)
		return
	}
	r.closeAll()
	r.Evicted, r.OutSize, r.ErrSize = true, out, errSize
	r.Argv, r.Dir, r.Info = nil, "", ""
}

// adopt sends every entry with its descriptors, then the reply.
func (c *conn) adopt(request uint32, dec *pair.Decoder) error {
	if err := dec.Done(); err != nil {
		return err
	}
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	c.adopted = true
	for _, r := range d.byID {
		if r.Evicted || r.State == pair.Lost || (r.State == pair.Running && r.PID == 0) {
			continue // looked up when asked for; or the fork has not happened yet
		}
		c.pushEntry(r)
	}
	e := c.reply(request, pair.OutcomeOK)
	e.Str(d.bootID)
	e.U64(d.starts)
	e.Flag(d.limit != nil)
	c.push(e.Bytes(), nil)
	return nil
}

func (c *conn) lookup(request uint32, key string) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	r := c.d.byKey[key]
	if r == nil {
		c.replyCode(request, pair.OutcomeUnknown)
		return
	}
	e := c.reply(request, pair.OutcomeExisted)
	e.Entry(&r.Entry, 0)
	c.push(e.Bytes(), nil)
}

func (c *conn) reply(request uint32, out pair.Outcome) *pair.Encoder {
	e := pair.NewEncoder(pair.KindReply, request)
	e.U8(uint8(out))
	return e
}

func (c *conn) replyCode(request uint32, out pair.Outcome) {
	c.push(c.reply(request, out).Bytes(), nil)
}
func (c *conn) replyOK(request uint32) { c.replyCode(request, pair.OutcomeOK) }

func (c *conn) replyErrno(request uint32, out pair.Outcome, err error) {
	e := c.reply(request, out)
	e.U32(uint32(errnoOf(err)))
	c.push(e.Bytes(), nil)
}

// replyEntry announces r, its descriptors with it when it is new.
func (c *conn) replyEntry(request uint32, out pair.Outcome, r *record) {
	if r == nil {
		c.replyCode(request, out)
		return
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if now := c.d.conn; out == pair.OutcomeOK && now != nil && now != c && now.adopted {
		now.pushEntry(r) // supervise died during the fork and the next one is there already
		return
	}
	e := c.reply(request, out)
	var fds []int
	var mask uint8
	if out == pair.OutcomeOK {
		fds, mask = r.open(), r.mask()
		r.announced = true
	}
	e.Entry(&r.Entry, mask)
	c.push(e.Bytes(), fds)
}

// pushEntry tells of an entry that no request on c named by key. Preconditions: d.mu is held.
func (c *conn) pushEntry(r *record) {
	r.announced = true
	e := pair.NewEncoder(pair.KindEntry, 0)
	e.Entry(&r.Entry, r.mask())
	c.push(e.Bytes(), r.open())
}

// pushExit tells of an end. Preconditions: d.mu is held.
func (c *conn) pushExit(r *record) {
	e := pair.NewEncoder(pair.KindExited, 0)
	e.Exit(pair.Exit{ID: r.ID, Status: r.Status, EndedUnixNs: r.EndedUnixNs, Cause: r.Cause, CauseSignal: r.CauseSignal})
	c.push(e.Bytes(), nil)
}

// push sends a message, or queues it while supervise is slow; then the
// descriptors are duplicated, because the entry may be released before it goes out.
func (c *conn) push(msg []byte, fds []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if len(c.queue) == 0 && !c.sending && c.trySend(msg, oob) {
		return
	}
	o := outgoing{msg: msg}
	for _, fd := range fds {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			c.d.log.printf("init: duplicate a descriptor: %v", err)
			o.drop()
			c.breakLocked() // supervise would get a wrong picture: let the next one adopt
			return
		}
		o.fds = append(o.fds, dup)
	}
	c.queue = append(c.queue, o)
	c.more.Broadcast()
}

// trySend sends without waiting; false: the message must wait its turn.
func (c *conn) trySend(msg, oob []byte) bool {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return false
	}
	sent := false
	err = raw.Control(func(fd uintptr) {
		sent = unix.Sendmsg(int(fd), msg, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) == nil
	})
	return err == nil && sent
}

// throttle waits until supervise has taken most of its messages.
func (c *conn) throttle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > queueMax && !c.closed {
		c.more.Wait()
	}
}

func (c *conn) next() (outgoing, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 && !c.closed {
		c.more.Wait()
	}
	if c.closed {
		return outgoing{}, false
	}
	o := c.queue[0]
	c.queue, c.sending = c.queue[1:], true
	c.more.Broadcast()
	return o, true
}

func (c *conn) send() {
	for {
		o, ok := c.next()
		if !ok {
			return
		}
		var oob []byte
		if len(o.fds) > 0 {
			oob = unix.UnixRights(o.fds...)
		}
		_, _, err := c.sock.WriteMsgUnix(o.msg, oob, nil)
		o.drop()
		if err != nil {
			c.close()
			return
		}
		c.mu.Lock()
		c.sending = false
		c.mu.Unlock()
	}
}

func (o *outgoing) drop() {
	for _, fd := range o.fds {
		_ = unix.Close(fd)
	}
}

func (c *conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// close ends the connection. Safe to repeat.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breakLocked()
}

func (c *conn) breakLocked() {
	if c.closed {
		return
	}
	c.closed = true
	for i := range c.queue {
		c.queue[i].drop()
	}
	c.queue = nil
	c.more.Broadcast()
	_ = c.sock.Close()
}
