package runs

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/schedule"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/transcript"
)

// Schedules is what is needed of *schedule.Scheduler. Everything happens within a
// tenant: what is another's is NotFound. A schedule is named by its ID or its name.
type Schedules interface {
	Add(ctx context.Context, tenant string, n schedule.New) (schedule.Schedule, error)
	Get(ctx context.Context, tenant, name string) (schedule.Schedule, error)
	// List returns those behind a name, in the order of their names.
	List(ctx context.Context, tenant, after string, most int) (list []schedule.Schedule, more bool, err error)
	Pause(ctx context.Context, tenant, name string, paused bool) (schedule.Schedule, error)
	Remove(ctx context.Context, tenant, name string) error
	// Run starts a run now. Conflict: one is under way.
	Run(ctx context.Context, tenant, name, key, by string) (runs.Run, error)
}

const schedulePageSize = 50

func (s *service) registerSchedules(t *route.Table) {
	const tag, base, one = "schedules", "/v1/schedules", "/v1/schedules/{id}"
	op := func(method, path string, scope key.Scope, id, summary string) route.Operation {
		return route.Operation{Method: method, Path: path, Scope: scope, ID: id, Tag: tag, Summary: summary}
	}
	create := op(http.MethodPost, base, key.RunsWrite, "create-schedule", "Start runs of an agent at times")
	create.Status = http.StatusCreated
	now := op(http.MethodPost, one+"/run", key.RunsWrite, "run-schedule", "Start a run of a schedule now; the times at which it is due stay as they are")
	now.Status = http.StatusCreated
	route.JSON(t, create, s.createSchedule)
	route.JSON(t, op(http.MethodGet, base, key.RunsRead, "list-schedules", "List schedules, by their names"), s.listSchedules)
	route.JSON(t, op(http.MethodGet, one, key.RunsRead, "get-schedule", "Get a schedule, with what became of it last"), s.getSchedule)
	route.JSON(t, op(http.MethodPatch, one, key.RunsWrite, "update-schedule", "Pause a schedule, or let it go on"), s.updateSchedule)
	route.JSON(t, op(http.MethodDelete, one, key.RunsWrite, "delete-schedule", "Forget a schedule; its runs stay"), s.deleteSchedule)
	route.JSON(t, now, s.runSchedule)
}

// SchedulePath names a schedule.
type SchedulePath struct {
	ID string `path:"id" maxLength:"64" doc:"of the schedule, sch_…, or its name"`
}

type scheduleOut struct{ Body api.Schedule }

// scheduler returns the Schedules, and the caller's tenant.
func (s *service) scheduler(ctx context.Context) (Schedules, string, error) {
	if s.schedules == nil {
		return nil, "", errs.New(errs.Unsupported, "this server runs no agents")
	}
	return s.schedules, auth.From(ctx).Tenant, nil
}

func shownSchedule(k schedule.Schedule, err error) (*scheduleOut, error) {
	if err != nil {
		return nil, err
	}
	return &scheduleOut{scheduleView(k)}, nil
}

type createScheduleIn struct {
	IdempotencyKey string `header:"Idempotency-Key" doc:"the same key gives the same schedule; 1 to 128 printable ASCII characters"`
	Body           api.CreateSchedule
}

