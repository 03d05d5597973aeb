package inside_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/inside"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend"
	"github.com/skete-dev/skete/tool/kit"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// model answers by the number of the step, and by what it was asked.
type model struct {
	info  llm.Info
	reply func(*llm.Request) (*llm.Response, error)
}

func (m *model) Info() llm.Info { return m.info }

func (m *model) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		r, err := m.reply(req)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			yield(llm.Delta{}, err)
			return
		}
		if yield(llm.Delta{Kind: llm.DeltaText, Text: r.Message.String()}, nil) {
			yield(llm.Delta{Kind: llm.DeltaDone, Response: r}, nil)
		}
	}
}

func respond(blocks ...llm.Block) *llm.Response {
	m := llm.Assistant(blocks...)
	stop := llm.StopEnd
	if len(m.Calls()) > 0 {
		stop = llm.StopTools
	}
	return &llm.Response{Message: m, Stop: stop, Usage: llm.Usage{Input: 1000, Output: 50}, Model: "m-1"}
}

func call(id, name, args string) llm.Block {
	return llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: id, Name: name, Args: json.RawMessage(args)}}
}

// replies answers the n-th step with the n-th reply, the last one for ever.
func replies(list ...[]llm.Block) func(*llm.Request) (*llm.Response, error) {
	return func(req *llm.Request) (*llm.Response, error) {
		return respond(list[min(max(req.Step, 1), len(list))-1]...), nil
	}
}

func blocks(b ...llm.Block) []llm.Block { return b }

// commands are those of a machine in which everything ends at once, once per key.
type commands struct {
	mu   sync.Mutex
	runs map[string]int
}

type process struct {
	out  string
	exit int
}

func (c *commands) Start(_ context.Context, key string, cmd tool.Command) (tool.Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[string]int{}
	}
	if c.runs[key] == 0 {
		c.runs[key]++
	}
	switch {
	case strings.HasPrefix(cmd.Shell, "long"):
		return process{strings.Repeat("a line of it\n", 20_000), 0}, nil
	case cmd.Shell == "false":
		return process{"no\n", 1}, nil
	}
	return process{"out of <" + cmd.Shell + "> & \u2028\n", 0}, nil
}

func (c *commands) Find(_ context.Context, key string) (tool.Process, error) {
	return nil, errs.New(errs.NotFound, "nothing was started as %s", key)
}
func (c *commands) List(context.Context, string) ([]tool.Listed, error) { return nil, nil }

func (p process) Output(_ context.Context, from tool.Offsets, _ bool, visit func(tool.Chunk) error) error {
	if from.Stdout >= int64(len(p.out)) {
		return nil
	}
	return visit(tool.Chunk{Offset: from.Stdout, Data: []byte(p.out[from.Stdout:])})
}

func (p process) Wait(context.Context) (tool.Ended, error) {
	return tool.Ended{Exit: p.exit, Written: tool.Offsets{Stdout: int64(len(p.out))}}, nil
}

func (p process) Status(ctx context.Context) (tool.Ended, bool, error) {
	e, err := p.Wait(ctx)
	return e, false, err
}
func (process) Kill(context.Context) error { return nil }

// spawner has one sub-agent, which has done its work when it is asked the second time.
type spawner struct {
	mu    sync.Mutex
	asked int
}

func (s *spawner) Spawn(_ context.Context, req tool.SpawnRequest) (tool.SpawnResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	r := tool.SpawnResult{Thread: req.Thread.Sub(req.Call)}
	if s.asked > 1 {
		r.Done, r.Text, r.Spent = true, "found it", thread.Spent{Steps: 3, Usage: llm.Usage{Input: 7, Output: 3}, CostUSD: 0.25}
	}
	return r, nil
}

// lessons are skills that a run found: forms, and seahorses, which the list has no room for.
// How often each was taught is counted.
type lessons struct {
	mu     sync.Mutex
	taught map[string]int
}

