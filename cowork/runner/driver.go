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
//
// What follows from what the state knows is taken into it at once, and written down in one
// append with all that follows from that: how a node ended stands in the log together with
// the beginning of the next one. Nothing is done by what is not written.
type driver struct {
	r     *Runner
	run   Run
	ctx   context.Context
	halt  context.CancelFunc
	gone  chan struct{} // closed when it drives no more
	news  chan struct{} // holds one
	log   thread.Log
	blobs thread.Blobs
	s     *cowork.State // with what is pending
	// workflow and started are those of the state, for the goroutines of attempts.
	workflow cowork.Workflow
	started  *thread.WorkflowStarted

	pending  []pending                   // the last events of s, not written yet
	bytes    int                         // of them
	attempts map[thread.Attempt]*attempt // that this process looks after
	fresh    map[thread.Attempt]bool     // that it wrote down, and has not begun yet
	done     chan *outcome
	shared   sharedMachine
	removals removals
}

// pending is an event that the state has, and the log not yet.
type pending struct {
	event thread.Event
	fact  bool   // it holds whatever others wrote meanwhile: what came of an attempt, a machine that was made
	then  func() // is done when it is written; nil = nothing
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
	d.workflow, d.started = d.s.Workflow, d.s.Started
	d.pending, d.bytes = nil, 0
	d.attempts, d.fresh, d.done = map[thread.Attempt]*attempt{}, map[thread.Attempt]bool{}, make(chan *outcome, 16)
	d.shared = sharedMachine{id: d.s.Machine}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for _, a := range d.attempts { // they tell, or see that nothing is heard any more
			<-a.over
		}
	}()
	for {
		over, err := d.step(ctx)
		if err != nil {
			return err
		}
		if over {
			return d.settle(ctx)
		}
	}
}

// step decides all that can be decided, writes it down, does it, and waits for what comes of
// it. It reports whether the run is over.
func (d *driver) step(ctx context.Context) (over bool, err error) {
	todo, err := d.decide(ctx)
	if err != nil {
		return false, err
	}
	if stale, err := d.flush(ctx); stale || err != nil {
		return false, err
	}
	switch {
	case d.s.Ended != nil:
		return true, nil
	case todo.End != nil:
		d.letGo(ctx)
		return false, d.take(ctx, *todo.End, false, nil)
	}
	d.act(ctx, todo)
	if len(d.events(todo)) > 0 {
		return false, nil // they had no room
	}
	return false, d.wait(ctx, todo.Wake)
}

// decide takes in what follows from the state by itself, as far as there is room, and returns
// what is to be done then.
func (d *driver) decide(ctx context.Context) (cowork.Todo, error) {
	for {
		todo := d.s.Next(d.r.c.Now())
		bodies := d.events(todo)
		if todo.End != nil || len(bodies) == 0 || !d.room() {
			return todo, nil
		}
		for _, b := range bodies {
			if !d.room() {
				break
			}
			if err := d.take(ctx, b, false, d.whenBegun(b)); err != nil {
				return todo, err
			}
		}
	}
}

// events are what is to be written down of what is to be done: that people did not answer in
// time, by which it is decided what begins, else that attempts begin.
func (d *driver) events(todo cowork.Todo) (list []thread.Body) {
	for _, a := range todo.Late {
		if d.s.Vertex(a.Attempt).Human != nil {
			list = append(list, thread.NodeEnded{
				Attempt: a.Attempt, State: thread.RunTimedOut, Reason: cowork.ReasonTimeout, Text: "no answer came in time",
			})
		}
	}
	if len(list) > 0 {
		return list
	}
	for _, b := range todo.Begin {
		list = append(list, b)
	}
	return list
}

// whenBegun notes of an attempt that begins that there is no run of it yet.
func (d *driver) whenBegun(b thread.Body) func() {
	if b, is := b.(thread.NodeStarted); is {
		return func() { d.fresh[b.Attempt] = true }
	}
	return nil
}

