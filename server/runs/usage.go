package runs

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/transcript"
)

// Bounds of a report of usage.
const (
	usageRunsMax = 20_000
	usageRowsMax = 1000
	usagePage    = 500
	usageDays    = 30 // unless asked otherwise
)

func (s *service) registerUsage(t *route.Table) {
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/usage", Scope: key.RunsRead, ID: "get-usage", Tag: "runs",
		Summary: "Say what runs used of models: tokens and money, by day, agent, model or run",
	}, s.usage)
}

type usageIn struct {
	By   string    `query:"by" enum:"day,run,agent,model" default:"day" doc:"what a row is about"`
	From time.Time `query:"from" doc:"runs that began from this time on; default 30 days before now"`
	To   time.Time `query:"to" doc:"runs that began before this time; default now"`
}

type usageOut struct{ Body api.UsageReport }

// usage adds up the records of runs. A record has what the sub-agents of its run used as
// well, so theirs are left out.
func (s *service) usage(ctx context.Context, in *usageIn) (*usageOut, error) {
	k, tenant, err := s.supervisor(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	if in.To.IsZero() {
		in.To = now
	}
	if in.From.IsZero() {
		in.From = in.To.AddDate(0, 0, -usageDays)
	}
	if !in.From.Before(in.To) {
		return nil, errs.New(errs.Invalid, "from is not before to").WithHint("from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z is a month")
	}
	sums := sums{by: in.By, rows: map[string]*sum{}}
	f := runs.Filter{PageSize: usagePage}
	for seen := 0; ; {
		page, err := k.List(ctx, tenant, f)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Runs { // the newest first
			if r.Created.Before(in.From) {
				page.Next = ""
				break
			}
			if r.Created.Before(in.To) {
				sums.add(r)
			}
			if seen++; seen > usageRunsMax {
				return nil, errs.New(errs.Limit, "more than %d runs began since then", usageRunsMax).WithHint("ask from a later time on")
			}
		}
		if page.Next == "" {
			break
		}
		f.PageToken = page.Next
	}
	o := sums.report()
	o.From, o.To = in.From.UTC(), in.To.UTC()
	return &usageOut{o}, nil
}

// sum is a row that grows.
type sum struct {
	api.UsageRow
	used llm.Usage
}

func (s *sum) add(r runs.Run) {
	s.Runs++
	s.Steps += r.Steps + r.Below
	s.used = s.used.Add(r.Usage)
	s.CostUSD += r.CostUSD
}

func (s *sum) row() api.UsageRow {
	s.Usage = transcript.Usage(s.used)
	s.Tokens = s.Usage.Total()
	return s.UsageRow
}

// sums adds runs up.
type sums struct {
	by    string
	rows  map[string]*sum
	total sum
}

func (s *sums) add(r runs.Run) {
	name, title := s.of(r)
	row := s.rows[name]
	if row == nil {
		row = &sum{UsageRow: api.UsageRow{Key: name, Title: title}}
		s.rows[name] = row
	}
	row.add(r)
	s.total.add(r)
}

func (s *sums) of(r runs.Run) (name, title string) {
	switch s.by {
	case "run":
		return string(r.ID), r.Title
	case "agent":
		return r.Agent, ""
	case "model":
		return transcript.ModelName(r.Model), ""
	}
	return r.Created.UTC().Format(time.DateOnly), ""
}

// report has the days in their order, and of what else there is the most expensive first.
func (s *sums) report() api.UsageReport {
	o := api.UsageReport{By: s.by, Items: make([]api.UsageRow, 0, len(s.rows)), Total: s.total.row()}
	for _, row := range s.rows {
		o.Items = append(o.Items, row.row())
	}
	slices.SortFunc(o.Items, func(a, b api.UsageRow) int {
		if s.by == "day" {
			return strings.Compare(b.Key, a.Key) // what is cut off is the oldest
		}
		return cmp.Or(cmp.Compare(b.CostUSD, a.CostUSD), cmp.Compare(b.Tokens, a.Tokens), strings.Compare(a.Key, b.Key))
	})
	if len(o.Items) > usageRowsMax {
		o.LeftOut, o.Items = len(o.Items)-usageRowsMax, o.Items[:usageRowsMax]
	}
	if s.by == "day" {
		slices.Reverse(o.Items)
	}
	return o
}