func (s *service) createSchedule(ctx context.Context, in *createScheduleIn) (*scheduleOut, error) {
	k, tenant, err := s.scheduler(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkKey(in.IdempotencyKey); err != nil {
		return nil, err
	}
	if len(in.Body.Run.Images) > 0 {
		return nil, errs.New(errs.Invalid, "images: a schedule keeps none").WithHint("put them into the sandbox that its runs work in")
	}
	start, err := startOf(in.Body.Run)
	if err != nil {
		return nil, err
	}
	if start.Sandbox, err = s.sandbox(ctx, start.Sandbox); err != nil {
		return nil, err
	}
	start.By, start.Operator = by(ctx), operator(ctx)
	when := schedule.When{Cron: in.Body.Cron, Zone: in.Body.TimeZone}
	if when.Every, err = interval(in.Body.EveryMS); err != nil {
		return nil, err
	}
	return shownSchedule(k.Add(ctx, tenant, schedule.New{Name: in.Body.Name, When: when, Start: start, Key: in.IdempotencyKey}))
}

// interval refuses what a Duration does not hold; package schedule knows the bounds.
func interval(ms int64) (time.Duration, error) {
	d := time.Duration(ms) * time.Millisecond
	if d.Milliseconds() != ms {
		return 0, errs.New(errs.Invalid, "every: %d ms is too long", ms)
	}
	return d, nil
}

type listSchedulesIn struct {
	PageSize  int    `query:"page_size" minimum:"0" maximum:"1000" doc:"default 50"`
	PageToken string `query:"page_token" maxLength:"512"`
}

type listSchedulesOut struct{ Body api.SchedulePage }

func (s *service) listSchedules(ctx context.Context, in *listSchedulesIn) (*listSchedulesOut, error) {
	k, tenant, err := s.scheduler(ctx)
	if err != nil {
		return nil, err
	}
	after, err := base64.RawURLEncoding.DecodeString(in.PageToken)
	if err != nil {
		return nil, errs.New(errs.Invalid, "the page token is none of ours")
	}
	list, more, err := k.List(ctx, tenant, string(after), cmp.Or(in.PageSize, schedulePageSize))
	if err != nil {
		return nil, err
	}
	out := api.SchedulePage{Items: make([]api.Schedule, len(list))}
	for i, one := range list {
		out.Items[i] = scheduleView(one)
	}
	if more {
		out.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(list[len(list)-1].Name))
	}
	return &listSchedulesOut{out}, nil
}

func (s *service) getSchedule(ctx context.Context, in *SchedulePath) (*scheduleOut, error) {
	k, tenant, err := s.scheduler(ctx)
	if err != nil {
		return nil, err
	}
	return shownSchedule(k.Get(ctx, tenant, in.ID))
}

type updateScheduleIn struct {
	SchedulePath
	Body api.UpdateSchedule
}

func (s *service) updateSchedule(ctx context.Context, in *updateScheduleIn) (*scheduleOut, error) {
	k, tenant, err := s.scheduler(ctx)
	if err != nil {
		return nil, err
	}
	return shownSchedule(k.Pause(ctx, tenant, in.ID, in.Body.Paused))
}

func (s *service) deleteSchedule(ctx context.Context, in *SchedulePath) (*struct{}, error) {
	k, tenant, err := s.scheduler(ctx)
	if err != nil {
		return nil, err
	}
	return nil, k.Remove(ctx, tenant, in.ID)
}

type runScheduleIn struct {
	SchedulePath
	IdempotencyKey string `header:"Idempotency-Key" doc:"the same key gives the same run; 1 to 128 printable ASCII characters"`
}

func (s *service) runSchedule(ctx context.Context, in *runScheduleIn) (*runOut, error) {
	k, tenant, err := s.scheduler(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkKey(in.IdempotencyKey); err != nil {
		return nil, err
	}
	return shown(k.Run(ctx, tenant, in.ID, in.IdempotencyKey, by(ctx)))
}

// scheduleView shows a schedule to callers.
func scheduleView(k schedule.Schedule) api.Schedule {
	v := api.Schedule{
		ID: string(k.ID), Name: k.Name, Cron: k.Cron, TimeZone: k.Zone, EveryMS: k.Every.Milliseconds(), Run: startView(k.Start), By: k.By,
		CreatedAt: k.Created.UTC(), Paused: k.Paused, NextAt: optionalTime(k.Next), Missed: k.Missed, Skipped: k.Skipped,
	}
	if k.Cron != "" {
		v.TimeZone = cmp.Or(k.Zone, "UTC")
	}
	if f := k.Last; f != nil {
		v.Last = &api.ScheduleRun{DueAt: f.Due.UTC(), Run: string(f.Run), Thread: string(f.Thread), State: string(f.State), Error: f.Error}
	}
	return v
}

// startView shows what a run is asked for.
func startView(s runs.Start) api.StartRun {
	return api.StartRun{
		Task: llm.Message{Blocks: s.Input}.String(), Thread: string(s.Thread), Agent: s.Agent, Model: transcript.ModelName(s.Model), Title: s.Title,
		Labels: s.Labels, Budget: budgetView(s.Budget), Schema: s.Schema, Sandbox: s.Sandbox, Spec: s.Spec, Keep: s.Keep, InSandbox: s.InSandbox,
	}
}
