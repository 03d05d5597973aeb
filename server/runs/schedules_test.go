package runs_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/schedule"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/runs"
	"github.com/skete-dev/skete/server/runs/runstest"
)

// newScheduledWorld is a world with schedules of a real Scheduler, at most three.
func newScheduledWorld(t *testing.T) *world {
	t.Helper()
	f := runstest.New(succeed)
	t.Cleanup(f.Close)
	s, err := schedule.Open(t.Context(), schedule.Config{Records: kvtest.NewMemory(), Runs: f, Max: 3})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return &world{t, runstest.Serve(t, f, func(c *runs.Config) { c.Schedules = s }), f}
}

const nightly = `{"name":"nightly","cron":"0 3 * * *","time_zone":"Europe/Berlin","run":{"task":"Tidy up.","agent":"reviewer","model":"script//srv/secret/a.yaml","budget":{"steps":5,"wall_ms":60000},"labels":{"k":"v"}}}`

func TestSchedules(t *testing.T) {
	w := newScheduledWorld(t)
	made := call[api.Schedule](w, "POST", "/v1/schedules", nightly, 201, "Idempotency-Key", "once")
	want := api.StartRun{
		Task: "Tidy up.", Agent: "reviewer", Model: "script/a.yaml", Budget: api.Budget{Steps: 5, WallMS: 60_000}, Labels: map[string]string{"k": "v"},
	}
	if d := cmp.Diff(want, made.Run); d != "" || made.NextAt == nil || made.TimeZone != "Europe/Berlin" || made.Cron != "0 3 * * *" || !strings.HasPrefix(made.By, "key_") {
		t.Errorf("%+v %s", made, d)
	}
	if again := call[api.Schedule](w, "POST", "/v1/schedules", nightly, 201, "Idempotency-Key", "once"); again.ID != made.ID {
		t.Errorf("the same key gave %s and %s", made.ID, again.ID)
	}
	run := call[api.Run](w, "POST", "/v1/schedules/nightly/run", nil, 201, "Idempotency-Key", "now")
	if again := call[api.Run](w, "POST", "/v1/schedules/"+made.ID+"/run", nil, 201, "Idempotency-Key", "now"); again.ID != run.ID {
		t.Errorf("the same key gave %s and %s", run.ID, again.ID)
	}
	w.until(run.ID, api.Run.Final)
	if run.Agent != "reviewer" || run.Labels["schedule"] != "nightly" || run.Labels["k"] != "v" {
		t.Errorf("%+v", run)
	}
	got := call[api.Schedule](w, "GET", "/v1/schedules/nightly", nil, 200)
	if got.Last == nil || got.Last.Run != run.ID || got.Last.State != "succeeded" || !got.NextAt.Equal(*made.NextAt) {
		t.Errorf("%+v %+v", got, got.Last)
	}
	if paused := call[api.Schedule](w, "PATCH", "/v1/schedules/nightly", api.UpdateSchedule{Paused: true}, 200); !paused.Paused || paused.NextAt != nil {
		t.Errorf("%+v", paused)
	}
	if resumed := call[api.Schedule](w, "PATCH", "/v1/schedules/"+made.ID, api.UpdateSchedule{}, 200); resumed.Paused || resumed.NextAt == nil {
		t.Errorf("%+v", resumed)
	}
	call[struct{}](w, "DELETE", "/v1/schedules/nightly", nil, 204)
	call[api.Problem](w, "GET", "/v1/schedules/"+made.ID, nil, 404)
	call[api.Run](w, "GET", "/v1/runs/"+run.ID, nil, 200)
}

