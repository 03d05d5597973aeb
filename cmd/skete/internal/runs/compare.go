package runs

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/skete-dev/skete/agent/replay"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/errs"
)

// compared prints where two runs differ; the status says that they do.
func (a commands) compared(report json.RawMessage, state string) error {
	var r replay.Report
	if err := json.Unmarshal(report, &r); err != nil {
		return errs.Wrap(errs.Corrupt, err, "the server's comparison cannot be read")
	}
	if a.JSON {
		if err := app.PrintJSON(a.Out, report); err != nil {
			return err
		}
	} else if err := writeReport(a.Out, r); err != nil {
		return err
	}
	if !r.Same {
		return app.Exit(exitFailed)
	}
	return ended(state)
}

func writeReport(out io.Writer, r replay.Report) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	differ := 0
	for _, s := range r.Steps {
		if s.Same {
			continue
		}
		differ++
		about := ""
		if s.Why != "" {
			about = ": " + screen.Clean(s.Why)
		}
		line("step %d%s", s.Step, about)
		for _, c := range s.Calls {
			if c.Same {
				continue
			}
			line("  %s %s", app.Cell(c.Tool), screen.Cut(screen.Clean(string(c.Args)), 100))
			for _, why := range c.Why {
				line("    %s", screen.Clean(why))
			}
			for _, d := range c.Diff {
				line("    %s", screen.Cut(screen.Clean(d), 200))
			}
		}
	}
	if how, now := endingOf(r.Old), endingOf(r.New); how != now {
		line("the end: %s; now %s", how, now)
	}
	switch {
	case r.Same:
		line("the runs agree in all of their %d steps", len(r.Steps))
	case differ > 0:
		line("%d of %d steps differ", differ, len(r.Steps))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func endingOf(e replay.Ending) string {
	if e.State == "" {
		return "it goes on"
	}
	text := string(e.State)
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	if len(e.Result) > 0 {
		text += " with " + screen.Cut(screen.Clean(string(e.Result)), 100)
	}
	return text
}
