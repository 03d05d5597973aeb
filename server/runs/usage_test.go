package runs_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentruns "github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/runs/runstest"
	"github.com/skete-dev/skete/thread"
)

// ledger is a Fake whose list of runs is given, of one tenant, the newest first.
type ledger struct {
	*runstest.Fake
	runs  []agentruns.Run
	pages int
}

func (k *ledger) List(_ context.Context, tenant string, f agentruns.Filter) (agentruns.Page, error) {
	k.pages++
	var kept []agentruns.Run
	for _, r := range k.runs {
		if r.Tenant == tenant && (f.Subagents || r.Thread.Depth() == 0) {
			kept = append(kept, r)
		}
	}
	skip := 0
	_, _ = fmt.Sscan(f.PageToken, &skip)
	kept = kept[min(skip, len(kept)):]
	if len(kept) > f.Size() {
		return agentruns.Page{Runs: kept[:f.Size()], Next: fmt.Sprint(skip + f.Size())}, nil
	}
	return agentruns.Page{Runs: kept}, nil
}

func paid(id, agent, model string, at time.Time, cost float64) agentruns.Run {
	return agentruns.Run{
		ID: thread.RunID(id), Thread: thread.ID("thr_" + id), Tenant: "default", Agent: agent, Model: model, Title: "title of " + id, State: thread.RunSucceeded,
		Created: at, Steps: 2, Below: 1, Usage: llm.Usage{Input: 100, Output: 10, CacheRead: 5, CacheWrite: 1}, CostUSD: cost,
	}
}

func newLedger(t *testing.T, list ...agentruns.Run) (*world, *ledger) {
	t.Helper()
	fake := runstest.New(nil)
	t.Cleanup(fake.Close)
	k := &ledger{Fake: fake, runs: list}
	return &world{t: t, Server: runstest.Serve(t, k), fake: fake}, k
}

// rows are a report in short.
func rows(o api.UsageReport) (all []string) {
	for _, r := range append(o.Items, o.Total) {
		all = append(all, fmt.Sprintf("%s: %d runs, %d steps, %d tokens, $%g", r.Key, r.Runs, r.Steps, r.Tokens, r.CostUSD))
	}
	return all
}

func TestUsage(t *testing.T) {
	at := func(day, hour int) time.Time { return time.Date(2026, 3, day, hour, 0, 0, 0, time.UTC) }
	stranger := paid("run_stranger", "default", "m", at(2, 1), 100)
	stranger.Tenant = "other"
	sub := paid("run_sub", "scout", "small", at(2, 9), 0.25) // is in what run_b used
	sub.Thread = "thr_run_b/c1"
	east := paid("run_c", "writer", "script/home/ana/x.yaml", at(3, 1).In(time.FixedZone("", 5*3600)), 0.5)
	w, _ := newLedger(t, paid("run_late", "default", "m", at(9, 0), 7), east, sub, paid("run_b", "default", "big", at(2, 8), 4), paid("run_a", "default", "m", at(2, 0), 1), stranger, paid("run_early", "default", "m", at(1, 23), 7))
	const march = "from=2026-03-02T00:00:00Z&to=2026-03-09T00:00:00Z"
	for by, want := range map[string][]string{
		"":      {"2026-03-02: 2 runs, 6 steps, 232 tokens, $5", "2026-03-03: 1 runs, 3 steps, 116 tokens, $0.5"},
		"agent": {"default: 2 runs, 6 steps, 232 tokens, $5", "writer: 1 runs, 3 steps, 116 tokens, $0.5"},
		"model": {"big: 1 runs, 3 steps, 116 tokens, $4", "m: 1 runs, 3 steps, 116 tokens, $1", "script/x.yaml: 1 runs, 3 steps, 116 tokens, $0.5"},
		"run":   {"run_b: 1 runs, 3 steps, 116 tokens, $4", "run_a: 1 runs, 3 steps, 116 tokens, $1", "run_c: 1 runs, 3 steps, 116 tokens, $0.5"},
	} {
		path := "/v1/usage?" + march
		if by != "" {
			path += "&by=" + by
		}
		o := call[api.UsageReport](w, "GET", path, nil, 200)
		if diff := cmp.Diff(append(want, ": 3 runs, 9 steps, 348 tokens, $5.5"), rows(o)); diff != "" {
			t.Errorf("by %q: %s", by, diff)
		}
		if o.LeftOut != 0 || !o.From.Equal(at(2, 0)) || !o.To.Equal(at(9, 0)) || o.Total.Usage != (api.Usage{Input: 300, Output: 30, CacheRead: 15, CacheWrite: 3}) {
			t.Errorf("by %q: %+v", by, o)
		}
		if by == "run" && o.Items[0].Title != "title of run_b" {
			t.Errorf("%+v", o.Items[0])
		}
	}
	// Without times it is what began in the last 30 days: nothing of these.
	if o := call[api.UsageReport](w, "GET", "/v1/usage", nil, 200); o.Items == nil || o.Total.Runs != 0 || o.To.Sub(o.From) < 29*24*time.Hour {
		t.Errorf("%+v", o)
	}
	foreign := w.NewKey(t, "third", key.RunsRead)
	if a := w.send(foreign, "GET", "/v1/usage?"+march, nil); a.status != 200 || strings.Contains(string(a.body), "2026-03-02\",") {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, bad := range []string{"by=week", "from=yesterday", "from=2026-03-02T00:00:00Z&to=2026-03-02T00:00:00Z", "to=2026-03-02", "other=1", "from=3026-01-01T00:00:00Z"} {
		if a := w.send(w.Key, "GET", "/v1/usage?"+bad, nil); a.status != 400 {
			t.Errorf("%s: %d %s", bad, a.status, a.body)
		}
	}
}

// Nothing older than what is asked for is read, and never more than there is a bound for.
func TestUsage_isBounded(t *testing.T) {
	newest := time.Date(2026, 3, 9, 0, 0, 0, 0, time.UTC)
	var list []agentruns.Run
	for i := range 20_100 {
		list = append(list, paid(fmt.Sprint("run_", i), "default", "m", newest.Add(-time.Duration(i)*time.Minute), 1))
	}
	w, k := newLedger(t, list...)
	since := func(n int) string {
		return "/v1/usage?by=run&to=" + url.QueryEscape(newest.Add(time.Hour).Format(time.RFC3339)) + "&from=" + url.QueryEscape(newest.Add(-time.Duration(n-1)*time.Minute).Format(time.RFC3339))
	}
	o := call[api.UsageReport](w, "GET", since(1200), nil, 200)
	if o.Total.Runs != 1200 || len(o.Items) != 1000 || o.LeftOut != 200 || k.pages != 3 {
		t.Errorf("%d runs, %d rows, %d left out, %d pages", o.Total.Runs, len(o.Items), o.LeftOut, k.pages)
	}
	if o := call[api.UsageReport](w, "GET", since(20_000), nil, 200); o.Total.Runs != 20_000 {
		t.Errorf("%d runs", o.Total.Runs)
	}
	a := w.send(w.Key, "GET", since(20_050), nil)
	if a.status != 429 || !strings.Contains(string(a.body), "from a later time on") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
