package schedule

import (
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a host without a zone database knows the zones too

	"github.com/robfig/cron/v3"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
)

// Bounds of a When.
const (
	cronBytesMax = 200
	zoneBytesMax = 64
	day          = 24 * time.Hour
	everyMin     = time.Minute
	everyMax     = 366 * day
	// missedMax is how many missed times are counted: every minute of two months.
	missedMax = 100_000
)

// When says at which times a schedule is due: by a cron expression, or at equal
// intervals.
type When struct {
	// Cron has five fields, or is one of @hourly, @daily, @weekly, @monthly, @yearly.
	Cron string `json:"cron,omitempty"`
	// Zone is the time zone of Cron by its IANA name; "" = UTC.
	Zone string `json:"zone,omitempty"`
	// Every is an interval. It counts from when the schedule was made.
	Every time.Duration `json:"every_ns,omitempty"`
}

// times are the moments at which a schedule is due.
type times interface {
	// next returns the first one after a moment; zero = there is none.
	next(after time.Time) time.Time
}

// times reads a When; intervals count from the anchor. Invalid: the error names
// the field that cannot be understood.
func (w When) times(anchor time.Time) (times, error) {
	switch {
	case w.Cron == "" && w.Every == 0:
		return nil, errs.New(errs.Invalid, "a schedule needs cron or every").WithHint("cron: \"0 9 * * 1-5\" is 9:00 on workdays; every: 90m")
	case w.Cron != "" && w.Every != 0:
		return nil, errs.New(errs.Invalid, "one of cron and every, not both")
	case w.Every != 0 && w.Zone != "":
		return nil, errs.New(errs.Invalid, "a time zone goes with cron: an interval is the same in all of them")
	case w.Every != 0 && (w.Every < everyMin || w.Every > everyMax):
		return nil, errs.New(errs.Invalid, "every: an interval is 1m to 8784h, got %s", w.Every)
	case w.Every != 0:
		return intervals{anchor, w.Every}, nil
	}
	zone, err := parseZone(w.Zone)
	if err != nil {
		return nil, err
	}
	spec, err := parseCron(w.Cron)
	if err != nil {
		return nil, err
	}
	c := calendar{spec, zone, spec.Hour&hoursAll == hoursAll}
	if c.next(anchor).IsZero() {
		return nil, errs.New(errs.Invalid, "cron: %.200q is never due: no month that it names has such a day", w.Cron)
	}
	return c, nil
}

func parseZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	bad := errs.New(errs.Invalid, "time zone: there is none of the name %.64q", name).WithHint("a name such as Europe/Berlin, America/New_York or UTC")
	if len(name) > zoneBytesMax || name == "Local" { // what that is changes with the host
		return nil, bad
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, bad
	}
	return zone, nil
}

// intervals are due at multiples of an interval from an anchor on.
type intervals struct {
	anchor time.Time
	every  time.Duration
}

func (i intervals) next(after time.Time) time.Time {
	if after.Before(i.anchor) {
		return i.anchor.Add(i.every)
	}
	return i.anchor.Add((after.Sub(i.anchor)/i.every + 1) * i.every)
}

// hoursAll are the bits of all hours of a day.
const hoursAll = 1<<24 - 1

// calendar is a cron expression in a time zone.
//
// One that names hours means the clock on the wall. Where that is put forward, a time
// that is left out is due at the moment after it; where it is put back, a time that
// comes twice is due the first time. One that is due in every hour of the day means
// time that passes: it is due in the hour that comes twice both times, and nothing is
// made up for one that is left out.
type calendar struct {
	spec   *cron.SpecSchedule
	zone   *time.Location
	hourly bool
}

func (c calendar) next(after time.Time) time.Time {
	// Between two changes of the clock a zone has a fixed offset; in that the
	// library's arithmetic is right.
	for at := after.Add(1); ; {
		local := at.In(c.zone)
		start, end := local.ZoneBounds()
		if !end.IsZero() && !end.After(at) {
			end = at.Add(day) // of the last day of a leap year far ahead Go says that it is over
		}
		_, offset := local.Zone()
		if again := c.againUntil(start, offset); at.Before(again) {
			at = again
			continue
		}
		due := c.spec.Next(at.Add(-1).In(time.FixedZone("", offset)))
		switch {
		case due.IsZero():
			return time.Time{}
		case end.IsZero() || due.Before(end):
			return due.UTC()
		case due.Before(c.leftOutUntil(end, offset)):
			return end.UTC()
		}
		at = end
	}
}

// againUntil is until when, from a change of the clock on, it shows what it has shown
// before.
func (c calendar) againUntil(change time.Time, offset int) time.Time {
	if c.hourly || change.IsZero() {
		return time.Time{}
	}
	_, before := change.Add(-1).In(c.zone).Zone()
	return change.Add(time.Duration(before-offset) * time.Second)
}

