package supervisor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// disk is a machine whose files are one text, with its history.
type disk struct {
	mu    sync.Mutex
	files string
	made  []madeRevision
	fail  error
	// copied are the files of a fork; lost is why they cannot be had as they were.
	copied string
	lost   error
	// entered are the runs that are under way in it, left those that are over.
	entered []thread.RunID
	left    []left
	refuses error // why nothing is heard of a run's end
}

type madeRevision struct {
	mark  agent.Mark
	files string
}

func (d *disk) write(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files += s
}

func (d *disk) breaks(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

func (d *disk) revise(_ context.Context, m agent.Mark) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	if len(d.made) == 0 || d.made[len(d.made)-1].files != d.files {
		m.Time = time.Now()
		d.made = append(d.made, madeRevision{m, d.files})
	}
	return nil
}

// Check implements supervisor.Machines.
func (d *disk) Check(map[string]any) error { return nil }

// Create implements supervisor.Machines.
func (d *disk) Create(context.Context, string, string, thread.RunID, string, map[string]any) (string, error) {
	return "m1", nil
}

// Enter implements supervisor.Machines.
func (d *disk) Enter(_ context.Context, _, id string, run thread.RunID, _ string, own bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.entered, run) {
		d.entered = append(d.entered, run)
	}
	return nil
}

// Leave implements supervisor.Machines.
func (d *disk) Leave(_ context.Context, _ string, run thread.RunID, then definition.AfterRun) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuses != nil {
		return d.refuses
	}
	d.left = append(d.left, left{run, then})
	d.entered = slices.DeleteFunc(d.entered, func(r thread.RunID) bool { return r == run })
	return nil
}

// Entered implements supervisor.Machines.
func (d *disk) Entered(visit func(string, thread.RunID)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, run := range d.entered {
		visit(tenant, run)
	}
}

// left is a run that is over.
type left struct {
	run  thread.RunID
	then definition.AfterRun
}

// Open implements supervisor.Machines.
func (d *disk) Open(context.Context, string, string) (agent.Machine, func(), error) {
	return agent.Machine{Boot: "b", Dir: "/workspace", Revise: d.revise}, func() {}, nil
}

// Copy implements supervisor.Machines.
func (d *disk) Copy(_ context.Context, _, _, _ string, when func(agent.Mark) supervisor.When) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost != nil {
		return d.lost
	}
	d.copied = d.files
	for i, r := range d.made {
		switch when(r.mark) {
		case supervisor.Later:
			d.copied = d.made[i-1].files
			return nil
		case supervisor.Earlier:
			d.copied = r.files
		}
	}
	return nil
}

// CopyNow implements supervisor.Machines.
func (d *disk) CopyNow(context.Context, string, string, string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.copied = d.files
	return nil
}

// Destroy implements supervisor.Machines.
func (d *disk) Destroy(context.Context, string, string) error { return nil }

// Restore implements supervisor.Machines.
func (d *disk) Restore(_ context.Context, _, _ string, when func(agent.Mark) supervisor.When, by string) ([]runs.Change, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.made, func(r madeRevision) bool { return when(r.mark) == supervisor.Later })
	if i < 0 {
		return nil, nil
	}
	was := d.files
	d.files = d.made[i-1].files
	d.made = append(d.made, madeRevision{agent.Mark{Actor: by}, d.files})
	return []runs.Change{{Path: was, Action: "change"}}, nil
}

// look only reads.
type look struct{ fake }

// Effect implements tool.Tool.
func (look) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

