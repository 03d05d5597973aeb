package runs

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/errs"
)

func (a commands) show() *cobra.Command {
	var full, events bool
	var step int
	last := 100
	output := ""
	cmd := &cobra.Command{
		Use: "show RUN", Short: "Tell the story of a run",
		Long: `Tell the story of a run: its task, its steps with their tool calls folded, its
plan, what waits, how it ended and what it cost. RUN is its id, the beginning
of it, or last.

The numbers of events are what fork --at and rewind --to take: of a message, of
a step's answer, and of a call its beginning and its result. A fork at a number
has all up to that event, the event itself included. --events lists those too
that the story leaves out.`,
		Example: `  skete show last
  skete show RUN --step 3
  skete show RUN --full            # texts and failures as they were
  skete show RUN --output CALL     # the whole output of a tool call
  skete show RUN --events | jq .kind
  skete show RUN --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if last < 1 || last > 1000 || step < 0 {
				return usage("--last is 1..1000, --step not negative")
			}
			ctx := cmd.Context()
			c, run, err := a.with(ctx, args[0])
			if err != nil {
				return err
			}
			r := c.Run(run.ID)
			switch {
			case output != "":
				return a.showOutput(ctx, r, output)
			case events:
				return a.showEvents(ctx, r)
			case full:
				return a.showFull(ctx, r, run)
			}
			return a.showTranscript(ctx, r, run, last, step)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&full, "full", false, "as it was on the screen")
	fs.BoolVar(&events, "events", false, "the events, one JSON object a line")
	fs.IntVar(&step, "step", 0, "only this step, with the arguments and outputs of its calls")
	fs.IntVarP(&last, "last", "n", last, "only the last steps, at most 1000")
	fs.StringVar(&output, "output", "", "print the whole output of this tool call, as it was")
	cmd.ValidArgsFunction = a.complete
	return cmd
}

func (a commands) showOutput(ctx context.Context, r *client.Run, call string) error {
	out, err := r.Output(ctx, call, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, ok := a.Terminal(); ok {
		text, err := io.ReadAll(io.LimitReader(out, 64<<20))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.Out, screen.Clean(string(text)))
		return err
	}
	_, err = io.Copy(a.Out, out)
	return err
}

func (a commands) showEvents(ctx context.Context, r *client.Run) error {
	for e, err := range r.History(ctx, 0) {
		if err != nil {
			return err
		}
		if err := app.PrintJSONLine(a.Out, e); err != nil {
			return err
		}
	}
	return nil
}

// showFull plays the run's events to a screen.
func (a commands) showFull(ctx context.Context, r *client.Run, run api.Run) error {
	story := screen.NewStory()
	for e, err := range r.History(ctx, 0) {
		if err != nil {
			return err
		}
		blocks := story.Apply(client.News{Event: &e})
		if err := printBlocks(a.App, append(blocks, screen.WindowAt(e)...)); err != nil {
			return err
		}
	}
	if story.Ended() != nil {
		return nil
	}
	return printBlocks(a.App, screen.Told(run, api.Transcript{}, nil)[1:])
}

func (a commands) showTranscript(ctx context.Context, r *client.Run, run api.Run, last, step int) error {
	before := 0
	if step > 0 {
		last, before = 1, step+1
	}
	o, err := r.Transcript(ctx, last, before)
	if err != nil {
		return err
	}
	var open []api.Approval
	if run.Waiting > 0 && step == 0 {
		if open, err = r.Approvals(ctx); err != nil {
			return err
		}
	}
	if step > 0 && (len(o.Steps) == 0 || o.Steps[0].Step != step) {
		return errs.New(errs.NotFound, "the run has no step %d: it has %d", step, o.Total)
	}
	if a.JSON {
		return app.PrintJSON(a.Out, struct {
			Run        api.Run        `json:"run"`
			Transcript api.Transcript `json:"transcript"`
			Approvals  []api.Approval `json:"approvals,omitempty"`
		}{run, o, open})
	}
	if a.Quiet {
		_, err := fmt.Fprintln(a.Out, run.ID)
		return err
	}
	if step > 0 {
		return a.showStep(ctx, r, o.Steps[0])
	}
	return printBlocks(a.App, screen.Told(run, o, open))
}

// stepOutputMax bounds what is shown of each output of a step.
const stepOutputMax = 16 << 10

func (a commands) showStep(ctx context.Context, r *client.Run, s api.TranscriptStep) error {
	calls := s.Calls
	s.Calls = nil
	if err := printBlocks(a.App, screen.StepBlocks(s)); err != nil {
		return err
	}
	for _, c := range calls {
		d, err := r.Call(ctx, c.ID)
		if err != nil {
			return err
		}
		text := ""
		if d.EndedSeq > 0 {
			if text, err = a.head(ctx, r, c.ID); err != nil {
				return err
			}
		}
		if err := printBlocks(a.App, screen.CallBlocks(d, text)); err != nil {
			return err
		}
	}
	return nil
}

// head is the beginning of an output.
func (a commands) head(ctx context.Context, r *client.Run, call string) (string, error) {
	out, err := r.Output(ctx, call, 0)
	if err != nil {
		return "", err
	}
	defer out.Close()
	text, err := io.ReadAll(io.LimitReader(out, stepOutputMax+1))
	if len(text) > stepOutputMax {
		return string(text[:stepOutputMax]) + fmt.Sprintf("\n… (skete show %s --output %s has the rest)", r.ID, call), err
	}
	return string(text), err
}