func (l *lessons) Learn(_ context.Context, name string) (tool.Lesson, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name != "forms" && name != "seahorses" {
		return tool.Lesson{}, errs.New(errs.NotFound, "there is no skill %q", name)
	}
	l.taught[name]++
	return tool.Lesson{Instructions: "Do " + name + " <so>.", Dir: "/skills/" + name, Files: []string{"a.py"}}, nil
}

func (*lessons) Unlisted() int { return 1 }

func (*lessons) Find(context.Context, string) ([]tool.SkillEntry, error) {
	return []tool.SkillEntry{{Name: "seahorses", Description: "Counts them."}}, nil
}

const skillsPinned = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"

func tellSkills(_ context.Context, about *thread.Context) error {
	about.Skills, about.Pinned = []thread.ContextFile{{Path: "/skills", Text: "- forms: Fills them."}}, skillsPinned
	return nil
}

// house is a thread on a host, with a machine.
type house struct {
	t      testing.TB
	log    *thread.Memory
	id     thread.ID
	run    thread.RunID
	model  *model
	notes  tool.Files
	disk   tool.Files
	cmds   *commands
	spawn  *spawner
	skills *lessons // nil = none
	marks  []agent.Mark
	live   []runs.Live
	mu     sync.Mutex
	paid   agent.Paid
	driver func(*house, agent.Parts) agent.Driver
	// real begins a real agent, and realCommands and dir are its machine's; nil = a machine
	// of this test's own.
	real         func(context.Context) (net.Conn, error)
	realCommands tool.Commands
	dir          string
	// wire stands between both ends; nil = nothing does.
	wire func(net.Conn) net.Conn
}

// scenario is a task and how it goes.
type scenario struct {
	agent   definition.Definition
	started thread.RunStarted
	skills  bool
	info    llm.Info
	reply   func(*llm.Request) (*llm.Response, error)
	// rests is called when the run rests that has not ended.
	rests func(h *house, o agent.Outcome)
	// want is a part of the log as JSON.
	want string
}

// Of every house: keys and prompts are made of them.
var (
	threadID = thread.NewID()
	runID    = thread.NewRunID()
)

func newHouse(t testing.TB, sc scenario) *house {
	t.Helper()
	memory := thread.NewMemory()
	info := sc.info
	if info.Name == "" {
		info = llm.Info{Name: "test/m", Vendor: "test", ID: "m", WindowTokens: 200_000, Price: llm.Price{Input: 3, Output: 15}}
	}
	h := &house{
		t: t, log: memory, id: threadID, run: runID, model: &model{info, sc.reply}, cmds: &commands{}, spawn: &spawner{},
		notes: backend.NewStore(kvtest.NewMemory(), memory, "notes"), disk: backend.NewStore(kvtest.NewMemory(), memory, "disk"),
	}
	if sc.skills {
		h.skills = &lessons{taught: map[string]int{}}
	}
	if sc.agent.Name == "" {
		sc.agent.Name = "a"
	}
	sc.agent.Limits.ParallelMax = 1 // the order of results is of chance otherwise
	content, err := json.Marshal(sc.agent)
	must(t, err)
	if sc.started.Budget.Steps == 0 {
		sc.started.Budget.Steps = 50
	}
	bodies := []thread.Body{
		thread.Opened{Agent: content, Name: "a"},
		thread.Bound{Machine: "sbx_1"},
		sc.started,
		thread.Input{From: "user", Blocks: blocks(llm.Text("do it"))},
		thread.Claimed{Node: "n/1", Term: 1},
	}
	h.append(bodies...)
	return h
}

func (h *house) append(bodies ...thread.Body) {
	h.t.Helper()
	for _, b := range bodies {
		head, err := h.log.Head(context.Background(), h.id)
		must(h.t, err)
		_, err = h.log.Append(context.Background(), h.id, head, thread.New(h.run, b))
		must(h.t, err)
	}
}

