package schedule_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/schedule"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.take(10 * time.Second)
		s := h.open()
		made := minutely(t, s, "look")
		wait(3*time.Minute + time.Second)
		want := []string{clock(0, 1), clock(0, 2), clock(0, 3)}
		if d := cmp.Diff(want, h.fired()); d != "" {
			t.Error(d)
		}
		got := get(t, s, string(made.ID))
		if got.Last == nil || got.Last.State != thread.RunRunning || got.Last.Run == "" || !got.Next.Equal(made.Next.Add(3*time.Minute)) || got.Missed+got.Skipped > 0 {
			t.Errorf("%+v, %+v", got, got.Last)
		}
		asked := h.firstAsked()
		if asked.By != "anna" || asked.Labels[schedule.LabelSchedule] != "look" || asked.Input[0].Text != "look" {
			t.Errorf("%+v", asked)
		}
		if keys := h.knownKeys(); len(keys) != 1 {
			t.Errorf("%d keys are kept of one schedule: %q", len(keys), keys)
		}
		must(t, s.Remove(t.Context(), tenant, "look"))
		wait(5 * time.Minute)
		if n := len(h.fired()); n != 3 || len(h.knownKeys()) > 0 {
			t.Errorf("removed, and %d runs, %q", n, h.knownKeys())
		}
	})
}

// Wherever a server dies, a time starts one run at most, and each is accounted for.
func TestKill_atEveryCall(t *testing.T) {
	for _, down := range []time.Duration{0, 10 * time.Minute} {
		for _, length := range []time.Duration{time.Second, 90 * time.Second} {
			for n := 1; ; n++ {
				reached := false
				synctest.Test(t, func(t *testing.T) {
					h := newHouse(t)
					h.take(length)
					s := h.open()
					made := minutely(t, s, "look")
					h.dieAt(n)
					wait(150 * time.Second)
					reached = h.dead()
					must(t, s.Close())
					wait(down)
					s = h.open()
					wait(30*time.Minute + time.Second)
					got := get(t, s, "look")
					times := int(got.Next.Sub(made.Next) / time.Minute)
					h.once()
					if fired := len(h.fired()); fired+got.Missed+got.Skipped != times || fired < 10 {
						t.Errorf("killed at call %d, down for %s: %d times, of which %d were fired, %d missed, %d skipped", n, down, times, fired, got.Missed, got.Skipped)
					}
				})
				if !reached {
					if n < 8 {
						t.Errorf("only %d calls", n)
					}
					break
				}
			}
		}
	}
}

// After a month without a server the latest time counts, and the others are missed.
func TestDown_forAMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		s := h.open()
		minutely(t, s, "look")
		wait(90 * time.Second)
		must(t, s.Close())
		wait(31 * 24 * time.Hour)
		s = h.open()
		wait(10 * time.Second)
		want := []string{clock(0, 1), "2000-02-01T00:01:00Z"}
		if d := cmp.Diff(want, h.fired()); d != "" {
			t.Error(d)
		}
		if got := get(t, s, "look"); got.Missed != 31*24*60-1 || got.Skipped != 0 {
			t.Errorf("%d missed, %d skipped", got.Missed, got.Skipped)
		}
	})
}

func TestOverlap(t *testing.T) {
	for name, under := range map[string]func(*runs.Run){
		"it works":            func(*runs.Run) {},
		"it waits for people": func(r *runs.Run) { r.State = thread.RunInterrupted },
		"its sub-agents work": func(r *runs.Run) { r.State, r.Background = thread.RunSucceeded, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				h.take(0)
				s := h.open()
				minutely(t, s, "look")
				wait(90 * time.Second)
				h.end(under)
				wait(2 * time.Minute)
				got := get(t, s, "look")
				if got.Skipped != 2 || len(h.fired()) != 1 || got.Missed != 0 || got.Last.Run == "" {
					t.Errorf("%+v after %q", got, h.fired())
				}
				_, err := s.Run(t.Context(), tenant, "look", "", "anna")
				wantClass(t, "run now", err, errs.Conflict)
				h.end(func(r *runs.Run) { r.State, r.Background = thread.RunFailed, 0 })
				wait(time.Minute)
				if d := cmp.Diff([]string{clock(0, 1), clock(0, 4)}, h.fired()); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

// A schedule that goes on with a thread waits for any run of it, and so does one whose
// last run was taken up again.
func TestOverlap_anotherRunOfTheThread(t *testing.T) {
	for _, fixed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t)
			s := h.open()
			start := runs.Start{Input: text("go on")}
			if fixed {
				start.Thread = thread.NewID()
			}
			_, err := s.Add(t.Context(), tenant, schedule.New{Name: "more", When: schedule.When{Every: time.Minute}, Start: start})
			must(t, err)
			wait(90 * time.Second)
			h.take(0)
			mine, err := h.Start(t.Context(), tenant, runs.Start{Thread: h.started()[0].Thread, Input: text("mine")})
			must(t, err)
			wait(time.Minute)
			if got := get(t, s, "more"); got.Skipped != 1 || len(h.started()) != 2 || fixed && mine.Thread != start.Thread {
				t.Errorf("%+v, %d runs", got, len(h.started()))
			}
			h.end(func(r *runs.Run) { r.State = thread.RunSucceeded })
			wait(time.Minute)
			if len(h.started()) != 3 || (h.started()[2].Thread == mine.Thread) != fixed {
				t.Errorf("%d runs", len(h.started()))
			}
		})
	}
}

