package serve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// toolRuns lets people call the tools of sources, as an agent would. It is a server.ToolRuns.
type toolRuns struct {
	sources  []tool.Source
	machines machines
}

// Run implements server.ToolRuns.
func (x toolRuns) Run(ctx context.Context, tenant, by, name string, in api.RunTool) (api.ToolResult, error) {
	p := tool.Place{Tenant: tenant, Agent: in.Agent, Tools: []string{name}, Thread: thread.NewID(), Run: thread.NewRunID(), By: by, Machine: in.Sandbox}
	if in.Sandbox != "" {
		m, release, err := x.machines.Open(ctx, tenant, in.Sandbox)
		if err != nil {
			return api.ToolResult{}, err
		}
		defer release()
		defer m.Call(ctx)()
		p.Boot, p.Dir, p.Files, p.Commands, p.Mount = m.Boot, m.Dir, m.Files, m.Commands, m.Mount
	}
	t, err := x.find(ctx, p, name)
	if err != nil {
		return api.ToolResult{}, err
	}
	r, err := call(ctx, t, in.Args)
	if err != nil {
		return api.ToolResult{}, err
	}
	return toolResult(r), nil
}

// find looks for a tool as a run that begins does.
func (x toolRuns) find(ctx context.Context, p tool.Place, name string) (tool.Sourced, error) {
	var why []string
	for _, s := range x.sources {
		if !s.Covers(p.Tenant, name) {
			continue
		}
		found, notes, err := s.Find(ctx, p)
		if err != nil {
			return tool.Sourced{}, err
		}
		i := slices.IndexFunc(found, func(e tool.External) bool { return e.Spec.Name == name })
		if i >= 0 {
			found[i].Source = s.Name()
			return tool.Sourced{External: found[i], From: s, Place: p}, nil
		}
		why = append(why, notes...)
	}
	err := errs.New(errs.NotFound, "there is no tool %.80q for this call", name)
	if len(why) > 0 {
		return tool.Sourced{}, err.WithHint("%s", clip.Text(strings.Join(why, "; "), 1000))
	}
	return tool.Sourced{}, err.WithHint("a built-in one is used by runs alone; one that is for some agents is called for one of them (agent)")
}

// call runs a tool once. What it has begun ends with ctx.
func call(ctx context.Context, t tool.Sourced, args []byte) (tool.Result, error) {
	checked, err := tool.Check(t)
	if err != nil {
		return tool.Result{}, err
	}
	req := tool.Request{Key: string(t.Place.Run), Call: "call", Thread: t.Place.Thread, Run: t.Place.Run, Args: args}
	plan, bad, err := checked.Plan(ctx, req)
	if err != nil {
		return tool.Result{}, err
	}
	if bad != nil {
		return *bad, nil
	}
	req.Plan = plan
	within, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(tool.ErrCancelled) })()
	r, err := checked.Run(within, req)
	if f, is := t.From.(tool.Finisher); is {
		f.Finish(context.WithoutCancel(ctx), t.Place, t.External, req.Key)
	}
	return r, err
}

// toolTextMax is how much text of a tool is answered.
const toolTextMax = 1 << 20

func toolResult(r tool.Result) api.ToolResult {
	var parts []string
	for _, b := range r.Blocks {
		if b.Kind == llm.KindText {
			parts = append(parts, b.Text)
		} else {
			parts = append(parts, fmt.Sprintf("(a part of the kind %s, which is not shown)", b.Kind))
		}
	}
	return api.ToolResult{Failed: r.Failed, Code: r.Code, Exit: r.Exit, Text: clip.Text(strings.ToValidUTF8(strings.Join(parts, "\n"), "\uFFFD"), toolTextMax)}
}
