package inside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Bounds of an agent.
const (
	pageBytes    = 1 << 20   // of a log in one answer, about
	putBytesMax  = 512 << 20 // of blobs in a drive
	readBytesMax = 4 << 20   // of a blob in one answer
	liveTextMax  = 64 << 10
	holdsMax     = 64 // calls that are under way
	beyondMax    = 8  // model calls of a drive beyond the budget: the critic's, the summaries'
	eventsEach   = 64 // events for each model call that need none
	learnsEach   = 64 // skills that are taught for each model call
	wallGrace    = 30 * time.Second
	storeTimeout = time.Minute // of an append that the agent does not wait for any more
)

// Host drives a thread through an agent in its machine. It is an agent.Driver for one
// Run.
type Host struct {
	p     agent.Parts
	model llm.Model
	paid  *agent.Paid
	poke  chan struct{}
	fns   methods
	// teaching is held while a skill is taught: its files are in memory then.
	teaching sync.Mutex
	// leftOut is what people are told of tools that do not work in the sandbox.
	leftOut []string

	mu      sync.Mutex // guards what follows, and p.State
	asked   int        // model calls of this drive
	beyond  int        // of them, beyond the budget
	over    bool       // nothing more is to be done
	free    int        // events that no model call stands behind
	learned int        // skills that were taught in this drive
	put     int64      // bytes
	last    attempt
	checker *thread.Checker         // nil = it has to be made
	done    []*spent                // answers that no event has told yet
	spawned map[string]thread.Spent // by call
	holds   map[uint64]func()       // calls of Machine.Call that are not over
	nextID  uint64
	conn    net.Conn
	timer   *time.Timer
	fenced  bool
}

// spent is what one answer of the model cost.
type spent struct {
	usage llm.Usage
	cost  float64
	took  time.Duration
	model string
}

// NewHost returns the driver of a thread in the machine of its parts. paid is of the run,
// and outlives the Host. The errors are those of agent.Assemble.
func NewHost(p agent.Parts, m llm.Model, paid *agent.Paid) (*Host, error) {
	if p.Machine.Inside == nil {
		return nil, errs.New(errs.Unsupported, "no agent can be in this sandbox").WithHint("leave --in-sandbox out")
	}
	if _, err := agent.Assemble(p, m); err != nil { // as it will be there
		return nil, err
	}
	leftOut := stayOutside(p.External)
	p.External = nil
	h := &Host{leftOut: leftOut, p: p, model: m, paid: paid, poke: make(chan struct{}, 1), fns: methods{}, spawned: map[string]thread.Spent{}, holds: map[uint64]func(){}}
	h.offer()
	return h, nil
}

// stayOutside says that tools that are not built in cannot be called from the sandbox: the
// agent there is hostile, and what decides about calls is in it.
func stayOutside(tools []tool.Tool) []string {
	if len(tools) == 0 {
		return nil
	}
	var names []string
	for _, t := range tools {
		names = append(names, t.Spec().Name)
	}
	return []string{clip.Line("not for agents that work in their sandbox: "+strings.Join(names, ", "), leftOutMax)}
}

// leftOutMax bounds what is told of tools that are left out.
const leftOutMax = 1000

// Notify implements agent.Driver.
func (h *Host) Notify() {
	select {
	case h.poke <- struct{}{}:
	default:
	}
}

