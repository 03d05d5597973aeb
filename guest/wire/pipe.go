package wire

import (
	"context"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
)

// Bounds of a Pipe.
const (
	pipeChunk     = 1 << 20 // that Input takes
	pipeSpoolMax  = 2 << 20 // kept of each stream in the machine
	pipeTries     = 6       // to attach again, without a byte in between
	pipeRetryWait = 50 * time.Millisecond
	pipeKillWait  = 5 * time.Second
	pipeEndWait   = 300 * time.Millisecond // for a process whose stdin is closed
	sigkill       = 9
)

// Pipe is a process of the machine whose streams are the caller's, as those of a child would
// be: output waits for its reader. Reads end with io.EOF after status 0, else with how the
// process ended. It survives that the connection to the machine breaks.
type Pipe struct {
	Stdout, Stderr io.Reader

	c      *Client
	key    string
	ctx    context.Context // until Kill
	cancel context.CancelFunc
	done   chan struct{} // closed when nothing is read any more
	ended  sync.Once

	mu   sync.Mutex // of Write
	sent int64
}

// StartPipe starts a process; Stdin and Overflow of the request are set here. ctx bounds the
// start alone. Kill or Close has to be called.
func (c *Client) StartPipe(ctx context.Context, req *StartRequest) (*Pipe, error) {
	req.Stdin, req.Overflow, req.SpoolBytesMax = true, Overflow_OVERFLOW_WAIT, pipeSpoolMax
	p := &Pipe{c: c, key: req.Key, done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	err := p.again(func() error { // by key: it is started once
		_, err := c.Process.Start(ctx, connect.NewRequest(req))
		return err
	})
	if err != nil {
		p.cancel()
		return nil, err
	}
	out, outTo := io.Pipe()
	errOut, errTo := io.Pipe()
	p.Stdout, p.Stderr = out, errOut
	go func() {
		defer close(p.done)
		end := p.pump(outTo, errTo)
		outTo.CloseWithError(end)
		errTo.CloseWithError(end)
	}()
	context.AfterFunc(p.ctx, func() { // a write that waits for its reader
		out.CloseWithError(io.ErrClosedPipe)
		errOut.CloseWithError(io.ErrClosedPipe)
	})
	return p, nil
}

// Write implements io.Writer: the process's stdin. It waits while the process takes nothing.
func (p *Pipe) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := p.sent
	end := from + int64(len(data))
	for p.sent < end {
		at := p.sent - from
		piece := data[at:min(at+pipeChunk, int64(len(data)))]
		err := p.again(func() error { // by offset: no byte goes in twice
			res, err := p.c.Process.Input(p.ctx, connect.NewRequest(&InputRequest{Key: p.key, Offset: p.sent, Data: piece}))
			if err != nil {
				return err
			}
			if res.Msg.Acked > p.sent && res.Msg.Acked <= end {
				p.sent = res.Msg.Acked
			} else if res.Msg.Closed {
				return ToConnect(errs.New(errs.Conflict, "the process has closed its stdin"))
			}
			return nil
		})
		if err != nil {
			return int(p.sent - from), err
		}
	}
	return len(data), nil
}