func (h *house) events() (events []thread.Event) {
	for e, err := range h.log.Load(context.Background(), h.id, 1) {
		must(h.t, err)
		events = append(events, e)
	}
	return events
}

func (h *house) state() *runs.State {
	h.t.Helper()
	s, err := runs.FoldState(h.events())
	must(h.t, err)
	return s
}

func (h *house) parts() agent.Parts {
	var cmds tool.Commands = h.cmds
	if h.realCommands != nil {
		cmds = h.realCommands
	}
	p := agent.Parts{
		Thread: h.id, State: h.state(), Log: h.log, Blobs: h.log, MachineID: "sbx_1#b", Memories: h.notes, Tools: kit.New(), Spawner: h.spawn,
		Machine: agent.Machine{Files: h.disk, Commands: cmds, Boot: "b", Dir: cmp.Or(h.dir, "/workspace"), Note: "a machine", Revise: func(_ context.Context, m agent.Mark) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.marks = append(h.marks, m)
			return nil
		}, Call: func(context.Context) func() { return func() {} }, Inside: h.inside},
		Live: func(l runs.Live) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.live = append(h.live, l)
		},
		Tree:     func() (thread.Budget, thread.Spent) { return thread.Budget{Steps: 1000}, thread.Spent{} },
		Patience: llm.RetryPolicy{Wait: time.Millisecond, WaitMax: time.Millisecond}, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
	if h.skills != nil {
		p.Skills, p.TellSkills = h.skills, tellSkills
	}
	return p
}

// inside begins an agent at the other end of a pipe.
func (h *house) inside(ctx context.Context) (net.Conn, error) {
	if h.real != nil {
		return h.real(ctx)
	}
	host, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = inside.Drive(ctx, theirs, inside.Local{Files: h.disk, Commands: h.cmds, Boot: "b", Tools: kit.New(), Logger: slog.New(slog.DiscardHandler)})
	}()
	h.t.Cleanup(func() { cancel(); <-done })
	if h.wire != nil {
		return h.wire(host), nil
	}
	return host, nil
}

func onHost(h *house, p agent.Parts) agent.Driver {
	r, err := agent.Assemble(p, h.model)
	must(h.t, err)
	return r
}

func inMachine(h *house, p agent.Parts) agent.Driver {
	r, err := inside.NewHost(p, h.model, &h.paid)
	must(h.t, err)
	return r
}

// drive drives until the run has ended.
func (h *house) drive(sc scenario) {
	h.t.Helper()
	for range 500 {
		d := h.driver(h, h.parts())
		d.Notify()
		o, err := d.Run(h.t.Context())
		switch {
		case err != nil && h.wire != nil && errs.Temporary(err):
			continue
		case err != nil:
			h.t.Fatal(err)
		case o.Ended:
			must(h.t, thread.Check(h.events()))
			return
		case sc.rests == nil:
			h.t.Fatalf("it rests: %+v", o)
		}
		sc.rests(h, o)
	}
	h.t.Fatal("it does not end")
}

// plain is a log without what differs between two runs of the same.
func (h *house) plain() []string {
	var lines []string
	for _, e := range h.events() {
		e.At = time.Time{}
		switch b := e.Body.(type) {
		case thread.ModelCompleted:
			b.Took = 0
			e.Body = b
		case thread.ToolCompleted:
			b.Took = 0
			e.Body = b
		case thread.ModelFailed:
			b.Wait = 0 // at random
			e.Body = b
		case thread.CheckEnded:
			b.Took = 0
			e.Body = b
		}
		text, err := e.AppendJSON(nil)
		must(h.t, err)
		lines = append(lines, string(text))
	}
	return lines
}

func overflow(n int) func(*llm.Request) (*llm.Response, error) {
	var once sync.Once
	return func(req *llm.Request) (r *llm.Response, err error) {
		once.Do(func() {
			err = &llm.Error{Trouble: llm.Overflow, Model: "test/m", WindowTokens: n, URL: "http://10.9.8.7:1234"}
		})
		if err != nil {
			return nil, err
		}
		return respond(llm.Text("ok")), nil
	}
}