// Run implements agent.Driver. Unavailable: the agent, or its machine, ended; or it
// stopped though there is work to do.
func (h *Host) Run(ctx context.Context) (agent.Outcome, error) {
	conn, err := h.p.Machine.Inside(ctx)
	if err != nil {
		return agent.Outcome{}, fmt.Errorf("begin the agent in the sandbox of %s: %w", h.p.Thread, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := newPeer(conn)
	p.Serve, p.News = h.serve, h.news
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	h.conn = conn
	h.watchTime()
	var wg sync.WaitGroup
	var over error
	wg.Go(func() { over = p.Run(ctx) })
	wg.Go(func() { h.pass(ctx, p) })
	var o outcome
	err = p.Call(ctx, methodDrive, h.begin(), &o, nil)
	cause := context.Cause(ctx)
	cancel()
	stop()
	_ = conn.Close()
	wg.Wait()
	h.release()
	return h.result(cause, o, err, over)
}

// pass tells the agent that there is news.
func (h *Host) pass(ctx context.Context, p *peer) {
	for {
		select {
		case <-h.poke:
		case <-ctx.Done():
			return
		}
		if p.Tell(newsPoke, nil) != nil {
			return
		}
	}
}

// watchTime ends the drive when the run's time was up for a while, and the agent did not
// end it: then the next driver does. Time that it is given meanwhile counts.
func (h *Host) watchTime() {
	h.mu.Lock()
	defer h.mu.Unlock()
	left, bounded := h.p.State.TimeLeft(h.p.Now())
	if !bounded {
		left = time.Hour // it may get a bound
	}
	left += wallGrace
	if h.timer != nil && (h.over || bounded && left <= 0) {
		_ = h.conn.Close()
		return
	}
	h.timer = time.AfterFunc(max(left, time.Second), h.watchTime)
}

// release ends what the agent has begun and did not end.
func (h *Host) release() {
	h.mu.Lock()
	h.over = true
	holds := h.holds
	h.holds = map[uint64]func(){}
	h.timer.Stop()
	h.mu.Unlock()
	for _, done := range holds {
		done()
	}
}

func (h *Host) begin() begin {
	m := h.p.Machine
	info := h.model.Info()
	b := begin{
		Thread: h.p.Thread, Machine: h.p.MachineID, Dir: m.Dir, Note: m.Note, Model: info, Documents: info.Documents, Patience: h.p.Patience, Patient: h.p.Patient,
		Now: h.p.Now(), Memories: h.p.Memories != nil, Past: m.Past != nil, Spawner: h.p.Spawner != nil, Tasks: h.p.Tasks != nil, Live: h.p.Live != nil,
		Tree: h.p.Tree != nil, Revise: m.Revise != nil, Calls: m.Call != nil, Others: h.p.Others,
	}
	if h.p.Skills != nil {
		b.Skills, b.Unlisted = true, h.p.Skills.Unlisted()
	}
	return b
}

// result is how the drive ended, by the host's own knowledge of the thread.
func (h *Host) result(cause error, o outcome, err, over error) (agent.Outcome, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, now := h.p.State, h.p.Now()
	switch {
	case h.fenced || errors.Is(err, agent.ErrFenced):
		return agent.Outcome{}, agent.ErrFenced
	case cause != nil:
		return agent.Outcome{}, cause
	case err != nil && over != nil && !errors.Is(over, io.EOF) && !errors.Is(over, net.ErrClosed):
		return agent.Outcome{}, errs.Wrap(errs.Unavailable, over, "the agent in the sandbox went wrong")
	case err != nil: // what it says of it, and who must act, is its word
		return agent.Outcome{}, errs.Wrap(errs.Unavailable, err, "the agent in the sandbox ended")
	case s.Run.Ended != nil:
		return agent.Outcome{Ended: true}, nil
	}
	next := s.Next(now)
	switch next.Kind {
	case runs.Idle:
		return agent.Outcome{Ended: true}, nil
	case runs.Wait:
		return agent.Outcome{Expires: next.Expires}, nil
	case runs.RunTools:
		return h.waits(o, now)
	}
	return agent.Outcome{}, errs.New(errs.Unavailable, "the agent in the sandbox stopped though there is work to do")
}

// waits is the outcome of a run whose open calls go on elsewhere.
func (h *Host) waits(o outcome, now time.Time) (agent.Outcome, error) {
	out := agent.Outcome{Expires: o.Expires}
	for _, c := range h.p.State.Open() {
		if slices.Contains(o.Parked, c.ID) {
			out.Parked = append(out.Parked, c.ID)
		}
	}
	if left, bounded := h.p.State.TimeLeft(now); bounded && (out.Expires.IsZero() || out.Expires.After(now.Add(left))) {
		out.Expires = now.Add(left)
	}
	return out, nil
}

// news implements peer.News.
func (h *Host) news(method string, data json.RawMessage) error {
	switch method {
	case newsLive:
		var l live
		if err := json.Unmarshal(data, &l); err != nil {
			return errs.Wrap(errs.Invalid, err, "news cannot be read")
		}
		h.show(l)
	case newsRelease:
		var id uint64
		if err := json.Unmarshal(data, &id); err != nil {
			return errs.Wrap(errs.Invalid, err, "news cannot be read")
		}
		h.mu.Lock()
		done := h.holds[id]
		delete(h.holds, id)
		h.mu.Unlock()
		if done != nil {
			done()
		}
	default:
		return errs.New(errs.Invalid, "news of the kind %.20q", method)
	}
	return nil
}

var liveKinds = []runs.LiveKind{runs.LiveText, runs.LiveReasoning, runs.LiveCall, runs.LiveArgs, runs.LiveOutput, runs.LiveReset}

// show passes on what is on its way, as news of this thread.
func (h *Host) show(l live) {
	if h.p.Live == nil || !slices.Contains(liveKinds, runs.LiveKind(l.Kind)) {
		return
	}
	h.mu.Lock()
	n := runs.Live{
		Thread: h.p.Thread, Run: h.p.State.Run.ID, After: h.p.State.Seq, Kind: runs.LiveKind(l.Kind), Index: l.Index,
		Name: clip.Text(l.Name, 200), Call: clip.Text(l.Call, 200), Text: clip.Text(l.Text, liveTextMax),
	}
	h.mu.Unlock()
	h.p.Live(n)
}

// serve implements peer.Serve.
func (h *Host) serve(ctx context.Context, c incoming) (any, error) {
	if c.Method == methodModel {
		return h.ask(ctx, c)
	}
	return h.fns.call(ctx, c.Method, c.Data)
}

// offer is all that an agent may call.
func (h *Host) offer() {
	h.fns.add(prefixLog+"append", h.append)
	h.fns.add(prefixLog+"load", h.load)
	h.fns.add(prefixBlobs+"put", h.putBlob)
	h.fns.add(prefixBlobs+"get", h.p.Blobs.Get)
	h.fns.add(prefixBlobs+"read", h.readBlob)
	h.offerMachine()
	h.offerTasks()
	h.offerSkills()
	if f := h.p.Memories; f != nil {
		for name, fn := range map[string]any{
			"list": f.List, "stat": f.Stat, "read": f.Read, "readat": f.ReadAt, "write": f.Write, "delete": f.Delete, "glob": f.Glob, "grep": f.Grep,
		} {
			h.fns.add(prefixMemory+name, fn)
		}
	}
	if p := h.p.Machine.Past; p != nil {
		for name, fn := range map[string]any{"revisions": p.Revisions, "diff": p.Diff, "content": p.Content, "plan": p.PlanUndo} {
			h.fns.add(prefixPast+name, fn)
		}
		h.fns.add(prefixPast+"undo", func(ctx context.Context, plan string, by tool.PastRevision) (uint64, []string, error) {
			by.Thread, by.Run = string(h.p.Thread), string(h.run())
			return p.Undo(ctx, plan, by)
		})
	}
}

func (h *Host) run() thread.RunID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.p.State.Run.ID
}

func (h *Host) offerMachine() {
	m := h.p.Machine
	if h.p.Tree != nil {
		h.fns.add(prefixSelf+"tree", func(context.Context) (thread.Budget, thread.Spent, error) {
			b, others := h.p.Tree()
			return b, others, nil
		})
	}
	if m.Revise != nil {
		h.fns.add(prefixSelf+"revise", func(ctx context.Context, mark agent.Mark) error {
			if mark.Actor != "agent" && mark.Actor != "outside" {
				return errs.New(errs.Denied, "a revision is not the agent's to make for others")
			}
			if mark.Thread != "" || mark.Run != "" {
				mark.Thread, mark.Run = h.p.Thread, h.run()
			}
			mark.Text, mark.Time = clip.Line(mark.Text, agent.MarkTextMax), time.Time{}
			return m.Revise(ctx, mark)
		})
	}
	if m.Call != nil {
		h.fns.add(prefixSelf+"call", func(ctx context.Context) (uint64, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.holds) >= holdsMax {
				return 0, errs.New(errs.Limit, "too many calls at once")
			}
			h.nextID++
			h.holds[h.nextID] = m.Call(context.WithoutCancel(ctx))
			return h.nextID, nil
		})
	}
}

