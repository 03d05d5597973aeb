package runner

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// driver brings one run on. Its goroutine alone has the state; each attempt of an agent has
// a goroutine of its own, which tells what came of it.
type driver struct {
	r     *Runner
	run   Run
	ctx   context.Context
	halt  context.CancelFunc
	gone  chan struct{} // closed when it drives no more
	news  chan struct{} // holds one
	log   thread.Log
	blobs thread.Blobs
	s     *cowork.State

	attempts map[thread.Attempt]*attempt // that this process looks after
	done     chan *outcome
	shared   sharedMachine
}

// outcome is what came of an attempt, or that the machine of the workflow is there.
type outcome struct {
	ended   thread.NodeEnded
	files   [][]byte // content of ended.Artifacts
	machine string   // that nodes share, which was made
}

var errLost = errors.New("another server drives the workflow")

func newDriver(r *Runner, run Run) *driver {
	d := &driver{r: r, run: run, news: make(chan struct{}, 1), gone: make(chan struct{})}
	d.ctx, d.halt = context.WithCancel(r.ctx)
	return d
}

func (d *driver) tell() {
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// leased drives while this server holds the run's lease.
func (d *driver) leased(ctx context.Context) error {
	if d.r.c.Leases == nil {
		return d.drive(ctx)
	}
	lost, release, err := d.r.c.Leases.Hold(ctx, "workflow/"+d.run.Tenant+"/"+string(d.run.ID), d.r.holder, leaseTTL)
	if errs.Is(err, errs.Exists) {
		return errs.Wrap(errs.Unavailable, errLost, "drive %s", d.run.ID)
	}
	if err != nil {
		return err
	}
	defer func() { _ = release(context.WithoutCancel(ctx)) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-lost:
			cancel(errLost)
		case <-ctx.Done():
		}
	}()
	return d.drive(ctx)
}

// drive folds the log, and does what is to be done until the run is over.
func (d *driver) drive(ctx context.Context) (err error) {
	if d.log, err = d.r.c.Threads.Log(ctx, d.run.Tenant); err != nil {
		return err
	}
	if d.blobs, err = d.r.c.Threads.Blobs(ctx, d.run.Tenant); err != nil {
		return err
	}
	if d.s, err = load(ctx, d.log, d.blobs, d.run.ID); err != nil {
		return err
	}
	d.attempts, d.done = map[thread.Attempt]*attempt{}, make(chan *outcome, 16)
	d.shared = sharedMachine{id: d.s.Machine}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for _, a := range d.attempts { // they tell, or see that nothing is heard any more
			<-a.over
		}
	}()
	for {
		if d.s.Ended != nil {
			return d.settle(ctx)
		}
		wake, moved, err := d.step(ctx)
		if err != nil {
			return err
		}
		if moved {
			continue
		}
		if err := d.wait(ctx, wake); err != nil {
			return err
		}
	}
}

// wait returns when there is something to do.
func (d *driver) wait(ctx context.Context, wake time.Time) error {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	if !wake.IsZero() {
		timer.Reset(max(wake.Sub(d.r.c.Now()), 0))
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	case <-d.news:
		return d.catchUp(ctx)
	case o := <-d.done:
		if o.machine != "" {
			if d.s.Machine == o.machine {
				return nil
			}
			return d.append(ctx, thread.Bound{Machine: o.machine, Own: true})
		}
		return d.attemptEnded(ctx, o)
	}
}

// step does what is to be done now. It reports whether the state moved by it, or when there
// is something to do by the clock.
func (d *driver) step(ctx context.Context) (wake time.Time, moved bool, err error) {
	now := d.r.c.Now()
	todo := d.s.Next(now)
	if todo.End != nil {
		return wake, true, d.end(ctx, *todo.End)
	}
	for _, a := range todo.Late {
		if d.s.Vertex(a.Attempt).Human != nil {
			return wake, true, d.append(ctx, thread.NodeEnded{
				Attempt: a.Attempt, State: thread.RunTimedOut, Reason: cowork.ReasonTimeout, Text: "no answer came in time",
			})
		}
		d.begin(ctx, a).stop(cowork.ReasonTimeout)
	}
	if len(todo.Begin) > 0 {
		return wake, true, d.beginAll(ctx, todo.Begin)
	}
	for _, a := range todo.Running {
		x := d.begin(ctx, a)
		if todo.Stop {
			x.stop(cowork.ReasonCancelled)
		}
	}
	return todo.Wake, false, nil
}

// beginAll writes down that attempts begin, as many as an append holds.
func (d *driver) beginAll(ctx context.Context, list []thread.NodeStarted) error {
	const atOnce = 8 // each event is at most thread.InlineBytesMax and a little
	var bodies []thread.Body
	for _, b := range list[:min(len(list), atOnce)] {
		bodies = append(bodies, b)
	}
	return d.append(ctx, bodies...)
}

