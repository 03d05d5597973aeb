package stream

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// Bridging a broken connection to the guest (its supervisor restarted).
const (
	bridgeFor = 20 * time.Second
	// reachFor is how long a stream that has not begun waits for a machine that is
	// elsewhere and whose service does not answer. A client repeats its call, so it hears
	// of that after some times as long.
	reachFor   = time.Second
	bridgeWait = 20 * time.Millisecond
	bridgeMax  = time.Second
)

// Output reads what a command writes, from two offsets on, and keeps the
// place: when the connection to the guest breaks it attaches again where it
// was. Not safe for concurrent use.
type Output struct {
	// Alive is asked before the guest is dialled again; an error ends the
	// stream with it. nil = always try.
	Alive func(context.Context) error
	// Still is asked when a guest has said nothing for too long, and reports
	// whether its machine is held still; then it is waited for. Otherwise the
	// stream ends with ErrSilent. nil = it never is.
	Still func(context.Context) bool
	// Step ends before Next says that the command has; nil = it is none.
	Step interface {
		End()
		Follow(wait func(context.Context))
	}

	guest    *wire.Client
	key      string
	starts   []*wire.StartRequest // to try in this order; nil: attach only
	at       [2]int64             // next offsets of stdout and stderr
	noFollow bool

	there   bool // Start has answered
	existed bool // that the key was known before
	started bool // an event has come
	stream  *connect.ServerStreamForClient[wire.AttachEvent]
	close   context.CancelFunc // nil = no stream was ever opened
	silence *silence           // of the stream
	context context.Context    // the stream's
	broken  time.Time          // since when; zero = it is not
	began   time.Time          // the first try
}

// Start returns the output of a command that the first Next starts. The
// alternatives are tried in order as long as the guest says that the program
// is not there. All must have the same key; an empty one is made up.
func Start(guest *wire.Client, starts ...*wire.StartRequest) *Output {
	key := starts[0].GetKey()
	if key == "" {
		key = wire.NewKey()
	}
	for _, s := range starts {
		s.Key = key
	}
	return &Output{guest: guest, key: key, starts: starts}
}

// Attach returns the output of a running or ended command. -1 = from the present end.
func Attach(guest *wire.Client, key string, stdoutFrom, stderrFrom int64, follow bool) *Output {
	return &Output{guest: guest, key: key, at: [2]int64{stdoutFrom, stderrFrom}, noFollow: !follow}
}

// Key names the command.
func (o *Output) Key() string { return o.key }

// Existed reports whether the key was known, so that nothing was started.
func (o *Output) Existed() bool { return o.existed }

// At returns the offsets behind what Next returned.
func (o *Output) At() (stdout, stderr int64) { return max(o.at[0], 0), max(o.at[1], 0) }

// Next returns the next event: started first and once, then output and gaps
// in order, exited last. nil without an error: the end of what there is.
// Keepalives are returned too.
func (o *Output) Next(ctx context.Context) (*wire.AttachEvent, error) {
	if o.began.IsZero() {
		o.began = time.Now()
	}
	for {
		ev, err := o.receive(ctx)
		if err == nil {
			o.broken = time.Time{}
			if ev == nil {
				return nil, nil
			}
			skip, err := o.place(ev)
			if err != nil {
				o.Close()
				return nil, err
			}
			if skip {
				continue
			}
			if ev.GetExited() != nil && o.Step != nil {
				o.Step.End()
			}
			return ev, nil
		}
		silent := o.context != nil && errors.Is(context.Cause(o.context), ErrSilent)
		o.Close()
		if ctx.Err() != nil {
			return nil, why(ctx, err)
		}
		if silent {
			return nil, errSilent()
		}
		if o.fallback(err) {
			continue
		}
		if err := o.bridge(ctx, err); err != nil {
			return nil, err
		}
	}
}

// receive opens a stream if there is none and takes an event from it.
func (o *Output) receive(ctx context.Context) (*wire.AttachEvent, error) {
	if o.stream == nil {
		o.context, o.silence, o.close = listen(ctx, o.Still)
	}
	o.silence.begin()
	defer o.silence.end()
	if o.stream == nil {
		if err := o.resolveEnds(o.context); err != nil {
			return nil, err
		}
		if err := o.open(o.context); err != nil {
			return nil, wire.Err(err)
		}
	}
	if o.stream.Receive() {
		return o.stream.Msg(), nil
	}
	if err := o.stream.Err(); err != nil {
		return nil, wire.Err(err)
	}
	if o.noFollow {
		return nil, nil
	}
	return nil, errs.New(errs.Unavailable, "the guest ended the output before the command ended")
}

