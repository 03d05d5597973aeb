// Package runstest is a supervisor of runs without agents, for tests of the
// surfaces: a run is a script, a Go function that says what happens.
//
//	f := runstest.New(func(p *runstest.Play) {
//		p.Answer("I look around.", runstest.Call("c1", "ls", `{"path":"/"}`))
//		p.Run("c1", "a.txt\n")
//		p.End(thread.RunSucceeded, "There is one file.")
//	})
//	defer f.Close()
//
// Events go into a real thread.Memory with their rules (fencing, sizes), so
// that what is shown is what a real log would show. A Fake is safe for
// concurrent use.
package runstest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Fake keeps runs in memory.
type Fake struct {
	// Defs are the agents; set before use.
	Defs []definition.Definition
	// Broken are agents whose files cannot be used; set before use.
	Broken []definition.Entry
	// Report is what Compare answers.
	Report any
	// Behind is how often Get still says of runs that are over that they run, as a
	// record that is behind the log does. Set it before use.
	Behind int

	script func(*Play)
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	tenants map[string]*tenant
}

type tenant struct {
	log   *thread.Memory
	runs  []*run
	keys  map[string]thread.RunID
	watch map[int]watcher
	next  int
}

type run struct {
	runs.Run
	at      time.Time
	changed chan struct{} // closed at the next change
	open    []runs.Approval
	decided map[string]runs.Decide
	inputs  []string
}

type watcher struct {
	root  thread.ID
	visit func([]byte, int)
}

