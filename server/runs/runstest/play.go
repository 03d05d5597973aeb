package runstest

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// errStopped ends a script whose Fake is closed or whose run is over.
var errStopped = errors.New("the fake is closed")

// Play is a run on its way; its methods belong to the script's goroutine. A
// method that waits ends the script when the run is cancelled or the Fake closed.
type Play struct {
	f  *Fake
	t  *tenant
	r  *run
	id thread.ID
}

// Call is a tool call for Answer.
func Call(id, tool, args string) llm.Block {
	return llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: id, Name: tool, Args: json.RawMessage(args)}}
}

// Usage of each answer.
var Usage = llm.Usage{Input: 1000, Output: 50, CacheRead: 400}

// Ledger of each answer.
var Ledger = thread.Ledger{System: 600, Tools: 2100, Memory: 200, Inputs: 60, Assistant: 1240, Results: 8200, Total: 12_440, Window: 200_000}

// Cost of each answer, in US dollars.
const Cost = 0.0125

// ID of the run.
func (p *Play) ID() thread.RunID { return p.r.ID }

// Thread that is played.
func (p *Play) Thread() thread.ID { return p.id }

// At makes the following events happen at a time, for golden files.
func (p *Play) At(t time.Time) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.r.at = t
}

// Append writes events.
func (p *Play) Append(bodies ...thread.Body) uint64 {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.alive()
	return p.f.append(p.t, p.r, p.id, bodies...)
}

// alive ends the script when there is nothing more to play. Preconditions: mu is held.
func (p *Play) alive() {
	if p.f.ctx.Err() != nil || p.r.State.Final() {
		panic(errStopped)
	}
}

// Answer is a whole answer of the model.
func (p *Play) Answer(text string, calls ...llm.Block) uint64 {
	m := llm.Message{Role: llm.RoleAssistant}
	if text != "" {
		m.Blocks = append(m.Blocks, llm.Text(text))
	}
	m.Blocks = append(m.Blocks, calls...)
	stop := llm.StopEnd
	if len(calls) > 0 {
		stop = llm.StopTools
	}
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.alive()
	head, _ := p.t.log.Head(p.f.ctx, p.id)
	p.r.Steps++
	p.r.Usage = p.r.Usage.Add(Usage)
	p.r.CostUSD += Cost
	return p.f.append(p.t, p.r, p.id, thread.ModelCompleted{
		Message: m, Usage: Usage, CostUSD: Cost, Model: "script", Stop: stop, Attempt: 1, Through: head, Took: 1200 * time.Millisecond,
		Ledger: Ledger,
	})
}

// Begin lets a call run.
func (p *Play) Begin(call, tool string) {
	p.Append(thread.ToolStarted{Call: call, Tool: tool, Key: string(p.r.ID) + "/" + call})
}

// Done ends a call well.
func (p *Play) Done(call, output string) {
	zero := 0
	p.Append(thread.ToolCompleted{Call: call, Blocks: []llm.Block{llm.Text(output)}, Exit: &zero, Took: 300 * time.Millisecond, Bytes: int64(len(output))})
}

// Run is Begin and Done.
func (p *Play) Run(call, tool, output string) {
	p.Begin(call, tool)
	p.Done(call, output)
}

// Fail ends a call badly.
func (p *Play) Fail(call, code, output string) {
	p.Append(thread.ToolCompleted{Call: call, Blocks: []llm.Block{llm.Text(output)}, Failed: true, Code: code, Took: 300 * time.Millisecond})
}

// Blob stores the whole output of a call, of which only a preview is in the event.
func (p *Play) Blob(call, preview string, whole []byte) {
	hash, err := p.t.log.Put(p.f.ctx, whole)
	if err != nil {
		panic(err)
	}
	p.Append(thread.ToolCompleted{Call: call, Blocks: []llm.Block{llm.Text(preview)}, Blob: hash, Bytes: int64(len(whole)), File: "/large/" + call})
}