// begin returns the attempt of this process, beginning to look after it if need be.
func (d *driver) begin(ctx context.Context, a *cowork.Attempt) *attempt {
	if x := d.attempts[a.Attempt]; x != nil {
		return x
	}
	x := newAttempt(d, a)
	d.attempts[a.Attempt] = x
	go x.look(ctx)
	return x
}

// attemptEnded writes down what came of an attempt. What others share is merged before: then
// a server that dies in between does it again.
func (d *driver) attemptEnded(ctx context.Context, o *outcome) error {
	x := d.attempts[o.ended.Attempt]
	if x == nil {
		return nil
	}
	o.ended.Conflicts = d.s.Conflicts(x.of, o.ended.Artifacts)
	if d.s.Vertex(o.ended.Attempt).Sandbox == cowork.SandboxFork && d.s.Machine != "" {
		if err := d.merge(ctx, o); err != nil {
			if errs.Temporary(err) || ctx.Err() != nil {
				return err
			}
			// The disk is full, or the machine is gone: the attempt fails, and what works beside it
			// is not left behind.
			e := &o.ended
			e.State, e.Reason, e.Text = thread.RunFailed, cowork.ReasonArtifact, runs.Explain(err)
			e.Result, e.Artifacts, e.Conflicts = nil, nil, nil
		}
	}
	if err := d.append(ctx, o.ended); err != nil {
		return err
	}
	<-x.over
	delete(d.attempts, o.ended.Attempt)
	if m := o.ended.Machine; m != "" && !d.s.Vertex(o.ended.Attempt).Continues {
		d.r.wg.Go(func() { d.destroy(context.WithoutCancel(ctx), m) })
	}
	return nil
}

func (d *driver) destroy(ctx context.Context, machine string) {
	if err := d.r.c.Machines.Destroy(ctx, d.run.Tenant, machine); err != nil && !errs.Is(err, errs.NotFound) {
		d.r.c.Log.Warn("the sandbox of a workflow's node could not be removed", "run", d.run.ID, "sandbox", machine, "err", err)
	}
}

// end lets the machines go, and writes down the end.
func (d *driver) end(ctx context.Context, end thread.WorkflowEnded) error {
	if m := d.r.c.Machines; m != nil {
		for _, a := range d.s.Attempts {
			if a.Ended != nil && a.Ended.Machine != "" {
				d.destroy(ctx, a.Ended.Machine)
			}
		}
		if d.s.Machine != "" {
			if err := m.Stop(ctx, d.run.Tenant, d.s.Machine); err != nil {
				d.r.c.Log.Warn("the sandbox of a workflow could not be stopped", "run", d.run.ID, "err", err)
			}
		}
	}
	return d.append(ctx, end)
}

// settle writes down in the record that the run is over, and forgets what is not needed any
// more.
func (d *driver) settle(ctx context.Context) error {
	for _, a := range d.s.Attempts {
		if err := d.r.c.Runs.ForgetKey(ctx, d.run.Tenant, cowork.Key(d.run.ID.Thread(), a.Attempt)); err != nil {
			d.r.c.Log.Debug("the key of a node's run could not be forgotten", "run", d.run.ID, "err", err)
		}
	}
	e := d.s.Ended
	return d.r.over(ctx, d.run.Tenant, d.run.ID, e.State, e.Reason, e.Text, d.s.EndedAt)
}

// inlineMax is how much of a value stands in an event, and filesInline how many files, whose
// paths have up to 1 KiB; what is more is a blob.
const (
	inlineMax   = 4 << 10
	filesInline = 16
)

// append writes events and takes them into the state. Who else wrote, a person by an answer
// or a cancel, is caught up with, and the step decided anew.
func (d *driver) append(ctx context.Context, bodies ...thread.Body) error {
	events := make([]thread.Event, len(bodies))
	for i, b := range bodies {
		small, err := d.small(ctx, b)
		if err != nil {
			return err
		}
		events[i] = thread.New("", small)
		events[i].At = d.r.c.Now().UTC().Truncate(time.Microsecond)
	}
	err := appendSurely(ctx, d.log, d.run.ID.Thread(), d.s.Seq, events)
	if errs.Is(err, errs.Conflict) {
		return d.overtaken(ctx, bodies)
	}
	if err != nil {
		return err
	}
	return d.apply(ctx, events)
}

