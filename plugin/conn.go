package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Process is a plug-in's process, as a Launcher gives it. Reads end with io.EOF, or with why
// the process ended.
type Process struct {
	Stdin  io.Writer // a Write may wait for the process
	Stdout io.Reader
	Stderr io.Reader
	// Kill ends the process: reads and writes return then. It may be repeated.
	Kill func()
}

// Bounds of a connection.
const (
	inFlightMax   = 32
	strayBytesMax = 1 << 20 // of messages that belong to no call
	writeTimeout  = 30 * time.Second
	cancelTimeout = 10 * time.Second // for the answer to a call that was cancelled
	stopTimeout   = 2 * time.Second  // between `shutdown` and the end by force
)

// Errors of a connection that ended.
var errStopped = errs.New(errs.Unavailable, "the plug-in was stopped")

// conn speaks with one process. Its goroutines are waited for by close.
type conn struct {
	proc   Process
	log    *slog.Logger
	slots  chan struct{}
	writes chan []byte
	wg     sync.WaitGroup

	ctx  context.Context // ends with the connection; its cause says why
	stop context.CancelCauseFunc

	mu    sync.Mutex
	last  int64           // id that was given
	calls map[int64]*call // under way, and cancelled ones that are not answered
	stray int64
	ends  []int64       // calls to cancel
	ended chan struct{} // a token: ends changed
}

// call is a request under way.
type call struct {
	id    int64
	bytes int64 // heard of it
	max   int64

	mu      sync.Mutex
	queue   []heard
	tooLong bool
	news    chan struct{} // a token: queue or tooLong changed
	late    *time.Timer   // of a cancelled call: ends the process
}

// dial begins to speak with a process.
func dial(proc Process, log *slog.Logger) *conn {
	c := &conn{proc: proc, log: log, slots: make(chan struct{}, inFlightMax), writes: make(chan []byte), calls: map[int64]*call{}, ended: make(chan struct{}, 1)}
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	c.wg.Go(c.read)
	c.wg.Go(c.write)
	c.wg.Go(c.listen)
	context.AfterFunc(c.ctx, proc.Kill)
	return c
}

// over says why the connection ended; nil: it did not.
func (c *conn) over() error {
	if c.ctx.Err() == nil {
		return nil
	}
	return context.Cause(c.ctx)
}

// close ends the process: politely first, if it still works.
func (c *conn) close() {
	if data, err := line(message{Method: methodShutdown}); err == nil && c.over() == nil {
		polite := time.NewTimer(stopTimeout)
		select {
		case c.writes <- data:
			select {
			case <-c.ctx.Done():
			case <-polite.C:
			}
		case <-polite.C:
		case <-c.ctx.Done():
		}
		polite.Stop()
	}
	c.stop(errStopped)
	c.proc.Kill()
	c.wg.Wait()
}

// write sends what is to be sent. A process that takes nothing for too long is ended.
func (c *conn) write() {
	for {
		var data []byte
		select {
		case data = <-c.writes:
		case <-c.ended:
			data = c.cancels()
		case <-c.ctx.Done():
			return
		}
		late := time.AfterFunc(writeTimeout, func() {
			c.stop(errs.New(errs.Unavailable, "the plug-in did not read what it was sent for %s", writeTimeout))
		})
		_, err := c.proc.Stdin.Write(data)
		late.Stop()
		if err != nil {
			c.stop(errs.Wrap(errs.Unavailable, err, "the plug-in does not read any more"))
			return
		}
	}
}

// read takes in what the process writes, and ends it at the first line that makes no sense.
func (c *conn) read() {
	in := bufio.NewReaderSize(c.proc.Stdout, 64<<10)
	for {
		data, err := readLine(in, FrameBytesMax)
		if err == nil && c.ctx.Err() == nil {
			err = c.take(data)
		}
		switch {
		case errors.Is(err, io.EOF):
			c.stop(errs.New(errs.Unavailable, "the plug-in ended"))
			return
		case err != nil:
			c.stop(err)
			return
		}
	}
}