// again repeats a call that may be repeated while the connection breaks.
func (p *Pipe) again(call func() error) error {
	for try := range pipeTries {
		err := Err(call())
		if !errs.Temporary(err) || p.ctx.Err() != nil || try == pipeTries-1 {
			return err
		}
		if err := sleep.For(p.ctx, pipeRetryWait<<try); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends the process with all that it started, and drops what it wrote. It may be repeated.
func (p *Pipe) Kill() { p.end(false) }

// Close is Kill of a process that may tidy up for a moment, with its stdin closed.
func (p *Pipe) Close() error {
	p.end(true)
	return nil
}

func (p *Pipe) end(gently bool) {
	p.ended.Do(func() {
		p.cancel()
		ctx, cancel := context.WithTimeout(context.Background(), pipeKillWait)
		defer cancel()
		if !gently || !p.tidied(ctx) {
			_, err := p.c.Process.Signal(ctx, connect.NewRequest(&SignalRequest{Key: p.key, Signal: sigkill}))
			if err == nil {
				p.wait(ctx, pipeKillWait)
			}
		}
		_, _ = p.c.Process.Forget(ctx, connect.NewRequest(&ForgetRequest{Key: p.key})) // what is left goes with the machine
	})
	<-p.done
}

// tidied closes the process's stdin, and reports whether it ended by that.
func (p *Pipe) tidied(ctx context.Context) bool {
	p.mu.Lock() // a write that waits has ended with its context
	defer p.mu.Unlock()
	_, err := p.c.Process.Input(ctx, connect.NewRequest(&InputRequest{Key: p.key, Offset: p.sent, Eof: true}))
	return err == nil && p.wait(ctx, pipeEndWait)
}

// wait reports whether the process has ended, after so long at most.
func (p *Pipe) wait(ctx context.Context, most time.Duration) bool {
	res, err := p.c.Process.Wait(ctx, connect.NewRequest(&WaitRequest{Key: p.key, WaitMs: most.Milliseconds()}))
	return err == nil && res.Msg.Process.GetState() != ProcessState_PROCESS_STATE_RUNNING
}

// pump passes output on until the process ended, and returns how it did.
func (p *Pipe) pump(stdout, stderr io.Writer) error {
	var at [2]int64 // of stdout and stderr
	var end error
	tries := 0
	for {
		before := at
		err := p.attach(&at, stdout, stderr, &end)
		switch {
		case end != nil:
			return end
		case p.ctx.Err() != nil:
			return io.ErrClosedPipe
		case at != before:
			tries = 0
		case !errs.Temporary(err) || tries == pipeTries:
			return err
		}
		if sleep.For(p.ctx, pipeRetryWait<<tries) != nil {
			return io.ErrClosedPipe
		}
		tries++
	}
}

// attach reads one stream of the guest. end is set when the process ended.
func (p *Pipe) attach(at *[2]int64, stdout, stderr io.Writer, end *error) error {
	st, err := p.c.Process.Attach(p.ctx, connect.NewRequest(&AttachRequest{Key: p.key, StdoutFrom: at[0], StderrFrom: at[1]}))
	if err != nil {
		return Err(err)
	}
	defer st.Close()
	for st.Receive() {
		switch e := st.Msg().Event.(type) {
		case *AttachEvent_Output:
			i, to := 0, stdout
			if e.Output.Stream == Stream_STREAM_STDERR {
				i, to = 1, stderr
			}
			if e.Output.Offset != at[i] {
				return errs.New(errs.Corrupt, "output came at byte %d, not at %d", e.Output.Offset, at[i])
			}
			if _, err := to.Write(e.Output.Data); err != nil {
				return err
			}
			at[i] += int64(len(e.Output.Data))
		case *AttachEvent_Gap:
			if e.Gap.Stream != Stream_STREAM_STDERR {
				return errs.New(errs.Limit, "output was not read in time, and %d bytes of it are lost", e.Gap.To-e.Gap.From)
			}
			at[1] = e.Gap.To
		case *AttachEvent_Exited:
			*end = endOf(e.Exited)
			return nil
		}
	}
	if err := Err(st.Err()); err != nil {
		return err
	}
	return errs.New(errs.Unavailable, "the guest ended the stream before the process")
}

// endOf is what reads end with.
func endOf(p *ProcessInfo) error {
	x := p.GetExit()
	switch {
	case p.GetState() == ProcessState_PROCESS_STATE_LOST:
		return errs.New(errs.Unavailable, "the process was lost with its machine")
	case x.GetCode() == 0:
		return io.EOF
	case x.GetReason() != "":
		return errs.New(errs.Unavailable, "the process ended with status %d: %s", x.GetCode(), x.GetReason())
	}
	return errs.New(errs.Unavailable, "the process ended with status %d", x.GetCode())
}
