package client_test

import (
	"testing"

	"github.com/skete-dev/skete/agent/schedule"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/server/runs"
	"github.com/skete-dev/skete/server/runs/runstest"
)

func TestSchedules(t *testing.T) {
	f := runstest.New(nil)
	t.Cleanup(f.Close)
	ctx := t.Context()
	scheduler := must[*schedule.Scheduler](t)(schedule.Open(ctx, schedule.Config{Records: kvtest.NewMemory(), Runs: f}))
	t.Cleanup(func() { _ = scheduler.Close() })
	c := sdk(t, runstest.Serve(t, f, func(c *runs.Config) { c.Schedules = scheduler }))
	a := must[api.Schedule](t)
	made := a(c.CreateSchedule(ctx, api.CreateSchedule{Name: "morning", Cron: "@daily", Run: api.StartRun{Task: "Look."}}))
	s := c.Schedule("morning")
	paused, resumed := a(s.Pause(ctx)), a(s.Resume(ctx))
	if !paused.Paused || resumed.Paused || !resumed.NextAt.Equal(*made.NextAt) {
		t.Errorf("%+v, then %+v", paused, resumed)
	}
	run := must[api.Run](t)(s.Run(ctx))
	if _, err := s.Run(ctx); !errs.Is(err, errs.Conflict) {
		t.Errorf("while one is under way: %v", err)
	}
	if got := a(c.Schedule(made.ID).Get(ctx)); got.Last == nil || got.Last.Run != run.ID {
		t.Errorf("%+v", got)
	}
	if all := must[[]api.Schedule](t)(client.All(c.Schedules(ctx))); len(all) != 1 || all[0].ID != made.ID {
		t.Errorf("%+v", all)
	}
	if err := s.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx); !errs.Is(err, errs.NotFound) {
		t.Errorf("deleted: %v", err)
	}
}
