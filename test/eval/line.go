package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/test/bench/report"
)

// lateMax is how much later than its limit a run may end.
const lateMax = 2 * time.Second

// wordsMax bounds what a line repeats of a checker or a model, in bytes.
const wordsMax = 300

// line is what came of one task.
type line struct {
	Time    string `json:"time"`
	Commit  string `json:"commit"`
	Machine string `json:"machine"`
	Task    string `json:"task"`
	Kind    string `json:"kind"`
	Model   string `json:"model"`
	Calling string `json:"calling,omitempty"` // missing: as the model can
	Peer    string `json:"peer,omitempty"`    // who did it in place of skete
	Prompt  string `json:"prompt,omitempty"`  // version of instructions and tools

	Success bool   `json:"success"`
	Words   string `json:"words,omitempty"` // of the checker

	State        string  `json:"state,omitempty"` // of the run
	Reason       string  `json:"reason,omitempty"`
	Said         string  `json:"said,omitempty"` // the run's last words, or what went wrong
	Steps        int     `json:"steps"`
	InputTokens  int     `json:"input_tokens"` // cached ones included
	OutputTokens int     `json:"output_tokens"`
	CostUSD      float64 `json:"cost_usd"`
	Seconds      float64 `json:"seconds"`
	LimitSeconds float64 `json:"limit_seconds"`
	InTime       bool    `json:"in_time"` // it ended at most lateMax after its limit

	Error string `json:"error,omitempty"` // why the task could not be judged
}

// about returns a line with all that the lines have in common.
func (c config) about() line {
	return line{
		Commit: report.Commit(), Machine: report.Machine(), Model: c.model, Calling: c.calling, Peer: c.peer,
		LimitSeconds: c.limit.Seconds(),
	}
}

// took notes how long the run was.
func (l *line) took(d, limit time.Duration) {
	l.Seconds = float64(d.Milliseconds()) / 1000
	l.InTime = d <= limit+lateMax
}

// fail notes why the task could not be judged; the first reason counts.
func (l *line) fail(what string, err error) {
	if err != nil && l.Error == "" {
		l.Error = clip.Line(what+": "+err.Error(), wordsMax)
	}
}

func (l *line) print(out io.Writer) {
	l.Time = time.Now().UTC().Format(time.RFC3339)
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // a broken program
	}
	fmt.Fprintln(out, string(text))
}

// words are what a line says of a checker's output: all of it, or its last line
// where it is long. There a traceback says what happened.
func words(out string) string {
	if out = strings.TrimSpace(out); len(out) > wordsMax {
		out = out[strings.LastIndexByte(out, '\n')+1:]
	}
	return clip.Line(out, wordsMax)
}

// table sums the lines up.
func table(out io.Writer, lines []line) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "kind\ttasks\tdone\tsteps\tin\tout\tUSD\tseconds\tlate\tnot judged\t")
	for _, kind := range kinds {
		of := slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return l.Kind != kind })
		if len(of) > 0 {
			row(w, kind, of)
		}
	}
	row(w, "all", lines)
	_ = w.Flush() // the table is for people who watch
	fmt.Fprintln(out, "steps, in, out and seconds are medians; USD is the sum")
}

func row(w io.Writer, name string, lines []line) {
	count := func(is func(line) bool) (n int) {
		for _, l := range lines {
			if is(l) {
				n++
			}
		}
		return n
	}
	cost := 0.0
	for _, l := range lines {
		cost += l.CostUSD
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%.0f\t%.0f\t%.0f\t%.2f\t%.1f\t%d\t%d\t\n", name, len(lines),
		count(func(l line) bool { return l.Success }),
		median(lines, func(l line) float64 { return float64(l.Steps) }),
		median(lines, func(l line) float64 { return float64(l.InputTokens) }),
		median(lines, func(l line) float64 { return float64(l.OutputTokens) }), cost,
		median(lines, func(l line) float64 { return l.Seconds }),
		count(func(l line) bool { return l.Error == "" && !l.InTime }),
		count(func(l line) bool { return l.Error != "" }))
}

// median is the lower one of two in the middle.
func median(lines []line, of func(line) float64) float64 {
	values := make([]float64, len(lines))
	for i, l := range lines {
		values[i] = of(l)
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}