func TestClock(t *testing.T) {
	t.Run("put back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t)
			s := h.open()
			minutely(t, s, "look")
			wait(3*time.Minute + 10*time.Second)
			h.putClock(-30 * time.Minute)
			wait(30 * time.Minute)
			if n := len(h.fired()); n != 3 {
				t.Errorf("%d runs, before the clock shows anything new: %q", n, h.fired())
			}
			_, err := s.Pause(t.Context(), tenant, "look", true)
			must(t, err)
			h.putClock(-2 * time.Minute)
			_, err = s.Pause(t.Context(), tenant, "look", false)
			must(t, err)
			wait(3 * time.Minute)
			h.once()
			if d := cmp.Diff(clock(0, 4), h.fired()[3]); d != "" {
				t.Error(d)
			}
		})
	})
	t.Run("put forward", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t)
			s := h.open()
			_, err := s.Add(t.Context(), tenant, schedule.New{Name: "look", When: schedule.When{Cron: "0 * * * *"}, Start: runs.Start{Input: text("look")}})
			must(t, err)
			wait(time.Minute)
			h.putClock(3*time.Hour + 30*time.Minute)
			wait(time.Minute) // no timer follows the clock
			if d := cmp.Diff([]string{clock(3, 0)}, h.fired()); d != "" {
				t.Error(d)
			}
			if got := get(t, s, "look"); got.Missed != 2 {
				t.Errorf("%d missed", got.Missed)
			}
		})
	})
}

// What keeps a run from starting is written down, and the next time is tried.
func TestBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		s := h.open()
		minutely(t, s, "look")
		h.refuseAll(errs.New(errs.NotFound, "no agent %q", "look").WithHint("`skete agent list` shows them"))
		wait(90 * time.Second)
		before := h.called()
		got := get(t, s, "look")
		if got.Last == nil || got.Last.Run != "" || !strings.Contains(got.Last.Error, `no agent "look" (`) || !got.Next.Equal(got.Last.Due.Add(time.Minute)) {
			t.Errorf("%+v, %+v", got, got.Last)
		}
		h.refuseAll(errs.New(errs.Unavailable, "the store is busy"))
		wait(time.Minute)
		if got := get(t, s, "look"); got.Last.Error != "the store is busy" || h.called()-before > 100 {
			t.Errorf("%+v after %d calls", got.Last, h.called()-before)
		}
		h.refuseAll(nil)
		wait(time.Minute)
		if d := cmp.Diff([]string{clock(0, 3)}, h.fired()); d != "" {
			t.Error(d)
		}
	})
}

