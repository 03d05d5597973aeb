package keeper_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/keeper"
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
}

type madeRevision struct {
	mark  keeper.Mark
	files string
}

func (d *disk) write(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files += s
}

func (d *disk) revise(_ context.Context, m keeper.Mark) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	if len(d.made) == 0 || d.made[len(d.made)-1].files != d.files {
		d.made = append(d.made, madeRevision{m, d.files})
	}
	return nil
}

// Create implements keeper.Machines.
func (d *disk) Create(context.Context, string, string, map[string]any) (string, error) {
	return "m1", nil
}

// Open implements keeper.Machines.
func (d *disk) Open(context.Context, string, string) (keeper.Machine, func(), error) {
	return keeper.Machine{Boot: "b", Dir: "/workspace", Revise: d.revise}, func() {}, nil
}

// Copy implements keeper.Machines.
func (d *disk) Copy(context.Context, string, string, string) error { return nil }

// Destroy implements keeper.Machines.
func (d *disk) Destroy(context.Context, string, string) error { return nil }

// Restore implements keeper.Machines.
func (d *disk) Restore(_ context.Context, _, _ string, after func(keeper.Mark) bool, by string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.made, func(r madeRevision) bool { return r.mark.Call != "" && after(r.mark) })
	if i < 0 {
		return false, nil
	}
	d.files = d.made[i-1].files
	d.made = append(d.made, madeRevision{keeper.Mark{Actor: by}, d.files})
	return true, nil
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
	run, err := k.Start(t.Context(), tenant, keeper.Start{Input: text("do it")})
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
	must(t, k.Rewind(t.Context(), tenant, run.ID, uint64(second), true, "anna"))
	if d.files != "empty 1" {
		t.Errorf("files after the rewind: %q", d.files)
	}
	h.check(run.Thread)
	if err := k.Rewind(t.Context(), tenant, run.ID, 100_000, true, "anna"); !errs.Is(err, errs.Invalid) || d.files != "empty 1" {
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
	run, err := k.Start(t.Context(), tenant, keeper.Start{Input: text("do it")})
	must(t, err)
	got := await(t, k, run.ID, over)
	if ran || !strings.Contains(got.Text, "could not be taken back") || !strings.Contains(got.Text, "seen") {
		t.Errorf("ran %v, %q", ran, got.Text)
	}
}
