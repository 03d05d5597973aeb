package runs

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/thread"
)

// Bounds of records and pages.
const (
	pageSize = 50
	pageMax  = 500
	TextMax  = 2 << 10 // of Run.Text in a record; the log has it whole
	jsonMax  = 8 << 10 // of Run.Result
)

// Wants reports whether a run is chosen.
func (f Filter) Wants(r Run) bool {
	switch {
	case len(f.States) > 0 && !slices.Contains(f.States, r.State),
		f.Thread != "" && r.Thread != f.Thread,
		f.Agent != "" && r.Agent != f.Agent,
		!f.Subagents && f.Thread == "" && r.Thread.Depth() > 0:
		return false
	}
	for key, value := range f.Labels {
		if r.Labels[key] != value {
			return false
		}
	}
	return true
}

// MayWant reports whether a run of a thread, last known in a state, may be
// chosen: Wants needs the whole run, as it is now. A run that is not over may be
// in any state by then.
func (f Filter) MayWant(id thread.ID, state thread.RunState) bool {
	switch {
	case f.Thread != "" && id != f.Thread,
		!f.Subagents && f.Thread == "" && id.Depth() > 0:
		return false
	}
	return len(f.States) == 0 || !state.Final() || slices.Contains(f.States, state)
}

// Size is how many runs a page has at most.
func (f Filter) Size() int {
	if f.PageSize <= 0 {
		return pageSize
	}
	return min(f.PageSize, pageMax)
}

// Last returns the last run of the page before, which the token names: its ID
// and when it was created. nil = this is the first page. Invalid: no such token.
func (f Filter) Last() (*Run, error) {
	if f.PageToken == "" {
		return nil, nil
	}
	return parseToken(f.PageToken)
}

// Page cuts a list that has the newest first and begins after Last.
func (f Filter) Page(runs []Run) Page {
	size := f.Size()
	if len(runs) <= size {
		return Page{Runs: runs}
	}
	last := runs[size-1]
	token := base64.RawURLEncoding.EncodeToString([]byte(last.Created.UTC().Format(time.RFC3339Nano) + " " + string(last.ID)))
	return Page{Runs: runs[:size], Next: token}
}

func parseToken(s string) (*Run, error) {
	bad := errs.New(errs.Invalid, "the page token is none of ours")
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, bad
	}
	at, id, ok := strings.Cut(string(b), " ")
	created, err := time.Parse(time.RFC3339Nano, at)
	if !ok || err != nil {
		return nil, bad
	}
	return &Run{Created: created, ID: thread.RunID(id)}, nil
}

// Project writes what the log says about a run into its record.
func Project(r *Run, s *State, now time.Time) {
	if s.Run == nil || s.Run.ID != r.ID {
		return
	}
	r.Steps, r.Below, r.Usage, r.CostUSD, r.Budget = s.Run.Steps, s.Run.Below, s.Run.Usage, s.Run.CostUSD, s.Run.Budget
	r.First, r.Last, r.Todos, r.Sandbox, r.OwnSandbox = s.Run.First, max(r.Last, s.Seq), s.Todos, s.Machine, s.OwnMachine
	r.Planning, r.Check, r.Checks = s.Run.Planning, s.Run.Started.Check, s.Run.Check.Count
	if s.Run.Model != "" {
		r.Model = s.Run.Model
	}
	r.Waiting = 0
	for _, c := range s.Open() {
		if c.Waits() {
			r.Waiting++
		}
	}
	r.State = s.RunState(now)
	if e := s.Run.Ended; e != nil {
		r.Ended, r.Reason, r.Text = s.Run.EndedAt, e.Reason, clip.Text(e.Text, TextMax)
		if len(e.Result) <= jsonMax {
			r.Result = e.Result
		}
		r.Waiting = 0
	}
}

// Explain is what people read of an error: its text and its hint.
func Explain(err error) string {
	text := errs.Public(err)
	if hint := errs.Hint(err); hint != "" {
		text += " (" + hint + ")"
	}
	return clip.Text(text, TextMax)
}