// leftOutUntil is what the clock would show, were it not changed, when it shows the
// first time that is not left out; offset is that before the change.
func (c calendar) leftOutUntil(change time.Time, offset int) time.Time {
	if c.hourly {
		return time.Time{}
	}
	_, after := change.In(c.zone).Zone()
	return change.Add(time.Duration(after-offset) * time.Second)
}

// latest returns the last time that is due from due on until now, and how many are
// before it, which were missed; that number is at most missedMax.
func latest(t times, due, now time.Time) (last time.Time, missed int) {
	for next := t.next(due); !next.IsZero() && !next.After(now); next = t.next(due) {
		if missed == missedMax {
			return before(t, due, now), missed
		}
		due = next
		missed++
	}
	return due, missed
}

// before returns the last time that is due until now. It looks back twice as far each
// time, so that it never counts through all that it skips.
func before(t times, due, now time.Time) time.Time {
	for back := everyMin; now.Add(-back).After(due); back *= 2 {
		if d := t.next(now.Add(-back)); !d.IsZero() && !d.After(now) {
			due = d
			break
		}
	}
	for d := t.next(due); !d.IsZero() && !d.After(now); d = t.next(due) {
		due = d
	}
	return due
}

// field is one of the five of a cron expression.
type field struct {
	name, takes string
	stepMax     int
	bits        func(*cron.SpecSchedule) uint64
}

var fields = [...]field{
	{"minute", "0 to 59", 59, func(s *cron.SpecSchedule) uint64 { return s.Minute }},
	{"hour", "0 to 23", 23, func(s *cron.SpecSchedule) uint64 { return s.Hour }},
	{"day of the month", "1 to 31", 31, func(s *cron.SpecSchedule) uint64 { return s.Dom }},
	{"month", "1 to 12, or jan to dec", 12, func(s *cron.SpecSchedule) uint64 { return s.Month }},
	{"day of the week", "0 to 6, or sun to sat; 0 is Sunday", 6, func(s *cron.SpecSchedule) uint64 { return s.Dow }},
}

// item is one of the comma-separated parts of a field.
var item = pattern.Lazy(`^([*?]|[0-9A-Za-z]+(-[0-9A-Za-z]+)?)(/([0-9]{1,4}))?$`)

const cronHint = `for example "0 9 * * 1-5": 9:00 on workdays; "*/15 * * * *": every quarter of an hour; "@daily"`

func parseCron(text string) (*cron.SpecSchedule, error) {
	words := strings.Fields(text)
	switch {
	case len(text) > cronBytesMax:
		return nil, errs.New(errs.Invalid, "cron: an expression has at most %d bytes", cronBytesMax)
	case strings.Contains(text, "TZ="):
		return nil, errs.New(errs.Invalid, "cron: the time zone does not stand in the expression").WithHint("say it apart: time_zone, in the command --tz")
	case strings.HasPrefix(text, "@"):
		return parseWord(text)
	case len(words) != len(fields):
		return nil, errs.New(errs.Invalid, "cron: an expression has five fields: minute, hour, day of the month, month, day of the week; %.200q has %d", text, len(words)).
			WithHint(cronHint)
	}
	for i, f := range fields {
		if err := f.check(i, words[i]); err != nil {
			return nil, err
		}
	}
	return parsed(strings.Join(words, " "))
}

// parseWord reads @daily and such.
func parseWord(text string) (*cron.SpecSchedule, error) {
	switch text {
	case "@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually":
		return parsed(text)
	}
	bad := errs.New(errs.Invalid, "cron: there is no %.40q", text)
	if strings.HasPrefix(text, "@every") {
		return nil, bad.WithHint("say an interval apart: every, in the command --every 90m")
	}
	return nil, bad.WithHint("@hourly, @daily, @weekly, @monthly or @yearly")
}

// check looks at one field alone, so that the error can name it.
func (f field) check(at int, text string) error {
	bad := errs.New(errs.Invalid, "cron: the %s is %.60q; it takes %s", f.name, text, f.takes).
		WithHint("a number, a-b, a list a,b, or * with */n for each n-th; %s", cronHint)
	for part := range strings.SplitSeq(text, ",") {
		m := item().FindStringSubmatch(part)
		if m == nil {
			return bad
		}
		if step, _ := strconv.Atoi(m[4]); step > f.stepMax { // at most four digits
			return errs.New(errs.Invalid, "cron: the %s is %.60q, whose step is larger than the field: it takes %s", f.name, text, f.takes).
				WithHint("for intervals use every, in the command --every 90m")
		}
	}
	alone := [...]string{"*", "*", "*", "*", "*"}
	alone[at] = text
	spec, err := parsed(strings.Join(alone[:], " "))
	if err != nil || f.bits(spec) == 0 {
		return bad
	}
	return nil
}

func parsed(text string) (*cron.SpecSchedule, error) {
	s, err := cron.ParseStandard(text)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "cron: %.200q cannot be understood", text).WithHint(cronHint)
	}
	spec, is := s.(*cron.SpecSchedule)
	if !is {
		return nil, errs.New(errs.Invalid, "cron: %.200q is no cron expression", text).WithHint(cronHint)
	}
	return spec, nil
}