// A store that fails for a while is not called all the time, and nothing is lost by it.
func TestStore_failsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		s := h.open()
		minutely(t, s, "look")
		wait(90 * time.Second)
		before := h.called()
		h.dieAt(1)
		wait(time.Hour)
		if n := h.called() - before; n > 200 {
			t.Errorf("%d calls within an hour", n)
		}
		h.dieAt(0)
		wait(2 * time.Minute)
		h.once()
		if got := get(t, s, "look"); len(h.fired()) < 2 || got.Missed < 58 || got.Last.Error != "" {
			t.Errorf("%+v after %q", got, h.fired())
		}
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		s := h.open()
		minutely(t, s, "look")
		got, err := s.Pause(t.Context(), tenant, "look", true)
		must(t, err)
		if !got.Paused || !got.Next.IsZero() {
			t.Errorf("%+v", got)
		}
		wait(10 * time.Minute)
		must(t, s.Close())
		s = h.open()
		wait(10 * time.Minute)
		run, err := s.Run(t.Context(), tenant, "look", "", "berta")
		must(t, err)
		if len(h.fired()) != 1 || run.By != "berta" {
			t.Errorf("%q, %+v", h.fired(), run)
		}
		wait(30 * time.Second)
		got, err = s.Pause(t.Context(), tenant, "look", false)
		must(t, err)
		wait(time.Minute)
		if got.Paused || got.Missed > 0 || len(h.fired()) != 2 || h.fired()[1] != clock(0, 21) {
			t.Errorf("%+v, %q", got, h.fired())
		}
	})
}

func TestRunNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		s := h.open()
		made, err := s.Add(t.Context(), tenant, schedule.New{Name: "look", When: schedule.When{Cron: "@daily"}, Start: runs.Start{Input: text("look")}})
		must(t, err)
		first, err := s.Run(t.Context(), tenant, "look", "k", "anna")
		must(t, err)
		again, err := s.Run(t.Context(), tenant, string(made.ID), "k", "anna")
		must(t, err)
		if first.ID != again.ID {
			t.Errorf("the same key gave %s and %s", first.ID, again.ID)
		}
		_, err = s.Run(t.Context(), tenant, "look", "", "anna")
		wantClass(t, "while it is under way", err, errs.Conflict)
		wait(time.Minute)
		other, err := s.Run(t.Context(), tenant, "look", "", "anna")
		must(t, err)
		got := get(t, s, "look")
		if other.ID == first.ID || got.Last.Run != other.ID || !got.Next.Equal(made.Next) {
			t.Errorf("%+v, %+v", got, got.Last)
		}
		again, err = s.Run(t.Context(), tenant, "look", "k", "anna")
		must(t, err)
		if got := get(t, s, "look"); again.ID != first.ID || got.Last.Run != other.ID {
			t.Errorf("an old key gave %s, and the last run is %s", again.ID, got.Last.Run)
		}
		h.refuseAll(errs.New(errs.Limit, "too many sandboxes"))
		wait(time.Minute)
		_, err = s.Run(t.Context(), tenant, "look", "", "anna")
		wantClass(t, "run now", err, errs.Limit)
	})
}

func TestAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		s := h.open()
		start := runs.Start{Input: text("look")}
		daily := schedule.When{Cron: "@daily"}
		for name, n := range map[string]schedule.New{
			"no name":          {When: daily, Start: start},
			"a name with _":    {Name: "a_b", When: daily, Start: start},
			"a long name":      {Name: strings.Repeat("a", 65), When: daily, Start: start},
			"no time":          {Name: "a", Start: start},
			"no task":          {Name: "a", When: daily},
			"a definition":     {Name: "a", When: daily, Start: runs.Start{Input: text("x"), Inline: &definition.Definition{}}},
			"too many labels":  {Name: "a", When: daily, Start: runs.Start{Input: text("x"), Labels: map[string]string{"": "x"}}},
			"a negative limit": {Name: "a", When: daily, Start: runs.Start{Input: text("x"), Budget: thread.Budget{Steps: -1}}},
		} {
			_, err := s.Add(t.Context(), tenant, n)
			wantClass(t, name, err, errs.Invalid)
		}
		_, err := s.Add(t.Context(), tenant, schedule.New{Name: "a", When: daily, Start: runs.Start{Input: text("x"), Agent: "nobody"}})
		wantClass(t, "no such agent", err, errs.NotFound)
		_, err = s.Add(t.Context(), tenant, schedule.New{Name: "a", When: daily, Start: runs.Start{Input: text(strings.Repeat("x", 60_000))}})
		wantClass(t, "a long task", err, errs.Limit)

		first, err := s.Add(t.Context(), tenant, schedule.New{Name: "a", When: daily, Start: start, Key: "k"})
		must(t, err)
		again, err := s.Add(t.Context(), tenant, schedule.New{Name: "a", When: daily, Start: start, Key: "k"})
		must(t, err)
		if first.ID != again.ID || !strings.HasPrefix(string(first.ID), "sch_") {
			t.Errorf("the same key gave %s and %s", first.ID, again.ID)
		}
		_, err = s.Add(t.Context(), tenant, schedule.New{Name: "b", When: daily, Start: start, Key: "k"})
		wantClass(t, "the key of another", err, errs.Conflict)
		_, err = s.Add(t.Context(), tenant, schedule.New{Name: "a", When: daily, Start: start})
		wantClass(t, "a name that is taken", err, errs.Exists)
		for _, name := range []string{"c", "b"} {
			_, err = s.Add(t.Context(), tenant, schedule.New{Name: name, When: daily, Start: start})
			must(t, err)
		}
		_, err = s.Add(t.Context(), tenant, schedule.New{Name: "d", When: daily, Start: start})
		wantClass(t, "one too many", err, errs.Limit)
		_, err = s.Add(t.Context(), "other", schedule.New{Name: "a", When: daily, Start: start, Key: "k"})
		must(t, err)

		list, more, err := s.List(t.Context(), tenant, "", 2)
		must(t, err)
		if len(list) != 2 || list[0].Name != "a" || list[1].Name != "b" || !more {
			t.Errorf("%+v %v", list, more)
		}
		if list, more, err = s.List(t.Context(), tenant, "b", 2); err != nil || len(list) != 1 || list[0].Name != "c" || more {
			t.Errorf("%+v %v %v", list, more, err)
		}
	})
}

func TestTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		s := h.open()
		made := minutely(t, s, "look")
		for _, name := range []string{"look", string(made.ID)} {
			_, got := s.Get(t.Context(), "other", name)
			_, pause := s.Pause(t.Context(), "other", name, true)
			_, run := s.Run(t.Context(), "other", name, "", "")
			for what, err := range map[string]error{"get": got, "pause": pause, "run": run, "remove": s.Remove(t.Context(), "other", name)} {
				wantClass(t, what+" "+name, err, errs.NotFound)
			}
		}
		must(t, s.Erase(t.Context(), "other"))
		wait(90 * time.Second)
		if len(h.fired()) != 1 {
			t.Errorf("%q", h.fired())
		}
		must(t, s.Erase(t.Context(), tenant))
		_, err := s.Get(t.Context(), tenant, "look")
		wantClass(t, "erased", err, errs.NotFound)
		must(t, s.Close())
		s = h.open()
		wait(5 * time.Minute)
		_, err = s.Get(t.Context(), tenant, "look")
		wantClass(t, "erased, after a restart", err, errs.NotFound)
		if len(h.fired()) != 1 {
			t.Errorf("%q", h.fired())
		}
	})
}

// A schedule belongs to the node where it was made: another one shows it, and leaves it
// alone.
func TestSchedulesOfAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		first := h.openNode("first")
		minutely(t, first, "look")
		must(t, first.Close())
		second := h.openNode("second")
		wait(5 * time.Minute)
		if n := len(h.fired()); n > 0 {
			t.Errorf("%d runs", n)
		}
		get(t, second, "look")
		_, pause := second.Pause(t.Context(), tenant, "look", true)
		_, run := second.Run(t.Context(), tenant, "look", "", "")
		for what, err := range map[string]error{"pause": pause, "run": run, "remove": second.Remove(t.Context(), tenant, "look")} {
			if !errs.Is(err, errs.Conflict) || !strings.Contains(errs.Public(err), "on another node") {
				t.Errorf("%s: %v", what, err)
			}
		}
		third := h.openNode("first")
		wait(10 * time.Second)
		if got := get(t, third, "look"); len(h.fired()) != 1 || got.Missed != 4 {
			t.Errorf("%q, %+v", h.fired(), got)
		}
	})
}

// Two servers of one node, which nothing allows, fire a time once all the same.
func TestTwoServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		s := h.open()
		minutely(t, s, "look")
		other := h.open()
		wait(10*time.Minute + 10*time.Second)
		h.once()
		if n := len(h.fired()); n != 10 {
			t.Errorf("%d runs of 10 times: %q", n, h.fired())
		}
		got, err := other.Pause(t.Context(), tenant, "look", true)
		must(t, err)
		wait(10 * time.Minute)
		if n := len(h.fired()); n > 11 || !got.Paused { // the other learns of it when it writes
			t.Errorf("paused by one, and %d runs", n)
		}
		h.once()
		must(t, s.Close())
	})
}