// Live publishes live news.
func (p *Play) Live(l runs.Live) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.alive()
	l.Thread, l.Run = p.id, p.r.ID
	if l.After == 0 {
		l.After, _ = p.t.log.Head(p.f.ctx, p.id)
	}
	p.t.publish(l)
}

// AllDecisions are the four.
var AllDecisions = []thread.Decision{thread.Approve, thread.Edit, thread.Reject, thread.Respond}

// Ask holds a call back.
func (p *Play) Ask(call, tool, args, reason string, allowed ...thread.Decision) {
	if len(allowed) == 0 {
		allowed = AllDecisions
	}
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.alive()
	p.r.open = append(p.r.open, runs.Approval{
		Run: p.r.ID, Thread: p.id, Agent: p.r.Agent, Call: call, Tool: tool, Args: json.RawMessage(args), Reason: reason, Allowed: allowed, Asked: time.Now().UTC(),
	})
	seq := p.f.append(p.t, p.r, p.id, thread.ApprovalAsked{Call: call, Tool: tool, Reason: reason, Allowed: allowed})
	p.r.open[len(p.r.open)-1].Seq = seq
}

// Decision waits for a person's answer.
func (p *Play) Decision(call string) runs.Decide {
	var d runs.Decide
	p.wait(func() (ok bool) {
		d, ok = p.r.decided[string(p.id)+" "+call]
		return ok
	})
	return d
}

// Input waits for the nth message that was sent to the run, from 0.
func (p *Play) Input(n int) string {
	p.wait(func() bool { return len(p.r.inputs) > n })
	return p.r.inputs[n]
}

// wait until ok, which is called with the lock held.
func (p *Play) wait(ok func() bool) {
	for {
		p.f.mu.Lock()
		if ok() {
			p.f.mu.Unlock()
			return
		}
		if p.r.State.Final() {
			p.f.mu.Unlock()
			panic(errStopped)
		}
		changed := p.r.changed
		p.f.mu.Unlock()
		select {
		case <-changed:
		case <-p.f.ctx.Done():
			panic(errStopped)
		}
	}
}

// Until waits for something outside.
func (p *Play) Until(c <-chan struct{}) {
	select {
	case <-c:
	case <-p.f.ctx.Done():
		panic(errStopped)
	}
}

// Todos is a successful write_todos.
func (p *Play) Todos(call string, todos ...thread.Todo) {
	p.r.note(func(r *run) { r.Todos = todos }, p.f)
	p.Append(thread.ToolStarted{Call: call, Tool: "write_todos", Key: call},
		thread.ToolCompleted{Call: call, Blocks: []llm.Block{llm.Text("ok")}, Todos: todos})
}

func (r *run) note(change func(*run), f *Fake) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(r)
}

// Sub plays a sub-agent's thread; the call has begun.
func (p *Play) Sub(call, agent, task string) *Play {
	sub := &Play{f: p.f, t: p.t, r: p.r, id: p.id.Sub(call)}
	sub.Append(thread.Opened{Agent: json.RawMessage(`{}`), Name: agent},
		thread.RunStarted{By: string(p.id)}, thread.Input{From: "parent", Blocks: []llm.Block{llm.Text(task)}})
	return sub
}

// End ends the run.
func (p *Play) End(state thread.RunState, text string) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.alive()
	reason := map[thread.RunState]string{thread.RunSucceeded: "done", thread.RunFailed: "model", thread.RunTimedOut: "wall"}[state]
	e := thread.RunEnded{State: state, Reason: reason, Text: text}
	if p.id != p.r.Thread {
		p.f.append(p.t, p.r, p.id, e)
		return
	}
	p.f.end(p.t, p.r, e)
}

// Result ends the run with structured output.
func (p *Play) Result(text, result string) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.alive()
	p.f.end(p.t, p.r, thread.RunEnded{State: thread.RunSucceeded, Reason: "done", Text: text, Result: json.RawMessage(result)})
}