// readLine reads a line without its end. A longer one is an error at once, and is not kept.
func readLine(in *bufio.Reader, most int) ([]byte, error) {
	var whole []byte
	for {
		piece, err := in.ReadSlice('\n')
		if len(whole)+len(piece) > most {
			return nil, errNonsense("a line is longer than %d bytes", most)
		}
		switch {
		case err == nil && whole == nil:
			return piece[:len(piece)-1], nil // used before the next read
		case err == nil:
			return append(whole, piece[:len(piece)-1]...), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
		whole = append(whole, piece...)
	}
}

// take gives a line to the call that it belongs to.
func (c *conn) take(data []byte) error {
	h, err := parse(data)
	if err != nil {
		return err
	}
	if h.Method != nil {
		if *h.Method == methodDelta {
			d, err := parseDelta(h.Params)
			if err != nil {
				return err
			}
			h.id = d.ID
		} else if len(h.ID) > 0 {
			return errNonsense("it asks the host for %.60q, which answers no requests", *h.Method)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.id > c.last {
		return errNonsense("an answer to request %d, which was not sent", h.id)
	}
	to := c.calls[h.id]
	if to == nil { // a notification that we do not know, or too late
		if c.stray += int64(len(data)); c.stray > strayBytesMax {
			return errNonsense("more than %d bytes belong to no request", strayBytesMax)
		}
		return nil
	}
	if h.Method == nil {
		delete(c.calls, h.id)
		if to.late != nil {
			to.late.Stop()
		}
	}
	to.add(h, len(data))
	return nil
}

func (k *call) add(h heard, size int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bytes += int64(size); k.bytes > k.max {
		k.tooLong, k.queue = true, nil
	} else if k.late == nil {
		k.queue = append(k.queue, h)
	}
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// errTooLong is an answer that is longer than the caller takes.
var errTooLong = errs.New(errs.Unavailable, "the plug-in's answer is too long")

// errSilent is a call of which nothing was heard for too long.
var errSilent = errs.New(errs.Unavailable, "the plug-in was silent for too long")

// begin sends a request. Its end has to be called.
func (c *conn) begin(ctx context.Context, method string, params any, bytesMax int64) (k *call, end func(), err error) {
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		return nil, nil, c.over()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	c.mu.Lock()
	c.last++
	k = &call{id: c.last, max: bytesMax, news: make(chan struct{}, 1)}
	c.calls[k.id] = k
	c.mu.Unlock()
	end = sync.OnceFunc(func() { c.end(k) })
	data, err := line(message{ID: &k.id, Method: method, Params: params})
	if err != nil {
		c.forget(k)
		end()
		return nil, nil, err
	}
	select {
	case c.writes <- data:
		return k, end, nil
	case <-c.ctx.Done():
		err = c.over()
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.forget(k) // it was not sent
	end()
	return nil, nil, err
}

func (c *conn) forget(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, k.id)
}

// end gives a call's place back. One that is not answered is cancelled; a plug-in that does
// not answer then either is taken to hang, and ended.
func (c *conn) end(k *call) {
	c.mu.Lock()
	open := c.calls[k.id] != nil
	if open && c.ctx.Err() == nil {
		k.mu.Lock()
		k.queue = nil
		k.late = time.AfterFunc(cancelTimeout, func() {
			c.stop(errs.New(errs.Unavailable, "the plug-in did not end a call that was cancelled within %s", cancelTimeout))
		})
		k.mu.Unlock()
	}
	if open {
		c.ends = append(c.ends, k.id)
		select {
		case c.ended <- struct{}{}:
		default:
		}
	}
	c.mu.Unlock()
	<-c.slots
}

// cancels are the messages that cancel calls.
func (c *conn) cancels() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []byte
	for _, id := range c.ends {
		if data, err := line(message{Method: methodCancel, Params: map[string]int64{"id": id}}); err == nil {
			all = append(all, data...)
		}
	}
	c.ends = nil
	return all
}

// next waits for the next message of a call.
func (c *conn) next(ctx context.Context, k *call, silence time.Duration) (heard, error) {
	timer := time.NewTimer(silence)
	defer timer.Stop()
	for {
		if h, ok, err := k.pop(); ok || err != nil {
			return h, err
		}
		select {
		case <-k.news:
		case <-ctx.Done():
			return heard{}, ctx.Err()
		case <-timer.C:
			return heard{}, errSilent
		case <-c.ctx.Done():
			if h, ok, err := k.pop(); ok || err != nil { // it came before the end
				return h, err
			}
			return heard{}, c.over()
		}
	}
}

func (k *call) pop() (heard, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tooLong {
		return heard{}, false, errTooLong
	}
	if len(k.queue) == 0 {
		return heard{}, false, nil
	}
	h := k.queue[0]
	k.queue = k.queue[1:]
	return h, true, nil
}

// ask sends a request and returns the answer to it.
func (c *conn) ask(ctx context.Context, method string, params any, bytesMax int64, silence time.Duration) (json.RawMessage, error) {
	k, end, err := c.begin(ctx, method, params, bytesMax)
	if err != nil {
		return nil, err
	}
	defer end()
	for {
		h, err := c.next(ctx, k, silence)
		switch {
		case err != nil:
			return nil, err
		case h.Error != nil:
			return nil, errs.New(errs.Unavailable, "the plug-in answered with error %d: %.500s", h.Error.Code, h.Error.Message)
		case h.Method == nil:
			return h.Result, nil
		}
	}
}

// greeting is what a plug-in answers to initialize.
type greeting struct {
	Protocol int `json:"protocol"`
}

// greet is the first call.
func (c *conn) greet(ctx context.Context, p *Plugin, version string, timeout time.Duration) error {
	params := map[string]any{
		"protocol": Protocol, "plugin": p.Name,
		"host":   map[string]string{"name": "skete", "version": version},
		"limits": map[string]int64{"line_bytes_max": FrameBytesMax, "in_flight_max": inFlightMax, "reply_bytes_max": replyBytesMax},
	}
	answer, err := c.ask(ctx, methodInitialize, params, hookBytesMax, timeout)
	if err != nil {
		return err
	}
	var g greeting
	if json.Unmarshal(answer, &g) != nil || g.Protocol != Protocol {
		return errNonsense("it speaks protocol %d, the host %d", g.Protocol, Protocol)
	}
	return nil
}

// Bounds of what a plug-in's stderr puts into the log.
const (
	logLineMax    = 1 << 10
	logLinesMax   = 60 // a minute
	logMinute     = time.Minute
	stderrBufSize = 4 << 10
)

// listen puts the process's stderr into the log: quoted, in short lines, and not many.
func (c *conn) listen() {
	in := bufio.NewReaderSize(c.proc.Stderr, stderrBufSize)
	lines, left, began := 0, 0, time.Now()
	for {
		text, err := in.ReadSlice('\n')
		if time.Since(began) > logMinute {
			if left > 0 {
				c.log.Warn("a plug-in wrote too much on stderr", "lines_left_out", left)
			}
			lines, left, began = 0, 0, time.Now()
		}
		if len(text) > 0 {
			if lines++; lines <= logLinesMax {
				c.log.Info("a plug-in says", "stderr", string(text[:min(len(text), logLineMax)]))
			} else {
				left++
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	if left > 0 {
		c.log.Warn("a plug-in wrote too much on stderr", "lines_left_out", left)
	}
}