func scenarios() map[string]scenario {
	big := strings.Repeat("word ", 30_000)
	return map[string]scenario{
		"words": {reply: replies(blocks(llm.Text("a < b && c > d \u2028 é")))},
		"files": {reply: replies(
			blocks(call("c1", "write_file", `{"file_path":"/workspace/a.txt","content":"one <two>\n"}`)),
			blocks(call("c2", "read_file", `{"file_path":"/workspace/a.txt"}`), call("c3", "ls", `{"path": "/workspace"}`)),
			blocks(call("c4", "edit_file", `{"file_path":"/workspace/a.txt","old_string":"one","new_string":"1"}`)),
			blocks(llm.Text("done"))), want: "one <two>"},
		"commands": {reply: replies(
			blocks(call("c1", "execute", `{"command":"echo a"}`), call("c2", "execute", `{"command":"false"}`)), blocks(llm.Text("done"))), want: "out of <echo a>"},
		"memories": {reply: replies(
			blocks(call("c1", "write_file", `{"file_path":"/memories/AGENTS.md","content":"remember"}`)),
			blocks(call("c2", "grep", `{"pattern":"rem","path":"/memories"}`), call("c3", "read_file", `{"file_path":"/memories/none"}`)), blocks(llm.Text("done"))), want: "remember"},
		"large result": {reply: replies(
			blocks(call("c1", "execute", `{"command":"long"}`)), blocks(call("c2", "read_file", `{"file_path":"/large_tool_results/c1","limit":3}`)), blocks(llm.Text("done"))), want: "large_tool_results"},
		"todos and the thread's files": {reply: replies(
			blocks(call("c1", "write_todos", `{"todos":[{"content":"x","status":"pending"}]}`), call("c2", "write_file", `{"file_path":"/thread/n.md","content":"n"}`)),
			blocks(call("c3", "read_file", `{"file_path":"/thread/n.md"}`)), blocks(llm.Text("done"))), want: `"todos"`},
		"skills": {skills: true, reply: replies(
			blocks(call("c1", "skill", `{"query":"count"}`), call("c2", "skill", `{"name":"seahorses"}`), call("c3", "skill", `{"name":"none"}`)),
			blocks(llm.Text("done"))), want: skillsPinned},
		"what is wrong": {reply: replies(
			blocks(call("c1", "no_such_tool", `{}`), call("c2", "read_file", `{"path":3}`), call("c3", "read_file", `{"file_path":"relative"}`)), blocks(llm.Text("done"))), want: "unknown_tool"},
		"the model's trouble": {reply: func() func(*llm.Request) (*llm.Response, error) {
			var mu sync.Mutex
			n := 0
			return func(*llm.Request) (*llm.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if n++; n < 3 {
					return nil, &llm.Error{Trouble: llm.Overloaded, Status: 529, Model: "test/m", Said: "too busy"}
				}
				return respond(llm.Text("ok")), nil
			}
		}(), want: "too busy"},
		"a prompt that is too long": {reply: overflow(100_000), want: "context_overflow"},
		"a model that refuses": {reply: func(*llm.Request) (*llm.Response, error) {
			return nil, &llm.Error{Trouble: llm.Refused, Status: 401, Model: "test/m", Said: "no"}
		}, want: `"failed"`},
		"a budget":          {started: thread.RunStarted{Budget: thread.Budget{Steps: 2}}, reply: replies(blocks(call("", "ls", `{"path":"/"}`))), want: `"steps"`},
		"a budget of money": {started: thread.RunStarted{Budget: thread.Budget{CostUSD: 0.005}}, reply: replies(blocks(call("", "ls", `{"path":"/"}`))), want: `"cost"`},
		"an approval": {
			agent: definition.Definition{Rules: []definition.Rule{{Action: definition.Ask, Tools: []string{"write_file"}}}},
			reply: replies(blocks(call("c1", "write_file", `{"file_path":"/workspace/a","content":"x"}`)), blocks(llm.Text("done"))),
			rests: func(h *house, _ agent.Outcome) {
				h.append(thread.ApprovalDecided{Call: "c1", Decision: thread.Edit, Args: json.RawMessage(`{"file_path":"/workspace/b","content":"y"}`), By: "anna"})
			}, want: `"approval.asked"`,
		},
		"a sub-agent": {
			agent: definition.Definition{Subagents: map[string]definition.Definition{"general-purpose": {Name: "general-purpose", Description: "any"}}},
			reply: replies(blocks(call("c1", "task", `{"description":"find it","subagent_type":"general-purpose"}`)), blocks(llm.Text("done"))),
			rests: func(h *house, o agent.Outcome) {
				if !slices.Equal(o.Parked, []string{"c1"}) {
					h.t.Fatalf("it rests with %v", o.Parked)
				}
			}, want: `0.25`,
		},
		"a result of a form": {
			started: thread.RunStarted{Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)},
			reply:   replies(blocks(llm.Text("no")), blocks(call("c1", "final_result", `{"n":"x"}`)), blocks(call("c2", "final_result", `{"n":3}`)), blocks(llm.Text("done"))), want: `"n"`,
		},
		"a check": {started: thread.RunStarted{Check: &thread.RunCheck{Command: "true", Rubric: "it is good"}}, reply: func(req *llm.Request) (*llm.Response, error) {
			if req.Step == 0 {
				return respond(llm.Text("PASS it is")), nil
			}
			return respond(llm.Text("done")), nil
		}, want: `"check.ended"`},
		"a conversation that is shortened": {reply: func(req *llm.Request) (*llm.Response, error) {
			switch {
			case req.Step == 0:
				return respond(llm.Text("a summary")), nil
			case req.Step < 4:
				return respond(llm.Text(big[:9_000]), call(fmt.Sprintf("c%d", req.Step), "ls", fmt.Sprintf(`{"path":"/%d"}`, req.Step))), nil
			case req.Step == 4:
				return respond(call("c4", "compact_conversation", `{}`)), nil
			}
			return respond(llm.Text("done")), nil
		}, want: `"context.compacted"`},
		"what people say meanwhile": {reply: func(req *llm.Request) (*llm.Response, error) {
			return respond(llm.Text("you said " + req.Messages[len(req.Messages)-1].String())), nil
		}},
	}
}