func TestSchedules_refuses(t *testing.T) {
	w := newScheduledWorld(t)
	for body, want := range map[string]int{
		`{}`:                         400,
		`{"name":"a","run":{}}`:      400,
		`{"name":"a","every_ms":60}`: 400,
		`{"name":"a","every_ms":60,"run":{"task":"x"}}`:                                                          400,
		`{"name":"a","every_ms":9223372036854775807,"run":{"task":"x"}}`:                                         400,
		`{"name":"a_b","every_ms":60000,"run":{"task":"x"}}`:                                                     400,
		`{"name":"a","every_ms":60000,"cron":"@daily","run":{"task":"x"}}`:                                       400,
		`{"name":"a","cron":"0 0 30 2 *","run":{"task":"x"}}`:                                                    400,
		`{"name":"a","cron":"@daily","time_zone":"Nowhere","run":{"task":"x"}}`:                                  400,
		`{"name":"a","cron":"@daily","run":{"task":"x","agent":"nobody"}}`:                                       404,
		`{"name":"a","cron":"@daily","run":{"task":"x","definition":{"name":"b"}}}`:                              400,
		`{"name":"a","cron":"@daily","run":{"task":"x","sandbox":"../x"}}`:                                       400,
		`{"name":"a","cron":"@daily","run":{"task":"x","budget":{"steps":-1}}}`:                                  400,
		`{"name":"a","cron":"@daily","unknown":1,"run":{"task":"x"}}`:                                            400,
		`{"name":"a","cron":"@daily","run":{"task":"` + strings.Repeat("x", 60_000) + `"}}`:                      429,
		`{"name":"a","cron":"@daily","run":{"task":"x","thread":"thr_aaaaaaaaaaaaaaaaaaaa","agent":"reviewer"}}`: 400,
	} {
		if a := w.send(w.Key, "POST", "/v1/schedules", body); a.status != want {
			t.Errorf("%.100s: %d %s", body, a.status, a.body)
		}
	}
	for _, name := range []string{"c", "a", "b"} {
		call[api.Schedule](w, "POST", "/v1/schedules", `{"name":"`+name+`","every_ms":60000,"run":{"task":"x"}}`, 201)
	}
	call[api.Problem](w, "POST", "/v1/schedules", `{"name":"a","every_ms":60000,"run":{"task":"x"}}`, 409)
	call[api.Problem](w, "POST", "/v1/schedules", `{"name":"d","every_ms":60000,"run":{"task":"x"}}`, 429)
	var names string
	for token := ""; ; {
		page := call[api.SchedulePage](w, "GET", "/v1/schedules?page_size=2&page_token="+token, nil, 200)
		for _, s := range page.Items {
			names += s.Name
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if names != "abc" {
		t.Errorf("the pages have %q", names)
	}
}

// A schedule of another tenant looks like one that does not exist.
func TestSchedules_ofAnotherTenant(t *testing.T) {
	w := newScheduledWorld(t)
	made := call[api.Schedule](w, "POST", "/v1/schedules", nightly, 201)
	foreign := w.NewKey(t, "other", key.Admin)
	for _, id := range []string{"nightly", made.ID} {
		path := "/v1/schedules/" + id
		for what, a := range map[string]answer{
			"get":    w.send(foreign, "GET", path, nil),
			"pause":  w.send(foreign, "PATCH", path, api.UpdateSchedule{Paused: true}),
			"run":    w.send(foreign, "POST", path+"/run", nil),
			"delete": w.send(foreign, "DELETE", path, nil),
		} {
			if a.status != http.StatusNotFound {
				t.Errorf("%s %s: %d %s", what, id, a.status, a.body)
			}
		}
	}
	if a := w.send(foreign, "GET", "/v1/schedules", nil); strings.Contains(string(a.body), "nightly") {
		t.Errorf("%s", a.body)
	}
	reader := w.NewKey(t, key.DefaultTenant, key.RunsRead)
	if a := w.send(reader, "GET", "/v1/schedules/nightly", nil); a.status != 200 {
		t.Errorf("who may read runs gets %d", a.status)
	}
	if a := w.send(reader, "POST", "/v1/schedules/nightly/run", nil); a.status != http.StatusForbidden {
		t.Errorf("who may only read runs gets %d", a.status)
	}
}
