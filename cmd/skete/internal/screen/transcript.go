package screen

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server/transcript"
	"github.com/skete-dev/skete/thread"
)

// Head is the line that says which run it is.
func Head(run api.Run, more ...string) Block {
	agent, model := "", ""
	if run.Agent != "" {
		agent = "agent " + run.Agent
	}
	if run.Model != "" {
		model = "model " + run.Model
	}
	return Block{Text: Clean(run.ID), Tone: Bold, Note: Clean(join(" · ", append([]string{run.Title, agent, model}, more...)...)), One: true}
}

// Told is the story of a run as it is looked at afterwards.
func Told(run api.Run, o api.Transcript, asks []api.Approval) []Block {
	if run.Model == "" {
		run.Model = "-" // the server's choice, which the first answer tells
	}
	blocks := []Block{Head(run, run.Sandbox)}
	if run.Fork != nil {
		blocks = append(blocks, Block{Mark: "·", Style: Dim, Text: fmt.Sprintf("a fork of %s at event %d", Clean(run.Fork.Thread), run.Fork.Seq), Tone: Dim})
	}
	if run.Replay != "" {
		blocks = append(blocks, Block{Mark: "·", Style: Dim, Text: "a replay of " + Clean(run.Replay), Tone: Dim})
	}
	if o.Before > 0 {
		blocks = append(blocks, Block{Mark: "·", Style: Dim, Text: fmt.Sprintf("%s before these are left out (--last shows more)", count(o.Before-1, "step")), Tone: Dim})
	}
	for _, s := range o.Steps {
		blocks = append(blocks, StepBlocks(s)...)
	}
	if len(o.Todos) > 0 {
		blocks = append(blocks, Block{Text: "todos", Tone: Dim, Gap: true})
		for _, t := range o.Todos {
			blocks = append(blocks, apiTodo(t))
		}
	}
	for _, a := range asks {
		text := a.Tool
		if a.Thread != run.Thread {
			text = a.Agent + ": " + text
		}
		blocks = append(blocks, Block{Mark: "?", Style: Yellow, Text: Clean(text), Note: Clean(join(": ", "call "+a.Call+" waits", a.Reason)), One: true, Gap: true})
		blocks = append(blocks, argBlocks(AskLines(a.Ask, a.Args))...)
	}
	blocks = append(blocks, ending(run)...)
	return append(blocks, windowBlocks(lastWindow(o.Steps))...)
}

// lastWindow is what filled the window at the last step that counts.
func lastWindow(steps []api.TranscriptStep) *api.Window {
	for _, s := range slices.Backward(steps) {
		if s.Window != nil && !s.Rewound {
			return s.Window
		}
	}
	return nil
}

// WindowAt says what filled the model's window when it answered; nothing for
// other events.
func WindowAt(e api.RunEvent) []Block {
	b, is := EventOf(e).Body.(thread.ModelCompleted)
	if !is {
		return nil
	}
	return windowBlocks(transcript.Window(b.Ledger))
}

// windowBlocks says what fills the model's window; nothing if that is not known.
func windowBlocks(w *api.Window) []Block {
	if w == nil || w.Total <= 0 {
		return nil
	}
	text := "window: " + thousands(w.Total)
	if w.Size > 0 {
		text += " of " + thousands(w.Size)
	}
	var parts []string
	for _, p := range []struct {
		name string
		n    int
	}{
		{"instructions", w.Instructions},
		{"tools", w.Tools},
		{"memory", w.Memory},
		{"summary", w.Summary},
		{"inputs", w.Inputs},
		{"replies", w.Replies},
		{"results", w.Results},
	} {
		if p.n > 0 {
			parts = append(parts, p.name+" "+thousands(p.n))
		}
	}
	return []Block{{Text: join(": ", text+" tokens", strings.Join(parts, ", ")), Tone: Dim, Indent: 2}}
}

// filled is how much of a window is in use, for a footer.
func filled(total, size int) string {
	if total <= 0 || size <= 0 {
		return ""
	}
	return fmt.Sprintf("ctx %d%%", (total*100+size/2)/size)
}

func apiTodo(t api.Todo) Block {
	b := Block{Mark: "☐", Text: Clean(t.Content), One: true, Indent: 2}
	switch t.Status {
	case "completed":
		b.Mark, b.Style, b.Tone = "☑", Green, Dim
	case "in_progress":
		b.Mark, b.Style, b.Tone = "◐", Yellow, Bold
	}
	return b
}

// StepBlocks is one step, its calls folded.
func StepBlocks(s api.TranscriptStep) []Block {
	var blocks []Block
	for _, in := range s.Inputs {
		b := Block{Mark: "❯", Style: Cyan, Text: strings.TrimSpace(Clean(in.Text)), Tone: Bold, Gap: true}
		after := Block{Text: events(in.Seq), Tone: Dim, Indent: 2}
		if in.From != "user" {
			b.Mark, b.Text, b.Tone = "·", Clean(in.From)+": "+b.Text, Dim
		}
		blocks = append(blocks, b, after)
	}
	for _, f := range s.Failures {
		blocks = append(blocks, Block{Mark: "!", Style: Yellow, Text: Clean(join(": ", fmt.Sprintf("attempt %d of the model call failed (%s)", f.Attempt, events(f.Seq)), f.Text))})
	}
	for _, n := range s.Notes {
		blocks = append(blocks, Block{Mark: "·", Style: Dim, Text: Clean(n), Tone: Dim})
	}
	if s.Seq == 0 {
		return blocks
	}
	total := s.Usage.Total()
	took := ""
	if s.TookMS > 0 {
		took = span(time.Duration(s.TookMS) * time.Millisecond)
	}
	gone := ""
	if s.Rewound {
		gone = "taken back"
	}
	head := Block{Text: fmt.Sprintf("step %d", s.Step), Tone: Dim, Note: join(" · ", gone, events(s.Seq), tokens(total), Cost(s.CostUSD), took), One: true, Gap: true}
	blocks = append(blocks, head)
	if text := strings.TrimSpace(Clean(s.Text)); text != "" {
		blocks = append(blocks, Block{Text: text})
	}
	for _, c := range s.Calls {
		blocks = append(blocks, transcriptCall(c)...)
	}
	return blocks
}

