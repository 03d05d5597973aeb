package chaos

import (
	"fmt"
	"strings"

	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend"
)

// check looks at all that a run left behind.
func (w *world) check(o order) {
	t := w.t
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Dir: w.dir})
	must(t, err)
	defer func() { must(t, s.Close()) }()
	l, err := s.Threads().Log(t.Context(), o.Tenant)
	must(t, err)
	blobs, err := s.Threads().Blobs(t.Context(), o.Tenant)
	must(t, err)
	threads := map[thread.ID][]thread.Event{}
	for id, err := range l.List(t.Context(), "") {
		must(t, err)
		for e, err := range l.Load(t.Context(), id, 1) {
			must(t, err)
			threads[id] = append(threads[id], e)
		}
		if err := thread.Check(threads[id]); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	w.acknowledged(o, threads)
	if want := 1 + 3*btoi(o.Plot.Boss); len(threads) != want {
		t.Fatalf("%d threads, want %d", len(threads), want)
	}
	for _, id := range sortedIDs(threads) {
		w.story(o, id, threads[id])
		w.pure(id, threads[id], blobs)
	}
	w.records(o, s)
	w.files(o, s)
	w.guest.mu.Lock()
	defer w.guest.mu.Unlock()
	for _, wrong := range w.guest.wrong {
		t.Error(wrong)
	}
	if t.Failed() {
		t.FailNow()
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// acknowledged compares with what the processes said.
func (w *world) acknowledged(o order, threads map[thread.ID][]thread.Event) {
	w.t.Helper()
	known := map[string]string{}
	for id, events := range threads {
		for _, e := range events {
			f := strings.Fields(line("had", id, e))
			known[f[1]+" "+f[2]] = f[3]
		}
	}
	for key, hash := range w.acked[o.Tenant] {
		if known[key] != hash {
			w.t.Errorf("event %s was acknowledged as %s, and the log has %q", key, hash, known[key])
		}
	}
	if len(w.acked[o.Tenant]) == 0 {
		w.t.Error("nothing was acknowledged")
	}
}

// story checks that a thread's run succeeded, and every call against what the
// guest saw of it.
func (w *world) story(o order, id thread.ID, events []thread.Event) {
	t := w.t
	t.Helper()
	s, err := runs.FoldState(events)
	must(t, err)
	if s.Run.Ended == nil || s.Run.Ended.State != thread.RunSucceeded {
		t.Errorf("%s ended as %+v", id, s.Run.Ended)
		return
	}
	inputs := map[string]int{}
	calls := map[string]*runs.Call{}
	for _, e := range events {
		switch b := e.Body.(type) {
		case thread.Input:
			if b.ID != "" {
				inputs[b.ID]++
			}
		case thread.ModelCompleted:
			for _, c := range b.Message.Calls() {
				calls[c.ID] = s.Call(c.ID)
			}
		case thread.RunStarted, thread.Compacted:
		}
	}
	for in, n := range inputs {
		if n != 1 {
			t.Errorf("%s: the message %s is there %d times", id, in, n)
		}
	}
	if o.Plot.People {
		w.people(o, s)
	} else if want := 4 * o.Plot.Steps; len(calls) != want && !(o.Plot.Boss && id.Depth() == 0) {
		t.Errorf("%s: %d calls, want %d", id, len(calls), want)
	}
	w.guest.mu.Lock()
	defer w.guest.mu.Unlock()
	for _, c := range calls {
		if o.Plot.People && (c.ID == "s1_2" || c.ID == "s2_2") {
			if w.guest.effects[string(id)+" "+c.ID] != 0 || c.Completed.Code != tool.CodeDenied {
				t.Errorf("%s of %s was done before a plan was accepted: %+v", c.ID, id, c.Completed)
			}
			continue
		}
		if wrong := w.judge(id, c); wrong != "" {
			t.Errorf("%s %s of %s: %s", c.Name, c.ID, id, wrong)
		}
	}
}

// people checks what came of plan, question, check and summary.
func (w *world) people(o order, s *runs.State) {
	t := w.t
	t.Helper()
	answer := llm.Message{Blocks: s.Call("s1_1").Completed.Blocks}.String()
	if answer != "b" || s.Run.Planning || len(s.Todos) != 2 || s.Run.Ended.Text != "I looked again." {
		t.Errorf("the answer was %q; planning %v, todos %v, the end %+v", answer, s.Run.Planning, s.Todos, s.Run.Ended)
	}
	if s.Items[0].Summary == nil || s.CompactAsked != nil {
		t.Error("the conversation was not shortened, or is still to be")
	}
	w.guest.mu.Lock()
	ran := len(w.guest.checks[o.Tenant])
	w.guest.mu.Unlock()
	if c := s.Run.Check; c.Count != 3 || ran != 3 || c.Open != nil || !c.Last.Passed {
		t.Errorf("%d commands ran for %d checks: %+v", ran, c.Count, c)
	}
}

// judge says what is wrong with a call, "" = nothing. Precondition: the
// guest's lock is held.
func (w *world) judge(id thread.ID, c *runs.Call) string {
	name := string(id) + " " + c.ID
	did, done := w.guest.effects[name], c.Completed
	if c.Name == "fire" {
		return w.judgeOnce(c, did, w.guest.args[name])
	}
	if done.Failed {
		return fmt.Sprintf("it failed: %s %s", done.Code, llm.Message{Blocks: done.Blocks}.String())
	}
	if c.Name == "act" && did != 1 {
		return fmt.Sprintf("it happened %d times", did)
	}
	return ""
}

func (w *world) judgeOnce(c *runs.Call, did int, args string) string {
	done := c.Completed
	switch {
	case did > 1:
		return fmt.Sprintf("it happened %d times", did)
	case done.Failed && done.Code == tool.CodeInterrupted:
		return "" // it may have happened
	case c.Decided == nil || c.Decided.Decision == thread.Approve:
		if done.Failed || did != 1 || args != string(c.Call.Args) {
			return fmt.Sprintf("it happened %d times with %s, and says %+v", did, args, done)
		}
	case c.Decided.Decision == thread.Edit:
		if done.Failed || did != 1 || args != fmt.Sprintf(`{"n":%d}`, 1000+numberOf(c.ID)) {
			return fmt.Sprintf("edited it happened %d times with %s, and says %+v", did, args, done)
		}
	case did != 0:
		return fmt.Sprintf("it was to be %sed and happened", c.Decided.Decision)
	case c.Decided.Decision == thread.Reject && done.Code != tool.CodeRejected, c.Decided.Decision == thread.Respond && done.Failed:
		return fmt.Sprintf("it says %+v", done)
	}
	return ""
}

// pure proves that every prompt was a function of the log before it.
func (w *world) pure(id thread.ID, events []thread.Event, blobs thread.Blobs) {
	t := w.t
	t.Helper()
	s, err := runs.FoldState(events[:1])
	must(t, err)
	whole, err := runs.FoldState(events)
	must(t, err)
	root := id.Depth() == 0
	env := tool.Env{Files: backend.NewMap(blobs), Dir: "/workspace", Media: true, Documents: true, Person: root, Planning: root && whole.Run.Started.Planning}
	if len(s.Agent.Subagents) > 0 {
		env.Spawner, env.Tasks = noSpawner{}, noTasks{}
		for name, d := range s.Agent.Subagents {
			env.Agents = append(env.Agents, tool.Agent{Name: name, Description: d.Description})
		}
	}
	tools, err := newTools(nil).Fitting(env, s.Agent.Tools)
	must(t, err)
	var specs []llm.ToolSpec
	for _, x := range tools {
		specs = append(specs, x.Spec())
	}
	n, wrong := 0, 0
	for _, e := range events {
		done, ok := e.Body.(thread.ModelCompleted)
		if !ok {
			continue
		}
		at, err := runs.FoldState(events[:done.Through])
		must(t, err)
		p, err := prompt.NewBuilder(blobs).Build(t.Context(), at, prompt.Spec{Tools: specs, Model: model(nil).Info()})
		must(t, err)
		if n++; p.Hash != done.Prompt {
			wrong++
		}
	}
	if wrong > 0 {
		t.Errorf("%s: %d of %d prompts cannot be built from the log", id, wrong, n)
	}
}

type (
	noSpawner struct{ tool.Spawner }
	tasks     = tool.Tasks
	noTasks   struct{ tasks }
)

// records checks that there is one record for each thread's run, and that it
// says what the log says.
func (w *world) records(o order, s *store.Store) {
	t := w.t
	t.Helper()
	records, err := s.KV(t.Context(), "runs")
	must(t, err)
	k, err := supervisor.Open(t.Context(), supervisor.Config{
		Threads: s.Threads(), Records: records, Models: models{o.Plot}, Definitions: agents{o.Plot}, Tools: newTools(nil), Node: "check",
	})
	must(t, err)
	defer func() { must(t, k.Close()) }()
	page, err := k.List(t.Context(), o.Tenant, runs.Filter{Subagents: true})
	must(t, err)
	seen := map[thread.ID]bool{}
	for _, r := range page.Runs {
		if r.State != thread.RunSucceeded || r.Waiting > 0 {
			t.Errorf("the record of %s on %s says %s %q", r.ID, r.Thread, r.State, r.Text)
		}
		if seen[r.Thread] {
			t.Errorf("%s has two records", r.Thread)
		}
		seen[r.Thread] = true
	}
	if want := 1 + 3*btoi(o.Plot.Boss); len(seen) != want {
		t.Errorf("%d records, want %d", len(seen), want)
	}
}

// files checks what the edits came to: each happened once.
func (w *world) files(o order, s *store.Store) {
	t := w.t
	t.Helper()
	w.guest.mu.Lock()
	var mine []string
	for key, id := range w.guest.machines {
		if strings.HasPrefix(key, o.Tenant+"/") {
			mine = append(mine, id)
		}
	}
	w.guest.mu.Unlock()
	if len(mine) != 1 {
		t.Fatalf("%d machines were made, want 1", len(mine))
	}
	d, err := disk(t.Context(), s, o.Tenant, mine[0])
	must(t, err)
	for i, name := range workers {
		content, _, err := d.Read(t.Context(), "/workspace/"+name+".txt", 1<<20)
		must(t, err)
		if want := o.Plot.file(i); string(content) != want {
			t.Errorf("the edits of %s came to\n%s\nwant\n%s", name, content, want)
		}
	}
}
