package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

const idProperty = `"id":{"type":"string","pattern":"^proc_[a-z2-7]{16}$","description":"The process id, as execute told it"}`

func objectOf(required, properties string) json.RawMessage {
	return json.RawMessage(`{"type":"object","additionalProperties":false,"required":[` + required + `],"properties":{` + properties + `}}`)
}

type processArgs struct {
	ID     string  `json:"id"`
	Offset int64   `json:"offset"`
	Wait   float64 `json:"wait_s"`
}

// find opens a process by its id.
func find(ctx context.Context, env tool.Env, req tool.Request) (processArgs, tool.Process, *tool.Result, error) {
	var a processArgs
	if err := json.Unmarshal(req.Args, &a); err != nil {
		r := tool.Fail(tool.CodeArgs, "Error: the arguments cannot be read")
		return a, nil, &r, nil
	}
	p, err := env.Commands.Find(ctx, a.ID)
	if errs.Is(err, errs.NotFound) {
		r := tool.Fail(tool.CodeArgs, fmt.Sprintf("Error: there is no process %.64q; process_list shows all", a.ID))
		return a, nil, &r, nil
	}
	return a, p, nil, err
}

// output shows what a process wrote.
type output struct{ env tool.Env }

// Spec implements tool.Tool.
func (output) Spec() llm.ToolSpec {
	return llm.ToolSpec{
		Name:        "process_output",
		Description: `Shows what a command wrote, from a byte offset on, and how it is. With wait_s it waits for its end, or for new output, so many seconds at most. Example: {"id":"proc_…","wait_s":60}`,
		Schema: objectOf(`"id"`, idProperty+`,"offset":{"type":"integer","minimum":0,"default":0,"description":"The byte to begin with"},`+
			`"wait_s":{"type":"number","minimum":0,"maximum":300,"default":0,"description":"Seconds to wait when there is nothing new"}`),
	}
}

// Effect implements tool.Tool.
func (output) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

// Run implements tool.Tool.
func (t output) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	a, p, bad, err := find(ctx, t.env, req)
	if bad != nil {
		return *bad, nil
	}
	if err != nil {
		return tool.Result{}, err
	}
	w := part{limit: t.env.ResultBytesMax, next: a.Offset}
	now, running, err := w.fill(ctx, p, time.Duration(a.Wait*float64(time.Second)))
	if err != nil {
		return tool.Result{}, err
	}
	return w.result(a, now, running), nil
}

// part is a piece of output from an offset on.
type part struct {
	limit int
	data  []byte
	next  int64 // the offset after data
	gap   int64 // bytes before data that are gone
	full  bool
}

func (w *part) take(c tool.Chunk) error {
	if c.Gap > 0 && len(w.data) > 0 {
		w.full = true
		return errEnough
	}
	w.gap += c.Gap
	n := min(len(c.Data), w.limit-len(w.data))
	w.data = append(w.data, c.Data[:n]...)
	w.next = c.Offset + int64(n)
	if w.full = n < len(c.Data) || len(w.data) == w.limit; w.full {
		return errEnough
	}
	return nil
}

func (w *part) read(ctx context.Context, p tool.Process, follow bool) error {
	take := w.take
	if follow {
		take = func(c tool.Chunk) error { return errors.Join(w.take(c), errEnough) } // the first news will do
	}
	if err := p.Output(ctx, tool.Offsets{Stdout: w.next}, follow, take); err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

// wait reads the first piece that comes, for as long as d.
func (w *part) wait(ctx context.Context, p tool.Process, d time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, min(d, outputWaitMax))
	defer cancel()
	err := w.read(waiting, p, true)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return nil // the time is over
	}
	return err
}

// fill reads what there is, and waits before when there is nothing new. The
// state that it returns is not newer than the output: a process that has
// ended has shown all that it wrote.
func (w *part) fill(ctx context.Context, p tool.Process, patience time.Duration) (now tool.Ended, running bool, err error) {
	now, running, err = p.Status(ctx)
	if err == nil && running && now.Written.Stdout <= w.next && patience > 0 {
		if err = w.wait(ctx, p, patience); err == nil {
			now, running, err = p.Status(ctx)
		}
	}
	if err == nil && !running {
		now, err = p.Wait(ctx) // until its output is whole
	}
	if err == nil && !w.full {
		err = w.read(ctx, p, false)
	}
	return now, running, err
}

func (w *part) result(a processArgs, now tool.Ended, running bool) tool.Result {
	text := strings.ToValidUTF8(string(w.data), "\uFFFD")
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if w.gap > 0 {
		text = fmt.Sprintf("[%d bytes from offset %d on are gone]\n", w.gap, a.Offset) + text
	}
	switch {
	case w.next < now.Written.Stdout:
		text += fmt.Sprintf("[%d bytes in all; go on with offset=%d]\n", now.Written.Stdout, w.next)
	case running && w.full:
		text += fmt.Sprintf("[there may be more; go on with offset=%d]\n", w.next)
	case running:
		text += fmt.Sprintf("[that is all so far; go on with offset=%d]\n", w.next)
	}
	r := tool.Text("")
	switch {
	case running:
		text += "[it is running]"
	case now.Lost:
		text += "[how it ended cannot be known: the machine was started anew]"
	default:
		text += status(now, 0)
		r.Exit = &now.Exit
	}
	r.Blocks[0].Text, r.Whole = text, true
	return r
}

// kill ends a process.
type kill struct{ env tool.Env }

// Spec implements tool.Tool.
func (kill) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: "process_kill", Description: `Ends a command that runs, with all that it started.`, Schema: objectOf(`"id"`, idProperty)}
}

// Effect implements tool.Tool. Killing twice is killing once.
func (kill) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Keyed} }

// Run implements tool.Tool.
func (t kill) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	a, p, bad, err := find(ctx, t.env, req)
	if bad != nil {
		return *bad, nil
	}
	if err == nil {
		err = p.Kill(ctx)
	}
	if err != nil {
		return tool.Result{}, err
	}
	return tool.Text(a.ID + " has ended."), nil
}

// list names processes.
type list struct{ env tool.Env }

const listedMax = 200

// Spec implements tool.Tool.
func (list) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: "process_list", Description: `Lists the commands that run, and the newest that have ended.`, Schema: objectOf(``, ``)}
}

// Effect implements tool.Tool.
func (list) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

// Run implements tool.Tool.
func (t list) Run(ctx context.Context, _ tool.Request) (tool.Result, error) {
	all, err := t.env.Commands.List(ctx, prefix)
	if err != nil {
		return tool.Result{}, err
	}
	all = all[max(len(all)-listedMax, 0):]
	if len(all) == 0 {
		return tool.Text("No processes."), nil
	}
	lines := make([]string, len(all))
	for i, p := range all {
		state := "running"
		switch {
		case p.Running:
		case p.Ended.Lost:
			state = "lost"
		default:
			state = fmt.Sprintf("exit %d", p.Ended.Exit)
		}
		lines[i] = fmt.Sprintf("%s  %s  %s  %d bytes of output  %s", p.Key, p.Started.UTC().Format(time.RFC3339), state, p.Ended.Written.Stdout, clip.Line(p.Command, 100))
	}
	return tool.Text(strings.Join(lines, "\n")), nil
}