// events names moments of the thread, as --at and --to take them; 0 is none.
func events(seqs ...uint64) string {
	var known []string
	for _, seq := range seqs {
		if seq > 0 {
			known = append(known, strconv.FormatUint(seq, 10))
		}
	}
	switch len(known) {
	case 0:
		return ""
	case 1:
		return "event " + known[0]
	}
	return "events " + strings.Join(known, ", ")
}

func transcriptCall(c api.TranscriptCall) []Block {
	b := Block{Mark: "✓", Style: Green, Text: Clean(join("  ", c.Tool, c.Args)), One: true, Indent: 2}
	switch c.Status {
	case "failed", "rejected":
		b.Mark, b.Style = "✗", Red
	case "answered":
		b.Mark, b.Style = "→", Yellow
	case "waiting":
		b.Mark, b.Style = "?", Yellow
	case "running", "pending":
		b.Mark, b.Style = "…", Cyan
	}
	var notes []string
	if c.Status != "done" {
		notes = append(notes, c.Status)
	}
	if c.Exit != nil && *c.Exit != 0 {
		notes = append(notes, fmt.Sprintf("exit %d", *c.Exit))
	} else if c.Status == "failed" {
		notes = append(notes, Clean(c.Code))
	}
	if at := events(c.StartedSeq, c.EndedSeq); at != "" {
		notes = append(notes, at)
	}
	if c.TookMS >= 100 {
		notes = append(notes, span(time.Duration(c.TookMS)*time.Millisecond))
	}
	if c.Bytes > 0 {
		notes = append(notes, Bytes(c.Bytes))
	}
	if a := c.Approval; a != nil && a.Decision != "" {
		notes = append(notes, Clean(join(" ", a.Decision, "by", cmp.Or(a.ByName, a.By))))
	}
	if a := c.Approval; a != nil && a.AskedSeq > 0 {
		notes = append(notes, "asked "+events(a.AskedSeq, a.DecidedSeq))
	}
	b.Note = join(" · ", append(notes, Clean(c.ID))...)
	return []Block{b}
}

// ending tells how a run ended, or where it stands.
func ending(run api.Run) []Block {
	mark, style := "●", Cyan
	switch run.State {
	case "succeeded":
		mark, style = "✔", Green
	case "failed":
		mark, style = "✘", Red
	case "cancelled", "timed_out":
		mark, style = "■", Yellow
	case "interrupted":
		mark, style = "?", Yellow
	}
	words := strings.ReplaceAll(run.State, "_", " ")
	if run.Reason != "" && run.Reason != run.State && run.State != "succeeded" {
		words += " (" + run.Reason + ")"
	}
	if run.Waiting > 0 {
		words += ": " + count(run.Waiting, "approval") + " open"
	} else if run.State != "succeeded" && run.Text != "" {
		words += ": " + run.Text
	}
	var blocks []Block
	if len(run.Result) > 0 {
		var out bytes.Buffer
		if json.Indent(&out, run.Result, "", "  ") == nil {
			blocks = append(blocks, Block{Text: Clean(out.String()), Gap: true})
		}
	}
	took := ""
	if run.EndedAt != nil {
		took = span(run.EndedAt.Sub(run.CreatedAt))
	}
	return append(blocks,
		Block{Mark: mark, Style: style, Text: Clean(words), Tone: Bold, Gap: true},
		Block{Text: join(" · ", count(run.Steps, "step"), tokens(run.Usage.Total()), Cost(run.CostUSD), took, moments(run)), Tone: Dim, One: true, Indent: 2})
}

// moments are all events that a fork or a rewind can go to.
func moments(run api.Run) string {
	if run.LastSeq <= run.FirstSeq {
		return ""
	}
	return fmt.Sprintf("events %d to %d", run.FirstSeq, run.LastSeq)
}

// CallBlocks is one call unfolded: its arguments and its output.
func CallBlocks(d api.CallDetail, output string) []Block {
	blocks := transcriptCall(d.TranscriptCall)
	blocks[0].Gap = true
	args := d.Arguments
	if len(d.Ran) > 0 {
		args = d.Ran
	}
	for _, line := range ArgLines(args) {
		blocks = append(blocks, Block{Mark: "│", Style: Dim, Text: line, Indent: 4})
	}
	if text := strings.TrimRight(Clean(output), "\n"); text != "" {
		blocks = append(blocks, Block{Mark: "→", Style: Dim, Text: text, Indent: 4})
	}
	return blocks
}
