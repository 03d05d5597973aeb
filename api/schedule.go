package api

import "time"

// CreateSchedule asks for runs at times: one of Cron and EveryMS says when.
type CreateSchedule struct {
	Name     string `json:"name" minLength:"1" maxLength:"64" doc:"a to z, 0 to 9 and single hyphens; of no other schedule of the tenant"`
	Cron     string `json:"cron,omitempty" maxLength:"200" doc:"minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @yearly"`
	TimeZone string `json:"time_zone,omitempty" maxLength:"64" doc:"of cron, by its IANA name, as Europe/Berlin; default UTC"`
	EveryMS  int64  `json:"every_ms,omitempty" minimum:"0" doc:"an interval of a minute to 366 days, from now on"`
	// Run is what each run is asked for. With a thread each goes on with that one,
	// else each has a new thread. It has no definition.
	Run StartRun `json:"run"`
}

// Schedule starts runs at times.
type Schedule struct {
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	Cron      string       `json:"cron,omitempty"`
	TimeZone  string       `json:"time_zone,omitempty"`
	EveryMS   int64        `json:"every_ms,omitempty"`
	Run       StartRun     `json:"run" doc:"what each run is asked for"`
	By        string       `json:"by,omitempty" doc:"who made it"`
	CreatedAt time.Time    `json:"created_at"`
	Paused    bool         `json:"paused,omitempty"`
	NextAt    *time.Time   `json:"next_at,omitempty" doc:"when it is next due; not there while it is paused"`
	Last      *ScheduleRun `json:"last,omitempty" doc:"what became of the last time that was not left out"`
	Missed    int          `json:"missed,omitempty" doc:"times at which no server ran; the latest of them is made up for, and does not count"`
	Skipped   int          `json:"skipped,omitempty" doc:"times at which a run of it was under way"`
}

// ScheduleRun is what became of a time at which a schedule was due.
type ScheduleRun struct {
	DueAt  time.Time `json:"due_at"`
	Run    string    `json:"run,omitempty"`
	Thread string    `json:"thread,omitempty"`
	State  string    `json:"state,omitempty" doc:"of the run, as it is now; not there when the run is gone"`
	Error  string    `json:"error,omitempty" doc:"why no run could be started"`
}

// UpdateSchedule pauses a schedule, or lets it go on.
type UpdateSchedule struct {
	Paused bool `json:"paused"`
}

// SchedulePage is a page of schedules, by their names.
type SchedulePage struct {
	Items         []Schedule `json:"items"`
	NextPageToken string     `json:"next_page_token,omitempty"`
}
