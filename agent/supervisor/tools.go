package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file finds the tools of a thread that are not built in.
//
// A run keeps the tools that it began with: their list is a blob that the event names which
// tells what surrounds the thread. So the prompt stays a function of the log, and the next
// server goes on with the same tools, whatever its sources have by then.

// Bounds of what sources give.
const (
	externalsMax   = 1000
	listBytesMax   = 16 << 20
	leftOutMax     = 32
	leftOutTextMax = 300
)

// externals are the tools of a thread that sources gave.
type externals struct {
	place   tool.Place
	sources []tool.Source
	list    []tool.External
	tools   []tool.Tool
	leftOut []string
}

// externals finds those of the thread: at the beginning of a run what there is now, later
// what there was then. nil = no source is configured.
func (w *session) externals(ctx context.Context) (*externals, error) {
	if len(w.c.Sources) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	s := w.c.State
	x := &externals{sources: w.c.Sources, place: tool.Place{
		Tenant: w.c.Tenant, Agent: s.Agent.Name, Tools: s.Agent.Tools, Thread: w.c.Thread, Run: s.Run.ID, Top: s.Run.ID, By: s.Run.Started.By,
		Machine: s.Machine, Boot: w.machine.Boot, Dir: w.machine.Dir, Files: w.machine.Files, Commands: w.machine.Commands, Mount: w.machine.Mount,
	}}
	x.place.Skill = func(name string) bool { return definition.Picks(s.Agent.Skills, name) }
	if w.c.Top != nil {
		x.place.Top, x.place.By = w.c.Top()
	}
	var err error
	if s.Run.Steps == 0 || s.Context == nil {
		err = x.find(ctx, w.c.Tools, s.Agent)
		for _, why := range x.leftOut {
			w.c.Logger.Warn("a tool is left out of a run", "thread", w.c.Thread, "why", why)
		}
	} else if s.Context.Tools != "" {
		err = x.read(ctx, w.c.Blobs, s.Context.Tools)
	}
	if err != nil {
		return nil, err
	}
	return x, x.make()
}

// find asks the sources. Of two tools with one name the built-in one is kept, or that of the
// first source.
func (x *externals) find(ctx context.Context, builtIn *tool.Registry, a definition.Definition) error {
	taken := map[string]string{}
	for _, name := range builtIn.Names() {
		taken[name] = "a built-in one"
	}
	for _, name := range agent.Reserved {
		taken[name] = "a built-in one"
	}
	for _, source := range x.sources {
		found, notes, err := source.Find(ctx, x.place)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			notes = append(notes, errs.Public(err))
		}
		for _, n := range notes {
			x.leave("%s: %s", source.Name(), n)
		}
		for _, e := range found {
			e.Source = source.Name()
			if definition.Picks(a.Tools, e.Spec.Name) {
				x.take(e, taken)
			}
		}
	}
	return nil
}

// take adds a tool, or notes why it is left out.
func (x *externals) take(e tool.External, taken map[string]string) {
	name := e.Spec.Name
	switch {
	case !isToolName(name):
		x.leave("%s: %.80q is no name of a tool", e.Source, name)
	case taken[name] != "":
		x.leave("%s: the name %s is that of %s", e.Source, name, taken[name])
	case len(x.list) == externalsMax:
		x.leave("%s: %s is beyond the first %d", e.Source, name, externalsMax)
	default:
		if _, err := tool.Check(tool.Sourced{External: e}); err != nil {
			x.leave("%s: %s", e.Source, errs.Public(err))
			return
		}
		taken[name] = "one of " + e.Source
		x.list = append(x.list, e)
	}
}

func isToolName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

func (x *externals) leave(format string, args ...any) {
	if len(x.leftOut) < leftOutMax {
		x.leftOut = append(x.leftOut, clip.Line(fmt.Sprintf(format, args...), leftOutTextMax))
	}
}

// read takes what the run began with.
func (x *externals) read(ctx context.Context, blobs thread.Blobs, hash string) error {
	data, err := blobs.Get(ctx, hash)
	if err == nil {
		err = json.Unmarshal(data, &x.list)
	}
	if err != nil {
		return fmt.Errorf("read which tools the run has: %w", err)
	}
	return nil
}

// make makes the tools of the list.
func (x *externals) make() error {
	for _, e := range x.list {
		i := slices.IndexFunc(x.sources, func(s tool.Source) bool { return s.Name() == e.Source })
		t := tool.Sourced{External: e, Place: x.place}
		if i >= 0 {
			t.From = x.sources[i]
		}
		checked, err := tool.Check(t)
		if err != nil {
			return err
		}
		x.tools = append(x.tools, checked)
	}
	return nil
}

// tell adds the list to what a run is told at its beginning.
func (x *externals) tell(ctx context.Context, blobs thread.Blobs, about *thread.Context) error {
	about.LeftOut = append(about.LeftOut, x.leftOut...)
	if len(x.list) == 0 {
		return nil
	}
	data, err := json.Marshal(x.list)
	if err != nil {
		return err
	}
	if len(data) > listBytesMax {
		return errs.New(errs.Limit, "the tools of the run have %d bytes in all, at most %d are possible", len(data), listBytesMax)
	}
	about.Tools, err = blobs.Put(ctx, data)
	return err
}

// finished lets the sources go of what they keep for a call whose result is in the log.
func (x *externals) finished(ctx context.Context, done thread.ToolCompleted) func() {
	for _, t := range x.tools {
		e := t.(*tool.Checked).Tool.(tool.Sourced)
		if f, is := e.From.(tool.Finisher); is && e.External.Spec.Name == done.Tool {
			return func() { f.Finish(ctx, x.place, e.External, agent.Key(x.place.Thread, done.Call)) }
		}
	}
	return nil
}

// releaseWait is how long the end of a run waits for its sources to let go.
const releaseWait = 5 * time.Second

// release lets the sources go of what they keep for the runs of a thread.
func (k *Supervisor) release(t threadKey) {
	done := make(chan struct{})
	if !k.spawn(func() {
		defer close(done)
		for _, s := range k.c.Sources {
			if r, is := s.(tool.Releaser); is {
				r.Release(t.tenant, t.id)
			}
		}
	}) {
		return // the server goes down, and its sources with it
	}
	patience := time.NewTimer(releaseWait)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	}
}

// covered reports whether a source answers for a name that is not built in.
func (k *Supervisor) covered(tenant, name string) bool {
	return slices.ContainsFunc(k.c.Sources, func(s tool.Source) bool { return s.Covers(tenant, name) })
}

// toolsThere refuses an agent that names tools which there are not.
func (k *Supervisor) toolsThere(tenant string, d definition.Definition) error {
	for _, pattern := range d.Tools {
		bare := strings.TrimPrefix(pattern, "!")
		err := k.c.Tools.Check([]string{pattern})
		if err != nil && !strings.ContainsAny(bare, "*?[{") && !k.covered(tenant, bare) {
			return err
		}
	}
	return nil
}