// The same task leaves the same log, to the hash of each prompt, wherever the agent is.
func TestDrive_likeOnTheHost(t *testing.T) {
	for name, sc := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newHouse(t, sc)
			host.driver = onHost
			host.drive(sc)
			machine := newHouse(t, scenarios()[name]) // a model of its own
			machine.driver = inMachine
			machine.drive(scenarios()[name])
			if diff := gocmp.Diff(host.plain(), machine.plain()); diff != "" {
				t.Error(diff)
			}
			if diff := gocmp.Diff(host.marks, machine.marks); diff != "" {
				t.Error(diff)
			}
			if sc.skills && (host.skills.taught["seahorses"] != 1 || machine.skills.taught["seahorses"] != 1) {
				t.Errorf("taught: %v, %v", host.skills.taught, machine.skills.taught)
			}
			if whole := strings.Join(machine.plain(), "\n"); !strings.Contains(whole, sc.want) || strings.Contains(whole, "10.9.8.7") {
				t.Errorf("not as wanted (%s):\n%s", sc.want, whole)
			}
			if len(machine.live) == 0 && !strings.Contains(name, "refuses") {
				t.Error("nothing was shown on its way")
			}
			if left := machine.paid.Spent(); left.Usage.Total() != 0 || left.Steps != 0 {
				t.Errorf("paid and not in the log: %+v", left)
			}
		})
	}
}
