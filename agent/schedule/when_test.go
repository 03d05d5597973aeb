package schedule

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

// after returns the first n times after a moment, in UTC.
func after(t testing.TB, w When, moment string, n int) []string {
	t.Helper()
	anchor := at(t, moment)
	when, err := w.times(anchor)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for next := when.next(anchor); len(got) < n; next = when.next(next) {
		got = append(got, next.Format("2006-01-02T15:04Z07"))
	}
	return got
}

func TestTimes(t *testing.T) {
	for _, c := range []struct {
		name  string
		when  When
		after string
		want  []string
	}{
		{"workdays", When{Cron: "0 9 * * 1-5"}, "2026-11-26T09:00:00Z", []string{"2026-11-27T09:00Z", "2026-11-30T09:00Z"}},
		{"names", When{Cron: "30 8 1 jan,JUL *"}, "2026-01-01T08:30:00Z", []string{"2026-07-01T08:30Z", "2027-01-01T08:30Z"}},
		{"a day of the month or of the week", When{Cron: "0 0 13 * fri"}, "2026-11-01T00:00:00Z", []string{"2026-11-06T00:00Z", "2026-11-13T00:00Z"}},
		{"a leap day", When{Cron: "0 0 29 2 *"}, "2026-11-01T00:00:00Z", []string{"2028-02-29T00:00Z", "2032-02-29T00:00Z"}},
		{"a word", When{Cron: "@weekly"}, "2026-11-26T09:00:00Z", []string{"2026-11-29T00:00Z"}},
		{"a zone", When{Cron: "0 9 * * *", Zone: "America/New_York"}, "2026-11-26T14:00:00Z", []string{"2026-11-27T14:00Z"}},
		{"an interval counts from its anchor", When{Every: 90 * time.Minute}, "2026-11-26T09:10:00Z", []string{"2026-11-26T10:40Z", "2026-11-26T12:10Z"}},

		{"left out: the moment after", When{Cron: "30 2 * * *", Zone: "Europe/Berlin"}, "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00Z", "2026-03-30T00:30Z"}},
		{"left out: once for several", When{Cron: "0,15,45 2,3 * * *", Zone: "Europe/Berlin"}, "2026-03-29T00:59:00Z", []string{"2026-03-29T01:00Z", "2026-03-29T01:15Z", "2026-03-29T01:45Z", "2026-03-30T00:00Z"}},
		{"twice: the first time", When{Cron: "30 2 * * *", Zone: "Europe/Berlin"}, "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30Z", "2026-10-26T01:30Z"}},
		{"twice: what follows is not moved", When{Cron: "45 1-3 * * *", Zone: "Europe/Berlin"}, "2026-10-24T23:00:00Z", []string{"2026-10-24T23:45Z", "2026-10-25T00:45Z", "2026-10-25T02:45Z"}},
		{"every hour: through what is left out", When{Cron: "30 * * * *", Zone: "Europe/Berlin"}, "2026-03-28T23:40:00Z", []string{"2026-03-29T00:30Z", "2026-03-29T01:30Z"}},
		{"every hour: through what comes twice", When{Cron: "@hourly", Zone: "Europe/Berlin"}, "2026-10-24T23:40:00Z", []string{"2026-10-25T00:00Z", "2026-10-25T01:00Z", "2026-10-25T02:00Z"}},
		{"a midnight that is left out", When{Cron: "@daily", Zone: "America/Sao_Paulo"}, "2018-11-03T12:00:00Z", []string{"2018-11-04T03:00Z", "2018-11-05T02:00Z"}},
		{"half an hour is left out", When{Cron: "15 2 * * *", Zone: "Australia/Lord_Howe"}, "2026-10-03T00:00:00Z", []string{"2026-10-03T15:30Z", "2026-10-04T15:15Z"}},
		{"over the last day of a leap year far ahead", When{Cron: "0 0 29 2 *", Zone: "Europe/Berlin"}, "2040-11-01T00:00:00Z", []string{"2044-02-28T23:00Z", "2048-02-28T23:00Z"}},
		{"a whole day is left out", When{Cron: "0 9 * * *", Zone: "Pacific/Apia"}, "2011-12-29T20:00:00Z", []string{"2011-12-30T10:00Z", "2011-12-30T19:00Z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, after(t, c.when, c.after, len(c.want))); d != "" {
				t.Error(d)
			}
		})
	}
}