func (h *Host) offerTasks() {
	if s := h.p.Spawner; s != nil {
		h.fns.add(prefixTask+"spawn", func(ctx context.Context, req tool.SpawnRequest) (tool.SpawnResult, error) {
			if err := h.maySpawn(req.Call); err != nil {
				return tool.SpawnResult{}, err
			}
			req.Thread, req.Run, req.Key = h.p.Thread, h.run(), agent.Key(h.p.Thread, req.Call)
			r, err := s.Spawn(ctx, req)
			if err == nil {
				h.mu.Lock()
				h.spawned[req.Call] = r.Spent
				h.mu.Unlock()
			}
			return r, err
		})
	}
	t := h.p.Tasks
	if t == nil {
		return
	}
	id := h.p.Thread
	h.fns.add(prefixTask+"task", func(ctx context.Context, task string) (tool.Task, error) { return t.Task(ctx, id, task) })
	h.fns.add(prefixTask+"tasks", func(ctx context.Context) ([]tool.Task, error) { return t.Tasks(ctx, id) })
	h.fns.add(prefixTask+"send", func(ctx context.Context, task, key, text string) error { return t.Send(ctx, id, task, key, text) })
	h.fns.add(prefixTask+"cancel", func(ctx context.Context, task, key string) error { return t.Cancel(ctx, id, task, key) })
}