// New returns an empty supervisor; script plays each run, nil = nothing happens by itself.
func New(script func(*Play)) *Fake {
	f := &Fake{script: script, tenants: map[string]*tenant{}, Defs: []definition.Definition{
		{Name: "default", Description: "Works on any task."},
		{Name: "reviewer", Description: "Reviews a change.", Model: "script", Tools: []string{"read_file", "grep"}},
	}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Close ends all scripts and waits for them.
func (f *Fake) Close() {
	f.cancel()
	f.wg.Wait()
}

func (f *Fake) of(name string) *tenant {
	t := f.tenants[name]
	if t == nil {
		t = &tenant{log: thread.NewMemory(), keys: map[string]thread.RunID{}, watch: map[int]watcher{}}
		f.tenants[name] = t
	}
	return t
}

func (f *Fake) find(name string, id thread.RunID) (*tenant, *run, error) {
	t := f.of(name)
	for _, r := range t.runs {
		if r.ID == id {
			return t, r, nil
		}
	}
	return t, nil, errs.New(errs.NotFound, "no run %s", id)
}

// append writes events behind the log's present head. Preconditions: mu is held.
func (f *Fake) append(t *tenant, r *run, id thread.ID, bodies ...thread.Body) uint64 {
	head, err := t.log.Head(context.Background(), id)
	if err != nil {
		panic(err)
	}
	var events []thread.Event
	for _, b := range bodies {
		e := thread.New(r.ID, b)
		if !r.at.IsZero() {
			e.At = r.at
		}
		if b.Kind() == (thread.Opened{}).Kind() {
			e.Run = ""
		}
		events = append(events, e)
	}
	seq, err := t.log.Append(context.Background(), id, head, events...)
	if err != nil {
		panic(fmt.Sprintf("runstest: %s: %v", id, err))
	}
	if id == r.Thread {
		r.Last = seq
	}
	r.change()
	return seq
}

func (r *run) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Start implements runs.Supervisor.
func (f *Fake) Start(_ context.Context, name string, s runs.Start) (runs.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.of(name)
	if id, ok := t.keys[s.Key]; ok && s.Key != "" {
		_, r, err := f.find(name, id)
		return r.Run, err
	}
	if err := f.mayName(s); err != nil {
		return runs.Run{}, err
	}
	for _, r := range t.runs {
		if r.Thread == s.Thread && !r.State.Final() {
			return runs.Run{}, errs.New(errs.Conflict, "the thread has a run that is not over")
		}
	}
	return f.start(t, name, s, nil), nil
}

func (f *Fake) mayName(s runs.Start) error {
	if s.Inline == nil && s.Thread == "" && s.Agent != "" && !slices.ContainsFunc(f.Defs, func(d definition.Definition) bool { return d.Name == s.Agent }) {
		return errs.New(errs.NotFound, "no agent %.40q", s.Agent).WithHint("`skete agent list` shows them")
	}
	return nil
}

// MayStart implements schedule.Runs.
func (f *Fake) MayStart(_ context.Context, _ string, s runs.Start) error {
	return cmp.Or(s.Check(), f.mayName(s))
}

// Keyed implements schedule.Runs.
func (f *Fake) Keyed(_ context.Context, name, key string) (runs.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, r, err := f.find(name, f.of(name).keys[key])
	if err != nil {
		return runs.Run{}, err
	}
	return r.now(), nil
}

// Begun implements runner.Runs.
func (f *Fake) Begun(ctx context.Context, name string, id thread.RunID) (runs.Run, error) {
	return f.Get(ctx, name, id)
}

// ForgetKey implements schedule.Runs.
func (f *Fake) ForgetKey(_ context.Context, name, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of(name).keys, key)
	return nil
}

func (f *Fake) start(t *tenant, name string, s runs.Start, fork *thread.Fork) runs.Run {
	r := &run{changed: make(chan struct{}), decided: map[string]runs.Decide{}}
	r.Run = runs.Run{
		ID: cmp.Or(s.Run, thread.NewRunID()), Thread: s.Thread, Tenant: name, Agent: cmp.Or(s.Agent, "default"), Model: cmp.Or(s.Model, "script"),
		Title: s.Title, Labels: s.Labels, By: s.By, State: thread.RunRunning, Created: time.Now().UTC(), Budget: s.Budget,
		Sandbox: s.Sandbox, Fork: fork,
	}
	if s.Inline != nil {
		r.Agent = s.Inline.Name
	}
	if r.Thread == "" {
		r.Thread = thread.NewID()
		agent := json.RawMessage(`{}`)
		if s.Inline != nil {
			agent, _ = json.Marshal(s.Inline) // of strings and numbers
		}
		f.append(t, r, r.Thread, thread.Opened{Agent: agent, Name: r.Agent, Title: s.Title, Fork: fork, Labels: s.Labels})
	}
	r.First = f.append(t, r, r.Thread, thread.RunStarted{By: s.By, Budget: s.Budget, Model: s.Model}, thread.Input{From: "user", Blocks: s.Input}) - 1
	t.runs = append(t.runs, r)
	if s.Key != "" {
		t.keys[s.Key] = r.ID
	}
	f.play(t, r)
	return r.Run
}

func (f *Fake) play(t *tenant, r *run) {
	if f.script == nil {
		return
	}
	p := &Play{f: f, t: t, r: r, id: r.Thread}
	f.wg.Go(func() {
		defer func() {
			v := recover()
			if err, is := v.(error); v != nil && !(is && errors.Is(err, errStopped)) {
				panic(v)
			}
		}()
		f.script(p)
	})
}

// Get implements runs.Supervisor.
func (f *Fake) Get(_ context.Context, name string, id thread.RunID) (runs.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, r, err := f.find(name, id)
	if err != nil {
		return runs.Run{}, err
	}
	v := r.now()
	if v.State.Final() && f.Behind > 0 {
		f.Behind--
		v.State = thread.RunRunning
	}
	return v, nil
}

func (r *run) now() runs.Run {
	v := r.Run
	v.Waiting = len(r.open)
	if v.Waiting > 0 && !v.State.Final() {
		v.State = thread.RunInterrupted
	}
	return v
}

// List implements runs.Supervisor.
func (f *Fake) List(_ context.Context, name string, q runs.Filter) (runs.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var page runs.Page
	skip := 0
	_, _ = fmt.Sscan(q.PageToken, &skip)
	size := cmp.Or(q.PageSize, 50)
	for _, r := range slices.Backward(f.of(name).runs) {
		v := r.now()
		if !fits(v, q) {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if len(page.Runs) == size {
			seen := 0
			_, _ = fmt.Sscan(q.PageToken, &seen)
			page.Next = fmt.Sprint(seen + size)
			break
		}
		page.Runs = append(page.Runs, v)
	}
	return page, nil
}

func fits(r runs.Run, q runs.Filter) bool {
	for k, v := range q.Labels {
		if r.Labels[k] != v {
			return false
		}
	}
	return (len(q.States) == 0 || slices.Contains(q.States, r.State)) && (q.Thread == "" || q.Thread == r.Thread) &&
		(q.Agent == "" || q.Agent == r.Agent) && (q.Subagents || r.Thread.Depth() == 0)
}

// Send implements runs.Supervisor.
func (f *Fake) Send(_ context.Context, name string, id thread.RunID, in thread.Input) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, r, err := f.find(name, id)
	if err != nil {
		return 0, err
	}
	if r.State.Final() {
		return 0, errs.New(errs.Conflict, "the run is over")
	}
	r.inputs = append(r.inputs, llm.Message{Blocks: in.Blocks}.String())
	return f.append(t, r, r.Thread, in), nil
}

// Approvals implements runs.Supervisor.
func (f *Fake) Approvals(_ context.Context, name string, id thread.RunID) ([]runs.Approval, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []runs.Approval
	for _, r := range f.of(name).runs {
		if id == "" || r.ID == id {
			list = append(list, r.open...)
		}
	}
	return list, nil
}

// Decide implements runs.Supervisor.
func (f *Fake) Decide(_ context.Context, name string, id thread.RunID, list []runs.Decide) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, r, err := f.find(name, id)
	if err != nil {
		return err
	}
	for _, d := range list {
		d.Thread = cmp.Or(d.Thread, r.Thread)
		key := string(d.Thread) + " " + d.Call
		if _, done := r.decided[key]; done {
			return errs.New(errs.Conflict, "the call %s was decided already", d.Call)
		}
		i := slices.IndexFunc(r.open, func(a runs.Approval) bool { return a.Call == d.Call && a.Thread == d.Thread })
		if i < 0 {
			return errs.New(errs.NotFound, "no call %s waits", d.Call)
		}
		if !slices.Contains(r.open[i].Allowed, d.Decision) {
			return errs.New(errs.Denied, "the decision %s is not allowed for this call", d.Decision)
		}
		r.open = slices.Delete(r.open, i, i+1)
		r.decided[key] = d
		f.append(t, r, d.Thread, thread.ApprovalDecided{Call: d.Call, Decision: d.Decision, Args: d.Args, Text: d.Text, By: d.By})
	}
	return nil
}