func TestRevisions(t *testing.T) {
	d := &disk{files: "empty"}
	act := fake{"act", func(_ context.Context, r tool.Request) (tool.Result, error) {
		d.write(" " + string(r.Args[6:7]))
		return tool.Text("ok"), nil
	}}
	h := newHouse(t, act)
	h.machines = d
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if n := strings.Count(fmt.Sprint(req.Messages), "ok"); req.Step <= 2 && n < 2 {
			return respond(call(fmt.Sprintf("c%d", req.Step), "act", fmt.Sprintf(`{"n":"%d"}`, req.Step)))
		}
		return respond(llm.Text("done"))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it")})
	must(t, err)
	await(t, k, run.ID, over)
	var got []string
	for _, r := range d.made {
		got = append(got, fmt.Sprintf("%s|%s %d %s|%s", r.files, r.mark.Actor, r.mark.Step, r.mark.Call, r.mark.Text))
	}
	want := []string{"empty|outside 0 |do it", `empty 1|agent 1 c1|act {"n":"1"}`, `empty 1 2|agent 2 c2|act {"n":"2"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}

	// Back to before the second call, in the conversation and in the files.
	events := h.check(run.Thread)
	second := slices.IndexFunc(events, func(e thread.Event) bool {
		s, ok := e.Body.(thread.ToolStarted)
		return ok && s.Call == "c2"
	})
	changed, err := k.Rewind(t.Context(), tenant, run.ID, uint64(second), true, "anna")
	must(t, err)
	if d.files != "empty 1" || len(changed) != 1 || changed[0].Path != "empty 1 2" {
		t.Errorf("files after the rewind: %q", d.files)
	}
	h.check(run.Thread)
	if _, err := k.Rewind(t.Context(), tenant, run.ID, 100_000, true, "anna"); !errs.Is(err, errs.Invalid) || d.files != "empty 1" {
		t.Errorf("a rewind to nowhere: %v, files %q", err, d.files)
	}
}

// A call that could not be taken back does not begin, and the model is told.
func TestRevisions_full(t *testing.T) {
	d := &disk{fail: errs.New(errs.Limit, "the history is full")}
	ran := false
	h := newHouse(t, fake{"act", func(context.Context, tool.Request) (tool.Result, error) { ran = true; return tool.Text("ok"), nil }},
		look{fake{"look", func(context.Context, tool.Request) (tool.Result, error) { return tool.Text("seen"), nil }}})
	h.machines = d
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if req.Step == 1 {
			return respond(call("c1", "act", `{}`), call("c2", "look", `{}`))
		}
		var results []string
		for _, b := range req.Messages[len(req.Messages)-1].Blocks {
			if b.Result != nil {
				results = append(results, llm.Message{Blocks: b.Result.Blocks}.String())
			}
		}
		return respond(llm.Text(strings.Join(results, "|")))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it")})
	must(t, err)
	got := await(t, k, run.ID, over)
	if ran || !strings.Contains(got.Text, "could not be taken back") || !strings.Contains(got.Text, "seen") {
		t.Errorf("ran %v, %q", ran, got.Text)
	}
}

// settling is a tool that knows what it did.
type settling struct{ fake }

// Settle implements tool.Settler.
func (settling) Settle(context.Context, tool.Request) (*tool.Result, error) {
	r := tool.Text("it was done before")
	return &r, nil
}

// With the disk full, an append that fails, written or not, must not make a call
// that was started, and perhaps done, one that has "not begun".
func TestRevisions_notBegunIsSaidOnlyOfWhatIsNot(t *testing.T) {
	for _, tt := range []struct {
		name    string
		written bool // the append that fails has tool.started and is written; else it has the result and is not
		settles bool
		ran     int
		want    string
	}{
		{"the result is lost", false, false, 1, "Interrupted: this call was started before"},
		{"the result is lost, and can be found", false, true, 1, "it was done before"},
		{"the start is written, and the driver does not know", true, false, 0, "Interrupted: this call was started before"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &disk{files: "empty"}
			var mu sync.Mutex // guards what follows
			ran, lose := 0, 0 // the append from now on that fails
			act := fake{"act", func(context.Context, tool.Request) (tool.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				ran++
				if !tt.written {
					lose = 1
				}
				d.write(" done")
				return tool.Text("ok"), nil
			}}
			var x tool.Tool = act
			if tt.settles {
				x = settling{act}
			}
			h := newHouse(t, x)
			h.machines = d
			full := func(op string, _ thread.ID) error {
				mu.Lock()
				defer mu.Unlock()
				if op != "append" || lose == 0 {
					return nil
				}
				if lose--; lose > 0 {
					return nil
				}
				d.breaks(errs.New(errs.Limit, "the disk is full"))
				return errs.New(errs.Limit, "the store is full")
			}
			log := h.threads.(*thread.Memories).Of(tenant)
			if log.Before = full; tt.written {
				log.Before, log.After = nil, full
			}
			k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
				if req.Step == 1 {
					mu.Lock()
					defer mu.Unlock()
					if tt.written {
						lose = 2 // behind the model's answer
					}
					return respond(call("c1", "act", `{}`))
				}
				return respond(llm.Text(last(req)))
			})
			run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it")})
			must(t, err)
			got := await(t, k, run.ID, over)
			if strings.Contains(got.Text, "Not begun") || !strings.Contains(got.Text, tt.want) {
				t.Errorf("the model was told %q, want %q", got.Text, tt.want)
			}
			if ran != tt.ran {
				t.Errorf("it ran %d times, want %d", ran, tt.ran)
			}
			h.check(run.Thread)
		})
	}
}

// A fork has the files as they were at its event, whatever changed them since;
// where those are not kept, the new run says which ones it has.
func TestFork_hasTheFilesOfItsEvent(t *testing.T) {
	d := &disk{files: "empty"}
	h := newHouse(t, fake{"act", func(_ context.Context, r tool.Request) (tool.Result, error) {
		d.write(" " + string(r.Args[6:7]))
		return tool.Text("ok"), nil
	}})
	h.machines = d
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		if req.Step <= 3 && !strings.Contains(last(req), "only tell") {
			return respond(call(fmt.Sprintf("c%d", req.Step), "act", fmt.Sprintf(`{"n":"%d"}`, req.Step)))
		}
		var all []string
		for _, m := range req.Messages {
			all = append(all, m.String())
		}
		return respond(llm.Text(strings.Join(all, "|")))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Input: text("do it")})
	must(t, err)
	await(t, k, run.ID, over)
	d.write(" by hand")
	must(t, d.revise(t.Context(), agent.Mark{Actor: "outside"}))
	var starts, ends []uint64 // of the calls
	events := h.check(run.Thread)
	for _, e := range events {
		switch e.Body.(type) {
		case thread.ToolStarted:
			starts = append(starts, e.Seq)
		case thread.ToolCompleted:
			ends = append(ends, e.Seq)
		}
	}
	end := events[len(events)-1].Seq
	for _, tt := range []struct {
		at   uint64
		want string
	}{
		{starts[0] - 1, "empty"}, {ends[0], "empty 1"}, {ends[1] - 1, "empty 1 2"}, {ends[1], "empty 1 2"}, {ends[2], "empty 1 2 3"}, {end, "empty 1 2 3"},
	} {
		fork, err := k.Fork(t.Context(), tenant, run.ID, tt.at, runs.Start{Input: text("only tell")})
		must(t, err)
		if await(t, k, fork.ID, over); d.copied != tt.want {
			t.Errorf("at event %d the files were %q, the fork has %q", tt.at, tt.want, d.copied)
		}
		h.check(fork.Thread)
	}
	// What people changed before an event is in it, though no call did it.
	next, err := k.Start(t.Context(), tenant, runs.Start{Thread: run.Thread, Input: text("only tell")})
	must(t, err)
	await(t, k, next.ID, over)
	events = h.check(run.Thread)
	d.write(", and later")
	must(t, d.revise(t.Context(), agent.Mark{Actor: "outside"}))
	later, err := k.Fork(t.Context(), tenant, next.ID, events[len(events)-1].Seq, runs.Start{Input: text("only tell")})
	must(t, err)
	if await(t, k, later.ID, over); d.copied != "empty 1 2 3 by hand" {
		t.Errorf("at the end of the next run the files were others, the fork has %q", d.copied)
	}
	d.lost = errs.New(errs.NotFound, "what was before the call is not kept any more")
	fork, err := k.Fork(t.Context(), tenant, run.ID, ends[0], runs.Start{Input: text("only tell")})
	must(t, err)
	got := await(t, k, fork.ID, over)
	if !strings.Contains(got.Text, "not kept any more") || !strings.Contains(got.Text, "as it is now") || d.copied != d.files {
		t.Errorf("without the files of then: %q, copied %q", got.Text, d.copied)
	}
	h.check(fork.Thread)
}