// maySpawn reports whether a call of the log starts a sub-agent.
func (h *Host) maySpawn(call string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.p.State.Call(call)
	if c == nil || c.Started == nil || c.Completed != nil || c.Name != agent.TaskTool {
		return errs.New(errs.Denied, "no call of this thread starts a sub-agent as %.60q", call)
	}
	return nil
}

// offerSkills offers those that the run found when it began, and no others.
func (h *Host) offerSkills() {
	known := h.p.Skills
	if known == nil {
		return
	}
	h.fns.add(prefixSkills+"learn", func(ctx context.Context, name string) (tool.Lesson, error) {
		if err := h.mayLearn(); err != nil {
			return tool.Lesson{}, err
		}
		h.teaching.Lock()
		defer h.teaching.Unlock()
		if err := ctx.Err(); err != nil {
			return tool.Lesson{}, err
		}
		return known.Learn(ctx, name)
	})
	h.fns.add(prefixSkills+"find", known.Find)
	h.fns.add(prefixSkills+"tell", func(ctx context.Context) (told, error) {
		about, err := h.tellSkills(ctx, thread.Context{})
		return told{about.Skills, about.Pinned}, err
	})
}

// mayLearn reports whether a call of the log teaches a skill, and not too many were taught.
func (h *Host) mayLearn() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	open := slices.ContainsFunc(h.p.State.Open(), func(c *runs.Call) bool { return c.Name == agent.SkillTool && c.Started != nil })
	if !open {
		return errs.New(errs.Denied, "no call of this thread teaches a skill")
	}
	if h.learned++; h.learned > learnsEach*(h.asked+1) {
		return errs.New(errs.Limit, "too many skills are to be taught")
	}
	return nil
}