// Cancel implements runs.Supervisor.
func (f *Fake) Cancel(_ context.Context, name string, id thread.RunID, by, reason string) (runs.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, r, err := f.find(name, id)
	if err != nil || r.State.Final() {
		return runs.Run{}, err
	}
	f.append(t, r, r.Thread, thread.CancelAsked{By: by, Reason: reason})
	f.end(t, r, thread.RunEnded{State: thread.RunCancelled, Reason: "cancelled", Text: reason})
	return r.now(), nil
}

// Commands implements runs.Supervisor.
func (f *Fake) Commands(context.Context) ([]definition.CommandEntry, error) {
	return []definition.CommandEntry{
		{Command: definition.Command{Name: "review", Description: "Reads a change.", Agent: "reviewer", Text: "Review it."}},
		{Command: definition.Command{Name: "broken"}, Err: errs.New(errs.Invalid, "commands/broken.md: it says nothing")},
	}, nil
}

// Compact implements runs.Supervisor.
func (f *Fake) Compact(_ context.Context, name string, id thread.RunID, focus, by string) (runs.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, r, err := f.find(name, id)
	if err != nil {
		return runs.Run{}, err
	}
	f.append(t, r, r.Thread, thread.CompactAsked{By: by, Focus: focus})
	return r.now(), nil
}

func (f *Fake) end(t *tenant, r *run, e thread.RunEnded) {
	r.State, r.Reason, r.Text, r.Result, r.Ended, r.open = e.State, e.Reason, e.Text, e.Result, time.Now().UTC(), nil
	f.append(t, r, r.Thread, e)
}