// overtaken reads what another wrote. What this driver alone can know, which is how an
// attempt ended and which machine there is, is written again behind it.
func (d *driver) overtaken(ctx context.Context, bodies []thread.Body) error {
	if err := d.catchUp(ctx); err != nil {
		return err
	}
	if d.s.Ended != nil {
		return nil
	}
	switch b := bodies[0].(type) {
	case thread.NodeEnded:
		if d.s.Vertex(b.Attempt).Human == nil {
			return d.append(ctx, bodies...)
		}
	case thread.Bound:
		return d.append(ctx, bodies...)
	}
	return nil
}

func (d *driver) catchUp(ctx context.Context) error {
	for e, err := range d.log.Load(ctx, d.run.ID.Thread(), d.s.Seq+1) {
		if err != nil {
			return err
		}
		if err := d.apply(ctx, []thread.Event{e}); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) apply(ctx context.Context, events []thread.Event) error {
	for _, e := range events {
		e, err := whole(ctx, d.blobs, e)
		if err != nil {
			return err
		}
		if err := d.s.Apply(e); err != nil {
			return err
		}
	}
	return nil
}

// small moves what is too large for an event to blobs.
func (d *driver) small(ctx context.Context, b thread.Body) (_ thread.Body, err error) {
	switch b := b.(type) {
	case thread.NodeStarted:
		if len(b.Input) > inlineMax {
			b.InputBlob, err = d.blobs.Put(ctx, b.Input)
			b.Input = nil
		}
		if err == nil && len(b.Files) > filesInline {
			files, _ := json.Marshal(b.Files) // of texts and numbers
			b.FilesBlob, err = d.blobs.Put(ctx, files)
			b.Files = nil
		}
		return b, err
	case thread.NodeEnded:
		if len(b.Result) > inlineMax {
			b.ResultBlob, err = d.blobs.Put(ctx, b.Result)
			b.Result = nil
		}
		return b, err
	case thread.WorkflowEnded:
		if len(b.Result) > inlineMax {
			b.ResultBlob, err = d.blobs.Put(ctx, b.Result)
			b.Result = nil
		}
		return b, err
	}
	return b, nil
}

// whole puts into an event what it names as a blob.
func whole(ctx context.Context, blobs thread.Blobs, e thread.Event) (thread.Event, error) {
	fill := func(into *json.RawMessage, hash string) error {
		if hash == "" || len(*into) > 0 {
			return nil
		}
		content, err := blobs.Get(ctx, hash)
		*into = content
		return err
	}
	var err error
	switch b := e.Body.(type) {
	case thread.WorkflowStarted:
		err = fill(&b.Input, b.InputBlob)
		e.Body = b
	case thread.WorkflowEnded:
		err = fill(&b.Result, b.ResultBlob)
		e.Body = b
	case thread.NodeStarted:
		if err = fill(&b.Input, b.InputBlob); err == nil && b.FilesBlob != "" && b.Files == nil {
			var files json.RawMessage
			if err = fill(&files, b.FilesBlob); err == nil {
				err = json.Unmarshal(files, &b.Files)
			}
		}
		e.Body = b
	case thread.NodeEnded:
		err = fill(&b.Result, b.ResultBlob)
		e.Body = b
	}
	return e, err
}

// load folds the log of a run. NotFound: there is none.
func load(ctx context.Context, log thread.Log, blobs thread.Blobs, id ID) (*cowork.State, error) {
	var first []thread.Event
	var s *cowork.State
	for e, err := range log.Load(ctx, id.Thread(), 1) {
		if err != nil {
			return nil, err
		}
		if e, err = whole(ctx, blobs, e); err != nil {
			return nil, err
		}
		if s == nil {
			first = append(first, e)
			b, is := e.Body.(thread.WorkflowStarted)
			if !is {
				continue
			}
			text, err := blobs.Get(ctx, b.Definition)
			if err != nil {
				return nil, err
			}
			w, err := cowork.Parse(b.File, text)
			if err != nil {
				return nil, errs.Wrap(errs.Unsupported, err, "the definition of %s cannot be read any more", id)
			}
			s = cowork.NewState(w)
			for _, e := range first {
				if err := s.Apply(e); err != nil {
					return nil, err
				}
			}
			continue
		}
		if err := s.Apply(e); err != nil {
			return nil, err
		}
	}
	if s == nil {
		return nil, errs.New(errs.NotFound, "the run %s of a workflow did not begin", id)
	}
	return s, nil
}

const (
	sureTries = 5
	surePause = 50 * time.Millisecond
)

// appendSurely tries again while it is not known whether the append happened.
func appendSurely(ctx context.Context, log thread.Log, id thread.ID, after uint64, events []thread.Event) error {
	for try := 1; ; try++ {
		_, err := log.Append(ctx, id, after, events...)
		if err == nil || !errs.Temporary(err) || try == sureTries || ctx.Err() != nil {
			return err
		}
		<-time.After(time.Duration(try) * surePause)
	}
}
