// Package schedule starts runs of agents at times: a schedule is a task, when it is
// due, and what became of it.
//
//	s, err := schedule.Open(ctx, schedule.Config{Records: kv, Runs: supervisor, Node: node})
//	made, err := s.Add(ctx, tenant, schedule.New{Name: "report", When: schedule.When{Cron: "0 9 * * 1-5"}, Start: start})
//	run, err := s.Run(ctx, tenant, "report", "", "anna") // now
//	defer s.Close()                                      // the next Open goes on
//
// What it promises. A time at which a schedule is due starts one run or none, wherever
// the server is killed: the start has a key made of the schedule and that time, so a
// repeated start is the same run, and the record names the next time only after the
// run is there. Of all times that came while no server ran, the latest one counts; the
// others are missed, and counted. While a run of a schedule is under way, or waits for
// a person, its times are skipped, and counted. What keeps a run from starting is
// written down, and the next time is tried again. A schedule belongs to the node where
// it was made, and to no other.
//
// A Scheduler is safe for concurrent use.
package schedule

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/thread"
)

// Bounds of a schedule.
const (
	recordBytesMax = 48 << 10 // of the 64 KB that a store's value has
	// SchedulesMax is how many a tenant may have, unless configured.
	SchedulesMax = 100
)

// Labels that the runs of a schedule have unless it names others.
const (
	LabelSchedule = "schedule" // its name
	LabelDue      = "due"      // the time, RFC 3339 in UTC
)

// ID names a schedule for ever: "sch_" and 20 characters of a–z, 2–7.
type ID string

var (
	letters  = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	nameForm = pattern.Lazy(`^[a-z0-9]+(-[a-z0-9]+)*$`)
)

const (
	idPrefix     = "sch_"
	idLetters    = 20
	nameBytesMax = 64
)

// newID is random, or with a key the same for the same words.
func newID(key string, words ...string) ID {
	sum := sha256.Sum256([]byte(strings.Join(append(words, key), "\x00")))
	if key == "" {
		_, _ = rand.Read(sum[:]) // never fails, see crypto/rand
	}
	return ID(idPrefix + letters.EncodeToString(sum[:])[:idLetters])
}

// Schedule is what there is to know about one.
type Schedule struct {
	ID     ID     `json:"id"`
	Tenant string `json:"tenant"`
	Name   string `json:"name"` // of no other schedule of the tenant
	Node   string `json:"node"` // where its threads and machines are
	When
	// Start is what each of its runs is asked for.
	Start   runs.Start `json:"start"`
	By      string     `json:"by,omitempty"` // who made it
	Created time.Time  `json:"created"`
	Paused  bool       `json:"paused,omitempty"`
	// Next is the time that is next due; zero = it is paused, or there is none. No time
	// but this one can have a run that the record does not name yet.
	Next time.Time `json:"next,omitzero"`
	// Settled is the latest time of which is known what became of it.
	Settled time.Time `json:"settled,omitzero"`
	Last    *Firing   `json:"last,omitempty"`
	// Missed counts the times at which no server ran; Skipped those at which the run
	// before was under way.
	Missed  int `json:"missed,omitempty"`
	Skipped int `json:"skipped,omitempty"`
	// Asked is a hash of what was asked for when it was made with a key.
	Asked string `json:"asked,omitempty"`
}

// Firing is what became of a time. It never changes.
type Firing struct {
	Due    time.Time    `json:"due"`
	Run    thread.RunID `json:"run,omitempty"`
	Thread thread.ID    `json:"thread,omitempty"`
	// Error says why no run could be started.
	Error string `json:"error,omitempty"`
	// State is that of the run as it is now; it is not stored. "" = the run is gone.
	State thread.RunState `json:"-"`
}

// New asks for a schedule.
type New struct {
	Name string
	When
	Start runs.Start // its Key is not used
	// Key makes the call repeatable: the same key is the same schedule.
	Key string
}

// Runs is what is needed of *supervisor.Supervisor.
type Runs interface {
	// MayStart finds out what keeps a run from being started.
	MayStart(ctx context.Context, tenant string, s runs.Start) error
	// Start begins a run; the same Key is the same run.
	Start(ctx context.Context, tenant string, s runs.Start) (runs.Run, error)
	// Keyed returns the run that was begun with a key. NotFound.
	Keyed(ctx context.Context, tenant, key string) (runs.Run, error)
	// ForgetKey removes a key whose start will not be repeated.
	ForgetKey(ctx context.Context, tenant, key string) error
	Get(ctx context.Context, tenant string, id thread.RunID) (runs.Run, error)
	List(ctx context.Context, tenant string, f runs.Filter) (runs.Page, error)
}

// check refuses what can be seen to be wrong without looking anything up.
func (n New) check() error {
	if len(n.Name) > nameBytesMax || !nameForm().MatchString(n.Name) {
		return errs.New(errs.Invalid, "%.80q is no name of a schedule", n.Name).WithHint("1 to %d of a to z, 0 to 9 and single hyphens", nameBytesMax)
	}
	if n.Start.Inline != nil {
		return errs.New(errs.Invalid, "a schedule names its agent").WithHint("put the definition into the server's folder of agents")
	}
	return nil
}

// fingerprint tells two requests under one key apart.
func (n New) fingerprint() string {
	asked, _ := json.Marshal(struct { // plain data
		Name string
		When
		Start runs.Start
	}{n.Name, n.When, n.Start})
	return runs.HashName(string(asked))
}

// startOf is what the run of a time is asked for. Nothing in it may depend on
// anything but the schedule and the time: the start may be repeated.
func (s Schedule) startOf(due time.Time, key string) runs.Start {
	start := s.Start
	start.Labels = map[string]string{LabelSchedule: s.Name, LabelDue: due.UTC().Format(time.RFC3339)}
	maps.Copy(start.Labels, s.Start.Labels)
	start.Key = key
	return start
}

// key is what the start of a time has. No client can choose it: a client's keys have
// no spaces.
func (s Schedule) key(due time.Time) string {
	return "schedule " + string(s.ID) + " " + due.UTC().Format(time.RFC3339Nano)
}