// Resume implements runs.Supervisor.
func (f *Fake) Resume(_ context.Context, name string, id thread.RunID, b thread.Budget, by string) (runs.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, r, err := f.find(name, id)
	if err != nil {
		return runs.Run{}, err
	}
	if !r.State.Final() || r.State == thread.RunSucceeded {
		return runs.Run{}, errs.New(errs.Conflict, "the run is %s: there is nothing to resume", r.State)
	}
	r.State, r.Reason, r.Text, r.Ended, r.Budget = thread.RunRunning, "", "", time.Time{}, b
	f.append(t, r, r.Thread, thread.RunStarted{By: by, Budget: b}, thread.BudgetChanged{Budget: b, By: by})
	f.play(t, r)
	return r.now(), nil
}

// Fork implements runs.Supervisor.
func (f *Fake) Fork(_ context.Context, name string, id thread.RunID, at uint64, s runs.Start) (runs.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, r, err := f.find(name, id)
	if err != nil {
		return runs.Run{}, err
	}
	if at > r.Last {
		return runs.Run{}, errs.New(errs.Invalid, "the run has %d events", r.Last)
	}
	s.Agent = r.Agent
	return f.start(t, name, s, &thread.Fork{Thread: r.Thread, Seq: at}), nil
}

// Rewind implements runs.Supervisor.
func (f *Fake) Rewind(_ context.Context, name string, id thread.RunID, to uint64, files bool, by string) ([]runs.Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, r, err := f.find(name, id)
	if err == nil {
		known := r.Last
		f.append(t, r, r.Thread, thread.Rewound{To: to, By: by})
		r.Last = known // the record follows the log, sooner or later
	}
	if !files || err != nil {
		return nil, err
	}
	return []runs.Change{{Path: "src/f\xff", Action: "change"}}, nil
}

// Replay implements runs.Supervisor.
func (f *Fake) Replay(_ context.Context, name string, id thread.RunID, _ bool, by string) (runs.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, r, err := f.find(name, id)
	if err != nil {
		return runs.Run{}, err
	}
	again := f.start(t, name, runs.Start{Agent: r.Agent, Input: []llm.Block{llm.Text("again")}, By: by}, nil)
	_, n, _ := f.find(name, again.ID)
	n.Replay = id
	return n.Run, nil
}

// Compare implements runs.Supervisor.
func (f *Fake) Compare(_ context.Context, name string, a, b thread.RunID) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range []thread.RunID{a, b} {
		if _, _, err := f.find(name, id); err != nil {
			return nil, err
		}
	}
	return f.Report, nil
}

// Delete implements runs.Supervisor.
func (f *Fake) Delete(ctx context.Context, name string, id thread.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.of(name)
	kept := slices.DeleteFunc(slices.Clone(t.runs), func(r *run) bool { return r.Thread.Root() == id })
	if len(kept) == len(t.runs) {
		return errs.New(errs.NotFound, "no thread %s", id)
	}
	t.runs = kept
	return t.log.Delete(ctx, id)
}

// Log implements runs.Supervisor.
func (f *Fake) Log(_ context.Context, name string) (thread.Log, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of(name).log, nil
}

// Blobs implements runs.Supervisor.
func (f *Fake) Blobs(_ context.Context, name string) (thread.Blobs, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of(name).log, nil
}

// Watch implements runs.Supervisor.
func (f *Fake) Watch(name string, root thread.ID, visit func([]byte, int)) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.of(name)
	id := t.next
	t.next++
	t.watch[id] = watcher{root, visit}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(t.watch, id)
	}, nil
}

// Agents implements runs.Supervisor.
func (f *Fake) Agents(context.Context) ([]definition.Entry, error) {
	list := make([]definition.Entry, len(f.Defs))
	for i, d := range f.Defs {
		list[i] = definition.Entry{Name: d.Name, Definition: d}
	}
	return append(list, f.Broken...), nil
}

// Agent implements runs.Supervisor.
func (f *Fake) Agent(_ context.Context, name string) (definition.Definition, error) {
	for _, d := range f.Defs {
		if d.Name == name {
			return d, nil
		}
	}
	return definition.Definition{}, errs.New(errs.NotFound, "no agent %.40q", name)
}

// publish tells live news to who watches. Preconditions: mu is held.
func (t *tenant) publish(l runs.Live) {
	data, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	for _, w := range t.watch {
		if l.Thread == w.root || strings.HasPrefix(string(l.Thread), string(w.root)+"/") {
			w.visit(data, 0)
		}
	}
}
