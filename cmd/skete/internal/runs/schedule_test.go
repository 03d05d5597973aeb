package runs_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/schedule"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/kv/kvtest"
	served "github.com/skete-dev/skete/server/runs"
	"github.com/skete-dev/skete/server/runs/runstest"
	"github.com/skete-dev/skete/thread"
)

func newScheduledWorld(t *testing.T) *world {
	t.Helper()
	f := runstest.New(func(p *runstest.Play) {
		p.Answer("Done.")
		p.End(thread.RunSucceeded, "Done.")
	})
	t.Cleanup(f.Close)
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	scheduler, err := schedule.Open(t.Context(), schedule.Config{Records: kvtest.NewMemory(), Runs: f, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = scheduler.Close() })
	s := runstest.Serve(t, f, func(c *served.Config) { c.Schedules = scheduler })
	c, err := client.New(client.Config{URL: s.URL, Key: s.Key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &world{t, s, f, c}
}

func TestSchedule(t *testing.T) {
	w := newScheduledWorld(t)
	r := w.cli("", "schedule", "add", "morning", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--agent", "reviewer", "--label", "k=v", "--budget-steps", "5", "Sum up", "the issues.")
	if r.code != 0 || !regexp.MustCompile(`^sch_[a-z2-7]{20}\n$`).MatchString(r.out) || !strings.HasPrefix(r.errOut, "morning is next due at 2026-11-27 09:00 CET, ") {
		t.Fatalf("%+v", r)
	}
	id := strings.TrimSpace(r.out)
	r = w.cli("Look.\n", "schedule", "add", "watch", "--every", "90m", "-f", "-", "--json")
	var made api.Schedule
	if err := json.Unmarshal([]byte(r.out), &made); err != nil || made.EveryMS != 90*60_000 || made.Run.Task != "Look.\n" || made.TimeZone != "" {
		t.Errorf("%+v", r)
	}
	if r = w.cli("", "schedule", "run", "morning"); r.code != 0 || hide(r.out) != "run_ID\n" {
		t.Fatalf("%+v", r)
	}
	run := strings.TrimSpace(r.out)
	w.until(run, api.Run.Final)
	r = w.cli("", "schedule", "show", "morning")
	want := strings.NewReplacer("ID", id, "RUN", run).Replace(`name     morning
id       ID
when     0 9 * * 1-5 Europe/Berlin
last     2026-11-26 13:00 CET: RUN succeeded
agent    reviewer
task     Sum up the issues.
`)
	got := regexp.MustCompile(`(?m)^(next|made by) .*\n`).ReplaceAllString(r.out, "")
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if r = w.cli("", "schedule", "pause", id); r.code != 0 || r.out != id+"\n" {
		t.Errorf("%+v", r)
	}
	r = w.cli("", "schedule", "ls")
	if !regexp.MustCompile(`(?m)^`+id+` +morning +0 9 \* \* 1-5 Europe/Berlin +paused +succeeded \S+ ago +Sum up the issues\.$`).MatchString(r.out) ||
		!regexp.MustCompile(`(?m)^sch_\S+ +watch +every 1h30m `).MatchString(r.out) {
		t.Errorf("%s", r.out)
	}
	if r = w.cli("", "schedule", "ls", "-q"); r.out != id+"\n"+made.ID+"\n" {
		t.Errorf("%+v", r)
	}
	if r = w.cli("", "schedule", "resume", "morning"); r.code != 0 || !strings.Contains(r.errOut, "next due at 2026-11-27 09:00 CET") {
		t.Errorf("%+v", r)
	}
	if r = w.cli("", "schedule", "rm", "morning"); r.code != 0 || r.out != "" {
		t.Errorf("%+v", r)
	}
	if r = w.cli("", "schedule", "show", "morning"); r.code != 125 || !strings.Contains(r.errOut, `no schedule "morning"`) {
		t.Errorf("%+v", r)
	}
}

func TestSchedule_usage(t *testing.T) {
	w := newScheduledWorld(t)
	for args, want := range map[string]string{
		"add":                                    "usage: skete schedule add NAME TASK",
		"add a x":                                "one of --cron and --every",
		"add a x --every 1h --cron @daily":       "one of --cron and --every",
		"add a --every 1h":                       "there is no task",
		"add a x --every soon":                   "--every",
		"add a x --every 10s":                    "1m to 8784h",
		"add a x --every 1h --tz UTC":            "goes with cron",
		"add a_b x --every 1h":                   "no name of a schedule",
		"add a x --cron @fortnightly":            "@fortnightly",
		"add a x --cron @daily --tz Mars":        "Mars",
		"add a x --every 1h --thread thr_1":      "thread",
		"add a x --every 1h --budget-steps -1":   "negative",
		"add a x --every 1h --definition x.yaml": "--definition",
		"show":                                   "usage: skete schedule show NAME",
	} {
		if r := w.cli("", append([]string{"schedule"}, strings.Fields(args)...)...); r.code != 2 || !strings.Contains(r.errOut, want) {
			t.Errorf("%s: %+v", args, r)
		}
	}
}