// What is due is what the clock on the wall shows, minute by minute.
func TestTimes_asTheClockOnTheWallShows(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kolkata"} {
		where, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, day := range []string{"2018-11-03", "2018-02-17", "2026-03-28", "2026-10-24", "2026-10-03", "2026-04-04"} {
			for range 8 {
				w := When{Cron: randomCron(rng), Zone: zone}
				begin := at(t, day+"T00:00:00Z")
				got, want := due(t, w, begin), shown(t, w, where, begin)
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%q in %s from %s on: %s", w.Cron, zone, day, d)
				}
			}
		}
	}
}

func randomCron(rng *rand.Rand) string {
	minutes := []string{"0", "30", "*/20", "5,59", "*"}
	hours := []string{"0", "1", "2", "3", "1-3", "*/2", "23"}
	return minutes[rng.IntN(len(minutes))] + " " + hours[rng.IntN(len(hours))] + " * * *"
}

const span = 48 * time.Hour

func due(t *testing.T, w When, begin time.Time) (all []time.Time) {
	when, err := w.times(begin)
	if err != nil {
		t.Fatal(err)
	}
	for next := when.next(begin); !next.After(begin.Add(span)); next = when.next(next) {
		all = append(all, next)
	}
	return all
}

// shown goes through all minutes of a time: which local time each is, whether it was
// shown before, and which ones were left out before it.
func shown(t *testing.T, w When, where *time.Location, begin time.Time) (all []time.Time) {
	spec, err := parseCron(w.Cron)
	if err != nil {
		t.Fatal(err)
	}
	fits := func(wall time.Time) bool { // wall is a local time as if it were UTC
		return spec.Next(wall.Add(-1)).Equal(wall)
	}
	wallOf := func(moment time.Time) time.Time {
		_, offset := moment.In(where).Zone()
		return moment.UTC().Add(time.Duration(offset) * time.Second)
	}
	var before []time.Time // that were shown, the last three hours of them
	for m := begin.Add(-3 * time.Hour); !m.After(begin.Add(span)); m = m.Add(time.Minute) {
		wall := wallOf(m)
		is := fits(wall) && !slices.ContainsFunc(before, wall.Equal)
		if len(before) > 0 {
			for left := before[len(before)-1].Add(time.Minute); left.Before(wall); left = left.Add(time.Minute) {
				is = is || fits(left)
			}
		}
		if before = append(before, wall); len(before) > 180 {
			before = before[1:]
		}
		if is && m.After(begin) {
			all = append(all, m)
		}
	}
	return all
}