func (o *Output) open(ctx context.Context) (err error) {
	exec := len(o.starts) > 0 && !o.started
	if exec && !wire.MadeUp(o.key) {
		// A key that the caller chose: whether it was known before is an answer
		// of its own, and so is a refusal, which leaves it free.
		exec, err = false, o.start(ctx)
	}
	switch {
	case err != nil:
	case exec:
		o.stream, err = o.guest.Process.Exec(ctx, connect.NewRequest(o.starts[0]))
	default:
		o.stream, err = o.guest.Process.Attach(ctx, connect.NewRequest(&wire.AttachRequest{
			Key: o.key, StdoutFrom: o.at[0], StderrFrom: o.at[1], NoFollow: o.noFollow,
		}))
	}
	if err != nil {
		o.close()
		o.stream = nil
	}
	return err
}

// start starts a command whose key was chosen, unless that is done.
func (o *Output) start(ctx context.Context) error {
	if o.there {
		return nil
	}
	res, err := o.guest.Process.Start(ctx, connect.NewRequest(o.starts[0]))
	if err == nil {
		o.there, o.existed = true, res.Msg.GetExisted()
	}
	return err
}

// resolveEnds turns "the present end" into a number, so that a break before
// the first byte does not move the place.
func (o *Output) resolveEnds(ctx context.Context) error {
	if o.at[0] >= 0 && o.at[1] >= 0 {
		return nil
	}
	res, err := o.guest.Process.Get(ctx, connect.NewRequest(&wire.GetProcessRequest{Key: o.key}))
	if err != nil {
		return wire.Err(err)
	}
	for i, s := range []*wire.Spool{res.Msg.GetProcess().GetStdout(), res.Msg.GetProcess().GetStderr()} {
		if o.at[i] < 0 {
			o.at[i] = s.GetSize()
		}
	}
	return nil
}

// place checks an event against the offsets and moves them. skip: the client
// has seen it (the started event of a bridged stream, repeated bytes).
func (o *Output) place(ev *wire.AttachEvent) (skip bool, err error) {
	switch e := ev.GetEvent().(type) {
	case *wire.AttachEvent_Started:
		again := o.started
		o.started = true
		return again, nil
	case *wire.AttachEvent_Output:
		at := &o.at[index(e.Output.GetStream())]
		if e.Output.GetOffset() != *at {
			return false, errs.New(errs.Unavailable, "the guest sent output out of order")
		}
		*at += int64(len(e.Output.GetData()))
		return len(e.Output.GetData()) == 0, nil
	case *wire.AttachEvent_Gap:
		at := &o.at[index(e.Gap.GetStream())]
		if e.Gap.GetFrom() != *at || e.Gap.GetTo() < *at {
			return false, errs.New(errs.Unavailable, "the guest sent output out of order")
		}
		skip = e.Gap.GetTo() == *at
		*at = e.Gap.GetTo()
		return skip, nil
	case *wire.AttachEvent_Exited, *wire.AttachEvent_Keepalive:
		return false, nil
	}
	return true, nil // a later version may send more
}

func index(s wire.Stream) int {
	if s == wire.Stream_STREAM_STDERR {
		return 1
	}
	return 0
}

// fallback moves to the next alternative when the program is not there.
func (o *Output) fallback(err error) bool {
	if o.started || len(o.starts) < 2 || !errs.Is(err, errs.NotFound) {
		return false
	}
	o.starts = o.starts[1:]
	return true
}

// bridge waits before the next attempt, or returns the error that ends the stream.
func (o *Output) bridge(ctx context.Context, err error) error {
	if !errs.Temporary(err) {
		return err
	}
	now := time.Now()
	if o.broken.IsZero() {
		o.broken = now
	}
	since := now.Sub(o.broken)
	if since > bridgeFor || !o.started && unreached(o.began, err) {
		return err
	}
	if o.Alive != nil {
		if dead := o.Alive(ctx); dead != nil {
			return dead
		}
	}
	t := time.NewTimer(min(max(since, bridgeWait), bridgeMax)) // doubles the time so far
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return why(ctx, err)
	}
}

// unreached tells whether a machine that is elsewhere was tried to be reached for long enough.
func unreached(since time.Time, err error) bool {
	return errs.Code(err) == errs.Unreachable && time.Since(since) > reachFor
}

// Close ends the stream. After the end of the command it reads the rest, so
// that the connection can be used again.
func (o *Output) Close() {
	if o.close != nil {
		o.close()
	}
	if o.stream != nil {
		_ = o.stream.Close()
		o.stream = nil
	}
}

// Finish is Close after the exited event: it waits for the end of the stream,
// which is on its way, so that the next call finds a warm connection.
func (o *Output) Finish() {
	if o.stream == nil {
		return
	}
	stop := time.AfterFunc(time.Second, o.close)
	defer stop.Stop()
	for o.stream.Receive() { // nothing comes but the end
	}
	o.Close()
}