// tellSkills makes what a prompt says of skills the host's own: it says later which of them
// the run has, in which versions.
func (h *Host) tellSkills(ctx context.Context, about thread.Context) (thread.Context, error) {
	about.Skills, about.Pinned = nil, ""
	if h.p.TellSkills == nil {
		return about, nil
	}
	return about, h.p.TellSkills(ctx, &about)
}

// load returns a part of the thread's log.
func (h *Host) load(ctx context.Context, from uint64) (page, error) {
	var p page
	size := 0
	for e, err := range h.p.Log.Load(ctx, h.p.Thread, max(from, 1)) {
		if err != nil {
			return page{}, err
		}
		if size > pageBytes {
			p.More = true
			break
		}
		text, err := e.AppendJSON(nil)
		if err != nil {
			return page{}, err
		}
		size += len(text)
		p.Events = append(p.Events, e)
	}
	return p, nil
}

func (h *Host) putBlob(ctx context.Context, content []byte) (string, error) {
	h.mu.Lock()
	h.put += int64(len(content))
	full := h.put > putBytesMax
	h.mu.Unlock()
	if full {
		return "", errs.New(errs.Limit, "the agent in the sandbox wants to keep more than %d bytes", int64(putBytesMax))
	}
	return h.p.Blobs.Put(ctx, content)
}

func (h *Host) readBlob(ctx context.Context, hash string, off int64, n int) (chunk, error) {
	if n < 0 || off < 0 {
		return chunk{}, errs.New(errs.Invalid, "there are no bytes %d from %d on", n, off)
	}
	data := make([]byte, min(n, readBytesMax))
	got, size, err := h.p.Blobs.ReadAt(ctx, hash, data, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return chunk{}, err
	}
	return chunk{Data: data[:got], Size: size, EOF: errors.Is(err, io.EOF)}, nil
}

// ask asks the model. What it costs is counted here.
func (h *Host) ask(ctx context.Context, c incoming) (any, error) {
	var req llm.Request
	if err := json.Unmarshal(c.Data, &req); err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "the request cannot be read")
	}
	if err := h.mayAsk(); err != nil {
		return nil, err
	}
	req.CacheKey = string(h.p.Thread)
	began := h.p.Now()
	for delta, err := range h.model.Stream(ctx, &req) {
		if err != nil {
			return nil, err
		}
		if r := delta.Response; r != nil {
			h.answered(r, h.p.Now().Sub(began))
			return answer{Message: r.Message, Usage: r.Usage, Stop: r.Stop, Model: r.Model}, nil
		}
		if err := c.Part(delta); err != nil {
			return nil, err
		}
	}
	return nil, &llm.Error{Trouble: llm.Malformed, Model: h.model.Info().Name}
}

// mayAsk holds the run's budget, whatever the agent thinks of it.
func (h *Host) mayAsk() error {
	var others thread.Spent
	if h.p.Tree != nil {
		_, others = h.p.Tree()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.p.State.Run
	if r.Ended != nil || r.Cancel != nil {
		return errs.New(errs.Denied, "the run is over")
	}
	spent := r.Spent().Add(others).Add(h.paid.Spent())
	if runs.Exceeds(spent, r.Budget) != "" {
		if h.beyond++; h.beyond > beyondMax {
			return errs.New(errs.Limit, "the run's budget is used up")
		}
	}
	h.asked++
	return nil
}

// answered notes what an answer cost. It is counted as a step until the log tells of it.
func (h *Host) answered(r *llm.Response, took time.Duration) {
	s := &spent{usage: r.Usage, cost: h.model.Info().Price.Cost(r.Usage), took: took, model: r.Model}
	h.paid.Add(thread.Spent{Steps: 1, Usage: s.usage, CostUSD: s.cost})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, s)
}