func TestTimes_refuses(t *testing.T) {
	for _, c := range []struct {
		when When
		says string
	}{
		{When{}, "needs cron or every"},
		{When{Cron: "@daily", Every: time.Hour}, "not both"},
		{When{Every: 59 * time.Second}, "1m to 8784h"},
		{When{Every: -time.Hour}, "1m to 8784h"},
		{When{Every: 9000 * time.Hour}, "1m to 8784h"},
		{When{Every: time.Hour, Zone: "UTC"}, "goes with cron"},
		{When{Cron: "@daily", Zone: "Europe/Atlantis"}, "Europe/Atlantis"},
		{When{Cron: "@daily", Zone: "Local"}, "Local"},
		{When{Cron: "@daily", Zone: "../../etc/passwd"}, "time zone"},
		{When{Cron: "@daily", Zone: strings.Repeat("x", 5000)}, "time zone"},
		{When{Cron: "0 9 * *"}, "has 4"},
		{When{Cron: "0 0 9 * * *"}, "has 6"},
		{When{Cron: " "}, "has 0"},
		{When{Cron: "TZ=UTC 0 9 * * *"}, "time zone does not stand"},
		{When{Cron: "TZ="}, "time zone does not stand"},
		{When{Cron: "CRON_TZ=Europe/Berlin @daily"}, "time zone does not stand"},
		{When{Cron: "@every 1h"}, "@every"},
		{When{Cron: "@reboot"}, "@reboot"},
		{When{Cron: "@daily "}, "@daily"},
		{When{Cron: "60 * * * *"}, "the minute is"},
		{When{Cron: "-1 * * * *"}, "the minute is"},
		{When{Cron: "1,,2 * * * *"}, "the minute is"},
		{When{Cron: ", * * * *"}, "the minute is"},
		{When{Cron: "5-1 * * * *"}, "the minute is"},
		{When{Cron: "*/0 * * * *"}, "the minute is"},
		{When{Cron: "*/90 * * * *"}, "step is larger"},
		{When{Cron: "*-5 * * * *"}, "the minute is"},
		{When{Cron: "1/2/3 * * * *"}, "the minute is"},
		{When{Cron: "0 24 * * *"}, "the hour is"},
		{When{Cron: "0 nine * * *"}, "the hour is"},
		{When{Cron: "0 9 0 * *"}, "the day of the month is"},
		{When{Cron: "0 9 32 * *"}, "the day of the month is"},
		{When{Cron: "0 9 L * *"}, "the day of the month is"},
		{When{Cron: "0 9 * 13 *"}, "the month is"},
		{When{Cron: "0 9 * mon *"}, "the month is"},
		{When{Cron: "0 9 * * 7"}, "the day of the week is"},
		{When{Cron: "0 9 * * monday"}, "the day of the week is"},
		{When{Cron: "0 9 * * 99999999999999999999"}, "the day of the week is"},
		{When{Cron: "0 9 30 2 *"}, "never due"},
		{When{Cron: "0 9 31 4,6,9,11 *"}, "never due"},
		{When{Cron: strings.Repeat("1,", 300) + "1 * * * *"}, "at most 200 bytes"},
	} {
		_, err := c.when.times(at(t, "2026-11-26T00:00:00Z"))
		if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), c.says) {
			t.Errorf("%+v: %v, which does not say %q", c.when, err, c.says)
		}
	}
}

func TestLatest(t *testing.T) {
	for _, c := range []struct {
		name     string
		when     When
		due, now string
		want     string
		missed   int
	}{
		{"none between", When{Cron: "0 9 * * *"}, "2026-11-01T09:00:00Z", "2026-11-02T08:59:59Z", "2026-11-01T09:00:00Z", 0},
		{"on the dot", When{Cron: "0 9 * * *"}, "2026-11-01T09:00:00Z", "2026-11-02T09:00:00Z", "2026-11-02T09:00:00Z", 1},
		{"a month", When{Cron: "0 9 * * 1-5"}, "2026-10-26T09:00:00Z", "2026-11-26T12:00:00Z", "2026-11-26T09:00:00Z", 23},
		{"a year of minutes", When{Cron: "* * * * *"}, "2026-01-01T00:00:00Z", "2027-01-01T00:00:30Z", "2027-01-01T00:00:00Z", missedMax},
		{"a year of intervals", When{Every: time.Minute}, "2026-01-01T00:01:00Z", "2027-01-01T00:00:30Z", "2027-01-01T00:00:00Z", missedMax},
	} {
		when, err := c.when.times(at(t, "2026-01-01T00:00:00Z"))
		if err != nil {
			t.Fatal(err)
		}
		got, missed := latest(when, at(t, c.due), at(t, c.now))
		if !got.Equal(at(t, c.want)) || missed != c.missed {
			t.Errorf("%s: %s and %d missed, want %s and %d", c.name, got, missed, c.want, c.missed)
		}
	}
}

func FuzzCron(f *testing.F) {
	for _, text := range []string{"0 9 * * 1-5", "*/15 * * * *", "@daily", "0 0 29 2 *", "TZ= x", "1-59/3,7 ? 1,31 jan-dec sun", "* * 30 2 *"} {
		f.Add(text, "Europe/Berlin")
	}
	f.Fuzz(func(t *testing.T, text, zone string) {
		begin := time.Date(2026, 3, 28, 23, 59, 59, 0, time.UTC)
		when, err := When{Cron: text, Zone: zone}.times(begin)
		if err != nil {
			if !errs.Is(err, errs.Invalid) || len(errs.Public(err)) > 600 {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		now := begin
		for range 10 {
			next := when.next(now)
			if next.IsZero() {
				break
			}
			if !next.After(now) || next.Second() != 0 && zone == "" || next.Nanosecond() != 0 {
				t.Fatalf("%q in %q: after %s comes %s", text, zone, now, next)
			}
			now = next
		}
	})
}