// act does what is to be done of what is written.
func (d *driver) act(ctx context.Context, todo cowork.Todo) {
	for _, a := range todo.Running {
		x := d.begin(ctx, a)
		if todo.Stop {
			x.stop(cowork.ReasonCancelled)
		}
	}
	for _, a := range todo.Late {
		if d.s.Vertex(a.Attempt).Human == nil {
			d.begin(ctx, a).stop(cowork.ReasonTimeout)
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
		return d.heard(ctx, o)
	}
}

// heard takes in what was told, and what else was by now.
func (d *driver) heard(ctx context.Context, o *outcome) error {
	for {
		if err := d.outcome(ctx, o); err != nil || !d.room() {
			return err
		}
		select {
		case o = <-d.done:
		default:
			return nil
		}
	}
}

// begin returns the attempt of this process, beginning to look after it if need be.
func (d *driver) begin(ctx context.Context, a *cowork.Attempt) *attempt {
	if x := d.attempts[a.Attempt]; x != nil {
		return x
	}
	x := newAttempt(d, a, d.fresh[a.Attempt])
	delete(d.fresh, a.Attempt)
	d.attempts[a.Attempt] = x
	go x.look(ctx)
	return x
}

// outcome takes in what came of an attempt. What others share is merged before: then a
// server that dies in between does it again.
func (d *driver) outcome(ctx context.Context, o *outcome) error {
	if o.machine != "" {
		if d.s.Machine == o.machine {
			return nil
		}
		return d.take(ctx, thread.Bound{Machine: o.machine, Own: true}, true, nil)
	}
	x := d.attempts[o.ended.Attempt]
	if x == nil {
		return nil
	}
	o.ended.Conflicts = d.s.Conflicts(x.of, o.ended.Artifacts)
	v := d.s.Vertex(o.ended.Attempt)
	if v.Sandbox == cowork.SandboxFork && d.s.Machine != "" {
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
	return d.take(ctx, o.ended, true, func() {
		<-x.over
		delete(d.attempts, o.ended.Attempt)
		if m := o.ended.Machine; m != "" && !v.Continues {
			d.removals.begin(&d.r.wg, func() { d.destroy(context.WithoutCancel(ctx), m) })
		}
	})
}

func (d *driver) destroy(ctx context.Context, machine string) {
	if err := d.r.c.Machines.Destroy(ctx, d.run.Tenant, machine); err != nil && !errs.Is(err, errs.NotFound) {
		d.r.c.Log.Warn("the sandbox of a workflow's node could not be removed", "run", d.run.ID, "sandbox", machine, "err", err)
	}
}

// letGo ends what machines there are, before the end of the run is written down.
func (d *driver) letGo(ctx context.Context) {
	m := d.r.c.Machines
	if m == nil {
		return
	}
	for _, a := range d.s.Attempts {
		if a.Ended != nil && a.Ended.Machine != "" {
			d.destroy(ctx, a.Ended.Machine)
		}
	}
	if d.s.Machine == "" {
		return
	}
	if err := m.Stop(ctx, d.run.Tenant, d.s.Machine); err != nil {
		d.r.c.Log.Warn("the sandbox of a workflow could not be stopped", "run", d.run.ID, "err", err)
	}
}

// settle writes down in the record that the run is over.
func (d *driver) settle(ctx context.Context) error {
	e := d.s.Ended
	return d.r.over(ctx, d.run.Tenant, d.run.ID, e.State, e.Reason, e.Text, d.s.EndedAt)
}

// inlineMax is how much of a value stands in an event, and filesInline how many files, whose
// paths have up to 1 KiB; what is more is a blob.
const (
	inlineMax   = 4 << 10
	filesInline = 16
)

// room reports whether another event may be taken before all are written.
func (d *driver) room() bool {
	return len(d.pending) < thread.AppendMax && d.bytes+thread.EventBytesMax < thread.AppendBytesMax
}

// take decides an event: the state has it from here on, the log from the next flush on.
// Precondition: there is room.
func (d *driver) take(ctx context.Context, b thread.Body, fact bool, then func()) error {
	small, err := d.small(ctx, b)
	if err != nil {
		return err
	}
	e := []thread.Event{thread.New("", small)}
	e[0].At = d.r.c.Now().UTC().Truncate(time.Microsecond)
	record, err := thread.Encode(d.s.Seq, e) // it is what it will be when it is read
	if err != nil {
		return err
	}
	if err := d.apply(ctx, e[0]); err != nil {
		return err
	}
	d.pending = append(d.pending, pending{e[0], fact, then})
	d.bytes += len(record)
	return nil
}

// flush writes down what is pending. It reports whether it was not written because another,
// a person by an answer or a cancel, wrote first: then it is to be decided anew.
func (d *driver) flush(ctx context.Context) (stale bool, err error) {
	if len(d.pending) == 0 {
		return false, nil
	}
	events := make([]thread.Event, len(d.pending))
	for i, p := range d.pending {
		events[i] = p.event
	}
	err = appendSurely(ctx, d.log, d.run.ID.Thread(), events[0].Seq-1, events)
	if errs.Is(err, errs.Conflict) {
		return true, d.overtaken(ctx)
	}
	if err != nil {
		return false, err
	}
	written := d.pending
	d.pending, d.bytes = nil, 0
	for _, p := range written {
		if p.then != nil {
			p.then()
		}
	}
	return false, nil
}

// overtaken makes the state of the log again, with what others wrote, and takes the facts
// that are pending behind it.
func (d *driver) overtaken(ctx context.Context) error {
	was := d.pending
	d.pending, d.bytes = nil, 0
	d.s = cowork.NewState(d.workflow)
	if err := d.catchUp(ctx); err != nil || d.s.Ended != nil {
		return err
	}
	for _, p := range was {
		if b, is := p.event.Body.(thread.NodeEnded); !p.fact || is && !d.s.UnderWay(b.Attempt) {
			continue
		}
		if err := d.take(ctx, p.event.Body, true, p.then); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) catchUp(ctx context.Context) error {
	for e, err := range d.log.Load(ctx, d.run.ID.Thread(), d.s.Seq+1) {
		if err != nil {
			return err
		}
		if err := d.apply(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) apply(ctx context.Context, e thread.Event) error {
	e, err := whole(ctx, d.blobs, e)
	if err != nil {
		return err
	}
	return d.s.Apply(e)
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
