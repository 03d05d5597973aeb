package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/rpc"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend"
	"github.com/skete-dev/skete/tool/file"
	"github.com/skete-dev/skete/tool/shell"
	"github.com/skete-dev/skete/tool/task"
)

// childEnv holds the order of a process that is to be killed.
const childEnv = "CHAOS_CHILD"

// order is what a child is told.
type order struct {
	Process int
	Dir     string // of the store
	Guest   string // the guest's socket
	Tenant  string // one for each run
	Plot    plot
	// DieAt ends the process by SIGKILL at its n-th write, before it or after
	// it; 0 = it does not kill itself. Progress counts only appends that bring a
	// thread on, not claims and records.
	DieAt    int
	Before   bool
	Progress bool
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		var o order
		err := json.Unmarshal([]byte(text), &o)
		if err == nil {
			err = (&child{o: o}).run(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is a server without its surface.
type child struct {
	o      order
	writes atomic.Int64
	guest  *rpc.Client
	store  *store.Store
}

// disk is the files of a machine. They outlive the process, as a machine does.
func disk(ctx context.Context, s *store.Store, tenant, id string) (*backend.Store, error) {
	kv, err := s.KV(ctx, "machines")
	if err != nil {
		return nil, err
	}
	blobs, err := s.Threads().Blobs(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return backend.NewStore(kv, blobs, id), nil
}

// say writes whole lines to the parent.
func say(lines ...string) { _, _ = os.Stdout.WriteString(strings.Join(lines, "\n") + "\n") }

func (c *child) run(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := store.Open(ctx, store.Config{Dir: c.o.Dir, Log: log})
	if err != nil {
		return err
	}
	c.store = s
	if c.guest, err = rpc.Dial("unix", c.o.Guest); err != nil {
		return err
	}
	say("open")
	if err := c.tell(ctx, s); err != nil {
		return err
	}
	records, err := s.KV(ctx, "runs")
	if err != nil {
		return err
	}
	k, err := supervisor.Open(ctx, supervisor.Config{
		Threads: threads{s.Threads(), c}, Records: registry{records, c}, Models: models{c.o.Plot}, Machines: machines{c}, Definitions: agents{c.o.Plot},
		Tools: newTools(c), Node: "n", Patience: llm.RetryPolicy{Wait: time.Millisecond}, Log: log,
	})
	if err != nil {
		return err
	}
	if err := c.drive(ctx, k); err != nil {
		return err
	}
	return errors.Join(k.Close(), s.Close())
}

// tell says what is in the log before anything else happens.
func (c *child) tell(ctx context.Context, s *store.Store) error {
	l, err := s.Threads().Log(ctx, c.o.Tenant)
	if err != nil {
		return err
	}
	for id, err := range l.List(ctx, "") {
		if err != nil {
			return err
		}
		var lines []string
		for e, err := range l.Load(ctx, id, 1) {
			if err != nil {
				return err
			}
			lines = append(lines, line("had", id, e))
		}
		say(lines...)
	}
	return nil
}

// drive starts the run, or finds it, and does what people do until it is over.
func (c *child) drive(ctx context.Context, k *supervisor.Supervisor) error {
	start := runs.Start{Input: []llm.Block{llm.Text("Do it.")}, Key: "the run"}
	if c.o.Plot.People {
		start.Input = append(start.Input, llm.Block{Kind: llm.KindMedia, Media: &llm.Media{Type: "image/png", Data: []byte("a picture")}})
		start.Planning, start.EndCheck = true, &thread.RunCheck{Command: "make test", Rubric: "It was looked at again."}
	}
	run, err := k.Start(ctx, c.o.Tenant, start)
	if err != nil {
		return err
	}
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	late, cancel := patience.Context(ctx, 3*time.Minute)
	defer cancel()
	for ; !run.State.Final(); run, err = k.Get(ctx, c.o.Tenant, run.ID) {
		if err != nil {
			return err
		}
		if c.o.Plot.Boss || c.o.Plot.People {
			if err := c.decide(ctx, k, run); err != nil {
				return err
			}
		}
		for n := 1; n <= 3 && !c.o.Plot.People && run.Steps >= n*c.o.Plot.Steps/4 && run.Steps > 0; n++ {
			in := thread.Input{ID: fmt.Sprint("m", n), Blocks: []llm.Block{llm.Text("Go on.")}}
			if _, err := k.Send(ctx, c.o.Tenant, run.ID, in); err != nil && !errs.Is(err, errs.Conflict) {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-late.Done():
			return fmt.Errorf("it does not come to an end: %+v", run)
		}
	}
	say("done " + string(run.ID))
	return nil
}

// decide answers approvals; two people do it at once.
func (c *child) decide(ctx context.Context, k *supervisor.Supervisor, run runs.Run) error {
	open, err := k.Approvals(ctx, c.o.Tenant, run.ID)
	if err != nil {
		return err
	}
	answers := make(chan error, 2*len(open))
	for range 2 {
		for _, a := range open {
			go func() { answers <- k.Decide(ctx, c.o.Tenant, run.ID, []runs.Decide{verdict(a)}) }()
		}
	}
	won := 0
	for range cap(answers) {
		if err := <-answers; err == nil {
			won++
		} else if !errs.Is(err, errs.Conflict) {
			return err
		}
	}
	if won > len(open) {
		return fmt.Errorf("%d decisions about %d calls were taken", won, len(open))
	}
	return nil
}

func line(word string, id thread.ID, e thread.Event) string {
	content, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(content)
	finished := "-"
	if done, ok := e.Body.(thread.ToolCompleted); ok {
		finished = done.Call
	}
	return fmt.Sprintf("%s %s %d %s %s", word, id, e.Seq, hex.EncodeToString(sum[:8]), finished)
}

// around does a write, and dies before it or after it when it is time.
func (c *child) around(progress bool, write func()) {
	n := int64(-1)
	if progress || !c.o.Progress {
		n = c.writes.Add(1)
	}
	if c.o.Before && n == int64(c.o.DieAt) {
		die()
	}
	write()
	if n == int64(c.o.DieAt) {
		die()
	}
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// threads, log and registry are the store with a say in when to die.
type threads struct {
	supervisor.Threads
	c *child
}

// Log implements supervisor.Threads.
func (t threads) Log(ctx context.Context, tenant string) (thread.Log, error) {
	l, err := t.Threads.Log(ctx, tenant)
	return log{l, t.c}, err
}

type log struct {
	thread.Log
	c *child
}

// Append implements thread.Log.
func (l log) Append(ctx context.Context, id thread.ID, after uint64, events ...thread.Event) (seq uint64, err error) {
	_, claim := events[0].Body.(thread.Claimed)
	l.c.around(!claim, func() { seq, err = l.Log.Append(ctx, id, after, events...) })
	if err == nil {
		lines := make([]string, len(events))
		for i, e := range events {
			lines[i] = line("ack", id, e)
		}
		say(lines...)
	}
	return seq, err
}

type registry struct {
	kv.Store
	c *child
}

// Create implements kv.Store.
func (r registry) Create(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	r.c.around(false, func() { revision, err = r.Store.Create(ctx, key, value) })
	return revision, err
}

// Update implements kv.Store.
func (r registry) Update(ctx context.Context, key string, value []byte, old uint64) (revision uint64, err error) {
	r.c.around(false, func() { revision, err = r.Store.Update(ctx, key, value, old) })
	return revision, err
}

// machines are counted by the guest; their files are in the store.
type machines struct{ c *child }

// Check implements supervisor.Machines.
func (machines) Check(map[string]any) error { return nil }

// Create implements supervisor.Machines.
func (m machines) Create(ctx context.Context, tenant, key string, _ thread.RunID, _ string, _ map[string]any) (id string, err error) {
	if err := m.c.guest.Call("Guest.Machine", tenant+"/"+key, &id); err != nil {
		return "", err
	}
	d, err := disk(ctx, m.c.store, tenant, id)
	if err != nil {
		return "", err
	}
	for _, w := range workers {
		_, err := d.Write(ctx, "/workspace/"+w+".txt", []byte(sharedAtFirst), tool.Absent)
		if fe, ok := errors.AsType[*tool.FileError](err); ok && fe.Code == tool.CodeConflict {
			continue // a process that was killed made it
		}
		if err != nil {
			return "", err
		}
	}
	return id, nil
}

// Enter implements supervisor.Machines.
func (machines) Enter(context.Context, string, string, thread.RunID, string, bool) error { return nil }

// Leave implements supervisor.Machines.
func (machines) Leave(context.Context, string, thread.RunID, definition.AfterRun) error { return nil }

// Entered implements supervisor.Machines.
func (machines) Entered(func(string, thread.RunID)) {}

// Open implements supervisor.Machines.
func (m machines) Open(ctx context.Context, tenant, id string) (agent.Machine, func(), error) {
	d, err := disk(ctx, m.c.store, tenant, id)
	machine := agent.Machine{Files: d, Boot: "b", Dir: "/workspace"}
	if m.c.o.Plot.People {
		machine.Commands = commands(m)
	}
	return machine, func() {}, err
}

// Copy implements supervisor.Machines.
func (machines) Copy(context.Context, string, string, string, func(agent.Mark) supervisor.When) error {
	return nil
}

// CopyNow implements supervisor.Machines.
func (machines) CopyNow(context.Context, string, string, string) error { return nil }

// Restore implements supervisor.Machines.
func (machines) Restore(context.Context, string, string, func(agent.Mark) supervisor.When, string) ([]runs.Change, error) {
	return nil, errs.New(errs.Unsupported, "these machines keep no history")
}

// Destroy implements supervisor.Machines.
func (machines) Destroy(context.Context, string, string) error { return nil }

// newTools are a tool of every class, and those of files and sub-agents. c is
// nil where only their descriptions are wanted.
func newTools(c *child) *tool.Registry {
	r := &tool.Registry{}
	for _, t := range []counted{{"look", "Look", tool.Read, c}, {"act", "Act", tool.Keyed, c}, {"fire", "Fire", tool.Once, c}} {
		r.Add(t.name, func(tool.Env) (tool.Tool, error) { return t, nil })
	}
	file.Add(r)
	task.Add(r)
	task.AddAsk(r)
	task.AddCompact(r)
	shell.Add(r)
	return r
}

// commands are those of a machine: the guest knows which ran, and how they ended.
type commands struct{ c *child }

// Start implements tool.Commands.
func (m commands) Start(_ context.Context, key string, c tool.Command) (tool.Process, error) {
	var exit int
	err := m.c.guest.Call("Guest.Check", Touch{Process: m.c.o.Process, Tool: c.Shell, Call: m.c.o.Tenant, Key: key}, &exit)
	return over(exit), err
}

// Find implements tool.Commands.
func (m commands) Find(ctx context.Context, key string) (tool.Process, error) {
	return m.Start(ctx, key, tool.Command{})
}

// List implements tool.Commands.
func (commands) List(context.Context, string) ([]tool.Listed, error) { return nil, nil }

// over is a command that has ended with an exit status.
type over int

// Output implements tool.Process.
func (e over) Output(_ context.Context, _ tool.Offsets, _ bool, visit func(tool.Chunk) error) error {
	return visit(tool.Chunk{Data: []byte("ran\n")})
}

// Wait implements tool.Process.
func (e over) Wait(context.Context) (tool.Ended, error) { return tool.Ended{Exit: int(e)}, nil }

// Status implements tool.Process.
func (e over) Status(context.Context) (tool.Ended, bool, error) {
	return tool.Ended{Exit: int(e)}, false, nil
}

// Kill implements tool.Process.
func (e over) Kill(context.Context) error { return nil }

// counted is a tool whose effects the guest counts.
type counted struct {
	name, method string
	class        tool.Class
	c            *child
}

// Spec implements tool.Tool.
func (t counted) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: t.name, Description: t.name, Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}
}

// Effect implements tool.Tool.
func (t counted) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: t.class} }

// Run implements tool.Tool.
func (t counted) Run(_ context.Context, req tool.Request) (tool.Result, error) {
	touch := Touch{Process: t.c.o.Process, Tool: t.name, Call: string(req.Thread) + " " + req.Call, Key: req.Key, Args: string(req.Args)}
	var answer string
	if err := t.c.guest.Call("Guest."+t.method, touch, &answer); err != nil {
		return tool.Result{}, err
	}
	if n := numberOf(req.Call); t.name == "look" && n%20 == 0 { // beyond what an event holds
		answer = strings.Repeat(answer+" and much more\n", 600)
	}
	return tool.Text(answer), nil
}
